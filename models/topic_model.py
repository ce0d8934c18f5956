"""The base of all topic models: what a model must say, besides the contract, for people to read its topics."""

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
    """A model whose documents draw their words from topics; a topic is a distribution over the vocabulary.

    `topic_site` names the global latent variable of the topics, with axes (topic, word). `representation` is a
    document's share of each topic. A document's probability is an average of products of mixtures of topics.
    """

    topic_site: eqx.AbstractClassVar[str]

    @abstractmethod
    def proportions_prior(
        self, size: tuple[int, ...], natural: Mapping[str, Statistics]
    ) -> Float[np.ndarray, " topic"] | None:
        """Return the parameters of the Dirichlet on a document's proportions, (K,) float64.

        size: the number of topics.
        natural: natural parameters of the fitted globals, of existing topics only.

        Returns None where proportions have no Dirichlet prior.
        """


def log_symmetric_dirichlet(
    log_theta: Float[Array, "*element event"], concentration: Any, n: int | Array
) -> Float[Array, "*element"]:
    """Return log Dirichlet(θ; a, …, a) over the last axis, in nats.

    log_theta: log θ, 0 at entries that do not exist.
    concentration: a.
    n: the number of entries that exist.
    """
    a, n = jnp.asarray(concentration, log_theta.dtype), jnp.asarray(n, log_theta.dtype)
    return gammaln(n * a) - n * gammaln(a) + ((a - 1) * log_theta).sum(-1)


def saturated(units: BagOfWords) -> float:
    """Return Σ_d Σ_w n_dw log(n_dw / N_d) in nats: the log-likelihood of the words of each document under its own
    frequencies.

    No distribution that draws a document's tokens independently gives them more (Gibbs' inequality), nor does an
    average of such distributions.
    """
    counts = np.asarray(units.counts, np.float64)
    return float(xlogy(counts, counts).sum() - xlogy(counts.sum(-1), counts.sum(-1)).sum())
