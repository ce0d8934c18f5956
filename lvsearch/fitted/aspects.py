"""A fitted pLSI. Its documents have no distribution, which changes how new documents are scored."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lvsearch.fitted.topics import FittedTopics
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.likelihood import document_likelihood

SLACK = 1e-9
"""By how much the ends of an interval are widened for rounding, relative to 1 + |score|."""


@dataclass(frozen=True)
class FittedAspects(FittedTopics):
    """pLSI at one size. `transform` folds documents in; scores are of documents drawn like the training documents."""

    def score_units(self, data: Any) -> Float[np.ndarray, " units"]:
        """Return log p(document), marginalised over the training documents' proportions, exactly, in nats.

        Source: Blei (2004), §3.6.1. It is not the likelihood at folded-in proportions, which were fitted to the same
        words.
        """
        counts = counts_of(self.training.like_this(data).dataset())
        topics = self.table(self.model.topic_site).to_numpy(np.float64)
        return document_likelihood(topics, self.proportions_prior, counts, method="exact").log_likelihood

    def interval_units(self, data: Any) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
        """Return (lower, upper) ends of `score_units`, in nats: the exact value, rounded outwards."""
        value = self.score_units(data)
        slack = SLACK * (1 + np.abs(value))
        return value - slack, value + slack
