"""Gaussian mixtures with independent priors of means and precisions, annealed from the prior, in two ways.

*All latent variables* (`IndependentNormalChain`): its draws have all the parameters that people ask for.

    π_t(z, π, μ, τ, β) ∝ p(z, π, μ, τ, β) Π_n p(x_n | μ_{z_n}, τ_{z_n})^t

Here z are the components of the rows x, π the weights, μ and τ the components' means and precisions, and β the rate of
the Gamma prior of the precisions. The density of each row given its component is tempered, not the sum over components.
So every complete conditional stays in its family, with t as the weight of a row. With y in the model's coordinates, and
n_k and sums over the rows of component k,

    z_n | · ∝ π_k exp(t Σ_d [½ log τ_kd − ½ τ_kd (y_nd − μ_kd)²])
    π | ·   ~ Dirichlet(a + n_k)
    μ_k | · ~ Normal(t τ_k Σ y / c, 1/c),   c = κ + t n_k τ_k
    τ_k | · ~ Gamma(α + t n_k / 2, rate β + t Σ (y − μ_k)² / 2)
    β | ·   ~ Gamma(g + K α, rate h + Σ_k τ_k)

(Richardson & Green 1997, §3, at t = 1). Components without rows are drawn from their prior.

*Labels and rates alone* (`IndependentNormalParts`), for the evidence. They are annealed like diagonal Gaussians in
`evidence.mixtures`, but the log normaliser of a component is not that of a Normal–Gamma. Here κ is the precision of the
prior of a mean itself, and not counted in rows. So the normaliser is an integral over one precision, the marginal
density of rows that share a mean and a precision. The rate β of a column's precisions has its prior and moves like any
hyper-parameter (`evidence.mixture_hyperparameters`).

One group has n cells y of mean ȳ in one column. Its mean has the prior Normal(0, 1/κ), and its precision τ the prior
Gamma(α, rate β). With a = α + n/2 and b = β + Σ (y − ȳ)²/2, the mean is integrated out in closed form and an integral
over τ remains,

    A = log ∫ τ^(a−1) exp(−bτ) √(2π / (κ + nτ)) exp(−κnτȳ² / (2(κ + nτ))) dτ.

Cells may be 10⁻¹⁰ apart, since the prior of Richardson & Green lets β be that small. So the spread Σ (y − ȳ)² comes
from sums without rounding (`exact_sums`), and every term of the exponent is the size of what it says.

It is computed by the trapezium rule in v = τ^q. For q = ⅓ a Gamma density of v is close to a Gaussian (Wilson &
Hilferty 1931), for which the rule with a step of ¾ standard deviation is exact to ten digits. A smaller q for small
shapes makes the integrand vanish at v = 0 with its first five derivatives, which the rule needs there.

Against a fine grid in log τ, 300 groups of 0 to 200 cells: within 5e-6 nats under the prior of Richardson & Green, and
within 1e-3 for shapes of 2 and more and any κ. For shapes below 2 and a cell some three standard deviations or more
outside the prior of means the integrand has two modes, and the error can reach .04 nats.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.draws import choose_in_proportion, log_gamma_draws
from lvsearch.inference.annealing.particle_arrays import ParticleArrays, SymmetricStart
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.data.statistic_layout import StatisticLayout
from lvsearch.inference.engine.estimate import Estimate, capacity_of, check_size
from lvsearch.inference.evidence.exact_sums import (
    N_DIGITS,
    N_SQUARE_DIGITS,
    digits_of,
    number_of,
    sum_of_squares_about_mean,
    unit_of,
)
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.models.components import Component, DiagonalComponents
from lvsearch.models.contract import first
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.families import GammaStatistics, GaussianStatistics
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.hyperpriors import GammaPrior
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

    | field | meaning | shape |
    |---|---|---|
    | `labels` | z, the component of each row | (row, particle) |
    | `log_weights` | log π | (component, particle) |
    | `mean` | μ, in the model's coordinates | (component, dim, particle) |
    | `precision` | τ, in the model's coordinates | (component, dim, particle) |
    | `rate` | β, the rate of the precisions' Gamma prior | (dim, particle) |
    """

    labels: Int[Array, "row particle"]
    log_weights: Float[Array, "component particle"]
    mean: Float[Array, "component dim particle"]
    precision: Float[Array, "component dim particle"]
    rate: Float[Array, "dim particle"]


@kernel(brief=True)
def _coordinates_and_carriers(model: IndependentNormalMixture, rows: Row) -> tuple[Array, Array]:
    """Return (the rows in the coordinates of the prior (row, dim), log h, the constant factor of each row's density
    (row,), nats).
    """
    return jax.vmap(model.coordinates)(rows), jax.vmap(model.log_carrier)(rows)


class IndependentNormalChain(ParticleArrays, SymmetricStart):
    """The annealing chain of an `IndependentNormalMixture`, made by `from_data`. The first `size` of `capacity`
    components exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K, the number of components | (), traced |
    | `values` | y, the rows in the model's coordinates, 0 in missing cells | (row, dim) |
    | `observed` | False in missing cells | (row, dim) |
    | `carriers` | Σ over observed cells of −½ log 2π − log scale, nats | (row,) |
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
        """Return the annealing chain of a mixture with `size` components.

        Rows are in the order of the batches, with their padding, so that data sets of one padded length share their
        programs.

        capacity: how many array slots there are for components.

        Raises ValueError for rows whose weight is neither 0 nor 1, and for a size that does not fit in the capacity.
        """
        check_size(size, capacity)
        units, weight = padded_rows(data)
        with jax.enable_x64(True):
            values, carriers = map(np.asarray, _coordinates_and_carriers(model, units))
        return cls(model, np.asarray(size), values, np.asarray(units.observed), carriers, weight, capacity)

    @property
    def elements(self) -> int:
        """The number of rows, padding included: each has its label drawn in a sweep."""
        return len(self.weight)

    def init(self, key: Key[Array, ""], particles: int) -> NormalState:
        """Return the first state: `particles` independent draws of all latent variables from their prior."""
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
        """Return the state after one sweep: labels, weights, means, precisions and rates, drawn in turn.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        backward: draw in the reverse order.
        """
        key_labels, key_globals = jax.random.split(key)

        def labelled(state: NormalState) -> NormalState:
            return state._replace(labels=self._labels(key_labels, state, temperature))

        if backward:
            return labelled(self._globals(key_globals, state, temperature, backward=True))
        return self._globals(key_globals, labelled(state), temperature, backward=False)

    def log_ratio(self, state: NormalState) -> Float[Array, " particle"]:
        """Return log p(rows | labels, means, precisions) of each particle, (particle,), in nats."""
        chosen = state.labels[:, None]
        mean, precision = (jnp.take_along_axis(leaf, chosen, axis=0) for leaf in (state.mean, state.precision))
        cells = jnp.log(precision) - precision * (self.values[..., None] - mean) ** 2
        return 0.5 * jnp.where(self.observed[..., None], cells, 0.0).sum((0, 1)) + jnp.asarray(self.carriers).sum()

    def log_density(self, state: NormalState) -> Float[Array, " particle"]:
        """Return log p(rows, labels, weights, means, precisions, rates) of each particle, (particle,), in nats.

        The prior's part is computed by the model's own log-joint.
        """
        on = self.model.active((jnp.asarray(self.size),), (self.capacity,))

        def log_prior(log_weights: Array, mean: Array, precision: Array, rate: Array) -> Array:
            g = {
                "weights": jnp.where(on["component"], log_weights, 0.0),
                "mean": GaussianStatistics(mean, -0.5 * mean**2),
                "precision": GammaStatistics(jnp.log(precision), -precision),
                "rate": GammaStatistics(jnp.log(rate), -rate),
            }
            return self.model.log_prior(g, on)

        of_labels = jnp.take_along_axis(state.log_weights, state.labels, axis=0)
        log_labels = jnp.where(self.weight[:, None] > 0, of_labels, 0.0).sum(0)
        return jax.vmap(log_prior, in_axes=-1)(*state[1:]) + log_labels + self.log_ratio(state)

    def _labels(self, key: Array, state: NormalState, temperature: Array) -> Int[Array, "row particle"]:
        """Draw every row's label given all other variables, (row, particle)."""
        uniforms = jax.random.uniform(key, state.labels.shape, state.mean.dtype)
        half_log = 0.5 * jnp.log(state.precision)

        def one(row: tuple[Array, Array, Array]) -> Array:
            y, observed, uniform = row
            score = state.log_weights + temperature * self._row_log_densities(state, half_log, y, observed)
            return choose_in_proportion(score, uniform, self.size)

        rows = jnp.asarray(self.values), jnp.asarray(self.observed), uniforms
        return jax.lax.map(one, rows, batch_size=ROWS_AT_ONCE)

    def _row_log_densities(
        self, state: NormalState, half_log: Float[Array, "component dim particle"], y: Array, observed: Array
    ) -> Float[Array, "component particle"]:
        """Return the log density of one row y under each component without its carrier, (component, particle), in nats.

        It is Σ_d [½ log τ_kd − ½ τ_kd (y_d − μ_kd)²], with means μ and precisions τ.

        half_log: ½ log τ.
        y: the row, (dim,).
        observed: the row's observed cells, over which the sum goes, (dim,).
        """
        cells = half_log - 0.5 * state.precision * (y[:, None] - state.mean) ** 2
        return jnp.where(observed[:, None], cells, 0.0).sum(1)

    def _globals(self, key: Array, state: NormalState, temperature: Array, *, backward: bool) -> NormalState:
        """Return the state with weights, means, precisions and rates drawn in turn, given the labels.

        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).
        backward: draw in the reverse order.
        """
        keys, model = jax.random.split(key, 4), self.model
        # the Dirichlet, Normal and Gamma conditionals of the module's docstring, one function each
        rows, n, total = self._sums(state.labels)
        exists = first(jnp.asarray(self.size), self.capacity)[:, None, None]

        def draw_weights(s: NormalState) -> NormalState:
            return s._replace(log_weights=self._log_weights(keys[0], rows))

        def draw_means(s: NormalState) -> NormalState:
            precision = model.mean_precision + temperature * n * s.precision
            noise = jax.random.normal(keys[1], s.mean.shape, s.mean.dtype)
            return s._replace(mean=temperature * s.precision * total / precision + noise / jnp.sqrt(precision))

        def draw_precisions(s: NormalState) -> NormalState:
            log_gamma = log_gamma_draws(keys[2], jnp.asarray(model.shape) + 0.5 * temperature * n)
            rate = s.rate + 0.5 * temperature * self._squares_about_means(s)
            return s._replace(precision=jnp.exp(log_gamma) / rate)

        def draw_rates(s: NormalState) -> NormalState:
            shape = jnp.full_like(s.rate, model.rate_shape + self.size * model.shape)
            rate = model.rate_rate + jnp.where(exists, s.precision, 0.0).sum(0)
            return s._replace(rate=jnp.exp(log_gamma_draws(keys[3], shape)) / rate)

        order = (draw_weights, draw_means, draw_precisions, draw_rates)
        for draw in order[::-1] if backward else order:
            state = draw(state)
        return state

    def _sums(self, labels: Int[Array, "row particle"]) -> tuple[Array, Array, Array]:
        """Return the sums over each component's rows: how many rows, how many observed cells, Σ y.

        The first is (component, particle), the others (component, dim, particle).
        """
        here = self._memberships(labels)
        y, seen = jnp.asarray(self.values)[:, None, :, None], jnp.asarray(self.observed)[:, None, :, None]
        rows = jnp.where(here, jnp.asarray(self.weight)[:, None, None], 0.0).sum(0)
        n, total = (jnp.where(here[:, :, None], x, 0.0).sum(0) for x in (seen.astype(y.dtype), y))
        return rows, n, total

    def _squares_about_means(self, state: NormalState) -> Float[Array, "component dim particle"]:
        """Return Σ (y − μ)² over the observed cells of each component's rows, (component, dim, particle).

        Deviations are squared one by one: sums of y² would lose those of cells that lie close together.
        """
        means = jnp.take_along_axis(state.mean, state.labels[:, None], axis=0)  # (row, dim, particle)
        cells = jnp.where(self.observed[..., None], (self.values[..., None] - means) ** 2, 0.0)
        return jnp.where(self._memberships(state.labels)[:, :, None], cells[:, None], 0.0).sum(0)

    def _memberships(self, labels: Int[Array, "row particle"]) -> Bool[Array, "row component particle"]:
        """Return True where a row is in a component."""
        return labels[:, None] == jnp.arange(self.capacity, dtype=jnp.int32)[:, None]

    def _log_weights(
        self, key: Array, counts: Float[Array, "component particle"]
    ) -> Float[Array, "component particle"]:
        """Draw the log weights of the components, (component, particle); −inf for components that do not exist.

        counts: how many rows each component has.
        """
        log_gamma = log_gamma_draws(key, jnp.asarray(self.model.concentration) + counts)
        exists = first(jnp.asarray(self.size), self.capacity)[:, None]
        return jax.nn.log_softmax(jnp.where(exists, log_gamma, -jnp.inf), axis=0)


def sampled_chain_of_independent_normals(
    model: IndependentNormalMixture, data: Dataset, size: tuple[int, ...]
) -> IndependentNormalChain:
    """Return the chain of an `IndependentNormalMixture` whose draws have all the parameters that people ask for."""
    return IndependentNormalChain.from_data(model, data, size[0], capacity_of(size)[0])


NODES = np.arange(-7.5, 8.0) * 0.75
"""The nodes of the trapezium rule, in standard deviations of v from its mode."""
MODE_STEPS = 3
"""The number of iterations towards the mode. They start at the mode that holds where rows outweigh the prior of the
mean.
"""
POWER, VANISHING = 1 / 3, 6.0
"""The power q of v = τ^q where shapes allow it, and the order a/q from which the integrand vanishes smoothly enough."""


def log_marginals(shape: Any, rate: Any, mean: Any, count: Any, kappa: Any) -> Array:
    """Return the log integral over mean and precision of each group of cells, (group,), in nats: A of the file's
    docstring.

    Each argument has one value per group, or one value for all groups.

    shape: a = α + n/2, the shape of the precision's Gamma with the cells added.
    rate: b = β + Σ (y − ȳ)²/2, its rate with the cells added at their mean.
    mean: ȳ, 0 for a group without cells.
    count: n, 0 for a group without cells.
    kappa: κ, the precision of the prior of the group's mean.
    """
    mean_precision, effective = kappa + 0.0 * count, jnp.where(count > 0, shape - 0.5, shape)
    precision = effective / rate
    for _ in range(MODE_STEPS):
        # how far the expected μ given τ is from ȳ, and the rate that Σ (y − μ)² / 2 then has on average
        mean_precision = kappa + count * precision
        shift = mean * kappa / mean_precision
        effective_rate = rate + 0.5 * count * (shift**2 + 1 / mean_precision)
        power = jnp.minimum(POWER, shape / VANISHING)
        precision = (shape - power) / effective_rate
    mean_precision = kappa + count * precision
    spread = power / jnp.sqrt(shape - 0.5 * count * precision / mean_precision - power)

    def log_integrand(log_ratio: Any, tau: Any) -> Any:
        """Return the log integrand over v at a precision tau, nats, up to what does not change with tau.

        log_ratio: log (tau / mode).
        """
        each = kappa + count * tau
        to_prior = 0.5 * kappa * mean**2 * (count * tau / each)
        return (shape - power) * log_ratio - rate * tau - 0.5 * jnp.log(each) - to_prior

    highest, nodes = log_integrand(0.0, precision), jnp.asarray(NODES, precision.dtype)

    def added(index: Array, sums: Array) -> Array:
        """Return the sum with the integrand at one more node."""
        step = 1 + spread * nodes[index]  # v over its mode
        log_ratio = jnp.log(jnp.maximum(step, 1e-30)) / power
        value = jnp.exp(log_integrand(log_ratio, precision * jnp.exp(log_ratio)) - highest)
        return sums + jnp.where(step > 0, value, 0.0)

    # a loop and not one array with an axis of nodes: the program is short, and each turn is one pass over the groups
    sums = jax.lax.fori_loop(0, len(NODES), added, jnp.zeros_like(precision))
    # dτ = τ / (q v) dv: a step of v is spread · mode of v, and τ^(a−1) dτ is τ^(a−q) at the node, over q
    log_step = jnp.log(spread * (NODES[1] - NODES[0]) / power)
    return jnp.log(sums) + highest + shape * jnp.log(precision) + log_step + 0.5 * LOG_2PI


class CellSums(NamedTuple):
    """The natural parameters of the components, cell by cell: what the prior says, and sums over the rows.

    | field | meaning | shape |
    |---|---|---|
    | `shape` | a = α + n/2 | (dim,) |
    | `rate` | β, to which rows add nothing | (dim,) |
    | `totals`, `squares` | digits of Σ y and of Σ y² (`exact_sums`), in units of the column | (digit, dim) |
    | `count` | n, the number of observed cells | (dim,) |
    """

    shape: Any
    rate: Any
    totals: Any
    squares: Any
    count: Any


class IndependentNormalParts(CollapsedMixtureChain):
    """The annealing chain over labels of an `IndependentNormalMixture`, with means and precisions integrated out.

    The rates of the precisions are given. `natural` of a state is a packed `CellSums`.

    | field | meaning | shape |
    |---|---|---|
    | `unit` | of each column's sums (`exact_sums`) | (dim,) |
    """

    unit: Float[Array | np.ndarray, " dim"]

    @classmethod
    def from_data(
        cls, model: FiniteMixture | IndependentNormalMixture, data: Dataset, size: int, capacity: int
    ) -> "IndependentNormalParts":
        """Return the chain of a mixture with `size` components, on the path from the prior.

        capacity: the number of components that arrays have room for.

        Raises ValueError for rows without a density, rows whose weight is neither 0 nor 1, and a size above the
        capacity.
        """
        alike = diagonal_form(model) if isinstance(model, IndependentNormalMixture) else model
        chain = CollapsedMixtureChain.from_data(alike, data, size, capacity)
        rows = chain.layout.unpack(chain.increments)  # of diagonal Gaussians; each leaf (row, 1, dim)
        values, seen = np.asarray(rows.precision_mean), np.asarray(rows.negative_half_precision_square)
        unit = unit_of(values)
        totals, squares = (np.moveaxis(digits, 0, -2) for digits in digits_of(values, unit))
        with jax.enable_x64(True):
            prior = _compiled_prior_sums(chain.component.at_prior_means(), n_dims=len(unit))
            layout = StatisticLayout.of(prior)
            increments = layout.pack_on_host(CellSums(0.5 * seen, 0.0 * seen, totals, squares, seen))
            packed = layout.pack_on_host(prior)
        own = chain.component, chain.concentration, chain.size, increments, chain.carriers, chain.tilts
        return cls(*own, chain.weight, packed, chain.anchor, capacity, layout, unit)

    def prior_natural(self, component: Component, n_dims: int) -> Float[Array, " statistic"]:
        """Return λ, the natural parameters of one component without rows, (statistic,).

        component: the kind of component, with all its hyper-parameters given as numbers.
        n_dims: the number of columns.
        """
        return self.layout.pack(prior_sums(component, n_dims))

    def cell_normalisers(
        self, natural: Float[Array, "statistic component particle"]
    ) -> Float[Array, "cell component particle"]:
        """Return the log normaliser of each component's posterior in each column, (cell, component, particle), nats.

        natural: natural parameters of the components, each a packed `CellSums`, (statistic, component, particle).
        """
        kappa, unit = self._as_float(self.component.number("pseudo_count")), self._as_float(self.unit)[:, None, None]
        sums = self.layout.split(natural)
        totals, squares = (
            digits.reshape(-1, *sums.count.shape) for digits in (sums.totals, sums.squares)
        )  # (digit, cell, component, particle)
        spread = sum_of_squares_about_mean(totals, squares, sums.count) * unit**2
        mean = number_of(totals) * unit / jnp.maximum(sums.count, 1.0)
        return log_marginals(sums.shape, sums.rate + 0.5 * spread, mean, sums.count, kappa)


def prior_sums(component: Component, n_dims: int) -> CellSums:
    """Return the natural parameters of one component without rows.

    component: diagonal Gaussians whose hyper-parameters are given as numbers (`diagonal_form`).
    n_dims: the number of columns.
    """
    prior = component.prior(n_dims)
    none = 0.0 * prior.precision_mean
    digits = jnp.broadcast_to(none, (N_DIGITS, n_dims)), jnp.broadcast_to(none, (N_SQUARE_DIGITS, n_dims))
    return CellSums(prior.log_precision + 0.5, prior.negative_precision, *digits, none)


_compiled_prior_sums = kernel(static_argnames=("n_dims",), brief=True)(prior_sums)


def diagonal_form(model: IndependentNormalMixture) -> FiniteMixture:
    """Return the mixture of diagonal Gaussians from which `HyperMixture` reads this model's hyper-parameters.

    It is another model. Its pseudo-count is the number that is the prior precision of a mean here; there the prior
    precision of a mean is the pseudo-count times the component's own precision.
    """
    rate = GammaPrior(model.rate_shape, model.rate_rate)
    components = DiagonalComponents(model.location, model.scale, model.mean_precision, model.shape, rate)
    return FiniteMixture(components, model.concentration)


def evidence_chain_of_independent_normals(
    model: IndependentNormalMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> HyperMixture:
    """Return the annealing chain over labels and rates of a Gaussian mixture with independent priors. `estimate` is
    not used.
    """
    chain = IndependentNormalParts.from_data(model, data, size[0], capacity_of(size)[0])
    return HyperMixture.around(chain, diagonal_form(model).components, data)
