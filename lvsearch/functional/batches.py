"""Data in the form that the functions of `lvsearch.functional` take: all units (observations) in one padded batch."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lvsearch.data.kinds import data_for
from lvsearch.inference.data.dataset import Batch
from lvsearch.models.contract import Model


class Prepared(NamedTuple):
    """A data set for the pure functions of `lvsearch.functional`.

    | field | meaning |
    |---|---|
    | `batch` | units (observations) in the order of the data on the leading axis, each of weight 1 |
    | `extents` | the lengths of the model's axes that the data decide, such as {"word": V} with V words |
    """

    batch: Batch
    extents: Mapping[str, int]


def batch_of(model: Model, data: Any) -> Prepared:
    """Return all of `data` as one batch, on the host, in the session's precision.

    model: the model. data: the data, or raw input for it, as `lv.fit` takes it.

    Units (observations) that differ in length are padded to the longest. Padding does not count in any result
    (`lvsearch.models.units` describes it for every type of unit).

    Raises ValueError for data that do not fit the model.
    """
    dataset = data_for(model, data).dataset()
    places = np.concatenate(dataset.unit_ids)
    order = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
    units = jax.tree.map(lambda *leaves: _concatenate(leaves)[order], *(batch.units for batch in dataset.batches))
    return Prepared(Batch(units, jnp.ones(dataset.n_units)), dict(dataset.extents))


def _concatenate(leaves: tuple[Any, ...]) -> jax.Array:
    """Return arrays one after another on the leading axis; other axes are padded with zeros to the longest."""
    longest = np.max([leaf.shape[1:] for leaf in leaves], axis=0)
    padded = [
        np.pad(leaf, [(0, 0), *((0, int(to) - have) for have, to in zip(leaf.shape[1:], longest, strict=True))])
        for leaf in leaves
    ]
    return jnp.asarray(np.concatenate(padded))
