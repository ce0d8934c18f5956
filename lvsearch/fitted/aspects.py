"""A fitted pLSI, whose documents have no distribution: what that makes of scoring new ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lvsearch.fitted.topics import FittedTopics
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.likelihood import document_likelihood

SLACK = 1e-9


@dataclass(frozen=True)
class FittedAspects(FittedTopics):
    """pLSI at one size. `transform` folds documents in; scores are of documents drawn like the training documents."""

    def score_units(self, data: Any) -> Float[np.ndarray, " units"]:
        """log p(document) marginalised over the training documents' proportions (Blei 2004, §3.6.1), nats, exactly.

        Not the likelihood at proportions folded in, which were fitted to the words that it would score.
        """
        counts = counts_of(self.training.like_this(data).dataset())
        topics = self.table(self.model.topic_site).to_numpy(np.float64)
        return document_likelihood(topics, self.proportions_prior, counts, method="exact").log_likelihood

    def interval_units(self, data: Any) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
        """`score_units` at both ends, rounded outwards."""
        value = self.score_units(data)
        slack = SLACK * (1 + np.abs(value))
        return value - slack, value + slack
