"""A collapsed Gibbs sweep compiled by JAX, for X without missing cells: the same conditionals, faster per sweep.

Places for features are padded to a capacity: a place that no row has keeps M = 1/r and B = 0. The compiled loop goes
over the rows until one needs more places than are free, or more new features than its table holds; that row is drawn
by `collapsed_rows.redraw_row`, and the loop goes on with a larger capacity if it must. Random numbers come from NumPy's
generator, a row of them for each row of X. Float64 throughout.

Measured on one core, 100 × 36, capacity 8: 1.1 ms a sweep against 4.7 ms, after 1.7 s of compiling for each capacity.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from lvsearch.inference.devices import one_after_another
from lvsearch.inference.feature_samplers.chain import FeatureState, Hyperparameters
from lvsearch.inference.feature_samplers.collapsed_rows import FeatureRows, redraw_row
from lvsearch.inference.feature_samplers.loadings import LARGEST_EXPONENT, Cells, SharedLoadings, fit_loadings
from lvsearch.inference.feature_samplers.new_features import TAIL
from lvsearch.models.kernels import kernel

TABLE = 24
"""New features of one row that the compiled loop considers; what is beyond must be negligible, or the row is left."""
SPARE = 4


class Padded(NamedTuple):
    """Z (N, C), how many rows have each feature (C,), M (C, C) and B (C, D)."""

    features: Any
    counts: Any
    covariance: Any
    mean: Any


class Randoms(NamedTuple):
    """For each row: the order in which features are visited (N, C), and uniform numbers (N, C) and (N,)."""

    order: Any
    flip: Any
    new: Any


class _Row(NamedTuple):
    """One row while its features are visited: z, Mz, the variance 1 + zᵀMz + …, B · residual, squared residuals."""

    z: Any
    w: Any
    variance: Any
    along: Any
    squares: Any


def compiled_sweep(rng: np.random.Generator, cells: Cells, state: FeatureState) -> FeatureState:
    """As `collapsed_rows.collapsed_sweep`, with other random numbers. Needs every cell to be observed."""
    features, n_rows, row = state.features, len(state.features), 0
    with jax.enable_x64(True), one_after_another():
        while row < n_rows:
            padded = _pad(cells, features, state.hyper)
            n_rows, capacity = padded.features.shape
            randoms = Randoms(
                rng.permuted(np.tile(np.arange(capacity), (n_rows, 1)), axis=1),
                rng.random((n_rows, capacity)),
                rng.random(n_rows),
            )
            padded, stopped = _rows(padded, cells.values, randoms, np.array(state.hyper), row)
            features = np.asarray(padded.features)
            features, row = features[:, features.any(0)], int(stopped)
            if row < n_rows:
                loadings = fit_loadings(cells, features, (state.hyper.sigma_x / state.hyper.sigma_a) ** 2)
                features = redraw_row(rng, FeatureRows(features, features.sum(0), loadings), row, state.hyper).features
                row += 1
    return state._replace(features=features)


def _pad(cells: Cells, features: np.ndarray, hyper: Hyperparameters) -> Padded:
    """With at least SPARE free places; capacities are 8, 16, 32, …"""
    n_features = features.shape[1]
    capacity = max(8, 1 << (n_features + SPARE - 1).bit_length())
    wide = np.pad(features, ((0, 0), (0, capacity - n_features)))
    fitted = SharedLoadings.fit(cells.values, wide, (hyper.sigma_x / hyper.sigma_a) ** 2)
    return Padded(wide, wide.sum(0), fitted.covariance, fitted.mean)


@kernel()
def _rows(padded: Padded, values: Array, randoms: Randoms, hyper: Array, first: int | Array) -> tuple[Padded, Array]:
    """Rows from `first` on, and the number of the row at which the loop stopped (N where it did not)."""
    n_rows, n_columns = values.shape
    capacity = padded.counts.shape[0]
    alpha, sigma_x, sigma_a = hyper
    noise, loading = sigma_x**2, sigma_a**2
    free_covariance = jnp.eye(capacity) * loading / noise
    half_cells, log_rate = 0.5 * n_columns, jnp.log(alpha / n_rows)
    j = jnp.arange(TABLE + 1.0)
    log_poisson = j * log_rate - gammaln(j + 1)

    def score(variance: Any, squares: Any) -> Any:
        return half_cells * jnp.log(variance) + 0.5 * squares / variance

    def one(carry: tuple[Padded, Any, Any]) -> tuple[Padded, Any, Any]:
        old, n, _ = carry
        z, x = old.features[n], values[n]
        w = old.covariance @ z
        scaled = w / (1 - z @ w)
        covariance = old.covariance + jnp.outer(scaled, w)
        mean = old.mean - jnp.outer(scaled, x - z @ old.mean)
        others = old.counts - z
        free = others <= 0
        alone = (z * free).sum()
        covariance = jnp.where(free[:, None] | free, free_covariance, covariance)
        mean = jnp.where(free[:, None], 0.0, mean)
        z = jnp.where(free, 0.0, z)
        log_odds = jnp.log(jnp.where(free, 1.0, others)) - jnp.log(n_rows - others)
        w, residual = covariance @ z, x - z @ mean
        across = mean @ mean.T
        begin = _Row(z, w, noise * (1 + z @ w) + alone * loading, mean @ residual, residual @ residual)

        def visit(position: Any, r: _Row) -> _Row:
            k = randoms.order[n, position]
            step = 1 - 2 * r.z[k]
            variance = r.variance + noise * (2 * step * r.w[k] + covariance[k, k])
            squares = r.squares - 2 * step * r.along[k] + across[k, k]
            against = score(variance, squares) - score(r.variance, r.squares) - step * log_odds[k]
            moves = randoms.flip[n, k] * (1 + jnp.exp(jnp.minimum(against, LARGEST_EXPONENT))) < 1
            step = jnp.where(moves & ~free[k], step, 0.0)
            moved = _Row(r.z.at[k].add(step), r.w + step * covariance[k], variance, r.along - step * across[k], squares)
            return moved._replace(
                variance=jnp.where(step == 0, r.variance, variance), squares=jnp.where(step == 0, r.squares, squares)
            )

        end = jax.lax.fori_loop(0, capacity, visit, begin)
        variance, best = end.variance - alone * loading, end.squares / n_columns
        weights = log_poisson - score(variance + j * loading, end.squares)
        highest = weights[:TABLE].max()
        most = -score(jnp.maximum(best, variance), end.squares)
        cut = (log_poisson[TABLE] + most < highest - TAIL) & (2 * alpha / n_rows <= TABLE + 1)
        cumulative = jnp.cumsum(jnp.exp(weights[:TABLE] - highest))
        more = (randoms.new[n] * cumulative[-1] >= cumulative).sum()
        goes_on = cut & (more <= free.sum())

        z = jnp.where(free & (jnp.cumsum(free) <= more), 1.0, end.z)
        w = covariance @ z
        scaled = w / (1 + z @ w)
        new = Padded(
            old.features.at[n].set(z),
            others + z,
            covariance - jnp.outer(scaled, w),
            mean + jnp.outer(scaled, x - z @ mean),
        )
        kept = jax.tree.map(lambda a, b: jnp.where(goes_on, a, b), new, old)
        return kept, jnp.where(goes_on, n + 1, n), ~goes_on

    begin = (jax.tree.map(jnp.asarray, padded), jnp.asarray(first), jnp.asarray(False))
    end = jax.lax.while_loop(lambda carry: (carry[1] < n_rows) & ~carry[2], one, begin)
    return end[0], end[1]
