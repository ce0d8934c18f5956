"""Factorisations of large matrices of counts, annealed from a distribution q around a fit, and how q is found.

The count x_nv of row n and column v has the mean m_nv, from intensities θ_nk of row n and factors β_kv, k = 1 … K:

    π_t(θ, β) ∝ q(θ, β)^(1−t) [p(θ, β) Π_nv p(x_nv | m_nv)]^t,      m_nv = Σ_k θ_nk β_kv

Here p(x | m) is Poisson, or negative binomial if cells have noise. The factor of every single count (its allocation)
and the noise are summed out. q consists of independent Gammas, whose means and mean logarithms come from a short run
from the fit at temperature 1 (the posterior). So do the lengths of leapfrog steps (`near_fit`).

The path from the prior (`lvsearch.inference.evidence.poisson_factorization`) draws the factor of every single count,
and must be as long as there is information in the data. The path from q depends neither on the number of counts nor on
how informative they are. What remains to be annealed is how the parameters depend on each other.

Why allocations and noise are summed out: given both, a cell of a thousand counts knows its mean to 3 %, where the noise
leaves 20 %. A Gibbs sweep moves by the smaller of the two. With both summed out, rows are independent given factors,
and columns given intensities. On the scale of logarithms each row, and then each column, moves by a Hamiltonian
trajectory (Neal 2011) with a Metropolis step of its own. Dimensions are few, and all of them move at once. Single
entries also jump, because the intensities of a factor that a row does not have lie anywhere on a long tail. Each
factor's scale moves as on the path from the prior.

q is around one labelling, which `label_scores` corrects for. It is also around one mode: modes that the short run did
not visit are not counted.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, Key
from scipy.special import gammaln as log_gamma

from lvsearch.inference.annealing.anchors import SettlingRun, average_over_sweeps
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.particle_arrays import AnnealingChain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.factorizations.estimator import counts_of_rows, factors_of, fit_intensities, priors_of
from lvsearch.inference.factorizations.kernel import TINY, CountMatrix, Gammas
from lvsearch.inference.factorizations.moves import (
    LEAPS,
    MatrixLines,
    ScaleDraws,
    log_cells,
    log_cells_change_of_noise,
    scale_step,
    sweep_draws,
)
from lvsearch.inference.sharding import in_processes
from lvsearch.models.contract import first
from lvsearch.models.exponential.digamma import gamma_shape
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel
from lvsearch.models.poisson_factorization import PoissonFactorization

TEMPERATURES = 240
"""The number of temperatures of the first annealing.

q does not know the scale that all entries of a factor share, and annealing that dependence takes many temperatures. A
sweep takes little time beside the fit. On 100 × 96 counts of 8 factors the forward and the backward estimate are 79
nats apart with 72 temperatures.
"""

SHARE_AROUND_FIT = 0.5
"""The share of the hysteresis (the nats between forward and backward estimates) that counts as standard error.

The middle of both was below the best known evidence by .28 of the hysteresis (root mean square over 32 annealings of
two catalogues, 9 and 5 planted), and by .68 at most. That includes fits which ended in a poor mode. The share is
larger, since the best known evidence may be too low itself. (`tests/benchmarks/hysteresis_around_fit.py`)
"""


class NearState(NamedTuple):
    """The state of the particles: logarithms of intensities and factors, with particles on the first axis.

    Factors that do not exist hold anything finite. `log_noise` is log r, where r is the shape of the cells' noise. It
    is None if r is given or there is no noise.
    """

    log_intensities: Float[Array, "particle row factor"]
    log_factors: Float[Array, "particle dim factor"]
    log_noise: Float[Array, " particle"] | None


class Shapes(NamedTuple):
    """Shapes and rates of independent Gammas of all intensities, of all factors, and of the noise's shape r.

    The arrays of intensities broadcast to (row, factor), those of factors to (dim, factor). If r has no prior, its
    shape and rate are 1. `log_constant` is the sum over all Gammas, of factors that exist, of what in their log density
    does not depend on the value, shape · log rate − log Γ(shape), nats.
    """

    intensities: Float[Array | np.ndarray, "..."]
    intensity_rates: Float[Array | np.ndarray, "..."]
    factors: Float[Array | np.ndarray, "..."]
    factor_rates: Float[Array | np.ndarray, "..."]
    noise: Float[Array | np.ndarray, ""]
    noise_rate: Float[Array | np.ndarray, ""]
    log_constant: Float[Array | np.ndarray, ""]


class AnchoredFactorization(AnnealingChain):
    """The annealing chain of a `PoissonFactorization` from a distribution q around a fit, which `near_fit` makes.

    The first `size` of `capacity` factors exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K, the number of factors | (), traced |
    | `counts` | the counts; 0 where nothing was observed | (row, dim) |
    | `seen` | 1 where a cell was observed, else 0 | (row, dim) |
    | `noise_shape` | r, the shape of the noise, if it is given; else None | () |
    | `values`, `times` | the different counts, and in how many observed cells each is | (value,) |
    | `prior`, `start` | the Gammas of the model's prior; the Gammas of q | `Shapes` |
    | `lengths` | lengths of leapfrog steps, 0 for factors that do not exist | (row, factor) and (dim, factor) |
    | `noisy` | whether cells have noise | |
    """

    size: Int[Array | np.ndarray, ""]
    counts: Float[Array | np.ndarray, "row dim"]
    seen: Float[Array | np.ndarray, "row dim"]
    noise_shape: Float[Array | np.ndarray, ""] | None
    values: Float[Array | np.ndarray, " value"]
    times: Float[Array | np.ndarray, " value"]
    prior: Shapes
    start: Shapes
    lengths: tuple[Float[Array | np.ndarray, "row factor"], Float[Array | np.ndarray, "dim factor"]]
    capacity: int = eqx.field(static=True)
    noisy: bool = eqx.field(static=True)

    directed: ClassVar[bool] = False
    """False: every move is its own reversal, and the order of a sweep is a valid one both ways."""

    @property
    def elements(self) -> int:
        """The number of cells times the leapfrog steps of a sweep's two trajectories: a measure of a sweep's work."""
        return 2 * LEAPS * self.counts.shape[0] * self.counts.shape[1]

    @property
    def efficient_particles(self) -> int:
        """The number of particles up to which twice as many take less than twice as long."""
        return 16

    def init(self, key: Key[Array, ""], particles: int) -> NearState:
        """Draw `particles` states from q, the distribution at the path's start."""
        q, sides = self.start, [(n, self.capacity) for n in self.counts.shape]
        # all Gammas of a particle in one array: a program with several samplers takes that much longer to compile
        shapes = [
            *(
                jnp.broadcast_to(each, side).ravel()
                for each, side in zip((q.intensities, q.factors), sides, strict=True)
            ),
            jnp.asarray(q.noise).reshape(1),
        ]
        flat = log_gamma_draws(key, jnp.broadcast_to(jnp.concatenate(shapes), (particles, sum(map(len, shapes)))))
        rows, columns, noise = jnp.split(flat, np.cumsum([len(each) for each in shapes])[:-1], axis=1)
        return NearState(
            rows.reshape(particles, *sides[0]) - jnp.log(q.intensity_rates),
            columns.reshape(particles, *sides[1]) - jnp.log(q.factor_rates),
            noise[:, 0] - jnp.log(q.noise_rate) if self.inferred else None,
        )

    def step(
        self, key: Key[Array, ""], state: NearState, temperature: Float[Array, ""], *, backward: bool
    ) -> NearState:
        """Return the state after a move of rows, of columns, of each factor's scale, and of the noise's shape.

        It leaves the distribution at the temperature unchanged. `backward` changes nothing.
        """
        del backward
        rows, columns, log_noise = state
        lines = rows.shape[1], columns.shape[1]
        draws = sweep_draws(key, rows.shape[0], lines, self.capacity, jnp.float32)
        # the Gammas at temperature t have natural parameters between those of q and of the prior
        tempered = Shapes(
            *(
                (1 - temperature) * jnp.asarray(q) + temperature * jnp.asarray(p)
                for q, p in zip(self.start, self.prior, strict=True)
            )
        )
        # lines move by changes of cells, for which float32 suffices; `log_ratio` is in the session's precision
        x, seen, r, t, lengths, gammas = jax.tree.map(
            _in_single,
            (self.counts, self.seen, self._noise_shape(log_noise), temperature, self.lengths, tempered),
        )
        others = _in_single(self._values(columns))
        of_rows = MatrixLines(self.exists, x, seen, r, others, gammas.intensities, gammas.intensity_rates, t)
        rows = of_rows.move(draws.rows, rows, lengths[0])
        others = _in_single(self._values(rows))
        of_columns = MatrixLines(self.exists, x.T, seen.T, r, others, gammas.factors, gammas.factor_rates, t)
        columns = of_columns.move(draws.columns, columns, lengths[1])
        state = self._rescale(draws.scales, NearState(rows, columns, log_noise), tempered)
        return self._move_noise(draws.noise, state, tempered, temperature)

    def log_ratio(self, state: NearState) -> Float[Array, " particle"]:
        """Return log p(counts, state) − log q(state) of each particle, nats, where q is the distribution at the
        path's start.
        """
        return self.log_density(state) - self._log_gammas(state, self.start)

    def log_density(self, state: NearState) -> Float[Array, " particle"]:
        """Return log p(counts, factors, intensities, r) of each particle, nats, where r is the shape of the noise.

        Allocations and noise are summed out.
        """
        return self._log_counts(state, state.log_noise) + self._log_gammas(state, self.prior)

    def label_scores(self, state: NearState) -> Float[Array, "particle component component"]:
        """Return scores from which the probability of every renaming of factors at the path's start follows, nats.

        Entry [p, k, l] is the log density at the start of particle p's factor l and its intensities, if it is called
        factor k.
        """
        rows, columns, _ = state
        q, on = self.start, self.exists

        def log_gamma_products(log_value: Array, shape: Any, rate: Any) -> Array:
            """Return the log densities of all columns `l` of `log_value` under the Gammas of all columns `k`,
            (particle, k, l), nats.
            """
            shape, rate = (jnp.asarray(each) for each in (shape, rate))
            constant = (shape * jnp.log(rate) - gammaln(shape)).sum(0)
            logs, values = (
                jnp.einsum("pnl,nk->pkl", log_value, shape - 1),
                jnp.einsum("pnl,nk->pkl", jnp.exp(log_value), rate),
            )
            return logs - values + constant[:, None]

        both = log_gamma_products(rows, q.intensities, q.intensity_rates)
        both = both + log_gamma_products(columns, q.factors, q.factor_rates)
        return jnp.where(on[:, None] & on, both, jnp.where(jnp.eye(self.capacity, dtype=bool), 0.0, -jnp.inf))

    def relabel(self, state: NearState, order: Int[Array, "particle component"]) -> NearState:
        """Return the state in which factor l of each particle is called order[l]."""
        back = jnp.argsort(order, axis=1)[:, None]
        rows, columns = (jnp.take_along_axis(leaf, back, axis=2) for leaf in state[:2])
        return NearState(rows, columns, state.log_noise)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def exists(self) -> Array:
        """A mask of the factors that exist, (factor,)."""
        return first(jnp.asarray(self.size), self.capacity)

    def _values(self, log_values: Array) -> Array:
        """Return intensities or factors from their logarithms, 0 for factors that do not exist."""
        return jnp.where(self.exists, jnp.exp(log_values), 0.0)

    @property
    def inferred(self) -> bool:
        """Whether r, the shape of the cells' noise, has a prior."""
        return self.noisy and self.noise_shape is None

    def _noise_shape(self, log_noise: Array | None) -> Float[Array, "..."] | None:
        """Return the noise's shape r, which broadcasts against (particle, row, dim); None without noise.

        log_noise: log r of each particle; None if r is given.
        """
        if not self.noisy:
            return None
        return jnp.asarray(self.noise_shape) if log_noise is None else jnp.exp(log_noise)[:, None, None]

    def _means(self, state: NearState) -> Float[Array, "particle row dim"]:
        """Return the mean of every cell."""
        return self._values(state.log_intensities) @ jnp.swapaxes(self._values(state.log_factors), 1, 2)

    def _log_counts(self, state: NearState, log_noise: Array | None) -> Float[Array, " particle"]:
        """Return log p(counts | factors, intensities, noise shape r) of each particle, nats.

        log_noise: log r of each particle; None if r is given or there is no noise.
        """
        r = self._noise_shape(log_noise)
        cells = log_cells(jnp.asarray(self.counts), jnp.asarray(self.seen), r, self._means(state)).sum((1, 2))
        values, times = jnp.asarray(self.values), jnp.asarray(self.times)
        each = -gammaln(values + 1)
        if r is not None:
            r = r.reshape(-1, 1)
            each = each + gammaln(r + values) - gammaln(r) - values * jnp.log(r)
        return cells + (times * each).sum(-1)

    def _log_gammas(self, state: NearState, gammas: Shapes) -> Float[Array, " particle"]:
        """Return the log density of intensities, factors and noise shape under independent Gammas, per particle, nats.

        gammas: shapes and rates of the Gammas.
        """

        def each(log_value: Array, shape: Any, rate: Any) -> Array:
            """Return the log density of one table under Gammas, without factors that do not exist and up to a
            constant, (particle,), nats.
            """
            density = (jnp.asarray(shape) - 1) * log_value - jnp.asarray(rate) * jnp.exp(log_value)
            return jnp.where(self.exists, density, 0.0).sum((1, 2))

        rows, columns, log_noise = state
        total = each(rows, gammas.intensities, gammas.intensity_rates) + each(
            columns, gammas.factors, gammas.factor_rates
        )
        if log_noise is not None:
            total += (jnp.asarray(gammas.noise) - 1) * log_noise - jnp.asarray(gammas.noise_rate) * jnp.exp(log_noise)
        return total + jnp.asarray(gammas.log_constant)

    def _move_noise(self, draws: ScaleDraws, state: NearState, tempered: Shapes, temperature: Array) -> NearState:
        """Return the state after a Metropolis step of log r, the shape of the noise, as wide as q; unchanged if r
        has no prior.

        draws: the random numbers of the move.
        tempered: the Gammas at the temperature.
        """
        if state.log_noise is None:
            return state
        proposed = state.log_noise + 2 * draws.normal / jnp.sqrt(jnp.asarray(self.start.noise))

        values, times = jnp.asarray(self.values), jnp.asarray(self.times)

        def log_density(log_noise: Array) -> Array:
            """Return the part of the log density of log r at the temperature that no mean decides, elementwise,
            nats.
            """
            r = jnp.exp(log_noise)[..., None]
            each = gammaln(r + values) - gammaln(r) - values * jnp.log(r)
            of_prior = tempered.noise * log_noise - tempered.noise_rate * jnp.exp(log_noise)
            return temperature * (times * each).sum(-1) + of_prior

        x, seen, mean, before, after = jax.tree.map(
            _in_single,
            (self.counts, self.seen, self._means(state), *map(self._noise_shape, (state.log_noise, proposed))),
        )
        of_cells = log_cells_change_of_noise(x, seen, before, after, mean).sum((1, 2))
        of_shapes = log_density(jnp.stack([state.log_noise, proposed]))
        gain = temperature * of_cells + of_shapes[1] - of_shapes[0]
        accepted = jnp.log(draws.uniform) < gain
        return state._replace(log_noise=jnp.where(accepted, proposed, state.log_noise))

    def _rescale(self, draws: ScaleDraws, state: NearState, tempered: Shapes) -> NearState:
        """Return the state after a Metropolis move of every factor's scale.

        Factor k's intensities are multiplied by e^y and its entries divided by e^y, with a y of its own.

        draws: the random numbers of the move.
        tempered: the Gammas at the temperature.
        """
        rows, columns, log_noise = state
        wide = [
            jnp.broadcast_to(each, leaf.shape[1:])
            for each, leaf in zip(tempered[:4], (rows, rows, columns, columns), strict=True)
        ]
        slope = wide[0].sum(0) - wide[2].sum(0)
        up, down = (wide[1] * jnp.exp(rows)).sum(1), (wide[3] * jnp.exp(columns)).sum(1)
        by = jnp.where(self.exists, scale_step(draws, slope, up, down), 0.0)[:, None]
        return NearState(rows + by, columns - by, log_noise)


def _in_single(array: Array | np.ndarray) -> Array:
    """Return an array in float32."""
    return jnp.asarray(array).astype(jnp.float32)


def first_steps_around_fit(chain: AnchoredFactorization, default: int) -> int:
    """Return the number of temperatures of the first annealing of a factorisation around a fit, whatever `default`."""
    return TEMPERATURES


LENGTH, LONGEST = 0.5, 0.7
"""The length of a leapfrog step relative to its coordinate's standard deviation given all others, and the longest one.

Where the data say nothing, the density still has a steep side, of curvature 1.
"""
FACTORS_RUN = SettlingRun(settling=40, averaged=100, particles=2)
"""The run that q is made of.

It begins at the fit and not in the posterior, and q has all of its moments from it, so it is longer than others. Both
particles are averaged over: none is chosen, since q is around the one mode of the fit.
"""
MOST_ROUNDS = 8
"""The most rounds of the run that q is made of. Another round follows as long as counts become more probable.

Factors that are not needed take hundreds of sweeps to empty, and a q made on the way is far from where the run ends. On
500 × 96 counts with 24 factors the forward and the backward estimate are 9,900 nats apart after one round, and 400
after six.
"""
SHARED_CAPACITY, FEW_CELLS = 32, 100_000
"""Sizes up to `SHARED_CAPACITY` share one program where there are at most `FEW_CELLS` cells.

A program compiles in 13 s. On 500 × 96 cells, sweeps of few factors take up to three quarters longer in arrays for 32,
3 to 8 s for all sweeps of a size (one core).
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
    more = _capacity(size, counts.x.size) - size

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
        log_constant=np.zeros(()),
    )
    prior = _with_log_constant(prior, counts.x.shape, size, size + more)
    # r as a number only if it has no prior; equal counts share their log-gammas
    given = None if counts.noise_shape is None or model.inferred else np.asarray(counts.noise_shape)
    values, times = counts.values, np.bincount(counts.places[counts.seen > 0], minlength=len(counts.values))
    # q in full arrays, like those of the runs, so that all runs share one program
    n_rows, n_columns = counts.x.shape
    of_rows, of_columns = (
        [np.array(np.broadcast_to(each, (lines, size + more))) for each in gammas]
        for gammas, lines in ((prior[:2], n_rows), (prior[2:4], n_columns))
    )
    noise = np.asarray(1 + counts.seen.sum() / CELLS_OF_NOISE)
    start = Shapes(of_rows[0], of_rows[1], of_columns[0], of_columns[1], noise, prior.noise_rate, prior.log_constant)
    chain = AnchoredFactorization(
        np.asarray(size),
        counts.x,
        counts.seen,
        given,
        values,
        times.astype(np.float64),
        prior,
        start,
        _leapfrog_lengths(counts, intensities.mean, factors.mean, prior, size + more),
        size + more,
        counts.noise_shape is not None,
    )
    # the run begins at the fit's geometric means
    about = (intensities.geometric_mean, factors.geometric_mean.T)
    particles = FACTORS_RUN.particles
    begin = [np.repeat(pad_factors(np.log(np.maximum(each, TINY)))[None], particles, axis=0) for each in about]
    with jax.enable_x64(True):
        noise = jnp.full(particles, np.log(counts.noise_shape)) if model.inferred and counts.noise_shape else None
        return _refine_q(chain, counts, NearState(jnp.asarray(begin[0]), jnp.asarray(begin[1]), noise))


def _capacity(size: int, cells: int) -> int:
    """Return the number of factors that arrays have room for, which is at least `SHARED_CAPACITY` where cells are few.

    size: the number of factors.
    cells: the number of cells.
    """
    least = capacity_of((size,))[0]
    return max(SHARED_CAPACITY, least) if cells <= FEW_CELLS else least


def _refine_q(chain: AnchoredFactorization, counts: CountMatrix, state: NearState) -> AnchoredFactorization:
    """Return the chain with a new q and new step lengths, from runs at temperature 1 that begin at `state`."""
    key, before = jax.random.key(int(chain.size)), -np.inf
    states = [jax.tree.map(lambda leaf, at=at: leaf[at : at + 1], state) for at in range(FACTORS_RUN.particles)]
    for number in range(MOST_ROUNDS):
        found = in_processes(partial(_run_alone, chain, jax.random.fold_in(key, number), states), len(states))
        states = [each.state for each in found]
        logs, values, level = jax.tree.map(lambda *each: np.mean(each, axis=0), *(each[:3] for each in found))
        # of the mean over particles, which are independent
        spread = np.sqrt(sum(max(each.level[1] - each.level[0] ** 2, 0.0) for each in found)) / len(found)
        start = jax.tree.map(np.asarray, _gammas_of(logs, values))
        start = _with_log_constant(start, counts.x.shape, int(chain.size), chain.capacity)
        intensities, factors = (
            np.asarray(shape / rate)[:, : int(chain.size)]
            for shape, rate in ((start.intensities, start.intensity_rates), (start.factors, start.factor_rates))
        )
        lengths = _leapfrog_lengths(counts, intensities, factors.T, chain.prior, chain.capacity)
        chain = eqx.tree_at(lambda c: (c.start, c.lengths), chain, (start, lengths))
        if not level[0] - before > spread:
            break
        before = level[0]
    return chain


def _run_alone(chain: AnchoredFactorization, key: Key[Array, ""], states: list[NearState], number: int) -> "RunMoments":
    """Return the averages over a run of particle number `number` in the calling thread, in host arrays."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, _average_run(chain, jax.random.fold_in(key, number), states[number]))


def _with_log_constant(gammas: Shapes, lines: tuple[int, int], size: int, capacity: int) -> Shapes:
    """Return the Gammas with their `log_constant`.

    lines: the numbers of rows and of columns.
    size: the number of factors that exist.
    capacity: the number of factors that arrays have room for.
    """

    def constant(shape: Any, rate: Any, n: int) -> float:
        """Return the constant of the log density of a table of Gammas with `n` lines, nats."""
        shape, rate = (np.broadcast_to(each, (n, capacity))[:, :size] for each in (shape, rate))
        return float((shape * np.log(rate) - log_gamma(shape)).sum())

    total = constant(gammas.intensities, gammas.intensity_rates, lines[0])
    total += constant(gammas.factors, gammas.factor_rates, lines[1])
    total += float(gammas.noise * np.log(gammas.noise_rate) - log_gamma(gammas.noise))
    return gammas._replace(log_constant=np.asarray(total))


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
    | `logs`, `values` | a state with the averages of all logarithms, and of their exponentials, without particles |
    | `level` | the averages of log p(counts \\| state) and of its square |
    | `state` | the state in which the run ended |
    """

    logs: NearState
    values: NearState
    level: Float[Array, "two"]
    state: NearState


@kernel(once=True, short=True)
def _average_run(chain: AnchoredFactorization, key: Key[Array, ""], state: NearState) -> RunMoments:
    """Sweep particles at temperature 1, as `FACTORS_RUN` says, and return the averages over the later sweeps."""

    def observe(state: NearState) -> tuple[NearState, NearState, Array]:
        """Return averages over particles: of a state's logarithms, of their exponentials, and of log p(counts | state).

        The last comes with its square, as an array (average, average²).
        """
        logs, values = (
            jax.tree.map(lambda leaf, of=of: of(leaf).mean(0), state) for of in (lambda leaf: leaf, jnp.exp)
        )
        level = chain._log_counts(state, state.log_noise).mean()
        return logs, values, jnp.stack([level, level**2])

    state, (logs, values, level) = average_over_sweeps(chain, key, state, observe, FACTORS_RUN)
    return RunMoments(logs, values, level, state)


@kernel(once=True)
def _gammas_of(logs: NearState, values: NearState) -> Shapes:
    """Return the Gammas with these mean logarithms and means; shape and rate 1 where there is no r.

    `log_constant` is 0 and remains to be computed.
    """
    found = []
    for log, value in zip(logs, values, strict=True):
        if log is None or value is None:  # no r
            found += [jnp.ones(()), jnp.ones(())]
        else:
            # the Gamma with this mean and this mean logarithm: log mean − mean log decides the shape
            shape = gamma_shape(jnp.maximum(jnp.log(value) - log, NARROWEST))
            found += [shape, shape / value]
    return Shapes(*found, log_constant=jnp.zeros(()))
