"""Checks of topics and documents, and tiles of documents padded to a few lengths, so that little is compiled.

A *tile* is a group of documents of one padded length, handled in one call. A document's padded length depends on that
document alone, and so do its random draws. A tile's number of rows depends on shapes alone. Every estimator of this
package loops over `tiles` and fills a result row by row.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float64, Int, Int32
from scipy import sparse

from lvsearch.inference.sharding import n_processors
from lvsearch.models.plain_arguments import numbers

Result = TypeVar("Result")

SUM_TOLERANCE = 1e-4
"""The largest |row sum − 1| that counts as rounding of float32 topics. Such rows are renormalised in float64."""

SHORTEST_PADDED_LENGTH = 16
"""The smallest length that documents are padded to."""

LEAST_ALPHA, MOST_ALPHA = 1e-30, 1e6
"""The range of a Dirichlet parameter α_k of an active topic. In it 1/α is a float32 like log α, and α + 1 differs
from α.
"""

MOST_TOKENS = 1 << 24
"""The most tokens of one document. Every whole number up to here is a float32, and sums of int32 counts do not
overflow.
"""


class TopicSet(NamedTuple):
    """Checked topics: p(word | topic) and the Dirichlet parameters of a document's topic shares.

    Inactive topics (with alpha 0) stay in the arrays and weigh nothing.
    """

    word_topic: Float64[
        np.ndarray, "word topic"
    ]  # β transposed: p(word | topic); columns sum to 1, inactive ones are 0
    alpha: Float64[np.ndarray, " topic"]  # Dirichlet parameters, ≥ 0, at least one > 0

    def active(self) -> "TopicSet":
        """Return the topics without the inactive ones, whose alpha is 0."""
        on = self.alpha > 0
        return TopicSet(self.word_topic[:, on], self.alpha[on])

    def rescaled(self) -> tuple[Float64[np.ndarray, "word topic"], Float64[np.ndarray, " word"]]:
        """Return each word's probabilities divided by their largest over topics, and the logs of these divisors.

        The quotients fit float32 without underflow. A word that no topic produces keeps its zeros, and has divisor 1.
        """
        largest = self.word_topic.max(axis=1)
        divisor = np.where(largest > 0, largest, 1.0)
        return self.word_topic / divisor[:, None], np.log(divisor)


class DocumentTile(NamedTuple):
    """Documents of one padded length, handled in one call. Rows beyond `len(rows)` are empty padding.

    rows: the number of each document in the corpus.
    words: the words of each document; a slot is a distinct word or one token.
    counts: how often each word occurs, 0 for padding.
    """

    rows: Int[np.ndarray, " real"]  # row of the corpus
    words: Int32[np.ndarray, "document slot"]
    counts: Int32[np.ndarray, "document slot"]  # 0 = padding

    @property
    def padded_rows(self) -> Int32[np.ndarray, " document"]:
        """The number of each document in the corpus, with zeros for the padding, (document,)."""
        return np.pad(self.rows, (0, len(self.words) - len(self.rows))).astype(np.int32)


def read_topics(topics: Any, alpha: Any) -> TopicSet:
    """Check topics (topic, word) and alpha (topic,), and return them with rows renormalised in float64.

    Raises ValueError for wrong shapes, NaN, negative entries, active rows whose sum is not 1, no active topic, and
    alpha outside [LEAST_ALPHA, MOST_ALPHA].
    """
    topics, alpha = numbers("topics", topics), numbers("alpha", alpha)
    if topics.ndim != 2:
        raise ValueError(f"got topics of shape {topics.shape}; expected (topics, words), one row per topic")
    if alpha.shape != (topics.shape[0],):
        raise ValueError(
            f"got alpha of shape {alpha.shape} for topics of shape {topics.shape}; expected one number per topic, "
            f"({topics.shape[0]},): for a symmetric prior pass np.full({topics.shape[0]}, value)"
        )
    if not np.all(np.isfinite(alpha)) or np.any(alpha < 0) or not np.any(alpha > 0):
        raise ValueError(f"got alpha {alpha}; expected finite numbers ≥ 0, at least one of them > 0")
    # only active topics need to be distributions
    on = alpha > 0
    if alpha[on].min() < LEAST_ALPHA or alpha.max() > MOST_ALPHA:
        raise ValueError(
            f"got alpha from {alpha[on].min():g} to {alpha.max():g}; expected 0 (topic off) or {LEAST_ALPHA:g} to "
            f"{MOST_ALPHA:g}, beyond which floats do not carry it: set smaller ones to 0, and divide larger ones by "
            f"their largest over {MOST_ALPHA:g} (the proportions are fixed at alpha / alpha.sum() long before)"
        )
    rows = topics[on]
    if not np.all(np.isfinite(rows)) or np.any(rows < 0):
        raise ValueError(f"got topics between {rows.min()} and {rows.max()}; expected finite probabilities ≥ 0")
    sums = rows.sum(axis=1)
    if np.any(np.abs(sums - 1) > SUM_TOLERANCE):
        worst = int(np.argmax(np.abs(sums - 1)))
        raise ValueError(
            f"got topics whose rows do not sum to 1 (row {np.flatnonzero(on)[worst]} sums to {sums[worst]:.6g}); "
            f"expected p(word | topic): divide each row by its sum, topics / topics.sum(axis=1, keepdims=True)"
        )
    word_topic = np.zeros(topics.shape[::-1])
    word_topic[:, on] = (rows / sums[:, None]).T
    return TopicSet(word_topic, alpha)


def read_counts(docs: Any, n_words: int) -> sparse.csr_array:
    """Check counts (document, word) and return them as int32 rows with sorted words and no stored zeros.

    docs: a scipy sparse matrix or array, a dense array, or anything with `.counts`.
    n_words: the number of words of the topics.

    Raises ValueError for another number of axes or words, for negative counts, for counts that are not whole numbers,
    and for documents of more than MOST_TOKENS tokens.
    """
    # float64 first, since sums of duplicates and of lengths could overflow narrower integer types
    given = getattr(docs, "counts", docs)
    given = given.astype(np.float64) if sparse.issparse(given) else numbers("docs", given)
    if given.ndim != 2:
        raise ValueError(f"got documents of shape {given.shape}; expected counts (documents, words): for one, [counts]")
    matrix = sparse.csr_array(given, copy=True)
    if matrix.shape[1] != n_words:
        raise ValueError(
            f"got documents over {matrix.shape[1]} words and topics over {n_words}; expected the same vocabulary in "
            f"the same order: re-encode the documents with the topics' vocabulary"
        )
    matrix.sum_duplicates()
    if not np.all(np.isfinite(matrix.data)) or np.any(matrix.data < 0) or np.any(matrix.data % 1):
        raise ValueError("got counts that are negative or not whole numbers; expected raw word counts (not tf-idf)")
    matrix.eliminate_zeros()
    lengths = matrix.sum(axis=1)
    if np.any(lengths > MOST_TOKENS):
        raise ValueError(
            f"got a document of {lengths.max():.0f} tokens (row {int(np.argmax(lengths))}); expected at most "
            f"{MOST_TOKENS}: cut it into parts, whose log-likelihoods add if they are documents of their own"
        )
    return sparse.csr_array(matrix, dtype=np.int32)


def impossible_documents(topics: TopicSet, counts: sparse.csr_array) -> np.ndarray:
    """Return True for documents that hold a word with probability zero under every active topic, (document,)."""
    unreachable = topics.word_topic.max(axis=1) == 0
    return counts @ unreachable.astype(np.float64) > 0


def row_of(
    counts: sparse.csr_array, row: int | np.integer
) -> tuple[Int32[np.ndarray, " slot"], Int32[np.ndarray, " slot"]]:
    """Return the distinct words of one document and their counts, (slot,) each."""
    span = slice(counts.indptr[row], counts.indptr[row + 1])
    return np.asarray(counts.indices[span], np.int32), np.asarray(counts.data[span], np.int32)


def padded_lengths(sizes: Int[np.ndarray, " document"]) -> Int[np.ndarray, " document"]:
    """Return the lengths that documents are padded to: the next powers of two, at least 16.

    sizes: how many slots each document needs.
    """
    lengths = [max(SHORTEST_PADDED_LENGTH, 1 << max(size - 1, 0).bit_length()) for size in sizes.tolist()]
    return np.array(lengths, dtype=np.int64)


Pad = Callable[[Int[np.ndarray, " document"]], Int[np.ndarray, " document"]]
"""A function that chooses the lengths that documents are padded to: numbers of slots that are needed -> lengths."""


def tiles(
    counts: sparse.csr_array,
    rows: Int[np.ndarray, " document"],
    *,
    tokens: bool,
    height_of: Callable[[int], int],
    pad: Pad = padded_lengths,
) -> Iterator[DocumentTile]:
    """Yield the documents `rows` in tiles of about `height_of(padded length)` documents, short documents first.

    A tile is a group of documents of one padded length.

    tokens: if False, a slot is a distinct word with its count; if True, a slot is one token (count 1), in word order.
    height_of: the wanted number of documents of a tile, for a padded length.
    pad: chooses the padded lengths.
    """
    sizes = np.diff(counts.indptr) if not tokens else np.asarray(counts.sum(axis=1)).astype(np.int64)
    padded = pad(sizes)
    for length in np.unique(padded[rows]):
        bucket = rows[padded[rows] == length]
        bucket = bucket[np.argsort(sizes[bucket], kind="stable")]
        height = min(1 << (max(1, height_of(int(length))).bit_length() - 1), 1 << (len(bucket) - 1).bit_length())
        for start in range(0, len(bucket), height):
            chosen = bucket[start : start + height]
            words = np.zeros((height, length), np.int32)
            amounts = np.zeros((height, length), np.int32)
            for place, row in enumerate(chosen):
                word, amount = row_of(counts, row)
                if tokens:
                    word, amount = np.repeat(word, amount), np.ones(sizes[row], np.int32)
                words[place, : len(word)], amounts[place, : len(word)] = word, amount
            yield DocumentTile(chosen, words, amounts)


def map_tiles(work: Callable[[DocumentTile], Result], pieces: Iterator[DocumentTile]) -> Iterator[Result]:
    """Yield `work(tile)` of every tile, in order.

    A tile is a group of documents of one padded length.

    XLA runs small kernels on one core, so on a CPU as many threads as there are processors share the tiles. A tile's
    result depends on the tile alone. Neither threads nor order change a bit of it.
    """
    threads = n_processors() if jax.default_backend() == "cpu" else 1
    double = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]

    def in_callers_precision(tile: DocumentTile) -> Result:
        """Return `work(tile)` computed in the floating-point precision of the calling thread."""
        with jax.enable_x64(double):
            return work(tile)

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(in_callers_precision, pieces)
