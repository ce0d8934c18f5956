"""The estimator of images with captions: starts from clusters of regions, then coordinate ascent tile by tile.

In the marginal form (factors with priors) this is variational Bayes. In the plug-in form (factors as point estimates)
it is variational EM. The concentration α_k of every factor is then refitted by Newton's method in each pass (§4.1.3,
"Empirical and variational Bayes"). Every reported bound is one more pass in float64 at exactly the global parameters of
the estimate.

A fit begins with collapsed passes, in which the proportions are integrated out (`collapsed_sweep`). Source: Asuncion,
Welling, Smyth & Teh (2009), *On smoothing and inference for topic models*. In the exact conditional of a factor's
indicator, counts are replaced by their expected values:

    q(z_n = k) ∝ exp(∂ log-joint / ∂ z_nk, without log θ) · (α_k + Σ_{n' ≠ n} q(z_n' = k)),

where n' runs over all things of the image that have a factor. Parameters are taken at their posterior means. These
updates do not ascend the evidence bound. But they commit later than mean field does, whose exp(E[log θ]) is far too
sure of itself where images have few regions. Fits that start with such passes end at higher bounds.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.annotation.predictions import captioned_beliefs
from lvsearch.inference.annotation.starts import beliefs_from_clusters, describe_regions, replace_factors
from lvsearch.inference.annotation.tiles import blank_tile, settled_tile, tile_step, tiles_of, to_float64, weighted_sum
from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.images import has_tokens
from lvsearch.inference.engine.empirical_bayes import newton_dirichlet, newton_symmetric
from lvsearch.inference.engine.estimate import Estimate, capacity_of, cut_axes, point_of, recorded_beliefs_and_bound
from lvsearch.inference.engine.estimator import BaseEstimator, MemoryPlan, resident_plan
from lvsearch.inference.engine.meanfield import (
    Beliefs,
    batch_log_joint,
    cast,
    expected_statistics,
    globals_bound,
    sweep_site,
    unit_masks,
    update_globals,
)
from lvsearch.inference.sharding import on_host, units_of
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.components import MultinomialComponents
from lvsearch.models.contract import Latents, Masks, Site, Statistics
from lvsearch.models.kernels import kernel
from lvsearch.models.units import AnnotatedImage


class Counted(NamedTuple):
    """The result of one collapsed step on a tile of images (a few images that are worked on together).

    | field | meaning |
    |---|---|
    | `locals` | the expected statistics of the images' latent variables, by name, images leading |
    | `total` | the global parameters' natural parameters by name, with the tile's part added |
    """

    locals: Any
    total: dict[str, Statistics]


def collapsed_sweep(
    model: AnnotatedModel, g: Latents, unit: AnnotatedImage, l: dict[str, Statistics], on: Masks
) -> dict[str, Statistics]:
    """Return the expected statistics of an image's latent variables after one update of each except its proportions.

    The statistics of the proportions are neither read nor changed.

    g: {global parameter: expected statistics}.
    unit: the image with its caption.
    l: {latent variable of the image: expected statistics}.
    on: {axis: mask of the entries that exist}.
    """
    exists = unit_masks(model, unit, on)
    alpha = model.alpha(on)

    def log_joint(means: Latents) -> Array:
        """Return the image's log-joint in nats without its proportions, whose statistics are set to 0."""
        without_theta = {**means, model.representation: jnp.zeros_like(means[model.representation])}
        return model.log_unit(g, without_theta, unit, exists)

    for name, site in model.locals().items():
        if name == model.representation:
            continue
        if site.axes[-1] != "factor":
            l = sweep_site(site, name, Beliefs(l, l), log_joint, unit, exists).mean  # an ordinary mean-field update
            continue
        # the formula above, per copy of an element; α_k + counts is taken without the element itself
        copies = _copies(site, unit, l[name])
        gradient = jax.grad(lambda m, n=name, here=l: log_joint({**here, n: m}))(l[name])
        per_copy = jnp.where(copies > 0, gradient / jnp.where(copies > 0, copies, 1), 0)
        weight = alpha + factor_counts(model, unit, l) - l[name]
        natural = per_copy + jnp.log(jnp.where(exists["factor"], jnp.maximum(weight, alpha), 1))
        mean = jnp.where(exists["factor"], jax.nn.softmax(natural, where=exists["factor"]), 0)
        l = {**l, name: jnp.where(copies > 0, mean, 0)}
    return l


def factor_counts(model: AnnotatedModel, unit: AnnotatedImage, l: Latents) -> Array:
    """Return the expected number of an image's regions and caption words in each factor, (factor,).

    unit: the image with its caption.
    l: {latent variable of the image: expected statistics}.
    """
    sites = [(site, l[name]) for name, site in model.locals().items() if name != model.representation]
    of_factors = [(_copies(site, unit, mean) * mean).sum(0) for site, mean in sites if site.axes[-1] == "factor"]
    return jnp.stack(of_factors).sum(0)


def _copies(site: Site, unit: AnnotatedImage, mean: Array) -> Array:
    """Return how often each element of a latent variable occurs in an image, (element, 1).

    Elements are regions, of which absent ones occur 0 times, caption words, which occur as often as they are counted,
    or others, which occur once.

    mean: the variable's expected statistics, which give the number of elements and the floating type.
    """
    if site.axes[0] == "region":
        return jnp.asarray(unit.present)[:, None].astype(mean.dtype)
    return jnp.asarray(unit.counts)[:, None] if site.copies is not None else jnp.ones((len(mean), 1), mean.dtype)


@units_of("batch", "l")
@kernel(static_argnames=("capacity", "sweeps"), brief=True)
@counted
def collapsed_step(
    model: AnnotatedModel,
    g: dict[str, Statistics],
    batch: Batch,
    l: Any,
    total: dict[str, Statistics],
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
    sweeps: int,
) -> Counted:
    """Make `sweeps` collapsed sweeps over the images of a tile, then update their proportions given the factors.

    g: {global parameter: expected statistics}, at which the parameters stay.
    batch: the images of the tile.
    l: {latent variable: expected statistics} of the images before, images leading.
    total: the natural parameters of the global parameters, to which the images' part is added.
    size, capacity: how many factors exist, and how many array slots there are for them.
    sweeps: the number of sweeps.
    """
    on = model.active(size, capacity)
    proportions = model.locals()[model.representation]

    def update_proportions(unit: AnnotatedImage, means: dict[str, Statistics]) -> dict[str, Statistics]:
        """Set an image's proportions to their expected statistics given its factors."""
        natural = model.alpha(on) + factor_counts(model, unit, means) - 1
        return {**means, model.representation: expected_statistics(proportions, natural, on)}

    sweep = jax.vmap(lambda unit, here: collapsed_sweep(model, g, unit, here, on))
    means = jax.lax.fori_loop(0, sweeps, lambda _, here: sweep(batch.units, here), l)
    means = jax.vmap(update_proportions)(batch.units, means)
    added = jax.grad(lambda globals_: batch_log_joint(model, globals_, batch, means, on))(g)
    return Counted(means, jax.tree.map(jnp.add, total, added))


FINAL_SWEEPS = 3


@dataclass(frozen=True)
class AnnotationSettings:
    """Settings of the estimator: effort and stopping rules.

    | field | meaning |
    |---|---|
    | `passes` | the most passes of coordinate ascent |
    | `collapsed_passes` | passes with the proportions integrated out that come first, for regions that are tokens |
    | `trial_passes` | passes after which the better of two starts is chosen |
    | `sweeps` | sweeps over an image in a pass |
    | `tolerance` | nats per image; a pass that changes the bound by less is the last one |
    | `token_spread`, `feature_spread` | the share of a region's start that is dealt at random to all factors |

    The rest of a region starts in the factor of its cluster. A token that started in one factor alone would stay there.
    """

    passes: int = 100
    collapsed_passes: int = 40
    trial_passes: int = 5
    sweeps: int = 2
    tolerance: float = 1e-4
    token_spread: float = 0.3
    feature_spread: float = 0.0


class AnnotationEstimator(BaseEstimator):
    """An estimator that fits an `AnnotatedModel` to images with captions, at any number of factors.

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
        """Keep the model and the images, and describe regions for the clustering that fits start from.

        settings: the effort of a fit and its stopping rules.
        empirical_bayes: whether to refit the concentration of the words' prior in every pass. It needs the marginal
            form of the model, in which factors have priors; with `model.words.estimated` they are point estimates.

        Raises ValueError for images that the model cannot take.
        """
        super().__init__(model)
        self.data, self.settings, self.empirical_bayes = data, settings, empirical_bayes
        self.plug_in = model.words.estimated
        for batch in data.batches:
            model.check(batch.units)
        self._described = describe_regions(data)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return a coarse plan of a fit's memory: as if the beliefs about all images were held at once.

        size: the number of factors.
        """
        return resident_plan(self.model, self.data, size, capacity_of(size))

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit from clusters of regions, or from the factors of `start` if those do better after a few passes.

        Factors that `start` does not have begin with clusters.

        size: the number of factors.
        key: the random key of the clustering.
        start: the fit of a smaller size; None starts from clusters alone.
        """
        capacity = capacity_of(size)
        model = self._model_for_size(size, capacity)
        tiles = tiles_of(cast(self.data, np.float32), capacity)
        spread = self.settings.token_spread if has_tokens(self.data) else self.settings.feature_spread
        # every start goes through the collapsed passes; of several, the best after a few passes is continued
        scratch = beliefs_from_clusters(model, self.data, self._described, size, capacity, key, spread)
        begun = [scratch] if start is None else [scratch, replace_factors(model, scratch, start, size, capacity)]
        blanks = [blank_tile(model, tile, size, capacity=capacity) for tile in tiles.batches]
        states = [
            self._collapsed_passes(_FitState(model, beliefs, blanks, ()), tiles, size, capacity) for beliefs in begun
        ]
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

    def _collapsed_passes(
        self, state: "_FitState", tiles: Dataset, size: tuple[int, ...], capacity: tuple[int, ...]
    ) -> "_FitState":
        """Make the passes with proportions integrated out that come first, if the model has proportions and regions are
        tokens.

        state: the fit in progress.
        tiles: the images in tiles.
        size, capacity: how many factors exist, and how many array slots there are for them.

        Returns: the fit in progress with an empty trace.
        """
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
        return _FitState(model, beliefs, l, ())

    def _ascend(
        self,
        state: "_FitState",
        tiles: Dataset,
        size: tuple[int, ...],
        capacity: tuple[int, ...],
        passes: int,
    ) -> "_FitState":
        """Make up to `passes` passes of coordinate ascent, until one changes the bound by less than the tolerance.

        state: the fit in progress.
        tiles: the images in tiles.
        size, capacity: how many factors exist, and how many array slots there are for them.
        """
        model, beliefs, trace, l = state.model, state.beliefs, list(state.trace), list(state.locals)
        for _ in range(passes):
            # the bound of a pass is that before the parameters are updated: at the beliefs of the local step
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
            model = self._refit_hyperparameters(model, beliefs, tiles, l, size)
        return _FitState(model, beliefs, l, tuple(trace))

    # -- hyper-parameters -------------------------------------------------------------------------------------------

    def _model_for_size(self, size: tuple[int, ...], capacity: tuple[int, ...]) -> AnnotatedModel:
        """Return the model to fit at one size: with a concentration α for each factor if α is to be estimated.

        There is one α for each of the `capacity` array slots, so that sizes share compiled programs.
        """
        model = self.model
        if not self.plug_in or model.whole_images:
            return model
        alpha = np.full(capacity[0], float(np.sum(model.concentration)) / size[0])
        if np.ndim(model.concentration):
            alpha[: size[0]] = model.concentration
        return model.with_parts(alpha, model.words, model.regions)

    def _refit_hyperparameters(
        self, model: AnnotatedModel, beliefs: Beliefs, tiles: Dataset, l: list[Any], size: tuple[int, ...]
    ) -> AnnotatedModel:
        """Return the model with its concentrations refitted to the current beliefs by Newton's method.

        beliefs: q of the global parameters.
        tiles: the images in tiles.
        l: the expected statistics of the latent variables of each tile.
        size: the number of factors.
        """
        if self.plug_in and not model.whole_images:  # α by Newton from the mean of E[log θ] over images
            total = np.zeros(size[0])
            for ids, means in zip(tiles.unit_ids, l, strict=True):
                log_theta = on_host(means["proportions"]).astype(np.float64)[:, : size[0]]
                total += log_theta[ids >= 0].sum(0)
            alpha = np.array(model.concentration, np.float64)
            alpha[: size[0]] = newton_dirichlet(alpha[: size[0]], total / self.data.n_units)
            return model.with_parts(alpha, model.words, model.regions)
        if self.empirical_bayes and not model.words.estimated:
            # one concentration for all words, by Newton from the mean of E[log β]
            log_beta = np.asarray(beliefs.mean["factor_word"], np.float64)[: size[0]]
            entries = log_beta.shape[1]
            total = newton_symmetric(float(model.words.concentration) * entries, entries, float(log_beta.sum(1).mean()))
            words = MultinomialComponents(np.asarray(total / entries))
            return model.with_parts(model.concentration, words, model.regions)
        return model


class _FitState(NamedTuple):
    """A fit in progress.

    | field | meaning |
    |---|---|
    | `model` | the model with its present hyper-parameters |
    | `beliefs` | q of the global parameters |
    | `locals` | the expected statistics of the latent variables of each tile of images |
    | `trace` | the bound after the local step of every pass, nats |
    """

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
    """Return the evidence lower bound in float64 at exactly these global parameters, in nats.

    A few sweeps update the beliefs about images first.

    natural: {global parameter: natural parameters of q}, of existing factors only.
    tiles: the images in tiles.
    l: the expected statistics of the latent variables of each tile to start from.
    size, capacity: how many factors exist, and how many array slots there are for them.
    """
    with jax.enable_x64(True):
        beliefs, total = recorded_beliefs_and_bound(model, natural, size, capacity)
        done = [
            settled_tile(
                model,
                beliefs.mean,
                to_float64(tile),
                to_float64(means),
                size,
                0.0,
                FINAL_SWEEPS,
                capacity=capacity,
                summary=captioned_beliefs,
            ).bound
            for tile, means in zip(tiles.batches, l, strict=True)
        ]
    return total + weighted_sum(tiles, done)
