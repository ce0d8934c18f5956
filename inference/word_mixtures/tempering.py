"""Hofmann's choice of the tempering of pLSI: lowered while documents held out of training are predicted better."""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key
from scipy.sparse import csr_array

from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.likelihood.completion import document_completion, split_documents
from lvsearch.inference.likelihood.proportions import FoldedIn
from lvsearch.inference.word_mixtures.plsi import Aspects, PLSIEstimator, PLSISettings, point_topics
from lvsearch.models.plsi import PLSI

RATE = 0.9
"""What the exponent is multiplied by (Hofmann 1999, §3.3)."""
LOOK = 5
"""Passes from one look at the deciding documents to the next."""
DEFAULT = PLSISettings()
HELD_OUT = 0.1
"""Share of the training documents that decide."""


class Tempering(NamedTuple):
    """best: the exponent chosen; tried: (exponent, best perplexity of the deciding documents at it), in order; start:
    the topics where that was, for a fit of all documents to begin at."""

    best: float
    tried: tuple[tuple[float, float], ...]
    start: Estimate


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

    Hofmann (1999, §3.3): EM on 90 % of the documents `counts` (D, V) stops early, where the others are predicted no
    better; b is lowered and EM goes on from the best parameters so far, until a lower b predicts no better either, or
    is below `least`. The others are folded in on half of their tokens and scored on the other half; words that the
    90 % do not hold are left out, since they are impossible at every b where nothing is smoothed.
    `PLSIEstimator(PLSI(smoothing, best), …).fit(…, start)` is the fit that was chosen. ValueError for fewer than 10
    documents.
    """
    if counts.shape[0] < 10:
        raise ValueError(f"got {counts.shape[0]} documents, expected at least 10, of which a tenth decides")
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel()).permutation(counts.shape[0])
    deciding, kept = np.split(order, [round(HELD_OUT * counts.shape[0])])
    kept_counts = csr_array(counts[np.sort(kept)])
    observed, held_out = split_documents(_known(csr_array(counts[deciding]), kept_counts), 0.5, seed=0)
    fitting = PLSIEstimator(PLSI(smoothing), documents(kept_counts), settings)

    def stopped_early(state: Aspects, tempering: float, first: int) -> tuple[float, Aspects]:
        """(perplexity, state) of the best look along EM, the first after so many passes, the rest LOOK apart."""
        best, ahead = (math.inf, state), first
        while True:
            state, passes = fitting.climb(_copied(state), n_topics, tempering, ahead)
            topics = point_topics(_estimate(fitting.model, state, n_topics))
            score = document_completion(topics, FoldedIn(tempering), observed, held_out).perplexity
            worse, best = score >= best[0], min(best, (score, _copied(state)), key=lambda look: look[0])
            if worse or passes < ahead:
                return best
            ahead = LOOK

    (capacity,), tempering = capacity_of((n_topics,)), 1.0
    tried: list[tuple[float, float]] = []
    best = (math.inf, fitting.begin(n_topics, capacity, key))
    while tempering >= least:
        score, state = stopped_early(best[1], tempering, LOOK if tried else settings.fewest_passes)
        tried.append((tempering, score))
        if score >= best[0]:
            break
        best, tempering = (score, state), tempering * RATE
    chosen = min(tried, key=lambda each: each[1])[0]
    return Tempering(chosen, tuple(tried), _estimate(PLSI(smoothing, chosen), best[1], n_topics))


def _copied(state: Aspects) -> Aspects:
    """EM takes the memory of the state it begins at."""
    return Aspects(*(np.array(part) for part in state))


def _estimate(model: PLSI, state: Aspects, n_topics: int) -> Estimate:
    return Estimate(model, (n_topics,), {"topic_word": np.asarray(state.counts)[:, :n_topics].T.copy()}, 0.0, 0.0, 0)


def _known(counts: csr_array, training: csr_array) -> csr_array:
    """Without the words that no training document has."""
    seen = np.asarray(training.sum(0)).ravel() > 0
    out = csr_array(counts, copy=True)
    out.data = np.where(seen[out.indices], out.data, 0)
    out.eliminate_zeros()
    return out
