"""The Normal–Wishart as NumPyro knows it: a file of its own, so that importing the families does not import NumPyro."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints


class NormalWishartDistribution(dist.Distribution):
    """The NumPyro form of `NormalWishart`: the mean in the first row of (D + 1, D), the precision matrix below."""

    arg_constraints: ClassVar = {
        "degrees": constraints.positive,
        "scale": constraints.positive_definite,
        "centre": constraints.real_vector,
        "pseudo_count": constraints.positive,
    }
    support = constraints.real_matrix  # pyright: ignore[reportAssignmentType]  # the rows below the first are positive definite, which no bijector here says

    def __init__(self, degrees, scale, centre, pseudo_count, *, validate_args=None):
        self.degrees, self.scale, self.centre, self.pseudo_count = degrees, scale, centre, pseudo_count
        n_dims = jnp.shape(centre)[-1]
        super().__init__(jnp.shape(degrees), (n_dims + 1, n_dims), validate_args=validate_args)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()):
        key_precision, key_mean = jax.random.split(key)
        precision = self._precision().sample(key_precision, sample_shape)
        mean = self._mean_given(precision).sample(key_mean)
        return jnp.concatenate([mean[..., None, :], precision], -2)

    def log_prob(self, value: Any, intermediates: Any = None):
        mean, precision = value[..., 0, :], value[..., 1:, :]
        return self._precision().log_prob(precision) + self._mean_given(precision).log_prob(mean)

    def _precision(self):
        return dist.Wishart(self.degrees, rate_matrix=self.scale)

    def _mean_given(self, precision):
        return dist.MultivariateNormal(self.centre, precision_matrix=self.pseudo_count[..., None, None] * precision)
