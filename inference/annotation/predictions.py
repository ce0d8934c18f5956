"""Predictions of a fitted model of images with captions: captions of images, labels of regions, absent factors.

All predictions hold the parameters at their posterior means (plug-in: at the estimate), and condition on what is known:

    p(w | r) = Σ_k p(factor k of one more word | r) β_kw                    (Corr-LDA: (1/N) Σ_n φ_n; §4.1.1–4.1.3)
    p(w | r, r_n) = Σ_k φ_nk β_kw                                           (region labelling)

The thesis prints Corr-LDA's p(w | r) without its 1/N, and it then sums to N over the vocabulary.

For an image with its caption, the beliefs about its latent variables are the mean-field beliefs of the fit (§4.1.3).
For an image alone, each region's factor is found with the proportions integrated out, by the collapsed update (Asuncion
et al. 2009)

    φ_nk ∝ p(r_n | k) (α_k + Σ_{n' ≠ n} φ_n'k),

which is the posterior except that counts are replaced by their expected values. The thesis uses mean field here too.
With few regions and a small α, mean field's φ is far too sure (the tests compare it with enumeration), and captions are
predicted worse.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.annotation.tiles import Summary, blank_tile, settled_tile, tiles_of, to_float64
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.describing import Described, site_value
from lvsearch.inference.engine.estimate import Estimate, capacity_of, padded_natural, point_of
from lvsearch.inference.engine.meanfield import Beliefs, unit_bound
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.families import IndicatorFamily

UNIT_SWEEPS, UNIT_TOLERANCE = 100, 1e-4
"""The most mean-field sweeps over an image, and the change in nats below which they stop."""
COLLAPSED_SWEEPS = 30
"""The number of collapsed sweeps over an image without its caption."""


class CaptionedBeliefs(NamedTuple):
    r"""Beliefs about an image with its caption. Arrays have images on their leading axis.

    | field | meaning |
    |---|---|
    | `bound` | the evidence bound of the image, nats |
    | `representation` | the image's proportions or, for the mixture, p(factor \\| image), (factor,) |
    | `words` | the number of caption words |
    | `absent` | the number of caption words whose most probable factor is no region's most probable factor |
    """

    bound: Any
    representation: Any
    words: Any
    absent: Any


def captioned_beliefs(model: Any, g: Any, unit: Any, beliefs: Beliefs, on: Any) -> CaptionedBeliefs:
    """Return the evidence bound, the proportions, and the counts of caption words of one image with its caption.

    It is one function, so that one compiled program serves all questions.

    g: {global parameter: statistics}.
    unit: the image with its caption.
    beliefs: q of the image's latent variables.
    on: {axis: mask of the entries that exist}.
    """
    site = model.locals()[model.representation]
    point = site.family.point(beliefs.natural[model.representation], on["factor"])
    indicator = isinstance(site.family, IndicatorFamily)  # its expected value is a probability already
    regions, words = model.region_factor(beliefs.mean, unit), model.word_factor(beliefs.mean, unit)
    here = jnp.where(jnp.asarray(unit.present), regions.argmax(-1), -1)
    missing = ~(words.argmax(-1)[:, None] == here[None, :]).any(-1)
    counts = jnp.asarray(unit.counts)
    return CaptionedBeliefs(
        unit_bound(model, g, unit, beliefs, on),
        point if indicator else site.family.value(point, on["factor"]),
        counts.sum(),
        jnp.where(missing, counts, 0).sum(),
    )


class ImageBeliefs(NamedTuple):
    """Beliefs about an image without its caption. Arrays have images on their leading axis.

    | field | meaning |
    |---|---|
    | `next_word` | p(factor of one more caption word), (factor,) |
    | `regions` | p(factor of each region), (region, factor) |
    """

    next_word: Any
    regions: Any


def image_beliefs(model: Any, g: Any, unit: Any, beliefs: Beliefs, on: Any) -> ImageBeliefs:
    """Return p(next caption word's factor) and p(factor of each region) of one image whose caption is not seen.

    g: {global parameter: statistics}.
    unit: the image.
    beliefs: q of the image's latent variables after a mean-field sweep without the caption.
    on: {axis: mask of the entries that exist}.

    Where one factor stands for the whole image, `beliefs` are exact and are used. For other models the regions' factors
    are computed anew, with the proportions integrated out.
    """
    natural, mean, sites = dict(beliefs.natural), dict(beliefs.mean), model.locals()
    (image,) = (name for name, site in sites.items() if site.axes == ("factor",))
    for name, site in sites.items():
        if site.axes == ("region", "factor"):
            alpha = model.alpha(on)
            mean[name] = collapsed_factors(model.log_regions(g, unit), alpha, unit.present, on["factor"])
            natural[image] = alpha + mean[name].sum(0) - 1  # of the proportions, given the regions' factors
    points = {**mean, image: sites[image].family.point(natural[image], on["factor"])}
    return ImageBeliefs(model.next_word_factor(points, unit), model.region_factor(points, unit))


def collapsed_factors(
    log_density: Float[Array, "region factor"], alpha: Float[Array, " factor"], present: Any, exists: Any
) -> Float[Array, "region factor"]:
    """Return φ, the probability of each factor for each region of an image, with the proportions integrated out.

    log_density: log p(region | factor), (region, factor), nats.
    alpha: the concentration of the proportions, positive for factors that exist, (factor,).
    present: which regions exist, (region,).
    exists: which factors exist, (factor,).

    Returns: (region, factor). Rows of existing regions sum to 1; rows of absent regions are 0.
    """
    here = jnp.asarray(present)[:, None] & exists
    density = jnp.where(here, jax.nn.softmax(log_density, where=here), 0)  # up to a constant per row

    def sweep(_: Any, phi: Array) -> Array:
        new = density * (alpha + phi.sum(0) - phi)
        total = new.sum(-1, keepdims=True)
        return jnp.where(total > 0, new / jnp.where(total > 0, total, 1), 0)

    return jax.lax.fori_loop(0, COLLAPSED_SWEEPS, sweep, jnp.zeros_like(density))


def about_images(estimate: Estimate, data: Dataset) -> tuple[Dataset, list[CaptionedBeliefs]]:
    """Return (the images in tiles, beliefs about the images of each tile with their captions, in float64).

    estimate: a fit of a model of images with captions.
    data: the images.

    Raises ValueError for models without captions.
    """
    return _summarise_images(estimate, data, UNIT_SWEEPS, captioned_beliefs)


def images_alone(estimate: Estimate, data: Dataset) -> tuple[Dataset, list[ImageBeliefs]]:
    """Return (the images in tiles, beliefs about the images of each tile without their captions, in float64).

    estimate: a fit of a model of images with captions.
    data: the images, whose captions are not used.

    Raises ValueError for models without captions.
    """
    return _summarise_images(estimate, remove_captions(data), 1, image_beliefs)


def remove_captions(data: Dataset) -> Dataset:
    """Return the images with their captions removed."""

    def bare(batch: Batch) -> Batch:
        return Batch(batch.units._replace(counts=np.zeros_like(batch.units.counts)), batch.weight)

    return Dataset.of_batches(tuple(map(bare, data.batches)), data.unit_ids, data.extents, data.n_units)


def _summarise_images(estimate: Estimate, data: Dataset, sweeps: int, summary: Summary) -> tuple[Dataset, list[Any]]:
    """Return (the images in tiles, `summary` of the images of each tile), with parameters at their posterior means.

    All is computed in float64.

    sweeps: the most mean-field sweeps over each image.
    summary: what to compute of an image: (model, parameters, image, q, masks) -> a tuple of arrays.

    Raises ValueError for models without captions.
    """
    model, size = estimate.model, estimate.size
    if not isinstance(model, AnnotatedModel):
        raise ValueError(f"{type(model).__name__} has no captions; expected GMMixture, GMLDA or CorrLDA")
    capacity = capacity_of(size)
    if np.ndim(model.concentration):  # one program for all sizes of one capacity
        alpha = np.pad(model.concentration, (0, capacity[0] - size[0]), constant_values=1.0)
        model = model.with_parts(alpha, model.words, model.regions)
    tiles, done = tiles_of(data, capacity), []
    with jax.enable_x64(True):
        wide = padded_natural(model, estimate.natural, size, capacity, np.float64)
        point = point_of(model, wide, size, capacity=capacity)
        for tile in tiles.batches:
            batch = to_float64(tile)
            blank = blank_tile(model, batch, size, capacity=capacity)
            settled = settled_tile(
                model, point, batch, blank, size, UNIT_TOLERANCE, sweeps, capacity=capacity, summary=summary
            )
            done.append(jax.tree.map(np.asarray, settled))
    return tiles, done


def describe_annotated_images(model: AnnotatedModel, estimate: Estimate, data: Dataset) -> Described:
    """Describe images with captions by their shares of the factors and a lower bound on their log-probability.

    estimate: the fit, whose parameters are taken at their posterior means.

    Returns: shares (images, factor), and lower bounds on log p(regions, caption | parameters), (images,), in nats.
    """
    tiles, about = about_images(estimate, data)
    values = tiles.gather([a.representation for a in about])
    return Described(values[:, : estimate.size[0]], tiles.gather([a.bound for a in about]))


def caption_distributions(estimate: Estimate, data: Dataset) -> Float[np.ndarray, "images word"]:
    """Return p(word | regions) of one more caption word of every image, (images, word), rows summing to 1.

    The images' own captions are not used.

    estimate: a fit of a model of images with captions.
    """
    tiles, images = images_alone(estimate, data)
    return _word_distribution(estimate, tiles.gather([image.next_word for image in images]))


def region_distributions(estimate: Estimate, data: Dataset) -> list[Float[np.ndarray, "regions word"]]:
    """Return p(word | region, all regions) for every region: for each image an array (region, word), rows summing to 1.

    Captions are not used.

    estimate: a fit of a model of images with captions.

    Raises ValueError for a model in which regions have no words of their own.
    """
    tiles, images = images_alone(estimate, data)
    if cast(AnnotatedModel, estimate.model).whole_images:
        raise ValueError(
            f"{type(estimate.model).__name__} has no region labels: one factor stands for the whole image (§4.1.1). "
            "Label regions with CorrLDA or GMLDA"
        )
    rows: list[Any] = [None] * data.n_units
    for tile, ids, seen in zip(tiles.batches, tiles.unit_ids, images, strict=True):
        for row in np.flatnonzero(ids >= 0):
            rows[ids[row]] = _word_distribution(estimate, seen.regions[row][tile.units.present[row]])
    return rows


class AbsentFactors(NamedTuple):
    """Counts of caption words by the factor they most probably come from, the captions being known.

    words: how many caption words there are.
    absent: how many of them come from a factor that is no region's most probable factor.
    """

    words: float
    absent: float

    @property
    def share(self) -> float:
        """The share of words from absent factors; NaN if there are no words."""
        return self.absent / self.words if self.words else float("nan")


def absent_factors(estimate: Estimate, data: Dataset) -> AbsentFactors:
    """Return how many caption words are assigned to factors absent from their image (§4.2.2: GM-LDA, 54 %).

    estimate: a fit of a model of images with captions.
    data: the images with their captions.
    """
    words = absent = 0.0
    tiles, described = about_images(estimate, data)
    for ids, about in zip(tiles.unit_ids, described, strict=True):
        real = ids >= 0
        words += float(about.words[real].sum())
        absent += float(about.absent[real].sum())
    return AbsentFactors(words, absent)


def _word_distribution(estimate: Estimate, factors: np.ndarray) -> Float[np.ndarray, "things word"]:
    """Return Σ_k p(k) β_kw, the distribution over words w that a distribution over factors k implies, rows summing to
    1.

    β is the words' distribution of each factor, at its posterior mean.

    factors: p(k), (…, factor), padding included.
    """
    beta = np.asarray(site_value(estimate, "factor_word"), np.float64)
    distribution = factors[..., : estimate.size[0]] @ (beta / beta.sum(1, keepdims=True))
    return distribution / distribution.sum(-1, keepdims=True)
