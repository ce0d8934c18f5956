"""The path along which LDA's evidence is annealed: its start, its length, and whether gains are measured instead.

A path starts at the prior, or at the responsibilities of a fit where tokens are many. With so many tokens sizes are
compared by the gains of further topics (`size_gain`), and not by the evidence of each.

Paths of admixed populations are here too: their chain is LDA's collapsed chain with one block of the vocabulary per
locus. So are draws of log p(words | topics of all tokens) along such a chain, to compute harmonic means from.
"""

from typing import cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Key

from lvsearch.inference.annealing.dispatch import MOST_FIRST_STEPS, path_needs_fit
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.describing import describe_units, site_value
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.sampling.run import run
from lvsearch.inference.sampling.trace import Quantity, Recorder
from lvsearch.inference.topic_samplers.chain import MOST_FROM_PRIOR, CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, hyper_topics
from lvsearch.inference.topic_samplers.topic_state import BELOW_ONE, GivenFactors, TopicState
from lvsearch.inference.topics.estimator import point_topics
from lvsearch.models.admixture import Admixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.lda import LDA

TINY = 1e-30
MOST_WEIGHTS_AT_ONCE = 1 << 22
"""The host draws topics for so many tokens at once that their weights under all topics are about this many."""
GROUPED_DRAWS = 8_000_000
"""The number of latent variables that one particle draws in the cheapest annealing, if tokens are drawn in groups."""


def evidence_chain_of_lda(
    model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> CollapsedTopics | HyperTopics:
    """Return the annealing chain of LDA.

    It starts at the prior for small data or without a fit, and otherwise at the responsibilities of the fit `estimate`.
    Hyper-parameters that have priors are latent variables of the chain.

    size: (number of topics,).
    """
    if not model.inferred:
        return topics_chain(model, data, size, estimate)
    numbers = model.at_prior_means()
    if estimate is not None and isinstance(estimate.model, LDA):
        numbers = model.with_numbers(*estimate.model.numbers())
    chain = topics_chain(numbers, data, size, estimate)
    return hyper_topics(model, chain, about=None if chain.q is None else numbers)


def topics_chain(model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics:
    """Return the annealing chain of LDA with given hyper-parameters.

    It starts at the prior for small data or without a fit, and otherwise at the responsibilities of the fit.

    model: an LDA whose hyper-parameters are numbers.
    data: the documents.
    size: (number of topics,).
    estimate: a fit of this size, or None.

    Raises ValueError for an LDA whose topics are point estimates, or that has seeds of other words or of more topics.
    """
    counts, (n_topics,), (capacity,) = counts_of(data), size, capacity_of(size)
    concentration, eta = model.numbers()
    total = np.asarray(concentration, np.float64)
    alpha = np.broadcast_to(total if total.ndim else total / n_topics, (n_topics,))
    if eta is None:
        raise ValueError("got an LDA whose topics are point estimates; expected topic_concentration, to integrate out")
    model.require_words(counts.shape[1])
    start = None
    if estimate is not None and path_needs_fit(model, data):
        start = factors_of(estimate, data, point_topics(estimate))
    seeds = None if model.seeds is None else model.seeds.counts
    return collapsed_topics(counts, alpha, float(eta), capacity, start, seeds=seeds)


def factors_of(estimate: Estimate, data: Dataset, topics: Float[np.ndarray, "topic word"]) -> GivenFactors:
    """Return the log factors of q, a path's start, from a fit: log proportions of the documents, and log topics.

    estimate: the fit.
    data: the documents.
    topics: the probability of each word in each topic.
    """
    return log_factors(describe_units(estimate.model, estimate, data).representation, topics)


def log_factors(
    proportions: Float[np.ndarray, "document topic"], topics: Float[np.ndarray, "topic word"]
) -> GivenFactors:
    """Return the log factors of q from the documents' proportions and the probability of each word in each topic."""
    return GivenFactors(*(np.log(np.maximum(each, TINY)) for each in (proportions, topics.T)))


def draw_topics_of_tokens(
    chain: CollapsedTopics, factors: GivenFactors, random: np.random.Generator, particles: int
) -> Int[np.ndarray, "token particle"]:
    """Draw a topic for each token of a chain by the responsibilities of a fit; −1 at empty places, (token, particle).

    The probability of topic k is in proportion to θ_dk φ_kw, whatever other tokens have.

    factors: log θ of the documents and log φ of the topics, which both have the same order of topics.
    """
    documents, words = (np.asarray(each, np.float32) for each in factors)
    assignment = np.full((len(chain.word), particles), -1, np.int32)
    real = np.flatnonzero(chain.word >= 0)
    for some in np.array_split(real, 1 + real.size * documents.shape[1] // MOST_WEIGHTS_AT_ONCE):
        log_weights = documents[chain.document[some]] + words[chain.word[some]]
        ends = np.cumsum(np.exp(log_weights - log_weights.max(1, keepdims=True)), axis=1)
        aims = random.random((particles, len(some)), np.float32) * (BELOW_ONE * ends[:, -1])
        assignment[some] = np.stack([(ends[:, :-1] <= aim[:, None]).sum(1) for aim in aims], axis=1)
    return assignment


BYTES_PER_TOKEN = 300
"""How many bytes an annealing of topics takes per token, as measured: 2 GB for 6.7 million tokens in 330 cells."""


def bytes_of_tokens(model: LDA | Admixture, data: Dataset) -> int:
    """Return roughly how many bytes a chain takes that moves every token by itself, however few (document, word) pairs
    hold them.
    """
    return BYTES_PER_TOKEN * sum(int(counts_of(part).sum(dtype=np.int64)) for part in data.iter_parts())


def path_of_topics_needs_fit(model: LDA | Admixture, data: Dataset) -> bool:
    """Return True if there are too many tokens (genotypes) for a path from the prior, so that it must start at a
    fit.
    """
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)


# ── how long a path is ────────────────────────────────────────────────────────────────────────────────────────────────


def first_steps_of_topics(chain: CollapsedTopics, default: int) -> int:
    """Return the number of temperatures of the cheapest annealing (`steps_of_groups`).

    With one topic it is 1: nothing is drawn then, and the evidence is exact.
    """
    alone = int((np.asarray(chain.alpha) > 0).sum()) == 1
    return 1 if alone else steps_of_groups(chain, default)


def first_steps_of_hyper_topics(chain: HyperTopics, default: int) -> int:
    """Return the number of temperatures of the cheapest annealing where hyper-parameters have priors."""
    return steps_of_groups(chain.topics, default)


def steps_of_groups(chain: CollapsedTopics, default: int) -> int:
    """Return the number of temperatures of the cheapest annealing.

    It is larger if tokens are drawn in groups, which is fast.

    default: the number for tokens that are drawn one by one.
    """
    return default if chain.width == 1 else int(np.clip(GROUPED_DRAWS // chain.elements, default, MOST_FIRST_STEPS))


FIRST_GAIN, FIRST_GAIN_OF_MANY, TOKENS_FOR_LATER_START = 16, 64, 300_000
"""A search begins with 16 topics, and with 64 if there are 300,000 tokens or more.

Below 64 gains of real text are far from 0: news articles of 436,000 words gained 4,400 nats from the 16th topic, 1,450
from the 32nd, and from some 180 on nothing.
"""


def first_gain_of_lda(model: LDA, data: Dataset) -> int | None:
    """Return the first number of topics whose gain is measured, or None if sizes are compared by their evidence.

    Gains are measured if data are too many for a path from the prior, and one α is shared by all topics, so that they
    are exchangeable. On many tokens a search begins with 64 topics, since the sizes below tell little of real text.
    """
    even = isinstance(model.concentration, GammaPrior) or np.ndim(model.concentration) == 0
    n_tokens = counts_of(data).sum()
    if not even or n_tokens <= MOST_FROM_PRIOR:
        return None
    return FIRST_GAIN if n_tokens < TOKENS_FOR_LATER_START else FIRST_GAIN_OF_MANY


# ── admixed populations ───────────────────────────────────────────────────────────────────────────────────────────────


def evidence_chain_of_admixture(
    model: Admixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> CollapsedTopics:
    """Return the annealing chain of an admixture model.

    It starts at the prior for small data or without a fit, and otherwise at the responsibilities of the fit `estimate`.

    size: (number of populations,).
    """
    counts, (n_populations,), (capacity,) = counts_of(data), size, capacity_of(size)
    model.require_words(counts.shape[1])
    alpha = np.full(n_populations, float(model.concentration) / n_populations)
    eta, widths = float(model.allele_concentration), model.alleles
    if estimate is None or not path_needs_fit(model, data):
        return collapsed_topics(counts, alpha, eta, capacity, widths=widths)
    frequencies = np.asarray(site_value(estimate, "frequencies"), np.float64)
    return collapsed_topics(counts, alpha, eta, capacity, factors_of(estimate, data, frequencies), widths=widths)


# ── likelihoods of words along a chain ────────────────────────────────────────────────────────────────────────────────

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
