"""Test-only models that exercise what LDA does not: Gaussian and Beta sites, indicators without copies, slices.

They implement the contract and nothing else: no engine, sampler or search knows them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import gammaln as scipy_gammaln

from lvsearch.models.contract import Masks, Model, Site, Statistics, Unit, first, hyperparameter
from lvsearch.models.families import Categorical, Dirichlet, Gaussian, GaussianStatistics


def log_relabellings(rows: np.ndarray) -> float:
    """log(K! / Π m_j!) for K rows, m_j of them equal."""
    _, equal = np.unique(np.round(rows, 6), axis=0, return_counts=True)
    return float(scipy_gammaln(len(rows) + 1) - scipy_gammaln(equal + 1).sum())


def square_statistics(value: Any) -> GaussianStatistics:
    return GaussianStatistics(value, -0.5 * value**2)


class Point(NamedTuple):
    """One number."""

    value: Any


class PointMixture(Model):
    """Points on a line from `size` Gaussians of known precision.

    weights ~ Dirichlet(total/K, …); mean_k ~ Normal(0, 1/prior_precision); component ~ weights;
    x ~ Normal(mean_component, 1/precision).
    """

    total: np.ndarray
    prior_precision: np.ndarray
    precision: np.ndarray

    size_names: ClassVar[tuple[str, ...]] = ("components",)
    nested: ClassVar[bool] = True
    unit_type: ClassVar[type] = Point
    representation: ClassVar[str] = "component"

    def __init__(self, total: Any, prior_precision: Any, precision: Any):
        self.total = hyperparameter(total)
        self.prior_precision, self.precision = hyperparameter(prior_precision), hyperparameter(precision)

    def describe(self) -> str:
        return "points from Gaussians of known precision"

    def globals(self) -> dict[str, Site]:
        return {"weights": Site(Dirichlet(), ("component",)), "means": Site(Gaussian(), ("component",))}

    def locals(self) -> dict[str, Site]:
        return {"component": Site(Categorical(), ("component",))}

    def extents(self, unit: Unit) -> dict[str, int]:
        return {}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Any]:
        return {"component": first(size[0], capacity[0])}

    def alpha(self, on: Masks) -> Any:
        return jnp.where(on["component"], self.total / on["component"].sum(), 0.0)

    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Any:
        exists, alpha = on["component"], self.alpha(on)
        safe = jnp.where(exists, alpha, 1.0)
        weights = gammaln(alpha.sum()) + ((safe - 1) * g["weights"] - gammaln(safe)).sum(where=exists)
        normaliser = 0.5 * jnp.log(self.prior_precision / (2 * jnp.pi))
        means = normaliser + self.prior_precision * g["means"].negative_half_square
        return weights + means.sum(where=exists)

    def log_unit(self, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: Point, on: Masks) -> Any:
        z, x = l["component"], unit.value
        likelihood = (
            0.5 * jnp.log(self.precision / (2 * jnp.pi))
            - 0.5 * self.precision * x**2
            + self.precision * (x * g["means"].value + g["means"].negative_half_square)
        )
        return (z * (g["weights"] + likelihood)).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Mapping[str, Statistics]) -> float:
        columns = [natural["weights"], *natural["means"]]
        return log_relabellings(np.stack([np.asarray(c)[: size[0]] for c in columns], axis=1))

    def ceiling(self, units: Point) -> float:
        """No density of precision λ exceeds √(λ/2π)."""
        return float(np.size(units.value) * max(0.5 * np.log(self.precision / (2 * np.pi)), 0.0))

    def plug_in(self) -> "PointMixture":
        raise NotImplementedError("no point family for real numbers")

    def draw_unit(self, key: Any, g: Any, l: Any, unit: Point, on: Masks) -> Point:
        mean = (l["component"] * g["means"].value).sum()
        return Point(mean + jax.random.normal(key) / jnp.sqrt(self.precision))

    def simulate(self, key: Any, size: tuple[int, ...], units: Point, extents: Mapping[str, int]) -> Any:
        keys = jax.random.split(key, 4)
        on = self.active(size, size)
        n = np.shape(units.value)[0]
        log_weights = Dirichlet().sample(keys[0], self.alpha(on) - 1)
        means = jax.random.normal(keys[1], size) / jnp.sqrt(self.prior_precision)
        g = {"weights": log_weights, "means": square_statistics(means)}
        l = {"component": jax.nn.one_hot(jax.random.categorical(keys[2], log_weights, shape=(n,)), size[0])}
        draw = jax.vmap(lambda k, lu, u: self.draw_unit(k, g, lu, u, on))
        return g, l, draw(jax.random.split(keys[3], n), l, units)
