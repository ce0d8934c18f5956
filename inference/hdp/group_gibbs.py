"""Gibbs sampling for groups of rows by direct assignment, with the components integrated out.

It is `lvsearch.inference.hdp.franchise` with

    p(x_i | rows of k) = exp(A(τ_k + s(x_i)) − A(τ_k)) h(x_i),        τ_k = λ + Σ s(rows of k)

(Blei 2004, Eq. 5.13) for any kind of component, in float64. Here s(x) are the sufficient statistics of a row and h(x)
its base measure. λ are the natural parameters of a component's prior, τ_k those of its posterior, and A is their log
normaliser.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Int32, Key

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.hdp.contents import contents_of
from lvsearch.inference.hdp.sampler import Members, run_one_chain
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.sampling import Trace
from lvsearch.models.components import Component, log_normalisers
from lvsearch.models.hdp import HDPMixture, Rows

FIRST_CAPACITY = 16
"""The number of places (array slots) for components at first. It is doubled whenever a sweep needs more."""


class RowSums(NamedTuple):
    """Posteriors of the components at all places (array slots): natural parameters (place, …) and log normalisers,
    nats.
    """

    natural: Any
    normaliser: Float[Array, " place"]


class RowEmission(NamedTuple):
    """The likelihood of rows given components, with the components' parameters integrated out.

    component: the kind of component.
    increments: sufficient statistics of each row, rows on the leading axis.
    prior: natural parameters of one component's prior.
    """

    component: Component
    increments: Any
    prior: Any

    def empty(self, places: int) -> RowSums:
        """Return the posteriors of components without rows, at `places` array slots."""
        natural = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (places, *jnp.shape(leaf))), self.prior)
        return RowSums(natural, jnp.broadcast_to(self._normaliser(self.prior), (places,)))

    def gather(self, labels: Array, places: int) -> RowSums:
        """Return the posteriors of components given all rows, each at the place (array slot) of its component.

        labels: the place of each row's component, (row,).
        places: the number of places.
        """
        natural = jax.tree.map(lambda s, p: p + jax.ops.segment_sum(s, labels, places), self.increments, self.prior)
        return RowSums(natural, log_normalisers(self.component, natural))

    def densities(self, emitted: RowSums, member: Array, total: Array) -> Array:
        """Return p(row | rows of the component at each place (array slot)), (place,), up to one common factor.

        emitted: the components' posteriors without the row.
        member: the index of the row.
        total: not used.
        """
        after = jax.tree.map(jnp.add, emitted.natural, self._increment(member))
        score = log_normalisers(self.component, after) - emitted.normaliser
        return jnp.exp(score - score.max())

    def remove(self, emitted: RowSums, member: Array, place: Array, last: Array) -> RowSums:
        """Return the posteriors with one row removed from the component at a place (array slot).

        If it was the last row there, the component gets exactly its prior again, so that no rounding is handed on.

        member: the index of the row.
        last: whether it is the only row at the place.
        """
        increment = self._increment(member)
        left = jax.tree.map(lambda t, s, p: jnp.where(last, p, t[place] - s), emitted.natural, increment, self.prior)
        return self._set_place(emitted, place, left)

    def add(self, emitted: RowSums, member: Array, place: Array) -> RowSums:
        """Return the posteriors with one more row, the `member`-th, in the component at a place (array slot)."""
        more = jax.tree.map(lambda t, s: t[place] + s, emitted.natural, self._increment(member))
        return self._set_place(emitted, place, more)

    def log_density(self, emitted: RowSums, total: Array) -> Array:
        """Return log p(all rows | their components) without the rows' base measure, nats.

        total: the number of rows at each place (array slot).
        """
        return jnp.where(total > 0, emitted.normaliser - self._normaliser(self.prior), 0.0).sum()

    def _set_place(self, emitted: RowSums, place: Array, one: Any) -> RowSums:
        """Return the posteriors with the component at one place (array slot) replaced by `one`, its natural
        parameters.
        """
        natural = jax.tree.map(lambda t, new: t.at[place].set(new), emitted.natural, one)
        return RowSums(natural, emitted.normaliser.at[place].set(self._normaliser(one)))

    def _increment(self, member: Array) -> Any:
        """Return the sufficient statistics of one row, the `member`-th."""
        return jax.tree.map(lambda leaf: leaf[member], self.increments)

    def _normaliser(self, one: Any) -> Array:
        """Return the log normaliser at the natural parameters of one component, nats."""
        return log_normalisers(self.component, jax.tree.map(lambda leaf: leaf[None], one))[0]


@dataclass(frozen=True, eq=False)
class GroupsSample:
    """One state of the chain, and its history. Components are those in use, most rows first.

    | field | shape | meaning |
    |---|---|---|
    | `assignments` | (row,) | the component of each row, rows in the order of the groups, int32 |
    | `group_component` | (group, component) | number of rows of each component in each group, int32 |
    | `beta` | (component,) | shared weights of the components in use; 1 − Σβ is left for others |
    | `natural` | (component, …) | natural parameters of each component's posterior |
    | `occupied` | (sweep,) | the number of components in use after every sweep of the chain so far |
    | `gammas`, `alphas` | (sweep,) | concentrations of the shared weights and of a group's weights after every sweep |
    | `kept` | (kept, row) | labels after every `keep`-th sweep, numbered in order of appearance |
    | `trace` | | the chain as `lv.sample` gives it: one chain, a draw for every sweep |
    """

    assignments: Int32[np.ndarray, " row"]
    group_component: Int32[np.ndarray, "group component"]
    beta: Float64[np.ndarray, " component"]
    natural: Any
    occupied: Int[np.ndarray, " sweep"]
    gammas: Float64[np.ndarray, " sweep"]
    alphas: Float64[np.ndarray, " sweep"]
    kept: Int[np.ndarray, "kept row"]
    trace: Trace


def group_direct_assignment(
    model: HDPMixture,
    data: Dataset,
    *,
    sweeps: int,
    key: Key[Array, ""],
    keep: int = 1,
    start: GroupsSample | None = None,
) -> GroupsSample:
    """Make `sweeps` more sweeps of the chain that `key` determines, from `start` or from nothing. Returns its last
    state.

    From nothing, the rows are first added one at a time, each drawn given those before it. That is not counted as a
    sweep. A chain in several calls gives the same bits as in one call.

    keep: keep the labels after every keep-th sweep, 0 for none. It must keep some, or none, as the chain of `start`
        did.

    Raises ValueError for a number of sweeps below 1, rows without a density, and a `start` of another chain.
    """
    if keep < 0:
        raise ValueError(f"got keep={keep}, expected keep ≥ 0 (0 keeps nothing)")
    sizes, members = groups_of(model, data)
    if start is not None and not np.array_equal(start.group_component.sum(1), sizes):
        raise ValueError("got a start from other groups, expected a sample of the chain to continue")
    after = None if start is None else start.trace
    chain = run_one_chain(model, members, key, sweeps=sweeps, units=keep > 0, after=after)
    z, in_unit, beta = chain.seating
    with jax.enable_x64(True):
        natural = jax.tree.map(np.asarray, members.emission.gather(jnp.asarray(z), len(beta)).natural)
    chosen = chain.trace["component"][0, keep - 1 :: keep] if keep else np.zeros((0, len(z)), np.int64)
    kept = np.array([by_appearance(labels) for labels in chosen], np.int64).reshape(-1, len(z))
    return GroupsSample(z, in_unit, beta, natural, *chain.history, kept, chain.trace)


def groups_of(model: HDPMixture, data: Dataset) -> tuple[Int[np.ndarray, " group"], Members]:
    """Return the number of rows of each group, and all rows as the members that the sampler moves between components.

    Rows are in the order of the groups.

    Raises ValueError for rows without a density.
    """
    counts, rows = contents_of(model, data)
    sizes = np.diff(counts.indptr)
    unit_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    with jax.enable_x64(True):
        emission = row_emission(model, rows)
    return sizes, Members(unit_of, len(sizes), emission, float(rows.log_carrier.sum()), FIRST_CAPACITY)


def row_emission(model: HDPMixture, members: Rows) -> RowEmission:
    """Return the likelihood of rows under the model's components, in the session's floating-point type."""
    y, observed, _ = map(jnp.asarray, members)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, y.dtype), model.components.prior(y.shape[1]))
    return RowEmission(model.components, jax.vmap(model.components.increment)(y, observed), prior)
