"""Families of one number, of a Gaussian's mean together with its precision, and their plug-in counterparts.

| variable | family | plug-in counterpart, with all mass at one point |
|---|---|---|
| v in (0, 1) | `Beta` | `PointProbability` |
| x > 0 | `Gamma` | |
| x real, or the mean of a Gaussian of known precision | `Gaussian`, `KnownPrecisionGaussian` | `PointMean` |
| mean μ and precision τ > 0 of a Gaussian | `NormalGamma`, the conjugate prior | `PointGaussian` |
"""

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from lvsearch.models.exponential.digamma import gamma_shape, log_gamma_positive
from lvsearch.models.exponential.family import (
    Element,
    Family,
    NumpyroDistribution,
    PointFamily,
    RandomKey,
    UnitCarrierFamily,
)
from lvsearch.models.exponential.simplex import Dirichlet, PointSimplex

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
        return normal_gamma_statistics(draw_gaussian(key_mean, scaled * centre, scaled), log_precision)

    def point(self, natural: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        shape, rate, centre, _ = _normal_gamma_parameters(natural)
        return normal_gamma_statistics(centre, jnp.log(shape / rate))

    def value(self, statistics: NormalGammaStatistics, event_mask: None = None) -> MeanAndPrecision:
        precision = -statistics.negative_precision
        return MeanAndPrecision(statistics.precision_mean / precision, precision)

    def to_numpyro(self, natural: NormalGammaStatistics) -> NumpyroDistribution:
        from lvsearch.models.exponential.numpyro_distributions import NormalGammaDistribution

        return NormalGammaDistribution(*_normal_gamma_parameters(natural))


def _normal_gamma_parameters(natural: NormalGammaStatistics) -> tuple[Array, Array, Array, Array]:
    """Return (a, b, m, κ) of a Normal–Gamma from its natural parameters, each of shape (elements…).

    a and b are the shape and the rate of the precision, m is the centre of the mean, and κ its pseudo-count.
    """
    pseudo_count = natural.negative_half_precision_square
    centre = natural.precision_mean / pseudo_count
    rate = natural.negative_precision - 0.5 * natural.precision_mean * centre
    return natural.log_precision + 0.5, rate, centre, pseudo_count


def normal_gamma_statistics(mean: Array, log_precision: Array) -> NormalGammaStatistics:
    """Return the sufficient statistics (log τ, −τ, τμ, −τμ²/2) of a mean μ and a precision τ, from μ and log τ, each
    of shape (elements…).
    """
    precision = jnp.exp(log_precision)
    return NormalGammaStatistics(log_precision, -precision, precision * mean, -0.5 * precision * mean**2)


class PointGaussian(PointFamily[NormalGammaStatistics]):
    """A family with all mass at one (μ, τ), the maximiser of ⟨η, t(μ, τ)⟩ with 1/τ ≥ `variance_floor`: a plug-in
    estimate.

    The likelihood of n observations x has η = (n/2, Σx²/2, Σx, n), the numbers that multiply (log τ, −τ, τμ, −τμ²/2).
    Its maximiser is μ = Σx/n and 1/τ = Σx²/n − μ², with the variance raised to the floor. A point has entropy 0, and
    A(η) = ⟨η, t⟩. Without any observations, μ = 0 and 1/τ = 1.

    variance_floor: the smallest variance. Without one, a component on a single observation has a density without bound.

    Raises ValueError for a floor that is not positive.
    """

    event_ndim: ClassVar[int] = 0
    statistics_type: ClassVar[type | None] = NormalGammaStatistics
    variance_floor: float | int = 1e-3

    def __check_init__(self):
        if not self.variance_floor > 0:
            raise ValueError(
                f"variance_floor is the smallest variance and must be positive, got {self.variance_floor!r}"
            )

    def log_normaliser(self, natural: NormalGammaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        products = [eta * t for eta, t in zip(natural, self.mean(natural), strict=True)]
        return products[0] + products[1] + products[2] + products[3]

    def mean(self, natural: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        half_count, half_square, linear, count = natural
        seen = (count > 0) & (half_count > 0)
        centre = jnp.where(seen, linear / jnp.where(seen, count, 1), 0)
        spread = (half_square - 0.5 * linear * centre) / jnp.where(seen, half_count, 1)
        variance = jnp.where(seen, jnp.maximum(spread, self.variance_floor), 1)
        precision = 1 / variance
        return NormalGammaStatistics(-jnp.log(variance), -precision, precision * centre, -0.5 * precision * centre**2)

    def natural(self, mean: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        """Return the natural parameters of one observation with this mean. They are unique only up to their scale."""
        centre, precision = self.value(mean)
        half = jnp.full_like(centre, 0.5)
        return NormalGammaStatistics(half, 0.5 * (1 / precision + centre**2), centre, jnp.ones_like(centre))

    def value(self, statistics: NormalGammaStatistics, event_mask: None = None) -> MeanAndPrecision:
        return NormalGamma().value(statistics)

    def to_numpyro(self, natural: NormalGammaStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Delta(jnp.stack(self.value(self.mean(natural)), axis=-1), event_dim=1)


# ── means ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class PointMean(PointFamily[GaussianStatistics]):
    """A family with all mass at one x, the maximiser η₁/η₂ of η₁x + η₂(−x²/2).

    It makes the mean of a Gaussian of known precision a plug-in estimate. The likelihood of n observations of unit
    precision has η = (Σy, n), so x is their average; 0 where there are none. A point has entropy 0, and A(η) = ⟨η, t⟩.
    """

    event_ndim: ClassVar[int] = 0
    statistics_type: ClassVar[type | None] = GaussianStatistics

    def log_normaliser(self, natural: GaussianStatistics, event_mask: None = None) -> Float[Array, "..."]:
        mean = self.mean(natural)
        return natural.value * mean.value + natural.negative_half_square * mean.negative_half_square

    def mean(self, natural: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        seen = natural.negative_half_square > 0
        value = jnp.where(seen, natural.value / jnp.where(seen, natural.negative_half_square, 1), 0)
        return GaussianStatistics(value, -0.5 * value**2)

    def natural(self, mean: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        """Return the natural parameters of one observation with this mean. They are unique only up to their scale."""
        return GaussianStatistics(mean.value, jnp.ones_like(mean.value))

    def value(self, statistics: GaussianStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return Gaussian().value(statistics)

    def to_numpyro(self, natural: GaussianStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Delta(self.mean(natural).value)


class PointProbability(PointFamily[BetaStatistics]):
    """A family with all mass at one v in (0, 1), the maximiser of ⟨η, (log v, log(1 − v))⟩: a plug-in estimate.

    η are counts of ones and zeros. v and 1 − v are at least 1e-30, as in `PointSimplex`.
    """

    event_ndim: ClassVar[int] = 0
    statistics_type: ClassVar[type | None] = BetaStatistics

    def log_normaliser(self, natural: BetaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        mean = self.mean(natural)
        return natural.log_value * mean.log_value + natural.log_complement * mean.log_complement

    def mean(self, natural: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        log = PointSimplex().mean(jnp.stack(natural, axis=-1))
        return BetaStatistics(log[..., 0], log[..., 1])

    def natural(self, mean: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        """Return the natural parameters of one observation with this mean. They are unique only up to their scale."""
        return BetaStatistics(jnp.exp(mean.log_value), jnp.exp(mean.log_complement))

    def value(self, statistics: BetaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return Beta().value(statistics)

    def to_numpyro(self, natural: BetaStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Delta(jnp.exp(self.mean(natural).log_value))
