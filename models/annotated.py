"""What the three models of images and captions share: what factors emit, sites, and what tasks ask of a factor.

Source: Blei (2004), chapter 4. Every factor is a component of two kinds of rows: regions, of any kind of component,
and caption words, rows of counts with a single count. The models differ in how the regions and words of one image
choose their factors.

| field | letter | shape | support |
|---|---|---|---|
| `concentration` | α: () is the total, spread evenly over the factors; (K,) is one value per factor | | > 0 |
| `words` | β, its prior η | | `MultinomialComponents` |
| `regions` | μ, σ (or whatever the kind has), its prior | | `lvsearch.models.components` |
| site `factor_word` | log β | (factor, word) | simplex |
| site `factor_region` | statistics of a factor's parameters | (factor, dim, …) | |

A region that is a token is a row with a single count too, known by its place: "dim" is then as long as the vocabulary.
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

from lvsearch.models.components.component import (
    Component,
    draw_parameters,
    draw_rows,
    log_likelihoods,
    log_prior,
    required_numbers,
)
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.components.multinomial import MultinomialComponents
from lvsearch.models.contract import HyperparameterArray, Masks, Model, Site, Statistics, first, hyperparameter, refuted
from lvsearch.models.families import Dirichlet
from lvsearch.models.relabelling import log_relabellings
from lvsearch.models.units import AnnotatedImage, Row


def positive_concentration(value: Any) -> HyperparameterArray:
    """α as a hyper-parameter: a number or one value per factor. ValueError unless positive."""
    array = hyperparameter(value)
    if array.ndim > 1 or array.size == 0 or refuted(array > 0):
        raise ValueError(f"concentration must be a positive number, or one for each factor, got {value!r}")
    return array


def caption_words(words: MultinomialComponents | None) -> MultinomialComponents:
    """What factors emit as caption words; `MultinomialComponents(0.1)` unless another is given."""
    if words is None:
        return MultinomialComponents(0.1)
    if not isinstance(words, MultinomialComponents):
        raise ValueError(f"got words={words!r}, expected MultinomialComponents(concentration)")
    return words


def region_components(regions: Component | None) -> Component:
    """What factors emit as regions; Gaussians with independent columns, for standardised features, unless another is
    given."""
    if regions is None:
        return DiagonalComponents(pseudo_count=0.05, variance_floor=1e-3)
    return required_numbers(regions, "regions")


class AnnotatedModel(Model):
    """A model of images and captions through factors.

    concentration: total mass of the Dirichlet on the factors' weights, of each image or of all, spread evenly, or one
        value per factor.
    words: what a factor's caption words are (default `MultinomialComponents(0.1)`).
    regions: what its regions are, of any kind of component. The default, Gaussians with independent columns, expects
        features of mean 0 and variance about 1 (`PairedCorpus.standardised`), and of estimated variances none below a
        thousandth of that; `MultinomialComponents(0.1)` for tokens.

    Raises ValueError for a concentration that is not positive, and for what is no kind of component or infers its
    hyper-parameters.

    `size_names` is ("factors",). `whole_images`: whether one factor stands for an image with its caption, so that
    regions have no words of their own.
    """

    concentration: HyperparameterArray = eqx.field(default=1.0, converter=positive_concentration)
    words: MultinomialComponents = eqx.field(default=None, converter=caption_words)
    regions: Component = eqx.field(default=None, converter=region_components)

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

    def with_parts(self, concentration: Any, words: MultinomialComponents, regions: Component) -> "AnnotatedModel":
        """The same model with these parts."""
        return type(self)(concentration, words, regions)  # pyright: ignore

    def globals(self) -> dict[str, Site]:
        return self.factor_sites()

    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        return self.log_factors_prior(g, on)

    def plug_in(self) -> "AnnotatedModel":
        """Factors by maximum likelihood, and one weight per factor estimated too: "empirical Bayes" in §4.1.3,
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
        return {"factor": first(size[0], capacity[0]), **self.regions.own_axes}

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

    def factor_sites(self) -> dict[str, Site]:
        return {
            "factor_word": Site(self.words.family, ("factor", "word")),
            "factor_region": Site(self.regions.family, ("factor", *self.regions.axes)),
        }

    def log_factors_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        """log p(β) + log p(μ, σ), nats, of the factors that exist; estimated ones have none."""
        per_factor = log_prior(self.words, g["factor_word"], {}) + log_prior(self.regions, g["factor_region"], {})
        return jnp.where(on["factor"], per_factor, 0.0).sum()

    def log_regions(self, g: Mapping[str, Statistics], unit: AnnotatedImage) -> Float[Array, "region factor"]:
        """log p(r_n | factor), nats; 0 where there is no region."""
        present = jnp.asarray(unit.present)
        if jnp.ndim(unit.regions) == 1:
            tokens = jnp.where(present, unit.regions, 0)
            each = self._of_tokens().log_tokens(g["factor_region"], tokens)
        else:
            each = log_likelihoods(self.regions, g["factor_region"], region_rows(unit))
        return jnp.where(present[:, None], each, 0.0)

    def log_words(self, g: Mapping[str, Statistics], unit: AnnotatedImage) -> Float[Array, "caption factor"]:
        """Σ over copies of log p(w_m | factor), nats; 0 for padding."""
        return jnp.asarray(unit.counts)[:, None] * self.words.log_tokens(g["factor_word"], unit.words)

    def log_symmetry(self, size: tuple[int, ...], natural: Mapping[str, Statistics]) -> float:
        """log(K! / Π m_j!) in nats, m_j the sizes of groups of factors that emit alike."""
        leaves = jax.tree.leaves([natural[name] for name in self.factor_sites()])
        rows = [np.asarray(leaf)[: size[0]].reshape(size[0], -1) for leaf in leaves]
        return log_relabellings(np.concatenate(rows, axis=1))

    def check(self, units: AnnotatedImage) -> None:
        """Raise ValueError for regions that have no density here: tokens for features, features for counts…"""
        if np.ndim(units.regions) == np.ndim(units.present):
            self._of_tokens()
        else:
            self.regions.check(_flat_rows(units))

    def ceiling(self, units: AnnotatedImage) -> float:
        """Σ_u Σ_v n_uv log(n_uv / N_u) of words, n_uv how often image u has word v, and likewise of regions that are
        tokens: the saturated model; of other regions the sum of the greatest densities under any one factor, `inf` for
        Gaussians whose precisions are integrated out.

        Proof: given the latents, regions and words of an image are independent, each factor's distribution of words an
        average, and Σ_v n_v log p_v over the simplex is greatest at p_v = n_v / N (Gibbs' inequality).
        """
        self.check(units)
        present, counts = np.asarray(units.present), np.asarray(units.counts) * self.captioned(units)[:, None]
        if np.ndim(units.regions) == np.ndim(units.present):
            of_regions = _saturated(units.regions, present)
        else:
            of_regions = float(self.regions.log_ceiling(_flat_rows(units)).sum())
        return of_regions + _saturated(units.words, counts)

    @abstractmethod
    def captioned(self, units: AnnotatedImage) -> Bool[np.ndarray, " units"]:
        """Which images' captions the model counts."""

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: AnnotatedImage, on: Masks
    ) -> AnnotatedImage:
        """Draw every region and every word; needs one word a column (counts 0 or 1), since copies may differ."""
        key_regions, key_words = jax.random.split(key)
        shares = self.region_factor(l, unit)
        if jnp.ndim(unit.regions) == 1:
            regions = jax.random.categorical(key_regions, shares @ g["factor_region"])
        else:
            chosen = jnp.argmax(shares, axis=-1)  # absent ones are drawn too, and ignored
            regions = draw_rows(self.regions, key_regions, g["factor_region"], chosen, region_rows(unit))
        words = jax.random.categorical(key_words, self.word_factor(l, unit) @ g["factor_word"])
        return AnnotatedImage(
            regions.astype(unit.regions.dtype), unit.present, words.astype(unit.words.dtype), unit.counts
        )

    def draw_factors(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """What factors emit, from the priors. ValueError for estimated ones, which have none."""
        key_words, key_regions = jax.random.split(key)
        return {
            "factor_word": draw_parameters(self.words, key_words, size[0], extents["word"]),
            "factor_region": draw_parameters(self.regions, key_regions, size[0], extents["dim"]),
        }

    def _of_tokens(self) -> MultinomialComponents:
        """The kind of regions that are tokens. ValueError for another kind."""
        if not isinstance(self.regions, MultinomialComponents):
            raise ValueError(
                f"got regions that are tokens for {type(self.regions).__name__}, expected real features: give the "
                "model regions=lv.models.MultinomialComponents(0.1)"
            )
        return self.regions


def region_rows(unit: AnnotatedImage) -> Row:
    """The regions of an image as rows; of those that are absent no cell was observed."""
    present = jnp.asarray(unit.present)[:, None]
    return Row(unit.regions, jnp.broadcast_to(present, jnp.shape(unit.regions)))


def draw_log_weights(
    key: Array, alpha: Float[Array, " factor"], shape: tuple[int, ...]
) -> Float[Array, "*shape factor"]:
    """Dirichlet(α) draws on the log scale: sparse draws underflow."""
    return Dirichlet().sample(key, jnp.broadcast_to(alpha - 1, (*shape, len(alpha))))


def _flat_rows(units: AnnotatedImage) -> Row:
    """The regions of all images as rows."""
    regions, present = np.asarray(units.regions), np.asarray(units.present)
    observed = np.broadcast_to(present[..., None], regions.shape)
    return Row(regions.reshape(-1, regions.shape[-1]), observed.reshape(-1, regions.shape[-1]))


def _saturated(ids: Any, times: Any) -> float:
    """Σ_u Σ_v n_uv log(n_uv / N_u), nats, of each unit's ids (unit, thing) and how often each occurs."""
    return sum(_saturated_unit(np.asarray(i), np.asarray(n)) for i, n in zip(ids, times, strict=True))


def _saturated_unit(ids: np.ndarray, times: np.ndarray) -> float:
    counts = np.bincount(ids[times > 0], weights=times[times > 0])
    counts = counts[counts > 0]
    return float((counts * np.log(counts / counts.sum())).sum()) if len(counts) else 0.0
