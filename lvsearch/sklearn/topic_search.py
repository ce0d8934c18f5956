"""A scikit-learn estimator that finds the number of topics."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.utils import Tags
from sklearn.utils.validation import check_non_negative, validate_data

from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.fitted.topics import FittedTopics
from lvsearch.models import LDA
from lvsearch.models.contract import Model
from lvsearch.reading.counts import canonical_counts
from lvsearch.sklearn.searching import SizeSearch, seed_of

Search = TypeVar("Search", bound="TopicSearch")


class TopicSearch(SizeSearch):
    """Finds how many topics counts of words have.

    ```python
    counts = CountVectorizer().fit_transform(texts)
    search = TopicSearch(random_state=0).fit(counts)
    search.best_size_  # the most probable number of topics
    ```

    X: (documents, words) counts, whole numbers of 0 or more, sparse or dense, such as `CountVectorizer` returns.
    `transform` returns the share of each topic in each document.

    model: a topic model with a size, by default `lv.models.LDA()`
    prior, max_size, evidence, starts, seconds: as for `lv.search`
    random_state: the seed
    verbose: True to show progress
    """

    part = "topic"

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags of the estimator: X may be sparse, and has whole numbers of 0 or more."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # scikit-learn's tag for whole numbers
        return tags

    def partial_fit(self: Search, X: Any, y: Any = None) -> Search:
        """Fit a first batch, or update the fit with one more, and return the estimator. y is ignored.

        The first call is `fit`: it searches for the number of topics. Each later call keeps this number and updates
        `best_` with the documents of the new batch, as `FittedTopics.update` does; topics keep their numbers.
        `result_`, `best_size_` and `sentence_` stay those of the first batch: `result_.update(X)` asks how many there
        are now. All batches are kept in memory.

        X: counts of the same words, (documents, words)

        Raises ValueError for another number of columns than the first batch had, and as `fit` does.
        """
        if self._is_first_batch():
            return self.fit(X)
        batch = self._new(X)
        self.updated_ = self.best_.update(batch, seed=seed_of(self.random_state))
        return self

    @property
    def best_(self) -> FittedTopics:
        """The fitted topics of the best size."""
        best = super().best_
        assert isinstance(best, FittedTopics)  # a fit of a topic model always is one
        return best

    @property
    def components_(self) -> np.ndarray:
        """The probability of each word in each topic, (topics, words) float64; rows sum to 1.

        `LatentDirichletAllocation` of scikit-learn has pseudo-counts under this name, whose rows have to be normalised.
        """
        best = self.best_
        return best.table(best.model.topic_site).to_numpy(np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """Return the topic with the largest share of each document: (documents,) int64."""
        return self._parts(X).argmax(axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """Return a lower bound on the log-likelihood of documents per token, in nats; higher is better.

        The topics are at their posterior means. y is ignored. Raises ValueError for documents without a single token.
        """
        data = self._new(X)
        if not data.n_observations:
            raise ValueError(f"got {len(data):,} documents without a single token; expected some to score")
        return self.best_.score(data) / data.n_observations

    def topics(self, input_features: Iterable[Any] | None = None, n_words: int = 10) -> pd.DataFrame:
        """Return a table with a row per topic, most prevalent first: share of the tokens, and most probable words.

        input_features: the words, if X had no names: `vectorizer.get_feature_names_out()`
        n_words: how many words of each topic are shown

        Raises ValueError for another number of words than X had columns.
        """
        best = self.best_
        training = best.training
        assert isinstance(training, Corpus)  # made in `_data`
        if input_features is not None:
            training = replace(training, vocabulary=tuple(str(word) for word in input_features))
        return replace(best, training=training).topics(n_words)

    def _data(self, X: Any, *, fitting: bool) -> Data:
        """Return X as a checked corpus. fitting: True for the rows to train on, False for new rows over their words.

        Raises ValueError for texts, NaN and numbers that are no counts.
        """
        if _begins_with_text(X):
            raise ValueError(
                f"got texts; {type(self).__name__} takes counts of words, a row per document and a column per word: "
                "X = CountVectorizer().fit_transform(texts), or make_pipeline(CountVectorizer(), TopicSearch())"
            )
        allowed: dict[str, Any] = {"accept_sparse": "csr", "ensure_all_finite": "allow-nan"}
        counts: Any = validate_data(self, X, reset=fitting, ensure_min_samples=2 if fitting else 1, **allowed)
        if np.issubdtype(counts.dtype, np.floating):
            self._refuse_nan(counts != counts, "takes counts of words: write 0 where a word does not occur")
        check_non_negative(counts, type(self).__name__)
        names = self._names()
        if fitting:
            return Corpus.from_matrix(counts, names, document_names=self._index(X))
        training = self.best_.training
        assert isinstance(training, Corpus)
        return Corpus(canonical_counts(counts, names), training.vocabulary, self._index(X))

    def _model(self, data: Data) -> Model:
        """Return the model to search over: the parameter `model`, or LDA with its default priors."""
        return LDA() if self.model is None else self.model


def _begins_with_text(X: Any) -> bool:
    """Return True if the first row of X, or the first entry of a list or a series, is text or has text in it."""
    if isinstance(X, pd.DataFrame | pd.Series):
        cells = X.iloc[:1].to_numpy(dtype=object).ravel().tolist()
    elif isinstance(X, list | tuple | np.ndarray) and np.ndim(X[:1]) > 0:
        cells = np.asarray(X[:1], dtype=object).ravel().tolist()
    else:
        return False
    return any(isinstance(cell, str) for cell in cells)
