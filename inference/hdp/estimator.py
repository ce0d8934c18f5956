"""The estimator of HDP topics: collapsed passes with refitted corpus weights, then mean field and proposals.

Collapsed passes (`lvsearch.inference.topics.kernel`) find good topics fast. Every document's largest topics then become
its first tables. From there memoized mean field in the two-level stick form can climb the bound on the process. The
bound is computed in float64 at exactly the values of the shared variables that are returned, with q of the documents
updated there.

A start has another truncation's topics, merged if they are too many, and new ones from documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.sparse import csr_array

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of, deal_documents
from lvsearch.inference.data.packing import pack
from lvsearch.inference.engine.estimate import Estimate, beliefs_at, capacity_of
from lvsearch.inference.engine.estimator import BaseEstimator, MemoryPlan, Part
from lvsearch.inference.hdp.ascent import Units, survey_units
from lvsearch.inference.hdp.kernel import AscentState, Collected, TablePosterior, memoized_passes, naturals
from lvsearch.inference.hdp.topic_proposals import TopicShares, topic_ideas
from lvsearch.inference.hdp.units import Packed, bound_at, packed_documents, seat_largest
from lvsearch.inference.hdp.weights import CorpusWeights, refit_weights, starting_weights, weights_from
from lvsearch.inference.mixtures.improving import FitHistory
from lvsearch.inference.mixtures.proposals import EMPTY, Idea, Proposal, improve
from lvsearch.inference.sharding import on_host
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.merging import merge_topics
from lvsearch.inference.topics.passes import FLOAT32, FLOAT64, layout_within, packing_of, topic_plan
from lvsearch.models.hdp import HDP

MOST_PASSES = 20
"""The most extra passes before a round of proposals."""


@dataclass(frozen=True)
class HDPSettings:
    """Settings of the estimator: effort and stopping rules.

    | field | meaning |
    |---|---|
    | `rounds` | numbers of collapsed passes of each round, after which the corpus weights are refitted |
    | `warm_rounds` | like `rounds`, for a fit from another truncation's topics |
    | `collapsed_sweeps`, `momentum` | of the collapsed passes, see `lvsearch.inference.topics.kernel` |
    | `collapsed_topic_concentration` | least topic concentration in collapsed passes: small ones end in worse topics |
    | `passes`, `sweeps` | passes of mean field, and coordinate steps of every document in each |
    | `last_sweeps` | coordinate steps of every document at the final shared variables, in float64 |
    | `proposal_rounds`, `proposals` | rounds of merges, deletions and births, and how many of each kind a round tries |
    | `proposal_passes` | the `rounds` of a proposal; mean-field passes follow as usual |
    | `proposal_tolerance` | nats per token by which the bound must rise |

    There are no mean-field passes by default. With them the bound rises but held-out scores fall. On Cora with 40
    topics and 30 collapsed passes, held-out scores after 0, 1 and 6 of them are −6.83, −6.85 and −6.90 nats per token,
    and the bounds −941,433, −907,358 and −892,383. Ask for some where a tight bound matters more.

    There are no proposals by default either. The bound decides about them, and without mean field it is so loose that
    it calls for few topics. On 300 documents of Cora with 15 topics and two seeds, ten rounds of proposals raised it
    from −129,975 and −129,671 to −125,974 and −126,143 with 5 topics left. The held-out score fell from −7.03 and −7.01
    to −7.32 and −7.30. After 4 mean-field passes the bound rose from −122,209 and −121,895 to −121,862 and −121,682
    with 14 and 15 topics, and the score went from −7.11 and −7.08 to −7.12 and −7.08. So ask for both together. A
    proposal takes a third to a half of a fit's time.
    """

    rounds: tuple[int, ...] = (5, 5, 10, 10, 10, 10, 10)
    warm_rounds: tuple[int, ...] = (5, 5)
    collapsed_sweeps: int = 3
    collapsed_topic_concentration: float = 0.1
    momentum: float = 0.9
    passes: int = 0
    sweeps: int = 2
    last_sweeps: int = 10
    proposal_rounds: int = 0
    proposals: int = 2
    proposal_passes: tuple[int, ...] = (5, 5)
    proposal_tolerance: float = 1e-4


class HDPEstimator(BaseEstimator):
    """Fits `HDP` to documents. `size` is the truncation, the number of topics that are represented."""

    shrinks = True
    model: HDP

    def __init__(self, model: HDP, data: Dataset, settings: HDPSettings = HDPSettings()):
        super().__init__(model)
        self.settings = settings
        self.counts = counts_of(data)
        largest = packed_documents(pack(self.counts))
        self._packing = packing_of(largest.documents, self.counts)
        self._packed = {self._packing.layout: largest}

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return the memory a fit needs: LDA's kernels at this capacity, and every document's pointers from tables
        to topics.

        Pointers are held twice in float32, once more if there are proposals, and twice in float64.
        """
        (capacity,) = capacity_of(size)
        plan = topic_plan(self._packing, capacity, layout_within(self._packing, capacity, self.chunks))
        single = 3 if self.settings.proposal_rounds else 2
        pointers = (single * FLOAT32 + 2 * FLOAT64) * self._packing.slots * self.model.tables * capacity
        return replace(plan, parts=(*plan.parts, Part("pointers", pointers)))

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return a fit at truncation `size[0]`, with its evidence lower bound.

        Topics start from documents, or are kept or merged from another truncation's fit `start`.
        """
        return self.fit_with_history(size, key, start).estimate

    def fit_with_history(self, size: tuple[int, ...], key: Array, start: Estimate | None = None) -> FitHistory:
        """Return a fit as `fit` makes it, together with every proposal tried.

        Its bound is that of the fit before the proposals plus the accepted gains.
        """
        run = _Run(self, size)
        settled, proposals = run.fit(key, start)
        lower, _ = bound_at(self.model, settled.natural, size, run.packed, settled.seating, self.settings.last_sweeps)
        estimate = Estimate(self.model, size, settled.natural, lower, np.inf, run.passes)
        return FitHistory(estimate, np.zeros(0), proposals)

    def packed_for(self, capacity: int) -> Packed:
        """Return the packed documents in the layout that there is memory for, with room for `capacity` topics."""
        layout = layout_within(self._packing, capacity, self.chunks)
        if layout not in self._packed:
            self._packed[layout] = packed_documents(pack(self.counts, layout.n_batches, layout.tile_blocks))
        return self._packed[layout]


class _PassesResult(NamedTuple):
    """The result of the passes: topics in order of size, the shared variables' natural parameters, and q of
    documents' tables.

    A document's tokens sit at tables, each of which serves one topic.
    """

    shares: TopicShares
    natural: dict[str, Any]
    seating: TablePosterior


class _Standing(NamedTuple):
    """The fit that proposals are compared with, and the terms of its bound."""

    settled: _PassesResult
    terms: dict[str, float]


class _Run:
    """One fit of HDP topics at one truncation."""

    def __init__(self, owner: HDPEstimator, size: tuple[int, ...]):
        self.owner, self.model, self.settings = owner, owner.model, owner.settings
        self.size, self.capacity = size, capacity_of(size)
        self.packed = owner.packed_for(self.capacity[0])
        self.passes = 0

    def fit(self, key: Array, start: Estimate | None) -> tuple[_PassesResult, tuple[Proposal, ...]]:
        """Run the passes and, if asked for, the proposals. Returns the result, and every proposal tried."""
        n_topics, eta = self.size[0], float(self.model.topic_concentration)
        weights = starting_weights(self.model, n_topics)
        pseudo_counts = start_counts(self.owner.counts, n_topics, self.capacity[0], key, start, eta)
        used = np.ones(n_topics, bool)
        state = kernels.start_state(self.packed.documents, pseudo_counts, self._document_alpha(weights, used))
        rounds = self.settings.rounds if start is None else self.settings.warm_rounds
        settled = self._run_passes(state, weights, used, rounds)
        if not self.settings.proposal_rounds:
            return settled, ()
        return self._improve(self._measure(settled))

    # ── passes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _document_alpha(self, weights: CorpusWeights, used: Bool[np.ndarray, " topic"]) -> Float[np.ndarray, " place"]:
        """Return every document's Dirichlet parameters of topics for the collapsed passes, padded to the capacity.

        They are 0 for topics that are to stay empty.

        used: the topics that may have tokens.
        """
        alpha = np.zeros(self.capacity[0], np.float32)
        alpha[: self.size[0]] = np.where(used, weights.alphas, 0.0)
        return alpha

    def _run_passes(
        self, state: kernels.Counts, weights: CorpusWeights, used: Bool[np.ndarray, " topic"], rounds: tuple[int, ...]
    ) -> _PassesResult:
        """Run the collapsed passes, with a refit of the weights after each round; then mean field.

        state: expected counts to begin with.
        weights: corpus weights and concentrations to begin with.
        used: the topics that may have tokens.
        rounds: the number of passes of each round.
        """
        settings, packed, n_topics = self.settings, self.packed, self.size[0]
        eta = float(self.model.topic_concentration)
        in_documents, alpha = np.zeros((*packed.real.shape, n_topics)), self._document_alpha(weights, used)
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
            proportions = on_host(state.proportions).astype(np.float64)[..., :n_topics]
            in_documents = np.maximum(proportions - alpha[:n_topics], 0.0)
            some = packed.lengths > 0
            weights = refit_weights(self.model, weights, in_documents[some], packed.lengths[some])
            alpha = self._document_alpha(weights, used)
        self.passes += sum(rounds) + settings.passes
        words = np.asarray(state.total)[:, :n_topics]
        order = np.argsort(-weights.tables, kind="stable")  # the stick-breaking prior prefers sticks in order of size
        words, in_documents = words[:, order], in_documents[..., order]
        weights = weights._replace(beta=weights.beta[order], tables=weights.tables[order])
        ascended = self._mean_field(words, in_documents, weights)
        shares = TopicShares(words.astype(np.float64), packed.documents.gather(in_documents))
        return _PassesResult(shares, naturals(self.model, ascended, n_topics), ascended.seating)

    def _mean_field(self, words: np.ndarray, in_documents: np.ndarray, weights: CorpusWeights) -> AscentState:
        """Run memoized mean field, from every document's largest topics as its first tables, and return its last state.

        A document's tokens sit at tables, each of which serves one topic.

        words: expected tokens (word, topic).
        in_documents: expected tokens of each topic in each document.
        """
        packed, n_topics, capacity = self.packed, self.size[0], self.capacity[0]
        n_sticks = np.float32(packed.real.sum() * self.model.tables)
        counts, tables = np.zeros((len(words), capacity), np.float32), np.zeros(capacity, np.float32)
        counts[:, :n_topics], tables[:n_topics] = words, weights.tables
        # sticks without tokens have E[log(1 − π')] = −1/α: they leave α where the collapsed passes found it
        log_left = np.float32(-n_sticks / weights.alpha)
        total = Collected(counts, tables, log_left, n_sticks)
        n_batches = packed.documents.n_batches
        per_batch = jax.tree.map(lambda leaf: np.zeros((n_batches, *np.shape(leaf)), np.float32), total)
        seating = seat_largest(in_documents, capacity, self.model.tables, weights.alpha)
        start = AscentState(total, per_batch, seating, np.float32(weights.gamma), np.float32(weights.alpha))
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

    # ── proposals ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _improve(self, standing: _Standing) -> tuple[_PassesResult, tuple[Proposal, ...]]:
        """Improve a fit by rounds of proposals. Returns the result, and every proposal tried.

        A round first makes passes alone for as long as they raise the bound, so that no proposal is credited with their
        gains. It ends once a proposal is accepted.
        """
        record: list[Proposal] = []
        tolerance = self.settings.proposal_tolerance * float(self.owner.counts.sum())
        for _ in range(self.settings.proposal_rounds):
            for new_ideas, most in ((self._propose_passes, MOST_PASSES), (self._propose_topics, 1)):
                standing, tried = improve(standing, new_ideas, self._climb, tolerance, most, lambda: False)
                record.extend(tried)
            if not (record and record[-1].accepted):
                break
        return standing.settled, tuple(record)

    def _propose_passes(self, standing: _Standing) -> Iterator[Idea[TopicShares]]:
        """Propose to go on with passes alone."""
        yield Idea("passes", (), standing.settled.shares)

    def _propose_topics(self, standing: _Standing) -> Iterator[Idea[TopicShares]]:
        """Propose merges, deletions and births of topics."""
        eta = float(self.model.topic_concentration)
        return topic_ideas(standing.settled.shares, self.owner.counts, eta, self.settings.proposals)

    def _climb(self, shares: TopicShares) -> _Standing:
        """Run collapsed passes from expected counts, with the weights that the counts call for, and measure the fit.

        Topics without tokens stay empty and at their prior, until mean field finds that filling them is better.
        """
        packed, n_topics, tokens = self.packed, self.size[0], shares.tokens
        used = (tokens > EMPTY) | (tokens == tokens.max())  # one token may be anywhere
        weights = weights_from(self.model, shares.in_documents)
        alpha = self._document_alpha(weights, used)
        words = np.zeros((len(shares.words), self.capacity[0]))
        proportions = np.broadcast_to(alpha, (*packed.real.shape, self.capacity[0])).copy()
        words[:, :n_topics] = shares.words
        proportions[..., :n_topics] += packed.documents.scatter(shares.in_documents).astype(np.float32)
        state = kernels.start_state(packed.documents, words, alpha)._replace(proportions=proportions)
        return self._measure(self._run_passes(state, weights, used, self.settings.proposal_passes))

    def _measure(self, settled: _PassesResult) -> _Standing:
        """Return the fit after the last sweeps of the units, with the terms of its evidence lower bound, nats."""
        packed, size, capacity = self.packed, self.size, self.capacity
        units = Units(packed.documents.tiles, packed.real, packed.members)
        with jax.enable_x64(True):
            beliefs = beliefs_at(self.model, settled.natural, size, capacity, np.float64)
            seating = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), settled.seating)
            sweeps = self.settings.last_sweeps
            survey = survey_units(self.model, beliefs, seating, units, size, sweeps, capacity=capacity)
            return _Standing(settled, survey.terms("documents"))


# ── starts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


DOCUMENTS_PER_TOPIC = 20
"""The number of documents that a new topic begins with, as for LDA.

Blei (2004, §3.6) has five; with 20 fits end higher.
"""
START_WEIGHT = 0.5
"""The total of the pseudo-counts of new topics, as a share of the tokens of the corpus."""


def start_counts(
    counts: csr_array, n_topics: int, capacity: int, key: Array, start: Estimate | None, smoothing: float
) -> Float[np.ndarray, "word topic"]:
    """Return pseudo-counts of words in topics to start from, (word, topic), with zeros for topics up to the capacity.

    No two topics are alike, because equal topics would stay equal.

    counts: (document, word).
    n_topics: the number of topics.
    capacity: the number of topics that arrays have room for.
    start: a fit of another truncation whose topics are kept, or None.
    smoothing: the Dirichlet concentration of each word in a topic.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    n_documents, n_words = counts.shape[0], counts.shape[1]
    pseudo_counts = np.zeros((n_words, capacity), np.float32)
    kept = 0
    if start is not None:
        expected = np.maximum(start.natural["topic_word"] + 1.0 - smoothing, 0.0)
        merged = merge_topics(expected, n_topics)
        kept = len(merged)
        pseudo_counts[:, :kept] = merged.T
    for topic, chosen in enumerate(deal_documents(n_documents, n_topics - kept, DOCUMENTS_PER_TOPIC, random), kept):
        words = np.asarray(counts[chosen].sum(0), np.float64) + smoothing
        words *= random.uniform(0.5, 1.5, n_words)
        pseudo_counts[:, topic] = START_WEIGHT * counts.sum() / n_topics * words / words.sum()
    return pseudo_counts
