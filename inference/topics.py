"""The fast estimator of topics: memoized zeroth-order updates on cache-sized tiles.

The generic engine fits LDA too (and is this file's oracle), but it materialises a (token, topic) responsibility for
every document at once and waits a whole pass before the topics move. Here, for one document with counts c and topics β,

    γ ← α + γ ∘ βᵀ(c / (βγ))                          zeroth order: Eq. 3.9–3.10 with exp E[log θ] replaced by γ
    γ ← α + e ∘ βᵀ(c / (βe)),  e = exp ψ(γ)           mean field: Eq. 3.9–3.11

and the topics are those of the expected counts, updated after every batch by subtracting the batch's old counts and
adding its new ones (memoized). Documents go through in tiles of 8, whose (token, topic) block stays in cache.

The zeroth-order step is an *estimator*: what is reported about its result is always a bound evaluated at it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from lvsearch.inference.data import Dataset
from lvsearch.models.lda import BagOfWords

TILE = 8
"""Documents that go through the inner loop together."""


class Tiles(NamedTuple):
    """The batches of one shape, stacked: words and counts (batch, docs, token)."""

    words: Array | np.ndarray
    counts: Array | np.ndarray


class Counts(NamedTuple):
    """Expected word counts per topic.

    | field | shape | meaning |
    |---|---|---|
    | `total` | (word, topic) | Σ of the batches' counts |
    | `per_batch` | a (batch, word, topic) array per group of tiles | what to subtract when a batch is visited again |
    | `proportions` | a (batch, docs, topic) array per group | γ, kept between passes |
    """

    total: Array
    per_batch: tuple[Array, ...]
    proportions: tuple[Array, ...]


def tiles(data: Dataset) -> tuple[Tiles, ...]:
    """Group the batches by shape."""
    groups: dict[tuple[int, ...], list[BagOfWords]] = {}
    for batch in data.batches:
        groups.setdefault(np.shape(batch.units.words), []).append(batch.units)
    return tuple(
        Tiles(np.stack([u.words for u in units]), np.stack([u.counts for u in units])) for units in groups.values()
    )


def ungroup(data: Dataset, per_group: tuple[Array | np.ndarray, ...]) -> list[np.ndarray]:
    """Per-tile results in the order of the data set's batches."""
    shapes = [np.shape(batch.units.words) for batch in data.batches]
    position = {shape: (i, 0) for i, shape in enumerate(dict.fromkeys(shapes))}
    out = []
    for shape in shapes:
        group, index = position[shape]
        out.append(np.asarray(per_group[group][index]))
        position[shape] = (group, index + 1)
    return out


def _zeroth_order(gamma: Array) -> Array:
    return gamma


def _exp_expected_log(gamma: Array) -> Array:
    """exp ψ(γ) up to a constant; 0 where γ is 0 (a topic that does not exist)."""
    return jnp.where(gamma > 0, jnp.exp(digamma(jnp.where(gamma > 0, gamma, 1.0))), 0.0)


def _document(
    topic_rows: Array,
    counts: Array,
    gamma: Array,
    alpha: Array,
    sweeps: int | Array,
    weight_of: Callable[[Array], Array],
) -> Array:
    """`sweeps` updates of one document's γ. topic_rows: β at its words, (token, topic)."""

    def update(_: Array | int, g: Array) -> Array:
        e = weight_of(g)
        return alpha + e * ((counts / jnp.maximum(topic_rows @ e, 1e-30)) @ topic_rows)

    return jax.lax.fori_loop(0, sweeps, update, gamma)


@partial(jax.jit, donate_argnames=("state",))
def memoized_passes(
    groups: tuple[Tiles, ...],
    state: Counts,
    alpha: Float[Array, " topic"],
    eta: float | Array,
    *,
    sweeps: int | Array,
    passes: int | Array,
    tolerance: float | Array,
) -> tuple[Counts, Array, Array]:
    """Up to `passes` passes over all batches, until a pass improves the fit by less than `tolerance` nats per token.

    The topics of an inactive size are columns of zeros and stay so, with alpha 0 there. Returns the new state, the fit
    Σ_w c_w log (θ̂ᵀβ)_w of the last pass (nats) and the number of passes made.
    """
    n_words = state.total.shape[0]
    on = alpha > 0
    n_tokens = sum(group.counts.sum() for group in groups)

    def one_batch(total: Array, x: tuple[Array, Array, Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        words, counts, old, gamma = x
        scale = jnp.where(on, 1.0 / (total.sum(0) + n_words * eta), 0.0)

        def one_document(d: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            w, c, g = d
            rows = (total[w] + eta) * scale
            g = _document(rows, c, g, alpha, sweeps, _zeroth_order)
            s = jnp.maximum(rows @ g, 1e-30)
            return g, c / s, (c * jnp.log(s / g.sum())).sum()

        new_gamma, ratio, fit = jax.lax.map(one_document, (words, counts, gamma), batch_size=TILE)
        scattered = jnp.zeros_like(total).at[words].add(ratio[..., None] * new_gamma[:, None, :])
        new = scattered * (total + eta) * scale
        return total + new - old, (new, new_gamma, fit.sum())

    def one_pass(carry: tuple[Counts, Array, Array, Array]) -> tuple[Counts, Array, Array, Array]:
        state, _, fit, n = carry
        total, per_batch, proportions, fits = state.total, [], [], []
        for group, old, gamma in zip(groups, state.per_batch, state.proportions, strict=True):
            words, counts = map(jnp.asarray, group)
            total, (new, new_gamma, group_fit) = jax.lax.scan(one_batch, total, (words, counts, old, gamma))
            per_batch.append(new)
            proportions.append(new_gamma)
            fits.append(group_fit.sum())
        # summed afresh: no drift, and the pseudo-counts of a start are forgotten after the first pass
        total = sum((new.sum(0) for new in per_batch), jnp.zeros_like(total))
        return Counts(total, tuple(per_batch), tuple(proportions)), fit, jnp.stack(fits).sum(), n + 1

    def unfinished(carry: tuple[Counts, Array, Array, Array]) -> Array:
        _, before, after, n = carry
        return (n < passes) & ((n < 2) | (after - before > tolerance * n_tokens))

    low = jnp.asarray(-jnp.inf, state.total.dtype)
    state, _, fit, n = jax.lax.while_loop(unfinished, one_pass, (state, low, low, jnp.asarray(0)))
    return state, fit, n


def start_state(groups: tuple[Tiles, ...], pseudo_counts: Array | np.ndarray, alpha: Array | np.ndarray) -> Counts:
    """A state with no memory: `pseudo_counts` (word, topic) say where the topics start; γ starts even."""
    n_words, n_topics = pseudo_counts.shape
    on = alpha > 0
    per_batch = tuple(jnp.zeros((group.words.shape[0], n_words, n_topics), jnp.float32) for group in groups)
    even = tuple(
        jnp.where(on, alpha + group.counts.sum(-1, keepdims=True) / on.sum(), 0.0).astype(jnp.float32)
        for group in groups
    )
    return Counts(jnp.asarray(pseudo_counts, jnp.float32), per_batch, even)


@jax.jit
def mean_field_pass(
    groups: tuple[Tiles, ...],
    exp_log_topics: Float[Array, "word topic"],
    gammas: tuple[Array, ...],
    alpha: Float[Array, " topic"],
    *,
    sweeps: int | Array,
) -> tuple[tuple[Array, ...], Array]:
    """Mean-field updates of every document (Eq. 3.9–3.11) and the expected counts (word, topic) that follow."""
    new_gammas, total = [], jnp.zeros_like(exp_log_topics)
    for group, gamma in zip(groups, gammas, strict=True):

        def one_document(d: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            w, c, g = d
            rows = exp_log_topics[w]
            g = _document(rows, c, g, alpha, sweeps, _exp_expected_log)
            e = _exp_expected_log(g)
            return g, e, c / jnp.maximum(rows @ e, 1e-30)

        def one_batch(carry: Array, x: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            words, counts, g = x
            g, e, ratio = jax.lax.map(one_document, (words, counts, g), batch_size=TILE)
            return carry.at[words].add(ratio[..., None] * e[:, None, :]), g

        words, counts = map(jnp.asarray, group)
        total, new_gamma = jax.lax.scan(one_batch, total, (words, counts, gamma))
        new_gammas.append(new_gamma)
    return tuple(new_gammas), total * exp_log_topics


@jax.jit
def document_bounds(
    groups: tuple[Tiles, ...],
    expected_log_topics: Float[Array, "word topic"],
    gammas: tuple[Array, ...],
    alpha: Float[Array, " topic"],
) -> tuple[Array, ...]:
    """The bound of each document at its γ and the assignments best for it (Eq. 3.12), nats: (batch, docs) per group.

        Σ_w c_w log Σ_k exp(E log θ_k + E log β_kw)
        + log Γ(Σα) − Σ log Γ(α) − log Γ(Σγ) + Σ log Γ(γ) + Σ (α − γ) E log θ

    Valid at any γ. Run it inside `jax.enable_x64(True)` on float64 inputs where the number is to be recorded.
    """
    on = alpha > 0
    safe_alpha = jnp.where(on, alpha, 1.0)
    prior = gammaln(alpha.sum()) - jnp.where(on, gammaln(safe_alpha), 0.0).sum()

    def one_document(d: tuple[Array, Array, Array]) -> Array:
        w, c, g = d
        safe = jnp.where(on, g, 1.0)
        log_theta = jnp.where(on, digamma(safe) - digamma(jnp.where(on, g, 0.0).sum()), -jnp.inf)
        words = jax.nn.logsumexp(expected_log_topics[w] + log_theta, axis=-1)
        proportions = jnp.where(on, gammaln(safe) + (alpha - safe) * jnp.where(on, log_theta, 0.0), 0.0).sum()
        return jnp.where(c > 0, c * words, 0.0).sum() + prior + proportions - gammaln(jnp.where(on, g, 0.0).sum())

    return tuple(
        jax.lax.map(lambda x: jax.lax.map(one_document, x, batch_size=TILE), (group.words, group.counts, gamma))
        for group, gamma in zip(groups, gammas, strict=True)
    )
