"""Gibbs sampling for groups of rows by direct assignment, the components integrated out: the sampler of
`lvsearch.inference.hdp.franchise` with

    p(x_i | rows of k) = exp(A(τ_k + s(x_i)) − A(τ_k)) h(x_i),        τ_k = λ + Σ s(rows of k)

(Blei 2004, Eq. 5.13) for any kind of component. In float64.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Int32, Key

from lvsearch.inference.data import Dataset
from lvsearch.inference.hdp.chain import begun, by_size, next_state, resumed
from lvsearch.inference.hdp.contents import contents_of
from lvsearch.inference.hdp.franchise import Franchise
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.models.components import Component, log_normalisers
from lvsearch.models.hdp_mixture import HDPMixture, Rows

FIRST_CAPACITY = 16
"""Places for components to begin with, doubled whenever a sweep needs more."""


class RowSums(NamedTuple):
    """What rows say of components: `natural` parameters (place, …) and their `normaliser` (place,)."""

    natural: Any
    normaliser: Float[Array, " place"]


class RowEmission(NamedTuple):
    """Rows of components. `increments` s(x_i), rows leading; `prior` λ of one component."""

    component: Component
    increments: Any
    prior: Any

    def empty(self, places: int) -> RowSums:
        natural = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (places, *jnp.shape(leaf))), self.prior)
        return RowSums(natural, jnp.broadcast_to(self._normaliser(self.prior), (places,)))

    def widened(self, emitted: RowSums, places: int) -> RowSums:
        more = self.empty(places - len(emitted.normaliser))
        return jax.tree.map(lambda old, new: jnp.concatenate([old, new]), emitted, more)

    def densities(self, emitted: RowSums, member: Array, total: Array) -> Array:
        after = jax.tree.map(jnp.add, emitted.natural, self._increment(member))
        score = log_normalisers(self.component, after) - emitted.normaliser
        return jnp.exp(score - score.max())

    def taken(self, emitted: RowSums, member: Array, place: Array, last: Array) -> RowSums:
        """A place that is left without rows has its prior again: no rounding is handed on."""
        increment = self._increment(member)
        left = jax.tree.map(lambda t, s, p: jnp.where(last, p, t[place] - s), emitted.natural, increment, self.prior)
        return self._put(emitted, place, left)

    def given(self, emitted: RowSums, member: Array, place: Array) -> RowSums:
        more = jax.tree.map(lambda t, s: t[place] + s, emitted.natural, self._increment(member))
        return self._put(emitted, place, more)

    def _put(self, emitted: RowSums, place: Array, one: Any) -> RowSums:
        natural = jax.tree.map(lambda t, new: t.at[place].set(new), emitted.natural, one)
        return RowSums(natural, emitted.normaliser.at[place].set(self._normaliser(one)))

    def _increment(self, member: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[member], self.increments)

    def _normaliser(self, one: Any) -> Array:
        return log_normalisers(self.component, jax.tree.map(lambda leaf: leaf[None], one))[0]


@dataclass(frozen=True, eq=False)
class GroupsSample:
    """One state of the chain, and how it came there. Components are those in use, most rows first.

    | field | shape | meaning |
    |---|---|---|
    | `assignments` | (row,) | z, rows in the order of the groups, int32 |
    | `group_component` | (group, component) | rows of each, int32 |
    | `beta` | (component,) | β of the components in use; 1 − Σβ is left for others |
    | `natural` | (component, …) | natural parameters of each one's posterior |
    | `occupied`, `gammas`, `alphas` | (sweep,) | components in use, γ and α after every sweep of the chain so far |
    | `kept` | (kept, row) | labels after every `keep`-th sweep, numbered in order of appearance |
    """

    assignments: Int32[np.ndarray, " row"]
    group_component: Int32[np.ndarray, "group component"]
    beta: Float64[np.ndarray, " component"]
    natural: Any
    occupied: Int[np.ndarray, " sweep"]
    gammas: Float64[np.ndarray, " sweep"]
    alphas: Float64[np.ndarray, " sweep"]
    kept: Int[np.ndarray, "kept row"]


def group_direct_assignment(
    model: HDPMixture,
    data: Dataset,
    *,
    sweeps: int,
    key: Key[Array, ""],
    keep: int = 1,
    start: GroupsSample | None = None,
) -> GroupsSample:
    """`sweeps` more sweeps of the chain of `key`, from `start` or from nothing: then the rows are first added one at a
    time, each drawn given those before it, which is not counted as a sweep.

    keep: keep the labels after every keep-th sweep, 0 for none. Raises ValueError for a number of sweeps below 1, rows
    without a density, and a `start` from other data.
    """
    if sweeps < 1 or keep < 0:
        raise ValueError(f"got sweeps={sweeps}, keep={keep}; expected at least 1 sweep, and keep ≥ 0 (0 keeps nothing)")
    contents = contents_of(model, data)
    sizes = np.diff(contents.counts.indptr)
    unit_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    trace: dict[str, list[Any]] = {"occupied": [], "gammas": [], "alphas": [], "kept": []}
    with jax.enable_x64(True):
        emission = row_emission(model, contents.members)
        if start is None:
            state = begun(model, unit_of, len(sizes), emission, jax.random.fold_in(key, 0), FIRST_CAPACITY)
        else:
            if len(start.assignments) != len(unit_of) or not np.array_equal(start.group_component.sum(1), sizes):
                raise ValueError("got a start from other groups, expected a sample of the chain to continue")
            state = _continued(start, emission)
            trace = {name: list(getattr(start, name)) for name in trace}
        before = len(trace["occupied"])
        for number in range(before + 1, before + sweeps + 1):
            state = next_state(model, state, unit_of, emission, jax.random.fold_in(key, number))
            trace["occupied"].append(int((np.asarray(state.total) > 0).sum()))
            trace["gammas"].append(float(state.gamma))
            trace["alphas"].append(float(state.alpha))
            if keep and number % keep == 0:
                trace["kept"].append(by_appearance(np.asarray(state.assignments)))
    return _sample(state, trace)


def row_emission(model: HDPMixture, members: Rows) -> RowEmission:
    """Rows of the model's components, in the session's floating type."""
    y, observed, _ = map(jnp.asarray, members)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, y.dtype), model.components.prior(y.shape[1]))
    return RowEmission(model.components, jax.vmap(model.components.increment)(y, observed), prior)


def _continued(start: GroupsSample, emission: RowEmission) -> Franchise:
    natural = jax.tree.map(jnp.asarray, start.natural)
    return resumed(
        start.assignments,
        start.group_component,
        RowSums(natural, log_normalisers(emission.component, natural)),
        start.beta,
        (float(start.gammas[-1]), float(start.alphas[-1])),
        emission,
        FIRST_CAPACITY,
    )


def _sample(state: Franchise, trace: dict[str, list[Any]]) -> GroupsSample:
    order, assignments = by_size(state)
    return GroupsSample(
        assignments,
        np.asarray(state.in_unit)[:, order],
        np.asarray(state.beta, np.float64)[order],
        jax.tree.map(lambda leaf: np.asarray(leaf)[order], state.emitted.natural),
        np.array(trace["occupied"], np.int64),
        np.array(trace["gammas"], np.float64),
        np.array(trace["alphas"], np.float64),
        np.array(trace["kept"], np.int64).reshape(-1, len(assignments)),
    )
