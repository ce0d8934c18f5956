"""Gaussian components with independent columns, mean and precision of each integrated out."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.component import Component, words
from lvsearch.models.components.standard import (
    location_and_scale,
    location_parameter,
    positive_or_prior,
    positive_parameter,
    standardised,
)
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.families import Family, NormalGamma, NormalGammaStatistics, PointGaussian
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.units import Row


class DiagonalComponents(Component):
    """x_d = location_d + scale_d y_d, y_d ~ Normal(μ_d, 1/τ_d), μ_d | τ_d ~ Normal(0, 1/(κτ_d)), τ_d ~ Gamma(a, b).

    location, scale: a number, or one per column; they only choose the unit in which the rest is said. The defaults
        expect data of mean 0 and standard deviation 1; `scaled_to(values)` takes both from the data.
    pseudo_count: κ; how many rows the prior of a mean is worth. A number or a `GammaPrior`.
    shape, rate: a and b; a component's variance is around rate/shape of scale². rate: a number, one per column, or a
        `GammaPrior` from which each column has its own, shared by all components: how wide they are is then inferred,
        and they are as wide as each other but for what `shape` leaves open.

    variance_floor: where parameters are to be estimated, in the plug-in form, the smallest variance, in units of
        scale². None for no such form: without a floor the likelihood grows without bound as a component shrinks onto a
        row.

    Missing cells are left out.
    """

    location: HyperparameterArray
    scale: HyperparameterArray
    pseudo_count: HyperparameterArray | GammaPrior
    shape: HyperparameterArray
    rate: HyperparameterArray | GammaPrior
    variance_floor: float | None = eqx.field(static=True)
    estimated: bool = eqx.field(static=True)

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

    @classmethod
    def scaled_to(cls, values: Any, pseudo_count: Any = 0.1, shape: Any = 2.0, rate: Any = 0.5) -> "DiagonalComponents":
        """With the columns' means and standard deviations as location and scale.

        values: (rows, columns), NaN where missing, as `points.values` has it.

        Raises ValueError for a column that does not vary.
        """
        return cls(*location_and_scale(values), pseudo_count, shape, rate)

    @classmethod
    def weak(cls, values: Any) -> "DiagonalComponents":
        """As `scaled_to`, with weakly informative hyper-priors in place of numbers for how wide components are and how
        far apart.

        shape is 2, and the rate of each column ~ Gamma(1, rate 1), as of Richardson & Green (1997): a component's
        variance is on average that of the whole column, and as much smaller as the components then say. pseudo_count ~
        Gamma(1, rate 1): means spread on average as widely as rows do about them, or as much wider.
        """
        return cls(*location_and_scale(values), GammaPrior(1.0, 1.0), 2.0, GammaPrior(1.0, 1.0))

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
                f"of scale {words(self.scale)}, squared)"
            )
        rate = f"β), β {words(self.rate)}" if "rate" in self.inferred else f"{words(self.rate)})"
        return (
            f"Gaussians with independent columns (location {words(self.location)}, scale {words(self.scale)}, "
            f"pseudo_count {words(self.pseudo_count)}, precision ~ Gamma({words(self.shape)}, rate {rate})"
        )

    def check(self, units: Row) -> None:
        """Any real cells will do."""

    def prior(self, n_dims: int) -> NormalGammaStatistics:
        zero = jnp.zeros(n_dims)
        return NormalGammaStatistics(
            zero + (self.shape - 0.5), zero + self.number("rate"), zero, zero + self.number("pseudo_count")
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
        """Where parameters are estimated, that of the smallest variance, Σ_d −½ log(2π · floor · scale_d²). Else none:
        a component on one row, its variance shrinking, has a density without bound."""
        observed = np.asarray(units.observed)
        if not self.estimated:
            return np.where(observed.any(-1), np.inf, 0.0)
        smallest = self.variance_floor * np.asarray(self.scale, np.float64) ** 2  # pyright: ignore
        return np.where(observed, -0.5 * np.log(2 * np.pi * smallest), 0.0).sum(-1)

    def plug_in(self) -> "DiagonalComponents":
        if self.variance_floor is None:
            raise ValueError(
                "Gaussian components of free variance have no plug-in form: the likelihood grows without bound as one "
                'shrinks onto a row. Give variance_floor=, use evidence="marginal", or KnownCovarianceComponents'
            )
        c = self.at_prior_means()
        return DiagonalComponents(c.location, c.scale, c.pseudo_count, c.shape, c.rate, c.variance_floor, True)

    def moments(self, statistics: NormalGammaStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        mean, precision = self.family.value(statistics)
        return self.location + self.scale * mean, jnp.diag(self.scale**2 / precision)

    def draw(self, key: Array, statistics: NormalGammaStatistics, unit: Row) -> Float[Array, " dim"]:
        mean, precision = self.family.value(statistics)
        noise = jax.random.normal(key, mean.shape, mean.dtype) / jnp.sqrt(precision)
        return self.location + self.scale * (mean + noise)
