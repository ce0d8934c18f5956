"""Images with captions in tiles, in single and double precision."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.tiles import in_tiles
from lvsearch.inference.sharding import on_host


def tiles_of(data: Dataset, capacity: tuple[int, ...]) -> Dataset:
    """Return the images in tiles: batches of so few images that their largest latent variable stays in the cache.

    That variable is the regions' factors, (region, factor) for each image.

    capacity: how many array slots there are for factors.
    """
    longest = max(batch.units.present.shape[1] for batch in data.batches)
    return in_tiles(data, longest * capacity[0])


def weighted_sum(tiles: Dataset, per_unit: Sequence[Any]) -> float:
    """Return the sum over all units of a number times the unit's weight, in float64.

    per_unit: the numbers, one array (unit,) for each tile.
    """
    pairs = zip(tiles.batches, per_unit, strict=True)
    return sum(float(on_host(values).astype(np.float64) @ tile.weight.astype(np.float64)) for tile, values in pairs)


def to_float64(tree: Any) -> Any:
    """Return the tree of arrays as NumPy arrays, with floating-point numbers in float64."""

    def convert(leaf: Any) -> np.ndarray:
        array = on_host(leaf)
        return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(convert, tree)
