"""Gibbs sampling for HDP topics by direct assignment: `lvsearch.inference.hdp.franchise` with

    p(w_i | words of k) = (n_k,w_i + η) / (n_k + Vη).

Slow beside `estimator.py`, and exact as the chain grows. In float32.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Int32, Key

from lvsearch.inference.collapsed_topics import Tokens, expand
from lvsearch.inference.data import Dataset
from lvsearch.inference.hdp.chain import begun, by_size, next_state, resumed
from lvsearch.inference.hdp.franchise import Franchise
from lvsearch.models.hdp import HDP

FIRST_CAPACITY = 32
"""Places for topics to begin with, doubled whenever a sweep needs more."""


class WordCounts(NamedTuple):
    """Words of topics: what they say of a topic are counts (word, place). `word` (token,): the vocabulary id of each
    token; `eta`: η, the same for every word of the vocabulary, (word,)."""

    word: Int32[Array | np.ndarray, " token"]
    eta: Float[Array | np.ndarray, " word"]

    def empty(self, places: int) -> Array:
        return jnp.zeros((len(self.eta), places), jnp.int32)

    def widened(self, emitted: Array, places: int) -> Array:
        return jnp.pad(emitted, [(0, 0), (0, places - emitted.shape[1])])

    def densities(self, emitted: Array, member: Array, total: Array) -> Array:
        word = jnp.asarray(self.word)[member]
        eta = jnp.asarray(self.eta)[0]
        return (emitted[word] + eta) / (total + len(self.eta) * eta)

    def taken(self, emitted: Array, member: Array, place: Array, last: Array) -> Array:
        return emitted.at[jnp.asarray(self.word)[member], place].add(-1)

    def given(self, emitted: Array, member: Array, place: Array) -> Array:
        return emitted.at[jnp.asarray(self.word)[member], place].add(1)


@dataclass(frozen=True, eq=False)
class HDPSample:
    """One state of the chain, and how it came there. Topics are those in use, most tokens first.

    | field | shape | meaning |
    |---|---|---|
    | `tokens` | | which document and word each indicator belongs to |
    | `assignments` | (token,) | z, int32 |
    | `topic_word` | (topic, word) | n_kw, int32 |
    | `document_topic` | (document, topic) | n_dk, int32 |
    | `beta` | (topic,) | β of the topics in use; 1 − Σβ is left for others |
    | `eta` | | η |
    | `occupied`, `gammas`, `alphas` | (sweep,) | topics in use, γ and α after every sweep of the chain so far |
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

    @property
    def alpha(self) -> Float64[np.ndarray, " topic"]:
        """α β_k: with `topics`, what `lvsearch.inference.document_likelihood` needs."""
        return self.alphas[-1] * self.beta

    def topics(self) -> Float64[np.ndarray, "topic word"]:
        """E[φ | z, w] = (n_kw + η) / (n_k + Vη): rows sum to 1."""
        counts = self.topic_word + self.eta
        return counts / counts.sum(axis=1, keepdims=True)


def direct_assignment(
    model: HDP, data: Dataset, *, sweeps: int, key: Key[Array, ""], start: HDPSample | None = None
) -> HDPSample:
    """`sweeps` more sweeps of the chain of `key`, from `start` or from nothing: then the tokens are first added one at
    a time, each drawn given those before it, which is not counted as a sweep.

    Raises ValueError for a number of sweeps below 1, counts that are not whole numbers, and a `start` from other data.
    """
    if sweeps < 1:
        raise ValueError(f"got sweeps={sweeps}, expected at least 1")
    tokens, n_words = expand(data), data.extents["word"]
    emission = word_counts(model, tokens, n_words)
    if start is None:
        places = FIRST_CAPACITY
        state = begun(model, tokens.document, data.n_units, emission, jax.random.fold_in(key, 0), places)
        occupied, gammas, alphas = [], [], []
    else:
        if not all(np.array_equal(a, b) for a, b in zip(start.tokens, tokens, strict=True)):
            raise ValueError("got a start from other documents, expected a sample of the chain to continue")
        state = _continued(start, emission)
        occupied, gammas, alphas = (x.tolist() for x in (start.occupied, start.gammas, start.alphas))
    for number in range(len(occupied) + 1, len(occupied) + sweeps + 1):
        state = next_state(model, state, tokens.document, emission, jax.random.fold_in(key, number))
        occupied.append(int((np.asarray(state.total) > 0).sum()))
        gammas.append(float(state.gamma))
        alphas.append(float(state.alpha))
    return _sample(state, tokens, float(model.topic_concentration), occupied, gammas, alphas)


def word_counts(model: HDP, tokens: Tokens, n_words: int) -> WordCounts:
    """Words of the model's topics."""
    return WordCounts(tokens.word, np.full(n_words, model.topic_concentration, np.float32))


def _continued(start: HDPSample, emission: WordCounts) -> Franchise:
    return resumed(
        start.assignments,
        start.document_topic,
        jnp.asarray(start.topic_word.T),
        start.beta,
        (float(start.gammas[-1]), float(start.alphas[-1])),
        emission,
        FIRST_CAPACITY,
    )


def _sample(
    state: Franchise, tokens: Tokens, eta: float, occupied: list[int], gammas: list[float], alphas: list[float]
) -> HDPSample:
    order, assignments = by_size(state)
    return HDPSample(
        tokens,
        assignments,
        np.asarray(state.emitted).T[order],
        np.asarray(state.in_unit)[:, order],
        np.asarray(state.beta, np.float64)[order],
        eta,
        np.array(occupied, np.int64),
        np.array(gammas, np.float64),
        np.array(alphas, np.float64),
    )
