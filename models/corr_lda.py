"""Correspondence LDA: every caption word belongs to one region of its image and comes from that region's factor.

A factor is a mixture component that emits both regions and words. Source: Blei (2004), §4.1.3. The generative story:

    1. factors      β_k, (μ_k, σ_k) ~ their priors            k = 1…K factors
    2. proportions  θ_d ~ Dirichlet(α_1, …, α_K)              d = 1…D images
    3. region       z_dn ~ Categorical(θ_d),  r_dn ~ p(· | μ_{z_dn}, σ_{z_dn})              n = 1…N_d regions
    4. word         y_dm ~ Uniform(1, …, N_d),  w_dm ~ Categorical(β_{z_{d, y_dm}})         m = 1…M_d words

| site (latent variable) | letter | shape | support |
|---|---|---|---|
| `assignment` | z_dn (its q is φ_n) | (region, factor) | one-hot |
| `correspondence` | y_dm (its q is λ_m), a row for each *distinct* word of the caption | (caption, region) | one-hot |
| `proportions` | log θ_d (its q is Dirichlet(γ)) | (factor,) | simplex |

and the fields and latent variables of `AnnotatedModel`.

Departures from the source. The copies of one word share the q of their indicator, as they would at the optimum. The
last term of S_ni in the thesis has z_m where z_n is meant. Its p(w | r) lacks a factor 1/N; without it the sum over the
vocabulary is N.
"""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.annotated import AnnotatedModel, draw_log_weights
from lvsearch.models.contract import JointDraw, Latents, Masks, Site
from lvsearch.models.families import Categorical, Dirichlet
from lvsearch.models.units import AnnotatedImage


class CorrLDA(AnnotatedModel):
    """Correspondence LDA with `size` factors (mixture components of regions and caption words).

    The hyper-parameters are those of `AnnotatedModel`; `concentration` is that of the Dirichlet on an image's
    proportions.

    The caption of an image without regions is left out and contributes 0, since no region could have emitted it. To
    predict such a caption, the model uses the proportions of the image, Σ_k E[θ_k] β_k, as if one region had not been
    seen.

    `nested` is True: Proposition 1 of Chiang & Poole holds for the plug-in form with a free vector α. Proof: duplicate
    factor k and split α_k = (α_k − ε) + ε. By Dirichlet aggregation a region falls into the pair as often as it fell
    into factor k. What the region and its words are does not depend on which of the two it chose. So every image keeps
    its probability exactly.
    """

    nested: ClassVar[bool] = True
    representation: ClassVar[str] = "proportions"
    whole_images: ClassVar[bool] = False

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one image: the factor of each region, the region of each caption word, and the
        proportions of the factors.
        """
        return {
            "assignment": Site(Categorical(), ("region", "factor")),
            "correspondence": Site(Categorical(), ("caption", "region"), copies=lambda unit: unit.counts),
            "proportions": Site(Dirichlet(), ("factor",)),
        }

    def log_unit(self, g: Latents, l: Latents, unit: AnnotatedImage, on: Masks) -> Float[Array, ""]:
        """Return log p(θ) + Σ_n log p(z_n, r_n | θ) + Σ_m log p(y_m, w_m | z) of one image with its caption, in
        nats.

        θ are proportions of factors; z_n is the factor of region r_n; y_m is the region of caption word w_m.

        g: {"factor_word", "factor_region": statistics of the factors}.
        l: {"assignment": z, (region, factor); "correspondence": y, (caption, region); "proportions": log θ, (factor,)}.
        unit: the image. on: {"factor": mask of the factors that exist}.
        """
        z, y, log_theta = l["assignment"], l["correspondence"], l["proportions"]
        present, counts = jnp.asarray(unit.present), jnp.asarray(unit.counts)
        log_share = -jnp.log(
            jnp.maximum(present.sum(), 1).astype(counts.dtype)
        )  # log(1/N): each region is equally probable
        return (
            self.log_weights_prior(log_theta, on)  # log p(θ | α)
            + jnp.where(present[:, None], z * log_theta, 0).sum()  # Σ_n log p(z_n | θ)
            + (z * self.log_regions(g, unit)).sum()  # Σ_n log p(r_n | z_n)
            + (counts * y.sum(-1)).sum() * log_share  # Σ_m log p(y_m | N)
            + (y * (self.log_words(g, unit) @ z.T)).sum()  # Σ_m log p(w_m | y_m, z)
        )

    def region_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """Return the probability that each region is of each factor, shape (region, factor); 0 for absent regions."""
        return jnp.where(jnp.asarray(unit.present)[:, None], l["assignment"], 0)

    def word_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """Return the probability that each caption word is of each factor, shape (caption, factor).

        It is the factor of the word's region, averaged over which region the word belongs to.

        l: {"correspondence": (caption, region); "assignment": (region, factor)}.
        """
        return l["correspondence"] @ l["assignment"]

    def next_word_factor(self, point: Latents, unit: AnnotatedImage) -> Float[Array, " factor"]:
        """Return p(factor of one more caption word of this image), shape (factor,).

        It is (1/N) Σ_n p(factor of region n), the average over the image's N regions; E[θ] for an image without
        regions.

        point: {"assignment": probabilities, (region, factor); "proportions": log E[θ], (factor,)}. unit: the image.
        """
        present = jnp.asarray(unit.present)
        average = self.region_factor(point, unit).sum(0) / jnp.maximum(present.sum(), 1)
        return jnp.where(present.any(), average, jnp.exp(point["proportions"]))

    def captioned(self, units: AnnotatedImage) -> Bool[np.ndarray, " units"]:
        """Return True for each image that has regions, shape (units,): only then does its caption count."""
        return np.asarray(np.any(units.present, axis=-1))

    def simulate(
        self, key: Array, size: tuple[int, ...], units: AnnotatedImage, extents: Mapping[str, int]
    ) -> JointDraw:
        """Draw parameters, latent variables, regions and words from the joint. Words of images without regions are
        arbitrary.

        size: (number of factors,).
        units: images with one word in each column; they say how many images, regions and words there are.
        extents: {"word": V, "dim": D} with V words and D features of a region, or D distinct tokens.

        Returns (statistics of the globals by name, statistics of the locals by name with images leading, the images).
        """
        key_factors, key_theta, key_z, key_y, key_units = jax.random.split(key, 5)
        (n_images, n_words), n_regions = units.words.shape, units.present.shape[1]
        on = self.active(size, size)
        g = self.draw_factors(key_factors, size, extents)
        log_theta = draw_log_weights(key_theta, self.alpha(on), (n_images,))
        present = jnp.asarray(units.present)
        z = jax.random.categorical(key_z, log_theta[:, None, :], shape=(n_images, n_regions))
        y = jax.random.categorical(key_y, jnp.where(present, 0.0, -jnp.inf)[:, None, :], shape=(n_images, n_words))
        one_word = jnp.where(present.any(-1)[:, None, None], jax.nn.one_hot(y, n_regions), 0)
        l = {
            "assignment": jnp.where(present[..., None], jax.nn.one_hot(z, size[0]), 0),
            "correspondence": one_word,
            "proportions": log_theta,
        }
        return g, l, self._draw_units(key_units, g, l, units, on)
