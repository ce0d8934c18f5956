"""Families of one number: in (0, 1), positive, or anywhere on the line."""

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from lvsearch.models.exponential.digamma import gamma_shape, log_gamma_positive
from lvsearch.models.exponential.family import Element, Family, NumpyroDistribution, RandomKey, UnitCarrierFamily
from lvsearch.models.exponential.simplex import Dirichlet

LOG_2PI = math.log(2 * math.pi)


class BetaStatistics(NamedTuple):
    """Sufficient statistics (log v, log(1 − v)) of a number v in (0, 1), or natural parameters for them."""

    log_value: Element
    log_complement: Element


class Beta(UnitCarrierFamily[BetaStatistics]):
    """A number v in (0, 1), a two-entry Dirichlet: p(v | η) = exp(η₁ log v + η₂ log(1 − v) − A(η)), η = (a − 1, b − 1).

    A(η) = log Γ(a) + log Γ(b) − log Γ(a + b); E[t] = (ψ(a) − ψ(a + b), ψ(b) − ψ(a + b)). The family of sticks (Blei
    2004, Eq. 5.17).
    """

    event_ndim: ClassVar[int] = 0
    statistics_type: ClassVar[type | None] = BetaStatistics

    def log_normaliser(self, natural: BetaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        a, b = natural.log_value + 1, natural.log_complement + 1
        return log_gamma_positive(a) + log_gamma_positive(b) - log_gamma_positive(a + b)

    def mean(self, natural: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        return BetaStatistics(*_unstack(Dirichlet().mean(_stack(natural))))

    def natural(self, mean: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        return BetaStatistics(*_unstack(Dirichlet().natural(_stack(mean))))

    def sample(self, key: RandomKey, natural: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        return BetaStatistics(*_unstack(Dirichlet().sample(key, _stack(natural))))

    def point(self, natural: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        return BetaStatistics(*_unstack(Dirichlet().point(_stack(natural))))

    def value(self, statistics: BetaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return jnp.exp(statistics.log_value)

    def to_numpyro(self, natural: BetaStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Beta(natural.log_value + 1, natural.log_complement + 1)


class GammaStatistics(NamedTuple):
    """Sufficient statistics (log x, −x) of a number x > 0, or natural parameters for them."""

    log_value: Element
    negative_value: Element


class Gamma(UnitCarrierFamily[GammaStatistics]):
    """A number x > 0: p(x | η) = exp(η₁ log x + η₂ (−x) − A(η)), η = (shape − 1, rate).

    A(η) = log Γ(shape) − shape · log rate; E[t] = (ψ(shape) − log rate, −shape / rate). In Blei (2004, §5.2.3) the
    factor 1/x is the carrier; here it is in η₁.
    """

    event_ndim: ClassVar[int] = 0
    statistics_type: ClassVar[type | None] = GammaStatistics

    def log_normaliser(self, natural: GammaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        shape, rate = natural.log_value + 1, natural.negative_value
        return log_gamma_positive(shape) - shape * jnp.log(rate)

    def mean(self, natural: GammaStatistics, event_mask: None = None) -> GammaStatistics:
        shape, rate = natural.log_value + 1, natural.negative_value
        return GammaStatistics(digamma(shape) - jnp.log(rate), -shape / rate)

    def natural(self, mean: GammaStatistics, event_mask: None = None) -> GammaStatistics:
        shape = gamma_shape(jnp.log(-mean.negative_value) - mean.log_value)
        return GammaStatistics(shape - 1, shape / -mean.negative_value)

    def sample(self, key: RandomKey, natural: GammaStatistics, event_mask: None = None) -> GammaStatistics:
        shape, rate = natural.log_value + 1, natural.negative_value
        log_value = jax.random.loggamma(key, shape, dtype=shape.dtype) - jnp.log(rate)
        return GammaStatistics(log_value, -jnp.exp(log_value))

    def point(self, natural: GammaStatistics, event_mask: None = None) -> GammaStatistics:
        value = (natural.log_value + 1) / natural.negative_value
        return GammaStatistics(jnp.log(value), -value)

    def value(self, statistics: GammaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        """Return x, shape (elements…); of expected statistics, E[x]."""
        return -statistics.negative_value

    def to_numpyro(self, natural: GammaStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Gamma(natural.log_value + 1, natural.negative_value)


class GaussianStatistics(NamedTuple):
    """Sufficient statistics (x, −x²/2) of a real number x, or natural parameters for them."""

    value: Element
    negative_half_square: Element


class Gaussian(UnitCarrierFamily[GaussianStatistics]):
    """A real number x: p(x | η) = exp(η₁ x + η₂ (−x²/2) − A(η)), η = (precision · mean, precision).

    A(η) = ½ log 2π − ½ log η₂ + η₁² / (2η₂); E[t] = (η₁/η₂, −½(1/η₂ + η₁²/η₂²)).
    """

    event_ndim: ClassVar[int] = 0
    statistics_type: ClassVar[type | None] = GaussianStatistics

    def log_normaliser(self, natural: GaussianStatistics, event_mask: None = None) -> Float[Array, "..."]:
        linear, precision = natural
        return 0.5 * (LOG_2PI - jnp.log(precision) + linear**2 / precision)

    def mean(self, natural: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        centre = natural.value / natural.negative_half_square
        return GaussianStatistics(centre, -0.5 * (1 / natural.negative_half_square + centre**2))

    def natural(self, mean: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        precision = 1 / (-2 * mean.negative_half_square - mean.value**2)
        return GaussianStatistics(precision * mean.value, precision)

    def sample(self, key: RandomKey, natural: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        return _gaussian_statistics(draw_gaussian(key, natural.value, natural.negative_half_square))

    def point(self, natural: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        return _gaussian_statistics(natural.value / natural.negative_half_square)

    def value(self, statistics: GaussianStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return statistics.value

    def to_numpyro(self, natural: GaussianStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Normal(natural.value / natural.negative_half_square, natural.negative_half_square**-0.5)


class KnownPrecisionGaussian(Family[Element]):
    """A real number x whose precision Λ is known: p(x | η) = h(x) exp(ηx − A(η)), η = Λ · mean.

    h(x) = exp(½ log(Λ / 2π) − Λx²/2), A(η) = η² / (2Λ) and E[x] = η/Λ (Blei 2004, §2.1.2, which prints A without its ½
    and with the wrong sign).

    precision: Λ > 0, broadcastable to the elements.

    Use it for observations only. h(x) depends on x, so a log-joint multilinear in x alone leaves −E[Λx²]/2 out, and
    bound = log-joint + entropy does not hold. A latent variable of a model is a `Gaussian`.
    """

    event_ndim: ClassVar[int] = 0
    precision: Float[Array, "..."] | float | int

    def log_normaliser(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return natural**2 / (2 * self._precision(natural))

    def mean(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return natural / self._precision(natural)

    def natural(self, mean: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return mean * self._precision(mean)

    def entropy(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return 0.5 * (1 + LOG_2PI - jnp.log(self._precision(natural)))

    def sample(self, key: RandomKey, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return draw_gaussian(key, natural, self._precision(natural))

    def point(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return self.mean(natural)

    def value(self, statistics: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return statistics

    def to_numpyro(self, natural: Element) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Normal(self.mean(natural), self._precision(natural) ** -0.5)

    def _precision(self, like: Element) -> Float[Array, "*element"]:
        """Return the precision Λ in the shape and dtype of the array `like`."""
        return jnp.broadcast_to(jnp.asarray(self.precision, like.dtype), like.shape)


def _stack(pair: BetaStatistics) -> Array:
    """Return both statistics of a Beta on a last axis of length 2, which is a two-entry Dirichlet's form."""
    return jnp.stack(pair, axis=-1)


def _unstack(stacked: Array) -> tuple[Array, Array]:
    """Return the two entries of the last axis as a pair of arrays."""
    return stacked[..., 0], stacked[..., 1]


def draw_gaussian(key: RandomKey, linear: Any, precision: Any) -> Array:
    """Draw one Gaussian value per element, shape (elements…).

    linear: precision · mean. precision: the precision.
    """
    noise = jax.random.normal(key, linear.shape, linear.dtype)
    return linear / precision + noise / jnp.sqrt(precision)


def _gaussian_statistics(value: Array) -> GaussianStatistics:
    """Return the sufficient statistics (x, −x²/2) of numbers x."""
    return GaussianStatistics(value, -0.5 * value**2)
