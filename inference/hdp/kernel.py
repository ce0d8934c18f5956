"""Memoized mean field for HDP topics on packed documents: the bound of the generic mean field, in matrix products.

A document has tables t; each table has a weight π_t and points at a topic c_t. Word n, which occurs c_n times, sits at
table z_n. π_t is made of sticks π'_t with concentration α, and β are the shared weights of topics. Take expected log
topics E_nk = E[log φ_k,w_n] and expected log weights E[log β_k]. The coordinate steps on (z, π', c) of
`lvsearch.models.hdp` are

    q(z_n = t)   ∝ exp(E[log π_t] + Σ_k q(c_t = k) E_nk)

    q(π'_t)      = Beta(1 + Σ_n c_n q(z_n = t), E[α] + Σ_{s>t} Σ_n c_n q(z_n = s))

    q(c_t = k)   ∝ exp(E[log β_k] + Σ_n c_n q(z_n = t) E_nk)

(Wang, Paisley & Blei 2011, Eq. 10–18, with both truncations as in `lvsearch.models.hdp`). The variables that all
documents share are updated after every batch: its old statistics are subtracted, and its new ones added.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import digamma

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.packing import DocumentTiles
from lvsearch.inference.topics.kernel import per_document
from lvsearch.models.exponential.digamma import digamma_positive, log_gamma_positive
from lvsearch.models.families import BetaStatistics, GammaStatistics
from lvsearch.models.hdp import HDP
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel


class TablePosterior(NamedTuple):
    """q of the tables of all documents: of their pointers to topics, and of the sticks that make their weights.

    A document's tokens sit at tables, each of which serves one topic.

    Documents lie in the slots of tiles, blocks of fixed size.

    | field | meaning | shape |
    |---|---|---|
    | `pointers` | probability that the table points at the topic | (batch, tile, document, table, topic) |
    | `hits` | first parameter of the stick's Beta | (batch, tile, document, table) |
    | `passes` | second parameter of the stick's Beta | (batch, tile, document, table) |
    """

    pointers: Any
    hits: Any
    passes: Any


class Collected(NamedTuple):
    """The statistics that documents add to the variables that all documents share.

    A document's tokens sit at tables, each of which serves one topic.

    | field | meaning |
    |---|---|
    | `words` | expected tokens of each word in each topic (word, topic) |
    | `pointed` | expected number of tables that point at each topic (topic,) |
    | `log_left` | Σ E[log(1 − V)] over all document sticks V, () |
    | `sticks` | the number of document sticks () |
    """

    words: Any
    pointed: Any
    log_left: Any
    sticks: Any


class AscentState(NamedTuple):
    """The state of memoized mean field.

    A document's tokens sit at tables, each of which serves one topic.

    total: statistics of all documents.
    per_batch: statistics of each batch, batches on the leading axis.
    seating: q of the documents' tables.
    gamma, alpha: expected concentrations of the corpus sticks and of the document sticks.
    """

    total: Collected
    per_batch: Collected
    seating: TablePosterior
    gamma: Any
    alpha: Any


class Globals(NamedTuple):
    """The variables that all documents share, as documents see them.

    log_topics: expected log word distributions, (word, topic).
    log_weights: expected log weights of topics, (topic,); −inf where there is no topic.
    alpha: the expected concentration of document sticks.
    """

    log_topics: Any
    log_weights: Any
    alpha: Any


# ── globals from statistics ─────────────────────────────────────────────────────────────────────────────────────────


def corpus_sticks(pointed: Array, gamma: Any, exists: Array) -> tuple[Array, Array]:
    """Return the two Beta parameters (topic,) of the corpus sticks; (1, 1) where there is no topic.

    A document's tokens sit at tables, each of which serves one topic.

    pointed: expected number of tables that point at each topic.
    gamma: the concentration of the corpus sticks.
    exists: which topics exist.
    """
    pointed = jnp.where(exists, pointed, 0.0)
    beyond = jnp.cumsum(pointed[::-1])[::-1] - pointed
    return 1 + pointed, jnp.where(exists, gamma + jnp.maximum(beyond, 0.0), 1.0)


def stick_logs(hits: Any, passes: Any) -> tuple[Array, Array]:
    """Return E[log V] and E[log(1 − V)] of sticks V ~ Beta(hits, passes)."""
    both = digamma_positive(hits + passes)
    return digamma_positive(hits) - both, digamma_positive(passes) - both


def log_weights_of(log_value: Any, log_left: Any) -> Array:
    """Return the expected log weights that sticks V make: E[log V_t] + Σ_{s<t} E[log(1 − V_s)] on the last axis.

    log_value: E[log V].
    log_left: E[log(1 − V)].
    """
    return jnp.cumsum(log_left, axis=-1) - log_left + log_value


def concentration_posterior(prior: Any, sticks: Any, log_left: Any) -> GammaStatistics | None:
    """Return the natural parameters of q of a concentration given its sticks V; None for a fixed concentration.

    prior: a number or a `GammaPrior`.
    sticks: the number of sticks.
    log_left: Σ E[log(1 − V)] over the sticks.
    """
    if not isinstance(prior, GammaPrior):
        return None
    shape, rate = prior
    return GammaStatistics(shape + sticks - 1, rate - log_left)


def _mean(q: GammaStatistics | None, fixed_value: Any, like: Array) -> Array:
    """Return the mean of a concentration under q, or `fixed_value` if q is None, in the type of `like`."""
    if q is None:
        return jnp.asarray(fixed_value, like.dtype)
    return jnp.asarray((q.log_value + 1) / q.negative_value, like.dtype)


def update_globals(model: HDP, total: Collected, gamma: Array, exists: Array) -> tuple[Globals, Array]:
    """Update q of the variables that all documents share: corpus sticks first, then γ, topics and α.

    γ and α are the concentrations of the corpus sticks and of the document sticks.

    total: the statistics of all documents.
    gamma: the expected γ before.
    exists: which topics exist.

    Returns what documents see of these variables, and the new expected γ.
    """
    hits, passes = corpus_sticks(total.pointed, gamma, exists)
    log_value, log_left = stick_logs(hits, passes)
    log_left = jnp.where(exists, log_left, 0.0)
    log_weights = jnp.where(exists, log_weights_of(log_value, log_left), -jnp.inf)
    q_gamma = concentration_posterior(model.corpus_concentration, exists.sum(), log_left.sum())
    q_alpha = concentration_posterior(model.document_concentration, total.sticks, total.log_left)
    eta = jnp.asarray(model.topic_concentration, total.words.dtype)
    counts = jnp.where(exists, total.words + eta, 1.0)
    log_topics = jnp.where(exists, digamma_positive(counts) - digamma_positive(counts.sum(0)), 0.0)
    alpha = _mean(q_alpha, model.document_concentration, log_topics)
    return Globals(log_topics, log_weights, alpha), _mean(q_gamma, model.corpus_concentration, log_topics)


# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _Seats(NamedTuple):
    """q of the tables of one tile's documents, with the fields of `TablePosterior`.

    A tile is a block of fixed size with slots for documents.

    A document's tokens sit at tables, each of which serves one topic.
    """

    pointers: Array
    hits: Array
    passes: Array


def _table_scores(rows: Array, slots: Any, seats: _Seats) -> Array:
    """Return the unnormalised log probability of every table for each word of a tile, (block, 8, table), nats.

    A tile is a block of fixed size with slots for documents.

    A document's tokens sit at tables, each of which serves one topic.

    rows: expected log topics of the words, (block, 8, topic).
    slots: the slot of each block's document.
    """
    log_value, log_left = stick_logs(seats.hits, seats.passes)
    prior = log_weights_of(log_value, log_left)
    return jnp.einsum("bsk,btk->bst", rows, seats.pointers[slots]) + prior[slots][:, None]


def _step_seats(rows: Array, tile: DocumentTiles, seats: _Seats, seen: Globals) -> _Seats:
    """Return q of the tables of one tile's documents, after one coordinate step of words, pointers and sticks.

    A tile is a block of fixed size with slots for documents.

    A document's tokens sit at tables, each of which serves one topic.

    rows: expected log topics of the words, (block, 8, topic).
    seen: the shared variables as documents see them.
    """
    z = jax.nn.softmax(_table_scores(rows, tile.slots, seats), axis=-1) * jnp.asarray(tile.counts)[..., None]
    n_documents = len(seats.hits)
    at_table = per_document(z.sum(1), tile.slots, n_documents)
    beyond = jnp.cumsum(at_table[:, ::-1], axis=1)[:, ::-1] - at_table
    evidence = per_document(jnp.einsum("bst,bsk->btk", z, rows), tile.slots, n_documents)
    pointers = jax.nn.softmax(seen.log_weights + evidence, axis=-1)
    return _Seats(pointers, 1 + at_table, seen.alpha + jnp.maximum(beyond, 0.0))


def _collect(rows: Array, tile: DocumentTiles, seats: _Seats, real: Array) -> tuple[Array, Array, Array, Array]:
    """Return what one tile's documents add to the shared variables.

    A tile is a block of fixed size with slots for documents.

    They are expected counts (block, 8, topic), expected pointers (topic,), Σ E[log(1 − V)] over document sticks V, and
    the number of sticks.

    rows: expected log topics of the words, (block, 8, topic).
    real: which slots hold a document.
    """
    z = jax.nn.softmax(_table_scores(rows, tile.slots, seats), axis=-1) * jnp.asarray(tile.counts)[..., None]
    expected = jnp.einsum("bst,btk->bsk", z, seats.pointers[tile.slots])
    pointed = jnp.where(real[:, None, None], seats.pointers, 0.0).sum((0, 1))
    _, log_left = stick_logs(seats.hits, seats.passes)
    n_sticks = real.sum().astype(rows.dtype) * seats.hits.shape[1]
    return expected, pointed, jnp.where(real[:, None], log_left, 0.0).sum(), n_sticks


@kernel(donate_argnames=("state",), brief=True)
@counted
def memoized_passes(
    model: HDP,
    tiles: DocumentTiles,
    real: Bool[Array, "batch tile document"],
    state: AscentState,
    exists: Bool[Array, " topic"],
    *,
    sweeps: int | Array,
    passes: int | Array,
) -> AscentState:
    """Make `passes` passes over all batches, with `sweeps` coordinate steps of every document in each.

    Once every batch has been visited, a step never lowers the bound. The state's buffers are reused.

    real: which slots hold a document.
    exists: which topics exist.

    Returns the state after the passes.
    """
    tiles = jax.tree.map(jnp.asarray, tiles)

    def one_batch(state: AscentState, x: tuple[Array, DocumentTiles, Array]) -> tuple[AscentState, None]:
        """Update the shared variables, then one batch's documents, then the statistics."""
        index, batch, real_slots = x
        seen, gamma = update_globals(model, state.total, state.gamma, exists)

        def one_tile(words: Array, y: tuple[DocumentTiles, Array, _Seats]) -> tuple[Array, tuple[Any, ...]]:
            """Update the documents of one tile, and add their words to those of the batch.

            A tile is a block of fixed size with slots for documents.
            """
            tile, real_here, seats = y
            rows = seen.log_topics[tile.words]
            seats = jax.lax.fori_loop(0, sweeps, lambda _, s: _step_seats(rows, tile, s, seen), seats)
            expected, *others = _collect(rows, tile, seats, real_here)
            return words.at[tile.words].add(expected), (seats, *others)

        here = _Seats(*(leaf[index] for leaf in state.seating))
        words, (seats, pointed, log_left, n_sticks) = jax.lax.scan(
            one_tile, jnp.zeros_like(state.total.words), (batch, real_slots, here)
        )
        # memoized update: this batch's old statistics out of the total, its new ones in
        new = Collected(words, pointed.sum(0), log_left.sum(), n_sticks.sum())
        old = jax.tree.map(lambda leaf: leaf[index], state.per_batch)
        total = jax.tree.map(lambda t, o, n: t - o + n, state.total, old, new)
        total = total._replace(words=jnp.maximum(total.words, 0.0), pointed=jnp.maximum(total.pointed, 0.0))
        per_batch = jax.tree.map(lambda leaf, n: leaf.at[index].set(n), state.per_batch, new)
        seating = TablePosterior(*(leaf.at[index].set(n) for leaf, n in zip(state.seating, seats, strict=True)))
        return AscentState(total, per_batch, seating, gamma, seen.alpha), None

    def one_pass(_: Any, state: AscentState) -> AscentState:
        """Go over all batches once."""
        state, _ = jax.lax.scan(one_batch, state, (jnp.arange(len(real)), tiles, jnp.asarray(real)))
        # summed afresh: no drift, and what a start pretended is forgotten after the first pass
        return state._replace(total=jax.tree.map(lambda leaf: leaf.sum(0), state.per_batch))

    return jax.lax.fori_loop(0, passes, one_pass, state)


@kernel(brief=True)
@counted
def settle_documents(
    tiles: DocumentTiles, seating: TablePosterior, seen: Globals, *, sweeps: int | Array
) -> tuple[TablePosterior, Float[Array, "batch tile document"]]:
    """Make `sweeps` coordinate steps of every document at fixed shared variables. Returns q of the tables, and bounds.

    A document's tokens sit at tables, each of which serves one topic.

    The bound on each document's log probability, nats, is

        Σ_n c_n log Σ_t exp(E[log π_t] + Σ_k q(c_t = k) E_nk) + Σ_t (E[log p(π'_t | α)] + H[π'_t])
        + Σ_tk q(c_t = k) (E[log β_k] − log q(c_t = k)),     without E[log α] per stick,

    in the letters of the file's docstring, with the entropy H. The words' tables are at their optimum, and the bound is
    valid at any q of pointers and sticks. Run this inside `jax.enable_x64(True)` on float64 inputs if the number is to
    be recorded. The number of a slot without a document has no meaning.

    seating: q of the tables to begin with.
    seen: the shared variables as documents see them.
    """
    tiles = jax.tree.map(jnp.asarray, tiles)

    def one_tile(x: tuple[DocumentTiles, _Seats]) -> tuple[_Seats, Array]:
        """Update the documents of one tile, and return q of their tables and their bounds, nats.

        A tile is a block of fixed size with slots for documents.

        A document's tokens sit at tables, each of which serves one topic.
        """
        tile, seats = x
        rows = seen.log_topics[tile.words]
        seats = jax.lax.fori_loop(0, sweeps, lambda _, s: _step_seats(rows, tile, s, seen), seats)
        # the three sums of the bound: words with their tables at the optimum, sticks, pointers
        words = jax.nn.logsumexp(_table_scores(rows, tile.slots, seats), axis=-1)
        words = jnp.where(tile.counts > 0, tile.counts * words, 0.0).sum(-1)
        log_value, log_left = stick_logs(seats.hits, seats.passes)
        sticks = (
            (1 - seats.hits) * log_value
            + (seen.alpha - seats.passes) * log_left
            + log_gamma_positive(seats.hits)
            + log_gamma_positive(seats.passes)
            - log_gamma_positive(seats.hits + seats.passes)
        )
        chosen = seats.pointers > 0
        log_ratio = seen.log_weights - jnp.log(jnp.where(chosen, seats.pointers, 1.0))
        pointers = jnp.where(chosen, seats.pointers * jnp.where(chosen, log_ratio, 0.0), 0.0)
        return seats, per_document(words, tile.slots, len(seats.hits)) + sticks.sum(-1) + pointers.sum((1, 2))

    def one_batch(x: tuple[DocumentTiles, _Seats]) -> tuple[_Seats, Array]:
        return jax.lax.map(one_tile, x)

    seats, bounds = jax.lax.map(one_batch, (tiles, _Seats(*seating)))
    return TablePosterior(*seats), bounds


@kernel(brief=True)
@counted
def collect_documents(
    tiles: DocumentTiles, seating: TablePosterior, seen: Globals, real: Bool[Array, "batch tile document"]
) -> Collected:
    """Return what all documents add to the variables that all documents share, with the words' tables at their optimum.

    A document's tokens sit at tables, each of which serves one topic.

    seating: q of the documents' tables.
    seen: the shared variables as documents see them.
    real: which slots hold a document.
    """
    tiles = jax.tree.map(jnp.asarray, tiles)

    def one_tile(words: Array, x: tuple[DocumentTiles, _Seats, Array]) -> tuple[Array, tuple[Array, ...]]:
        """Add the words of one tile's documents to `words`, and return their other statistics.

        A tile is a block of fixed size with slots for documents.
        """
        tile, seats, real_here = x
        expected, *others = _collect(seen.log_topics[tile.words], tile, seats, real_here)
        return words.at[tile.words].add(expected), tuple(others)

    def one_batch(words: Array, x: tuple[DocumentTiles, _Seats, Array]) -> tuple[Array, tuple[Array, ...]]:
        return jax.lax.scan(one_tile, words, x)

    blank = jnp.zeros_like(seen.log_topics)
    words, (pointed, log_left, n_sticks) = jax.lax.scan(one_batch, blank, (tiles, _Seats(*seating), jnp.asarray(real)))
    return Collected(words, pointed.sum((0, 1)), log_left.sum(), n_sticks.sum())


def naturals(model: HDP, state: AscentState, n_topics: int) -> dict[str, Any]:
    """Return the natural parameters of the shared variables that follow from a state, for existing topics only,
    float32.

    Returns {name of the variable: natural parameters}.
    """
    total = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state.total)
    pointed = total.pointed[:n_topics]
    hits, passes = 1 + pointed, float(state.gamma) + np.maximum(pointed.sum() - np.cumsum(pointed), 0.0)
    log_left = (digamma(passes) - digamma(hits + passes)).sum()
    found = {
        "corpus_concentration": concentration_posterior(model.corpus_concentration, n_topics, log_left),
        "document_concentration": concentration_posterior(model.document_concentration, total.sticks, total.log_left),
        "corpus_sticks": BetaStatistics(hits - 1, passes - 1),
        "topic_word": total.words[:, :n_topics].T + float(model.topic_concentration) - 1,
    }
    present = {name: found[name] for name in model.globals()}
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), present)
