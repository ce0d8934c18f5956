"""A particle filter over rows: one pass, no iteration.

Source: Wood & Griffiths (2007), with a proposal that looks at the row. A particle holds the features of the rows seen
    so far, and the posterior of the loadings given them, with covariance σ_x² M and mean B (`loadings`). α is the
    concentration of the process, σ_x the standard deviation of the noise. At row n (counted from 1) with data x_n, and
    with m_k earlier rows that have feature k,

    p(z_nk = 1) = m_k / n,   new features ~ Poisson(α/n),   x_n | z_n ~ Normal(z_n B, σ_x² (1 + z_nᵀ M z_n)).

The proposal q starts from z = 0. In `PASSES` passes each feature is set to its more probable value. Then each feature
in turn is drawn from its conditional, with the later ones at those values, and with its probability kept in [FLOOR, 1 −
FLOOR]. Last, the number of new features is drawn from its conditional. Departure: Wood & Griffiths propose from the
prior. The weight is

    Σ_j Poisson(j; α/n) p(x_n | z_n, j new) · Π_k p(z_nk) / q(z_nk).

The product over rows of the average weights is an unbiased estimate of p(X). Particles are resampled systematically
when the effective number falls below half of them. Such a pass is no Markov chain. It has no state from which more
draws could be made, no warm-up and no R̂, and is no `Sampler` of the run loop.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array
from scipy.special import expit, gammaln

from lvsearch.inference.feature_samplers.chain import TAIL, Hyperparameters, log_joint
from lvsearch.inference.feature_samplers.loadings import read_cells
from lvsearch.inference.features import left_ordered
from lvsearch.inference.features.marginal import check_positive
from lvsearch.inference.generators import generator

PASSES = 2
"""The number of passes that set features to their more probable values."""
FLOOR = 0.01
"""The smallest probability with which the proposal has, or does not have, a feature."""
SPARE = 4
"""Empty places (array slots) for features are added this many at a time, so that arrays seldom change shape."""


@dataclass(frozen=True)
class ParticleTrace:
    """The results of one pass of the particle filter.

    | field | meaning |
    |---|---|
    | `log_evidence` | estimate of log p(data \\| hyper-parameters) in nats; its exponential is unbiased |
    | `log_joint` | log p(data, features) of `best`, in nats, on the scale of the other samplers |
    | `best` | features (row, feature) of the particle with the highest log p(data, features), columns in left order |
    | `particles` | features (row, feature) of each particle, columns in left order |
    | `log_weights` | log weight of each particle, nats; the weights sum to 1 |
    | `effective` | effective number of particles after each row, before resampling, (row,) |
    | `seconds` | time of each row, (row,) |
    """

    log_evidence: float
    log_joint: float
    best: np.ndarray
    particles: tuple[np.ndarray, ...]
    log_weights: np.ndarray
    effective: np.ndarray
    seconds: np.ndarray


class Particles(NamedTuple):
    """The features' counts and the loadings' posterior of every particle, with places (array slots) for features.

    A place that no row has yet has count 0 and the prior of the loadings. The covariance is in units of the noise
    variance.
    """

    counts: np.ndarray  # (particle, feature)
    covariance: np.ndarray  # (particle, feature, feature)
    mean: np.ndarray  # (particle, feature, column)


class Proposed(NamedTuple):
    """The proposed features of one row for each particle, and log of prior · likelihood / proposal, nats."""

    features: np.ndarray  # (particle, feature)
    log_weight: np.ndarray
    log_prior: np.ndarray  # of the row's features, for ranking particles
    log_likelihood: np.ndarray


class RowFit(NamedTuple):
    """The fit of one row to each particle's loadings, at the features that it has now.

    z: the row's features.
    spread: the covariance M of the loadings (over the noise variance) times z.
    variance: 1 + zᵀMz, the predictive variance over the noise variance.
    residual: the row minus its predicted mean.
    """

    z: np.ndarray  # (particle, feature)
    spread: np.ndarray  # M z (particle, feature)
    variance: np.ndarray  # 1 + zᵀMz (particle,)
    residual: np.ndarray  # (particle, column)

    def log_likelihood(self, sigma_x: float, added: np.ndarray | float = 0.0) -> np.ndarray:
        """Return log p(row | its features) of each particle, nats, with `added` added to the variance of each cell."""
        variance = sigma_x**2 * self.variance + added
        n_columns = self.residual.shape[1]
        squares = (self.residual**2).sum(1)
        return -0.5 * (n_columns * np.log(2 * np.pi * variance) + squares / variance)

    def flip(self, particles: Particles, k: int) -> "RowFit":
        """Return the fit with feature k of the row changed in every particle."""
        step = 1 - 2 * self.z[:, k]
        z = self.z.copy()
        z[:, k] += step
        return RowFit(
            z,
            self.spread + step[:, None] * particles.covariance[:, k],
            self.variance + 2 * step * self.spread[:, k] + particles.covariance[:, k, k],
            self.residual - step[:, None] * particles.mean[:, k],
        )

    def choose(self, chosen: np.ndarray, other: "RowFit") -> "RowFit":
        """Return this fit for the chosen particles (a mask), and the fit `other` for the rest."""
        pairs = zip(self, other, strict=True)
        return RowFit(*(np.where(chosen.reshape((-1,) + (1,) * (a.ndim - 1)), a, b) for a, b in pairs))


def particle_filter(
    X: Any,
    *,
    key: Array,
    alpha: float,
    sigma_x: float,
    sigma_a: float,
    n_particles: int = 100,
    start: Any = None,
) -> ParticleTrace:
    """Sample the features of the rows of X in their order, by sequential importance sampling with resampling.

    X: the data, (row, column), no missing cells.
    key: the random key.
    alpha: the concentration of the process.
    sigma_x, sigma_a: standard deviations of noise and loadings.
    n_particles: the number of particles.
    start: binary features (row, feature) of the first rows, such as those found by search. Every particle begins with
        them, and `log_evidence` is then that of the later rows given the first ones.

    Raises ValueError for a cell that is not finite, for shapes that do not fit, and for numbers that are not positive.
    """
    cells = read_cells(X, None)
    hyper = Hyperparameters(
        check_positive("alpha", alpha), check_positive("sigma_x", sigma_x), check_positive("sigma_a", sigma_a)
    )
    if n_particles < 1:
        raise ValueError(f"got n_particles={n_particles}, expected at least 1")
    rng = generator(key)
    n_rows = len(cells.values)
    known = left_ordered(np.zeros((0, 0)) if start is None else start).astype(np.float64)
    if len(known) > n_rows:
        raise ValueError(f"got start with {len(known)} rows, expected at most the {n_rows} rows of X")
    particles = _begin(cells.values[: len(known)], known, hyper, n_particles)
    log_weights = np.full(n_particles, -np.log(n_particles))
    score, log_evidence = np.zeros(n_particles), 0.0
    drawn, ancestors, effective, seconds = [], [], [], []
    for row in range(len(known), n_rows):
        begun = perf_counter()
        # propose features, weigh them, put the row into each particle's posterior, resample if weights are too uneven
        proposed = propose(rng, particles, cells.values[row], row + 1, hyper)
        particles = _add_places(particles, proposed.features.shape[1], hyper)
        log_weights = log_weights + proposed.log_weight
        total = float(np.logaddexp.reduce(log_weights))
        log_evidence += total
        log_weights = log_weights - total
        score += proposed.log_prior + proposed.log_likelihood
        particles = _add_row(particles, proposed.features, cells.values[row])
        effective.append(float(1 / np.exp(2 * log_weights).sum()))
        parents = np.arange(n_particles)
        if effective[-1] < n_particles / 2 and row + 1 < n_rows:
            parents = resample_systematically(np.exp(log_weights), rng.random())
            particles = Particles(*(array[parents] for array in particles))
            score, log_weights = score[parents], np.full(n_particles, -np.log(n_particles))
        drawn.append(proposed.features.astype(np.int8))
        ancestors.append(parents)
        seconds.append(perf_counter() - begun)
    histories = _trace_back_features(drawn, ancestors, known, n_particles)
    best = histories[int(np.argmax(score))]
    return ParticleTrace(
        log_evidence,
        log_joint(cells, best, hyper),
        best,
        histories,
        log_weights,
        np.array(effective),
        np.array(seconds),
    )


def resample_systematically(weights: np.ndarray, uniform: float) -> np.ndarray:
    """Return the indices of resampled particles, (particle,).

    A particle of weight w among S is kept ⌊S w⌋ or ⌈S w⌉ times, S w on average.

    weights: normalised weights, (particle,).
    uniform: one uniform random number.
    """
    positions = (np.arange(len(weights)) + uniform) / len(weights)
    return np.minimum(np.searchsorted(np.cumsum(weights), positions, side="right"), len(weights) - 1)


def propose(
    rng: np.random.Generator, particles: Particles, x: np.ndarray, row: int, hyper: Hyperparameters
) -> Proposed:
    """Propose features of the `row`-th row (counted from 1) for every particle, with the log weight of the proposal.

    New features take the first free places (array slots).

    x: the row's data, (column,).
    """
    n_particles, n_places = particles.counts.shape
    taken = particles.counts > 0
    with np.errstate(divide="ignore"):
        log_has = np.where(taken, np.log(particles.counts / row), -np.inf)
        log_has_not = np.where(taken, np.log1p(-particles.counts / row), 0.0)
    used = np.flatnonzero(taken.any(0)).tolist()
    fit = RowFit(
        np.zeros((n_particles, n_places)),
        np.zeros((n_particles, n_places)),
        np.ones(n_particles),
        np.broadcast_to(x, (n_particles, len(x))),
    )

    def conditional(fit: RowFit, k: int) -> tuple[RowFit, np.ndarray]:
        """Return the fit with the other value of feature k, and the log odds of having the feature."""
        other = fit.flip(particles, k)
        step = 1 - 2 * fit.z[:, k]
        gain = other.log_likelihood(hyper.sigma_x) - fit.log_likelihood(hyper.sigma_x)
        return other, log_has[:, k] - log_has_not[:, k] + step * gain

    # features at their more probable values, then a draw of each given the others
    for k in used * PASSES:
        other, log_odds = conditional(fit, k)
        fit = other.choose((log_odds > 0) != (fit.z[:, k] > 0), fit)
    log_prior, log_proposal = np.zeros(n_particles), np.zeros(n_particles)
    for k in used:
        other, log_odds = conditional(fit, k)
        probability = np.where(taken[:, k], np.clip(expit(log_odds), FLOOR, 1 - FLOOR), 0.0)
        has = rng.random(n_particles) < probability
        log_proposal += np.log(np.where(has, probability, 1 - probability))
        log_prior += np.where(has, log_has[:, k], log_has_not[:, k])
        fit = other.choose(has != (fit.z[:, k] > 0), fit)

    # new features, in the first places that no row has
    more, log_sum, log_new, log_likelihood = _draw_new(rng, fit, hyper, hyper.alpha / row)
    features = fit.z
    opened = taken.sum(1)
    wanted = int((opened + more).max())
    if wanted > n_places:
        features = np.concatenate([features, np.zeros((n_particles, wanted + SPARE - n_places))], axis=1)
    place = np.arange(features.shape[1])
    features = np.where((place >= opened[:, None]) & (place < (opened + more)[:, None]), 1.0, features)
    return Proposed(features, log_prior - log_proposal + log_sum, log_prior + log_new, log_likelihood)


def _draw_new(
    rng: np.random.Generator, fit: RowFit, hyper: Hyperparameters, rate: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw how many new features the row has in each particle.

    fit: the fit of the row at its other features.
    rate: the prior mean of the number.

    Returns four arrays (particle,): the number j, log Σ_j Poisson(j) p(row | j), and at the drawn j log Poisson(j) and
    log p(row | j), nats.
    """
    n_columns, squares = fit.residual.shape[1], (fit.residual**2).sum(1)
    noise = hyper.sigma_x**2 * fit.variance
    most = fit.log_likelihood(hyper.sigma_x, np.maximum(squares / n_columns - noise, 0.0))
    priors, likelihoods = [], []
    highest = np.full(len(squares), -np.inf)
    while True:
        j = len(priors)
        log_poisson = float(j * np.log(rate) - rate - gammaln(j + 1))
        if j + 1 >= 2 * rate and np.all(log_poisson + most < highest - TAIL):
            break
        priors.append(log_poisson)
        likelihoods.append(fit.log_likelihood(hyper.sigma_x, j * hyper.sigma_a**2))
        highest = np.maximum(highest, log_poisson + likelihoods[-1])
    log_terms = np.array(priors)[:, None] + np.array(likelihoods)
    log_sum = np.logaddexp.reduce(log_terms, axis=0)
    cumulative = np.cumsum(np.exp(log_terms - log_sum), axis=0)
    more = np.minimum((rng.random(len(squares)) * cumulative[-1] >= cumulative).sum(0), len(priors) - 1)
    each = np.arange(len(squares))
    return more, log_sum, np.array(priors)[more], np.array(likelihoods)[more, each]


def _begin(values: np.ndarray, known: np.ndarray, hyper: Hyperparameters, n_particles: int) -> Particles:
    """Return particles that all have the given features of the first rows.

    values: data of the first rows, (row, column).
    known: features of the first rows, (row, feature).
    """
    n_features = known.shape[1]
    covariance = np.linalg.inv(known.T @ known + (hyper.sigma_x / hyper.sigma_a) ** 2 * np.eye(n_features))
    mean = covariance @ (known.T @ values) if len(known) else np.zeros((0, values.shape[1]))
    one = (known.sum(0), covariance, mean)
    return Particles(*(np.broadcast_to(array, (n_particles, *array.shape)) for array in one))


def _add_places(particles: Particles, n_places: int, hyper: Hyperparameters) -> Particles:
    """Return the particles with free places (array slots) for features up to `n_places`."""
    n_particles, old, _ = particles.mean.shape
    if n_places == old:
        return particles
    covariance = np.tile(np.eye(n_places) * (hyper.sigma_a / hyper.sigma_x) ** 2, (n_particles, 1, 1))
    covariance[:, :old, :old] = particles.covariance
    room = n_places - old
    return Particles(
        np.pad(particles.counts, ((0, 0), (0, room))),
        covariance,
        np.pad(particles.mean, ((0, 0), (0, room), (0, 0))),
    )


def _add_row(particles: Particles, features: np.ndarray, x: np.ndarray) -> Particles:
    """Return the particles with a row's data added to each posterior of the loadings, by a rank-one update.

    features: the row's features in each particle, (particle, feature).
    x: the row's data, (column,).
    """
    w = np.einsum("skj,sj->sk", particles.covariance, features)
    scaled = w / (1 + (features * w).sum(1))[:, None]
    residual = x - np.einsum("sk,skd->sd", features, particles.mean)
    return Particles(
        particles.counts + features,
        particles.covariance - scaled[:, :, None] * w[:, None, :],
        particles.mean + scaled[:, :, None] * residual[:, None, :],
    )


def _trace_back_features(
    drawn: list[np.ndarray], ancestors: list[np.ndarray], known: np.ndarray, n_particles: int
) -> tuple[np.ndarray, ...]:
    """Return the features (row, feature) of each remaining particle, columns in left order.

    They are traced back through the resampling.

    drawn: proposed features of each row, (particle, feature) each.
    ancestors: the index of each particle's parent after each row, (particle,) each.
    known: features of the first rows, which all particles share.
    """
    n_places = max([known.shape[1], *(rows.shape[1] for rows in drawn)])
    features = np.zeros((n_particles, len(known) + len(drawn), n_places), np.int64)
    features[:, : len(known), : known.shape[1]] = known
    line = np.arange(n_particles)
    for step in range(len(drawn) - 1, -1, -1):
        line = ancestors[step][line]
        features[:, len(known) + step, : drawn[step].shape[1]] = drawn[step][line]
    return tuple(left_ordered(one) for one in features)
