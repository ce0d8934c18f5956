"""Batch mean field for any two-level process on packed units, with the bound and the steps of the generic mean field.

A *unit* is a document or a group of rows, a *member* a word or a row, and a *part* a topic or a component. A unit's
members sit at tables, and each table points at a part. Units are updated by the coordinate steps of
`lvsearch.inference.hdp.kernel`, from E[log p(x_n | φ_k)] of every member x_n under the parameters φ_k of each part.
Then every latent variable that all units share is updated by the gradient of the log-joint, from each part's share of
every member (Blei 2004, Eq. 2.18).
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
    """Packed units (documents or groups of rows) on the device.

    tiles: which members (words or rows) each unit has, and how often, in blocks of fixed size (tiles) with slots for
        units. A word id in a tile is a position in `members`.
    real: which slots hold a unit.
    members: all words of the vocabulary, or all rows, as `HierarchicalProcess.log_likelihoods` takes them.
    """

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
    """Run passes of coordinate ascent until one gains less than `tolerance` nats, and return the trace.

    Parts are topics or components. The members of a unit sit at tables, each of which serves one part.

    It makes at most `passes` (and `TRACE_LENGTH`) passes, each with `sweeps` coordinate steps of every unit. The bound
    recorded for a pass belongs to the shared variables before it, with the units as they are then. The trace's locals
    are q of the units' tables.

    beliefs: q of the variables that all units share, to begin with.
    seating: q of the units' tables, to begin with.
    units: the packed documents or groups.
    size, capacity: the truncation, and the number of parts that arrays have room for.
    """
    dtype = seating.hits.dtype

    def one_pass(b: Beliefs, before: TablePosterior) -> tuple[Beliefs, TablePosterior, Array]:
        """Update q of the units, then of the shared variables. The third entry is the bound before the latter, nats.

        Units are documents or groups of rows.
        """
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
    """Return q of the variables that all units share, after one coordinate step of each in the model's order.

    Parts are topics or components; units are documents or groups of rows.

    collected: what the units add to these variables.
    members: all words of the vocabulary, or all rows, as `HierarchicalProcess.log_likelihoods` takes them.
    on: masks of the parts that exist.
    """

    def log_joint(g: dict[str, Any]) -> Array:
        """Return the terms of the log-joint that hold the shared variables, nats, at expected statistics `g`."""
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
    """Return q of the parts (topics or components) that follows from each part's share of every member.

    Units are documents or groups of rows.

    q of the other shared variables is unchanged.

    shares: the probability of each part for every member (word or row), or its expected count.
    members: all words of the vocabulary, or all rows, as `HierarchicalProcess.log_likelihoods` takes them.
    size, capacity: the truncation, and the number of parts that arrays have room for.
    """
    on = model.active(size, capacity)

    def log_joint(g: dict[str, Any]) -> Array:
        """Return the terms of the log-joint that hold the parts, nats, at expected statistics `g`.

        Parts are topics or components.
        """
        return model.log_prior(g, on) + (shares * model.log_likelihoods(g, members)).sum()

    for name, site in model.part_sites().items():
        natural = jax.grad(lambda m, b=beliefs, n=name: log_joint({**b.mean, n: m}))(beliefs.mean[name])
        mean = expected_statistics(site, natural, on)
        beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
    return beliefs


class SharedSurvey(NamedTuple):
    """The terms of a fit's evidence lower bound, nats, and the shares of parts, from which proposals are made.

    Members are tokens or rows; parts are topics or components.

    | field | meaning |
    |---|---|
    | `units` | the terms of units (documents or groups) given the shared variables, summed |
    | `log_prior`, `entropies` | the terms of the shared variables, with one entropy for each |
    | `shares` | each part's expected count of every member (member, part) |
    """

    units: Array
    log_prior: Array
    entropies: dict[str, Array]
    shares: Float[Array, "member part"]

    def terms(self, units: str) -> dict[str, float]:
        """Return the terms of the evidence lower bound as {name: nats}.

        Units are documents or groups of rows.

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
    """Return the bound's terms and the parts' shares at a fit, after `sweeps` coordinate steps of every unit.

    Parts are topics or components. The members of a unit sit at tables, each of which serves one part.

    beliefs: q of the variables that all units share.
    seating: q of the units' tables, to begin with.
    units: the packed documents or groups.
    size, capacity: the truncation, and the number of parts that arrays have room for.
    """
    on = model.active(size, capacity)
    seen, log_alpha = globals_of(model, beliefs.mean, units.members, size, capacity=capacity)
    seats, each = settle_documents(units.tiles, seating, seen, sweeps=sweeps)
    total = jnp.where(units.real, each, 0.0).sum() + units.real.sum() * model.tables * log_alpha
    entropies = {name: site_entropy(site, beliefs.natural[name], None, on) for name, site in model.globals().items()}
    collected = collect_documents(units.tiles, seats, seen, units.real)
    return SharedSurvey(total, model.log_prior(beliefs.mean, on), entropies, collected.words)
