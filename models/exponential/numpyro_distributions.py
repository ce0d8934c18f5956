"""The NumPyro distributions of the families that NumPyro does not have: Markov paths, Normal–Gamma and Normal–Wishart.

They are in a file of their own so that the families do not import NumPyro. Only the methods `to_numpyro` import this
file.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform, biject_to
from numpyro.distributions.util import validate_sample


class MarkovPath(dist.Distribution):
    """The NumPyro distribution of a path of `MarkovChain`: the index of the state of each row, on the last axis.

    family: the `MarkovChain`. natural: its natural parameters.
    """

    arg_constraints: ClassVar = {"state": constraints.real_matrix}
    pytree_aux_fields = ("family",)

    def __init__(self, family: Any, natural: Any, *, validate_args=None):
        self.family, self.natural, self.state = family, natural, natural.state
        super().__init__(jnp.shape(natural.state)[:-2], jnp.shape(natural.state)[-2:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)  # pyright: ignore[reportArgumentType]
    def support(self):
        return constraints.independent(constraints.integer_interval(0, self.state.shape[-1] - 1), 1)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()):
        natural = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*sample_shape, *leaf.shape)), self.natural)
        return self.family.value(self.family.sample(key, natural))

    @validate_sample
    def log_prob(self, value: Any, intermediates: Any = None):
        state = jax.nn.one_hot(value, self.state.shape[-1], dtype=self.state.dtype)
        steps = jnp.einsum(
            "...ti,...tij,...tj->...", state[..., :-1, :], self.natural.step[..., 1:, :, :], state[..., 1:, :]
        )
        return (state * self.state).sum((-2, -1)) + steps - self.family.log_normaliser(self.natural)


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


class _MeanOverPrecision(constraints.Constraint):
    """The NumPyro constraint on a matrix (D + 1, D): any vector in the first row, a positive definite matrix below."""

    event_dim = 2

    def __call__(self, x):
        return jnp.isfinite(x[..., 0, :]).all(-1) & constraints.positive_definite(x[..., 1:, :])

    def feasible_like(self, prototype):
        n_dims = prototype.shape[-1]
        return jnp.broadcast_to(jnp.concatenate([jnp.zeros((1, n_dims)), jnp.eye(n_dims)]), prototype.shape)

    def tree_flatten(self):
        return (), ((), {})


mean_over_precision = _MeanOverPrecision()


class MeanOverPrecisionTransform(Transform):
    """The NumPyro transform from D + D(D + 1)/2 real numbers to a matrix (D + 1, D): the mean above the precision
    matrix.

    The precision matrix comes from its Cholesky factor with the log of its diagonal.
    """

    domain = constraints.real_vector  # pyright: ignore[reportAssignmentType]
    codomain = mean_over_precision  # pyright: ignore[reportAssignmentType]

    def __call__(self, x):
        n_dims = _n_dims(x.shape[-1])
        return jnp.concatenate([x[..., None, :n_dims], _precision_of()(x[..., n_dims:])], -2)

    def _inverse(self, y):
        return jnp.concatenate([y[..., 0, :], _precision_of().inv(y[..., 1:, :])], -1)

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        return _precision_of().log_abs_det_jacobian(x[..., y.shape[-1] :], y[..., 1:, :])

    def forward_shape(self, shape):
        n_dims = _n_dims(shape[-1])
        return (*shape[:-1], n_dims + 1, n_dims)

    def inverse_shape(self, shape):
        n_dims = shape[-1]
        return (*shape[:-2], n_dims * (n_dims + 3) // 2)

    def tree_flatten(self):
        return (), ((), {})


@biject_to.register(_MeanOverPrecision)
def _transform_to_mean_over_precision(constraint):
    """Return the map from real numbers that NumPyro uses for the constraint `_MeanOverPrecision`."""
    return MeanOverPrecisionTransform()


def _precision_of():
    """Return NumPyro's map from real numbers to positive definite matrices."""
    return biject_to(constraints.positive_definite)


def _n_dims(length: int) -> int:
    """Return the number of columns D with D + D(D + 1)/2 = length."""
    return (math.isqrt(9 + 8 * length) - 3) // 2


class NormalWishartDistribution(dist.Distribution):
    """The NumPyro distribution of a `NormalWishart` over (D + 1, D): the mean in the first row, the precision matrix
    below.

    degrees, scale, centre, pseudo_count: ν, B, m and κ of Λ ~ Wishart(ν, B⁻¹), μ | Λ ~ Normal(m, precision κΛ).
    """

    arg_constraints: ClassVar = {
        "degrees": constraints.positive,
        "scale": constraints.positive_definite,
        "centre": constraints.real_vector,
        "pseudo_count": constraints.positive,
    }
    support = mean_over_precision  # pyright: ignore[reportAssignmentType]

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
        """Return the NumPyro distribution of the precision matrix Λ, a Wishart."""
        return dist.Wishart(self.degrees, rate_matrix=self.scale)

    def _mean_given(self, precision):
        """Return the NumPyro distribution of the mean μ given the precision matrix Λ, a multivariate normal."""
        return dist.MultivariateNormal(self.centre, precision_matrix=self.pseudo_count[..., None, None] * precision)
