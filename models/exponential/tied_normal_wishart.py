"""The conjugate prior of several Gaussians' means and the one precision matrix that they share."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Bool, Float

from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.exponential.family import NumpyroDistribution, RandomKey, UnitCarrierFamily
from lvsearch.models.exponential.matrices import cholesky, inverse_from, log_determinant, solve_lower
from lvsearch.models.exponential.normal_wishart import (
    LOG_2,
    LOG_PI,
    MeanAndPrecisionMatrix,
    NormalWishartStatistics,
    bartlett,
    gamma_arguments,
    solve_degrees,
)
from lvsearch.models.exponential.scalars import LOG_2PI

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
