"""The estimator of HDP topics: collapsed passes with refitted corpus weights, then mean field, and the bound.

Collapsed passes find topics fast and well (`lvsearch.inference.topics`); every document's largest topics then become
its first tables, from which memoized mean field in the two-level stick form can climb the bound on the process. The
bound is computed in float64 at exactly the globals that are returned, the documents settled there.
"""

from copy import copy
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference import topics as kernels
from lvsearch.inference.data import Dataset
from lvsearch.inference.documents import counts_of
from lvsearch.inference.estimator import Estimate, capacity_of, estimator
from lvsearch.inference.hdp.kernel import Collected, State, memoized_passes, naturals
from lvsearch.inference.hdp.starts import start_counts
from lvsearch.inference.hdp.units import Packed, bound_at, packed_documents, seat_largest
from lvsearch.inference.hdp.weights import CorpusWeights, refit_weights, starting_weights
from lvsearch.inference.memory import Chunks, MemoryPlan, Part, machine_chunks
from lvsearch.inference.packing import pack
from lvsearch.inference.topic_memory import FLOAT32, FLOAT64, Layout, layout_within, packing_of, topic_plan
from lvsearch.models.hdp import HDP


@dataclass(frozen=True)
class HDPSettings:
    """How hard to try.

    | field | meaning |
    |---|---|
    | `rounds` | passes of each round of collapsed passes, after which the corpus weights are refitted |
    | `warm_rounds` | the same from another truncation's topics |
    | `collapsed_sweeps`, `momentum` | of the collapsed passes, see `lvsearch.inference.topics` |
    | `collapsed_topic_concentration` | of the collapsed passes, at least: narrow priors end in worse topics |
    | `passes`, `sweeps` | of mean field; see below |
    | `last_sweeps` | of every document at the final globals, in float64 |

    No mean-field passes by default: with them the bound rises but held-out scores fall. On Cora with 40 topics and 30
    collapsed passes, after 0, 1 and 6 of them: −6.83, −6.85, −6.90 nats per held-out token, the bound −941,433,
    −907,358, −892,383. Where a tight bound matters more, ask for some.
    """

    rounds: tuple[int, ...] = (5, 5, 10, 10, 10, 10, 10)
    warm_rounds: tuple[int, ...] = (5, 5)
    collapsed_sweeps: int = 3
    collapsed_topic_concentration: float = 0.1
    momentum: float = 0.9
    passes: int = 0
    sweeps: int = 2
    last_sweeps: int = 10


class HDPEstimator:
    """Fits `HDP` to documents; `size` is the truncation."""

    shrinks = True

    def __init__(self, model: HDP, data: Dataset, settings: HDPSettings = HDPSettings()):
        self.model, self.settings = model, settings
        self.counts = counts_of(data)
        self.chunks = machine_chunks()
        largest = packed_documents(pack(self.counts))
        self._packing = packing_of(largest.documents, self.counts)
        self._packed = {self._packing.layout: largest}

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """That of LDA's kernels at this capacity, and every document's pointers: float32 twice, float64 twice."""
        (capacity,) = capacity_of(size)
        plan = topic_plan(self._packing, capacity, layout_within(self._packing, capacity, self.chunks))
        pointers = 2 * (FLOAT32 + FLOAT64) * self._packing.slots * self.model.tables * capacity
        return replace(plan, parts=(*plan.parts, Part("pointers", pointers)))

    def with_chunks(self, chunks: Chunks) -> "HDPEstimator":
        """The same model and data in other chunks: fewer batches, whose counts are kept, and smaller tiles."""
        other = copy(self)
        other.chunks = chunks
        return other

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """One fit at truncation `size[0]`: topics from documents, or kept or merged from another truncation's."""
        (n_topics,), (capacity,) = size, capacity_of(size)
        packed = self._packed_in(layout_within(self._packing, capacity, self.chunks))
        words, in_documents, weights, made = self._collapsed(packed, n_topics, capacity, key, start)
        order = np.argsort(-weights.tables, kind="stable")  # sticks do best in order of size
        words[:, :n_topics] = words[:, order]
        in_documents = in_documents[..., order]
        weights = weights._replace(beta=weights.beta[order], tables=weights.tables[order])
        state = self._climb(packed, words, in_documents, weights)
        natural = naturals(self.model, state, n_topics)
        lower, _ = bound_at(self.model, natural, size, packed, state.seating, self.settings.last_sweeps)
        return Estimate(self.model, size, natural, lower, np.inf, made + self.settings.passes)

    def _packed_in(self, layout: Layout) -> Packed:
        if layout not in self._packed:
            self._packed[layout] = packed_documents(pack(self.counts, layout.n_batches, layout.tile_blocks))
        return self._packed[layout]

    def _collapsed(
        self, packed: Packed, n_topics: int, capacity: int, key: Array, start: Estimate | None
    ) -> tuple[np.ndarray, np.ndarray, CorpusWeights, int]:
        """Expected counts (word, topic) and (batch, tile, document, topic), corpus weights, number of passes."""
        settings, eta = self.settings, float(self.model.topic_concentration)
        weights = starting_weights(self.model, n_topics)
        alpha = np.zeros(capacity, np.float32)
        alpha[:n_topics] = weights.alphas
        pseudo_counts = start_counts(self.counts, n_topics, capacity, key, start, eta)
        state = kernels.start_state(packed.documents, pseudo_counts, alpha)
        in_documents = np.zeros((*packed.real.shape, n_topics))
        rounds = settings.rounds if start is None else settings.warm_rounds
        for passes in rounds:
            state, _, _ = kernels.memoized_passes(
                packed.documents.tiles,
                state,
                alpha,
                np.float32(max(eta, settings.collapsed_topic_concentration)),
                rule=kernels.COLLAPSED,
                sweeps=settings.collapsed_sweeps,
                passes=passes,
                tolerance=np.float32(-np.inf),
                momentum=np.float32(settings.momentum),
            )
            proportions = np.asarray(state.proportions, np.float64)[..., :n_topics]
            in_documents = np.maximum(proportions - alpha[:n_topics], 0.0)
            some = packed.lengths > 0
            weights = refit_weights(self.model, weights, in_documents[some], packed.lengths[some])
            alpha[:n_topics] = weights.alphas
        return np.array(state.total), in_documents, weights, sum(rounds)

    def _climb(self, packed: Packed, words: np.ndarray, in_documents: np.ndarray, weights: CorpusWeights) -> State:
        """Memoized mean field from every document's largest topics as its first tables."""
        capacity, n_topics = words.shape[1], in_documents.shape[-1]
        n_sticks = np.float32(packed.real.sum() * self.model.tables)
        tables = np.zeros(capacity, np.float32)
        tables[:n_topics] = weights.tables
        # of sticks at which nothing sits, E[log(1 − π')] = −1/α: they leave α where the collapsed passes found it
        log_left = np.float32(-n_sticks / weights.alpha)
        total = Collected(words.astype(np.float32), tables, log_left, n_sticks)
        n_batches = packed.documents.n_batches
        per_batch = jax.tree.map(lambda leaf: np.zeros((n_batches, *np.shape(leaf)), np.float32), total)
        seating = seat_largest(in_documents, capacity, self.model.tables, weights.alpha)
        start = State(total, per_batch, seating, np.float32(weights.gamma), np.float32(weights.alpha))
        if not self.settings.passes:
            return start
        return memoized_passes(
            self.model,
            packed.documents.tiles,
            packed.real,
            jax.tree.map(jnp.asarray, start),
            np.arange(capacity) < n_topics,
            sweeps=self.settings.sweeps,
            passes=self.settings.passes,
        )


@estimator.register
def _(model: HDP, data: Dataset) -> HDPEstimator:
    return HDPEstimator(model, data)
