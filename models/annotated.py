"""The base class of the three models of images and captions.

Source: Blei (2004), chapter 4. A factor (a mixture component) emits two kinds of rows: the regions of an image, of any
kind of component, and the words of its caption, as rows of counts with a single count. The models differ in how the
regions and words of one image choose their factors. A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `concentration` | α: () is the total, spread evenly over the factors; (K,) is one value per factor | | > 0 |
| `words` | β, its prior η | | `MultinomialComponents` |
| `regions` | μ, σ (or whatever the kind has), its prior | | `lvsearch.models.components` |
| site `factor_word` | log β | (factor, word) | simplex |
| site `factor_region` | statistics of a factor's parameters | (factor, dim, …) | |

Regions may be tokens too, such as words of a second language. A region is then stored as its vocabulary id, stands for
a row with a single count, and the axis "dim" is as long as that vocabulary.
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

from lvsearch.models.components.arguments import required_numbers
from lvsearch.models.components.component import Component, draw_parameters, draw_rows, log_likelihoods, log_prior
from lvsearch.models.components.counts import MultinomialComponents
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.contract import (
    HyperparameterArray,
    Latents,
    Masks,
    Model,
    Site,
    Statistics,
    first,
    hyperparameter,
    is_known_false,
    log_relabellings,
)
from lvsearch.models.families import Dirichlet
from lvsearch.models.units import AnnotatedImage, Row


def positive_concentration(value: Any) -> HyperparameterArray:
    """Return α, the concentration of the factors, as an array of shape () or (factor,).

    Raises ValueError unless `value` is a positive number, or a vector of positive numbers.
    """
    array = hyperparameter(value)
    if array.ndim > 1 or array.size == 0 or is_known_false(array > 0):
        raise ValueError(f"concentration must be a positive number, or one for each factor, got {value!r}")
    return array


def caption_words(words: MultinomialComponents | None) -> MultinomialComponents:
    """Return the distribution of caption words in a factor: `words`, or `MultinomialComponents(0.1)` for None.

    Raises ValueError for another kind of component.
    """
    if words is None:
        return MultinomialComponents(0.1)
    if not isinstance(words, MultinomialComponents):
        raise ValueError(f"got words={words!r}, expected MultinomialComponents(concentration)")
    return words


def region_components(regions: Component | None) -> Component:
    """Return the distribution of regions in a factor: `regions`, or a default for None.

    The default is Gaussians with independent columns, for standardised features.
    """
    if regions is None:
        return DiagonalComponents(pseudo_count=0.05, variance_floor=1e-3)
    return required_numbers(regions, "regions")


class AnnotatedModel(Model):
    """A model of images and captions through factors. `size_names` is ("factors",).

    concentration: total mass of the Dirichlet on the weights of the factors, spread evenly; or one value per factor.
        The weights are those of each image or of all images, depending on the model.
    words: the distribution of caption words in a factor (default `MultinomialComponents(0.1)`).
    regions: the distribution of regions in a factor, any kind of component. The default, Gaussians with independent
        columns, expects features of mean 0 and variance about 1 (`PairedCorpus.standardised`); its estimated variances
        are at least a thousandth of that. For regions that are tokens, give `MultinomialComponents(0.1)`.

    `whole_images` is True where one factor stands for an image with its caption: regions have no words of their own.

    Raises ValueError for a concentration that is not positive, for `regions` that are no component, and for components
    that infer their hyper-parameters.
    """

    concentration: HyperparameterArray = eqx.field(default=1.0, converter=positive_concentration)
    words: MultinomialComponents = eqx.field(default=None, converter=caption_words)
    regions: Component = eqx.field(default=None, converter=region_components)

    whole_images: eqx.AbstractClassVar[bool]  # pyright: ignore

    size_names: ClassVar[tuple[str, ...]] = ("factors",)
    unit_type: ClassVar[type] = AnnotatedImage

    # -- what each model says ---------------------------------------------------------------------------------------

    @abstractmethod
    def region_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """Return the probability that each region is of each factor, shape (region, factor); 0 for absent regions.

        l: {name: expected sufficient statistics} of the latent variables of this image. unit: the image.
        """

    @abstractmethod
    def word_factor(self, l: Latents, unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """Return the probability that each caption word is of each factor, shape (caption, factor).

        l: {name: expected sufficient statistics} of the latent variables of this image. unit: the image.
        """

    @abstractmethod
    def next_word_factor(self, point: Latents, unit: AnnotatedImage) -> Float[Array, " factor"]:
        """Return p(factor of one more caption word of this image), shape (factor,).

        point: {name: sufficient statistics at the posterior mean (`Family.point`)} of the latent variables of this
            image.
        unit: the image.
        """

    # -- the same for all -------------------------------------------------------------------------------------------

    def with_parts(self, concentration: Any, words: MultinomialComponents, regions: Component) -> "AnnotatedModel":
        """Return a model of the same class with new hyper-parameters.

        concentration: α of the factors' weights. words, regions: the kinds of components of caption words and of
            regions.
        """
        return type(self)(concentration, words, regions)  # pyright: ignore

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all images share: word distributions and region parameters of the
        factors.
        """
        return self.factor_sites()

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return the log prior density of the word distributions and region parameters of all factors, in nats.

        g: {"factor_word": log β, shape (factor, word); "factor_region": statistics of the region parameters}.
        on: {"factor": mask of the factors that exist}.
        """
        return self.log_factors_prior(g, on)

    def plug_in(self) -> "AnnotatedModel":
        """Return the model with its factors, and one weight per factor, estimated by maximum likelihood.

        Blei (2004, §4.1.3) calls this "empirical Bayes" (the left half of Figure 4.5). There are no pseudo-counts: a
        word that occurs in no training caption has probability 0.
        """
        return self.with_parts(self.concentration, self.words.plug_in(), self.regions.plug_in())

    def describe(self) -> str:
        """Describe the model in one line, such as "CorrLDA: concentration 1 in total, spread evenly (α = 1/K); …"."""
        total = float(np.sum(self.concentration))
        spread = "one α per factor" if np.ndim(self.concentration) else f"spread evenly (α = {total:g}/K)"
        return (
            f"{type(self).__name__}: concentration {total:g} in total, {spread}; words {self.words.describe()}; "
            f"regions {self.regions.describe()}"
        )

    def extents(self, unit: AnnotatedImage) -> dict[str, int | Bool[Array, " axis"]]:
        """Return {"region": mask of the regions that exist, "caption": number of columns of the caption, padding
        included}.
        """
        return {"region": jnp.asarray(unit.present), "caption": unit.words.shape[-1]}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"factor": mask of the factors that exist}, with the masks of axes that the kind of region
        component has.
        """
        return {"factor": first(size[0], capacity[0]), **self.regions.own_axes}

    def alpha(self, on: Masks) -> Float[Array, " factor"]:
        """Return α, the Dirichlet parameter of the weights of the factors, shape (factor,).

        on: {"factor": mask of the factors that exist}; the others get 0.
        """
        factor = on["factor"]
        if self.concentration.ndim == 0:
            return jnp.where(factor, self.concentration / factor.sum(), 0.0)
        return jnp.where(factor, jnp.pad(self.concentration, (0, len(factor) - len(self.concentration))), 0.0)

    def log_weights_prior(self, log_weights: Float[Array, " factor"], on: Masks) -> Float[Array, ""]:
        """Return log Dirichlet(weights | α), the log prior density of the weights of the factors, in nats.

        log_weights: shape (factor,). on: {"factor": mask of the factors that exist}.
        """
        factor = on["factor"]
        alpha = self.alpha(on).astype(log_weights.dtype)
        safe = jnp.where(factor, alpha, 1.0)  # log Γ(0) would be inf, and inf · 0 is not 0
        return gammaln(alpha.sum()) + jnp.where(factor, (safe - 1) * log_weights - gammaln(safe), 0.0).sum()

    def factor_sites(self) -> dict[str, Site]:
        """Return the latent variables of the factors by name: their word distributions and their region parameters."""
        return {
            "factor_word": Site(self.words.family, ("factor", "word")),
            "factor_region": Site(self.regions.family, ("factor", *self.regions.axes)),
        }

    def log_factors_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log p(β) + log p(μ, σ) of the factors that exist, in nats; estimated parameters have no prior and add
        0.

        β are word distributions; μ and σ are the parameters of regions.

        g: {"factor_word": log β, shape (factor, word); "factor_region": statistics of the region parameters}.
        on: {"factor": mask of the factors that exist}.
        """
        per_factor = log_prior(self.words, g["factor_word"], {}) + log_prior(self.regions, g["factor_region"], {})
        return jnp.where(on["factor"], per_factor, 0.0).sum()

    def log_regions(self, g: Latents, unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """Return log p(region n | factor) of each region of one image, in nats, shape (region, factor); 0 for absent
        regions.

        g: {"factor_region": statistics of the factors' region parameters}. unit: the image.
        """
        present = jnp.asarray(unit.present)
        if jnp.ndim(unit.regions) == 1:
            tokens = jnp.where(present, unit.regions, 0)
            each = self._token_regions().log_tokens(g["factor_region"], tokens)
        else:
            each = log_likelihoods(self.regions, g["factor_region"], region_rows(unit))
        return jnp.where(present[:, None], each, 0.0)

    def log_words(self, g: Latents, unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """Return the log-likelihood of all copies of each caption word under each factor, in nats, shape (caption,
        factor).

        g: {"factor_word": log β, shape (factor, word)}. unit: the image. Padding gets 0.
        """
        return jnp.asarray(unit.counts)[:, None] * self.words.log_tokens(g["factor_word"], unit.words)

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K factors in groups of m_j identical ones: the log number of
        relabellings.

        size: (K,). natural: {name: natural parameters} of the factors, axis of factors first.
        """
        leaves = jax.tree.leaves([natural[name] for name in self.factor_sites()])
        rows = [np.asarray(leaf)[: size[0]].reshape(size[0], -1) for leaf in leaves]
        return log_relabellings(np.concatenate(rows, axis=1))

    def check(self, units: AnnotatedImage) -> None:
        """Raise ValueError if the kind of region component gives the regions no density, such as tokens under a
        Gaussian.

        units: all images.
        """
        if np.ndim(units.regions) == np.ndim(units.present):
            self._token_regions()
        else:
            self.regions.check(_flat_rows(units))

    def ceiling(self, units: AnnotatedImage) -> float:
        """Return an upper bound on the log-likelihood under any number of factors, in nats; `inf` where there is none.

        Words, and regions that are tokens, count with the saturated model Σ_u Σ_v n_uv log(n_uv / N_u), where n_uv is
        how often image u has word v. Other regions count with the greatest density under any one factor, which is
        infinite for Gaussians whose precisions are integrated out.

        Proof: given the latents, regions and words of an image are independent, and each factor's word distribution is
        an average over parameters. By Gibbs' inequality Σ_v n_v log p_v over the simplex is greatest at p_v = n_v / N.
        """
        self.check(units)
        present, counts = np.asarray(units.present), np.asarray(units.counts) * self.captioned(units)[:, None]
        if np.ndim(units.regions) == np.ndim(units.present):
            regions_ceiling = _log_saturated(units.regions, present)
        else:
            regions_ceiling = float(self.regions.log_ceiling(_flat_rows(units)).sum())
        return regions_ceiling + _log_saturated(units.words, counts)

    def captioned(self, units: AnnotatedImage) -> Bool[np.ndarray, " units"]:
        """Return True for each image whose caption contributes to the likelihood, shape (units,): for every image.

        units: all images.
        """
        return np.ones(len(units.counts), bool)

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: AnnotatedImage, on: Masks) -> AnnotatedImage:
        """Draw every region and every word of one image, given the factor of each.

        g: {"factor_word": log β, shape (factor, word); "factor_region": statistics of the region parameters}.
        l: {name: statistics} of the latent variables of this image.
        unit: an image with one word in every caption column (counts 0 or 1); its regions and words are replaced.
        """
        key_regions, key_words = jax.random.split(key)
        shares = self.region_factor(l, unit)
        if jnp.ndim(unit.regions) == 1:
            regions = jax.random.categorical(key_regions, shares @ g["factor_region"])
        else:
            chosen = jnp.argmax(shares, axis=-1)  # absent regions are drawn too, and ignored later
            regions = draw_rows(self.regions, key_regions, g["factor_region"], chosen, region_rows(unit))
        words = jax.random.categorical(key_words, self.word_factor(l, unit) @ g["factor_word"])
        return AnnotatedImage(
            regions.astype(unit.regions.dtype), unit.present, words.astype(unit.words.dtype), unit.counts
        )

    def draw_factors(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """Draw word distributions and region parameters of the factors from their priors, and return their statistics
        by name.

        size: (number of factors,). extents: {"word": number of words, "dim": number of features of a region}.

        Raises ValueError for estimated parameters, which have no prior.
        """
        key_words, key_regions = jax.random.split(key)
        return {
            "factor_word": draw_parameters(self.words, key_words, size[0], extents["word"]),
            "factor_region": draw_parameters(self.regions, key_regions, size[0], extents["dim"]),
        }

    def _token_regions(self) -> MultinomialComponents:
        """Return `regions`, the kind of component of regions that are tokens. Raises ValueError if it is another
        kind.
        """
        if not isinstance(self.regions, MultinomialComponents):
            raise ValueError(
                f"got regions that are tokens for {type(self.regions).__name__}, expected real features: give the "
                "model regions=lv.models.MultinomialComponents(0.1)"
            )
        return self.regions


def region_rows(unit: AnnotatedImage) -> Row:
    """Return the regions of one image as stacked rows, (region, dim); an absent region has no observed cell."""
    present = jnp.asarray(unit.present)[:, None]
    return Row(unit.regions, jnp.broadcast_to(present, jnp.shape(unit.regions)))


def draw_log_weights(
    key: Array, alpha: Float[Array, " factor"], shape: tuple[int, ...]
) -> Float[Array, "*shape factor"]:
    """Draw log-weights from Dirichlet(α). The log scale keeps sparse draws from underflowing to 0.

    alpha: the parameters, shape (factor,).
    shape: the leading axes of the result, before the axis of factors.
    """
    return Dirichlet().sample(key, jnp.broadcast_to(alpha - 1, (*shape, len(alpha))))


def _flat_rows(units: AnnotatedImage) -> Row:
    """Return the regions of all images as stacked rows, one image after another, shape (images · regions, dim)."""
    regions, present = np.asarray(units.regions), np.asarray(units.present)
    observed = np.broadcast_to(present[..., None], regions.shape)
    return Row(regions.reshape(-1, regions.shape[-1]), observed.reshape(-1, regions.shape[-1]))


def _log_saturated(ids: Any, times: Any) -> float:
    """Return Σ_u Σ_v n_uv log(n_uv / N_u) in nats: the log-likelihood if each image had its own frequencies.

    n_uv is how often image u has id v, and N_u = Σ_v n_uv.

    ids: the vocabulary ids, shape (image, column).
    times: how often each id occurs, same shape; 0 for padding.
    """
    return sum(_log_saturated_unit(np.asarray(i), np.asarray(n)) for i, n in zip(ids, times, strict=True))


def _log_saturated_unit(ids: np.ndarray, times: np.ndarray) -> float:
    """Return Σ_v n_v log(n_v / N) of one image in nats, where n_v is how often id v occurs, and N = Σ_v n_v.

    ids: vocabulary ids, shape (column,). times: how often each occurs. An empty image gives 0.
    """
    counts = np.bincount(ids[times > 0], weights=times[times > 0])
    counts = counts[counts > 0]
    return float((counts * np.log(counts / counts.sum())).sum()) if len(counts) else 0.0
