"""The estimator of Poisson factorisations: several short ascents, of which the best is continued to convergence.

The generic mean field (`engine`) computes the same bound at the same state. But it holds an array (row, column, factor)
of allocations, the shares of each cell's counts that factors have.
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
    log_noise_integral,
    log_noise_prior,
    most_probable_noise,
    sweep,
    update_intensities,
)
from lvsearch.models.families import GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.poisson_factorization import PoissonFactorization

SHARP, FIRST_FOLDS = 100.0, 5
"""The shape of the Gammas of the factors at a start, and how often intensities are updated before the factors move."""
LOOK = 10
"""The number of sweeps between two evaluations of the bound."""
PRUNED_SWEEPS = 2
"""The number of sweeps after a factor is left out, before its absence is judged."""
FOLD_SWEEPS, FOLD_TOLERANCE = 500, 1e-8
"""Intensities at given factors are updated at most `FOLD_SWEEPS` times.

They have converged when no intensity changes by more than the share `FOLD_TOLERANCE`.
"""


@dataclass(frozen=True)
class FactorizationSettings:
    """Settings of the estimator: effort and stopping rules.

    | field | meaning |
    |---|---|
    | `starts` | number of short ascents from rows drawn at random, of which the best is continued |
    | `first_sweeps` | sweeps of each short ascent |
    | `more` | by which share the wide ascents have more factors, of which the least needed are dropped one by one |
    | `wide_starts` | number of wide ascents; the best is continued before the first factor is dropped |
    | `pruning_sweeps` | sweeps after each factor that is dropped |
    | `sweeps` | the most sweeps of the ascent that is continued |
    | `tolerance` | an ascent stops when a sweep gains less than this share of the bound, on average |
    | `wide_tolerance` | like `tolerance`, for a wide ascent before its first factor is dropped |
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
    """Fits a `PoissonFactorization` to a matrix of counts by mean field, from several starts."""

    model: PoissonFactorization

    def __init__(
        self, model: PoissonFactorization, data: Dataset, settings: FactorizationSettings = FactorizationSettings()
    ):
        """Read the counts from the data.

        Raises ValueError for cells that are no counts.
        """
        super().__init__(model)
        self.settings = settings
        self.counts = counts_of_rows(model, data)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return the memory a fit needs: counts and their mask with work space, and four arrays each of intensities
        and factors.
        """
        (n_rows, n_dims), cell = self.counts.x.shape, 8
        return MemoryPlan(
            (
                Part("counts", 5 * cell * n_rows * n_dims),
                Part("beliefs about rows", 4 * cell * n_rows * size[0]),
                Part("beliefs about factors", 4 * cell * n_dims * size[0]),
            )
        )

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return the best of several ascents, with its evidence lower bound.

        They start from rows drawn at random, from more factors than needed and, if `start` is given, from its factors
        and new ones.

        size: (number of factors,).
        key: the random key of the starts.
        start: the fit of another size; None for none.
        """
        (n_factors,), settings = size, self.settings
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        priors = priors_of(self.model, n_factors)
        begins = [self._random_factors(n_factors, random) for _ in range(settings.starts if n_factors > 1 else 1)]
        if start is not None:
            kept, new = (
                factors_of(start).mean[:n_factors],
                self._random_factors(max(0, n_factors - start.size[0]), random),
            )
            begins.append(np.concatenate([kept, new]))
        first = [self._short_ascent(priors, factors) for factors in begins]
        if n_factors > 1:
            first.append(self._ascent_with_pruning(n_factors, random))
        best = max(first, key=lambda each: self._value(priors, each))
        best, more = self._climb(priors, best, settings.tolerance)
        sweeps = settings.first_sweeps * len(begins) + more
        leaves: list[Any] = [best.fitted.factors.shape - 1, best.fitted.factors.rate]
        natural = {"factors": GammaStatistics(*(leaf.astype(np.float32) for leaf in leaves))}
        estimate = Estimate(
            self.model.with_noise_shape(best.counts.noise_shape), size, natural, -np.inf, np.inf, sweeps
        )
        return estimate._replace(log_lower=self._exact_bound(estimate, priors, best))

    def _random_factors(self, n_factors: int, random: np.random.Generator) -> np.ndarray:
        """Draw factors to start from, (factor, dim): random rows, mixed evenly with the mean row and made uneven.

        random: the NumPy generator to draw with.
        """
        x, seen = self.counts.x, self.counts.seen
        mean = (x.sum(0) + 1e-3) / (seen.sum(0) + 1e-3)
        rows = random.permutation(len(x))[np.arange(n_factors) % len(x)]
        totals = x[rows].sum(1, keepdims=True)
        alike = np.where(totals > 0, x[rows] * mean.sum() / np.maximum(totals, 1), mean)
        return 0.5 * (alike + mean) * random.uniform(0.5, 1.5, (n_factors, x.shape[1]))

    def _short_ascent(self, priors: Priors, factors: np.ndarray) -> "FactorizationState":
        """Make a short ascent from the given factors (factor, dim), and return where it ends.

        The factors are treated as nearly known at first.
        """
        shape, counts = (len(self.counts.x), len(factors)), self.counts
        intensities = Gammas(np.ones(shape), np.full(shape, float(shape[1])))
        sharp = Gammas(np.full(factors.shape, SHARP), SHARP / factors)
        for _ in range(FIRST_FOLDS):
            geometric = sharp.geometric_mean
            intensities = update_intensities(counts, priors.intensity, intensities, geometric, sharp.mean)
        return self._run_sweeps(
            priors, FactorizationState(counts, Fitted(intensities, sharp)), self.settings.first_sweeps
        )

    def _climb(
        self, priors: Priors, ascent: "FactorizationState", tolerance: float
    ) -> tuple["FactorizationState", int]:
        """Continue an ascent until a sweep gains less than `tolerance` times the bound, on average over `LOOK` sweeps.

        ascent: the state of the ascent so far.

        Returns the final state and the number of sweeps made.
        """
        last = self._value(priors, ascent)
        for sweeps in range(LOOK, self.settings.sweeps + 1, LOOK):
            ascent = self._run_sweeps(priors, ascent, LOOK)
            now = self._value(priors, ascent)
            if now - last < LOOK * tolerance * abs(now):
                return ascent, sweeps
            last = now
        return ascent, self.settings.sweeps

    def _run_sweeps(self, priors: Priors, ascent: "FactorizationState", sweeps: int) -> "FactorizationState":
        """Return the state of the ascent after more sweeps, with the shape of the noise refitted if it has a prior."""
        counts, fitted = ascent.after_sweeps(priors, sweeps)
        if isinstance(self.model.noise_shape, GammaPrior):
            counts = counts._replace(noise_shape=most_probable_noise(counts, self.model.noise_shape, fitted))
        return FactorizationState(counts, fitted)

    def _value(self, priors: Priors, ascent: "FactorizationState") -> float:
        """Return the evidence lower bound given the noise's shape, plus the shape's log prior density if it has a
        prior; nats.
        """
        counts, fitted = ascent
        value = bound(counts, priors, fitted)
        if isinstance(self.model.noise_shape, GammaPrior):
            assert counts.noise_shape is not None  # where r has a prior it has a value
            value += float(log_noise_prior(self.model.noise_shape, np.log(counts.noise_shape)))
        return value

    def _ascent_with_pruning(self, n_factors: int, random: np.random.Generator) -> "FactorizationState":
        """Make ascents with too many factors, drop factors one at a time from the best, and return the state at
        `n_factors`.

        The factor dropped is the one without which the bound is highest after `PRUNED_SWEEPS` sweeps. A random start
        may give two factors to one pattern and none to another. The extra factors leave room for the pattern that none
        of them had.

        random: the NumPy generator to draw starts with.
        """
        settings = self.settings
        wide = n_factors + max(1, round(settings.more * n_factors))
        priors = priors_of(self.model, wide)
        first = [self._short_ascent(priors, self._random_factors(wide, random)) for _ in range(settings.wide_starts)]
        ascent = max(first, key=lambda each: self._value(priors, each))
        ascent, _ = self._climb(priors, ascent, settings.wide_tolerance)
        for size in range(wide - 1, n_factors - 1, -1):
            priors = priors_of(self.model, size)
            without_factor = [ascent.without_factor(k).after_sweeps(priors, PRUNED_SWEEPS) for k in range(size + 1)]
            ascent = max(without_factor, key=lambda each, priors=priors: self._value(priors, each))
            ascent = self._run_sweeps(priors, ascent, settings.pruning_sweeps)
        return ascent

    def _exact_bound(self, estimate: Estimate, priors: Priors, ascent: "FactorizationState") -> float:
        """Return the evidence lower bound at exactly the factors of the estimate, nats.

        Intensities are at their optimum given these factors. The shape of the noise is integrated over its prior if it
        has one.
        """
        counts, factors = ascent.counts, factors_of(estimate)
        intensities = ascent.fitted.intensities
        fitted = Fitted(
            fit_intensities(counts, priors.intensity, intensities, factors.geometric_mean, factors.mean), factors
        )
        value = bound(counts, priors, fitted)
        if isinstance(self.model.noise_shape, GammaPrior):
            value += log_noise_integral(counts, self.model.noise_shape, fitted)
        return value


class FactorizationState(NamedTuple):
    """A state of the ascent: the counts with the current shape of their noise, and q of intensities and factors."""

    counts: CountMatrix
    fitted: Fitted

    def after_sweeps(self, priors: Priors, sweeps: int) -> "FactorizationState":
        """Return the state after more mean-field sweeps, with the shape of the noise unchanged."""
        fitted = self.fitted
        for _ in range(sweeps):
            fitted = sweep(self.counts, priors, fitted)
        return self._replace(fitted=fitted)

    def without_factor(self, factor: int) -> "FactorizationState":
        """Return the state with factor number `factor` removed."""
        intensities, factors = self.fitted
        return self._replace(
            fitted=Fitted(
                Gammas(*(np.delete(leaf, factor, axis=1) for leaf in intensities)),
                Gammas(*(np.delete(leaf, factor, axis=0) for leaf in factors)),
            )
        )


def counts_of_rows(model: PoissonFactorization, data: Dataset) -> CountMatrix:
    """Return the matrix of counts, with rows in the order of the data set.

    If the shape of the noise has a prior, it is set to its prior mean.

    Raises ValueError for cells that are no counts.
    """
    units, _ = rows_of(data)
    model.check(units)
    noise = model.noise_shape
    if noise is not None:
        noise = float(noise.shape / noise.rate if isinstance(noise, GammaPrior) else noise)
    return CountMatrix(np.where(units.observed, units.value, 0.0), np.asarray(units.observed, np.float64), noise)


def priors_of(model: PoissonFactorization, n_factors: int) -> Priors:
    """Return the Gamma priors of intensities and factors as arrays, which broadcast to (row, factor) and (factor,
    dim).
    """
    a, c = (np.asarray(each, np.float64) for each in (model.concentration, model.factor_concentration))
    rate = np.asarray(model.factor_rate(), np.float64)
    return Priors(Gammas(a / n_factors, a), Gammas(c, rate))


def factors_of(estimate: Estimate) -> Gammas:
    """Return q of a fit's factors: Gammas, (factor, dim), float64."""
    shape, rate = (np.asarray(leaf, np.float64) for leaf in estimate.natural["factors"])
    return Gammas(shape + 1, rate)


def fit_intensities(
    data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray
) -> Gammas:
    """Return q of the intensities at its optimum given the factors, (row, factor).

    prior: the prior of the intensities.
    intensities: q of the intensities to begin with.
    geometric, mean: geometric and ordinary means of the factors, (factor, dim); equal if the factors are known.
    """
    for _ in range(FOLD_SWEEPS):
        new = update_intensities(data, prior, intensities, geometric, mean)
        done = np.allclose(new.mean, intensities.mean, rtol=FOLD_TOLERANCE, atol=FOLD_TOLERANCE)
        intensities = new
        if done:
            break
    return intensities


@estimator.register
def _estimator_of_factorizations(model: PoissonFactorization, data: Dataset) -> FactorizationEstimator:
    """Return the estimator of Poisson factorisations on a data set."""
    return FactorizationEstimator(model, data)
