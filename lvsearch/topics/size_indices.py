"""Indices by which people choose a number of topics from a fit of each number, by minimising or maximising them.

The indices of R's ldatuning are computed as it computes them (`FindTopicsNumber`), also where that departs from the
papers; the docstrings say where. Indices of pairs of topics do not exist for a single topic: NaN.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, rel_entr, xlogy


def cao_juan(topic_word: Float[np.ndarray, "topic word"]) -> float:
    """Return the mean cosine of the angle between two topics, 0 to 1; to be minimised.

    topic_word: (K, V), rows summing to 1.

    Source: Cao et al. (2009); ldatuning's CaoJuan2009.
    """
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
    """Return KL(s ‖ t) + KL(t ‖ s), nats; to be minimised.

    topic_word: the topics, (K, V). proportions: (docs, K). lengths: the tokens of each document.

    s are the singular values of the topics in decreasing order. t are the tokens of each topic, lengths · proportions,
    divided by the tokens of the longest document. The paper means distributions, compared in decreasing order.
    ldatuning neither scales the two to sum to 1 nor sorts the second, and neither does this function. Since s is 1 or
    less and t about D / K or less, the index falls with every topic as long as there are far more documents than
    topics. It also changes when topics are renumbered. NaN for more topics than words, which have no K singular values.

    Source: Arun et al. (2010); ldatuning's Arun2010.
    """
    if not 2 <= len(topic_word) <= topic_word.shape[1]:
        return float("nan")
    singular = np.linalg.svd(topic_word, compute_uv=False)
    tokens = lengths @ proportions / lengths.max()
    return float((rel_entr(singular, tokens) + rel_entr(tokens, singular)).sum())


def deveaud(topic_word: Float[np.ndarray, "topic word"]) -> float:
    """Return Σ over pairs of ½ KL(p ‖ q) + ½ KL(q ‖ p), divided by K (K − 1), nats; to be maximised.

    The paper calls it a Jensen–Shannon divergence. It is half of Jeffreys' divergence, which has no upper limit: a word
    that one topic almost never uses counts by the logarithm of its tiny probability, which the prior on topics decides.
    Where a probability is 0 the smallest positive number is added to all.

    Source: Deveaud, SanJuan & Bellot (2014); ldatuning's Deveaud2014.
    """
    n_topics = len(topic_word)
    if n_topics < 2:
        return float("nan")
    shares = topic_word + np.finfo(np.float64).tiny if np.any(topic_word == 0) else topic_word
    divergence = xlogy(shares, shares).sum(axis=1)[:, None] - shares @ np.log(shares).T
    return float(divergence.sum() / 2 / (n_topics * (n_topics - 1)))


def log_harmonic_mean(log_likelihood: Float[np.ndarray, " draw"]) -> float:
    """Return the log of the harmonic mean of the likelihoods, nats; to be maximised.

    log_likelihood: log p(words | topics of all tokens) at each draw of p(topics of all tokens | words), nats.

    The expectation is right, E 1/p(w | z) = 1/p(w), but the variance is infinite: very rare draws decide the mean. With
    any practical number of draws it says how likely words are *given* a fitted z, which rises as topics are added.

    Source: Griffiths & Steyvers (2004); Newton & Raftery (1994); ldatuning's Griffiths2004.
    """
    return float(np.log(len(log_likelihood)) - logsumexp(-log_likelihood))


def bayesian_information_criterion(log_likelihood: float, n_topics: int, n_words: int, n_documents: int) -> float:
    """Return −2 log p(words | topics at their estimates) + K (V − 1) log D, two times nats; to be minimised.

    log_likelihood: nats, proportions integrated out.

    The free parameters are the probabilities of K topics, V − 1 each. The sample size is D documents; α is given. (R's
    `BIC` of a topicmodels fit counts K V parameters, for the same D.) Source: Schwarz (1978).
    """
    return -2 * log_likelihood + n_topics * (n_words - 1) * np.log(n_documents)


def term_agreement(
    first: Float[np.ndarray, "topic word"], second: Float[np.ndarray, "topic word"], n_words: int
) -> float:
    """Return how far two fits of one size agree on the words of their topics, 0 to 1.

    The agreement of two topics is the mean over depths d = 1 … n_words of the Jaccard coefficient of their d most
    probable words. The agreement of two fits is its mean over topics, matched one to one so that it is largest.

    Source: Greene, O'Callaghan & Cunningham (2014), Eq. 2–4.
    """
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    ranked = [np.argsort(-each, axis=1, kind="stable")[:, :n_words] for each in (first, second)]
    depth = np.arange(1, ranked[0].shape[1] + 1)
    similarity = np.zeros((len(first), len(second)))
    for one, words in enumerate(ranked[0]):
        for other, theirs in enumerate(ranked[1]):
            # a shared word counts from the depth at which both lists have it
            place, their_place = np.nonzero(words[:, None] == theirs)
            shared = (np.maximum(place, their_place)[:, None] < depth).sum(axis=0)
            similarity[one, other] = (shared / (2 * depth - shared)).mean()
    rows, columns = linear_sum_assignment(-similarity)
    return float(similarity[rows, columns].mean())
