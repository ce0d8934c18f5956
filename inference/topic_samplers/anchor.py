"""A shorter annealing path of LDA that starts at the topics in which another path ended.

The path from the prior ends in particles. They make some sweeps at temperature 1, and the one with the highest joint
density gives the topics φ. The second path starts at q = p(z | w, φ, α), the posterior of the tokens' topics z given
words w, topics φ and concentration α (see `chain`). The evidence of q, log p(w | φ, α), is estimated document by
document (`from_topics`). Hyper-parameters with priors begin about the values that the particle had.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Key
from scipy.sparse import csr_array

from lvsearch.inference.annealing.hyperparameters import gamma_around
from lvsearch.inference.annealing.kits import Anchor, ChainKit, chain_kit
from lvsearch.inference.annealing.particles import draw_from_q, log_densities
from lvsearch.inference.topic_samplers.chain import SETTLING, CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, HyperTopicState
from lvsearch.inference.topic_samplers.chain_inputs import GivenFactors, padded
from lvsearch.inference.topic_samplers.document_by_document import documents_in_random_order
from lvsearch.inference.topic_samplers.independent_documents import log_independent
from lvsearch.inference.topic_samplers.path_starts import steps_of_groups
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.kernels import kernel

AVERAGED = 30
"""The number of sweeps over which topics are averaged, after the first `SETTLING` ones."""
CANDIDATES = 32
"""The number of particles that make these sweeps: the particles with the highest joint density at the end of the
path.
"""
START, SAMPLES = 29, 64
"""The number of posterior draws of documents under given topics, and of importance samples around each."""
LEAST_ALPHA = 0.1
"""The smallest concentration α of a topic with which a path may start at given topics.

Draws of the start are sweeps of each document, which stick if α is small and two topics are alike. At 0.005 forward
paths ended up to 30 nats *above* the evidence, at 0.1 one group in many did, and from 0.2 on none. Without such a path,
the wide ends of the path from the prior remain.
"""
BROAD = 0.5
"""The smallest concentration per topic of the start at given topics, if α has a prior.

Draws of the start are sweeps of each document, which stick if α is small and two topics are alike. On a corpus of three
obvious topics, with K = 4 topics and a total of A = 0.017, the evidence is about −2,932 nats. Brackets with A/K ended
between −2,690 and −2,897, the forward paths above the backward ones. With 0.2, 0.5 and 1 the ends agreed within a nat.
"""


State = TypeVar("State", TopicState, HyperTopicState)


@runtime_checkable
class _TopicChain(Protocol[State]):
    """The methods that an LDA chain needs so that another path can start at its topics."""

    def take(self, state: State, particles: Array) -> State:
        """Return the state of the chosen particles, in the given order."""
        ...

    def topic_means(self, state: State) -> Array:
        """Return the posterior means of the topics' distributions over words given the tokens' topics, (word, topic,
        particle).
        """
        ...

    def log_density(self, state: State) -> Array:
        """Return log p(data, state) of each particle, (particle,), nats."""
        ...

    def log_hyper(self, state: State) -> tuple[Array | None, Array | None]:
        """Return the logarithms of (A = Σα, η) of each particle; None for one that is given."""
        ...

    def step(self, key: Array, state: State, temperature: Array, *, backward: bool) -> State:
        """Make one sweep over all tokens at a temperature from 0 (start) to 1 (posterior), and return the new state."""
        ...


class _BestParticle(NamedTuple):
    """Averages over sweeps of one particle: topics (word, topic), log of the total concentration A = K α, and log η.

    A hyper-parameter that is given is None.
    """

    topics: Float64[np.ndarray, "word topic"]
    log_total: float | None
    log_eta: float | None


@kernel()
def _averaged(chain: _TopicChain[State], key: Key[Array, ""], state: State) -> tuple[Array, Array, Any]:
    """Return averages over `AVERAGED` sweeps, after `SETTLING` other sweeps, of (topics, log joint, (log A, log η)).

    Topics are (word, topic, particle); the others are (particle,). A = Σα and η are None if they are given.
    """

    def observed(state: State) -> tuple[Array, Array, Any]:
        """Return the quantities to average at one state."""
        return chain.topic_means(state), chain.log_density(state), chain.log_hyper(state)

    def one(index: Array, carry: tuple[State, Any]) -> tuple[State, Any]:
        state = chain.step(jax.random.fold_in(key, index), carry[0], jnp.ones(()), backward=False)
        share = jnp.where(index < SETTLING, 0.0, 1 / AVERAGED)
        return state, jax.tree.map(lambda mean, now: mean + share * now, carry[1], observed(state))

    begin = state, jax.tree.map(jnp.zeros_like, observed(state))
    return jax.lax.fori_loop(0, SETTLING + AVERAGED, one, begin)[1]


def _average_of_best_particle(chain: _TopicChain[State], key: Key[Array, ""], states: Sequence[State]) -> _BestParticle:
    """Sweep the best particles of all states, and return averages of the one whose average joint density is highest.

    states: states of several groups of particles.
    """
    with jax.enable_x64(True):
        together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *states)
        best = np.argsort(-np.asarray(log_densities(chain, together)), kind="stable")[:CANDIDATES]
        together = chain.take(together, jnp.asarray(best))
        topics, log_density, log_hyper = jax.tree.map(np.asarray, _averaged(chain, key, together))
    highest = int(np.argmax(log_density))
    log_total, log_eta = (None if each is None else float(each[highest]) for each in log_hyper)
    return _BestParticle(np.asarray(topics[..., highest], np.float64), log_total, log_eta)


@chain_kit.register
def _kit_of_topics(chain: CollapsedTopics) -> ChainKit:
    """Return the kit of LDA: documents come in turn on a path from the prior, and a second path starts at topics.

    With one topic the cheapest annealing has one temperature: nothing is drawn then, and the evidence is exact.
    """
    alone = int((np.asarray(chain.alpha) > 0).sum()) == 1
    return ChainKit(
        sequential=partial(documents_in_random_order, chain) if chain.q is None else None,
        anchored=partial(_anchored_at_topics, chain),
        first_steps=lambda default: 1 if alone else steps_of_groups(chain, default),
    )


@chain_kit.register
def _kit_of_topics_and_hyperparameters(chain: HyperTopics) -> ChainKit:
    """Return the kit of LDA with priors of its hyper-parameters: a second path starts at topics and at numbers."""
    anchored = partial(_anchored_at_topics_and_hyperparameters, chain)
    return ChainKit(anchored=anchored, first_steps=partial(steps_of_groups, chain.topics))


def _anchored_at_topics(chain: CollapsedTopics, key: Key[Array, ""], states: Sequence[TopicState]) -> Anchor | None:
    """Return the path that starts at the topics of the best particle.

    It is None if α is too small to draw from the start of such a path.

    states: the ends of another path.
    """
    alpha = chain.alpha[chain.alpha > 0]
    if alpha.min() < LEAST_ALPHA:
        return None
    key_sweeps, key_start = jax.random.split(key)
    return _anchored_at(
        chain, alpha, float(chain.eta), _average_of_best_particle(chain, key_sweeps, states).topics, key_start
    )


def _anchored_at_topics_and_hyperparameters(
    chain: HyperTopics, key: Key[Array, ""], states: Sequence[HyperTopicState]
) -> Anchor | None:
    """Return the path that starts at topics and hyper-parameters of the best particle.

    It is None if α is given and too small to draw from the start of such a path.

    states: the ends of another path.
    """
    inner, total_course, eta_course = chain.topics, chain.total, chain.eta
    alpha, eta = inner.alpha[inner.alpha > 0], float(inner.eta)
    if total_course is None and alpha.min() < LEAST_ALPHA:
        return None
    key_sweeps, key_start = jax.random.split(key)
    settled = _average_of_best_particle(chain, key_sweeps, states)
    if total_course is not None and settled.log_total is not None:
        total = float(np.exp(settled.log_total))
        alpha = np.full(len(alpha), max(total / len(alpha), BROAD))
        total_course = total_course._replace(start=gamma_around(total))
    if eta_course is not None and settled.log_eta is not None:
        eta = float(np.exp(settled.log_eta))
        eta_course = eta_course._replace(start=gamma_around(eta))
    anchor = _anchored_at(inner, alpha, eta, settled.topics, key_start)
    return anchor._replace(
        chain=HyperTopics(cast(CollapsedTopics, anchor.chain), total_course, eta_course, chain.longer)
    )


def _anchored_at(
    chain: CollapsedTopics,
    alpha: Float[np.ndarray, " topic"],
    eta: float,
    means: Float[np.ndarray, "padded_word padded_topic"],
    key: Key[Array, ""],
) -> Anchor:
    """Return the path that starts at given topics, on the tokens of a chain (see `from_topics`).

    alpha, eta: concentrations of the proportions' and of the topics' prior.
    means: posterior means of the topics, not normalised, padded.
    key: the random key of the estimate of the evidence at the start.
    """
    n_topics, n_words = len(alpha), int(chain.vocabulary)
    topics = means[:n_words, :n_topics].T
    topics = topics / topics.sum(1, keepdims=True)
    real = chain.word >= 0
    place = chain.document[real], chain.word[real]
    counts = csr_array((np.ones(real.sum(), np.int64), place), shape=(chain.n_documents, n_words))
    counts.sum_duplicates()
    widths = chain.widths.astype(np.int64).tolist()
    return from_topics(counts, alpha, eta, len(chain.alpha), topics, key, widths)


def from_topics(
    counts: csr_array,
    alpha: Float[np.ndarray, " topic"],
    eta: float,
    capacity: int,
    topics: Float[np.ndarray, "topic word"],
    key: Key[Array, ""],
    widths: Sequence[int] | None = None,
) -> Anchor:
    """Return the path that starts at given topics φ, and the standard error of the log evidence of its start.

    counts: word counts, (document, word), whole numbers.
    alpha: the proportions' concentration on each topic, (topic,).
    eta: the concentration of the topics' prior.
    capacity: the least length of arrays over topics.
    topics: φ, all positive. A factor that is constant over topics of one word has no effect, so topics need not sum to
        1 in each block.
    key: the random key of the estimate of log p(words | φ, α), the evidence of the start.
    widths: number of words in each block of the vocabulary, one block after another; None for a single block.
    """
    key_draws, key_samples = jax.random.split(key)
    given = GivenFactors(None, np.log(topics).T)
    chain = collapsed_topics(counts, alpha, eta, capacity, given, widths=widths)
    log_topics = np.zeros((padded(counts.shape[1]), len(chain.alpha)))
    log_topics[: counts.shape[1], : len(alpha)] = given.words
    with jax.enable_x64(True):
        state = draw_from_q(chain, key_draws, particles=START)
        words = chain.words_of_documents()
        each, squared_errors = log_independent(
            key_samples, words, state.document_topic, chain.alpha, log_topics, samples=SAMPLES
        )
        log_start, error = np.sum(each), float(np.sqrt(np.sum(squared_errors)))
        return Anchor(eqx.tree_at(lambda c: c.log_start, chain, np.asarray(log_start, np.float64)), error)
