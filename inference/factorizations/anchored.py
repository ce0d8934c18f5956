"""Factorisations of large matrices of counts, annealed from a q about a fit, with allocations and noise summed out.

    π_t(θ, β) ∝ q(θ, β)^(1−t) [p(θ, β) Π_nv p(x_nv | m_nv)]^t,      m_nv = Σ_k θ_nk β_kv

Here p(x | m) is Poisson, or negative binomial if cells have noise. q consists of independent Gammas, whose means and
mean logarithms come from a short run from the fit. The path from the prior
(`lvsearch.inference.evidence.poisson_factorization`) draws the factor of every single count, and must be as long as
there is information in the data. This path depends neither on the number of counts nor on how informative they are.
What is left to anneal is how the parameters depend on each other.

Why allocations and noise are summed out: given both, a cell of a thousand counts knows its mean to 3 %, where the noise
leaves 20 %. A Gibbs sweep moves by the smaller of the two. With both summed out, rows are independent given factors,
and columns given intensities. On the scale of logarithms each row, and then each column, moves by a Hamiltonian
trajectory (Neal 2011) with a Metropolis step of its own. Dimensions are few, and all of them move at once. Single
entries also jump, because the intensities of a factor that a row does not have lie anywhere on a long tail. Each
factor's scale moves as on the path from the prior.

q is about one labelling, which `label_scores` corrects for. It is also about one mode: modes that the short run did not
visit are not counted.
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
from lvsearch.inference.factorizations.rescaling import scale_step
from lvsearch.inference.factorizations.trajectories import LEAPS, MatrixLines, log_cells
from lvsearch.models.contract import first

TEMPERATURES = 240
"""The number of temperatures of the first annealing.

q does not know the scale that all entries of a factor share, and annealing that dependence takes many temperatures. A
sweep takes little time beside the fit. On 100 × 96 counts of 8 factors the two ends are 79 nats apart with 72.
"""


class NearState(NamedTuple):
    """The state of the particles: logarithms, with particles on the first axis.

    Factors that do not exist hold anything finite. `log_noise` is log r, or None if r is given or there is no noise.
    """

    log_intensities: Float[Array, "particle row factor"]
    log_factors: Float[Array, "particle dim factor"]
    log_noise: Float[Array, " particle"] | None


class Shapes(NamedTuple):
    """Shapes and rates, which broadcast, of independent Gammas of all intensities and factors, and of r.

    If r has no prior, its shape and rate are 1.
    """

    intensities: Float[Array | np.ndarray, "..."]
    intensity_rates: Float[Array | np.ndarray, "..."]
    factors: Float[Array | np.ndarray, "..."]
    factor_rates: Float[Array | np.ndarray, "..."]
    noise: Float[Array | np.ndarray, ""]
    noise_rate: Float[Array | np.ndarray, ""]


class AnchoredFactorization(eqx.Module):
    """A `Chain` of a `PoissonFactorization` from q, which `near_fit` makes.

    The first `size` of `capacity` factors exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K | (), traced |
    | `counts`, `seen` | x, 0 where nothing was observed; 1 where a cell was observed | (row, dim) |
    | `noise_shape` | r if it is given; None without noise | () |
    | `values`, `times` | the different counts, and in how many observed cells each is | (value,) |
    | `prior`, `start` | the Gammas of the model's prior; those of q | as of (row, factor) and (dim, factor) |
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
        """The number of cells, times the steps of the two trajectories of a sweep: this is what takes the time."""
        return 2 * LEAPS * self.counts.shape[0] * self.counts.shape[1]

    @property
    def lanes(self) -> int:
        return 16

    @property
    def directed(self) -> bool:
        return False  # every move is its own reversal; the order of a sweep is a valid one both ways

    def init(self, key: Key[Array, ""], particles: int) -> NearState:
        """Draw particles from q."""
        keys, (n_rows, n_dims) = jax.random.split(key, 3), self.counts.shape

        def draw_log_gammas(key: Array, shape: Any, rate: Any, n: int) -> Array:
            wide = (particles, n, self.capacity)
            return log_gamma_draws(key, jnp.broadcast_to(jnp.asarray(shape), wide)) - jnp.log(rate)

        q = self.start
        noise = None
        if self.inferred:
            noise = log_gamma_draws(keys[2], jnp.broadcast_to(jnp.asarray(q.noise), particles)) - jnp.log(q.noise_rate)
        return NearState(
            draw_log_gammas(keys[0], q.intensities, q.intensity_rates, n_rows),
            draw_log_gammas(keys[1], q.factors, q.factor_rates, n_dims),
            noise,
        )

    def step(
        self, key: Key[Array, ""], state: NearState, temperature: Float[Array, ""], *, backward: bool
    ) -> NearState:
        """Move rows, columns, scales and the shape of the noise."""
        del backward
        keys, t = jax.random.split(key, 4), temperature
        # the Gammas at temperature t have natural parameters between those of q and of the prior
        at = Shapes(
            *((1 - t) * jnp.asarray(q) + t * jnp.asarray(p) for q, p in zip(self.start, self.prior, strict=True))
        )
        rows, columns, log_noise = state
        x, seen, r = jnp.asarray(self.counts), jnp.asarray(self.seen), self._noise_shape(log_noise)
        of_rows = MatrixLines(self.exists, x, seen, r, self._values(columns), at.intensities, at.intensity_rates, t)
        rows = of_rows.move(keys[0], rows, jnp.asarray(self.lengths[0]))
        of_columns = MatrixLines(self.exists, x.T, seen.T, r, self._values(rows), at.factors, at.factor_rates, t)
        columns = of_columns.move(keys[1], columns, jnp.asarray(self.lengths[1]))
        state = self._rescale(keys[2], NearState(rows, columns, log_noise), at)
        return self._move_noise(keys[3], state, at, t)

    def log_ratio(self, state: NearState) -> Float[Array, " particle"]:
        """Return log p(counts, state) − log q(state), nats, (particle,)."""
        return self.log_density(state) - self._log_gammas(state, self.start)

    def log_density(self, state: NearState) -> Float[Array, " particle"]:
        """Return log p(counts, factors, intensities, r), nats, (particle,). Allocations and noise are summed out."""
        return self._log_counts(state, state.log_noise) + self._log_gammas(state, self.prior)

    def label_scores(self, state: NearState) -> Float[Array, "particle component component"]:
        """Return S[k, l], the log density under q of the state's factor l and its intensities as factor k, nats."""
        rows, columns, _ = state
        q, on = self.start, self.exists

        def log_gamma_products(log_value: Array, shape: Any, rate: Any) -> Array:
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
        """Return the state in which factor l is called order[l]."""
        back = jnp.argsort(order, axis=1)[:, None]
        rows, columns = (jnp.take_along_axis(leaf, back, axis=2) for leaf in state[:2])
        return NearState(rows, columns, state.log_noise)

    def take(self, state: NearState, particles: Int[Array, " chosen"]) -> NearState:
        """Return the state of the named particles, in that order."""
        return jax.tree.map(lambda leaf: leaf[particles], state)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def exists(self) -> Array:
        """A mask of the factors that exist, (factor,)."""
        return first(jnp.asarray(self.size), self.capacity)

    def _values(self, log_values: Array) -> Array:
        """Return θ or β from its logarithms, 0 for factors that do not exist."""
        return jnp.where(self.exists, jnp.exp(log_values), 0.0)

    @property
    def inferred(self) -> bool:
        """Whether r has a prior."""
        return self.noisy and self.noise_shape is None

    def _noise_shape(self, log_noise: Array | None) -> Float[Array, "..."] | None:
        """Return r, shaped to broadcast against (particle, line, across); None without noise."""
        if not self.noisy:
            return None
        return jnp.asarray(self.noise_shape) if log_noise is None else jnp.exp(log_noise)[:, None, None]

    def _log_counts(self, state: NearState, log_noise: Array | None) -> Float[Array, " particle"]:
        """Return log p(counts | factors, intensities, r), nats, (particle,)."""
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
        """Return the log density of intensities, factors and r under independent Gammas, nats, (particle,)."""

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

    def _move_noise(self, key: Array, state: NearState, at: Shapes, temperature: Array) -> NearState:
        """Move r, if it has a prior, by a Metropolis step as long as q is wide."""
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

    def _rescale(self, key: Array, state: NearState, at: Shapes) -> NearState:
        """Move every factor's scale: θ_·k e^y and β_k e^−y."""
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
    """Return how many temperatures the first annealing has."""
    return TEMPERATURES
