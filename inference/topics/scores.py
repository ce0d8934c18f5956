"""Scores of new documents under topic models, by annealed importance sampling.

Lower bounds would not do for comparing sizes: they grow looser with more topics.
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
"""The concentration α of the topics that pad every size to one capacity, so that all sizes share a compiled program.

These topics emit only a word that no document holds. They change p(document) by a factor of 1 − N · 1e-20 / Σα at most,
for N tokens, which is far below float64's resolution.
"""

SAMPLES_PER_PARTICLE = 4
"""How many samples of other methods cost as much as one particle of annealed importance sampling, which goes 50 steps.

With a quarter as many particles, the sum over documents still has an error far below the spread over documents.
"""


@score_units.register
def _scores_of_documents(
    model: TopicModel, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Return log p(document | topics, α) of each document: the overload of `score_units` for topic models.

    The method is annealed importance sampling (`ais`). A document's draws depend on the key and the document only.
    Models without a prior on topic proportions get the scores of `described_scores`.

    estimate: the fit whose topics are used.
    capacity: (number of topics that all sizes are padded to,).
    samples: how much to sample; four samples pay for one particle.
    key: the random key.
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
def _ceilings_of_documents(model: TopicModel, data: Dataset) -> np.ndarray:
    """Return the saturated log-likelihood of each document, (document,), in nats: the overload of `unit_ceilings`.

    No mixture of topics gives a document's words a higher probability than their own frequencies do.
    """
    return np.concatenate([saturated_ceiling(counts_of(part)) for part in data.iter_parts()])
