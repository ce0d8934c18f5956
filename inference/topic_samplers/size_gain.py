"""What one topic more gains: log p(w | K) − log p(w | K − 1) of LDA, annealed both ways between the two sizes.

A chain with K topics begins with the responsibilities of a fit, and settles. The two topics whose merger costs least
are marked; a chain with K − 1 topics begins with the two merged, and settles. Between the two leads a path on which
only that pair has to decide anything (`splits`).
"""

from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.special import gammaln

from lvsearch.inference.annealing.between_sizes import Gain, gain_downwards, gain_upwards
from lvsearch.inference.annealing.dispatch import gain_of_last_part, measures_gains
from lvsearch.inference.annealing.particles import drawn
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.generators import folded, split_key
from lvsearch.inference.sharding import in_processes
from lvsearch.inference.topic_samplers.beginning import factors_of
from lvsearch.inference.topic_samplers.chain import MOST_FROM_PRIOR, CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.given import GivenFactors
from lvsearch.inference.topic_samplers.splits import TopicSplits
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.inference.topics.estimator import point_topics
from lvsearch.inference.topics.merging import cheapest_pair
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel
from lvsearch.models.lda import LDA

LEAST_CAPACITY = 32
"""Places for topics: sizes up to it share their programs, and fewer places would hardly be faster."""


class GainEffort(NamedTuple):
    """How hard to try to measure one gain.

    | field | meaning |
    |---|---|
    | `temperatures` | sweeps of each path, in each direction |
    | `settling` | sweeps of the larger size's chain before anything is recorded |
    | `averaging` | further sweeps over which the topics of the pair are averaged |
    | `settling_merged` | sweeps of the smaller size's chain after its two topics were merged |
    | `groups`, `particles` | groups of paths, each in a thread of its own, and the paths of each group |
    """

    temperatures: int
    settling: int
    averaging: int
    settling_merged: int
    groups: int = 2
    particles: int = 1


EFFORTS = (GainEffort(24, 20, 8, 40), GainEffort(60, 40, 10, 80), GainEffort(120, 60, 15, 160))
"""How hard the first, the second and every further measurement of one gain tries. The first one settles most signs: a
topic that the data have gains a thousand nats, one that they have not loses a hundred or two. The smaller size settles
for longer: it begins where two topics were merged. On Cora at 96 topics 20 sweeps give a gain of 104, 200 sweeps 81."""


class TopicAverages(NamedTuple):
    """Averages over sweeps and particles.

    | field | shape | meaning |
    |---|---|---|
    | `in_document` | (document, topic) | n_dk + α_k |
    | `topics` | (word, topic) | (n_kw + η) / (n_k + Vη) |
    """

    in_document: Float[Array, "document topic"]
    topics: Float[Array, "word topic"]


@measures_gains.register
def _(model: LDA, data: Dataset) -> bool:
    """Where paths would begin with a fit, and topics are alike before any data (a single α for all of them)."""
    even = isinstance(model.concentration, GammaPrior) or np.ndim(model.concentration) == 0
    return even and bool(counts_of(data).sum() > MOST_FROM_PRIOR)


@gain_of_last_part.register
def _(model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate, key: Key[Array, ""], trial: int) -> Gain:
    """Hyper-parameters that have priors stand at the numbers of the fit: what the gain would be at other likely numbers
    differs by little, since the fit's numbers are where the evidence is flat in them."""
    return gain_of_last_topic(
        cast(LDA, estimate.model), data, size, estimate, key, EFFORTS[min(trial, len(EFFORTS) - 1)]
    )


def gain_of_last_topic(
    model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate, key: Key[Array, ""], work: GainEffort
) -> Gain:
    """Measure log p(data | K) − log p(data | K − 1), K = size[0] ≥ 2, in the mode that `estimate`, a fit of size K, is
    in.

    The model's hyper-parameters are numbers. Raises ValueError where K is 1.
    """
    (n_topics,) = size
    if n_topics < 2:
        raise ValueError("got size 1, expected at least 2: there is no size below it to compare with")
    counts, capacity = counts_of(data), max(LEAST_CAPACITY, *capacity_of(size))
    total, eta = (float(np.sum(each)) for each in model.numbers())
    topics = point_topics(estimate)
    factors = factors_of(estimate, data, topics)
    expected_counts = np.asarray(estimate.natural["topic_word"], np.float64) + 1 - eta
    first = cheapest_pair(np.maximum(expected_counts, 0.0))  # rounding leaves some a little below 0
    order = np.array([*first, *(k for k in range(n_topics) if k not in first)])
    factors = GivenFactors(*(each[:, order] for each in factors))
    start = collapsed_topics(counts, np.full(n_topics, total / n_topics), eta, capacity, factors)
    larger = eqx.tree_at(
        lambda chain: (chain.q, chain.log_start), start, (None, np.zeros(())), is_leaf=lambda x: x is None
    )
    merged_alpha = np.full(n_topics, total / (n_topics - 1))
    merged_alpha[1] = 0.0
    smaller = with_alpha(larger, merged_alpha)
    temperatures = np.linspace(0.0, 1.0, work.temperatures + 1)[1:]

    def one_group(number: int) -> Gain:
        keys = split_key(folded(key, number), 5)
        with jax.enable_x64(True):
            upper = drawn(start, keys[0], particles=work.particles)
            upper, averages = settle(larger, keys[1], upper, work.settling, work.averaging)
            path = splits_between(larger, smaller, averages)
            lower, _ = settle(smaller, keys[2], path.merge(upper), work.settling_merged, 1)
        up = gain_upwards(path, keys[3], lower, temperatures)
        down = gain_downwards(path, keys[4], upper, temperatures)
        return Gain(up, down, work.temperatures)

    gains = in_processes(one_group, work.groups)
    forward, backward = (np.concatenate([each[way] for each in gains]) for way in (0, 1))
    return Gain(forward, backward, work.temperatures)


def splits_between(larger: CollapsedTopics, smaller: CollapsedTopics, averages: TopicAverages) -> TopicSplits:
    """Return the path along which topic 0 is split into topics 0 and 1, shares as these averages say."""
    in_document, topics = (np.asarray(each, np.float64) for each in averages[:2])
    exists = larger.alpha > 0
    size = in_document.sum(0)  # of each topic
    merged = topics.copy()
    merged[:, 0] = (topics[:, :2] @ size[:2]) / size[:2].sum()
    log_topics = np.stack([np.log(np.where(exists & (each > 0), each, 1.0)) for each in (merged, topics)])
    of_documents, of_words = (
        np.log(each[:, 1:2] / each[:, :1]).astype(np.float32)
        for each in (in_document, np.where(topics > 0, topics, 1.0))
    )
    return TopicSplits(larger, smaller, of_documents, of_words, log_topics.astype(np.float32), paired=2)


@kernel(static_argnames=("averaging",))
def settle(
    chain: CollapsedTopics, key: Key[Array, ""], state: TopicState, settling: int | Int[Array, ""], averaging: int
) -> tuple[TopicState, TopicAverages]:
    """Sweep at temperature 1: `settling` times, then `averaging` times more, over which averages are taken."""

    def observed(state: TopicState) -> TopicAverages:
        in_document = state.document_topic.mean(-1) + jnp.asarray(chain.alpha, jnp.float32)
        return TopicAverages(in_document, chain.topic_means(state).mean(-1))

    def one(index: Array, carry: tuple[TopicState, TopicAverages]) -> tuple[TopicState, TopicAverages]:
        state, averages = carry
        state = chain.sweep_posterior(jax.random.fold_in(key, index), state)
        return state, jax.lax.cond(index < settling, lambda seen, state: seen, recorded, averages, state)

    def recorded(averages: TopicAverages, state: TopicState) -> TopicAverages:
        return jax.tree.map(lambda mean, now: mean + (now / averaging).astype(mean.dtype), averages, observed(state))

    begin = state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(observed, state))
    return jax.lax.fori_loop(0, settling + averaging, one, begin)


def with_alpha(chain: CollapsedTopics, alpha: Float[np.ndarray, " size"]) -> CollapsedTopics:
    """Return the chain with another α_k, 0 for topics that do not exist, of the same total."""
    padded_alpha = np.pad(alpha, (0, len(chain.alpha) - len(alpha)))[:, None]
    safe = np.where(padded_alpha > 0, padded_alpha, 1.0)
    lengths = np.arange(chain.log_gamma_document.shape[1])
    table = np.where(padded_alpha > 0, gammaln(safe + lengths) - gammaln(safe), 0.0)
    return eqx.tree_at(lambda c: (c.alpha, c.log_gamma_document), chain, (padded_alpha[:, 0], table))
