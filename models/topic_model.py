"""What a model must say besides the contract for people to read its topics."""

from abc import abstractmethod
from collections.abc import Mapping

import equinox as eqx
import numpy as np
from jaxtyping import Float

from lvsearch.models.contract import Model, Statistics


class TopicModel(Model):
    """A model whose documents draw their words from topics, one distribution over the vocabulary each.

    `topic_site` names the global site of the topics, on axes (topic, word); `representation` is then a document's share
    of each topic, and a document's probability is an average of products of mixtures of topics.
    """

    topic_site: eqx.AbstractClassVar[str]

    @abstractmethod
    def proportions_prior(
        self, size: tuple[int, ...], natural: Mapping[str, Statistics]
    ) -> Float[np.ndarray, " topic"] | None:
        """Parameters of the Dirichlet on a document's proportions, (K,) float64, at this size and fitted globals
        (natural parameters, existing topics only); None where proportions have no Dirichlet prior."""
