"""What a chain over labels and scores has of the rows."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int

from lvsearch.inference.factor_analyzers.regressions import RegressionSums

LogHyper = dict[str, Float[Array, "column particle"]]
"""log h by name; one column where all of them share a value."""


class ScoredLabels(NamedTuple):
    """Particles side by side.

    | field | meaning | shape |
    |---|---|---|
    | `labels` | the component of each row, −1 for a row in none | (row, particle) |
    | `scores` | f | (row, factor, particle) |
    | `log_hyper` | log h by name | (column, particle) |
    | `counts` | rows of each component | (component, particle) |
    | `sums` | what its rows say of a component | |
    """

    labels: Int[Array, "row particle"]
    scores: Float[Array, "row factor particle"]
    log_hyper: LogHyper
    counts: Float[Array, "component particle"]
    sums: RegressionSums


class Candidates(NamedTuple):
    """What a row might be: scores, and log ω of each, nats; −∞ in components that do not exist."""

    scores: Float[Array, "component candidate factor particle"]
    log_weight: Float[Array, "component candidate particle"]
