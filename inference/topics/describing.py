"""Descriptions of documents under fitted LDA topics: topic proportions, likelihood bounds and certified intervals."""

import jax
import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.data.packing import pack
from lvsearch.inference.engine.describing import Described, bound_units, describe_units
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.likelihood.bounds import document_bounds
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.estimator import exact_alpha, padded_topics, point_topics
from lvsearch.models.lda import LDA

DESCRIBE_SWEEPS, DESCRIBE_TOLERANCE = 100, 1e-3


@describe_units.register
def _described_documents(model: LDA, estimate: Estimate, data: Dataset) -> Described:
    """Return topic proportions (document, topic) and a lower bound on log p of each document in nats.

    Topics are fixed at their posterior mean. This is the overload of `describe_units` for LDA. Documents on disk are
    described one run of them after the other.
    """
    found = [_described(model, estimate, part) for part in data.iter_parts()]
    return found[0] if len(found) == 1 else Described(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _described(model: LDA, estimate: Estimate, data: Dataset) -> Described:
    """Return topic proportions and lower bounds on log p of documents that are in memory (see
    `_described_documents`).
    """
    (n_topics,), (capacity,) = estimate.size, capacity_of(estimate.size)
    exact_prior = exact_alpha(model, n_topics, capacity)
    alpha = exact_prior.astype(np.float32)
    exact = np.zeros((data.extents["word"], capacity))
    exact[:, :n_topics] = point_topics(estimate).T
    packed = pack(counts_of(data), n_batches=1)
    start = kernels.start_state(packed, exact, alpha).proportions
    gamma, _ = kernels.document_pass(
        packed.tiles,
        exact.astype(np.float32),
        start,
        alpha,
        sweeps=DESCRIBE_SWEEPS,
        tolerance=np.float32(DESCRIBE_TOLERANCE),
    )
    with jax.enable_x64(True):
        log_topics = np.log(np.where(exact > 0, exact, 1e-300))
        wide = np.asarray(gamma, np.float64)
        lower = kernels.document_bounds(packed.tiles, log_topics, wide, exact_prior)
    proportions = wide[..., :n_topics] / wide[..., :n_topics].sum(-1, keepdims=True)
    return Described(packed.gather(proportions), packed.gather(lower))


@bound_units.register
def _bounded_documents(model: LDA, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return (lower, upper) certified bounds on log p of each document, each (document,), in nats.

    Topics are fixed at their posterior mean. This is the overload of `bound_units` for LDA.
    """
    (n_topics,) = estimate.size
    topics, alpha = padded_topics(point_topics(estimate), exact_alpha(model, n_topics, n_topics))
    ends = [document_bounds(topics, alpha, counts_of(part)) for part in data.iter_parts()]
    return np.concatenate([each.lower for each in ends]), np.concatenate([each.upper for each in ends])
