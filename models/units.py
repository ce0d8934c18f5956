"""The types of ONE unit (observation) of data, which models, inference and a person's data objects share.

A model names its type (`Model.unit_type`). In a batch, units of one type are stacked on a leading axis. To add a kind
of data, add a type here, its batches in `lvsearch.inference`, and a data object for people in `lvsearch`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int


class BagOfWords(NamedTuple):
    """One document: `words` (token,) are vocabulary ids, `counts` (token,) is how often each occurs (0 = padding)."""

    words: Int[Array, "*docs token"] | np.ndarray
    counts: Float[Array, "*docs token"] | np.ndarray


class AnnotatedImage(NamedTuple):
    """One image and its caption: a bag of regions and a bag of words.

    | field | meaning |
    |---|---|
    | `regions` | (region, dim) real features of each region, or (region,) the vocabulary id of each region's token |
    | `present` | (region,) True for regions that exist; the others are padding and may hold anything |
    | `words` | (caption,) vocabulary ids of the caption's words |
    | `counts` | (caption,) how often each occurs (0 = padding) |
    """

    regions: Float[Array, "*images region dim"] | Int[Array, "*images region"] | np.ndarray
    present: Bool[Array, "*images region"] | np.ndarray
    words: Int[Array, "*images caption"] | np.ndarray
    counts: Float[Array, "*images caption"] | np.ndarray


class GroupOfRows(NamedTuple):
    """One group of rows of a real matrix: a school of pupils, a patient's cells.

    | field | meaning |
    |---|---|
    | `value` | (row, dim); the value of a missing cell has no meaning |
    | `observed` | (row, dim) True for observed cells; False in rows that are padding |
    | `present` | (row,) True for rows that exist; the others are padding |
    """

    value: Float[Array, "*groups row dim"] | np.ndarray
    observed: Bool[Array, "*groups row dim"] | np.ndarray
    present: Bool[Array, "*groups row"] | np.ndarray


class Row(NamedTuple):
    """One row of a real matrix: `value` (dim,), and `observed` (dim,), True for observed cells.

    The value of a missing cell has no meaning: a model masks it with `observed`. A padded row has no observed cell.
    """

    value: Float[Array, "*rows dim"] | np.ndarray
    observed: Bool[Array, "*rows dim"] | np.ndarray
