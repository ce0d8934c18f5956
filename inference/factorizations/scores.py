"""What Poisson factorisations make of rows: intensities, and how probable rows and held-out cells are."""

import jax
import numpy as np
from jaxtyping import Array, Float64
from scipy.special import gammaln, logsumexp

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.describing import Described, describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.unit_scores import UnitScores, score_units
from lvsearch.inference.factorizations.estimator import counts_of_rows, factors_of, priors_of, settled
from lvsearch.inference.factorizations.kernel import TINY, CountMatrix, Gammas, row_bounds
from lvsearch.models.poisson_factorization import PoissonFactorization

WIDER = 0.5
"""Shape and rate of the wider half of the proposals, over those of q: the same mean, twice the variance."""


def fold_in(estimate: Estimate, data: CountMatrix) -> tuple[Gammas, np.ndarray]:
    """(q of the intensities of these rows, the factors): the factors (factor, dim) at their posterior means."""
    factors, prior = factors_of(estimate).mean, _prior(estimate)
    shape = (len(data.x), estimate.size[0])
    blank = Gammas(np.ones(shape), np.full(shape, float(shape[1])))
    return settled(data, prior, blank, factors, factors), factors


@describe_units.register
def _(model: PoissonFactorization, estimate: Estimate, data: Dataset) -> Described:
    """Expected intensities given the factors at their posterior means, and the bound on log p(row) there."""
    counts = counts_of_rows(_known(estimate), data)
    intensities, factors = fold_in(estimate, counts)
    prior = _prior(estimate)
    return Described(intensities.mean, row_bounds(counts, prior, intensities, factors, factors))


@score_units.register
def _(
    model: PoissonFactorization,
    estimate: Estimate,
    data: Dataset,
    *,
    capacity: tuple[int, ...],
    samples: int,
    key: Array,
) -> UnitScores:
    """Importance sampling: half of the intensities from q, half from what has the same mean and twice the variance."""
    counts = counts_of_rows(_known(estimate), data)
    q, factors = fold_in(estimate, counts)
    prior, wide = _prior(estimate), Gammas(WIDER * q.shape, WIDER * q.rate)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
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
    """log of the product of the densities over factors, nats: (row,)."""
    s, r = gammas
    return (s * np.log(r) - gammaln(s) + (s - 1) * np.log(value) - r * value).sum(1)


def cell_scores(
    estimate: Estimate, data: Dataset, held_out: Dataset, *, draws: int, seed: int
) -> Float64[np.ndarray, "row dim"]:
    """log p(cell of `held_out` | what `data` have of its row), nats, each by itself; 0 where not observed.

    The same rows in both. Raises ValueError for cells that are no counts.
    """
    q, factors = fold_in(estimate, counts_of_rows(_known(estimate), data))
    asked = counts_of_rows(_known(estimate), held_out)
    random = np.random.default_rng(seed)
    total = np.full(asked.x.shape, -np.inf)
    for _ in range(draws):
        mean = random.gamma(q.shape, 1 / q.rate) @ factors
        total = np.logaddexp(total, asked.log_cells(mean, mean))
    return np.where(asked.seen > 0, total - np.log(draws), 0.0)


def _known(estimate: Estimate) -> PoissonFactorization:
    """The model with what its fit found in the place of a prior of the noise."""
    assert isinstance(estimate.model, PoissonFactorization)
    return estimate.model


def _prior(estimate: Estimate) -> Gammas:
    return priors_of(_known(estimate), estimate.size[0]).intensity
