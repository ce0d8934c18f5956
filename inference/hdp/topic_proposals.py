"""Proposals for topics that no pass over the documents can make: merge two, delete one, split one in two
(a birth).

Each proposal is a new set of expected counts, from which passes go on (the idea is Hughes & Sudderth's, 2013).
Proposals are ranked by words alone, by the marginal likelihood of a topic's words (its Dirichlet integrated out). The
bound of the process decides whether one is kept.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array
from scipy.special import gammaln

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.mixtures.proposals import EMPTY, Idea
from lvsearch.inference.topics.merging import closest_pairs

SHORTLIST = 64
"""The number of most similar pairs of topics whose merger is evaluated word by word."""
CUT_STEPS = 10
"""The number of steps of the power iteration, and of the refinement, that split a topic."""
TINY = 1e-30
"""The smallest divisor, which replaces smaller ones."""


class TopicShares(NamedTuple):
    """Expected tokens of each topic: `words` (word, topic) by word, `in_documents` (document, topic) by document."""

    words: Float[np.ndarray, "word topic"]
    in_documents: Float[np.ndarray, "document topic"]

    @property
    def tokens(self) -> Float[np.ndarray, " topic"]:
        """The expected number of tokens of each topic."""
        return self.words.sum(0)


class TopicCuts(NamedTuple):
    """Every topic split in two: the tokens that stay, and those that a new topic takes.

    | field | meaning |
    |---|---|
    | `gains` | (topic,) log marginal likelihood of both sides' words minus that of all, nats; 0 without a split |
    | `far` | (document, topic) which documents' tokens the new topic takes |
    | `words` | (word, topic) the share of the topic's tokens of each word that the new topic takes |
    """

    gains: Float[np.ndarray, " topic"]
    far: Bool[np.ndarray, "document topic"]
    words: Float[np.ndarray, "word topic"]


def topic_ideas(
    shares: TopicShares, counts: csr_array, topic_concentration: float, most: int
) -> Iterator[Idea[TopicShares]]:
    """Yield the most promising proposals for topics, at most `most` of each kind.

    Merges are of pairs whose words one topic explains best. Deletions are of the smallest topics; passes find new
    topics for their tokens. Births are of topics whose words two topics explain best. The new topic takes a free place
    (array slot), or that of the emptiest topic.

    counts: (document, word).
    topic_concentration: the topics' Dirichlet concentration of each word.
    """
    tokens, in_order = shares.tokens, np.argsort(shares.tokens, kind="stable")
    used = in_order[tokens[in_order] > EMPTY]
    for kept, gone in _likely_pairs(shares, np.sort(used), topic_concentration)[:most]:
        yield Idea("merge", (kept, gone), _move_tokens(shares, gone, kept))
    if len(used) > 1:
        for gone in used[:most].tolist():
            yield Idea("delete", (gone,), _drop_topic(shares, gone))
    cuts = cut_topics(counts, shares, topic_concentration)
    parents = used[np.argsort(-cuts.gains[used], kind="stable")]
    for parent in parents[cuts.far[:, parents].any(0)][:most].tolist():
        child = int(np.argmin(np.where(np.arange(len(tokens)) == parent, np.inf, tokens)))
        if child != parent:
            cleared = _drop_topic(shares, child) if tokens[child] > EMPTY else shares
            far = cuts.far[:, parent].astype(np.float64)
            yield Idea("birth", (parent, child), _move_tokens(cleared, parent, child, cuts.words[:, parent], far))


def log_topics(words: Float[np.ndarray, "word topic"], topic_concentration: float) -> Float[np.ndarray, " topic"]:
    """Return log p(words of each topic) with its word distribution integrated out, nats; 0 without words.

    words: expected tokens of each word in each topic.
    topic_concentration: the topics' Dirichlet concentration of each word.
    """
    n_words, eta = len(words), topic_concentration
    each = gammaln(words + eta).sum(0) - gammaln(words.sum(0) + n_words * eta)
    return each + gammaln(n_words * eta) - n_words * gammaln(eta)


def _likely_pairs(shares: TopicShares, used: np.ndarray, topic_concentration: float) -> list[tuple[int, int]]:
    """Return pairs (larger, smaller) of used topics, pairs whose words one topic explains best first.

    used: the topics that have tokens.
    """
    if len(used) < 2:
        return []
    first, second = (used[side] for side in closest_pairs(shares.words[:, used].T, SHORTLIST))
    alone = log_topics(shares.words, topic_concentration)
    joined = log_topics(shares.words[:, first] + shares.words[:, second], topic_concentration)
    order = np.argsort(alone[first] + alone[second] - joined, kind="stable")
    larger = shares.tokens[first] >= shares.tokens[second]
    kept, gone = np.where(larger, first, second), np.where(larger, second, first)
    return list(zip(kept[order].tolist(), gone[order].tolist(), strict=True))


# ── new counts from old ─────────────────────────────────────────────────────────────────────────────────────────────


def _move_tokens(
    shares: TopicShares, source: int, target: int, of_words: np.ndarray | float = 1.0, of_each: np.ndarray | float = 1.0
) -> TopicShares:
    """Return the counts after a share of one topic's tokens was given to another topic.

    source, target: the two topics.
    of_words: the share of the tokens of each word that moves.
    of_each: the share of the tokens in each document that moves.
    """

    def move(counts: np.ndarray, share: np.ndarray | float) -> np.ndarray:
        """Return the counts (…, topic) after a share of the source's moved to the target."""
        out, going = counts.copy(), share * counts[:, source]
        out[:, source] -= going
        out[:, target] += going
        return out

    return TopicShares(move(shares.words, of_words), move(shares.in_documents, of_each))


def _drop_topic(shares: TopicShares, gone: int) -> TopicShares:
    """Return the counts without one topic's tokens. gone: the topic."""
    kept = np.arange(len(shares.tokens)) != gone
    return TopicShares(shares.words * kept, shares.in_documents * kept)


# ── cuts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cut_topics(counts: csr_array, shares: TopicShares, topic_concentration: float) -> TopicCuts:
    """Split each topic's documents in two groups by the words of the topic that they have.

    At the expected counts, topic k has the share θ_dk φ_kw / Σ_l θ_dl φ_lw of the tokens of word w in document d, with
    topic shares θ_d and word distributions φ. Documents with less than one token of the topic stay.

    counts: (document, word).
    topic_concentration: the topics' Dirichlet concentration of each word.
    """
    (n_documents, n_words), n_topics = shares.in_documents.shape[:1] + shares.words.shape[:1], shares.words.shape[1]
    document, word = row_of_each_nonzero(counts), counts.indices
    weights = (shares.words + topic_concentration) / (shares.tokens + n_words * topic_concentration)

    def scores(topic: int) -> np.ndarray:
        """Return the numerator of a topic's share of each (document, word) entry of `counts`."""
        return shares.in_documents[document, topic] * weights[word, topic]

    total = sum((scores(topic) for topic in range(n_topics)), np.full(len(word), TINY))  # one topic at a time: memory
    found = TopicCuts(np.zeros(n_topics), np.zeros((n_documents, n_topics), bool), np.zeros((n_words, n_topics)))
    for topic in range(n_topics):
        members = np.flatnonzero(shares.in_documents[:, topic] >= 1)
        if len(members) < 2:
            continue
        share = csr_array((counts.data * scores(topic) / total, word, counts.indptr), shape=counts.shape)
        tokens = csr_array(share[members])
        far = _split_documents(tokens, topic_concentration)
        if 0 < far.sum() < len(far):
            sides = _words_of_sides(tokens, far)
            whole = sides.sum(1, keepdims=True)
            apart = log_topics(sides, topic_concentration).sum()
            found.gains[topic] = apart - log_topics(whole, topic_concentration)[0]
            found.far[members, topic] = far
            found.words[:, topic] = sides[:, 1] / np.maximum(whole[:, 0], TINY)
    return found


def _split_documents(tokens: csr_array, topic_concentration: float) -> Bool[np.ndarray, " document"]:
    """Return which documents lie on the far side of a split by their words.

    The first split is along the direction in which word frequencies differ most. Then, in turns, the words of both
    groups are counted and each document joins the group that explains it better. The direction is the first eigenvector
    of the covariance of the square roots of word frequencies, whose distances are Hellinger's. It is found by power
    iteration from the word that varies most.

    tokens: expected tokens of one topic, (document, word).
    topic_concentration: the topics' Dirichlet concentration of each word.
    """
    n_words = tokens.shape[1]
    lengths = np.maximum(np.asarray(tokens.sum(1)).ravel(), TINY)
    frequencies = tokens.data / np.repeat(lengths, np.diff(tokens.indptr))
    roots = csr_array((np.sqrt(frequencies), tokens.indices, tokens.indptr), shape=tokens.shape)
    mean = roots.T @ lengths / lengths.sum()
    spread = roots.power(2).T @ lengths / lengths.sum() - mean**2
    direction = (np.arange(n_words) == np.argmax(spread)).astype(np.float64)
    along = roots @ direction - mean @ direction
    for _ in range(CUT_STEPS):
        direction = roots.T @ (lengths * along)
        direction /= max(float(np.linalg.norm(direction)), TINY)
        along = roots @ direction - mean @ direction
    far = along > 0
    for _ in range(CUT_STEPS):
        words = _words_of_sides(tokens, far) + topic_concentration
        log_words = np.log(words) - np.log(words.sum(0))
        far = tokens @ (log_words[:, 1] - log_words[:, 0]) > 0
    return far


def _words_of_sides(tokens: csr_array, far: np.ndarray) -> Float[np.ndarray, "word side"]:
    """Return the tokens by word, (word, side), of the documents that are not far (side 0) and of those that are
    (side 1).

    tokens: (document, word). far: (document,).
    """
    return tokens.T @ np.stack([~far, far], axis=1).astype(np.float64)
