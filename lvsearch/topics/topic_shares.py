"""Statistics of topics over documents: which topics occur together, and the label that fits each topic best."""

import numpy as np
import pandas as pd
from jaxtyping import Float


def label_topics(labels: tuple[str, ...], tokens: Float[np.ndarray, "docs topic"]) -> list[str]:
    """Return for each topic the label whose documents use it most, one label per topic.

    The score of a label is its share of the topic's tokens, times log(1 + how many times more often it uses the topic
    than all documents do).

    labels: the label of each document.
    tokens: the expected number of tokens of each topic in each document.
    """
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    table = np.zeros((len(names), tokens.shape[1]))
    np.add.at(table, index, tokens)
    share = table / np.maximum(table.sum(axis=0, keepdims=True), 1e-12)
    lift = share / np.maximum(table.sum(axis=1, keepdims=True) / max(table.sum(), 1e-12), 1e-12)
    return [str(names[i]) for i in np.argmax(share * np.log1p(lift), axis=0)]


def share_correlations(proportions: Float[np.ndarray, "docs topic"]) -> pd.DataFrame:
    """Return the correlation over documents between the shares of every two topics, (topic, topic).

    It is NaN for a topic whose share never varies.

    proportions: the share of each topic in each document.
    """
    centred = proportions - proportions.mean(axis=0)
    spread = np.sqrt((centred**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        table = centred.T @ centred / (spread[:, None] * spread)
    return pd.DataFrame(table)
