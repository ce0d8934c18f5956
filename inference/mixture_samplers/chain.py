"""Parts that all chains over partitions share: their rows, their state, the evidence of a partition, and draws of α."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixtures.packing import pack_increments, pack_statistics
from lvsearch.inference.mixtures.rows import coordinates_and_carriers, increments
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hyperpriors import GammaPrior


class ChainRows(NamedTuple):
    """The rows of a chain.

    | field | meaning |
    |---|---|
    | `increments` | s(x_n), rows on the leading axis |
    | `packed` | s(x_n) as vectors, (N, S) |
    | `prior` | λ, the natural parameters of one component without rows |
    """

    increments: Any
    packed: Float[Array, "row packed"]
    prior: Any


class LabelState(NamedTuple):
    """The state of a chain: the place of each row's component (`labels`, (N,)), and the concentration `alpha`."""

    labels: Int[Array, " row"]
    alpha: Float[Array, ""]


Sweep = Callable[[DPMixture, Array, LabelState, ChainRows, int], tuple[LabelState, Array]]
"""The type of one sweep: (model, key, state, rows, capacity) -> (state, True if the capacity was too small).

If it was too small, the state is invalid.
"""


def chain_rows(model: DPMixture, data: Dataset) -> ChainRows:
    """Return the rows of a data set as a chain needs them, in the floating type of the session.

    Raises ValueError for rows without a density.
    """
    units, _ = rows_of(data)
    component = model.components
    component.check(units)
    coordinates, _ = coordinates_and_carriers(component, units)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, coordinates.dtype), component.prior(coordinates.shape[1]))
    return ChainRows(
        increments(component, coordinates, units.observed),
        pack_increments(component, coordinates, units.observed),
        prior,
    )


def natural_of_labels(labels: Int[Array, " row"], rows: ChainRows, capacity: int) -> tuple[Any, Float[Array, " place"]]:
    """Return (λ + Σ s(x_n) over the rows of each place, how many rows each place has)."""

    def total(leaf: Array, prior: Array) -> Array:
        return prior + jax.ops.segment_sum(leaf, labels, capacity)

    ones = jnp.ones(len(labels), rows.packed.dtype)
    return jax.tree.map(total, rows.increments, rows.prior), jax.ops.segment_sum(ones, labels, capacity)


def draw_parameters(model: DPMixture, key: Array, natural: Any) -> Float[Array, "place packed"]:
    """Draw every place's parameters given its rows, and return them as packed statistics."""
    return pack_statistics(model.components, model.components.family.sample(key, natural))


def draw_concentration(model: DPMixture, key: Array, n_rows: int, occupied: Array, alpha: Array) -> Array:
    """Draw α given the partition, by an auxiliary Beta variable (Escobar & West 1995, §6).

    If the model's α is a given number, it is returned.

    occupied: how many components have rows. alpha: the α before.
    """
    if not isinstance(model.concentration, GammaPrior):
        return alpha
    shape, rate = (jnp.asarray(value, alpha.dtype) for value in model.concentration)
    key_eta, key_which, key_alpha = jax.random.split(key, 3)
    log_eta = -jnp.log1p(jnp.exp(_log_gamma_ratio(key_eta, alpha + 1, float(n_rows))))
    odds = (shape + occupied - 1) / (n_rows * (rate - log_eta))
    extra = jax.random.uniform(key_which, dtype=alpha.dtype) * (1 + odds) < odds
    return jax.random.gamma(key_alpha, shape + occupied - 1 + extra, dtype=alpha.dtype) / (rate - log_eta)


def _log_gamma_ratio(key: Array, first: Array, second: float) -> Array:
    """Draw log(G₂/G₁), with G₁ ~ Gamma(first) and G₂ ~ Gamma(second). The Beta variable is then 1 / (1 + G₂/G₁)."""
    key_first, key_second = jax.random.split(key)
    return jax.random.loggamma(key_second, jnp.asarray(second, first.dtype)) - jax.random.loggamma(key_first, first)


def log_partition(model: DPMixture, state: LabelState, rows: ChainRows, capacity: int) -> Float[Array, ""]:
    """Return log p(rows, partition | α) without Σ log h(x), with parameters and weights integrated out, in nats."""
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    return log_rows(model, natural, counts, rows) + log_occupancy(counts, state.alpha)


def log_rows(model: DPMixture, natural: Any, counts: Float[Array, " place"], rows: ChainRows) -> Float[Array, ""]:
    """Return log p(rows | partition) without Σ log h(x), with parameters integrated out, in nats.

    natural: λ + Σ s(x_n) of each place. counts: rows of each place.
    """
    family = model.components.prior_family
    after = family.log_normaliser(natural).reshape(len(counts), -1).sum(-1)
    return jnp.where(counts > 0, after - family.log_normaliser(rows.prior).sum(), 0.0).sum()


def log_occupancy(counts: Float[Array, " place"], alpha: Float[Array, ""]) -> Float[Array, ""]:
    """Return log p(partition | α) under the process, from the rows of each place (Ewens 1972), in nats."""
    used = counts > 0
    blocks = jnp.where(used, gammaln(jnp.where(used, counts, 1.0)) + jnp.log(alpha), 0.0).sum()
    return blocks + gammaln(alpha) - gammaln(alpha + counts.sum())


def process_weights(counts: Float[np.ndarray, " place"], alpha: float) -> tuple[np.ndarray, float]:
    """Return the predictive weights n_k / (N + α) of the places, and α / (N + α) of a new component."""
    total = counts.sum() + alpha
    return counts / total, alpha / total
