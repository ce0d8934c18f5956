"""The class `FittedFactorization`: a fitted Poisson factorisation of a matrix of counts."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.comparison.alignment import match_references
from lvsearch.comparison.similarity import ComponentMembers, word_affinity
from lvsearch.data.points import Points, row_index
from lvsearch.fitted.model import FittedModel, comparable_fit
from lvsearch.inference.factorizations import cell_scores
from lvsearch.models.plain_arguments import checked_seed, whole_number


@dataclass(frozen=True, repr=False)
class FittedFactorization(FittedModel):
    """A Poisson factorisation, fitted at one size (number of factors), with factors at their posterior means.

    The expected count of a cell is Σ_k θ_nk β_kv, with θ_nk the intensity of factor k in row n, and β_kv the factor's
    mean count in column v. `transform` returns the expected intensities, (rows, factors). Under the prior a row's
    intensities sum to 1 on average. Tables have the names of rows and columns of the data.
    """

    _useful_calls: ClassVar[tuple[str, ...]] = (
        "top_columns()",
        "signatures()",
        "exposures()",
        "match(references)",
        "score_cells(known, held_out)",
    )

    def factors(self) -> pd.DataFrame:
        """Return the mean count that each factor adds to each column of a row with intensity 1, (factors, columns)."""
        return self.table("factors").astype(np.float64)

    def signatures(self) -> pd.DataFrame:
        """Return the share of each column in the mean counts of each factor, (factors, columns); rows sum to 1."""
        factors = self.factors()
        return factors.div(factors.sum(axis=1), axis=0)

    def match(self, references: pd.DataFrame) -> pd.DataFrame:
        """Return the known signature that is nearest to each factor, by cosine similarity.

        references: a table with a row for each column of the data (its name as the index) and a column for each known
            signature, such as published signatures of mutations.

        Returns a row per factor. `reference` is its partner in a one-to-one matching with the greatest total cosine,
        and `cosine` their similarity. `nearest` and `nearest_cosine` are the most similar of all references.

        Raises ValueError for references that lack a column of the data or repeat one. Also for a signature that is all
        zero, negative or not finite.
        """
        return match_references(self.signatures(), references)

    def members(self) -> ComponentMembers:
        """Return the share of each factor in each positive cell of the training data, (positive cells, factors).

        The share of factor k in row n and column v is θ_nk β_kv / Σ_j θ_nj β_jv, with θ the expected intensities and β
        the factors. Each cell is weighted by its count.
        """
        points = self._data_as(Points, None)
        row, column = np.nonzero(points.observed & (points.values > 0))
        intensities = np.asarray(self._describe(points).representation, np.float64)
        parts = intensities[row] * self.factors().to_numpy().T[column]
        shares = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-300)
        return ComponentMembers(shares, points.values[row, column].astype(np.float64), "count")

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "factor other"]:
        """Return the Bhattacharyya coefficient Σ √(p q) over columns of each factor of this fit with each of another.

        p and q are the two factors' signatures, which sum to 1. The coefficient is 1 for equal signatures and 0 for
        signatures without a common column.

        other: a fitted Poisson factorisation of rows with the same columns.

        Returns (factors of this fit, factors of `other`).
        """
        other = comparable_fit(FittedFactorization, other, self.training)
        return word_affinity(self.signatures().to_numpy(), other.signatures().to_numpy())

    def top_columns(self, n_columns: int = 5) -> pd.DataFrame:
        """Return a table with a row per factor, most prevalent first, of its prevalence and its largest columns.

        n_columns: the number of columns of the data that are listed for each factor, at least 1.

        `prevalence` is the factor's share of the expected training counts. `columns` is a list of column names, the
        largest share first.

        Raises ValueError for fewer than one column.
        """
        n_columns = whole_number("n_columns", n_columns, least=1)
        signatures, given = self.signatures(), self.exposures().sum(axis=0)
        order = np.argsort(-signatures.to_numpy(), axis=1, kind="stable")[:, :n_columns]
        names = [[str(signatures.columns[place]) for place in row] for row in order]
        frame = pd.DataFrame({"prevalence": given / given.sum(), "columns": names}, index=signatures.index)
        return frame.sort_values("prevalence", ascending=False, kind="stable")

    def exposures(self, data: Any = None) -> pd.DataFrame:
        """Return how many counts of each row are expected to be of each factor, as a table (rows, factors).

        The count of a cell is shared out among the factors in proportion to what each is expected to give to it. A
        missing cell adds its expected count. So the exposures of a row without missing cells add up to its total, apart
        from columns to which no factor gives anything.

        data: the rows; by default the training data.
        """
        points = self._data_as(Points, data)
        intensities = np.asarray(self._describe(points).representation, np.float64)
        factors = self.factors()
        per_cell = intensities @ factors.to_numpy()
        share = np.where(points.observed, points.filled / np.where(per_cell > 0, per_cell, 1.0), 1.0)
        exposures = intensities * (share @ factors.to_numpy().T)
        return pd.DataFrame(exposures, index=row_index(points), columns=factors.index)

    def expected_counts(self, data: Any = None) -> pd.DataFrame:
        """Return the expected count of each cell given the observed cells of its row, as a table (rows, columns).

        Missing cells have an expected count too, which fills them in.

        data: the rows; by default the training data.
        """
        points = self._data_as(Points, data)
        intensities = np.asarray(self._describe(points).representation, np.float64)
        factors = self.factors()
        return pd.DataFrame(intensities @ factors.to_numpy(), index=row_index(points), columns=factors.columns)

    def score_cells(
        self, data: Any, held_out: Any, *, draws: int = 200, seed: int = 0
    ) -> Float[np.ndarray, "row column"]:
        """Return log p(held-out cell | the observed cells of its row in `data`), (rows, columns), in nats.

        Cells that are not held out are NaN. Each cell is scored by itself.

        data: the rows with the held-out cells missing.
        held_out: the rows, in the order of `data`, with only the held-out cells observed.
        draws: the number of draws of each row's intensities over which the probability is averaged. Factors are at
            their posterior means.

        Raises ValueError for different numbers of rows, for rows of other names, for held-out cells that are known in
        `data` too, for fewer than one draw and for a seed that is none.
        """
        draws, seed = whole_number("draws", draws, least=1), checked_seed(seed)
        known, asked = self._data_as(Points, data), self._data_as(Points, held_out)
        if known.n_units != asked.n_units:
            raise ValueError(f"got {known.n_units} rows and held-out cells of {asked.n_units}, expected the same rows")
        both = int((known.observed & asked.observed).sum())
        if both:
            raise ValueError(
                f"got {both} held-out cells that are known in data too, expected none: mark them as missing in data, "
                "or they are scored given themselves"
            )
        if known.row_names is not None and asked.row_names is not None and known.row_names != asked.row_names:
            row = next(
                n for n, pair in enumerate(zip(known.row_names, asked.row_names, strict=True)) if len({*pair}) > 1
            )
            raise ValueError(
                f"got held-out rows of other names than data: held-out row {row} is called {asked.row_names[row]!r}, "
                f"expected {known.row_names[row]!r}; bring the rows into the order of data"
            )
        scores = cell_scores(self.estimate, known.dataset(), asked.dataset(), draws=draws, seed=seed)
        return np.where(asked.observed, scores, np.nan)
