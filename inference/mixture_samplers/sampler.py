"""A sampler of partitions of rows for the one run loop, by any kind of sweep, with chains side by side."""

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
"""How many places for components a sampler begins with. They are doubled whenever a sweep needs more."""


class PartitionStates(NamedTuple):
    """The states of several chains side by side.

    | field | shape | meaning |
    |---|---|---|
    | `labels` | (particle, row) | the place of each row's component |
    | `alpha` | (particle,) | the concentration |
    | `outgrown` | (particle,) | True if a sweep needed more places than there are |
    """

    labels: Int[Array, "particle row"]
    alpha: Float[Array, " particle"]
    outgrown: Bool[Array, " particle"]


class PartitionSampler(eqx.Module):
    """A `Sampler` of the partitions of some rows, by any `Sweep`. It is `Growing`, unless the sweep has a fixed
    truncation.

    `starts`: the labels that each chain begins with.
    `log_carrier`: Σ log h(x), nats.
    `log_prior`: (rows of each place, α) -> log p(labels | α), nats.
    `one_by_one`: True if the sweep is a loop over the rows.
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
        """Return the starts, with α at its prior mean. Raises ValueError if `particles` is not the number of starts."""
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
        """Make one sweep of each chain."""

        def one(k: Array, labels: Array, alpha: Array) -> tuple[LabelState, Array]:
            return self.sweep(self.model, k, LabelState(labels, alpha), self.rows, self.capacity)

        new, outgrown = jax.vmap(one)(jax.random.split(key, len(state.alpha)), state.labels, state.alpha)
        return PartitionStates(new.labels, new.alpha, state.outgrown | outgrown)

    def log_density(self, state: PartitionStates) -> Float[Array, " particle"]:
        """Return log p(rows, labels, α) of each chain, nats, with weights and parameters integrated out.

        If α is a given number, it is log p(rows, labels | α).
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

    def outgrown(self, state: PartitionStates) -> Bool[Array, ""]:
        """Return True if any chain needed more places than there are."""
        return jnp.any(state.outgrown) | jnp.any(state.labels >= self.capacity)

    def grown(self, state: PartitionStates) -> tuple["PartitionSampler", PartitionStates]:
        """Return a sampler with twice as many places, and the same state."""
        return replace(self, capacity=2 * self.capacity), state


class PartitionRecorder(Recorder):
    """Records the number of `occupied` components, the rows of the `largest`, and the `concentration` if it is drawn.

    On request it records the `component` of each row too.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    @classmethod
    def for_model(cls, model: DPMixture, n_rows: int, *, units: bool) -> "PartitionRecorder":
        """Return the recorder for a model. A given concentration, which never changes, is not recorded.

        n_rows: how many rows there are. units: record each row's component too.
        """
        varies = ("concentration",) * isinstance(model.concentration, GammaPrior)
        numbers = tuple(Quantity(name, (), (), False) for name in ("occupied", "largest", *varies))
        return cls((*numbers, Quantity("component", ("unit",), (n_rows,), True)) if units else numbers)

    def values(self, chain: PartitionSampler, state: PartitionStates) -> tuple[Array, ...]:
        """Return the quantities of each particle, in the order of `quantities`."""
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
    """Return a sampler of partitions whose chains start from these labels.

    sweep, log_prior: see `PartitionSampler`.
    starts: the labels of each chain, (chain, row).
    capacity, one_by_one: as for `run_chain`.

    Raises ValueError for rows without a density.
    """
    places = FIRST_CAPACITY if capacity is None else capacity
    while capacity is None and places <= starts.max() + 1:
        places *= 2
    with jax.enable_x64(True):
        rows = chain_rows(model, data)
        _, carriers = coordinates_and_carriers(model.components, rows_of(data)[0])
        return PartitionSampler(model, rows, starts, carriers.sum(), sweep, log_prior, places, one_by_one)
