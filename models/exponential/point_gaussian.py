"""Families with all mass at one point: the plug-in counterparts of the Normal–Gamma, of `Gaussian` (precision known)
and of `Beta`.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.exponential.family import Family, NumpyroDistribution, RandomKey
from lvsearch.models.exponential.normal_gamma import MeanAndPrecision, NormalGamma, NormalGammaStatistics
from lvsearch.models.exponential.scalars import Beta, BetaStatistics, Gaussian, GaussianStatistics
from lvsearch.models.exponential.simplex import PointSimplex


class PointGaussian(Family[NormalGammaStatistics]):
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

    def entropy(self, natural: NormalGammaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return jnp.zeros_like(natural.log_precision)

    def sample(self, key: RandomKey, natural: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        return self.mean(natural)

    def point(self, natural: NormalGammaStatistics, event_mask: None = None) -> NormalGammaStatistics:
        return self.mean(natural)

    def value(self, statistics: NormalGammaStatistics, event_mask: None = None) -> MeanAndPrecision:
        return NormalGamma().value(statistics)

    def to_numpyro(self, natural: NormalGammaStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Delta(jnp.stack(self.value(self.mean(natural)), axis=-1), event_dim=1)


# ── means ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class PointMean(Family[GaussianStatistics]):
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

    def entropy(self, natural: GaussianStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return jnp.zeros_like(natural.value)

    def sample(self, key: RandomKey, natural: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        return self.mean(natural)

    def point(self, natural: GaussianStatistics, event_mask: None = None) -> GaussianStatistics:
        return self.mean(natural)

    def value(self, statistics: GaussianStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return Gaussian().value(statistics)

    def to_numpyro(self, natural: GaussianStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Delta(self.mean(natural).value)


class PointProbability(Family[BetaStatistics]):
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

    def entropy(self, natural: BetaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return jnp.zeros_like(natural.log_value)

    def sample(self, key: RandomKey, natural: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        return self.mean(natural)

    def point(self, natural: BetaStatistics, event_mask: None = None) -> BetaStatistics:
        return self.mean(natural)

    def value(self, statistics: BetaStatistics, event_mask: None = None) -> Float[Array, "..."]:
        return Beta().value(statistics)

    def to_numpyro(self, natural: BetaStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Delta(jnp.exp(self.mean(natural).log_value))
