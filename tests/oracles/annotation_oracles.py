"""Exact answers for images with captions, in NumPy float64: every assignment enumerated, parameters integrated out.

Nothing here imports lvsearch. All numbers are in nats.
"""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from oracles import all_assignments, log_dirichlet_multinomial, one_hot
from scipy.special import gammaln, logsumexp


class Image(NamedTuple):
    """`regions`: (N, D) features or N tokens. `words`: M ids, copies spelled out."""

    regions: Any
    words: list[int]


Marginal = Callable[[list[Any]], float]
"""log p(some regions, all from one factor), its parameters integrated out."""


def gaussian_marginal(centre: float, pseudo_count: float, shape: float, rate: float) -> Marginal:
    """Normal–Gamma on every feature."""

    def log_marginal(regions: list[Any]) -> float:
        if not regions:
            return 0.0
        x = np.array(regions, np.float64)
        n, mean = len(x), x.mean(0)
        kappa, a = pseudo_count + n, shape + n / 2
        between = pseudo_count * n * (mean - centre) ** 2 / (2 * kappa)
        b = rate + 0.5 * ((x - mean) ** 2).sum(0) + between
        per_feature = gammaln(a) - gammaln(shape) + shape * np.log(rate) - a * np.log(b)
        per_feature = per_feature + 0.5 * np.log(pseudo_count / kappa) - n / 2 * np.log(2 * np.pi)
        return float(per_feature.sum())

    return log_marginal


def token_marginal(n_tokens: int, eta: float) -> Marginal:
    """Dirichlet on the tokens' probabilities."""

    def log_marginal(tokens: list[Any]) -> float:
        counts = np.bincount(np.array(tokens, np.int64), minlength=n_tokens).astype(float)
        return float(log_dirichlet_multinomial(counts, np.full(n_tokens, eta)))

    return log_marginal


def _emissions(
    images: list[Image], z: list[Iterable[int]], v: list[Iterable[int]], k: int, regions: Marginal, words: Marginal
) -> float:
    """log p(regions and words | the factor of each), per image a list of factors."""
    by_region: list[list[Any]] = [[] for _ in range(k)]
    by_word: list[list[Any]] = [[] for _ in range(k)]
    for image, zs, vs in zip(images, z, v, strict=True):
        for region, factor in zip(image.regions, zs, strict=True):
            by_region[factor].append(region)
        for word, factor in zip(image.words, vs, strict=True):
            by_word[factor].append(word)
    return sum(map(regions, by_region)) + sum(map(words, by_word))


def mixture_log_evidence(images: list[Image], k: int, alpha: np.ndarray, regions: Marginal, words: Marginal) -> float:
    """GM-mixture: all K^D factors of the images."""
    terms = []
    for z in all_assignments(k, len(images)):
        per_region = [[f] * len(image.regions) for f, image in zip(z, images, strict=True)]
        per_word = [[f] * len(image.words) for f, image in zip(z, images, strict=True)]
        log_z = log_dirichlet_multinomial(one_hot(z, k).sum(0), alpha)
        terms.append(log_z + _emissions(images, per_region, per_word, k, regions, words))
    return float(logsumexp(terms))


def gm_lda_log_evidence(images: list[Image], k: int, alpha: np.ndarray, regions: Marginal, words: Marginal) -> float:
    """GM-LDA: all factors of all regions times all factors of all words."""

    def every(lengths: list[int], streams: list[list[Any]], marginal: Marginal) -> tuple[np.ndarray, np.ndarray]:
        """(how many of each image in each factor, log p of the stream): per assignment."""
        z = all_assignments(k, sum(lengths))
        image = np.repeat(np.arange(len(lengths)), lengths)
        counts = np.einsum("atk,td->adk", one_hot(z, k), one_hot(image, len(lengths)))
        things = [thing for stream in streams for thing in stream]
        log_p = [sum(marginal([t for t, f in zip(things, row, strict=True) if f == j]) for j in range(k)) for row in z]
        return counts, np.array(log_p)

    of_regions = every([len(i.regions) for i in images], [list(i.regions) for i in images], regions)
    of_words = every([len(i.words) for i in images], [list(i.words) for i in images], words)
    terms = [
        logsumexp(log_dirichlet_multinomial(counts + of_words[0], alpha).sum(-1) + of_words[1]) + log_p
        for counts, log_p in zip(*of_regions, strict=True)
    ]
    return float(logsumexp(terms))


def corr_lda_log_evidence(images: list[Image], k: int, alpha: np.ndarray, regions: Marginal, words: Marginal) -> float:
    """Corr-LDA: all factors of all regions, all regions of all words; captions of images without regions left out."""
    images = [image if len(image.regions) else image._replace(words=[]) for image in images]
    n_regions = [len(image.regions) for image in images]
    choices = [range(len(image.regions)) for image in images for _ in image.words]
    log_y = -sum(len(image.words) * np.log(max(len(image.regions), 1)) for image in images)
    terms = []
    for every in product(range(k), repeat=sum(n_regions)):
        z, start = [], 0
        for n in n_regions:
            z.append(every[start : start + n])
            start += n
        log_z = sum(log_dirichlet_multinomial(one_hot(np.array(zs, int), k).sum(0), alpha) for zs in z)
        for y in product(*choices):
            v, start = [], 0
            for zs, image in zip(z, images, strict=True):
                v.append([zs[region] for region in y[start : start + len(image.words)]])
                start += len(image.words)
            terms.append(log_z + log_y + _emissions(images, z, v, k, regions, words))
    return float(logsumexp(terms))
