"""The Normal–Wishart: the conjugate prior of multivariate Gaussians' means and precision matrices.

`NormalWishart` is the prior of one Gaussian's mean and precision matrix. `TiedNormalWishart` is the prior of several
Gaussians' means and of the one precision matrix that they share.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Bool, Float

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
        degrees, factor, _, count = normal_wishart_parameters(natural)
        n_dims = factor.shape[-1]
        log_gamma = log_gamma_positive(gamma_arguments(degrees, n_dims)).sum(-1) + 0.25 * n_dims * (n_dims - 1) * LOG_PI
        wishart = 0.5 * degrees * (n_dims * LOG_2 - log_determinant(factor)) + log_gamma
        return wishart + 0.5 * n_dims * (LOG_2PI - jnp.log(count))

    def mean(self, natural: NormalWishartStatistics, event_mask: None = None) -> NormalWishartStatistics:
        degrees, factor, centre, count = normal_wishart_parameters(natural)
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
        degrees, factor, centre, count = normal_wishart_parameters(natural)
        lower, log_diagonal = bartlett(key_diagonal, key_below, degrees, factor)
        noise = jax.random.normal(key_mean, centre.shape, factor.dtype)[..., None]
        offset = (factor @ solve_lower(lower, noise, transposed=True))[..., 0]
        half_log_determinant = log_diagonal.sum(-1) - 0.5 * log_determinant(factor)
        root = solve_lower(factor, lower, transposed=True)
        return _statistics(centre + offset / jnp.sqrt(count)[..., None], root, half_log_determinant)

    def point(self, natural: NormalWishartStatistics, event_mask: None = None) -> NormalWishartStatistics:
        degrees, factor, centre, _ = normal_wishart_parameters(natural)
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
        from lvsearch.models.exponential.numpyro_distributions import NormalWishartDistribution

        degrees, factor, centre, count = normal_wishart_parameters(natural)
        return NormalWishartDistribution(degrees, factor @ jnp.swapaxes(factor, -1, -2), centre, count)


def normal_wishart_parameters(natural: NormalWishartStatistics) -> tuple[Array, Array, Array, Array]:
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


ComponentMask = Bool[Array, "*#element #component 1 1"] | None


class TiedNormalWishart(UnitCarrierFamily[NormalWishartStatistics]):
    """The prior Λ ~ Wishart(ν, B⁻¹) and, for k = 1…K given Λ independently, μ_k ~ Gaussian(m_k, precision κ_kΛ).

    The event is (component, dim, dim). Each component has the statistics of `NormalWishart`, t_k = (½ log|Λ|, −½Λ,
    Λμ_k, −½ μ_kᵀΛμ_k), so that a row of component k adds (1, xxᵀ, x, 1) to η_k alone. The first two are the same for
    every k, so only the sums of η_k1 and η_k2 matter:

    ν = D + 1 + Σ_k (η_k1 − 1),   B = Σ_k (η_k2 − κ_k m_k m_kᵀ),   κ_k m_k = η_k3,   κ_k = η_k4.
    A(η) = ½νD log 2 + log Γ_D(ν/2) − ½ν log|B| + Σ_k ½D (log 2π − log κ_k).

    With one component it is the Normal–Wishart. Reference: Bishop (2006), §10.2.1 and appendix B.
    """

    event_ndim: ClassVar[int] = 3
    statistics_type: ClassVar[type | None] = NormalWishartStatistics
    field_event_ndims: ClassVar[tuple[int, ...] | None] = (1, 3, 2, 1)

    def log_normaliser(
        self, natural: NormalWishartStatistics, event_mask: ComponentMask = None
    ) -> Float[Array, "*element"]:
        exists = _existing(natural, event_mask)
        degrees, factor, _, count = tied_parameters(natural, event_mask)
        n_dims = factor.shape[-1]
        log_gamma = log_gamma_positive(gamma_arguments(degrees, n_dims)).sum(-1) + 0.25 * n_dims * (n_dims - 1) * LOG_PI
        wishart = 0.5 * degrees * (n_dims * LOG_2 - log_determinant(factor)) + log_gamma
        return wishart + 0.5 * n_dims * jnp.where(exists, LOG_2PI - jnp.log(count), 0.0).sum(-1)

    def mean(self, natural: NormalWishartStatistics, event_mask: ComponentMask = None) -> NormalWishartStatistics:
        degrees, factor, centre, count = tied_parameters(natural, event_mask)
        n_dims = factor.shape[-1]
        precision = degrees[..., None, None] * inverse_from(factor)
        expected_log = digamma(gamma_arguments(degrees, n_dims)).sum(-1) + n_dims * LOG_2 - log_determinant(factor)
        linear = jnp.einsum("...ij,...kj->...ki", precision, centre)
        square = n_dims / count + (linear * centre).sum(-1)
        return _repeat_shared(0.5 * expected_log, precision, linear, square, _existing(natural, event_mask))

    def natural(self, mean: NormalWishartStatistics, event_mask: ComponentMask = None) -> NormalWishartStatistics:
        """Return natural parameters η with the given mean; the parts that belong to Λ are divided evenly over
        components.

        mean: expected sufficient statistics, component first. Other η have the same mean.
        """
        exists = _existing(mean, event_mask)
        number = exists.sum(-1)
        shared = -2 * _averaged(mean.negative_half_precision, exists)
        n_dims, factor = shared.shape[-1], cholesky(shared)
        inverse = inverse_from(factor)
        centre = jnp.einsum("...ij,...kj->...ki", inverse, mean.precision_mean)
        spread = -2 * mean.negative_half_square - (centre * mean.precision_mean).sum(-1)
        count = jnp.where(exists, n_dims / jnp.where(exists, spread, 1.0), 0.0)
        gap = 2 * _averaged(mean.half_log_determinant, exists) - log_determinant(factor)
        degrees = solve_degrees(gap, n_dims)
        scale = (degrees / number)[..., None, None, None] * inverse[..., None, :, :]
        outer = count[..., None, None] * centre[..., :, None] * centre[..., None, :]
        return NormalWishartStatistics(
            jnp.where(exists, ((degrees - n_dims - 1) / number)[..., None] + 1, 0.0),
            jnp.where(exists[..., None, None], scale + outer, 0.0),
            count[..., None] * centre,
            count,
        )

    def sample(
        self, key: RandomKey, natural: NormalWishartStatistics, event_mask: ComponentMask = None
    ) -> NormalWishartStatistics:
        """Draw Λ = FFᵀ by Bartlett's decomposition, then every mean given Λ, and return their sufficient statistics."""
        key_diagonal, key_below, key_means = jax.random.split(key, 3)
        degrees, factor, centre, count = tied_parameters(natural, event_mask)
        lower, log_diagonal = bartlett(key_diagonal, key_below, degrees, factor)
        noise = jnp.swapaxes(jax.random.normal(key_means, centre.shape, factor.dtype), -1, -2)
        offset = jnp.swapaxes(factor @ solve_lower(lower, noise, transposed=True), -1, -2)
        half_log_determinant = log_diagonal.sum(-1) - 0.5 * log_determinant(factor)
        root = solve_lower(factor, lower, transposed=True)
        means = centre + offset / jnp.sqrt(count)[..., None]
        return _statistics_at(means, root, half_log_determinant, _existing(natural, event_mask))

    def point(self, natural: NormalWishartStatistics, event_mask: ComponentMask = None) -> NormalWishartStatistics:
        degrees, factor, centre, _ = tied_parameters(natural, event_mask)
        n_dims = factor.shape[-1]
        eye = jnp.broadcast_to(jnp.eye(n_dims, dtype=factor.dtype), factor.shape)
        root = jnp.sqrt(degrees)[..., None, None] * solve_lower(factor, eye, transposed=True)
        half_log_determinant = 0.5 * (n_dims * jnp.log(degrees) - log_determinant(factor))
        return _statistics_at(centre, root, half_log_determinant, _existing(natural, event_mask))

    def value(self, statistics: NormalWishartStatistics, event_mask: ComponentMask = None) -> MeanAndPrecisionMatrix:
        """Return the means (…, component, dim), 0 at missing components, and the shared precision matrix (…, dim,
        dim).
        """
        precision = -2 * _averaged(statistics.negative_half_precision, _existing(statistics, event_mask))
        inverse = inverse_from(cholesky(precision))
        return MeanAndPrecisionMatrix(jnp.einsum("...ij,...kj->...ki", inverse, statistics.precision_mean), precision)

    def legal(self, shape: tuple[int, ...], dtype: Any) -> NormalWishartStatistics:
        """Return natural parameters with D + 1 degrees of freedom, centres 0 and pseudo-counts 1, for D columns.

        Each component's part of the Wishart's rate matrix is the identity.

        shape: the axes of the elements, then (component, D, D).
        """
        one = jnp.ones(shape[:-2], dtype)
        eye = one[..., None, None] * jnp.eye(shape[-1], dtype=dtype)
        return NormalWishartStatistics(one, eye, jnp.zeros(shape[:-1], dtype), one)

    def to_numpyro(self, natural: NormalWishartStatistics) -> NumpyroDistribution:
        """Raise ValueError: NumPyro has no distribution of several means and one shared precision matrix."""
        raise ValueError(
            "got components that share a covariance, expected parameters with a distribution in NumPyro, which has "
            "none of several means and one precision matrix: use the samplers of lvsearch, or FullCovarianceComponents"
        )


def tied_parameters(
    natural: NormalWishartStatistics, event_mask: ComponentMask = None
) -> tuple[
    Float[Array, "*element"],
    Float[Array, "*element dim dim"],
    Float[Array, "*element component dim"],
    Float[Array, "*element component"],
]:
    """Return (ν, the Cholesky factor of B, m_k, κ_k) of a `TiedNormalWishart` from its natural parameters.

    ν are the degrees of freedom and B is the rate matrix (inverse scale) of the shared precision's Wishart. m_k is the
    centre of the mean of component k, and κ_k its pseudo-count.

    natural: η, component first. event_mask: mask (component, 1, 1) of the components that exist, or None.

    At components that do not exist m_k is 0 and κ_k is 1.
    """
    exists = _existing(natural, event_mask)
    count = jnp.where(exists, natural.negative_half_square, 1.0)
    sums = jnp.where(exists[..., None], natural.precision_mean, 0.0)
    centre = sums / count[..., None]
    n_dims = centre.shape[-1]
    matrices = jnp.where(exists[..., None, None], natural.negative_half_precision, 0.0)
    scale = matrices.sum(-3) - jnp.einsum("...ki,...kj->...ij", sums, centre)
    degrees = jnp.where(exists, natural.half_log_determinant - 1, 0.0).sum(-1) + (n_dims + 1)
    return degrees, cholesky(scale), centre, count


def tied_marginals(natural: NormalWishartStatistics, event_mask: ComponentMask = None) -> NormalWishartStatistics:
    """Return the natural parameters of each component's own Normal–Wishart, its marginal distribution, component first.

    The means of the other components are integrated out.

    natural: η of the joint family. event_mask: mask (component, 1, 1) of the components that exist, or None.
    """
    degrees, factor, centre, count = tied_parameters(natural, event_mask)
    scale = factor @ jnp.swapaxes(factor, -1, -2)
    outer = count[..., None, None] * centre[..., :, None] * centre[..., None, :]
    linear = count[..., None] * centre
    own = jnp.broadcast_to((degrees - centre.shape[-1])[..., None], count.shape)
    return NormalWishartStatistics(own, scale[..., None, :, :] + outer, linear, count)


def tied_share(prior: NormalWishartStatistics, number: Any) -> NormalWishartStatistics:
    """Return the natural parameters η_k of each of `number` components from the prior that they share.

    The part that belongs to the shared precision Λ is divided evenly over components.

    prior: the natural parameters of a Normal–Wishart with centre 0. number: the number of components.
    """
    own = (prior.half_log_determinant - 1) / number + 1
    return prior._replace(half_log_determinant=own, negative_half_precision=prior.negative_half_precision / number)


def _existing(leaves: NormalWishartStatistics, event_mask: ComponentMask) -> Bool[Array, "*element component"]:
    """Return the mask of the components that exist, shape (elements…, component).

    leaves: statistics or natural parameters, for their shape. event_mask: mask (component, 1, 1), or None if all exist.
    """
    shape = jnp.shape(leaves.negative_half_square)
    here = True if event_mask is None else jnp.asarray(event_mask).any((-2, -1))
    return jnp.broadcast_to(jnp.asarray(here), shape)


def _averaged(leaf: Array, exists: Bool[Array, "*element component"]) -> Array:
    """Return a statistic that is equal for all components without its axis of components: the average over those that
    exist.

    leaf: the statistic, (elements…, component, …).
    """
    shaped = exists.reshape(*exists.shape, *[1] * (leaf.ndim - exists.ndim))
    return jnp.where(shaped, leaf, 0.0).sum(exists.ndim - 1) / shaped.sum(exists.ndim - 1)


def _statistics_at(means: Array, root: Array, half_log_determinant: Array, exists: Array) -> NormalWishartStatistics:
    """Return the sufficient statistics at means μ_k of components k and the shared precision matrix Λ = root · rootᵀ.

    means: (…, component, dim). root: (…, dim, dim). half_log_determinant: ½ log|Λ|, (…).
    exists: mask of the components that exist; all others get 0. In the result the axis of components comes first.
    """
    along = jnp.einsum("...ij,...ki->...kj", root, means)
    precision = root @ jnp.swapaxes(root, -1, -2)
    linear = jnp.einsum("...ij,...kj->...ki", root, along)
    return _repeat_shared(half_log_determinant, precision, linear, (along**2).sum(-1), exists)


def _repeat_shared(
    half_log_determinant: Array, precision: Array, linear: Array, square: Array, exists: Array
) -> NormalWishartStatistics:
    """Return sufficient statistics of all components, component first, with the statistics of the shared Λ repeated for
    each.

    half_log_determinant, precision: ½ log|Λ| (…) and Λ (…, dim, dim), or their expected values.
    linear, square: Λμ_k (…, component, dim) and μ_kᵀΛμ_k (…, component), or their expected values.
    exists: mask of the components that exist; all others get 0.
    """
    return NormalWishartStatistics(
        jnp.where(exists, half_log_determinant[..., None], 0.0),
        jnp.where(exists[..., None, None], -0.5 * precision[..., None, :, :], 0.0),
        jnp.where(exists[..., None], linear, 0.0),
        jnp.where(exists, -0.5 * square, 0.0),
    )
