"""Batch mean field for any two-level process on packed units: the same bound as the generic engine, and its steps.

Units by the coordinate steps of `lvsearch.inference.hdp.kernel`, from E[log p(x_n | φ_k)] of every member; then every
global site by the gradient of the log-joint, from how much of every member each part has (Blei 2004, Eq. 2.18).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.packing import DocumentTiles
from lvsearch.inference.engine.ascent import AscentTrace, sweep_until_settled
from lvsearch.inference.engine.meanfield import Beliefs, expected_statistics, globals_bound, site_entropy
from lvsearch.inference.hdp.kernel import Collected, TablePosterior, collect_documents, settle_documents
from lvsearch.inference.hdp.units import globals_of
from lvsearch.models.contract import Masks
from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.kernels import kernel


class Units(NamedTuple):
    """Packed units on the device: tiles, which slots hold a unit, and the members of all."""

    tiles: DocumentTiles
    real: Bool[Array, "batch tile document"] | Any
    members: Any


@kernel(static_argnames=("capacity",), brief=True)
@counted
def ascend_units(
    model: HierarchicalProcess,
    beliefs: Beliefs,
    seating: TablePosterior,
    units: Units,
    size: tuple[Array | int, ...],
    tolerance: float | Array,
    passes: int | Array,
    sweeps: int | Array,
    *,
    capacity: tuple[int, ...],
) -> AscentTrace:
    """At most `passes` (and `TRACE_LENGTH`) passes, until one gains less than `tolerance` nats; `sweeps` coordinate
    steps of every unit in each. The bound of a pass is that of the globals before it, with the units as they then are;
    the trace's locals are the units' tables.
    """
    dtype = seating.hits.dtype

    def one_pass(b: Beliefs, before: TablePosterior) -> tuple[Beliefs, TablePosterior, Array]:
        seen, log_alpha = globals_of(model, b.mean, units.members, size, capacity=capacity)
        seats, each = settle_documents(units.tiles, before, seen, sweeps=sweeps)
        n_sticks = units.real.sum() * model.tables
        bound = globals_bound(model, b, size, capacity=capacity)
        bound = (bound + jnp.where(units.real, each, 0.0).sum() + n_sticks * log_alpha).astype(dtype)
        collected = collect_documents(units.tiles, seats, seen, units.real)
        return follow_units(model, b, collected, units.members, model.active(size, capacity)), seats, bound

    return sweep_until_settled(one_pass, beliefs, seating, tolerance, passes, dtype)


def follow_units(
    model: HierarchicalProcess, beliefs: Beliefs, collected: Collected, members: Any, on: Masks
) -> Beliefs:
    """A coordinate step of each global site, in the model's order, given what the units add to them."""

    def log_joint(g: dict[str, Any]) -> Array:
        log_alpha, alpha = model.log_and_value(g, model.levels[1])
        return (
            model.log_prior(g, on)
            + collected.sticks * log_alpha
            + (alpha - 1) * collected.log_left
            + (collected.pointed * model.log_weights(g, on)).sum()
            + (collected.words * model.log_likelihoods(g, members)).sum()
        )

    for name, site in model.globals().items():
        natural = jax.grad(lambda m, b=beliefs, n=name: log_joint({**b.mean, n: m}))(beliefs.mean[name])
        mean = expected_statistics(site, natural, on)
        beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
    return beliefs


@kernel(static_argnames=("capacity",), brief=True)
@counted
def parts_from(
    model: HierarchicalProcess,
    shares: Float[Array, "member part"],
    beliefs: Beliefs,
    members: Any,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Beliefs:
    """The parts that follow from how much of every member each has; the other globals as they were."""
    on = model.active(size, capacity)

    def log_joint(g: dict[str, Any]) -> Array:
        return model.log_prior(g, on) + (shares * model.log_likelihoods(g, members)).sum()

    for name, site in model.part_sites().items():
        natural = jax.grad(lambda m, b=beliefs, n=name: log_joint({**b.mean, n: m}))(beliefs.mean[name])
        mean = expected_statistics(site, natural, on)
        beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
    return beliefs


class SharedSurvey(NamedTuple):
    """A fit looked at: what proposals go by, and the terms of the bound (nats).

    | field | meaning |
    |---|---|
    | `units` | Σ over units of their terms given the globals |
    | `log_prior`, `entropies` | the globals' terms, one entropy per site |
    | `shares` | how much of every member each part has (member, part) |
    """

    units: Array
    log_prior: Array
    entropies: dict[str, Array]
    shares: Float[Array, "member part"]

    def terms(self, units: str) -> dict[str, float]:
        """Those of the bound by name; units: what units are called there."""
        entropies = {f"entropy of {name}": float(value) for name, value in self.entropies.items()}
        return {units: float(self.units), "log prior": float(self.log_prior), **entropies}


@kernel(static_argnames=("capacity",), brief=True)
@counted
def survey_units(
    model: HierarchicalProcess,
    beliefs: Beliefs,
    seating: TablePosterior,
    units: Units,
    size: tuple[Array | int, ...],
    sweeps: int | Array,
    *,
    capacity: tuple[int, ...],
) -> SharedSurvey:
    """One look at these globals, after `sweeps` coordinate steps of every unit."""
    on = model.active(size, capacity)
    seen, log_alpha = globals_of(model, beliefs.mean, units.members, size, capacity=capacity)
    seats, each = settle_documents(units.tiles, seating, seen, sweeps=sweeps)
    total = jnp.where(units.real, each, 0.0).sum() + units.real.sum() * model.tables * log_alpha
    entropies = {name: site_entropy(site, beliefs.natural[name], None, on) for name, site in model.globals().items()}
    collected = collect_documents(units.tiles, seats, seen, units.real)
    return SharedSurvey(total, model.log_prior(beliefs.mean, on), entropies, collected.words)
