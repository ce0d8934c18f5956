"""Hofmann's choice of the tempering of pLSI: lowered while documents held out of training are predicted better."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key
from scipy.sparse import csr_array

from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.likelihood.completion import document_completion, split_documents
from lvsearch.inference.likelihood.proportions import FoldedIn
from lvsearch.inference.word_mixtures.plsi import PLSIEstimator, PLSISettings, point_topics
from lvsearch.models.plsi import PLSI

RATE = 0.9
"""What the exponent is multiplied by (Hofmann 1999, §3.3)."""
DEFAULT = PLSISettings()
HELD_OUT = 0.1
"""Share of the training documents that decide."""


class Tempering(NamedTuple):
    """best: the exponent chosen; tried: (exponent, perplexity of the deciding documents), in order."""

    best: float
    tried: tuple[tuple[float, float], ...]


def choose_tempering(
    counts: csr_array,
    n_topics: int,
    *,
    key: Key[Array, ""],
    smoothing: float = 0.0,
    least: float = 0.3,
    settings: PLSISettings = DEFAULT,
) -> Tempering:
    """The exponent b = 1, 0.9, 0.81, … of pLSI's tempered EM at which held-out documents are predicted best.

    EM goes on from the parameters of the exponent before, on 90 % of the documents `counts` (D, V), and b is lowered
    until the others are predicted worse, or b is below `least`. They are folded in on half of their tokens and
    scored on the other half; words that the 90 % do not hold are left out, since they are impossible at every b where
    nothing is smoothed. ValueError for fewer than 10 documents.
    """
    if counts.shape[0] < 10:
        raise ValueError(f"got {counts.shape[0]} documents, expected at least 10, of which a tenth decides")
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel()).permutation(counts.shape[0])
    deciding, kept = np.split(order, [round(HELD_OUT * counts.shape[0])])
    kept_counts = csr_array(counts[np.sort(kept)])
    observed, held_out = split_documents(_known(csr_array(counts[deciding]), kept_counts), 0.5, seed=0)
    data, (capacity,) = documents(kept_counts), capacity_of((n_topics,))
    tried: list[tuple[float, float]] = []
    state, tempering = None, 1.0
    while tempering >= least:
        model = PLSI(smoothing, tempering)
        fitting = PLSIEstimator(model, data, settings)
        state = fitting.begin(n_topics, capacity, key) if state is None else state
        state, _ = fitting.climb(state, n_topics)
        natural = np.asarray(state.counts)[:, :n_topics].T
        topics = point_topics(Estimate(model, (n_topics,), {"topic_word": natural}, 0.0, 0.0, 0))
        score = document_completion(topics, FoldedIn(tempering), observed, held_out).perplexity
        tried.append((tempering, score))
        if len(tried) > 1 and score > tried[-2][1]:
            break
        tempering *= RATE
    return Tempering(min(tried, key=lambda each: each[1])[0], tuple(tried))


def _known(counts: csr_array, training: csr_array) -> csr_array:
    """Without the words that no training document has."""
    seen = np.asarray(training.sum(0)).ravel() > 0
    out = csr_array(counts, copy=True)
    out.data = np.where(seen[out.indices], out.data, 0)
    out.eliminate_zeros()
    return out
