"""What an annealing says, in the words of a search."""

from collections.abc import Sequence

from lvsearch.inference.evidence import Effort, TwoSided
from lvsearch.sizing.bracket import Bracket
from lvsearch.sizing.sizes import Size


def brackets_of(found: Sequence[TwoSided], work: Effort) -> tuple[Bracket, ...]:
    """One for each path, nats."""
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
    """Why an annealing says nothing; None where it says something."""
    if not all(bracket.finite for bracket in brackets):
        return f"the annealed evidence of size {size} is not a number; it is reported, not ranked"
    if not all(ends.moved for ends in found):
        return (
            f"the chain of size {size} never moved: its two ends would agree far below the evidence; it is reported, "
            "not ranked"
        )
    return None
