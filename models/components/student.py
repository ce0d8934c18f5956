"""Gaussian components with heavier tails: Student's t as a mixture of a few precisions."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import gammaln, roots_genlaguerre

from lvsearch.models.components.arguments import refuse_latent_cells
from lvsearch.models.components.component import Component
from lvsearch.models.components.covariances import FullCovarianceComponents, gaussian_marginals
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.contract import ExpectedCells
from lvsearch.models.families import Family
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.units import Row


class StudentComponents(Component):
    """Student's t with a few widths: x | μ, Σ, u ~ Normal(μ, Σ/u), where u is one of u_1 … u_V with p(u_v) = w_v.

    u multiplies the precision of a row, and each of its V values is a *variant* of the row. All cells of a row share u.
    If u ~ Gamma(ν/2, rate ν/2), a row is Student's t with ν degrees of freedom (Peel & McLachlan 2000). Here the
    multipliers u_v and their probabilities are the nodes and weights of Gauss's quadrature of that Gamma. So every
    polynomial in u of degree below 2V has the same mean. Nothing else is approximate: the model *is* this mixture of
    Gaussians, and its evidence is that of this mixture.

    With ν = 4 and V = 4 the log-density of a row is close to Student's up to a distance of 4 standard units from the
    mean: within .2 nats in one or two columns, and .4 in thirteen. Further out its tails are those of the widest
    Gaussian.

    gaussians: `DiagonalComponents` or `FullCovarianceComponents`, with their priors; their covariance is Σ.
    degrees: ν, positive; the smaller, the heavier the tails. It is given, not inferred; the evidence of searches with
        different ν, and with `gaussians` alone, can be compared.
    variants: V, at least 2.

    A row far from all others belongs to a component in a wide variant, where Gaussians alone would need one more
    component for it. Only `FiniteMixture` takes this kind.
    """

    gaussians: Component
    degrees: float = eqx.field(static=True)
    variants: int = eqx.field(static=True)

    estimated: ClassVar[bool] = False

    def __init__(self, gaussians: Component, degrees: float = 4.0, variants: int = 4):
        if not isinstance(gaussians, DiagonalComponents | FullCovarianceComponents) or gaussians.estimated:
            raise ValueError(
                f"got gaussians={gaussians!r}, expected DiagonalComponents or FullCovarianceComponents, not estimated"
            )
        refuse_latent_cells(gaussians, "gaussians")
        if not 0 < degrees < np.inf:
            raise ValueError(f"got degrees={degrees!r}, expected a positive number; Gaussians have none")
        if variants < 2:
            raise ValueError(f"got variants={variants!r}, expected at least 2")
        self.gaussians, self.degrees, self.variants = gaussians, float(degrees), int(variants)

    @property
    def multipliers(self) -> Float[np.ndarray, " variant"]:
        """The V multipliers u_v of a row's precision, one for each variant, shape (variant,)."""
        return roots_genlaguerre(self.variants, self.degrees / 2 - 1)[0] / (self.degrees / 2)

    @property
    def n_variants(self) -> int:
        return self.variants

    @property
    def log_variants(self) -> Float[np.ndarray, " variant"]:
        """The log-probability log w_v of each variant (multiplier of the precision), in nats, shape (variant,)."""
        weights = roots_genlaguerre(self.variants, self.degrees / 2 - 1)[1]
        return np.log(weights) - gammaln(self.degrees / 2)

    # ── as the Gaussians say ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def axes(self) -> tuple[str, ...]:  # pyright: ignore
        return self.gaussians.axes

    @property
    def cellwise(self) -> bool:  # pyright: ignore
        """False: the cells of a row share one multiplier of the precision, so single cells are not independent."""
        return False

    @property
    def hyper_axes(self) -> Mapping[str, tuple[str, ...]]:  # pyright: ignore
        return self.gaussians.hyper_axes

    @property
    def inferred(self) -> dict[str, GammaPrior]:
        return self.gaussians.inferred

    def with_numbers(self: "StudentComponents", values: Mapping[str, Any]) -> "StudentComponents":
        return StudentComponents(self.gaussians.with_numbers(values), self.degrees, self.variants)

    @property
    def family(self) -> Family:
        return self.gaussians.family

    @property
    def prior_family(self) -> Family:
        return self.gaussians.prior_family

    def check(self, units: Row) -> None:
        self.gaussians.check(units)

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        return self.gaussians.expected_cells(n_dims)

    def prior(self, n_dims: int) -> Any:
        return self.gaussians.prior(n_dims)

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        return self.gaussians.coordinates(unit)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Any:
        """Return what a row adds to the natural parameters of a Gaussian component, with multiplier u = 1.

        coordinates: the row in the coordinates of `gaussians`, shape (dim,). observed: False for missing cells, (dim,).
        """
        return self.gaussians.increment(coordinates, observed)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        return self.gaussians.log_carrier(coordinates, observed)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        return self.gaussians.log_ceiling(units)

    # ── variants ────────────────────────────────────────────────────────────────────────────────────────────────────

    def describe(self) -> str:
        return (
            f"Student's t with {self.degrees:g} degrees of freedom, as {self.variants} widths of "
            f"{self.gaussians.describe()}"
        )

    def variant_increments(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Any:
        """Return what a row adds to the natural parameters in each variant, variants on the leading axis.

        A variant v multiplies the precision of the row by u_v, one of `multipliers`. So it multiplies all statistics of
        a Gaussian row by u_v, except the first, which belongs to the log of the precision.

        coordinates: the row in the coordinates of `gaussians`, shape (dim,). observed: False for missing cells, (dim,).
        """
        one = self.increment(coordinates, observed)
        multipliers = jnp.asarray(self.multipliers, coordinates.dtype)
        every = jax.tree.map(lambda leaf: multipliers.reshape(-1, *[1] * leaf.ndim) * leaf, one)
        return every._replace(**{one._fields[0]: jnp.broadcast_to(one[0], every[0].shape)})

    def variant_tilts(self, observed: Bool[Array, " dim"]) -> Float[Array, " variant"]:
        """Return ½ · (number of observed cells) · log u_v for each variant v, in nats, shape (variant,).

        The log-density of a row in variant v exceeds that of u = 1 by this term. observed: False for missing cells,
        (dim,).
        """
        return 0.5 * observed.sum() * jnp.log(jnp.asarray(self.multipliers))

    def free_parameters(self, n_dims: int) -> int:
        return self.gaussians.free_parameters(n_dims)

    def plug_in(self) -> Component:
        raise ValueError(
            "Student's t of free scale has no plug-in form: the likelihood grows without bound as a component shrinks "
            'onto a row. Use evidence="marginal"'
        )

    def moments(self, statistics: Any) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        mean, covariance = self.gaussians.moments(statistics)
        return mean, covariance * float(np.exp(self.log_variants) @ (1 / self.multipliers))

    def marginal_log_densities(
        self, statistics: Any, columns: tuple[int, ...], values: Float[Array, "point chosen"]
    ) -> Float[Array, "point component"]:
        means, covariances = jax.vmap(self.gaussians.moments)(statistics)
        of_variants = [gaussian_marginals(means, covariances / u, columns, values) for u in self.multipliers]
        return jax.nn.logsumexp(jnp.stack(of_variants, -1) + self.log_variants, axis=-1)

    def draw(self, key: Array, statistics: Any, unit: Row) -> Float[Array, " dim"]:
        key_variant, key_row = jax.random.split(key)
        variant = jax.random.categorical(key_variant, jnp.asarray(self.log_variants))
        return self.draw_variant(key_row, statistics, unit, variant)

    def draw_variant(self, key: Array, statistics: Any, unit: Row, variant: Int[Array, ""]) -> Float[Array, " dim"]:
        """Draw the cells of one row with the multiplier u of the given variant, shape (dim,).

        A Gaussian row is drawn, and its distance from the mean is multiplied by 1/√u.

        statistics: the statistics of the component's parameters. unit: a row, for its shape. variant: index of the
            multiplier.
        """
        mean, _ = self.gaussians.moments(statistics)
        row = self.gaussians.draw(key, statistics, unit)
        return mean + (row - mean) / jnp.sqrt(jnp.asarray(self.multipliers, row.dtype)[variant])
