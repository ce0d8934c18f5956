"""What a search over partitions asks: chains that say the posterior of all sizes at once, and fits of the sizes that
matter.

The search has two stages. First chains over partitions of the rows are lengthened, a block of sweeps at a time, until
they agree and are precise enough (`lvsearch.inference.partition_chains`). They alone decide how probable each size is.
Then the most probable sizes are fitted, for people who want labels, means and predictions.
"""

from collections.abc import Sequence
from functools import cache, singledispatch
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float64

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.memory import Chunks
from lvsearch.inference.generators import folded, key_of
from lvsearch.inference.partition_chains import (
    PartitionChain,
    is_enough,
    lengthened,
    partition_chain,
    supported_sizes,
)
from lvsearch.models.contract import Model
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.tied_mixture import TiedMixture
from lvsearch.partitions.mixture_posterior import MixturePosterior, tabulated_prior
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.guided import PartitionProgress
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior

PARTITIONS = "partitions"
"""What `SearchSettings.evidence` says of such a search."""
PRECISION, MOST_SWEEPS = 0.02, 8192
"""The largest Monte Carlo error of the probability of a size, and the most sweeps of each chain."""
WORTH_A_FIT = 0.1
"""Posterior probability from which on a size is fitted; others are when somebody asks for them."""
CHAINS_KEY = 0xC4A1
"""The number that separates the key of the chains from the keys of fits."""


@singledispatch
def has_partition_chain(model: Any) -> bool:
    """Return whether chains over partitions of the rows know how many components this model has.

    model: anything that `lv.search` takes, also a function or an evaluator, which have no such chains.
    """
    return False


@has_partition_chain.register(FiniteMixture)
@has_partition_chain.register(TiedMixture)
@has_partition_chain.register(IndependentNormalMixture)
def _(model: FiniteMixture | TiedMixture | IndependentNormalMixture) -> bool:
    """Where parameters have a prior: estimated ones are not integrated out."""
    return model.concentration is not None


class PartitionEvaluator(ModelEvaluator):
    """Compares all sizes of a mixture of rows by chains over partitions, and fits those that matter by mean field.

    The arguments are those of `ModelEvaluator`. Raises ValueError for a model without such chains, and for a mesh.
    """

    def __init__(
        self, model: Model, data: Dataset, *, seed: int, chunks: Chunks | None = None, mesh: Mesh | None = None
    ):
        if not has_partition_chain(model):
            raise ValueError(
                f'got evidence="{PARTITIONS}" for {model.describe()}, expected lv.models.FiniteMixture(…), '
                "TiedMixture(…) or IndependentNormalMixture(…) whose parameters have a prior: "
                'take evidence="annealed"'
            )
        if mesh is not None:
            raise ValueError(f'got a mesh with evidence="{PARTITIONS}", expected none: take evidence="annealed"')
        super().__init__(model, data, evidence=PARTITIONS, seed=seed, chunks=chunks)
        self._own_seed = seed

    def split_over(self, mesh: Mesh) -> "PartitionEvaluator":
        """Raise ValueError: chains over partitions run on one device."""
        return PartitionEvaluator(self.base_model, self.data, seed=self._own_seed, chunks=self.chunks, mesh=mesh)

    # ── all sizes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def lengthen(
        self, progress: PartitionProgress | None, prior: SizePrior, max_size: Size | None
    ) -> PartitionProgress:
        """Return the chains one block of sweeps longer."""
        if progress is None:
            log_prior = tabulated_prior(prior, None if max_size is None else max_size[0])
        else:
            log_prior = progress.log_prior
        chains = self._chains.setdefault(log_prior.tobytes(), cache(lambda places: self._chain(log_prior, places)))
        key = folded(key_of(self._own_seed), CHAINS_KEY)
        run = lengthened(chains, key, None if progress is None else progress.run, precision=PRECISION)
        return PartitionProgress(run, log_prior)

    def is_long_enough(self, progress: PartitionProgress | None) -> bool:
        """Return whether the chains agree and are precise enough, or are as long as they may be."""
        return progress is not None and is_enough(progress.run, PRECISION, MOST_SWEEPS)

    def posterior(self, progress: PartitionProgress, prior: SizePrior) -> MixturePosterior | None:
        """Return what the chains say under this prior, which may be another than the one that they drew under; None
        where they have not visited anything yet, or where it gives none of their sizes any probability."""
        if not progress.run.blocks:
            return None
        found = MixturePosterior.from_trace(progress.run.trace(), progress.log_prior, PRECISION)
        log_prior = supported_sizes(lambda size: prior.log_pmf((size,)), len(progress.log_prior))
        return found.under(log_prior, progress.run.trace())

    def next_fit(
        self,
        progress: PartitionProgress | None,
        visits: Sequence[Visit],
        prior: SizePrior,
        max_size: Size | None,
        keep: int,
    ) -> Size | None:
        """Return the most probable size that was not fitted: the best one, and those of at least `WORTH_A_FIT`; first
        of all size 1."""
        found = None if progress is None else self.posterior(progress, prior)
        if not visits:  # every search begins with one component: its fit is the witness of all others
            return (1,)
        if found is None:
            return None
        order = np.argsort(-found.probability, kind="stable")[: max(1, keep)]
        worth = [int(place) for place in order if place == order[0] or found.probability[place] >= WORTH_A_FIT]
        fitted = {visit.size for visit in visits}
        return next(((place + 1,) for place in worth if (place + 1,) not in fitted), None)

    @property
    def _chains(self) -> dict:
        """Chains that were made, by the prior that they draw under: made again where this is a copy elsewhere."""
        return self.__dict__.setdefault("_made_chains", {})

    def _chain(self, log_prior: Float64[np.ndarray, " size"], places: int) -> PartitionChain:
        return partition_chain(self.base_model, self.data, log_prior, places)  # pyright: ignore[reportArgumentType]
