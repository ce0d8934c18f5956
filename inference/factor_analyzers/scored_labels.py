"""The state of a chain over labels and scores of rows."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int

from lvsearch.inference.factor_analyzers.regressions import RegressionSums

LogHyper = dict[str, Float[Array, "column particle"]]
"""Log of each hyper-parameter by name, (column, particle), with one column if all columns of the data share a value."""


class ScoredLabels(NamedTuple):
    """Labels and scores of all rows, with particles side by side.

    | field | meaning | shape |
    |---|---|---|
    | `labels` | the component of each row, −1 for a row in none | (row, particle) |
    | `scores` | the coordinates of each row on its component's factors | (row, factor, particle) |
    | `log_hyper` | log of each hyper-parameter by name | (column, particle) |
    | `counts` | the number of rows of each component | (component, particle) |
    | `sums` | sums over the rows of each component, from which the posterior of its parameters follows | |
    """

    labels: Int[Array, "row particle"]
    scores: Float[Array, "row factor particle"]
    log_hyper: LogHyper
    counts: Float[Array, "component particle"]
    sums: RegressionSums
