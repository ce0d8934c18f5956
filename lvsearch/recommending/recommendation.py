"""Present the recommended size to people: the number, the rule in plain words, and the table behind it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from lvsearch.data.base import Nouns
from lvsearch.recommending.rule import smallest_within_error
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import with_noun

BOUND = "bound"
"""The word in the name of a scoring method whose scores are bounds on log p."""


@dataclass(frozen=True)
class SizeOutcome:
    """The scores of one size on held-out units. A unit is a document or a row, an observation a token or a cell.

    | field | meaning |
    |---|---|
    | `size` | the size: the number of topics, clusters or the like, as a tuple |
    | `score` | mean log p per held-out observation on which the size was scored, nats |
    | `difference` | this score minus that of the best size, on units scored under both, nats per observation |
    | `standard_error` | of the difference, from its spread over units, nats per observation |
    | `n_units` | the number of held-out units that were scored under this size and the best one |
    | `coherence` | mean NPMI coherence over topics; None if it was not measured |
    | `coherence_error` | the standard error of the mean coherence, over topics |
    | `found_again` | how many topics a second fit, from another seed, has too; None if it was not counted |
    """

    size: Size
    score: float
    difference: float
    standard_error: float
    n_units: int
    coherence: float | None = None
    coherence_error: float | None = None
    found_again: int | None = None


@dataclass(frozen=True)
class Recommendation:
    """The smallest size that predicts held-out units as well as any, with the scores of all sizes.

    `print` shows the answer and the table. `table()` returns a DataFrame, `rule` the rule in words.

    | field | meaning |
    |---|---|
    | `size` | the recommended size: the smallest of `within` |
    | `best` | the size that predicted best |
    | `within` | the sizes that are at most one standard error of the paired difference below the best |
    | `outcomes` | every size that was scored, increasing |
    | `size_names` | what sizes count, such as ("topics",) |
    | `nouns` | what people call the data, its units and its observations |
    | `held_out` | how units were held out, in words |
    | `estimator` | how log p was computed, in words |
    | `still_rising` | True if the best size is the largest that was allowed or tried |
    """

    size: Size
    best: Size
    within: tuple[Size, ...]
    outcomes: tuple[SizeOutcome, ...]
    size_names: tuple[str, ...]
    nouns: Nouns
    held_out: str
    estimator: str
    still_rising: bool

    @property
    def rule(self) -> str:
        """The rule that chose the size, in plain words."""
        nouns = self.nouns
        return (
            f"the smallest size whose predictions of held-out {nouns.units} are at most one standard error worse than "
            f"those of the size that predicts best; both sizes are compared on the same {nouns.units}, one by one"
        )

    def describe(self) -> str:
        """Return the recommendation in one or two plain sentences."""
        name, nouns = self.size_names[0], self.nouns
        number = with_noun(self.size[0], name)
        verb = "predicts" if self.size[0] == 1 else "predict"
        by_bound = ", by a lower bound on log p" if BOUND in self.estimator else ""
        text = f"{number} {verb} new {nouns.units} as well as any size tried (within one standard error{by_bound})"
        alike = [size for (size,) in self.within]
        if len(alike) > 1:
            text += f"; so do sizes up to {alike[-1]}"
        if self.still_rising:
            text += f". {self.best[0]}, the largest size tried, predicts best: larger ones may predict better still"
        return f"{text}."

    def describe_topics(self) -> str | None:
        """Return a sentence on the quality of topics; None for models without topics.

        It says at which size coherence stops rising, and how many topics a fit from another start finds again.
        """
        known = [outcome for outcome in self.outcomes if outcome.coherence is not None]
        if not known:
            return None
        coherent, recurring = self.most_coherent, self.most_recurring
        here = next((outcome for outcome in known if outcome.size == self.size), None)
        text = f"topics stop growing more coherent at {coherent[0] if coherent else 'no size'}"
        if recurring is not None:
            text += f"; from {recurring[0]} on a second start finds no more of them again"
        if here is not None and here.found_again is not None:
            text += f"; of the {self.size[0]} recommended it finds {here.found_again}"
        return f"{text[:1].upper()}{text[1:]}."

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return further facts for the printed result, as pairs (name, text).

        They are the rule, the quality of topics, and how units were held out.
        """
        topics = self.describe_topics()
        return (
            ("rule", self.rule),
            *((("topics", topics),) if topics is not None else ()),
            ("held-out", f"{self.held_out}; {self.estimator}"),
        )

    @property
    def most_coherent(self) -> Size | None:
        """The smallest size whose mean NPMI coherence is within one standard error of the largest mean.

        None if coherence was not measured.
        """
        known = [(o.size, o.coherence, o.coherence_error) for o in self.outcomes if o.coherence is not None]
        if not known:
            return None
        sizes, values, errors = zip(*known, strict=True)
        return sizes[smallest_within_error(np.array(values, float), np.array(errors, float))]

    @property
    def most_recurring(self) -> Size | None:
        """The smallest size at which a fit from a second start finds again as many topics as at any size.

        "As many" means within one binomial standard error of the count. None if topics found again were not counted.
        """
        known = [(o.size, o.found_again) for o in self.outcomes if o.found_again is not None]
        if not known:
            return None
        found = np.array([again for _, again in known], float)
        many = np.array([size for (size,), _ in known], float)
        errors = np.sqrt(found * (1 - found / many))
        return known[smallest_within_error(found, errors)][0]

    def table(self) -> pd.DataFrame:
        """Return a table with a row per size, increasing; columns without a single value are left out.

        | column | meaning |
        |---|---|
        | `size` | the size |
        | `log_p_per_token` (or `_cell`, …) | the held-out score, nats per token (cell) |
        | `difference_per_token` (or `_cell`, …) | this score minus that of the best size, nats |
        | `standard_error` | of the difference, nats |
        | `documents` (or `rows`, …) | the number of held-out units |
        | `as_good` | True if the size is within one standard error of the best |
        | `coherence`, `coherence_error`, `found_again` | the quality of topics, as in `SizeOutcome` |
        """
        observation = self.nouns.observation
        rows = [
            {
                "size": outcome.size[0],
                f"log_p_per_{observation}": outcome.score,
                f"difference_per_{observation}": outcome.difference,
                "standard_error": outcome.standard_error,
                self.nouns.units: outcome.n_units,
                "as_good": outcome.size in self.within,
                "coherence": outcome.coherence,
                "coherence_error": outcome.coherence_error,
                "found_again": outcome.found_again,
            }
            for outcome in self.outcomes
        ]
        return pd.DataFrame(rows).dropna(axis="columns", how="all")

    def __str__(self) -> str:
        topics = self.describe_topics()
        said = self.describe() if topics is None else f"{self.describe()} {topics}"
        table = self.table().round(4).to_string(index=False)
        return f"{said}\n\n{table}\n\nThe rule: {self.rule}. {self.held_out}; {self.estimator}."

    def to_json(self) -> dict[str, Any]:
        """Return the recommendation as JSON data, for `from_json`."""
        return {**asdict(self), "nouns": self.nouns._asdict()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Recommendation":
        """Return the recommendation that `to_json` encoded. Raises KeyError or TypeError for other data."""
        outcomes = tuple(SizeOutcome(**{**entry, "size": tuple(entry["size"])}) for entry in stored["outcomes"])
        return cls(
            **{
                **stored,
                "size": tuple(stored["size"]),
                "best": tuple(stored["best"]),
                "within": tuple(tuple(size) for size in stored["within"]),
                "outcomes": outcomes,
                "size_names": tuple(stored["size_names"]),
                "nouns": Nouns(**stored["nouns"]),
            }
        )
