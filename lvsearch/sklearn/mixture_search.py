"""A scikit-learn estimator that finds the number of clusters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from lvsearch.data.base import Data
from lvsearch.data.points import Points
from lvsearch.fitted.clusters import FittedMixture
from lvsearch.models import FactorAnalyzerMixture, FiniteMixture, TiedMixture
from lvsearch.models.components import (
    DiagonalComponents,
    FactorAnalyzerComponents,
    FullCovarianceComponents,
    StudentComponents,
)
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import one_of
from lvsearch.sklearn.searching import RowSearch, evidence_over_sizes, seed_of

Search = TypeVar("Search", bound="MixtureSearch")


def full_covariances(values: np.ndarray) -> FullCovarianceComponents | DiagonalComponents:
    """Return Gaussian components with a full covariance each, with priors in the units of these values.

    In one column they are `DiagonalComponents.weak`: the same distributions, whose searches take a sixth to a quarter
    less time.

    values: the data, (rows, columns)
    """
    return (FullCovarianceComponents if values.shape[1] > 1 else DiagonalComponents).weak(values)


KINDS: dict[str, Callable[[np.ndarray], Model]] = {
    "full": lambda values: FiniteMixture(full_covariances(values)),
    "tied": lambda values: TiedMixture(FullCovarianceComponents.weak(values)),
    "diag": lambda values: FiniteMixture(DiagonalComponents.weak(values)),
    "student-full": lambda values: FiniteMixture(StudentComponents(full_covariances(values))),
    "student-diag": lambda values: FiniteMixture(StudentComponents(DiagonalComponents.weak(values))),
}
"""{covariance_type: function from the values (rows, columns) to the mixture, with priors in their units}."""
AUTO, LOW_RANK = "auto", "low-rank"
"""Further values of covariance_type."""
SAME_IN_ONE_COLUMN = ("diag", "student-diag")
"""The values of covariance_type that "auto" leaves out for one column, where "full" and "student-full" are the same."""
AUTO_FACTORS = (1, 2)
"""The numbers of factors of the low-rank mixtures that "auto" tries. It tries at most `most_factors` of them."""


WITH_MISSING = ("full", "tied", "diag")
"""The values of covariance_type that take rows with missing cells."""


class MixtureSearch(ClusterMixin, RowSearch):
    """Finds how many clusters rows have.

    ```python
    search = MixtureSearch(covariance_type="diag", random_state=0).fit(X)
    search.best_size_  # the most probable number of clusters
    search.labels_
    ```

    X: (rows, columns) finite numbers, NaN for missing cells if `missing="nan"`. `labels_` has the number of the cluster
    of each row of X, (rows,). `transform` and `predict_proba` return the probability of each cluster for each row.

    model: another mixture with a size, such as `lv.models.FiniteMixture(components)`; covariance_type is then ignored
    covariance_type: the kind of components; see the table. Priors are weakly informative, in the units of X
    n_factors: 1 to 3, for "low-rank" only
    missing: "nan" if NaN marks a missing cell, which is then a latent variable ("full", "tied") or left out ("diag");
        None, the default, refuses NaN
    prior, max_size, evidence, starts, seconds: as for `lv.search`
    random_state: the seed
    verbose: True to show progress

    | covariance_type | components |
    |---|---|
    | "full" | Gaussians with full covariances; of one column the same as "diag" |
    | "tied" | Gaussians with one covariance for all (`lv.models.TiedMixture`) |
    | "diag" | Gaussians with diagonal covariances |
    | "low-rank" | Gaussians with `n_factors` factors and noise of each column (`lv.models.FactorAnalyzerMixture`) |
    | "student-full", "student-diag" | Student's t with four degrees of freedom |
    | "auto" | all of these; the one with the highest evidence over all sizes is used, and `kinds_` lists all |
    """

    part = "component"
    _advice_about_nan = (
        f'takes whole rows unless told otherwise: MixtureSearch(missing="nan") takes NaN for missing cells, with '
        f"covariance_type one of {', '.join(map(repr, WITH_MISSING))}; or leave out the rows or fill them in "
        "(SimpleImputer)"
    )

    def __init__(
        self,
        model: Any = None,
        *,
        covariance_type: Any = "full",
        n_factors: Any = 1,
        missing: Any = None,
        prior: Any = None,
        max_size: Any = None,
        evidence: Any = "marginal",
        starts: Any = None,
        seconds: Any = None,
        random_state: Any = 0,
        verbose: Any = False,
    ):
        self.covariance_type = covariance_type
        self.n_factors = n_factors
        self.missing = missing
        budget = {"max_size": max_size, "starts": starts, "seconds": seconds}
        super().__init__(model, prior=prior, evidence=evidence, random_state=random_state, verbose=verbose, **budget)

    def fit(self: Search, X: Any, y: Any = None) -> Search:
        """Search for the number of clusters, and return the fitted estimator. y is ignored.

        Raises ValueError for bad X, for bad parameters as `lv.search` does, and with the default mixture for a column
        that does not vary.
        """
        super().fit(X)
        self.labels_ = self.best_.predict()
        return self

    def partial_fit(self: Search, X: Any, y: Any = None) -> Search:
        """Fit a first batch, or update the fit with one more, and return the estimator. y is ignored.

        The first call is `fit`: it searches for the number of clusters. Each later call keeps this number and updates
        `best_` with the rows of the new batch, as `FittedMixture.update` does; clusters keep their numbers. `result_`,
        `best_size_` and `sentence_` stay those of the first batch: `result_.update(X)` asks how many there are now.
        All batches are kept in memory; `labels_` are those of the last one.

        X: rows over the same columns, (rows, columns)

        Raises ValueError for another number of columns than the first batch had, and as `fit` does.
        """
        if self._is_first_batch():
            return self.fit(X)
        batch = self._new(X)
        self.updated_ = self.best_.update(batch, seed=seed_of(self.random_state))
        self.labels_ = self.best_.predict(batch)
        return self

    @property
    def kinds_(self) -> pd.DataFrame:
        """The kinds of components that were searched, the best first, as a table.

        Columns: `log_evidence` (log p(X) over all sizes tried, nats), `standard_error`, and `best_size`, the most
        probable size.
        """
        check_is_fitted(self)
        rows = [(name, *evidence_over_sizes(result), result.best_size[0]) for name, result in self.results_.items()]
        frame = pd.DataFrame(rows, columns=["kind", "log_evidence", "standard_error", "best_size"]).set_index("kind")
        return frame.sort_values("log_evidence", ascending=False, kind="stable")

    @property
    def best_(self) -> FittedMixture:
        """The fitted mixture of the best size."""
        best = super().best_
        assert isinstance(best, FittedMixture)  # a fit of a mixture always is one
        return best

    @property
    def weights_(self) -> np.ndarray:
        """The expected share of each cluster in new rows, (clusters,) float64."""
        return self.best_.weights().to_numpy(np.float64)

    @property
    def means_(self) -> np.ndarray:
        """The mean of a row in each cluster, (clusters, columns) float64."""
        return self.best_.means().to_numpy(np.float64)

    @property
    def covariances_(self) -> np.ndarray:
        """The covariance of a row in each cluster, (clusters, columns, columns) float64, of any kind of cluster."""
        return np.stack([each.to_numpy(np.float64) for each in self.best_.covariances().values()])

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable cluster of each row: (rows,) int64."""
        return self._parts(X).argmax(axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each cluster for each row, (rows, clusters); rows sum to 1.

        `transform` returns the same numbers.
        """
        return self._parts(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density of each row given the training rows, at the best size, in nats: (rows,).

        Raises ValueError after a search with plug-in evidence.
        """
        return self.best_.log_density(self._new(X)).to_numpy()

    @property
    def _takes_nan(self) -> bool:
        """True if NaN marks a missing cell of X. Raises ValueError for another value of `missing`, and for a
        covariance_type that takes whole rows only.
        """
        if self.missing is None:
            return False
        one_of("missing", self.missing, ("nan",))
        if self.model is None and self.covariance_type not in WITH_MISSING:
            raise ValueError(
                f'got missing="nan" with covariance_type={self.covariance_type!r}, expected one of '
                f"{', '.join(map(repr, WITH_MISSING))}: the others take whole rows only"
            )
        return True

    def _model(self, data: Data) -> Model:
        """Return the mixture to search over: the parameter `model`, or the one that covariance_type names.

        Its priors are in the units of the data. If NaN marks missing cells, new rows may miss some even if X misses
        none.
        """
        if self.model is not None:
            return self.model
        assert isinstance(data, Points)  # made in `_data`
        if self.covariance_type == LOW_RANK:
            return low_rank(data.values, self.n_factors)
        model = KINDS[self.covariance_type](data.values)
        if not self._takes_nan or not isinstance(model, FiniteMixture | TiedMixture):
            return model
        kind = model.components
        if not isinstance(kind, FullCovarianceComponents):  # independent columns leave missing cells out
            return model
        return replace(model, components=replace(kind, partial_rows=True))

    def _models(self, data: Data) -> dict[str, Model]:
        """Return the mixtures to search over, as {covariance_type: mixture}; several only for "auto".

        Raises ValueError for an unknown covariance_type, and for "auto" with another evidence than "marginal", by which
        mixtures are compared.
        """
        if self.model is not None:
            return {"model": self.model}
        if one_of("covariance_type", self.covariance_type, (*KINDS, LOW_RANK, AUTO)) != AUTO:
            return {self.covariance_type: self._model(data)}
        if self.evidence not in ("marginal", "annealed"):
            raise ValueError(
                f'got covariance_type="auto" with evidence={self.evidence!r}, expected "marginal": kinds are compared '
                "by it"
            )
        assert isinstance(data, Points)  # made in `_data`
        n_columns = data.values.shape[1]
        few = [q for q in AUTO_FACTORS if q <= most_factors(n_columns)]
        factored = {f"{LOW_RANK}-{q}": low_rank(data.values, q) for q in few}
        left_out = SAME_IN_ONE_COLUMN if n_columns == 1 else ()
        return {name: kind(data.values) for name, kind in KINDS.items() if name not in left_out} | factored


def low_rank(values: np.ndarray, n_factors: int) -> Model:
    """Return a mixture of factor analysers, with priors in the units of these values.

    values: the data, (rows, columns)
    n_factors: the number of factors of each component
    """
    return FactorAnalyzerMixture(FactorAnalyzerComponents.weak(values, n_factors))


def most_factors(n_columns: int) -> int:
    """Return the largest number of factors for which loadings and noise have no more numbers than a covariance matrix.

    Source: Ledermann (1937).
    """
    return int((2 * n_columns + 1 - (8 * n_columns + 1) ** 0.5) / 2 + 1e-9)
