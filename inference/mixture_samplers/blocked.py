"""Blocked Gibbs sampling of the truncated process, in which V_T = 1 and all rows are drawn at once.

Source: Ishwaran & James (2001); Blei (2004), §5.3.2.
"""

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
    """Run a chain over assignments of rows to `truncation` sticks, the last of which takes all that is left.

    Its posterior is that of the truncated process, which tends to that of the process as the truncation grows.

    sweeps, keep, start: as in `collapsed_gibbs`.

    Raises ValueError for a truncation below 1, and in the same cases as `collapsed_gibbs`.
    """
    if truncation < 1:
        raise ValueError(f"got truncation={truncation}, expected at least 1")
    weights = partial(truncated_weights, truncation=truncation)
    return run_chain(blocked_sweep, weights, model, data, key, sweeps, keep, start, truncation, log_stick_occupancy)


def blocked_sweep(
    model: DPMixture, key: Array, state: LabelState, rows: ChainRows, capacity: int
) -> tuple[LabelState, Array]:
    """Make one sweep: sticks and parameters given assignments, α given sticks (Eq. 5.17), assignments given all of
    these.

    capacity: the truncation.

    Returns: (the state, False, since the truncation is never outgrown).
    """
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
    """Return log p(labels | α) under the truncated process, with sticks integrated out, in nats.

    It is the sum over all sticks but the last of log B(1 + n_k, α + n_>k) − log B(1, α).

    counts: rows of each stick.
    """
    beyond = counts.sum() - jnp.cumsum(counts)
    return (betaln(1 + counts, alpha + beyond) - betaln(jnp.ones_like(alpha), alpha))[:-1].sum()


def truncated_weights(counts: Float[np.ndarray, " place"], alpha: float, truncation: int) -> tuple[np.ndarray, float]:
    """Return E[θ_k | assignments] (Eq. 5.16) of the given places, and the total weight of the sticks beyond them.

    Sticks beyond have no rows, so their components are the prior's and their density is the prior predictive. Places
    beyond the truncation, which no row can be in, have weight 0.

    counts: rows of each place.
    """
    n = np.zeros(truncation)
    n[: len(counts)] = counts[:truncation]
    first, beyond = 1 + n, alpha + n.sum() - np.cumsum(n)
    taken = first / (first + beyond)
    taken[-1] = 1.0
    weights = taken * np.concatenate([[1.0], np.cumprod(1 - taken)[:-1]])
    given = np.pad(weights, (0, max(0, len(counts) - truncation)))[: len(counts)]
    return given, float(weights[len(counts) :].sum())
