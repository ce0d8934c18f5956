"""Draws of log p(words | topics of all tokens) along a collapsed Gibbs chain, to compute harmonic means from."""

from typing import cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float64, Key

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.sampling.run import run
from lvsearch.inference.sampling.trace import Quantity, Recorder
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.path_starts import topics_chain
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.lda import LDA

LOG_WORDS = "log_words"


class WordLikelihoodRecorder(Recorder):
    """The recorder of `log_words`: log p(words | topics of all tokens, η), nats, with the topics' distributions
    integrated out.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True, default=(Quantity(LOG_WORDS, (), (), False),))

    def values(self, chain: CollapsedTopics, state: TopicState) -> tuple[Array, ...]:
        """Return (log p(words | topics of all tokens, η),), (particle,), nats."""
        return (chain.log_words(state),)


def log_word_likelihoods(
    model: LDA, data: Dataset, size: int, *, draws: int, warmup: int, thin: int, key: Key[Array, ""]
) -> Float64[np.ndarray, " draw"]:
    """Return log p(words | topics of all tokens, η) at draws of these topics from one chain, (draw,), in nats.

    The chain begins in the prior.

    model: an LDA whose hyper-parameters are numbers.
    data: the documents.
    size: number of topics.
    draws: number of draws.
    warmup: sweeps before the first draw.
    thin: sweeps between draws.
    key: the random key of the chain.

    Raises ValueError for counts below 1, and for a model whose concentrations are not numbers.

    Source: Griffiths & Steyvers 2004, Eq. 2.
    """
    chain = topics_chain(model, data, (size,), None)
    trace = run(chain, key, chains=1, draws=draws, warmup=warmup, thin=thin, recorder=WordLikelihoodRecorder())
    if trace.draws < draws:
        raise KeyboardInterrupt
    return cast(np.ndarray, jax.device_get(trace[LOG_WORDS]))[0].astype(np.float64)
