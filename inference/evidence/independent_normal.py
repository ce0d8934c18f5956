"""Gaussian mixtures with independent priors of means and precisions, annealed from the prior of all latent variables.

    π_t(z, π, μ, τ, β) ∝ p(z, π, μ, τ, β) Π_n p(x_n | μ_{z_n}, τ_{z_n})^t

The density of each row given its component is tempered, not the sum over components. So every complete conditional
stays in its family, with t as the weight of a row. With y in the model's coordinates, and n_k and sums over the rows of
component k,

    z_n | · ∝ π_k exp(t Σ_d [½ log τ_kd − ½ τ_kd (y_nd − μ_kd)²])
    π | ·   ~ Dirichlet(a + n_k)
    μ_k | · ~ Normal(t τ_k Σ y / c, 1/c),   c = κ + t n_k τ_k
    τ_k | · ~ Gamma(α + t n_k / 2, rate β + t Σ (y − μ_k)² / 2)
    β | ·   ~ Gamma(g + K α, rate h + Σ_k τ_k)

(Richardson & Green 1997, §3, at t = 1). Components without rows are drawn from their prior.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.dispatch import sampled_chain
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.engine.estimate import capacity_of, check_size
from lvsearch.models.contract import first
from lvsearch.models.families import GammaStatistics, GaussianStatistics
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.kernels import kernel
from lvsearch.models.units import Row

ROWS_AT_ONCE = 8
"""Number of rows whose labels are drawn together, so that their scores stay in the cache. Rows are padded to a
multiple.
"""


class NormalState(NamedTuple):
    """All latent variables, particles side by side on the last axis. Components that do not exist hold any finite
    numbers.

    | field | letter | shape |
    |---|---|---|
    | `labels` | z | (row, particle) |
    | `log_weights` | log π | (component, particle) |
    | `mean` | μ | (component, dim, particle) |
    | `precision` | τ | (component, dim, particle) |
    | `rate` | β | (dim, particle) |
    """

    labels: Int[Array, "row particle"]
    log_weights: Float[Array, "component particle"]
    mean: Float[Array, "component dim particle"]
    precision: Float[Array, "component dim particle"]
    rate: Float[Array, "dim particle"]


@kernel(brief=True)
def _coordinates_and_carriers(model: IndependentNormalMixture, rows: Row) -> tuple[Array, Array]:
    """Return (the rows in the coordinates of the prior, log h of each row in nats)."""
    return jax.vmap(model.coordinates)(rows), jax.vmap(model.log_carrier)(rows)


class IndependentNormalChain(eqx.Module):
    """A `Chain` of an `IndependentNormalMixture`, made by `from_data`. The first `size` of `capacity` components exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K | (), traced |
    | `values` | y, 0 in missing cells | (row, dim) |
    | `observed` | False in missing cells | (row, dim) |
    | `carriers` | Σ over observed cells of −½ log 2π − log scale | (row,) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    """

    model: IndependentNormalMixture
    size: Int[Array | np.ndarray, ""]
    values: Float[Array | np.ndarray, "row dim"]
    observed: Bool[Array | np.ndarray, "row dim"]
    carriers: Float[Array | np.ndarray, " row"]
    weight: Float[Array | np.ndarray, " row"]
    capacity: int = eqx.field(static=True)

    @classmethod
    def from_data(
        cls, model: IndependentNormalMixture, data: Dataset, size: int, capacity: int
    ) -> "IndependentNormalChain":
        """Return the chain of a mixture with `size` components.

        Rows are in the order of the batches, with their padding, so that data sets of one padded length share their
        programs.

        Raises ValueError for rows whose weight is neither 0 nor 1, and for a size that does not fit in the capacity.
        """
        check_size(size, capacity)
        units, weight = padded_rows(data)
        with jax.enable_x64(True):
            values, carriers = map(np.asarray, _coordinates_and_carriers(model, units))
        return cls(model, np.asarray(size), values, np.asarray(units.observed), carriers, weight, capacity)

    @property
    def elements(self) -> int:
        """The number of rows: each has its label drawn in a sweep."""
        return len(self.weight)

    @property
    def lanes(self) -> int:
        return 32

    @property
    def directed(self) -> bool:
        return True

    def init(self, key: Key[Array, ""], particles: int) -> NormalState:
        """Return all latent variables drawn from their prior."""
        keys, (n_rows, n_dims) = jax.random.split(key, 5), self.values.shape
        each = jnp.zeros((self.capacity, n_dims, particles))
        rate = jnp.exp(log_gamma_draws(keys[0], each[0] + self.model.rate_shape)) / self.model.rate_rate
        log_weights = self._log_weights(keys[1], each[:, 0])
        return NormalState(
            jax.random.categorical(keys[2], log_weights, axis=0, shape=(n_rows, particles)).astype(jnp.int32),
            log_weights,
            jax.random.normal(keys[3], each.shape, each.dtype) / jnp.sqrt(self.model.mean_precision),
            jnp.exp(log_gamma_draws(keys[4], each + self.model.shape)) / rate,
            rate,
        )

    def step(
        self, key: Key[Array, ""], state: NormalState, temperature: Float[Array, ""], *, backward: bool
    ) -> NormalState:
        """Draw labels, weights, means, precisions and rates in turn; in the reverse order if `backward`."""
        key_labels, key_globals = jax.random.split(key)

        def labelled(state: NormalState) -> NormalState:
            return state._replace(labels=self._labels(key_labels, state, temperature))

        if backward:
            return labelled(self._globals(key_globals, state, temperature, backward=True))
        return self._globals(key_globals, labelled(state), temperature, backward=False)

    def log_ratio(self, state: NormalState) -> Float[Array, " particle"]:
        """Return log p(rows | labels, means, precisions) of each particle, nats."""
        chosen = state.labels[:, None]
        mean, precision = (jnp.take_along_axis(leaf, chosen, axis=0) for leaf in (state.mean, state.precision))
        cells = jnp.log(precision) - precision * (self.values[..., None] - mean) ** 2
        return 0.5 * jnp.where(self.observed[..., None], cells, 0.0).sum((0, 1)) + jnp.asarray(self.carriers).sum()

    def log_density(self, state: NormalState) -> Float[Array, " particle"]:
        """Return log p(rows, labels, weights, means, precisions, rates) of each particle, nats, computed by the
        model.
        """
        on = self.model.active((jnp.asarray(self.size),), (self.capacity,))
        units = Row(self.model.location + self.model.scale * self.values, self.observed)

        def one(labels: Array, log_weights: Array, mean: Array, precision: Array, rate: Array) -> Array:
            g = {
                "weights": jnp.where(on["component"], log_weights, 0.0),
                "mean": GaussianStatistics(mean, -0.5 * mean**2),
                "precision": GammaStatistics(jnp.log(precision), -precision),
                "rate": GammaStatistics(jnp.log(rate), -rate),
            }
            indicators = jax.nn.one_hot(labels, self.capacity, dtype=mean.dtype)
            each = jax.vmap(lambda unit, z: self.model.log_unit(g, {"component": z}, unit, on))(units, indicators)
            return self.model.log_prior(g, on) + jnp.where(self.weight > 0, each, 0.0).sum()

        return jax.vmap(one, in_axes=-1)(*state)

    def label_scores(self, state: NormalState) -> None:
        """Return None: the prior does not change under relabelling."""
        return

    def relabel(self, state: NormalState, order: Int[Array, "particle component"]) -> NormalState:
        """Return the state as it is: no labelling is better than another."""
        return state

    def take(self, state: NormalState, particles: Int[Array, " chosen"]) -> NormalState:
        """Return the state of the named particles, in that order."""
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    def _labels(self, key: Array, state: NormalState, temperature: Array) -> Int[Array, "row particle"]:
        """Draw every row's label given all other variables, (row, particle)."""
        uniforms = jax.random.uniform(key, state.labels.shape, state.mean.dtype)
        half_log = 0.5 * jnp.log(state.precision)

        def one(row: tuple[Array, Array, Array]) -> Array:
            y, observed, uniform = row
            return self.chosen(state.log_weights + temperature * self._cells(state, half_log, y, observed), uniform)

        rows = jnp.asarray(self.values), jnp.asarray(self.observed), uniforms
        return jax.lax.map(one, rows, batch_size=ROWS_AT_ONCE)

    def chosen(
        self, score: Float[Array, "component particle"], uniform: Float[Array, " particle"]
    ) -> Int[Array, " particle"]:
        """Draw an existing component in proportion to exp(score), (particle,).

        uniform: one uniform draw for each particle, by which the component is found.
        """
        cumulative = jnp.cumsum(jnp.exp(score - score.max(0)), axis=0)
        label = (cumulative < uniform * cumulative[-1]).sum(0, dtype=jnp.int32)
        return jnp.minimum(label, jnp.asarray(self.size, jnp.int32) - 1)

    def _cells(
        self, state: NormalState, half_log: Float[Array, "component dim particle"], y: Array, observed: Array
    ) -> Float[Array, "component particle"]:
        """Return Σ_d [½ log τ_kd − ½ τ_kd (y_d − μ_kd)²] of one row y under each component, (component, particle).

        half_log: ½ log τ. observed: the row's observed cells, over which the sum goes.
        """
        cells = half_log - 0.5 * state.precision * (y[:, None] - state.mean) ** 2
        return jnp.where(observed[:, None], cells, 0.0).sum(1)

    def _globals(self, key: Array, state: NormalState, temperature: Array, *, backward: bool) -> NormalState:
        """Draw weights, means, precisions and rates in turn, given the labels; in the reverse order if `backward`."""
        keys, model = jax.random.split(key, 4), self.model
        rows, n, total, squares = self._sums(state.labels)
        exists = first(jnp.asarray(self.size), self.capacity)[:, None, None]

        def draw_weights(s: NormalState) -> NormalState:
            return s._replace(log_weights=self._log_weights(keys[0], rows))

        def draw_means(s: NormalState) -> NormalState:
            precision = model.mean_precision + temperature * n * s.precision
            noise = jax.random.normal(keys[1], s.mean.shape, s.mean.dtype)
            return s._replace(mean=temperature * s.precision * total / precision + noise / jnp.sqrt(precision))

        def draw_precisions(s: NormalState) -> NormalState:
            deviations = jnp.maximum(squares - 2 * s.mean * total + n * s.mean**2, 0)
            log_gamma = log_gamma_draws(keys[2], jnp.asarray(model.shape) + 0.5 * temperature * n)
            return s._replace(precision=jnp.exp(log_gamma) / (s.rate + 0.5 * temperature * deviations))

        def draw_rates(s: NormalState) -> NormalState:
            shape = jnp.full_like(s.rate, model.rate_shape + self.size * model.shape)
            rate = model.rate_rate + jnp.where(exists, s.precision, 0.0).sum(0)
            return s._replace(rate=jnp.exp(log_gamma_draws(keys[3], shape)) / rate)

        order = (draw_weights, draw_means, draw_precisions, draw_rates)
        for draw in order[::-1] if backward else order:
            state = draw(state)
        return state

    def _sums(self, labels: Int[Array, "row particle"]) -> tuple[Array, Array, Array, Array]:
        """Return the sums over each component's rows: how many rows, how many observed cells, Σ y, Σ y².

        The first is (component, particle), the others (component, dim, particle).
        """
        here = labels[:, None] == jnp.arange(self.capacity, dtype=jnp.int32)[:, None]  # (row, component, particle)
        y, seen = jnp.asarray(self.values)[:, None, :, None], jnp.asarray(self.observed)[:, None, :, None]
        rows = jnp.where(here, jnp.asarray(self.weight)[:, None, None], 0.0).sum(0)
        n, total, squares = (jnp.where(here[:, :, None], x, 0.0).sum(0) for x in (seen.astype(y.dtype), y, y**2))
        return rows, n, total, squares

    def _log_weights(
        self, key: Array, counts: Float[Array, "component particle"]
    ) -> Float[Array, "component particle"]:
        """Draw log π given how many rows each component has; −inf for components that do not exist."""
        log_gamma = log_gamma_draws(key, jnp.asarray(self.model.concentration) + counts)
        exists = first(jnp.asarray(self.size), self.capacity)[:, None]
        return jax.nn.log_softmax(jnp.where(exists, log_gamma, -jnp.inf), axis=0)


@sampled_chain.register
def _(model: IndependentNormalMixture, data: Dataset, size: tuple[int, ...]) -> IndependentNormalChain:
    """Return the chain whose draws have all the parameters that people ask for."""
    return IndependentNormalChain.from_data(model, data, size[0], capacity_of(size)[0])
