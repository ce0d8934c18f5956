"""The Normal–Wishart: the conjugate prior of a multivariate Gaussian's mean and precision matrix."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.exponential.family import NumpyroDistribution, RandomKey, UnitCarrierFamily
from lvsearch.models.exponential.matrices import cholesky, inverse_from, log_determinant, solve_lower
from lvsearch.models.exponential.scalars import LOG_2PI

LOG_2, LOG_PI = 0.6931471805599453, 1.1447298858494002
BISECTIONS = 90


class NormalWishartStatistics(NamedTuple):
    """Sufficient statistics (½ log|Λ|, −½Λ, Λμ, −½ μᵀΛμ) of a mean μ and a precision matrix Λ, or natural parameters.

    Elements lead; then the shapes are (), (D, D), (D,), () for D columns.
    """

    half_log_determinant: Float[Array, "*element"]
    negative_half_precision: Float[Array, "*element dim dim"]
    precision_mean: Float[Array, "*element dim"]
    negative_half_square: Float[Array, "*element"]


class MeanAndPrecisionMatrix(NamedTuple):
    """The mean μ (D,) and the precision matrix Λ (D, D) of a Gaussian."""

    mean: Float[Array, "*element dim"]
    precision: Float[Array, "*element dim dim"]


class NormalWishart(UnitCarrierFamily[NormalWishartStatistics]):
    """The conjugate prior of a multivariate Gaussian: Λ ~ Wishart(ν, B⁻¹), μ | Λ ~ Gaussian(m, precision κΛ).

    E[Λ] = νB⁻¹, and ν > D − 1.

    p(μ, Λ | η) = exp(η₁ ½ log|Λ| + ⟨η₂, −½Λ⟩ + η₃ᵀΛμ + η₄ (−½ μᵀΛμ) − A(η)), η = (ν − D, B + κmmᵀ, κm, κ).
    A(η) = ½νD log 2 + log Γ_D(ν/2) − ½ν log|B| + ½D log 2π − ½D log κ.
    E[t] = (½(Σ_i ψ((ν + 1 − i)/2) + D log 2 − log|B|), −½νB⁻¹, νB⁻¹m, −½(D/κ + ν mᵀB⁻¹m)).

    One observation x adds (1, xxᵀ, x, 1) to η. The event is a matrix: `event_ndim` is 2, and fields have none, one or
    two of its axes. Reference: Bishop (2006), §10.2.1 and appendix B.
    """

    event_ndim: ClassVar[int] = 2
    statistics_type: ClassVar[type | None] = NormalWishartStatistics
    field_event_ndims: ClassVar[tuple[int, ...] | None] = (0, 2, 1, 0)

    def log_normaliser(self, natural: NormalWishartStatistics, event_mask: None = None) -> Float[Array, "*element"]:
        degrees, factor, _, count = _parameters(natural)
        n_dims = factor.shape[-1]
        log_gamma = log_gamma_positive(gamma_arguments(degrees, n_dims)).sum(-1) + 0.25 * n_dims * (n_dims - 1) * LOG_PI
        wishart = 0.5 * degrees * (n_dims * LOG_2 - log_determinant(factor)) + log_gamma
        return wishart + 0.5 * n_dims * (LOG_2PI - jnp.log(count))

    def mean(self, natural: NormalWishartStatistics, event_mask: None = None) -> NormalWishartStatistics:
        degrees, factor, centre, count = _parameters(natural)
        n_dims = factor.shape[-1]
        precision = degrees[..., None, None] * inverse_from(factor)
        expected_log = digamma(gamma_arguments(degrees, n_dims)).sum(-1) + n_dims * LOG_2 - log_determinant(factor)
        linear = jnp.einsum("...ij,...j->...i", precision, centre)
        square = n_dims / count + (linear * centre).sum(-1)
        return NormalWishartStatistics(0.5 * expected_log, -0.5 * precision, linear, -0.5 * square)

    def natural(self, mean: NormalWishartStatistics, event_mask: None = None) -> NormalWishartStatistics:
        precision = -2 * mean.negative_half_precision
        n_dims = precision.shape[-1]
        factor = cholesky(precision)
        inverse = inverse_from(factor)
        centre = (inverse @ mean.precision_mean[..., None])[..., 0]
        count = n_dims / (-2 * mean.negative_half_square - (centre * mean.precision_mean).sum(-1))
        gap = 2 * mean.half_log_determinant - log_determinant(factor)
        degrees = solve_degrees(gap, n_dims)
        scale = degrees[..., None, None] * inverse
        outer = count[..., None, None] * centre[..., :, None] * centre[..., None, :]
        return NormalWishartStatistics(degrees - n_dims, scale + outer, count[..., None] * centre, count)

    def sample(
        self, key: RandomKey, natural: NormalWishartStatistics, event_mask: None = None
    ) -> NormalWishartStatistics:
        """Draw (μ, Λ) for each element and return its sufficient statistics; Λ = FFᵀ is by Bartlett's decomposition."""
        key_diagonal, key_below, key_mean = jax.random.split(key, 3)
        degrees, factor, centre, count = _parameters(natural)
        lower, log_diagonal = bartlett(key_diagonal, key_below, degrees, factor)
        noise = jax.random.normal(key_mean, centre.shape, factor.dtype)[..., None]
        offset = (factor @ solve_lower(lower, noise, transposed=True))[..., 0]
        half_log_determinant = log_diagonal.sum(-1) - 0.5 * log_determinant(factor)
        root = solve_lower(factor, lower, transposed=True)
        return _statistics(centre + offset / jnp.sqrt(count)[..., None], root, half_log_determinant)

    def point(self, natural: NormalWishartStatistics, event_mask: None = None) -> NormalWishartStatistics:
        degrees, factor, centre, _ = _parameters(natural)
        n_dims = factor.shape[-1]
        eye = jnp.broadcast_to(jnp.eye(n_dims, dtype=factor.dtype), factor.shape)
        root = jnp.sqrt(degrees)[..., None, None] * solve_lower(factor, eye, transposed=True)
        half_log_determinant = 0.5 * (n_dims * jnp.log(degrees) - log_determinant(factor))
        return _statistics(centre, root, half_log_determinant)

    def value(self, statistics: NormalWishartStatistics, event_mask: None = None) -> MeanAndPrecisionMatrix:
        precision = -2 * statistics.negative_half_precision
        factor = cholesky(precision)
        halfway = solve_lower(factor, statistics.precision_mean[..., None])
        mean = solve_lower(factor, halfway, transposed=True)[..., 0]
        return MeanAndPrecisionMatrix(mean, precision)

    def legal(self, shape: tuple[int, ...], dtype: Any) -> NormalWishartStatistics:
        """Return the natural parameters of a Normal–Wishart with ν = D + 1 degrees of freedom and the identity as rate
        matrix B.

        Its centre is 0 and its pseudo-count 1. With 1 everywhere, the default, B would be singular.

        shape: the axes of the elements, then (D, D).
        """
        elements, eye = shape[:-2], jnp.eye(shape[-1], dtype=dtype)
        one = jnp.ones(elements, dtype)
        return NormalWishartStatistics(one, one[..., None, None] * eye, jnp.zeros(shape[:-1], dtype), one)

    def statistics_at(self, value: Any, natural: NormalWishartStatistics) -> NormalWishartStatistics:
        """Return the sufficient statistics of an array (…, D + 1, D): the mean in the first row, the precision matrix
        below.

        natural: not used.
        """
        del natural
        factor = cholesky(value[..., 1:, :])
        return _statistics(value[..., 0, :], factor, 0.5 * log_determinant(factor))

    def to_numpyro(self, natural: NormalWishartStatistics) -> NumpyroDistribution:
        """Return a NumPyro distribution over arrays (…, D + 1, D): the mean in the first row, the precision matrix
        below.
        """
        from lvsearch.models.exponential.normal_wishart_numpyro import NormalWishartDistribution

        degrees, factor, centre, count = _parameters(natural)
        return NormalWishartDistribution(degrees, factor @ jnp.swapaxes(factor, -1, -2), centre, count)


def _parameters(natural: NormalWishartStatistics) -> tuple[Array, Array, Array, Array]:
    """Return (ν, the Cholesky factor of B, m, κ) of a Normal–Wishart from its natural parameters.

    ν (elements…) are degrees of freedom, B (elements…, D, D) is the rate matrix (inverse scale) of the Wishart, m
    (elements…, D) the centre of the mean, and κ (elements…) its pseudo-count.
    """
    count = natural.negative_half_square
    centre = natural.precision_mean / count[..., None]
    scale = natural.negative_half_precision - natural.precision_mean[..., :, None] * centre[..., None, :]
    return natural.half_log_determinant + centre.shape[-1], cholesky(scale), centre, count


def bartlett(
    key_diagonal: RandomKey, key_below: RandomKey, degrees: Any, factor: Float[Array, "*element dim dim"]
) -> tuple[Float[Array, "*element dim dim"], Float[Array, "*element dim"]]:
    """Draw a Wishart matrix Λ ~ Wishart(ν, B⁻¹) in Bartlett's form: return (A, the logs of its diagonal).

    Λ = FFᵀ with F = C⁻ᵀA, where C is the Cholesky factor of the rate matrix, B = CCᵀ. A is lower triangular,
    (elements…, dim, dim). Its diagonal is χ-distributed, and the entries below are standard normal.

    key_diagonal, key_below: random keys for the diagonal and for the entries below.
    degrees: ν, the degrees of freedom, shape (elements…). factor: C.
    """
    n_dims, dtype = factor.shape[-1], factor.dtype
    log_diagonal = 0.5 * (jax.random.loggamma(key_diagonal, gamma_arguments(degrees, n_dims), dtype=dtype) + LOG_2)
    below = jnp.tril(jax.random.normal(key_below, factor.shape, dtype), -1)
    return below + jnp.exp(log_diagonal)[..., None] * jnp.eye(n_dims, dtype=dtype), log_diagonal


def gamma_arguments(degrees: Any, n_dims: int) -> Array:
    """Return (ν + 1 − i)/2 for i = 1…D, the arguments of a Wishart's Gamma functions, shape (elements…, D).

    degrees: ν, the degrees of freedom, shape (elements…). n_dims: D, the number of columns.
    """
    return 0.5 * (degrees[..., None] - jnp.arange(n_dims, dtype=degrees.dtype))


def solve_degrees(gap: Any, n_dims: int) -> Array:
    """Return the degrees of freedom ν of a Wishart with Σ_i ψ((ν + 1 − i)/2) − D log(ν/2) = gap, shape (elements…).

    ψ is the digamma function, and i = 1…D. gap: E[log|Λ|] − log|E[Λ]|, negative. n_dims: D.

    The left side rises from −∞ at ν = D − 1 to 0. The root is found by bisection in log(ν − D + 1).
    """

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        degrees = n_dims - 1 + jnp.exp(middle)
        below = digamma(gamma_arguments(degrees, n_dims)).sum(-1) - n_dims * jnp.log(0.5 * degrees) < gap
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    ends = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.full_like(gap, -25.0), jnp.full_like(gap, 25.0)))
    return n_dims - 1 + jnp.exp(0.5 * (ends[0] + ends[1]))


def _statistics(mean: Array, root: Array, half_log_determinant: Array) -> NormalWishartStatistics:
    """Return the sufficient statistics (½ log|Λ|, −½Λ, Λμ, −½ μᵀΛμ) at the mean μ and the precision matrix Λ = root ·
    rootᵀ.

    mean: (elements…, D). root: (elements…, D, D). half_log_determinant: ½ log|Λ|, (elements…).
    """
    along = jnp.einsum("...ij,...i->...j", root, mean)
    precision = root @ jnp.swapaxes(root, -1, -2)
    linear = jnp.einsum("...ij,...j->...i", root, along)
    return NormalWishartStatistics(half_log_determinant, -0.5 * precision, linear, -0.5 * (along**2).sum(-1))
