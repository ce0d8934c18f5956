"""The exact log p(document | α, β), by dynamic programming over topic counts.

Token l has word j_l and topic k_l of K. β_kj is the probability of word j in topic k, α are the Dirichlet parameters of
the topic proportions, and L is the number of tokens. With k_1 … k_l drawn from the Pólya urn, the joint P_l(C) of the
first l words and their topic counts C obeys

  P_0(0) = 1,   P_{l+1}(C + e_k) += P_l(C) · (C_k + α_k) / (l + Σα) · β_{k, j_{l+1}},   p(j) = Σ_C P_L(C)

There are binom(l + K − 1, K − 1) count vectors and K^l assignments. There are never more count vectors, so plain
enumeration is never cheaper; tests compare with it. All is in logs and float64.
"""

from math import comb

import numpy as np
from jaxtyping import Float64, Int64
from scipy import sparse
from scipy.special import logsumexp

from lvsearch.inference.likelihood.documents import TopicSet, impossible_documents, row_of

MOST_CELLS = 10**8
"""The most updates (one count vector, one topic) that are made, summed over documents.

They take some tens of seconds and under 2 GB.
"""

CELLS_AT_ONCE = 10**7
"""The most probabilities of count vectors held at once for a group of documents."""


def cost(n_tokens: int, n_topics: int) -> int:
    """Return how many updates (one count vector, one topic) one document of `n_tokens` tokens takes.

    With L tokens and K topics it is K · Σ_l binom(l + K − 1, K − 1) = K · binom(L + K − 1, K).
    """
    return n_topics * comb(n_tokens + n_topics - 1, n_topics)


def exact_log_likelihood(topics: TopicSet, counts: sparse.csr_array) -> Float64[np.ndarray, " document"]:
    """Return the exact log p of each document, nats: −inf for an impossible document, and 0 for an empty one.

    Raises ValueError, before it allocates memory, if the work exceeds `MOST_CELLS`.
    """
    topics = topics.active()
    n_topics = len(topics.alpha)
    lengths = np.asarray(counts.sum(axis=1)).astype(np.int64)
    impossible = impossible_documents(topics, counts)
    lengths[impossible] = 0
    work = {int(length): cost(int(length), n_topics) for length in np.unique(lengths)}
    total = sum(work[int(length)] for length in lengths)
    if total > MOST_CELLS:
        raise ValueError(
            f"got {len(lengths)} documents of up to {lengths.max()} tokens with {n_topics} topics: the exact sum needs "
            f"{float(total):.2g} updates; expected at most {float(MOST_CELLS):.0g}: score fewer or shorter documents, "
            f'or use method="ais" (unbiased, with an error) or "bounds" (certified)'
        )
    result = np.where(impossible, -np.inf, 0.0)
    rows = np.flatnonzero(lengths > 0)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    widest = comb(int(lengths.max(initial=0)) + n_topics - 1, n_topics - 1)
    height = max(1, CELLS_AT_ONCE // max(widest, 1))
    for start in range(0, len(rows), height):
        chosen = rows[start : start + height]
        result[chosen] = _forward(topics, counts, chosen, lengths[chosen])
    return result


def _rank(states: Int64[np.ndarray, "state topic"], binomial: Int64[np.ndarray, "n k"]) -> Int64[np.ndarray, " state"]:
    """Return the number of each vector of topic counts in the list of all vectors with its total, (state,).

    It is a combinatorial number. For a vector C the bars lie at C_1 + … + C_i + i − 1.

    states: vectors of topic counts.
    binomial: the table of binomial coefficients.
    """
    bars = np.cumsum(states[:, :-1], axis=1) + np.arange(states.shape[1] - 1)
    return binomial[bars, np.arange(1, states.shape[1])].sum(axis=1)


def _forward(topics: TopicSet, counts: sparse.csr_array, rows: np.ndarray, lengths: np.ndarray):
    """Return log p of documents in ascending order of length, by the recursion for all of them at once, (document,),
    nats.

    rows: the numbers of the documents. lengths: their numbers of tokens, ascending.
    """
    n_topics, longest = len(topics.alpha), int(lengths.max())
    words = np.zeros((len(rows), longest), np.int64)
    for place, row in enumerate(rows):
        words[place, : lengths[place]] = np.repeat(*row_of(counts, row))
    with np.errstate(divide="ignore"):
        log_word_topic = np.log(topics.word_topic)
    binomial = np.array([[comb(n, k) for k in range(n_topics)] for n in range(longest + n_topics)], np.int64)
    states, log_joint = np.zeros((1, n_topics), np.int64), np.zeros((len(rows), 1))
    result = np.zeros(len(rows))
    # One position at a time: every count vector grows by each topic. Documents that end here leave the recursion.
    for position in range(longest):
        log_urn = np.log((states + topics.alpha) / (position + topics.alpha.sum()))
        size = comb(position + n_topics, n_topics - 1)
        next_states, next_joint = np.zeros((size, n_topics), np.int64), np.full((len(log_joint), size), -np.inf)
        log_beta = log_word_topic[words[-len(log_joint) :, position]]
        for topic in range(n_topics):
            grown = states + (np.arange(n_topics) == topic)
            place = _rank(grown, binomial)
            next_states[place] = grown
            step = log_joint + log_urn[:, topic] + log_beta[:, topic, None]
            next_joint[:, place] = np.logaddexp(next_joint[:, place], step)
        states = next_states
        alive = lengths[-len(log_joint) :] > position + 1
        finished = np.flatnonzero(lengths == position + 1)
        result[finished] = logsumexp(next_joint[~alive], axis=1)
        log_joint = next_joint[alive]
    return result
