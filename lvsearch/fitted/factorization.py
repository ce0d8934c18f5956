"""A fitted Poisson factorisation: its factors, how much of each a row has, and what a cell is expected to hold."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.data.points import Points
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.similarity import ComponentMembers, word_affinity
from lvsearch.inference.factorizations import cell_scores
from lvsearch.topics.references import match_references

FACTOR = "factor"


@dataclass(frozen=True)
class FittedFactorization(FittedModel):
    """Factors of counts at one size, at their posterior means. Rows and columns are named as the data name them.

    `transform` gives the expected intensities, (rows, factors); a row of the prior's mean has 1 in all.
    """

    def factors(self) -> pd.DataFrame:
        """What a row with an intensity of 1 has of each factor in every column, on average: a row per factor."""
        return self.table("factors").astype(np.float64)

    def signatures(self) -> pd.DataFrame:
        """The shares of the columns in each factor: a row per factor, summing to 1."""
        factors = self.factors()
        return factors.div(factors.sum(axis=1), axis=0)

    def match(self, references: pd.DataFrame) -> pd.DataFrame:
        """Which known signature each factor is, by cosine: `reference`, `cosine`, `nearest`, `nearest_cosine`, a row
        for each factor.

        references: a row for each column of the data, its names as the index, and a column for each reference, as
        signatures of mutations are published. See `lvsearch.topics.references.match_references`; its ValueErrors.
        """
        return match_references(self.signatures(), references)

    def members(self) -> ComponentMembers:
        """How much of each cell's counts is of each factor: θ_nk β_kv in shares."""
        points = self._points(None)
        row, column = np.nonzero(points.observed & (points.values > 0))
        intensities = np.asarray(self._describe(points).representation, np.float64)
        parts = intensities[row] * self.factors().to_numpy().T[column]
        shares = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-300)
        return ComponentMembers(shares, points.values[row, column].astype(np.float64), "count")

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "factor other"]:
        """Σ √(p q) over columns, for each signature of this fit and each of another's over the same columns."""
        assert isinstance(other, FittedFactorization)
        return word_affinity(self.signatures().to_numpy(), other.signatures().to_numpy())

    def top_columns(self, n_columns: int = 5) -> pd.DataFrame:
        """One row per factor, most prevalent first: its share of the expected training counts, and its largest columns.

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
        """The counts that each row is expected to have of each factor, over all columns, missing ones too.

        data: by default the training data.
        """
        points = self._points(data)
        intensities = np.asarray(self._describe(points).representation, np.float64)
        totals = self.factors().to_numpy().sum(axis=1)
        return pd.DataFrame(intensities * totals, index=_names(points), columns=self.factors().index)

    def expected_counts(self, data: Any = None) -> pd.DataFrame:
        """What each cell is expected to hold given the observed cells of its row, missing cells too: rows × columns."""
        points = self._points(data)
        intensities = np.asarray(self._describe(points).representation, np.float64)
        factors = self.factors()
        return pd.DataFrame(intensities @ factors.to_numpy(), index=_names(points), columns=factors.columns)

    def score_cells(
        self, data: Any, held_out: Any, *, draws: int = 200, seed: int = 0
    ) -> Float[np.ndarray, "row column"]:
        """log p(held-out cell | the observed cells of its row in `data`), nats, NaN where `held_out` has none.

        data, held_out: the same rows, cells that are not theirs missing. Of each cell by itself: intensities are
        averaged over `draws` from what `data` say of them, factors at their posterior means. Raises ValueError for
        different numbers of rows.
        """
        known, asked = self._points(data), self._points(held_out)
        if known.n_units != asked.n_units:
            raise ValueError(f"got {known.n_units} rows and held-out cells of {asked.n_units}, expected the same rows")
        scores = cell_scores(self.estimate, known.dataset(), asked.dataset(), draws=draws, seed=seed)
        return np.where(asked.observed, scores, np.nan)

    def _points(self, data: Any) -> Points:
        points = self.training if data is None else self.training.like_this(data)
        assert isinstance(points, Points)
        return points


def _names(points: Points) -> pd.Index:
    return pd.RangeIndex(points.n_units) if points.row_names is None else pd.Index(points.row_names)
