"""Finite mixtures: rows from `size` components with free weights.

Source: Richardson & Green (1997) for the question and the prior on weights; Bishop (2006), §10.2. The story:

    1. weights      π ~ Dirichlet(a, …, a)            (absent in the plug-in form)   a, or α/K for all K
    2. components   θ_k ~ the conjugate prior of their kind,   k = 1…K components   (absent in the plug-in form)
    3. assignment   z_n ~ Categorical(π)              n = 1…N rows
    4. row          x_n ~ p(· | θ_{z_n})

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `components` | the kind of p(x | θ) and its prior | | `lvsearch.models.components` |
| `concentration` | a | () | > 0; None where weights have no prior |
| site `weights` | log π | (component,) | simplex |
| site `components` | statistics of θ_k | (component, …) | |
| site `component` | z_n | (component,) | one-hot |
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from lvsearch.models.components.arguments import positive_parameter, required_component
from lvsearch.models.components.component import Component
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.contract import (
    HyperparameterArray,
    Latents,
    Masks,
    Site,
    Statistics,
    concentration_parameter,
    log_relabellings,
)
from lvsearch.models.families import Dirichlet, PointSimplex
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.mixture import MixtureModel, component_rows


class DirichletWeightedMixture(MixtureModel):
    """The base class of mixtures of `size` components whose weights have a symmetric Dirichlet prior.

    | field | meaning |
    |---|---|
    | `concentration` | a, the Dirichlet parameter of each weight; None where weights are estimated |
    | `dynamic` | True if `concentration` is the total α of all components, of which each of K has α/K |
    """

    concentration: eqx.AbstractVar[HyperparameterArray | None]
    dynamic: eqx.AbstractVar[bool]

    size_names: ClassVar[tuple[str, ...]] = ("components",)
    ordered: ClassVar[bool] = False

    def describe_weights(self) -> str:
        """Describe the weights in a few words, such as "weights ~ Dirichlet, 1 per component"."""
        if self.concentration is None:
            return "weights estimated"
        spread = "over all components" if self.dynamic else "per component"
        return f"weights ~ Dirichlet, {as_text(self.concentration)} {spread}"

    def concentration_at(self, size: Any) -> Any:
        """Return a, the concentration of each component's weight if there are `size` components.

        Only for models whose weights have a prior.
        """
        return self.concentration / size if self.dynamic else self.concentration

    def weight_sites(self) -> dict[str, Site]:
        """Return {"weights": the latent variable of the weights}, a point estimate if there is no concentration."""
        family = PointSimplex() if self.concentration is None else Dirichlet()
        return {"weights": Site(family, ("component",))}

    def log_weights(self, g: Latents, on: Masks) -> Float[Array, " component"]:
        """Return the log of each component's weight, in nats, shape (component,)."""
        return g["weights"]

    def log_weights_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log Dirichlet(weights | a, …, a) with concentration a per component, in nats; 0 if weights are
        estimated.

        g: {"weights": log weights, shape (component,)}. on: {"component": mask of the components that exist}.
        """
        exists, log_weights = on["component"], g["weights"]
        if self.concentration is None:
            return jnp.zeros((), log_weights.dtype)
        n = exists.sum().astype(log_weights.dtype)
        a = jnp.asarray(self.concentration_at(n), log_weights.dtype)
        return gammaln(n * a) - n * gammaln(a) + jnp.where(exists, (a - 1) * log_weights, 0.0).sum()

    def expected_weights(self, natural: Latents) -> tuple[Float[np.ndarray, " component"], float]:
        """Return (the mean of the Dirichlet or the estimated weights, (component,), and 0.0, the mass of further
        components).

        natural: {"weights": natural parameters of the weights}.
        """
        family = self.weight_sites()["weights"].family
        log = np.asarray(family.point(jnp.asarray(natural["weights"])), np.float64)
        return np.exp(log) / np.exp(log).sum(), 0.0

    def draw_weights(self, key: Array, size: tuple[int, ...]) -> dict[str, Statistics]:
        """Draw the weights of the components from their prior, and return {"weights": log weights, shape
        (component,)}.
        """
        if self.concentration is None:
            raise ValueError("cannot draw weights that have no prior: simulate the model before plug_in()")
        a = jnp.asarray(self.concentration_at(size[0]))
        return {"weights": Dirichlet().sample(key, jnp.broadcast_to(a - 1, size))}

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K components in groups of m_j identical ones: the log number of
        relabellings.

        Components without rows are the most common such group. size: (K,).
        natural: {name: natural parameters} of the globals.
        """
        return log_relabellings(component_rows(size[0], natural, ("weights", "components")))


class FiniteMixture(DirichletWeightedMixture):
    """A mixture of `size` components of one kind.

    components: the kind of components and their prior, such as `DiagonalComponents.scaled_to(values)`. The default
        expects standardised columns.
    concentration: of the symmetric Dirichlet on the weights, *per component*. With 1, the default, all divisions of the
        rows into component sizes are equally probable, and a larger K pays for components that it does not need. None,
        together with estimated components, means weights that are parameters: the plug-in form.
    dynamic: if True, `concentration` is the total α of all components, and each of the K components has α/K. A *static*
        mixture of finite mixtures (Miller & Harrison 2018) has the same a at every size. In a *dynamic* one
        (Frühwirth-Schnatter, Malsiner-Walli & Grün 2021) components without rows cost little: the size of the model
        says less about the data, and the number of occupied components says more.

    `nested` is True: Proposition 1 of Chiang & Poole holds for the plug-in form, whose weights are free. Proof: given π
    and θ for K components, put for K + 1 components θ'_{K+1} = θ_k for any k, π'_{K+1} = ε and π'_k = π_k − ε. Every
    row keeps its density exactly.
    """

    components: Component
    concentration: HyperparameterArray | None
    dynamic: bool = eqx.field(static=True)

    nested: ClassVar[bool] = True

    def __init__(self, components: Component | None = None, concentration: Any = 1.0, dynamic: bool = False):
        self.components = DiagonalComponents() if components is None else required_component(components)
        if (concentration is None) != self.components.estimated:
            raise ValueError(
                f"got concentration={concentration!r} with components whose parameters are "
                f"{'' if self.components.estimated else 'not '}estimated, expected None exactly where they are: leave "
                "both to plug_in()"
            )
        self.concentration = (
            None
            if concentration is None
            else positive_parameter("concentration", concentration_parameter("concentration", concentration))
        )
        self.dynamic = bool(dynamic)

    def suggestions_if_open(self) -> tuple[str, ...]:
        """Return phrases that suggest other priors or components to try where data leave the number open."""
        others = (
            [] if self.dynamic else ["a prior on weights under which needless components stay empty (dynamic=True)"]
        )
        kind = type(self.components)
        if self.components.inferred and hasattr(kind, "scaled_to"):
            others.append(
                f"components whose typical width is fixed in advance, not inferred ({kind.__name__}.scaled_to(rows))"
            )
        return tuple(others)

    def describe(self) -> str:
        """Describe the model in one line.

        Such as "FiniteMixture: Gaussians of known variance 1 (…); weights ~ Dirichlet, 1 per component".
        """
        return f"FiniteMixture: {self.components.describe()}; {self.describe_weights()}"

    def plug_in(self) -> "FiniteMixture":
        """Return the model with weights and components estimated by maximum likelihood.

        Raises ValueError for kinds of components whose likelihood has no maximum.
        """
        return self if self.concentration is None else FiniteMixture(self.components.plug_in(), None)
