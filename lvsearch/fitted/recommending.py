"""Recommendations: the words (films, items) that a document (user) is likely to have next, with intervals."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.likelihood import expected_proportions, proportion_draws
from lvsearch.models.families import Dirichlet
from lvsearch.models.topic_model import TopicModel

LEVELS = (5.0, 95.0)
"""The percentiles of the posterior draws that are the ends of the interval of a probability."""


def recommended(
    model: TopicModel,
    estimate: Estimate,
    topics: np.ndarray,
    proportions: Any,
    counts: csr_array,
    names: np.ndarray,
    *,
    n: int,
    draws: int,
    seed: int,
) -> pd.DataFrame:
    """Return the words that one document does not have and is most likely to have next, the most probable first.

    model: the topic model.
    estimate: its fit, which has the Dirichlet posterior of the topics.
    topics: p(word | topic) at the posterior mean, (topics, words).
    proportions: the prior on topic proportions: Dirichlet parameters (topics,), or another distribution.
    counts: the words of the document, (1, words).
    names: the vocabulary, (words,).
    n: the number of words to return.
    draws: the number of draws of proportions and topics, for the intervals.

    Returns a table with columns `word`, `probability` (that the next new word is this one), and `lower` and `upper`,
    its 5 % and 95 % points.
    """
    n_words = topics.shape[1]
    row = csr_array(counts)
    # p(next word = w | the next word is new) ∝ Σ_k E[θ_k] p(w | k) over words that the document does not have
    had = np.zeros(n_words, bool)
    had[row.indices[row.data > 0]] = True
    new = np.where(had, 0.0, expected_proportions(topics, proportions, row)[0] @ topics)
    new = new / max(new.sum(), 1e-300)  # 0 for a document that has every word: there is nothing to recommend
    best = np.argsort(-new, kind="stable")[: min(n, int((~had).sum()))]
    # the interval: draws of proportions and topics, of which only the best words and all words in hand are needed
    random = np.random.default_rng(seed)
    theta = proportion_draws(topics, proportions, row, draws, random)
    groups = np.concatenate([topics[:, best], topics[:, had].sum(1, keepdims=True)], axis=1)
    share = np.repeat(groups[None], draws, 0)
    site = model.globals()[model.topic_site]
    if isinstance(site.family, Dirichlet):  # parts of a Dirichlet added up are a Dirichlet
        concentration = estimate.natural[model.topic_site].astype(np.float64) + 1
        parts = np.concatenate([concentration[:, best], concentration[:, had].sum(1, keepdims=True)], axis=1)
        rest = np.maximum(concentration.sum(1, keepdims=True) - parts.sum(1, keepdims=True), 1e-12)
        gamma = random.standard_gamma(np.concatenate([parts, rest], axis=1), (draws, len(topics), len(best) + 2))
        share = gamma[..., :-1] / gamma.sum(-1, keepdims=True)
    # p(w | new) of each draw: divide by 1 − the probability of all words that the document has (the last column)
    drawn = np.einsum("sk,skw->sw", theta, share)
    drawn = drawn[:, :-1] / (1 - drawn[:, -1:])
    low, high = np.percentile(drawn, LEVELS, axis=0)
    return pd.DataFrame({"word": names[best], "probability": new[best], "lower": low, "upper": high})
