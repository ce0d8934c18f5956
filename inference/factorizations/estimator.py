"""The estimator of Poisson factorisations: the best of a few short ascents, climbed to its end.

The generic engine has the same bound at the same state; it holds a table (row, column, factor) of allocations.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.memory import MemoryPlan, Part
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import BaseEstimator, estimator
from lvsearch.inference.factorizations.kernel import (
    CountMatrix,
    Fitted,
    Gammas,
    Priors,
    bound,
    intensities_given,
    sweep,
)
from lvsearch.inference.factorizations.noise import likely_noise, log_noise_integral, log_noise_prior
from lvsearch.models.families import GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.poisson_factorization import PoissonFactorization

SHARP, FIRST_FOLDS = 100.0, 5
"""Shape of the Gammas that a start begins with, and steps of the intensities before these move."""
LOOK = 10
"""Sweeps between two looks at the bound."""
PRUNED_SWEEPS = 2
"""After a factor was left out, before its absence is judged."""
FOLD_SWEEPS, FOLD_TOLERANCE = 500, 1e-8
"""At most, and the relative change of any intensity below which the intensities of given factors have settled."""


@dataclass(frozen=True)
class FactorizationSettings:
    """How hard to try.

    | field | meaning |
    |---|---|
    | `starts` | short ascents from rows drawn at random, of which the best is climbed on |
    | `first_sweeps` | of each of them |
    | `more` | how many factors more, as a share, other ascents have, of which the least needed are dropped in turn |
    | `wide_starts` | of these; the best is climbed on before the first is dropped |
    | `pruning_sweeps` | after each that is dropped |
    | `sweeps` | at most, of the one that is climbed on |
    | `tolerance` | sweeps that gain less than this share of the bound, on average, are the last ones |
    | `wide_tolerance` | the same before the first is dropped |
    """

    starts: int = 8
    first_sweeps: int = 30
    more: float = 0.3
    wide_starts: int = 4
    pruning_sweeps: int = 30
    sweeps: int = 2000
    tolerance: float = 1e-7
    wide_tolerance: float = 1e-6


class FactorizationEstimator(BaseEstimator):
    """Fits `PoissonFactorization`."""

    model: PoissonFactorization

    def __init__(
        self, model: PoissonFactorization, data: Dataset, settings: FactorizationSettings = FactorizationSettings()
    ):
        """Raises ValueError for cells that are no counts."""
        super().__init__(model)
        self.settings = settings
        self.counts = counts_of_rows(model, data)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """CountMatrix and their mask, and as much again while a sweep works; four tables of each site."""
        (n_rows, n_dims), cell = self.counts.x.shape, 8
        return MemoryPlan(
            (
                Part("counts", 5 * cell * n_rows * n_dims),
                Part("beliefs about rows", 4 * cell * n_rows * size[0]),
                Part("beliefs about factors", 4 * cell * n_dims * size[0]),
            )
        )

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """The best of ascents from rows drawn at random, of one from more rows than factors, and, where there is one,
        from another size's factors and new ones."""
        (n_factors,), settings = size, self.settings
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        priors = priors_of(self.model, n_factors)
        begins = [self._drawn(n_factors, random) for _ in range(settings.starts if n_factors > 1 else 1)]
        if start is not None:
            kept, new = factors_of(start).mean[:n_factors], self._drawn(max(0, n_factors - start.size[0]), random)
            begins.append(np.concatenate([kept, new]))
        first = [self._first(priors, factors) for factors in begins]
        if n_factors > 1:
            first.append(self._pruned(n_factors, random))
        best = max(first, key=lambda each: self._value(priors, each))
        best, more = self._climbed(priors, best, settings.tolerance)
        sweeps = settings.first_sweeps * len(begins) + more
        leaves: list[Any] = [best.fitted.factors.shape - 1, best.fitted.factors.rate]
        natural = {"factors": GammaStatistics(*(leaf.astype(np.float32) for leaf in leaves))}
        estimate = Estimate(
            self.model.with_noise_shape(best.counts.noise_shape), size, natural, -np.inf, np.inf, sweeps
        )
        return estimate._replace(log_lower=self._exact_bound(estimate, priors, best))

    def _drawn(self, n_factors: int, random: np.random.Generator) -> np.ndarray:
        """Factors that are rows drawn at random, each beside as much of the mean row and unevenly so; (factor, dim)."""
        x, seen = self.counts.x, self.counts.seen
        mean = (x.sum(0) + 1e-3) / (seen.sum(0) + 1e-3)
        rows = random.permutation(len(x))[np.arange(n_factors) % len(x)]
        totals = x[rows].sum(1, keepdims=True)
        alike = np.where(totals > 0, x[rows] * mean.sum() / np.maximum(totals, 1), mean)
        return 0.5 * (alike + mean) * random.uniform(0.5, 1.5, (n_factors, x.shape[1]))

    def _first(self, priors: Priors, factors: np.ndarray) -> "Climbed":
        """A short ascent from these factors, at first as good as known."""
        shape, counts = (len(self.counts.x), len(factors)), self.counts
        intensities = Gammas(np.ones(shape), np.full(shape, float(shape[1])))
        sharp = Gammas(np.full(factors.shape, SHARP), SHARP / factors)
        for _ in range(FIRST_FOLDS):
            geometric = sharp.geometric_mean
            intensities = intensities_given(counts, priors.intensity, intensities, geometric, sharp.mean)
        return self._swept(priors, Climbed(counts, Fitted(intensities, sharp)), self.settings.first_sweeps)

    def _climbed(self, priors: Priors, climbed: "Climbed", tolerance: float) -> tuple["Climbed", int]:
        """Further, until sweeps gain less than this share of the bound; and how many sweeps that took."""
        last = self._value(priors, climbed)
        for sweeps in range(LOOK, self.settings.sweeps + 1, LOOK):
            climbed = self._swept(priors, climbed, LOOK)
            now = self._value(priors, climbed)
            if now - last < LOOK * tolerance * abs(now):
                return climbed, sweeps
            last = now
        return climbed, self.settings.sweeps

    def _swept(self, priors: Priors, climbed: "Climbed", sweeps: int) -> "Climbed":
        """So many sweeps further, and the noise that goes with where they end."""
        counts, fitted = climbed.swept(priors, sweeps)
        if isinstance(self.model.noise_shape, GammaPrior):
            counts = counts._replace(noise_shape=likely_noise(counts, self.model.noise_shape, fitted))
        return Climbed(counts, fitted)

    def _value(self, priors: Priors, climbed: "Climbed") -> float:
        """The bound given the noise, and the log of its prior's density where it has one; nats."""
        counts, fitted = climbed
        value = bound(counts, priors, fitted)
        if isinstance(self.model.noise_shape, GammaPrior):
            assert counts.noise_shape is not None  # where r has a prior it has a value
            value += float(log_noise_prior(self.model.noise_shape, np.log(counts.noise_shape)))
        return value

    def _pruned(self, n_factors: int, random: np.random.Generator) -> "Climbed":
        """The best of ascents with too many factors, of which one at a time is dropped: the one without which the bound
        is highest after two sweeps. What two factors shared in random starts is free for what none of them had."""
        settings = self.settings
        wide = n_factors + max(1, round(settings.more * n_factors))
        priors = priors_of(self.model, wide)
        first = [self._first(priors, self._drawn(wide, random)) for _ in range(settings.wide_starts)]
        climbed = max(first, key=lambda each: self._value(priors, each))
        climbed, _ = self._climbed(priors, climbed, settings.wide_tolerance)
        for size in range(wide - 1, n_factors - 1, -1):
            priors = priors_of(self.model, size)
            without = [climbed.without(k).swept(priors, PRUNED_SWEEPS) for k in range(size + 1)]
            climbed = max(without, key=lambda each, priors=priors: self._value(priors, each))
            climbed = self._swept(priors, climbed, settings.pruning_sweeps)
        return climbed

    def _exact_bound(self, estimate: Estimate, priors: Priors, climbed: "Climbed") -> float:
        """The bound at exactly the factors of the estimate, intensities settled at their optimum there, and the shape
        of the noise integrated over its prior where it has one; nats."""
        counts, factors = climbed.counts, factors_of(estimate)
        intensities = climbed.fitted.intensities
        fitted = Fitted(settled(counts, priors.intensity, intensities, factors.geometric_mean, factors.mean), factors)
        value = bound(counts, priors, fitted)
        if isinstance(self.model.noise_shape, GammaPrior):
            value += log_noise_integral(counts, self.model.noise_shape, fitted)
        return value


class Climbed(NamedTuple):
    """The counts with the shape of their noise, and q."""

    counts: CountMatrix
    fitted: Fitted

    def swept(self, priors: Priors, sweeps: int) -> "Climbed":
        """So many sweeps further, the noise as it is."""
        fitted = self.fitted
        for _ in range(sweeps):
            fitted = sweep(self.counts, priors, fitted)
        return self._replace(fitted=fitted)

    def without(self, factor: int) -> "Climbed":
        intensities, factors = self.fitted
        return self._replace(
            fitted=Fitted(
                Gammas(*(np.delete(leaf, factor, axis=1) for leaf in intensities)),
                Gammas(*(np.delete(leaf, factor, axis=0) for leaf in factors)),
            )
        )


def counts_of_rows(model: PoissonFactorization, data: Dataset) -> CountMatrix:
    """The matrix in the order of the data set, the shape of its noise at its prior's mean where it has one. Raises
    ValueError for cells that are no counts."""
    units, _ = rows_of(data)
    model.check(units)
    noise = model.noise_shape
    if noise is not None:
        noise = float(noise.shape / noise.rate if isinstance(noise, GammaPrior) else noise)
    return CountMatrix(np.where(units.observed, units.value, 0.0), np.asarray(units.observed, np.float64), noise)


def priors_of(model: PoissonFactorization, n_factors: int) -> Priors:
    """As arrays that broadcast."""
    a, c = (np.asarray(each, np.float64) for each in (model.concentration, model.factor_concentration))
    rate = np.asarray(model.factor_rate(), np.float64)
    return Priors(Gammas(a / n_factors, a), Gammas(c, rate))


def factors_of(estimate: Estimate) -> Gammas:
    """q of the factors, (factor, dim), float64."""
    shape, rate = (np.asarray(leaf, np.float64) for leaf in estimate.natural["factors"])
    return Gammas(shape + 1, rate)


def settled(data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray) -> Gammas:
    """The intensities at their optimum given the factors."""
    for _ in range(FOLD_SWEEPS):
        new = intensities_given(data, prior, intensities, geometric, mean)
        done = np.allclose(new.mean, intensities.mean, rtol=FOLD_TOLERANCE, atol=FOLD_TOLERANCE)
        intensities = new
        if done:
            break
    return intensities


@estimator.register
def _(model: PoissonFactorization, data: Dataset) -> FactorizationEstimator:
    return FactorizationEstimator(model, data)
