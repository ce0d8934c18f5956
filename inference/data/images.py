"""Images with captions: regions and words in the form in which they came, and batches padded to few lengths."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_array

from lvsearch.inference.data.dataset import Batch, Dataset, UnitBatches
from lvsearch.models.units import AnnotatedImage

IMAGES_PER_BATCH = 4096
"""The most images in one batch."""
IMAGES_STEP = 8
"""Batches are padded to a multiple of this many images: folds whose sizes differ by one then share their programs.
"""
CAPTION_STEP, REGION_STEP = 4, 2
"""Lengths of captions and numbers of regions are padded to multiples of these.

Training and test data, whose longest differ a little, then share their programs.
"""
SMALLEST_SHARE = 1 / 8
"""A padded length needs at least this share of the images. Otherwise they are padded to the next longer one."""


@dataclass(frozen=True)
class RaggedImages:
    """Images with captions in the form in which they came, with any number of regions each.

    regions: (all regions, dim) features, or (all regions,) tokens. Regions of one image stand next to each other.
    region_counts: (images,), how many regions each image has.
    captions: counts (images, words).
    n_tokens: the size of the vocabulary of region tokens; None for features.
    """

    regions: np.ndarray
    region_counts: Int[np.ndarray, " images"]
    captions: csr_array
    n_tokens: int | None

    @property
    def extents(self) -> Mapping[str, int]:
        """The numbers of caption words, and of features or region tokens, as {"word": number, "dim": number}."""
        length = self.regions.shape[1] if self.n_tokens is None else self.n_tokens
        return {"word": self.captions.shape[1], "dim": length}

    @property
    def n_units(self) -> int:
        """The number of images."""
        return len(self.region_counts)

    def to_batches(self) -> UnitBatches:
        """Divide the images into batches of `AnnotatedImage`, padded to few lengths.

        Images of one length are dealt to its batches round-robin.
        """
        counts, captions = self.region_counts, self.captions
        offsets = np.concatenate([[0], np.cumsum(counts)])
        lengths = np.diff(captions.indptr)
        caption_length = _round_up(int(lengths.max(initial=0)), CAPTION_STEP)
        batches, unit_ids = [], []
        for length, members in _group_by_length(counts):
            n_batches = -(-len(members) // IMAGES_PER_BATCH)
            longest = -(-len(members) // n_batches)
            rows = -(-longest // IMAGES_STEP) * IMAGES_STEP
            for start in range(n_batches):
                chosen = members[start::n_batches]
                # regions: (image, region), filled from the ragged array where a region is present
                present = np.arange(length) < counts[chosen][:, None]
                held = np.zeros((rows, length, *self.regions.shape[1:]), self.regions.dtype)
                held[: len(chosen)][present] = self.regions[_concatenate_spans(offsets[chosen], counts[chosen])]
                # captions: the distinct words of each image and how often they occur
                has = np.arange(caption_length) < lengths[chosen][:, None]
                entries = _concatenate_spans(captions.indptr[chosen], lengths[chosen])
                words, times = np.zeros((rows, caption_length), np.int32), np.zeros((rows, caption_length))
                words[: len(chosen)][has], times[: len(chosen)][has] = captions.indices[entries], captions.data[entries]
                padding = rows - len(chosen)
                unit = AnnotatedImage(held, np.pad(present, ((0, padding), (0, 0))), words, times)
                batches.append(Batch(unit, (np.arange(rows) < len(chosen)).astype(np.float32)))
                unit_ids.append(np.pad(chosen, (0, padding), constant_values=-1))
        return UnitBatches(tuple(batches), tuple(unit_ids))


def annotated_images(
    regions: np.ndarray, region_counts: Int[np.ndarray, " images"], captions: csr_array, n_tokens: int | None
) -> Dataset:
    """Return the data set of images with captions. Engines cast to their own precision.

    regions: (all regions, dim) features, float64, or (all regions,) tokens. Regions of one image stand next to each
    other.
    region_counts: (images,), how many regions each image has.
    captions: counts (images, words).
    n_tokens: the size of the vocabulary of region tokens; None for features.
    """
    return Dataset(RaggedImages(regions, region_counts, captions, n_tokens))


def has_tokens(data: Dataset) -> bool:
    """Return True if the images' regions are tokens of a vocabulary, rather than rows of features."""
    if isinstance(data.original, RaggedImages):
        return data.original.n_tokens is not None
    units = data.batches[0].units
    return np.ndim(units.regions) == np.ndim(units.present)


def _group_by_length(region_counts: Int[np.ndarray, " images"]) -> list[tuple[int, Int[np.ndarray, " some"]]]:
    """Return pairs (padded number of regions, numbers of the images padded to it).

    The padded numbers are the largest, half of it, a quarter, … as far as enough images have so few regions.
    """
    length, left, groups = _round_up(int(region_counts.max(initial=0)), REGION_STEP), np.arange(len(region_counts)), []
    while len(left):
        short = region_counts[left] <= length // 2
        if length == 1 or short.mean() < SMALLEST_SHARE:
            groups.append((length, left))
            break
        if not short.all():
            groups.append((length, left[~short]))
        length, left = length // 2, left[short]
    return groups


def _round_up(length: int, step: int) -> int:
    """Return `length` rounded up to a multiple of `step`, at least one step."""
    return max(-(-length // step), 1) * step


def _concatenate_spans(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers starts[i], …, starts[i] + counts[i] − 1, one span after the other."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
