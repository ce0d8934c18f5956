"""Partitions of rows as the one run loop takes them: any sweep over them, its chains side by side."""

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
"""Places for components to begin with, doubled whenever a sweep needs more."""


class PartitionStates(NamedTuple):
    """Several chains side by side.

    | field | shape | meaning |
    |---|---|---|
    | `labels` | (particle, row) | which place each row's component has |
    | `alpha` | (particle,) | concentration |
    | `outgrown` | (particle,) | whether a sweep needed more places than there are |
    """

    labels: Int[Array, "particle row"]
    alpha: Float[Array, " particle"]
    outgrown: Bool[Array, " particle"]


class PartitionSampler(eqx.Module):
    """A `Sampler` of the partitions of some rows, by any `Sweep`; `Growing`, unless the sweep fills its places.

    starts: labels that each chain begins with. log_carrier: Σ log h(x). log_prior: (rows per place, α) -> log p(labels
    | α), nats. one_by_one: the sweep is a loop over the rows.
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
        """The starts, and α at its prior mean. ValueError for another number of chains."""
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
        """One sweep of each chain."""

        def one(k: Array, labels: Array, alpha: Array) -> tuple[LabelState, Array]:
            return self.sweep(self.model, k, LabelState(labels, alpha), self.rows, self.capacity)

        new, outgrown = jax.vmap(one)(jax.random.split(key, len(state.alpha)), state.labels, state.alpha)
        return PartitionStates(new.labels, new.alpha, state.outgrown | outgrown)

    def log_density(self, state: PartitionStates) -> Float[Array, " particle"]:
        """log p(rows, labels, α), weights and parameters integrated out; given α where that is given."""
        prior = self.model.concentration

        def one(labels: Array, alpha: Array) -> Array:
            natural, counts = natural_of_labels(labels, self.rows, self.capacity)
            partition = log_rows(self.model, natural, counts, self.rows) + self.log_prior(counts, alpha)
            if not isinstance(prior, GammaPrior):
                return partition
            shape, rate = (jnp.asarray(value, alpha.dtype) for value in prior)
            return partition + shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * jnp.log(alpha) - rate * alpha

        return jax.vmap(one)(state.labels, state.alpha) + self.log_carrier

    def outgrown(self, state: PartitionStates) -> Bool[Array, ""]:
        """Of any chain."""
        return jnp.any(state.outgrown) | jnp.any(state.labels >= self.capacity)

    def grown(self, state: PartitionStates) -> tuple["PartitionSampler", PartitionStates]:
        """Twice as many places."""
        return replace(self, capacity=2 * self.capacity), state


class PartitionRecorder(Recorder):
    """`occupied` components, rows of the `largest`, the `concentration` where it is drawn, each row's `component` where
    asked for."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, model: DPMixture, n_rows: int, *, units: bool) -> "PartitionRecorder":
        """units: record the rows' components too. A given concentration, which never moves, is not recorded."""
        varies = ("concentration",) * isinstance(model.concentration, GammaPrior)
        numbers = tuple(Quantity(name, (), (), False) for name in ("occupied", "largest", *varies))
        return cls((*numbers, Quantity("component", ("unit",), (n_rows,), True)) if units else numbers)

    def values(self, chain: PartitionSampler, state: PartitionStates) -> tuple[Array, ...]:
        """In the order of the quantities."""
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
    """Chains from these labels. capacity, one_by_one: as for `run_chain`. Raises ValueError for rows without a
    density."""
    places = FIRST_CAPACITY if capacity is None else capacity
    while capacity is None and places <= starts.max() + 1:
        places *= 2
    with jax.enable_x64(True):
        rows = chain_rows(model, data)
        _, carriers = coordinates_and_carriers(model.components, rows_of(data)[0])
        return PartitionSampler(model, rows, starts, carriers.sum(), sweep, log_prior, places, one_by_one)
