"""Clusters of regions (or, for the mixture, of images), at which the factors of images with captions start.

Features are clustered as they are. A token is described by the captions it comes with: the square roots of the shares
of their words, so that distances are Hellinger's.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.images import has_tokens

MOST_POINTS = 10_000
"""The most points that cluster centres are found from."""
RESTARTS = 4
"""The number of clusterings, of which that with the smallest squared distances is used.

Several are needed because coordinate ascent does not escape a poor start.
"""


def cluster(
    points: Float[np.ndarray, "point dim"], n_clusters: int, random: np.random.Generator, *, rounds: int = 10
) -> Int[np.ndarray, " point"]:
    """Return the cluster of each point, (point,), by k-means from seeds chosen far from each other (Arthur &
    Vassilvitskii 2007).

    points: (point, dim).
    n_clusters: the number of clusters.
    rounds: the number of k-means updates of the centres.
    """
    some = points[random.permutation(len(points))[:MOST_POINTS]]
    found = []
    for _ in range(RESTARTS):
        # k-means: assign points to the nearest centre, then move centres to the means; empty clusters keep theirs
        centres = some[_spread_seeds(some, n_clusters, random)]
        for _ in range(rounds):
            nearest = _squared_distances(some, centres).argmin(1)
            totals = csr_array((np.ones(len(some)), (nearest, np.arange(len(some)))), shape=(n_clusters, len(some)))
            sizes = np.asarray(totals.sum(1))
            centres = np.where(sizes[:, None] > 0, (totals @ some) / np.maximum(sizes, 1)[:, None], centres)
        found.append((float(_squared_distances(some, centres).min(1).sum()), centres))
    best = min(found, key=lambda pair: pair[0])[1]
    return _squared_distances(points, best).argmin(1)


def _spread_seeds(points: np.ndarray, n_seeds: int, random: np.random.Generator) -> np.ndarray:
    """Return the numbers of `n_seeds` points that are far from each other, (n_seeds,).

    Each is drawn with probability proportional to its squared distance from those before: the best of a few draws (the
    greedy form).

    points: (point, dim).
    """
    tries = 2 + int(np.log(max(n_seeds, 1)))
    chosen = [int(random.integers(len(points)))]
    squares = (points**2).sum(1)

    def distances(index: np.ndarray) -> np.ndarray:
        """Return the squared distances of the points number `index` from all points, (index, point)."""
        return np.maximum(squares[index, None] + squares - 2 * points[index] @ points.T, 0)

    nearest = distances(np.array(chosen))[0]
    while len(chosen) < n_seeds:
        total = nearest.sum()
        weights = nearest / total if total > 0 else None  # fewer distinct points than seeds: any will do
        candidates = random.choice(len(points), size=tries, p=weights)
        closer = np.minimum(nearest, distances(candidates))
        best = int(closer.sum(1).argmin())
        chosen.append(int(candidates[best]))
        nearest = closer[best]
    return np.array(chosen)


def _squared_distances(points: np.ndarray, centres: np.ndarray) -> Float[np.ndarray, "point centre"]:
    """Return the squared distance of each point from each centre, minus the point's own square, (point, centre).

    Comparisons between centres do not need the point's own square.
    """
    return (centres**2).sum(1) - 2 * points @ centres.T


def describe_regions(data: Dataset) -> list[Float[np.ndarray, "image region dim"]]:
    """Return a vector that describes each region for clustering, (image, region, dim) for each batch; 0 for absent
    regions.

    A region of features is described by them. A region that is a token is described by the captions it comes with: √ of
    the shares of their words.

    data: images with captions.
    """
    units = [batch.units for batch in data.batches]
    if not has_tokens(data):
        return [np.where(u.present[..., None], u.regions, 0.0) for u in units]
    n_tokens, n_words = data.extents["dim"], data.extents["word"]
    together = csr_array((n_tokens, n_words))
    for u in units:
        together = together + _token_counts(u, n_tokens).T @ _word_counts(u, n_words)
    profile = together.toarray()
    profile = np.sqrt(profile / np.maximum(profile.sum(1, keepdims=True), 1)).astype(np.float32)
    return [np.where(u.present[..., None], profile[u.regions], 0.0) for u in units]


def _token_counts(units: Any, n_tokens: int) -> csr_array:
    """Return how often each token occurs among each image's regions, (image, token).

    units: a batch of images whose regions are tokens. n_tokens: the size of the tokens' vocabulary.
    """
    rows = np.repeat(np.arange(len(units.present)), units.present.sum(1))
    tokens = units.regions[units.present]
    return csr_array((np.ones(len(rows)), (rows, tokens)), shape=(len(units.present), n_tokens))


def _word_counts(units: Any, n_words: int) -> csr_array:
    """Return how often each word occurs in each image's caption, (image, word).

    units: a batch of images. n_words: the size of the captions' vocabulary.
    """
    rows = np.repeat(np.arange(len(units.counts)), units.counts.shape[1])
    return csr_array((units.counts.ravel(), (rows, units.words.ravel())), shape=(len(units.counts), n_words))
