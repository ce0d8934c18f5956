"""The estimator of Poisson factorisations: the best of a few short ascents, climbed to its end.

The generic engine has the same bound at the same state; it holds a table (row, column, factor) of allocations.
"""

from dataclasses import dataclass
from typing import Any

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
from lvsearch.models.families import GammaStatistics
from lvsearch.models.poisson_factorization import PoissonFactorization

SHARP, FIRST_FOLDS = 100.0, 5
"""Shape of the Gammas that a start begins with, and steps of the intensities before these move."""
FOLD_SWEEPS, FOLD_TOLERANCE = 500, 1e-8
"""At most, and the relative change of any intensity below which the intensities of given factors have settled."""


@dataclass(frozen=True)
class FactorizationSettings:
    """How hard to try.

    | field | meaning |
    |---|---|
    | `starts` | short ascents from rows drawn at random, of which the best is climbed on |
    | `first_sweeps` | of each of them |
    | `sweeps` | at most, of the one that is climbed on |
    | `tolerance` | a sweep that gains less than this share of the bound is the last one |
    """

    starts: int = 16
    first_sweeps: int = 30
    sweeps: int = 2000
    tolerance: float = 1e-8


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
        """From rows drawn at random and, where there is one, from another size's factors and new ones; the best."""
        (n_factors,), settings = size, self.settings
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        priors = priors_of(self.model, n_factors)
        begins = [self._drawn(n_factors, random) for _ in range(settings.starts if n_factors > 1 else 1)]
        if start is not None:
            kept, new = factors_of(start).mean[:n_factors], self._drawn(max(0, n_factors - start.size[0]), random)
            begins.append(np.concatenate([kept, new]))
        first = (self._first(priors, factors) for factors in begins)
        best = max(first, key=lambda each: bound(self.counts, priors, each))
        last, sweeps = bound(self.counts, priors, best), settings.first_sweeps * len(begins)
        for _ in range(settings.sweeps):
            best, sweeps = sweep(self.counts, priors, best), sweeps + 1
            now = bound(self.counts, priors, best)
            if now - last < settings.tolerance * abs(now):
                break
            last = now
        leaves: list[Any] = [best.factors.shape - 1, best.factors.rate]
        natural = {"factors": GammaStatistics(*(leaf.astype(np.float32) for leaf in leaves))}
        estimate = Estimate(self.model, size, natural, -np.inf, np.inf, sweeps)
        return estimate._replace(log_lower=self._exact_bound(estimate, priors, best.intensities))

    def _drawn(self, n_factors: int, random: np.random.Generator) -> np.ndarray:
        """Factors that are rows drawn at random, each beside as much of the mean row and unevenly so; (factor, dim)."""
        x, seen = self.counts
        mean = (x.sum(0) + 1e-3) / (seen.sum(0) + 1e-3)
        rows = random.permutation(len(x))[np.arange(n_factors) % len(x)]
        totals = x[rows].sum(1, keepdims=True)
        alike = np.where(totals > 0, x[rows] * mean.sum() / np.maximum(totals, 1), mean)
        return 0.5 * (alike + mean) * random.uniform(0.5, 1.5, (n_factors, x.shape[1]))

    def _first(self, priors: Priors, factors: np.ndarray) -> Fitted:
        """A short ascent from these factors, at first as good as known."""
        shape = (len(self.counts.x), len(factors))
        intensities = Gammas(np.ones(shape), np.full(shape, float(shape[1])))
        sharp = Gammas(np.full(factors.shape, SHARP), SHARP / factors)
        for _ in range(FIRST_FOLDS):
            geometric = sharp.geometric_mean
            intensities = intensities_given(self.counts, priors.intensity, intensities, geometric, sharp.mean)
        fitted = Fitted(intensities, sharp)
        for _ in range(self.settings.first_sweeps):
            fitted = sweep(self.counts, priors, fitted)
        return fitted

    def _exact_bound(self, estimate: Estimate, priors: Priors, intensities: Gammas) -> float:
        """The bound at exactly the factors of the estimate, intensities settled at their optimum there, nats."""
        factors = factors_of(estimate)
        at_best = settled(self.counts, priors.intensity, intensities, factors.geometric_mean, factors.mean)
        return bound(self.counts, priors, Fitted(at_best, factors))


def counts_of_rows(model: PoissonFactorization, data: Dataset) -> CountMatrix:
    """The matrix in the order of the data set. Raises ValueError for cells that are no counts."""
    units, _ = rows_of(data)
    model.check(units)
    return CountMatrix(np.where(units.observed, units.value, 0.0), np.asarray(units.observed, np.float64))


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
