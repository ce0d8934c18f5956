"""Builds the annealing chain of a factorisation around a fit: its first distribution q, and its leapfrog steps.

Both come from short runs at temperature 1 (the posterior).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.factorizations.anchored import AnchoredFactorization, NearState, Shapes
from lvsearch.inference.factorizations.estimator import counts_of_rows, factors_of, fit_intensities, priors_of
from lvsearch.inference.factorizations.kernel import TINY, CountMatrix, Gammas
from lvsearch.models.exponential.digamma import gamma_shape
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel
from lvsearch.models.poisson_factorization import PoissonFactorization

LENGTH, LONGEST = 0.5, 0.7
"""The length of a leapfrog step relative to its coordinate's standard deviation given all others, and the longest one.

Where the data say nothing, the density still has a steep side, of curvature 1.
"""
SETTLING, AVERAGED, RUNS = 40, 100, 2
"""The run that q is made of: sweeps before its moments are averaged, sweeps averaged, and the number of runs side by
side.
"""
MOST_ROUNDS = 8
"""The most rounds of the run that q is made of. Another round follows as long as counts become more probable.

Factors that are not needed take hundreds of sweeps to empty, and a q made on the way is far from where the run ends. On
500 × 96 counts with 24 factors the forward and the backward estimate are 9,900 nats apart after one round, and 400
after six.
"""
CELLS_OF_NOISE = 10.0
"""About how many cells say as much about log r (the log shape of the noise) as one observation of variance 1.

It decides how far r moves in a step.
"""
NARROWEST = 1e-6
"""The least log E[x] − E[log x] of a Gamma of q, which bounds its shape from above."""


def near_fit(model: PoissonFactorization, data: Dataset, size: int, estimate: Estimate) -> AnchoredFactorization:
    """Return the annealing chain around a fit of this size.

    estimate: the fit, whose model has a number for the shape of the noise.

    Raises ValueError for cells that are no counts.
    """
    assert isinstance(estimate.model, PoissonFactorization)
    counts, priors = counts_of_rows(estimate.model, data), priors_of(model, size)  # the fit's model has a number for r
    factors = factors_of(estimate)
    blank = Gammas(np.ones((len(counts.x), size)), np.full((len(counts.x), size), float(size)))
    intensities = fit_intensities(counts, priors.intensity, blank, factors.geometric_mean, factors.mean)
    more = capacity_of((size,))[0] - size

    def pad_factors(table: np.ndarray) -> np.ndarray:
        """Return a table (line, factor) with zeros for the factors up to the capacity."""
        return np.pad(table, [(0, 0), (0, more)])

    inferred = model.noise_shape if isinstance(model.noise_shape, GammaPrior) else GammaPrior()
    prior = Shapes(
        np.asarray(priors.intensity.shape),
        np.asarray(priors.intensity.rate),
        np.asarray(priors.factor.shape),
        np.broadcast_to(np.atleast_1d(priors.factor.rate), counts.x.shape[1:])[:, None],
        *(np.asarray(each, np.float64) for each in inferred),
    )
    # r as a number only if it has no prior; equal counts share their log-gammas
    given = None if counts.noise_shape is None or model.inferred else np.asarray(counts.noise_shape)
    values, times = np.unique(counts.x[counts.seen > 0], return_counts=True)
    chain = AnchoredFactorization(
        np.asarray(size),
        counts.x,
        counts.seen,
        given,
        values,
        times.astype(np.float64),
        prior,
        prior._replace(noise=np.asarray(1 + counts.seen.sum() / CELLS_OF_NOISE)),
        _leapfrog_lengths(counts, intensities.mean, factors.mean, prior, size + more),
        size + more,
        counts.noise_shape is not None,
    )
    # runs begin at the fit's geometric means
    about = (intensities.geometric_mean, factors.geometric_mean.T)
    begin = [np.repeat(pad_factors(np.log(np.maximum(each, TINY)))[None], RUNS, axis=0) for each in about]
    with jax.enable_x64(True):
        noise = jnp.full(RUNS, np.log(counts.noise_shape)) if model.inferred and counts.noise_shape else None
        return _refine_q(chain, counts, NearState(jnp.asarray(begin[0]), jnp.asarray(begin[1]), noise))


def _refine_q(chain: AnchoredFactorization, counts: CountMatrix, state: NearState) -> AnchoredFactorization:
    """Return the chain with a new q and new step lengths, both from runs at temperature 1 that begin at `state`."""
    key, before = jax.random.key(int(chain.size)), -np.inf
    for number in range(MOST_ROUNDS):
        found = _average_run(chain, jax.random.fold_in(key, number), state)
        start, state = jax.tree.map(np.asarray, found.gammas), found.state
        intensities, factors = (
            (shape / rate)[:, : int(chain.size)]
            for shape, rate in ((start.intensities, start.intensity_rates), (start.factors, start.factor_rates))
        )
        lengths = _leapfrog_lengths(counts, intensities, factors.T, chain.prior, chain.capacity)
        chain = eqx.tree_at(lambda c: (c.start, c.lengths), chain, (start, lengths))
        if not float(found.level) - before > float(found.spread):
            break
        before = float(found.level)
    return chain


def _leapfrog_lengths(
    counts: CountMatrix, intensities: np.ndarray, factors: np.ndarray, prior: Shapes, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of leapfrog steps: (row, factor) for intensities and (dim, factor) for factors.

    They are `LENGTH` standard deviations of each logarithm given all others, from Fisher's information at the given
    values.

    intensities, factors: values, (row, factor) and (factor, dim).
    prior: the model's Gammas.
    capacity: the number of factors that arrays have room for.
    """
    mean = np.maximum(intensities @ factors, TINY)
    information = counts.seen / (mean if counts.noise_shape is None else mean * (1 + mean / counts.noise_shape))
    of_rows = intensities**2 * (information @ factors.T**2) + prior.intensity_rates * intensities
    of_columns = factors.T**2 * (information.T @ intensities**2) + prior.factor_rates * factors.T
    rows, columns = (
        np.pad(np.minimum(LONGEST, LENGTH / np.sqrt(each + TINY)), [(0, 0), (0, capacity - factors.shape[0])])
        for each in (of_rows, of_columns)
    )
    return rows, columns


class RunMoments(NamedTuple):
    """Averages over a run at temperature 1.

    | field | meaning |
    |---|---|
    | `gammas` | Gammas with the run's means and mean logarithms |
    | `state` | the state in which the run ended |
    | `level`, `spread` | mean and standard deviation of log p(counts \\| state) along the run, nats |
    """

    gammas: Shapes
    state: NearState
    level: Float[Array, ""]
    spread: Float[Array, ""]


@kernel()
def _average_run(chain: AnchoredFactorization, key: Key[Array, ""], state: NearState) -> RunMoments:
    """Make `SETTLING` sweeps at temperature 1, then `AVERAGED` more, and return the averages over the latter."""

    def observe(state: NearState) -> tuple[NearState, NearState, Array]:
        """Return averages over particles: of a state's logarithms, of their exponentials, and of log p(counts | state).

        The last comes with its square, as an array (average, average²).
        """
        logs, values = (
            jax.tree.map(lambda leaf, of=of: of(leaf).mean(0), state) for of in (lambda leaf: leaf, jnp.exp)
        )
        level = chain._log_counts(state, state.log_noise).mean()
        return logs, values, jnp.stack([level, level**2])

    def one(index: Array, carry: tuple[NearState, Any]) -> tuple[NearState, Any]:
        state, total = carry
        state = chain.step(jax.random.fold_in(key, index), state, jnp.ones(()), backward=False)
        share = jnp.where(index < SETTLING, 0.0, 1 / AVERAGED)
        return state, jax.tree.map(lambda mean, now: mean + share * now, total, observe(state))

    nothing = jax.tree.map(jnp.zeros_like, observe(state))
    state, (logs, values, level) = jax.lax.fori_loop(0, SETTLING + AVERAGED, one, (state, nothing))
    found = []
    for log, value in zip(logs, values, strict=True):
        if log is None:  # no r
            found += [jnp.ones(()), jnp.ones(())]
        else:
            # the Gamma with this mean and this mean logarithm: log mean − mean log decides the shape
            shape = gamma_shape(jnp.maximum(jnp.log(value) - log, NARROWEST))
            found += [shape, shape / value]
    return RunMoments(Shapes(*found), state, level[0], jnp.sqrt(jnp.maximum(level[1] - level[0] ** 2, 0.0)))
