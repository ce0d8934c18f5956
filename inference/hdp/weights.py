"""Corpus weights and concentrations from expected table counts: what the collapsed passes need of the process.

Given weights β and concentration α a document's topic shares are Dirichlet(α β_k), so that LDA's collapsed passes apply
with α_k = α β_k; and β, γ, α follow from how many tables serve each topic. A document that has n words of topic k has
in expectation

    E[m_k] = P · α_k (ψ(α_k + n / P) − ψ(α_k)),     P = 1 − e^{−n} the chance that it has any

tables for it (Teh, Kurihara & Welling 2008, Eq. 19–20, with soft counts Poisson). An estimator, like those passes: what
is reported of its result is a bound evaluated at it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import digamma

from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.hyperpriors import GammaPrior

ITERATIONS = 20
WEIGHT_ROUNDS = 5
"""Refits of weights and concentrations where counts are all that is known: each is a fixed point already."""
LEAST_ALPHA = 1e-6
"""α_k of a topic without tables: it stays there to be found, and float32 stays normal."""


class CorpusWeights(NamedTuple):
    """`beta` (topic,) E[β_k] in the topics' own order, `tables` (topic,) E[m_k], and point values of γ and α."""

    beta: Float[np.ndarray, " topic"]
    tables: Float[np.ndarray, " topic"]
    gamma: float
    alpha: float

    @property
    def alphas(self) -> Float[np.ndarray, " topic"]:
        """α β_k: the Dirichlet of a document's shares."""
        return np.maximum(self.alpha * self.beta, LEAST_ALPHA)


def starting_weights(model: HierarchicalProcess, n_topics: int) -> CorpusWeights:
    """Even weights, the concentrations at their prior means."""
    gamma, alpha = (prior_mean(model.concentration_of(level)) for level in model.levels)
    return CorpusWeights(np.full(n_topics, 1 / n_topics), np.zeros(n_topics), gamma, alpha)


def prior_mean(value: np.ndarray | GammaPrior) -> float:
    """A given value itself; the mean of a prior."""
    return float(value.shape / value.rate) if isinstance(value, GammaPrior) else float(value)


def expected_tables(
    counts: Float[np.ndarray, "document topic"], alphas: Float[np.ndarray, " topic"]
) -> Float[np.ndarray, " topic"]:
    """Σ_d E[m_dk] from expected word counts."""
    n = np.maximum(counts, 1e-9)
    some = -np.expm1(-n)
    return (some * alphas * (digamma(alphas + n / some) - digamma(alphas))).sum(0)


def refit_weights(
    model: HierarchicalProcess,
    weights: CorpusWeights,
    counts: Float[np.ndarray, "document topic"],
    lengths: Float[np.ndarray, " document"],
) -> CorpusWeights:
    """β, γ and α given expected counts (document, topic) of documents of these lengths: sticks in order of size, and
    fixed points of each concentration's own update."""
    tables = expected_tables(counts, weights.alphas)
    order = np.argsort(-tables, kind="stable")
    beyond = tables.sum() - np.cumsum(tables[order])
    hits, gamma = 1 + tables[order], weights.gamma
    upper, lower = (model.concentration_of(level) for level in model.levels)
    for _ in range(ITERATIONS if isinstance(upper, GammaPrior) else 0):
        shape, rate = upper
        passes = gamma + np.maximum(beyond, 0)
        gamma = float((shape + len(tables)) / (rate - (digamma(passes) - digamma(hits + passes)).sum()))
    passes = gamma + np.maximum(beyond, 0)
    left = np.cumprod(passes / (hits + passes))
    beta = np.empty_like(tables)
    beta[order] = hits / (hits + passes) * np.concatenate([[1.0], left[:-1]])
    alpha = weights.alpha
    for _ in range(ITERATIONS if isinstance(lower, GammaPrior) else 0):
        shape, rate = lower
        alpha = float((shape + tables.sum()) / (rate + (digamma(alpha + lengths) - digamma(alpha)).sum()))
    return CorpusWeights(beta, tables, gamma, alpha)


def weights_from(model: HierarchicalProcess, counts: Float[np.ndarray, "document topic"]) -> CorpusWeights:
    """β, γ and α that expected counts (document, topic) alone call for; empty documents say nothing."""
    weights = starting_weights(model, counts.shape[1])
    lengths = counts.sum(1)
    some = lengths > 0
    for _ in range(WEIGHT_ROUNDS):
        weights = refit_weights(model, weights, counts[some], lengths[some])
    return weights
