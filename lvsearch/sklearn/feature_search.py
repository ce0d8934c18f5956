"""A scikit-learn estimator that finds the number of features that rows share."""

from typing import Any

import numpy as np

from lvsearch.data.base import Data
from lvsearch.models import IBP
from lvsearch.models.contract import Model
from lvsearch.sklearn.searching import RowSearch


class FeatureSearch(RowSearch):
    """Finds how many features rows have in common, where each row has any number of them (Indian buffet process).

    X: (rows, columns) finite numbers with a standard deviation of about 1. Put a `StandardScaler` before it, or give a
    model with priors in the units of X. `transform` returns the probability of each feature in each row.

    model: the model, by default `lv.models.IBP()`
    prior, max_size, starts, seconds: as for `lv.search`
    evidence: "marginal" counts the features in use by chains; "bound" is quicker, but no answer if sizes are close
    random_state: the seed
    verbose: True to show progress
    """

    part = "feature"

    def predict(self, X: Any) -> np.ndarray:
        """Return 1 for each feature that a row more probably has than not, else 0: (rows, features) int64."""
        return (self._parts(X) > 0.5).astype(np.int64)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return a lower bound on log p(row | parameters at their posterior means), in nats: (rows,)."""
        return self.best_.score_units(self._new(X))

    def _model(self, data: Data) -> Model:
        """Return the model to search over: the parameter `model`, or an Indian buffet process."""
        return IBP() if self.model is None else self.model
