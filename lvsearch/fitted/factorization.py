"""A fitted Poisson factorisation: its factors, how much of each a row has, and the expected count of each cell."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.comparison.similarity import ComponentMembers, word_affinity
from lvsearch.data.points import Points
from lvsearch.fitted.model import FittedModel
from lvsearch.inference.factorizations import cell_scores
from lvsearch.topics.references import match_references

FACTOR = "factor"


@dataclass(frozen=True)
class FittedFactorization(FittedModel):
    """Factors of counts at one size, at their posterior means. Rows and columns have the names of the data.

    `transform` returns the expected intensities, (rows, factors). A priori a row's intensities sum to 1 on average.
    """

    def factors(self) -> pd.DataFrame:
        """Return the mean count of each column from each factor, in a row with an intensity of 1: a row per factor."""
        return self.table("factors").astype(np.float64)

    def signatures(self) -> pd.DataFrame:
        """Return the shares of the columns in each factor: a row per factor, summing to 1."""
        factors = self.factors()
        return factors.div(factors.sum(axis=1), axis=0)

    def match(self, references: pd.DataFrame) -> pd.DataFrame:
        """Return the known signature nearest to each factor, by cosine.

        references: a row for each column of the data, with its names as the index, and a column for each reference, as
            signatures of mutations are published.

        The columns are `reference`, `cosine`, `nearest` and `nearest_cosine`, with a row for each factor.

        Raises ValueError as `lvsearch.topics.references.match_references`.
        """
        return match_references(self.signatures(), references)

    def members(self) -> ComponentMembers:
        """Return the share of each factor in the counts of each cell, θ_nk β_kv / Σ_j θ_nj β_jv."""
        points = self._points(None)
        row, column = np.nonzero(points.observed & (points.values > 0))
        intensities = np.asarray(self._describe(points).representation, np.float64)
        parts = intensities[row] * self.factors().to_numpy().T[column]
        shares = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-300)
        return ComponentMembers(shares, points.values[row, column].astype(np.float64), "count")

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "factor other"]:
        """Return Σ √(p q) over columns, for each signature of this fit and each of another over the same columns."""
        assert isinstance(other, FittedFactorization)
        return word_affinity(self.signatures().to_numpy(), other.signatures().to_numpy())

    def top_columns(self, n_columns: int = 5) -> pd.DataFrame:
        """Return one row per factor, most prevalent first: its share of the expected training counts, and its largest
        columns.

        Raises ValueError for fewer than one column.
        """
        if n_columns < 1:
            raise ValueError(f"got n_columns={n_columns}, expected at least 1")
        signatures, given = self.signatures(), self.exposures().sum(axis=0)
        order = np.argsort(-signatures.to_numpy(), axis=1, kind="stable")[:, :n_columns]
        names = [[str(signatures.columns[place]) for place in row] for row in order]
        frame = pd.DataFrame({"prevalence": given / given.sum(), "columns": names}, index=signatures.index)
        return frame.sort_values("prevalence", ascending=False, kind="stable")

    def exposures(self, data: Any = None) -> pd.DataFrame:
        """Return the expected counts of each row from each factor, over all columns, missing cells included.

        data: by default the training data.
        """
        points = self._points(data)
        intensities = np.asarray(self._describe(points).representation, np.float64)
        totals = self.factors().to_numpy().sum(axis=1)
        return pd.DataFrame(intensities * totals, index=_names(points), columns=self.factors().index)

    def expected_counts(self, data: Any = None) -> pd.DataFrame:
        """Return the expected count of each cell given the observed cells of its row: rows × columns, missing cells
        included.

        data: by default the training data.
        """
        points = self._points(data)
        intensities = np.asarray(self._describe(points).representation, np.float64)
        factors = self.factors()
        return pd.DataFrame(intensities @ factors.to_numpy(), index=_names(points), columns=factors.columns)

    def score_cells(
        self, data: Any, held_out: Any, *, draws: int = 200, seed: int = 0
    ) -> Float[np.ndarray, "row column"]:
        """Return log p(held-out cell | the observed cells of its row in `data`), in nats; NaN where no cell is held
        out.

        data, held_out: the same rows; each has the cells of the other missing.
        draws: the number of draws of each row's intensities over which the probability is averaged. Factors are at
            their posterior means.

        Each cell is scored by itself.

        Raises ValueError for different numbers of rows.
        """
        known, asked = self._points(data), self._points(held_out)
        if known.n_units != asked.n_units:
            raise ValueError(f"got {known.n_units} rows and held-out cells of {asked.n_units}, expected the same rows")
        scores = cell_scores(self.estimate, known.dataset(), asked.dataset(), draws=draws, seed=seed)
        return np.where(asked.observed, scores, np.nan)

    def _points(self, data: Any) -> Points:
        """Return the data as `Points` like the training data."""
        points = self.training if data is None else self.training.like_this(data)
        assert isinstance(points, Points)
        return points


def _names(points: Points) -> pd.Index:
    """Return the names of the rows, or their numbers."""
    return pd.RangeIndex(points.n_units) if points.row_names is None else pd.Index(points.row_names)
