"""The families of factor analysis: a vector of scores, and a linear regression on such vectors with its noise."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from jaxtyping import Array, Bool, Float

from lvsearch.models.exponential.digamma import gamma_shape, log_gamma_positive
from lvsearch.models.exponential.family import NumpyroDistribution, RandomKey, UnitCarrierFamily, keep
from lvsearch.models.exponential.matrices import cholesky, inverse_from, log_determinant, solve_lower
from lvsearch.models.exponential.scalars import LOG_2PI

SquareMask = Bool[Array | np.ndarray, "*#element #event #event"] | None
"""The mask of the coordinates that exist, as the outer product of their mask with itself. Coordinates that do not exist
have 0 in every statistic."""


class VectorGaussianStatistics(NamedTuple):
    """Sufficient statistics (x, −½xxᵀ) of a vector x, or natural parameters for them; elements lead, then (E,), (E,
    E).
    """

    value: Float[Array, "*element event"]
    negative_half_outer: Float[Array, "*element event event"]


class VectorGaussian(UnitCarrierFamily[VectorGaussianStatistics]):
    """A vector x ~ Gaussian(m, precision P).

    p(x | η) = exp(η₁ᵀx + ⟨η₂, −½xxᵀ⟩ − A(η)), η = (Pm, P), A(η) = ½mᵀPm − ½ log|P| + ½E log 2π,
    E[t] = (m, −½(P⁻¹ + mmᵀ)). Reference: Bishop (2006), §2.3.
    """

    event_ndim: ClassVar[int] = 2
    statistics_type: ClassVar[type | None] = VectorGaussianStatistics
    field_event_ndims: ClassVar[tuple[int, ...] | None] = (1, 2)

    def log_normaliser(
        self, natural: VectorGaussianStatistics, event_mask: SquareMask = None
    ) -> Float[Array, "*element"]:
        centre, factor = _centre(natural, event_mask)
        quadratic = (centre * natural.value).sum(-1)
        return 0.5 * (quadratic - log_determinant(factor) + _dimensions(centre, event_mask) * LOG_2PI)

    def mean(self, natural: VectorGaussianStatistics, event_mask: SquareMask = None) -> VectorGaussianStatistics:
        centre, factor = _centre(natural, event_mask)
        return VectorGaussianStatistics(centre, keep(-0.5 * (inverse_from(factor) + _outer(centre)), event_mask))

    def natural(self, mean: VectorGaussianStatistics, event_mask: SquareMask = None) -> VectorGaussianStatistics:
        spread = _regular(-2 * mean.negative_half_outer - _outer(mean.value), event_mask)
        precision = keep(inverse_from(cholesky(spread)), event_mask)
        return VectorGaussianStatistics((precision @ mean.value[..., None])[..., 0], precision)

    def sample(
        self, key: RandomKey, natural: VectorGaussianStatistics, event_mask: SquareMask = None
    ) -> VectorGaussianStatistics:
        centre, factor = _centre(natural, event_mask)
        noise = jax.random.normal(key, (*centre.shape, 1), centre.dtype)
        return _vector_statistics(keep(centre + solve_lower(factor, noise, transposed=True)[..., 0], _line(event_mask)))

    def point(self, natural: VectorGaussianStatistics, event_mask: SquareMask = None) -> VectorGaussianStatistics:
        return _vector_statistics(_centre(natural, event_mask)[0])

    def value(
        self, statistics: VectorGaussianStatistics, event_mask: SquareMask = None
    ) -> Float[Array, "*element event"]:
        """Return x, shape (elements…, E); of expected statistics, E[x]."""
        return statistics.value

    def legal(self, shape: tuple[int, ...], dtype: Any) -> VectorGaussianStatistics:
        """Return the natural parameters of a standard Gaussian in E dimensions.

        shape: the axes of the elements, then (E, E).
        """
        value = jnp.zeros(shape[:-1], dtype)
        return VectorGaussianStatistics(value, jnp.broadcast_to(jnp.eye(shape[-1], dtype=dtype), shape))

    def to_numpyro(self, natural: VectorGaussianStatistics) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.MultivariateNormal(_centre(natural, None)[0], precision_matrix=natural.negative_half_outer)


class RegressionStatistics(NamedTuple):
    """Sufficient statistics (log τ, −τ, τw, −½τwwᵀ) of regression weights w and noise precision τ, or natural
    parameters.

    Elements lead; then the shapes are (), (), (E,), (E, E) for E regressors.
    """

    log_precision: Float[Array, "*element"]
    negative_precision: Float[Array, "*element"]
    precision_weight: Float[Array, "*element event"]
    negative_half_outer: Float[Array, "*element event event"]


class WeightAndPrecision(NamedTuple):
    """The weights w (E,) of a linear regression, and the precision τ of its noise."""

    weight: Float[Array, "*element event"]
    precision: Float[Array, "*element"]


class NormalGammaRegression(UnitCarrierFamily[RegressionStatistics]):
    """The conjugate prior of a linear regression: τ ~ Gamma(a, rate b), w | τ ~ Gaussian(m, precision τP).

    Observations are x ~ Gaussian(wᵀg, 1/τ) with E regressors g.

    p(w, τ | η) = exp(η₁ log τ + η₂ (−τ) + η₃ᵀτw + ⟨η₄, −½τwwᵀ⟩ − A(η)), η = (a − 1 + ½E, b + ½mᵀPm, Pm, P).
    A(η) = log Γ(a) − a log b + ½E log 2π − ½ log|P|.
    E[t] = (ψ(a) − log b, −a/b, m a/b, −½(P⁻¹ + mmᵀ a/b)).

    One observation adds (½, ½x², xg, ggᵀ) to η. With one regressor that is 1 it is the Normal–Gamma. Reference: Bishop
    (2006), §3.3 and exercise 3.12.
    """

    event_ndim: ClassVar[int] = 2
    statistics_type: ClassVar[type | None] = RegressionStatistics
    field_event_ndims: ClassVar[tuple[int, ...] | None] = (0, 0, 1, 2)

    def log_normaliser(self, natural: RegressionStatistics, event_mask: SquareMask = None) -> Float[Array, "*element"]:
        shape, rate, centre, factor = _regression_parameters(natural, event_mask)
        gaussian = 0.5 * (_dimensions(centre, event_mask) * LOG_2PI - log_determinant(factor))
        return log_gamma_positive(shape) - shape * jnp.log(rate) + gaussian

    def mean(self, natural: RegressionStatistics, event_mask: SquareMask = None) -> RegressionStatistics:
        shape, rate, centre, factor = _regression_parameters(natural, event_mask)
        precision = shape / rate
        outer = inverse_from(factor) + precision[..., None, None] * _outer(centre)
        weight = precision[..., None] * centre
        return RegressionStatistics(digamma(shape) - jnp.log(rate), -precision, weight, keep(-0.5 * outer, event_mask))

    def natural(self, mean: RegressionStatistics, event_mask: SquareMask = None) -> RegressionStatistics:
        precision = -mean.negative_precision
        centre = mean.precision_weight / precision[..., None]
        spread = -2 * mean.negative_half_outer - precision[..., None, None] * _outer(centre)
        certainty = keep(inverse_from(cholesky(_regular(spread, event_mask))), event_mask)
        linear = (certainty @ centre[..., None])[..., 0]
        shape = gamma_shape(jnp.log(precision) - mean.log_precision)
        rate = shape / precision + 0.5 * (linear * centre).sum(-1)
        half = 0.5 * _dimensions(centre, event_mask)
        return RegressionStatistics(shape - 1 + half, rate, linear, certainty)

    def sample(
        self, key: RandomKey, natural: RegressionStatistics, event_mask: SquareMask = None
    ) -> RegressionStatistics:
        key_precision, key_weight = jax.random.split(key)
        shape, rate, centre, factor = _regression_parameters(natural, event_mask)
        log_precision = jax.random.loggamma(key_precision, shape, dtype=shape.dtype) - jnp.log(rate)
        noise = jax.random.normal(key_weight, (*centre.shape, 1), centre.dtype)
        offset = solve_lower(factor, noise, transposed=True)[..., 0] * jnp.exp(-0.5 * log_precision)[..., None]
        return _regression_statistics(keep(centre + offset, _line(event_mask)), log_precision)

    def point(self, natural: RegressionStatistics, event_mask: SquareMask = None) -> RegressionStatistics:
        shape, rate, centre, _ = _regression_parameters(natural, event_mask)
        return _regression_statistics(centre, jnp.log(shape / rate))

    def value(self, statistics: RegressionStatistics, event_mask: SquareMask = None) -> WeightAndPrecision:
        precision = -statistics.negative_precision
        return WeightAndPrecision(statistics.precision_weight / precision[..., None], precision)

    def legal(self, shape: tuple[int, ...], dtype: Any) -> RegressionStatistics:
        """Return the natural parameters of a prior with shape 1, rate 1, centre 0 and the identity as precision of the
        weights.

        shape: the axes of the elements, then (E, E) for E regressors.
        """
        one, n = jnp.ones(shape[:-2], dtype), shape[-1]
        eye = jnp.broadcast_to(jnp.eye(n, dtype=dtype), shape)
        return RegressionStatistics(0.5 * n * one, one, jnp.zeros(shape[:-1], dtype), eye)

    def to_numpyro(self, natural: RegressionStatistics) -> NumpyroDistribution:
        """Raise ValueError: NumPyro has no distribution of a regression's weights and its noise."""
        raise ValueError(
            "got components with loadings, expected parameters with a distribution in NumPyro, which has none of a "
            "regression's weights and its noise: use the evidence and the fits of lvsearch, or FullCovarianceComponents"
        )


def _outer(vector: Array) -> Array:
    """Return the outer product vvᵀ of each vector v, shape (…, E, E)."""
    return vector[..., :, None] * vector[..., None, :]


def _vector_statistics(value: Array) -> VectorGaussianStatistics:
    """Return the sufficient statistics (x, −½xxᵀ) of vectors x, shape (elements…, E)."""
    return VectorGaussianStatistics(value, -0.5 * _outer(value))


def _regression_statistics(weight: Array, log_precision: Array) -> RegressionStatistics:
    """Return the sufficient statistics (log τ, −τ, τw, −½τwwᵀ) from weights w and log τ."""
    precision = jnp.exp(log_precision)
    outer = -0.5 * precision[..., None, None] * _outer(weight)
    return RegressionStatistics(log_precision, -precision, precision[..., None] * weight, outer)


def _line(event_mask: SquareMask) -> Any:
    """Return the mask of the coordinates, (…, E), from its outer product with itself; None for None."""
    return None if event_mask is None else jnp.asarray(event_mask).any(-1)


def _dimensions(centre: Array, event_mask: SquareMask) -> Any:
    """Return the number of coordinates that exist, a number or shape (elements…).

    centre: an array whose last axis holds the coordinates. event_mask: outer product of their mask with itself, or
        None.
    """
    return centre.shape[-1] if event_mask is None else jnp.asarray(event_mask).any(-1).sum(-1)


def _regular(matrix: Array, event_mask: SquareMask) -> Array:
    """Return the matrix with the identity in the rows and columns of coordinates that do not exist.

    matrix: (…, E, E). event_mask: outer product of the mask of the coordinates with itself, or None.
    """
    if event_mask is None:
        return matrix
    return jnp.where(event_mask, matrix, jnp.eye(matrix.shape[-1], dtype=matrix.dtype))


def _centre(natural: VectorGaussianStatistics, event_mask: SquareMask) -> tuple[Array, Array]:
    """Return (mean m, Cholesky factor of the precision matrix P) of a `VectorGaussian` from its natural parameters (Pm,
    P).

    Shapes (elements…, E) and (elements…, E, E).

    event_mask: outer product of the mask of the coordinates with itself, or None.
    """
    factor = cholesky(_regular(natural.negative_half_outer, event_mask))
    along = solve_lower(factor, keep(natural.value, _line(event_mask))[..., None])
    return solve_lower(factor, along, transposed=True)[..., 0], factor


def _regression_parameters(natural: RegressionStatistics, event_mask: SquareMask) -> tuple[Array, Array, Array, Array]:
    """Return (a, b, m, the Cholesky factor of P) of a `NormalGammaRegression` from its natural parameters.

    a and b are the shape and the rate of the noise's precision, m and P the mean and the precision of the weights
    relative to that of the noise.

    event_mask: outer product of the mask of the coordinates with itself, or None.
    """
    linear = natural.precision_weight
    centre, factor = _centre(VectorGaussianStatistics(linear, natural.negative_half_outer), event_mask)
    rate = natural.negative_precision - 0.5 * (linear * centre).sum(-1)
    return natural.log_precision + 1 - 0.5 * _dimensions(centre, event_mask), rate, centre, factor
