"""What paths over mixtures share: the rows of a data set with their padding, and the size that must fit."""

import numpy as np
from jaxtyping import Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.models.units import Row


def padded_rows(data: Dataset) -> tuple[Row, Float[np.ndarray, " row"]]:
    """All batches' rows one after another and their weights, 0 for padding, of which nothing counts as observed.

    Padding stays, so that data sets of one padded length share their programs. Raises ValueError for rows weighted
    otherwise than 0 or 1.
    """
    value = np.concatenate([np.asarray(batch.units.value, np.float64) for batch in data.batches])
    weight = np.concatenate([np.asarray(batch.weight, np.float64) for batch in data.batches])
    if not np.all((weight == 0) | (weight == 1)):
        raise ValueError("got rows of a weight that is neither 0 nor 1, expected each row once")
    observed = np.concatenate([np.asarray(batch.units.observed) for batch in data.batches])
    return Row(value, observed & (weight > 0)[:, None]), weight


def check_size(size: int, capacity: int) -> None:
    """ValueError for a size that does not fit in the capacity."""
    if not 1 <= size <= capacity:
        raise ValueError(f"got size={size}, expected at least 1 and at most the capacity {capacity}")
