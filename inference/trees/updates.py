"""Draws of a tree's hyper-parameters given paths and levels, each by slice sampling on the log scale.

γ (branching) is drawn given the paths, by their probability under the nested process. α or (m, π) (level proportions)
is drawn given the levels, by the level prior's integral. η_ℓ (topics) is drawn given everything, one value for the
topics of each level. Positive numbers have Gamma priors, and m a uniform one. Slice sampling needs no tuning. The
interval steps out until the density falls below the slice, and shrinks towards the point that it came from (Neal 2003,
Figs 3, 5).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import gammaln

from lvsearch.inference.trees.density import (
    Allocation,
    DirichletLevels,
    GEMLevels,
    TreeHyper,
    log_paths,
    log_words,
    tokens_by_level,
)
from lvsearch.models.hyperpriors import GammaPrior

WIDTH, MOST_STEPS = 1.0, 50
"""The width of the slice sampler's first interval, and the most steps by which it grows on each side."""


class TreePriors(NamedTuple):
    """The prior of each kind of hyper-parameter that is to be drawn; None keeps it at its given value.

    branching: the prior of γ, the concentration of the branching process.
    levels: the prior of each α_ℓ of the level proportions, or of the scale π (m is then uniform on (0, 1)).
    topics: the prior of each η_ℓ, the concentration of the topics at a level.
    """

    branching: GammaPrior | None = None
    levels: GammaPrior | None = None
    topics: GammaPrior | None = None


FIXED = TreePriors()
"""Priors by which no hyper-parameter is drawn: all keep their given values."""


def log_hyper_prior(hyper: TreeHyper, priors: TreePriors) -> float:
    """Return the log prior density of a tree's hyper-parameters that have a prior, in nats.

    These are γ (branching), each α_ℓ or π (level proportions; a uniform m adds 0), and each η_ℓ (topics). The density
    is of the numbers, not of their logarithms.

    hyper: the values of the hyper-parameters.
    priors: their priors; None for a hyper-parameter that is given.
    """
    levels = hyper.levels.alpha if isinstance(hyper.levels, DirichletLevels) else hyper.levels.scale
    pairs = (priors.branching, hyper.branching), (priors.levels, levels), (priors.topics, hyper.topics)
    return sum((_log_gamma_density(prior, value) for prior, value in pairs if prior is not None), 0.0)


def _log_gamma_density(prior: GammaPrior, values: float | np.ndarray) -> float:
    """Return the log density of one number, or the sum over several, under a Gamma prior, in nats."""
    shape, rate, x = float(prior.shape), float(prior.rate), np.atleast_1d(values)
    return float((shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x).sum())


def slice_draw(rng: np.random.Generator, log_density: Callable[[float], float], at: float) -> float:
    """Return a new point after one step of slice sampling on the line, which leaves exp(log_density) unchanged.

    at: the present point.
    """
    height = log_density(at) + np.log(rng.random())
    low = at - WIDTH * rng.random()
    high = low + WIDTH
    for _ in range(MOST_STEPS):
        if log_density(low) < height:
            break
        low -= WIDTH
    for _ in range(MOST_STEPS):
        if log_density(high) < height:
            break
        high += WIDTH
    while True:
        new = low + (high - low) * rng.random()
        if log_density(new) >= height:
            return new
        low, high = (new, high) if new < at else (low, new)


def positive_draw(
    rng: np.random.Generator, log_likelihood: Callable[[float], float], at: float, prior: GammaPrior
) -> float:
    """Draw a positive number with a Gamma prior given a likelihood, by one step of slice sampling on the log scale.

    log_likelihood: number -> log-likelihood, nats.
    at: the present number.
    """

    def log_density(log_x: float) -> float:
        if not -700 < log_x < 700:
            return -np.inf
        x = float(np.exp(log_x))
        return log_likelihood(x) + float(prior.shape) * log_x - float(prior.rate) * x

    return float(np.exp(slice_draw(rng, log_density, float(np.log(at)))))


def draw_hyper(
    rng: np.random.Generator,
    counts: scipy.sparse.csr_array,
    allocation: Allocation,
    hyper: TreeHyper,
    priors: TreePriors,
) -> TreeHyper:
    """Draw every hyper-parameter that has a prior, in turn, given paths and levels; return all hyper-parameters.

    counts: the count of each word in each document, (document, word).
    hyper: the present hyper-parameters.
    """
    if priors.branching is not None:
        gamma = positive_draw(rng, lambda g: log_paths(allocation.paths, g), hyper.branching, priors.branching)
        hyper = hyper._replace(branching=gamma)
    if priors.levels is not None:
        hyper = hyper._replace(levels=_draw_levels(rng, counts, allocation, hyper.levels, priors.levels))
    if priors.topics is not None:
        topics = hyper.topics.copy()
        for level in range(hyper.depth):
            paths, at = allocation.paths[:, level : level + 1], allocation.level_counts[:, level : level + 1]
            here = Allocation(paths, at)

            def of_level(eta: float, here: Allocation = here) -> float:
                return log_words(counts, here, np.array([eta]))

            topics[level] = positive_draw(rng, of_level, float(topics[level]), priors.topics)
        hyper = hyper._replace(topics=topics)
    return hyper


def _draw_levels(
    rng: np.random.Generator,
    counts: scipy.sparse.csr_array,
    allocation: Allocation,
    levels: DirichletLevels | GEMLevels,
    prior: GammaPrior,
) -> DirichletLevels | GEMLevels:
    """Draw the hyper-parameters of the level proportions given the levels of all tokens, and return the new level
    prior.

    levels: the present level prior.
    prior: the Gamma prior of its positive numbers.
    """
    m = tokens_by_level(counts, allocation)
    if isinstance(levels, GEMLevels):
        share = levels.mean_share

        def of_log_odds(x: float) -> float:
            if not -30 < x < 30:
                return -np.inf
            value = 1 / (1 + np.exp(-x))  # a uniform prior on m is m (1 − m) on its log-odds
            likelihood = levels._replace(mean_share=value).log_evidence(m).sum()
            return float(likelihood + np.log(value) + np.log1p(-value))

        x = slice_draw(rng, of_log_odds, float(np.log(share) - np.log1p(-share)))
        levels = levels._replace(mean_share=float(1 / (1 + np.exp(-x))))
        moved = levels

        def of_scale(scale: float) -> float:
            return float(moved._replace(scale=scale).log_evidence(m).sum())

        return levels._replace(scale=positive_draw(rng, of_scale, levels.scale, prior))
    alpha = levels.alpha.copy()
    for level in range(len(alpha)):

        def of_alpha(value: float, level: int = level) -> float:
            other = alpha.copy()
            other[level] = value
            return float(DirichletLevels(other).log_evidence(m).sum())

        alpha[level] = positive_draw(rng, of_alpha, float(alpha[level]), prior)
    return DirichletLevels(alpha)
