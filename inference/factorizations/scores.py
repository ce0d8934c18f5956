"""Predictions of Poisson factorisations: intensities of rows, and how probable rows and held-out cells are."""

import jax
import numpy as np
from jaxtyping import Array, Float64
from scipy.special import gammaln, logsumexp

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.describing import Described, UnitScores
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.factorizations.estimator import counts_of_rows, factors_of, fit_intensities, priors_of
from lvsearch.inference.factorizations.kernel import TINY, CountMatrix, Gammas, row_bounds
from lvsearch.models.poisson_factorization import PoissonFactorization

WIDER = 0.5
"""The shape and rate of the wide half of the proposals, relative to those of q: same mean, twice the variance."""


def fold_in(estimate: Estimate, data: CountMatrix) -> tuple[Gammas, np.ndarray]:
    """Return q of the intensities of new rows, (row, factor), and the posterior means of the factors, (factor, dim).

    The factors are held at these means.
    """
    factors, prior = factors_of(estimate).mean, _intensity_prior(estimate)
    shape = (len(data.x), estimate.size[0])
    blank = Gammas(np.ones(shape), np.full(shape, float(shape[1])))
    return fit_intensities(data, prior, blank, factors, factors), factors


def describe_rows_of_counts(model: PoissonFactorization, estimate: Estimate, data: Dataset) -> Described:
    """Describe rows by their expected intensities (row, factor), and bound log p(row) from below, nats.

    The factors are held at their posterior means.
    """
    counts = counts_of_rows(_fitted_model(estimate), data)
    intensities, factors = fold_in(estimate, counts)
    prior = _intensity_prior(estimate)
    return Described(intensities.mean, row_bounds(counts, prior, intensities, factors, factors))


def score_rows_of_counts(
    model: PoissonFactorization,
    estimate: Estimate,
    data: Dataset,
    *,
    capacity: tuple[int, ...],
    samples: int,
    key: Array,
) -> UnitScores:
    """Estimate log p(row) of every row by importance sampling over its intensities, nats.

    Half of the intensities are drawn from q, and half from a distribution with the same mean and twice the variance.
    The factors are held at their posterior means.

    samples: the number of draws for each row; an odd number is raised by one, since both halves must be equal.
    capacity: not used.
    """
    counts = counts_of_rows(_fitted_model(estimate), data)
    q, factors = fold_in(estimate, counts)
    prior, wide = _intensity_prior(estimate), Gammas(WIDER * q.shape, WIDER * q.rate)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    samples += samples % 2  # the weights divide by the even mixture of both halves
    log_weights = []
    for number in range(samples):
        source = (q, wide)[number % 2]
        theta = np.maximum(random.gamma(source.shape, 1 / source.rate), TINY)
        proposed = np.logaddexp(_log_density(q, theta), _log_density(wide, theta)) - np.log(2)
        mean = theta @ factors
        log_weights.append(counts.log_cells(mean, mean).sum(1) + _log_density(prior, theta) - proposed)
    table = np.array(log_weights)
    log_mean = logsumexp(table, axis=0) - np.log(samples)
    error = np.sqrt((np.exp(table - log_mean).var(0) / samples).sum())
    return UnitScores(log_mean, float(error), f"importance sampling ({samples} samples)")


def _log_density(gammas: Gammas, value: np.ndarray) -> np.ndarray:
    """Return the log density of each row's values under independent Gammas, summed over factors, (row,), nats."""
    s, r = gammas
    return (s * np.log(r) - gammaln(s) + (s - 1) * np.log(value) - r * value).sum(1)


def cell_scores(
    estimate: Estimate, data: Dataset, held_out: Dataset, *, draws: int, seed: int
) -> Float64[np.ndarray, "row dim"]:
    """Return log p(cell of `held_out` | the row's cells in `data`), each cell by itself, nats; 0 if not observed.

    Both data sets have the same rows.

    estimate: the fit.
    data: the cells that are known.
    held_out: the cells to score.
    draws: the number of posterior draws of the intensities.

    Raises ValueError for cells that are no counts.
    """
    q, factors = fold_in(estimate, counts_of_rows(_fitted_model(estimate), data))
    asked = counts_of_rows(_fitted_model(estimate), held_out)
    random = np.random.default_rng(seed)
    total = np.full(asked.x.shape, -np.inf)
    for _ in range(draws):
        mean = random.gamma(q.shape, 1 / q.rate) @ factors
        total = np.logaddexp(total, asked.log_cells(mean, mean))
    return np.where(asked.seen > 0, total - np.log(draws), 0.0)


def _fitted_model(estimate: Estimate) -> PoissonFactorization:
    """Return the fitted model, in which the noise's shape is a number and has no prior."""
    assert isinstance(estimate.model, PoissonFactorization)
    return estimate.model


def _intensity_prior(estimate: Estimate) -> Gammas:
    """Return the Gamma prior of the fitted model's intensities."""
    return priors_of(_fitted_model(estimate), estimate.size[0]).intensity
