"""An audit of a search's evidence: its error on data whose evidence can be bounded exactly from both sides.

Data are drawn from the model at a few sizes, with the shape of the data searched. The search's estimate of their
evidence, with as many trials as the real search made, is compared with a bracket of the truth. The bracket has forward
paths and, from the very latents that the data were drawn with, backward paths (Grosse, Ghahramani & Adams 2015; Grosse,
Ancha & Roy 2016). Each end is on the wrong side of log p(data | size) by more than c nats with probability at most
e^−c. This needs no assumption.

On the real data the same estimator starts its backward paths where its forward paths ended, which is an assumption. An
audit shows what it costs on data like these, if the model is true. It cannot show that the model is true.

Cost: for each size and each data set, as many fits and annealings as the search made of its best size, and one
annealing of twice the length. Data are drawn all at once: units × their longest length × components numbers.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from lvsearch.sizing.posterior import SETTLED
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import had_not_finished, size_text

WITHIN = 1.96
"""The number of standard errors by which an estimate may be off and still count as within its error."""
WIDEST = SETTLED
"""The widest exact bracket, in nats, that tests an estimate inside it: a wider one hides errors that change answers."""


@dataclass(frozen=True)
class AuditRow:
    """One data set of an audit: the search's estimate of its log evidence, and bounds on the truth. All in nats.

    | field | meaning |
    |---|---|
    | `size` | the size at which the data were drawn |
    | `estimate`, `standard_error` | the search's estimate of log p(data | size) and its error; NaN if its fit failed |
    | `lower`, `upper` | stochastic bounds on log p(data | size), each wrong by c nats with probability ≤ e^−c |
    | `bracket_error` | standard error of these bounds, from the spread of paths that all begin at one draw |
    | `together` | audited sizes that the evaluator cannot tell from its best, all sizes equally probable a priori |
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
        """The distance of the estimate from the bracket, in nats: 0 inside, positive above, negative below."""
        low, high = sorted((self.lower, self.upper))  # both ends have errors, so lower may exceed upper a little
        return float(self.estimate - np.clip(self.estimate, low, high))

    @property
    def within_error(self) -> bool:
        """True if the estimate is off the bracket by at most 1.96 standard errors of both together."""
        return bool(abs(self.off_by) <= WITHIN * np.hypot(self.standard_error, self.bracket_error))

    @property
    def is_tested(self) -> bool:
        """False if the estimate lies inside a bracket wider than 3 nats (`WIDEST`), which would hide its error."""
        return not (self.within_error and abs(self.upper - self.lower) > WIDEST)

    @property
    def ranked(self) -> bool:
        """True if the size at which the data were drawn is the search's best size, or cannot be told from it."""
        return self.size in self.together


@dataclass(frozen=True)
class Audit:
    """The result of `SearchResult.audit`, with a row for each size at which data were drawn, by increasing size.

    | field | meaning |
    |---|---|
    | `rows` | one row for each size, with the estimated evidence and bounds on the true one |
    | `size_names` | one name per size variable |
    | `seed` | the seed of the data |
    | `unfinished` | why the search had not finished when the audit was made; None if it had |
    """

    rows: tuple[AuditRow, ...]
    size_names: tuple[str, ...]
    seed: int
    unfinished: str | None = None

    @property
    def ranking_held(self) -> bool | None:
        """True if every true size was the best of the audited sizes, or could not be told from it; None for one size.

        The true size is the size at which a data set was drawn.

        Sizes that cannot be told apart hold at least 95 % of the probability. So even an evaluator without any error
        fails in up to 5 of 100 rows.
        """
        return all(row.ranked for row in self.rows) if len(self.rows) > 1 else None

    @property
    def within_error(self) -> bool:
        """True if every estimate was off its bracket by no more than its errors, and every bracket was narrow enough.

        By chance alone one row in 20 fails.
        """
        return all(row.within_error and row.is_tested for row in self.rows)

    def describe(self) -> str:
        """Return the audit in words, without a full stop: errors in nats, their sign, and whether the ranking held."""
        off = [row for row in self.rows if not row.within_error]
        untested = [row for row in self.rows if not row.is_tested]
        sizes = ", ".join(size_text(row.size) for row in self.rows)
        on = f"on data drawn from the model at {sizes} {' × '.join(self.size_names)}"
        if untested:
            wide = ", ".join(f"{size_text(row.size)} ({abs(row.upper - row.lower):,.0f} nats)" for row in untested)
            found = (
                f"{on}, this audit could NOT test the estimates at {wide}: its exact brackets are wider than the "
                f"{WIDEST:g} nats that change an answer"
            )
            if off:
                found += f"; others were OFF: {'; '.join(map(_error_in_words, off))}"
        elif not off:
            worst = max(self.rows, key=lambda row: abs(row.off_by))
            far = "inside" if worst.off_by == 0 else f"at most {_signed(worst.off_by)} nats outside"
            width = max(abs(row.upper - row.lower) for row in self.rows)  # smaller errors are not seen
            found = f"{on}, estimates lay {far} exact brackets up to {width:,.2f} nats wide, within their errors"
        else:
            found = f"{on}, estimates were OFF: {'; '.join(map(_error_in_words, off))}"
        early = had_not_finished(self.unfinished)
        return f"{found}{self._ranking()}{'; ' if early else ''}{early}"

    def table(self) -> pd.DataFrame:
        """Return the audit as a table with a row per size at which data were drawn.

        Columns are the size variables, `estimate`, `standard_error`, `lower`, `upper` and `off_by` (nats). Two checks
        follow: `within_error`, and `ranked`, True if the true size was the best, or could not be told from it.
        """
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
        """Return the audit as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Audit":
        """Return the audit that `to_json` encoded. Raises KeyError and TypeError for anything else."""
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
        """Return the audit in words, followed by its table as text."""
        return f"{self.describe()}.\n{self.table().to_string(index=False)}"

    def _ranking(self) -> str:
        """Return a clause that says whether the ranking of sizes held, beginning with "; "."""
        if self.ranking_held is None:
            return "; a single size has no ranking"
        if self.ranking_held:
            return "; the ranking held: no true size was told apart from the best"
        lost = [row for row in self.rows if not row.ranked]
        return "; the ranking did NOT hold: " + ", ".join(
            f"of {size_text(row.size)} it made {', '.join(map(size_text, row.together)) or 'nothing'}" for row in lost
        )


def _error_in_words(row: AuditRow) -> str:
    """Return the error of the estimate of one row in words, such as "at 3 too high by 2.10 ± 0.3 nats"."""
    if not np.isfinite(row.off_by):
        return f"at {size_text(row.size)} they are not a number"
    error = np.hypot(row.standard_error, row.bracket_error)
    return (
        f"at {size_text(row.size)} too {'high' if row.off_by > 0 else 'low'} by {abs(row.off_by):,.2f} ± "
        f"{error:.2g} nats"
    )


def _signed(nats: float) -> str:
    """Return a number of nats with its sign, such as "+1.20"."""
    return f"{nats:+,.2f}".replace("-", "−")
