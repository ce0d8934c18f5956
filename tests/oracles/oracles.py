"""Slow exact answers in NumPy float64: every assignment enumerated, conjugate parameters integrated out by formula.

Nothing here imports lvsearch. All numbers are in nats.
"""

from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp


def all_assignments(n_choices: int, n_elements: int) -> np.ndarray:
    """(n_choices ** n_elements, n_elements), every combination once."""
    every = list(product(range(n_choices), repeat=n_elements))
    return np.array(every, dtype=np.int64).reshape(len(every), n_elements)


def one_hot(index: np.ndarray, n: int) -> np.ndarray:
    return (index[..., None] == np.arange(n)).astype(np.float64)


def log_dirichlet_multinomial(counts: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    """log of ∫ Dir(θ | concentration) Π θ_k^counts_k along the last axis: of one sequence, not of its multiset."""
    total, counted = concentration.sum(-1), counts.sum(-1)
    return (
        gammaln(total) - gammaln(total + counted) + (gammaln(concentration + counts) - gammaln(concentration)).sum(-1)
    )


def tokens_of(counts: np.ndarray) -> list[np.ndarray]:
    """Per document of a dense (D, V) matrix, its words one by one."""
    return [np.repeat(np.arange(counts.shape[1]), row) for row in np.asarray(counts, np.int64)]


class LDAPosterior(NamedTuple):
    """log_evidence: log p(words | α, η). proportions (D, K) and topics (K, V): exact posterior means."""

    log_evidence: float
    proportions: np.ndarray
    topics: np.ndarray


def lda_posterior(counts: np.ndarray, alpha: np.ndarray, eta: float | np.ndarray) -> LDAPosterior:
    """Smoothed LDA, all K^N assignments of the N tokens of `counts` (D, V). eta: of all words, or (K, V)."""
    n_docs, n_words = counts.shape
    n_topics = len(alpha)
    document, word = (np.repeat(index, np.asarray(counts).ravel()) for index in np.indices(counts.shape).reshape(2, -1))
    z = one_hot(all_assignments(n_topics, len(word)), n_topics)  # (assignment, token, topic)
    in_document = np.einsum("atk,td->adk", z, one_hot(document, n_docs))
    in_topic = np.einsum("atk,tv->akv", z, one_hot(word, n_words))
    log_joint = log_dirichlet_multinomial(in_document, alpha).sum(-1)
    log_joint += log_dirichlet_multinomial(in_topic, np.broadcast_to(eta, (n_topics, n_words))).sum(-1)
    log_evidence = logsumexp(log_joint)
    weight = np.exp(log_joint - log_evidence)
    theta = (in_document + alpha) / (in_document + alpha).sum(-1, keepdims=True)
    beta = (in_topic + eta) / (in_topic + eta).sum(-1, keepdims=True)
    return LDAPosterior(float(log_evidence), np.tensordot(weight, theta, 1), np.tensordot(weight, beta, 1))


def document_log_likelihood(words: np.ndarray, alpha: np.ndarray, topics: np.ndarray) -> float:
    """log p(words | α, topics), all K^L assignments; topics (K, V)."""
    z = all_assignments(len(alpha), len(words))
    log_words = np.log(topics)[z, words].sum(-1)
    return float(logsumexp(log_words + log_dirichlet_multinomial(one_hot(z, len(alpha)).sum(1), alpha)))


def corpus_log_likelihood(counts: np.ndarray, alpha: np.ndarray, topics: np.ndarray) -> float:
    """log p(corpus | α, topics): what plug-in evidence is."""
    return sum(document_log_likelihood(words, alpha, topics) for words in tokens_of(counts))


def mixture_log_evidence(
    points: np.ndarray, n_components: int, total: float, prior_precision: float, precision: float
) -> float:
    """Gaussian mixture of known precision, weights and means integrated out, all K^N assignments."""
    z = one_hot(all_assignments(n_components, len(points)), n_components)  # (assignment, point, component)
    n, linear = z.sum(1), precision * np.einsum("apk,p->ak", z, points)
    posterior_precision = prior_precision + precision * n
    log_weights = log_dirichlet_multinomial(n, np.full(n_components, total / n_components))
    log_means = 0.5 * (np.log(prior_precision / posterior_precision) + linear**2 / posterior_precision).sum(-1)
    constant = 0.5 * len(points) * np.log(precision / (2 * np.pi)) - 0.5 * precision * (points**2).sum()
    return float(logsumexp(log_weights + log_means) + constant)


class Grid(NamedTuple):
    """A positive number's prior on points (n,), with log weights (n,) whose exponentials sum to 1."""

    points: np.ndarray
    log_weights: np.ndarray


def known(value: float) -> Grid:
    return Grid(np.array([value]), np.zeros(1))


def gamma_grid(shape: float, rate: float, n: int = 160) -> Grid:
    """Gamma(shape, rate) by the trapezium rule in the logarithm, whose error falls exponentially with n."""
    t = np.linspace(-30 / shape - np.log(rate), np.log((shape + 12 * np.sqrt(shape) + 30) / rate), n)
    log_density = shape * (t + np.log(rate)) - rate * np.exp(t) - gammaln(shape)
    return Grid(np.exp(t), log_density + np.log(t[1] - t[0]))


def features_log_evidence(
    values: np.ndarray, observed: np.ndarray, n_features: int, rate: Grid, loading_precision: Grid, precision: Grid
) -> float:
    """Finite linear-Gaussian Indian buffet, sticks and loadings integrated out, all 2^(N·K) feature matrices (each
    class of equal columns once, with its multiplicity) and all hyper-parameters on their grids."""
    n_rows = len(values)
    histories = all_assignments(2, n_rows)
    a = rate.points / n_features
    loading, noise = 1 / loading_precision.points[:, None], 1 / precision.points[None, :]
    terms = []
    for chosen in combinations_with_replacement(range(len(histories)), n_features):
        z = histories[list(chosen)].T  # (row, feature)
        m = z.sum(0)[:, None]
        log_z = (np.log(a) + gammaln(a + m) + gammaln(1 + n_rows - m) - gammaln(a + 1 + n_rows)).sum(0)
        log_x = np.zeros((len(loading), noise.shape[1]))
        for column, seen in zip(values.T, observed.T, strict=True):
            scale, basis = np.linalg.eigh(z[seen] @ z[seen].T)
            for eigenvalue, x in zip(scale, basis.T @ column[seen], strict=True):
                variance = noise + max(eigenvalue, 0.0) * loading
                log_x -= 0.5 * (np.log(2 * np.pi * variance) + x**2 / variance)
        log_x += loading_precision.log_weights[:, None] + precision.log_weights
        equal = np.unique(chosen, return_counts=True)[1]
        multiplicity = gammaln(n_features + 1) - gammaln(equal + 1).sum()
        terms.append(multiplicity + logsumexp(log_z + rate.log_weights) + logsumexp(log_x))
    return float(logsumexp(terms))


class BuffetPosterior(NamedTuple):
    """Classes of feature matrices, each a sorted tuple of column histories (row 0 the leading bit), and their
    probability given the data; log_joint in nats, and its log total."""

    classes: tuple[tuple[int, ...], ...]
    probabilities: np.ndarray
    log_joint: np.ndarray
    log_evidence: float


def history_matrix(histories: tuple[int, ...], n_rows: int) -> np.ndarray:
    """The feature matrix (N, K) of a class."""
    return np.array([[h >> (n_rows - 1 - row) & 1 for h in histories] for row in range(n_rows)]).reshape(n_rows, -1)


def buffet_posterior(
    values: np.ndarray, observed: np.ndarray, alpha: float, sigma_x: float, sigma_a: float, max_features: int
) -> BuffetPosterior:
    """The linear-Gaussian Indian buffet process, all classes with at most `max_features` features, written out."""
    n_rows = len(values)
    harmonic = sum(1 / n for n in range(1, n_rows + 1))
    classes, log_joint = [], []
    for n_features in range(max_features + 1):
        for chosen in combinations_with_replacement(range(1, 2**n_rows), n_features):
            z = history_matrix(chosen, n_rows)
            m = z.sum(0)
            equal = np.unique(chosen, return_counts=True)[1] if chosen else np.zeros(0)
            log_p = n_features * np.log(alpha) - alpha * harmonic - gammaln(equal + 1).sum()
            log_p += (gammaln(n_rows - m + 1) + gammaln(m) - gammaln(n_rows + 1)).sum()
            for column, seen in zip(values.T, observed.T, strict=True):
                x = column[seen]
                covariance = sigma_x**2 * np.eye(len(x)) + sigma_a**2 * z[seen] @ z[seen].T
                log_p -= 0.5 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + x @ np.linalg.solve(covariance, x))
            classes.append(tuple(sorted(chosen)))
            log_joint.append(log_p)
    log_evidence = float(logsumexp(log_joint))
    return BuffetPosterior(
        tuple(classes), np.exp(np.array(log_joint) - log_evidence), np.array(log_joint), log_evidence
    )
