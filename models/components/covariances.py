"""Gaussian components with a covariance matrix: one for each component, or one known matrix for all.

`FullCovarianceComponents` have a covariance matrix each; mean and precision matrix are integrated out.
`KnownCovarianceComponents` share one known covariance, and only the means differ (Blei 2004, §5.5). `DependentColumns`
is the base class of the former and of factor analysers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import (
    LEAST,
    has_missing_cells,
    least_parameter,
    location_and_scale,
    location_parameter,
    positive_or_prior,
    positive_parameter,
    refuse_partial_rows,
    standardised,
)
from lvsearch.models.components.component import CellsGivenOthers, Component
from lvsearch.models.contract import ExpectedCells, HyperparameterArray, hyperparameter, is_traced
from lvsearch.models.exponential.matrices import cholesky, inverse_from, log_determinant, solve_lower
from lvsearch.models.exponential.normal_wishart import LOG_2, normal_wishart_parameters
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.families import (
    Family,
    Gaussian,
    GaussianStatistics,
    NormalWishart,
    NormalWishartStatistics,
    PointMean,
    VectorGaussianStatistics,
)
from lvsearch.models.hyperpriors import GammaPrior, as_text, prior_mean
from lvsearch.models.units import Row


class DependentColumns(Component):
    """Gaussians of free covariance between columns: a row counts whole or not at all, unless `partial_rows`.

    `location`, `scale`: of each column, or one number for all. Rows are shifted and scaled by them.
    """

    location: eqx.AbstractVar[HyperparameterArray]
    scale: eqx.AbstractVar[HyperparameterArray]

    def check(self, units: Row) -> None:
        refuse_partial_rows(units, "columns depend on each other")

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        return standardised(unit, self.location, self.scale)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        total = jnp.broadcast_to(-0.5 * LOG_2PI - jnp.log(self.scale), coordinates.shape).sum()
        return jnp.where(observed.all(), total, 0.0).astype(coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return inf for every row with observed cells, else 0, in nats, shape (rows,).

        A component on few rows has a density without bound.
        """
        return np.where(np.asarray(units.observed).any(-1), np.inf, 0.0)


def gaussian_marginals(
    means: Float[Array, "component dim"],
    covariances: Float[Array, "component dim dim"],
    columns: tuple[int, ...],
    values: Float[Array, "point chosen"],
) -> Float[Array, "point component"]:
    """Return the log-density of some columns under several Gaussians, in nats, (point, component).

    means, covariances: of each Gaussian. columns: the numbers of the columns. values: their values at several points.
    """
    chosen = np.asarray(columns)
    factor = cholesky(covariances[:, chosen[:, None], chosen])
    whitened = solve_lower(factor, values.T - means[:, chosen, None])  # (component, chosen, point)
    log_scale = jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)).sum(-1)
    return -0.5 * ((whitened**2).sum(1).T + len(chosen) * LOG_2PI) - log_scale


def cells_given_others(
    statistics: NormalWishartStatistics,
    coordinates: Float[Array, " dim"],
    missing: Bool[Array, " dim"],
    most: int | None = None,
) -> CellsGivenOthers:
    """Return the law of the missing cells of a row in one component, given the others.

    With m the missing cells and o the others, they are Gaussian of precision Λ_mm and mean Λ_mm⁻¹ b, where b = (Λμ)_m −
    Λ_mo y_o. Integrated out, they leave of the row's log density

        ½ log|Λ| − ½ y_oᵀ Λ_oo y_o + y_oᵀ (Λμ)_o − ½ μᵀΛμ + ½ bᵀ Λ_mm⁻¹ b − ½ log|Λ_mm|.

    At expected statistics of a variational q of the parameters, this is the optimal q of the cells.

    statistics: those of the component's mean and precision matrix, or their expected values.
    coordinates: the row, shape (dim,); anything at missing cells.
    missing: True at missing cells, shape (dim,).
    most: the number of places, at least the number of missing cells; by default the number of columns.

    Source: Bishop (2006), Eq. 2.73 and 2.75.
    """
    precision, linear = -2 * statistics.negative_half_precision, statistics.precision_mean
    y = jnp.where(missing, 0.0, coordinates)
    along = precision @ y
    columns = jnp.argsort(~missing, stable=True)[:most]  # those of missing cells first
    # a component that does not exist has statistics of 0, and no law of its cells
    here = missing[columns] & (jnp.diagonal(precision)[columns] > 0)
    own = jnp.where(here, (linear - along)[columns], 0.0)
    block = jnp.where(here[:, None] & here, precision[columns[:, None], columns], jnp.eye(len(columns)))
    factor = cholesky(block.astype(precision.dtype))
    half = solve_lower(factor, own[:, None])
    centre = solve_lower(factor, half, transposed=True)[:, 0]
    square = y @ (linear - 0.5 * along) + 0.5 * (half**2).sum() - 0.5 * log_determinant(factor)
    log_mass = statistics.half_log_determinant + statistics.negative_half_square + square
    return CellsGivenOthers(columns, here, centre, factor, log_mass)


class FullCovarianceComponents(DependentColumns):
    """Gaussians with free covariance: x = location + scale · y, y ~ Normal(μ, Λ⁻¹).

    The prior is Λ ~ Wishart(ν, ((spread + s₀) · I)⁻¹), μ | Λ ~ Normal(0, (κΛ)⁻¹).

    location, scale: a number, or one per column, as in `DiagonalComponents`; `scaled_to(values)` computes both from
        data.
    pseudo_count: κ, the number of rows that the prior of a mean is worth. A number or a `GammaPrior`.
    excess_degrees: ν − (D − 1) > 0, which has the same meaning in any number of columns D. With 2 or less the
        covariance has no prior mean.
    spread: a component's covariance is around spread / (ν − D − 1) · I, in units of scale². A number, one per column
        (the diagonal of a matrix), or a `GammaPrior`, from which each column has a value of its own, shared by all
        components.
    least_spread: s₀, 0 or more, added to every spread. It matters where the spread has a prior: with it, many equal
        cells in a column, or columns that are multiples of each other, have a finite density.
    partial_rows: True if cells of a row may be missing. They are then latent variables of the row, Gaussian given its
        other cells. `weak(values)` and `scaled_to(values)` set it where values are missing. `FiniteMixture` and
        `TiedMixture` take such components; a row without any cell says nothing and changes nothing.
    """

    location: HyperparameterArray
    scale: HyperparameterArray
    pseudo_count: HyperparameterArray | GammaPrior
    excess_degrees: HyperparameterArray
    spread: HyperparameterArray | GammaPrior
    least_spread: float = eqx.field(static=True)
    partial_rows: bool = eqx.field(static=True)

    estimated: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = ("dim", "dim")
    hyper_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {"pseudo_count": (), "spread": ("dim",)}

    def __init__(
        self,
        location: Any = 0.0,
        scale: Any = 1.0,
        pseudo_count: Any = 0.1,
        excess_degrees: Any = 4.0,
        spread: Any = 0.5,
        least_spread: float = 0.0,
        partial_rows: bool = False,
    ):
        self.location, self.scale = location_parameter(location), positive_parameter("scale", scale, ndim=1)
        self.pseudo_count = positive_or_prior("pseudo_count", pseudo_count)
        self.partial_rows = bool(partial_rows)
        self.excess_degrees = positive_parameter("excess_degrees", excess_degrees)
        self.spread = positive_or_prior("spread", spread, ndim=1)
        self.least_spread = least_parameter("least_spread", least_spread)

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        # the prior mean of a variance, where there is one; else a variance around which many lie
        variance = prior_mean(self.spread) / np.maximum(self.excess_degrees - 2, 1.0)
        between = 1 + 1 / prior_mean(self.pseudo_count)
        return ExpectedCells.from_numbers(self.location, self.scale * np.sqrt(variance * between), n_dims)

    @classmethod
    def scaled_to(
        cls, values: Any, pseudo_count: Any = 0.1, excess_degrees: Any = 4.0, spread: Any = 0.5
    ) -> "FullCovarianceComponents":
        """Make the components with the columns' means and standard deviations as location and scale.

        values: (rows, columns). pseudo_count, excess_degrees, spread: hyper-parameters of the class, in units of the
            scale.

        Raises ValueError for a column that does not vary.
        """
        partial_rows = has_missing_cells(values)
        return cls(*location_and_scale(values), pseudo_count, excess_degrees, spread, partial_rows=partial_rows)

    @classmethod
    def weak(cls, values: Any) -> "FullCovarianceComponents":
        """Make the components like `scaled_to`, with weakly informative priors on how wide they are and how far apart.

        values: (rows, columns).

        excess_degrees is 4, and the spread of each column ~ Gamma(1, rate 1/2), a diagonal form of the hierarchy of
        Malsiner-Walli, Frühwirth-Schnatter & Grün (2016). A component's variance is then a priori, on average, that of
        the whole column; the data may make it much smaller. pseudo_count ~ Gamma(1, rate 1): means spread, on average,
        as widely as rows do about them; the data may make them spread much wider. least_spread is 2e-8: widths below a
        ten-thousandth of a column's count as rounding.

        Raises ValueError for a column that does not vary.
        """
        return cls(
            *location_and_scale(values),
            GammaPrior(1.0, 1.0),
            4.0,
            GammaPrior(1.0, 0.5),
            least_spread=2 * LEAST,
            partial_rows=has_missing_cells(values),
        )

    @property
    def prior_family(self) -> Family:
        return NormalWishart()

    def describe(self) -> str:
        added = f", plus {self.least_spread:g}" if self.least_spread else ""
        return (
            f"Gaussians with full covariance (location {as_text(self.location)}, scale {as_text(self.scale)}, "
            f"pseudo_count {as_text(self.pseudo_count)}, excess_degrees {as_text(self.excess_degrees)}, "
            f"spread {as_text(self.spread)}{added})"
        )

    def check(self, units: Row) -> None:
        if not self.partial_rows:
            refuse_partial_rows(
                units,
                "columns depend on each other. Make FullCovarianceComponents from the table with its missing cells, by "
                "weak(points), or with partial_rows=True",
            )

    def prior(self, n_dims: int) -> NormalWishartStatistics:
        zero = jnp.zeros(n_dims)
        degrees, count = zero.sum() + (self.excess_degrees - 1), zero.sum() + self.number("pseudo_count")
        return NormalWishartStatistics(
            degrees, jnp.eye(n_dims) * (self.number("spread") + self.least_spread), zero, count
        )

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> NormalWishartStatistics:
        """Return s(x), what one row adds to the natural parameters of its component: (1, yyᵀ, y, 1).

        coordinates: the row in the coordinates of `coordinates`, shape (dim,), its missing cells filled in.
        observed: True for cells that are not missing, shape (dim,). A row without any counts for nothing, and so does
            one that lacks some unless `partial_rows`.
        """
        whole = (observed.any() if self.partial_rows else observed.all()).astype(coordinates.dtype)
        y = whole * coordinates
        return NormalWishartStatistics(whole, y[:, None] * y, y, whole)

    # ── rows with missing cells ─────────────────────────────────────────────────────────────────────────────────────

    def missing_cells(self, observed: Bool[Array, " dim"]) -> Bool[Array, " dim"]:
        """Return True for the missing cells of a row that are latent variables; none in a row without any cell.

        observed: True for cells that are not missing, shape (dim,).
        """
        return ~observed & observed.any()

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        if not self.partial_rows:
            return super().log_carrier(coordinates, observed)
        each = jnp.broadcast_to(-0.5 * LOG_2PI - jnp.log(self.scale), coordinates.shape)
        return jnp.where(observed, each, 0.0).sum().astype(coordinates.dtype)

    def log_rows_with_cells(
        self, statistics: NormalWishartStatistics, unit: Row, cells: VectorGaussianStatistics
    ) -> Float[Array, " component"]:
        """Return log p(x, missing cells | θ_k) of one row x under each component k, in nats, shape (component,).

        It is linear in the statistics of the parameters and of the cells. At observed cells, `cells` holds dummies that
        are standard normal whatever the row; their density is included.

        statistics: the sufficient statistics of the components' parameters, components leading. unit: the row.
        cells: statistics (c, −½ccᵀ) of the row's cells in each component, (component, dim) and (component, dim, dim).
        """
        observed = jnp.asarray(unit.observed)
        y, free = self.coordinates(unit), self.missing_cells(observed).astype(cells.value.dtype)
        whole = observed.any().astype(free.dtype)
        filled = free * cells.value
        cross = y[:, None] * filled[:, None, :]
        outer = y[:, None] * y + cross + jnp.swapaxes(cross, -1, -2)
        outer = outer - 2 * (free[:, None] * free) * cells.negative_half_outer
        of_row = statistics.half_log_determinant + statistics.negative_half_square
        of_row = of_row + (statistics.negative_half_precision * outer).sum((-2, -1))
        of_row = of_row + (statistics.precision_mean * (y + filled)).sum(-1)
        squares = jnp.diagonal(cells.negative_half_outer, axis1=-2, axis2=-1)
        dummies = ((1 - free) * (squares - 0.5 * LOG_2PI)).sum(-1)
        return whole * of_row - 0.5 * LOG_2PI * free.sum() + dummies + self.log_carrier(y, observed)

    def laws_of_cells(
        self,
        statistics: NormalWishartStatistics,
        coordinates: Float[Array, " dim"],
        observed: Bool[Array, " dim"],
        most: int | None = None,
    ) -> CellsGivenOthers:
        missing = self.missing_cells(observed)
        laws = jax.vmap(lambda each: cells_given_others(each, coordinates, missing, most))(statistics)
        return laws._replace(log_mass=jnp.where(observed.any(), laws.log_mass, 0.0))

    def expected_increments(
        self, laws: CellsGivenOthers, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]
    ) -> NormalWishartStatistics:
        whole = observed.any().astype(coordinates.dtype)
        y = whole * jnp.where(self.missing_cells(observed), 0.0, coordinates)

        def one(law: CellsGivenOthers) -> NormalWishartStatistics:
            filled = y.at[law.columns].add(law.centre)
            spread = jnp.where(law.is_missing[:, None] & law.is_missing, inverse_from(law.factor), 0.0)
            outer = (filled[:, None] * filled).at[law.columns[:, None], law.columns].add(spread)
            return NormalWishartStatistics(whole, outer, filled, whole)

        return jax.vmap(one)(laws)

    def log_densities(self, statistics: NormalWishartStatistics, unit: Row) -> Float[Array, " component"]:
        if not self.partial_rows:
            return super().log_densities(statistics, unit)
        y, observed = self.coordinates(unit), jnp.asarray(unit.observed)
        return self.laws_of_cells(statistics, y, observed).log_mass + self.log_carrier(y, observed)

    def log_predictives(self, natural: NormalWishartStatistics, unit: Row) -> Float[Array, " component"]:
        """Return log p(x | natural_k) of one row with parameters integrated out, in nats, shape (component,).

        natural: the natural parameters of the components, components leading. unit: the row.

        The observed cells have Student's t: a marginal of the row's, with as many degrees of freedom. With B the scale
        matrix, m the mean, κ the rows and ν the degrees of freedom of the Normal–Wishart, s = κ/(κ+1), and d = ν + 1 −
        D, their density is Γ((d + |o|)/2) / Γ(d/2) · (s/π)^(|o|/2) |B_oo|^(−½) (1 + s q)^(−(d + |o|)/2), where q = (y −
        m)_oᵀ B_oo⁻¹ (y − m)_o.
        """
        if not self.partial_rows:
            return super().log_predictives(natural, unit)
        y, observed = self.coordinates(unit), jnp.asarray(unit.observed)
        seen = observed.astype(y.dtype)
        degrees, root, centre, count = normal_wishart_parameters(natural)
        scale = root @ jnp.swapaxes(root, -1, -2)
        factor = cholesky(scale * (seen[:, None] * seen) + jnp.diag(1 - seen))
        away = solve_lower(factor, (seen * (y - centre))[..., None])[..., 0]
        n_seen, share, t_degrees = seen.sum(), count / (count + 1), degrees + 1 - len(y)
        of_value = -0.5 * (t_degrees + n_seen) * jnp.log1p(share * (away**2).sum(-1))
        of_degrees = gammaln(0.5 * (t_degrees + n_seen)) - gammaln(0.5 * t_degrees)
        of_scale = 0.5 * n_seen * (jnp.log(share) + LOG_2) - 0.5 * log_determinant(factor)
        return of_degrees + of_scale + of_value + self.log_carrier(y, observed)

    def free_parameters(self, n_dims: int) -> int:
        return n_dims + n_dims * (n_dims + 1) // 2

    def plug_in(self) -> Component:
        raise ValueError(
            "Gaussian components of free covariance have no plug-in form: the likelihood grows without bound as one of "
            'them shrinks onto a row. Use evidence="marginal", or KnownCovarianceComponents'
        )

    def moments(self, statistics: NormalWishartStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        mean, precision = self.family.value(statistics)
        scale = jnp.broadcast_to(jnp.asarray(self.scale), mean.shape)
        return self.location + scale * mean, scale[:, None] * jnp.linalg.inv(precision) * scale

    def marginal_log_densities(
        self, statistics: NormalWishartStatistics, columns: tuple[int, ...], values: Float[Array, "point chosen"]
    ) -> Float[Array, "point component"]:
        return gaussian_marginals(*jax.vmap(self.moments)(statistics), columns, values)

    def draw(self, key: Array, statistics: NormalWishartStatistics, unit: Row) -> Float[Array, " dim"]:
        mean, precision = self.family.value(statistics)
        noise = jax.random.normal(key, mean.shape, mean.dtype)[..., None]
        offset = solve_lower(cholesky(precision), noise, transposed=True)[..., 0]
        return self.location + self.scale * (mean + offset)


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

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        if self.estimated:
            return super().expected_cells(n_dims)
        full = np.ndim(self.covariance) == 2
        variance = np.diagonal(self.covariance) if full else np.asarray(self.covariance)
        return ExpectedCells.from_numbers(self.location, np.sqrt(variance * (1 + 1 / self.pseudo_count)), n_dims)

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

    def free_parameters(self, n_dims: int) -> int:
        return n_dims

    def plug_in(self) -> "KnownCovarianceComponents":
        return KnownCovarianceComponents(self.covariance, self.location, self.pseudo_count, estimated=True)

    def moments(self, statistics: GaussianStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        covariance, n_dims = jnp.asarray(self.covariance), len(statistics.value)
        if covariance.ndim < 2:
            factor = jnp.diag(jnp.broadcast_to(jnp.sqrt(covariance), (n_dims,)))
        else:
            factor = jnp.linalg.cholesky(covariance)
        return jnp.asarray(self.location) + factor @ statistics.value, factor @ factor.T

    def marginal_log_densities(
        self, statistics: GaussianStatistics, columns: tuple[int, ...], values: Float[Array, "point chosen"]
    ) -> Float[Array, "point component"]:
        return gaussian_marginals(*jax.vmap(self.moments)(statistics), columns, values)

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
