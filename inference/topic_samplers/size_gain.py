"""The gain of further topics, log p(w | K) − log p(w | K − m) of LDA, annealed in both directions between the sizes.

Here w are the words of the documents, K is the number of topics, and m is 1 or, where topics are many, more. A chain
with K topics begins with the responsibilities of a fit, and runs until it has settled. The m disjoint pairs of topics
whose merger costs least are marked. A chain with K − m topics begins with these pairs merged, and runs until it has
settled. On the path between the two chains only the tokens of the pairs have a choice (`splits`, where K is the smaller
size). Of a pair one topic may have seeds, which the merged topic then has, and never both.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.special import gammaln

from lvsearch.inference.annealing.between_sizes import Gain, gain_downwards, gain_upwards
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.generators import fold_in, generator, split_key
from lvsearch.inference.sharding import in_processes, one_after_another
from lvsearch.inference.topic_samplers.chain import CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.paths import draw_topics_of_tokens, log_factors
from lvsearch.inference.topic_samplers.splits import TopicSplits
from lvsearch.inference.topic_samplers.topic_state import GivenFactors, TopicState
from lvsearch.inference.topics.describing import rough_proportions
from lvsearch.inference.topics.estimator import point_topics
from lvsearch.inference.topics.merging import alike_pairs, cheapest_pairs
from lvsearch.models.kernels import kernel
from lvsearch.models.lda import LDA

LEAST_CAPACITY = 32
"""The least length of arrays over topics. Sizes up to it share their programs, and shorter arrays would hardly be
faster.
"""


TOPICS_PER_PAIR = 6
"""The least number of topics for each pair that is merged on a path, from `FEWEST_FOR_SEVERAL` topics on.

What a single topic gains depends on the fit. On Cora, going from 128 − m to 128 topics, fits gained on average: 17, 54,
77 and 85 nats a topic with m = 5 (four fits); 24, 48 and 57 with m = 10 (three fits); 43 and 43 with m = 21 (two fits).
"""
LEAST_SHARE = 4
"""One in so many of the pairs of `TOPICS_PER_PAIR` is merged even if the mergers cost much more than the cheapest.

A gain of one pair is that of one topic and is known badly: of 512 topics on 484,000 words, to ± 22 nats.
"""
PAIRS_STEP = 8
"""Above this, the number of merged pairs is rounded down to a multiple of it.

Array shapes then take few values, and sizes share compiled programs.
"""
FEWEST_FOR_SEVERAL = 48
"""The least number of topics at which several pairs are merged at once; with fewer, one pair is."""


class GainEffort(NamedTuple):
    """The work of measuring one gain between two numbers of topics.

    | field | meaning |
    |---|---|
    | `temperatures` | sweeps of each annealing path, in each direction |
    | `settling` | sweeps of the larger size's chain before anything is recorded |
    | `averaging` | further sweeps over which the topics of the pair are averaged |
    | `settling_merged` | sweeps of the smaller size's chain after its two topics were merged |
    | `groups`, `particles` | groups of paths, each in two threads of its own, and the paths of each group |
    | `wide` | whether tokens are drawn in wide groups, on JAX's default device instead of the CPU |
    """

    temperatures: int
    settling: int
    averaging: int
    settling_merged: int
    groups: int = 2
    particles: int = 1
    wide: bool = False


EFFORTS = (GainEffort(24, 20, 8, 40), GainEffort(60, 40, 10, 80), GainEffort(120, 60, 15, 160))
"""The work of the first, the second and every further measurement of one gain, unless tokens are many (`MANY_TOKENS`).

The first one decides most signs: a topic that the data have gains a thousand nats, and one that they do not have loses
a hundred or two. The smaller size settles for longer, because it begins where two topics were merged. On Cora at 96
topics, 20 sweeps give a gain of 104 nats and 200 sweeps one of 81.
"""


SHORT_EFFORT = GainEffort(temperatures=8, settling=8, averaging=4, settling_merged=12)
MANY_TOKENS, MANY_PER_TOPIC = 300_000, 5_000
"""A gain is first measured with `SHORT_EFFORT` where tokens are so many, in all and for each topic: then topics gain or
lose hundreds to thousands of nats. The measurement stands if all paths have the same sign.

Otherwise `EFFORTS[0]` follows at once. The second measurement is made with `EFFORTS[0]`, the third with `EFFORTS[1]`.
On 2,400,000 tokens with 40 planted topics the 40th gained 12,400 ± 1,800 nats by the short effort in 27 seconds, and
12,300 ± 1,000 by the longer one in 55. The 42nd gained −400 ± 1,900, so that its sign was open, and −1,200 ± 1,100.
"""


class TopicAverages(NamedTuple):
    """Averages of topics and proportions over sweeps and particles of a chain.

    | field | shape | meaning |
    |---|---|---|
    | `in_document` | (document, topic) | tokens of the document in the topic, plus the concentration α_k |
    | `topics` | (word, topic) | posterior means of the topics' distributions over words |
    """

    in_document: Float[Array, "document topic"]
    topics: Float[Array, "word topic"]


def gain_of_last_topic(
    model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate, key: Key[Array, ""], trial: int
) -> Gain:
    """Return the gain in log evidence of the last topics, K over K − m, in nats.

    m is 1 below 48 topics. From there on it counts the pairs that cost at most twice the cheapest (`ALIKE`), among the
    cheapest K // 6, but no fewer than a quarter of these; more than 8 are rounded down to a multiple of 8. With 8 and
    more, paths have half of the temperatures. On news articles (197 topics, 24 pairs) the ends of the two
    directions are then 101 nats a topic apart instead of 79.

    With many tokens (`MANY_TOKENS`), a short first measurement stands if all of its paths have the same sign.

    Hyper-parameters that have priors are fixed at the fit's numbers. At other likely numbers the gain differs by
    little, because the evidence is flat in them there.

    size: (K,). estimate: a fit of K topics. trial: how often this gain was measured before; it decides the work.

    Raises ValueError where all topics have seeds.
    """
    model = cast(LDA, estimate.model)
    if size[0] <= model.n_given:
        raise ValueError(f"got size {size[0]}, expected more than the {model.n_given} topics with seeds: none may go")
    n_tokens = counts_of(data).sum()
    many = n_tokens >= max(MANY_TOKENS, MANY_PER_TOPIC * size[0])
    earlier = max(trial - 1, 0) if many else trial  # the short measurement takes the place of one
    work = EFFORTS[min(earlier, len(EFFORTS) - 1)]
    most = max(1, size[0] // TOPICS_PER_PAIR) if size[0] >= FEWEST_FOR_SEVERAL else 1
    most = min(most, size[0] - model.n_given)
    alike = alike_pairs(_expected_counts(model, estimate), most, model.n_given)
    fewer = max(len(alike), most // LEAST_SHARE)
    fewer -= fewer % PAIRS_STEP if fewer > PAIRS_STEP else 0
    if fewer >= PAIRS_STEP:
        work = work._replace(temperatures=work.temperatures // 2)
    if many and trial == 0:
        short = gain_of_last_topics(model, data, size, estimate, key, SHORT_EFFORT, fewer)
        if np.ptp(np.sign([short.forward, short.backward])) == 0:
            return short
    return gain_of_last_topics(model, data, size, estimate, key, work, fewer)


def gain_of_last_topics(
    model: LDA,
    data: Dataset,
    size: tuple[int, ...],
    estimate: Estimate,
    key: Key[Array, ""],
    work: GainEffort,
    fewer: int = 1,
) -> Gain:
    """Measure how much K topics gain over K − m topics, log p(data | K) − log p(data | K − m).

    The gain is that of the posterior mode in which the fit lies. With K − m topics, each of the m disjoint pairs that
    are cheapest to merge is one topic.

    model: an LDA whose hyper-parameters are numbers.
    data: the documents.
    size: (K,).
    estimate: a fit of size K.
    key: a random key.
    work: numbers of sweeps and paths.
    fewer: m, how many topics fewer, at most K // 2.

    Returns: the log weights of the paths in both directions, nats.

    Raises ValueError if K is too small for m.
    """
    (n_topics,), m = size, fewer
    if n_topics < max(2 * m, model.n_given + m):
        raise ValueError(
            f"got size {n_topics}, expected at least {max(2 * m, model.n_given + m)}: {m} pairs of its topics are "
            "merged, of which two with seeds are none"
        )
    counts, capacity = counts_of(data), max(LEAST_CAPACITY, *capacity_of(size))
    total, eta = (float(np.sum(each)) for each in model.numbers())
    topics = point_topics(estimate)
    factors = log_factors(rough_proportions(model, estimate, data), topics)
    # The topics to merge come first, as `TopicSplits` has them: one of each pair, then the others of the pairs.
    first, second = zip(*cheapest_pairs(_expected_counts(model, estimate), m, model.n_given), strict=True)
    order = np.array([*first, *second, *(k for k in range(n_topics) if k not in {*first, *second})])
    factors = GivenFactors(*(each[:, order] for each in factors))
    seeds = None
    if model.seeds is not None:
        seeds = np.pad(model.seeds.counts, ((0, n_topics - model.n_given), (0, 0)))[order]
    larger = collapsed_topics(counts, np.full(n_topics, total / n_topics), eta, capacity, wide=work.wide, seeds=seeds)
    # The smaller chain keeps K places. The second topic of each pair, merged into the first, does not exist.
    merged_alpha = np.full(n_topics, total / (n_topics - m))
    merged_alpha[m : 2 * m] = 0.0
    smaller = with_alpha(larger, merged_alpha)
    temperatures = np.linspace(0.0, 1.0, work.temperatures + 1)[1:]
    where_it_runs = nullcontext if work.wide else one_after_another  # small groups of tokens are for the CPU

    def one_group(number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the log weights (upwards, downwards) of one group of paths, each (particle,), nats."""
        with where_it_runs():
            keys = split_key(fold_in(key, number), 5)
            assignment = draw_topics_of_tokens(larger, factors, generator(keys[0]), work.particles)
            with jax.enable_x64(True):
                upper, averages = settle(
                    larger, keys[1], _with_counts(larger, assignment), work.settling, work.averaging
                )
            path = splits_between(larger, smaller, averages, m)

            def downwards() -> np.ndarray:
                """Return the log weights of the paths down, which begin at the chain of the larger size."""
                with where_it_runs():
                    return gain_downwards(path, keys[4], upper, temperatures)

            # The two directions do not depend on each other: the paths down run beside the smaller chain and those up.
            with ThreadPoolExecutor(1) as beside:
                down = beside.submit(downwards)
                with jax.enable_x64(True):
                    lower, _ = settle(smaller, keys[2], _merged(path, upper), work.settling_merged, 1)
                return gain_upwards(path, keys[3], lower, temperatures), down.result()

    up, down = (np.concatenate(way) for way in zip(*in_processes(one_group, work.groups), strict=True))
    return Gain(up, down, work.temperatures, m)


def _expected_counts(model: LDA, estimate: Estimate) -> Float[np.ndarray, "topic word"]:
    """Return the expected number of tokens of each word in each topic of a fit, (topic, word), none negative.

    Imaginary tokens of seeds are among them: they are merged too.
    """
    eta = float(np.sum(model.numbers()[1]))
    counts = np.asarray(estimate.natural["topic_word"], np.float64) + 1 - eta
    return np.maximum(counts, 0.0)  # rounding leaves some counts a little below 0


def splits_between(
    larger: CollapsedTopics, smaller: CollapsedTopics, averages: TopicAverages, pairs: int = 1
) -> TopicSplits:
    """Return the path along which the first topics of the smaller chain are each split into two.

    larger, smaller: the chains with the topics split and merged.
    averages: averages of the larger chain, which say how likely each token is to be in either topic of a pair.
    pairs: how many topics are split.
    """
    in_document, topics = (np.asarray(each, np.float64) for each in averages[:2])
    exists = larger.alpha > 0
    size = in_document.sum(0)  # mean tokens of each topic, plus α
    merged = topics.copy()
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    both = size[first] + size[second]
    merged[:, first] = (topics[:, first] * size[first] + topics[:, second] * size[second]) / both
    log_topics = np.stack([np.log(np.where(exists & (each > 0), each, 1.0)) for each in (merged, topics)])
    of_documents, of_words = (
        np.log(each[:, second] / each[:, first]).astype(np.float32)
        for each in (in_document, np.where(topics > 0, topics, 1.0))
    )
    return TopicSplits(larger, smaller, of_documents, of_words, log_topics.astype(np.float32), pairs=pairs)


_with_counts = kernel(once=True)(lambda chain, assignment: chain.state_of_topics(assignment))
_merged = kernel(once=True)(lambda path, state: path.merge(state))


@kernel(serial=True)
def settle(
    chain: CollapsedTopics,
    key: Key[Array, ""],
    state: TopicState,
    settling: int | Int[Array, ""],
    averaging: int | Int[Array, ""],
) -> tuple[TopicState, TopicAverages]:
    """Sweep a chain under its posterior, first `settling` times, then `averaging` times while averages are taken.

    Returns: (the last state, the averages).
    """

    def observed(state: TopicState) -> TopicAverages:
        """Return the quantities to average at one state."""
        in_document = state.document_topic.mean(-1) + jnp.asarray(chain.alpha, jnp.float32)
        return TopicAverages(in_document, chain.topic_means(state).mean(-1))

    def one(index: Array, carry: tuple[TopicState, TopicAverages]) -> tuple[TopicState, TopicAverages]:
        state, averages = carry
        state = chain.sweep_posterior(jax.random.fold_in(key, index), state)
        return state, jax.lax.cond(index < settling, lambda seen, state: seen, recorded, averages, state)

    def recorded(averages: TopicAverages, state: TopicState) -> TopicAverages:
        """Return the averages with one of `averaging` states added, with weight 1/averaging."""
        return jax.tree.map(lambda mean, now: mean + (now / averaging).astype(mean.dtype), averages, observed(state))

    begin = state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(observed, state))
    return jax.lax.fori_loop(0, settling + averaging, one, begin)


def with_alpha(chain: CollapsedTopics, alpha: Float[np.ndarray, " size"]) -> CollapsedTopics:
    """Return the chain with other concentrations α_k of the same total, (topic,); 0 for topics that do not exist."""
    padded_alpha = np.pad(alpha, (0, len(chain.alpha) - len(alpha)))[:, None]
    safe = np.where(padded_alpha > 0, padded_alpha, 1.0)
    lengths = np.arange(chain.log_gamma_document.shape[1])
    table = np.where(padded_alpha > 0, gammaln(safe + lengths) - gammaln(safe), 0.0)
    return eqx.tree_at(lambda c: (c.alpha, c.log_gamma_document), chain, (padded_alpha[:, 0], table))
