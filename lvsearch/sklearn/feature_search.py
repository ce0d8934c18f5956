"""How many features rows share, as a scikit-learn estimator."""

from typing import Any

import numpy as np

from lvsearch.data.base import Data
from lvsearch.data.points import Points
from lvsearch.models import IBP
from lvsearch.models.contract import Model
from lvsearch.sklearn.searching import SizeSearch


class FeatureSearch(SizeSearch):
    """How many features do rows share, each row having any of them (the Indian buffet process in its finite form)?

    X: (rows, columns) finite numbers with a standard deviation of about 1: put a `StandardScaler` before it, or give a
    model with priors in the units of X. `transform` is the probability of each feature for each row.

    model: by default `lv.models.IBP()`. prior, max_size, evidence, starts, seconds: as for `lv.search`; evidence
    "marginal" takes minutes to compile for this model, "bound" is quick and no answer where sizes are close.
    random_state: the seed. verbose: show progress.
    """

    part = "feature"

    def __init__(
        self,
        model: Any = None,
        *,
        prior: Any = None,
        max_size: Any = None,
        evidence: Any = "marginal",
        starts: Any = None,
        seconds: Any = None,
        random_state: Any = 0,
        verbose: Any = False,
    ):
        self.model = model
        self.prior = prior
        self.max_size = max_size
        self.evidence = evidence
        self.starts = starts
        self.seconds = seconds
        self.random_state = random_state
        self.verbose = verbose

    def predict(self, X: Any) -> np.ndarray:
        """Which features each row has, those that are more probable than not: (rows, features) of 0 and 1."""
        return (self._parts(X) > 0.5).astype(np.int64)

    def score_samples(self, X: Any) -> np.ndarray:
        """A lower bound on log p(row | parameters at their posterior means), nats: (rows,)."""
        return self.best_.score_units(self._new(X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`, nats per row; higher is better. y is ignored."""
        return float(self.score_samples(X).mean())

    def _data(self, X: Any, *, fitting: bool) -> Data:
        rows = self._rows(X, fitting=fitting)
        return Points.from_array(rows, columns=self._names(), row_names=self._index(X))

    def _model(self, data: Data) -> Model:
        return IBP() if self.model is None else self.model
