"""Do several chains agree, what are their draws worth, and how long is a chain to be run?

Source of the first two: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), *Rank-normalization, folding, and
localization: an improved R-hat*. Every chain is cut in two halves, so that one that drifts disagrees with itself. With
M half-chains of N draws each, s²_m and c_mt the variance and the autocovariances of each,

    W = mean_m s²_m,      var⁺ = (N − 1)/N · W + var_m(mean of m),      R̂ = √(var⁺ / W)
    ρ_t = 1 − (W − mean_m c_mt) / var⁺,      τ = −1 + 2 Σ_t P_t,      ESS = M N / τ

with P_t = ρ_2t + ρ_2t+1 while it is positive, made decreasing (Geyer 1992). Rank normalisation puts z-scores of ranks
in the place of the draws. The last is the diagnostic of Raftery & Lewis (1992).

Draws are (chain, draw), equally many of each chain.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

Draws = Float[np.ndarray, "chain draw"] | Int[np.ndarray, "chain draw"]


# ── several chains ──────────────────────────────────────────────────────────────────────────────────────────────────


def rhat(draws: Draws) -> float:
    """The larger of R̂ of the rank-normalised half-chains, which sees other places, and of their folded draws
    |x − median|, which sees other spreads.

    1 where every draw of every chain is the same; `inf` where each half-chain stays at a value of its own. Raises
    ValueError for fewer than 4 draws of a chain.
    """
    halves = _halves(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_ratio(_rank_normalised(halves)), _ratio(_rank_normalised(folded)))


def bulk_effective_sample_size(draws: Draws) -> float:
    """How many independent draws the chains are worth for where the bulk lies: ESS of the rank-normalised draws.

    NaN where every draw is the same: nothing is known of how fast the chains move. Errors as for `rhat`.
    """
    return _effective(_rank_normalised(_halves(draws)))


def mean_effective_sample_size(draws: Draws) -> float:
    """How many independent draws the chains are worth for the mean of the draws as they are: ESS without ranks."""
    return _effective(_halves(draws))


def _halves(draws: np.ndarray) -> Float[np.ndarray, "half draw"]:
    """First and second half of every chain; the middle draw of an odd number is left out."""
    values = np.asarray(draws, np.float64)
    if values.ndim != 2 or values.shape[1] < 4:
        raise ValueError(f"got draws of shape {values.shape}, expected (chain, draw) with at least 4 draws of a chain")
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _rank_normalised(values: Float[np.ndarray, "half draw"]) -> Float[np.ndarray, "half draw"]:
    """Normal quantiles of (rank − 3/8) / (S + 1/4); equal draws share the mean of their ranks."""
    _, inverse, counts = np.unique(values.ravel(), return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ndtri((rank - 0.375) / (values.size + 0.25)).reshape(values.shape)


def _variances(values: Float[np.ndarray, "half draw"]) -> tuple[float, float]:
    """(W, var⁺); exactly 0 where nothing varies, which sums of equal numbers rounded are not."""
    n, moves = values.shape[1], np.ptp(values, axis=1) > 0
    within = float(np.where(moves, values.var(1, ddof=1), 0.0).mean())
    means = np.where(moves, values.mean(1), values[:, 0])
    between = float(means.var(ddof=1)) if np.ptp(means) > 0 else 0.0
    return within, (n - 1) / n * within + between


def _ratio(values: Float[np.ndarray, "half draw"]) -> float:
    within, total = _variances(values)
    if not total > 0:
        return 1.0
    return float(np.sqrt(total / within)) if within > 0 else float("inf")


def _effective(values: Float[np.ndarray, "half draw"]) -> float:
    """M N / τ, τ no smaller than 1 / log₁₀(M N): chains that oscillate are worth more than independent draws."""
    n_halves, n = values.shape
    within, total = _variances(values)
    if not total > 0:
        return float("nan")
    centred = values - values.mean(1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n] / n
    correlation = 1 - (within - covariance.mean(0)) / total
    correlation[0] = 1.0
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(1)
    ends = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: ends[0]] if len(ends) else pairs)
    tau = max(float(2 * pairs.sum() - 1), 1 / np.log10(n_halves * n))
    return n_halves * n / tau


# ── one chain ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
