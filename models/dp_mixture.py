"""The Dirichlet-process mixture in its stick-breaking form: the weights of components, their prior and its draws.

Only steps 1 and 2 of the story below are written here (`log_weights_prior`, `log_weights`, `draw_weights`). Components,
assignments and rows, and the whole `log_prior` and `log_unit`, are those of every mixture (`models.mixture`).

Source: Blei (2004), Eq. 5.8–5.11 and §5.3.3; Sethuraman (1994). The generative story:

    1. concentration   α ~ Gamma(s₁, rate s₂)            or a given value
    2. sticks          V_t ~ Beta(1, α)                  t = 1, 2, … components
    3. components      θ_t ~ G₀, the conjugate prior of their kind
    4. assignment      p(z_n = t) = V_t Π_{j<t} (1 − V_j)
    5. row             x_n ~ p(· | θ_{z_n})

V_t is the share of the weight left over by the components before t. A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `components` | the kind of p(x | θ) and G₀ | | `lvsearch.models.components` |
| `concentration` | α | () or a `GammaPrior` | > 0 |
| site `concentration` | (log α, −α) | () | only with a prior |
| site `sticks` | (log V_t, log(1 − V_t)) | (component,) | (0, 1) |
| site `components` | statistics of θ_t | (component, …) | |
| site `component` | z_n | (component,) | one-hot |

Departure from the source. The thesis truncates q by q(V_T = 1) = 1. That bounds the truncated model, whose evidence can
exceed that of the process. Here V_T keeps its Beta(1, α) prior and only q(z_n > T) = 0. Sticks and components beyond T
have their prior as q and cancel. So the bound is one on the evidence of the process, and it rises with T. As a
consequence E[log V_T] stands in the last weight, and the posterior of α has shape s₁ + T. No code is needed for that:
the last stick is treated like every other.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from lvsearch.models.components.arguments import required_numbers
from lvsearch.models.components.component import Component
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.contract import HyperparameterArray, Latents, Masks, Site, Statistics
from lvsearch.models.families import Beta, BetaStatistics, Gamma, GammaStatistics
from lvsearch.models.hierarchical_process import log_stick_weights
from lvsearch.models.hyperpriors import UNIT_PRIOR, GammaPrior, as_text, positive_or_gamma_prior
from lvsearch.models.mixture import MixtureModel


class DPMixture(MixtureModel):
    """A Dirichlet-process mixture; `size` is the truncation T of q, not a size of the model.

    components: the kind of components and their prior, such as `DiagonalComponents.scaled_to(values)`. The default
        expects standardised columns.
    concentration: α. A number fixes it; with a `GammaPrior` it is a latent variable that is inferred.

    The number of components is answered by a posterior over *occupied* components, from chains of a sampler
    (`lv.occupied`). Every truncation bounds the same evidence from below. With α given, the best bound of a larger
    truncation is never lower. With α inferred, q factorises each further stick from α, which costs some tenths of a
    nat.
    """

    components: Component
    concentration: HyperparameterArray | GammaPrior

    size_names: ClassVar[tuple[str, ...]] = ("truncation",)
    nested: ClassVar[bool] = False
    process: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def __init__(self, components: Component | None = None, concentration: Any = UNIT_PRIOR):
        self.components = DiagonalComponents() if components is None else required_numbers(components)
        if self.components.estimated:
            raise ValueError("got estimated components, expected components with a prior: the process draws them")
        self.concentration = positive_or_gamma_prior("concentration", concentration)

    def describe(self) -> str:
        """Describe the model in one line, such as "DPMixture: Gaussians of known variance 1 (…); concentration ~
        Gamma(1, rate 1)".
        """
        return f"DPMixture: {self.components.describe()}; concentration {as_text(self.concentration)}"

    def weight_sites(self) -> dict[str, Site]:
        """Return the latent variables of the weights by name: the sticks, and the concentration if it has a prior."""
        sticks = {"sticks": Site(Beta(), ("component",))}
        return {"concentration": Site(Gamma(), ()), **sticks} if isinstance(self.concentration, GammaPrior) else sticks

    def log_and_value(self, g: Latents) -> tuple[Any, Any]:
        """Return (log α, α) of the concentration α: expected statistics if α is inferred, or the given value.

        g: {name: statistics}; "concentration" holds (log α, −α) if α has a prior.
        """
        if isinstance(self.concentration, GammaPrior):
            return g["concentration"].log_value, -g["concentration"].negative_value
        return jnp.log(self.concentration), jnp.asarray(self.concentration)

    def log_weights(self, g: Latents, on: Masks) -> Float[Array, " component"]:
        """Return log V_t + Σ_{j<t} log(1 − V_j), the log of each component's weight, in nats, shape (component,).

        g: {"sticks": (log V, log(1 − V)), shape (component,) each}. on: {"component": mask of those that exist}.
        """
        sticks = g["sticks"]
        passed = jnp.where(on["component"], sticks.log_complement, 0.0)
        return log_stick_weights(BetaStatistics(sticks.log_value, passed))

    def log_weights_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return Σ_t log Beta(V_t | 1, α) over the sticks V_t, plus log p(α) if the concentration α has a prior, in
        nats.

        g: {"sticks": (log V, log(1 − V)); "concentration": (log α, −α) if it has a prior}.
        on: {"component": mask of the components that exist}.
        """
        log_alpha, alpha = self.log_and_value(g)
        sticks = log_alpha + (alpha - 1) * g["sticks"].log_complement
        total = jnp.where(on["component"], sticks, 0.0).sum()  # Σ_t log Beta(V_t | 1, α)
        if not isinstance(self.concentration, GammaPrior):
            return total
        shape, rate = self.concentration
        return total + shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * log_alpha - rate * alpha

    def expected_weights(self, natural: Latents) -> tuple[Float[np.ndarray, " component"], float]:
        """Return (the expected weight of each component, the expected mass of all components beyond the truncation).

        The weight of component t is E[V_t] Π_{j<t} E[1 − V_j] with sticks V; the first result is (component,) float64.

        natural: {"sticks": natural parameters of the Beta of each stick}.
        """
        a, b = (np.asarray(leaf, np.float64) + 1 for leaf in natural["sticks"])
        left = np.cumprod(b / (a + b))
        return a / (a + b) * np.concatenate([[1.0], left[:-1]]), float(left[-1])

    def draw_weights(self, key: Array, size: tuple[int, ...]) -> dict[str, Statistics]:
        """Draw the sticks, and the concentration if it has a prior; return their statistics by name."""
        key_alpha, key_sticks = jax.random.split(key)
        g: dict[str, Statistics] = {}
        if isinstance(self.concentration, GammaPrior):
            shape, rate = self.concentration
            g["concentration"] = Gamma().sample(key_alpha, GammaStatistics(jnp.asarray(shape) - 1, jnp.asarray(rate)))
        _, alpha = self.log_and_value(g)
        g["sticks"] = Beta().sample(
            key_sticks, BetaStatistics(jnp.zeros(size), jnp.broadcast_to(jnp.asarray(alpha) - 1, size))
        )
        return g

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return 0 nats: sticks have an order, so no relabelling of a fit is equally good."""
        return 0.0

    def plug_in(self) -> "DPMixture":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            'DPMixture has no plug-in form, got evidence="plug-in": use evidence="marginal". With estimated '
            "components, every row would be given one of its own"
        )
