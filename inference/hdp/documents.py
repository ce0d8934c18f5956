"""Documents under an HDP's globals: their tables, their bound, their topic shares."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from lvsearch.inference import topics as kernels
from lvsearch.inference.data import Dataset
from lvsearch.inference.documents import counts_of
from lvsearch.inference.estimator import Described, Estimate, beliefs_of, capacity_of, describe_units, pad_axes
from lvsearch.inference.hdp.kernel import Globals, Seating, log_weights_of, settle_documents
from lvsearch.inference.meanfield import globals_bound
from lvsearch.inference.packing import PackedDocuments, pack
from lvsearch.models.contract import Statistics
from lvsearch.models.hdp import HDP
from lvsearch.models.hyperpriors import GammaPrior

DESCRIBE_SWEEPS, DESCRIBE_TOLERANCE = 100, 1e-3


class Packed(NamedTuple):
    """Packed documents; (batch, tile, document): which slots hold one, and how many tokens it has."""

    documents: PackedDocuments
    real: np.ndarray
    lengths: np.ndarray


def packed_documents(documents: PackedDocuments) -> Packed:
    """The tiles with which slots hold a document, and how many tokens it has."""
    return Packed(documents, documents.documents >= 0, documents.lengths)


def seat_largest(
    in_documents: Float[np.ndarray, "batch tile document topic"], capacity: int, tables: int, alpha: float
) -> Seating:
    """Every document's tables pointing at its topics, largest first, as many words at each as the topic has; float32.

    Tables beyond the number of topics begin with the same topics again and no words.
    """
    n_topics = in_documents.shape[-1]
    order = np.argsort(-in_documents, axis=-1, kind="stable")[..., :tables]
    words = np.take_along_axis(in_documents, order, axis=-1)
    again = np.arange(tables) % n_topics
    fresh = np.arange(tables) < n_topics
    hits = 1 + np.where(fresh, words[..., again], 0.0)
    beyond = np.cumsum((hits - 1)[..., ::-1], axis=-1)[..., ::-1] - (hits - 1)
    pointers = np.zeros((*in_documents.shape[:-1], tables, capacity), np.float32)
    np.put_along_axis(pointers, order[..., again][..., None], 1.0, axis=-1)
    return Seating(pointers, hits.astype(np.float32), (alpha + np.maximum(beyond, 0.0)).astype(np.float32))


def bound_at(
    model: HDP,
    natural: Mapping[str, Statistics],
    size: tuple[int, ...],
    packed: Packed,
    seating: Seating,
    sweeps: int,
) -> tuple[float, Seating]:
    """(The bound on log p(documents) in float64 at exactly these globals, nats, the seating that it is at).

    sweeps: coordinate steps of every document before.
    """
    capacity = capacity_of(size)
    with jax.enable_x64(True):
        padded = jax.tree.map(lambda x: np.asarray(x, np.float64), pad_axes(model, natural, size, capacity))
        beliefs = beliefs_of(model, padded, size, capacity=capacity)
        total = float(globals_bound(model, beliefs, size, capacity=capacity))
        seen, log_alpha = globals_of(model, beliefs.mean, size)
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), seating)
        settled, bounds = settle_documents(packed.documents.tiles, wide, seen, sweeps=sweeps)
        total += float(np.asarray(bounds)[packed.real].sum() + packed.real.sum() * model.tables * log_alpha)
    return total, jax.tree.map(np.asarray, settled)


def globals_of(model: HDP, mean: Mapping[str, Statistics], size: tuple[int, ...]) -> tuple[Globals, float]:
    """What documents see of expected statistics, and E[log α]."""
    sticks = mean["corpus_sticks"]
    exists = np.arange(len(sticks.log_value)) < size[0]
    log_weights = np.where(exists, np.asarray(log_weights_of(sticks.log_value, sticks.log_complement)), -np.inf)
    log_topics = np.where(exists, np.asarray(mean["topic_word"]).T, 0.0)
    if isinstance(model.document_concentration, GammaPrior):
        alpha = mean["document_concentration"]
        log_alpha, value = float(alpha.log_value), -float(alpha.negative_value)
    else:
        log_alpha, value = float(np.log(model.document_concentration)), float(model.document_concentration)
    return Globals(log_topics, log_weights, np.asarray(value, log_topics.dtype)), log_alpha


# ── documents at the globals' posterior means ───────────────────────────────────────────────────────────────────────


class Shares(NamedTuple):
    """`gamma` (batch, tile, document, topic): Dirichlet parameters of shares; `lower` (batch, tile, document), nats."""

    gamma: np.ndarray
    lower: np.ndarray


def shares_at_means(model: HDP, estimate: Estimate, packed: Packed) -> Shares:
    """Mean field for documents' topic shares with the globals at their posterior means, Dirichlet(α β_k) a priori.

    The topics beyond the truncation are one entry of that Dirichlet with nothing to say about words: q leaves it its
    prior, so that the bound is one on the process.
    """
    (n_topics,) = estimate.size
    (capacity,) = capacity_of((n_topics + 1,))
    concentration = np.asarray(estimate.natural["topic_word"], np.float64) + 1
    topics, alpha = np.zeros((concentration.shape[1], capacity)), np.zeros(capacity)
    topics[:, :n_topics] = (concentration / concentration.sum(1, keepdims=True)).T
    weights, left = model.expected_weights(estimate.natural)
    total = model.expected_concentration("document_concentration", estimate.natural)
    alpha[: n_topics + 1] = total * np.append(weights, left)
    alpha32 = np.where(alpha > 0, np.maximum(alpha, 1e-20), 0).astype(np.float32)
    gamma, _ = kernels.document_pass(
        packed.documents.tiles,
        topics.astype(np.float32),
        kernels.start_state(packed.documents, topics, alpha32).proportions,
        alpha32,
        sweeps=DESCRIBE_SWEEPS,
        tolerance=np.float32(DESCRIBE_TOLERANCE),
    )
    with jax.enable_x64(True):
        log_topics = np.log(np.where(topics > 0, topics, 1e-300))
        wide = np.asarray(gamma, np.float64)
        lower = kernels.document_bounds(packed.documents.tiles, log_topics, wide, np.maximum(alpha, alpha32))
    return Shares(wide[..., :n_topics], np.asarray(lower))


@describe_units.register
def _(model: HDP, estimate: Estimate, data: Dataset) -> Described:
    """Expected shares (docs, K) of the topics within the truncation, rows summing to 1, and the bound of each document
    with the globals at their posterior means."""
    packed = packed_documents(pack(counts_of(data), n_batches=1))
    found = shares_at_means(model, estimate, packed)
    proportions = found.gamma / found.gamma.sum(-1, keepdims=True)
    return Described(packed.documents.gather(proportions), packed.documents.gather(found.lower))


def seated(model: HDP, estimate: Estimate, data: Dataset, sweeps: int) -> tuple[Packed, Seating, Globals]:
    """Documents with their tables settled at q(globals), and what they see: float64."""
    packed = packed_documents(pack(counts_of(data), n_batches=1))
    capacity = capacity_of(estimate.size)
    gamma = shares_at_means(model, estimate, packed).gamma
    prior = model.proportions_prior(estimate.size, estimate.natural)
    start = seat_largest(np.maximum(gamma - prior, 0), capacity[0], model.tables, float(prior.sum()))
    _, seating = bound_at(model, estimate.natural, estimate.size, packed, start, sweeps)
    with jax.enable_x64(True):
        padded = pad_axes(model, estimate.natural, estimate.size, capacity)
        wide: Any = jax.tree.map(lambda x: np.asarray(x, np.float64), padded)
        seen, _ = globals_of(model, beliefs_of(model, wide, estimate.size, capacity=capacity).mean, estimate.size)
    return packed, seating, seen
