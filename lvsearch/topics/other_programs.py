"""Convert a fitted topic model to what other programs take: the arguments of pyLDAvis, and an `AnnData`.

The `AnnData` has the form that programs for single cells read. None of these libraries is imported.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
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


# ── AnnData ───────────────────────────────────────────────────────────────────────────────────────────────────────────


KEY = "lvsearch"


def require_genes(data: Any, genes: tuple[str, ...]) -> None:
    """Raise ValueError if an AnnData does not have exactly the given genes, in the given order.

    data: the AnnData. genes: the genes that the topics are over.
    """
    names = tuple(str(name) for name in getattr(data, "var_names", ()))
    if names != genes:
        raise ValueError(
            f"got an AnnData of {len(names):,} genes, expected the {len(genes):,} that the topics are over, in their "
            "order: data[:, list(corpus.vocabulary)]"
        )


def write_anndata(
    data: Any,
    shares: Float[np.ndarray, "cell topic"],
    topic_word: Float[np.ndarray, "topic gene"],
    about: Mapping[str, Any],
    posterior: pd.DataFrame | None,
) -> None:
    """Write topics into an AnnData, for other programs for single cells; the AnnData is changed.

    data: the AnnData.
    shares: the share of each topic in each cell, written to `.obsm["X_lvsearch"]`.
    topic_word: p(gene | topic), written to `.varm["lvsearch"]`.
    about: texts and numbers that are written to `.uns["lvsearch"]`.
    posterior: the table of sizes of a search, or None; sizes and probabilities are written to `.uns["lvsearch"]` too.

    Raises ValueError for a posterior of bounds, which has no probabilities.
    """
    entry = dict(about)
    if posterior is not None:
        if "probability" not in posterior:
            raise ValueError("got a posterior of bounds, without probabilities; expected that of marginal evidence")
        entry["sizes"] = posterior["size"].to_numpy(np.int64)
        entry["probabilities"] = posterior["probability"].to_numpy(np.float64)
    data.obsm[f"X_{KEY}"] = np.asarray(shares, np.float32)
    data.varm[KEY] = np.asarray(topic_word, np.float32).T
    data.uns[KEY] = entry
