"""The start of annealing paths of LDA: the prior, or the responsibilities of a fit."""

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
"""Number of latents that one particle draws in the cheapest annealing, where tokens are drawn in groups."""


def topics_chain(model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics:
    """Return the chain from the prior where that is affordable or nothing was fitted; else from the fit's
    responsibilities.

    model: an LDA whose hyper-parameters are numbers.
    size: (number of topics,).
    estimate: a fit of this size, or None.

    Raises ValueError for an LDA whose topics are point estimates.
    """
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
    """Return q's factors from a fit: log mean proportions of its documents, and log topics."""
    proportions = describe_units(estimate.model, estimate, data).representation
    return GivenFactors(*(np.log(np.maximum(each, TINY)) for each in (proportions, topics.T)))


BYTES_PER_TOKEN = 300
"""Bytes that an annealing of topics holds per token: 2 GB for 6.7 million tokens in 330 cells, measured."""


def bytes_of_tokens(data: Dataset) -> int:
    """Return roughly how many bytes a chain holds that moves every token by itself, however few cells hold them."""
    batches = (batch for part in data.in_turn() for batch in part.batches)
    return BYTES_PER_TOKEN * sum(int(np.sum(batch.units.counts, dtype=np.float64)) for batch in batches)


@bytes_while_annealed.register
def _(model: LDA, data: Dataset) -> int:
    """Return roughly how many bytes annealing holds."""
    return bytes_of_tokens(data)


@path_needs_fit.register
def _(model: LDA, data: Dataset) -> bool:
    """Return True where data are too many for a path from the prior."""
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)


@first_steps.register
def _(chain: CollapsedTopics) -> int:
    """Return the number of temperatures of the cheapest annealing.

    It is one where there is one topic: nothing is drawn then, and the evidence is exact.
    """
    return 1 if int((np.asarray(chain.alpha) > 0).sum()) == 1 else steps_of_groups(chain)


def steps_of_groups(chain: CollapsedTopics) -> int:
    """Return the number of temperatures of the cheapest annealing, more where tokens are drawn in groups, which is
    fast.
    """
    default = first_steps.dispatch(object)(chain)
    return default if chain.width == 1 else int(np.clip(GROUPED_DRAWS // chain.elements, default, MOST_FIRST_STEPS))
