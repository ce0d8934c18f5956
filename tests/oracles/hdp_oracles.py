"""HDPs by enumeration of the Chinese restaurant franchise, in NumPy and SciPy alone. All numbers are in nats.

Every partition of every unit's members into tables, times every partition of all tables into dishes (topics,
components): Teh et al. (2006), §4. Nothing of sticks, pointers or truncations is repeated here.
"""

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
from partition_oracles import canonical, partitions
from scipy.special import gammaln, logsumexp


def tokens_of(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(document, word) of every copy of every word, document by document."""
    document, word = np.nonzero(counts)
    copies = counts[document, word]
    return np.repeat(document, copies), np.repeat(word, copies)


def log_topic(words: np.ndarray, eta: float, n_words: int) -> float:
    """log p(words of one topic), φ ~ Dirichlet(η) integrated out."""
    n = np.bincount(words, minlength=n_words)
    total = n_words * eta
    return float(gammaln(total) - gammaln(total + n.sum()) + (gammaln(eta + n) - gammaln(eta)).sum())


Likelihood = Callable[[tuple[int, ...]], float]
"""Partition of all members into parts -> log p(members | partition), parts integrated out."""


def topic_likelihood(counts: np.ndarray, eta: float) -> Likelihood:
    """Of the tokens of documents."""
    _, word = tokens_of(counts)

    @cache
    def likelihood(labels: tuple[int, ...]) -> float:
        array = np.array(labels)
        return sum(log_topic(word[array == k], eta, counts.shape[1]) for k in range(array.max() + 1))

    return likelihood


def row_likelihood(rows: np.ndarray, log_marginal: Callable[[np.ndarray], float]) -> Likelihood:
    """Of the rows of groups, from the density of the rows of one component."""

    @cache
    def likelihood(labels: tuple[int, ...]) -> float:
        array = np.array(labels)
        return sum(log_marginal(rows[array == k]) for k in range(array.max() + 1))

    return likelihood


def log_joint_of_parts(
    lengths: tuple[int, ...],
    likelihood: Likelihood,
    log_corpus: Callable[[int, int], float],
    log_documents: Callable[[tuple[int, ...], tuple[int, ...]], float],
) -> dict[tuple[int, ...], float]:
    """Partition of the members into parts -> log p(members, partition); lengths: members of each unit.

    log_corpus: (parts, tables) -> log of γ^K Γ(γ) / Γ(γ + T) or its mean. log_documents: (tables of each unit, members
    of each) -> log of Π α^T_d Γ(α) / Γ(α + n_d) or its mean.
    """
    found: dict[tuple[int, ...], list[float]] = {}
    for seatings in product(*(list(partitions(n)) for n in lengths)):
        n_tables = tuple(max(s, default=-1) + 1 for s in seatings)
        first = np.concatenate([[0], np.cumsum(n_tables)[:-1]])
        table = np.concatenate([np.array(s, int) + f for s, f in zip(seatings, first, strict=True)])
        seating = log_documents(n_tables, lengths) + gammaln(np.bincount(table)).sum()
        for dishes in partitions(sum(n_tables)):
            labels = canonical(np.array(dishes)[table])
            serving = log_corpus(max(dishes) + 1, len(dishes)) + gammaln(np.bincount(dishes)).sum()
            found.setdefault(labels, []).append(float(seating + serving) + likelihood(labels))
    return {labels: float(logsumexp(terms)) for labels, terms in found.items()}


def known(value: float) -> tuple[np.ndarray, np.ndarray]:
    return np.array([value]), np.zeros(1)


def gamma_grid(shape: float, rate: float, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """(values, log weights) that integrate over Gamma(shape, rate), by the trapezium rule in the logarithm."""
    grid = np.linspace(-30 / shape - np.log(rate), np.log((shape + 12 * np.sqrt(shape) + 30) / rate), n)
    log_density = shape * (grid + np.log(rate)) - rate * np.exp(grid) - gammaln(shape) + np.log(grid[1] - grid[0])
    return np.exp(grid), log_density


def posterior_of(
    lengths: tuple[int, ...],
    likelihood: Likelihood,
    gamma: tuple[np.ndarray, np.ndarray],
    alpha: tuple[np.ndarray, np.ndarray],
) -> dict[tuple[int, ...], float]:
    """`log_joint_of_parts` with both concentrations on grids such as `known` and `gamma_grid` give."""

    @cache
    def log_corpus(parts: int, tables: int) -> float:
        values, weight = gamma
        return float(logsumexp(weight + parts * np.log(values) + gammaln(values) - gammaln(values + tables)))

    @cache
    def log_documents(tables: tuple[int, ...], lengths: tuple[int, ...]) -> float:
        values, weight = alpha
        each = np.log(values) * sum(tables) + sum(gammaln(values) - gammaln(values + n) for n in lengths)
        return float(logsumexp(weight + each))

    return log_joint_of_parts(lengths, likelihood, log_corpus, log_documents)


def posterior(counts: np.ndarray, eta: float, gamma: tuple, alpha: tuple) -> dict[tuple[int, ...], float]:
    """Of topics: `posterior_of` the tokens of documents (document, word)."""
    lengths = tuple(int(n) for n in counts.sum(1))
    return posterior_of(lengths, topic_likelihood(counts, eta), gamma, alpha)


def log_evidence(counts: np.ndarray, eta: float, gamma: tuple, alpha: tuple) -> float:
    return float(logsumexp(list(posterior(counts, eta, gamma, alpha).values())))
