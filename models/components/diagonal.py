"""Gaussian components with independent columns, mean and precision of each integrated out."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import (
    LEAST,
    least_parameter,
    location_and_scale,
    location_parameter,
    positive_or_prior,
    positive_parameter,
    standardised,
)
from lvsearch.models.components.component import Component
from lvsearch.models.contract import ExpectedCells, HyperparameterArray
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.families import Family, NormalGamma, NormalGammaStatistics, PointGaussian
from lvsearch.models.hyperpriors import GammaPrior, as_text, described_rate, prior_mean
from lvsearch.models.units import Row


class DiagonalComponents(Component):
    """Gaussians with independent columns: x_d = location_d + scale_d y_d, y_d ~ Normal(μ_d, 1/τ_d).

    The prior is μ_d | τ_d ~ Normal(0, 1/(κτ_d)), τ_d ~ Gamma(a, b + b₀), for every column d. Missing cells are left
    out.

    location, scale: a number, or one per column; the unit in which the other hyper-parameters are expressed. The
        defaults expect data of mean 0 and standard deviation 1; `scaled_to(values)` computes both from the data.
    pseudo_count: κ, the number of rows that the prior of a mean is worth. A number or a `GammaPrior`.
    shape: a. A component's variance is around rate/shape, in units of scale².
    rate: b. A number, one per column, or a `GammaPrior`. With a prior, each column has a rate of its own, shared by all
        components: the width of components is then inferred, and components are as wide as each other up to the
        variation that `shape` allows.
    variance_floor: the smallest variance in the plug-in form, in units of scale². None means that there is no plug-in
        form: without a floor the likelihood grows without bound as a component shrinks onto a row.
    estimated: True in the plug-in form; leave it to `plug_in`.
    least_rate: b₀, 0 or more, added to every rate. It matters where b has a prior: components cannot all become
        narrower than about √(b₀/a), in units of scale, so that many equal cells in a column have a finite density.
    """

    location: HyperparameterArray
    scale: HyperparameterArray
    pseudo_count: HyperparameterArray | GammaPrior
    shape: HyperparameterArray
    rate: HyperparameterArray | GammaPrior
    variance_floor: float | None = eqx.field(static=True)
    estimated: bool = eqx.field(static=True)
    least_rate: float = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    cellwise: ClassVar[bool] = True
    hyper_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {"pseudo_count": (), "rate": ("dim",)}

    def __init__(
        self,
        location: Any = 0.0,
        scale: Any = 1.0,
        pseudo_count: Any = 0.1,
        shape: Any = 2.0,
        rate: Any = 0.5,
        variance_floor: float | None = None,
        estimated: bool = False,
        least_rate: float = 0.0,
    ):
        self.location, self.scale = location_parameter(location), positive_parameter("scale", scale, ndim=1)
        self.pseudo_count = positive_or_prior("pseudo_count", pseudo_count)
        self.shape, self.rate = positive_parameter("shape", shape), positive_or_prior("rate", rate, ndim=1)
        if variance_floor is not None and not variance_floor > 0:
            raise ValueError(f"got variance_floor={variance_floor!r}, expected a positive number, or None")
        if estimated and variance_floor is None:
            raise ValueError("got estimated parameters without a variance_floor, expected the smallest variance")
        self.variance_floor = None if variance_floor is None else float(variance_floor)
        self.estimated = bool(estimated)
        self.least_rate = least_parameter("least_rate", least_rate)

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        if self.estimated:
            return super().expected_cells(n_dims)
        variance = prior_mean(self.rate) / self.shape * (1 + 1 / prior_mean(self.pseudo_count))
        return ExpectedCells.from_numbers(self.location, self.scale * np.sqrt(variance), n_dims)

    @classmethod
    def scaled_to(cls, values: Any, pseudo_count: Any = 0.1, shape: Any = 2.0, rate: Any = 0.5) -> "DiagonalComponents":
        """Make the components with the columns' means and standard deviations as location and scale.

        values: (rows, columns), NaN where missing, as in `points.values`.
        pseudo_count, shape, rate: hyper-parameters of the class, in units of the scale.

        Raises ValueError for a column that does not vary.
        """
        return cls(*location_and_scale(values), pseudo_count, shape, rate)

    @classmethod
    def weak(cls, values: Any) -> "DiagonalComponents":
        """Make the components like `scaled_to`, with weakly informative priors on how wide they are and how far apart.

        values: (rows, columns), NaN where missing.

        shape is 2, and the rate of each column ~ Gamma(1, rate 1), as in Richardson & Green (1997). A component's
        variance is then a priori, on average, that of the whole column; the data may make it much smaller. pseudo_count
        ~ Gamma(1, rate 1): means spread, on average, as widely as rows do about them; the data may make them spread
        much wider. least_rate is 1e-8: widths below a ten-thousandth of a column's count as rounding.

        Raises ValueError for a column that does not vary.
        """
        one = GammaPrior(1.0, 1.0)
        return cls(*location_and_scale(values), one, 2.0, one, least_rate=LEAST)

    @property
    def family(self) -> Family:
        return PointGaussian(self.variance_floor) if self.estimated else self.prior_family  # pyright: ignore

    @property
    def prior_family(self) -> Family:
        return NormalGamma()

    def describe(self) -> str:
        if self.estimated:
            return (
                f"Gaussians with independent columns (estimated, variances at least {self.variance_floor:g} in units "
                f"of scale {as_text(self.scale)}, squared)"
            )
        rate = described_rate(self.rate, self.least_rate)
        return (
            f"Gaussians with independent columns (location {as_text(self.location)}, scale {as_text(self.scale)}, "
            f"pseudo_count {as_text(self.pseudo_count)}, precision ~ Gamma({as_text(self.shape)}, rate {rate})"
        )

    def prior(self, n_dims: int) -> NormalGammaStatistics:
        zero = jnp.zeros(n_dims)
        return NormalGammaStatistics(
            zero + (self.shape - 0.5),
            zero + (self.number("rate") + self.least_rate),
            zero,
            zero + self.number("pseudo_count"),
        )

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        return standardised(unit, self.location, self.scale)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> NormalGammaStatistics:
        seen = observed.astype(coordinates.dtype)
        return NormalGammaStatistics(0.5 * seen, 0.5 * coordinates**2, coordinates, seen)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        per_cell = jnp.broadcast_to(-0.5 * LOG_2PI - jnp.log(self.scale), coordinates.shape)
        return jnp.where(observed, per_cell, 0.0).sum().astype(coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return the greatest log-density of each row, in nats, shape (rows,); inf unless parameters are estimated.

        With estimated parameters it is that of the smallest variance, Σ_d −½ log(2π · floor · scale_d²). Otherwise a
        component on one row, with a variance that shrinks to 0, has a density without bound.
        """
        observed = np.asarray(units.observed)
        if not self.estimated:
            return np.where(observed.any(-1), np.inf, 0.0)
        smallest = self.variance_floor * np.asarray(self.scale, np.float64) ** 2  # pyright: ignore
        return np.where(observed, -0.5 * np.log(2 * np.pi * smallest), 0.0).sum(-1)

    def free_parameters(self, n_dims: int) -> int:
        return 2 * n_dims

    def plug_in(self) -> "DiagonalComponents":
        if self.variance_floor is None:
            raise ValueError(
                "Gaussian components of free variance have no plug-in form: the likelihood grows without bound as one "
                'shrinks onto a row. Give variance_floor=, use evidence="marginal", or KnownCovarianceComponents'
            )
        c = self.at_prior_means()
        return DiagonalComponents(
            c.location, c.scale, c.pseudo_count, c.shape, c.rate, c.variance_floor, True, c.least_rate
        )

    def moments(self, statistics: NormalGammaStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        mean, precision = self.family.value(statistics)
        return self.location + self.scale * mean, jnp.diag(self.scale**2 / precision)

    def draw(self, key: Array, statistics: NormalGammaStatistics, unit: Row) -> Float[Array, " dim"]:
        mean, precision = self.family.value(statistics)
        noise = jax.random.normal(key, mean.shape, mean.dtype) / jnp.sqrt(precision)
        return self.location + self.scale * (mean + noise)
