"""Data drawn from a model at one size, shaped like other data, together with the latents that they were drawn with.

The latents make such data useful. Given the data, they are an exact draw of the posterior at no cost: (latents, data)
was drawn from the joint, in whichever order. Paths that have to begin in a draw of the posterior may begin there
(`truth`).

Parameters are drawn from their priors too. Data drawn at fixed parameters, such as those of a fit, would look more like
the real data. But their latents would not be a draw of the posterior with parameters integrated out, so nothing exact
could be said about their evidence.
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
from lvsearch.models.units import AnnotatedImage, BagOfWords, GroupOfRows, Row


class Simulated(NamedTuple):
    """Data and the latent variables that they were drawn with.

    | field | meaning |
    |---|---|
    | `data` | one batch with all units; each single observation (a token) has a column of its own |
    | `globals` | {variable that all units share: its statistics}, with `size` entries on size axes |
    | `locals` | {variable of each unit: statistics of every unit of the batch}, units leading |
    | `size` | the size that they were drawn at |
    """

    data: Dataset
    globals: dict[str, Statistics]
    locals: dict[str, Statistics]
    size: tuple[int, ...]


def simulated_like(data: Dataset, model: Model, size: tuple[int, ...], key: Key[Array, ""]) -> Simulated:
    """Draw data from the model at `size`: parameters from their priors, then the units' latent variables, then the
    units.

    There are as many units as `data` has, each as long, with the same cells missing. All are drawn at once, padded to
    the longest.

    Raises ValueError for parameters without a prior.
    """
    weights = [np.asarray(batch.weight) for batch in data.batches]
    units = _stack_batches([one_a_column(batch.units) for batch in data.batches])
    with jax.enable_x64(True):
        g, l, units = jax.tree.map(np.asarray, _simulate(model, key, size, units, data.extents))
    batch = Batch(units, np.concatenate(weights))
    return Simulated(
        Dataset.of_batches((batch,), (np.concatenate(data.unit_ids),), data.extents, data.n_units), g, l, size
    )


@eqx.filter_jit
@full_precision
def _simulate(
    model: Model, key: Key[Array, ""], size: tuple[int, ...], units: Unit, extents: Mapping[str, int]
) -> tuple[dict[str, Statistics], dict[str, Statistics], Unit]:
    """Return what `Model.simulate` draws: statistics of globals and of locals, and units. It is compiled; `size` is
    static.

    Globals are the latent variables that all units share, locals those of one unit.

    units: say how many units there are and how long each is.
    extents: lengths of the axes that the data decide, such as {"word": number of words}.
    """
    return model.simulate(key, size, units, extents)


@singledispatch
def one_a_column(units: Unit) -> Unit:
    """Return units with a column for every single observation, so that no column stands for several copies.

    Raises TypeError for a type of unit of which it is not known whether its columns have counts.
    """
    raise TypeError(
        f"got units of type {type(units).__name__}, expected a type of which it is known whether a column stands for "
        "several observations: register how with lvsearch.inference.evidence.simulation.one_a_column"
    )


@one_a_column.register(Row)
@one_a_column.register(GroupOfRows)
def _single_cells(units: Row | GroupOfRows) -> Row | GroupOfRows:
    """Return rows and groups of rows as they are: a cell is one observation."""
    return units


@one_a_column.register
def _one_token_a_column_of_documents(units: BagOfWords) -> BagOfWords:
    """Return documents with one column for each token, instead of one for each different word."""
    return BagOfWords(*_one_column_for_each_token(units.words, units.counts))


@one_a_column.register
def _one_token_a_column_of_images(units: AnnotatedImage) -> AnnotatedImage:
    """Return images with one column for each token of the caption, instead of one for each different word."""
    return AnnotatedImage(units.regions, units.present, *_one_column_for_each_token(units.words, units.counts))


def pack_simulated(data: Dataset) -> Dataset:
    """Return simulated data in the form that engines expect of such units: one column for equal words, in batches.

    data: the field `data` of a `Simulated`.
    """
    return _pack_by_type(data.batches[0].units, data)


@singledispatch
def _pack_by_type(units: Unit, data: Dataset) -> Dataset:
    """Return simulated data in the form that engines expect, by the type of the units.

    By default they are returned as they are. This is valid data for every engine: other forms are only faster.

    units: the units of the only batch of `data`.
    """
    return data


@_pack_by_type.register
def _pack_documents(units: BagOfWords, data: Dataset) -> Dataset:
    """Return simulated documents in batches, with one column for each different word."""
    return documents(counts_of(data))


@_pack_by_type.register
def _pack_rows(units: Row, data: Dataset) -> Dataset:
    """Return simulated rows in the order of the data set, in batches."""
    in_order = _units_in_order(data, units)
    return rows(np.where(in_order.observed, np.asarray(in_order.value, np.float64), 0.0), in_order.observed)


@_pack_by_type.register
def _pack_images(units: AnnotatedImage, data: Dataset) -> Dataset:
    """Return simulated images with captions in batches, with one column for each different word of a caption."""
    images = _units_in_order(data, units)
    image, column = np.nonzero(images.counts)
    ones = np.ones(len(image), np.int32)
    captions = csr_array((ones, (image, images.words[image, column])), (data.n_units, data.extents["word"]))
    captions.sum_duplicates()
    present = np.asarray(images.present)
    n_tokens = data.extents["dim"] if has_tokens(data) else None
    return annotated_images(images.regions[present], present.sum(1), captions, n_tokens)


def _units_in_order(data: Dataset, units: Any) -> Any:
    """Return the units of the only batch of a data set in the order of the data set, without padding."""
    ids = data.unit_ids[0]
    real = np.flatnonzero(ids >= 0)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[real[np.argsort(ids[real])]], units)


def _one_column_for_each_token(words: Any, counts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (word ids, counts of 0 or 1) with a column for every token, (unit, token) each.

    words, counts: the different words of each unit and how often each occurs, (unit, column).
    """
    copies = np.asarray(counts).astype(np.int64)
    lengths = copies.sum(-1)
    here = np.arange(max(1, int(lengths.max(initial=0)))) < lengths[:, None]
    ids = np.zeros(here.shape, np.int32)
    ids[here] = np.repeat(np.asarray(words).ravel(), copies.ravel())
    return ids, here.astype(np.float64)


def _stack_batches(units: list[Unit]) -> Unit:
    """Return all batches of units as one, the shorter ones padded with zeros, which stand for nothing in every type of
    unit.
    """

    def concatenate(*leaves: Any) -> np.ndarray:
        """Return one array of each batch joined along the units, padded to the longest."""
        arrays = [np.asarray(leaf) for leaf in leaves]
        widths = np.max([array.shape[1:] for array in arrays], axis=0, initial=0)
        padding = [[(0, 0), *((0, int(w - n)) for w, n in zip(widths, a.shape[1:], strict=True))] for a in arrays]
        return np.concatenate([np.pad(array, pad) for array, pad in zip(arrays, padding, strict=True)])

    return jax.tree.map(concatenate, *units)
