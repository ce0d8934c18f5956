"""An audit of a search's evidence: how far it is off on data whose evidence can be bracketed exactly.

Data are drawn from the model at a few sizes, of the shape of those searched. What a search of them estimates, with as
many trials as the real one made, is laid beside a bracket of the truth: forward paths and, from the very latents that
the data were drawn with, backward ones (Grosse, Ghahramani & Adams 2015; Grosse, Ancha & Roy 2016). Each end of it is
on the wrong side of log p(data | size) by more than c nats with probability at most e^−c, and nothing is assumed.

On the real data the same estimator begins its backward paths where its forward ones ended. An audit says what that
assumption costs on data like these, if the model were true; it cannot say that the model is true.

Cost: as many fits and annealings as the search made of its best size, of each size and each data set, and for each data
set one annealing of twice the length. Data are drawn whole: units × their longest length × components numbers at once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import had_not_finished

WITHIN = 1.96
"""Standard errors that an estimate may be off."""


@dataclass(frozen=True)
class AuditRow:
    """Data drawn at one size: what was estimated of them and what is true. All in nats.

    | field | meaning |
    |---|---|
    | `size` | at which the data were drawn |
    | `estimate`, `standard_error` | of log p(data | size), by the search's own evaluator; NaN where its fit failed |
    | `lower`, `upper` | stochastic ends of log p(data | size), exact: each wrong by c nats at most once in e^c times |
    | `bracket_error` | standard error of these ends, from the spread of paths that all begin at one draw |
    | `together` | of the audited sizes those that the evaluator cannot tell from the best, all equally likely before |
    """

    size: Size
    estimate: float
    standard_error: float
    lower: float
    upper: float
    bracket_error: float
    together: tuple[Size, ...]

    @property
    def off_by(self) -> float:
        """How far the estimate lies outside of the ends: 0 between them, positive above, negative below."""
        low, high = sorted((self.lower, self.upper))  # ends that met may have passed each other by their errors
        return float(self.estimate - np.clip(self.estimate, low, high))

    @property
    def within_error(self) -> bool:
        """Whether its standard error, and that of the ends, explain how far the estimate is off (1.96 of both)."""
        return bool(abs(self.off_by) <= WITHIN * np.hypot(self.standard_error, self.bracket_error))

    @property
    def ranked(self) -> bool:
        """Whether the true size is the best one, or not told from it."""
        return self.size in self.together


@dataclass(frozen=True)
class Audit:
    """What `SearchResult.audit` found: a row for each size at which data were drawn, by increasing size.

    `size_names`: one name per size variable. `seed`: that of the data. `unfinished`: why the search had not come to its
    end when this was asked; None where it had.
    """

    rows: tuple[AuditRow, ...]
    size_names: tuple[str, ...]
    seed: int
    unfinished: str | None = None

    @property
    def ranking_held(self) -> bool | None:
        """Whether every true size was the best of those audited or not told from it; None with a single size.

        Sizes that are not told apart hold 95 % of the probability at least, so that an evaluator without any error
        fails in up to 5 of 100 rows.
        """
        return all(row.ranked for row in self.rows) if len(self.rows) > 1 else None

    @property
    def within_error(self) -> bool:
        """Whether every estimate was off by no more than errors explain. By chance alone one in 20 rows is not."""
        return all(row.within_error for row in self.rows)

    def describe(self) -> str:
        """By how many nats, in which direction, and whether the ranking held: a sentence without a full stop."""
        off = [row for row in self.rows if not row.within_error]
        sizes = ", ".join(_name(row.size) for row in self.rows)
        on = f"on data drawn from the model at {sizes} {' × '.join(self.size_names)}"
        if not off:
            worst = max(self.rows, key=lambda row: abs(row.off_by))
            far = "inside" if worst.off_by == 0 else f"at most {_signed(worst.off_by)} nats outside"
            width = max(abs(row.upper - row.lower) for row in self.rows)  # what an audit can see is no finer
            found = f"{on}, estimates lay {far} exact brackets up to {width:,.2f} nats wide, within their errors"
        else:
            found = f"{on}, estimates were OFF: {'; '.join(map(_off, off))}"
        early = had_not_finished(self.unfinished)
        return f"{found}{self._ranking()}{'; ' if early else ''}{early}"

    def table(self) -> pd.DataFrame:
        """A row per size: the size variables, then estimate, standard_error, lower, upper, off_by (nats), within_error,
        and ranked (whether the true size was the best, or not told from it)."""
        names = ("size",) if len(self.size_names) == 1 else self.size_names
        return pd.DataFrame(
            [
                {
                    **dict(zip(names, row.size, strict=True)),
                    "estimate": row.estimate,
                    "standard_error": row.standard_error,
                    "lower": row.lower,
                    "upper": row.upper,
                    "off_by": row.off_by,
                    "within_error": row.within_error,
                    "ranked": row.ranked,
                }
                for row in self.rows
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """As settings for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Audit":
        """The inverse of `to_json`. Raises KeyError and TypeError for anything else."""
        rows = tuple(
            AuditRow(
                **{
                    **{field.name: row[field.name] for field in fields(AuditRow)},
                    "size": tuple(row["size"]),
                    "together": tuple(map(tuple, row["together"])),
                }
            )
            for row in stored["rows"]
        )
        return cls(rows, tuple(stored["size_names"]), stored["seed"], stored.get("unfinished"))  # new in folders

    def __str__(self) -> str:
        return f"{self.describe()}.\n{self.table().to_string(index=False)}"

    def _ranking(self) -> str:
        if self.ranking_held is None:
            return "; a single size has no ranking"
        if self.ranking_held:
            return "; the ranking held: no true size was told apart from the best"
        lost = [row for row in self.rows if not row.ranked]
        return "; the ranking did NOT hold: " + ", ".join(
            f"of {_name(row.size)} it made {', '.join(map(_name, row.together)) or 'nothing'}" for row in lost
        )


def _off(row: AuditRow) -> str:
    if not np.isfinite(row.off_by):
        return f"at {_name(row.size)} they are not a number"
    error = np.hypot(row.standard_error, row.bracket_error)
    return (
        f"at {_name(row.size)} too {'high' if row.off_by > 0 else 'low'} by {abs(row.off_by):,.2f} ± {error:.2g} nats"
    )


def _signed(nats: float) -> str:
    return f"{nats:+,.2f}".replace("-", "−")


def _name(size: Size) -> str:
    return "×".join(map(str, size))
