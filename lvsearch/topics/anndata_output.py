"""Write topics into an `AnnData`, in the form that other programs for single cells read.

No such library is imported.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

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
