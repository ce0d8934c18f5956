"""LDA whose hyper-parameters have Gamma priors: the collapsed chain in which each particle has its own A = Σα and η.

With h the hyper-parameters that have a prior, K topics, α_k = A/K and n the counts of the state (`chain`), a path is

    π_t(h, z) ∝ [q(h) q(z | h)]^(1−t) [p(h) p(z | A) p(w | z, η)]^t

    q(z | h) = p(z | A)                 q(h) = p(h): the prior of all latents
    q(z | h) = Π_i q_i(z_i)             q(h) = Gamma about the numbers of the fit that has these responsibilities
    q(z | h) = p(z | w, φ, α₀)          q(h) = Gamma about the numbers found with the topics φ, α₀ no smaller

A product of powers of two Gammas is a Gamma. So given z, on the log scale,

    log π_t(log A | z) = a_t log A − b_t A + s log p(z | A)       s = 1 where q(z | h) = p(z | A), else s = t
    log π_t(log η | z) = a_t log η − b_t η + t log p(w | z, η)    a_t, b_t: (1 − t) of q's shape and rate, t of p's

A and η are independent given z. Each is moved by one slice (`annealing.hyperparameters`), after the tokens in a forward
sweep and before them in a backward one. A slice move is reversible, so each step is the time reversal of the other.

log Γ(x + n) − log Γ(x) = Σ_{m<n} log(x + m) for whole n. So a sum of these over many counts is a sum over m of log(x +
m) times the number of counts beyond m. These numbers are computed once per move. Each value of the density then takes
as many logarithms as the largest count.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.dispatch import evidence_chain, first_steps
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import Course, gamma_about, slice_moved
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.topic_samplers.beginning import steps_of_groups, topics_chain
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.given import Concentrations
from lvsearch.inference.topic_samplers.topic_state import TopicState
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.lda import LDA

LEAST = 1e-15
"""Smallest hyper-parameter that sweeps of tokens use; below it float32 probabilities do not change."""


class HyperTopicState(NamedTuple):
    """Topics of all tokens and hyper-parameters of each particle; None where the hyper-parameter is given.

    | field | letter | shape |
    |---|---|---|
    | `topics` | z and its counts | `TopicState` |
    | `log_total` | log A | (particle,) |
    | `log_eta` | log η | (particle,) |
    """

    topics: TopicState
    log_total: Float[Array, " particle"] | None
    log_eta: Float[Array, " particle"] | None


class HyperTopics(eqx.Module):
    """The chain of one corpus at one size, with hyper-parameters annealed together with the topics.

    | field | meaning |
    |---|---|
    | `topics` | the chain with given numbers; it holds q's α₀ and the hyper-parameters that are given |
    | `total`, `eta` | the paths of A and η; None where given, but not both |
    | `longer` | (m,) number of documents with more than m tokens |
    """

    topics: CollapsedTopics
    total: Course | None
    eta: Course | None
    longer: Float[np.ndarray, " m"]

    @property
    def elements(self) -> int:
        """The number of places for tokens, which is roughly the cost of a sweep."""
        return self.topics.elements

    @property
    def lanes(self) -> int:
        """The number of particles up to which twice as many take less than twice as long."""
        return self.topics.lanes

    @property
    def directed(self) -> bool:
        """Whether a backward sweep differs from a forward one."""
        return True

    def init(self, key: Key[Array, ""], particles: int) -> HyperTopicState:
        """Draw hyper-parameters from q, then topics given these."""
        key_total, key_eta, key_topics = jax.random.split(key, 3)

        def drawn(course: Course | None, key: Array) -> Array | None:
            """Draw log values of one hyper-parameter from its q."""
            if course is None:
                return None
            shape, rate = course.start
            return log_gamma_draws(key, jnp.full(particles, shape, jnp.result_type(float))) - jnp.log(rate)

        log_total, log_eta = drawn(self.total, key_total), drawn(self.eta, key_eta)
        topics = self.topics.drawn(key_topics, particles, self._concentrations(log_total, log_eta))
        return HyperTopicState(topics, log_total, log_eta)

    def step(
        self, key: Key[Array, ""], state: HyperTopicState, temperature: Float[Array, ""], *, backward: bool
    ) -> HyperTopicState:
        """Draw every token in turn, then move the hyper-parameters; in the reverse order if `backward`."""
        key_topics, key_hyper = jax.random.split(key)
        if backward:
            state = self._move_hyper(key_hyper, state, temperature)
        concentrations = self._concentrations(state.log_total, state.log_eta)
        topics = self.topics.swept(key_topics, state.topics, temperature, backward, concentrations)
        state = state._replace(topics=topics)
        return state if backward else self._move_hyper(key_hyper, state, temperature)

    def log_ratio(self, state: HyperTopicState) -> Float[Array, " particle"]:
        """Return log p(state, data) − log q(state) of each particle, nats."""
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
        """Return log p(w, z, h) of each particle, nats, a density of the hyper-parameters that have priors."""
        density = self._log_words(state) + self._log_documents(state)
        for course, log_value in ((self.total, state.log_total), (self.eta, state.log_eta)):
            if course is not None and log_value is not None:
                density = density + course.log_prior(log_value)
        return density

    def topic_means(self, state: HyperTopicState) -> Float[Array, "word topic particle"]:
        """Return posterior means of the topics given the tokens' topics and η."""
        eta = jnp.asarray(self.topics.eta) if state.log_eta is None else jnp.exp(state.log_eta)
        base = state.topics.topic_total + eta * jnp.asarray(self.topics.widths)[:, None, None]
        return (state.topics.word_topic + eta) / base[jnp.asarray(self.topics.block)]

    def log_hyper(self, state: HyperTopicState) -> tuple[Array | None, Array | None]:
        """Return the natural logarithms of A and η, each (particle,), or None where given."""
        return state.log_total, state.log_eta

    def label_scores(self, state: HyperTopicState) -> Float[Array, "particle topic topic"] | None:
        """Return the label scores of the topics, nats. Hyper-parameters do not change under relabelling."""
        return self.topics.label_scores(state.topics)

    def relabel(self, state: HyperTopicState, order: Int[Array, "particle topic"]) -> HyperTopicState:
        """Return the state in which topic l of each particle becomes topic order[l]."""
        return state._replace(topics=self.topics.relabel(state.topics, order))

    def take(self, state: HyperTopicState, particles: Int[Array, " chosen"]) -> HyperTopicState:
        """Return the chosen particles, in the given order."""
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _concentrations(self, log_total: Array | None, log_eta: Array | None) -> Concentrations:
        """Return α and η of each particle, for sweeps of the tokens."""
        alpha = None
        if log_total is not None:
            exists = jnp.asarray(self.topics.alpha)[:, None] > 0
            alpha = jnp.where(exists, jnp.maximum(jnp.exp(log_total) / exists.sum(), LEAST), 0.0)
        return Concentrations(alpha, None if log_eta is None else jnp.maximum(jnp.exp(log_eta), LEAST))

    def _move_hyper(self, key: Array, state: HyperTopicState, temperature: Array) -> HyperTopicState:
        """Move A and η given the topics, each by one slice; they are independent of each other."""
        start, densities = [], []
        if self.total is not None and state.log_total is not None:
            power = jnp.ones(()) if self.topics.q is None else temperature
            start.append(state.log_total)
            densities.append((*self.total.at(temperature), power, self._documents(state.topics)))
        if self.eta is not None and state.log_eta is not None:
            start.append(state.log_eta)
            densities.append((*self.eta.at(temperature), temperature, self._words(state.topics)))

        def density(log_values: Array) -> Array:
            """Return log π_t of each hyper-parameter given the topics, up to a constant, nats."""
            return jnp.stack(
                [
                    shape * log_value - rate * jnp.exp(log_value) + power * likelihood(log_value)
                    for log_value, (shape, rate, power, likelihood) in zip(log_values, densities, strict=True)
                ]
            )

        moved = iter(slice_moved(key, jnp.stack(start), density))
        return state._replace(
            log_total=None if self.total is None else next(moved), log_eta=None if self.eta is None else next(moved)
        )

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_words(self, state: HyperTopicState) -> Float[Array, " particle"]:
        """Return log p(w | z, η) of each particle, nats."""
        if state.log_eta is None:
            return self.topics.log_words(state.topics)
        return self._words(state.topics)(state.log_eta)

    def _log_documents(self, state: HyperTopicState) -> Float[Array, " particle"]:
        """Return log p(z | A) of each particle, nats."""
        if state.log_total is None:
            return self.topics.log_documents(state.topics)
        return self._documents(state.topics)(state.log_total)

    def _words(self, topics: TopicState) -> Callable[[Array], Array]:
        """Return the function log η -> Σ_m #{n_kw > m} log(η + m) − Σ_k [log Γ(Vη + n_k) − log Γ(Vη)]."""
        beyond = _beyond(topics.word_topic, len(self.topics.log_gamma_word))

        def log_words(log_eta: Array) -> Array:
            base = jnp.exp(log_eta) * jnp.asarray(self.topics.widths)[:, None, None]
            rising = log_gamma_positive(base + topics.topic_total.astype(base.dtype)) - log_gamma_positive(base)
            return _log_rising(log_eta, beyond) - rising.sum((0, 1))

        return log_words

    def _documents(self, topics: TopicState) -> Callable[[Array], Array]:
        """Return the function log A -> Σ_m #{n_dk > m} log(A/K + m) − Σ_m #{N_d > m} log(A + m)."""
        beyond = _beyond(topics.document_topic, self.topics.log_gamma_document.shape[1])
        log_topics = jnp.log((jnp.asarray(self.topics.alpha) > 0).sum())
        longer = jnp.asarray(self.longer)[:, None]
        return lambda log_total: _log_rising(log_total - log_topics, beyond) - _log_rising(log_total, longer)


def _beyond(counts: Float[Array, "row topic particle"], length: int) -> Float[Array, "m particle"]:
    """Return how many counts of each particle are greater than m, for m = 0 … length − 1."""
    particles = counts.shape[-1]
    flat = counts.reshape(-1, particles).astype(jnp.int32)
    of_size = jnp.zeros((length + 1, particles), jnp.float32).at[flat, jnp.arange(particles)].add(1.0)
    return jnp.cumsum(of_size[:0:-1], axis=0)[::-1]


def _log_rising(log_value: Float[Array, " particle"], beyond: Float[Array, "m #particle"]) -> Float[Array, " particle"]:
    """Return Σ_m beyond_m log(x + m) for x = e^log_value.

    The term m = 0 uses the logarithm itself, so that no x underflows.
    """
    m = jnp.arange(1, len(beyond), dtype=log_value.dtype)[:, None]
    weights = beyond.astype(log_value.dtype)
    return weights[0] * log_value + (weights[1:] * jnp.log(jnp.exp(log_value) + m)).sum(0)


# ── which path ──────────────────────────────────────────────────────────────────────────────────────────────────────


@evidence_chain.register
def _(model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics | HyperTopics:
    """Return the chain from the prior where that is affordable or nothing was fitted; else from the fit's
    responsibilities.
    """
    if not model.inferred:
        return topics_chain(model, data, size, estimate)
    numbers = model.at_prior_means()
    if estimate is not None and isinstance(estimate.model, LDA):
        numbers = model.with_numbers(*estimate.model.numbers())
    chain = topics_chain(numbers, data, size, estimate)
    return hyper_topics(model, chain, about=None if chain.q is None else numbers)


@first_steps.register
def _(chain: HyperTopics) -> int:
    """Return the number of temperatures of the cheapest annealing, as for given hyper-parameters."""
    return steps_of_groups(chain.topics)


def hyper_topics(model: LDA, chain: CollapsedTopics, about: LDA | None) -> HyperTopics:
    """Return the chain in which the hyper-parameters of `model` that have priors are free.

    model: gives the priors.
    chain: the chain with given numbers.
    about: a model with the numbers about which q's Gammas lie; None: q is the prior.

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
        return Course(prior, prior if centres is None else gamma_about(centres[name]))

    document = chain.document[chain.document >= 0]
    lengths = np.bincount(document) if len(document) else np.zeros(1, np.int64)
    m = np.arange(chain.log_gamma_document.shape[1])
    longer = np.bincount(lengths, minlength=len(m) + 1)[::-1].cumsum()[::-1][1:].astype(np.float64)
    return HyperTopics(chain, course("concentration"), course("topic_concentration"), longer)
