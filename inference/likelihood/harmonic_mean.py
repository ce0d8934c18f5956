"""The harmonic mean (hm), kept because the literature compares with it. Do not decide anything by it.

  1 / p̂(j) = mean over k ~ p(k | j) of 1 / p(j | k),   p(j | k) = Π_l β_{k_l, j_l}                     (Buntine §3.2)

Token l of a document has word j_l and topic k_l, and β_kj is the probability of word j in topic k. The mean of inverses
is dominated by the few worst samples, which are rarely seen, so p̂ is too high. By Jensen's inequality E log p̂ ≥ log p
for samples of the posterior.
"""

import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Key
from scipy import sparse

from lvsearch.inference.likelihood.documents import DocumentTile, TopicSet
from lvsearch.inference.likelihood.gibbs_sweep import Assignment, lane_keys, one_hot, sweep, sweep_keys, token_tile
from lvsearch.inference.likelihood.sampling_estimates import (
    Bias,
    LikelihoodEstimate,
    average_of_weights,
    estimate_tiles,
)
from lvsearch.models.kernels import kernel

LANES = 512  # documents per call
BURN_IN = 20  # sweeps before the first sample


@kernel(static_argnames=("samples",))
def _log_inverses(word_topic, alpha, words, counts, rows, key, samples: int):
    """Return −log p(words | topics of tokens) after each sweep of one Gibbs chain, (sample, document), nats.

    A tile is a group of documents of one padded length.

    word_topic: p(word | topic), (word, topic).
    alpha: Dirichlet parameters of the topic shares, (topic,).
    words, counts: a tile's tokens, and 1 for each (0 for padding), (document, position).
    rows: the number of each document in the corpus, with which its key is folded.
    samples: the number of sweeps recorded, after `BURN_IN` others.
    """
    beta, real = token_tile(word_topic, words, counts)
    n_topics, n_documents = beta.shape[1:]
    keys = lane_keys(key, rows, 1)
    log_beta = jnp.log(jnp.maximum(beta, jnp.finfo(beta.dtype).tiny))
    longest = jnp.max(jnp.sum(counts, axis=1))

    def one_sweep(r, carry):
        state, record = carry
        state = sweep(sweep_keys(keys, r), longest, state, alpha, beta, real)
        chosen = jnp.take_along_axis(log_beta, state.topic.transpose(0, 2, 1), axis=1)[:, 0]
        return state, record.at[jnp.maximum(r - BURN_IN, 0)].set(-jnp.sum(chosen * real, axis=0))

    # start with each token in its most probable topic, which the model allows
    topic = jnp.argmax(beta, axis=1)[:, :, None].astype(jnp.int32)
    start_counts = jnp.sum(jax.vmap(lambda t, r: one_hot(t, n_topics, r))(topic, real), axis=0)
    start = Assignment(topic, start_counts), jnp.zeros((samples, n_documents))
    return lax.fori_loop(0, BURN_IN + samples, one_sweep, start)[1]


@dataclass(frozen=True)
class HarmonicMean:
    """Estimates log p(document) by the harmonic mean of p(words | topics of tokens) over the sweeps of one Gibbs
    chain.
    """

    bias: Bias = "upper"
    samples: int = 200

    def estimate(
        self, topics: TopicSet, counts: sparse.csr_array, samples: int, key: Key[Array, " "]
    ) -> LikelihoodEstimate:
        """Estimate log p of each document, nats, with a warning that the method is badly biased upwards.

        topics: checked topics and Dirichlet parameters.
        counts: word counts, (document, word).
        samples: the number of sweeps that are averaged.
        key: the random key.
        """
        warnings.warn(
            "the harmonic mean is badly biased upwards and its standard error is not to be trusted; it is kept for "
            'comparison with the literature only: use method="ais"',
            UserWarning,
            stacklevel=4,
        )

        def one_tile(tile: DocumentTile, word_topic, alpha) -> LikelihoodEstimate:
            """Estimate log p of the documents of one tile.

            A tile is a group of documents of one padded length.
            """
            record = _log_inverses(word_topic, alpha, tile.words, tile.counts, tile.padded_rows, key, samples)
            inverse = average_of_weights(np.asarray(record, np.float64).T)
            return inverse._replace(log_likelihood=-inverse.log_likelihood)

        return estimate_tiles(topics, counts, one_tile, tokens=True, height_of=lambda _: LANES)
