"""A shorter annealing path of LDA that begins with the topics in which another path ended.

The path from the prior ends in particles. They make some sweeps at temperature 1, and the one with the highest joint
density gives the topics φ. The second path begins from these: q = p(z | w, φ, α) (see `chain`). The evidence of q, log
p(w | φ, α), is estimated document by document (`from_topics`). Hyper-parameters with priors begin about the values that
the particle had.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Key
from scipy.sparse import csr_array

from lvsearch.inference.annealing.dispatch import Anchor, anchored_chain
from lvsearch.inference.annealing.hyperparameters import gamma_about
from lvsearch.inference.annealing.particles import drawn, log_densities
from lvsearch.inference.topic_samplers.chain import SETTLING, CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, HyperTopicState
from lvsearch.inference.topic_samplers.given import GivenFactors, padded
from lvsearch.inference.topic_samplers.independent_documents import log_independent
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.kernels import kernel

AVERAGED = 30
"""Number of sweeps over which topics are averaged, after the first `SETTLING` ones."""
CANDIDATES = 32
"""Number of particles that make these sweeps: those with the highest joint density where the path ended."""
START, SAMPLES = 29, 64
"""Number of posterior draws of documents under given topics, and of importance samples around each."""
LEAST_ALPHA = 0.1
"""Smallest α of a topic with which a path may begin from given topics.

Draws of q are sweeps of each document, which stick where α is small and two topics are alike. At 0.005 forward paths
ended up to 30 nats *above* the evidence, at 0.1 one group in many did, and from 0.2 on none. Without such a path, the
wide ends of the path from the prior remain.
"""
BROAD = 0.5
"""Smallest α₀ per topic of a q that begins with given topics, where α has a prior.

Draws of q are sweeps of each document, which stick where α is small and two topics are alike. On a corpus of three
obvious topics, K = 4 and A = 0.017, the evidence is about −2,932 nats. Brackets with α₀ = A/K ended between −2,690
and −2,897, the forward paths above the backward ones. With 0.2, 0.5 and 1 the ends agreed within a nat.
"""


State = TypeVar("State", TopicState, HyperTopicState)


@runtime_checkable
class _TopicChain(Protocol[State]):
    """The methods that an LDA chain needs so that its topics can start another path."""

    def take(self, state: State, particles: Array) -> State:
        """Return the chosen particles, in the given order."""
        ...

    def topic_means(self, state: State) -> Array:
        """Return posterior means of the topics given the tokens' topics, (word, topic, particle)."""
        ...

    def log_density(self, state: State) -> Array:
        """Return log p(data, state) of each particle, nats."""
        ...

    def log_hyper(self, state: State) -> tuple[Array | None, Array | None]:
        """Return log A and log η of each particle; None where they are given."""
        ...

    def step(self, key: Array, state: State, temperature: Array, *, backward: bool) -> State:
        """Make one sweep that leaves π_t unchanged."""
        ...


class _Settled(NamedTuple):
    """Topics (word, topic), log A and log η of one particle; None for hyper-parameters that are given."""

    topics: Float64[np.ndarray, "word topic"]
    log_total: float | None
    log_eta: float | None


@kernel()
def _averaged(chain: _TopicChain[State], key: Key[Array, ""], state: State) -> tuple[Array, Array, Any]:
    """Return averages of topics, log joint and (log A, log η) over `AVERAGED` sweeps, after `SETTLING` other sweeps."""

    def observed(state: State) -> tuple[Array, Array, Any]:
        """Return the quantities to average at one state."""
        return chain.topic_means(state), chain.log_density(state), chain.log_hyper(state)

    def one(index: Array, carry: tuple[State, Any]) -> tuple[State, Any]:
        state = chain.step(jax.random.fold_in(key, index), carry[0], jnp.ones(()), backward=False)
        share = jnp.where(index < SETTLING, 0.0, 1 / AVERAGED)
        return state, jax.tree.map(lambda mean, now: mean + share * now, carry[1], observed(state))

    begin = state, jax.tree.map(jnp.zeros_like, observed(state))
    return jax.lax.fori_loop(0, SETTLING + AVERAGED, one, begin)[1]


def _settled(chain: _TopicChain[State], key: Key[Array, ""], states: Sequence[State]) -> _Settled:
    """Sweep the best particles of all these, and return averages of the one whose average joint is highest."""
    with jax.enable_x64(True):
        together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *states)
        best = np.argsort(-np.asarray(log_densities(chain, together)), kind="stable")[:CANDIDATES]
        together = chain.take(together, jnp.asarray(best))
        topics, log_density, log_hyper = jax.tree.map(np.asarray, _averaged(chain, key, together))
    highest = int(np.argmax(log_density))
    log_total, log_eta = (None if each is None else float(each[highest]) for each in log_hyper)
    return _Settled(np.asarray(topics[..., highest], np.float64), log_total, log_eta)


@anchored_chain.register
def _(chain: CollapsedTopics, key: Key[Array, ""], states: Sequence[TopicState]) -> Anchor | None:
    """Return the path from the topics of the best particle; None where α is too small to draw from q."""
    alpha = chain.alpha[chain.alpha > 0]
    if alpha.min() < LEAST_ALPHA:
        return None
    key_sweeps, key_start = jax.random.split(key)
    return _anchored_at(chain, alpha, float(chain.eta), _settled(chain, key_sweeps, states).topics, key_start)


@anchored_chain.register
def _(chain: HyperTopics, key: Key[Array, ""], states: Sequence[HyperTopicState]) -> Anchor | None:
    """Return the path from the topics of the best particle; None where α is given and too small to draw from q."""
    inner, total_course, eta_course = chain.topics, chain.total, chain.eta
    alpha, eta = inner.alpha[inner.alpha > 0], float(inner.eta)
    if total_course is None and alpha.min() < LEAST_ALPHA:
        return None
    key_sweeps, key_start = jax.random.split(key)
    settled = _settled(chain, key_sweeps, states)
    if total_course is not None and settled.log_total is not None:
        total = float(np.exp(settled.log_total))
        alpha = np.full(len(alpha), max(total / len(alpha), BROAD))
        total_course = total_course._replace(start=gamma_about(total))
    if eta_course is not None and settled.log_eta is not None:
        eta = float(np.exp(settled.log_eta))
        eta_course = eta_course._replace(start=gamma_about(eta))
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
    """Return the path of `from_topics` on a chain's tokens.

    means: posterior means of the topics, not normalised, padded.
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
    """Return the path that begins with given topics, and the standard error of its first distribution's evidence.

    topics: φ, all positive. A factor that is constant over topics of one word has no effect, so topics need not sum to
        1 in each block.
    key: for the evidence under these topics, which is estimated.

    See `collapsed_topics` for the other arguments.
    """
    key_draws, key_samples = jax.random.split(key)
    given = GivenFactors(None, np.log(topics).T)
    chain = collapsed_topics(counts, alpha, eta, capacity, given, widths=widths)
    log_topics = np.zeros((padded(counts.shape[1]), len(chain.alpha)))
    log_topics[: counts.shape[1], : len(alpha)] = given.words
    with jax.enable_x64(True):
        state = drawn(chain, key_draws, particles=START)
        words = chain.words_of_documents()
        each, squared_errors = log_independent(
            key_samples, words, state.document_topic, chain.alpha, log_topics, samples=SAMPLES
        )
        log_start, error = np.sum(each), float(np.sqrt(np.sum(squared_errors)))
        return Anchor(eqx.tree_at(lambda c: c.log_start, chain, np.asarray(log_start, np.float64)), error)
