"""Unigram, mixture of unigrams and pLSI by enumeration, loop by loop: no code shared with the package."""

import itertools
import math

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp


def log_dirichlet_multinomial(counts: np.ndarray, eta: float) -> float:
    """log ∫ Π_w β_w^{n_w} Dirichlet(β; η, …, η) dβ."""
    n_words = len(counts)
    value = math.lgamma(n_words * eta) - n_words * math.lgamma(eta)
    return value + sum(math.lgamma(eta + n) for n in counts) - math.lgamma(n_words * eta + sum(counts))


def mixture_log_evidence(counts: np.ndarray, n_topics: int, a: float, eta: float) -> float:
    """Every assignment of documents to topics: K^D terms."""
    terms = []
    for labels in itertools.product(range(n_topics), repeat=len(counts)):
        in_topic = np.bincount(labels, minlength=n_topics)
        value = math.lgamma(n_topics * a) - math.lgamma(n_topics * a + len(counts))
        value += float((gammaln(in_topic + a) - gammaln(a)).sum())
        for topic in range(n_topics):
            rows = counts[np.array(labels) == topic]
            value += log_dirichlet_multinomial(rows.sum(0) if len(rows) else np.zeros(counts.shape[1]), eta)
        terms.append(value)
    return float(logsumexp(terms))


def mixture_log_likelihood(document: np.ndarray, weights: np.ndarray, topics: np.ndarray) -> float:
    """log Σ_k π_k Π_w β_kw^{n_w}, in plain products."""
    total = 0.0
    for weight, topic in zip(weights, topics, strict=True):
        product = weight
        for probability, n in zip(topic, document, strict=True):
            product *= probability**n
        total += product
    return math.log(total) if total > 0 else -math.inf


def best_proportions(document: np.ndarray, topics: np.ndarray) -> tuple[np.ndarray, float]:
    """(argmax, max) over θ of Σ_w n_w log Σ_k θ_k β_kw, by a general optimiser on the simplex from several starts."""
    n_topics, best = len(topics), (np.zeros(0), -np.inf)

    def loss(free: np.ndarray) -> float:
        theta = np.exp(free - logsumexp(free))
        mass = theta @ topics
        return -float((document[document > 0] * np.log(mass[document > 0])).sum())

    for start in (np.zeros(n_topics), *(3.0 * row for row in np.eye(n_topics))):
        found = minimize(loss, start, method="BFGS", options={"gtol": 1e-10})
        if -found.fun > best[1]:
            best = np.exp(found.x - logsumexp(found.x)), -float(found.fun)
    return best


def em_step(
    counts: np.ndarray, theta: np.ndarray, topics: np.ndarray, tempering: float
) -> tuple[np.ndarray, np.ndarray]:
    """One tempered EM step of pLSI, by the table p(z | d, w)."""
    new_theta, new_topics = np.zeros_like(theta), np.zeros_like(topics)
    for d in range(counts.shape[0]):
        for w in range(counts.shape[1]):
            if counts[d, w]:
                posterior = (theta[d] * topics[:, w]) ** tempering
                posterior = counts[d, w] * posterior / posterior.sum()
                new_theta[d] += posterior
                new_topics[:, w] += posterior
    return new_theta / new_theta.sum(1, keepdims=True), new_topics / new_topics.sum(1, keepdims=True)
