"""Starts of fits of images with captions: from clusters of regions or images, and from the factors of a smaller fit.

Regions are clustered (for the mixture: whole images), and factors start at the clusters. Features are clustered as they
are. A token is described by the captions it comes with: the square roots of the shares of their words, so that
distances are Hellinger's.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse import csr_array

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.images import has_tokens
from lvsearch.inference.engine.estimate import Estimate, beliefs_of, pad_axes
from lvsearch.inference.engine.meanfield import Beliefs, cast, update_globals
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.contract import Statistics
from lvsearch.models.kernels import kernel

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


def beliefs_from_clusters(
    model: AnnotatedModel,
    data: Dataset,
    described: list[np.ndarray],
    size: tuple[int, ...],
    capacity: tuple[int, ...],
    key: Array,
    spread: float,
) -> Beliefs:
    """Return q of the global parameters that follows from putting regions (for the mixture: images) in clusters.

    described: a vector that describes each region, (image, region, dim) per batch.
    size, capacity: how many factors exist, and how many array slots there are for them.
    key: the random key of the clustering.
    spread: the share of a region that is dealt at random to all factors, rather than put in its cluster's factor.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    blank = blank_globals(model, data.extents, size, capacity)
    statistics = jax.tree.map(np.zeros_like, blank.mean)
    present = [batch.units.present for batch in data.batches]
    shares = _region_shares(present, described, size[0], model.whole_images, random, spread)
    for batch, share in zip(cast(data, np.float32).batches, shares, strict=True):
        wide = np.pad(share, ((0, 0), (0, 0), (0, capacity[0] - size[0])))
        added = _start_statistics(model, blank.mean, batch.units, batch.weight, wide)
        statistics = jax.tree.map(np.add, statistics, jax.tree.map(np.asarray, added))
    return update_globals(model, blank, statistics, size, capacity=capacity)


def _region_shares(
    present: list[np.ndarray],
    described: list[np.ndarray],
    n_factors: int,
    whole_images: bool,
    random: np.random.Generator,
    spread: float,
) -> list[np.ndarray]:
    """Return how much of each region starts in each factor, (image, region, factor) per batch.

    Most of it starts in the factor of the region's cluster or, for the mixture, of the image's cluster.

    present: which regions exist, (image, region) per batch.
    described: a vector that describes each region, (image, region, dim) per batch.
    n_factors: the number of factors, and of clusters.
    whole_images: whether whole images are clustered.
    spread: the share of a region that is dealt at random to all factors.
    """
    if whole_images:
        points = [d.sum(1) / np.maximum(p.sum(1, keepdims=True), 1) for d, p in zip(described, present, strict=True)]
    else:
        points = [d[p] for d, p in zip(described, present, strict=True)]
    # cluster all points together, then deal each point's share to its cluster's factor and at random to all
    joined = np.concatenate(points)
    found = cluster(joined, n_factors, random) if len(joined) else np.zeros(0, np.int64)
    shares, offset = [], 0
    for p, here in zip(present, points, strict=True):
        share = spread * random.dirichlet(np.ones(n_factors), size=len(here))
        share[np.arange(len(here)), found[offset : offset + len(here)]] += 1 - spread
        offset += len(here)
        whole = np.zeros((*p.shape, n_factors), np.float32)
        if whole_images:
            whole[:] = share[:, None, :]
        else:
            whole[p] = share
        shares.append(whole)
    return shares


class _Shares(NamedTuple):
    """The shares of each factor, multiplied by their image's weight.

    `regions`: of each region, (image, region, factor). `words`: of each caption word, the same for all words of an
        image, (image, factor).
    """

    regions: Array
    words: Array


@kernel(brief=True)
@counted
def _start_statistics(
    model: AnnotatedModel, g: dict[str, Statistics], units: Any, weight: Any, share: Any
) -> dict[str, Statistics]:
    """Return what regions and words add to the natural parameters if they belong to factors by given shares.

    A word belongs to the factors of all its image's regions.

    g: {global parameter: statistics}, which give the shapes.
    units: a batch of images. weight: the weight of each, (image,).
    share: how much of each region belongs to each factor, (image, region, factor).
    """
    present = jnp.asarray(units.present)
    n_regions = jnp.maximum(present.sum(1), 1)
    image = jnp.where(present[..., None], share, 0).sum(1) / n_regions[:, None]  # (image, factor)
    weighted = _Shares(jnp.where(present[..., None], share, 0) * weight[:, None, None], image * weight[:, None])

    def log_emitted(parameters: dict[str, Statistics]) -> Array:
        """Return the log-probability of regions and words given parameters, weighted by the shares, in nats."""
        regions = jax.vmap(lambda unit: model.log_regions(parameters, unit))(units)
        words = jax.vmap(lambda unit: model.log_words(parameters, unit).sum(0))(units)
        return (weighted.regions * regions).sum() + (weighted.words * words).sum()

    statistics = jax.grad(log_emitted)({**g})
    if "weights" in g:
        statistics = {**statistics, "weights": weighted.words.sum(0)}
    return statistics


def replace_factors(
    model: AnnotatedModel, beliefs: Beliefs, start: Estimate, size: tuple[int, ...], capacity: tuple[int, ...]
) -> Beliefs:
    """Return q of the global parameters with the first factors replaced by those of a smaller fit.

    beliefs: q of the global parameters before.
    start: the smaller fit.
    size, capacity: how many factors exist, and how many array slots there are for them.
    """
    kept = np.arange(capacity[0]) < min(start.size[0], size[0])

    def choose(new: Array, old: np.ndarray) -> np.ndarray:
        """Return `old` in the array slots of the smaller fit's factors, and `new` in all others."""
        return np.where(kept.reshape([-1] + [1] * (new.ndim - 1)), old, np.asarray(new))

    padded = pad_axes(model, start.natural, start.size, capacity)
    natural = {name: jax.tree.map(choose, beliefs.natural[name], padded[name]) for name in beliefs.natural}
    return beliefs_of(model, natural, size, capacity=capacity)
