"""Predict captions, label regions and retrieve images with a fitted model of images and captions.

Images are passed to a fitted model (`lv.fit(...)`, `result.best`) as a `PairedCorpus` or as a pair (regions,
captions). The captions of these images are used only by functions that score or show them.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from lvsearch.data.paired_corpus import PairedCorpus
from lvsearch.fitted.model import FittedModel
from lvsearch.inference.annotation import (
    AbsentFactors,
    absent_factors,
    caption_distributions,
    region_distributions,
)
from lvsearch.models.plain_arguments import as_list, whole_number

IMPOSSIBLE = 1e-25
"""The probability below which a word counts as impossible. Estimated word probabilities have a floor of 1e-30, so only
words that no training caption made possible are below."""
TIED = 1e-9
"""The largest difference of two scores that counts as a tie, in nats, relative to 1 + |score|.

Rounding errors of float64 sums are a millionth of this, and depend on the other images and on their order.
"""


@dataclass(frozen=True)
class CaptionScores:
    """The scores log p(caption | image) of some images under a fitted model.

    | field | meaning |
    |---|---|
    | `per_image` | Σ_m log p(w_m | r) over the words w_m of the caption, r the image's regions; (images,), nats |
    | `n_words` | the number of caption words of all images together |
    | `impossible` | how many of these words have a probability below 1e-25; their log probability counts all the same |
    | `unseen` | caption words that no training caption has, sorted |

    An image without a caption has the score 0.
    """

    per_image: Float[np.ndarray, " images"]
    n_words: int
    impossible: int
    unseen: tuple[str, ...]

    @property
    def perplexity(self) -> float:
        """The perplexity per caption word, exp(−Σ log p / number of words); NaN without words.

        Source: Blei (2004), §4.2.2.
        """
        return float(np.exp(-self.per_image.sum() / self.n_words)) if self.n_words else float("nan")

    def describe(self) -> str:
        """Return the perplexity in one line, with the number of impossible words and the first unseen words."""
        text = f"caption perplexity {self.perplexity:,.1f} over {self.n_words:,} words"
        if self.impossible:
            text += f"; {self.impossible:,} of them have no probability under the estimated words"
        if self.unseen:
            text += f"; never seen in training: {', '.join(self.unseen[:5])}{', …' if len(self.unseen) > 5 else ''}"
        return text


@dataclass(frozen=True)
class Retrieval:
    """The result of a search for images by words: all images, ranked by how well they fit the query.

    | field | meaning |
    |---|---|
    | `query` | the words of the query |
    | `ranking` | the numbers of the images, best first, (images,) |
    | `scores` | Σ log p(word | image) over the query's words, nats, (images,), in the order of the ranking |
    | `relevant` | True for images whose captions have all words of the query, (images,), in the order of the ranking |
    """

    query: tuple[str, ...]
    ranking: np.ndarray
    scores: Float[np.ndarray, " images"]
    relevant: Bool[np.ndarray, " images"]

    @property
    def precision_recall(self) -> pd.DataFrame:
        """The precision-recall curve: a table with columns `recall` and `precision`, and a row per relevant image.

        A row counts the images ranked down to this relevant image. The table is empty if no image is relevant.
        """
        found = np.cumsum(self.relevant)
        where = np.flatnonzero(self.relevant)
        recall = found[where] / max(int(self.relevant.sum()), 1)
        return pd.DataFrame({"recall": recall, "precision": found[where] / (where + 1)})

    @property
    def mean_precision(self) -> float:
        """The average precision of the ranking: the mean of the precisions at its relevant images; NaN without any."""
        curve = self.precision_recall
        return float(np.mean(curve["precision"].to_numpy())) if len(curve) else float("nan")


def rank_images(scores: Float[np.ndarray, " images"]) -> Int[np.ndarray, " images"]:
    """Return the numbers of the images in the order of falling score, (images,).

    A score within a relative 1e-9 (`TIED`) of the next higher one is tied with it. Ties keep the order of the images,
    so that the ranking does not depend on how sums were rounded.

    scores: the score of each image, nats; −∞ is allowed.
    """
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    with np.errstate(invalid="ignore"):  # −∞ − (−∞) is NaN
        apart = falling[:-1] - falling[1:] > TIED * (1 + np.abs(falling[:-1]))
    group = np.cumsum(np.concatenate([[False], apart]))[: len(order)]
    return order[np.lexsort((order, group))]


def _top_words(probabilities: np.ndarray, images: PairedCorpus, n_words: int) -> list[list[str]]:
    """Return the `n_words` most probable words of each row, the most probable first.

    probabilities: p(word) in each row, (rows, words of the vocabulary of `images`).

    Raises ValueError for fewer than one word.
    """
    n_words = whole_number("n_words", n_words, least=1)
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :n_words]
    return [[images.vocabulary[word] for word in row] for row in order]


@dataclass(frozen=True, repr=False)
class FittedImages(FittedModel):
    """A model of images with captions, fitted at one size. It predicts captions, labels regions and retrieves images.

    Images are passed as a `PairedCorpus` or as a pair (regions, captions).
    """

    _useful_calls: ClassVar[tuple[str, ...]] = (
        "annotate(new)",
        "caption_scores(new)",
        "label_regions(new)",
        "retrieve(new, words)",
    )

    def caption_distribution(self, data: Any) -> pd.DataFrame:
        """Return p(word | image) as a table (images, words of the vocabulary); rows sum to 1. Captions are not used.

        Raises ValueError for a model without captions, and for regions of another form than the training data's.
        """
        images = self._images(data)
        return pd.DataFrame(
            caption_distributions(self.estimate, images.dataset()),
            index=images.captions.document_names,
            columns=list(images.vocabulary),
        )

    def caption_scores(self, data: Any) -> CaptionScores:
        """Return log p(caption | image) of each image, (images,), in nats, and the perplexity of all captions.

        It also counts the caption words that are all but impossible, and lists the words that no training caption has.

        Raises ValueError for a model without captions, and for regions of another form than the training data's.
        """
        images = self._images(data)
        counts = images.captions.counts
        log_p = np.log(caption_distributions(self.estimate, images.dataset()))
        rows = np.repeat(np.arange(len(images)), np.diff(counts.indptr))
        per_word = log_p[rows, counts.indices]
        seen = self._images(self.training).captions.term_totals > 0
        unseen = np.unique(counts.indices[~seen[counts.indices]])
        return CaptionScores(
            np.bincount(rows, weights=per_word * counts.data, minlength=len(images)),
            int(counts.data.sum()),
            int(counts.data[per_word < np.log(IMPOSSIBLE)].sum()),
            tuple(sorted(images.vocabulary[word] for word in unseen)),
        )

    def annotate(self, data: Any, n_words: int = 5) -> pd.DataFrame:
        """Return a table with a row per image: its `n_words` most probable words (`predicted`) beside its `caption`.

        Both columns are texts of words joined by commas.

        Raises ValueError for a model without captions, for regions of another form than the training data's, and for
        fewer than one word.
        """
        images = self._images(data)
        probabilities = self.caption_distribution(images)
        return pd.DataFrame(
            {
                "predicted": [", ".join(words) for words in _top_words(probabilities.to_numpy(), images, n_words)],
                "caption": [", ".join(images.caption(image)) for image in range(len(images))],
            },
            index=probabilities.index,
        )

    def label_regions(self, data: Any, n_words: int = 2) -> pd.DataFrame:
        """Return a table with a row per region: `image`, `region`, its `n_words` most probable `words`, `probability`.

        Images and regions are numbers, words are joined by commas. `probability` is p(first word | image, region).
        Captions are not used.

        Raises ValueError for models whose regions have no words of their own, such as GM-mixture, and for a model
        without captions. Also for regions of another form than the training data's, and for fewer than one word.
        """
        images, rows = self._images(data), []
        for image, shares in enumerate(region_distributions(self.estimate, images.dataset())):
            words = _top_words(shares, images, n_words)
            rows += [(image, n, ", ".join(w), p.max()) for n, (w, p) in enumerate(zip(words, shares, strict=True))]
        return pd.DataFrame(rows, columns=["image", "region", "words", "probability"])

    def retrieve(self, data: Any, query: str | tuple[str, ...] | list[str]) -> Retrieval:
        """Return all images ranked by p(query | image) = Π p(word | image), the best image first.

        Ties keep the order of the images. Captions only say which images are relevant.

        query: words of the vocabulary; a single string is split at spaces.

        Raises ValueError for a query without words or with unknown words, and for a model without captions.
        Also for regions of another form than the training data's.

        Source: Blei (2004), §4.2.4.
        """
        images = self._images(data)
        words = tuple(query.split() if isinstance(query, str) else as_list("query", query))
        unknown = [word for word in words if not isinstance(word, str) or word not in images.vocabulary]
        if unknown or not words:
            raise ValueError(
                f"got the query {words!r}; expected one or more words of the vocabulary: {unknown!r} are not"
            )
        columns = [images.vocabulary.index(word) for word in words]
        log_p = np.log(caption_distributions(self.estimate, images.dataset()))[:, columns].sum(1)
        ranking = rank_images(log_p)
        has_all = (images.captions.counts[:, columns].toarray() > 0).all(1)
        return Retrieval(words, ranking, log_p[ranking], has_all[ranking])

    def _images(self, data: Any) -> PairedCorpus:
        """Return `data` as a `PairedCorpus` with the training data's vocabulary and form of regions.

        data: a `PairedCorpus`, or a pair (regions, captions).
        """
        assert isinstance(self.training, PairedCorpus)  # what a model of images with captions is trained on
        return self.training.like_this(data)


def absent_factor_words(model: FittedImages, data: Any) -> AbsentFactors:
    """Count the caption words whose most probable factor is not the most probable factor of any region of their image.

    model: a fitted model of images with captions.
    data: images with their captions, as a `PairedCorpus` or a pair (regions, captions).

    Returns the number of caption words (`words`) and of words whose factor is absent from the regions (`absent`).

    Raises ValueError for a model without captions, and for regions of another form than the training data's.

    Source: Blei (2004), §4.2.2.
    """
    return absent_factors(model.estimate, model._images(data).dataset())
