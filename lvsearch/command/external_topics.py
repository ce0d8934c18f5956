"""Read topics of fitted scikit-learn, gensim and tomotopy models, and of .npz files, into one form.

Only the two arrays that define LDA's p(document) are read: topics and α. The libraries themselves are not imported. An
object that lacks an attribute that its reader needs is refused with the reason.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from scipy import sparse

from lvsearch.files.untrusted_files import read_arrays, read_ordinary


@dataclass(frozen=True, eq=False)
class ExternalTopics:
    """The topics of a latent Dirichlet allocation (LDA) that any program fitted.

    topics: row k is p(word | topic k), shape (topic, word); rows sum to 1
    alpha: α, the Dirichlet parameters of a document's topic proportions, shape (topic,)
    vocabulary: the words, in the order of the columns
    source: the name of the topic set, for people
    """

    topics: Float64[np.ndarray, "topic word"]
    alpha: Float64[np.ndarray, " topic"]
    vocabulary: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        """Raise ValueError for shapes that do not fit together, and for a word that occurs twice."""
        n_topics, n_words = self.topics.shape
        if len(self.vocabulary) != n_words:
            raise ValueError(
                f"got {len(self.vocabulary)} words for topics over {n_words}; expected one word per column, in order"
            )
        if len(set(self.vocabulary)) != n_words:
            raise ValueError("got a vocabulary with repeated words; expected each word once")
        if self.alpha.shape != (n_topics,):
            raise ValueError(f"got alpha of shape {self.alpha.shape} for {n_topics} topics; expected ({n_topics},)")

    def save(self, path: str | Path) -> None:
        """Write `topics`, `alpha` and `vocabulary` to an .npz file that `load_topics` reads (no pickle)."""
        np.savez(path, topics=self.topics, alpha=self.alpha, vocabulary=np.asarray(self.vocabulary, dtype=np.str_))


@dataclass(frozen=True, eq=False)
class EncodedDocuments:
    """Documents as counts over a topic set's vocabulary, and the words that are not in it.

    counts: how often each word of the vocabulary is in each document, shape (document, word)
    n_unknown: the number of tokens of each document outside the vocabulary, shape (document,)
    unknown_words: the distinct words outside the vocabulary, most frequent first
    """

    counts: sparse.csr_array
    n_unknown: Int64[np.ndarray, " document"]
    unknown_words: tuple[str, ...]


def load_topics(path: str | Path) -> ExternalTopics:
    """Read a topic set from an .npz file.

    The file has `topics` (topic, word), `alpha` (topic,) or a single number, and `vocabulary` (word,), strings. Rows of
    `topics` are divided by their sums.

    Raises ValueError for a file that is no such archive or is damaged, and when an array is missing or of another type.
    """
    arrays = read_arrays(read_ordinary(path), path)
    missing = {"topics", "alpha", "vocabulary"} - set(arrays)
    if missing:
        raise ValueError(
            f"got {path} with arrays {sorted(arrays)}; expected topics, alpha and vocabulary: "
            f"{sorted(missing)} missing; write it with ExternalTopics.save or np.savez"
        )
    words = arrays["vocabulary"]
    if words.ndim != 1 or words.dtype.kind not in "UT":
        raise ValueError(
            f"got {path} with a vocabulary of type {words.dtype}, shape {words.shape}; expected a list of strings"
        )
    return _topics(arrays["topics"], arrays["alpha"], words, Path(path).stem)


def sklearn_topics(model: Any, vocabulary: Iterable[str]) -> ExternalTopics:
    """Return the topics of a fitted scikit-learn `LatentDirichletAllocation`.

    Topics are the rows of `components_` divided by their sums; α is `doc_topic_prior_`.

    model: the fitted model
    vocabulary: the words, such as `vectorizer.get_feature_names_out()`

    Raises ValueError for a model of another kind, or one that is not fitted.
    """
    _require(model, ("components_", "doc_topic_prior_"), "a fitted sklearn.decomposition.LatentDirichletAllocation")
    components = np.asarray(model.components_, np.float64)
    return _topics(components, model.doc_topic_prior_, vocabulary, "scikit-learn")


def gensim_topics(model: Any) -> ExternalTopics:
    """Return the topics of a fitted gensim `LdaModel` or `LdaMulticore`, by its get_topics(), alpha and id2word.

    Raises ValueError for a model of another kind.
    """
    _require(model, ("get_topics", "alpha", "id2word"), "a fitted gensim.models.LdaModel with id2word")
    topics = np.asarray(model.get_topics(), np.float64)
    return _topics(topics, model.alpha, [model.id2word[word] for word in range(topics.shape[1])], "gensim")


def tomotopy_topics(model: Any) -> ExternalTopics:
    """Return the topics of a trained tomotopy `LDAModel`, by its get_topic_word_dist(k), alpha and used_vocabs.

    Raises ValueError for a model of another kind.
    """
    _require(model, ("get_topic_word_dist", "alpha", "used_vocabs", "k"), "a trained tomotopy.LDAModel")
    topics = np.stack([np.asarray(model.get_topic_word_dist(topic), np.float64) for topic in range(model.k)])
    return _topics(topics, model.alpha, list(model.used_vocabs), "tomotopy")


def encode(topics: ExternalTopics, docs: Any, only_words: Collection[str] | None = None) -> EncodedDocuments:
    """Return the counts of documents over the topics' vocabulary, and the words that are not in it.

    topics: the topic set
    docs: the documents, an `lv.Corpus`
    only_words: count only these words, such as those that two topic sets share; all others are unknown. None: all words
    """
    _require(docs, ("counts", "vocabulary"), "an lv.Corpus, with .counts and .vocabulary")
    column = {word: place for place, word in enumerate(topics.vocabulary) if only_words is None or word in only_words}
    places = np.array([column.get(word, -1) for word in docs.vocabulary], dtype=np.int64)
    known, counts = np.flatnonzero(places >= 0), sparse.csr_array(docs.counts)
    move = sparse.csr_array(
        (np.ones(len(known), np.int64), (known, places[known])), shape=(len(places), len(topics.vocabulary))
    )
    missing = counts[:, np.flatnonzero(places < 0)]
    totals = np.asarray(missing.sum(axis=0)).ravel()
    absent = np.flatnonzero(places < 0)
    order = [int(absent[i]) for i in np.argsort(-totals, kind="stable") if totals[i] > 0]
    return EncodedDocuments(
        sparse.csr_array(counts @ move),
        np.asarray(missing.sum(axis=1)).ravel().astype(np.int64),
        tuple(docs.vocabulary[word] for word in order),
    )


def shared_words(topic_sets: Iterable[ExternalTopics]) -> frozenset[str]:
    """Return the words that are in every topic set's vocabulary."""
    return frozenset.intersection(*(frozenset(topics.vocabulary) for topics in topic_sets))


def _topics(topics: Any, alpha: Any, vocabulary: Iterable[str], source: str) -> ExternalTopics:
    """Return a topic set in float64 whose rows sum to 1. Raises ValueError for arrays of other types or shapes.

    topics: p(word | topic) up to a factor for each row, (topic, word), none negative
    alpha: Dirichlet parameters of the proportions, (topic,), or one number for all topics
    vocabulary: the words, one per column
    source: the name of the topic set, for people
    """
    for name, array in (("topics", np.asarray(topics)), ("alpha", np.asarray(alpha))):
        if array.dtype.kind not in "fiub":
            raise ValueError(f"got {name} of type {array.dtype} from {source}; expected real numbers")
    topics = np.asarray(topics, np.float64)
    with np.errstate(over="ignore"):
        totals = topics.sum(axis=-1)
    if topics.ndim != 2 or np.any(topics < 0) or not np.all(np.isfinite(totals)) or np.any(totals <= 0):
        raise ValueError(f"got topics of shape {topics.shape} from {source}; expected (topics, words) with entries ≥ 0")
    alpha = np.broadcast_to(np.asarray(alpha, np.float64), (len(topics),)) if np.ndim(alpha) == 0 else np.asarray(alpha)
    if alpha.ndim != 1:
        raise ValueError(f"got alpha of shape {alpha.shape} from {source}; expected one number for each topic")
    words = tuple(str(word) for word in vocabulary)
    return ExternalTopics(topics / topics.sum(axis=1, keepdims=True), alpha.astype(np.float64), words, source)


def _require(model: Any, attributes: tuple[str, ...], expected: str) -> None:
    """Raise ValueError if an object lacks some attributes; the message names them.

    model: the object
    attributes: the names it should have
    expected: what the object should be, for the message
    """
    missing = [name for name in attributes if not hasattr(model, name)]
    if missing:
        raise ValueError(f"got {type(model).__name__} without {', '.join(missing)}; expected {expected}")
