"""What the three models of images and captions share: emissions, sites, and what tasks ask of a factor.

Source: Blei (2004), chapter 4. Every factor emits regions (`DiagonalGaussian` features or `Multinomial` tokens) and
caption words (`Multinomial`); the models differ in how the regions and words of one image choose their factors.

| field | letter | shape | support |
|---|---|---|---|
| `concentration` | α: () is the total, spread evenly over the factors; (K,) is one value per factor | | > 0 |
| `words` | β, its prior η | | an `Emission` |
| `regions` | μ, σ (or a distribution over tokens), its prior | | an `Emission` |
| site `factor_word` | log β | (factor, word) | simplex |
| site `factor_region` | (log τ, −τ, τμ, −τμ²/2), τ = 1/σ² | (factor, dim) | real and positive |
| or, with tokens | log p(token | factor) | (factor, token) | simplex |
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from lvsearch.models.contract import HyperparameterArray, Masks, Model, Site, Statistics, first, hyperparameter, refuted
from lvsearch.models.emissions import DiagonalGaussian, Emission, Multinomial
from lvsearch.models.families import Dirichlet
from lvsearch.models.relabelling import log_relabellings
from lvsearch.models.units import AnnotatedImage


def positive_concentration(value: Any) -> HyperparameterArray:
    """α as a hyper-parameter: a number or one value per factor. ValueError unless positive."""
    array = hyperparameter(value)
    if array.ndim > 1 or array.size == 0 or refuted(array > 0):
        raise ValueError(f"concentration must be a positive number, or one for each factor, got {value!r}")
    return array


def caption_words(words: Multinomial | None) -> Multinomial:
    """The emission of caption words, on the axis "word"; `Multinomial(0.1)` unless another is given."""
    return Multinomial((Multinomial() if words is None else words).concentration, "word")


def region_emission(regions: Emission | None) -> Emission:
    """The emission of regions; Gaussian unless another is given."""
    return DiagonalGaussian() if regions is None else regions


class AnnotatedModel(Model):
    """A model of images and captions through factors.

    concentration: total mass of the Dirichlet on the factors' weights, of each image or of all, spread evenly, or one
        value per factor.
    words: the emission of caption words (default `Multinomial(0.1)`), on the axis "word" whatever its own.
    regions: the emission of regions (default `DiagonalGaussian()`; `Multinomial()` for tokens).

    Raises ValueError for a concentration that is not positive.

    `size_names` is ("factors",). `whole_images`: whether one factor stands for an image with its caption, so that
    regions have no words of their own.
    """

    concentration: HyperparameterArray = eqx.field(default=1.0, converter=positive_concentration)
    words: Multinomial = eqx.field(default=None, converter=caption_words)
    regions: Emission = eqx.field(default=None, converter=region_emission)

    whole_images: eqx.AbstractClassVar[bool]  # pyright: ignore

    size_names: ClassVar[tuple[str, ...]] = ("factors",)
    unit_type: ClassVar[type] = AnnotatedImage

    # -- what each model says ---------------------------------------------------------------------------------------

    @abstractmethod
    def region_factor(self, l: Mapping[str, Statistics], unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """E[indicator of each region's factor] from the statistics of the locals; 0 for regions that are absent."""

    @abstractmethod
    def word_factor(self, l: Mapping[str, Statistics], unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """E[indicator of each caption word's factor] from the statistics of the locals."""

    @abstractmethod
    def next_word_factor(self, point: Mapping[str, Statistics], unit: AnnotatedImage) -> Float[Array, " factor"]:
        """p(factor of one more caption word), from the locals at their posterior means (`Family.point`)."""

    # -- the same for all -------------------------------------------------------------------------------------------

    def with_parts(self, concentration: Any, words: Multinomial, regions: Emission) -> "AnnotatedModel":
        """The same model with these parts."""
        return type(self)(concentration, words, regions)  # pyright: ignore

    def globals(self) -> dict[str, Site]:
        return self.emission_sites()

    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        return self.log_emissions_prior(g, on)

    def plug_in(self) -> "AnnotatedModel":
        """Both emissions by maximum likelihood, and one weight per factor estimated too: "empirical Bayes" in §4.1.3,
        whose left half of Figure 4.5 it is. No pseudo-counts: a caption word that no training caption has gets none.
        """
        return self.with_parts(self.concentration, self.words.plug_in(), self.regions.plug_in())

    def describe(self) -> str:
        """Such as "CorrLDA: concentration 1 in total, spread evenly (α = 1/K); words multinomial ~ Dirichlet(0.1)…"."""
        total = float(np.sum(self.concentration))
        spread = "one α per factor" if np.ndim(self.concentration) else f"spread evenly (α = {total:g}/K)"
        return (
            f"{type(self).__name__}: concentration {total:g} in total, {spread}; words {self.words.describe()}; "
            f"regions {self.regions.describe()}"
        )

    def extents(self, unit: AnnotatedImage) -> dict[str, int | Bool[Array, " axis"]]:
        return {"region": jnp.asarray(unit.present), "caption": unit.words.shape[-1]}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        return {"factor": first(size[0], capacity[0])}

    def alpha(self, on: Masks) -> Float[Array, " factor"]:
        """The Dirichlet parameter of the factors' weights; 0 for factors that do not exist."""
        factor = on["factor"]
        if self.concentration.ndim == 0:
            return jnp.where(factor, self.concentration / factor.sum(), 0.0)
        return jnp.where(factor, jnp.pad(self.concentration, (0, len(factor) - len(self.concentration))), 0.0)

    def log_weights_prior(self, log_weights: Float[Array, " factor"], on: Masks) -> Float[Array, ""]:
        """log Dirichlet(weights | α), nats."""
        factor = on["factor"]
        alpha = self.alpha(on).astype(log_weights.dtype)
        safe = jnp.where(factor, alpha, 1.0)  # log Γ(0) would be inf, and inf · 0 is not 0
        return gammaln(alpha.sum()) + jnp.where(factor, (safe - 1) * log_weights - gammaln(safe), 0.0).sum()

    def emission_sites(self) -> dict[str, Site]:
        return {"factor_word": self.words.site, "factor_region": self.regions.site}

    def log_emissions_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        """log p(β) + log p(μ, σ), nats, of the factors that exist."""
        per_factor = self.words.log_prior(g["factor_word"]) + self.regions.log_prior(g["factor_region"])
        return jnp.where(on["factor"], per_factor, 0.0).sum()

    def log_regions(self, g: Mapping[str, Statistics], unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """log p(r_n | factor), nats; 0 where there is no region."""
        present = jnp.asarray(unit.present)
        shaped = present if jnp.ndim(unit.regions) == 1 else present[:, None]
        things = jnp.where(shaped, unit.regions, jnp.zeros_like(unit.regions))
        return jnp.where(present[:, None], self.regions.log_density(g["factor_region"], things), 0.0)

    def log_words(self, g: Mapping[str, Statistics], unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """Σ over copies of log p(w_m | factor), nats; 0 for padding."""
        return jnp.asarray(unit.counts)[:, None] * self.words.log_density(g["factor_word"], unit.words)

    def log_symmetry(self, size: tuple[int, ...], natural: Mapping[str, Statistics]) -> float:
        """log(K! / Π m_j!) in nats, m_j the sizes of groups of factors with the same emissions."""
        leaves = jax.tree.leaves([natural[name] for name in self.emission_sites()])
        return log_relabellings(np.concatenate([np.asarray(leaf)[: size[0]] for leaf in leaves], axis=1))

    def ceiling(self, units: AnnotatedImage) -> float:
        """The sum of the emissions' ceilings (whose proofs they give): given the latents, regions and words of an image
        are independent. `inf` for Gaussian regions whose precisions are integrated out."""
        counts = np.asarray(units.counts) * self.captioned(units)[:, None]
        present = np.asarray(units.present)
        return self.regions.ceiling(units.regions, present) + self.words.ceiling(units.words, counts)

    @abstractmethod
    def captioned(self, units: AnnotatedImage) -> Bool[np.ndarray, " units"]:
        """Which images' captions the model counts."""

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: AnnotatedImage, on: Masks
    ) -> AnnotatedImage:
        """Draw every region and every word; needs one word a column (counts 0 or 1), since copies may differ."""
        key_regions, key_words = jax.random.split(key)
        regions = self.regions.draw(key_regions, g["factor_region"], self.region_factor(l, unit), unit.regions)
        words = self.words.draw(key_words, g["factor_word"], self.word_factor(l, unit), unit.words)
        return AnnotatedImage(regions, unit.present, words, unit.counts)

    def draw_emissions(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """The emissions' parameters from their priors."""
        key_words, key_regions = jax.random.split(key)
        sites = self.emission_sites()
        lengths = [extents[sites[name].axes[1]] for name in ("factor_word", "factor_region")]
        return {
            "factor_word": self.words.draw_parameters(key_words, size[0], lengths[0]),
            "factor_region": self.regions.draw_parameters(key_regions, size[0], lengths[1]),
        }


def draw_log_weights(
    key: Array, alpha: Float[Array, " factor"], shape: tuple[int, ...]
) -> Float[Array, "*shape factor"]:
    """Dirichlet(α) draws on the log scale: sparse draws underflow."""
    return Dirichlet().sample(key, jnp.broadcast_to(alpha - 1, (*shape, len(alpha))))
