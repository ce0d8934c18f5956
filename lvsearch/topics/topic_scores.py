"""Scores by which people judge fits of topic models and choose a number of topics: coherence, and indices of size.

Coherence says whether the words of a topic occur in the same documents. An index of size is minimised or maximised over
fits of several numbers of topics.

The indices of R's ldatuning are computed as it computes them (`FindTopicsNumber`), also where that departs from the
papers; the docstrings say where. Indices of pairs of topics do not exist for a single topic: NaN.

Perplexity is here as scikit-learn and gensim compute it: from a variational bound that includes the bound of the
topics.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, csr_matrix
from scipy.special import digamma, logsumexp, rel_entr, xlogy


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
    holding, place = _documents_holding(top, counts)
    together = holding / counts.shape[0]  # p(v, w)
    single = np.diag(together)  # p(v)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = (np.log(together) - np.log(single) - np.log(single[:, None])) / -np.log(together)
    scores = np.where(together == 1.0, 1.0, np.where(together == 0.0, -1.0, scores))
    scores = np.where(np.minimum(single, single[:, None]) == 0.0, 0.0, scores)
    first, second = np.triu_indices(top.shape[1], 1)
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
    together, place = _documents_holding(top, counts)
    holding = np.diag(together)
    scores = np.where(holding > 0, np.log((together + 1) / np.maximum(holding, 1.0)), 0.0)  # of (v_m, v_l)
    first, second = np.triu_indices(top.shape[1], 1)
    return scores[place[:, second], place[:, first]].sum(axis=1)


def _documents_holding(
    top: Int[np.ndarray, "topic word"], counts: csr_array
) -> tuple[Float[np.ndarray, "used used"], Int[np.ndarray, "topic word"]]:
    """Return the number of documents that hold each pair of the words in `top`, and the place of every word among them.

    top: columns of `counts`. counts: a row per document.
    """
    used, place = np.unique(top, return_inverse=True)
    present = (counts[:, used] > 0).astype(np.float64)
    return np.asarray((present.T @ present).todense()), place.reshape(top.shape)


def cao_juan(topic_word: Float[np.ndarray, "topic word"]) -> float:
    """Return the mean cosine between the word distributions of two topics, 0 to 1; to be minimised over numbers of
    topics.

    topic_word: the probability of each word in each topic; rows sum to 1.

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
    """Return Arun's divergence between two summaries of a fit, KL(s ‖ t) + KL(t ‖ s), in nats; to be minimised.

    s are the singular values of the topics in decreasing order. t are the tokens of each topic, lengths · proportions,
    divided by the tokens of the longest document. The paper means distributions, compared in decreasing order.
    ldatuning neither scales the two to sum to 1 nor sorts the second, and neither does this function. With D documents
    and K topics, s is 1 or less and t about D / K or less. So the index falls with every topic as long as there are far
    more documents than topics. It also changes when topics are renumbered. NaN for more topics than words, which have
    no K singular values.

    topic_word: the probability of each word in each topic.
    proportions: the share of each topic in each document.
    lengths: the number of tokens of each document.

    Source: Arun et al. (2010); ldatuning's Arun2010.
    """
    if not 2 <= len(topic_word) <= topic_word.shape[1]:
        return float("nan")
    singular = np.linalg.svd(topic_word, compute_uv=False)
    tokens = lengths @ proportions / lengths.max()
    return float((rel_entr(singular, tokens) + rel_entr(tokens, singular)).sum())


def deveaud(topic_word: Float[np.ndarray, "topic word"]) -> float:
    """Return how much topics diverge from each other, in nats; to be maximised over numbers of topics.

    It is Σ over pairs of ½ KL(p ‖ q) + ½ KL(q ‖ p), divided by K (K − 1), for K topics with word distributions p and q.
    The paper calls it a Jensen–Shannon divergence. It is half of Jeffreys' divergence, which has no upper limit: a word
    that one topic almost never uses counts by the logarithm of its tiny probability, which the prior on topics decides.
    If a probability is 0, the smallest positive number is added to all. NaN for fewer than two topics.

    topic_word: the probability of each word in each topic.

    Source: Deveaud, SanJuan & Bellot (2014); ldatuning's Deveaud2014.
    """
    n_topics = len(topic_word)
    if n_topics < 2:
        return float("nan")
    shares = topic_word + np.finfo(np.float64).tiny if np.any(topic_word == 0) else topic_word
    divergence = xlogy(shares, shares).sum(axis=1)[:, None] - shares @ np.log(shares).T
    return float(divergence.sum() / 2 / (n_topics * (n_topics - 1)))


def log_harmonic_mean(log_likelihood: Float[np.ndarray, " draw"]) -> float:
    """Return the log of the harmonic mean of several draws' likelihoods, in nats; to be maximised over numbers of
    topics.

    The expectation is right, E 1/p(words | topics of tokens) = 1/p(words), but the variance is infinite: very rare
    draws decide the mean. With any practical number of draws it says how likely words are *given* fitted topics of
    tokens, which rises as topics are added.

    log_likelihood: log p(words | topics of all tokens) at each draw of p(topics of all tokens | words), nats.

    Source: Griffiths & Steyvers (2004); Newton & Raftery (1994); ldatuning's Griffiths2004.
    """
    return float(np.log(len(log_likelihood)) - logsumexp(-log_likelihood))


def bayesian_information_criterion(log_likelihood: float, n_topics: int, n_words: int, n_documents: int) -> float:
    """Return the BIC of a topic model, in nats times two; to be minimised over numbers of topics.

    It is −2 log p(words | topics at their estimates) + K (V − 1) log D for K topics, V words and D documents. The free
    parameters are the probabilities of K topics, V − 1 each; α is given. (R's `BIC` of a topicmodels fit counts K V
    parameters, for the same D.)

    log_likelihood: nats, proportions integrated out.
    n_topics, n_words, n_documents: K, V and D.

    Source: Schwarz (1978).
    """
    return -2 * log_likelihood + n_topics * (n_words - 1) * np.log(n_documents)


def term_agreement(
    first: Float[np.ndarray, "topic word"], second: Float[np.ndarray, "topic word"], n_words: int
) -> float:
    """Return how far two fits with equally many topics agree on the topics' words, 0 to 1.

    The agreement of two topics is the mean over depths d = 1 … n_words of the Jaccard coefficient of their d most
    probable words. The agreement of two fits is its mean over topics, matched one to one so that it is largest.

    first, second: the probability of each word in each topic of the two fits.
    n_words: the largest depth.

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


# ── perplexity ────────────────────────────────────────────────────────────────────────────────────────────────────────


def variational_perplexity(
    concentration: Float[np.ndarray, "topic word"], alpha: float, eta: float, counts: csr_array
) -> float:
    """Return the perplexity of documents as scikit-learn's `LatentDirichletAllocation.perplexity` computes it.

    It is exp(−bound / tokens). The bound (nats) is that of these documents *and* of the topics: it includes
    KL(q(topics) ‖ prior) (Hoffman, Blei & Bach 2010, Eq. 4–5). On training documents it is the mean-field bound on the
    evidence. On other documents the cost of the topics is charged again, however few tokens there are. gensim's
    `LdaModel.log_perplexity` of documents is −log of this number: the same bound per token, in nats, although it logs a
    power of two.

    concentration: Dirichlet parameters of q(topics), (topic, word).
    alpha: the concentration of a document's proportions, one number for all topics.
    eta: the concentration of the topics' prior.
    counts: the count of each word in each document, (document, word).
    """
    from sklearn.decomposition import LatentDirichletAllocation  # most of a second that only this needs

    theirs = LatentDirichletAllocation(len(concentration), n_jobs=1)
    theirs.components_ = concentration
    expected_log = digamma(concentration) - digamma(concentration.sum(axis=1, keepdims=True))
    theirs.exp_dirichlet_component_ = np.exp(expected_log)
    theirs.doc_topic_prior_, theirs.topic_word_prior_ = alpha, eta
    return float(theirs.perplexity(csr_matrix(counts, dtype=np.float64)))
