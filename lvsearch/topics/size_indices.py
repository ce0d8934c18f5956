"""Indices by which people choose a number of topics, from a fit of each number: what is minimised or maximised.

Those of R's ldatuning are computed as it does (`FindTopicsNumber`), also where that departs from the papers; the
docstrings say where. None of them exists for a single topic, of which there are no pairs: NaN.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, rel_entr, xlogy


def cao_juan(topic_word: Float[np.ndarray, "topic word"]) -> float:
    """The mean cosine of the angle between two topics, 0 to 1; to be minimised (Cao et al. 2009, ldatuning's
    CaoJuan2009). topic_word: (K, V), rows summing to 1."""
    if len(topic_word) < 2:
        return float("nan")
    unit = topic_word / np.linalg.norm(topic_word, axis=1, keepdims=True)
    first, second = np.triu_indices(len(unit), 1)
    return float((unit @ unit.T)[first, second].mean())


def arun(
    topic_word: Float[np.ndarray, "topic word"],
    proportions: Float[np.ndarray, "docs topic"],
    lengths: Int[np.ndarray, " docs"],
) -> float:
    """KL(s ‖ t) + KL(t ‖ s), nats; to be minimised (Arun et al. 2010, ldatuning's Arun2010).

    s: the singular values of the topics, (K, V), in decreasing order. t: the tokens of each topic, lengths ·
    proportions, over the tokens of the longest document. The paper means distributions, compared in decreasing order;
    ldatuning neither scales the two to sum to 1 nor sorts the second, and so it is here. The first are 1 or less, the
    second about D / K or less: the index falls with every topic as long as these are far fewer than documents, and it
    changes when topics are renumbered. NaN for more topics than words, which have no K singular values.
    """
    if not 2 <= len(topic_word) <= topic_word.shape[1]:
        return float("nan")
    singular = np.linalg.svd(topic_word, compute_uv=False)
    tokens = lengths @ proportions / lengths.max()
    return float((rel_entr(singular, tokens) + rel_entr(tokens, singular)).sum())


def deveaud(topic_word: Float[np.ndarray, "topic word"]) -> float:
    """Σ over pairs of ½ KL(p ‖ q) + ½ KL(q ‖ p), over K (K − 1), nats; to be maximised (Deveaud, SanJuan & Bellot 2014,
    ldatuning's Deveaud2014).

    They call it a Jensen–Shannon divergence. It is half of Jeffreys', which has no upper end: a word that one topic
    almost never uses counts by the logarithm of *how* never, and so by the prior on topics. Where a probability is 0
    the smallest positive number is added to all.
    """
    n_topics = len(topic_word)
    if n_topics < 2:
        return float("nan")
    shares = topic_word + np.finfo(np.float64).tiny if np.any(topic_word == 0) else topic_word
    divergence = xlogy(shares, shares).sum(axis=1)[:, None] - shares @ np.log(shares).T
    return float(divergence.sum() / 2 / (n_topics * (n_topics - 1)))


def log_harmonic_mean(log_likelihood: Float[np.ndarray, " draw"]) -> float:
    """log of the harmonic mean of the likelihoods, nats; to be maximised (Griffiths & Steyvers 2004; Newton & Raftery
    1994; ldatuning's Griffiths2004).

    log_likelihood: log p(words | topics of all tokens) at each draw of p(topics of all tokens | words), nats. Its
    expectation is right, E 1/p(w | z) = 1/p(w), and its variance without end: what is rare decides it, so that any
    number of draws that can be made says how likely words are *given* a fitted z, which rises as topics are added.
    """
    return float(np.log(len(log_likelihood)) - logsumexp(-log_likelihood))


def bayesian_information_criterion(log_likelihood: float, n_topics: int, n_words: int, n_documents: int) -> float:
    """−2 log p(words | topics at their estimates) + K (V − 1) log D, nats times two; to be minimised (Schwarz 1978).

    log_likelihood: nats, proportions integrated out. The free parameters are the probabilities of K topics, V − 1 each,
    and the sample is D documents; α is given. (R's `BIC` of a topicmodels fit counts K V of them, for the same D.)
    """
    return -2 * log_likelihood + n_topics * (n_words - 1) * np.log(n_documents)


def term_agreement(
    first: Float[np.ndarray, "topic word"], second: Float[np.ndarray, "topic word"], n_words: int
) -> float:
    """How far two fits of one size agree on the words of their topics, 0 to 1 (Greene, O'Callaghan & Cunningham 2014,
    Eq. 2–4).

    Of two topics: the mean over depths d = 1 … n_words of the Jaccard coefficient of their d most probable words; of
    two fits its mean over topics, matched one to one so that it is largest.
    """
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    ranked = [np.argsort(-each, axis=1, kind="stable")[:, :n_words] for each in (first, second)]
    depth = np.arange(1, ranked[0].shape[1] + 1)
    similarity = np.zeros((len(first), len(second)))
    for one, words in enumerate(ranked[0]):
        for other, theirs in enumerate(ranked[1]):
            place, their_place = np.nonzero(words[:, None] == theirs)  # a shared word counts from the deeper of both
            shared = (np.maximum(place, their_place)[:, None] < depth).sum(axis=0)
            similarity[one, other] = (shared / (2 * depth - shared)).mean()
    rows, columns = linear_sum_assignment(-similarity)
    return float(similarity[rows, columns].mean())
