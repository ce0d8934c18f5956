"""The interface of evaluators that decide themselves what to fit next."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size


@runtime_checkable
class SelfGuided(Protocol):
    """An evaluator whose fits answer another question than the evidence, and which decides itself what to fit next."""

    def next_trial(self, visits: Sequence[Visit], max_size: Size | None) -> tuple[Size, int] | None:
        """Return the size to fit next and the number of its trial; None when the search is done.

        visits: everything found so far, in order.
        max_size: the largest size to try, None for no limit.
        """
        ...
