"""Images with captions in tiles, in single and double precision."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.tiles import in_tiles
from lvsearch.inference.sharding import on_host


def tiles_of(data: Dataset, capacity: tuple[int, ...]) -> Dataset:
    """Return the images in tiles sized by their largest local latent variable, the regions' factors."""
    longest = max(batch.units.present.shape[1] for batch in data.batches)
    return in_tiles(data, longest * capacity[0])


def weighted_sum(tiles: Dataset, per_unit: Sequence[Any]) -> float:
    """Return the weighted sum of a number per unit over all tiles, in float64."""
    pairs = zip(tiles.batches, per_unit, strict=True)
    return sum(float(on_host(values).astype(np.float64) @ tile.weight.astype(np.float64)) for tile, values in pairs)


def double(tree: Any) -> Any:
    """Return the tree with its floating-point leaves in float64, as NumPy arrays."""

    def convert(leaf: Any) -> np.ndarray:
        array = on_host(leaf)
        return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(convert, tree)
