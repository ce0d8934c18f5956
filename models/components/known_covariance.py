"""Gaussian components that share one known covariance; only the means differ (Blei 2004, §5.5)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.component import Component
from lvsearch.models.components.requirements import refuse_partial_rows
from lvsearch.models.components.standard import location_parameter, positive_parameter
from lvsearch.models.contract import HyperparameterArray, hyperparameter, is_traced
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.families import Family, Gaussian, GaussianStatistics, PointMean
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row


class KnownCovarianceComponents(Component):
    """Gaussians with one known covariance Σ: x ~ Normal(mean, Σ), mean ~ Normal(location, Σ/κ).

    The prior is the conjugate base measure of the thesis (its Λ/λ₂, §5.5).

    covariance: Σ; a positive number (times the identity), one variance per column, or a matrix (D, D).
    location: a number, or one per column.
    pseudo_count: κ, the number of rows that the prior of a mean is worth.

    In the coordinates y = L⁻¹(x − location), with Σ = LLᵀ, columns are independent with variance 1. So even a full Σ
    costs no more than a diagonal one. With a matrix no cell of a row may be missing; otherwise missing cells are left
    out.
    """

    covariance: HyperparameterArray
    location: HyperparameterArray
    pseudo_count: HyperparameterArray
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)

    def __init__(self, covariance: Any, location: Any = 0.0, pseudo_count: Any = 0.01, estimated: bool = False):
        array = hyperparameter(covariance)
        if array.ndim < 2:
            array = positive_parameter("covariance", covariance, ndim=1)
        elif not is_traced(array) and not _is_covariance(np.asarray(array)):
            raise ValueError(
                f"got a covariance matrix of shape {array.shape} that is not symmetric positive definite, expected one "
                "(D, D), or one variance per column"
            )
        self.covariance, self.location = array, location_parameter(location)
        self.pseudo_count = positive_parameter("pseudo_count", pseudo_count)
        self.estimated = estimated

    @property
    def family(self) -> Family:
        return PointMean() if self.estimated else self.prior_family

    @property
    def prior_family(self) -> Family:
        return Gaussian()

    def describe(self) -> str:
        kind = "full covariance" if np.ndim(self.covariance) == 2 else f"variance {as_text(self.covariance)}"
        means = (
            "means estimated"
            if self.estimated
            else f"location {as_text(self.location)}, pseudo_count {as_text(self.pseudo_count)}"
        )
        return f"Gaussians of known {kind} ({means})"

    def check(self, units: Row) -> None:
        if np.ndim(self.covariance) == 2:
            refuse_partial_rows(units, "columns depend on each other")
        n_dims = np.shape(units.value)[-1]
        if np.ndim(self.covariance) and len(self.covariance) != n_dims:
            raise ValueError(f"got a covariance for {len(self.covariance)} columns, expected {n_dims}, as in the data")

    def prior(self, n_dims: int) -> GaussianStatistics:
        zero = jnp.zeros(n_dims)
        return GaussianStatistics(zero, zero + self.pseudo_count)

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        x = jnp.where(unit.observed, jnp.asarray(unit.value) - self.location, 0.0)
        if np.ndim(self.covariance) < 2:
            return x / jnp.sqrt(self.covariance)
        y = solve_triangular(jnp.linalg.cholesky(jnp.asarray(self.covariance)), x, lower=True)
        return jnp.where(jnp.asarray(unit.observed).all(), y, 0.0)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> GaussianStatistics:
        seen = self._seen(observed).astype(coordinates.dtype)
        return GaussianStatistics(seen * coordinates, seen)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        per_cell = -0.5 * (LOG_2PI + coordinates**2 + self._log_variances(coordinates.shape[-1]))
        return jnp.where(self._seen(observed), per_cell, 0.0).sum().astype(coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return the greatest log-density of each row, −½ log|2πΣ| over its observed cells, in nats, shape (rows,).

        The mean of its component is then the row itself.
        """
        observed, n_dims = np.asarray(units.observed), np.shape(units.value)[-1]
        if np.ndim(self.covariance) == 2:
            each = np.linalg.slogdet(self.covariance)[1] / n_dims
            return np.where(observed.all(-1), -0.5 * n_dims * (LOG_2PI + each), 0.0)
        variances = np.broadcast_to(self.covariance, (n_dims,))
        return np.where(observed, -0.5 * (LOG_2PI + np.log(variances)), 0.0).sum(-1)

    def plug_in(self) -> "KnownCovarianceComponents":
        return KnownCovarianceComponents(self.covariance, self.location, self.pseudo_count, estimated=True)

    def moments(self, statistics: GaussianStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        covariance, n_dims = jnp.asarray(self.covariance), len(statistics.value)
        if covariance.ndim < 2:
            factor = jnp.diag(jnp.broadcast_to(jnp.sqrt(covariance), (n_dims,)))
        else:
            factor = jnp.linalg.cholesky(covariance)
        return jnp.asarray(self.location) + factor @ statistics.value, factor @ factor.T

    def draw(self, key: Array, statistics: GaussianStatistics, unit: Row) -> Float[Array, " dim"]:
        y = statistics.value + jax.random.normal(key, statistics.value.shape, statistics.value.dtype)
        if np.ndim(self.covariance) < 2:
            return jnp.asarray(self.location) + jnp.sqrt(self.covariance) * y
        return jnp.asarray(self.location) + jnp.linalg.cholesky(jnp.asarray(self.covariance)) @ y

    def _seen(self, observed: Any) -> Array:
        """Return which cells of a row count, shape (…, dim). With a covariance matrix a row counts whole or not at all.

        observed: True for cells that are not missing, shape (…, dim).
        """
        known = jnp.asarray(observed)
        return jnp.logical_and(known, known.all()) if np.ndim(self.covariance) == 2 else known

    def _log_variances(self, n_dims: int) -> Array:
        """Return the logs of the D variances whose product is the determinant of the covariance matrix, shape (dim,).

        n_dims: D, the number of columns.
        """
        if np.ndim(self.covariance) == 2:
            return 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(jnp.asarray(self.covariance))))
        return jnp.broadcast_to(jnp.log(jnp.asarray(self.covariance)), (n_dims,))


def _is_covariance(array: np.ndarray) -> bool:
    """Return True for a symmetric positive definite matrix."""
    square = array.ndim == 2 and array.shape[0] == array.shape[1] and array.shape[0] > 0
    if not square or not np.allclose(array, array.T, rtol=1e-10, atol=0):
        return False
    return bool(np.linalg.eigvalsh(array)[0] > 0)
