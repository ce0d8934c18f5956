"""Poisson factorisations of one size, annealed from the prior of factors and intensities as counts come in bit by bit.

Row n has the intensities θ_nk of factors k, factor k has the rates β_kv of columns v, and the count x_nv is Poisson
with mean r_nv. At temperature t a cell has been watched for a share t of its time. Of its x counts, m = ⌊t x⌋ have
come. The next one has come to a share f = t x − m, and belongs to each factor with its rate to the power f:

    π_t(θ, β) ∝ p(θ, β) Π_nv r_nv^m g_f(θ_n1 β_1v, …, θ_nK β_Kv) e^(−t r_nv),
    r_nv = Σ_k θ_nk β_kv,      g_f(r_1, …, r_K) = Σ_k r_k^f K^(f−1),      g_0 = 1,  g_1 = Σ_k r_k

over observed cells. At t = 0 this is the prior, at t = 1 the posterior, and it is continuous in between. Given the
factor that every count belongs to, as far as it has come, all conditionals are Gamma distributions (Cemgil 2009, §3.1,
at t = 1):

    each of m counts | · ~ Categorical(∝ θ_nk β_kv),   the next one | · ~ Categorical(∝ (θ_nk β_kv)^f)
    θ_nk | · ~ Gamma(a/K + counts of factor k in row n, rate a + t Σ_v β_kv)     a count that has come to a share f is f
    β_kv | · ~ Gamma(c + counts of factor k in column v, rate c/μ_v + t Σ_n θ_nk)

The likelihood to the power t is nearly the same path. But its conditionals would count what is still to come as if it
were known. At low temperatures, where everything is decided, they would hardly move. Whole counts that come one by one
have weights that no number of temperatures makes even.

If cells have noise of shape r, then e^(−t r_nv) is replaced by (Γ(r + t x)/Γ(r)) r^r (r + t r_nv)^−(r + t x). This is
the term of a Poisson cell watched for the same share of its time, with ε_nv integrated out. A sweep first draws ε_nv |
· ~ Gamma(r + t x, rate r + t r_nv). Given ε, all is as above with ε_nv θ_nk β_kv instead of θ_nk β_kv. The weights
still have ε integrated out. If r has a prior, it moves last, by slice sampling, given all but ε.

A factor's scale, θ_·k e^y and β_k e^−y, leaves every cell's mean unchanged. The conditionals above move along it in
steps that are small if counts are many. So y is proposed by itself, from the Gaussian at the mode of its density, which
is log-concave: y (N a/K − V c) − e^y a Σ_n θ_nk − e^−y Σ_v β_kv c/μ_v.

The path begins in the prior, which does not change when factors are renamed, so nothing has to be corrected for labels.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln as gammaln_of
from jaxtyping import Array, Float, Int, Key
from scipy.special import gammaln

from lvsearch.inference.annealing.dispatch import path_needs_fit
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import slice_sample
from lvsearch.inference.annealing.particle_arrays import ParticleArrays, SymmetricStart
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.engine.estimate import Estimate, capacity_of, check_size
from lvsearch.inference.factorizations.anchored import AnchoredFactorization, near_fit
from lvsearch.inference.factorizations.moves import ScaleDraws, scale_step
from lvsearch.models.contract import first
from lvsearch.models.families import GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.poisson_factorization import NOISE, PoissonFactorization

BLOCK = 32
"""Number of cells whose counts are allocated together, so that their tables stay in the cache.
"""
MANY = 20_000
"""The total of all counts above which the path begins around a fit. Drawing the factor of each count would take too
long, and the way from the prior would be too far.
"""
CELLS_STEP = 128
"""Cells are padded to a multiple of this, so that matrices with about as many share their programs; a multiple of
`BLOCK`.
"""


class FactorState(NamedTuple):
    """Factors and intensities, particles side by side on the last axis. Factors that do not exist hold any finite
    numbers.

    | field | meaning | shape |
    |---|---|---|
    | `log_intensities` | log θ, how much of each factor a row has | (row, factor, particle) |
    | `log_factors` | log β, the rate of each column in each factor | (dim, factor, particle) |
    | `log_noise` | log r, the shape of the noise | (particle,); None if r is given or there is no noise |
    """

    log_intensities: Float[Array, "row factor particle"]
    log_factors: Float[Array, "dim factor particle"]
    log_noise: Float[Array, " particle"] | None = None


class PoissonFactorizationChain(ParticleArrays, SymmetricStart):
    """The annealing chain of a `PoissonFactorization`, made by `from_data`. The first `size` of `capacity` factors
    exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K, the number of factors | (), traced |
    | `cells` | row and column of the cells with a positive count; padding: 0, 0 | (cell, two) |
    | `counts` | x, the counts of these cells; padding: 0 | (cell,) |
    | `exposed` | 1 where a cell was observed, else 0 | (row, dim) |
    | `table` | x, the counts of all cells, 0 in missing cells | (row, dim) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `log_carrier` | −Σ log x!, nats | () |
    """

    model: PoissonFactorization
    size: Int[Array | np.ndarray, ""]
    cells: Int[Array | np.ndarray, "cell two"]
    counts: Float[Array | np.ndarray, " cell"]
    exposed: Float[Array | np.ndarray, "row dim"]
    table: Float[Array | np.ndarray, "row dim"]
    weight: Float[Array | np.ndarray, " row"]
    log_carrier: Float[Array | np.ndarray, ""]
    capacity: int = eqx.field(static=True)

    directed: ClassVar[bool] = False

    @classmethod
    def from_data(
        cls, model: PoissonFactorization, data: Dataset, size: int, capacity: int
    ) -> "PoissonFactorizationChain":
        """Return the annealing chain of a factorisation with `size` factors, on the path from the prior.

        Rows are in the order of the batches, with their padding.

        capacity: how many array slots there are for factors.

        Raises ValueError for cells that are no counts, rows whose weight is neither 0 nor 1, and a size that does not
        fit in the capacity.
        """
        check_size(size, capacity)
        units, weight = padded_rows(data)
        model.check(units)
        x = np.where(units.observed, units.value, 0.0)
        cells, counts = np.argwhere(x > 0), x[x > 0]
        order = np.argsort(-counts, kind="stable")  # cells of one block have about as many
        pad = max(CELLS_STEP, -(-len(cells) // CELLS_STEP) * CELLS_STEP) - len(cells)
        return cls(
            model,
            np.asarray(size),
            np.pad(cells[order], [(0, pad), (0, 0)]),
            np.pad(counts[order], (0, pad)),
            units.observed.astype(np.float64),
            x,
            weight,
            np.asarray(-gammaln(x + 1).sum()),
            capacity,
        )

    @property
    def elements(self) -> int:
        """The number of rows, columns and cells with a positive count, padding included: roughly what a sweep costs."""
        return self.exposed.shape[0] + self.exposed.shape[1] + len(self.cells)

    def init(self, key: Key[Array, ""], particles: int) -> FactorState:
        """Return the first state: `particles` independent draws of factors, intensities and noise shapes from their
        prior.
        """
        n_rows, n_dims = self.exposed.shape
        nothing = jnp.zeros((n_rows, self.capacity, particles)), jnp.zeros((n_dims, self.capacity, particles))
        key_intensities, key_factors = jax.random.split(key)
        noise, log_noise = self.model.noise_shape, None
        if isinstance(noise, GammaPrior):
            shape = jnp.broadcast_to(jnp.asarray(noise.shape), (particles,))
            log_noise = log_gamma_draws(jax.random.fold_in(key, NOISE), shape) - jnp.log(noise.rate)
        return FactorState(
            self._log_intensities(key_intensities, nothing[0], nothing[0]),
            self._log_factors(key_factors, nothing[1], nothing[1]),
            log_noise,
        )

    def step(
        self, key: Key[Array, ""], state: FactorState, temperature: Float[Array, ""], *, backward: bool
    ) -> FactorState:
        """Return the state after one sweep: allocations and noise, intensities, factors, scales, and the noise's shape,
        in turn.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        backward: ignored. Backward sweeps have the same order; each direction is a valid annealing of its own.
        """
        del backward
        keys = jax.random.split(key, 4)
        of_rows, of_columns = self._draw_allocations(keys[0], state, temperature)
        exposed = self._draw_exposure(jax.random.fold_in(key, NOISE), state, temperature)
        factors = self._values(state.log_factors)
        log_intensities = self._log_intensities(
            keys[1], of_rows, temperature * jnp.einsum("nv...,vk...->nk...", exposed, factors)
        )
        intensities = self._values(log_intensities)
        log_factors = self._log_factors(
            keys[2], of_columns, temperature * jnp.einsum("nv...,nk...->vk...", exposed, intensities)
        )
        state = self._move_scales(keys[3], FactorState(log_intensities, log_factors, state.log_noise))
        return self._move_noise_shape(jax.random.fold_in(key, NOISE + 1), state, temperature)

    def log_gain(
        self, state: FactorState, before: Float[Array, ""], after: Float[Array, ""]
    ) -> Float[Array, " particle"]:
        """Return log π_after − log π_before of each particle, (particle,), in nats, without the normalisers.

        π_t is the distribution of the path at temperature t, divided by (x!)^t.

        before, after: two temperatures in [0, 1].
        """
        cells, counts = (jnp.asarray(leaf) for leaf in (self.cells, self.counts))
        blocks = tuple(leaf.reshape(-1, BLOCK, *leaf.shape[1:]) for leaf in (cells, counts))

        def of_block(block: tuple[Array, Array]) -> Array:
            """Return the gain of a block of cells, without the expected counts, (particle,)."""
            where, x = block
            log_parts = state.log_intensities[where[:, 0]] + state.log_factors[where[:, 1]]
            whole, parts = zip(*(self._arrived_counts(log_parts, t * x) for t in (after, before)), strict=True)
            more = (whole[0] - whole[1])[:, None]
            counted = jnp.where(more != 0, more * self._log_sum(log_parts, jnp.ones_like(x)), 0.0)
            return (counted + parts[0] - parts[1]).sum(0)

        counted = jax.lax.map(of_block, blocks).sum(0) + (after - before) * self.log_carrier
        return counted + self._log_expected(state, after) - self._log_expected(state, before)

    def log_ratio(self, state: FactorState) -> Float[Array, " particle"]:
        """Return log p(counts | factors, intensities) of each particle, (particle,), in nats."""
        return self.log_gain(state, jnp.zeros(()), jnp.ones(()))

    def log_density(self, state: FactorState) -> Float[Array, " particle"]:
        """Return log p(counts, factors, intensities) of each particle, (particle,), in nats.

        The factor that each count belongs to is summed out. Factors have the density that the model gives them.
        """
        on = self.model.active((jnp.asarray(self.size),), (self.capacity,))
        log_theta, log_beta, log_noise = state
        a = jnp.asarray(self.model.concentration, log_theta.dtype)
        shape = a / self.size
        each = (shape - 1) * log_theta - a * jnp.exp(log_theta) + shape * jnp.log(a) - gammaln_of(shape)
        each = jnp.where(self._exists(), each, 0.0).sum(1)
        of_rows = jnp.where(jnp.asarray(self.weight)[:, None] > 0, each, 0.0).sum(0)

        def of_factors(log_value: Array) -> Array:
            """Return the log prior density of one particle's factors, computed by the model."""
            statistics = GammaStatistics(log_value.T, -jnp.exp(log_value.T))
            return self.model.log_prior({"factors": statistics}, on)

        density = self.log_ratio(state) + of_rows + jax.vmap(of_factors, in_axes=-1)(log_beta)
        if isinstance(self.model.noise_shape, GammaPrior):
            assert log_noise is not None  # where r has a prior it is part of the state
            shape, rate = (jnp.asarray(each) for each in self.model.noise_shape)
            density += (shape - 1) * log_noise - rate * jnp.exp(log_noise) + shape * jnp.log(rate) - gammaln_of(shape)
        return density

    def _log_expected(self, state: FactorState, temperature: Array) -> Float[Array, " particle"]:
        """Return the part of log π_t that the expected counts r_nv make, summed over observed cells, (particle,), in
        nats.

        Without noise it is Σ −t r_nv. With noise ε it is Σ log ∫ p(ε) ε^(t x) e^(−t ε r_nv) dε.

        temperature: t.
        """
        intensities, factors = self._values(state.log_intensities), self._values(state.log_factors)
        seen = jnp.asarray(self.exposed, factors.dtype)
        if self.model.noise_shape is None:
            return -temperature * (intensities * jnp.einsum("nv,vkp->nkp", seen, factors)).sum((0, 1))
        r = self._noise_shape(state)
        come = temperature * jnp.asarray(self.table, factors.dtype)[..., None]
        mean = temperature * jnp.einsum("nkp,vkp->nvp", intensities, factors)
        each = gammaln_of(r + come) - gammaln_of(r) - come * jnp.log(r) - (r + come) * jnp.log1p(mean / r)
        return (seen[..., None] * each).sum((0, 1))

    # ── conditionals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_exposure(self, key: Array, state: FactorState, temperature: Array) -> Float[Array, "row dim *particle"]:
        """Draw the noise ε of the observed cells given all but the allocations, (row, dim, particle); 0 in missing
        cells.

        Without noise, return 1 in observed cells, without a particle axis.

        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).
        """
        seen = jnp.asarray(self.exposed, state.log_factors.dtype)
        if self.model.noise_shape is None:
            return seen
        r = self._noise_shape(state)
        intensities, factors = self._values(state.log_intensities), self._values(state.log_factors)
        mean = jnp.einsum("nkp,vkp->nvp", intensities, factors)
        shape = jnp.broadcast_to(r + temperature * jnp.asarray(self.table, seen.dtype)[..., None], mean.shape)
        return seen[..., None] * jnp.exp(log_gamma_draws(key, shape)) / (r + temperature * mean)

    def _noise_shape(self, state: FactorState) -> Float[Array, "*particle"]:
        """Return the shape r of the noise, (particle,), or () if it is given by the model."""
        given = self.model.noise_shape
        return jnp.asarray(given) if state.log_noise is None else jnp.exp(state.log_noise)

    def _move_noise_shape(self, key: Array, state: FactorState, temperature: Array) -> FactorState:
        """Return the state with the shape of the noise drawn by slice sampling, given all but the noise itself.

        If the shape has no prior, the state is returned as it is.

        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).
        """
        if not isinstance(self.model.noise_shape, GammaPrior):
            return state
        shape, rate = (jnp.asarray(each) for each in self.model.noise_shape)

        def log_density(log_noise: Float[Array, "one particle"]) -> Float[Array, "one particle"]:
            of_cells = self._log_expected(state._replace(log_noise=log_noise[0]), temperature)
            return of_cells + shape * log_noise - rate * jnp.exp(log_noise)

        assert state.log_noise is not None  # where r has a prior it is part of the state
        return state._replace(log_noise=slice_sample(key, state.log_noise[None], log_density)[0])

    def _exists(self) -> Array:
        """Return True for the factors that exist, (factor, 1)."""
        return first(jnp.asarray(self.size), self.capacity)[:, None]

    def _values(self, log_values: Array) -> Array:
        """Return intensities or factors from their logarithms, with 0 for factors that do not exist.

        log_values: (row or dim, factor, particle).
        """
        return jnp.where(self._exists(), jnp.exp(log_values), 0.0)

    def _shares(self, log_parts: Float[Array, "cell factor particle"], power: Array) -> tuple[Array, Array]:
        """Return (r_k^power divided by the largest, log of the largest r_k^power), for the rates r_k of a cell's
        factors.

        The first is (cell, factor, particle), the second (cell, particle), in nats.

        log_parts: log r_k of each factor. power: (cell, 1, 1).
        """
        largest = jnp.where(self._exists(), log_parts, -jnp.inf).max(1, keepdims=True)
        shares = jnp.where(self._exists(), jnp.exp(power * (log_parts - largest)), 0.0)
        return shares, (power * largest)[:, 0]

    def _log_sum(self, log_parts: Float[Array, "cell factor particle"], power: Array) -> Float[Array, "cell particle"]:
        """Return log Σ_k r_k^power over the rates r_k of a cell's factors, (cell, particle), in nats.

        log_parts: log r_k of each factor. power: (cell,).
        """
        shares, largest = self._shares(log_parts, power[:, None, None])
        return jnp.log(shares.sum(1)) + largest

    def _arrived_counts(self, log_parts: Float[Array, "cell factor particle"], come: Array) -> tuple[Array, Array]:
        """Split the counts that have come by now into whole ones and the one that has come in part.

        log_parts: log of the rate of each factor.
        come: t x, the amount that has come, (cell,).

        Returns: (the number m of whole counts (cell,), log g_f of the part f of a count (cell, particle), in nats).
        """
        whole = jnp.floor(come)
        share = come - whole
        return whole, self._log_sum(log_parts, share) + (share[:, None] - 1) * jnp.log(self.size)

    def _draw_allocations(self, key: Array, state: FactorState, temperature: Array) -> tuple[Array, Array]:
        """Draw the factor of each count that has come, and return the totals by row and by column.

        temperature: t, the share of the counts that has come.

        Returns: (totals of each row and factor (row, factor, particle), totals of each column and factor (dim, factor,
            particle)).
        """
        cells, counts = (jnp.asarray(leaf).reshape(-1, BLOCK, *leaf.shape[1:]) for leaf in (self.cells, self.counts))
        particles = state.log_factors.shape[-1]

        def one_block(sums: tuple[Array, Array], block: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
            """Add the allocations of one block of cells to the totals."""
            where, x, index = block
            row, column = where.T
            log_parts = state.log_intensities[row] + state.log_factors[column]
            come = temperature * x
            whole = jnp.floor(come)
            key_block = jax.random.fold_in(key, index)

            def passed(power: Array) -> Callable[[Array | int], Array]:
                # (number of the count) -> the ends of the factors' shares, to a power, that its draw lies beyond
                ends = jnp.cumsum(self._shares(log_parts, power[:, None, None])[0], axis=1)

                def draw(number: Array | int) -> Array:
                    drawn = jax.random.uniform(jax.random.fold_in(key_block, number), (BLOCK, 1, particles), ends.dtype)
                    return (ends <= drawn * ends[:, -1:]).astype(ends.dtype)

                return draw

            # A count's factor is the number of ends that its uniform draw lies beyond. Sums of "beyond" over counts,
            # differenced along the factors, are therefore the counts of each factor.
            one, next_one = passed(jnp.ones_like(x)), passed(come - whole)

            def another(number: Array, beyond: Array) -> Array:
                """Add, for count number `number` of each cell, the ends that its draw lies beyond."""
                return beyond + jnp.where((number <= whole)[:, None, None], one(number), 0.0)

            beyond = (come - whole)[:, None, None] * next_one(0)
            beyond = jax.lax.fori_loop(1, whole.max().astype(int) + 1, another, beyond)
            all_come = jnp.broadcast_to(come[:, None, None], beyond[:, :1].shape)
            chosen = jnp.concatenate([all_come, beyond[:, :-1]], axis=1) - beyond
            return (sums[0].at[row].add(chosen), sums[1].at[column].add(chosen)), None

        nothing = jnp.zeros_like(state.log_intensities), jnp.zeros_like(state.log_factors)
        return jax.lax.scan(one_block, nothing, (cells, counts, jnp.arange(len(cells))))[0]

    def _log_intensities(self, key: Array, counts: Array, exposure: Array) -> Array:
        """Draw the logarithms of the intensities given the counts of each row and factor, (row, factor, particle).

        counts: (row, factor, particle).
        exposure: t Σ_v β_kv, which is added to the prior's rate, (row, factor, particle).
        """
        a = jnp.asarray(self.model.concentration, counts.dtype)
        return log_gamma_draws(key, a / self.size + counts) - jnp.log(a + exposure)

    def _log_factors(self, key: Array, counts: Array, exposure: Array) -> Array:
        """Draw the logarithms of the factors given the counts of each column and factor, (dim, factor, particle).

        counts: (dim, factor, particle).
        exposure: t Σ_n θ_nk, which is added to the prior's rate, (dim, factor, particle).
        """
        c = jnp.asarray(self.model.factor_concentration, counts.dtype)
        return log_gamma_draws(key, c + counts) - jnp.log(self._factor_rate(counts) + exposure)

    def _factor_rate(self, like: Array) -> Float[Array, "dim one one"]:
        """Return the rate of the Gamma prior of the factors for each column, (dim, 1, 1).

        like: an array whose first axis is the columns, which gives the floating type.
        """
        rate = jnp.asarray(self.model.factor_rate(), like.dtype)
        return jnp.broadcast_to(rate, like.shape[:1])[:, None, None]

    def _move_scales(self, key: Array, state: FactorState) -> FactorState:
        """Return the state with the scale of every factor moved between intensities and factors, which leaves all means
        unchanged.
        """
        real = jnp.asarray(self.weight)[:, None, None] > 0
        a = jnp.asarray(self.model.concentration, state.log_factors.dtype)
        up = a * jnp.where(real, jnp.exp(state.log_intensities), 0.0).sum(0)
        down = (self._factor_rate(state.log_factors) * jnp.exp(state.log_factors)).sum(0)
        slope = real.sum() * a / self.size - len(self.exposed.T) * self.model.factor_concentration
        key_propose, key_accept = jax.random.split(key)
        draws = ScaleDraws(
            jax.random.normal(key_propose, down.shape, down.dtype),
            jax.random.uniform(key_accept, down.shape, down.dtype),
        )
        by = scale_step(draws, slope, up, down)
        log_intensities = jnp.where(real, state.log_intensities + by, state.log_intensities)
        return state._replace(log_intensities=log_intensities, log_factors=state.log_factors - by)


def path_of_factorization_needs_fit(model: PoissonFactorization, data: Dataset) -> bool:
    """Return True if counts are so many that the annealing path of a factorisation should begin around a fit."""
    return sum(float(np.where(batch.units.observed, batch.units.value, 0.0).sum()) for batch in data.batches) > MANY


def evidence_chain_of_factorization(
    model: PoissonFactorization, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> PoissonFactorizationChain | AnchoredFactorization:
    """Return the annealing path of a factorisation: from around the fit if counts are many, else from the prior.

    If there is no fit it is from the prior too.

    size: the number of factors, as a tuple of one number.
    """
    if estimate is not None and path_needs_fit(model, data):
        return near_fit(model, data, size[0], estimate)
    return PoissonFactorizationChain.from_data(model, data, size[0], capacity_of(size)[0])
