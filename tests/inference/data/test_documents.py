"""Documents as batches: nothing of the counts is lost, whatever the lengths."""

import numpy as np
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from lvsearch.inference.data.documents import counts_of, documents
from lvsearch.inference.engine.describing import unit_ceilings
from lvsearch.inference.likelihood import saturated_ceiling
from lvsearch.models import LDA


def uneven_counts() -> csr_array:
    """67 documents of 0 to 240 distinct words of 251: several lengths, several batches, ids and counts unordered."""
    random = np.random.default_rng(6)
    counts = np.zeros((67, 251), np.int32)
    for document, n in enumerate(random.integers(0, 60, 67) * (1 + 3 * (np.arange(67) % 11 == 4))):
        counts[document, random.choice(251, n, replace=False)] = random.integers(1, 9, n)
    counts[5] = 0
    return csr_array(counts)


def test_counts_come_back():
    counts = uneven_counts()
    data = documents(counts, tokens_per_batch=512)
    assert len(data.batches) > 3
    again = counts_of(data)
    assert again.dtype == np.int32
    assert again.has_sorted_indices
    assert_array_equal(again.toarray(), counts.toarray())


def test_ceilings_of_documents_are_those_of_the_model():
    counts = uneven_counts()
    data, model = documents(counts), LDA()
    ceilings = unit_ceilings(model, data)
    assert_array_equal(ceilings, saturated_ceiling(counts))
    total = sum(model.ceiling(batch.units) for batch in data.batches)
    assert total <= ceilings.sum() <= total + 1e-6 * abs(total)  # rounded outwards, document by document
