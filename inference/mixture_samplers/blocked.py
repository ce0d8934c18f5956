"""Blocked Gibbs sampling of the truncated Dirichlet process: T components at most, and all rows are drawn at once.

The weights are broken off a stick of length 1: π_k = V_k Π_{j<k} (1 − V_j), with V_k ~ Beta(1, α) and V_T = 1.

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
    """Run one blocked Gibbs chain for a Dirichlet-process mixture with at most `truncation` components.

    Returns the record of the chain.

    The last component takes all weight that the others leave. As the truncation grows, the posterior tends to that of
    the Dirichlet process itself.

    model: a `DPMixture`.
    data: the rows.
    key: the random key of the run.
    sweeps: how many sweeps to make, each over all rows.
    truncation: T, the largest number of components.
    keep: keep the labels after every keep-th sweep; 0 keeps none.
    start: labels (row,) to begin with; None puts all rows into one component.

    Raises ValueError for a truncation below 1 or below the number of components in `start`, a model that is no
    `DPMixture`, and rows without a density.
    """
    if truncation < 1:
        raise ValueError(f"got truncation={truncation}, expected at least 1")
    weights = partial(truncated_weights, truncation=truncation)
    return run_chain(blocked_sweep, weights, model, data, key, sweeps, keep, start, truncation, log_stick_occupancy)


def blocked_sweep(
    model: DPMixture, key: Array, state: LabelState, rows: ChainRows, capacity: int
) -> tuple[LabelState, Array]:
    """Make one sweep of blocked Gibbs sampling and return the new labels and α.

    Given the labels, stick fractions V_k and component parameters are drawn. Then α is drawn given the sticks (Eq.
    5.17), and all labels given sticks and parameters.

    key: random key of the sweep.
    state: labels and α before the sweep.
    capacity: T, the truncation.

    Returns: (the state after the sweep, False). False says that no more components are ever needed than there are.
    """
    key_sticks, key_parameters, key_alpha, key_labels = jax.random.split(key, 4)
    natural, counts = natural_of_labels(state.labels, rows, capacity)
    beyond = counts.sum() - jnp.cumsum(counts)
    # V_k ~ Beta(1 + n_k, α + rows after k), given by its natural parameters; the last V is 1 by definition
    sticks = Beta().sample(key_sticks, BetaStatistics(counts, state.alpha - 1 + beyond))
    last = jnp.arange(capacity) == capacity - 1
    log_value = jnp.where(last, 0.0, sticks.log_value)
    log_complement = jnp.where(last, 0.0, sticks.log_complement)
    alpha = state.alpha
    if isinstance(model.concentration, GammaPrior):
        shape, rate = (jnp.asarray(value, alpha.dtype) for value in model.concentration)
        drawn = jax.random.gamma(key_alpha, shape + capacity - 1, dtype=alpha.dtype)
        alpha = drawn / (rate - log_complement.sum())
    # log π_k = log V_k + Σ_{j<k} log(1 − V_j); then every label by density times weight
    log_weights = log_value + jnp.cumsum(log_complement) - log_complement
    logits = rows.packed @ draw_parameters(model, key_parameters, natural).T + log_weights
    labels = jax.random.categorical(key_labels, logits).astype(state.labels.dtype)
    return LabelState(labels, alpha), jnp.asarray(False)


def log_stick_occupancy(counts: Float[Array, " place"], alpha: Float[Array, ""]) -> Float[Array, ""]:
    """Return log p(labels | α) under the truncated Dirichlet process, with the weights integrated out, in nats.

    It is Σ_k [log B(1 + n_k, α + n_>k) − log B(1, α)] over all components but the last. Here B is the Beta function and
    n_>k is the number of rows of the components after k.

    counts: n_k, the number of rows of each component, (component,).
    alpha: α, the concentration.
    """
    beyond = counts.sum() - jnp.cumsum(counts)
    return (betaln(1 + counts, alpha + beyond) - betaln(jnp.ones_like(alpha), alpha))[:-1].sum()


def truncated_weights(counts: Float[np.ndarray, " place"], alpha: float, truncation: int) -> tuple[np.ndarray, float]:
    """Return the expected weight of each component given the labels (Eq. 5.16), and the weight of all others together.

    The others are components up to the truncation for which `counts` has no entry. They have no rows, so their
    predictive density is the prior's. Entries of `counts` from the truncation on are of components that cannot exist:
    weight 0.

    counts: the number of rows of each component, (component,).
    alpha: α, the concentration.
    truncation: T, the largest number of components.

    Returns: (weights (component,) in the order of `counts`, the weight of the others). They sum to 1.
    """
    n = np.zeros(truncation)
    n[: len(counts)] = counts[:truncation]
    first, beyond = 1 + n, alpha + n.sum() - np.cumsum(n)
    taken = first / (first + beyond)
    taken[-1] = 1.0
    weights = taken * np.concatenate([[1.0], np.cumprod(1 - taken)[:-1]])
    given = np.pad(weights, (0, max(0, len(counts) - truncation)))[: len(counts)]
    return given, float(weights[len(counts) :].sum())
