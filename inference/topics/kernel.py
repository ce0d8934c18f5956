"""The fast kernels of topic models: memoized updates on cache-sized tiles (small groups) of documents, by one of two
rules.

The generic mean field fits LDA too, and tests compare this file with it. But it holds a (token, topic) responsibility
for every document at once, and the topics move only once a pass. Here the topics follow from expected counts N_wk of
word w in topic k, which change after every batch: its old counts are subtracted and its new ones added. These memoized
updates are exact, unlike stochastic ones.

Take one document with counts c_w. Let φ_wk be the probability that a token of word w is from topic k, and γ_k = α_k +
Σ_w c_w φ_wk the parameters of its proportions. With V words in the vocabulary and N_k = Σ_w N_wk, the rules are

    COLLAPSED   φ_wk ∝ (γ_k − φ_wk) (N_wk − φ_wk + η) / (N_k + Vη)       zeroth-order collapsed (Asuncion et al. 2009)
    MEAN_FIELD  φ_wk ∝ exp(ψ(γ_k) + ψ(N_wk + η) − ψ(N_k + Vη))           Eq. 3.9–3.13 of Blei (2004)

Here α and η are the concentrations of the proportions' and the topics' priors, and ψ is the digamma function. Seeds of
topics are imaginary tokens, which are added to N_wk wherever topics follow from it (`lvsearch.models.lda`). COLLAPSED
leaves the token itself out of the counts: one of its c_w copies, whose share of N_k is negligible and stays. It is the
best estimator measured, but not a bound. What is reported about its result is always a bound evaluated at it.
MEAN_FIELD is coordinate ascent on the evidence bound.
"""

from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.packing import DocumentTiles, PackedDocuments
from lvsearch.inference.sharding import EVERYWHERE, along, over_devices, split, tiles_over_devices, total_over
from lvsearch.models.exponential.digamma import digamma_positive, exp_digamma, log_gamma_positive
from lvsearch.models.kernels import kernel

T = TypeVar("T")

TINY = 1e-30
"""The smallest number that is divided by."""
LEAST_REST, MOST_ODDS = 1e-6, 3.0
"""Limits in `removal_losses` and `joint_losses`: the least that 1 − r or 1 − θ may be, so that no token costs more than
13.8 nats; and the largest odds r / (1 − r). Larger odds are those of topics that are needed in any case.
"""
OVERSHOT = 1e-5
"""The loss of a pass, in nats per token, that shows that momentum had moved the topics too far ahead.

One nat in all is added. A smaller loss is no sign of it. On few tokens the fit, which is not the bound, wavers while
the bound rises.
"""


class UpdateRule(NamedTuple):
    """A rule for updates of a topic model: how topics follow from counts, and responsibilities from topics.

    `topics`: (expected counts (word, topic), η, exists (topic,)) -> weights (word, topic) and a scale (topic,); the
        topics are their product.
    `document`: (weights at a tile's words (block, 8, topic), scale, counts (block, 8), slots (block,), γ (document,
        topic), α, η, sweeps) -> (expected counts (block, 8, topic), γ, fit in nats).

    A tile is a small group of documents. Its words lie in blocks of 8, each of one document, whose number in the tile
    is the block's slot. γ are the Dirichlet parameters of the documents' topic proportions.
    """

    topics: Callable[[Array, Any, Array], tuple[Array, Array]]
    document: Callable[..., tuple[Array, Array, Array]]


class Counts(NamedTuple):
    """The state of passes over documents: expected counts of words in topics, and the documents' parameters γ.

    | field | shape | meaning |
    |---|---|---|
    | `total` | (word, topic) | the sum of the batches' counts |
    | `per_batch` | (batch, word, topic) | what to subtract when a batch is visited again |
    | `proportions` | (batch, tile, document, topic) | γ, Dirichlet parameters of the documents' topic proportions |
    """

    total: Any
    per_batch: Any
    proportions: Any


def per_document(per_block: Array, slots: Array | np.ndarray, n_documents: int) -> Array:
    """Return sums over the blocks of words of each document of a tile: (block, …) -> (document, …).

    slots: the number of each block's document within the tile, (block,).
    n_documents: how many documents the tile has room for.
    """
    return jnp.zeros((n_documents, *per_block.shape[1:]), per_block.dtype).at[slots].add(per_block)


# ── the two rules ───────────────────────────────────────────────────────────────────────────────────────────────────


def _collapsed_topics(total: Array, eta: Array, exists: Array) -> tuple[Array, Array]:
    """Return (N_wk + η, 1 / (N_k + Vη)), the weights and scale of the topics: `COLLAPSED.topics`.

    total: N_wk, expected counts of words in topics, (word, topic).
    eta: η, the concentration of the topics' prior.
    exists: True for topics that exist, (topic,).
    """
    return total + eta, jnp.where(exists, 1.0 / (total.sum(0) + total.shape[0] * eta), 0.0)


def _collapsed_document(
    weights: Array, scale: Array, counts: Array, slots: Array, gamma: Array, alpha: Array, eta: Array, sweeps: Array
) -> tuple[Array, Array, Array]:
    """Make `sweeps` collapsed updates of a tile's documents at fixed topics: `COLLAPSED.document`.

    weights, scale: the topics at the words of the tile, (block, 8, topic) and (topic,).
    counts, slots: the counts of these words, (block, 8), and the document of each block, (block,).
    gamma: γ, the parameters of the documents' proportions, (document, topic).
    alpha, eta: concentrations of the proportions' and topics' priors.

    Returns: (expected counts (block, 8, topic), γ (document, topic), fit in nats).
    """

    def share(p: Array) -> Array:
        return 1.0 / jnp.maximum(p.sum(-1), TINY)

    def update(_: Array | int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        p, inverse, g = carry
        phi = p * inverse[..., None]
        # without the token itself; a start's pseudo-counts may hold less than one token
        p = jnp.maximum(g[slots][:, None] - phi, alpha) * jnp.maximum(weights - phi, eta / 2) * scale
        inverse = share(p)
        return p, inverse, alpha + per_document((p * (counts * inverse)[..., None]).sum(1), slots, len(g))

    p = weights * scale * gamma[slots][:, None]
    p, inverse, gamma = jax.lax.fori_loop(0, sweeps, update, (p, share(p), gamma))
    fit = -(counts * (jnp.log(inverse) + jnp.log(gamma.sum(-1))[slots][:, None])).sum()
    return p * (counts * inverse)[..., None], gamma, fit


def _mean_field_topics(total: Array, eta: Array, exists: Array) -> tuple[Array, Array]:
    """Return (exp ψ(N_wk + η), exp −ψ(N_k + Vη)), the weights and scale of the topics: `MEAN_FIELD.topics`.

    total: N_wk, expected counts of words in topics, (word, topic).
    eta: η, the concentration of the topics' prior.
    exists: True for topics that exist, (topic,).
    """
    concentration = jnp.where(exists, total + eta, 0.0)
    sums = concentration.sum(0)
    return exp_digamma(concentration), jnp.where(exists, 1.0 / jnp.maximum(exp_digamma(sums), TINY), 0.0)


def _settle(
    rows: Array,
    counts: Array | np.ndarray,
    slots: Array | np.ndarray,
    gamma: Array,
    alpha: Array,
    sweeps: int | Array,
    tolerance: float | Array,
) -> tuple[Array, Array, Array]:
    """Repeat mean-field updates of the topic proportions of a tile's documents until they converge, at most `sweeps`
    times.

    A document whose γ moved by less than `tolerance` tokens in all stays as it is. So its result does not depend on
    which documents share its tile.

    rows: exp E[log β] at the words of the tile, (block, 8, topic).
    counts, slots: the counts of these words, (block, 8), and the document of each block, (block,).
    gamma: γ, the parameters of the documents' proportions, (document, topic).
    alpha: the prior's concentration on each topic, (topic,).

    Returns: (γ, e = exp ψ(γ), both (document, topic); count / Σ_k (rows · e) of each word, (block, 8)).
    """

    def ratio(e: Array) -> Array:
        return jnp.asarray(counts) / jnp.maximum((rows * e[slots][:, None]).sum(-1), TINY)

    def update(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        n, g, e, moving = carry
        new = alpha + e * per_document((rows * ratio(e)[..., None]).sum(1), slots, len(g))
        new = jnp.where(moving[:, None], new, g)
        # e is carried so that it is computed once per document, not fused into what reads it once per word
        return n + 1, new, exp_digamma(new), moving & (jnp.abs(new - g).sum(-1) > tolerance)

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        n, _, _, moving = carry
        return (n < sweeps) & moving.any()

    start = (jnp.asarray(0), gamma, exp_digamma(gamma), jnp.ones(len(gamma), bool))
    _, gamma, e, _ = jax.lax.while_loop(unfinished, update, start)
    return gamma, e, ratio(e)


def _mean_field_document(
    weights: Array, scale: Array, counts: Array, slots: Array, gamma: Array, alpha: Array, eta: Array, sweeps: Array
) -> tuple[Array, Array, Array]:
    """Make `sweeps` mean-field updates of a tile's documents at fixed topics: `MEAN_FIELD.document`.

    weights, scale: the topics at the words of the tile, (block, 8, topic) and (topic,).
    counts, slots: the counts of these words, (block, 8), and the document of each block, (block,).
    gamma: γ, the parameters of the documents' proportions, (document, topic).
    alpha: the concentration of the proportions' prior. eta: not used.

    Returns: (expected counts (block, 8, topic), γ (document, topic), fit in nats).
    """
    del eta  # is in the weights
    rows = weights * scale
    gamma, e, ratio = _settle(rows, counts, slots, gamma, alpha, sweeps, jnp.zeros((), rows.dtype))
    fit = (counts * jnp.where(counts > 0, jnp.log(jnp.where(counts > 0, counts / ratio, 1.0)), 0.0)).sum()
    fit -= (counts.sum(-1) * jnp.log(gamma.sum(-1))[slots]).sum()
    return rows * e[slots][:, None] * ratio[..., None], gamma, fit


COLLAPSED = UpdateRule(_collapsed_topics, _collapsed_document)
"""The rule of zeroth-order collapsed updates, which finds good topics fast but climbs no bound."""
MEAN_FIELD = UpdateRule(_mean_field_topics, _mean_field_document)
"""The rule of mean-field updates, which climb the evidence bound."""


def visit(
    rule: UpdateRule,
    weights: Array,
    scale: Array,
    tiles: DocumentTiles,
    gamma: Array,
    counts: Array,
    alpha: Array,
    eta: float | Array,
    sweeps: int | Array,
) -> tuple[Array, Array, Array]:
    """Update the documents of some tiles at fixed topics, one tile after another.

    weights, scale: the topics in the form that the rule's `topics` returns.
    tiles: the tiles, each array (tile, …).
    gamma: γ, the parameters of the documents' proportions, (tile, document, topic).
    counts: expected counts (word, topic), to which the counts of the tiles are added.
    alpha, eta: concentrations of the proportions' and topics' priors.
    sweeps: how often each document is updated.

    Returns: (expected counts (word, topic), γ (tile, document, topic), the fit in nats).
    """

    def one_tile(counts: Array, x: tuple[DocumentTiles, Array]) -> tuple[Array, tuple[Array, Array]]:
        tile, g = x
        expected, g, fit = rule.document(weights[tile.words], scale, tile.counts, tile.slots, g, alpha, eta, sweeps)
        return counts.at[tile.words].add(expected), (g, fit)

    counts, (gamma, fits) = jax.lax.scan(one_tile, counts, (tiles, gamma))
    return counts, gamma, fits.sum()


def with_seeds(total: Array, seeds: Array | np.ndarray | None) -> Array:
    """Return expected counts (word, topic) with the imaginary tokens of seeds added; unchanged where these are None."""
    return total if seeds is None else total + seeds


# ── passes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@tiles_over_devices
@kernel(donate_argnames=("state",), static_argnames=("rule", "mesh"), brief=True)
@counted
def memoized_passes(
    tiles: DocumentTiles,
    state: Counts,
    alpha: Float[Array, " topic"],
    eta: float | Array,
    *,
    rule: UpdateRule,
    sweeps: int | Array,
    passes: int | Array,
    tolerance: float | Array,
    momentum: float | Array,
    seeds: Float[Array, "word topic"] | None = None,
    mesh: Mesh | None = None,
) -> tuple[Counts, Array, Array]:
    """Make up to `passes` passes over all batches of documents, until a pass gains less than `tolerance` nats per
    token.

    At each visit a batch's old expected counts are subtracted and its new ones added. With `momentum` 0, MEAN_FIELD
    never lowers the bound. The state's buffers are reused.

    tiles: the documents, each array (batch, tile, …).
    state: expected counts and documents' parameters before the first pass.
    alpha: the concentration of the proportions on each topic, 0 for topics that do not exist. Their columns of zeros
        stay zeros.
    eta: the concentration of the topics' prior.
    rule: `COLLAPSED` or `MEAN_FIELD`.
    sweeps: how often the documents of a tile are updated at each visit.
    momentum: a pass begins at topics moved on by this share of the last pass's step (over-relaxation). Below 1 it keeps
        the fixed points and their stability, and near them it needs up to half the passes.
    seeds: imaginary tokens of each word in each topic, which no batch holds; None for none.
    mesh: the devices that share the tiles of every batch.

    The last pass begins without momentum, and so does one after a pass that lowered the fit (`OVERSHOT`). If a word has
    many tokens in a document, steps are long. Without this rule, fits ended at topics that share words (12 topics of 96
    words, 3,000 tokens a document: up to 40,000 of 3,600,000 nats lower).

    Returns: (the new state, the fit of the last pass in nats, how many passes were made). The fit is Σ_w c_w log (Σ_k
        p_wk / Σγ), with c_w the count of a word in a document and p_wk the rule's responsibilities before normalising.
    """
    shared = Counts(EVERYWHERE, EVERYWHERE, along(1))
    specs = (along(1), shared, *[EVERYWHERE] * 7)
    made = over_devices(partial(_passes, rule, mesh), mesh, specs, (shared, EVERYWHERE, EVERYWHERE))
    return made(tiles, state, alpha, jnp.asarray(eta), sweeps, passes, tolerance, momentum, seeds)


def _passes(
    rule: UpdateRule,
    mesh: Mesh | None,
    tiles: DocumentTiles,
    state: Counts,
    alpha: Array,
    eta: Array,
    sweeps: Array,
    passes: Array,
    tolerance: Array,
    momentum: Array,
    seeds: Array | None,
) -> tuple[Counts, Array, Array]:
    """Make memoized passes over the tiles of one device (see `memoized_passes`).

    Returns: (the new state, the fit of the last pass in nats, how many passes were made).
    """
    tiles = jax.tree.map(jnp.asarray, tiles)
    exists = alpha > 0
    n_tokens = total_over(tiles.counts.sum(), mesh)

    def overshot(before: Array, after: Array) -> Array:
        return after < before - (1.0 + OVERSHOT * n_tokens)

    def one_batch(state: Counts, x: tuple[Array, DocumentTiles]) -> tuple[Counts, Array]:
        index, batch = x
        total, per_batch, proportions = state
        weights, scale = rule.topics(with_seeds(total, seeds), eta, exists)

        gamma = proportions[index]
        new, gamma, fit = visit(rule, weights, scale, batch, gamma, jnp.zeros_like(total), alpha, eta, sweeps)
        new, fit = total_over((new, fit), mesh)
        total = jnp.maximum(total + new - per_batch[index], 0.0)  # rounding, and topics that were moved ahead
        # Written in place, where the read above provably comes first: the sum is never negative, but XLA cannot know.
        # Without it two copies of all batches' counts are made for every batch, half the time of a pass.
        index = index + (total.min() < 0)
        return Counts(total, per_batch.at[index].set(new), proportions.at[index].set(gamma)), fit

    def one_pass(carry: tuple[Counts, Array, Array, Array, Array]) -> tuple[Counts, Array, Array, Array, Array]:
        state, step, last, fit, n = carry
        before = state.total
        share = jnp.where((n < passes - 1) & ~overshot(last, fit), momentum, 0.0)
        ahead = jnp.maximum(before + share * step, 0.0)
        state, fits = jax.lax.scan(one_batch, state._replace(total=ahead), (jnp.arange(len(state.per_batch)), tiles))
        # summed afresh: no drift, and the pseudo-counts of a start are forgotten after the first pass
        total = state.per_batch.sum(0)
        # the step away from pseudo-counts says nothing: they hold another number of tokens
        step = jnp.where(jnp.abs(before.sum() - n_tokens) < 0.01 * n_tokens, total - before, 0.0)
        return state._replace(total=total), step, fit, fits.sum(), n + 1

    def unfinished(carry: tuple[Counts, Array, Array, Array, Array]) -> Array:
        _, _, before, after, n = carry
        return (n < passes) & ((n < 2) | overshot(before, after) | (after - before > tolerance * n_tokens))

    low = jnp.asarray(-jnp.inf, state.total.dtype)
    start = (state, jnp.zeros_like(state.total), low, low, jnp.asarray(0))
    state, _, _, fit, n = jax.lax.while_loop(unfinished, one_pass, start)
    return state, fit, n


def start_state(packed: PackedDocuments, pseudo_counts: np.ndarray, alpha: np.ndarray) -> Counts:
    """Return the state before the first pass: topics from pseudo-counts, even topic proportions, and no batch visited.

    packed: the documents.
    pseudo_counts: how many tokens of each word each topic begins with, (word, topic).
    alpha: the concentration of the proportions on each topic, 0 for topics that do not exist.
    """
    exists = alpha > 0
    even = np.where(exists, alpha + packed.lengths[..., None] / exists.sum(), 0.0)
    no_memory = np.zeros((packed.n_batches, *pseudo_counts.shape), np.float32)
    return Counts(pseudo_counts.astype(np.float32), no_memory, split(even.astype(np.float32), 1))


@kernel(brief=True)
@counted
def exp_log_topics(
    total: Float[Array, "word topic"], eta: float | Array, alpha: Float[Array, " topic"]
) -> Float[Array, "word topic"]:
    """Return exp E[log β] of Dirichlet topics with these expected counts, (word, topic), to give to `document_pass`.

    total: expected counts of words in topics, (word, topic).
    eta: the concentration of the topics' prior.
    alpha: 0 for topics that do not exist.
    """
    weights, scale = _mean_field_topics(total, jnp.asarray(eta, total.dtype), alpha > 0)
    return weights * scale


@tiles_over_devices
@kernel(static_argnames=("mesh",), brief=True)
@counted
def document_pass(
    tiles: DocumentTiles,
    topic_weights: Float[Array, "word topic"],
    gamma: Float[Array, "batch tile document topic"],
    alpha: Float[Array, " topic"],
    *,
    sweeps: int | Array,
    tolerance: float | Array,
    mesh: Mesh | None = None,
) -> tuple[Array, Array]:
    """Fit the topic proportions of every document by mean-field updates at fixed topics (Eq. 3.9–3.11).

    tiles: the documents, each array (batch, tile, …).
    topic_weights: exp E[log β], or β if topics are points.
    gamma: γ, the Dirichlet parameters of the documents' proportions, to start from.
    alpha: the prior's concentration on each topic, 0 for topics that do not exist.
    sweeps: the most updates of a document.
    tolerance: a document is left alone once its γ moves by less than this many tokens.
    mesh: the devices that share the tiles of every batch.

    Returns: (γ, (batch, tile, document, topic); expected counts of words in topics, (word, topic)).
    """
    specs = (along(1), EVERYWHERE, along(1), *[EVERYWHERE] * 3)
    made = over_devices(partial(_documents_pass, mesh), mesh, specs, (along(1), EVERYWHERE))
    return made(tiles, topic_weights, gamma, alpha, sweeps, tolerance)


def _documents_pass(
    mesh: Mesh | None,
    tiles: DocumentTiles,
    topic_weights: Array,
    gamma: Array,
    alpha: Array,
    sweeps: Array,
    tolerance: Array,
) -> tuple[Array, Array]:
    """Fit the topic proportions of one device's documents at fixed topics (see `document_pass`).

    Returns: (γ of these documents, expected counts of all devices' documents (word, topic)).
    """
    tiles = jax.tree.map(jnp.asarray, tiles)

    def one_tile(total: Array, x: tuple[DocumentTiles, Array]) -> tuple[Array, Array]:
        tile, g = x
        rows = topic_weights[tile.words]
        g, e, ratio = _settle(rows, tile.counts, tile.slots, g, alpha, sweeps, tolerance)
        return total.at[tile.words].add(rows * e[tile.slots][:, None] * ratio[..., None]), g

    def one_batch(total: Array, x: tuple[DocumentTiles, Array]) -> tuple[Array, Array]:
        return jax.lax.scan(one_tile, total, x)

    total, gamma = jax.lax.scan(one_batch, jnp.zeros_like(topic_weights), (tiles, gamma))
    return gamma, total_over(total, mesh)


@tiles_over_devices
@kernel(static_argnames=("mesh",), brief=True)
@counted
def document_bounds(
    tiles: DocumentTiles,
    expected_log_topics: Float[Array, "word topic"],
    gamma: Float[Array, "batch tile document topic"],
    alpha: Float[Array, " topic"],
    mesh: Mesh | None = None,
) -> Float[Array, "batch tile document"]:
    """Return a lower bound on the log-likelihood of each document at its γ and the best assignments for it (Eq. 3.12),
    nats.

        Σ_w c_w log Σ_k exp(E log θ_k + E log β_kw)
        + log Γ(Σα) − Σ log Γ(α) − log Γ(Σγ) + Σ log Γ(γ) + Σ (α − γ) E log θ

    It is a bound at any γ, and 0 in slots without a document. If the number is recorded, run it inside
    `jax.enable_x64(True)` on float64 inputs.

    tiles: the documents, each array (batch, tile, …), with counts c_w.
    expected_log_topics: E[log β], or log β if topics are points.
    gamma: γ, the Dirichlet parameters of the documents' proportions θ.
    alpha: α, the prior's concentration on each topic, 0 for topics that do not exist.
    mesh: the devices that share the tiles of every batch.
    """
    specs = (along(1), EVERYWHERE, along(1), EVERYWHERE)
    return over_devices(_documents_bounds, mesh, specs, along(1))(tiles, expected_log_topics, gamma, alpha)


def _documents_bounds(tiles: DocumentTiles, expected_log_topics: Array, gamma: Array, alpha: Array) -> Array:
    """Return a lower bound on the log-likelihood of each of one device's documents, (batch, tile, document), nats.

    See `document_bounds`.
    """
    tiles = jax.tree.map(jnp.asarray, tiles)
    exists = alpha > 0
    safe_alpha = jnp.where(exists, alpha, 1.0)
    prior = log_gamma_positive(alpha.sum()) - jnp.where(exists, log_gamma_positive(safe_alpha), 0.0).sum()

    def one_tile(x: tuple[DocumentTiles, Array]) -> Array:
        tile, g = x
        safe = jnp.where(exists, g, 1.0)
        sums = jnp.where(exists, g, 0.0).sum(-1, keepdims=True)
        log_theta = digamma_positive(safe) - digamma_positive(sums)
        proportions = jnp.where(exists, log_gamma_positive(safe) + (alpha - safe) * log_theta, 0.0).sum(-1)
        open_log_theta = jnp.where(exists, log_theta, -jnp.inf)
        words = jax.nn.logsumexp(expected_log_topics[tile.words] + open_log_theta[tile.slots][:, None], axis=-1)
        words = jnp.where(tile.counts > 0, tile.counts * words, 0.0).sum(-1)
        return per_document(words, tile.slots, len(g)) + prior + proportions - log_gamma_positive(sums[:, 0])

    return jax.lax.map(lambda batch: jax.lax.map(one_tile, batch), (tiles, gamma))


class Losses(NamedTuple):
    """The log-likelihood that documents lose if one topic is left out, or two are merged, in nats (`removal_losses`).

    | field | shape | meaning |
    |---|---|---|
    | `without` | (topic,) | the loss without a topic |
    | `merged` | (pair,) | the loss if the topics of a pair are one |
    """

    without: Any
    merged: Any


@tiles_over_devices
@kernel(static_argnames=("mesh",), brief=True)
@counted
def removal_losses(
    tiles: DocumentTiles,
    gamma: Float[Array, "batch tile document topic"],
    topics: Float[Array, "word topic"],
    pairs: Int[Array, "two pair"] | np.ndarray,
    merged: Float[Array, "word pair"],
    mesh: Mesh | None = None,
) -> Losses:
    """Return how much log-likelihood the documents lose if one topic is left out, or two are merged, in nats.

    Take one document of n tokens, with counts c_w and proportions θ = γ / Σγ. Its words have probability p_w = Σ_j θ_j
    β_wj, and r_wk = θ_k β_wk / p_w. Without topic k the other proportions are divided by 1 − θ_k, and the document
    loses

        Σ_w c_w log 1/(1 − r_wk) − n log 1/(1 − θ_k)

    If k and l are merged into a topic β, p_w changes by (θ_k + θ_l) β_w − θ_k β_wk − θ_l β_wl. Losses are summed over
    documents.

    tiles: the documents, each array (batch, tile, …).
    gamma: γ, the Dirichlet parameters of the documents' proportions.
    topics: β, the probability of each word in each topic; 0 for topics that do not exist.
    pairs: the topics of each pair to be merged.
    merged: the probability of each word in the merged topic of each pair.
    mesh: the devices that share the tiles of every batch.

    Returns: the losses of all documents, summed in the type of `topics`.
    """
    specs = (along(1), along(1), EVERYWHERE, EVERYWHERE, EVERYWHERE)
    made = over_devices(partial(_removal_losses, mesh), mesh, specs, EVERYWHERE)
    return made(tiles, gamma, topics, pairs, merged)


def _removal_losses(
    mesh: Mesh | None, tiles: DocumentTiles, gamma: Array, topics: Array, pairs: Array, merged: Array
) -> Losses:
    """Return the losses of the documents of all devices, from the tiles of one (see `removal_losses`)."""
    tiles, pairs = jax.tree.map(jnp.asarray, (tiles, pairs))

    def removal_terms(shares: Array, counts: Array | np.ndarray) -> Array:
        """Return Σ count · log 1/(1 − share) of each topic, of words or documents: shares (…, topic), counts (…)."""
        return -(counts[..., None] * jnp.log(jnp.maximum(1 - shares, LEAST_REST))).sum(tuple(range(counts.ndim)))

    def of_tile(tile: DocumentTiles, gamma: Array) -> Losses:
        theta, parts, p_words = _word_parts(tile, topics, gamma)
        # without topics: terms of words, with shares r_wk, minus terms of documents, with shares θ_k
        of_documents = removal_terms(theta, _tokens_of_documents(tile, theta))
        # merged topics: by which share of itself p_w changes
        of_merged = (theta[:, pairs[0]] + theta[:, pairs[1]])[tile.slots][:, None] * merged[tile.words]
        change = (of_merged - parts[..., pairs[0]] - parts[..., pairs[1]]) / p_words
        of_pairs = -(tile.counts[..., None] * jnp.log1p(jnp.maximum(change, LEAST_REST - 1))).sum((0, 1))
        return Losses(removal_terms(parts / p_words, tile.counts) - of_documents, of_pairs)

    zeros = Losses(jnp.zeros(topics.shape[1], topics.dtype), jnp.zeros(merged.shape[1], topics.dtype))
    return total_over(_sum_over_tiles(of_tile, tiles, gamma, zeros), mesh)


@tiles_over_devices
@kernel(static_argnames=("mesh",), brief=True)
@counted
def joint_losses(
    tiles: DocumentTiles,
    gamma: Float[Array, "batch tile document topic"],
    topics: Float[Array, "word topic"],
    chosen: Int[Array, " chosen"] | np.ndarray,
    mesh: Mesh | None = None,
) -> Float[Array, "chosen topic"]:
    """Return about how much more the documents lose without two topics than without each alone, in nats.

    With r_wk, θ_k and c_w as in `removal_losses`, a document without topics k and l loses what it loses without each,
    and

        Σ_w c_w log 1/(1 − o_wk o_wl) − n log 1/(1 − o_k o_l)

    more, with o_wk = r_wk / (1 − r_wk) and o_k = θ_k / (1 − θ_k). The first order of this is returned, with odds of at
    most `MOST_ODDS`. It is large for two equal topics: one can be spared, not both. It may be negative.

    tiles, gamma, topics, mesh: as in `removal_losses`.
    chosen: the topics k, each of which is left out together with every topic l.

    Returns: the sums over documents, in the type of `topics`; where k is l, a number without meaning.
    """
    specs = (along(1), along(1), EVERYWHERE, EVERYWHERE)
    made = over_devices(partial(_joint_losses, mesh), mesh, specs, EVERYWHERE)
    return made(tiles, gamma, topics, chosen)


def _joint_losses(mesh: Mesh | None, tiles: DocumentTiles, gamma: Array, topics: Array, chosen: Array) -> Array:
    """Return the joint losses of the documents of all devices, from the tiles of one (see `joint_losses`)."""
    tiles, chosen = jax.tree.map(jnp.asarray, (tiles, chosen))

    def joint_terms(shares: Array, counts: Array | np.ndarray) -> Array:
        """Return Σ count · odds_k · odds_l, (chosen, topic), of words or documents: shares (…, topic), counts (…)."""
        odds, axes = jnp.minimum(shares / jnp.maximum(1 - shares, LEAST_REST), MOST_ODDS), tuple(range(counts.ndim))
        return jnp.tensordot(odds[..., chosen] * counts[..., None], odds, (axes, axes))

    def of_tile(tile: DocumentTiles, gamma: Array) -> Array:
        theta, parts, p_words = _word_parts(tile, topics, gamma)
        of_documents = joint_terms(theta, _tokens_of_documents(tile, theta))
        return joint_terms(parts / p_words, tile.counts) - of_documents

    zeros = jnp.zeros((len(chosen), topics.shape[1]), topics.dtype)
    return total_over(_sum_over_tiles(of_tile, tiles, gamma, zeros), mesh)


def _word_parts(tile: DocumentTiles, topics: Array, gamma: Array) -> tuple[Array, Array, Array]:
    """Return the proportions θ of a tile's documents, the parts θ_k β_wk of each word's probability, and their sum p_w.

    gamma: γ of the tile's documents, (document, topic).
    """
    theta = gamma / jnp.maximum(gamma.sum(-1, keepdims=True), TINY)
    parts = topics[tile.words] * theta[tile.slots][:, None]
    return theta, parts, jnp.maximum(parts.sum(-1, keepdims=True), TINY)


def _tokens_of_documents(tile: DocumentTiles, theta: Array) -> Array:
    """Return the number of tokens of each document of a tile; `theta` has a row for each document."""
    return per_document(tile.counts.sum(-1), tile.slots, len(theta))


def _sum_over_tiles(of_tile: Callable[[DocumentTiles, Array], T], tiles: DocumentTiles, gamma: Array, zeros: T) -> T:
    """Return the sum over all tiles, (batch, tile), of what a function of a tile and its γ returns.

    zeros: the sum over no tiles.
    """

    def one_tile(sums: T, x: tuple[DocumentTiles, Array]) -> tuple[T, None]:
        return jax.tree.map(jnp.add, sums, of_tile(*x)), None

    def one_batch(sums: T, x: tuple[DocumentTiles, Array]) -> tuple[T, None]:
        return jax.lax.scan(one_tile, sums, x)

    return jax.lax.scan(one_batch, zeros, (tiles, gamma))[0]


def sum_of_parts(parts: Iterable[T]) -> T:
    """Return the sum of equal pytrees of arrays, one of each part of the documents, added in turn in float64."""
    return reduce(
        lambda sums, part: jax.tree.map(np.add, sums, part),
        (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), part) for part in parts),
    )


@kernel(once=True)
@counted
def topic_bound(
    concentration: Float[Array, "word topic"], eta: float | Array, exists: Array
) -> tuple[Float[Array, ""], Float[Array, "word topic"]]:
    """Return the topics' part of the evidence bound, E[log p(β)] + H[q(β)], in nats, and E[log β], (word, topic).

    concentration: the parameters of the Dirichlet q(β) of every topic.
    eta: the concentration of the topics' prior.
    exists: True for topics that exist; E[log β] of the others is 0.

    If the number is recorded, all must be float64 under `jax.enable_x64(True)`.
    """
    eta = jnp.asarray(eta, concentration.dtype)
    safe = jnp.where(exists, concentration, 1.0)
    sums = safe.sum(0)
    log_topics = digamma_positive(safe) - digamma_positive(sums)
    n_words = len(safe)
    prior = log_gamma_positive(n_words * eta) - n_words * log_gamma_positive(eta)
    per_topic = (log_gamma_positive(safe) + (eta - safe) * log_topics).sum(0) - log_gamma_positive(sums) + prior
    return jnp.where(exists, per_topic, 0.0).sum(), jnp.where(exists, log_topics, 0.0)
