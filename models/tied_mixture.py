"""Gaussian mixtures whose components share one covariance matrix.

Source: Fraley & Raftery (2002), model EEE; scikit-learn calls such covariances tied. In y = (x − location) / scale,

    1. weights      π ~ Dirichlet(a, …, a)            a, or α/K for all K
    2. precision    Λ ~ Wishart(ν, (spread · I)⁻¹)    one for all components
    3. means        μ_k ~ Normal(0, (κΛ)⁻¹)           k = 1…K components
    4. assignment   z_n ~ Categorical(π)              n = 1…N rows
    5. row          y_n ~ Normal(μ_{z_n}, Λ⁻¹)

D is the number of columns. A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `components` | location, scale, κ, ν − (D − 1), spread | | `FullCovarianceComponents` |
| `concentration` | a | () | > 0 |
| site `weights` | log π | (component,) | simplex |
| site `components` | (½ log |Λ|, −½Λ, Λμ_k, −½ μ_kᵀΛμ_k) | (component, dim, dim) | `TiedNormalWishart` |
| site `component` | z_n | (component,) | one-hot |

Given the labels everything else is integrated out in closed form: with n_k and s_k the number of rows of component k
and their sum,

    log p(y | z) = A(λ + S) − A(λ) − ½ND log 2π,

where A is the log-normaliser of `TiedNormalWishart`, λ the prior's natural parameters and S the sum of the rows'
statistics. A(λ + S) has ν + N in the place of ν, and spread · I + Σ_n y_n y_nᵀ − Σ_k s_k s_kᵀ / (κ + n_k) in the place
of spread · I.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.components import FullCovarianceComponents
from lvsearch.models.components.component import Component, log_hyper_prior
from lvsearch.models.contract import HyperparameterArray, Latents, Masks, Site
from lvsearch.models.exponential.family import inner
from lvsearch.models.exponential.normal_wishart import (
    NormalWishartStatistics,
    TiedNormalWishart,
    tied_marginals,
    tied_share,
)
from lvsearch.models.finite_mixture import DirichletWeightedMixture, FiniteMixture

# the axes of the statistics of the components' parameters
AXES = ("component", "dim", "dim")


class TiedMixture(DirichletWeightedMixture):
    """A mixture of `size` Gaussians in which each has its own mean and all share one covariance.

    components: the prior on the means and on the covariance: `FullCovarianceComponents.weak(values)`, or
        `scaled_to(values)`. With size 1 the model is a `FiniteMixture` of these.
    concentration: a, of the symmetric Dirichlet on the weights.
    dynamic: if True, `concentration` is the total of all components instead of the value of each.

    Cells of rows may be missing if `components.partial_rows`. Parameters are always integrated out: there is no form
    with point estimates (plug-in). So `nested`, which is about that form, is False.
    """

    components: Component
    concentration: HyperparameterArray
    dynamic: bool = eqx.field(static=True)

    nested: ClassVar[bool] = False

    def __init__(self, components: Component | None = None, concentration: Any = 1.0, dynamic: bool = False):
        components = FullCovarianceComponents() if components is None else components
        if not isinstance(components, FullCovarianceComponents):
            raise ValueError(
                f"got components={components!r}, expected FullCovarianceComponents, such as "
                "FullCovarianceComponents.weak(values): the prior on the covariance that all components share"
            )
        independent = FiniteMixture(components, concentration, dynamic)
        assert independent.concentration is not None  # these components have priors
        self.components, self.concentration, self.dynamic = components, independent.concentration, independent.dynamic

    @property
    def independent(self) -> FiniteMixture:
        """The finite mixture with the same priors in which each component has its own covariance."""
        return FiniteMixture(self.components, self.concentration, self.dynamic)

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "TiedMixture: one covariance for all; Gaussians with full covariance (…); weights ~ Dirichlet, …".
        """
        return self.independent.describe().replace("FiniteMixture:", "TiedMixture: one covariance for all;", 1)

    # ── components ──────────────────────────────────────────────────────────────────────────────────────────────────

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all rows share; the components are one variable, since they share their
        covariance.
        """
        return {**super().globals(), "components": Site(TiedNormalWishart(), AXES)}

    def prior_natural(self, component: Component, n_dims: int, on: Masks) -> NormalWishartStatistics:
        """Return the natural parameters of one component without rows: those of its mean, and an even share of the
        covariance's.

        component: the kind of component, all its hyper-parameters numbers. n_dims: the number of columns.
        on: {"component": mask of the components that exist}, whose number divides the covariance's parameters.
        """
        return tied_share(component.prior(n_dims), on["component"].sum().astype(jnp.result_type(float)))

    def posterior_from_own_rows(self, component: Component, natural: Any, on: Masks) -> NormalWishartStatistics:
        """Return the natural parameters of each component as if its rows were the only data: with the whole prior
        added.

        component: the kind of component, all its hyper-parameters numbers.
        natural: the fitted natural parameters, components leading; each has only an even share of the prior on the
            covariance.
        on: {"component": mask of the components that exist}.
        """
        n_dims = natural.precision_mean.shape[-1]
        # `natural` holds, for each component, 1/K of the prior; add the rest of it
        share, prior = self.prior_natural(component, n_dims, on), component.prior(n_dims)
        rest = jax.tree.map(jnp.subtract, prior, share)
        exists = on["component"]

        def with_rest(leaf: Array, extra: Array) -> Array:
            return jnp.where(exists.reshape(-1, *[1] * (leaf.ndim - 1)), leaf + extra.astype(leaf.dtype), leaf)

        return jax.tree.map(with_rest, natural, rest)

    def free_parameters(self, size: int, n_dims: int) -> int:
        """Return how many free numbers the weights, the means and the one covariance are."""
        return size - 1 + size * n_dims + n_dims * (n_dims + 1) // 2

    def marginals(self, natural: Any) -> NormalWishartStatistics:
        """Return the natural parameters of each component's own Normal–Wishart, its marginal posterior, components
        leading.

        natural: the fitted natural parameters, of existing components only.
        """
        return tied_marginals(natural)

    def draw_components(
        self, key: Array, component: Component, n_components: int, n_dims: int
    ) -> NormalWishartStatistics:
        """Draw the shared precision matrix and the means from their prior, and return their statistics, components
        leading.

        component: the kind of component, all its hyper-parameters numbers.
        n_components, n_dims: the numbers of components and of columns.
        """
        exists = jnp.ones(n_components, bool)
        natural = self._repeated(self.prior_natural(component, n_dims, {"component": exists}), n_components)
        return TiedNormalWishart().sample(key, natural)

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log p(weights) + log p(hyper-parameters) + log p(means, shared precision), in nats.

        The log-normaliser A(λ) of the prior is linear in the logarithms of the hyper-parameters, as for one component.
        So its expectation is A at their geometric means, exp(E[log h]).

        g: {name: statistics} of the weights, of hyper-parameters h with priors, and of "components".
        on: {"component": mask of the components that exist}.
        """
        statistics, component = g["components"], self.components
        n_components, n_dims = statistics.precision_mean.shape
        mask = Site(TiedNormalWishart(), AXES).event_mask(on)

        def natural(component: Component) -> NormalWishartStatistics:
            one = jax.tree.map(
                lambda leaf: leaf.astype(statistics.precision_mean.dtype), self.prior_natural(component, n_dims, on)
            )
            return self._repeated(one, n_components)

        geometric = component.with_numbers({name: jnp.exp(g[name].log_value) for name in component.inferred})
        products = inner(TiedNormalWishart(), natural(component.with_expected_numbers(g)), statistics, mask)
        log_components = products - TiedNormalWishart().log_normaliser(natural(geometric), mask)
        return self.log_weights_prior(g, on) + log_hyper_prior(component, g) + log_components

    def plug_in(self) -> "TiedMixture":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            "TiedMixture has no plug-in form: with as many components as rows the likelihood grows without bound as "
            'the covariance shrinks. Use evidence="marginal" or "bound"'
        )

    def _repeated(self, one: NormalWishartStatistics, n_components: int) -> NormalWishartStatistics:
        """Return the natural parameters of one component, repeated on a leading axis of `n_components` components."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n_components, *jnp.shape(leaf))), one)
