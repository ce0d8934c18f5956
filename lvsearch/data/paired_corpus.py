"""Images with captions, or other observations that are a bag of regions annotated with a bag of words.

The regions of an image are rows of real features, or tokens of a vocabulary of their own. An image may have no regions,
and it may have no caption. Nothing is dropped or rescaled unless asked for (`standardised`). `PairedCorpus.notes` says
what a person should know.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from lvsearch.data.base import Data, Nouns, refuse_other_kind
from lvsearch.data.corpus import Corpus
from lvsearch.data.matrix_inputs import refuse_magnitudes
from lvsearch.data.paired_inputs import captions_of, read_tables, regions_of
from lvsearch.files.string_arrays import pack_strings, unpack_strings
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.images import annotated_images
from lvsearch.models.units import AnnotatedImage
from lvsearch.reading.counts import read_ldac
from lvsearch.reading.vocabulary import as_strings
from lvsearch.tables.frames import is_table, require_distinct


@dataclass(frozen=True, eq=False, repr=False)
class PairedCorpus(Data):
    """Images as regions and captions. Build one with `from_arrays`, `from_ldac` or `from_csv`.

    The constructor copies its arguments and checks them. Two are equal if their fingerprints are.

    Attributes:
        regions: all regions, those of one image next to each other, in the images' order: (regions, features) float64,
            finite; or (regions,) int32, the token of each. A token that an image has three times is three regions.
        region_counts: (images,) the number of regions of each image.
        region_names: a name for each feature, or for each token of the vocabulary, distinct.
        captions: word counts, one document per image; an empty document is a missing caption.
        notes: notes on what was done to the data, in order.

    Raises:
        ValueError: counts that do not add up to the regions, or of another number of images than captions; features
            that are NaN, infinite or beyond ±1e15; tokens outside their vocabulary; names twice or of the wrong length.
    """

    unit_type: ClassVar[type] = AnnotatedImage
    nouns: ClassVar[Nouns] = Nouns("corpus", "image", "images", "observation", "observations")
    accepted: ClassVar[str] = "a PairedCorpus or a pair (regions, captions)"

    regions: Float[np.ndarray, "region feature"] | Int[np.ndarray, " region"]
    region_counts: Int[np.ndarray, " images"]
    region_names: tuple[str, ...]
    captions: Corpus
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = np.array(self.region_counts, dtype=np.int64)
        names = tuple(str(name) for name in self.region_names)
        require_distinct("region name", names)
        if len(counts) != len(self.captions):
            raise ValueError(
                f"got regions of {len(counts):,} images and {len(self.captions):,} captions; expected one each"
            )
        if counts.min(initial=0) < 0 or counts.sum() != len(self.regions):
            raise ValueError(
                f"got region counts that add up to {counts.sum():,} for {len(self.regions):,} regions; expected how "
                "many each image has, none negative"
            )
        regions = (
            _checked_features(self.regions, names)
            if np.ndim(self.regions) == 2
            else _checked_tokens(self.regions, names)
        )
        for array in (regions, counts):
            array.setflags(write=False)
        fields = {"regions": regions, "region_counts": counts, "region_names": names, "notes": tuple(self.notes)}
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    # -- from data ----------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        regions: Any,
        captions: Any,
        vocabulary: Iterable[Any] | None = None,
        *,
        region_names: Iterable[Any] | None = None,
        image_names: Iterable[Any] | None = None,
    ) -> "PairedCorpus":
        """Make a corpus of regions and captions in memory, with one entry per image in each.

        Args:
            regions: a list with the features (regions, features) of every image, an empty list for none; or an array
                (images, regions, features); or token counts (images, tokens), sparse or a two-dimensional array.
            captions: word counts (images, words), sparse or dense; or a list with the list of words of every image,
                empty if the caption is missing; or None for no captions at all, with a vocabulary.
            vocabulary: one term per column of the counts; for lists of words, the known words, and others are refused.
                Default: "term0", … or the words that occur, sorted.
            region_names: one per feature or token. Default "feature0"… or "token0"….
            image_names: one per image.

        Raises:
            ValueError: see `PairedCorpus`; also images with different numbers of features, an unknown word, or no data.
        """
        held, counts, names = regions_of(regions, region_names)
        words = captions_of(captions, vocabulary, len(counts))
        words = replace(words, document_names=as_strings("image_names", image_names))
        return cls(held, counts, names, words)._with_notes()

    @classmethod
    def from_ldac(
        cls,
        regions: str | os.PathLike[str],
        captions: str | os.PathLike[str],
        vocabulary: str | os.PathLike[str] | Collection[Any] | None = None,
        *,
        n_tokens: int | None = None,
    ) -> "PairedCorpus":
        """Read two LDA-C files with a line `N id:count …` per image: region tokens in one, caption words in the other.

        regions, captions: the two files; N is the number of pairs on a line.
        vocabulary: a text file with one caption word per line, or the words.
        n_tokens: the size of the regions' vocabulary; by default one more than the largest id.

        Raises the errors of `Corpus.from_ldac`, and ValueError if the files have different numbers of lines.
        """
        words = Corpus.from_ldac(captions, vocabulary)
        held, counts, names = regions_of(read_ldac(regions, n_tokens), None)
        return cls(held, counts, names, replace(words, notes=()))._with_notes()

    @classmethod
    def from_csv(
        cls,
        regions: str | os.PathLike[str],
        captions: str | os.PathLike[str],
        *,
        image: str = "image",
        word: str = "word",
        vocabulary: Iterable[Any] | None = None,
    ) -> "PairedCorpus":
        """Read two comma-separated files with headers, UTF-8: one with a line per region, one with a line per caption
        word.

        Images are in the order in which they first occur, those with regions first.

        Args:
            regions: a file with a column that names the image; all other columns are features (numbers). A single other
                column of text holds tokens.
            captions: a file with a column that names the image, and a column `word`; a word given twice counts twice.
            image: the name of the image's column in both files.
            word: the name of the column of words.
            vocabulary: the known words. By default those that occur, sorted.

        Raises:
            ValueError: a missing column, features that are not numbers, an empty word; see also `from_arrays`.
        """
        tables = read_tables(regions, captions, image, word)
        corpus = captions_of(tables.captions, vocabulary, len(tables.images))
        corpus = replace(corpus, document_names=tables.images)
        return cls(tables.regions, tables.region_counts, tables.region_names, corpus, tables.notes)._with_notes()

    @classmethod
    def from_any(cls, data: Any) -> "PairedCorpus":
        """Return data as they are, or make them from a pair (regions, captions) by `from_arrays`.

        Raises ValueError for anything else.
        """
        if isinstance(data, PairedCorpus):
            return data
        if not isinstance(data, tuple) or len(data) != 2:
            raise ValueError(f"got {type(data).__name__}, expected {cls.accepted}")
        return cls.from_arrays(*data)

    def like_this(self, data: Any) -> "PairedCorpus":
        """Return new images with the features or tokens of this object, the training data, and captions over its
        vocabulary.

        data: a `PairedCorpus`, or a pair (regions, captions); captions may be None if only images are known.

        Raises ValueError for other features, tokens or words, and for features if these regions are tokens.
        """
        refuse_other_kind(data, PairedCorpus, "a PairedCorpus like the training data")
        if isinstance(data, tuple) and len(data) == 2:
            other = PairedCorpus.from_arrays(*data, vocabulary=self.vocabulary)
        else:
            other = PairedCorpus.from_any(data)
        if other.has_tokens != self.has_tokens:
            raise ValueError(f"got regions that are {other._kind()}, expected {self._kind()} as in the training data")
        if len(other.region_names) > len(self.region_names) or (
            not self.has_tokens and len(other.region_names) != len(self.region_names)
        ):
            raise ValueError(
                f"got {len(other.region_names)} {other._kind()}, expected the {len(self.region_names)} of the training "
                "data"
            )
        brings_names = isinstance(data, PairedCorpus) or (
            isinstance(data[0], list | tuple) and any(map(is_table, data[0]))
        )
        if brings_names and other.region_names != self.region_names[: len(other.region_names)]:
            raise ValueError(f"got other {self._kind()} than the training data have, or these in another order")
        captions = self.captions.like_this(other.captions)
        return replace(other, region_names=self.region_names, captions=captions)

    # -- as data ------------------------------------------------------------------------------------------------

    @property
    def has_tokens(self) -> bool:
        """True if regions are tokens; False if they have real features."""
        return self.regions.ndim == 1

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of the captions' vocabulary."""
        return self.captions.vocabulary

    def dataset(self) -> Dataset:
        """Return the images in padded batches, the form in which `lvsearch.inference` reads them."""
        n_tokens = len(self.region_names) if self.has_tokens else None
        return annotated_images(self.regions, self.region_counts, self.captions.counts, n_tokens)

    @property
    def n_units(self) -> int:
        """The number of images."""
        return len(self.region_counts)

    @property
    def observations_per_unit(self) -> Int[np.ndarray, " images"]:
        """The number of regions and caption words of each image together, shape (images,), int64."""
        return self.region_counts + self.captions.document_lengths

    @property
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the entries of a model's axes: "word" (caption words) and "dim" (features, or tokens of
        regions).
        """
        return {"word": self.vocabulary, "dim": self.region_names}

    def image_regions(self, image: int) -> np.ndarray:
        """Return the regions of one image: (regions, features), or (regions,) tokens.

        image: the number of the image, from 0.
        """
        start = int(self.region_counts[:image].sum())
        return self.regions[start : start + int(self.region_counts[image])]

    def caption(self, image: int) -> tuple[str, ...]:
        """Return the words of one image's caption, sorted by their ids; a word that counts twice is returned twice.

        image: the number of the image, from 0.
        """
        counts = self.captions.counts
        span = slice(counts.indptr[image], counts.indptr[image + 1])
        times = np.asarray(counts.data[span], np.int64)
        return tuple(np.repeat(np.asarray(self.vocabulary, object)[counts.indices[span]], times).tolist())

    def standardised(self, like: "PairedCorpus | None" = None) -> "PairedCorpus":
        """Return the corpus with each feature minus its mean, divided by its standard deviation, over all regions.

        Features that do not vary become 0. Log densities are then those of the standardised features.

        like: the data whose means and standard deviations are used, such as the training data; by default this object.

        Raises ValueError if regions are tokens.
        """
        source = self if like is None else like
        if self.has_tokens or source.has_tokens:
            raise ValueError("got regions that are tokens, expected features: only numbers have a mean and a spread")
        mean, spread = source.regions.mean(0), source.regions.std(0)
        whose = "their own" if like is None else f"{len(source.regions):,} other regions'"
        note = f"features less {whose} mean, divided by the standard deviation"
        scaled = (self.regions - mean) / np.where(spread > 0, spread, 1.0)
        return replace(self, regions=np.where(spread > 0, scaled, 0.0), notes=(*self.notes, note))

    def part(self, rows: Int[np.ndarray, " chosen"], note: str) -> "PairedCorpus":
        """Return some of the images as new data, in the given order, with a note that says so.

        rows: numbers of images, from 0. note: the note to add.
        """
        starts = np.concatenate([[0], np.cumsum(self.region_counts)])
        kept = [np.arange(int(starts[row]), int(starts[row + 1])) for row in rows]
        return replace(
            self,
            regions=self.regions[np.concatenate(kept)],
            region_counts=self.region_counts[rows],
            captions=replace(self.captions.part(rows, note), notes=()),
            notes=(*self.notes, note),
        )

    # -- identity, storage and looks ----------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hash, in hexadecimal, of regions, their names and captions (not of notes)."""
        digest = hashlib.sha256(b"lvsearch paired corpus 1")
        digest.update(np.asarray(self.regions, dtype="<i8" if self.has_tokens else "<f8").tobytes())
        digest.update(np.asarray(self.region_counts, dtype="<i8").tobytes())
        digest.update(json.dumps((self.regions.shape, self.region_names, self.captions.fingerprint)).encode())
        return digest.hexdigest()

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the corpus as (settings that JSON can store, {name: array})."""
        settings, arrays = self.captions.to_storage()
        own = {"regions": self.regions, "region_counts": self.region_counts}
        return settings, arrays | own | pack_strings("region_names", self.region_names) | pack_strings(
            "pair_notes", self.notes
        )

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "PairedCorpus":
        """Return the corpus that `to_storage` encoded as `settings` and `arrays`."""
        names, notes = (unpack_strings(name, arrays) for name in ("region_names", "pair_notes"))
        return cls(arrays["regions"], arrays["region_counts"], names, Corpus.from_storage(settings, arrays), notes)

    def describe(self) -> str:
        """Return the sizes in one line, such as "257 images, 2,062 regions of 38 features, 532 caption words of 19"."""
        return (
            f"{self.n_units:,} images, {len(self.regions):,} regions of {len(self.region_names):,} {self._kind()}, "
            f"{self.captions.n_tokens:,} caption words of {len(self.vocabulary):,}"
        )

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return (name, value) pairs: the numbers of images, regions, features or tokens, and caption words."""
        named = ", ".join(self.region_names[:6]) + (", …" if len(self.region_names) > 6 else "")
        return (
            ("images", f"{self.n_units:,}"),
            ("regions", f"{len(self.regions):,}, at most {int(self.region_counts.max()):,} in an image"),
            (self._kind(), f"{len(self.region_names):,}: {named}"),
            ("words", f"{self.captions.n_tokens:,} of a vocabulary of {len(self.vocabulary):,}"),
        )

    def _kind(self) -> str:
        """Return the word for what regions consist of: "tokens" or "features"."""
        return "tokens" if self.has_tokens else "features"

    def _with_notes(self) -> "PairedCorpus":
        """Return these data, which were just read, with notes on missing regions and captions.

        Raises ValueError if all are missing.
        """
        if not len(self.regions) and not self.captions.n_tokens:
            raise ValueError(f"got {self.n_units:,} images without a single region or word; expected some")
        notes = self.notes
        for what, missing in (
            ("regions", int((self.region_counts == 0).sum())),
            ("a caption", self.captions.n_empty_documents),
        ):
            if missing:
                notes += (f"{missing:,} of {self.n_units:,} images have no {what.removeprefix('a ')}; kept in place",)
        return replace(self, notes=notes)


def _checked_features(regions: Any, names: tuple[str, ...]) -> Float[np.ndarray, "region feature"]:
    """Return features of regions as float64, (region, feature).

    names: one per feature.

    Raises ValueError for names of another number, and for values that are too large.
    """
    features = np.array(regions, dtype=np.float64)
    if features.shape[1] != len(names):
        raise ValueError(f"got {len(names)} region names for {features.shape[1]} features; expected one for each")
    refuse_magnitudes(features, names, "region", "feature")
    return features


def _checked_tokens(regions: Any, names: tuple[str, ...]) -> Int[np.ndarray, " region"]:
    """Return tokens of regions as int32, shape (region,).

    names: the vocabulary, one name per token.

    Raises ValueError unless tokens are whole numbers within the vocabulary.
    """
    tokens = np.array(regions)
    if tokens.dtype.kind not in "iu":
        raise ValueError(f"got tokens of type {tokens.dtype}; expected whole numbers, or features (regions, features)")
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < len(names):
        raise ValueError(
            f"got tokens from {tokens.min()} to {tokens.max()} for {len(names):,} region names; expected 0 to "
            f"{len(names) - 1}"
        )
    return tokens.astype(np.int32)
