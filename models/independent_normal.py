"""Gaussian mixtures whose means and precisions are independent a priori; the rate of the precisions is inferred.

Source: Richardson & Green (1997), §2. In each column, independently, with y = (x − location) / scale:

    1. weights       π ~ Dirichlet(a, …, a)
    2. rate          β ~ Gamma(g, rate h)                 one per column, shared by its components
    3. means         μ_k ~ Normal(0, 1/κ)                 k = 1…K components
    4. precisions    τ_k ~ Gamma(α, rate β)
    5. assignment    z_n ~ Categorical(π)                 n = 1…N rows
    6. row           y_n ~ Normal(μ_{z_n}, 1/τ_{z_n})

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `location`, `scale` | ξ and, with the defaults, R | () or (dim,) | scale > 0 |
| `mean_precision` | κ | () | > 0 |
| `shape` | α | () | > 0 |
| `rate_shape`, `rate_rate` | g, h | () | > 0 |
| `concentration` | a (δ in the paper) | () | > 0 |
| site `weights` | log π | (component,) | simplex |
| site `rate` | (log β, −β) | (dim,) | > 0 |
| site `mean` | (μ, −μ²/2) | (component, dim) | real |
| site `precision` | (log τ, −τ) | (component, dim) | > 0 |
| site `component` | z_n | (component,) | one-hot |

Departure from the source. In the paper κ = 1/R² and h = 10/R² depend on the unit of the data, through their range R.
Here κ and h refer to y, whose unit is `scale`: they are 1 and 10 in any unit of the data. Densities are those of the
data themselves, not of y.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from lvsearch.models.components import Component, DiagonalComponents
from lvsearch.models.components.arguments import location_parameter, positive_parameter, standardised
from lvsearch.models.contract import (
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Model,
    Site,
    Statistics,
    first,
    log_relabellings,
)
from lvsearch.models.exponential.scalars import LOG_2PI, NormalGammaStatistics, normal_gamma_statistics
from lvsearch.models.families import Categorical, Dirichlet, Gamma, GammaStatistics, Gaussian, GaussianStatistics
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.mixture import component_rows
from lvsearch.models.plain_arguments import numbers
from lvsearch.models.units import Row


class IndependentNormalMixture(Model):
    """A mixture of `size` Gaussians with independent columns and the weakly informative prior of Richardson & Green.

    location, scale: a number, or one per column; the unit in which the other hyper-parameters are expressed. The
        defaults are for data centred at 0 with a range of 1; `scaled_to(values)` computes both from the data.
    mean_precision: κ, the precision of the prior on means.
    shape: α, the shape of the prior on precisions.
    rate_shape, rate_rate: g and h, of the prior on the rate of the precisions.
    concentration: of the symmetric Dirichlet on the weights, per component.

    The prior is not conjugate: the joint conditional of a mean and a precision is in no family of
    `lvsearch.models.families`. So both are latent variables, and no parameter can be integrated out in closed form.
    Missing cells are left out of the likelihood.

    `nested` is False: there is no plug-in form, since the likelihood of free variances has no maximum.
    """

    location: HyperparameterArray
    scale: HyperparameterArray
    mean_precision: HyperparameterArray
    shape: HyperparameterArray
    rate_shape: HyperparameterArray
    rate_rate: HyperparameterArray
    concentration: HyperparameterArray

    size_names: ClassVar[tuple[str, ...]] = ("components",)
    nested: ClassVar[bool] = False
    unit_type: ClassVar[type] = Row
    representation: ClassVar[str] = "component"

    def __init__(
        self,
        location: Any = 0.0,
        scale: Any = 1.0,
        mean_precision: Any = 1.0,
        shape: Any = 2.0,
        rate_shape: Any = 0.2,
        rate_rate: Any = 10.0,
        concentration: Any = 1.0,
    ):
        self.location, self.scale = location_parameter(location), positive_parameter("scale", scale, ndim=1)
        self.mean_precision = positive_parameter("mean_precision", mean_precision)
        self.shape = positive_parameter("shape", shape)
        self.rate_shape = positive_parameter("rate_shape", rate_shape)
        self.rate_rate = positive_parameter("rate_rate", rate_rate)
        self.concentration = positive_parameter("concentration", concentration)

    @classmethod
    def scaled_to(cls, values: Any) -> "IndependentNormalMixture":
        """Make the model with Richardson & Green's defaults (§2.4): each column's midpoint and range R as location and
        scale.

        values: (rows, columns), NaN where missing.

        In the data's unit these defaults are ξ the midpoint, κ = 1/R², α = 2, g = 0.2, h = 10/R², δ = 1, in the paper's
        letters.

        Raises ValueError for an array of another rank, and for a column that does not vary.
        """
        array = numbers("values", values)
        if array.ndim != 2:
            raise ValueError(f"got data of shape {array.shape}, expected (rows, columns)")
        seen = ~np.isnan(array)
        low, high = np.where(seen, array, np.inf).min(0), np.where(seen, array, -np.inf).max(0)
        if not np.all(high > low):
            raise ValueError(
                f"got column {int(np.argmin(high > low))}, whose cells are all equal or missing, expected a column "
                "that varies: it has no range. Drop it, or give location= and scale= yourself"
            )
        return cls(0.5 * (low + high), high - low)

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "IndependentNormalMixture: location 3, scale 2, means ~ Normal(0, precision 1), …".
        """
        return (
            f"IndependentNormalMixture: location {as_text(self.location)}, scale {as_text(self.scale)}, means ~ "
            f"Normal(0, precision {as_text(self.mean_precision)}), precisions ~ Gamma({as_text(self.shape)}, rate β), "
            f"β ~ Gamma({as_text(self.rate_shape)}, rate {as_text(self.rate_rate)}); weights ~ Dirichlet, "
            f"{as_text(self.concentration)} per component"
        )

    @property
    def components(self) -> Component:
        """The kind of component that means and precisions describe: Gaussians with independent columns.

        Its own prior is another one than this model's.
        """
        return DiagonalComponents(self.location, self.scale)

    def expected_weights(self, natural: Latents) -> tuple[Float[np.ndarray, " component"], float]:
        """Return (the expected weight E[π_k] of each component, (component,), and 0.0, the mass of further components).

        natural: {"weights": natural parameters of the weights}, of existing components only.
        """
        concentration = np.asarray(natural["weights"], np.float64) + 1
        return concentration / concentration.sum(), 0.0

    def expected_components(self, natural: Latents) -> NormalGammaStatistics:
        """Return the statistics of the components' means and precisions at their posterior means, components leading.

        natural: {"mean", "precision": natural parameters}, of existing components only.
        """
        mean, precision = Gaussian().point(natural["mean"]), Gamma().point(natural["precision"])
        return self.component_statistics({"mean": mean, "precision": precision})

    def free_parameters(self, size: int, n_dims: int) -> int:
        """Return how many free numbers the weights, means and precisions are."""
        return size - 1 + size * self.components.free_parameters(n_dims)

    def component_statistics(self, g: Latents) -> NormalGammaStatistics:
        """Return the statistics of the components' means and precisions in the family of their kind, components
        leading.

        g: {"mean", "precision": statistics}.
        """
        return normal_gamma_statistics(g["mean"].value, g["precision"].log_value)

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all rows share: weights, means, precisions, and the rate of the precisions
        in each column.
        """
        return {
            "weights": Site(Dirichlet(), ("component",)),
            "mean": Site(Gaussian(), ("component", "dim")),
            "precision": Site(Gamma(), ("component", "dim")),
            "rate": Site(Gamma(), ("dim",)),
        }

    def locals(self) -> dict[str, Site]:
        """Return the latent variable of one row: its component, one-hot on the axis (component,)."""
        return {"component": Site(Categorical(), ("component",))}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"component": mask of the components that exist}, of length `capacity[0]`."""
        return {"component": first(size[0], capacity[0])}

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        """Return y = (x − location) / scale of a row, shape (dim,); 0 for missing cells."""
        return standardised(unit, self.location, self.scale)

    def log_carrier(self, unit: Row) -> Float[Array, ""]:
        """Return Σ over observed cells of −½ log 2π − log scale, in nats.

        It turns the unnormalised log-density of y into the log-density of x.
        """
        per_cell = jnp.broadcast_to(-0.5 * LOG_2PI - jnp.log(self.scale), np.shape(unit.value))
        return jnp.where(unit.observed, per_cell, 0.0).sum()

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log p(weights) + Σ_d log p(rate_d) + Σ_kd [log p(mean_kd) + log p(precision_kd | rate_d)], in nats.

        k runs over components and d over columns.

        g: {"weights", "mean", "precision", "rate": statistics}. on: {"component": mask of the components that exist}.
        """
        exists, mean, precision, rate = on["component"], g["mean"], g["precision"], g["rate"]
        dtype = g["weights"].dtype
        kappa, a = jnp.asarray(self.mean_precision, dtype), jnp.asarray(self.concentration, dtype)
        alpha, shape = jnp.asarray(self.shape, dtype), jnp.asarray(self.rate_shape, dtype)
        n = exists.sum().astype(dtype)
        weights = gammaln(n * a) - n * gammaln(a) + jnp.where(exists, (a - 1) * g["weights"], 0.0).sum()
        means = 0.5 * (jnp.log(kappa) - LOG_2PI) + kappa * mean.negative_half_square
        precisions = alpha * rate.log_value - gammaln(alpha) + (alpha - 1) * precision.log_value
        precisions = precisions - rate.negative_value * precision.negative_value
        rates = shape * jnp.log(self.rate_rate) - gammaln(shape)
        rates = rates + (shape - 1) * rate.log_value + self.rate_rate * rate.negative_value
        return weights + rates.sum() + jnp.where(exists[:, None], means + precisions, 0.0).sum()

    def log_unit(self, g: Latents, l: Latents, unit: Row, on: Masks) -> Float[Array, ""]:
        """Return log p(z) + Σ_d log Normal(x_d | mean_zd, 1/precision_zd) of one row, over observed cells, in nats.

        z is the component of the row x, and d runs over its columns.

        g: {"weights", "mean", "precision": statistics}. l: {"component": z, one-hot}.
        unit: the row. on: {"component": mask of the components that exist}.
        """
        y, mean, precision = self.coordinates(unit), g["mean"], g["precision"]
        squares = precision.negative_value * (0.5 * y**2 - mean.value * y - mean.negative_half_square)
        cells = jnp.where(unit.observed, 0.5 * precision.log_value + squares, 0.0)
        each = g["weights"] + cells.sum(-1) + self.log_carrier(unit)
        return jnp.where(on["component"], l["component"] * each, 0.0).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K components in groups of m_j identical ones: the log number of
        relabellings.

        size: (K,). natural: {name: natural parameters} of the globals.
        """
        return log_relabellings(component_rows(size[0], natural, ("weights", "mean", "precision")))

    def ceiling(self, units: Row) -> float:
        """Return inf for data with observed cells, else 0, in nats.

        A component on one row, with a variance that shrinks to 0, has a density without bound.
        """
        return float("inf") if np.asarray(units.observed).any() else 0.0

    def plug_in(self) -> "IndependentNormalMixture":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            "Gaussian components of free variance have no plug-in form: the likelihood grows without bound as one of "
            'them shrinks onto a row. Use evidence="marginal", or KnownCovarianceComponents'
        )

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: Row, on: Masks) -> Row:
        """Draw the cells of one row, given its component.

        g: {"mean", "precision": statistics, (component, dim)}. l: {"component": one-hot}.
        unit: a row whose `observed` is kept.
        """
        chosen = jnp.argmax(l["component"])
        mean, precision = g["mean"].value[chosen], -g["precision"].negative_value[chosen]
        noise = jax.random.normal(key, mean.shape, mean.dtype) / jnp.sqrt(precision)
        return Row(self.location + self.scale * (mean + noise), unit.observed)

    def draw_globals(self, key: Array, n_components: int, n_dims: int) -> dict[str, Statistics]:
        """Draw weights, means, precisions and rates from their prior, and return their statistics by name.

        n_components: the number of components. n_dims: the number of columns. Numbers are in the session's floating
            type.
        """
        keys, zero, each = jax.random.split(key, 4), jnp.zeros(n_dims), jnp.zeros((n_components, n_dims))
        rate = Gamma().sample(keys[0], GammaStatistics(zero + (self.rate_shape - 1), zero + self.rate_rate))
        return {
            "weights": Dirichlet().sample(keys[1], each[:, 0] + (self.concentration - 1)),
            "mean": Gaussian().sample(keys[2], GaussianStatistics(each, each + self.mean_precision)),
            "precision": Gamma().sample(keys[3], GammaStatistics(each + (self.shape - 1), each - rate.negative_value)),
            "rate": rate,
        }

    def simulate(self, key: Array, size: tuple[int, ...], units: Row, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, components and rows from the joint distribution.

        size: (number of components,). units: rows of which `observed` is kept.
        extents: {"dim": D}, the number D of columns.

        Returns (statistics of the globals by name, statistics of the locals by name with rows leading, the drawn rows).
        """
        key_globals, key_z, key_data = jax.random.split(key, 3)
        n_rows, on = np.shape(units.value)[0], self.active(size, size)
        g = self.draw_globals(key_globals, size[0], extents["dim"])
        chosen = jax.random.categorical(key_z, g["weights"], shape=(n_rows,))
        l = {"component": jax.nn.one_hot(chosen, size[0])}
        return g, l, self._draw_units(key_data, g, l, units, on)
