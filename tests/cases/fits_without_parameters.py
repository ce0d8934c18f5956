"""Fits for tests of what is refused before any parameter is read."""

from typing import Any

import numpy as np

from lvsearch.data.kinds import data_for
from lvsearch.fitted.kinds import fitted_type
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.models.contract import Model
from lvsearch.sizing.evidence import Evidence


def fit_without_parameters(model: Model, data: Any) -> Any:
    """Return a fit of two components along each size variable, of the class that `lv.fit` gives, without parameters.

    It is there at once, where `lv.fit` compiles its programs first. Whatever reads a parameter raises KeyError.
    """
    size = (2,) * len(model.size_names)
    estimate = Estimate(model, size, {}, -np.inf, np.inf, 0)
    return fitted_type(model)(size, Evidence(-np.inf, np.inf), estimate, data_for(model, data))
