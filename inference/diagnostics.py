"""Diagnostics of Markov chains: do several chains agree, what are their draws worth, how long should a chain run?

Source of the first two: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), *Rank-normalization, folding, and
localization: an improved R-hat*. Every chain is cut in two halves, so that a chain that drifts disagrees with itself.
There are M half-chains of N draws each, with variance s²_m and autocovariances c_mt. Then

    W = mean_m s²_m
    var⁺ = (N − 1)/N · W + var_m(mean of m)
    R̂ = √(var⁺ / W)

    ρ_t = 1 − (W − mean_m c_mt) / var⁺
    τ = −1 + 2 Σ_t P_t
    ESS = M N / τ

P_t = ρ_2t + ρ_2t+1 is summed while it is positive, and made decreasing (Geyer 1992). Rank normalisation replaces the
draws by z-scores of their ranks. How long a chain should run is the diagnostic of Raftery & Lewis (1992).

Draws are arrays (chain, draw): every chain has equally many.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

Draws = Float[np.ndarray, "chain draw"] | Int[np.ndarray, "chain draw"]

MOST_RHAT = 1.05
"""The largest R̂ at which chains count as agreeing.

The mean over M chains then has an error of about √((R̂² − 1) / M) standard deviations of what is drawn: .16 with 4
chains, .08 with 16.
"""
FEWEST_EFFECTIVE = 100
"""The fewest effective draws, of all chains together, that make an answer."""
CLOSE_RHAT = 1.02
"""The R̂ down to which chains are lengthened by default, where their draws themselves are wanted."""


# ── several chains ──────────────────────────────────────────────────────────────────────────────────────────────────


def rhat(draws: Draws) -> float:
    """Return R̂ of several chains of one number: close to 1 if the chains agree.

    It is the larger of two values. One is R̂ of the rank-normalised half-chains, which notices chains at different
    places. The other is R̂ of their folded draws |x − median|, which notices chains of different spread.

    draws: one number per draw, (chain, draw).

    Returns 1 if every draw of every chain is the same, and `inf` if each half-chain stays at a value of its own. Raises
    ValueError for fewer than 4 draws per chain.
    """
    halves = _split_in_halves(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_rhat_of_halves(_rank_normalise(halves)), _rhat_of_halves(_rank_normalise(folded)))


def bulk_effective_sample_size(draws: Draws) -> float:
    """Return the bulk effective sample size (ESS): how many independent draws the chains are worth in the bulk of the
    distribution.

    It is the ESS of the rank-normalised draws. It is NaN if every draw is the same, because then nothing is known about
    how fast the chains move.

    draws: one number per draw, (chain, draw).

    Raises ValueError for fewer than 4 draws per chain.
    """
    return _effective_sample_size(_rank_normalise(_split_in_halves(draws)))


def mean_effective_sample_size(draws: Draws) -> float:
    """Return how many independent draws the chains are worth for estimating the mean: the effective sample size without
    ranks.

    draws: one number per draw, (chain, draw).

    Returns NaN if every draw is the same. Raises ValueError for fewer than 4 draws per chain.
    """
    return _effective_sample_size(_split_in_halves(draws))


def _split_in_halves(draws: np.ndarray) -> Float[np.ndarray, "half draw"]:
    """Return the first and second half of every chain as float64, (half, draw), where there are twice as many halves as
    chains.

    The middle draw of an odd number is left out. Raises ValueError for fewer than 4 draws per chain.

    draws: one number per draw, (chain, draw).
    """
    values = np.asarray(draws, np.float64)
    if values.ndim != 2 or values.shape[1] < 4:
        raise ValueError(f"got draws of shape {values.shape}, expected (chain, draw) with at least 4 draws of a chain")
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _rank_normalise(values: Float[np.ndarray, "half draw"]) -> Float[np.ndarray, "half draw"]:
    """Return the draws replaced by normal quantiles of their ranks, (half, draw).

    A draw of rank r among S draws becomes the quantile of (r − 3/8) / (S + 1/4). Equal draws share the mean of their
    ranks.
    """
    _, inverse, counts = np.unique(values.ravel(), return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ndtri((rank - 0.375) / (values.size + 0.25)).reshape(values.shape)


def _variances(values: Float[np.ndarray, "half draw"]) -> tuple[float, float]:
    """Return (W, var⁺): the mean variance inside half-chains, and the pooled estimate of the variance of the draws.

    Both are exactly 0 if nothing varies. Rounding would otherwise leave a tiny positive number.
    """
    n, moves = values.shape[1], np.ptp(values, axis=1) > 0
    within = float(np.where(moves, values.var(1, ddof=1), 0.0).mean())
    means = np.where(moves, values.mean(1), values[:, 0])
    between = float(means.var(ddof=1)) if np.ptp(means) > 0 else 0.0
    return within, (n - 1) / n * within + between


def _rhat_of_halves(values: Float[np.ndarray, "half draw"]) -> float:
    """Return R̂ = √(var⁺ / W), the root of pooled variance over variance inside half-chains.

    It is 1 if nothing varies, and infinity if only the half-chains' means vary.
    """
    within, total = _variances(values)
    if not total > 0:
        return 1.0
    return float(np.sqrt(total / within)) if within > 0 else float("inf")


def _effective_sample_size(values: Float[np.ndarray, "half draw"]) -> float:
    """Return the effective sample size M N / τ of M half-chains of N draws, where τ is the autocorrelation time.

    τ is at least 1 / log₁₀(M N): chains that oscillate may be worth more than independent draws, but not without limit.
    The result is NaN if nothing varies.
    """
    n_halves, n = values.shape
    within, total = _variances(values)
    if not total > 0:
        return float("nan")
    # autocovariances by the Fourier transform, padded with zeros so that the series does not wrap around
    centred = values - values.mean(1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n] / n
    correlation = 1 - (within - covariance.mean(0)) / total
    correlation[0] = 1.0
    # Geyer's sequence: sums of pairs while they are positive, made decreasing
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(1)
    ends = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: ends[0]] if len(ends) else pairs)
    tau = max(float(2 * pairs.sum() - 1), 1 / np.log10(n_halves * n))
    return n_halves * n / tau


# ── one chain ───────────────────────────────────────────────────────────────────────────────────────────────────────


def autocorrelation(series: Float[np.ndarray, " sweep"], lags: int) -> Float[np.ndarray, " lag"]:
    """Return the autocorrelations of a series at lags 0, …, `lags`, (lags + 1,). A series that never moves gives 1 and
    then 0.
    """
    centred = np.asarray(series, np.float64) - np.mean(series)
    total = centred @ centred
    if not total > 0:
        return np.concatenate([[1.0], np.zeros(lags)])
    return np.array([centred[lag:] @ centred[: len(centred) - lag] / total for lag in range(lags + 1)])


class RunLength(NamedTuple):
    """The run length that Raftery & Lewis recommend, in sweeps.

    | field | meaning |
    |---|---|
    | `burn_in` | sweeps to drop at the beginning |
    | `lag` | sweeps between samples that are to be independent |
    | `total` | sweeps after which the quantile is known to the precision asked for |
    """

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
    """Return how long a chain should run, found from the indicator of series ≤ its quantile.

    First the series is thinned until BIC prefers a first-order Markov chain for the indicator to a second-order one.
    That chain has transition probabilities α and β. They give the burn-in after which it is within `epsilon` of
    stationary. For `lag` the series is thinned further, until BIC prefers independent draws.

    series: one number per sweep, (sweep,).
    quantile: the quantile of the series to be estimated, in (0, 1).
    precision: the quantile's cumulative probability is to be within ± this number.
    probability: the probability with which that should hold.
    epsilon: how far from its stationary distribution the indicator may be after the burn-in.
    """
    values = np.asarray(series)
    cut = np.quantile(values, quantile)
    below = (values <= cut).astype(int)
    if below.all():  # the quantile is the largest value: count the draws strictly below it
        below = (values < cut).astype(int)
    if below.all() or not below.any():
        return RunLength(0, 1, 1)
    thin = next((k for k in range(1, len(below) // 50 + 1) if _markov_bic(below[::k]) < 0), max(1, len(below) // 50))
    chain = below[::thin]
    # α = P(0 → 1) and β = P(1 → 0), estimated from the thinned indicator
    moves = np.array([[np.sum((chain[:-1] == a) & (chain[1:] == b)) for b in (0, 1)] for a in (0, 1)], float)
    alpha = max(moves[0, 1], 0.5) / max(moves[0].sum(), 1.0)
    beta = max(moves[1, 0], 0.5) / max(moves[1].sum(), 1.0)
    # the second eigenvalue of the transition matrix is 1 − α − β: its powers are the distance from stationarity
    stay = abs(1 - alpha - beta)
    burn_in = (
        0 if stay < 1e-9 else max(0, int(np.ceil(np.log(epsilon * (alpha + beta) / max(alpha, beta)) / np.log(stay))))
    )
    # draws for the wanted precision: the variance of the indicator's mean along such a chain
    needed = alpha * beta * (2 - alpha - beta) / (alpha + beta) ** 3 * (ndtri((1 + probability) / 2) / precision) ** 2
    lag = next(
        (k for k in range(thin, len(below) // 25 + 1) if _independence_bic(below[::k]) < 0), max(thin, len(below) // 25)
    )
    return RunLength(burn_in * thin, lag, (burn_in + int(np.ceil(needed))) * thin)


def _markov_bic(chain: np.ndarray) -> float:
    """Return the BIC of a second-order Markov chain minus that of a first-order one: negative if the first order is
    enough.

    chain: a series of 0 and 1, (step,).
    """
    table = np.zeros((2, 2, 2))
    np.add.at(table, (chain[:-2], chain[1:-1], chain[2:]), 1)
    expected = (
        table.sum(2, keepdims=True) * table.sum(0, keepdims=True) / np.maximum(table.sum((0, 2))[None, :, None], 1)
    )
    return _likelihood_ratio(table, expected) - 2 * np.log(max(len(chain) - 2, 1))


def _independence_bic(chain: np.ndarray) -> float:
    """Return the BIC of a first-order Markov chain minus that of independent draws: negative if the draws look
    independent.

    chain: a series of 0 and 1, (step,).
    """
    table = np.zeros((2, 2))
    np.add.at(table, (chain[:-1], chain[1:]), 1)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / max(table.sum(), 1)
    return _likelihood_ratio(table, expected) - np.log(max(len(chain) - 1, 1))


def _likelihood_ratio(table: np.ndarray, expected: np.ndarray) -> float:
    """Return the likelihood-ratio statistic G² = 2 Σ observed log(observed / expected) of a table of counts.

    table: the observed counts. expected: the expected counts, broadcastable to the table.
    """
    seen = table > 0
    return float(2 * (table[seen] * np.log(table[seen] / expected[seen])).sum())
