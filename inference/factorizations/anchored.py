"""Factorisations of large matrices of counts, annealed from about a fit: allocations and noise summed out.

    π_t(θ, β) ∝ q(θ, β)^(1−t) [p(θ, β) Π_nv p(x_nv | m_nv)]^t,      m_nv = Σ_k θ_nk β_kv

with p(x | m) Poisson's, or negative binomial where cells have noise, and q independent Gammas that have the means and
the mean logarithms which a short run from the fit says the posterior has. The path from the prior
(`lvsearch.inference.evidence.poisson_factorization`) draws what every single count is allocated to, and is as long as
all that the data say; here neither counts nor how much they say cost anything, and what is left to anneal is how the
parameters depend on each other.

Why not allocations and noise: given both, a cell of a thousand counts knows its mean to 3 %, where the noise leaves
20 %, and a Gibbs sweep moves by the first of the two. With both summed out rows are independent given factors, and
columns given intensities. On the scale of logarithms each row moves by a Hamiltonian trajectory (Neal 2011) with a
Metropolis step of its own, and so does each column: dimensions are few and all are moved at once. One entry at a time
jumps, for the intensities of what a row has nothing of lie anywhere on a long tail; and each factor's scale as on the
path from the prior.

q knows one labelling, which `label_scores` corrects for, and one mode: what the run did not see is not counted.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.dispatch import first_steps
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.factorizations.estimator import counts_of_rows, factors_of, priors_of, settled
from lvsearch.inference.factorizations.kernel import TINY, CountMatrix, Gammas
from lvsearch.inference.factorizations.lines import LEAPS, Lines, log_cells
from lvsearch.inference.factorizations.rescaling import scale_step
from lvsearch.models.contract import first
from lvsearch.models.exponential.digamma import gamma_shape
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel
from lvsearch.models.poisson_factorization import PoissonFactorization

LENGTH, LONGEST = 0.5, 0.7
"""How long a leapfrog step is beside the standard deviation of its coordinate given all others, and at most: where data
say nothing the density still has a steep side, of curvature 1."""
SETTLING, AVERAGED, RUNS = 40, 100, 2
"""Sweeps of the run that q is made of, before and while its moments are averaged, and how many are side by side."""
MOST_ROUNDS = 8
"""Of that run: the next one goes on from where it ended as long as counts become more probable. Factors that are not
needed take hundreds of sweeps to empty themselves, and a q made on the way there is far from where it ends: 500 × 96
counts, 24 factors: ends are 9,900 nats apart after one round, 400 after six."""
CELLS_OF_NOISE = 10.0
"""Cells that say as much of log r as one observation of variance 1, about: how far r moves in that run."""
TEMPERATURES = 240
"""Of the first annealing: q's entries do not know of the one scale that all entries of a factor share, which takes many
to anneal away, and a sweep takes little beside the fit. 100 × 96 counts of 8 factors: ends are 79 nats apart with 72.
"""
NARROWEST = 1e-6
"""Least log E[x] − E[log x] of q."""


class NearState(NamedTuple):
    """Particles one after another, logarithms. Factors that do not exist hold anything finite; `log_noise`, log r, is
    None where r is given or there is no noise."""

    log_intensities: Float[Array, "particle row factor"]
    log_factors: Float[Array, "particle dim factor"]
    log_noise: Float[Array, " particle"] | None


class Shapes(NamedTuple):
    """Shapes and rates, which broadcast, of independent Gammas of all intensities and factors, and of r where it has a
    prior; 1 where it has none."""

    intensities: Float[Array | np.ndarray, "..."]
    intensity_rates: Float[Array | np.ndarray, "..."]
    factors: Float[Array | np.ndarray, "..."]
    factor_rates: Float[Array | np.ndarray, "..."]
    noise: Float[Array | np.ndarray, ""]
    noise_rate: Float[Array | np.ndarray, ""]


class AnchoredFactorization(eqx.Module):
    """A `Chain` of a `PoissonFactorization` from q. `near_fit` makes one; the first `size` of `capacity` factors exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K | (), traced |
    | `counts`, `seen` | x, 0 where nothing was observed; 1 where something was | (row, dim) |
    | `noise_shape` | r, where it is given; None without noise | () |
    | `values`, `times` | the different counts, and in how many observed cells each is | (value,) |
    | `prior`, `start` | of the model; q | as of (row, factor) and (dim, factor) |
    | `lengths` | of leapfrog steps, 0 of factors that do not exist | (row, factor) and (dim, factor) |
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

    @property
    def elements(self) -> int:
        """Cells, in every step of two trajectories: they are what takes the time."""
        return 2 * LEAPS * self.counts.shape[0] * self.counts.shape[1]

    @property
    def lanes(self) -> int:
        return 16

    @property
    def directed(self) -> bool:
        return False  # every move is its own reversal; the order of a sweep is a valid one both ways

    def init(self, key: Key[Array, ""], particles: int) -> NearState:
        """Draws of q."""
        keys, (n_rows, n_dims) = jax.random.split(key, 3), self.counts.shape

        def drawn(key: Array, shape: Any, rate: Any, n: int) -> Array:
            wide = (particles, n, self.capacity)
            return log_gamma_draws(key, jnp.broadcast_to(jnp.asarray(shape), wide)) - jnp.log(rate)

        q = self.start
        noise = None
        if self.inferred:
            noise = log_gamma_draws(keys[2], jnp.broadcast_to(jnp.asarray(q.noise), particles)) - jnp.log(q.noise_rate)
        return NearState(
            drawn(keys[0], q.intensities, q.intensity_rates, n_rows),
            drawn(keys[1], q.factors, q.factor_rates, n_dims),
            noise,
        )

    def step(
        self, key: Key[Array, ""], state: NearState, temperature: Float[Array, ""], *, backward: bool
    ) -> NearState:
        """Rows, columns, scales, the shape of the noise."""
        del backward
        keys, t = jax.random.split(key, 4), temperature
        at = Shapes(
            *((1 - t) * jnp.asarray(q) + t * jnp.asarray(p) for q, p in zip(self.start, self.prior, strict=True))
        )
        rows, columns, log_noise = state
        x, seen, r = jnp.asarray(self.counts), jnp.asarray(self.seen), self._noise_shape(log_noise)
        of_rows = Lines(self.exists, x, seen, r, self._values(columns), at.intensities, at.intensity_rates, t)
        rows = of_rows.moved(keys[0], rows, jnp.asarray(self.lengths[0]))
        of_columns = Lines(self.exists, x.T, seen.T, r, self._values(rows), at.factors, at.factor_rates, t)
        columns = of_columns.moved(keys[1], columns, jnp.asarray(self.lengths[1]))
        state = self._rescaled(keys[2], NearState(rows, columns, log_noise), at)
        return self._noise_moved(keys[3], state, at, t)

    def log_ratio(self, state: NearState) -> Float[Array, " particle"]:
        """log p(counts, state) − log q(state), nats."""
        return self.log_density(state) - self._log_gammas(state, self.start)

    def log_density(self, state: NearState) -> Float[Array, " particle"]:
        """log p(counts, factors, intensities, r), nats: allocations and noise summed out."""
        return self._log_counts(state, state.log_noise) + self._log_gammas(state, self.prior)

    def label_scores(self, state: NearState) -> Float[Array, "particle component component"]:
        """S[k, l] = log q(factor k = the state's factor l), its intensities with it, nats."""
        rows, columns, _ = state
        q, on = self.start, self.exists

        def scored(log_value: Array, shape: Any, rate: Any) -> Array:
            shape, rate = (jnp.asarray(each) for each in (shape, rate))
            constant = (shape * jnp.log(rate) - gammaln(shape)).sum(0)
            logs, values = (
                jnp.einsum("pnl,nk->pkl", log_value, shape - 1),
                jnp.einsum("pnl,nk->pkl", jnp.exp(log_value), rate),
            )
            return logs - values + constant[:, None]

        both = scored(rows, q.intensities, q.intensity_rates) + scored(columns, q.factors, q.factor_rates)
        return jnp.where(on[:, None] & on, both, jnp.where(jnp.eye(self.capacity, dtype=bool), 0.0, -jnp.inf))

    def relabel(self, state: NearState, order: Int[Array, "particle component"]) -> NearState:
        """Each state with its factor l called order[l]."""
        back = jnp.argsort(order, axis=1)[:, None]
        rows, columns = (jnp.take_along_axis(leaf, back, axis=2) for leaf in state[:2])
        return NearState(rows, columns, state.log_noise)

    def take(self, state: NearState, particles: Int[Array, " chosen"]) -> NearState:
        """The named particles, in that order."""
        return jax.tree.map(lambda leaf: leaf[particles], state)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def exists(self) -> Array:
        return first(jnp.asarray(self.size), self.capacity)

    def _values(self, log_values: Array) -> Array:
        """θ or β, 0 of factors that do not exist."""
        return jnp.where(self.exists, jnp.exp(log_values), 0.0)

    @property
    def inferred(self) -> bool:
        """Whether r has a prior."""
        return self.noisy and self.noise_shape is None

    def _noise_shape(self, log_noise: Array | None) -> Float[Array, "..."] | None:
        """r beside (particle, line, across); None without noise."""
        if not self.noisy:
            return None
        return jnp.asarray(self.noise_shape) if log_noise is None else jnp.exp(log_noise)[:, None, None]

    def _log_counts(self, state: NearState, log_noise: Array | None) -> Float[Array, " particle"]:
        """log p(counts | factors, intensities, r), nats."""
        r = self._noise_shape(log_noise)
        mean = self._values(state.log_intensities) @ jnp.swapaxes(self._values(state.log_factors), 1, 2)
        cells = log_cells(jnp.asarray(self.counts), jnp.asarray(self.seen), r, mean).sum((1, 2))
        values, times = jnp.asarray(self.values), jnp.asarray(self.times)
        each = -gammaln(values + 1)
        if r is not None:
            r = r.reshape(-1, 1)
            each = each + gammaln(r + values) - gammaln(r) - values * jnp.log(r)
        return cells + (times * each).sum(-1)

    def _log_gammas(self, state: NearState, of: Shapes) -> Float[Array, " particle"]:
        """log density of intensities and factors under independent Gammas, nats."""

        def each(log_value: Array, shape: Any, rate: Any) -> Array:
            shape, rate = jnp.asarray(shape), jnp.asarray(rate)
            density = (shape - 1) * log_value - rate * jnp.exp(log_value) + shape * jnp.log(rate) - gammaln(shape)
            return jnp.where(self.exists, density, 0.0).sum((1, 2))

        rows, columns, log_noise = state
        total = each(rows, of.intensities, of.intensity_rates) + each(columns, of.factors, of.factor_rates)
        if log_noise is not None:
            shape, rate = jnp.asarray(of.noise), jnp.asarray(of.noise_rate)
            total += (shape - 1) * log_noise - rate * jnp.exp(log_noise) + shape * jnp.log(rate) - gammaln(shape)
        return total

    def _noise_moved(self, key: Array, state: NearState, at: Shapes, temperature: Array) -> NearState:
        """r, where it has a prior, by a step as long as q is wide."""
        if state.log_noise is None:
            return state
        key_step, key_accept = jax.random.split(key)
        step = jax.random.normal(key_step, state.log_noise.shape, state.log_noise.dtype)
        proposed = state.log_noise + 2 * step / jnp.sqrt(jnp.asarray(self.start.noise))

        def log_density(log_noise: Array) -> Array:
            return (
                temperature * self._log_counts(state, log_noise)
                + at.noise * log_noise
                - at.noise_rate * jnp.exp(log_noise)
            )

        gain = log_density(proposed) - log_density(state.log_noise)
        accepted = jnp.log(jax.random.uniform(key_accept, gain.shape, gain.dtype)) < gain
        return state._replace(log_noise=jnp.where(accepted, proposed, state.log_noise))

    def _rescaled(self, key: Array, state: NearState, at: Shapes) -> NearState:
        """θ_·k e^y and β_k e^−y: every factor's scale."""
        rows, columns, log_noise = state
        wide = [
            jnp.broadcast_to(each, leaf.shape[1:])
            for each, leaf in zip(at[:4], (rows, rows, columns, columns), strict=True)
        ]
        slope = wide[0].sum(0) - wide[2].sum(0)
        up, down = (wide[1] * jnp.exp(rows)).sum(1), (wide[3] * jnp.exp(columns)).sum(1)
        by = jnp.where(self.exists, scale_step(key, slope, up, down), 0.0)[:, None]
        return NearState(rows + by, columns - by, log_noise)


@first_steps.register
def _(chain: AnchoredFactorization) -> int:
    return TEMPERATURES


def near_fit(model: PoissonFactorization, data: Dataset, size: int, estimate: Estimate) -> AnchoredFactorization:
    """The chain from about a fit of this size. Raises ValueError for cells that are no counts."""
    assert isinstance(estimate.model, PoissonFactorization)
    counts, priors = counts_of_rows(estimate.model, data), priors_of(model, size)  # the fit's model has a number for r
    factors = factors_of(estimate)
    blank = Gammas(np.ones((len(counts.x), size)), np.full((len(counts.x), size), float(size)))
    intensities = settled(counts, priors.intensity, blank, factors.geometric_mean, factors.mean)
    more = capacity_of((size,))[0] - size

    def padded(table: np.ndarray) -> np.ndarray:
        return np.pad(table, [(0, 0), (0, more)])

    inferred = model.noise_shape if isinstance(model.noise_shape, GammaPrior) else GammaPrior()
    prior = Shapes(
        np.asarray(priors.intensity.shape),
        np.asarray(priors.intensity.rate),
        np.asarray(priors.factor.shape),
        np.broadcast_to(np.atleast_1d(priors.factor.rate), counts.x.shape[1:])[:, None],
        *(np.asarray(each, np.float64) for each in inferred),
    )
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
        _lengths(counts, intensities.mean, factors.mean, prior, size + more),
        size + more,
        counts.noise_shape is not None,
    )
    about = (intensities.geometric_mean, factors.geometric_mean.T)
    begin = [np.repeat(padded(np.log(np.maximum(each, TINY)))[None], RUNS, axis=0) for each in about]
    with jax.enable_x64(True):
        noise = jnp.full(RUNS, np.log(counts.noise_shape)) if model.inferred and counts.noise_shape else None
        return _settled(chain, counts, NearState(jnp.asarray(begin[0]), jnp.asarray(begin[1]), noise))


def _settled(chain: AnchoredFactorization, counts: CountMatrix, state: NearState) -> AnchoredFactorization:
    """The chain with the q and the lengths of steps that a run at temperature 1 from these states comes to."""
    key, before = jax.random.key(int(chain.size)), -np.inf
    for number in range(MOST_ROUNDS):
        found = _moments(chain, jax.random.fold_in(key, number), state)
        start, state = jax.tree.map(np.asarray, found.gammas), found.state
        intensities, factors = (
            (shape / rate)[:, : int(chain.size)]
            for shape, rate in ((start.intensities, start.intensity_rates), (start.factors, start.factor_rates))
        )
        lengths = _lengths(counts, intensities, factors.T, chain.prior, chain.capacity)
        chain = eqx.tree_at(lambda c: (c.start, c.lengths), chain, (start, lengths))
        if not float(found.level) - before > float(found.spread):
            break
        before = float(found.level)
    return chain


def _lengths(
    counts: CountMatrix, intensities: np.ndarray, factors: np.ndarray, prior: Shapes, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """`LENGTH` standard deviations of each logarithm given all others, from Fisher's information at these values."""
    mean = np.maximum(intensities @ factors, TINY)
    information = counts.seen / (mean if counts.noise_shape is None else mean * (1 + mean / counts.noise_shape))
    of_rows = intensities**2 * (information @ factors.T**2) + prior.intensity_rates * intensities
    of_columns = factors.T**2 * (information.T @ intensities**2) + prior.factor_rates * factors.T
    rows, columns = (
        np.pad(np.minimum(LONGEST, LENGTH / np.sqrt(each + TINY)), [(0, 0), (0, capacity - factors.shape[0])])
        for each in (of_rows, of_columns)
    )
    return rows, columns


class Moments(NamedTuple):
    """Of a run at temperature 1: Gammas with the means and mean logarithms that it had on average; where it ended; mean
    and standard deviation of log p(counts | state) along it, nats."""

    gammas: Shapes
    state: NearState
    level: Float[Array, ""]
    spread: Float[Array, ""]


@kernel()
def _moments(chain: AnchoredFactorization, key: Key[Array, ""], state: NearState) -> Moments:
    """Of `AVERAGED` sweeps after `SETTLING`."""

    def seen(state: NearState) -> tuple[NearState, NearState, Array]:
        logs, values = (
            jax.tree.map(lambda leaf, of=of: of(leaf).mean(0), state) for of in (lambda leaf: leaf, jnp.exp)
        )
        level = chain._log_counts(state, state.log_noise).mean()
        return logs, values, jnp.stack([level, level**2])

    def one(index: Array, carry: tuple[NearState, Any]) -> tuple[NearState, Any]:
        state, total = carry
        state = chain.step(jax.random.fold_in(key, index), state, jnp.ones(()), backward=False)
        share = jnp.where(index < SETTLING, 0.0, 1 / AVERAGED)
        return state, jax.tree.map(lambda mean, now: mean + share * now, total, seen(state))

    nothing = jax.tree.map(jnp.zeros_like, seen(state))
    state, (logs, values, level) = jax.lax.fori_loop(0, SETTLING + AVERAGED, one, (state, nothing))
    found = []
    for log, value in zip(logs, values, strict=True):
        if log is None:
            found += [jnp.ones(()), jnp.ones(())]
        else:
            shape = gamma_shape(jnp.maximum(jnp.log(value) - log, NARROWEST))
            found += [shape, shape / value]
    return Moments(Shapes(*found), state, level[0], jnp.sqrt(jnp.maximum(level[1] - level[0] ** 2, 0.0)))
