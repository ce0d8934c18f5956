"""Gibbs sampling for groups of rows by direct assignment, with the components integrated out.

It is `lvsearch.inference.hdp.franchise` with

    p(x_i | rows of k) = exp(A(τ_k + s(x_i)) − A(τ_k)) h(x_i),        τ_k = λ + Σ s(rows of k)

(Blei 2004, Eq. 5.13) for any kind of component, in float64.
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
from lvsearch.models.hdp_mixture import HDPMixture, Rows

FIRST_CAPACITY = 16
"""The number of places for components at first. It is doubled whenever a sweep needs more."""


class RowSums(NamedTuple):
    """The `natural` parameters of components' posteriors (place, …), and their `normaliser` (place,)."""

    natural: Any
    normaliser: Float[Array, " place"]


class RowEmission(NamedTuple):
    """The likelihood of rows given components, with the components' parameters integrated out.

    component: the kind of component.
    increments: s(x_i), rows on the leading axis.
    prior: λ of one component.
    """

    component: Component
    increments: Any
    prior: Any

    def empty(self, places: int) -> RowSums:
        """Return the sums of places without rows."""
        natural = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (places, *jnp.shape(leaf))), self.prior)
        return RowSums(natural, jnp.broadcast_to(self._normaliser(self.prior), (places,)))

    def gather(self, labels: Array, places: int) -> RowSums:
        """Return the sums of all rows at the places of their labels."""
        natural = jax.tree.map(lambda s, p: p + jax.ops.segment_sum(s, labels, places), self.increments, self.prior)
        return RowSums(natural, log_normalisers(self.component, natural))

    def densities(self, emitted: RowSums, member: Array, total: Array) -> Array:
        """Return p(row | rows at each place) up to a factor, (place,)."""
        after = jax.tree.map(jnp.add, emitted.natural, self._increment(member))
        score = log_normalisers(self.component, after) - emitted.normaliser
        return jnp.exp(score - score.max())

    def remove(self, emitted: RowSums, member: Array, place: Array, last: Array) -> RowSums:
        """Remove the row. A place left without rows gets exactly its prior again, so that no rounding is handed on."""
        increment = self._increment(member)
        left = jax.tree.map(lambda t, s, p: jnp.where(last, p, t[place] - s), emitted.natural, increment, self.prior)
        return self._set_place(emitted, place, left)

    def add(self, emitted: RowSums, member: Array, place: Array) -> RowSums:
        """Return the sums with one more row at a place."""
        more = jax.tree.map(lambda t, s: t[place] + s, emitted.natural, self._increment(member))
        return self._set_place(emitted, place, more)

    def log_density(self, emitted: RowSums, total: Array) -> Array:
        """Return log p(all rows | their places) without Σ log h(x), nats."""
        return jnp.where(total > 0, emitted.normaliser - self._normaliser(self.prior), 0.0).sum()

    def _set_place(self, emitted: RowSums, place: Array, one: Any) -> RowSums:
        """Return the sums with those of one place replaced."""
        natural = jax.tree.map(lambda t, new: t.at[place].set(new), emitted.natural, one)
        return RowSums(natural, emitted.normaliser.at[place].set(self._normaliser(one)))

    def _increment(self, member: Array) -> Any:
        """Return s(x) of one row."""
        return jax.tree.map(lambda leaf: leaf[member], self.increments)

    def _normaliser(self, one: Any) -> Array:
        """Return A at the natural parameters of one component, nats."""
        return log_normalisers(self.component, jax.tree.map(lambda leaf: leaf[None], one))[0]


@dataclass(frozen=True, eq=False)
class GroupsSample:
    """One state of the chain, and its history. Components are those in use, most rows first.

    | field | shape | meaning |
    |---|---|---|
    | `assignments` | (row,) | z, rows in the order of the groups, int32 |
    | `group_component` | (group, component) | rows of each, int32 |
    | `beta` | (component,) | β of the components in use; 1 − Σβ is left for others |
    | `natural` | (component, …) | natural parameters of each one's posterior |
    | `occupied`, `gammas`, `alphas` | (sweep,) | components in use, γ and α after every sweep of the chain so far |
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
    """Make `sweeps` more sweeps of the chain of `key`, from `start` or from nothing.

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
    """Return the number of rows of each group, and all rows as members, in the order of the groups.

    Raises ValueError for rows without a density.
    """
    counts, rows = contents_of(model, data)
    sizes = np.diff(counts.indptr)
    unit_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    with jax.enable_x64(True):
        emission = row_emission(model, rows)
    return sizes, Members(unit_of, len(sizes), emission, float(rows.log_carrier.sum()), FIRST_CAPACITY)


def row_emission(model: HDPMixture, members: Rows) -> RowEmission:
    """Return the likelihood of rows under the model's components, in the session's floating type."""
    y, observed, _ = map(jnp.asarray, members)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, y.dtype), model.components.prior(y.shape[1]))
    return RowEmission(model.components, jax.vmap(model.components.increment)(y, observed), prior)
