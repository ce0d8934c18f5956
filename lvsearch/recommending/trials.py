"""What the trials of a search by prediction say together: sizes compared, and the one recommended."""

from collections.abc import Mapping, Sequence

import numpy as np

from lvsearch.data.base import Nouns
from lvsearch.recommending.recommendation import Recommendation, SizeOutcome
from lvsearch.recommending.rule import Comparison, compare_sizes
from lvsearch.sizing.fit import HeldOutScores
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import counted

PartScores = Mapping[int, HeldOutScores]
"""Number of a part -> the scores of its units."""


def compared(visits: Sequence[Visit], *, same_units: bool) -> Comparison | None:
    """Compare the sizes visited by the scores of their trials; None where no size has any.

    same_units: every part is the same units, scored by another fit; else parts are other units.
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
    scored = (trial.scores for trial in visit.trials)
    return {scores.part: scores for scores in scored if scores is not None}


def recommendation(
    visits: Sequence[Visit], parts: int | None, nouns: Nouns, size_names: tuple[str, ...], max_size: Size | None
) -> Recommendation:
    """Read the recommended size off the scores of all trials.

    Args:
        visits: the sizes visited.
        parts: how many parts the units were cut into; None where every trial was scored on the same units.
        nouns: what people call the data.
        size_names: what sizes count.
        max_size: the largest size allowed, None for no limit.

    Raises:
        ValueError: no size was scored.
    """
    same_units = parts is None
    found = compared(visits, same_units=same_units)
    if found is None:
        failures = sorted({trial.failure for visit in visits for trial in visit.trials if trial.failure})
        raise ValueError(f"no size was scored on held-out units{f' ({failures[0]})' if failures else ''}; search again")
    by_size = {visit.size: _scores_of(visit) for visit in visits}
    outcomes = tuple(
        _outcome(found, place, by_size[size], by_size[found.best], same_units) for place, size in enumerate(found.sizes)
    )
    times = max(len(scores) for scores in by_size.values())
    cut = (
        f"The {nouns.units} held out were given, each size fitted up to {counted(times, 'times')} to the others"
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
    )


def _outcome(found: Comparison, place: int, own: PartScores, of_best: PartScores, same_units: bool) -> SizeOutcome:
    """What one size makes of the held-out units, per observation."""
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
