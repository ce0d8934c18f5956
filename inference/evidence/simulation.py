"""Data of the shape of others, drawn from a model at one size, with the latents that they were drawn with.

The latents are what makes such data worth having. Given the data they are *a draw of the posterior*, exact and for
nothing: (latents, data) was drawn from the joint, whichever of the two came first. Paths that need a draw of the
posterior to begin in may begin there (`truth`).

Parameters are drawn from their priors too. Data drawn at parameters fixed beforehand, those of a fit say, would look
more like the real data, but their latents would be a draw of no posterior once parameters are integrated out: nothing
exact could be said of their evidence.
"""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key
from scipy.sparse import csr_array

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import counts_of, documents
from lvsearch.inference.data.images import annotated_images, has_tokens
from lvsearch.inference.data.rows import rows
from lvsearch.models.contract import Model, Statistics, Unit
from lvsearch.models.kernels import full_precision
from lvsearch.models.units import AnnotatedImage, BagOfWords, Row


class Simulated(NamedTuple):
    """Data and the latents behind them.

    | field | meaning |
    |---|---|
    | `data` | one batch with all units, what may occur several times (a word) one at a time in a column of its own |
    | `globals` | site -> statistics, `size` entries on size axes |
    | `locals` | the same of each unit of the batch, units leading |
    | `size` | |
    """

    data: Dataset
    globals: dict[str, Statistics]
    locals: dict[str, Statistics]
    size: tuple[int, ...]


def simulated_like(data: Dataset, model: Model, size: tuple[int, ...], key: Key[Array, ""]) -> Simulated:
    """As many units as `data` has, each as long, with the same cells missing, drawn from the model at `size`: the
    globals from their priors, then the locals, then the units.

    All units are drawn at once, padded to the longest. Raises ValueError for parameters without a prior, as
    `Model.simulate` does.
    """
    weights = [np.asarray(batch.weight) for batch in data.batches]
    units = _stacked([one_a_column(batch.units) for batch in data.batches])
    with jax.enable_x64(True):
        g, l, units = jax.tree.map(np.asarray, _drawn(model, key, size, units, data.extents))
    batch = Batch(units, np.concatenate(weights))
    return Simulated(
        Dataset.of_batches((batch,), (np.concatenate(data.unit_ids),), data.extents, data.n_units), g, l, size
    )


@eqx.filter_jit
@full_precision
def _drawn(
    model: Model, key: Key[Array, ""], size: tuple[int, ...], units: Unit, extents: Mapping[str, int]
) -> tuple[dict[str, Statistics], dict[str, Statistics], Unit]:
    """`Model.simulate`, compiled: size and extents are static."""
    return model.simulate(key, size, units, extents)


@singledispatch
def one_a_column(units: Unit) -> Unit:
    """The units with a column for every single observation: nothing that stands for several copies at once."""
    return units


@one_a_column.register
def _(units: BagOfWords) -> BagOfWords:
    return BagOfWords(*_words_apart(units.words, units.counts))


@one_a_column.register
def _(units: AnnotatedImage) -> AnnotatedImage:
    return AnnotatedImage(units.regions, units.present, *_words_apart(units.words, units.counts))


def packed(data: Dataset) -> Dataset:
    """The data of a `Simulated` in the batches in which engines are given such units: equal words in one column."""
    return _packed(data.batches[0].units, data)


@singledispatch
def _packed(units: Unit, data: Dataset) -> Dataset:
    return data


@_packed.register
def _(units: BagOfWords, data: Dataset) -> Dataset:
    return documents(counts_of(data))


@_packed.register
def _(units: Row, data: Dataset) -> Dataset:
    in_order = _in_order(data, units)
    return rows(np.where(in_order.observed, np.asarray(in_order.value, np.float64), 0.0), in_order.observed)


@_packed.register
def _(units: AnnotatedImage, data: Dataset) -> Dataset:
    images = _in_order(data, units)
    image, column = np.nonzero(images.counts)
    ones = np.ones(len(image), np.int32)
    captions = csr_array((ones, (image, images.words[image, column])), (data.n_units, data.extents["word"]))
    captions.sum_duplicates()
    present = np.asarray(images.present)
    n_tokens = data.extents["dim"] if has_tokens(data) else None
    return annotated_images(images.regions[present], present.sum(1), captions, n_tokens)


def _in_order(data: Dataset, units: Any) -> Any:
    """The units in the order of the data set, without padding."""
    ids = data.unit_ids[0]
    real = np.flatnonzero(ids >= 0)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[real[np.argsort(ids[real])]], units)


def _words_apart(words: Any, counts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Ids and counts, 0 or 1, of a column for every token."""
    copies = np.asarray(counts).astype(np.int64)
    lengths = copies.sum(-1)
    here = np.arange(max(1, int(lengths.max(initial=0)))) < lengths[:, None]
    ids = np.zeros(here.shape, np.int32)
    ids[here] = np.repeat(np.asarray(words).ravel(), copies.ravel())
    return ids, here.astype(np.float64)


def _stacked(units: list[Unit]) -> Unit:
    """Batches one after another, the shorter ones padded with zeros, which stand for nothing in every type of unit."""

    def joined(*leaves: Any) -> np.ndarray:
        arrays = [np.asarray(leaf) for leaf in leaves]
        widths = np.max([array.shape[1:] for array in arrays], axis=0, initial=0)
        padding = [[(0, 0), *((0, int(w - n)) for w, n in zip(widths, a.shape[1:], strict=True))] for a in arrays]
        return np.concatenate([np.pad(array, pad) for array, pad in zip(arrays, padding, strict=True)])

    return jax.tree.map(joined, *units)
