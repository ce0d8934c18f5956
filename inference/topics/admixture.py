"""The annealed evidence of admixed populations: LDA's chain, with a block of the vocabulary for every locus."""

import numpy as np

from lvsearch.inference.annealing.dispatch import evidence_chain, path_needs_fit
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.unit_scores import site_value
from lvsearch.inference.topics.chain import MOST_FROM_PRIOR, TINY, CollapsedTopics, collapsed_topics
from lvsearch.models.admixture import Admixture


@evidence_chain.register
def _(model: Admixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics:
    """From the prior where that is affordable or nothing was fitted; from the fit's responsibilities otherwise."""
    counts, (n_populations,), (capacity,) = counts_of(data), size, capacity_of(size)
    model.require_words(counts.shape[1])
    alpha = np.full(n_populations, float(model.concentration) / n_populations)
    eta, widths = float(model.allele_concentration), model.alleles
    if estimate is None or counts.sum() <= MOST_FROM_PRIOR:
        return collapsed_topics(counts, alpha, eta, capacity, widths=widths)
    proportions = describe_units(estimate.model, estimate, data).representation
    individual = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    frequencies = np.asarray(site_value(estimate, "frequencies"), np.float64)
    shares = np.maximum(proportions[individual] * frequencies[:, counts.indices].T, TINY)
    log_q = np.log(shares / shares.sum(1, keepdims=True))
    return collapsed_topics(counts, alpha, eta, capacity, log_q, widths=widths, independent=True)


@path_needs_fit.register
def _(model: Admixture, data: Dataset) -> bool:
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)
