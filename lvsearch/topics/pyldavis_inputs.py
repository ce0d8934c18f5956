"""Convert a fitted topic model to the arguments that pyLDAvis takes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lvsearch.data.corpus import Corpus


class PyLDAvisInputs(NamedTuple):
    """The arguments of `pyLDAvis.prepare`, by the names that pyLDAvis gives them.

    `topic_term_dists`: the probability of each word in each topic; rows sum to 1.
    `doc_topic_dists`: the share of each topic in each document; rows sum to 1.
    `doc_lengths`: the number of tokens of each document.
    `vocab`: the words.
    `term_frequency`: how often each word occurs in all documents.
    """

    topic_term_dists: Float[np.ndarray, "topic word"]
    doc_topic_dists: Float[np.ndarray, "docs topic"]
    doc_lengths: Int[np.ndarray, " docs"]
    vocab: tuple[str, ...]
    term_frequency: Int[np.ndarray, " word"]


def pyldavis_inputs(
    topic_word: Float[np.ndarray, "topic word"], proportions: Float[np.ndarray, "docs topic"], corpus: Corpus
) -> PyLDAvisInputs:
    """Return the arguments of `pyLDAvis.prepare`, without empty documents, which it refuses.

    topic_word: the probability of each word in each topic.
    proportions: the share of each topic in each document of the corpus.
    corpus: the documents.
    """
    held = corpus.document_lengths > 0
    return PyLDAvisInputs(
        topic_word / topic_word.sum(axis=1, keepdims=True),
        proportions[held] / proportions[held].sum(axis=1, keepdims=True),
        corpus.document_lengths[held],
        corpus.vocabulary,
        corpus.term_totals,
    )
