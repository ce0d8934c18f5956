"""Gibbs sampling for HDP topics by direct assignment: topics and document weights integrated out, corpus weights kept.

Source: Teh, Jordan, Beal & Blei (2006), §5.3 and appendix A. With n the counts without token i, β the weights of the
topics in use and β_u what is left for all others,

    p(z_i = k | …)   ∝ (n_dk + α β_k) (n_k,w_i + η) / (n_k + Vη)          a topic in use
    p(z_i new | …)   ∝ α β_u / V;  then b ~ Beta(1, γ), β_new = b β_u, β_u ← (1 − b) β_u
    m_dk             = Σ_{r=0}^{n_dk − 1} Bernoulli(α β_k / (α β_k + r))   tables (Antoniak 1974)
    (β, β_u)         ~ Dirichlet(m_·1, …, m_·K, γ)
    γ, α             by auxiliary variables (Escobar & West 1995; Teh et al., appendix A)

A topic that loses its last token gives its weight back to β_u: it is one of those not in use then. Slow beside
`estimator.py`, and exact as the chain grows. Tokens are visited one by one in the order of the documents; draws are by
inversion with uniforms of 23 bits, in float32.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Int32, Key

from lvsearch.inference.collapsed_topics import Tokens, draw, expand
from lvsearch.inference.compiles import counted
from lvsearch.inference.data import Dataset
from lvsearch.inference.hdp.weights import prior_mean
from lvsearch.models.hdp import HDP
from lvsearch.models.hyperpriors import GammaPrior

FIRST_CAPACITY = 32
"""Places for topics to begin with, doubled whenever a sweep needs more."""
TINY = 1e-30


class ChainState(NamedTuple):
    """Indicators, the counts that follow from them, weights and concentrations; places without tokens have weight 0.

    | field | letter | shape |
    |---|---|---|
    | `assignments` | z | (token,) |
    | `document_topic` | n_dk | (document, place) |
    | `word_topic` | n_kw | (word, place) |
    | `topic_total` | n_k | (place,) |
    | `beta`, `left` | β, β_u | (place,), () |
    | `tables` | m_·k | (place,) |
    | `gamma`, `alpha` | γ, α | () |
    | `overflow` | a new topic found no place: the state means nothing | () |
    """

    assignments: Int32[Array, " token"]
    document_topic: Int32[Array, "document place"]
    word_topic: Int32[Array, "word place"]
    topic_total: Int32[Array, " place"]
    beta: Float[Array, " place"]
    left: Float[Array, ""]
    tables: Int32[Array, " place"]
    gamma: Float[Array, ""]
    alpha: Float[Array, ""]
    overflow: Array


@dataclass(frozen=True, eq=False)
class HDPSample:
    """One state of the chain, and how it came there. Topics are those in use, most tokens first.

    | field | shape | meaning |
    |---|---|---|
    | `tokens` | | which document and word each indicator belongs to |
    | `assignments` | (token,) | z, int32 |
    | `topic_word` | (topic, word) | n_kw, int32 |
    | `document_topic` | (document, topic) | n_dk, int32 |
    | `beta` | (topic,) | β of the topics in use; 1 − Σβ is left for others |
    | `eta` | | η |
    | `occupied`, `gammas`, `alphas` | (sweep,) | topics in use, γ and α after every sweep of the chain so far |
    """

    tokens: Tokens
    assignments: Int32[np.ndarray, " token"]
    topic_word: Int32[np.ndarray, "topic word"]
    document_topic: Int32[np.ndarray, "document topic"]
    beta: Float64[np.ndarray, " topic"]
    eta: float
    occupied: Int[np.ndarray, " sweep"]
    gammas: Float64[np.ndarray, " sweep"]
    alphas: Float64[np.ndarray, " sweep"]

    @property
    def alpha(self) -> Float64[np.ndarray, " topic"]:
        """α β_k: with `topics`, what `lvsearch.inference.document_likelihood` needs."""
        return self.alphas[-1] * self.beta

    def topics(self) -> Float64[np.ndarray, "topic word"]:
        """E[φ | z, w] = (n_kw + η) / (n_k + Vη): rows sum to 1."""
        counts = self.topic_word + self.eta
        return counts / counts.sum(axis=1, keepdims=True)


def direct_assignment(
    model: HDP, data: Dataset, *, sweeps: int, key: Key[Array, ""], start: HDPSample | None = None
) -> HDPSample:
    """`sweeps` more sweeps of the chain of `key`, from `start` or from nothing: then the tokens are first added one at
    a time, each drawn given those before it, which is not counted as a sweep.

    Raises ValueError for a number of sweeps below 1, counts that are not whole numbers, and a `start` from other data.
    """
    if sweeps < 1:
        raise ValueError(f"got sweeps={sweeps}, expected at least 1")
    tokens, n_words = expand(data), data.extents["word"]
    if start is None:
        state = _started(model, tokens, data.n_units, n_words, key)
        occupied, gammas, alphas = [], [], []
    else:
        if not all(np.array_equal(a, b) for a, b in zip(start.tokens, tokens, strict=True)):
            raise ValueError("got a start from other documents, expected a sample of the chain to continue")
        state = _continued(start, tokens, n_words)
        occupied, gammas, alphas = (x.tolist() for x in (start.occupied, start.gammas, start.alphas))
    for number in range(len(occupied) + 1, len(occupied) + sweeps + 1):
        state = _next(model, state, tokens, jax.random.fold_in(key, number), adding=False)
        occupied.append(int((np.asarray(state.topic_total) > 0).sum()))
        gammas.append(float(state.gamma))
        alphas.append(float(state.alpha))
    return _sample(state, tokens, float(model.topic_concentration), occupied, gammas, alphas)


def _next(model: HDP, state: ChainState, tokens: Tokens, key: Key[Array, ""], *, adding: bool) -> ChainState:
    """One sweep, made again with twice as many places where it needed more."""
    while True:
        new = _sweep(model, state, tokens, key, adding=adding)
        if not bool(new.overflow):
            return new
        state = widened(state, 2 * len(state.beta))


def empty_state(
    n_tokens: int, n_documents: int, n_words: int, places: int, gamma: float | Array, alpha: float | Array
) -> ChainState:
    """No token yet: everything is left for new topics."""
    return ChainState(
        jnp.zeros(n_tokens, jnp.int32),
        jnp.zeros((n_documents, places), jnp.int32),
        jnp.zeros((n_words, places), jnp.int32),
        jnp.zeros(places, jnp.int32),
        jnp.zeros(places, jnp.float32),
        jnp.ones((), jnp.float32),
        jnp.zeros(places, jnp.int32),
        jnp.asarray(gamma, jnp.float32),
        jnp.asarray(alpha, jnp.float32),
        jnp.asarray(False),
    )


def _started(model: HDP, tokens: Tokens, n_documents: int, n_words: int, key: Key[Array, ""]) -> ChainState:
    gamma, alpha = prior_mean(model.corpus_concentration), prior_mean(model.document_concentration)
    empty = empty_state(len(tokens.word), n_documents, n_words, FIRST_CAPACITY, gamma, alpha)
    return _next(model, empty, tokens, jax.random.fold_in(key, 0), adding=True)


def _continued(start: HDPSample, tokens: Tokens, n_words: int) -> ChainState:
    n_topics, n_documents = len(start.beta), len(start.document_topic)
    state = empty_state(len(tokens.word), n_documents, n_words, n_topics, start.gammas[-1], start.alphas[-1])
    state = state._replace(
        assignments=jnp.asarray(start.assignments),
        document_topic=jnp.asarray(start.document_topic),
        word_topic=jnp.asarray(start.topic_word.T),
        topic_total=jnp.asarray(start.topic_word.sum(1).astype(np.int32)),
        beta=jnp.asarray(start.beta, jnp.float32),
        left=jnp.asarray(max(1 - start.beta.sum(), 0.0), jnp.float32),
    )
    places = FIRST_CAPACITY
    while places <= n_topics:
        places *= 2
    return widened(state, places)


def widened(state: ChainState, places: int) -> ChainState:
    """The same state with more places for topics."""
    more = places - len(state.beta)

    def wide(leaf: Array) -> Array:
        return jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 1) + [(0, more)])

    names = ("document_topic", "word_topic", "topic_total", "beta", "tables")
    return state._replace(**{name: wide(getattr(state, name)) for name in names})


def _sample(
    state: ChainState, tokens: Tokens, eta: float, occupied: list[int], gammas: list[float], alphas: list[float]
) -> HDPSample:
    total = np.asarray(state.topic_total)
    order = np.argsort(-total, kind="stable")[: (total > 0).sum()]
    rank = np.zeros(len(total), np.int32)
    rank[order] = np.arange(len(order))
    return HDPSample(
        tokens,
        rank[np.asarray(state.assignments)],
        np.asarray(state.word_topic).T[order],
        np.asarray(state.document_topic)[:, order],
        np.asarray(state.beta, np.float64)[order],
        eta,
        np.array(occupied, np.int64),
        np.array(gammas, np.float64),
        np.array(alphas, np.float64),
    )


# ── one sweep ───────────────────────────────────────────────────────────────────────────────────────────────────────


def seat_tokens(
    state: ChainState, tokens: Tokens, uniforms: Float[Array, "token 2"], eta: Float[Array, ""], *, adding: bool
) -> ChainState:
    """Draw every indicator once, in order, given all others, β and the concentrations. adding: they are not counted
    yet."""
    n_words, n_places = state.word_topic.shape
    place = jnp.arange(n_places)

    def one_token(carry: tuple[Array, ...], x: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
        document_topic, word_topic, total, beta, left, overflow = carry
        document, word, old, uniform = x
        own = jnp.zeros(n_places, jnp.int32) if adding else (place == old).astype(jnp.int32)
        in_document, of_word, total = document_topic[document] - own, word_topic[word] - own, total - own
        left = left + jnp.where(total == 0, beta, 0.0).sum()
        beta = jnp.where(total == 0, 0.0, beta)
        free = jnp.argmin(total)  # the first without tokens, if there is one
        overflow = overflow | (total[free] > 0)
        weight = (in_document + state.alpha * beta) * (of_word + eta) / (total + n_words * eta)
        new = draw(jnp.where(place == free, state.alpha * left / n_words, weight), uniform[0])
        # Beta(1, γ) by inversion
        broken = jnp.where(new == free, left * -jnp.expm1(jnp.log1p(-uniform[1]) / state.gamma), 0.0)
        beta = beta + jnp.where(place == free, broken, 0.0)
        own = (place == new).astype(jnp.int32)
        document_topic = document_topic.at[document].set(in_document + own)
        word_topic = word_topic.at[word].set(of_word + own)
        return (document_topic, word_topic, total + own, beta, left - broken, overflow), new

    carry = (state.document_topic, state.word_topic, state.topic_total, state.beta, state.left, state.overflow)
    document, word = map(jnp.asarray, tokens)
    carry, assignments = jax.lax.scan(one_token, carry, (document, word, state.assignments, uniforms))
    document_topic, word_topic, total, beta, left, overflow = carry
    return ChainState(
        assignments, document_topic, word_topic, total, beta, left, state.tables, state.gamma, state.alpha, overflow
    )


def draw_tables(state: ChainState, tokens: Tokens, uniforms: Float[Array, " token"]) -> Int32[Array, " place"]:
    """m_·k: the r-th token of its topic in its document opens a table with chance α β_k / (α β_k + r), r from 0."""

    def one_token(seen: Array, x: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        document, topic, uniform = x
        opening, earlier = state.alpha * state.beta[topic], seen[document, topic]
        opens = (earlier == 0) | (uniform * (opening + earlier) < opening)
        return seen.at[document, topic].add(1), opens

    steps = (jnp.asarray(tokens.document), state.assignments, uniforms)
    _, opens = jax.lax.scan(one_token, jnp.zeros_like(state.document_topic), steps)
    return jnp.zeros_like(state.tables).at[state.assignments].add(opens.astype(jnp.int32))


def draw_weights(
    key: Key[Array, ""], tables: Int32[Array, " place"], gamma: Float[Array, ""]
) -> tuple[Float[Array, " place"], Float[Array, ""]]:
    """(β, β_u) ~ Dirichlet(m_·1, …, γ); 0 in places without tables."""
    shapes = jnp.append(jnp.maximum(tables, 1).astype(jnp.float32), gamma)
    used = jnp.append(tables > 0, True)
    log_values = jnp.where(used, jax.random.loggamma(key, shapes), -jnp.inf)
    shares = jax.nn.softmax(log_values)
    return shares[:-1], shares[-1]


def draw_concentration(
    key: Key[Array, ""],
    prior: Any,
    now: Float[Array, ""],
    n_tables: Int[Array, ""],
    customers: Int[Array, " group"],
) -> Float[Array, ""]:
    """A concentration given that `n_tables` tables in all serve groups of so many customers; the given value where it
    is fixed. Groups without customers say nothing. prior: a number or a `GammaPrior`."""
    if not isinstance(prior, GammaPrior):
        return now
    shape, rate = (jnp.asarray(value, jnp.float32) for value in prior)
    key_w, key_n, key_s, key_value = jax.random.split(key, 4)
    some, n = customers > 0, jnp.maximum(customers, 1).astype(jnp.float32)
    # log of Beta(now + 1, n), from the two Gammas that make it
    first = jax.random.loggamma(key_w, jnp.broadcast_to(now + 1, n.shape))
    log_w = first - jnp.logaddexp(first, jax.random.loggamma(key_n, n))
    s = jax.random.uniform(key_s, n.shape) * (n + now) < n
    shape = shape + n_tables - jnp.where(some, s, False).sum()
    return jnp.maximum(jax.random.gamma(key_value, shape), TINY) / (rate - jnp.where(some, log_w, 0.0).sum())


def sweep(model: HDP, state: ChainState, tokens: Tokens, key: Key[Array, ""], *, adding: bool) -> ChainState:
    """Tokens, tables, weights, γ, α: each once, in this order."""
    keys = jax.random.split(key, 5)
    n_tokens = len(tokens.word)
    eta = jnp.asarray(model.topic_concentration, jnp.float32)
    state = seat_tokens(state, tokens, jax.random.uniform(keys[0], (n_tokens, 2)), eta, adding=adding)
    tables = draw_tables(state, tokens, jax.random.uniform(keys[1], (n_tokens,)))
    beta, left = draw_weights(keys[2], tables, state.gamma)
    total, used = tables.sum(), (tables > 0).sum()
    gamma = draw_concentration(keys[3], model.corpus_concentration, state.gamma, used, total[None])
    lengths = state.document_topic.sum(1)
    alpha = draw_concentration(keys[4], model.document_concentration, state.alpha, total, lengths)
    return state._replace(beta=beta, left=left, tables=tables, gamma=gamma, alpha=alpha)


@partial(jax.jit, static_argnames=("adding",))
@counted
def _sweep(model: HDP, state: ChainState, tokens: Tokens, key: Key[Array, ""], *, adding: bool) -> ChainState:
    return sweep(model, state, tokens, key, adding=adding)
