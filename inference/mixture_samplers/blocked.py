"""Blocked Gibbs sampling on the truncated process: V_T = 1, all rows drawn at once (Ishwaran & James 2001; §5.3.2)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln
from jaxtyping import Array, Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.mixture_samplers.chain import (
    ChainRows,
    LabelState,
    draw_parameters,
    natural_of_labels,
)
from lvsearch.inference.mixture_samplers.trace import MixtureTrace, run_chain
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.families import Beta, BetaStatistics
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.mixture import MixtureModel


def blocked_gibbs(
    model: MixtureModel, data: Dataset, *, key: Array, sweeps: int, truncation: int, keep: int = 1, start: Any = None
) -> MixtureTrace:
    """A chain over assignments to `truncation` sticks, the last of which takes all that is left.

    Its posterior is that of the truncated process, which tends to the process's as the truncation grows. start, keep,
    errors: as in `collapsed_gibbs`; also ValueError for a truncation below 1.
    """
    if truncation < 1:
        raise ValueError(f"got truncation={truncation}, expected at least 1")
    weights = partial(truncated_weights, truncation=truncation)
    return run_chain(blocked_sweep, weights, model, data, key, sweeps, keep, start, truncation, log_stick_occupancy)


def blocked_sweep(
    model: DPMixture, key: Array, state: LabelState, rows: ChainRows, capacity: int
) -> tuple[LabelState, Array]:
    """Sticks and parameters given assignments, α given sticks (Eq. 5.17), assignments given sticks and parameters."""
    key_sticks, key_parameters, key_alpha, key_labels = jax.random.split(key, 4)
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    beyond = counts.sum() - jnp.cumsum(counts)
    sticks = Beta().sample(key_sticks, BetaStatistics(counts, state.alpha - 1 + beyond))
    last = jnp.arange(capacity) == capacity - 1
    log_value = jnp.where(last, 0.0, sticks.log_value)
    log_complement = jnp.where(last, 0.0, sticks.log_complement)
    alpha = state.alpha
    if isinstance(model.concentration, GammaPrior):
        shape, rate = (jnp.asarray(value, alpha.dtype) for value in model.concentration)
        drawn = jax.random.gamma(key_alpha, shape + capacity - 1, dtype=alpha.dtype)
        alpha = drawn / (rate - log_complement.sum())
    log_weights = log_value + jnp.cumsum(log_complement) - log_complement
    logits = rows.packed @ draw_parameters(model, key_parameters, natural).T + log_weights
    labels = jax.random.categorical(key_labels, logits).astype(state.labels.dtype)
    return LabelState(labels, alpha), jnp.asarray(False)


def log_stick_occupancy(counts: Float[Array, " place"], alpha: Float[Array, ""]) -> Float[Array, ""]:
    """log p(labels | α), sticks integrated out: Σ over all but the last of log B(1 + n_k, α + n_>k) − log B(1, α)."""
    beyond = counts.sum() - jnp.cumsum(counts)
    return (betaln(1 + counts, alpha + beyond) - betaln(jnp.ones_like(alpha), alpha))[:-1].sum()


def truncated_weights(counts: Float[np.ndarray, " place"], alpha: float, truncation: int) -> tuple[np.ndarray, float]:
    """E[θ_k | assignments] (Eq. 5.16), and the mass of the sticks that no row is in beyond the places given.

    Sticks without rows have the prior's components, so that theirs is the prior predictive density. Places beyond the
    truncation, which no row can be in, have no weight.
    """
    n = np.zeros(truncation)
    n[: len(counts)] = counts[:truncation]
    first, beyond = 1 + n, alpha + n.sum() - np.cumsum(n)
    taken = first / (first + beyond)
    taken[-1] = 1.0
    weights = taken * np.concatenate([[1.0], np.cumprod(1 - taken)[:-1]])
    given = np.pad(weights, (0, max(0, len(counts) - truncation)))[: len(counts)]
    return given, float(weights[len(counts) :].sum())
