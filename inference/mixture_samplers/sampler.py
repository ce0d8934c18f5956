"""Runs of chains over partitions of rows: a sampler for the run loop, and the record of one chain from start to end.

`PartitionSampler` is a sampler that the run loop (`lvsearch.inference.sampling.run`) can run, with chains side by side.
`run_chain` runs one chain from beginning to end and records the partitions it visits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixture_samplers.chain import (
    ChainRows,
    LabelState,
    Sweep,
    chain_rows,
    log_occupancy,
    log_rows,
    natural_of_labels,
)
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.mixtures.predictive import weighted_predictive
from lvsearch.inference.mixtures.rows import coordinates_and_carriers
from lvsearch.inference.sampling import Quantity, Recorder, run_one_chain
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel

FIRST_CAPACITY = 16
"""The number of array slots for components that a sampler begins with. It is doubled whenever a sweep needs more."""


class PartitionStates(NamedTuple):
    """The states of several chains side by side, one particle for each chain.

    | field | shape | meaning |
    |---|---|---|
    | `labels` | (particle, row) | the array slot of each row's component |
    | `alpha` | (particle,) | the concentration α |
    | `outgrown` | (particle,) | True if a sweep needed more slots than there are, which makes the state invalid |
    """

    labels: Int[Array, "particle row"]
    alpha: Float[Array, " particle"]
    outgrown: Bool[Array, " particle"]


class PartitionSampler(eqx.Module):
    """A sampler of the partitions of a data set's rows under a Dirichlet-process mixture, by any kind of sweep.

    It is a `Sampler` of the run loop. Unless the sweep has a fixed truncation, it is also `Growing`: it can be made
    again with more array slots for components.

    `model`, `rows`: the mixture, and its rows.
    `starts`: the labels that each chain begins with, (particle, row).
    `log_carrier`: Σ_n log h(x_n), the part of the log density that no partition changes, nats.
    `sweep`: the function that makes one sweep of one chain.
    `log_prior`: (rows of each component, α) -> log p(labels | α), nats.
    `capacity`: how many array slots for components there are.
    `one_by_one`: True if a sweep is a loop over the rows, each drawn given all others.
    """

    model: DPMixture
    rows: ChainRows
    starts: Int[Array | np.ndarray, "particle row"]
    log_carrier: Float[Array, ""]
    sweep: Sweep = eqx.field(static=True)
    log_prior: Callable[[Array, Array], Array] = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    one_by_one: bool = eqx.field(static=True, default=False)

    def init(self, key: Array, particles: int) -> PartitionStates:
        """Return the first states: the labels in `starts`, and α at its prior mean (or its given number). `key` is not
        used.

        particles: how many chains run.

        Raises ValueError if `particles` is not the number of starts.
        """
        if particles != len(self.starts):
            raise ValueError(f"got {particles} chains, expected one for each of {len(self.starts)} starts")
        prior = self.model.concentration
        alpha = prior.shape / prior.rate if isinstance(prior, GammaPrior) else prior
        return PartitionStates(
            jnp.asarray(self.starts),
            jnp.full(particles, alpha, self.rows.packed.dtype),
            jnp.zeros(particles, bool),
        )

    def step(
        self, key: Array, state: PartitionStates, temperature: Float[Array, ""], *, backward: bool
    ) -> PartitionStates:
        """Make one sweep of each chain and return the new states.

        key: the random key of the sweep.
        state: the states before it.
        temperature, backward: not used; this sampler only targets the posterior, in one direction.
        """

        def one(k: Array, labels: Array, alpha: Array) -> tuple[LabelState, Array]:
            return self.sweep(self.model, k, LabelState(labels, alpha), self.rows, self.capacity)

        new, outgrown = jax.vmap(one)(jax.random.split(key, len(state.alpha)), state.labels, state.alpha)
        return PartitionStates(new.labels, new.alpha, state.outgrown | outgrown)

    def log_density(self, state: PartitionStates) -> Float[Array, " particle"]:
        """Return log p(rows, labels, α) of each chain, (particle,), in nats, with weights and parameters integrated
        out.

        If α is a given number of the model, it is log p(rows, labels | α).
        """
        prior = self.model.concentration

        def one(labels: Array, alpha: Array) -> Array:
            natural, counts = natural_of_labels(labels, self.rows, self.capacity)
            partition = log_rows(self.model, natural, counts, self.rows) + self.log_prior(counts, alpha)
            if not isinstance(prior, GammaPrior):
                return partition
            shape, rate = (jnp.asarray(value, alpha.dtype) for value in prior)
            return partition + shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * jnp.log(alpha) - rate * alpha

        return jax.vmap(one)(state.labels, state.alpha) + self.log_carrier

    def needs_more_room(self, state: PartitionStates) -> Bool[Array, ""]:
        """Return True if any chain needed more array slots for components than there are, so that the states are
        invalid.
        """
        return jnp.any(state.outgrown) | jnp.any(state.labels >= self.capacity)

    def with_more_room(self, state: PartitionStates) -> tuple["PartitionSampler", PartitionStates]:
        """Return (a sampler with twice as many array slots for components, the unchanged states).

        state: valid states, from before the sweep that needed more slots.
        """
        return replace(self, capacity=2 * self.capacity), state


class PartitionRecorder(Recorder):
    """The recorder of partitions: which numbers of each draw go into the trace.

    | quantity | meaning |
    |---|---|
    | `occupied` | how many components have rows |
    | `largest` | how many rows the largest component has |
    | `concentration` | α; recorded only if α has a prior |
    | `component` | the component of each row, (unit,); recorded only on request |
    """

    @classmethod
    def for_model(cls, model: DPMixture, n_rows: int, *, units: bool) -> "PartitionRecorder":
        """Return the recorder for a Dirichlet-process mixture.

        n_rows: how many rows the data have.
        units: True to record the component of each row too.
        """
        varies = ("concentration",) * isinstance(model.concentration, GammaPrior)
        numbers = tuple(Quantity(name, (), (), False) for name in ("occupied", "largest", *varies))
        return cls((*numbers, Quantity("component", ("unit",), (n_rows,), True)) if units else numbers)

    def values(self, chain: PartitionSampler, state: PartitionStates) -> tuple[Array, ...]:
        """Return the recorded quantities of the present states, in the order of `quantities`.

        Each is an array (particle,), but `component` is (particle, unit): the array slot of each row's component.
        """
        counts = jax.vmap(lambda labels: jnp.bincount(labels, length=chain.capacity))(state.labels)
        found = {
            "occupied": (counts > 0).sum(1),
            "largest": counts.max(1),
            "concentration": state.alpha,
            "component": state.labels,
        }
        return tuple(found[quantity.name] for quantity in self.quantities)


def partition_sampler(
    sweep: Sweep,
    log_prior: Callable[[Array, Array], Array],
    model: DPMixture,
    data: Dataset,
    starts: Int[np.ndarray, "chain row"],
    capacity: int | None,
    *,
    one_by_one: bool = False,
) -> PartitionSampler:
    """Return a sampler of partitions with one chain for each row of `starts`, in float64.

    sweep: the function that makes one sweep of one chain.
    log_prior: (rows of each component, α) -> log p(labels | α), nats.
    starts: the labels that each chain begins with, (chain, row).
    capacity: the fixed number of array slots for components; None begins with enough for `starts` and lets it grow.
    one_by_one: True if a sweep is a loop over the rows, each drawn given all others.

    Raises ValueError for rows without a density.
    """
    places = FIRST_CAPACITY if capacity is None else capacity
    while capacity is None and places <= starts.max() + 1:
        places *= 2
    with jax.enable_x64(True):
        rows = chain_rows(model, data)
        _, carriers = coordinates_and_carriers(model.components, rows_of(data)[0])
        return PartitionSampler(model, rows, starts, carriers.sum(), sweep, log_prior, places, one_by_one)


Weights = Callable[[Float[np.ndarray, " place"], float], tuple[np.ndarray, float]]
"""The type of a function (rows of each component, α) -> (expected weight of each component, weight of all new ones)."""


@dataclass(frozen=True)
class MixtureTrace:
    """The record of one chain over partitions of rows. Most arrays have one entry for each sweep.

    | field | meaning |
    |---|---|
    | `model`, `data` | the mixture and the rows that the chain ran on |
    | `weights` | the function (rows of each component, α) -> expected mixture weights, for predictive densities |
    | `occupied` | (sweep,) how many components have rows |
    | `largest` | (sweep,) rows in the largest component |
    | `alpha` | (sweep,) the concentration α |
    | `seconds` | (sweep,) seconds of each sweep, averaged over one compiled call; the first include compiling |
    | `kept` | (kept, row) the label of each row after every `keep`-th sweep |
    | `kept_alpha` | (kept,) the concentration after the same sweeps |
    """

    model: DPMixture
    data: Dataset
    weights: Weights
    occupied: Int[np.ndarray, " sweep"]
    largest: Int[np.ndarray, " sweep"]
    alpha: Float[np.ndarray, " sweep"]
    seconds: Float[np.ndarray, " sweep"]
    kept: Int[np.ndarray, "kept row"]
    kept_alpha: Float[np.ndarray, " kept"]

    def partitions(self) -> Int[np.ndarray, "kept row"]:
        """Return the kept labels, (kept, row), with the components of each partition numbered from 0 in order of
        appearance.
        """
        return np.stack([by_appearance(labels) for labels in self.kept])

    def predictive_log_density(self, data: Dataset) -> Float[np.ndarray, " rows"]:
        """Return the log predictive density of each row of `data`, averaged over the kept partitions, (row,), in nats.

        data: the rows to score, in or outside the data that the chain ran on. Eq. 5.10 and 5.16 of Blei (2004).

        Raises ValueError if no partition was kept.
        """
        if not len(self.kept):
            raise ValueError("got a chain that kept no partitions, expected some: run the chain with keep=1")
        units, _ = rows_of(data)
        component = self.model.components
        component.check(units)
        places = -(-(int(self.kept.max()) + 1) // FIRST_CAPACITY) * FIRST_CAPACITY  # few shapes to compile
        with jax.enable_x64(True):
            rows = chain_rows(self.model, self.data)
            each = []
            for labels, alpha in zip(self.kept, self.kept_alpha, strict=True):
                natural, counts = _natural_of_labels(jnp.asarray(labels), rows, capacity=places)
                weights, left = self.weights(np.asarray(counts), float(alpha))
                each.append(weighted_predictive(component, natural, weights, left, units))
        return np.logaddexp.reduce(each, axis=0) - np.log(len(each))


def run_chain(
    sweep: Sweep,
    weights: Weights,
    model: MixtureModel,
    data: Dataset,
    key: Array,
    sweeps: int,
    keep: int,
    start: Any,
    capacity: int | None,
    log_prior: Callable[[Array, Array], Array] = log_occupancy,
    *,
    one_by_one: bool = False,
) -> MixtureTrace:
    """Run one chain over partitions in float64, and return its record.

    sweep: the function that makes one sweep.
    weights: (rows of each component, α) -> expected mixture weights, kept in the record for predictive densities.
    model: a `DPMixture`.
    data: the rows.
    key: the random key of the run.
    sweeps: how many sweeps to make.
    keep: keep the labels after every keep-th sweep; 0 keeps none.
    start: labels (row,) to begin with; None puts all rows into one component.
    capacity: the fixed number of array slots for components; None lets it grow as needed.
    log_prior: (rows of each component, α) -> log p(labels | α), nats.
    one_by_one: True if a sweep is a loop over the rows, each drawn given all others.

    Raises ValueError for a model that is no `DPMixture`, and for counts or starts that do not fit. Raises
    KeyboardInterrupt if the run is interrupted, since a part of a chain is of no use to callers.
    """
    if not isinstance(model, DPMixture):
        raise ValueError(f"got a model of type {type(model).__name__}, expected a DPMixture")
    if sweeps < 1 or keep < 0:
        raise ValueError(f"got sweeps={sweeps}, keep={keep}; expected at least 1 sweep, and keep ≥ 0 (0 keeps nothing)")
    labels = by_appearance(np.zeros(data.n_units, int) if start is None else start)
    if len(labels) != data.n_units:
        raise ValueError(f"got start with {len(labels)} labels, expected one for each of {data.n_units} rows")
    if capacity is not None and labels.max() >= capacity:
        raise ValueError(f"got start with {labels.max() + 1} components, expected at most the truncation {capacity}")
    sampler = partition_sampler(sweep, log_prior, model, data, labels[None], capacity, one_by_one=one_by_one)
    record = PartitionRecorder.for_model(model, data.n_units, units=keep > 0)
    trace, seconds = run_one_chain(sampler, key, sweeps, record)
    chosen = slice(keep - 1, None, keep) if keep else slice(0, 0)
    prior = model.concentration
    alpha = trace["concentration"][0] if isinstance(prior, GammaPrior) else np.full(sweeps, float(prior))
    kept = trace["component"][0, chosen] if keep else np.zeros((0, data.n_units), labels.dtype)
    return MixtureTrace(
        model,
        data,
        weights,
        trace["occupied"][0],
        trace["largest"][0],
        alpha,
        seconds,
        kept,
        alpha[chosen],
    )


_natural_of_labels = kernel(static_argnames=("capacity",))(natural_of_labels)
