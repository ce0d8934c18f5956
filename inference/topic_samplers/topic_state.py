"""The topics of all tokens, and draws of them one after another or in groups, for all collapsed chains of LDA; and the
inputs of these chains.

Particles (independent copies of the state) are on the last axis. So one draw is a vector operation over (topic,
particle), and documents and words select whole rows.

Groups of tokens are of two kinds. The tokens of a small group (`small_groups`) share neither document nor word. Those
of a wide group (`wide_groups`) share no document, and words repeat.

The tokens of a small group interact only through n_k, the number of tokens in topic k. Let m_k tokens of the group be
in topic k, and let b_k = n_k + Vη without them, for V words and topic concentration η. Given all tokens outside the
group, the joint conditional of the group's topics z_i at temperature t is

    Π_i f_i(z_i) · Π_k [Γ(b_k) / Γ(b_k + m_k)]^t

with f_i the factor of token i that does not depend on the group. A proposal draws each token by itself, in proportion
to f_i(k) b_k^(−t). It puts m'_k tokens into topic k. It is accepted for all tokens together with probability min(1, Π_k
[Γ(b_k + m_k) / Γ(b_k + m'_k)]^t b_k^(t (m'_k − m_k))). This is almost 1, since m_k is small compared with n_k. Like a
draw of one token, the move is reversible.

A wide group is drawn in two steps. Let c_k be a word's tokens in topic k without the group, plus η, of which the
group now has m_k and is proposed to have m'_k. In the first step n_k is held at its value without the group, so that
words are independent of each other. The tokens of one word are accepted or refused together, with probability min(1,
Π_k [Γ(c_k + m'_k) / Γ(c_k + m_k)]^t c_k^(t (m_k − m'_k))). This leaves the distribution with n_k held as it is. So what
it arrives at is a proposal for the second step, which accepts or refuses the whole group as above (the surrogate
transition of Liu 2001, §9.4.3).

The inputs are the log factors of a path's start (`GivenFactors`), hyper-parameters of single particles
(`Concentrations`), array lengths that similar corpora share (`padded`), and the groups of tokens. For small groups of
at most W tokens, documents and words are each divided among W lanes, evenly by their numbers of tokens. In each round a
permutation gives every lane of documents a lane of words, whose tokens it holds. So no two lanes share a document or a
word. The rounds are chosen so that hardly a place of any group is empty.
"""

import heapq
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import csr_array
from scipy.special import logsumexp

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.models.exponential.digamma import log_gamma_positive

PAIRS = 1 << 16
"""The number of (document, word) pairs whose normalisers are computed together."""
LENGTHS = (64, 1.25)
"""The first length and the ratio of the geometric ladder of padded lengths.

Tokens, documents and words are padded to it, so that corpora of similar size share a compiled program.
"""


class GivenFactors(NamedTuple):
    """The log factors of q, the distribution at the start of an annealing path of LDA.

    A token of word w in document d is in topic k with probability q_i(k) ∝ exp(documents[d, k] + words[w, k]).
    `documents` is None if only topics are given; then the prior of the document's topics takes its place.
    """

    documents: Float[np.ndarray, "document topic"] | None
    words: Float[np.ndarray, "word topic"]

    def padded_to(self, capacity: int) -> "GivenFactors":
        """Return the factors in the form that a chain stores: float32, padded with 0 to `capacity` topics and padded
        lengths.
        """

        def factor(table: np.ndarray) -> np.ndarray:
            """Pad one table and convert it to float32."""
            more = padded(len(table)) - len(table), capacity - table.shape[1]
            return np.pad(np.asarray(table, np.float32), [(0, each) for each in more])

        return GivenFactors(None if self.documents is None else factor(self.documents), factor(self.words))

    def log_normaliser(self, counts: csr_array) -> float:
        """Return Σ over all tokens of log Σ_k exp of both factors, in nats, from factors rounded to float32 as the
        chain's are.

        counts: word counts, (document, word).
        """
        documents, words = (np.asarray(each, np.float32).astype(np.float64) for each in self if each is not None)
        of_pair = row_of_each_nonzero(counts), counts.indices
        total = 0.0
        for first in range(0, len(counts.indices), PAIRS):
            here = slice(first, first + PAIRS)
            document, word = (each[here] for each in of_pair)
            each = np.asarray(logsumexp(documents[document] + words[word], axis=1))
            total += float(counts.data[here] @ each)
        return total


class SeedTokens(NamedTuple):
    """The imaginary tokens of topics with seeds, with which counts of words in topics begin (`lvsearch.models.lda`).

    | field | shape | meaning |
    |---|---|---|
    | `words` | (word, topic) | imaginary tokens of each word in each topic, float32 whole numbers; 0 in free topics |
    | `log_words` | () | the log-probability of all imaginary tokens given their topics and η, nats |
    """

    words: Float[np.ndarray, "word topic"]
    log_words: np.ndarray


class Concentrations(NamedTuple):
    """Hyper-parameters of each particle that replace the chain's own; None keeps the chain's own.

    | field | letter | shape |
    |---|---|---|
    | `alpha` | α, the proportions' concentration | (topic, particle), 0 for topics that do not exist |
    | `eta` | η, the concentration of the topics' prior | (particle,) |
    """

    alpha: Float[Array, "topic particle"] | None = None
    eta: Float[Array, " particle"] | None = None


OWN = Concentrations()


def padded(length: int) -> int:
    """Return the smallest length of a geometric ladder (64, 80, 104, …) that is at least `length`.

    Arrays are padded to these lengths, so that corpora of similar size share a compiled program.
    """
    least, ratio = LENGTHS
    size = least
    while size < length:
        size = int(np.ceil(size * ratio / 8)) * 8
    return size


# ── groups of tokens ──────────────────────────────────────────────────────────────────────────────────────────────────


WIDEST = 64
"""The largest number of tokens in a group.

On one core with 64 topics, groups of 16, 32 and 64 take .17, .12 and .11 microseconds per token of Cora. Of the
Associated Press corpus with 200 topics, groups of 32, 64 and 128 take .26, .23 and .22 to .25.
"""
MOST_IN_WIDE_GROUP = 1024
"""The largest number of tokens in a wide group. Of the groups of Cora, with 525 tokens, 98.8 % are accepted."""
IMPOSSIBLE = 1e6
"""The cost of an empty cell where lanes are matched; far above that of any choice of cells with tokens."""


def group_width(document: Int[np.ndarray, " token"], word: Int[np.ndarray, " token"]) -> int:
    """Return how many tokens a group may have without many empty slots: a power of two.

    It is small if one document or word has many of the tokens, since a group holds one token of each.

    document, word: the document and the word of each token.
    """
    if not len(document):
        return 1
    most = max(int(np.bincount(each).max()) for each in (document, word))
    widest = min(WIDEST, len(document) / most)
    return 1 << round(np.log2(max(widest, 1)))


def small_groups(
    document: Int[np.ndarray, " token"], word: Int[np.ndarray, " token"], width: int
) -> Int[np.ndarray, "group place"]:
    """Return groups of tokens that share neither document nor word, (group, place): the number of a token, or −1.

    document, word: the document and the word of each token.
    width: how many places for tokens a group has.
    """
    lane, other = (_lanes(each, width)[each] for each in (document, word))
    cell = lane * width + other
    order = np.argsort(cell, kind="stable")  # the tokens of each cell lie together
    held = np.bincount(cell, minlength=width * width)
    end = np.cumsum(held)
    following = end - held  # the next token of each cell that has no group yet
    rounds = []
    for lanes_of_words, length in _rounds(held.reshape(width, width)):
        cells = np.arange(width) * width + lanes_of_words
        places = following[cells] + np.arange(length)[:, None]
        rounds.append(np.where(places < end[cells], order[np.minimum(places, len(order) - 1)], -1))
        following[cells] += length
    return np.concatenate(rounds)


def wide_groups(document: Int[np.ndarray, " token"]) -> Int[np.ndarray, "group place"]:
    """Return wide groups of tokens, of which no two are of one document, (group, place): the number of a token, or −1.

    There are as many groups as the longest document has tokens, or more, so that none has more than
    `MOST_IN_WIDE_GROUP` tokens.

    document: the document of each token.
    """
    n_groups = max(int(np.bincount(document).max(initial=1)), -(-len(document) // MOST_IN_WIDE_GROUP))
    width = max(1, -(-len(document) // n_groups))
    # the tokens of a document follow each other, and are dealt to the groups in turn
    dealt = np.pad(np.argsort(document, kind="stable"), (0, n_groups * width - len(document)), constant_values=-1)
    return dealt.reshape(width, n_groups).T


def leaders_of_words(words: Int[np.ndarray, "group place"]) -> Int[np.ndarray, "group place"]:
    """Return, for each place of each group, the first place with the same word (its leader), (group, place).

    words: the word of each token, −1 at empty places.
    """
    found = np.zeros(words.shape, np.int32)
    for group, own in zip(found, words, strict=True):
        _, first, of_slot = np.unique(own, return_index=True, return_inverse=True)
        group[:] = first[of_slot]
    return found


def _rounds(held: Int[np.ndarray, "lane lane"]) -> list[tuple[Int[np.ndarray, " lane"], int]]:
    """Return the rounds in which all tokens are drawn: for each the lane of words that each lane of documents takes, a
    permutation (lane,), and its number of groups.

    Together the rounds have as many groups as the fullest lane has tokens, which is the least possible number (König
    1916; Birkhoff 1946). Empty places make all lanes equally full. Then some permutation always meets tokens or empty
    places in every lane.

    held: how many tokens lie in each lane of documents and lane of words.
    """
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    of_documents, of_words = held.sum(1), held.sum(0)
    longest = max(of_documents.max(), of_words.max())
    # Empty places of lanes of documents are dealt to lanes of words, each from left to right.
    ends = [np.concatenate([[0], np.cumsum(longest - each)]) for each in (of_documents, of_words)]
    overlap = np.minimum(ends[0][1:, None], ends[1][1:]) - np.maximum(ends[0][:-1, None], ends[1][:-1])
    left, rounds = held + np.maximum(overlap, 0), []
    while left.any():
        # fullest cells first, so that rounds are few
        cost = np.where(left > 0, -np.log(np.maximum(left, 1)), IMPOSSIBLE)
        lanes, lanes_of_words = linear_sum_assignment(cost)
        length = int(left[lanes, lanes_of_words].min())
        left[lanes, lanes_of_words] -= length
        rounds.append((lanes_of_words, length))
    return rounds


def _lanes(member: Int[np.ndarray, " token"], width: int) -> Int[np.ndarray, " member"]:
    """Return which of `width` lanes each document (or word) is assigned to, so that lanes have about equally many
    tokens.

    Documents with most tokens come first, each to the emptiest lane.

    member: the document (or word) of each token.
    """
    tokens = np.bincount(member)
    lanes, load = np.zeros(len(tokens), np.int64), [(0, lane) for lane in range(width)]
    for each in np.argsort(-tokens, kind="stable").tolist():
        least, lane = load[0]
        lanes[each] = lane
        heapq.heapreplace(load, (least + int(tokens[each]), lane))
    return lanes


STRETCHES = (16, 8, 4)
"""Numbers of stretches in which topics are searched, the best first. A stretch has two topics or more."""
BELOW_ONE = 1 - 2.0**-23
"""A factor that keeps a uniform number times a sum below the sum."""


class TopicState(NamedTuple):
    """The topics of all tokens, and the counts that follow from them, for several particles.

    | field | letter | shape |
    |---|---|---|
    | `assignment` | z, the topic of each token | (token, particle); −1 for padding |
    | `document_topic` | n_dk, tokens of a document in a topic | (document, topic, particle), float32 whole numbers |
    | `word_topic` | n_kw, tokens of a word in a topic | (word, topic, particle) |
    | `topic_total` | n_bk, tokens in a topic by block of the vocabulary | (block, topic, particle) |

    The last two include the imaginary tokens of seeds, if there are any.
    """

    assignment: Int[Array, "token particle"]
    document_topic: Float[Array, "document topic particle"]
    word_topic: Float[Array, "word topic particle"]
    topic_total: Float[Array, "block topic particle"]


class TokenPlace(NamedTuple):
    """The position of one token: its number, its document, its word, and the word's block of the vocabulary."""

    token: Int[Array, ""]
    document: Int[Array, ""]
    word: Int[Array, ""]
    block: Int[Array, ""]


class TokenRule(NamedTuple):
    """The rule by which the topic of a token is drawn given all other tokens, at one temperature.

    | field | meaning |
    |---|---|
    | `weights` | unnormalised probability of each topic of a token, (…, topic, particle) |
    | `log_acceptance` | log Metropolis ratio of tokens drawn together, see `redraw_group` |
    | `log_word` | what a token of a wide group at a topic adds to the log weight of its word, (place, particle), nats |

    The arguments of `weights` are the index of each token's document and of its word, (…), and the counts of these
    documents and words and of all topics without the tokens, (…, topic, particle). Those of `log_word` are a topic for
    each token, (place, particle), and a function from topics for the tokens to the counts of the tokens' words in these
    topics: (without the group, those of the group). See `word_correction`.
    """

    weights: Callable[[Array, Array, Array, Array, Array], Array]
    log_acceptance: Callable[[Array, Array, Array], Array]
    log_word: Callable[[Array, Callable[[Array], tuple[Array, Array]]], Array]


def redraw_token(
    state: TopicState,
    at: TokenPlace,
    weights: Callable[[Array, Array, Array], Array],
    uniform: Float[Array, " particle"] | None,
) -> tuple[TopicState, Float[Array, " particle"]]:
    """Draw one token's topic given all others, or take its topic away (−1) if `uniform` is None.

    state: the topics of all tokens.
    at: the token.
    weights: (n_dk, n_kw, n_bk), each (topic, particle) and without the token -> weights (topic, particle), none
        negative. The letters are those of `TopicState`.
    uniform: a number in [0, 1) for each particle, or None.

    Returns: (the new state, the sum of the weights, (particle,)).

    Numbers of topics have 32 bits whatever JAX's default, and indices are promised to be in range. Otherwise each would
    cost as much as all the arithmetic.
    """
    topic = jnp.arange(state.topic_total.shape[1], dtype=jnp.int32)[:, None]
    below = jnp.tril(jnp.ones((len(topic), len(topic)), jnp.float32))
    row = partial(jax.lax.dynamic_index_in_dim, keepdims=False)
    assigned = row(state.assignment, at.token)
    own = (topic == assigned).astype(jnp.float32)  # all 0 for a token without a topic
    in_document = row(state.document_topic, at.document) - own
    of_word, total = row(state.word_topic, at.word) - own, row(state.topic_total, at.block) - own
    ends = jnp.matmul(below, weights(in_document, of_word, total), precision=jax.lax.Precision.HIGHEST)
    new = jnp.full_like(assigned, -1)
    if uniform is not None:
        new = (ends[:-1] <= uniform * ends[-1]).sum(0, dtype=jnp.int32)
    own = (topic == new).astype(jnp.float32)
    put = partial(jax.lax.dynamic_update_index_in_dim, axis=0)
    return (
        TopicState(
            put(state.assignment, new, at.token),
            put(state.document_topic, in_document + own, at.document),
            put(state.word_topic, of_word + own, at.word),
            put(state.topic_total, total + own, at.block),
        ),
        ends[-1],
    )


class TokenGroup(NamedTuple):
    """Some tokens that are drawn together: the position of the first, their documents and words, and which of them
    exist.

    `leader` is the place of the first token with the same word, of each token in a wide group; None in other groups.
    """

    first: Int[Array, ""]
    document: Int[Array, " place"]
    word: Int[Array, " place"]
    real: Bool[Array, " place"]
    leader: Int[Array, " place"] | None


class GroupUniforms(NamedTuple):
    """Uniform random numbers in [0, 1) for the draw of one group.

    | field | meaning |
    |---|---|
    | `tokens` | one for each token, by which its topic is proposed |
    | `group` | one that accepts or refuses the group |
    | `words` | in a wide group one for each place; that of a word's leader accepts or refuses the word. Else None |
    """

    tokens: Float[Array, "place particle"]
    group: Float[Array, " particle"]
    words: Float[Array, "place particle"] | None


def redraw_group(
    state: TopicState,
    before: Int[Array, "token particle"],
    at: TokenGroup,
    rule: TokenRule,
    uniform: GroupUniforms,
) -> TopicState:
    """Draw the topics of one group of tokens given all other tokens, in one block of the vocabulary; return the new
    state.

    state: the topics of all tokens.
    before: topics of all tokens before the sweep. The assignment in `state` is only written to, so that it need not be
        copied.
    at: the group.
    rule: how tokens are drawn. Its `weights` get the documents and words of the tokens, (place,), and n_dk, n_kw, n_k
        without the group, (place, topic, particle) and (topic, particle); the letters are those of `TopicState`, a
        place is one token of the group. Its `log_acceptance` maps (n_k without the group, number of the group's tokens
        proposed to join each topic, number that leave it), each (topic, particle), to the log of the Metropolis ratio,
        (particle,).
    uniform: the random numbers.

    In a wide group the tokens of each word are accepted or refused first, then the whole group.
    """
    assigned = jax.lax.dynamic_slice_in_dim(before, at.first, len(at.document))
    none = jnp.zeros(state.topic_total.shape, jnp.float32)
    # Tokens of a topic are counted by adding them up one by one. Comparing each token with each topic and adding what
    # is equal took half of the time of a sweep.
    leaving = _with_added(none, jnp.zeros_like(at.document), assigned, 1.0)[0]
    # The group leaves the stored counts before they are read. Subtracting it from what was read took longer on a CPU:
    # XLA did so again for each use.
    documents = _with_added(state.document_topic, at.document, assigned, -1.0)
    words = _with_added(state.word_topic, at.word, assigned, -1.0)
    total = state.topic_total[0] - leaving
    in_document, of_word = (
        counts.at[row].get(mode="promise_in_bounds") for counts, row in ((documents, at.document), (words, at.word))
    )
    weights = rule.weights(at.document, at.word, in_document, of_word, total)
    proposed = jnp.where(at.real[:, None], _draw_topics(weights, uniform.tokens), -1)
    if at.leader is not None and uniform.words is not None:
        log_weight = partial(_log_word_weights, rule, at.leader, of_word)
        change = log_weight(proposed) - log_weight(assigned)
        log_ratio = jnp.zeros_like(change).at[at.leader].add(change, mode="promise_in_bounds")
        kept = (jnp.log(uniform.words) < log_ratio).at[at.leader].get(mode="promise_in_bounds")
        proposed = jnp.where(kept, proposed, assigned)

    coming = _with_added(none, jnp.zeros_like(at.document), proposed, 1.0)[0]
    exact = jnp.result_type(float)
    ratio = rule.log_acceptance(total.astype(exact), coming.astype(exact), leaving.astype(exact))
    accepted = jnp.log(uniform.group) < ratio
    new = jnp.where(accepted, proposed, assigned)
    return TopicState(
        jax.lax.dynamic_update_slice_in_dim(state.assignment, new, at.first, 0),
        _with_added(documents, at.document, new, 1.0),
        _with_added(words, at.word, new, 1.0),
        (total + jnp.where(accepted, coming, leaving))[None],
    )


def _log_word_weights(
    rule: TokenRule,
    leader: Int[Array, " place"],
    outside: Float[Array, "place topic particle"],
    topic: Int[Array, "place particle"],
) -> Float[Array, "place particle"]:
    """Return each token's share of the log weight that its word has with the tokens of a wide group at these topics, in
    nats; 0 at empty places.

    The difference between two sets of topics, summed over the tokens of a word, is the log Metropolis ratio of that
    word.

    rule: how tokens are drawn.
    leader: the first place with the same word.
    outside: tokens of each token's word by topic, without those of the group.
    topic: the topic of each token, −1 at empty places.
    """
    # the group's tokens of each word, counted at its leader: no array over all words is needed, which would be copied
    inside = _with_added(jnp.zeros_like(outside), leader, topic, 1.0)
    place, particle = jnp.arange(len(leader), dtype=jnp.int32)[:, None], jnp.arange(topic.shape[1], dtype=jnp.int32)

    def cell(topic: Array) -> tuple[Array, Array]:
        """Return the tokens of each token's word in a topic for each: without the group, and those of the group."""
        each = ((outside, place), (inside, leader[:, None]))
        one, other = (
            counts.at[row, jnp.maximum(topic, 0), particle].get(mode="promise_in_bounds") for counts, row in each
        )
        return one, other

    return jnp.where(topic >= 0, rule.log_word(topic, cell), 0.0)


def word_correction(
    outside: Float[Array, "place particle"], inside: Float[Array, "place particle"], eta: Array
) -> Float[Array, "place particle"]:
    """Return each token's share of the log weight of its word, for draws that took the word's counts for constant.

    In the topic of the token its word has c tokens outside of a wide group, η included, and m of the group. The topic
    adds log [Γ(c + m) / Γ(c)] − m log c to the log weight, in nats. Each of the m tokens has an equal share of that.

    outside, inside: c without η, and m, whole numbers.
    eta: η, the concentration of the topics' prior on one word.
    """
    exact = jnp.result_type(float)
    count, m = outside.astype(exact) + jnp.asarray(eta, exact), jnp.maximum(inside, 1.0).astype(exact)
    return (log_gamma_positive(count + m) - log_gamma_positive(count)) / m - jnp.log(count)


def total_corrections(
    base: Float[Array, "topic particle"],
    coming: Float[Array, "topic particle"],
    leaving: Float[Array, "topic particle"],
) -> Float[Array, "topic particle"]:
    """Return the log of the Metropolis ratio's factor of each topic, for draws that took the topics' totals for
    constant.

    It is log [Γ(b_k + m_k) / Γ(b_k + m'_k)] + (m'_k − m_k) log b_k, (topic, particle), nats.

    base: b_k, tokens in the topic without the group, plus the total concentration Vη of its prior.
    coming, leaving: m'_k and m_k, how many tokens of the group are proposed for each topic, and are now in it.
    """
    change = (coming - leaving) * jnp.log(base)
    return change - log_gamma_positive(base + coming) + log_gamma_positive(base + leaving)


def _with_added(counts: Array, row: Array, topic: Int[Array, "place particle"], amount: float) -> Array:
    """Return counts (row, topic, particle) with `amount` added at each token's row and topic; topic −1 adds nothing."""
    _, n_topics, particles = counts.shape
    place = (row[:, None] * n_topics + jnp.maximum(topic, 0)) * particles + jnp.arange(particles, dtype=jnp.int32)
    amounts = jnp.where(topic >= 0, amount, 0.0)
    # one index instead of three: scatters are loops on a CPU, and this one takes three quarters of the time
    return counts.reshape(-1).at[place].add(amounts, mode="promise_in_bounds").reshape(counts.shape)


def _draw_topics(
    weight: Float[Array, "place topic particle"], uniform: Float[Array, "place particle"]
) -> Int[Array, "place particle"]:
    """Draw a topic for each token in proportion to its weights: first the stretch of topics, then the topic within it.

    Stretch s of S has the topics s, s + S, s + 2S, …. So the sums of all stretches are sums of vectors that lie
    together in memory. Topics of weight 0, which do not exist, add nothing. They are never chosen, however sums are
    rounded.

    weight: unnormalised probabilities of each token's topic.
    uniform: numbers in [0, 1).
    """
    places, n_topics, particles = weight.shape
    n_stretches = next((each for each in STRETCHES if n_topics >= 2 * each and n_topics % each == 0), 1)
    sums = _running_sums([weight[:, first : first + n_stretches] for first in range(0, n_topics, n_stretches)])[-1]
    ends = _running_sums([sums[:, each] for each in range(n_stretches)])
    aim = uniform * (BELOW_ONE * ends[-1])
    passed = [end <= aim for end in ends[:-1]]
    stretch = sum(passed, start=jnp.zeros(aim.shape, jnp.int32))
    start = jnp.zeros_like(aim)
    for end, beyond in zip(ends[:-1], passed, strict=True):
        start = jnp.where(beyond, end, start)
    members = weight.reshape(places, -1, n_stretches, particles)
    inner = jnp.take_along_axis(members, stretch[:, None, None], axis=2, mode="promise_in_bounds")[:, :, 0]
    ends = _running_sums([inner[:, each] for each in range(inner.shape[1])])
    rest = jnp.clip(aim - start, 0.0, BELOW_ONE * ends[-1])
    member = sum([end <= rest for end in ends[:-1]], start=jnp.zeros(aim.shape, jnp.int32))
    return member * n_stretches + stretch


def _running_sums(parts: list[Array]) -> list[Array]:
    """Return the sums of the first 1, 2, … arrays of a list."""
    return list(accumulate(parts))
