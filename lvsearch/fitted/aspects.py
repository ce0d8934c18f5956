"""The class `FittedAspects`: a fitted pLSI model.

In pLSI, document proportions have no prior distribution, so new documents are scored in another way than under LDA.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lvsearch.fitted.topics import FittedTopics
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.likelihood import document_likelihood

SLACK = 1e-9
"""The amount by which each end of an interval is moved outwards for rounding errors, relative to 1 + |score|."""


@dataclass(frozen=True, repr=False)
class FittedAspects(FittedTopics):
    """A pLSI model (probabilistic latent semantic indexing), fitted at one size (number of topics).

    `transform` folds new documents in: it fits their proportions with the topics held fixed. Scores treat the
    proportions of a new document as drawn at random from those of the training documents.
    """

    def score_units(self, data: Any) -> Float[np.ndarray, " units"]:
        """Return log p(document) of each document, (documents,), in nats, exactly.

        It is the likelihood averaged over the proportions of the training documents. It is not the likelihood at
        folded-in proportions, which would be fitted to the scored words.

        data: new or training documents, as a `Corpus`, a matrix of counts, or raw texts.

        Source: Blei (2004), §3.6.1.
        """
        counts = counts_of(self.training.like_this(data).dataset())
        topics = self.table(self.model.topic_site).to_numpy(np.float64)
        return document_likelihood(topics, self.proportions_prior, counts, method="exact").log_likelihood

    def interval_units(self, data: Any) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
        """Return (lower, upper) bounds on log p(document) of each document, each (documents,), in nats.

        Both are the exact value of `score_units`, moved outwards by rounding errors.
        """
        value = self.score_units(data)
        slack = SLACK * (1 + np.abs(value))
        return value - slack, value + slack
