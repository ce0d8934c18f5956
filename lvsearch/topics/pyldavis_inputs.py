"""A fitted topic model in the form that pyLDAvis takes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lvsearch.data.corpus import Corpus


class PyLDAvisInputs(NamedTuple):
    """The arguments of `pyLDAvis.prepare`, by their names.

    Rows of the first two sum to 1. The third and fifth are the tokens of each document and of each word.
    """

    topic_term_dists: Float[np.ndarray, "topic word"]
    doc_topic_dists: Float[np.ndarray, "docs topic"]
    doc_lengths: Int[np.ndarray, " docs"]
    vocab: tuple[str, ...]
    term_frequency: Int[np.ndarray, " word"]


def pyldavis_inputs(
    topic_word: Float[np.ndarray, "topic word"], proportions: Float[np.ndarray, "docs topic"], corpus: Corpus
) -> PyLDAvisInputs:
    """Return the arguments of `pyLDAvis.prepare`, without empty documents, which it refuses."""
    held = corpus.document_lengths > 0
    return PyLDAvisInputs(
        topic_word / topic_word.sum(axis=1, keepdims=True),
        proportions[held] / proportions[held].sum(axis=1, keepdims=True),
        corpus.document_lengths[held],
        corpus.vocabulary,
        corpus.term_totals,
    )
