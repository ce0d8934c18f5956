"""The base class of the three scikit-learn estimators, a search in `fit` with its results as attributes, and
`FeatureSearch`, which adds little to it.
"""

from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from lvsearch.api import search
from lvsearch.data.base import Data
from lvsearch.data.points import Points, with_index_of
from lvsearch.fitted.model import FittedModel
from lvsearch.models import IBP
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import real_number
from lvsearch.results.repeated_searches import hyperparameters, with_hyperparameter
from lvsearch.results.result import SearchResult
from lvsearch.results.wording import answer
from lvsearch.sizing.sizes import SizePrior
from lvsearch.tables.number_tables import refuse_text

S = TypeVar("S", bound="SizeSearch")
Seed = int | np.random.RandomState | None
"""The types that scikit-learn accepts for `random_state`; None is another seed every time."""


class SizeSearch(TransformerMixin, BaseEstimator):
    """Base class of estimators that search for the number of topics, components or features of a model of X.

    A part is one topic, component or feature. After `fit`:

    | attribute | meaning |
    |---|---|
    | `result_` | the `SearchResult`: posterior over sizes, bounds, pictures, `save` |
    | `results_` | the results of all models that were searched, by name; `result_` has the highest evidence |
    | `best_size_` | the most probable number |
    | `sentence_` | the answer in one sentence, with the sizes that the evidence cannot choose between |
    | `n_features_in_`, `feature_names_in_` | as everywhere in scikit-learn |

    As scikit-learn asks for, constructors accept anything, and `fit` raises for bad parameters.
    """

    part: str
    """The noun for what one column of `transform` stands for, such as "topic"."""

    model: Model | None
    prior: SizePrior | None
    max_size: int | None
    evidence: str
    starts: int | None
    seconds: float | None
    random_state: Seed
    verbose: bool

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the estimator by name, as scikit-learn asks for.

        deep: True to return also the positive numbers in the priors of `model`, under names such as
            "model__concentration" or "model__components__rate"
        """
        found = super().get_params(deep)
        if not deep or not isinstance(self.model, Model):  # scikit-learn leaves it to `fit` to refuse another value
            return found
        inner = {f"model__{name.replace('.', '__')}": value for name, value in hyperparameters(self.model).items()}
        return found | inner

    def set_params(self: S, **params: Any) -> S:
        """Set parameters by name, also the numbers in the priors of `model` that `get_params` lists.

        Raises ValueError for unknown names, for `model__…` without a model, and for numbers that are not positive.
        """
        inner = {name: params.pop(name) for name in list(params) if name.startswith("model__")}
        super().set_params(**params)
        if not inner:
            return self
        model = self.model
        if not isinstance(model, Model):
            raise ValueError(
                f"got {next(iter(inner))!r} for {type(self).__name__}(model={model!r}), whose model is made of the "
                "data; expected a model= to change: such as model=lv.models.LDA()"
            )
        for name, value in inner.items():
            place = name.removeprefix("model__").replace("__", ".")
            known = hyperparameters(model)
            if place not in known:
                expected = ", ".join(f"'model__{each.replace('.', '__')}'" for each in known)
                raise ValueError(f"got {name!r}, expected one of {expected}")
            model = with_hyperparameter(model, place, real_number(name, value, above=0))
        self.model = model
        return self

    @abstractmethod
    def _data(self, X: Any, *, fitting: bool) -> Data:
        """Return X, validated as scikit-learn does it, as data that the model can be trained on.

        fitting: True for the rows to train on; False for new rows, which must have the same columns

        Raises ValueError for an X of another form.
        """

    @abstractmethod
    def _model(self, data: Data) -> Model:
        """Return the model to search over: the parameter `model`, or a default one for these data."""

    def _models(self, data: Data) -> dict[str, Model]:
        """Return the models to search, as {name: model}; by default only the one of `_model`.

        After the search of several, the one with the highest evidence is used.
        """
        return {self.part: self._model(data)}

    def fit(self: S, X: Any, y: Any = None) -> S:
        """Search for the number of topics, components or features, and return the fitted estimator.

        X: the rows to train on
        y: ignored

        Raises ValueError for an X of another form, and for bad parameters.
        """
        data, seed = self._data(X, fitting=True), seed_of(self.random_state)
        self.__dict__.pop("updated_", None)  # of an earlier fit
        self.results_: dict[str, SearchResult] = {}
        models = self._models(data)
        # chains over partitions compare the sizes of one model; to compare models takes the evidence itself
        by_evidence = len(models) > 1 and self.evidence == "marginal"
        for name, model in models.items():
            self.results_[name] = search(
                model,
                data,
                prior=self.prior,
                evidence="annealed" if by_evidence else self.evidence,
                max_size=self.max_size,
                starts=self.starts,
                seconds=self.seconds,
                seed=seed,
                progress=self.verbose,
            )
        found = list(self.results_.values())
        self.result_ = found[0] if len(found) == 1 else max(found, key=lambda each: evidence_over_sizes(each)[0])
        self.best_size_ = self.result_.best_size[0]
        self.sentence_ = answer(self.result_)
        return self

    @property
    def best_(self) -> FittedModel:
        """The fitted model of the best size, with all its methods, such as `.table(…)`, `.topics()` and `.means()`.

        After several calls of `partial_fit` it is the fit to all batches.
        """
        check_is_fitted(self)
        updated = self.__dict__.get("updated_")
        return self.result_.best if updated is None else updated

    def _is_first_batch(self) -> bool:
        """Return True before the first call of `fit` or `partial_fit`."""
        return not hasattr(self, "result_")

    def transform(self, X: Any) -> np.ndarray:
        """Return the share or probability of each topic, component or feature in each row of X, (rows, parts) float64.

        After `set_output(transform="pandas")` it is a data frame.
        """
        return self._parts(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return names for the columns of `transform`, such as "topic0", "topic1", …. input_features is ignored."""
        n_parts = self.best_.estimate.size[0]  # fewer than the best size if a smaller fit stands in for it
        return np.asarray([f"{self.part}{number}" for number in range(n_parts)], dtype=object)

    def _parts(self, X: Any) -> np.ndarray:
        """Return the share or probability of each part in each row of X, always as a plain array."""
        return np.asarray(self.best_.transform(self._new(X)), np.float64)

    def _new(self, X: Any) -> Data:
        """Return X as new data for the fitted model. Raises NotFittedError before `fit`, ValueError for a bad X."""
        check_is_fitted(self)
        return self._data(X, fitting=False)

    def _refuse_nan(self, missing: Any, advice: str) -> None:
        """Raise ValueError if a cell of X is NaN.

        missing: True for cells that are NaN, (rows, columns), dense or sparse
        advice: what the estimator expects instead, as the rest of a sentence after its name
        """
        rows, columns = missing.nonzero()
        if not len(rows):
            return
        row, column = min(zip(rows.tolist(), columns.tolist(), strict=True))
        name = column if (names := self._names()) is None else repr(names[column])
        raise ValueError(
            f"got NaN in {len(rows):,} of {missing.shape[0] * missing.shape[1]:,} cells of X, the first in row {row}, "
            f"column {name}; {type(self).__name__} {advice}"
        )

    @staticmethod
    def _index(X: Any) -> tuple[str, ...] | None:
        """Return the names of the rows of X: the index of a data frame. None for a default index and other objects."""
        if not isinstance(X, pd.DataFrame) or X.index.equals(pd.RangeIndex(len(X))):
            return None
        return tuple(str(name) for name in X.index)

    def _names(self) -> list[str] | None:
        """Return the names of the columns of X, or None if it had none."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]


class RowSearch(SizeSearch):
    """Base class of estimators whose X is a table of numbers, (rows, columns)."""

    @property
    def _takes_nan(self) -> bool:
        """True if NaN marks a missing cell of X; by default NaN is refused."""
        return False

    _advice_about_nan = (
        "takes whole rows: leave out the others or fill them in (SimpleImputer), or let the model pass over empty "
        'cells: lv.search(model, lv.Points.from_array(X, missing="nan"))'
    )
    """The advice on NaN in X, as the rest of a sentence after the estimator's name."""

    @abstractmethod
    def score_samples(self, X: Any) -> np.ndarray:
        """Return the score of each row at the best size, in nats: (rows,)."""

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of `score_samples`, nats per row; higher is better. y is ignored."""
        return float(self.score_samples(X).mean())

    def _data(self, X: Any, *, fitting: bool) -> Data:
        """Return X as a table of finite numbers, validated as scikit-learn does it.

        fitting: True for the rows to train on, of which there must be two or more; False for new rows

        Raises ValueError for another form of X, for columns of dates or text, and for NaN unless it marks missing
        cells.
        """
        frame = X
        if isinstance(frame, pd.DataFrame):
            refuse_text(frame)
        least = 2 if fitting else 1
        allowed: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": least, "ensure_all_finite": "allow-nan"}
        checked = np.asarray(validate_data(self, X, reset=fitting, **allowed))
        missing = np.isnan(checked)
        if not self._takes_nan:
            self._refuse_nan(missing, self._advice_about_nan)
        names = self._names()
        points = Points.from_array(checked, columns=names, row_names=self._index(X), observed=~missing)
        return with_index_of(points, X) if isinstance(X, pd.DataFrame) else points


def evidence_over_sizes(result: SearchResult) -> tuple[float, float]:
    """Return (log evidence of a model over all sizes tried, its standard error), in nats. Models are compared by it.

    It is log Σ p(size) p(data | size) over the sizes tried.
    """
    _, log_prior, estimate, error = result.estimates()
    weights = log_prior + estimate
    total = float(np.logaddexp.reduce(weights))
    return total, float(np.sqrt((np.exp(weights - total) ** 2 * error**2).sum()))


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


def seed_of(random_state: Seed) -> int:
    """Return the seed of the search. A whole number stays as it is, so that `lv.search(seed=…)` finds the same."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
