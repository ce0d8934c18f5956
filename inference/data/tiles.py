"""Divides units into tiles: batches of so few units that their arrays stay in the cache.

All tiles of units of one shape have one shape themselves, whatever the data set. Training and test data then share
their programs.
"""

from typing import Any

import jax
import numpy as np

from lvsearch.inference.data.dataset import Batch, Dataset

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
