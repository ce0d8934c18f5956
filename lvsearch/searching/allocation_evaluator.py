"""The class `AllocationEvaluator`: MCMC over allocations of the rows, which gives the posterior of all sizes at once.

An allocation says which rows are together (a partition, for mixtures), which rows and which columns are together (for
block models), or which rows have which features. The search has two stages. First chains over allocations are
lengthened, a block of sweeps at a time, until they agree and are precise enough
(`lvsearch.inference.allocation_chains`). They alone decide how probable each size is. Then the most probable sizes are
fitted, for people who want labels, means and predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
from jax.sharding import Mesh

from lvsearch.fitted.mixture_posterior import LEFT_OUT, MixturePosterior, largest_tabulated, tabulated_prior
from lvsearch.inference.allocation_chains import (
    AllocationChain,
    allocation_chain,
    has_allocation_chain,
    is_enough,
    run_one_more_block,
    start_from_allocation,
    supported_sizes,
)
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimator import Chunks
from lvsearch.inference.generators import fold_in, key_of
from lvsearch.models.contract import Model
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.guided import AllocationProgress
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Fit, FitInfo
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.posterior import format_probability
from lvsearch.sizing.sizes import Size, SizePrior
from lvsearch.sizing.words import size_text, sizes_in_words

PARTITIONS = "partitions"
"""The value of `SearchSettings.evidence` for a search by chains over partitions."""
PRECISION, MOST_SWEEPS = 0.02, 8192
"""The largest Monte Carlo error of the probability of a size, and the most sweeps of each chain."""
WORTH_A_FIT = 0.1
"""The smallest posterior probability of a size that the search fits; other sizes are fitted on demand."""
CHAINS_KEY = 0xC4A1
"""The number that separates the key of the chains from the keys of fits."""


class AllocationEvaluator(ModelEvaluator):
    """An evaluator that compares all sizes of a model by MCMC over allocations of the rows.

    The most probable sizes are also fitted by mean field, for labels, means and predictions.

    model, data: a model that has such chains (`has_allocation_chain`), such as a mixture of rows whose parameters are
        integrated out, and the rows.
    seed: decides every random number.
    chunks: the limits on memory that decide into what chunks data are cut; None chooses them.
    mesh: must be None, because the chains run on one device.

    Raises ValueError for a model without such chains, and for a mesh.
    """

    def __init__(
        self, model: Model, data: Dataset, *, seed: int, chunks: Chunks | None = None, mesh: Mesh | None = None
    ):
        if not has_allocation_chain(model):
            raise ValueError(
                f'got evidence="{PARTITIONS}" for {model.describe()}, expected lv.models.FiniteMixture(…), '
                "TiedMixture(…) or IndependentNormalMixture(…) whose parameters have a prior, LatentBlockModel(…) or "
                'IBP(…): take evidence="annealed"'
            )
        if mesh is not None:
            raise ValueError(f'got a mesh with evidence="{PARTITIONS}", expected none: take evidence="annealed"')
        super().__init__(model, data, evidence=PARTITIONS, seed=seed, chunks=chunks)
        self._own_seed = seed
        # the samplers made so far, by the bytes of their log prior; functions of the number of slots for components
        self._chains: dict[bytes, Callable[[int | None], AllocationChain]] = {}

    def split_over(self, mesh: Mesh) -> "AllocationEvaluator":
        """Raise ValueError for any mesh of devices, because chains over partitions run on one device."""
        return AllocationEvaluator(self.base_model, self.data, seed=self._own_seed, chunks=self.chunks, mesh=mesh)

    # ── all sizes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def lengthen(
        self, progress: AllocationProgress | None, prior: SizePrior, max_size: Size | None
    ) -> AllocationProgress:
        """Run the chains over partitions for one more block of sweeps, and return all of their draws so far.

        progress: the chains so far; None begins new ones.
        prior: the prior over sizes, used where chains begin.
        max_size: the largest size, used where chains begin; None for no limit.
        """
        if progress is None:
            most = largest_tabulated(prior.dimension)
            largest = None if max_size is None else tuple(min(number, most) for number in max_size)
            log_prior = tabulated_prior(prior, largest, prior.dimension)
        else:
            log_prior = progress.log_prior
        own = cache(partial(allocation_chain, self.base_model, self.data, log_prior))
        chains = self._chains.setdefault(log_prior.tobytes(), own)
        key = fold_in(key_of(self._own_seed), CHAINS_KEY)
        run = run_one_more_block(chains, key, None if progress is None else progress.run, precision=PRECISION)
        return AllocationProgress(run, log_prior)

    def is_long_enough(self, progress: AllocationProgress | None) -> bool:
        """Return True if the chains agree and are precise enough, or are as long as they may be.

        progress: the chains so far; None if there are none.
        """
        of_parts = self.base_model.size_is_limit
        return progress is not None and is_enough(progress.run, PRECISION, MOST_SWEEPS, of_parts=of_parts)

    def posterior(self, progress: AllocationProgress, prior: SizePrior) -> MixturePosterior | None:
        """Return the posterior over all sizes from the chains' draws, under a prior over sizes.

        The prior may be another than the one that the chains drew under. The result is None if the chains have made no
        draws yet, or if the prior gives none of their sizes any probability.
        """
        if not progress.run.blocks:
            return None
        trace = progress.run.trace()
        found = MixturePosterior.from_trace(trace, progress.log_prior, PRECISION, self.base_model)
        log_prior = supported_sizes(lambda *size: prior.log_pmf(size), *progress.log_prior.shape)
        return found.under(log_prior, trace)

    def require_known(self, progress: AllocationProgress, prior: SizePrior, max_size: Size | None) -> None:
        """Raise ValueError unless the chains' draws say how probable the sizes are under another prior over sizes.

        Draws are weighed anew, so that nothing is known of a size that the prior of the chains excluded. Such sizes may
        hold at most 1e-6 (`LEFT_OUT`) of the new prior.

        progress: the chains so far.
        prior: the new prior over sizes.
        max_size: the largest size that is allowed; None for no limit.
        """
        dimension, most = prior.dimension, largest_tabulated(prior.dimension)
        largest = (most,) * dimension if max_size is None else tuple(min(number, most) for number in max_size)
        drawn_under = np.exp(progress.log_prior[tuple(map(slice, largest))])
        excluded = [tuple(place + 1 for place in places) for places in np.argwhere(drawn_under == 0).tolist()]
        allowed = prior.log_box((1,) * dimension, tuple(number + 1 for number in largest))
        beyond = _log_mass_beyond(prior, drawn_under.shape, largest)
        never_seen = log_sum([beyond, *(prior.log_pmf(size) for size in excluded)])
        lost = min(1.0, float(np.exp(never_seen - allowed))) if allowed > -np.inf else 0.0
        if lost > LEFT_OUT:
            listed = sizes_in_words([size for size in excluded if prior.log_pmf(size) > -np.inf])
            above = f"those above {size_text(drawn_under.shape)}" if beyond > -np.inf else ""
            raise ValueError(
                f"got a prior that gives {format_probability(lost)} to sizes that the chains never saw "
                f"({' and '.join(part for part in (listed, above) if part)}): the prior of the search excluded them. "
                "Search again with this prior"
            )
        if progress.run.blocks and self.posterior(progress, prior) is None:
            raise ValueError(
                "no draw of the chains has a number of components that this prior allows: search again with this prior"
            )

    def start_of(self, progress: AllocationProgress | None, size: Size) -> Fit | None:
        """Return a fit that follows from the best allocation with no more parts than a size, for its fit to begin from;
        None if no chain is at one, or if fits of this model begin by themselves (`start_from_allocation`).

        progress: the chains so far; None if there are none.
        """
        labels = None if progress is None else progress.run.best_labels(size)
        estimate = None if labels is None else start_from_allocation(self.base_model, self.data, labels, size)
        if estimate is None:
            return None
        return Fit(size, Evidence(-np.inf, self.ceiling), 0.0, estimate, FitInfo("the groups of a chain", 0.0))

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Fit one size and return the fit; its evidence is the mean-field bound.

        size: one number per size variable. start: as `start_of` returns it. trial: the number of the fit of this size.
        """
        fit = super().evaluate(size, start, trial)
        return fit if start is None else replace(fit, info=replace(fit.info, start=start.info.start))

    def next_fit(
        self,
        progress: AllocationProgress | None,
        visits: Sequence[Visit],
        prior: SizePrior,
        max_size: Size | None,
        keep: int,
    ) -> Size | None:
        """Return the most probable size whose model was not fitted yet; None if all sizes that matter were fitted.

        Sizes that matter are the best one and those with a probability of at least 0.1 (`WORTH_A_FIT`). The first fit
        of a search is always of size 1.

        progress: the chains so far; None if there are none.
        visits: the records of the sizes fitted so far.
        prior: the prior over sizes.
        max_size: the largest size that is fitted; None for no limit. The chains may have been begun with a larger one.
        keep: the largest number of sizes to fit.
        """
        found = None if progress is None else self.posterior(progress, prior)
        if not visits:  # every search begins with one component: its fit is the witness of all others
            return (1,) * prior.dimension
        if found is None:
            return None
        chances = found.size_chances
        allowed = chances if max_size is None else chances[tuple(map(slice, max_size))]
        order = np.argsort(-allowed, axis=None, kind="stable")[: max(1, keep)]
        worth = [place for place in order if place == order[0] or allowed.flat[place] >= WORTH_A_FIT]
        sizes = [tuple(int(each) + 1 for each in np.unravel_index(place, allowed.shape)) for place in worth]
        fitted = {visit.size for visit in visits}
        return next((size for size in sizes if size not in fitted), None)


def _log_mass_beyond(prior: SizePrior, seen: Size, largest: Size) -> float:
    """Return the log of the prior probability of the sizes up to `largest` that are above `seen` in some size variable.

    They are a sum of boxes, one for each variable: sizes above `seen` in it, and up to `seen` in those before it.
    """
    boxes = []
    for variable in range(prior.dimension):
        lower = tuple(seen[variable] + 1 if each == variable else 1 for each in range(prior.dimension))
        upper = tuple((seen if each < variable else largest)[each] + 1 for each in range(prior.dimension))
        boxes.append(prior.log_box(lower, upper))
    return log_sum(boxes)
