"""Interfaces of evaluators that the search asks which size to fit next: by rules of their own, or by MCMC chains over
partitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from lvsearch.inference.allocation_chains import AllocationRun
from lvsearch.sizing.fit import Fit
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior


@runtime_checkable
class SelfGuided(Protocol):
    """The interface of an evaluator that decides itself which size to fit next, such as one that scores predictions."""

    def next_trial(self, visits: Sequence[Visit], max_size: Size | None) -> tuple[Size, int] | None:
        """Return the size to fit next and the number of its trial (attempt, from 0); None when the search is done.

        visits: the records of the sizes tried so far, in order.
        max_size: the largest size to try; None for no limit.
        """
        ...


@dataclass(frozen=True)
class AllocationProgress:
    """The MCMC chains over partitions of the rows that a search has run so far, and the prior that they draw under.

    | field | meaning |
    |---|---|
    | `run` | the states of the chains and their recorded draws |
    | `log_prior` | log p(K) of K = 1, 2, … components, nats, (size,); (size, size) for two size variables |
    """

    run: AllocationRun
    log_prior: Float64[np.ndarray, "*size"]


@runtime_checkable
class ComparesAllSizes(Protocol):
    """The interface of an evaluator that computes the posterior of all sizes by MCMC chains, without any fit."""

    def lengthen(
        self, progress: AllocationProgress | None, prior: SizePrior, max_size: Size | None
    ) -> AllocationProgress:
        """Run the chains for some more sweeps, and return all of their draws so far.

        progress: the chains so far; None begins new ones.
        prior: the prior over sizes, used where chains begin.
        max_size: the largest size, used where chains begin; None for no limit.
        """
        ...

    def is_long_enough(self, progress: AllocationProgress | None) -> bool:
        """Return True if the chains are precise enough, or as long as they may be.

        progress: the chains so far; None if there are none.
        """
        ...

    def start_of(self, progress: AllocationProgress | None, size: Size) -> Fit | None:
        """Return a fit for the fit of a size to begin from, by what the chains found; None if it begins by itself.

        progress: the chains so far; None if there are none.
        """
        ...

    def next_fit(
        self,
        progress: AllocationProgress | None,
        visits: Sequence[Visit],
        prior: SizePrior,
        max_size: Size | None,
        keep: int,
    ) -> Size | None:
        """Return the size whose model to fit next; None if all sizes that matter were fitted.

        progress: the chains so far; None if there are none.
        visits: the records of the sizes fitted so far.
        prior: the prior over sizes. max_size: the largest size; None for no limit.
        keep: the largest number of sizes to fit.
        """
        ...
