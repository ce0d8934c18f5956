"""Starts of fits of images with captions: from clusters, and from the factors of a smaller fit."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.annotation.seeds import cluster
from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, beliefs_of, pad_axes
from lvsearch.inference.engine.meanfield import Beliefs, cast, update_globals
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.contract import Statistics
from lvsearch.models.kernels import kernel


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
