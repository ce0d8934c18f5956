"""What a model must say besides the contract for people to read its topics."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from scipy.special import xlogy

from lvsearch.models.contract import Model, Statistics
from lvsearch.models.units import BagOfWords


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


def log_symmetric_dirichlet(
    log_theta: Float[Array, "*element event"], concentration: Any, n: int | Array
) -> Float[Array, "*element"]:
    """log Dirichlet(θ; a, …, a) over the last axis, nats, of which n entries exist; log θ is 0 where others are."""
    a, n = jnp.asarray(concentration, log_theta.dtype), jnp.asarray(n, log_theta.dtype)
    return gammaln(n * a) - n * gammaln(a) + ((a - 1) * log_theta).sum(-1)


def saturated(units: BagOfWords) -> float:
    """Σ_d Σ_w n_dw log(n_dw / N_d), nats: what the words of each document have under their own shares.

    No distribution that draws a document's tokens independently gives them more (Gibbs' inequality), nor does an
    average of such.
    """
    counts = np.asarray(units.counts, np.float64)
    return float(xlogy(counts, counts).sum() - xlogy(counts.sum(-1), counts.sum(-1)).sum())
