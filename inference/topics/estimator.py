"""The estimator of LDA: collapsed passes find good topics fast, then further passes serve the evidence.

Marginal fits (topics with a Dirichlet prior) make zeroth-order collapsed passes, then memoized mean-field passes (Eq.
3.9–3.13), which climb the evidence bound from there. The bound is computed in float64 at the result. Hyper-parameters
with priors have a q of their own (`inferred_concentrations`), which is refitted between passes. The bound is then on
the evidence with these integrated out, and the fit carries their means under q.

Topics with seeds come first and stay there: topics are added, merged and left out behind them. Their imaginary tokens
are added to expected counts wherever topics follow from these.

Plug-in fits (topics a point) make variational EM passes (§3.4.2), and fit the vector α by Newton's method on the
evidence bound in every pass. They start from collapsed topics, or grow from a smaller fit. The evidence is then the
certified interval of every document's likelihood at the estimated (α, β).

The programs that passes run are in `kernel.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import digamma as scipy_digamma
from scipy.special import gammaln

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of, deal_documents
from lvsearch.inference.data.packing import DocumentTiles, pack
from lvsearch.inference.engine.empirical_bayes import newton_dirichlet, newton_symmetric
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.estimator import BaseEstimator, MemoryPlan
from lvsearch.inference.likelihood.bounds import document_bounds
from lvsearch.inference.sharding import on_host, split
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.inferred_concentrations import Concentration
from lvsearch.inference.topics.merging import (
    CANDIDATES,
    FEWEST_SIZES,
    closest_pairs,
    dispensable_topics,
    merge_topics,
    remove_topics,
    size_at_bend,
)
from lvsearch.inference.topics.passes import (
    LEAST_WORK,
    Passes,
    PassSettings,
    in_lanes,
    join_lanes,
    lanes_for,
    layout_within,
    packing_of,
    passes_in_lanes,
    topic_plan,
)
from lvsearch.models.families import PointSimplex
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.lda import LDA

T = TypeVar("T")

SHARED_CAPACITIES = (32, 64)
"""The lengths of arrays over topics where a pass is less work than `LEAST_WORK`: all sizes up to 32 share compiled
programs, and those of 33 to 64. Programs take longer to compile there than to run.
"""
FLOOR = 1e-30
"""The smallest probability of a word in a topic."""


@dataclass(frozen=True)
class TopicSettings:
    """Settings of a fit of LDA: how many passes over the documents it makes, and when they end.

    `tolerance` is in nats per token and pass; `final_tolerance` is in tokens of a document and sweep.

    | field | meaning |
    |---|---|
    | `collapsed_passes`, `warm_collapsed_passes` | the most collapsed passes from nothing, and from another fit |
    | `passes_to_merge` | the most collapsed passes of a first fit, some of whose topics are then left out or merged |
    | `collapsed_sweeps` | updates of a document in each collapsed pass |
    | `collapsed_topic_concentration` | the least concentration of topics in collapsed passes |
    | `tolerance` | the gain of a collapsed pass below which they end |
    | `mean_field_passes`, `mean_field_sweeps` | passes that climb the bound, and updates of a document in each |
    | `fewer_at_once`, `passes_between` | the share of topics that go in one step; collapsed passes before each |
    | `momentum` | the share of the last step by which topics are moved on before a pass |
    | `final_sweeps`, `final_tolerance` | the most updates of a document before the bound is computed; when they end |
    | `documents_per_topic`, `start_weight` | documents that a topic starts from; their weight, a share of the corpus |
    | `documents_per_added_topic`, `added_weight` | the same for topics that are added to a smaller fit |
    | `expectation_maximisation_passes` | plug-in fits: passes of variational EM |
    | `little_data_passes`, `little_data` | plug-in fits: passes for a corpus of at most so many tokens |
    """

    collapsed_passes: int = 60
    warm_collapsed_passes: int = 20
    # Passes follow in which topics go. With 30 instead of 60, bounds of Cora (160 topics from 240, five seeds) are 20
    # nats lower, and differ by 600 between seeds; those of nine planted corpora of 100,000 words 23 nats, at most 90.
    passes_to_merge: int = 30
    collapsed_sweeps: int = 3
    collapsed_topic_concentration: float = 0.1  # at least: see `_collapsed`
    tolerance: float = 2e-5
    mean_field_passes: int = 8
    mean_field_sweeps: int = 2
    # With 10 %, fits of 40 topics (2.4 million words, 40 planted) ended 39,000 nats lower than with 6 % or 4 %.
    fewer_at_once: float = 0.06
    passes_between: int = 3
    momentum: float = 0.9
    final_sweeps: int = 5
    final_tolerance: float = 0.05
    documents_per_topic: int = 20  # each topic starts from this many (five in §3.6; 20 were measured to end higher)
    start_weight: float = 0.5  # pseudo-counts of a start, as a share of the corpus
    documents_per_added_topic: int = 5  # the same for topics added to a smaller fit, whose topics should stay
    added_weight: float = 0.1
    expectation_maximisation_passes: int = 12  # plug-in: variational EM, α refitted in each
    # Little data: α converges slowly, and passes cost nothing. On 2,400 tokens of three kinds, 12 passes ended 5 to 10
    # nats lower than 50.
    little_data_passes: int = 50
    little_data: int = 20_000  # tokens


class TopicEstimator(BaseEstimator):
    """The estimator of `LDA` on documents: it fits a number of topics and bounds the evidence.

    With `empirical_bayes`, fits with a prior on topics also set the hyper-parameters to the maximum of the bound.
    """

    model: LDA

    def __init__(
        self,
        model: LDA,
        data: Dataset,
        settings: TopicSettings = TopicSettings(),
        empirical_bayes: bool = False,
    ):
        """Pack the documents; nothing is fitted.

        data: a data set of documents.
        settings: how much work a fit does.
        empirical_bayes: True to set α and η to the maximum of the bound, in fits with a prior on topics.
        """
        super().__init__(model)
        model.require_words(data.extents["word"])
        if empirical_bayes and model.seeds is not None:
            raise ValueError(
                "got seeds with empirical_bayes=True, expected one of them: η belongs to free topics alone"
            )
        self.settings, self.empirical_bayes = settings, empirical_bayes
        self.n_words, self.n_documents = data.extents["word"], data.n_units
        self.plug_in = isinstance(model.topics, PointSimplex)
        # Marginal fits begin with topics of a larger fit. They were measured to end higher than fits that grow from a
        # smaller one. Plug-in fits grow, so that each is at least as likely as the smaller fit it starts from.
        self.shrinks = not self.plug_in
        self._prepare(data)

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit one number of topics and return the fit.

        size: (number of topics,).
        key: the random key of starts.
        start: a larger fit, some of whose topics are left out or merged, or a smaller one, to which topics are added
            that start from documents. None starts all topics from documents.
        """
        capacity = self.capacity(size[0])
        if self.model.seeds is not None:
            self.model.seeds.require_topics(size[0])
        self._lay_out(capacity)
        if self.plug_in:
            return self._fit_plug_in(size, key, start)
        return self._fit_marginal(size, key, start)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return how many bytes one fit holds at its worst moment, part by part; the formula is in `topic_plan`.

        size: (number of topics,).
        """
        capacity = self.capacity(size[0])
        return topic_plan(self._packing, capacity, layout_within(self._packing, capacity, self.chunks))

    def fit_to_merge(self, size: tuple[int, ...], key: Array) -> Estimate:
        """Return a fit from collapsed passes only. Its lower bound is set to −∞, because merging does not need it.

        Plug-in models get an ordinary fit.

        size: (number of topics,). key: the random key of the start.
        """
        if self.plug_in:
            return self.fit(size, key, None)
        (n_topics,) = size
        capacity = self.capacity(n_topics)
        self._lay_out(capacity)
        model = self._first_model(None)
        alpha, eta = _alpha(model, n_topics, capacity), _eta(model)
        most, tolerance = self.settings.passes_to_merge, self.settings.tolerance
        state, passes, _ = self._collapsed(
            self.start_counts(n_topics, capacity, key, None, eta), alpha, eta, most, tolerance
        )
        return self._estimate_of(model, np.asarray(state.total)[:, :n_topics].T, passes)

    # ── marginal ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fit_marginal(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return a fit with topics integrated out: collapsed passes, then mean-field passes, then the bound on the
        evidence.
        """
        (n_topics,) = size
        capacity = self.capacity(n_topics)
        model, refits = self._first_model(start), self.empirical_bayes or bool(self.model.inferred)
        alpha, eta = _alpha(model, n_topics, capacity), _eta(model)
        if start is not None:
            start = self._remove_topics(start, model, n_topics)
            self._lay_out(capacity)
        settings = self.settings
        most = settings.collapsed_passes if start is None else settings.warm_collapsed_passes
        pseudo_counts = self.start_counts(n_topics, capacity, key, start, eta)
        state, passes, _ = self._collapsed(pseudo_counts, alpha, eta, most, settings.tolerance)
        if self.model.inferred:
            model = self._refitted(model, state, n_topics)
            alpha, eta = _alpha(model, n_topics, capacity), _eta(model)
        wanted = self.settings.mean_field_passes
        blocks = [1] * wanted if self.empirical_bayes else [wanted]
        if self.model.inferred:
            blocks = [wanted - wanted // 2, wanted // 2]  # few blocks, since momentum begins anew with each
        for each in blocks:
            sweeps = self.settings.mean_field_sweeps
            state, _, _ = self._passes(state, alpha, eta, kernels.MEAN_FIELD, sweeps, each, -np.inf)
            if refits:
                model = self._refitted(model, state, n_topics)
                alpha, eta = _alpha(model, n_topics, capacity), _eta(model)
        natural = self._with_seeds(np.asarray(state.total)[:, :n_topics].T) + np.float32(eta - 1)
        total = kernels.with_seeds(state.total, self._seeds(capacity))
        topics = kernels.exp_log_topics(total, np.float32(eta), alpha)
        gamma, _ = self._document_pass(
            topics, state.proportions, alpha, self.settings.final_sweeps, self.settings.final_tolerance
        )
        lower = self._marginal_bound(model, natural, gamma, capacity)
        if self.model.inferred:
            expected_log = scipy_digamma(natural.astype(np.float64).T + 1)
            expected_log -= scipy_digamma((natural.astype(np.float64).T + 1).sum(0))
            # The bound at fixed hyper-parameters, with the term of each replaced by its integral over the prior.
            inferred = self._inferred(gamma, expected_log)
            given = model.numbers_by_name()
            lower += sum(each.log_integral() - each.log_density(float(given[name])) for name, each in inferred.items())
        bend = None if start is None else start.bend
        return Estimate(model, size, {"topic_word": natural}, lower, np.inf, passes + wanted, bend)

    def bend_below(self, fit: Estimate) -> int | None:
        """Return the number of topics at which the words' leave-one-out log likelihood bends as topics are removed from
        a fit, down to half of them; None if it does not bend.

        The removals end soon after the bend. Plug-in models, whose fits grow, have none.
        """
        if self.plug_in:
            return None
        least = max(fit.size[0] // 2, self.model.n_given, 1)
        return self._remove_topics(fit, self._first_model(fit), least, until_bend=True).bend

    def _remove_topics(self, start: Estimate, model: LDA, n_topics: int, until_bend: bool = False) -> Estimate:
        """Return `start` reduced to `n_topics` topics in small steps, with collapsed passes before each step, and the
        number of topics at which the words' leave-one-out log likelihood bends.

        A step leaves topics out, or merges two, whichever lowers the documents' likelihood less. In the passes the
        other topics take over the words of those left out. Steps are small because many mergers at once join topics
        for good: of 40 planted topics 37 were held by fits of 40 that were merged from 64 at once, and 40 in steps.

        Mergers alone keep topics of words that all subjects share, which are like no other. On 2.4 million words with
        40 planted topics, fits of 40 from 60 then held four such topics, and four that held two planted ones each;
        their bound was 93,000 nats below that of this method, which finds all 40. On Cora (32, 64, 100 topics) bounds
        are 250 nats higher than with mergers alone, on average; fits with two seeds differ by 500.

        start: a fit of more topics; one of `n_topics` or fewer is returned as it is.
        model: the model with the hyper-parameters of the passes.
        until_bend: whether to end, with more topics, once two steps in turn have shown a bend.
        """
        if start.size[0] <= n_topics:
            return start
        settings, eta = self.settings, _eta(model)
        # Arrays keep the first length throughout: a program for every shorter one would take longer than it saves.
        capacity = self.capacity(start.size[0])
        self._lay_out(capacity)
        passes, n_pairs = settings.passes_between, CANDIDATES * self._fewer_at_once(capacity)
        counts = np.asarray(start.natural["topic_word"], np.float32) + 1 - eta
        counts, given = np.maximum(self._with_seeds(counts, -1), 0.0), self.model.n_given
        sizes, fits, bends = [], [], []
        # The last size gets passes too where a bend can be told.
        while len(counts) > n_topics or len(sizes) >= FEWEST_SIZES - 1:
            alpha = _alpha(model, len(counts), capacity)
            state, _, fit = self._collapsed(_columns(counts, capacity), alpha, eta, passes, -np.inf)
            counts = np.maximum(np.asarray(state.total).T[: len(counts)], 0.0)
            sizes.append(len(counts))
            fits.append(fit)
            bends.append(size_at_bend(sizes, fits))
            # one step alone also shows bends where there are none
            if len(counts) <= n_topics or (until_bend and None not in bends[-2:]):
                break
            # of free topics only: those with seeds are neither merged nor left out
            pairs = given + np.stack(closest_pairs(counts[given:].astype(np.float64), n_pairs))
            pairs = np.zeros((2, 1), np.int64) if not pairs.size else pairs
            # the last pair again and again: equally many pairs at every step share a compiled program
            pairs = np.pad(pairs, ((0, 0), (0, n_pairs - pairs.shape[1])), mode="edge")
            merged = _means(counts[pairs[0]] + counts[pairs[1]], eta).T
            topics = _columns(_means(self._with_seeds(counts), eta), capacity)
            losses = self._sum_over_documents(
                partial(kernels.removal_losses, topics=topics, pairs=pairs.astype(np.int32), merged=merged), state
            )
            chosen = dispensable_topics(losses, pairs, len(counts), self._fewer_at_once(capacity), given)
            joint = self._sum_over_documents(
                partial(kernels.joint_losses, topics=topics, chosen=chosen.astype(np.int32)), state
            )
            number = min(self._fewer_at_once(len(counts)), len(counts) - n_topics)
            counts = remove_topics(counts, number, losses, pairs, chosen, joint)
        return self._estimate_of(model, counts, passes)._replace(bend=bends[-1])

    def _fewer_at_once(self, n_topics: int) -> int:
        """Return how many of `n_topics` topics go in one step, at least 1."""
        return max(1, int(self.settings.fewer_at_once * n_topics))

    def _estimate_of(self, model: LDA, counts: Float[np.ndarray, "topic word"], passes: int) -> Estimate:
        """Return a fit with these expected word counts; its lower bound is −∞, its upper bound ∞."""
        natural = self._with_seeds(counts) + np.float32(_eta(model) - 1)
        return Estimate(model, (len(counts),), {"topic_word": natural}, -np.inf, np.inf, passes)

    def _marginal_bound(self, model: LDA, natural: np.ndarray, gamma: Any, capacity: int) -> float:
        """Return the lower bound on the log evidence at exactly the given parameters, in nats, computed in float64.

        natural: natural parameters of q(topics), (topic, word).
        gamma: γ, the Dirichlet parameters of the documents' proportions, (batch, tile, document, topic).
        capacity: the length of the arrays over topics.
        """
        n_topics = len(natural)
        concentration = np.ones((self.n_words, capacity))
        concentration[:, :n_topics] = natural.astype(np.float64).T + 1
        alpha = exact_alpha(model, n_topics, capacity)
        with jax.enable_x64(True):
            topics, log_topics = kernels.topic_bound(concentration, np.float64(_eta(model)), alpha > 0)
            seeds = self._seed_bound(_eta(model), np.asarray(log_topics))
            return float(topics) + seeds + self._document_bound(log_topics, gamma, alpha)

    def _seed_bound(self, eta: float, log_topics: Float[np.ndarray, "word topic"]) -> float:
        """Return what seeds add to the topics' part of the bound, in nats; 0 without seeds.

        The prior of a topic with seeds s is Dirichlet(β; η, …, η) Π_w β_w^s_w, divided by its integral, which is the
        probability of the imaginary tokens under Dirichlet(η, …, η).

        eta: η. log_topics: E[log β].
        """
        if self.model.seeds is None:
            return 0.0
        seeds, flat = self.model.seeds.counts, eta * self.n_words
        log_probability = (gammaln(flat) - gammaln(flat + seeds.sum(1))).sum()
        log_probability += (gammaln(eta + seeds) - gammaln(eta)).sum()
        return float((seeds * log_topics[:, : len(seeds)].T).sum() - log_probability)

    def _first_model(self, start: Estimate | None) -> LDA:
        """Return the model with the hyper-parameters that a fit begins with.

        Hyper-parameters that have priors, or are refitted, are those of the fit `start` if there is one.
        """
        if start is None:
            return self.model.at_prior_means()
        before = _model_of(start)
        return before if self.empirical_bayes else self.model.with_numbers(*before.numbers())

    def _refitted(self, model: LDA, state: kernels.Counts, n_topics: int) -> LDA:
        """Return the model with new hyper-parameters that suit the present topics and proportions.

        Hyper-parameters with priors get their means under q. With empirical Bayes, the total of α and η get the maxima
        of the bound, each shared by all entries (§3.4.3).

        state: expected counts and documents' parameters.
        """
        counts = self._with_seeds(np.asarray(state.total, np.float64)[:, :n_topics].T).T + _eta(model)
        expected_log = scipy_digamma(counts) - scipy_digamma(counts.sum(0))
        if self.model.inferred:
            means = {name: each.mean() for name, each in self._inferred(state.proportions, expected_log).items()}
            return self.model.with_numbers(means.get("concentration"), means.get("topic_concentration"))
        mean_log = self._mean_log_proportions(state.proportions, n_topics)
        alpha_total = newton_symmetric(float(model.numbers()[0]), n_topics, float(mean_log.sum()))
        eta_total = newton_symmetric(_eta(model) * self.n_words, self.n_words, float(expected_log.sum(0).mean()))
        return LDA(alpha_total, eta_total / self.n_words, model.topics)

    def _inferred(self, gamma: Any, expected_log: Float[np.ndarray, "word topic"]) -> dict[str, Concentration]:
        """Return the hyper-parameters that have priors, by name, with the statistics that decide their q.

        gamma: γ, the Dirichlet parameters of the documents' proportions.
        expected_log: E[log β] of the topics, (word, topic).
        """
        n_topics = expected_log.shape[1]
        found = {}
        if isinstance(self.model.concentration, GammaPrior):
            documents = self._documents_with_words()  # an empty one says nothing
            log_sum = documents * float(self._mean_log_proportions(gamma, n_topics).sum())
            found["concentration"] = Concentration(self.model.concentration, documents, n_topics, log_sum, n_topics)
        if isinstance(self.model.topic_concentration, GammaPrior):
            found["topic_concentration"] = Concentration(
                self.model.topic_concentration, n_topics, self.n_words, float(expected_log.sum()), 1
            )
        return found

    # ── plug-in ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fit_plug_in(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return a fit whose topics and α are estimated by variational EM, with a certified interval of their
        log-likelihood.
        """
        (n_topics,) = size
        capacity = self.capacity(n_topics)
        smoothing = cast(PointSimplex, self.model.topics).smoothing
        alpha = np.zeros(capacity, np.float32)
        alpha[:n_topics] = _plug_in_alpha(self.model, start, n_topics)
        pseudo_counts = self.start_counts(n_topics, capacity, key, start, smoothing)
        if start is None:
            most, tolerance = self.settings.collapsed_passes, self.settings.tolerance
            state, passes, _ = self._collapsed(pseudo_counts, alpha, smoothing, most, tolerance)
        else:
            state, passes = self._start_state(pseudo_counts, alpha), 0
        gamma, total = state.proportions, np.asarray(state.total, np.float64)
        found, settings = total, self.settings
        little = self.n_tokens <= settings.little_data
        em_passes = settings.little_data_passes if little else settings.expectation_maximisation_passes
        for em_pass in range(em_passes):
            topics = _point_topics(total, smoothing, n_topics, capacity).astype(np.float32)
            sweeps = settings.final_sweeps if em_pass == 0 else settings.mean_field_sweeps
            gamma, counts = self._document_pass(topics, gamma, alpha, sweeps, 0.0)
            before, found = found, np.asarray(counts, np.float64)
            # moved ahead as in `memoized_passes`; the first step may be from pseudo-counts, the last ones settle
            moving = 0 < em_pass < em_passes - 2
            total = np.maximum(found + settings.momentum * (found - before), 0.0) if moving else found
            alpha[:n_topics] = newton_dirichlet(
                alpha[:n_topics].astype(np.float64), self._mean_log_proportions(gamma, n_topics)
            )
        passes += em_passes
        natural = total[:, :n_topics].T.astype(np.float32)
        topics = _point_topics(natural.T.astype(np.float64), smoothing, n_topics, n_topics).T
        model = LDA(alpha[:n_topics], self.model.topic_concentration, self.model.topics)
        lower, upper = self._certified(*padded_topics(topics, np.asarray(alpha[:n_topics], np.float64)))
        return Estimate(model, size, {"topic_word": natural}, lower, upper, passes)

    # ── seeds ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _with_seeds(self, counts: Float[np.ndarray, "topic word"], times: int = 1) -> Float[np.ndarray, "topic word"]:
        """Return expected counts with the imaginary tokens of seeds added; unchanged if the model has no seeds.

        counts: expected counts of all topics. times: −1 to subtract the imaginary tokens.
        """
        if self.model.seeds is None:
            return counts
        counts = counts.copy()
        counts[: self.model.n_given] += (times * self.model.seeds.counts).astype(counts.dtype)
        return counts

    def _seeds(self, capacity: int) -> Float[np.ndarray, "word topic"] | None:
        """Return the imaginary tokens of each word in each topic, (word, topic), float32; None without seeds.

        capacity: the length of the arrays over topics.
        """
        return None if self.model.seeds is None else _columns(self.model.seeds.counts, capacity)

    # ── shared ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _collapsed(
        self, pseudo_counts: np.ndarray, alpha: np.ndarray, eta: float, passes: int, tolerance: float
    ) -> Passes:
        """Make collapsed passes from pseudo-counts, with a topic concentration of at least
        `collapsed_topic_concentration`.

        Under a narrow prior, topics grow peaked before they have found their words. On training splits of two corpora,
        passes at 0.1 ended with better held-out likelihood than at 0.02 or 0.05, even if the topics were then read with
        the model's own 0.01. Expected counts are soft already.

        pseudo_counts: how many tokens of each word each topic begins with, (word, topic).
        alpha: the concentration of the proportions on each topic.
        eta: the concentration of the topics' prior.
        passes: the most passes to make.
        tolerance: passes end when the bound rises by less, in nats per token; −inf makes all of them.
        """
        wide = max(eta, self.settings.collapsed_topic_concentration)
        start, sweeps = self._start_state(pseudo_counts, alpha), self.settings.collapsed_sweeps
        return self._passes(start, alpha, wide, kernels.COLLAPSED, sweeps, passes, tolerance)

    def start_counts(
        self, n_topics: int, capacity: int, key: Array, start: Estimate | None, smoothing: float
    ) -> Float[np.ndarray, "word topic"]:
        """Return pseudo-counts that a fit starts from, (word, topic): how many tokens of each word each topic begins
        with.

        Topics of `start` are kept or merged. Each new topic has the words of a few random documents (§3.6). Without
        `start`, topics with seeds begin with their imaginary tokens alone.

        n_topics: the number of topics.
        capacity: the number of topic columns; those beyond `n_topics` are 0.
        key: the random key of the documents drawn.
        start: a fit of another number of topics, or None.
        smoothing: η, added to the word counts of new topics.
        """
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        pseudo_counts = np.zeros((self.n_words, capacity), np.float32)
        kept = self.model.n_given
        if start is not None:
            counts = _merged_counts(start, 1.0 if self.plug_in else _eta(_model_of(start)), n_topics)
            kept = len(counts)
            pseudo_counts[:, :kept] = counts.T
        settings, grows = self.settings, start is not None
        most = settings.documents_per_added_topic if grows else settings.documents_per_topic
        weight = (settings.added_weight if grows else settings.start_weight) * self.n_tokens / n_topics
        for topic, chosen in enumerate(deal_documents(self.n_documents, n_topics - kept, most, random), kept):
            words = self._words_in(chosen) + smoothing
            words *= random.uniform(0.5, 1.5, self.n_words)  # no two topics alike: equal ones would stay equal
            pseudo_counts[:, topic] = weight * words / words.sum()
        return pseudo_counts

    # ── documents at hand: `streamed` has the same for those on disk ────────────────────────────────────────────────

    def _prepare(self, data: Dataset) -> None:
        """Count the words of the documents and pack them into arrays."""
        self.counts = counts_of(data)
        self.n_tokens = float(self.counts.sum())
        self.packed = pack(self.counts)
        self._packing = packing_of(self.packed, self.counts)
        self._packed = {self._packing.layout: self.packed}

    def capacity(self, n_topics: int) -> int:
        """Return the length of arrays over topics, which on little data is one of `SHARED_CAPACITIES`."""
        (least,) = capacity_of((n_topics,))
        shared = next((each for each in SHARED_CAPACITIES if each >= n_topics), least)
        return shared if self._packing.cells * shared < LEAST_WORK else least

    def _lay_out(self, capacity: int) -> None:
        """Pack the documents so that a fit with this capacity keeps within the memory budget.

        capacity: the length of the arrays over topics.
        """
        layout = layout_within(self._packing, capacity, self.chunks)
        if layout not in self._packed:
            self._packed[layout] = pack(self.counts, layout.n_batches, layout.tile_blocks)
        self.packed = self._packed[layout]

    def _words_in(self, chosen: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, " word"]:
        """Return how often each word occurs in the chosen documents together, (word,), float64.

        chosen: the numbers of the documents.
        """
        return np.asarray(self.counts[chosen].sum(0), np.float64)

    def _start_state(self, pseudo_counts: np.ndarray, alpha: np.ndarray) -> kernels.Counts:
        """Return the state before the first pass: topics from pseudo-counts (word, topic), even proportions of each
        document.
        """
        return kernels.start_state(self.packed, pseudo_counts, alpha)

    def _passes(
        self,
        state: kernels.Counts,
        alpha: np.ndarray,
        eta: float,
        rule: kernels.UpdateRule,
        sweeps: int,
        passes: int,
        tolerance: float,
    ) -> Passes:
        """Make memoized passes over the documents, and return the result.

        state: expected counts and documents' parameters before the first pass.
        alpha: the concentration of the proportions on each topic; its length is the capacity.
        eta: the concentration of the topics' prior.
        rule: how topics follow from counts, and responsibilities from topics.
        sweeps: updates of a document in each pass.
        passes, tolerance: the most passes, and the gain in nats per token below which they end.
        """
        n_lanes = lanes_for(self.packed, len(alpha))
        if n_lanes > 1:
            momentum = self.settings.momentum
            seeds = self._seeds(len(alpha))
            made_with = PassSettings(rule, alpha, eta, sweeps, passes, tolerance, momentum, self.n_tokens, seeds)
            return passes_in_lanes(self.packed, state, made_with, n_lanes)
        state, fit, made = kernels.memoized_passes(
            self.packed.tiles,
            state,
            alpha,
            np.float32(eta),
            rule=rule,
            sweeps=sweeps,
            passes=passes,
            tolerance=np.float32(tolerance),
            momentum=np.float32(self.settings.momentum),
            seeds=self._seeds(len(alpha)),
        )
        return Passes(state, int(made), float(fit))

    def _document_pass(self, topics: Any, gamma: Any, alpha: np.ndarray, sweeps: int, tolerance: float) -> Any:
        """Fit the topic proportions of all documents at fixed topics.

        topics: exp E[log β], (word, topic).
        gamma: γ, the Dirichlet parameters of the proportions, to start from.
        alpha: the prior's concentration on each topic.
        sweeps, tolerance: the most updates of a document, and the change of γ in tokens at which they end.

        Returns: (γ, expected counts of words in topics (word, topic)).
        """
        small, n_lanes = np.float32(tolerance), lanes_for(self.packed, len(alpha))

        def one_pass(tiles: DocumentTiles, gamma: Any) -> tuple[Array, Array]:
            return kernels.document_pass(tiles, topics, gamma, alpha, sweeps=sweeps, tolerance=small)

        if n_lanes == 1:
            return one_pass(self.packed.tiles, gamma)
        gammas, counts = zip(*in_lanes(one_pass, self.packed, gamma, n_lanes), strict=True)
        return join_lanes(gammas, self.packed), sum(counts[1:], start=counts[0])

    def _sum_over_documents(self, program: Callable[[DocumentTiles, Any], T], state: kernels.Counts) -> T:
        """Return the sum over all documents of what a program returns, a pytree of arrays, float64.

        program: a function of documents and of γ, the parameters of their proportions.
        state: counts and documents' parameters.
        """
        n_lanes, gamma = lanes_for(self.packed, state.total.shape[1]), state.proportions
        lanes = [program(self.packed.tiles, gamma)] if n_lanes == 1 else in_lanes(program, self.packed, gamma, n_lanes)
        return kernels.sum_of_parts(lanes)

    def _document_bound(self, log_topics: Array, gamma: Any, alpha: np.ndarray) -> float:
        """Return the documents' part of the lower bound on the log evidence, in nats. Call it under
        `jax.enable_x64(True)`.

        log_topics: E[log β], (word, topic).
        gamma: γ, the Dirichlet parameters of the documents' proportions.
        alpha: the prior's concentration on each topic.
        """
        wide, n_lanes = on_host(gamma).astype(np.float64), lanes_for(self.packed, len(alpha))

        def bounds(tiles: DocumentTiles, gamma: Any) -> Array:
            return kernels.document_bounds(tiles, log_topics, gamma, alpha)

        if n_lanes == 1:
            found = on_host(bounds(self.packed.tiles, split(wide, 1)))
        else:
            found = join_lanes(in_lanes(bounds, self.packed, wide, n_lanes), self.packed)
        return float(self.packed.gather(found).sum())

    def _certified(self, topics: np.ndarray, alpha: np.ndarray) -> tuple[float, float]:
        """Return proved (lower, upper) bounds on the log-likelihood of all documents together, in nats.

        topics: probability of each word in each topic, (topic, word).
        alpha: the concentration of the proportions on each topic.
        """
        ends = document_bounds(topics, alpha, self.counts)
        return float(ends.lower.sum()), float(ends.upper.sum())

    def _documents_with_words(self) -> int:
        """Return how many documents have at least one word."""
        return int((self.packed.lengths > 0).sum())

    def _mean_log_proportions(self, gamma: Any, n_topics: int) -> Float[np.ndarray, " topic"]:
        """Return the average of E[log θ_k] over the documents that have words, (topic,), float64, with θ a document's
        proportions.

        gamma: γ, the Dirichlet parameters of the documents' proportions.
        """
        real = (self.packed.documents >= 0) & (self.packed.lengths > 0)
        g = on_host(gamma).astype(np.float64)[real][:, :n_topics]
        return (scipy_digamma(g) - scipy_digamma(g.sum(-1, keepdims=True))).mean(0)


def point_topics(estimate: Estimate) -> Float[np.ndarray, "topic word"]:
    """Return the probability of each word in each topic of a fit, (topic, word), float64, with rows that sum to 1.

    Topics are at their posterior mean, or at the estimate for a plug-in fit.
    """
    model, natural = _model_of(estimate), estimate.natural["topic_word"].astype(np.float64)
    if isinstance(model.topics, PointSimplex):
        return _point_topics(natural.T, model.topics.smoothing, len(natural), len(natural)).T
    return (natural + 1) / (natural + 1).sum(-1, keepdims=True)


def _merged_counts(start: Estimate, eta: float, most: int) -> Float[np.ndarray, "topic word"]:
    """Return the expected word counts of a fit's topics, the cheapest merged until there are at most `most`.

    Topics with seeds are not merged.

    eta: η, the parameter of the Dirichlet prior on topics; 1 where topics are points.
    """
    counts, given = expected_counts(start, eta), _model_of(start).n_given
    return (
        np.concatenate([counts[:given], merge_topics(counts[given:], most - given)])
        if given
        else (merge_topics(counts, most))
    )


def expected_counts(estimate: Estimate, eta: float) -> Float[np.ndarray, "topic word"]:
    """Return the expected number of tokens of each word in each topic of a fit, (topic, word), none negative.

    They are the natural parameters of q(topics) + 1 − η, without the imaginary tokens of seeds.

    eta: η, the parameter of the Dirichlet prior on topics; 1 where topics are points.
    """
    counts, seeds = estimate.natural["topic_word"] + 1.0 - eta, _model_of(estimate).seeds
    if seeds is not None:
        counts[: seeds.n_topics] -= seeds.counts.astype(counts.dtype)
    return np.maximum(counts, 0.0)  # rounding leaves some counts a little below 0


def _model_of(estimate: Estimate) -> LDA:
    """Return the model of a fit, as an `LDA`."""
    return cast(LDA, estimate.model)


def _eta(model: LDA) -> float:
    """Return η, the concentration of the topics' prior. Raises ValueError for a model without a prior on topics."""
    eta = model.numbers()[1]
    if eta is None:
        raise ValueError("marginal evidence integrates topics out: got no topic_concentration, expected their prior")
    return float(eta)


def _columns(rows: Float[np.ndarray, "topic word"], capacity: int) -> Float[np.ndarray, "word capacity"]:
    """Return an array (topic, word) as (word, topic), with zeros for topics that do not exist, float32."""
    columns = np.zeros((rows.shape[1], capacity), np.float32)
    columns[:, : len(rows)] = rows.T
    return columns


def _means(counts: Float[np.ndarray, "topic word"], eta: float) -> Float[np.ndarray, "topic word"]:
    """Return the posterior means of topics with these expected counts of words under Dirichlet(η)."""
    return (counts + eta) / (counts + eta).sum(1, keepdims=True)


def _alpha(model: LDA, n_topics: int, capacity: int) -> Float[np.ndarray, " topic"]:
    """Return α, the concentration of the proportions on each topic, (capacity,), float32; 0 for topics that do not
    exist.
    """
    return exact_alpha(model, n_topics, capacity).astype(np.float32)


def exact_alpha(model: LDA, n_topics: int, capacity: int) -> Float[np.ndarray, " topic"]:
    """Return α, the concentration of the proportions on each topic, (capacity,), float64; 0 for topics that do not
    exist.
    """
    alpha, concentration = np.zeros(capacity), model.numbers()[0]
    alpha[:n_topics] = concentration / n_topics if concentration.ndim == 0 else concentration
    return alpha


def _plug_in_alpha(model: LDA, start: Estimate | None, n_topics: int) -> Float[np.ndarray, " topic"]:
    """Return the α (topic,) that Newton's method starts from in a plug-in fit.

    It is the α of the smaller fit `start`, with its mean for each new topic. Without a start it is the model's total
    spread evenly.
    """
    if start is None:
        concentration = model.numbers()[0]
        return np.broadcast_to(concentration / (n_topics if concentration.ndim == 0 else 1), (n_topics,))
    known = np.broadcast_to(_model_of(start).numbers()[0], start.size)
    return np.concatenate([known, np.full(n_topics - len(known), known.mean())])


def _point_topics(total: np.ndarray, smoothing: float, n_topics: int, capacity: int) -> Float[np.ndarray, "word topic"]:
    """Return the probability of each word in each topic, (word, topic), from counts: smoothed, normalised, at least
    `FLOOR`.

    This is what `PointSimplex` computes. Topics that do not exist are 0.

    total: expected counts of words in topics, (word, topic).
    smoothing: a number added to every count.
    """
    topics = np.maximum(total[:, :n_topics], 0) + smoothing
    topics = np.maximum(topics / np.maximum(topics.sum(0), FLOOR), FLOOR)
    return np.pad(topics / topics.sum(0), ((0, 0), (0, capacity - n_topics)))


def padded_topics(
    topics: Float[np.ndarray, "topic word"], alpha: Float[np.ndarray, " topic"]
) -> tuple[Float[np.ndarray, "capacity word"], Float[np.ndarray, " capacity"]]:
    """Return topics and α with topics of weight 0 added, so that few sizes are compiled.

    The new number of topics is the next power of two, at least 8, and above 64 the next multiple of 32. Certified
    intervals are compiled for every length of document. A search of many sizes would wait longer for ten capacities
    than it gains by narrower ones.

    topics: probability of each word in each topic, (topic, word).
    alpha: the concentration of the proportions on each topic, (topic,).
    """
    n_topics = len(alpha)
    width = (max(8, 1 << (n_topics - 1).bit_length()) if n_topics <= 64 else -(-n_topics // 32) * 32) - n_topics
    return np.pad(topics, ((0, width), (0, 0))), np.pad(alpha, (0, width))
