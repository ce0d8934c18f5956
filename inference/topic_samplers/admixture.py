"""Annealed evidence of admixed populations, from LDA's collapsed chain with one block of the vocabulary per locus."""

import numpy as np

from lvsearch.inference.annealing.dispatch import bytes_while_annealed, evidence_chain, path_needs_fit
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.unit_scores import site_value
from lvsearch.inference.topic_samplers.beginning import bytes_of_tokens, factors_of
from lvsearch.inference.topic_samplers.chain import MOST_FROM_PRIOR, CollapsedTopics, collapsed_topics
from lvsearch.models.admixture import Admixture


@evidence_chain.register
def _(model: Admixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics:
    """Return the chain from the prior where that is affordable or nothing was fitted; else from the fit's
    responsibilities.
    """
    counts, (n_populations,), (capacity,) = counts_of(data), size, capacity_of(size)
    model.require_words(counts.shape[1])
    alpha = np.full(n_populations, float(model.concentration) / n_populations)
    eta, widths = float(model.allele_concentration), model.alleles
    if estimate is None or not path_needs_fit(model, data):
        return collapsed_topics(counts, alpha, eta, capacity, widths=widths)
    frequencies = np.asarray(site_value(estimate, "frequencies"), np.float64)
    return collapsed_topics(counts, alpha, eta, capacity, factors_of(estimate, data, frequencies), widths=widths)


@bytes_while_annealed.register
def _(model: Admixture, data: Dataset) -> int:
    """Return roughly how many bytes the annealing of these genotypes holds."""
    return bytes_of_tokens(data)


@path_needs_fit.register
def _(model: Admixture, data: Dataset) -> bool:
    """Return True where data are too many for a path from the prior."""
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)
