"""Poisson factorisations of one size, annealed from the prior of factors and intensities: counts come in bit by bit.

At temperature t a cell has been watched for a share t of its time. Of its x counts m = ⌊t x⌋ have come and the next one
to a share f = t x − m, and is of each factor to the power f:

    π_t(θ, β) ∝ p(θ, β) Π_nv r_nv^m g_f(θ_n1 β_1v, …, θ_nK β_Kv) e^(−t r_nv),
    r_nv = Σ_k θ_nk β_kv,      g_f(r_1, …, r_K) = Σ_k r_k^f K^(f−1),      g_0 = 1,  g_1 = Σ_k r_k

over observed cells: at 0 the prior, at 1 the posterior, and no jump between. Given which factor every count is of, as
far as it has come, all conditionals are Gamma's (Cemgil 2009, §3.1, at t = 1):

    each of m counts | · ~ Categorical(∝ θ_nk β_kv),   the next one | · ~ Categorical(∝ (θ_nk β_kv)^f)
    θ_nk | · ~ Gamma(a/K + what row n has of k, rate a + t Σ_v β_kv)            what has come to a share f counts f
    β_kv | · ~ Gamma(c + what column v has of k, rate c/μ_v + t Σ_n θ_nk)

The likelihood to the power t is nearly this path. Its conditionals would count what is still to come as if it were
known: at low temperatures, where all is decided, they hardly move. Whole counts that come one by one have weights that
no number of temperatures makes even.

Where cells have noise of shape r, (Γ(r + t x)/Γ(r)) r^r (r + t r_nv)^−(r + t x) is in the place of e^(−t r_nv): what a
Poisson watched for the same share of its time has, ε_nv integrated out. A sweep draws ε_nv | · ~ Gamma(r + t x, rate
r + t r_nv) first; given it all is as above with ε_nv θ_nk β_kv for θ_nk β_kv, weights still with ε integrated out. An r
that has a prior moves last, by a slice, given all but ε.

A factor's scale, θ_·k e^y and β_k e^−y, leaves every cell's mean as it is, and the conditionals above move along it by
steps as small as the counts are many. So y is proposed by itself, from the Gaussian at the mode of its density, which
is log-concave: y (N a/K − V c) − e^y a Σ_n θ_nk − e^−y Σ_v β_kv c/μ_v.

The path begins in the prior, which does not change when factors are renamed: nothing has to be corrected for labels.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln as gammaln_of
from jaxtyping import Array, Float, Int, Key
from scipy.special import gammaln

from lvsearch.inference.annealing.dispatch import evidence_chain, path_needs_fit
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import slice_moved
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.engine.estimate import Estimate, capacity_of, check_size
from lvsearch.inference.factorizations.anchor import near_fit
from lvsearch.inference.factorizations.anchored import AnchoredFactorization
from lvsearch.inference.factorizations.rescaling import scale_step
from lvsearch.models.contract import first
from lvsearch.models.families import GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.poisson_factorization import PoissonFactorization

BLOCK = 32
"""Cells whose counts are allocated, and whose means are summed, together: their tables stay in the cache."""
MANY = 20_000
"""Counts in all from which on the path begins about a fit: drawing what each of them is allocated to takes too long,
and the way from the prior is too far."""
NOISE = 0x5012E
"""What sets the keys of the noise, and of its shape, apart from those that the same key is split into."""
CELLS_STEP = 128
"""Cells are padded to a multiple of it, so that matrices with about as many share their programs; of blocks."""


class FactorState(NamedTuple):
    """Particles side by side. Factors that do not exist hold anything finite.

    | field | letter | shape |
    |---|---|---|
    | `log_intensities` | log θ | (row, factor, particle) |
    | `log_factors` | log β | (dim, factor, particle) |
    | `log_noise` | log r | (particle,); None where r is given or there is no noise |
    """

    log_intensities: Float[Array, "row factor particle"]
    log_factors: Float[Array, "dim factor particle"]
    log_noise: Float[Array, " particle"] | None = None


class PoissonFactorizationChain(eqx.Module):
    """A `Chain` of a `PoissonFactorization`. `of` makes one; the first `size` of `capacity` factors exist.

    | field | meaning | shape |
    |---|---|---|
    | `size` | K | (), traced |
    | `cells` | row and column of the cells that hold a count; padding: 0, 0 | (cell, two) |
    | `counts` | x of these cells; padding: 0 | (cell,) |
    | `exposed` | 1 where a cell was observed | (row, dim) |
    | `table` | x, 0 where nothing was observed | (row, dim) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `log_carrier` | −Σ log x! | () |
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

    @classmethod
    def of(cls, model: PoissonFactorization, data: Dataset, size: int, capacity: int) -> "PoissonFactorizationChain":
        """Rows are in the order of the batches, their padding included. Raises ValueError for cells that are no counts,
        rows weighted otherwise than 0 or 1, and a size that does not fit in the capacity."""
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
        """Rows, columns and cells: what each has of all factors is drawn at once."""
        return self.exposed.shape[0] + self.exposed.shape[1] + len(self.cells)

    @property
    def lanes(self) -> int:
        return 32

    @property
    def directed(self) -> bool:
        return False

    def init(self, key: Key[Array, ""], particles: int) -> FactorState:
        """Factors and intensities from their prior."""
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
        """Allocations and noise, intensities, factors, scales, the noise's shape. Backward sweeps are in this order
        too: each way is a valid annealing of its own."""
        del backward
        keys = jax.random.split(key, 4)
        of_rows, of_columns = self._allocated(keys[0], state, temperature)
        exposed = self._exposed(jax.random.fold_in(key, NOISE), state, temperature)
        factors = self._values(state.log_factors)
        log_intensities = self._log_intensities(
            keys[1], of_rows, temperature * jnp.einsum("nv...,vk...->nk...", exposed, factors)
        )
        intensities = self._values(log_intensities)
        log_factors = self._log_factors(
            keys[2], of_columns, temperature * jnp.einsum("nv...,nk...->vk...", exposed, intensities)
        )
        state = self._rescaled(keys[3], FactorState(log_intensities, log_factors, state.log_noise))
        return self._noise_moved(jax.random.fold_in(key, NOISE + 1), state, temperature)

    def log_gain(
        self, state: FactorState, before: Float[Array, ""], after: Float[Array, ""]
    ) -> Float[Array, " particle"]:
        """log π_after − log π_before, nats, both as in the module's docstring, times x!^−t."""
        cells, counts = (jnp.asarray(leaf) for leaf in (self.cells, self.counts))
        blocks = tuple(leaf.reshape(-1, BLOCK, *leaf.shape[1:]) for leaf in (cells, counts))

        def of_block(block: tuple[Array, Array]) -> Array:
            where, x = block
            log_parts = state.log_intensities[where[:, 0]] + state.log_factors[where[:, 1]]
            whole, parts = zip(*(self._come(log_parts, t * x) for t in (after, before)), strict=True)
            more = (whole[0] - whole[1])[:, None]
            counted = jnp.where(more != 0, more * self._log_sum(log_parts, jnp.ones_like(x)), 0.0)
            return (counted + parts[0] - parts[1]).sum(0)

        counted = jax.lax.map(of_block, blocks).sum(0) + (after - before) * self.log_carrier
        return counted + self._log_expected(state, after) - self._log_expected(state, before)

    def log_ratio(self, state: FactorState) -> Float[Array, " particle"]:
        """log p(counts | factors, intensities), nats."""
        return self.log_gain(state, jnp.zeros(()), jnp.ones(()))

    def log_density(self, state: FactorState) -> Float[Array, " particle"]:
        """log p(counts, factors, intensities), nats, allocations summed out; priors as the model has them."""
        on = self.model.active((jnp.asarray(self.size),), (self.capacity,))
        log_theta, log_beta, log_noise = state
        a = jnp.asarray(self.model.concentration, log_theta.dtype)
        shape = a / self.size
        each = (shape - 1) * log_theta - a * jnp.exp(log_theta) + shape * jnp.log(a) - gammaln_of(shape)
        each = jnp.where(self._exists(), each, 0.0).sum(1)
        of_rows = jnp.where(jnp.asarray(self.weight)[:, None] > 0, each, 0.0).sum(0)

        def of_factors(log_value: Array) -> Array:
            statistics = GammaStatistics(log_value.T, -jnp.exp(log_value.T))
            return self.model.log_prior({"factors": statistics}, on)

        density = self.log_ratio(state) + of_rows + jax.vmap(of_factors, in_axes=-1)(log_beta)
        if isinstance(self.model.noise_shape, GammaPrior):
            assert log_noise is not None  # where r has a prior it is part of the state
            shape, rate = (jnp.asarray(each) for each in self.model.noise_shape)
            density += (shape - 1) * log_noise - rate * jnp.exp(log_noise) + shape * jnp.log(rate) - gammaln_of(shape)
        return density

    def label_scores(self, state: FactorState) -> None:
        """None: the prior does not change under relabelling."""
        return

    def relabel(self, state: FactorState, order: Int[Array, "particle component"]) -> FactorState:
        """The state itself: no labelling is better than another."""
        return state

    def take(self, state: FactorState, particles: Int[Array, " chosen"]) -> FactorState:
        """The named particles, in that order."""
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    def _log_expected(self, state: FactorState, temperature: Array) -> Float[Array, " particle"]:
        """What stands beside the counts on the path: Σ over observed cells of −t r_nv, nats; with noise of log ∫ p(ε)
        ε^(t x) e^(−t ε r_nv) dε."""
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

    def _exposed(self, key: Array, state: FactorState, temperature: Array) -> Float[Array, "row dim *particle"]:
        """ε of the observed cells given all but the allocations, 0 of the others; without noise 1, of all particles."""
        seen = jnp.asarray(self.exposed, state.log_factors.dtype)
        if self.model.noise_shape is None:
            return seen
        r = self._noise_shape(state)
        intensities, factors = self._values(state.log_intensities), self._values(state.log_factors)
        mean = jnp.einsum("nkp,vkp->nvp", intensities, factors)
        shape = jnp.broadcast_to(r + temperature * jnp.asarray(self.table, seen.dtype)[..., None], mean.shape)
        return seen[..., None] * jnp.exp(log_gamma_draws(key, shape)) / (r + temperature * mean)

    def _noise_shape(self, state: FactorState) -> Float[Array, "*particle"]:
        """r, of all particles where it is given."""
        given = self.model.noise_shape
        return jnp.asarray(given) if state.log_noise is None else jnp.exp(state.log_noise)

    def _noise_moved(self, key: Array, state: FactorState, temperature: Array) -> FactorState:
        """r given all but the noise itself, where it has a prior."""
        if not isinstance(self.model.noise_shape, GammaPrior):
            return state
        shape, rate = (jnp.asarray(each) for each in self.model.noise_shape)

        def log_density(log_noise: Float[Array, "one particle"]) -> Float[Array, "one particle"]:
            of_cells = self._log_expected(state._replace(log_noise=log_noise[0]), temperature)
            return of_cells + shape * log_noise - rate * jnp.exp(log_noise)

        assert state.log_noise is not None  # where r has a prior it is part of the state
        return state._replace(log_noise=slice_moved(key, state.log_noise[None], log_density)[0])

    def _exists(self) -> Array:
        return first(jnp.asarray(self.size), self.capacity)[:, None]

    def _values(self, log_values: Array) -> Array:
        """θ or β, 0 of factors that do not exist."""
        return jnp.where(self._exists(), jnp.exp(log_values), 0.0)

    def _shares(self, log_parts: Float[Array, "cell factor particle"], power: Array) -> tuple[Array, Array]:
        """The parts to a power (cell, 1, 1), the largest as 1; and the log of what that one was, nats."""
        largest = jnp.where(self._exists(), log_parts, -jnp.inf).max(1, keepdims=True)
        shares = jnp.where(self._exists(), jnp.exp(power * (log_parts - largest)), 0.0)
        return shares, (power * largest)[:, 0]

    def _log_sum(self, log_parts: Float[Array, "cell factor particle"], power: Array) -> Float[Array, "cell particle"]:
        """log Σ_k r_k^power, nats. power: (cell,)"""
        shares, largest = self._shares(log_parts, power[:, None, None])
        return jnp.log(shares.sum(1)) + largest

    def _come(self, log_parts: Float[Array, "cell factor particle"], come: Array) -> tuple[Array, Array]:
        """Of the counts that have come (cell,): the whole ones, m (cell,), and log g_f (cell, particle), nats."""
        whole = jnp.floor(come)
        share = come - whole
        return whole, self._log_sum(log_parts, share) + (share[:, None] - 1) * jnp.log(self.size)

    def _allocated(self, key: Array, state: FactorState, temperature: Array) -> tuple[Array, Array]:
        """What each row and each column has of each factor, of the counts that have come: as the state's leaves."""
        cells, counts = (jnp.asarray(leaf).reshape(-1, BLOCK, *leaf.shape[1:]) for leaf in (self.cells, self.counts))
        particles = state.log_factors.shape[-1]

        def one_block(sums: tuple[Array, Array], block: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
            where, x, index = block
            row, column = where.T
            log_parts = state.log_intensities[row] + state.log_factors[column]
            come = temperature * x
            whole = jnp.floor(come)
            key_block = jax.random.fold_in(key, index)

            def passed(power: Array) -> Callable[[Array | int], Array]:
                """number of the count -> which ends of the factors' shares, to a power, it lies beyond."""
                ends = jnp.cumsum(self._shares(log_parts, power[:, None, None])[0], axis=1)

                def draw(number: Array | int) -> Array:
                    drawn = jax.random.uniform(jax.random.fold_in(key_block, number), (BLOCK, 1, particles), ends.dtype)
                    return (ends <= drawn * ends[:, -1:]).astype(ends.dtype)

                return draw

            one, next_one = passed(jnp.ones_like(x)), passed(come - whole)

            def another(number: Array, beyond: Array) -> Array:
                return beyond + jnp.where((number <= whole)[:, None, None], one(number), 0.0)

            beyond = (come - whole)[:, None, None] * next_one(0)
            beyond = jax.lax.fori_loop(1, whole.max().astype(int) + 1, another, beyond)
            all_come = jnp.broadcast_to(come[:, None, None], beyond[:, :1].shape)
            chosen = jnp.concatenate([all_come, beyond[:, :-1]], axis=1) - beyond
            return (sums[0].at[row].add(chosen), sums[1].at[column].add(chosen)), None

        nothing = jnp.zeros_like(state.log_intensities), jnp.zeros_like(state.log_factors)
        return jax.lax.scan(one_block, nothing, (cells, counts, jnp.arange(len(cells))))[0]

    def _log_intensities(self, key: Array, counts: Array, exposure: Array) -> Array:
        a = jnp.asarray(self.model.concentration, counts.dtype)
        return log_gamma_draws(key, a / self.size + counts) - jnp.log(a + exposure)

    def _log_factors(self, key: Array, counts: Array, exposure: Array) -> Array:
        c = jnp.asarray(self.model.factor_concentration, counts.dtype)
        return log_gamma_draws(key, c + counts) - jnp.log(self._factor_rate(counts) + exposure)

    def _factor_rate(self, like: Array) -> Float[Array, "dim one one"]:
        rate = jnp.asarray(self.model.factor_rate(), like.dtype)
        return jnp.broadcast_to(rate, like.shape[:1])[:, None, None]

    def _rescaled(self, key: Array, state: FactorState) -> FactorState:
        """Every factor's scale."""
        real = jnp.asarray(self.weight)[:, None, None] > 0
        a = jnp.asarray(self.model.concentration, state.log_factors.dtype)
        up = a * jnp.where(real, jnp.exp(state.log_intensities), 0.0).sum(0)
        down = (self._factor_rate(state.log_factors) * jnp.exp(state.log_factors)).sum(0)
        slope = real.sum() * a / self.size - len(self.exposed.T) * self.model.factor_concentration
        by = scale_step(key, slope, up, down)
        log_intensities = jnp.where(real, state.log_intensities + by, state.log_intensities)
        return state._replace(log_intensities=log_intensities, log_factors=state.log_factors - by)


@path_needs_fit.register
def _(model: PoissonFactorization, data: Dataset) -> bool:
    return sum(float(np.where(batch.units.observed, batch.units.value, 0.0).sum()) for batch in data.batches) > MANY


@evidence_chain.register
def _(
    model: PoissonFactorization, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> PoissonFactorizationChain | AnchoredFactorization:
    """From about the fit where counts are many, and from the prior where they are few or there is no fit."""
    if estimate is not None and path_needs_fit(model, data):
        return near_fit(model, data, size[0], estimate)
    return PoissonFactorizationChain.of(model, data, size[0], capacity_of(size)[0])
