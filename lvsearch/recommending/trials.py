"""Combine the trials of a search by prediction: compare the sizes, and recommend one.

A trial is one fit of a size, with its scores on units (documents or rows) that the fit has not seen.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from lvsearch.data.base import Nouns
from lvsearch.recommending.recommendation import Recommendation, SizeOutcome
from lvsearch.recommending.rule import Comparison, compare_sizes
from lvsearch.sizing.fit import HeldOutScores
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import with_noun

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
