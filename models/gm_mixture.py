"""GM-mixture, the Gaussian–multinomial mixture: one factor (mixture component) for a whole image and its caption.

Source: Blei (2004), §4.1.1. The generative story, with the equations that define it:

    1. weights    θ ~ Dirichlet(α_1, …, α_K)          (shared by all images; absent in the plug-in form)
    2. factors    β_k, (μ_k, σ_k) ~ their priors      k = 1…K factors
    3. factor     z_d ~ Categorical(θ)                d = 1…D images           (Eq. 4.1)
    4. region     r_dn ~ p(· | μ_{z_d}, σ_{z_d})      n = 1…N_d regions        (Eq. 4.1)
    5. word       w_dm ~ Categorical(β_{z_d})         m = 1…M_d caption words  (Eq. 4.1)

| site (latent variable) | letter | shape | support |
|---|---|---|---|
| `weights` | log θ | (factor,) | simplex |
| `factor` | z_d | (factor,) | one-hot |

and the fields and latent variables of `AnnotatedModel`.
"""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.annotated import AnnotatedModel, draw_log_weights
from lvsearch.models.contract import JointDraw, Latents, Masks, Site
from lvsearch.models.families import Categorical, Dirichlet, PointSimplex
from lvsearch.models.units import AnnotatedImage


class GMMixture(AnnotatedModel):
    """The Gaussian–multinomial mixture with `size` factors (mixture components of regions and caption words).

    The hyper-parameters are those of `AnnotatedModel`; `concentration` is that of the Dirichlet on the factors'
    weights.

    `nested` is True: in the plug-in form, any parameters have equally likely ones at every larger size (Proposition 1
    of Chiang & Poole). Proof: duplicate factor k and split its weight θ_k = (θ_k − ε) + ε. Every image keeps its
    probability exactly.

    Regions have no labels here: given the factor, the model does not say which word goes with which region (§4.1.1).
    """

    nested: ClassVar[bool] = True
    representation: ClassVar[str] = "factor"
    whole_images: ClassVar[bool] = True

    @property
    def _weights_are_points(self) -> bool:
        """True in the plug-in form, whose weights are estimated instead of integrated out."""
        return self.words.estimated

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all images share: the weights of the factors, and the factors'
        parameters.
        """
        family = PointSimplex() if self._weights_are_points else Dirichlet()
        return {"weights": Site(family, ("factor",)), **self.factor_sites()}

    def locals(self) -> dict[str, Site]:
        """Return the latent variable of one image: its factor, one-hot on the axis (factor,)."""
        return {"factor": Site(Categorical(), ("factor",))}

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return the log prior density of the factors, and of the weights unless they are estimated, in nats.

        g: {"weights": log weights, (factor,); "factor_word", "factor_region": statistics of the factors}.
        on: {"factor": mask of the factors that exist}.
        """
        factors = self.log_factors_prior(g, on)
        return factors if self._weights_are_points else factors + self.log_weights_prior(g["weights"], on)

    def log_unit(self, g: Latents, l: Latents, unit: AnnotatedImage, on: Masks) -> Float[Array, ""]:
        """Return log p(z) + Σ_n log p(r_n | z) + Σ_m log p(w_m | z) of one image with its caption, in nats.

        z is the factor of the image, r_n its regions and w_m its caption words.

        g: {"weights": log weights, (factor,); "factor_word", "factor_region": statistics of the factors}.
        l: {"factor": z, one-hot}. unit: the image. on: {"factor": mask of the factors that exist}.
        """
        evidence = g["weights"] + self.log_regions(g, unit).sum(0) + self.log_words(g, unit).sum(0)  # (factor,)
        return (l["factor"] * evidence).sum()  # log p(z) + Σ_n log p(r_n | z) + Σ_m log p(w_m | z)

    def region_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """Return the probability of each factor for every region, shape (region, factor): the image's; 0 for absent
        regions.
        """
        return jnp.where(jnp.asarray(unit.present)[:, None], l["factor"], 0)

    def word_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """Return the probability of each factor for every caption word, shape (caption, factor): the image's."""
        return jnp.broadcast_to(l["factor"], (unit.words.shape[-1], len(l["factor"])))

    def next_word_factor(self, point: Latents, unit: AnnotatedImage) -> Float[Array, " factor"]:
        """Return p(factor of the image | its regions), shape (factor,), which is exact given the parameters (§4.1.1).

        point: {"factor": probabilities of the factors, shape (factor,)}.
        """
        return point["factor"]

    def simulate(
        self, key: Array, size: tuple[int, ...], units: AnnotatedImage, extents: Mapping[str, int]
    ) -> JointDraw:
        """Draw parameters, latent variables, regions and words from the joint distribution.

        size: (number of factors,).
        units: images with one word in each column; they say how many images, regions and words there are.
        extents: {"word": V, "dim": D} with V words and D features of a region, or D distinct tokens.

        Returns (statistics of the globals by name, statistics of the locals by name with images leading, the images).
        """
        key_weights, key_factors, key_z, key_units = jax.random.split(key, 4)
        n_images, on = units.words.shape[0], self.active(size, size)
        g = {
            "weights": draw_log_weights(key_weights, self.alpha(on), ()),
            **self.draw_factors(key_factors, size, extents),
        }
        chosen = jax.random.categorical(key_z, g["weights"], shape=(n_images,))
        l = {"factor": jax.nn.one_hot(chosen, size[0])}
        return g, l, self._draw_units(key_units, g, l, units, on)
