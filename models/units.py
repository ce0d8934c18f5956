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


class Row(NamedTuple):
    """One row of a real matrix: `value` (dim,), and which cells were `observed` (dim,).

    The value of a cell that was not observed means nothing: a model masks it with `observed`, and a padded row
    observes none.
    """

    value: Float[Array, "*rows dim"] | np.ndarray
    observed: Bool[Array, "*rows dim"] | np.ndarray
