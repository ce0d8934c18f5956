"""Scores of documents under topic models, by annealed importance sampling, since lower bounds grow looser with more
topics.
"""

import numpy as np
from jaxtyping import Array
from scipy.sparse import csr_array

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.describing import unit_ceilings
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.unit_scores import UnitScores, described_scores, score_units, site_value
from lvsearch.inference.likelihood.annealed import AnnealedImportance
from lvsearch.inference.likelihood.bounds import saturated_ceiling
from lvsearch.inference.likelihood.dispatch import document_likelihood
from lvsearch.models.topic_model import TopicModel

PADDING = 1e-20
"""The α of the topics that pad every size to one capacity, so that all sizes compile once.

They emit only a word that no document holds. They change p(document) by a factor of 1 − N · 1e-20 / Σα at most, far
below float64's resolution.
"""

SAMPLES_PER_PARTICLE = 4
"""How many samples of other methods cost as much as one particle, which goes 50 steps.

Sums over documents are compared. With a quarter as many particles the sum still has an error far below the spread over
documents.
"""


@score_units.register
def _(
    model: TopicModel, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Score documents by annealed importance sampling (`ais`).

    A document's draws depend on the key and the document only. Models without a prior on proportions are scored by
    `described_scores`.
    """
    prior = model.proportions_prior(estimate.size, estimate.natural)
    if prior is None:
        return described_scores(model, estimate, data)
    topics = np.asarray(site_value(estimate, model.topic_site), np.float64)
    n_topics, n_words = topics.shape
    padded = np.zeros((capacity[0], n_words + 1))
    padded[:n_topics, :n_words] = topics
    padded[n_topics:, n_words] = 1.0
    alpha = np.full(capacity[0], PADDING)
    alpha[:n_topics] = prior
    counts = counts_of(data)
    with_padding_word = csr_array((counts.data, counts.indices, counts.indptr), (counts.shape[0], n_words + 1))
    # Only sums are compared, and the spread over documents is most of their error. So certified intervals are not
    # needed.
    islands = AnnealedImportance().islands
    particles = islands * max(1, samples // (SAMPLES_PER_PARTICLE * islands))
    found = document_likelihood(
        padded, alpha, with_padding_word, method="ais", samples=particles, key=key, certify=False
    )
    return UnitScores(
        found.log_likelihood,
        found.total_standard_error,
        f"annealed importance sampling (ais, {found.samples} particles)",
    )


@unit_ceilings.register
def _(model: TopicModel, data: Dataset) -> np.ndarray:
    """Return the saturated log-likelihood of each document, in nats: no mixture of topics gives its words more."""
    return np.concatenate([saturated_ceiling(counts_of(part)) for part in data.in_turn()])
