"""Two further annealing paths that LDA's chains offer the annealer: documents that arrive in turn, and a
shorter path that starts at given topics.

**Documents in turn.** Documents arrive one after another, token by token, while topics may still move (left to right).

    p(w_i | tokens before, z) = Σ_k (n_dk + α_k) / (n_d + A) · (n_kw + η) / (n_k + Vη),      A = Σ_k α_k.

Counts are of the tokens before token i, including those of the same document: n_dk of topic k in the document, n_d of
the document, n_kw of the word in topic k, n_k of topic k. There are V words, and α and η are the concentrations of the
priors. This is the conditional of the collapsed sweep (`chain`), whose normaliser is the weight.

Source: Wallach, Murray, Salakhutdinov & Mimno 2009, who do so for one document under given topics.

**A start at topics.** The shorter path starts at the topics in which another path ended. The path from the prior ends
in particles. They make some sweeps at temperature 1, and the one with the highest joint density gives the topics φ. The
second path starts at q = p(z | w, φ, α), the posterior of the tokens' topics z given words w, topics φ and
concentration α (see `chain`). The evidence of q, log p(w | φ, α), is estimated document by document (`from_topics`,
`log_independent`). Hyper-parameters with priors begin about the values that the particle had.

This estimate is made by importance sampling from draws of the documents' posterior. With topics φ and concentration α
given, documents are independent. Let w_d be the words of document d, z the topics of its tokens, n_d(z) their counts by
topic, and θ_d its proportions. Then θ_d | z is Dirichlet(α + n_d(z)). So draws z^1, …, z^P of the posterior make q(θ) =
(1/P) Σ_p Dirichlet(θ; α + n_d(z^p)), which converges to the posterior of θ_d itself, and

    p(w_d | φ, α) = E_{θ ~ q} [ Dirichlet(θ; α) / q(θ) · Π_i Σ_k θ_k φ_k,w_i ]

has weights that hardly vary. The prior is one more component of q, so weights are bounded, and the average is unbiased
whatever the draws are. For a mean-field q see `lvsearch.inference.likelihood`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Key
from scipy.sparse import csr_array

from lvsearch.inference.annealing.anchors import SettlingRun, settle_best_particles
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import gamma_around
from lvsearch.inference.annealing.particles import draw_from_q
from lvsearch.inference.chains import Anchor
from lvsearch.inference.generators import generator
from lvsearch.inference.topic_samplers.chain import SETTLING, CollapsedTopics, collapsed_topics
from lvsearch.inference.topic_samplers.chain_hyperparameters import HyperTopics, HyperTopicState
from lvsearch.inference.topic_samplers.topic_state import GivenFactors, TokenPlace, TopicState, padded, redraw_token
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.kernels import kernel


class DocumentByDocument(eqx.Module):
    """A chain of LDA from the prior, and the order in which its documents arrive; it satisfies `Sequential`.

    | field | shape | meaning |
    |---|---|---|
    | `chain` | | the chain, which holds the tokens |
    | `tokens` | (token,) | tokens of the chain, document after document in that order; padding last |
    | `ends` | (document,) | number of tokens up to the end of each document; at padding all tokens |
    | `n_units` | () | number of documents without padding |
    """

    chain: CollapsedTopics
    tokens: Int[np.ndarray, " token"]
    ends: Int[np.ndarray, " document"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        """The number of documents, including padding."""
        return len(self.ends)

    def on_way_back(self, state: TopicState) -> "DocumentByDocument":
        """Return the sampler itself: the way back ends where the way up began, before any document."""
        return self

    def initial_state(self, key: Key[Array, ""], particles: int) -> TopicState:
        """Return the state before any document has arrived, in which no token has a topic (−1). `key` is not used."""
        return self.chain.state_of_topics(jnp.full((len(self.tokens), particles), -1, jnp.int32))

    def append(
        self, key: Key[Array, ""], state: TopicState, unit: Int[Array, ""]
    ) -> tuple[TopicState, Float[Array, " particle"]]:
        """Add a document and draw the topics of its tokens in order.

        unit: the document's position in the order of arrival.

        Returns: (the new state, log p(document's words | documents before and topics drawn on the way), (particle,),
            nats).
        """
        first, last = self._tokens_of(unit)

        def one(place: Array, carry: tuple[TopicState, Array]) -> tuple[TopicState, Array]:
            state, gain = carry
            state, total = self._redraw_token(jax.random.fold_in(key, place), state, jnp.asarray(self.tokens)[place])
            return state, gain + self._log_token(total, place - first)

        return jax.lax.fori_loop(first, last, one, (state, self._zero(state)))

    def remove(
        self, key: Key[Array, ""], state: TopicState, unit: Int[Array, ""]
    ) -> tuple[TopicState, Float[Array, " particle"]]:
        """Remove the last document's tokens in reverse order, which undoes `append`.

        unit: the document's position in the order of arrival.

        Returns: (the new state, the log-probability that `append` would return for the topics that the tokens had,
            nats).
        """
        first, last = self._tokens_of(unit)

        def one(done: Array, carry: tuple[TopicState, Array]) -> tuple[TopicState, Array]:
            state, gain = carry
            place = last - 1 - done
            state, total = self._redraw_token(None, state, jnp.asarray(self.tokens)[place])
            return state, gain + self._log_token(total, place - first)

        return jax.lax.fori_loop(0, last - first, one, (state, self._zero(state)))

    def revisit(self, key: Key[Array, ""], state: TopicState, units: Int[Array, ""], *, backward: bool) -> TopicState:
        """Draw the topics of all tokens of the first `units` documents again, in reverse order if `backward`; return
        the state.
        """
        last = jnp.asarray(self.ends)[units - 1]

        def one(done: Array, state: TopicState) -> TopicState:
            token = jnp.asarray(self.tokens)[last - 1 - done if backward else done]
            return self._redraw_token(jax.random.fold_in(key, done), state, token)[0]

        return jax.lax.fori_loop(0, last, one, state)

    def take(self, state: TopicState, particles: Int[Array, " chosen"]) -> TopicState:
        """Return the state of the chosen particles, in the given order. A particle may be chosen several times."""
        return self.chain.take(state, particles)

    def _tokens_of(self, unit: Int[Array, ""]) -> tuple[Array, Array]:
        """Return where a document's tokens begin and end in `tokens`: (position of the first, position after the
        last).
        """
        ends = jnp.asarray(self.ends)
        return jnp.where(unit > 0, ends[unit - 1], 0), ends[unit]

    def _zero(self, state: TopicState) -> Float[Array, " particle"]:
        """Return 0 for each particle, (particle,)."""
        return jnp.zeros(state.assignment.shape[1])

    def _redraw_token(
        self, key: Key[Array, ""] | None, state: TopicState, token: Int[Array, ""]
    ) -> tuple[TopicState, Float[Array, " particle"]]:
        """Draw a token's topic given all others, or take its topic away (−1) if `key` is None.

        Returns: (the new state, Σ_k (n_dk + α_k) (n_kw + η) / (n_k + Vη) from counts without the token, (particle,)).
        """
        chain = self.chain
        alpha, eta = jnp.asarray(chain.alpha, jnp.float32)[:, None], jnp.asarray(chain.eta, jnp.float32)
        word = jnp.asarray(chain.word)[token]
        block = jnp.asarray(chain.block)[word]
        total_eta = eta * jnp.asarray(chain.widths, jnp.float32)[block]
        at = TokenPlace(token, jnp.asarray(chain.document)[token], word, block)
        uniform = None if key is None else jax.random.uniform(key, state.assignment.shape[1:], jnp.float32)

        def weights(of_document: Array, of_word: Array, total: Array) -> Array:
            return jnp.where(alpha > 0, of_document + alpha, 0.0) * (of_word + eta) / (total + total_eta)

        return redraw_token(state, at, weights, uniform)

    def _log_token(self, total: Float[Array, " particle"], before: Int[Array, ""]) -> Float[Array, " particle"]:
        """Return log p(token | tokens before), (particle,), in nats.

        total: the sum that `_redraw_token` returned.
        before: number of tokens before this one in the document.
        """
        concentration = jnp.asarray(self.chain.alpha, jnp.result_type(float)).sum()
        return jnp.log(total.astype(concentration.dtype)) - jnp.log(before + concentration)


def documents_in_random_order(chain: CollapsedTopics, key: Key[Array, ""]) -> DocumentByDocument:
    """Return the documents of a chain from the prior in a random order of arrival."""
    real = np.flatnonzero(chain.word >= 0)
    document = chain.document[real]
    order = generator(key).permutation(np.unique(document))  # documents without tokens have probability 1
    lengths = np.bincount(document, minlength=chain.n_documents)
    rank = np.empty(chain.n_documents, np.int64)
    rank[order] = np.arange(len(order))
    tokens = np.concatenate([real[np.argsort(rank[document], kind="stable")], np.flatnonzero(chain.word < 0)])
    ends = np.pad(np.cumsum(lengths[order]), (0, chain.n_documents - len(order)), mode="edge")
    return DocumentByDocument(chain, tokens.astype(np.int32), ends.astype(np.int32), np.asarray(len(order), np.int32))


MEAN_SHARES = (1.0, 0.5, 0.0)
"""Shares of the mean counts that make further components of q, because few draws of z miss much that is probable."""


@kernel(static_argnames=("samples",))
def log_independent(
    key: Key[Array, ""],
    word: Int[Array, "document token"],
    document_topic: Float[Array, "document topic particle"],
    alpha: Float[Array, " topic"],
    log_topics: Float[Array, "word topic"],
    *,
    samples: int,
) -> tuple[Float[Array, " document"], Float[Array, " document"]]:
    """Estimate log p(words | topics, α) of each document by importance sampling.

    word: words of each document, −1 for padding.
    document_topic: how many tokens of each document are in each topic, in posterior draws of the tokens' topics.
    alpha: the proportions' concentration on each topic, 0 for topics that do not exist.
    log_topics: log probability of each word in each topic.
    samples: number of samples from each component of the proposal distribution.

    Returns: (the estimates, nats, corrected for the bias of the logarithm; their squared standard errors).
    """
    exists = alpha > 0
    safe = jnp.where(exists, alpha, 1.0)
    topics = jnp.where(exists, jnp.exp(log_topics), 0.0)
    mean = document_topic.mean(2, keepdims=True)
    broadened = [share * mean for share in MEAN_SHARES]
    components = jnp.concatenate([document_topic, *broadened], axis=2).astype(topics.dtype)

    def one(given: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        """Return (the estimated log evidence of one document, its squared standard error)."""
        key, words, counts = given
        shape = jnp.where(exists[:, None], safe[:, None] + counts, 1.0)
        log_gamma = log_gamma_draws(key, jnp.broadcast_to(shape, (samples, *shape.shape)))
        log_gamma = jnp.where(exists[:, None], log_gamma, -jnp.inf)
        log_theta = log_gamma - jax.nn.logsumexp(log_gamma, axis=1, keepdims=True)
        log_theta = jnp.moveaxis(log_theta, 1, 2).reshape(-1, len(alpha))
        likelihood = jnp.exp(log_theta) @ topics[jnp.maximum(words, 0)].T
        fit = jnp.where(words >= 0, jnp.log(jnp.where(words >= 0, likelihood, 1.0)), 0.0).sum(1)
        # log Dir(θ; α + n) / Dir(θ; α) = Σ_k n_k log θ_k − log Γ(α_k + n_k) + log Γ(α_k) + log Γ(A + N) − log Γ(A)
        total = jnp.where(exists, alpha, 0.0).sum()
        constant = log_gamma_positive(total + counts.sum(0)) - log_gamma_positive(total)
        constant -= jnp.where(exists[:, None], log_gamma_positive(shape) - log_gamma_positive(safe)[:, None], 0.0).sum(
            0
        )
        log_ratio = jnp.where(exists, log_theta, 0.0) @ counts + constant
        log_weight = fit - (jax.nn.logsumexp(log_ratio, axis=1) - jnp.log(counts.shape[1]))
        estimate = jax.nn.logsumexp(log_weight) - jnp.log(len(log_weight))
        squared_error = jnp.var(jnp.exp(log_weight - estimate)) / len(log_weight)
        return estimate + 0.5 * squared_error, squared_error

    return jax.lax.map(one, (jax.random.split(key, len(word)), word, components))


TOPICS_RUN = SettlingRun(settling=SETTLING, averaged=30, particles=32)
"""The run of the particles whose topics are averaged.

It is longer than that of labels (`LABELS_RUN`): the path starts at the averaged topics themselves, and nothing of q
makes up for their noise.
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


class _BestParticle(NamedTuple):
    """Averages over sweeps of one particle: topics (word, topic), log of the total concentration A = K α, and log η.

    A hyper-parameter that is given is None.
    """

    topics: Float64[np.ndarray, "word topic"]
    log_total: float | None
    log_eta: float | None


def _describe_topics(chain: Any, state: Any) -> tuple[Array, tuple[Array | None, Array | None]]:
    """Return the posterior means of topics given the tokens' topics, (word, topic, particle), and (log A, log η).

    The latter are (particle,), and None if they are given. A = Σα.
    """
    return chain.topic_means(state), chain.log_hyper(state)


def _average_best_particle(
    chain: CollapsedTopics | HyperTopics, key: Key[Array, ""], states: Sequence[TopicState | HyperTopicState]
) -> _BestParticle:
    """Sweep the best particles of all states, and return averages of the one whose average joint density is highest.

    states: states of several groups of particles.
    """
    topics, hyper = settle_best_particles(chain, key, states, _describe_topics, TOPICS_RUN).averages
    log_total, log_eta = (None if each is None else float(each) for each in hyper)
    return _BestParticle(np.asarray(topics, np.float64), log_total, log_eta)


def documents_in_turn(chain: CollapsedTopics, key: Key[Array, ""]) -> Any:
    """Return the documents in an order drawn with the key; None on a path from a fit, where they do not come in
    turn.
    """
    return documents_in_random_order(chain, key) if chain.q is None else None


def anchor_of_topics(chain: CollapsedTopics, key: Key[Array, ""], states: Sequence[TopicState]) -> Anchor | None:
    """Return the path that starts at the topics of the best particle.

    It is None if α is too small to draw from the start of such a path.

    states: the ends of another path.
    """
    alpha = chain.alpha[chain.alpha > 0]
    if alpha.min() < LEAST_ALPHA:
        return None
    key_sweeps, key_start = jax.random.split(key)
    return _anchored_at(
        chain, alpha, float(chain.eta), _average_best_particle(chain, key_sweeps, states).topics, key_start
    )


def anchor_of_hyper_topics(chain: HyperTopics, key: Key[Array, ""], states: Sequence[HyperTopicState]) -> Anchor | None:
    """Return the path that starts at topics and hyper-parameters of the best particle.

    It is None if α is given and too small to draw from the start of such a path.

    states: the ends of another path.
    """
    inner, total_course, eta_course = chain.topics, chain.total, chain.eta
    alpha, eta = inner.alpha[inner.alpha > 0], float(inner.eta)
    if total_course is None and alpha.min() < LEAST_ALPHA:
        return None
    key_sweeps, key_start = jax.random.split(key)
    settled = _average_best_particle(chain, key_sweeps, states)
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
    seeds = None if chain.seeds is None else np.asarray(chain.seeds.words, np.float64)[:n_words, :n_topics].T
    return from_topics(counts, alpha, eta, len(chain.alpha), topics, key, widths, seeds)


def from_topics(
    counts: csr_array,
    alpha: Float[np.ndarray, " topic"],
    eta: float,
    capacity: int,
    topics: Float[np.ndarray, "topic word"],
    key: Key[Array, ""],
    widths: Sequence[int] | None = None,
    seeds: Float[np.ndarray, "seeded word"] | None = None,
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
    seeds: imaginary tokens of each word in each topic, (topic, word); None if all topics are free.
    """
    key_draws, key_samples = jax.random.split(key)
    given = GivenFactors(None, np.log(topics).T)
    chain = collapsed_topics(counts, alpha, eta, capacity, given, widths=widths, seeds=seeds)
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
