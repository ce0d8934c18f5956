"""What a factor emits: the component family of one stream of data, with its prior or estimated at a point.

A model that draws things from factors holds an `Emission` for each kind of thing and knows nothing else about it, so
that one family is swapped for another and nothing else changes:

| emission | one thing x | p(x | factor k) | prior of factor k; in the plug-in form |
|---|---|---|---|
| `DiagonalGaussian` | (dim,) real | Π_d Normal(x_d | μ_kd, 1/τ_kd) | `GaussianPrior`; none, 1/τ_kd ≥ a floor |
| `Multinomial` | the id of a token | β_kx | β_k ~ Dirichlet(η, …, η); none |
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from lvsearch.models.contract import (
    HyperparameterArray,
    Site,
    Statistics,
    concentration_parameter,
    hyperparameter,
    refuted,
)
from lvsearch.models.families import Dirichlet, NormalGamma, NormalGammaStatistics, PointGaussian, PointSimplex

LOG_2PI = float(np.log(2 * np.pi))
Things = Any
"""Several of what is emitted: (thing, dim) real features, or (thing,) ids."""


class Emission(eqx.Module):
    """The family of what factors emit."""

    @property
    @abstractmethod
    def site(self) -> Site:
        """The parameters of all factors, on two axes: "factor", and one that is as long as the data decide."""

    @abstractmethod
    def describe(self) -> str:
        """The family and its hyper-parameters in words."""

    @abstractmethod
    def log_prior(self, parameters: Statistics) -> Float[Array, " factor"]:
        """log p(parameters of a factor), nats, one per factor; 0 where they are estimated at a point."""

    @abstractmethod
    def log_density(self, parameters: Statistics, things: Things) -> Float[Array, "thing factor"]:
        """log p(thing | factor), nats, linear in the parameters' statistics. ValueError for things of another kind."""

    @abstractmethod
    def ceiling(self, things: Things, present: Bool[np.ndarray, "units thing"]) -> float:
        """A number ≥ log p(all things that are present), whatever the parameters, nats; `inf` where there is none.

        things: (units, thing, …). ValueError for things of another kind."""

    @abstractmethod
    def plug_in(self) -> "Emission":
        """The same family, its parameters estimated by maximum likelihood instead of integrated out."""

    @abstractmethod
    def draw_parameters(self, key: Array, n_factors: int, length: int) -> Statistics:
        """From the prior: statistics (factor, length). Raises ValueError where there is none."""

    @abstractmethod
    def draw(self, key: Array, parameters: Statistics, chosen: Float[Array, "thing factor"], like: Things) -> Things:
        """One thing from each chosen factor, (thing,) tokens or (thing, dim) features of the dtype of `like`."""


class GaussianPrior(NamedTuple):
    """Of each feature's mean and precision: τ ~ Gamma(shape, rate), μ ~ Normal(centre, 1/(pseudo_count · τ))."""

    centre: Any = 0.0
    pseudo_count: Any = 0.05
    shape: Any = 2.0
    rate: Any = 0.5


STANDARD_PRIOR = GaussianPrior()


class DiagonalGaussian(Emission):
    """Real features, independent given the factor.

    prior: the same for all features (numbers), or one value per feature (arrays (dim,)); None for none. The default
        expects features of mean 0 and variance about 1 (`PairedCorpus.standardised`).
    variance_floor: where the parameters are estimated (prior None), the smallest variance of a feature in a factor. The
        default is a thousandth of the variance of standardised features.
    """

    prior: GaussianPrior | None
    variance_floor: float = eqx.field(static=True)

    def __init__(self, prior: GaussianPrior | None = STANDARD_PRIOR, variance_floor: float = 1e-3):
        self.prior = None if prior is None else GaussianPrior(*(hyperparameter(value) for value in prior))
        if self.prior is not None:
            for name, value in zip(GaussianPrior._fields[1:], self.prior[1:], strict=True):
                _require_positive(name, value)
        _require_positive("variance_floor", np.asarray(variance_floor))
        self.variance_floor = variance_floor

    @property
    def site(self) -> Site:
        family = NormalGamma() if self.prior is not None else PointGaussian(self.variance_floor)
        return Site(family, ("factor", "dim"))

    def describe(self) -> str:
        """Such as "diagonal Gaussian, means ~ Normal(0, 1/(0.05 τ)), precisions τ ~ Gamma(2, rate 0.5)"."""
        if self.prior is None:
            return f"diagonal Gaussian, estimated, variances at least {self.variance_floor:g}"
        centre, pseudo_count, shape, rate = (_words(value) for value in self.prior)
        return (
            f"diagonal Gaussian, means ~ Normal({centre}, 1/({pseudo_count} τ)), precisions τ ~ Gamma({shape}, "
            f"rate {rate})"
        )

    def log_prior(self, parameters: NormalGammaStatistics) -> Float[Array, " factor"]:
        if self.prior is None:
            return jnp.zeros(parameters.log_precision.shape[0], parameters.log_precision.dtype)
        natural = self._prior_natural(parameters.log_precision)
        products = [eta * t for eta, t in zip(natural, parameters, strict=True)]
        return (sum(products[1:], products[0]) - NormalGamma().log_normaliser(natural)).sum(-1)

    def log_density(
        self, parameters: NormalGammaStatistics, things: Float[Array | np.ndarray, "thing dim"]
    ) -> Float[Array, "thing factor"]:
        _require_features(things, axes=2)
        log_precision, negative_precision, precision_mean, negative_half_square = parameters
        constant = (0.5 * (log_precision - LOG_2PI) + negative_half_square).sum(-1)  # (factor,)
        x = jnp.asarray(things)
        return 0.5 * x**2 @ negative_precision.T + x @ precision_mean.T + constant

    def ceiling(self, things: Any, present: Bool[np.ndarray, "units thing"]) -> float:
        """−½ log(2π · floor) per present feature where the parameters are estimated, else `inf`.

        Proof: no Gaussian density of variance v ≥ floor exceeds (2π · floor)^(−½). A precision that is integrated out
        is free, and a factor on one region has a density without bound.
        """
        _require_features(things, axes=3)
        if self.prior is not None:
            return np.inf
        return float(-0.5 * np.log(2 * np.pi * self.variance_floor) * np.sum(present) * np.shape(things)[-1])

    def plug_in(self) -> "DiagonalGaussian":
        return DiagonalGaussian(None, self.variance_floor)

    def draw_parameters(self, key: Array, n_factors: int, length: int) -> NormalGammaStatistics:
        if self.prior is None:
            raise ValueError("cannot draw Gaussians that have no prior: give prior=GaussianPrior()")
        return NormalGamma().sample(key, self._prior_natural(jnp.zeros((n_factors, length))))

    def draw(
        self,
        key: Array,
        parameters: NormalGammaStatistics,
        chosen: Float[Array, "thing factor"],
        like: Float[Array | np.ndarray, "thing dim"],
    ) -> Float[Array, "thing dim"]:
        precision = chosen @ -parameters.negative_precision
        precision = jnp.where(precision > 0, precision, 1)  # things that are absent are drawn too, and ignored
        mean = chosen @ parameters.precision_mean / precision
        return (mean + jax.random.normal(key, mean.shape, mean.dtype) / jnp.sqrt(precision)).astype(like.dtype)

    def _prior_natural(self, like: Float[Array, "factor dim"]) -> NormalGammaStatistics:
        """η = (a − ½, b + κm²/2, κm, κ), for every factor and feature."""
        centre, pseudo_count, shape, rate = self.prior or STANDARD_PRIOR
        eta = (shape - 0.5, rate + 0.5 * pseudo_count * centre**2, pseudo_count * centre, pseudo_count)
        return NormalGammaStatistics(*(jnp.broadcast_to(jnp.asarray(value, like.dtype), like.shape) for value in eta))


class Multinomial(Emission):
    """Tokens of a vocabulary.

    concentration: η of the symmetric Dirichlet on each factor's probabilities; None for probabilities that are
        estimated by maximum likelihood, under which a token never seen has none (1e-30, see `PointSimplex`).
    axis: the name of the vocabulary's axis.
    """

    concentration: HyperparameterArray | None
    axis: str = eqx.field(static=True)

    def __init__(self, concentration: Any = 0.1, axis: str = "token"):
        self.concentration = None if concentration is None else concentration_parameter("concentration", concentration)
        if self.concentration is not None:
            _require_positive("concentration", self.concentration)
        self.axis = axis

    @property
    def site(self) -> Site:
        return Site(PointSimplex() if self.concentration is None else Dirichlet(), ("factor", self.axis))

    def describe(self) -> str:
        """Such as "multinomial ~ Dirichlet(0.1)"."""
        if self.concentration is None:
            return "multinomial, estimated"
        return f"multinomial ~ Dirichlet({_words(self.concentration)})"

    def log_prior(self, parameters: Float[Array, "factor token"]) -> Float[Array, " factor"]:
        if self.concentration is None:
            return jnp.zeros(parameters.shape[0], parameters.dtype)
        n_tokens = parameters.shape[-1]
        eta = jnp.asarray(self.concentration, parameters.dtype)
        return gammaln(n_tokens * eta) - n_tokens * gammaln(eta) + ((eta - 1) * parameters).sum(-1)

    def log_density(self, parameters: Float[Array, "factor token"], things: Any) -> Float[Array, "thing factor"]:
        _require_tokens(things, axes=1)
        return parameters.T[things]

    def ceiling(self, things: Any, present: Any) -> float:
        """Σ_u Σ_v n_uv log(n_uv / N_u), n_uv how often unit u has token v: the saturated model.

        present: also how often, where it counts. Proof: given its latents, every token of a unit has the same mixture
        of distributions, and Σ_v n_v log p_v over the simplex is greatest at p_v = n_v / N (Gibbs' inequality).
        """
        _require_tokens(things, axes=2)
        return sum(_saturated(np.asarray(ids), np.asarray(times)) for ids, times in zip(things, present, strict=True))

    def plug_in(self) -> "Multinomial":
        return Multinomial(None, self.axis)

    def draw_parameters(self, key: Array, n_factors: int, length: int) -> Float[Array, "factor token"]:
        if self.concentration is None:
            raise ValueError("cannot draw probabilities that have no prior: give concentration")
        # on the log scale: sparse draws underflow
        return Dirichlet().sample(key, jnp.broadcast_to(jnp.asarray(self.concentration), (n_factors, length)) - 1)

    def draw(
        self, key: Array, parameters: Float[Array, "factor token"], chosen: Float[Array, "thing factor"], like: Any
    ) -> Array:
        return jax.random.categorical(key, chosen @ parameters).astype(like.dtype)


def _saturated(ids: np.ndarray, times: np.ndarray) -> float:
    counts = np.bincount(ids[times > 0], weights=times[times > 0])
    counts = counts[counts > 0]
    return float((counts * np.log(counts / counts.sum())).sum()) if len(counts) else 0.0


def _require_features(things: Any, axes: int) -> None:
    if np.ndim(things) != axes:
        raise ValueError(
            "got regions that are tokens for a diagonal Gaussian, expected real features: give the model "
            "regions=lv.models.Multinomial()"
        )


def _require_tokens(things: Any, axes: int) -> None:
    if np.ndim(things) != axes:
        raise ValueError(
            "got regions with real features for a multinomial, expected tokens: give the model "
            "regions=lv.models.DiagonalGaussian()"
        )


def _require_positive(name: str, value: HyperparameterArray) -> None:
    if value.size == 0 or refuted(value > 0):
        raise ValueError(f"{name} must be positive, got {value!r}")


def _words(value: HyperparameterArray) -> str:
    return f"{float(value):g}" if value.ndim == 0 else "one per feature"
