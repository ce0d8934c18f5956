"""Units cut again, into tiles: batches of as many units as stay in the cache.

All tiles of units of one shape have one shape themselves, whatever the data set: training and test data share programs.
"""

from typing import Any

import jax
import numpy as np

from lvsearch.inference.data.dataset import Batch, Dataset

TILE_NUMBERS = 1 << 18
"""Numbers that the largest local site of one tile holds, at most: 1 MiB in float32."""
SMALLEST_TILE, LARGEST_TILE = 8, 256
"""Units; a tile has a power of two of them."""


def in_tiles(data: Dataset, numbers_per_unit: int) -> Dataset:
    """The same units, each batch a tile, the last one of each shape padded.

    numbers_per_unit: that the largest local site holds of one unit.
    """
    wanted = SMALLEST_TILE
    while wanted < LARGEST_TILE and 2 * wanted * numbers_per_unit <= TILE_NUMBERS:
        wanted *= 2
    by_shape: dict[Any, list[int]] = {}
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

            def taken(leaf: np.ndarray, rows: np.ndarray = rows) -> np.ndarray:
                return np.pad(leaf[rows], [(0, wanted - len(rows))] + [(0, 0)] * (leaf.ndim - 1))

            tiles.append(jax.tree.map(taken, joined))
            unit_ids.append(np.pad(ids[rows], (0, wanted - len(rows)), constant_values=-1))
    return Dataset.of_batches(tuple(tiles), tuple(unit_ids), data.extents, data.n_units)
