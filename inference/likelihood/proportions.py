"""Distributions of a document's topic proportions other than a Dirichlet: models on the simplex of topics.

Every model of documents here draws the words of a document from Σ_k θ_k β_k, with topic proportions θ_k and word
distributions β_k. The models differ in p(θ) (Blei 2004, §3.3.4):

  LDA                    Dirichlet(α), a density on the whole simplex: an array (K,), E[θ | observed] by mean field;
                         or by collapsed updates                                            `CollapsedDirichlet`
  mixture of unigrams    a corner: θ = e_k with probability π_k                             `Corners`
  pLSI, marginalised     the proportions of a training document, drawn at random (§3.6.1)  `TrainingDocuments`
  pLSI, folded in        none: θ is refitted to the words observed (Hofmann 1999)           `FoldedIn`

The first three give log p(document), which `document_likelihood` sums exactly for the discrete ones. The last one gives
none, since proportions fitted to the words that are then scored are no probability of them. All predict words of a
document from its other words by E[θ | observed], in `document_completion`.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from lvsearch.inference.compiles import counted
from lvsearch.inference.likelihood.bounds import distinct_word_tiles
from lvsearch.inference.likelihood.documents import DocumentTile, map_tiles
from lvsearch.models.kernels import kernel

TopicWords = Float64[np.ndarray, "topic word"]
"""p(word | topic), rows that sum to 1."""
DocumentTopics = Float64[np.ndarray, "document topic"]
"""The topic proportions of documents."""
DocumentValues = Float64[np.ndarray, " document"]
"""A number of each document."""
Draws = Float64[np.ndarray, "draw topic"]
"""Draws of one document's topic proportions."""
SUM_TOLERANCE = 1e-4
"""The largest |sum − 1| of a distribution that counts as rounding."""
TINY = 1e-30
"""The smallest divisor, which replaces smaller ones."""
POINTS_AT_ONCE = 256
"""Number of training documents whose distributions over words are in memory at once."""
FOLDING_STEPS, FOLDING_TOLERANCE = 300, 1e-4
"""The most updates of a document's proportions, and the largest change of a proportion that ends them."""


@runtime_checkable
class Proportions(Protocol):
    """A distribution of topic proportions θ of a document, in the place of a Dirichlet.

    In all methods, topics are p(word | topic), float64 with rows that sum to 1. Counts are word counts, (document,
    word).
    """

    def log_likelihood(self, topics: TopicWords, counts: csr_array) -> DocumentValues:
        """Return log p(document) of each document, nats; −inf for a document that cannot occur."""
        ...

    def expected(self, topics: TopicWords, observed: csr_array) -> DocumentTopics:
        """Return the expected topic proportions of each document given its observed words.

        Rows sum to 1, and are NaN if the observed words cannot occur together.
        """
        ...

    def sample(self, topics: TopicWords, observed: csr_array, draws: int, random: np.random.Generator) -> Draws:
        """Draw the topic proportions of one document `draws` times given its observed words, (1, word).

        Raises ValueError if these words cannot occur together.
        """
        ...


@dataclass(frozen=True)
class Corners:
    """The distribution in which all words of a document are from one topic: a mixture of unigrams.

    Topic proportions are then a corner of the simplex.

    `weights`: the probability of each topic.
    """

    weights: Float64[np.ndarray, " topic"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _distribution("weights", self.weights))

    def log_likelihood(self, topics: TopicWords, counts: csr_array) -> DocumentValues:
        """Return log p(document) of each document, nats, an exact sum over its topic."""
        return np.asarray(logsumexp(self._log_joint(topics, counts), axis=1))

    def expected(self, topics: TopicWords, observed: csr_array) -> DocumentTopics:
        """Return p(topic | observed words) of each document, which is its expected topic proportions."""
        return _posterior(self._log_joint(topics, observed))

    def sample(self, topics: TopicWords, observed: csr_array, draws: int, random: np.random.Generator) -> Draws:
        """Draw corners of the simplex (one-hot proportions) by p(topic | observed words) of one document."""
        return np.eye(len(topics))[_draw_points(self._log_joint(topics, observed), draws, random)]

    def _log_joint(self, topics: np.ndarray, counts: csr_array) -> DocumentTopics:
        """Return log p(topic) + log p(words | topic) of each document and topic, nats."""
        if topics.shape[0] != len(self.weights):
            raise ValueError(f"got {len(self.weights)} weights for {topics.shape[0]} topics, expected one for each")
        return np.asarray(counts @ _log(topics).T) + _log(self.weights)


@dataclass(frozen=True)
class TrainingDocuments:
    """The distribution in which topic proportions are those of a random training document: marginalised pLSI.

    p(w) = Σ_d p(d) Π_n Σ_k θ_dk β_{k, w_n} for words w_n, with p(d) the share of all tokens that document d has (Blei
    2004, §3.6.1; Hofmann's estimate of p(d)).

    `proportions`: θ, rows that sum to 1.
    `weights`: p(d), the probability of each training document.
    """

    proportions: Float64[np.ndarray, "training topic"]
    weights: Float64[np.ndarray, " training"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _distribution("weights", self.weights))
        rows = np.asarray(self.proportions, np.float64)
        if rows.ndim != 2 or len(rows) != len(self.weights) or not np.all(rows >= 0):
            raise ValueError(f"got proportions of shape {rows.shape}, expected ({len(self.weights)}, topics), all ≥ 0")
        if np.any(np.abs(rows.sum(1) - 1) > SUM_TOLERANCE):
            raise ValueError("got proportions whose rows do not sum to 1: divide each by its sum")
        object.__setattr__(self, "proportions", rows / rows.sum(1, keepdims=True))

    def log_likelihood(self, topics: TopicWords, counts: csr_array) -> DocumentValues:
        """Return log p(document) of each document, nats, an exact sum over training documents."""
        return np.asarray(logsumexp(self._log_joint(topics, counts), axis=1))

    def expected(self, topics: TopicWords, observed: csr_array) -> DocumentTopics:
        """Return each document's expected proportions: those of training documents, weighted by p(d | observed words).

        Here p(d | observed words) is the probability that the document has the proportions of training document d.
        """
        return _posterior(self._log_joint(topics, observed)) @ self.proportions

    def sample(self, topics: TopicWords, observed: csr_array, draws: int, random: np.random.Generator) -> Draws:
        """Draw proportions of training documents d by p(d | observed words) of one document."""
        return self.proportions[_draw_points(self._log_joint(topics, observed), draws, random)]

    def _log_joint(self, topics: np.ndarray, counts: csr_array) -> Float64[np.ndarray, "document training"]:
        """Return log p(d) + log p(words | proportions of training document d) of each document and d, nats."""
        if topics.shape[0] != self.proportions.shape[1]:
            raise ValueError(f"got proportions of {self.proportions.shape[1]} topics, expected {topics.shape[0]}")
        out = np.empty((counts.shape[0], len(self.weights)))
        for start in range(0, len(self.weights), POINTS_AT_ONCE):
            part = slice(start, start + POINTS_AT_ONCE)
            out[:, part] = counts @ _log(self.proportions[part] @ topics).T
        return out + _log(self.weights)


@dataclass(frozen=True)
class CollapsedDirichlet:
    """A Dirichlet(alpha) of topic proportions, whose posterior given words is found by collapsed updates, not mean
    field.

    The posterior is Dirichlet(γ) with γ = α + Σ_w n_w p(k | w) at p(k | w) ∝ γ_k β_kw, for n_w tokens of word w and
    β_kw = p(word w | topic k). A token's topic depends on the *expected counts* of the others, not on exp E[log θ]. The
    latter is smaller if a topic has few of them, so that mean field is too sure (Asuncion et al. 2009, CVB0 without the
    subtraction of the word itself). γ / Σγ is the highest point of the posterior in the softmax basis, Σ_k α_k log θ_k
    + log p(words | θ), which is concave (MacKay 1998).

    `alpha`: the Dirichlet parameters, one for each topic, above 0.
    """

    alpha: Float64[np.ndarray, " topic"]

    def __post_init__(self) -> None:
        array = np.asarray(self.alpha, np.float64)
        if array.ndim != 1 or not np.all((array > 0) & np.isfinite(array)):
            raise ValueError(f"got alpha={self.alpha!r}, expected a positive number for each topic")
        object.__setattr__(self, "alpha", array)

    def log_likelihood(self, topics: TopicWords, counts: csr_array) -> DocumentValues:
        """Raise ValueError: for a Dirichlet, pass alpha to `document_likelihood`, which estimates log p in nats."""
        raise ValueError("got CollapsedDirichlet for a likelihood, expected its alpha as an array: document_likelihood")

    def expected(self, topics: TopicWords, observed: csr_array) -> DocumentTopics:
        """Return the expected topic proportions γ / Σγ of each document, where its posterior is Dirichlet(γ).

        Raises ValueError if alpha has not one entry for each topic.
        """
        if topics.shape[0] != len(self.alpha):
            raise ValueError(f"got {len(self.alpha)} entries of alpha for {topics.shape[0]} topics, expected one each")
        return fold_in(topics, observed, pseudo_counts=self.alpha)

    def sample(self, topics: TopicWords, observed: csr_array, draws: int, random: np.random.Generator) -> Draws:
        """Draw the topic proportions of one document from its posterior, Dirichlet(γ)."""
        total = self.alpha.sum() + observed.sum()
        return random.dirichlet(total * self.expected(topics, observed)[0], draws)


@dataclass(frozen=True)
class FoldedIn:
    """Topic proportions that are refitted to a document's observed words, with fixed topics, by EM.

    They maximise the likelihood of these words. A document without words has the same share of every topic.

    `tempering`: the exponent of the E-step that the topics were fitted with.
    """

    tempering: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.tempering <= 1:
            raise ValueError(f"got tempering={self.tempering!r}, expected an exponent in (0, 1]")

    def log_likelihood(self, topics: TopicWords, counts: csr_array) -> DocumentValues:
        """Raise ValueError: refitted proportions give no likelihood, so there are no nats to return."""
        raise ValueError(
            "got FoldedIn for a likelihood: proportions that are fitted to the words then scored are no probability of "
            "them. Use TrainingDocuments (marginalised), or document_completion, which folds in on one part of a "
            "document and scores the other"
        )

    def expected(self, topics: TopicWords, observed: csr_array) -> DocumentTopics:
        """Return the refitted topic proportions of each document."""
        return fold_in(topics, observed, self.tempering)

    def sample(self, topics: TopicWords, observed: csr_array, draws: int, random: np.random.Generator) -> Draws:
        """Return the refitted topic proportions of one document `draws` times: a point has no spread."""
        return np.repeat(fold_in(topics, observed, self.tempering), draws, axis=0)


def draw_documents(
    topics: TopicWords, shares: DocumentTopics, lengths: Int[np.ndarray, " document"], random: np.random.Generator
) -> csr_array:
    """Draw the words of documents given their topic proportions, and return their counts, (document, word) int64.

    topics: p(word | topic); rows sum to 1. shares: the topic proportions of each document.
    lengths: the number of words of each document.
    """
    in_topics = random.multinomial(lengths, shares)  # how many words of each document are from each topic
    words, documents = [], []
    for topic, distribution in enumerate(topics):
        counts = in_topics[:, topic]
        words.append(random.choice(topics.shape[1], counts.sum(), p=distribution))
        documents.append(np.repeat(np.arange(len(lengths)), counts))
    places = np.concatenate(documents), np.concatenate(words)
    return csr_array((np.ones(len(places[0]), np.int64), places), (len(lengths), topics.shape[1]))


def fold_in(
    topics: TopicWords,
    counts: csr_array,
    tempering: float = 1.0,
    pseudo_counts: Float64[np.ndarray, " topic"] | None = None,
) -> DocumentTopics:
    """Return the topic proportions under which each document's words are most probable, by EM from even proportions.

    They maximise Σ_w n_w log Σ_k θ_k β_kw over proportions θ, with n_w tokens of word w and β_kw = p(word w | topic k).
    The objective is concave. Words without probability under every topic are left out. A document without other words
    gets the normalised pseudo-counts, or even proportions. Computed in float32.

    topics: β.
    counts: word counts, (document, word).
    tempering: with exponent b it is the fixed point of θ_k ∝ Σ_w n_w (θ_k β_kw)^b / Σ_j (θ_j β_jw)^b.
    pseudo_counts: with a it is the fixed point of θ_k ∝ a_k + Σ_w …, the argmax with Σ_k a_k log θ_k added.
    """
    n_topics = topics.shape[0]
    largest = topics.max(axis=0)
    counts = csr_array(counts, copy=True)
    counts.data = np.where(largest[counts.indices] > 0, counts.data, 0)
    counts.eliminate_zeros()
    pseudo = np.zeros(n_topics) if pseudo_counts is None else pseudo_counts
    before = np.ones(n_topics) if pseudo_counts is None else pseudo_counts
    theta = np.tile(before / before.sum(), (counts.shape[0], 1))
    rescaled = (topics / np.where(largest > 0, largest, 1.0)).T ** tempering  # moves no optimum, and fits float32
    word_topic = jnp.asarray(rescaled, jnp.float32)

    def work(tile: DocumentTile) -> tuple[DocumentTile, np.ndarray]:
        """Return the tile and the refitted proportions of its documents.

        A tile is a group of documents of one padded length.
        """
        folded = _fold_tile(word_topic, tile.words, tile.counts, np.float32(tempering), pseudo.astype(np.float32))
        return tile, np.asarray(folded, np.float64)

    rows = np.flatnonzero(np.diff(counts.indptr) > 0)
    for tile, found in map_tiles(work, distinct_word_tiles(counts, rows, n_topics)):
        theta[tile.rows] = found[: len(tile.rows)]
    return theta / theta.sum(1, keepdims=True)


@kernel()
@counted
def _fold_tile(
    word_topic: Float[Array, "word topic"],
    words: Array | np.ndarray,
    counts: Array | np.ndarray,
    tempering: Array | np.ndarray,
    pseudo_counts: Float[Array | np.ndarray, " topic"],
) -> Float[Array, "document topic"]:
    """Return the refitted topic proportions of each document of a tile.

    A tile is a group of documents of one padded length.

    word_topic: p(word | topic) to the power of the tempering.
    words, counts: distinct words of each document and how often they occur, (document, slot).
    tempering: the exponent of the E-step.
    pseudo_counts: added to the expected tokens of each topic.
    """
    added = jnp.asarray(pseudo_counts)

    def one(w: Array, n: Array) -> Float[Array, " topic"]:
        """Return the refitted topic proportions of one document."""
        beta, amounts = word_topic[w], n.astype(word_topic.dtype)
        total = amounts.sum()

        def update(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            """Make one EM step of the document's topic proportions."""
            step, theta, _ = carry
            power = theta**tempering
            ratio = amounts / jnp.maximum(beta @ power, TINY)
            new = (added + power * (ratio @ beta)) / (added.sum() + total)
            return step + 1, new, jnp.abs(new - theta).max() > FOLDING_TOLERANCE

        even = jnp.full(beta.shape[1], 1.0 / beta.shape[1], beta.dtype)
        start = jnp.asarray(0), even, total > 0
        return jax.lax.while_loop(lambda carry: (carry[0] < FOLDING_STEPS) & carry[2], update, start)[1]

    return jax.vmap(one)(jnp.asarray(words), jnp.asarray(counts))


def _posterior(log_joint: Float64[np.ndarray, "document point"]) -> Float64[np.ndarray, "document point"]:
    """Return the distribution over points for each document, from log joint probabilities; NaN if no point is possible.

    A point is a topic or a training document.
    """
    possible = np.isfinite(log_joint.max(axis=1, keepdims=True))
    return np.where(possible, softmax(np.where(possible, log_joint, 0.0), axis=1), np.nan)


def _draw_points(log_joint: np.ndarray, draws: int, random: np.random.Generator) -> np.ndarray:
    """Draw points (topics or training documents) of one document in proportion to its joint probabilities, (draw,).

    log_joint: log joint probability of the document and each point, (1, point).

    Raises ValueError if no point is possible.
    """
    (posterior,) = _posterior(log_joint)
    if np.isnan(posterior).any():
        raise ValueError("got words that cannot occur together in one document: smooth the topics")
    return random.choice(len(posterior), draws, p=posterior)


def _log(values: np.ndarray) -> np.ndarray:
    """Return the logarithm of the values, −inf at 0, without a warning."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def _distribution(name: str, values: np.ndarray) -> Float64[np.ndarray, " entry"]:
    """Return `values` as a probability distribution, renormalised. `name` is what an error calls them.

    Raises ValueError for values that are no distribution.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not np.all(array >= 0) or abs(array.sum() - 1) > SUM_TOLERANCE:
        raise ValueError(f"got {name} of shape {array.shape} and sum {array.sum():.6g}, expected a distribution: 1")
    return array / array.sum()
