"""The mean and precision of a Gaussian at one point: the plug-in counterpart of the Normal–Gamma."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.exponential.family import Family, NumpyroDistribution, RandomKey
from lvsearch.models.exponential.normal_gamma import MeanAndPrecision, NormalGamma, NormalGammaStatistics


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
