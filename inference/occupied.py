"""How many components are occupied under a fit, for models whose units are not in one component each."""

from functools import singledispatch

import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.mixtures.occupied import OccupiedCounts
from lvsearch.models.contract import Model


@singledispatch
def occupied_counts(
    model: Model, estimate: Estimate, data: Dataset, *, draws: int, rng: np.random.Generator
) -> OccupiedCounts | None:
    """The distribution, under q, of how many components hold some part of some unit, from `draws` draws of all locals;
    model: `estimate.model`. None where a unit's own component says it all, or nothing is known."""
    return None
