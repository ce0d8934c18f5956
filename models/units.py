"""What ONE unit of data is: the types on which models, engines and what a person passes agree.

A model names its own (`Model.unit_type`); units of one type stand stacked on a leading axis in a batch. Adding a kind
of data is adding a type here, its batches in `lvsearch.inference`, and what a person passes in `lvsearch`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int


class BagOfWords(NamedTuple):
    """One document: `words` (token,) are vocabulary ids, `counts` (token,) how often each occurs (0 = padding)."""

    words: Int[Array, "*docs token"] | np.ndarray
    counts: Float[Array, "*docs token"] | np.ndarray


class AnnotatedImage(NamedTuple):
    """One image and its caption: a bag of regions and a bag of words.

    | field | meaning |
    |---|---|
    | `regions` | (region, dim) real features of each region, or (region,) the vocabulary id of each region's token |
    | `present` | (region,) which regions there are; the others are padding and may hold anything |
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
    | `value` | (row, dim); of a cell that was not observed it means nothing |
    | `observed` | (row, dim) which cells were; none of a row that is not there |
    | `present` | (row,) which rows there are; the others are padding |
    """

    value: Float[Array, "*groups row dim"] | np.ndarray
    observed: Bool[Array, "*groups row dim"] | np.ndarray
    present: Bool[Array, "*groups row"] | np.ndarray


class Row(NamedTuple):
    """One row of a real matrix: `value` (dim,), and which cells were `observed` (dim,).

    The value of a cell that was not observed means nothing: a model masks it with `observed`, and a padded row
    observes none.
    """

    value: Float[Array, "*rows dim"] | np.ndarray
    observed: Bool[Array, "*rows dim"] | np.ndarray
