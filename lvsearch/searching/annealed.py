"""Convert annealed estimates of the evidence to the types of a search, and say why an annealing failed."""

from collections.abc import Sequence

from lvsearch.inference.evidence import Effort, TwoSided
from lvsearch.sizing.bracket import Bracket
from lvsearch.sizing.sizes import Size


def brackets_of(found: Sequence[TwoSided], work: Effort) -> tuple[Bracket, ...]:
    """Return one bracket per annealing: its forward and backward estimates of log p(data | size), nats.

    found: the estimates of each annealing. work: the number of temperatures and of particles of the paths.
    """
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
    """Return the reason why the annealed evidence of a size is useless, in words; None if it is good.

    It is useless if an estimate is not finite, or if a chain never moved.

    found: the estimates of each annealing. brackets: the same estimates as `brackets_of` returns them.
    """
    if not all(bracket.finite for bracket in brackets):
        return f"the annealed evidence of size {size} is not a number; the size is reported, not ranked"
    if not all(ends.moved for ends in found):
        return (
            f"the chain of size {size} never moved, so its two ends may agree far below the evidence; the size is "
            "reported, not ranked"
        )
    return None
