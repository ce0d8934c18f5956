"""Hofmann's choice of pLSI's tempering: the exponent is lowered as long as held-out documents are predicted better."""

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
"""The factor by which the exponent is lowered each time (Hofmann 1999, §3.3)."""
LOOK = 5
"""The number of EM passes between two evaluations on the held-out documents."""
DEFAULT = PLSISettings()
HELD_OUT = 0.1
"""The share of the training documents that is held out to decide."""


class Tempering(NamedTuple):
    """The exponent chosen for pLSI's tempered EM, with the exponents tried.

    | field | meaning |
    |---|---|
    | `best` | the exponent chosen |
    | `tried` | (exponent, best held-out perplexity at it) in the order tried |
    | `start` | the topics at the best perplexity, from which a fit of all documents may begin |
    """

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
    """Choose the exponent b = 1, 0.9, 0.81, … of pLSI's tempered EM at which held-out documents are predicted best.

    The method is that of Hofmann (1999, §3.3). EM runs on 90 % of the documents, and stops early when the other 10 %
    are predicted no better. Then b is lowered and EM goes on from the best parameters so far. The search ends when a
    lower b predicts no better, or is below `least`.

    Held-out documents are folded in on half of their tokens and scored on the other half. Words that the 90 % do not
    have are left out, since without smoothing they are impossible at every b. To fit all documents with the choice,
    call `PLSIEstimator(PLSI(smoothing, best), …).fit(…, start)`.

    counts: the count of each word in each document, (document, word).
    n_topics: the number of topics.
    key: the random key of the split and of the start.
    smoothing: the number added to every expected count of a topic.
    least: the smallest exponent that is tried.
    settings: how much work EM does.

    Raises ValueError for fewer than 10 documents.
    """
    if counts.shape[0] < 10:
        raise ValueError(f"got {counts.shape[0]} documents, expected at least 10, of which a tenth decides")
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel()).permutation(counts.shape[0])
    deciding, kept = np.split(order, [round(HELD_OUT * counts.shape[0])])
    kept_counts = csr_array(counts[np.sort(kept)])
    observed, held_out = split_documents(_drop_unseen_words(csr_array(counts[deciding]), kept_counts), 0.5, seed=0)
    fitting = PLSIEstimator(PLSI(smoothing), documents(kept_counts), settings)

    def run_until_worse(state: Aspects, tempering: float, first: int) -> tuple[float, Aspects]:
        """Run EM until the held-out perplexity rises, and return (perplexity, state) of the best evaluation.

        state: the parameters to start from. tempering: the exponent b.
        first: passes before the first evaluation; later ones are LOOK passes apart.
        """
        best, ahead = (math.inf, state), first
        while True:
            state, passes = fitting.climb(_copy_state(state), n_topics, tempering, ahead)
            topics = point_topics(_estimate_from_state(fitting.model, state, n_topics))
            score = document_completion(topics, FoldedIn(tempering), observed, held_out).perplexity
            worse, best = score >= best[0], min(best, (score, _copy_state(state)), key=lambda look: look[0])
            if worse or passes < ahead:
                return best
            ahead = LOOK

    # lower the exponent step by step, always from the best parameters so far, until that predicts no better
    (capacity,), tempering = capacity_of((n_topics,)), 1.0
    tried: list[tuple[float, float]] = []
    best = (math.inf, fitting.begin(n_topics, capacity, key))
    while tempering >= least:
        score, state = run_until_worse(best[1], tempering, LOOK if tried else settings.fewest_passes)
        tried.append((tempering, score))
        if score >= best[0]:
            break
        best, tempering = (score, state), tempering * RATE
    chosen = min(tried, key=lambda each: each[1])[0]
    return Tempering(chosen, tuple(tried), _estimate_from_state(PLSI(smoothing, chosen), best[1], n_topics))


def _copy_state(state: Aspects) -> Aspects:
    """Return a copy of EM's parameters, because EM overwrites those that it begins at."""
    return Aspects(*(np.array(part) for part in state))


def _estimate_from_state(model: PLSI, state: Aspects, n_topics: int) -> Estimate:
    """Return a fit whose topics are EM's present parameters; its bounds are 0 and mean nothing."""
    return Estimate(model, (n_topics,), {"topic_word": np.asarray(state.counts)[:, :n_topics].T.copy()}, 0.0, 0.0, 0)


def _drop_unseen_words(counts: csr_array, training: csr_array) -> csr_array:
    """Return the counts of the documents without words that no training document has, (document, word).

    training: the counts of the training documents.
    """
    seen = np.asarray(training.sum(0)).ravel() > 0
    out = csr_array(counts, copy=True)
    out.data = np.where(seen[out.indices], out.data, 0)
    out.eliminate_zeros()
    return out
