"""Corpus weights and concentrations from expected numbers of tables, which the collapsed passes need.

Given the topics' shared weights β and the concentration α of a document's shares, these are Dirichlet(α β_k). So LDA's
collapsed passes apply with α_k = α β_k. Then β, its concentration γ and α follow from how many tables serve each topic.
A document that has n words of topic k has in expectation

    E[m_k] = P · α_k (ψ(α_k + n / P) − ψ(α_k)),     P = 1 − e^{−n} the chance that it has any

tables for it (Teh, Kurihara & Welling 2008, Eq. 19–20, with Poisson soft counts); ψ is the digamma function. Like the
collapsed passes this is an approximation. What is reported is a bound evaluated at its result.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import digamma

from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.hyperpriors import GammaPrior

ITERATIONS = 20
"""The number of fixed-point iterations of a concentration."""
WEIGHT_ROUNDS = 5
"""How often weights and concentrations are refitted if only expected counts are known.

Each refit is a fixed point already.
"""
LEAST_ALPHA = 1e-6
"""The least Dirichlet parameter of a topic without tables.

Such a topic can still be found, and float32 numbers stay normal.
"""


class CorpusWeights(NamedTuple):
    """Point values of the corpus weights and concentrations.

    A document's tokens sit at tables, each of which serves one topic.

    beta: E[β_k], the weight of each topic, in the topics' own order.
    tables: the expected number of tables that serve each topic.
    gamma: the concentration of the corpus weights.
    alpha: the concentration of a document's shares.
    """

    beta: Float[np.ndarray, " topic"]
    tables: Float[np.ndarray, " topic"]
    gamma: float
    alpha: float

    @property
    def alphas(self) -> Float[np.ndarray, " topic"]:
        """The Dirichlet parameters of a document's shares, at least `LEAST_ALPHA`."""
        return np.maximum(self.alpha * self.beta, LEAST_ALPHA)


def starting_weights(model: HierarchicalProcess, n_topics: int) -> CorpusWeights:
    """Return even weights of `n_topics` topics, with the concentrations at their prior means."""
    gamma, alpha = (prior_mean(model.concentration_of(level)) for level in model.levels)
    return CorpusWeights(np.full(n_topics, 1 / n_topics), np.zeros(n_topics), gamma, alpha)


def prior_mean(value: np.ndarray | GammaPrior) -> float:
    """Return the mean of a prior, or a given value itself."""
    return float(value.shape / value.rate) if isinstance(value, GammaPrior) else float(value)


def expected_tables(
    counts: Float[np.ndarray, "document topic"], alphas: Float[np.ndarray, " topic"]
) -> Float[np.ndarray, " topic"]:
    """Return the expected number of tables that serve each topic, summed over documents.

    A document's tokens sit at tables, each of which serves one topic.

    counts: expected words of each topic in every document.
    alphas: the Dirichlet parameters of a document's shares.
    """
    n = np.maximum(counts, 1e-9)
    some = -np.expm1(-n)
    return (some * alphas * (digamma(alphas + n / some) - digamma(alphas))).sum(0)


def refit_weights(
    model: HierarchicalProcess,
    weights: CorpusWeights,
    counts: Float[np.ndarray, "document topic"],
    lengths: Float[np.ndarray, " document"],
) -> CorpusWeights:
    """Return new corpus weights and concentrations, given expected counts in documents.

    A document's tokens sit at tables, each of which serves one topic.

    Sticks are in order of the topics' tables. Each concentration is a fixed point of its own update.

    weights: the present weights.
    counts: expected words of each topic in every document.
    lengths: the number of words of every document.
    """
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
    """Return the corpus weights and concentrations that expected counts alone call for.

    counts: expected words of each topic in every document; empty documents say nothing.
    """
    weights = starting_weights(model, counts.shape[1])
    lengths = counts.sum(1)
    some = lengths > 0
    for _ in range(WEIGHT_ROUNDS):
        weights = refit_weights(model, weights, counts[some], lengths[some])
    return weights
