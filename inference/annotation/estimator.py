"""The estimator of images with captions: clusters of regions to start from, then tiled coordinate ascent.

Marginal (factors with priors): variational Bayes. Plug-in (factors at a point): variational EM, the weight α_k of
every factor by Newton in each pass (§4.1.3, "Empirical and variational Bayes"). Every bound that is handed out is one
more pass in float64 at exactly the globals of the estimate.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.annotation.collapsed import collapsed_step
from lvsearch.inference.annotation.describing import everything
from lvsearch.inference.annotation.seeds import described_regions
from lvsearch.inference.annotation.starts import clustered, with_factors_of
from lvsearch.inference.annotation.tiles import double, tiles_of, weighted_sum
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.images import has_tokens
from lvsearch.inference.data.memory import MemoryPlan
from lvsearch.inference.engine.empirical_bayes import newton_dirichlet, newton_symmetric
from lvsearch.inference.engine.estimate import Estimate, capacity_of, cut_axes, point_of, recorded_at
from lvsearch.inference.engine.estimator import BaseEstimator, estimator, resident_plan
from lvsearch.inference.engine.meanfield import Beliefs, cast, globals_bound, update_globals
from lvsearch.inference.engine.tiled import blank_tile, settled_tile, tile_step
from lvsearch.inference.sharding import on_host
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.components import MultinomialComponents
from lvsearch.models.contract import Statistics

FINAL_SWEEPS = 3


@dataclass(frozen=True)
class AnnotationSettings:
    """How hard to try. `tolerance`: nats per image and pass. `token_spread`, `feature_spread`: how much of a region's
    start is not its cluster's but dealt at random to all factors: tokens in one factor alone would stay there."""

    passes: int = 100
    collapsed_passes: int = 40
    trial_passes: int = 5
    sweeps: int = 2
    tolerance: float = 1e-4
    token_spread: float = 0.3
    feature_spread: float = 0.0


class AnnotationEstimator(BaseEstimator):
    """Fits an `AnnotatedModel` to images with captions.

    empirical_bayes: in the marginal form, refit the concentration of the words in every pass (§4.2.2: "maximum
    likelihood estimates of the corresponding hyperparameter").
    """

    model: AnnotatedModel

    def __init__(
        self,
        model: AnnotatedModel,
        data: Dataset,
        settings: AnnotationSettings = AnnotationSettings(),
        empirical_bayes: bool = False,
    ):
        super().__init__(model)
        self.data, self.settings, self.empirical_bayes = data, settings, empirical_bayes
        self.plug_in = model.words.estimated
        for batch in data.batches:
            model.check(batch.units)
        self._described = described_regions(data)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Coarse: as if all units' beliefs were held as the generic engine holds them."""
        return resident_plan(self.model, self.data, size, capacity_of(size))

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """From clusters of regions; or, where that is better after a few passes, from the factors of `start` and, for
        the others, clusters."""
        capacity = capacity_of(size)
        model = self._sized(size, capacity)
        tiles = tiles_of(cast(self.data, np.float32), capacity)
        spread = self.settings.token_spread if has_tokens(self.data) else self.settings.feature_spread
        scratch = clustered(model, self.data, self._described, size, capacity, key, spread)
        begun = [scratch] if start is None else [scratch, with_factors_of(model, scratch, start, size, capacity)]
        blanks = [blank_tile(model, tile, size, capacity=capacity) for tile in tiles.batches]
        states = [self._collapsed(_State(model, beliefs, blanks, ()), tiles, size, capacity) for beliefs in begun]
        if len(states) > 1:
            states = [self._ascend(state, tiles, size, capacity, self.settings.trial_passes) for state in states]
        best = max(states, key=lambda state: state.trace[-1]) if len(states) > 1 else states[0]
        done = self._ascend(best, tiles, size, capacity, self.settings.passes)
        natural = cut_axes(model, done.beliefs.natural, size, capacity)
        lower = double_bound(done.model, natural, tiles, done.locals, size, capacity)
        fitted = done.model
        if np.ndim(fitted.concentration):
            fitted = fitted.with_parts(np.asarray(fitted.concentration)[: size[0]], fitted.words, fitted.regions)
        return Estimate(fitted, size, natural, lower, np.inf, len(done.trace))

    def _collapsed(self, state: "_State", tiles: Dataset, size: tuple[int, ...], capacity: tuple[int, ...]) -> "_State":
        """Passes with the proportions integrated out, for models that have some and regions that are tokens."""
        model, beliefs, l = state.model, state.beliefs, list(state.locals)
        passes = self.settings.collapsed_passes if has_tokens(self.data) and not model.whole_images else 0
        for _ in range(passes):
            point = point_of(model, beliefs.natural, size, capacity=capacity)
            statistics = jax.tree.map(jnp.zeros_like, point)
            for index, tile in enumerate(tiles.batches):
                l[index], statistics = collapsed_step(
                    model, point, tile, l[index], statistics, size, capacity=capacity, sweeps=1
                )
            beliefs = update_globals(model, beliefs, statistics, size, capacity=capacity)
        return _State(model, beliefs, l, ())

    def _ascend(
        self,
        state: "_State",
        tiles: Dataset,
        size: tuple[int, ...],
        capacity: tuple[int, ...],
        passes: int,
    ) -> "_State":
        """More passes, until one gains too little."""
        model, beliefs, trace, l = state.model, state.beliefs, list(state.trace), list(state.locals)
        for _ in range(passes):
            statistics, bounds = jax.tree.map(jnp.zeros_like, beliefs.mean), []
            for index, tile in enumerate(tiles.batches):
                step = tile_step(
                    model,
                    beliefs.mean,
                    tile,
                    l[index],
                    statistics,
                    size,
                    capacity=capacity,
                    sweeps=self.settings.sweeps,
                )
                l[index], statistics = step.locals, step.total
                bounds.append(step.bounds)
            total = float(globals_bound(model, beliefs, size, capacity=capacity)) + weighted_sum(tiles, bounds)
            trace.append(total)
            if len(trace) > 1 and abs(trace[-1] - trace[-2]) < self.settings.tolerance * self.data.n_units:
                break
            beliefs = update_globals(model, beliefs, statistics, size, capacity=capacity)
            model = self._refitted(model, beliefs, tiles, l, size)
        return _State(model, beliefs, l, tuple(trace))

    # -- hyper-parameters -------------------------------------------------------------------------------------------

    def _sized(self, size: tuple[int, ...], capacity: tuple[int, ...]) -> AnnotatedModel:
        """With one α per factor where α is to be estimated: as many as the capacity, so that sizes share programs."""
        model = self.model
        if not self.plug_in or model.whole_images:
            return model
        alpha = np.full(capacity[0], float(np.sum(model.concentration)) / size[0])
        if np.ndim(model.concentration):
            alpha[: size[0]] = model.concentration
        return model.with_parts(alpha, model.words, model.regions)

    def _refitted(
        self, model: AnnotatedModel, beliefs: Beliefs, tiles: Dataset, l: list[Any], size: tuple[int, ...]
    ) -> AnnotatedModel:
        if self.plug_in and not model.whole_images:
            total = np.zeros(size[0])
            for ids, means in zip(tiles.unit_ids, l, strict=True):
                log_theta = on_host(means["proportions"]).astype(np.float64)[:, : size[0]]
                total += log_theta[ids >= 0].sum(0)
            alpha = np.array(model.concentration, np.float64)
            alpha[: size[0]] = newton_dirichlet(alpha[: size[0]], total / self.data.n_units)
            return model.with_parts(alpha, model.words, model.regions)
        if self.empirical_bayes and not model.words.estimated:
            log_beta = np.asarray(beliefs.mean["factor_word"], np.float64)[: size[0]]
            entries = log_beta.shape[1]
            total = newton_symmetric(float(model.words.concentration) * entries, entries, float(log_beta.sum(1).mean()))
            words = MultinomialComponents(np.asarray(total / entries))
            return model.with_parts(model.concentration, words, model.regions)
        return model


class _State(NamedTuple):
    """A fit on its way: `trace` holds the bound after the local step of every pass, nats."""

    model: AnnotatedModel
    beliefs: Beliefs
    locals: list[Any]
    trace: tuple[float, ...]


def double_bound(
    model: AnnotatedModel,
    natural: dict[str, Statistics],
    tiles: Dataset,
    l: list[Any],
    size: tuple[int, ...],
    capacity: tuple[int, ...],
) -> float:
    """The bound in float64 at exactly these globals, the locals brought to them by a few sweeps, in nats."""
    with jax.enable_x64(True):
        beliefs, total = recorded_at(model, natural, size, capacity)
        done = [
            settled_tile(
                model,
                beliefs.mean,
                double(tile),
                double(means),
                size,
                0.0,
                FINAL_SWEEPS,
                capacity=capacity,
                summary=everything,
            ).bound
            for tile, means in zip(tiles.batches, l, strict=True)
        ]
    return total + weighted_sum(tiles, done)


@estimator.register
def _(model: AnnotatedModel, data: Dataset) -> AnnotationEstimator:
    return AnnotationEstimator(model, data)
