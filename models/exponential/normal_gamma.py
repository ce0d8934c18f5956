"""The Normal–Gamma: the conjugate prior of a Gaussian's mean and precision."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from lvsearch.models.exponential.digamma import gamma_shape, log_gamma_positive
from lvsearch.models.exponential.family import Element, NumpyroDistribution, RandomKey, UnitCarrierFamily
from lvsearch.models.exponential.scalars import LOG_2PI, draw_gaussian


class NormalGammaStatistics(NamedTuple):
    """Sufficient statistics (log τ, −τ, τμ, −τμ²/2) of a Gaussian's mean μ and precision τ, or natural parameters
    for them.
    """

    log_precision: Element
    negative_precision: Element
    precision_mean: Element
    negative_half_precision_square: Element


class MeanAndPrecision(NamedTuple):
    """The mean μ and the precision τ of a Gaussian."""

    mean: Element
    precision: Element


class NormalGamma(UnitCarrierFamily[NormalGammaStatistics]):
    """The conjugate prior of a Gaussian's mean and precision: τ ~ Gamma(a, rate b), μ | τ ~ Gaussian(m, precision κτ).

    p(μ, τ | η) = exp(η₁ log τ + η₂ (−τ) + η₃ τμ + η₄ (−τμ²/2) − A(η)), η = (a − ½, b + κm²/2, κm, κ).
    A(η) = log Γ(a) − a log b + ½ log 2π − ½ log κ.
    E[t] = (ψ(a) − log b, −a/b, m a/b, −½(1/κ + m² a/b)).

    `value` returns a `MeanAndPrecision`; `to_numpyro` has the same two numbers on a last axis.
    """

    event_ndim: ClassVar[int] = 0
    statistics_type: ClassVar[type | None] = NormalGammaStatistics

    def log_normaliser(self, natural: NormalGammaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        shape, rate, _, pseudo_count = _normal_gamma_parameters(natural)
        return log_gamma_positive(shape) - shape * jnp.log(rate) + 0.5 * (LOG_2PI - jnp.log(pseudo_count))

    def mean(self, natural: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        shape, rate, centre, pseudo_count = _normal_gamma_parameters(natural)
        precision = shape / rate
        square = 1 / pseudo_count + centre**2 * precision
        return NormalGammaStatistics(digamma(shape) - jnp.log(rate), -precision, centre * precision, -0.5 * square)

    def natural(self, mean: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        precision = -mean.negative_precision
        centre = mean.precision_mean / precision
        pseudo_count = 1 / (-2 * mean.negative_half_precision_square - centre * mean.precision_mean)
        shape = gamma_shape(jnp.log(precision) - mean.log_precision)
        half_square = 0.5 * pseudo_count * centre**2
        return NormalGammaStatistics(shape - 0.5, shape / precision + half_square, pseudo_count * centre, pseudo_count)

    def sample(self, key: RandomKey, natural: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        key_precision, key_mean = jax.random.split(key)
        shape, rate, centre, pseudo_count = _normal_gamma_parameters(natural)
        log_precision = jax.random.loggamma(key_precision, shape, dtype=shape.dtype) - jnp.log(rate)
        scaled = pseudo_count * jnp.exp(log_precision)
        return _normal_gamma_statistics(draw_gaussian(key_mean, scaled * centre, scaled), log_precision)

    def point(self, natural: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        shape, rate, centre, _ = _normal_gamma_parameters(natural)
        return _normal_gamma_statistics(centre, jnp.log(shape / rate))

    def value(self, statistics: NormalGammaStatistics, event_mask: None = None) -> MeanAndPrecision:
        precision = -statistics.negative_precision
        return MeanAndPrecision(statistics.precision_mean / precision, precision)

    def to_numpyro(self, natural: NormalGammaStatistics) -> NumpyroDistribution:
        from lvsearch.models.exponential.normal_gamma_numpyro import NormalGammaDistribution

        return NormalGammaDistribution(*_normal_gamma_parameters(natural))


def _normal_gamma_parameters(natural: NormalGammaStatistics) -> tuple[Array, Array, Array, Array]:
    """Return (a, b, m, κ) of a Normal–Gamma from its natural parameters, each of shape (elements…).

    a and b are the shape and the rate of the precision, m is the centre of the mean, and κ its pseudo-count.
    """
    pseudo_count = natural.negative_half_precision_square
    centre = natural.precision_mean / pseudo_count
    rate = natural.negative_precision - 0.5 * natural.precision_mean * centre
    return natural.log_precision + 0.5, rate, centre, pseudo_count


def _normal_gamma_statistics(mean: Array, log_precision: Array) -> NormalGammaStatistics:
    """Return the sufficient statistics (log τ, −τ, τμ, −τμ²/2) from μ and log τ."""
    precision = jnp.exp(log_precision)
    return NormalGammaStatistics(log_precision, -precision, precision * mean, -0.5 * precision * mean**2)
