"""Perplexity as scikit-learn and gensim compute it: from a variational bound that includes the bound of the topics."""

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, csr_matrix
from scipy.special import digamma


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
