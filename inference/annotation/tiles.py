"""Images with captions in tiles, in single and double precision.

A tile is a batch of so few units that its arrays stay in the cache. All tiles of units of one shape have one shape
themselves, whatever the data set. Training and test data then share their programs.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.sharding import on_host

TILE_NUMBERS = 1 << 18
"""The most numbers that the largest local latent variable of one tile holds: 1 MiB in float32."""
SMALLEST_TILE, LARGEST_TILE = 8, 256
"""The fewest and the most units in a tile. The number of units is a power of two."""


def in_tiles(data: Dataset, numbers_per_unit: int) -> Dataset:
    """Return the units of a data set with each batch a tile: so few units that their arrays stay in the cache.

    The last tile of each shape is padded.

    numbers_per_unit: how many numbers the largest local latent variable holds for one unit.
    """
    wanted = SMALLEST_TILE
    while wanted < LARGEST_TILE and 2 * wanted * numbers_per_unit <= TILE_NUMBERS:
        wanted *= 2
    by_shape: dict[Any, list[int]] = {}  # the numbers of the batches whose units have one shape
    for index, batch in enumerate(data.batches):
        shape = tuple(leaf.shape[1:] for leaf in jax.tree.leaves(batch.units))
        by_shape.setdefault(shape, []).append(index)
    tiles: list[Batch] = []
    unit_ids = []
    for indices in by_shape.values():
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(data.batches[i] for i in indices))
        ids = np.concatenate([data.unit_ids[i] for i in indices])
        real = np.flatnonzero(ids >= 0)
        for start in range(0, len(real), wanted):
            rows = real[start : start + wanted]

            def pad_to_tile(leaf: np.ndarray, rows: np.ndarray = rows) -> np.ndarray:
                """Return the rows of one tile of an array, padded with zeros to the length of a tile."""
                return np.pad(leaf[rows], [(0, wanted - len(rows))] + [(0, 0)] * (leaf.ndim - 1))

            tiles.append(jax.tree.map(pad_to_tile, joined))
            unit_ids.append(np.pad(ids[rows], (0, wanted - len(rows)), constant_values=-1))
    return Dataset.of_batches(tuple(tiles), tuple(unit_ids), data.extents, data.n_units)


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
