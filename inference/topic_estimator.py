"""LDA's estimator: memoized zeroth-order passes, then what the evidence needs, on the kernels of `topics.py`.

Marginal (topics a Dirichlet): zeroth-order passes find good topics fast; mean-field passes (Eq. 3.9–3.13) then climb
the evidence bound from there; the bound is computed in float64 at the result.
Plug-in (topics a point): variational EM (§3.4.2), the vector α by Newton on the evidence bound in every pass, from
zeroth-order topics or grown from a smaller fit; the evidence is then the certified interval of every document's
likelihood at the estimated (α, β).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from jaxtyping import Array, Float
from scipy.sparse import csr_array
from scipy.special import digamma as scipy_digamma

from lvsearch.inference import topics as kernels
from lvsearch.inference.data import Dataset
from lvsearch.inference.empirical_bayes import newton_dirichlet, newton_symmetric
from lvsearch.inference.estimator import Described, Estimate, bound_units, capacity_of, describe_units, estimator
from lvsearch.inference.likelihood.bounds import document_bounds
from lvsearch.inference.meanfield import Beliefs, expected_statistics, globals_bound
from lvsearch.models.families import PointSimplex
from lvsearch.models.lda import LDA

FLOOR = 1e-30
DESCRIBE_SWEEPS = 100


@dataclass(frozen=True)
class TopicSettings:
    """How hard to try."""

    zeroth_order_passes: int = 80
    zeroth_order_sweeps: int = 3
    mean_field_passes: int = 40
    mean_field_sweeps: int = 5
    final_sweeps: int = 30
    tolerance: float = 1e-4  # nats per token and pass
    documents_per_topic: int = 5  # §3.6: topics start from five documents each
    start_weight: float = 0.1  # pseudo-counts of a start, as a share of the corpus
    expectation_maximisation_passes: int = 20  # plug-in: variational EM, α refitted in each


class TopicEstimator:
    """Fits `LDA` to batches of documents. `empirical_bayes`: refit the hyper-parameters of the marginal form too."""

    def __init__(
        self,
        model: LDA,
        data: Dataset,
        settings: TopicSettings = TopicSettings(),
        empirical_bayes: bool = False,
    ):
        self.model, self.data, self.settings, self.empirical_bayes = model, data, settings, empirical_bayes
        self.groups = kernels.tiles(data)
        self.n_words = data.extents["word"]
        self.n_tokens = float(sum(g.counts.sum() for g in self.groups))
        self.counts = _csr(data)
        self.plug_in = isinstance(model.topics, PointSimplex)

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """One fit with `size[0]` topics: from documents, or grown from a smaller fit, extra topics from documents."""
        if self.plug_in:
            return self._fit_plug_in(size, key, start)
        return self._fit_marginal(size, key, start)

    # ── marginal ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fit_marginal(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        (n_topics,), (capacity,) = size, capacity_of(size)
        model = _model_of(start) if start is not None and self.empirical_bayes else self.model
        alpha, eta = _alpha(model, n_topics, capacity), _eta(model)
        pseudo_counts = self._start_counts(n_topics, capacity, key, start, eta)
        state, passes = self._zeroth_order(pseudo_counts, alpha, eta, self.settings.zeroth_order_passes)
        gammas, total = state.proportions, state.total
        for _ in range(self.settings.mean_field_passes):
            gammas, total = kernels.mean_field_pass(
                self.groups, _exp_expected_log(total, eta, alpha), gammas, alpha, sweeps=self.settings.mean_field_sweeps
            )
            if self.empirical_bayes:
                model = self._refitted(model, gammas, total, n_topics)
                alpha, eta = _alpha(model, n_topics, capacity), _eta(model)
        passes += self.settings.mean_field_passes
        natural = np.asarray(total)[:, :n_topics].T + np.float32(eta - 1)
        gammas, _ = kernels.mean_field_pass(
            self.groups, _exp_expected_log(total, eta, alpha), gammas, alpha, sweeps=self.settings.final_sweeps
        )
        lower = self._marginal_bound(model, natural, gammas, alpha)
        return Estimate(model, size, {"topic_word": natural}, lower, np.inf, passes)

    def _marginal_bound(self, model: LDA, natural: np.ndarray, gammas: tuple[Array, ...], alpha: Any) -> float:
        """The evidence bound in float64 at exactly `natural` (K, V) and γ, in nats."""
        size, capacity = natural.shape[:1], (len(alpha),)
        with jax.enable_x64(True):
            padded = np.pad(natural.astype(np.float64), ((0, capacity[0] - size[0]), (0, 0)))
            beliefs = topic_beliefs(model, padded, size, capacity=capacity)
            total = float(globals_bound(model, beliefs, size, capacity=capacity))
            wide = tuple(np.asarray(g, np.float64) for g in gammas)
            per_document = kernels.document_bounds(
                self.groups, np.asarray(beliefs.mean["topic_word"]).T, wide, _alpha64(model, len(natural), len(alpha))
            )
            return total + float(sum(np.asarray(b).sum() for b in per_document))

    def _refitted(self, model: LDA, gammas: tuple[Array, ...], total: Array, n_topics: int) -> LDA:
        """Empirical Bayes on the bound: the total of α and η, each shared by all entries (§3.4.3)."""
        mean_log = self._mean_log_proportions(gammas, n_topics)
        alpha_total = newton_symmetric(float(model.concentration), n_topics, float(mean_log.sum()))
        counts = np.asarray(total, np.float64)[:, :n_topics] + _eta(model)
        expected_log = scipy_digamma(counts) - scipy_digamma(counts.sum(0))
        eta_total = newton_symmetric(_eta(model) * self.n_words, self.n_words, float(expected_log.sum(0).mean()))
        return LDA(alpha_total, eta_total / self.n_words, model.topics)

    # ── plug-in ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fit_plug_in(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        (n_topics,), (capacity,) = size, capacity_of(size)
        smoothing = cast(PointSimplex, self.model.topics).smoothing
        alpha = np.zeros(capacity, np.float32)
        alpha[:n_topics] = _plug_in_alpha(self.model, start, n_topics)
        pseudo_counts = self._start_counts(n_topics, capacity, key, start, smoothing)
        if start is None:
            state, passes = self._zeroth_order(pseudo_counts, alpha, smoothing, self.settings.zeroth_order_passes)
        else:
            state, passes = kernels.start_state(self.groups, pseudo_counts, alpha), 0
        gammas, total = state.proportions, np.asarray(state.total, np.float64)
        for em_pass in range(self.settings.expectation_maximisation_passes):
            gammas, counts = kernels.mean_field_pass(
                self.groups,
                _point_topics(total, smoothing, n_topics, capacity).astype(np.float32),
                gammas,
                alpha,
                sweeps=self.settings.final_sweeps if em_pass == 0 else self.settings.mean_field_sweeps,
            )
            total = np.asarray(counts, np.float64)
            alpha[:n_topics] = newton_dirichlet(
                alpha[:n_topics].astype(np.float64), self._mean_log_proportions(gammas, n_topics)
            )
        passes += self.settings.expectation_maximisation_passes
        natural = np.asarray(counts)[:, :n_topics].T
        topics = _point_topics(natural.T.astype(np.float64), smoothing, n_topics, n_topics).T
        model = LDA(alpha[:n_topics], self.model.topic_concentration, self.model.topics)
        ends = document_bounds(*_padded(topics, np.asarray(alpha[:n_topics], np.float64), capacity), self.counts)
        return Estimate(model, size, {"topic_word": natural}, float(ends.lower.sum()), float(ends.upper.sum()), passes)

    # ── shared ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _zeroth_order(
        self, state: kernels.Counts | np.ndarray, alpha: Any, eta: float, passes: int
    ) -> tuple[kernels.Counts, int]:
        begin = state if isinstance(state, kernels.Counts) else kernels.start_state(self.groups, state, alpha)
        settled, _, made = kernels.memoized_passes(
            self.groups,
            begin,
            alpha,
            np.float32(eta),
            sweeps=self.settings.zeroth_order_sweeps,
            passes=passes,
            tolerance=np.float32(self.settings.tolerance),
        )
        return settled, int(made)

    def _start_counts(
        self, n_topics: int, capacity: int, key: Array, start: Estimate | None, smoothing: float
    ) -> Float[np.ndarray, "word topic"]:
        """Pseudo-counts to start from: kept topics, and for each new one the words of a few documents (§3.6)."""
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        pseudo_counts = np.zeros((self.n_words, capacity), np.float32)
        kept = 0
        if start is not None:
            kept = start.natural["topic_word"].shape[0]
            offset = 0.0 if self.plug_in else 1.0 - _eta(_model_of(start))
            pseudo_counts[:, :kept] = np.maximum(start.natural["topic_word"].T + offset, 0.0)
        weight = self.settings.start_weight * self.n_tokens / n_topics
        few = min(self.settings.documents_per_topic, self.counts.shape[0])
        for topic in range(kept, n_topics):
            chosen = random.choice(self.counts.shape[0], few, replace=False)
            words = np.asarray(self.counts[chosen].sum(0), np.float64) + smoothing
            pseudo_counts[:, topic] = weight * words / words.sum()
        return pseudo_counts

    def _mean_log_proportions(self, gammas: tuple[Array, ...], n_topics: int) -> Float[np.ndarray, " topic"]:
        """The average over documents of E[log θ], float64; padding rows carry no tokens and are left out."""
        total, documents = np.zeros(n_topics), 0
        for group, gamma in zip(self.groups, gammas, strict=True):
            real = np.asarray(group.counts).sum(-1) > 0
            g = np.asarray(gamma, np.float64)[real][:, :n_topics]
            total += (scipy_digamma(g) - scipy_digamma(g.sum(-1, keepdims=True))).sum(0)
            documents += len(g)
        return total / documents


@estimator.register
def _(model: LDA, data: Dataset) -> TopicEstimator:
    return TopicEstimator(model, data)


@describe_units.register
def _(model: LDA, estimate: Estimate, data: Dataset) -> Described:
    """Proportions (docs, K) and the bound of each document at the posterior-mean topics, by the kernels."""
    (n_topics,), (capacity,) = estimate.size, capacity_of(estimate.size)
    alpha = _alpha(model, n_topics, capacity)
    exact = np.zeros((data.extents["word"], capacity))
    exact[:, :n_topics] = point_topics(estimate).T
    groups = kernels.tiles(data)
    start = kernels.start_state(groups, exact, alpha).proportions
    gammas, _ = kernels.mean_field_pass(groups, exact.astype(np.float32), start, alpha, sweeps=DESCRIBE_SWEEPS)
    with jax.enable_x64(True):
        log_topics = np.log(np.where(exact > 0, exact, 1e-300))
        wide = tuple(np.asarray(g, np.float64) for g in gammas)
        lower = kernels.document_bounds(groups, log_topics, wide, _alpha64(model, n_topics, capacity))
    per_batch = [g[:, :n_topics].astype(np.float64) for g in kernels.ungroup(data, gammas)]
    proportions = [g / g.sum(-1, keepdims=True) for g in per_batch]
    return Described(data.gather(proportions), data.gather(kernels.ungroup(data, lower)))


@bound_units.register
def _(model: LDA, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The certified interval of each document's likelihood at the posterior-mean topics."""
    (n_topics,), (capacity,) = estimate.size, capacity_of(estimate.size)
    padded = _padded(point_topics(estimate), _alpha64(model, n_topics, n_topics), capacity)
    ends = document_bounds(*padded, _csr(data))
    return ends.lower, ends.upper


def point_topics(estimate: Estimate) -> Float[np.ndarray, "topic word"]:
    """p(word | topic) at the posterior mean (plug-in: at the estimate), float64, rows summing to 1."""
    model, natural = _model_of(estimate), estimate.natural["topic_word"].astype(np.float64)
    if isinstance(model.topics, PointSimplex):
        return _point_topics(natural.T, model.topics.smoothing, len(natural), len(natural)).T
    return (natural + 1) / (natural + 1).sum(-1, keepdims=True)


def _model_of(estimate: Estimate) -> LDA:
    return cast(LDA, estimate.model)


@partial(jax.jit, static_argnames=("capacity",))
def topic_beliefs(model: LDA, natural: Array, size: tuple[Array | int, ...], *, capacity: tuple[int, ...]) -> Beliefs:
    """q(topics) from its padded natural parameters (capacity, V)."""
    mean = expected_statistics(model.globals()["topic_word"], natural, model.active(size, capacity))
    return Beliefs({"topic_word": natural}, {"topic_word": mean})


def _eta(model: LDA) -> float:
    if model.topic_concentration is None:
        raise ValueError("marginal evidence integrates topics out: got no topic_concentration, expected their prior")
    return float(model.topic_concentration)


def _alpha(model: LDA, n_topics: int, capacity: int) -> Float[np.ndarray, " topic"]:
    return _alpha64(model, n_topics, capacity).astype(np.float32)


def _alpha64(model: LDA, n_topics: int, capacity: int) -> Float[np.ndarray, " topic"]:
    alpha = np.zeros(capacity)
    alpha[:n_topics] = model.concentration / n_topics if model.concentration.ndim == 0 else model.concentration
    return alpha


def _plug_in_alpha(model: LDA, start: Estimate | None, n_topics: int) -> Float[np.ndarray, " topic"]:
    """Where Newton starts: the smaller fit's α with its mean for each new topic, or the model's total spread out."""
    if start is None:
        return np.broadcast_to(model.concentration / (n_topics if model.concentration.ndim == 0 else 1), (n_topics,))
    known = np.broadcast_to(_model_of(start).concentration, start.size)
    return np.concatenate([known, np.full(n_topics - len(known), known.mean())])


def _exp_expected_log(total: Array, eta: float, alpha: Any) -> Float[Array, "word topic"]:
    return _exp_expected_log_jit(total, np.float32(eta), alpha)


@jax.jit
def _exp_expected_log_jit(total: Array, eta: Array, alpha: Array) -> Array:
    concentration = total + eta
    return jnp.where(alpha > 0, jnp.exp(digamma(concentration) - digamma(concentration.sum(0))), 0.0)


def _point_topics(total: np.ndarray, smoothing: float, n_topics: int, capacity: int) -> Float[np.ndarray, "word topic"]:
    """The simplex point of `PointSimplex`: smoothed, normalised, floored; 0 for topics that do not exist."""
    topics = np.maximum(total[:, :n_topics], 0) + smoothing
    topics = np.maximum(topics / np.maximum(topics.sum(0), FLOOR), FLOOR)
    return np.pad(topics / topics.sum(0), ((0, 0), (0, capacity - n_topics)))


def _padded(topics: np.ndarray, alpha: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    width = capacity - len(alpha)
    return np.pad(topics, ((0, width), (0, 0))), np.pad(alpha, (0, width))


def _csr(data: Dataset) -> csr_array:
    """The documents as sparse counts again, (D, V)."""
    rows, words, values = [], [], []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        document, slot = np.nonzero(np.asarray(batch.units.counts))
        rows.append(ids[document])
        words.append(np.asarray(batch.units.words)[document, slot])
        values.append(np.asarray(batch.units.counts)[document, slot])
    shape = (data.n_units, data.extents["word"])
    parts = np.concatenate(values).astype(np.int32), (np.concatenate(rows), np.concatenate(words))
    counts = csr_array(parts, shape=shape)
    counts.sort_indices()
    return counts
