"""Where paths of LDA begin: in the prior, or about a fit."""

import numpy as np
from jaxtyping import Float

from lvsearch.inference.annealing.dispatch import MOST_FIRST_STEPS, bytes_while_annealed, first_steps, path_needs_fit
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.topic_samplers.chain import MOST_FROM_PRIOR, CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.given import GivenFactors
from lvsearch.inference.topics.estimator import point_topics
from lvsearch.models.lda import LDA

TINY = 1e-30
GROUPED_DRAWS = 8_000_000
"""Latents drawn in the cheapest annealing by one particle, where tokens are drawn in groups."""


def topics_chain(model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics:
    """From the prior where that is affordable or nothing was fitted; from the fit's responsibilities otherwise. The
    model's hyper-parameters are numbers."""
    counts, (n_topics,), (capacity,) = counts_of(data), size, capacity_of(size)
    concentration, eta = model.numbers()
    total = np.asarray(concentration, np.float64)
    alpha = np.broadcast_to(total if total.ndim else total / n_topics, (n_topics,))
    if eta is None:
        raise ValueError("got an LDA whose topics are point estimates; expected topic_concentration, to integrate out")
    if estimate is None or not path_needs_fit(model, data):
        return collapsed_topics(counts, alpha, float(eta), capacity)
    return collapsed_topics(counts, alpha, float(eta), capacity, factors_of(estimate, data, point_topics(estimate)))


def factors_of(estimate: Estimate, data: Dataset, topics: Float[np.ndarray, "topic word"]) -> GivenFactors:
    """Of the responsibilities of a fit: proportions of its documents, at their means, and topics."""
    proportions = describe_units(estimate.model, estimate, data).representation
    return GivenFactors(*(np.log(np.maximum(each, TINY)) for each in (proportions, topics.T)))


BYTES_PER_TOKEN = 300
"""What an annealing of topics holds of each token: two gigabytes of 6.7 million tokens in 330 cells, measured."""


def bytes_of_tokens(data: Dataset) -> int:
    """Return about how many bytes a chain holds that moves every token by itself, however few cells hold them."""
    batches = (batch for part in data.in_turn() for batch in part.batches)
    return BYTES_PER_TOKEN * sum(int(np.sum(batch.units.counts, dtype=np.float64)) for batch in batches)


@bytes_while_annealed.register
def _(model: LDA, data: Dataset) -> int:
    return bytes_of_tokens(data)


@path_needs_fit.register
def _(model: LDA, data: Dataset) -> bool:
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)


@first_steps.register
def _(chain: CollapsedTopics) -> int:
    """One, where there is one topic: nothing is drawn, and the evidence is exact."""
    return 1 if int((np.asarray(chain.alpha) > 0).sum()) == 1 else steps_of_groups(chain)


def steps_of_groups(chain: CollapsedTopics) -> int:
    """Temperatures of the cheapest annealing: more than by default where tokens are drawn in groups, so quickly."""
    default = first_steps.dispatch(object)(chain)
    return default if chain.width == 1 else int(np.clip(GROUPED_DRAWS // chain.elements, default, MOST_FIRST_STEPS))
