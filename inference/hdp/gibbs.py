"""Gibbs sampling by direct assignment for HDP topics, and for groups of rows with the components integrated out.

Each token's topic, or each row's component, is drawn given all others. The sweep is that of
`lvsearch.inference.hdp.franchise`, and this file says how probable a member is under a part. For topics

    p(w_i | words of k) = (n_k,w_i + η) / (n_k + Vη),

where w_i is token i's word of V, n_kw the number of tokens of word w in topic k, n_k all its tokens, and η the topics'
Dirichlet concentration. It is slow beside `estimator.py`, and exact as the chain grows.

For groups of rows, in float64,

    p(x_i | rows of k) = exp(A(τ_k + s(x_i)) − A(τ_k)) h(x_i),        τ_k = λ + Σ s(rows of k)

(Blei 2004, Eq. 5.13) for any kind of component. Here s(x) are the sufficient statistics of a row and h(x) its base
measure. λ are the natural parameters of a component's prior, τ_k those of its posterior, and A is their log normaliser.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Float64, Int, Int32, Key

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.hdp.sampler import Members, run_one_chain
from lvsearch.inference.hdp.units import contents_of
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.mixtures.row_sums import RowEmission
from lvsearch.inference.sampling import Trace
from lvsearch.inference.topic_samplers.collapsed import Tokens, expand
from lvsearch.models.hdp import HDP, HDPMixture, Rows

FIRST_TOPIC_CAPACITY = 32
"""The number of places (array slots) for topics at first. It is doubled whenever a sweep needs more."""


class WordCounts(NamedTuple):
    """The likelihood of words given topics, by counts (word, place), where a place is the array slot of a topic.

    word: the vocabulary id of each token.
    eta: the topics' Dirichlet concentration, the same for every word of the vocabulary.
    """

    word: Int32[Array | np.ndarray, " token"]
    eta: Float[Array | np.ndarray, " word"]

    def empty(self, places: int) -> Array:
        """Return counts (word, place) without tokens, for `places` array slots."""
        return jnp.zeros((len(self.eta), places), jnp.int32)

    def gather(self, labels: Array, places: int) -> Array:
        """Return the counts (word, place) of all tokens, each at the place (array slot) of its topic.

        labels: the place of each token's topic, (token,).
        places: the number of places.
        """
        return self.empty(places).at[jnp.asarray(self.word), labels].add(1)

    def densities(self, emitted: Array, member: Array, total: Array) -> Array:
        """Return p(word of a token | words of the topic at each place (array slot)), (place,).

        emitted: counts (word, place) without the token.
        member: the index of the token.
        total: the number of tokens at each place.
        """
        word = jnp.asarray(self.word)[member]
        eta = jnp.asarray(self.eta)[0]
        return (emitted[word] + eta) / (total + len(self.eta) * eta)

    def remove(self, emitted: Array, member: Array, place: Array, last: Array) -> Array:
        """Return the counts (word, place) without one token, the `member`-th, at its place (array slot).

        last: not used.
        """
        return emitted.at[jnp.asarray(self.word)[member], place].add(-1)

    def add(self, emitted: Array, member: Array, place: Array) -> Array:
        """Return the counts (word, place) with one more token, the `member`-th, at a place (array slot)."""
        return emitted.at[jnp.asarray(self.word)[member], place].add(1)

    def log_density(self, emitted: Array, total: Array) -> Array:
        """Return log p(all words | their topics), topics integrated out, nats.

        A place is the array slot of a topic.

        emitted: counts (word, place). total: the number of tokens at each place.
        """
        eta = jnp.asarray(self.eta)[0]
        mass = len(self.eta) * eta
        of_words = jnp.where(emitted > 0, gammaln(eta + emitted) - gammaln(eta), 0.0).sum()
        return of_words - (gammaln(mass + total) - gammaln(mass)).sum()


@dataclass(frozen=True, eq=False)
class HDPSample:
    """One state of the chain, and its history. Topics are those in use, most tokens first.

    | field | shape | meaning |
    |---|---|---|
    | `tokens` | | which document and word each token belongs to |
    | `assignments` | (token,) | the topic of each token, int32 |
    | `topic_word` | (topic, word) | number of tokens of each word in each topic, int32 |
    | `document_topic` | (document, topic) | number of tokens of each topic in each document, int32 |
    | `beta` | (topic,) | shared weights of the topics in use; 1 − Σβ is left for others |
    | `eta` | | the topics' Dirichlet concentration of each word |
    | `occupied` | (sweep,) | the number of topics in use after every sweep of the chain so far |
    | `gammas`, `alphas` | (sweep,) | the concentrations of corpus and documents after every sweep |
    | `trace` | | the chain as `lv.sample` gives it: one chain, a draw for every sweep |
    """

    tokens: Tokens
    assignments: Int32[np.ndarray, " token"]
    topic_word: Int32[np.ndarray, "topic word"]
    document_topic: Int32[np.ndarray, "document topic"]
    beta: Float64[np.ndarray, " topic"]
    eta: float
    occupied: Int[np.ndarray, " sweep"]
    gammas: Float64[np.ndarray, " sweep"]
    alphas: Float64[np.ndarray, " sweep"]
    trace: Trace

    @property
    def alpha(self) -> Float64[np.ndarray, " topic"]:
        """The Dirichlet parameters of a document's topic shares at the last sweep.

        `lvsearch.inference.document_likelihood` needs them beside `topics`.
        """
        return self.alphas[-1] * self.beta

    def topics(self) -> Float64[np.ndarray, "topic word"]:
        """Return the expected word distribution of each topic given the state, (topic, word), rows summing to 1."""
        counts = self.topic_word + self.eta
        return counts / counts.sum(axis=1, keepdims=True)


def direct_assignment(
    model: HDP, data: Dataset, *, sweeps: int, key: Key[Array, ""], start: HDPSample | None = None
) -> HDPSample:
    """Make `sweeps` more sweeps of the chain that `key` determines, from `start` or from nothing. Returns its last
    state.

    From nothing, the tokens are first added one at a time, each drawn given those before it. That is not counted as a
    sweep. A chain in several calls gives the same bits as in one call.

    Raises ValueError for a number of sweeps below 1, counts that are not whole numbers, and a `start` of another chain.
    """
    tokens, members = expand(data), words_of(model, data)
    if start is not None and not all(np.array_equal(a, b) for a, b in zip(start.tokens, tokens, strict=True)):
        raise ValueError("got a start from other documents, expected a sample of the chain to continue")
    after = None if start is None else start.trace
    chain = run_one_chain(model, members, key, sweeps=sweeps, units=False, after=after)
    z, in_unit, beta = chain.seating
    topic_word = np.zeros((len(beta), data.extents["word"]), np.int32)
    np.add.at(topic_word, (z, np.asarray(tokens.word)), 1)
    eta = float(model.topic_concentration)
    return HDPSample(tokens, z, topic_word, in_unit, beta, eta, *chain.history, chain.trace)


def words_of(model: HDP, data: Dataset) -> Members:
    """Return the tokens of documents as the members that the sampler moves between topics.

    Raises ValueError for counts that are not whole numbers.
    """
    tokens = expand(data)
    emission = word_counts(model, tokens, data.extents["word"])
    return Members(np.asarray(tokens.document), data.n_units, emission, 0.0, FIRST_TOPIC_CAPACITY)


def word_counts(model: HDP, tokens: Tokens, n_words: int) -> WordCounts:
    """Return the likelihood object of an HDP's sampler: the words of its tokens, and the topics' Dirichlet
    concentration for each of `n_words` words.
    """
    return WordCounts(tokens.word, np.full(n_words, model.topic_concentration, np.float64))


FIRST_COMPONENT_CAPACITY = 16
"""The number of places (array slots) for components at first. It is doubled whenever a sweep needs more."""


@dataclass(frozen=True, eq=False)
class GroupsSample:
    """One state of the chain, and its history. Components are those in use, most rows first.

    | field | shape | meaning |
    |---|---|---|
    | `assignments` | (row,) | the component of each row, rows in the order of the groups, int32 |
    | `group_component` | (group, component) | number of rows of each component in each group, int32 |
    | `beta` | (component,) | shared weights of the components in use; 1 − Σβ is left for others |
    | `natural` | (component, …) | natural parameters of each component's posterior |
    | `occupied` | (sweep,) | the number of components in use after every sweep of the chain so far |
    | `gammas`, `alphas` | (sweep,) | concentrations of the shared weights and of a group's weights after every sweep |
    | `kept` | (kept, row) | labels after every `keep`-th sweep, numbered in order of appearance |
    | `trace` | | the chain as `lv.sample` gives it: one chain, a draw for every sweep |
    """

    assignments: Int32[np.ndarray, " row"]
    group_component: Int32[np.ndarray, "group component"]
    beta: Float64[np.ndarray, " component"]
    natural: Any
    occupied: Int[np.ndarray, " sweep"]
    gammas: Float64[np.ndarray, " sweep"]
    alphas: Float64[np.ndarray, " sweep"]
    kept: Int[np.ndarray, "kept row"]
    trace: Trace


def group_direct_assignment(
    model: HDPMixture,
    data: Dataset,
    *,
    sweeps: int,
    key: Key[Array, ""],
    keep: int = 1,
    start: GroupsSample | None = None,
) -> GroupsSample:
    """Make `sweeps` more sweeps of the chain that `key` determines, from `start` or from nothing. Returns its last
    state.

    From nothing, the rows are first added one at a time, each drawn given those before it. That is not counted as a
    sweep. A chain in several calls gives the same bits as in one call.

    keep: keep the labels after every keep-th sweep, 0 for none. It must keep some, or none, as the chain of `start`
        did.

    Raises ValueError for a number of sweeps below 1, rows without a density, and a `start` of another chain.
    """
    if keep < 0:
        raise ValueError(f"got keep={keep}, expected keep ≥ 0 (0 keeps nothing)")
    sizes, members = groups_of(model, data)
    if start is not None and not np.array_equal(start.group_component.sum(1), sizes):
        raise ValueError("got a start from other groups, expected a sample of the chain to continue")
    after = None if start is None else start.trace
    chain = run_one_chain(model, members, key, sweeps=sweeps, units=keep > 0, after=after)
    z, in_unit, beta = chain.seating
    with jax.enable_x64(True):
        natural = jax.tree.map(np.asarray, members.emission.gather(jnp.asarray(z), len(beta)).natural)
    chosen = chain.trace["component"][0, keep - 1 :: keep] if keep else np.zeros((0, len(z)), np.int64)
    kept = np.array([by_appearance(labels) for labels in chosen], np.int64).reshape(-1, len(z))
    return GroupsSample(z, in_unit, beta, natural, *chain.history, kept, chain.trace)


def groups_of(model: HDPMixture, data: Dataset) -> tuple[Int[np.ndarray, " group"], Members]:
    """Return the number of rows of each group, and all rows as the members that the sampler moves between components.

    Rows are in the order of the groups.

    Raises ValueError for rows without a density.
    """
    counts, rows = contents_of(model, data)
    sizes = np.diff(counts.indptr)
    unit_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    with jax.enable_x64(True):
        emission = row_emission(model, rows)
    return sizes, Members(unit_of, len(sizes), emission, float(rows.log_carrier.sum()), FIRST_COMPONENT_CAPACITY)


def row_emission(model: HDPMixture, members: Rows) -> RowEmission:
    """Return the likelihood of rows under the model's components, in the session's floating-point type."""
    y, observed, _ = map(jnp.asarray, members)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, y.dtype), model.components.prior(y.shape[1]))
    return RowEmission(model.components, jax.vmap(model.components.increment)(y, observed), prior)
