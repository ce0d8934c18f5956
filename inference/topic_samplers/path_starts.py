"""The starts of annealing paths of LDA: at the prior, or at the responsibilities of a fit.

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
from lvsearch.inference.topic_samplers.topic_state import BELOW_ONE, GivenFactors, TopicState
from lvsearch.inference.topics.estimator import point_topics
from lvsearch.models.admixture import Admixture
from lvsearch.models.lda import LDA

TINY = 1e-30
MOST_WEIGHTS_AT_ONCE = 1 << 22
"""The host draws topics for so many tokens at once that their weights under all topics are about this many."""
GROUPED_DRAWS = 8_000_000
"""The number of latent variables that one particle draws in the cheapest annealing, if tokens are drawn in groups."""


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
    batches = (batch for part in data.iter_parts() for batch in part.batches)
    return BYTES_PER_TOKEN * sum(int(np.sum(batch.units.counts, dtype=np.float64)) for batch in batches)


def path_of_topics_needs_fit(model: LDA | Admixture, data: Dataset) -> bool:
    """Return True if there are too many tokens (genotypes) for a path from the prior, so that it must start at a
    fit.
    """
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)


def steps_of_groups(chain: CollapsedTopics, default: int) -> int:
    """Return the number of temperatures of the cheapest annealing.

    It is larger if tokens are drawn in groups, which is fast.

    default: the number for tokens that are drawn one by one.
    """
    return default if chain.width == 1 else int(np.clip(GROUPED_DRAWS // chain.elements, default, MOST_FIRST_STEPS))


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
