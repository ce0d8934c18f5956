"""The recommended size: how it follows from the trials of a search, and its words, table and picture.

A trial is one fit of a size, with its scores on units (documents or rows) that the fit has not seen. `recommendation`
compares the sizes by their trials and recommends one. The picture shows by how much each size predicts held-out units
better or worse than a reference size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.data.base import Nouns
from lvsearch.pictures.size_axis import SizeAxis
from lvsearch.pictures.style import Caption, palette_of
from lvsearch.recommending.rule import Comparison, compare_sizes, smallest_within_error
from lvsearch.sizing.fit import HeldOutScores
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import is_or_are, size_text, sizes_in_words, with_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BOUND = "bound"
"""The word in the name of a scoring method whose scores are bounds on log p."""
MOST = 0.8
"""The least share of the recommended size's gain in prediction with which a smaller size is named."""


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
    | `still_rising` | True if the best size is the largest that was allowed or scored |
    | `failed` | the sizes that were tried and have no score, because their fits failed |
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
    failed: tuple[Size, ...] = ()

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
        others = self.within[1:]
        if others:
            text += f"; so {'does size' if len(others) == 1 else 'do sizes'} {sizes_in_words(others)}"
        if self.failed:
            text += f"; not compared: {sizes_in_words(self.failed)}, whose fits failed"
        if self.still_rising:
            largest = "that could be scored" if any(size > self.best for size in self.failed) else "tried"
            text += f". {self.best[0]}, the largest size {largest}, predicts best: larger ones may predict better still"
        enough = self.enough_for_most
        if enough is not None:
            (fewer,), share = enough
            text += (
                f". {with_noun(fewer, name)} already {'has' if fewer == 1 else 'have'} {100 * share:.0f} % of what "
                f"{self.size[0]} gain in prediction over {self.outcomes[0].size[0]}"
            )
        return f"{text}."

    @property
    def enough_for_most(self) -> tuple[Size, float] | None:
        """The smallest size with most (`MOST`) of the recommended size's gain, and its share of that gain.

        A size's gain is its mean score minus that of the smallest size tried. None if the size found is more than half
        of the recommended one, since a reader would save little, or if the recommended size gains nothing.
        """
        difference = {outcome.size: outcome.difference for outcome in self.outcomes}
        least = self.outcomes[0].difference
        gain = difference[self.size] - least
        if gain <= 0:
            return None
        shares = [(size, (each - least) / gain) for size, each in difference.items()]
        size, share = next((size, share) for size, share in shares if share >= MOST)
        return (size, share) if 2 * size[0] <= self.size[0] else None

    def describe_topics(self) -> str | None:
        """Return sentences on the quality of topics; None for models without topics.

        They say at which size coherence is highest, and how many topics a fit from another start finds again. Sizes
        within one standard error of the best count as equal, and the smallest of these is named.
        """
        known = [outcome for outcome in self.outcomes if outcome.coherence is not None]
        if not known:
            return None
        coherent, recurring = self.most_coherent, self.most_recurring
        here = next((outcome for outcome in known if outcome.size == self.size), None)
        told = [f"Coherence is highest at {with_noun(coherent[0], 'topics')}."] if coherent else []
        if here is not None and here.found_again is not None:
            found, number = here.found_again, self.size[0]
            share = "all" if found == number else f"{found} of the"
            told.append(f"A second fit finds {share} {number} recommended topics again.")
        if recurring is not None:
            told.append(f"At {with_noun(recurring[0], 'topics')} a second fit finds the most again.")
        return " ".join(told)

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
                "failed": tuple(tuple(size) for size in stored.get("failed", ())),  # new in folders
            }
        )


PartScores = Mapping[int, HeldOutScores]
"""{number of a part: the scores of its units}."""


def compare_trials(visits: Sequence[Visit], *, same_units: bool) -> Comparison | None:
    """Compare the sizes tried by the scores of their trials; return None if no size was scored.

    visits: a record of each size tried, with its trials
    same_units: True if every trial scored the same units (with another fit); False if every part has units of its own
    """
    known = {visit.size: _scores_of(visit) for visit in visits}
    known = {size: parts for size, parts in known.items() if parts}
    if not known:
        return None
    lengths = {part: len(scores.per_unit) for parts in known.values() for part, scores in parts.items()}
    rows = [
        np.mean([scores.per_unit for scores in parts.values()], axis=0)
        if same_units
        else np.concatenate(
            [parts[part].per_unit if part in parts else np.full(lengths[part], np.nan) for part in sorted(lengths)]
        )
        for parts in known.values()
    ]
    return compare_sizes(list(known), np.stack(rows))


def _scores_of(visit: Visit) -> PartScores:
    """Return the scores of one size as {number of the part left out: scores}, without failed trials.

    visit: the record of the size
    """
    scored = (trial.scores for trial in visit.trials)
    return {scores.part: scores for scores in scored if scores is not None}


def recommendation(
    visits: Sequence[Visit], parts: int | None, nouns: Nouns, size_names: tuple[str, ...], max_size: Size | None
) -> Recommendation:
    """Return the recommended size, with the table behind it, from the scores of all trials.

    Args:
        visits: a record of each size tried, with its trials.
        parts: the number of parts of the units; None if every trial was scored on the same units.
        nouns: what people call the data, its units and its observations.
        size_names: what sizes count, such as ("topics",).
        max_size: the largest size allowed, None for no limit.

    Raises:
        ValueError: no size was scored.
    """
    same_units = parts is None
    found = compare_trials(visits, same_units=same_units)
    if found is None:
        failures = sorted({trial.failure for visit in visits for trial in visit.trials if trial.failure})
        raise ValueError(f"no size was scored on held-out units{f' ({failures[0]})' if failures else ''}; search again")
    by_size = {visit.size: _scores_of(visit) for visit in visits}
    outcomes = tuple(
        _outcome(found, place, by_size[size], by_size[found.best], same_units) for place, size in enumerate(found.sizes)
    )
    # in words: how units were held out, and by how many fits
    times = max(len(scores) for scores in by_size.values())
    cut = (
        f"The {nouns.units} held out were given, each size fitted up to {with_noun(times, 'times')} to the others"
        if same_units
        else f"The {nouns.units} were cut into {parts} parts, up to {times} of them left out one at a time"
    )
    method = next(iter(by_size[found.best].values())).method
    ended = found.best in (max(found.sizes), max_size)
    return Recommendation(
        found.recommended,
        found.best,
        found.within,
        outcomes,
        size_names,
        nouns,
        cut,
        method,
        ended,
        tuple(sorted(size for size, scores in by_size.items() if not scores)),
    )


def _outcome(found: Comparison, place: int, own: PartScores, of_best: PartScores, same_units: bool) -> SizeOutcome:
    """Return the scores of one size on held-out units, in nats per observation (token or cell).

    found: the comparison of all sizes, whose scores are nats per unit and whose differences are nats in total
    place: the index of the size in `found.sizes`
    own: {number of a part: scores} of the size
    of_best: {number of a part: scores} of the best size
    same_units: True if every trial scored the same units
    """
    common = [scores.n_observations for part, scores in own.items() if part in of_best]
    observations = max(common[0] if same_units else sum(common), 1)
    total = found.score[place] * len(np.concatenate([scores.per_unit for scores in own.values()]))
    quality = next((scores.topics for scores in own.values() if scores.topics is not None), None)
    measured = (
        (None, None, None) if quality is None else (quality.coherence, quality.coherence_error, quality.found_again)
    )
    return SizeOutcome(
        found.sizes[place],
        float(total) / max(sum(scores.n_observations for scores in own.values()), 1),
        float(found.difference[place]) / observations,
        float(found.standard_error[place]) / observations,
        int(found.n_units[place]),
        *measured,
    )


def draw_differences(
    sizes: Sequence[Size],
    difference: Float[np.ndarray, " size"],
    error: Float[np.ndarray, " size"],
    axes: "Axes",
    *,
    marked: Size,
    within: float,
    label: str,
    scale: str,
) -> None:
    """Draw the score difference of each size as a dot, with a line of one standard error to both sides.

    Args:
        sizes: the sizes (numbers of components), increasing.
        difference: the held-out score of each size minus that of the reference size, nats per observation, (size,).
        error: the standard errors of the differences, nats per observation, (size,).
        axes: matplotlib axes to draw on.
        marked: the size that is drawn in orange.
        within: half the height of the shaded band, nats; sizes inside are as good as the reference. 0 draws no band.
        label: the label of the horizontal axis.
        scale: the label of the vertical axis.
    """
    palette, where = palette_of(axes), SizeAxis.from_sizes(sizes)
    at = where.positions(sizes)
    axes.axhspan(-within, within, color=palette.band, linewidth=0, zorder=0)
    axes.axhline(0.0, color=palette.faint, linewidth=0.8, zorder=1)
    axes.vlines(at, difference - error, difference + error, color=palette.main, linewidth=2.4, zorder=3)
    axes.plot(at, difference, "o-", color=palette.main, markersize=5, linewidth=1, zorder=3)
    chosen = sizes.index(marked)
    axes.plot(at[chosen], difference[chosen], "o", color=palette.accent, markersize=8, zorder=4)
    # the vertical axis shows every line whole, and keeps the reference at 0 off its edges
    low, high = float((difference - error).min()), float((difference + error).max())
    if max(-low, high, within) > 0:
        axes.set_ylim(min(1.1 * low, -1.6 * within), max(1.1 * high, 1.6 * within, -0.1 * low))
    where.ticks(axes, marked)
    axes.set_xlabel(label, parse_math=False)
    axes.set_ylabel(scale)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}".replace("-", "−"))


def draw_recommendation(found: Recommendation, axes: "Axes") -> Caption:
    """Draw how far the held-out score of each size is below that of the size that predicts best; return the caption.

    The recommended size is orange. The caption is returned, not written.

    found: the recommendation
    axes: matplotlib axes to draw on
    """
    nouns = found.nouns
    draw_differences(
        [outcome.size for outcome in found.outcomes],
        np.array([outcome.difference for outcome in found.outcomes]),
        np.array([outcome.standard_error for outcome in found.outcomes]),
        axes,
        marked=found.size,
        within=0.0,
        label=found.size_names[0].replace("_", " "),
        scale=f"nats per {nouns.observation}, above {size_text(found.best)}",
    )
    return Caption(
        f"{with_noun(found.size[0], found.size_names[0])} {is_or_are(found.size[0])} recommended",
        f"Held-out {nouns.units}: paired differences ± 1 standard error to {size_text(found.best)}, which predicts "
        f"best; orange: {found.rule}; {found.estimator}",
    )
