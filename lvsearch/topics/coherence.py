"""Two measures of a topic's coherence: whether its words occur in the same documents."""

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array


def npmi_coherence(top: Int[np.ndarray, "topic word"], counts: csr_array) -> Float[np.ndarray, " topic"]:
    """Return the NPMI coherence of each topic, (topic,), from −1 to 1; higher is more coherent.

    It is the mean over pairs (v, w) of the topic's words of log[p(v, w) / (p(v) p(w))] / −log p(v, w), the normalised
    pointwise mutual information (Bouma 2009; Lau, Newman & Baldwin 2014). Here p is the share of documents that have a
    word, or both words. Pairs that never occur together count −1; pairs with a word that occurs nowhere count 0.

    top: the numbers of each topic's top words, two or more.
    counts: the count of each word in each document, (document, word).

    Raises ValueError for fewer than two words, and for no documents.
    """
    if top.shape[1] < 2 or counts.shape[0] == 0:
        raise ValueError(
            f"got {top.shape[1]} word(s) of each topic in {counts.shape[0]} documents, expected ≥ 2 and ≥ 1"
        )
    used, place = np.unique(top, return_inverse=True)
    present = (counts[:, used] > 0).astype(np.float64)
    together = np.asarray((present.T @ present).todense()) / counts.shape[0]  # p(v, w)
    single = np.diag(together)  # p(v)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = (np.log(together) - np.log(single) - np.log(single[:, None])) / -np.log(together)
    scores = np.where(together == 1.0, 1.0, np.where(together == 0.0, -1.0, scores))
    scores = np.where(np.minimum(single, single[:, None]) == 0.0, 0.0, scores)
    first, second = np.triu_indices(top.shape[1], 1)
    place = place.reshape(top.shape)
    return scores[place[:, first], place[:, second]].mean(axis=1)


def umass_coherence(top: Int[np.ndarray, "topic word"], counts: csr_array) -> Float[np.ndarray, " topic"]:
    """Return the UMass coherence of each topic, (topic,), in nats; at most about 0, higher is more coherent.

    It is Σ_{m ≥ 2} Σ_{l < m} log[(D(v_m, v_l) + 1) / D(v_l)] over the topic's words v_1, v_2, …. Here D is the number
    of documents that have a word, or both words. A pair whose v_l occurs nowhere counts 0. The result is a sum over
    pairs, not a mean: compare only topics with the same number of words.

    top: the numbers of each topic's words, the most probable first, two or more.
    counts: the count of each word in each document, (document, word).

    Raises ValueError for fewer than two words.

    Source: Mimno et al. (2011), Eq. 1.
    """
    if top.shape[1] < 2:
        raise ValueError(f"got {top.shape[1]} word(s) of each topic, expected at least 2")
    used, place = np.unique(top, return_inverse=True)
    present = (counts[:, used] > 0).astype(np.float64)
    together = np.asarray((present.T @ present).todense())
    holding = np.diag(together)
    scores = np.where(holding > 0, np.log((together + 1) / np.maximum(holding, 1.0)), 0.0)  # of (v_m, v_l)
    place = place.reshape(top.shape)
    first, second = np.triu_indices(top.shape[1], 1)
    return scores[place[:, second], place[:, first]].sum(axis=1)
