"""Predictions of images and captions: captions of images, labels of regions, words from absent factors.

All predictions hold the parameters at their posterior means (plug-in: at the estimate), and condition on what is known
(`describing`):

    p(w | r) = Σ_k p(factor k of one more word | r) β_kw                    (Corr-LDA: (1/N) Σ_n φ_n; §4.1.1–4.1.3)
    p(w | r, r_n) = Σ_k φ_nk β_kw                                           (region labelling)

The thesis prints Corr-LDA's p(w | r) without its 1/N, and it then sums to N over the vocabulary.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from lvsearch.inference.annotation.describing import about_images, images_alone
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.unit_scores import site_value
from lvsearch.models.annotated import AnnotatedModel


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
