"""Mixtures of factor analysers: Gaussians whose covariance is a matrix of low rank plus independent noise per column.

Source: Ghahramani & Hinton (1996), "The EM algorithm for mixtures of factor analyzers"; with priors, Ghahramani & Beal
(2000), "Variational inference for Bayesian mixtures of factor analysers". In y = (x − location) / scale, q factors:

    1. weights      π ~ Dirichlet(a, …, a)                                    a, or α/K for all K
    2. noise        τ_kd ~ Gamma(shape, rate_d)                               k = 1…K components, d = 1…D columns
    3. mean         μ_kd | τ_kd ~ Normal(0, 1/(κ τ_kd))
       loadings     λ_kdj | τ_kd ~ Normal(0, 1/(ℓ τ_kd))                      j = 1…q
    4. assignment   z_n ~ Categorical(π)                                      n = 1…N rows
    5. scores       f_n ~ Normal(0, I)
    6. row          y_nd | z_n = k ~ Normal(μ_kd + λ_kdᵀ f_n, 1/τ_kd)

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `components` | location, scale, κ, ℓ, shape, rate | | `FactorAnalyzerComponents` |
| `concentration` | a | () | > 0 |
| site `weights` | log π | (component,) | simplex |
| site `components` | of w = (μ, λ) and τ, (log τ, −τ, τw, −½τwwᵀ) | (component, dim, coefficient, …) | real, > 0 |
| site `component` | z_n | (component,) | one-hot |
| site `scores` | (f, −½ffᵀ), as far as the row is in the component | (component, score, score) | real |

Given labels and scores, every column of a component is a linear regression on g_n = (1, f_n): with
P = diag(κ, ℓ, …) + Σ_n g_n g_nᵀ, m = P⁻¹ Σ_n y_nd g_n and b = rate_d + ½ (Σ_n y_nd² − mᵀPm) over its n_k rows,

    log p(y_d | f) = ½ log|P₀| − ½ log|P| + shape log rate_d − (shape + ½n_k) log b + log Γ(shape + ½n_k) − log Γ(shape)
                     − ½ n_k log 2π,

where P₀ = diag(κ, ℓ, …) is the prior's P. The density does not change if the factors of a component are rotated or
reflected, f → Rf and λ → Rλ.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components import FactorAnalyzerComponents
from lvsearch.models.components.component import Component, draw_hyper
from lvsearch.models.contract import Gate, HyperparameterArray, JointDraw, Latents, Masks, Site
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.families import VectorGaussian, VectorGaussianStatistics
from lvsearch.models.finite_mixture import DirichletWeightedMixture, FiniteMixture
from lvsearch.models.units import Row


class FactorAnalyzerMixture(DirichletWeightedMixture):
    """A mixture of `size` factor analysers, with `components.n_factors` factors in each.

    components: such as `FactorAnalyzerComponents.weak(values, n_factors=2)`. The default has one factor and expects
        standardised columns.
    concentration: a, of the symmetric Dirichlet on the weights.
    dynamic: if True, `concentration` is the total of all components instead of the value of each.

    No cell of a row may be missing. `nested` is False: there is no plug-in form. The generic Gibbs sampler cannot draw
    from this model: scores have no density in the components that a row does not belong to.
    """

    components: Component
    concentration: HyperparameterArray
    dynamic: bool = eqx.field(static=True)

    nested: ClassVar[bool] = False

    def __init__(self, components: Component | None = None, concentration: Any = 1.0, dynamic: bool = False):
        components = FactorAnalyzerComponents() if components is None else components
        if not isinstance(components, FactorAnalyzerComponents):
            raise ValueError(
                f"got components={components!r}, expected FactorAnalyzerComponents, such as "
                "FactorAnalyzerComponents.weak(values, n_factors=2)"
            )
        weighted = FiniteMixture(concentration=concentration, dynamic=dynamic)
        assert weighted.concentration is not None  # the default components have priors
        self.components, self.concentration, self.dynamic = components, weighted.concentration, weighted.dynamic

    @property
    def analyzers(self) -> FactorAnalyzerComponents:
        """The components, typed as `FactorAnalyzerComponents`."""
        assert isinstance(self.components, FactorAnalyzerComponents)  # the constructor checked it
        return self.components

    def describe(self) -> str:
        """Describe the model in one line, such as "FactorAnalyzerMixture: factor analysers with 2 factors (…); …"."""
        return f"FactorAnalyzerMixture: {self.components.describe()}; {self.describe_weights()}"

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one row: its factor scores in each component, and its component."""
        gate = Gate("component", lambda chosen, on: chosen)
        scores = Site(VectorGaussian(), ("component", "score", "score"), gate=gate)
        return {"scores": scores, **super().locals()}  # scores first: the odds of a component depend on them

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return the masks of the components that exist and of the scores, {"component": …, "score": all True, …}."""
        return {**super().active(size, capacity), "score": jnp.ones(self.analyzers.n_factors, bool)}

    def log_unit(self, g: Latents, l: Latents, unit: Row, on: Masks) -> Float[Array, ""]:
        """Return log p(z) + log p(f | z) + log p(x | z, f) of one row x with component z and scores f, in nats.

        g: {"weights": log π; "components": statistics of loadings and noise}.
        l: {"component": one-hot (component,); "scores": statistics (f, −½ffᵀ) in each component}.
        unit: the row. on: {"component": mask of the components that exist}.
        """
        y, observed = self.components.coordinates(unit), jnp.asarray(unit.observed)
        coefficients, scores = g["components"], l["scores"]
        # E[log Normal(y_d | μ_d + λ_dᵀ f, 1/τ_d)], expanded: terms without f, terms linear in f, terms in f fᵀ
        cells = 0.5 * coefficients.log_precision + 0.5 * y**2 * coefficients.negative_precision
        cells = cells + y * coefficients.precision_weight[..., 0] + coefficients.negative_half_outer[..., 0, 0]
        along = y[:, None] * coefficients.precision_weight[..., 1:] + 2 * coefficients.negative_half_outer[..., 0, 1:]
        linear = (along * scores.value[:, None]).sum(-1)
        outer = -2 * scores.negative_half_outer[:, None] * coefficients.negative_half_outer[..., 1:, 1:]
        log_row = jnp.where(observed, cells + linear + outer.sum((-2, -1)), 0.0).sum(-1)
        log_scores = jnp.trace(scores.negative_half_outer, axis1=-2, axis2=-1)
        log_scores = log_scores - 0.5 * self.analyzers.n_factors * LOG_2PI
        each = self.log_weights(g, on) + log_scores + log_row + self.components.log_carrier(y, observed)
        return jnp.where(on["component"], l["component"] * each, 0.0).sum()

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: Row, on: Masks) -> Row:
        """Draw the cells of one row, given its component and its scores.

        g: {"components": statistics of loadings and noise}. l: {"component": one-hot; "scores": (f, −½ffᵀ)}.
        unit: a row whose `observed` is kept.
        """
        chosen = jnp.argmax(l["component"])
        parameters = jax.tree.map(lambda leaf: leaf[chosen], g["components"])
        scores = l["scores"].value[chosen]
        return Row(self.analyzers.draw_at(key, parameters, scores), unit.observed)

    def simulate(self, key: Array, size: tuple[int, ...], units: Row, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, scores and rows from the joint distribution.

        size: (number of components,). units: rows of which `observed` is kept.
        extents: {"dim": D}, the number D of columns.

        Returns (statistics of the globals by name, statistics of the locals by name with rows leading, the drawn rows).
        Scores are drawn for every component; only those of a row's own component have a meaning.
        """
        key_weights, key_components, key_z, key_scores, key_data = jax.random.split(key, 5)
        n_rows, on = np.shape(units.value)[0], self.active(size, size)
        hyper = draw_hyper(self.components, jax.random.fold_in(key_components, 0), extents["dim"])
        components = self.draw_components(
            key_components, self.components.with_expected_numbers(hyper), size[0], extents["dim"]
        )
        g = {**self.draw_weights(key_weights, size), **hyper, "components": components}
        chosen = jax.random.categorical(key_z, self.log_weights(g, on), shape=(n_rows,))
        f = jax.random.normal(key_scores, (n_rows, size[0], self.analyzers.n_factors))
        scores = VectorGaussianStatistics(f, -0.5 * f[..., :, None] * f[..., None, :])
        l = {"component": jax.nn.one_hot(chosen, size[0]), "scores": scores}
        return g, l, self._draw_units(key_data, g, l, units, on)

    def plug_in(self) -> "FactorAnalyzerMixture":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            "FactorAnalyzerMixture has no plug-in form: the likelihood grows without bound as the noise of a component "
            'shrinks on few rows. Use evidence="marginal" or "bound"'
        )
