"""The number of occupied components under a fit, for models in which one unit can be in several components at once.

A component is occupied if at least one element of the data, such as a token, is in it.
"""

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
    """Return the distribution under q of the number of occupied components, estimated from draws of all local latent
    variables.

    A component is occupied if it holds an element of some unit. A model type registers a function of its own. The
    default is None, for models where every unit is in one component, and for models of which nothing is known.

    model: the fitted model, `estimate.model`.
    estimate: the fit, which has q of the parameters.
    data: the units whose elements occupy components.
    draws: how many times all local variables are drawn.
    rng: the source of the random numbers.
    """
    return None
