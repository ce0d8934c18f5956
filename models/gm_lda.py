"""GM-LDA, Gaussian–multinomial LDA: every region and every caption word has its own factor (mixture component).

All factors of an image are drawn from the image's proportions.

Source: Blei (2004), §4.1.2. The generative story, with the equations that define it:

    1. factors      β_k, (μ_k, σ_k) ~ their priors       k = 1…K factors
    2. proportions  θ_d ~ Dirichlet(α_1, …, α_K)         d = 1…D images
    3. region       z_dn ~ Categorical(θ_d),  r_dn ~ p(· | μ_{z_dn}, σ_{z_dn})    n = 1…N_d regions
    4. word         v_dm ~ Categorical(θ_d),  w_dm ~ Categorical(β_{v_dm})        m = 1…M_d caption words

| site (latent variable) | letter | shape | support |
|---|---|---|---|
| `region_assignment` | z_dn | (region, factor) | one-hot |
| `word_assignment` | v_dm, one row for each *distinct* word of the caption | (caption, factor) | one-hot |
| `proportions` | log θ_d | (factor,) | simplex |

and the fields and latent variables of `AnnotatedModel`. With regions that are tokens it is LDA on two vocabularies at
once.
"""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.annotated import AnnotatedModel, draw_log_weights
from lvsearch.models.contract import JointDraw, Latents, Masks, Site
from lvsearch.models.families import Categorical, Dirichlet
from lvsearch.models.units import AnnotatedImage


class GMLDA(AnnotatedModel):
    """Gaussian–multinomial LDA with `size` factors (mixture components of regions and caption words).

    The hyper-parameters are those of `AnnotatedModel`; `concentration` is that of the Dirichlet on an image's
    proportions.

    `nested` is True: Proposition 1 of Chiang & Poole holds for the plug-in form with a free vector α. Proof: duplicate
    factor k and split α_k = (α_k − ε) + ε. By Dirichlet aggregation the pair's share is distributed as factor k's was.
    Regions and words depend on the proportions only through that sum. So every image keeps its probability exactly.
    """

    nested: ClassVar[bool] = True
    representation: ClassVar[str] = "proportions"
    whole_images: ClassVar[bool] = False

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one image: the factor of each region, the factor of each caption word, and the
        proportions of the factors.
        """
        return {
            "region_assignment": Site(Categorical(), ("region", "factor")),
            "word_assignment": Site(Categorical(), ("caption", "factor"), copies=lambda unit: unit.counts),
            "proportions": Site(Dirichlet(), ("factor",)),
        }

    def log_unit(self, g: Latents, l: Latents, unit: AnnotatedImage, on: Masks) -> Float[Array, ""]:
        """Return log p(θ) + Σ_n log p(z_n, r_n | θ) + Σ_m log p(v_m, w_m | θ) of one image with its caption, in
        nats.

        θ are proportions of factors; z_n is the factor of region r_n; v_m is the factor of caption word w_m.

        g: {"factor_word", "factor_region": statistics of the factors}.
        l: {"region_assignment": z, (region, factor); "word_assignment": v, (caption, factor); "proportions": log θ}.
        unit: the image. on: {"factor": mask of the factors that exist}.
        """
        z, v, log_theta = l["region_assignment"], l["word_assignment"], l["proportions"]
        present, counts = jnp.asarray(unit.present)[:, None], jnp.asarray(unit.counts)[:, None]
        return (
            self.log_weights_prior(log_theta, on)  # log p(θ | α)
            + jnp.where(present, z * log_theta, 0).sum()  # Σ_n log p(z_n | θ)
            + (z * self.log_regions(g, unit)).sum()  # Σ_n log p(r_n | z_n)
            + (counts * v * log_theta).sum()  # Σ_m log p(v_m | θ)
            + (v * self.log_words(g, unit)).sum()  # Σ_m log p(w_m | v_m)
        )

    def region_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """Return the probability that each region is of each factor, shape (region, factor); 0 for absent regions."""
        return jnp.where(jnp.asarray(unit.present)[:, None], l["region_assignment"], 0)

    def word_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """Return the probability that each caption word is of each factor, shape (caption, factor)."""
        return l["word_assignment"]

    def next_word_factor(self, point: Latents, unit: AnnotatedImage) -> Float[Array, " factor"]:
        """Return p(factor of one more caption word of this image), shape (factor,): E[θ | regions].

        point: {"proportions": log E[θ], shape (factor,)}, from the variational Dirichlet.
        """
        return jnp.exp(point["proportions"])

    def simulate(
        self, key: Array, size: tuple[int, ...], units: AnnotatedImage, extents: Mapping[str, int]
    ) -> JointDraw:
        """Draw parameters, latent variables, regions and words from the joint distribution.

        size: (number of factors,).
        units: images with one word in each column; they say how many images, regions and words there are.
        extents: {"word": V, "dim": D} with V words and D features of a region, or D distinct tokens.

        Returns (statistics of the globals by name, statistics of the locals by name with images leading, the images).
        """
        key_factors, key_theta, key_z, key_v, key_units = jax.random.split(key, 5)
        (n_images, n_words), n_regions = units.words.shape, units.present.shape[1]
        on = self.active(size, size)
        g = self.draw_factors(key_factors, size, extents)
        log_theta = draw_log_weights(key_theta, self.alpha(on), (n_images,))
        z = jax.random.categorical(key_z, log_theta[:, None, :], shape=(n_images, n_regions))
        v = jax.random.categorical(key_v, log_theta[:, None, :], shape=(n_images, n_words))
        l = {
            "region_assignment": jnp.where(jnp.asarray(units.present)[..., None], jax.nn.one_hot(z, size[0]), 0),
            "word_assignment": jax.nn.one_hot(v, size[0]),
            "proportions": log_theta,
        }
        return g, l, self._draw_units(key_units, g, l, units, on)
