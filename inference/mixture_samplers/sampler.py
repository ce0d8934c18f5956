"""A sampler of partitions of rows that the run loop (`lvsearch.inference.sampling.run`) can run, with chains side by
side.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

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
    log_rows,
    natural_of_labels,
)
from lvsearch.inference.mixtures.rows import coordinates_and_carriers
from lvsearch.inference.sampling import Quantity, Recorder
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hyperpriors import GammaPrior

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

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

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
