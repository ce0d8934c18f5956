"""LDA whose hyper-parameters have Gamma priors: in the collapsed chain each particle has its own A = Σα and η.

Here α and η are the concentrations of the proportions' and of the topics' prior. Let h be those that have a prior, z
the topics of all tokens, w the words, K the number of topics, α_k = A/K, and n the counts of the state (`chain`). A
path from q (t = 0) to the posterior (t = 1) is

    π_t(h, z) ∝ [q(h) q(z | h)]^(1−t) [p(h) p(z | A) p(w | z, η)]^t

    q(z | h) = p(z | A)                 q(h) = p(h): the prior of all latents
    q(z | h) = Π_i q_i(z_i)             q(h) = Gamma about the numbers of the fit that has these responsibilities
    q(z | h) = p(z | w, φ, α₀)          q(h) = Gamma about the numbers found with the topics φ, α₀ no smaller

A product of powers of two Gammas is a Gamma. So given z, on the log scale,

    log π_t(log A | z) = a_t log A − b_t A + s log p(z | A)       s = 1 if q(z | h) = p(z | A), else s = t
    log π_t(log η | z) = a_t log η − b_t η + t log p(w | z, η)    a_t, b_t: (1 − t) of q's shape and rate, t of p's

A and η are independent given z. Each is moved by one slice (`annealing.hyperparameters`), after the tokens in a forward
sweep and before them in a backward one. A slice move is reversible, so each step is the time reversal of the other.

log Γ(x + n) − log Γ(x) = Σ_{m<n} log(x + m) for whole n. So a sum of these over many counts is a sum over m of log(x +
m) times the number of counts beyond m. These numbers are computed once per move. Each value of the density then takes
as many logarithms as the largest count.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import Course, gamma_around, slice_sample
from lvsearch.inference.annealing.particle_arrays import ParticleArrays
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.topic_state import Concentrations, TopicState
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.lda import LDA

LEAST = 1e-15
"""The smallest hyper-parameter that sweeps of tokens use; below it float32 probabilities do not change."""


class HyperTopicState(NamedTuple):
    """The topics of all tokens, and hyper-parameters of each particle; None for a hyper-parameter that is given.

    | field | letter | shape |
    |---|---|---|
    | `topics` | z, the topics of all tokens, and their counts | `TopicState` |
    | `log_total` | log A, with A the total concentration of the proportions' prior | (particle,) |
    | `log_eta` | log η, with η the concentration of the topics' prior | (particle,) |
    """

    topics: TopicState
    log_total: Float[Array, " particle"] | None
    log_eta: Float[Array, " particle"] | None


class HyperTopics(ParticleArrays):
    """The annealing chain of LDA on one corpus at one size, in which hyper-parameters are latent variables too.

    | field | meaning |
    |---|---|
    | `topics` | the chain with given numbers; it holds q's α₀ and the hyper-parameters that are given |
    | `total`, `eta` | the paths of A = Σα and of η; None for one that is given, but not both |
    | `longer` | (m,) number of documents with more than m tokens |
    """

    topics: CollapsedTopics
    total: Course | None
    eta: Course | None
    longer: Float[np.ndarray, " m"]

    @property
    def elements(self) -> int:
        """The number of array slots for tokens, which is roughly the cost of a sweep."""
        return self.topics.elements

    @property
    def efficient_particles(self) -> int:
        """The number of particles that run side by side cheaply: up to it, twice as many take less than twice as
        long.
        """
        return self.topics.efficient_particles

    def init(self, key: Key[Array, ""], particles: int) -> HyperTopicState:
        """Draw independent particles from q, the distribution at the start: hyper-parameters first, then topics given
        these.
        """
        key_total, key_eta, key_topics = jax.random.split(key, 3)

        def drawn(course: Course | None, key: Array) -> Array | None:
            """Draw the logarithm of one hyper-parameter from its q, (particle,); None if it is given."""
            if course is None:
                return None
            shape, rate = course.start
            return log_gamma_draws(key, jnp.full(particles, shape, jnp.result_type(float))) - jnp.log(rate)

        log_total, log_eta = drawn(self.total, key_total), drawn(self.eta, key_eta)
        topics = self.topics.draw_particles(key_topics, particles, self._concentrations(log_total, log_eta))
        return HyperTopicState(topics, log_total, log_eta)

    def step(
        self, key: Key[Array, ""], state: HyperTopicState, temperature: Float[Array, ""], *, backward: bool
    ) -> HyperTopicState:
        """Draw every token's topic in turn, then move the hyper-parameters; in the reverse order if `backward`.

        temperature: the position on the path, from 0 (q) to 1 (the posterior).
        """
        key_topics, key_hyper = jax.random.split(key)
        if backward:
            state = self._move_hyper(key_hyper, state, temperature)
        concentrations = self._concentrations(state.log_total, state.log_eta)
        topics = self.topics.sweep(key_topics, state.topics, temperature, backward, concentrations)
        state = state._replace(topics=topics)
        return state if backward else self._move_hyper(key_hyper, state, temperature)

    def log_ratio(self, state: HyperTopicState) -> Float[Array, " particle"]:
        """Return log p(state, data) − log q(state) of each particle, (particle,), in nats."""
        topics = self.topics
        ratio = self._log_words(state)
        if topics.q is not None:
            ratio = ratio - topics.log_chosen(state.topics) + jnp.asarray(topics.log_start, ratio.dtype)
            if topics.independent:
                ratio = ratio + self._log_documents(state)
            elif self.total is not None:
                ratio = ratio + self._log_documents(state) - topics.log_documents(state.topics)
        for course, log_value in ((self.total, state.log_total), (self.eta, state.log_eta)):
            if course is not None and log_value is not None:
                ratio = ratio + course.log_ratio(log_value)
        return ratio

    def log_density(self, state: HyperTopicState) -> Float[Array, " particle"]:
        """Return log p(words, tokens' topics, hyper-parameters) of each particle, (particle,), in nats.

        It is a density of the hyper-parameters that have priors.
        """
        density = self._log_words(state) + self._log_documents(state)
        for course, log_value in ((self.total, state.log_total), (self.eta, state.log_eta)):
            if course is not None and log_value is not None:
                density = density + course.log_prior(log_value)
        return density

    def topic_means(self, state: HyperTopicState) -> Float[Array, "word topic particle"]:
        """Return the posterior means of the topics' distributions over words given tokens' topics and η, (word, topic,
        particle).
        """
        eta = jnp.asarray(self.topics.eta) if state.log_eta is None else jnp.exp(state.log_eta)
        base = state.topics.topic_total + eta * jnp.asarray(self.topics.widths)[:, None, None]
        return (state.topics.word_topic + eta) / base[jnp.asarray(self.topics.block)]

    def log_hyper(self, state: HyperTopicState) -> tuple[Array | None, Array | None]:
        """Return the natural logarithms of (A = Σα, η), each (particle,), or None for one that is given."""
        return state.log_total, state.log_eta

    def label_scores(self, state: HyperTopicState) -> Float[Array, "particle topic topic"] | None:
        """Return the scores by which `relabelling` draws how topics are named, (particle, topic, topic), nats.

        Hyper-parameters do not change under relabelling. If the path starts at the prior, the result is None.
        """
        return self.topics.label_scores(state.topics)

    def relabel(self, state: HyperTopicState, order: Int[Array, "particle topic"]) -> HyperTopicState:
        """Return the state in which topic l of each particle is called order[l]."""
        return state._replace(topics=self.topics.relabel(state.topics, order))

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _concentrations(self, log_total: Array | None, log_eta: Array | None) -> Concentrations:
        """Return α and η of each particle, for sweeps of the tokens; None for one that is given.

        log_total, log_eta: logarithms of A = Σα and of η, or None.
        """
        alpha = None
        if log_total is not None:
            exists = jnp.asarray(self.topics.alpha)[:, None] > 0
            alpha = jnp.where(exists, jnp.maximum(jnp.exp(log_total) / exists.sum(), LEAST), 0.0)
        return Concentrations(alpha, None if log_eta is None else jnp.maximum(jnp.exp(log_eta), LEAST))

    def _move_hyper(self, key: Array, state: HyperTopicState, temperature: Array) -> HyperTopicState:
        """Return the state with A = Σα and η moved given the topics, each by slice sampling; they are independent of
        each other.

        temperature: the position on the path, from 0 (q) to 1 (the posterior).
        """
        start, densities = [], []
        if self.total is not None and state.log_total is not None:
            power = jnp.ones(()) if self.topics.q is None else temperature
            start.append(state.log_total)
            densities.append((*self.total.gamma_at(temperature), power, self._documents(state.topics)))
        if self.eta is not None and state.log_eta is not None:
            start.append(state.log_eta)
            densities.append((*self.eta.gamma_at(temperature), temperature, self._words(state.topics)))

        def density(log_values: Array) -> Array:
            """Return the log density of each hyper-parameter given the topics, up to a constant, (hyper-parameter,
            particle), nats.
            """
            return jnp.stack(
                [
                    shape * log_value - rate * jnp.exp(log_value) + power * likelihood(log_value)
                    for log_value, (shape, rate, power, likelihood) in zip(log_values, densities, strict=True)
                ]
            )

        moved = iter(slice_sample(key, jnp.stack(start), density))
        return state._replace(
            log_total=None if self.total is None else next(moved), log_eta=None if self.eta is None else next(moved)
        )

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_words(self, state: HyperTopicState) -> Float[Array, " particle"]:
        """Return log p(words | tokens' topics, η) of each particle, (particle,), in nats."""
        if state.log_eta is None:
            return self.topics.log_words(state.topics)
        return self._words(state.topics)(state.log_eta)

    def _log_documents(self, state: HyperTopicState) -> Float[Array, " particle"]:
        """Return log p(tokens' topics | A) of each particle, (particle,), in nats, where A = Σα."""
        if state.log_total is None:
            return self.topics.log_documents(state.topics)
        return self._documents(state.topics)(state.log_total)

    def _words(self, topics: TopicState) -> Callable[[Array], Array]:
        """Return the function log η -> log p(words | tokens' topics, η), (particle,), in nats.

        It is Σ_m #{n_kw > m} log(η + m) − Σ_k [log Γ(Vη + n_k) − log Γ(Vη)], with counts n and V words.
        """
        beyond = _numbers_greater_than(topics.word_topic, len(self.topics.log_gamma_word))

        def log_words(log_eta: Array) -> Array:
            base = jnp.exp(log_eta) * jnp.asarray(self.topics.widths)[:, None, None]
            rising = log_gamma_positive(base + topics.topic_total.astype(base.dtype)) - log_gamma_positive(base)
            return _log_rising(log_eta, beyond) - rising.sum((0, 1))

        return log_words

    def _documents(self, topics: TopicState) -> Callable[[Array], Array]:
        """Return the function log A -> log p(tokens' topics | A), (particle,), in nats, where A = Σα.

        It is Σ_m #{n_dk > m} log(A/K + m) − Σ_m #{N_d > m} log(A + m), with counts n, K topics and N_d tokens of
        document d.
        """
        beyond = _numbers_greater_than(topics.document_topic, self.topics.log_gamma_document.shape[1])
        log_topics = jnp.log((jnp.asarray(self.topics.alpha) > 0).sum())
        longer = jnp.asarray(self.longer)[:, None]
        return lambda log_total: _log_rising(log_total - log_topics, beyond) - _log_rising(log_total, longer)


def _numbers_greater_than(counts: Float[Array, "row topic particle"], length: int) -> Float[Array, "m particle"]:
    """Return how many counts of each particle are greater than m, for m = 0 … length − 1, (m, particle)."""
    particles = counts.shape[-1]
    flat = counts.reshape(-1, particles).astype(jnp.int32)
    of_size = jnp.zeros((length + 1, particles), jnp.float32).at[flat, jnp.arange(particles)].add(1.0)
    return jnp.cumsum(of_size[:0:-1], axis=0)[::-1]


def _log_rising(log_value: Float[Array, " particle"], beyond: Float[Array, "m #particle"]) -> Float[Array, " particle"]:
    """Return Σ_n [log Γ(x + n) − log Γ(x)] over many counts n, for x = e^log_value, (particle,).

    It is computed as Σ_m beyond_m log(x + m). The term m = 0 uses the logarithm itself, so that no x underflows.

    beyond: how many of the counts are greater than m, for m = 0, 1, …
    """
    m = jnp.arange(1, len(beyond), dtype=log_value.dtype)[:, None]
    weights = beyond.astype(log_value.dtype)
    return weights[0] * log_value + (weights[1:] * jnp.log(jnp.exp(log_value) + m)).sum(0)


def hyper_topics(model: LDA, chain: CollapsedTopics, about: LDA | None) -> HyperTopics:
    """Return the chain in which the hyper-parameters of `model` that have priors are latent variables.

    model: the LDA whose priors are used.
    chain: the chain with given numbers.
    about: a model with the numbers about which the Gammas of q, at the start, lie; None: q is the prior.

    Raises ValueError for a model without priors.
    """
    if not model.inferred:
        raise ValueError("got an LDA whose hyper-parameters are given, expected a GammaPrior of one at least")
    centres = None if about is None else about.numbers_by_name()

    def course(name: str) -> Course | None:
        """Return the path of the hyper-parameter of this name, or None if it has no prior."""
        prior = model.inferred.get(name)
        if prior is None:
            return None
        return Course(prior, prior if centres is None else gamma_around(centres[name]))

    document = chain.document[chain.document >= 0]
    lengths = np.bincount(document) if len(document) else np.zeros(1, np.int64)
    m = np.arange(chain.log_gamma_document.shape[1])
    longer = np.bincount(lengths, minlength=len(m) + 1)[::-1].cumsum()[::-1][1:].astype(np.float64)
    return HyperTopics(chain, course("concentration"), course("topic_concentration"), longer)
