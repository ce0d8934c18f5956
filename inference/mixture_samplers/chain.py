"""What all chains over partitions share: their rows, their state, the trace, and α given the partition."""

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
    """`increments` s(x_n), rows leading; the same packed (N, S); the prior λ of one component."""

    increments: Any
    packed: Float[Array, "row packed"]
    prior: Any


class LabelState(NamedTuple):
    """`labels` (N,): which place each row's component has; `alpha`: the concentration."""

    labels: Int[Array, " row"]
    alpha: Float[Array, ""]


Sweep = Callable[[DPMixture, Array, LabelState, ChainRows, int], tuple[LabelState, Array]]
"""(model, key, state, rows, capacity) -> (state, whether the capacity was too small, when the state means nothing)."""


def chain_rows(model: DPMixture, data: Dataset) -> ChainRows:
    """Increments in the floating type of the session. Raises ValueError for rows without a density."""
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
    """(prior + Σ s(x_n) of each place's rows, rows per place)."""

    def total(leaf: Array, prior: Array) -> Array:
        return prior + jax.ops.segment_sum(leaf, labels, capacity)

    ones = jnp.ones(len(labels), rows.packed.dtype)
    return jax.tree.map(total, rows.increments, rows.prior), jax.ops.segment_sum(ones, labels, capacity)


def draw_parameters(model: DPMixture, key: Array, natural: Any) -> Float[Array, "place packed"]:
    """One draw of every place's parameters given its rows, as packed statistics."""
    return pack_statistics(model.components, model.components.family.sample(key, natural))


def draw_concentration(model: DPMixture, key: Array, n_rows: int, occupied: Array, alpha: Array) -> Array:
    """α given the partition, by an auxiliary Beta variable (Escobar & West 1995, §6); the given value where fixed."""
    if not isinstance(model.concentration, GammaPrior):
        return alpha
    shape, rate = (jnp.asarray(value, alpha.dtype) for value in model.concentration)
    key_eta, key_which, key_alpha = jax.random.split(key, 3)
    log_eta = -jnp.log1p(jnp.exp(_log_gamma_ratio(key_eta, alpha + 1, float(n_rows))))
    odds = (shape + occupied - 1) / (n_rows * (rate - log_eta))
    extra = jax.random.uniform(key_which, dtype=alpha.dtype) * (1 + odds) < odds
    return jax.random.gamma(key_alpha, shape + occupied - 1 + extra, dtype=alpha.dtype) / (rate - log_eta)


def _log_gamma_ratio(key: Array, first: Array, second: float) -> Array:
    """log(G₂/G₁) with G₁ ~ Gamma(first), G₂ ~ Gamma(second): the Beta variable is 1 / (1 + G₂/G₁)."""
    key_first, key_second = jax.random.split(key)
    return jax.random.loggamma(key_second, jnp.asarray(second, first.dtype)) - jax.random.loggamma(key_first, first)


def log_partition(model: DPMixture, state: LabelState, rows: ChainRows, capacity: int) -> Float[Array, ""]:
    """log p(rows, partition | α) up to Σ log h(x), parameters and weights integrated out, nats."""
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    return log_rows(model, natural, counts, rows) + log_occupancy(counts, state.alpha)


def log_rows(model: DPMixture, natural: Any, counts: Float[Array, " place"], rows: ChainRows) -> Float[Array, ""]:
    """log p(rows | partition) up to Σ log h(x), parameters integrated out, nats."""
    family = model.components.prior_family
    after = family.log_normaliser(natural).reshape(len(counts), -1).sum(-1)
    return jnp.where(counts > 0, after - family.log_normaliser(rows.prior).sum(), 0.0).sum()


def log_occupancy(counts: Float[Array, " place"], alpha: Float[Array, ""]) -> Float[Array, ""]:
    """log p(partition | α) of the process, from the rows of each place (Ewens 1972), nats."""
    used = counts > 0
    blocks = jnp.where(used, gammaln(jnp.where(used, counts, 1.0)) + jnp.log(alpha), 0.0).sum()
    return blocks + gammaln(alpha) - gammaln(alpha + counts.sum())


def process_weights(counts: Float[np.ndarray, " place"], alpha: float) -> tuple[np.ndarray, float]:
    """n_k / (N + α), and α / (N + α) for a new component."""
    total = counts.sum() + alpha
    return counts / total, alpha / total
