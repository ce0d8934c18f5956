"""How long to run a chain: autocorrelations, and the diagnostic of Raftery & Lewis (1992)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri


def autocorrelation(series: Float[np.ndarray, " sweep"], lags: int) -> Float[np.ndarray, " lag"]:
    """Of lags 0…`lags`; 1 and then 0 for a series that never moves."""
    centred = np.asarray(series, np.float64) - np.mean(series)
    total = centred @ centred
    if not total > 0:
        return np.concatenate([[1.0], np.zeros(lags)])
    return np.array([centred[lag:] @ centred[: len(centred) - lag] / total for lag in range(lags + 1)])


class RunLength(NamedTuple):
    """What Raftery & Lewis recommend, in sweeps: `burn_in`; `lag` between samples that are to be independent; `total`
    for the quantile to be known to the precision asked for."""

    burn_in: int
    lag: int
    total: int


def raftery_lewis(
    series: Float[np.ndarray, " sweep"],
    quantile: float = 0.5,
    precision: float = 0.1,
    probability: float = 0.95,
    epsilon: float = 0.01,
) -> RunLength:
    """Burn-in and spacing from the indicator of series ≤ its quantile.

    The series is thinned until the indicator is closer to a first-order Markov chain than to a second-order one (BIC),
    whose transition probabilities α, β give the burn-in after which the chain is within `epsilon` of stationary; `lag`
    is thinned further until the indicator is closer to independence. precision, probability: the quantile's cumulative
    probability is to be within ± precision with this probability.
    """
    values = np.asarray(series)
    below = (values <= np.quantile(values, quantile)).astype(int)
    if below.all() or not below.any():
        below = (values < np.median(values)).astype(int)
    if below.all() or not below.any():
        return RunLength(0, 1, 1)
    thin = next((k for k in range(1, len(below) // 50 + 1) if _markov_bic(below[::k]) < 0), max(1, len(below) // 50))
    chain = below[::thin]
    moves = np.array([[np.sum((chain[:-1] == a) & (chain[1:] == b)) for b in (0, 1)] for a in (0, 1)], float)
    alpha = max(moves[0, 1], 0.5) / max(moves[0].sum(), 1.0)
    beta = max(moves[1, 0], 0.5) / max(moves[1].sum(), 1.0)
    stay = abs(1 - alpha - beta)
    burn_in = (
        0 if stay < 1e-9 else max(0, int(np.ceil(np.log(epsilon * (alpha + beta) / max(alpha, beta)) / np.log(stay))))
    )
    needed = alpha * beta * (2 - alpha - beta) / (alpha + beta) ** 3 * (ndtri((1 + probability) / 2) / precision) ** 2
    lag = next(
        (k for k in range(thin, len(below) // 25 + 1) if _independence_bic(below[::k]) < 0), max(thin, len(below) // 25)
    )
    return RunLength(burn_in * thin, lag, (burn_in + int(np.ceil(needed))) * thin)


def _markov_bic(chain: np.ndarray) -> float:
    """BIC of a second-order chain against a first-order one: negative where the first order is enough."""
    table = np.zeros((2, 2, 2))
    np.add.at(table, (chain[:-2], chain[1:-1], chain[2:]), 1)
    expected = (
        table.sum(2, keepdims=True) * table.sum(0, keepdims=True) / np.maximum(table.sum((0, 2))[None, :, None], 1)
    )
    return _likelihood_ratio(table, expected) - 2 * np.log(max(len(chain) - 2, 1))


def _independence_bic(chain: np.ndarray) -> float:
    """BIC of a first-order chain against independent draws."""
    table = np.zeros((2, 2))
    np.add.at(table, (chain[:-1], chain[1:]), 1)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / max(table.sum(), 1)
    return _likelihood_ratio(table, expected) - np.log(max(len(chain) - 1, 1))


def _likelihood_ratio(table: np.ndarray, expected: np.ndarray) -> float:
    seen = table > 0
    return float(2 * (table[seen] * np.log(table[seen] / expected[seen])).sum())
