"""The state of a chain over labels and scores of rows."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int

from lvsearch.inference.factor_analyzers.regressions import RegressionSums

LogHyper = dict[str, Float[Array, "column particle"]]
"""log h by name, with one column if all columns share a value."""


class ScoredLabels(NamedTuple):
    """Labels and scores of all rows, with particles side by side.

    | field | meaning | shape |
    |---|---|---|
    | `labels` | the component of each row, −1 for a row in none | (row, particle) |
    | `scores` | f | (row, factor, particle) |
    | `log_hyper` | log h by name | (column, particle) |
    | `counts` | rows of each component | (component, particle) |
    | `sums` | sums over the rows of each component, by which its parameters are known | |
    """

    labels: Int[Array, "row particle"]
    scores: Float[Array, "row factor particle"]
    log_hyper: LogHyper
    counts: Float[Array, "component particle"]
    sums: RegressionSums
