"""The estimator of Poisson factorisations: ascents with too many factors, of which the least needed are dropped.

Two obstacles keep plain ascents thousands of nats below the best bound, and each has a remedy here.

- An update multiplies what a row has of a factor. Where the prior is sparse, an intensity that once fell to e^−20 never
  comes back, although the factor has since become what the row needs. So rows and columns are now and then fitted anew
  from an even start (`FactorizationState.with_lines_fitted_anew`), and each keeps the better of its two fits.
- Noise of the cells explains whatever the factors do not yet explain, so that they are never asked to. So half of the
  ascents are made without noise until they have the wanted number of factors.

On 500 × 96 counts with 20 planted factors and noise of shape 20, twelve fits (four matrices, three keys each) ended so
far below the best of their matrix, in nats, and so many found all 20 factors:

| remedies | below the best | found all 20 |
|---|---|---|
| neither | 3,600 to 13,900 | 2 |
| rows fitted anew | 200 to 6,200 | 3 |
| ascents without noise first | 1,300 to 6,800 | 10 |
| both, columns fitted anew as well | 0 to 180 | 12 |

The generic mean field (`engine`) computes the same bound at the same state. But it holds an array (row, column, factor)
of allocations, the shares of each cell's counts that factors have.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import BaseEstimator, MemoryPlan, Part
from lvsearch.inference.factorizations.kernel import (
    CountMatrix,
    Fitted,
    Gammas,
    Priors,
    bound,
    log_noise_integral,
    log_noise_prior,
    most_probable_noise,
    row_bounds,
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
FRESH_UPDATES, FRESH_SWEEPS = 30, 10
"""The number of updates of a row or column that is fitted anew, and the number of sweeps of all after that."""
MOST_ROUNDS = 6
"""Rows and columns are fitted anew at most so often at the end of an ascent, which ends when the bound stops rising."""
HOPEFUL, CLOSE_ENDS = 2.0, 0.002
"""An ascent is continued only if it would overtake the best one with `HOPEFUL` times that one's gain from rows and
columns fitted anew, or with the share `CLOSE_ENDS` of the bound.
"""
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
    | `more` | by which share ascents begin with more factors, of which the least needed are dropped one by one |
    | `pruning_sweeps` | sweeps after each factor that is dropped |
    | `sweeps` | the most sweeps of an ascent that is continued to convergence |
    | `tolerance` | the last ascent stops when a sweep gains less than this share of the bound, on average |
    | `fresh_tolerance` | like `tolerance`, for ascents that rows and columns begin anew |
    | `wide_tolerance` | like `tolerance`, before the first factor is dropped |
    """

    starts: int = 4
    first_sweeps: int = 30
    more: float = 0.3
    pruning_sweeps: int = 5
    sweeps: int = 2000
    tolerance: float = 1e-7
    fresh_tolerance: float = 1e-6
    wide_tolerance: float = 1e-5


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

        They begin with more factors than needed, made of rows drawn at random: one with the model's noise and, where it
        has noise, one without. If `start` is given, another one begins with its factors, and with new ones or without
        the least needed.

        size: (number of factors,).
        key: the random key of the starts.
        start: the fit of another size; None for none.
        """
        (n_factors,), settings = size, self.settings
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        priors = priors_of(self.model, n_factors)
        noises = dict.fromkeys((self.counts.noise_shape, None))
        ascents = [partial(self._ascent_with_pruning, n_factors, noise) for noise in noises]
        if start is not None:
            ascents.append(partial(self._ascent_from, n_factors, factors_of(start)))

        def climb(number: int) -> FactorizationState:
            """Return the end of ascent number `number`, climbed to convergence with nothing fitted anew."""
            end = ascents[number](randoms[number])
            if end.counts.noise_shape is None:  # ascents without noise get it now
                end = end._replace(counts=self.counts)
            return self._climb(priors, end, settings.fresh_tolerance)

        randoms = random.spawn(len(ascents))
        with ThreadPoolExecutor(len(ascents)) as pool:  # NumPy leaves the interpreter to other threads
            climbed = list(pool.map(climb, range(len(ascents))))
        best = self._climb(priors, self._best_of_climbs(priors, climbed), settings.tolerance)
        leaves: list[Any] = [best.fitted.factors.shape - 1, best.fitted.factors.rate]
        natural = {"factors": GammaStatistics(*(leaf.astype(np.float32) for leaf in leaves))}
        estimate = Estimate(
            self.model.with_noise_shape(best.counts.noise_shape), size, natural, -np.inf, np.inf, best.sweeps
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

    def _short_ascent(self, priors: Priors, counts: CountMatrix, factors: np.ndarray) -> "FactorizationState":
        """Make a short ascent from the given factors (factor, dim), and return where it ends.

        The factors are treated as nearly known at first.

        counts: the counts, with the shape of the noise to begin with.
        """
        shape = (len(counts.x), len(factors))
        intensities = Gammas(np.ones(shape), np.full(shape, float(shape[1])))
        sharp = Gammas(np.full(factors.shape, SHARP), SHARP / factors)
        for _ in range(FIRST_FOLDS):
            geometric = sharp.geometric_mean
            intensities = update_intensities(counts, priors.intensity, intensities, geometric, sharp.mean)
        begun = FactorizationState(counts, Fitted(intensities, sharp), 0)
        return self._run_sweeps(priors, begun, self.settings.first_sweeps)

    def _climb(self, priors: Priors, ascent: "FactorizationState", tolerance: float) -> "FactorizationState":
        """Continue an ascent until a sweep gains less than `tolerance` times the bound, on average over `LOOK` sweeps.

        ascent: the state of the ascent so far.
        """
        last = self._value(priors, ascent)
        for _ in range(self.settings.sweeps // LOOK):
            ascent = self._run_sweeps(priors, ascent, LOOK)
            now = self._value(priors, ascent)
            if now - last < LOOK * tolerance * abs(now):
                break
            last = now
        return ascent

    def _best_of_climbs(self, priors: Priors, climbed: list["FactorizationState"]) -> "FactorizationState":
        """Continue converged ascents, fitting rows and columns anew, and return the best of their ends.

        The best of them is continued to its end. Another one goes on only if it would overtake that end with `HOPEFUL`
        times the gain that fitting anew brought there, or is within the share `CLOSE_ENDS` of it.
        """
        ranked = sorted(((self._value(priors, each), -n) for n, each in enumerate(climbed)), reverse=True)
        before = ranked[0][0]
        best = self._climb_with_fresh_lines(priors, climbed[-ranked[0][1]])
        value = self._value(priors, best)
        further = max(HOPEFUL * (value - before), CLOSE_ENDS * abs(value))
        for other, n in ranked[1:]:
            if other + further > value:
                end = self._climb_with_fresh_lines(priors, climbed[-n])
                best = max(best, end, key=lambda each: self._value(priors, each))
        return best

    def _climb_with_fresh_lines(self, priors: Priors, ascent: "FactorizationState") -> "FactorizationState":
        """Continue a converged ascent, fitting rows and columns anew for as long as that raises the bound."""
        tolerance, last = self.settings.fresh_tolerance, self._value(priors, ascent)
        for _ in range(MOST_ROUNDS):
            ascent = self._climb(priors, ascent.with_lines_fitted_anew(priors), tolerance)
            now = self._value(priors, ascent)
            if now - last < LOOK * tolerance * abs(now):
                break
            last = now
        return ascent

    def _run_sweeps(self, priors: Priors, ascent: "FactorizationState", sweeps: int) -> "FactorizationState":
        """Return the state of the ascent after more sweeps, with the shape of the noise refitted if it has a prior.

        An ascent without noise stays without.
        """
        ascent = ascent.after_sweeps(priors, sweeps)
        counts, prior = ascent.counts, self.model.noise_shape
        if counts.noise_shape is None or not isinstance(prior, GammaPrior):
            return ascent
        return ascent._replace(counts=counts._replace(noise_shape=most_probable_noise(counts, prior, ascent.fitted)))

    def _value(self, priors: Priors, ascent: "FactorizationState") -> float:
        """Return the evidence lower bound given the noise's shape, plus the shape's log prior density if it has a
        prior; nats.
        """
        value, shape = bound(ascent.counts, priors, ascent.fitted), ascent.counts.noise_shape
        if isinstance(self.model.noise_shape, GammaPrior) and shape is not None:
            value += float(log_noise_prior(self.model.noise_shape, np.log(shape)))
        return value

    def _ascent_with_pruning(
        self, n_factors: int, noise_shape: float | None, random: np.random.Generator
    ) -> "FactorizationState":
        """Make ascents with too many factors, continue the best, and drop factors down to `n_factors`.

        A random start may give two factors to one pattern and none to another. The extra factors leave room for the
        pattern that none of them had.

        noise_shape: the shape of the noise to begin with; None for ascents without noise.
        random: the NumPy generator to draw starts with.
        """
        settings, counts = self.settings, self.counts._replace(noise_shape=noise_shape)
        wide = n_factors + max(1, round(settings.more * n_factors))
        priors = priors_of(self.model, wide)
        begins = [
            self._refresh(priors, self._short_ascent(priors, counts, self._random_factors(wide, random)))
            for _ in range(settings.starts)
        ]
        best = max(begins, key=lambda each: self._value(priors, each))
        return self._drop_factors(self._climb(priors, best, settings.wide_tolerance), n_factors)

    def _ascent_from(self, n_factors: int, factors: Gammas, random: np.random.Generator) -> "FactorizationState":
        """Make an ascent from given factors, with more drawn at random or down to `n_factors` of them."""
        more = self._random_factors(max(0, n_factors - len(factors.shape)), random)
        begin = np.concatenate([factors.mean, more])
        return self._drop_factors(self._short_ascent(priors_of(self.model, len(begin)), self.counts, begin), n_factors)

    def _drop_factors(self, ascent: "FactorizationState", n_factors: int) -> "FactorizationState":
        """Drop factors one at a time down to `n_factors`, with some sweeps after each.

        The factor dropped is the one without which the bound is highest after `PRUNED_SWEEPS` sweeps. Leaving out a
        factor lowers the bound the more, the fewer others there are. So a factor is tried again only if its loss the
        last time, when there were more, was smaller than that of the best one tried now.
        """
        losses = np.full(len(ascent.fitted.factors.shape), -np.inf)
        for size in range(len(losses) - 1, n_factors - 1, -1):
            priors, before = priors_of(self.model, size), self._value(priors_of(self.model, size + 1), ascent)
            tried: dict[int, FactorizationState] = {}
            while (least := int(losses.argmin())) not in tried:
                tried[least] = ascent.without_factor(least).after_sweeps(priors, PRUNED_SWEEPS)
                losses[least] = before - self._value(priors, tried[least])
            losses = np.delete(losses, least)
            ascent = self._refresh(priors, self._run_sweeps(priors, tried[least], self.settings.pruning_sweeps))
        return ascent

    def _refresh(self, priors: Priors, ascent: "FactorizationState") -> "FactorizationState":
        """Return the ascent after rows and columns were fitted anew where that helps, and `FRESH_SWEEPS` sweeps."""
        return self._run_sweeps(priors, ascent.with_lines_fitted_anew(priors), FRESH_SWEEPS)

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
    """A state of an ascent: the counts with the current shape of their noise, q of intensities and factors, and the
    number of sweeps so far.
    """

    counts: CountMatrix
    fitted: Fitted
    sweeps: int

    def after_sweeps(self, priors: Priors, sweeps: int) -> "FactorizationState":
        """Return the state after more mean-field sweeps, with the shape of the noise unchanged."""
        return self._replace(fitted=sweep(self.counts, priors, self.fitted, sweeps), sweeps=self.sweeps + sweeps)

    def with_lines_fitted_anew(self, priors: Priors) -> "FactorizationState":
        """Return the state in which each row, and then each column, is fitted anew from an even start where that raises
        the bound.
        """
        (intensities, factors), counts = self.fitted, self.counts
        even = Gammas(np.ones_like(intensities.shape), np.full_like(intensities.rate, factors.shape.shape[0]))
        intensities = better_lines(counts, priors.intensity, intensities, even, factors)
        # a column's entries are to its factors what a row's intensities are
        rate = np.broadcast_to(np.atleast_1d(priors.factor.rate), counts.x.shape[1:])[:, None]
        of_columns = Gammas(priors.factor.shape, rate)
        even = Gammas(np.ones_like(factors.shape.T), np.broadcast_to(1 / factors.mean.mean(1), factors.shape.T.shape))
        factors = better_lines(counts.transposed, of_columns, factors.transposed, even, intensities.transposed)
        return self._replace(fitted=Fitted(intensities, factors.transposed))

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
    x = np.where(units.observed, units.value, 0.0)
    return CountMatrix.of_cells(x, np.asarray(units.observed, np.float64), noise)


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


def better_lines(counts: CountMatrix, prior: Gammas, current: Gammas, even: Gammas, other: Gammas) -> Gammas:
    """Return for each row the better of two q of its intensities after updates: from the current, and from an even one.

    counts: the counts; transposed where the rows of this function are the columns of the data.
    prior: the prior of the intensities.
    current: q of the intensities so far, which gets one update.
    even: the other q to begin with, which gets `FRESH_UPDATES`.
    other: q of the factors, (factor, dim).
    """
    geometric, mean = other.geometric_mean, other.mean
    current = update_intensities(counts, prior, current, geometric, mean)
    for _ in range(FRESH_UPDATES):
        even = update_intensities(counts, prior, even, geometric, mean)
    before, after = (row_bounds(counts, prior, each, geometric, mean) for each in (current, even))
    better = (after > before)[:, None]
    return Gammas(*(np.where(better, new, old) for new, old in zip(even, current, strict=True)))


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
