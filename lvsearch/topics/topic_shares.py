"""Numbers from the shares of topics in documents: which topics occur together, and the label of each topic."""

import numpy as np
import pandas as pd
from jaxtyping import Float


def label_topics(labels: tuple[str, ...], tokens: Float[np.ndarray, "docs topic"]) -> list[str]:
    """Return for each topic the label with most of its tokens, weighted by how much more it uses the topic than others.

    labels: one for each document.
    tokens: the expected number of tokens of each topic in each document.
    """
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    table = np.zeros((len(names), tokens.shape[1]))
    np.add.at(table, index, tokens)
    share = table / np.maximum(table.sum(axis=0, keepdims=True), 1e-12)
    lift = share / np.maximum(table.sum(axis=1, keepdims=True) / max(table.sum(), 1e-12), 1e-12)
    return [str(names[i]) for i in np.argmax(share * np.log1p(lift), axis=0)]


def share_correlations(proportions: Float[np.ndarray, "docs topic"]) -> pd.DataFrame:
    """Return the correlation over documents of each two topics' shares; NaN for a topic whose share never varies."""
    centred = proportions - proportions.mean(axis=0)
    spread = np.sqrt((centred**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        table = centred.T @ centred / (spread[:, None] * spread)
    return pd.DataFrame(table)
