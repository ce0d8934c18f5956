"""Collapsed Gibbs sampling for LDA: proportions and topics integrated out, one topic indicator per token.

This is the reference for quality: slow compared with `topics.py`, and exact as the chain grows. Let n be counts
*without* token i: n_dk of topic k in its document, n_k,w_i of its word in topic k, n_k of topic k. With V words and
concentrations α, η of the priors (Blei 2004, §3.7; §6.2.1 with one level; Griffiths & Steyvers 2004, who divide by n_k
+ Vη as is done here),

    p(z_i = k | z_¬i, w) ∝ (n_dk + α_k) (n_k,w_i + η) / (n_k + Vη)

    log p(w, z | α, η) = Σ_d [log Γ(A) − log Γ(A + N_d) + Σ_k log Γ(α_k + n_dk) − log Γ(α_k)]          A = Σ_k α_k
                       + Σ_k [log Γ(Vη) − log Γ(Vη + n_k) + Σ_w log Γ(η + n_kw) − log Γ(η)]

A sweep visits the tokens in the order of the documents, each seeing the new topics of all before it. This makes it
exact, and it makes it one sequential scan on any device. A token costs O(K) in vector operations, for K topics, and a
row of each count table read and written in place. Each copy of a word is a token of its own.

The indicator is drawn by inverting the distribution function with one uniform number of 23 bits per token, in float32.
A conditional probability is off by at most about 1e-6.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int32, Key
from scipy.special import gammaln

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of, row_of_each_nonzero
from lvsearch.inference.sharding import one_after_another
from lvsearch.models.kernels import kernel
from lvsearch.models.lda import LDA


class Tokens(NamedTuple):
    """The tokens of a corpus, document by document: every copy of every word is one token.

    | field | shape | meaning |
    |---|---|---|
    | `document` | (token,) | document numbers, ascending |
    | `word` | (token,) | vocabulary ids |
    """

    document: Int32[Array | np.ndarray, " token"]
    word: Int32[Array | np.ndarray, " token"]


class IndicatorState(NamedTuple):
    """The topic of every token, and the counts that follow.

    | field | letter | shape |
    |---|---|---|
    | `assignments` | z, the topic of each token | (token,) |
    | `document_topic` | n_dk, tokens of each document in each topic | (document, topic) |
    | `word_topic` | n_kw, tokens of each word in each topic | (word, topic) |
    | `topic_total` | n_k, tokens in each topic | (topic,) |
    """

    assignments: Int32[Array | np.ndarray, " token"]
    document_topic: Int32[Array | np.ndarray, "document topic"]
    word_topic: Int32[Array | np.ndarray, "word topic"]
    topic_total: Int32[Array | np.ndarray, " topic"]


@dataclass(frozen=True, eq=False)
class CollapsedSample:
    """One state of the chain, with the log joint density after every sweep so far.

    | field | shape | meaning |
    |---|---|---|
    | `tokens` | | document and word of each token |
    | `assignments` | (token,) | z, the topic of each token, int32 |
    | `document_topic` | (document, topic) | n_dk, tokens of each document in each topic, int32 |
    | `topic_word` | (topic, word) | n_kw, tokens of each word in each topic, int32 |
    | `alpha` | (topic,) | α, the concentration of the proportions' prior on each topic, float64 |
    | `eta` | | η, the concentration of the topics' prior |
    | `log_joint` | (sweep,) | log p(w, z | α, η) after every sweep of the chain so far, float64, nats |
    """

    tokens: Tokens
    assignments: Int32[np.ndarray, " token"]
    document_topic: Int32[np.ndarray, "document topic"]
    topic_word: Int32[np.ndarray, "topic word"]
    alpha: Float64[np.ndarray, " topic"]
    eta: float
    log_joint: Float64[np.ndarray, " sweep"]

    def topics(self) -> Float64[np.ndarray, "topic word"]:
        """Return the expected distribution over words of each topic given the tokens' topics, (topic, word); rows sum
        to 1.

        It is (n_kw + η) / (n_k + Vη), from counts and the prior's concentration η.
        """
        counts = self.topic_word + self.eta
        return counts / counts.sum(axis=1, keepdims=True)

    def proportions(self) -> Float64[np.ndarray, "document topic"]:
        """Return the expected topic proportions of each document given the tokens' topics, (document, topic); rows sum
        to 1.

        They are (n_dk + α_k) / (N_d + Σ_k α_k), from counts and the prior's concentration α.
        """
        counts = self.document_topic + self.alpha
        return counts / counts.sum(axis=1, keepdims=True)


def collapsed_gibbs(
    model: LDA, data: Dataset, size: int, *, sweeps: int, key: Key[Array, ""], start: CollapsedSample | None = None
) -> CollapsedSample:
    """Run one collapsed Gibbs chain of LDA for `sweeps` more sweeps, and return its state.

    A chain begins by adding the tokens one at a time, each drawn given those before it; this does not count as a sweep.
    Continuing a sample with its own key gives the same bits as one longer run.

    model: an LDA, whose α and η are used as they are.
    data: the documents.
    size: number of topics, the only one compiled for.
    sweeps: number of further sweeps.
    key: the random key of the chain.
    start: a sample of the same chain to continue; None begins the chain.

    Raises ValueError for a size or number of sweeps below 1, a model whose topics are point estimates, an α of another
    size, counts that are not whole numbers, and a `start` from other data, another size or other hyper-parameters.
    """
    alpha, eta = _hyperparameters(model, size)
    if sweeps < 1:
        raise ValueError(f"got sweeps={sweeps}, expected at least 1")
    tokens, n_words = expand(data), data.extents["word"]
    log_joint: list[float] = []
    if start is None:
        empty = IndicatorState(
            np.zeros(len(tokens.word), np.int32),
            np.zeros((data.n_units, size), np.int32),
            np.zeros((n_words, size), np.int32),
            np.zeros(size, np.int32),
        )
        state = _run_sweep(empty, tokens, key, 0, alpha, eta, adding=True)
    else:
        _check_start(start, tokens, alpha, eta)
        total = start.topic_word.sum(axis=1, dtype=np.int32)
        state = IndicatorState(start.assignments, start.document_topic, start.topic_word.T, total)
        log_joint = start.log_joint.tolist()
    # sweeps are numbered from the beginning of the chain, so that a continued chain draws the same numbers
    for number in range(len(log_joint) + 1, len(log_joint) + sweeps + 1):
        state = _run_sweep(state, tokens, key, number, alpha, eta, adding=False)
        log_joint.append(log_joint_of(np.asarray(state.document_topic), np.asarray(state.word_topic), alpha, eta))
    return CollapsedSample(
        tokens,
        np.array(state.assignments),
        np.array(state.document_topic),
        np.array(state.word_topic).T,
        alpha,
        eta,
        np.array(log_joint),
    )


def expand(data: Dataset) -> Tokens:
    """Return the tokens of a data set of documents: a word counted n times gives n tokens.

    Raises ValueError for counts that are not whole.
    """
    if any(np.any(np.asarray(batch.units.counts) % 1) for batch in data.batches):
        raise ValueError("got counts that are not whole numbers; expected raw word counts, of which each is a token")
    counts = counts_of(data)
    copies = np.asarray(counts.data, np.int64)
    document = row_of_each_nonzero(counts).astype(np.int32)
    return Tokens(np.repeat(document, copies), np.repeat(np.asarray(counts.indices, np.int32), copies))


def log_joint_of(
    document_topic: Int32[np.ndarray, "document topic"],
    word_topic: Int32[np.ndarray, "word topic"],
    alpha: Float64[np.ndarray, " topic"],
    eta: float,
) -> float:
    """Return log p(w, z | α, η), the log joint density of words and tokens' topics, in nats, float64.

    document_topic, word_topic: how many tokens of each document, and of each word, are in each topic.
    alpha: the concentration of the proportions' prior on each topic.
    eta: the concentration of the topics' prior.
    """
    n_words = len(word_topic)
    total, lengths = alpha.sum(), document_topic.sum(axis=1)
    topic = np.nonzero(document_topic)[1]
    proportions = (gammaln(total) - gammaln(total + lengths)).sum()
    proportions += (gammaln(alpha[topic] + document_topic[document_topic > 0]) - gammaln(alpha[topic])).sum()
    words = (gammaln(n_words * eta) - gammaln(n_words * eta + word_topic.sum(axis=0))).sum()
    words += (gammaln(eta + word_topic[word_topic > 0]) - gammaln(eta)).sum()
    return float(proportions + words)


# ── one sweep ───────────────────────────────────────────────────────────────────────────────────────────────────────


def weights(
    in_document: Int32[Array, " topic"],
    of_word: Int32[Array, " topic"],
    topic_total: Int32[Array, " topic"],
    alpha: Float[Array, " topic"],
    eta: Float[Array, ""],
    n_words: int,
) -> Float[Array, " topic"]:
    """Return the probability of each topic of a token given all other tokens, up to a constant, (topic,).

    in_document: tokens of its document in each topic, without the token.
    of_word: tokens of its word in each topic, without the token.
    topic_total: tokens in each topic, without the token.
    alpha, eta: concentrations of the proportions' and of the topics' prior.
    n_words: the number of words in the vocabulary.
    """
    return (in_document + alpha) * (of_word + eta) / (topic_total + n_words * eta)


def draw(weight: Float[Array, " topic"], uniform: Float[Array, ""]) -> Int32[Array, ""]:
    """Return a topic drawn in proportion to `weight`: the first at which the running sum exceeds `uniform` times the
    total.

    The search has two levels: blocks of about √K topics, for K topics, and the topics of one block. It takes O(K)
    additions, where XLA's running sum over all K takes log K passes.

    uniform: a number in [0, 1).
    """
    n_topics = len(weight)
    width = math.isqrt(n_topics - 1) + 1
    blocks = jnp.pad(weight, (0, -n_topics % width)).reshape(-1, width)
    sums = blocks.sum(axis=1)
    ends = _running_sum(sums)
    threshold = uniform * ends[-1]
    block = jnp.minimum((ends <= threshold).sum(), len(ends) - 1)
    within = _running_sum(blocks[block])
    place = (within <= threshold - (ends[block] - sums[block])).sum()
    return jnp.minimum(block * width + place, n_topics - 1).astype(jnp.int32)


def _running_sum(values: Float[Array, " entry"]) -> Float[Array, " entry"]:
    """Return the sums of the first 1, 2, … entries."""
    entry = jnp.arange(len(values))
    return jnp.where(entry[:, None] >= entry, values, 0).sum(axis=1)


def sweep(
    state: IndicatorState,
    tokens: Tokens,
    uniforms: Float[Array, " token"],
    alpha: Float[Array, " topic"],
    eta: Float[Array, ""],
    *,
    adding: bool = False,
) -> IndicatorState:
    """Draw the topic of every token once, in order, given all others, and return the new state.

    state: topics of all tokens, with their counts.
    tokens: document and word of each token.
    uniforms: one number in [0, 1) per token.
    alpha, eta: concentrations of the proportions' and of the topics' prior.
    adding: True if the tokens are not in the counts yet.
    """
    n_words, n_topics = state.word_topic.shape
    topic = jnp.arange(n_topics)

    def one_token(
        counts: tuple[Array, Array, Array], x: tuple[Array, Array, Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Array]:
        document_topic, word_topic, topic_total = counts
        document, word, old, uniform = x
        own = jnp.zeros(n_topics, jnp.int32) if adding else (topic == old).astype(jnp.int32)
        in_document, of_word, total = document_topic[document] - own, word_topic[word] - own, topic_total - own
        new = draw(weights(in_document, of_word, total, alpha, eta, n_words), uniform)
        own = (topic == new).astype(jnp.int32)
        document_topic = document_topic.at[document].set(in_document + own)
        return (document_topic, word_topic.at[word].set(of_word + own), total + own), new

    assigned, document_topic, word_topic, topic_total = map(jnp.asarray, state)
    document, word = map(jnp.asarray, tokens)
    counts, new = jax.lax.scan(
        one_token, (document_topic, word_topic, topic_total), (document, word, assigned, uniforms)
    )
    return IndicatorState(new, *counts)


@kernel(static_argnames=("adding",), donate_argnames=("state",))
def _sweep(
    state: IndicatorState,
    tokens: Tokens,
    key: Key[Array, ""],
    number: int | Array,
    alpha: Float[Array | np.ndarray, " topic"],
    eta: float | Array,
    *,
    adding: bool,
) -> IndicatorState:
    """Run one sweep of the chain of `key`, compiled (see `sweep`).

    number: the number of the sweep, which is folded into the key.
    adding: True if the tokens are not in the counts yet.
    """
    uniforms = jax.random.uniform(jax.random.fold_in(key, number), tokens.word.shape, jnp.float32)
    return sweep(state, tokens, uniforms, jnp.asarray(alpha), jnp.asarray(eta), adding=adding)


def _run_sweep(
    state: IndicatorState,
    tokens: Tokens,
    key: Key[Array, ""],
    number: int,
    alpha: Float64[np.ndarray, " topic"],
    eta: float,
    *,
    adding: bool,
) -> IndicatorState:
    """Run one sweep of the chain of `key` on the device that suits sequential scans, and return the new state.

    number: the number of the sweep, which is folded into the key.
    adding: True if the tokens are not in the counts yet.
    """
    with one_after_another():
        return _sweep(
            IndicatorState(*map(jnp.asarray, state)),
            tokens,
            key,
            number,
            alpha.astype(np.float32),
            np.float32(eta),
            adding=adding,
        )


# ── the border ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _hyperparameters(model: LDA, size: int) -> tuple[Float64[np.ndarray, " topic"], float]:
    """Return (α of each topic, η), the concentrations of the proportions' and of the topics' prior.

    Raises ValueError for a size below 1, point-estimate topics, seeds, or an α of another size.
    """
    if size < 1:
        raise ValueError(f"got size={size}, expected at least 1 topic")
    concentration, eta = model.numbers()
    if model.seeds is not None:
        raise ValueError("got an LDA with seeds, expected one without: lv.sample draws from the posterior with seeds")
    if eta is None:
        raise ValueError("got an LDA whose topics are point estimates; expected topic_concentration, to integrate out")
    total = np.asarray(concentration, np.float64)
    if total.ndim and len(total) != size:
        raise ValueError(
            f"got concentration with {len(total)} entries for {size} topics; expected one each, or a total"
        )
    return np.broadcast_to(total if total.ndim else total / size, (size,)).copy(), float(eta)


def _check_start(start: CollapsedSample, tokens: Tokens, alpha: Float64[np.ndarray, " _"], eta: float) -> None:
    """Raise ValueError unless the sample `start` has the given tokens and hyper-parameters."""
    same = all(np.array_equal(a, b) for a, b in zip(start.tokens, tokens, strict=True))
    if not same or not np.array_equal(start.alpha, alpha) or start.eta != eta:
        raise ValueError(
            "got a start from other documents, another number of topics or other hyper-parameters; expected a sample "
            "of the chain to continue: leave start out to begin a new one"
        )
