"""The interface of evaluators that decide themselves what to fit next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

from lvsearch.inference.partition_chains import PartitionRun
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior


@runtime_checkable
class SelfGuided(Protocol):
    """An evaluator whose fits answer another question than the evidence, and which decides itself what to fit next."""

    def next_trial(self, visits: Sequence[Visit], max_size: Size | None) -> tuple[Size, int] | None:
        """Return the size to fit next and the number of its trial; None when the search is done.

        visits: everything found so far, in order.
        max_size: the largest size to try, None for no limit.
        """
        ...


@dataclass(frozen=True)
class PartitionProgress:
    """Chains of a search as far as they have come, and the prior that they draw under.

    | field | meaning |
    |---|---|
    | `run` | the chains and what they have visited |
    | `log_prior` | log p(K) of K = 1, 2, …, nats, (size,) |
    """

    run: PartitionRun
    log_prior: Float64[np.ndarray, " size"]


@runtime_checkable
class ComparesAllSizes(Protocol):
    """An evaluator that knows the posterior of all sizes without a fit of any."""

    def lengthen(
        self, progress: PartitionProgress | None, prior: SizePrior, max_size: Size | None
    ) -> PartitionProgress:
        """Return the chains some sweeps longer. prior, max_size: of the search; used where chains begin."""
        ...

    def is_long_enough(self, progress: PartitionProgress | None) -> bool:
        """Return whether nothing more is to be learnt from the chains."""
        ...

    def next_fit(
        self,
        progress: PartitionProgress | None,
        visits: Sequence[Visit],
        prior: SizePrior,
        max_size: Size | None,
        keep: int,
    ) -> Size | None:
        """Return the size to fit next; None where all sizes that matter were fitted. keep: fits at most."""
        ...
