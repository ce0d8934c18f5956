"""Batch mean field for any two-level process on packed units, with the same bound and steps as the generic engine.

Units are updated by the coordinate steps of `lvsearch.inference.hdp.kernel`, from E[log p(x_n | φ_k)] of every member.
Then every global latent variable is updated by the gradient of the log-joint, from each part's share of every member
(Blei 2004, Eq. 2.18).
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
    """Packed units on the device: tiles, which slots hold a unit, and the members of all units."""

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
    """Run passes of coordinate ascent until one gains less than `tolerance` nats.

    It makes at most `passes` (and `TRACE_LENGTH`) passes, each with `sweeps` coordinate steps of every unit. The bound
    of a pass is that of the global parameters before it, with the units as they are then. The trace's locals are the
    units' tables.
    """
    dtype = seating.hits.dtype

    def one_pass(b: Beliefs, before: TablePosterior) -> tuple[Beliefs, TablePosterior, Array]:
        seen, log_alpha = globals_of(model, b.mean, units.members, size, capacity=capacity)
        seats, each = settle_documents(units.tiles, before, seen, sweeps=sweeps)
        n_sticks = units.real.sum() * model.tables
        bound = globals_bound(model, b, size, capacity=capacity)
        bound = (bound + jnp.where(units.real, each, 0.0).sum() + n_sticks * log_alpha).astype(dtype)
        collected = collect_documents(units.tiles, seats, seen, units.real)
        return step_globals(model, b, collected, units.members, model.active(size, capacity)), seats, bound

    return sweep_until_settled(one_pass, beliefs, seating, tolerance, passes, dtype)


def step_globals(
    model: HierarchicalProcess, beliefs: Beliefs, collected: Collected, members: Any, on: Masks
) -> Beliefs:
    """Make a coordinate step of each global latent variable, in the model's order, given what the units add to them."""

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
def parts_from_shares(
    model: HierarchicalProcess,
    shares: Float[Array, "member part"],
    beliefs: Beliefs,
    members: Any,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Beliefs:
    """Return the beliefs about the parts that follow from each part's share of every member; other globals are
    unchanged.
    """
    on = model.active(size, capacity)

    def log_joint(g: dict[str, Any]) -> Array:
        return model.log_prior(g, on) + (shares * model.log_likelihoods(g, members)).sum()

    for name, site in model.part_sites().items():
        natural = jax.grad(lambda m, b=beliefs, n=name: log_joint({**b.mean, n: m}))(beliefs.mean[name])
        mean = expected_statistics(site, natural, on)
        beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
    return beliefs


class SharedSurvey(NamedTuple):
    """The state of a fit as proposals see it, with the terms of the bound in nats.

    | field | meaning |
    |---|---|
    | `units` | Σ over units of their terms given the globals |
    | `log_prior`, `entropies` | the globals' terms, one entropy per latent variable |
    | `shares` | each part's share of every member (member, part) |
    """

    units: Array
    log_prior: Array
    entropies: dict[str, Array]
    shares: Float[Array, "member part"]

    def terms(self, units: str) -> dict[str, float]:
        """Return the terms of the evidence lower bound as {name: nats}.

        `units` is the key used for the per-unit term.
        """
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
    """Survey the fit at these global parameters, after `sweeps` coordinate steps of every unit."""
    on = model.active(size, capacity)
    seen, log_alpha = globals_of(model, beliefs.mean, units.members, size, capacity=capacity)
    seats, each = settle_documents(units.tiles, seating, seen, sweeps=sweeps)
    total = jnp.where(units.real, each, 0.0).sum() + units.real.sum() * model.tables * log_alpha
    entropies = {name: site_entropy(site, beliefs.natural[name], None, on) for name, site in model.globals().items()}
    collected = collect_documents(units.tiles, seats, seen, units.real)
    return SharedSurvey(total, model.log_prior(beliefs.mean, on), entropies, collected.words)
