"""The estimator of images with captions: clusters of regions to start from, then tiled coordinate ascent.

Marginal (emissions with priors): variational Bayes. Plug-in (emissions at a point): variational EM, the weight α_k of
every factor by Newton in each pass (§4.1.3, "Empirical and variational Bayes"). Every bound that is handed out is one
more pass in float64 at exactly the globals of the estimate.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.annotation.seeds import cluster, described_regions
from lvsearch.inference.compiles import counted
from lvsearch.inference.data import Dataset
from lvsearch.inference.empirical_bayes import newton_dirichlet, newton_symmetric
from lvsearch.inference.estimator import (
    Described,
    Estimate,
    beliefs_of,
    capacity_of,
    cut_axes,
    describe_units,
    estimator,
    pad_axes,
    point_of,
    resident_plan,
)
from lvsearch.inference.meanfield import (
    Beliefs,
    blank_globals,
    cast,
    globals_bound,
    unit_bound,
    update_globals,
)
from lvsearch.inference.memory import Chunks, MemoryPlan, machine_chunks
from lvsearch.inference.tiled import Tile, blank_tile, cut_into_tiles, gather, settled_tile, tile_step
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.contract import Masks, Statistics
from lvsearch.models.emissions import Multinomial
from lvsearch.models.families import IndicatorFamily

FINAL_SWEEPS = 3
UNIT_SWEEPS, UNIT_TOLERANCE = 100, 1e-4


@dataclass(frozen=True)
class AnnotationSettings:
    """How hard to try. `tolerance`: nats per image and pass. `token_spread`, `feature_spread`: how much of a region's
    start is not its cluster's but dealt at random to all factors: tokens in one factor alone would stay there."""

    passes: int = 100
    trial_passes: int = 5
    sweeps: int = 2
    tolerance: float = 1e-4
    token_spread: float = 0.3
    feature_spread: float = 0.0


class AnnotationEstimator:
    """Fits an `AnnotatedModel` to images with captions.

    empirical_bayes: in the marginal form, refit the word emission's concentration in every pass (§4.2.2: "maximum
    likelihood estimates of the corresponding hyperparameter").
    """

    shrinks = False

    def __init__(
        self,
        model: AnnotatedModel,
        data: Dataset,
        settings: AnnotationSettings = AnnotationSettings(),
        empirical_bayes: bool = False,
    ):
        self.model, self.data, self.settings, self.empirical_bayes = model, data, settings, empirical_bayes
        self.plug_in = model.words.concentration is None
        self.chunks = machine_chunks()
        self._described = described_regions(data)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Coarse: as if all units' beliefs were held as the generic engine holds them."""
        return resident_plan(self.model, self.data, size, capacity_of(size))

    def with_chunks(self, chunks: Chunks) -> "AnnotationEstimator":
        """Itself, but for what `chunks` says: tiles are small already."""
        other = copy(self)
        other.chunks = chunks
        return other

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """From clusters of regions; or, where that is better after a few passes, from the factors of `start` and, for
        the others, clusters."""
        capacity = capacity_of(size)
        model = self._sized(size, capacity)
        tiles = tiles_of(model, cast(self.data, np.float32), capacity)
        scratch = self._clustered(model, size, capacity, key)
        begun = [scratch] if start is None else [scratch, _with_factors_of(model, scratch, start, size, capacity)]
        states = [
            _State(model, b, [blank_tile(model, t.batch, size, capacity=capacity) for t in tiles], ()) for b in begun
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

    def _ascend(
        self, state: "_State", tiles: tuple[Tile, ...], size: tuple[int, ...], capacity: tuple[int, ...], passes: int
    ) -> "_State":
        """More passes, until one gains too little."""
        model, beliefs, trace, l = state.model, state.beliefs, list(state.trace), list(state.locals)
        for _ in range(passes):
            statistics, bounds = jax.tree.map(jnp.zeros_like, beliefs.mean), []
            for index, tile in enumerate(tiles):
                step = tile_step(
                    model,
                    beliefs.mean,
                    tile.batch,
                    l[index],
                    statistics,
                    size,
                    capacity=capacity,
                    sweeps=self.settings.sweeps,
                )
                l[index], statistics = step.locals, step.total
                bounds.append(step.bounds)
            total = float(globals_bound(model, beliefs, size, capacity=capacity)) + _weighted_sum(tiles, bounds)
            trace.append(total)
            if len(trace) > 1 and abs(trace[-1] - trace[-2]) < self.settings.tolerance * self.data.n_units:
                break
            beliefs = update_globals(model, beliefs, statistics, size, capacity=capacity)
            model = self._refitted(model, beliefs, tiles, l, size)
        return _State(model, beliefs, l, tuple(trace))

    # -- starts -----------------------------------------------------------------------------------------------------

    def _sized(self, size: tuple[int, ...], capacity: tuple[int, ...]) -> AnnotatedModel:
        """With one α per factor where α is to be estimated: as many as the capacity, so that sizes share programs."""
        model = self.model
        if not self.plug_in or model.whole_images:
            return model
        alpha = np.full(capacity[0], float(np.sum(model.concentration)) / size[0])
        if np.ndim(model.concentration):
            alpha[: size[0]] = model.concentration
        return model.with_parts(alpha, model.words, model.regions)

    def _clustered(
        self, model: AnnotatedModel, size: tuple[int, ...], capacity: tuple[int, ...], key: Array
    ) -> Beliefs:
        """The globals that follow from regions put into clusters."""
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        blank = blank_globals(model, self.data.extents, size, capacity)
        statistics = jax.tree.map(np.zeros_like, blank.mean)
        shares = self._region_shares(size[0], random)
        for batch, share in zip(cast(self.data, np.float32).batches, shares, strict=True):
            wide = np.pad(share, ((0, 0), (0, 0), (0, capacity[0] - size[0])))
            added = _start_statistics(model, blank.mean, batch.units, batch.weight, wide)
            statistics = jax.tree.map(np.add, statistics, jax.tree.map(np.asarray, added))
        return update_globals(model, blank, statistics, size, capacity=capacity)

    def _region_shares(self, n_factors: int, random: np.random.Generator) -> list[Float[np.ndarray, "image region _"]]:
        """How much of each region starts in each factor: most of it in that of its cluster, or of its image's."""
        present = [batch.units.present for batch in self.data.batches]
        if self.model.whole_images:
            points = [
                d.sum(1) / np.maximum(p.sum(1, keepdims=True), 1) for d, p in zip(self._described, present, strict=True)
            ]
        else:
            points = [d[p] for d, p in zip(self._described, present, strict=True)]
        joined = np.concatenate(points)
        found = cluster(joined, n_factors, random) if len(joined) else np.zeros(0, np.int64)
        features = self.data.batches[0].units.regions.ndim == 3
        spread = self.settings.feature_spread if features else self.settings.token_spread
        shares, offset = [], 0
        for p, here in zip(present, points, strict=True):
            share = spread * random.dirichlet(np.ones(n_factors), size=len(here))
            share[np.arange(len(here)), found[offset : offset + len(here)]] += 1 - spread
            offset += len(here)
            whole = np.zeros((*p.shape, n_factors), np.float32)
            if self.model.whole_images:
                whole[:] = share[:, None, :]
            else:
                whole[p] = share
            shares.append(whole)
        return shares

    # -- hyper-parameters -------------------------------------------------------------------------------------------

    def _refitted(
        self, model: AnnotatedModel, beliefs: Beliefs, tiles: tuple[Tile, ...], l: list[Any], size: tuple[int, ...]
    ) -> AnnotatedModel:
        if self.plug_in and not model.whole_images:
            total = np.zeros(size[0])
            for tile, means in zip(tiles, l, strict=True):
                log_theta = np.asarray(means["proportions"], np.float64)[:, : size[0]]
                total += log_theta[tile.unit_ids >= 0].sum(0)
            alpha = np.array(model.concentration, np.float64)
            alpha[: size[0]] = newton_dirichlet(alpha[: size[0]], total / self.data.n_units)
            return model.with_parts(alpha, model.words, model.regions)
        concentration = model.words.concentration
        if self.empirical_bayes and concentration is not None:
            log_beta = np.asarray(beliefs.mean["factor_word"], np.float64)[: size[0]]
            entries = log_beta.shape[1]
            total = newton_symmetric(float(concentration) * entries, entries, float(log_beta.sum(1).mean()))
            words = Multinomial(np.asarray(total / entries), "word")
            return model.with_parts(model.concentration, words, model.regions)
        return model


class _State(NamedTuple):
    """A fit on its way: `trace` holds the bound after the local step of every pass, nats."""

    model: AnnotatedModel
    beliefs: Beliefs
    locals: list[Any]
    trace: tuple[float, ...]


def _with_factors_of(
    model: AnnotatedModel, beliefs: Beliefs, start: Estimate, size: tuple[int, ...], capacity: tuple[int, ...]
) -> Beliefs:
    """The first factors replaced by those of a smaller fit."""
    kept = np.arange(capacity[0]) < min(start.size[0], size[0])

    def choose(new: Array, old: np.ndarray) -> np.ndarray:
        return np.where(kept.reshape([-1] + [1] * (new.ndim - 1)), old, np.asarray(new))

    padded = pad_axes(model, start.natural, start.size, capacity)
    natural = {name: jax.tree.map(choose, beliefs.natural[name], padded[name]) for name in beliefs.natural}
    return beliefs_of(model, natural, size, capacity=capacity)


class _Shares(NamedTuple):
    """Caption words' and regions' shares of each factor, weighted by their image's weight."""

    regions: Array
    words: Array


@jax.jit
@counted
def _start_statistics(
    model: AnnotatedModel, g: dict[str, Statistics], units: Any, weight: Any, share: Any
) -> dict[str, Statistics]:
    """What regions and words add to the natural parameters when they belong to factors by these shares: a word to those
    of all its image's regions."""
    present = jnp.asarray(units.present)
    n_regions = jnp.maximum(present.sum(1), 1)
    image = jnp.where(present[..., None], share, 0).sum(1) / n_regions[:, None]  # (image, factor)
    weighted = _Shares(jnp.where(present[..., None], share, 0) * weight[:, None, None], image * weight[:, None])

    def log_emissions(parameters: dict[str, Statistics]) -> Array:
        regions = jax.vmap(lambda unit: model.log_regions(parameters, unit))(units)
        words = jax.vmap(lambda unit: model.log_words(parameters, unit).sum(0))(units)
        return (weighted.regions * regions).sum() + (weighted.words * words).sum()

    statistics = jax.grad(log_emissions)({**g})
    if "weights" in g:
        statistics = {**statistics, "weights": weighted.words.sum(0)}
    return statistics


def tiles_of(model: AnnotatedModel, data: Dataset, capacity: tuple[int, ...]) -> tuple[Tile, ...]:
    """Tiles whose largest local site is that of the regions' factors."""
    longest = max(batch.units.present.shape[1] for batch in data.batches)
    return cut_into_tiles(data, longest * capacity[0])


def double_bound(
    model: AnnotatedModel,
    natural: dict[str, Statistics],
    tiles: tuple[Tile, ...],
    l: list[Any],
    size: tuple[int, ...],
    capacity: tuple[int, ...],
) -> float:
    """The bound in float64 at exactly these globals, the locals brought to them by a few sweeps, in nats."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), pad_axes(model, natural, size, capacity))
        beliefs = beliefs_of(model, wide, size, capacity=capacity)
        total = float(globals_bound(model, beliefs, size, capacity=capacity))
        done = [
            settled_tile(
                model,
                beliefs.mean,
                _double(tile.batch),
                _double(means),
                size,
                0.0,
                FINAL_SWEEPS,
                capacity=capacity,
                summary=everything,
            ).bound
            for tile, means in zip(tiles, l, strict=True)
        ]
    return total + _weighted_sum(tiles, done)


def _weighted_sum(tiles: tuple[Tile, ...], per_unit: list[Any]) -> float:
    """Summed in float64."""
    pairs = zip(tiles, per_unit, strict=True)
    return sum(float(np.asarray(values, np.float64) @ tile.batch.weight.astype(np.float64)) for tile, values in pairs)


def _double(tree: Any) -> Any:
    def convert(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(convert, tree)


@estimator.register
def _(model: AnnotatedModel, data: Dataset) -> AnnotationEstimator:
    return AnnotationEstimator(model, data)


# ── what a fitted model says about images ───────────────────────────────────────────────────────────────────────────


class About(NamedTuple):
    """One image, given the parameters; leading axis images. `bound` in nats, the others shares of the factors.

    | field | of what |
    |---|---|
    | `representation` | the image (its proportions or, for the mixture, p(factor | image)) |
    | `next_word` | one more caption word |
    | `regions` | (region, factor) each region |
    | `words`, `absent` | () caption words; how many have a most probable factor that is no region's |
    """

    bound: Any
    representation: Any
    next_word: Any
    regions: Any
    words: Any
    absent: Any


def everything(model: Any, g: Any, unit: Any, beliefs: Beliefs, on: Masks) -> About:
    """All that is ever asked of an image: one function, so that one program serves all questions."""
    points = dict(beliefs.mean)
    for name, site in model.locals().items():
        if site.axes == ("factor",):
            points[name] = site.family.point(beliefs.natural[name], on["factor"])
    site = model.locals()[model.representation]
    point = points[model.representation]
    indicator = isinstance(site.family, IndicatorFamily)  # its expected value is a probability already
    regions, words = model.region_factor(beliefs.mean, unit), model.word_factor(beliefs.mean, unit)
    here = jnp.where(jnp.asarray(unit.present), regions.argmax(-1), -1)
    missing = ~(words.argmax(-1)[:, None] == here[None, :]).any(-1)
    counts = jnp.asarray(unit.counts)
    return About(
        unit_bound(model, g, unit, beliefs, on),
        point if indicator else site.family.value(point, on["factor"]),
        model.next_word_factor(points, unit),
        regions,
        counts.sum(),
        jnp.where(missing, counts, 0).sum(),
    )


def about_images(estimate: Estimate, data: Dataset) -> list[tuple[Tile, About]]:
    """What is asked of images, with the parameters at their posterior means, in float64: a pair for each tile."""
    model, size = estimate.model, estimate.size
    if not isinstance(model, AnnotatedModel):
        raise ValueError(f"{type(model).__name__} has no captions; expected GMMixture, GMLDA or CorrLDA")
    capacity = capacity_of(size)
    if np.ndim(model.concentration):  # one program for all sizes of one capacity
        alpha = np.pad(model.concentration, (0, capacity[0] - size[0]), constant_values=1.0)
        model = model.with_parts(alpha, model.words, model.regions)
    pairs = []
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), pad_axes(model, estimate.natural, size, capacity))
        point = point_of(model, wide, size, capacity=capacity)
        for tile in tiles_of(model, data, capacity):
            batch = _double(tile.batch)
            blank = blank_tile(model, batch, size, capacity=capacity)
            done = settled_tile(
                model,
                point,
                batch,
                blank,
                size,
                UNIT_TOLERANCE,
                UNIT_SWEEPS,
                capacity=capacity,
                summary=everything,
            )
            pairs.append((tile, jax.tree.map(np.asarray, done)))
    return pairs


@describe_units.register
def _(model: AnnotatedModel, estimate: Estimate, data: Dataset) -> Described:
    """Shares of the factors (images, K), and a lower bound on log p(regions, caption | parameters)."""
    tiles, about = zip(*about_images(estimate, data), strict=True)
    values = gather(tiles, [a.representation for a in about], data.n_units)
    return Described(values[:, : estimate.size[0]], gather(tiles, [a.bound for a in about], data.n_units))
