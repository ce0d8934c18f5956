"""The number of features that one row has and no other row has.

Given everything else, the number j of such features of row n is Poisson(α/N) a priori, with N rows and concentration α
(rows are exchangeable, so any row can be the last). Each adds σ_A², the variance of a loading, to the variance of the
row's cells x once its loadings are integrated out:

    p(j | rest) ∝ Poisson(j; α/N) · p(x | j),   p(x | j) = Π Normal(residual; 0, variance + j σ_A²).

j is drawn from this conditional itself (Griffiths & Ghahramani 2005, §5.2, who cut the sum off). A Metropolis step
whose proposal is the conditional is always accepted. A proposal from the Poisson alone would try a new feature only α
times per sweep. The sum is cut where the rest is below e^−TAIL of it. With L = max_j p(x | j) over real j, the terms
from J on are at most 2 L Poisson(J) as soon as J + 1 ≥ 2α/N.
"""

from math import exp, inf, lgamma, log

import numpy as np
from jaxtyping import Float64

from lvsearch.inference.feature_samplers.loadings import Spread

TAIL = 36.0
"""The sum over the number of new features is cut where the rest is below e^−TAIL of it."""


def log_new_weights(spreads: list[Spread], rate: float, loading_variance: float) -> list[float]:
    """Return the unnormalised log probability that a row has j = 0, 1, … features of its own, nats.

    It is log Poisson(j; rate) p(row | j) without e^−rate and 2π, up to where the rest is negligible.

    spreads: the row's cells, grouped by their predictive variance.
    rate: the prior mean of j.
    loading_variance: σ_A², by which each feature widens the cells' variance.
    """
    log_rate, most, highest = log(rate), 0.0, -inf
    for cells, variance, squares in spreads:
        best = max(squares / cells, variance)
        most -= 0.5 * (cells * log(best) + squares / best)
    weights: list[float] = []
    while True:
        j = len(weights)
        weight = j * log_rate - lgamma(j + 1)
        if weight + most < highest - TAIL and j + 1 >= 2 * rate:
            return weights
        added = j * loading_variance
        for cells, variance, squares in spreads:
            weight -= 0.5 * (cells * log(variance + added) + squares / (variance + added))
        weights.append(weight)
        highest = max(highest, weight)


def draw_index(log_weights: list[float], uniform: float) -> int:
    """Draw an index with probability ∝ exp(log_weights), by inverting a uniform random number."""
    highest = max(log_weights)
    weights = [exp(w - highest) for w in log_weights]
    threshold = uniform * sum(weights)
    for index, weight in enumerate(weights):
        threshold -= weight
        if threshold < 0:
            return index
    return weights.index(max(weights))  # rounding left the last crumb of probability


def draw_loadings_of_new(
    rng: np.random.Generator, residual: np.ndarray, seen: np.ndarray, more: int, sigma_x: float, sigma_a: float
) -> Float64[np.ndarray, "feature column"]:
    """Draw the loadings of new features that one row alone has, given the row's residual.

    A draw from the prior is corrected by the data. Let A⁰ and the noise be drawn from the prior, for `more` = j
    features. Then A⁰ + σ_A²/(σ_x² + jσ_A²) (residual − Σ A⁰ − noise) is a draw from the posterior. Columns that are not
    observed keep the prior.

    residual: the row's cells minus the sum of the loadings of its other features, (column,).
    seen: which cells of the row are observed, (column,).
    more: the number of new features.
    sigma_x, sigma_a: standard deviations of noise and loadings.
    """
    prior = sigma_a * rng.standard_normal((more, len(residual)))
    noise = sigma_x * rng.standard_normal(len(residual))
    gain = sigma_a**2 / (sigma_x**2 + more * sigma_a**2)
    return prior + np.where(seen, gain * (residual - prior.sum(0) - noise), 0.0)
