"""The NumPyro distribution of the Normal–Gamma, in its own file so that the families do not import NumPyro."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample


class NormalGammaDistribution(dist.Distribution):
    """The NumPyro distribution of a `NormalGamma`: the mean μ and the precision τ on the last axis.

    precision_shape, precision_rate: a and b of τ ~ Gamma(a, b).
    centre, pseudo_count: m and κ of μ | τ ~ Normal(m, precision κτ).
    """

    arg_constraints: ClassVar = {
        "precision_shape": constraints.positive,
        "precision_rate": constraints.positive,
        "centre": constraints.real,
        "pseudo_count": constraints.positive,
    }

    def __init__(self, precision_shape, precision_rate, centre, pseudo_count, *, validate_args=None):
        self.precision_shape, self.precision_rate = precision_shape, precision_rate
        self.centre, self.pseudo_count = centre, pseudo_count
        super().__init__(jnp.shape(precision_shape), (2,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)  # pyright: ignore[reportArgumentType]
    def support(self):
        return constraints.independent(constraints.cat([constraints.real, constraints.positive], -1), 1)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()):
        key_precision, key_mean = jax.random.split(key)
        precision = self._precision().sample(key_precision, sample_shape)
        return jnp.stack([self._mean_given(precision).sample(key_mean), precision], -1)

    @validate_sample
    def log_prob(self, value: Any, intermediates: Any = None):
        mean, precision = value[..., 0], value[..., 1]
        return self._precision().log_prob(precision) + self._mean_given(precision).log_prob(mean)

    def _precision(self):
        """Return the NumPyro distribution of the precision τ, a Gamma."""
        return dist.Gamma(self.precision_shape, self.precision_rate)

    def _mean_given(self, precision):
        """Return the NumPyro distribution of the mean μ given the precision τ, a Normal."""
        return dist.Normal(self.centre, (self.pseudo_count * precision) ** -0.5)
