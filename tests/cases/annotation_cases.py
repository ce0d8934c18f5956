"""Tiny images with captions, their rows in the table of models, and simulated ones of a size that fits find.

Five images, of two, one, two, no and no regions; captions of three words (one twice), one, none, one and none.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import annotation_oracles as exact
import numpy as np

import lvsearch as lv
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.models import AnnotatedImage

CENTRE, PSEUDO_COUNT, SHAPE, RATE = GAUSSIAN = 0.1, 0.7, 1.4, 0.8
"""The prior of region features: μ ~ Normal(centre, 1/(pseudo_count τ)), τ ~ Gamma(shape, rate)."""
REGIONS = lv.models.DiagonalComponents(CENTRE, 1.0, PSEUDO_COUNT, SHAPE, RATE, variance_floor=1e-3)
ETA, TOKEN_ETA, TOTAL, N_WORDS, N_TOKENS = 0.4, 0.3, 1.7, 5, 3
FEATURES = np.array(
    [
        [[1.3, -0.2], [-1.1, 0.4]],
        [[0.2, 2.0], [9.0, 9.0]],
        [[-0.8, 0.3], [1.0, -0.6]],
        [[9.0, 9.0], [9.0, 9.0]],
        [[9.0, 9.0], [9.0, 9.0]],
    ]
)
TOKENS = np.array([[0, 2], [1, 1], [0, 0], [0, 0], [0, 0]], np.int32)
PRESENT = np.array([[1, 1], [1, 0], [1, 1], [0, 0], [0, 0]], bool)
WORDS = np.array([[0, 2, 0], [1, 3, 3], [0, 0, 0], [2, 3, 0], [0, 0, 0]], np.int32)
COUNTS = np.array([[2.0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]])


def images(regions: np.ndarray) -> list[exact.Image]:
    """As the oracles want them: ragged, copies spelled out."""
    return [
        exact.Image(list(regions[d][PRESENT[d]]), np.repeat(WORDS[d], COUNTS[d].astype(int)).tolist())
        for d in range(len(PRESENT))
    ]


def feature_units() -> AnnotatedImage:
    return AnnotatedImage(FEATURES, PRESENT, WORDS, COUNTS)


def token_units() -> AnnotatedImage:
    return AnnotatedImage(TOKENS, PRESENT, WORDS, COUNTS)


def spelled_out(units: AnnotatedImage) -> AnnotatedImage:
    """A word a column."""
    words, counts = np.zeros_like(units.words), np.zeros_like(units.counts)
    for row, (w, c) in enumerate(zip(units.words, units.counts.astype(int), strict=True)):
        words[row, : c.sum()], counts[row, : c.sum()] = np.repeat(w, c), 1
    return units._replace(words=words, counts=counts)


def other_padding(units: AnnotatedImage) -> AnnotatedImage:
    """Other absent regions and other words that occur 0 times."""
    features = units.regions.ndim > units.present.ndim
    there = units.present[..., None] if features else units.present
    regions = np.where(there, units.regions, np.asarray(-7.5 if features else 2, units.regions.dtype))
    words = np.where(units.counts > 0, units.words, 4).astype(units.words.dtype)
    return units._replace(regions=regions, words=words)


def feature_images() -> Dataset:
    return Dataset.of_batches((Batch(feature_units(), np.ones(5)),), (np.arange(5),), {"word": N_WORDS, "dim": 2}, 5)


def token_images() -> Dataset:
    return Dataset.of_batches(
        (Batch(token_units(), np.ones(5)),), (np.arange(5),), {"word": N_WORDS, "dim": N_TOKENS}, 5
    )


@cache
def log_evidence(oracle: Callable[..., float], features: bool, size: int) -> float:
    """log p(all images | size) by enumeration."""
    regions = FEATURES if features else TOKENS
    marginal = exact.gaussian_marginal(*GAUSSIAN) if features else exact.token_marginal(N_TOKENS, TOKEN_ETA)
    return oracle(images(regions), size, np.full(size, TOTAL / size), marginal, exact.token_marginal(N_WORDS, ETA))


class Simulated(NamedTuple):
    """`corpus`, standardised; the factor of each region; each factor's most probable word."""

    corpus: lv.PairedCorpus
    factors: np.ndarray
    top_words: list[str]


def simulate(seed: int, n_images: int = 500, n_factors: int = 6, n_dims: int = 4, n_words: int = 24) -> Simulated:
    """Corr-LDA's story: Gaussian regions of variance 1 whose means are at least 4 apart, captions of 2 to 4 words.

    A factor's most probable word leads the next by at least 0.15: a factor gives some 250 words, which cannot tell
    probabilities of .35 and .30 apart, and such a factor has no label to be found.
    """
    random = np.random.default_rng(seed)
    means: list[Any] = []
    while len(means) < n_factors:
        mean = random.uniform(-8, 8, n_dims)
        if all(np.linalg.norm(mean - other) >= 4 for other in means):
            means.append(mean)
    many = random.dirichlet(np.full(n_words, 0.1), size=20 * n_factors)
    highest = np.sort(many, axis=1)
    beta = many[highest[:, -1] - highest[:, -2] >= 0.15][:n_factors]
    vocabulary = [f"word{number}" for number in range(n_words)]
    regions, captions, factors = [], [], []
    for _ in range(n_images):
        z = random.choice(n_factors, size=random.integers(4, 9), p=random.dirichlet(np.full(n_factors, 0.5)))
        regions.append(np.array(means)[z] + random.normal(size=(len(z), n_dims)))
        y = random.integers(len(z), size=random.integers(2, 5))
        captions.append([vocabulary[random.choice(n_words, p=beta[z[n]])] for n in y])
        factors.append(z)
    corpus = lv.PairedCorpus.from_arrays(regions, captions, vocabulary).standardised()
    return Simulated(corpus, np.concatenate(factors), [vocabulary[word] for word in beta.argmax(1)])
