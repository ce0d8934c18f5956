"""A collapsed Gibbs sweep compiled by JAX, for X without missing cells: the same conditionals, faster per sweep.

Places for features are padded to a capacity. A place that no row has keeps M = 1/r and B = 0. The compiled loop goes
over the rows until a row needs more places than are free, or more new features than its table holds. That row is drawn
by `collapsed_rows.redraw_row`, and the loop goes on, with a larger capacity if it must. Random numbers come from
NumPy's generator, a row of them for each row of X. Everything is float64.

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
"""The most new features of one row that the compiled loop considers.

If more than this many are not negligible, the row is left to `redraw_row`.
"""
SPARE = 4
"""The least number of free places for features when a compiled loop starts."""


class PaddedFeatures(NamedTuple):
    """Z (N, C), how many rows have each feature (C,), M (C, C) and B (C, D), with places up to the capacity C."""

    features: Any
    counts: Any
    covariance: Any
    mean: Any


class Randoms(NamedTuple):
    """The random numbers of each row: the order in which features are visited (N, C), and uniforms (N, C) and (N,)."""

    order: Any
    flip: Any
    new: Any


class _RowVisit(NamedTuple):
    """One row while its features are visited.

    z: its features.
    w: Mz.
    variance: the predictive variance of its cells.
    along: B · residual.
    squares: the sum of squared residuals.
    """

    z: Any
    w: Any
    variance: Any
    along: Any
    squares: Any


def compiled_sweep(rng: np.random.Generator, cells: Cells, state: FeatureState) -> FeatureState:
    """Make the sweep of `collapsed_rows.collapsed_sweep` with other random numbers. Every cell must be observed."""
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
            padded, stopped = _sweep_rows(padded, cells.values, randoms, np.array(state.hyper), row)
            features = np.asarray(padded.features)
            features, row = features[:, features.any(0)], int(stopped)
            if row < n_rows:
                loadings = fit_loadings(cells, features, (state.hyper.sigma_x / state.hyper.sigma_a) ** 2)
                features = redraw_row(rng, FeatureRows(features, features.sum(0), loadings), row, state.hyper).features
                row += 1
    return state._replace(features=features)


def _pad(cells: Cells, features: np.ndarray, hyper: Hyperparameters) -> PaddedFeatures:
    """Return the features padded to a capacity of 8, 16, 32, … that leaves at least SPARE free places."""
    n_features = features.shape[1]
    capacity = max(8, 1 << (n_features + SPARE - 1).bit_length())
    wide = np.pad(features, ((0, 0), (0, capacity - n_features)))
    fitted = SharedLoadings.fit(cells.values, wide, (hyper.sigma_x / hyper.sigma_a) ** 2)
    return PaddedFeatures(wide, wide.sum(0), fitted.covariance, fitted.mean)


@kernel()
def _sweep_rows(
    padded: PaddedFeatures, values: Array, randoms: Randoms, hyper: Array, first: int | Array
) -> tuple[PaddedFeatures, Array]:
    """Redraw the rows from `first` on.

    Returns the new state, and the row at which the loop stopped (N if it did not).
    """
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

    def redraw(carry: tuple[PaddedFeatures, Any, Any]) -> tuple[PaddedFeatures, Any, Any]:
        old, n, _ = carry
        # take row n out by a rank-one downdate; features that only it had become free places in their prior state
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
        begin = _RowVisit(z, w, noise * (1 + z @ w) + alone * loading, mean @ residual, residual @ residual)

        def visit(position: Any, r: _RowVisit) -> _RowVisit:
            k = randoms.order[n, position]
            step = 1 - 2 * r.z[k]
            variance = r.variance + noise * (2 * step * r.w[k] + covariance[k, k])
            squares = r.squares - 2 * step * r.along[k] + across[k, k]
            against = score(variance, squares) - score(r.variance, r.squares) - step * log_odds[k]
            moves = randoms.flip[n, k] * (1 + jnp.exp(jnp.minimum(against, LARGEST_EXPONENT))) < 1
            step = jnp.where(moves & ~free[k], step, 0.0)
            moved = _RowVisit(
                r.z.at[k].add(step), r.w + step * covariance[k], variance, r.along - step * across[k], squares
            )
            return moved._replace(
                variance=jnp.where(step == 0, r.variance, variance), squares=jnp.where(step == 0, r.squares, squares)
            )

        # the number of new features from its conditional, if the table holds all that matters and places are free
        end = jax.lax.fori_loop(0, capacity, visit, begin)
        variance, best = end.variance - alone * loading, end.squares / n_columns
        weights = log_poisson - score(variance + j * loading, end.squares)
        highest = weights[:TABLE].max()
        most = -score(jnp.maximum(best, variance), end.squares)
        cut = (log_poisson[TABLE] + most < highest - TAIL) & (2 * alpha / n_rows <= TABLE + 1)
        cumulative = jnp.cumsum(jnp.exp(weights[:TABLE] - highest))
        more = (randoms.new[n] * cumulative[-1] >= cumulative).sum()
        goes_on = cut & (more <= free.sum())

        # put the row back by a rank-one update
        z = jnp.where(free & (jnp.cumsum(free) <= more), 1.0, end.z)
        w = covariance @ z
        scaled = w / (1 + z @ w)
        new = PaddedFeatures(
            old.features.at[n].set(z),
            others + z,
            covariance - jnp.outer(scaled, w),
            mean + jnp.outer(scaled, x - z @ mean),
        )
        kept = jax.tree.map(lambda a, b: jnp.where(goes_on, a, b), new, old)
        return kept, jnp.where(goes_on, n + 1, n), ~goes_on

    begin = (jax.tree.map(jnp.asarray, padded), jnp.asarray(first), jnp.asarray(False))
    end = jax.lax.while_loop(lambda carry: (carry[1] < n_rows) & ~carry[2], redraw, begin)
    return end[0], end[1]
