"""Annealing paths of admixed populations, which are LDA's collapsed chain with one block of the vocabulary per
locus.
"""

import numpy as np

from lvsearch.inference.annealing.dispatch import bytes_while_annealed, evidence_chain, path_needs_fit
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.unit_scores import site_value
from lvsearch.inference.topic_samplers.chain import MOST_FROM_PRIOR, CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.path_starts import bytes_of_tokens, factors_of
from lvsearch.models.admixture import Admixture


@evidence_chain.register
def _evidence_chain_of_admixture(
    model: Admixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> CollapsedTopics:
    """Return the annealing chain of an admixture model: the overload of `evidence_chain` for `Admixture`.

    It starts at the prior for small data or without a fit, and otherwise at the responsibilities of the fit `estimate`.

    size: (number of populations,).
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
def _bytes_while_admixture_is_annealed(model: Admixture, data: Dataset) -> int:
    """Return roughly how many bytes the annealing of these genotypes takes."""
    return bytes_of_tokens(data)


@path_needs_fit.register
def _path_of_admixture_needs_fit(model: Admixture, data: Dataset) -> bool:
    """Return True if there are too many genotypes for a path from the prior, so that it must start at a fit."""
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)
