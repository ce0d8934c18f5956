"""Conversion of an annealing's estimates to the types of a search, and the reason if an annealing failed."""

from collections.abc import Sequence

from lvsearch.inference.evidence import Effort, TwoSided
from lvsearch.sizing.bracket import Bracket
from lvsearch.sizing.sizes import Size


def brackets_of(found: Sequence[TwoSided], work: Effort) -> tuple[Bracket, ...]:
    """Return one bracket for each annealed path, nats."""
    return tuple(
        Bracket(
            tuple(ends.forward.tolist()),
            tuple(ends.backward.tolist()),
            work.steps,
            work.islands * work.particles,
            ends.anchor_error,
        )
        for ends in found
    )


def annealing_failure(size: Size, found: Sequence[TwoSided], brackets: Sequence[Bracket]) -> str | None:
    """Return why an annealing says nothing, in words; None where it succeeded."""
    if not all(bracket.finite for bracket in brackets):
        return f"the annealed evidence of size {size} is not a number; the size is reported, not ranked"
    if not all(ends.moved for ends in found):
        return (
            f"the chain of size {size} never moved, so its two ends may agree far below the evidence; the size is "
            "reported, not ranked"
        )
    return None
