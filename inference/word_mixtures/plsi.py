"""The estimator of pLSI (probabilistic latent semantic indexing): over-relaxed EM and tempered EM on packed documents.

With n_dw the count of word w in document d, θ_dk the proportion of topic k in it, and β_kw the probability of the word
in the topic, the steps are

    E   p(z = k | d, w) ∝ (θ_dk β_kw)^b                          b = 1: EM; b < 1: tempered (Hofmann 1999)
    M   θ_dk ∝ Σ_w n_dw p(k | d, w),    β_kw ∝ Σ_d n_dw p(k | d, w) + smoothing

Both M-steps need sums over words or over documents alone, so no (document, word, topic) array is held. The θ of a tile
(small group) of documents are updated `document_sweeps` times. Then the tile adds its expected counts to those of the
topics. Arithmetic is float32, and the reported likelihood is summed in float64.

The exponent b is chosen as Hofmann does (`choose_tempering`): it is lowered as long as held-out documents are predicted
better.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Key
from scipy.sparse import csr_array

from lvsearch.inference.chains import Chain
from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of, documents, row_of_each_nonzero
from lvsearch.inference.data.packing import DocumentTiles, pack
from lvsearch.inference.engine.describing import Described, UnitScores, describe_units
from lvsearch.inference.engine.estimate import Estimate, capacity_of, just_above
from lvsearch.inference.engine.estimator import MIB, BaseEstimator, MemoryPlan, Part
from lvsearch.inference.likelihood.completion import document_completion, split_documents
from lvsearch.inference.likelihood.proportions import FoldedIn, TrainingDocuments, fold_in
from lvsearch.inference.word_mixtures.mixture import seeded_counts
from lvsearch.models.kernels import kernel
from lvsearch.models.plsi import PLSI

TINY, FLOOR = 1e-30, 1e-30
"""The smallest divisor, and the smallest probability of a word in a topic."""
WORDS_AT_ONCE = 1 << 16
"""How many (document, word) pairs have their probabilities computed at once."""


@dataclass(frozen=True)
class PLSISettings:
    """Settings of a fit of pLSI: how much work it does, and when it ends.

    | field | meaning |
    |---|---|
    | `passes` | the most passes over the documents |
    | `tolerance` | a pass that gains less than this share of the log-likelihood is the last one; §3.6.1 has 1e-5 |
    | `momentum` | the exponent of over-relaxation, see `aspect_passes`; 0: EM as published |
    | `document_sweeps` | updates of a document's topic proportions in a pass |
    | `fewest_passes` | passes made in any case, because EM starts slowly near even topics |
    | `start_tokens` | tokens of the documents that a topic starts from, beside one spread over the vocabulary (§3.6) |
    """

    passes: int = 200
    tolerance: float = 1e-5
    document_sweeps: int = 2
    fewest_passes: int = 10
    start_tokens: float = 2.0
    momentum: float = 0.9


class Aspects(NamedTuple):
    """The state of EM for pLSI.

    `counts`: expected counts of words in topics, (word, topic); the topics are these divided by their sums.
    `proportions`: θ, the topic proportions of each document, (batch, tile, document, topic). Documents are packed into
        tiles (blocks of fixed size), and tiles into batches.
    """

    counts: Float[Array | np.ndarray, "word topic"]
    proportions: Float[Array | np.ndarray, "batch tile document topic"]


class Climb(NamedTuple):
    """The progress of EM.

    | field | meaning |
    |---|---|
    | `state` | the parameters |
    | `topics` | the topics before the last pass was over-relaxed, (word, topic) |
    | `before`, `after` | the objective (tempered log-likelihood, nats) before and after the last pass |
    | `passes` | the number of passes made |
    """

    state: Aspects
    topics: Float[Array, "word topic"]
    before: Float[Array, ""]
    after: Float[Array, ""]
    passes: Int[Array, ""]


class PLSIEstimator(BaseEstimator):
    """The estimator of `PLSI` on documents."""

    model: PLSI

    def __init__(self, model: PLSI, data: Dataset, settings: PLSISettings = PLSISettings()):
        """Count the words of the documents and pack them into arrays; nothing is fitted."""
        super().__init__(model)
        self.settings = settings
        self.counts = counts_of(data)
        self.packed = pack(self.counts, n_batches=1)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return how many bytes one fit holds, part by part: counts, topics four times and proportions four times.

        size: (number of topics,).
        """
        (capacity,) = capacity_of(size)
        n_docs, n_words = self.counts.shape[0], self.counts.shape[1]
        return MemoryPlan(
            (
                Part("counts", 3 * 8 * self.counts.nnz),
                Part("topics", 4 * 8 * n_words * capacity),
                Part("proportions", 4 * 8 * n_docs * capacity),
                Part("compiled programs", 50 * MIB),
            )
        )

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit one number of topics by EM and return the fit.

        Its `log_lower` is the log-likelihood log p(data | θ̂, β̂), nats, and `log_upper` the same number rounded up.
        The topics β̂ are the estimate. The proportions θ̂ are folded in at β̂, which is where EM's own θ stand once it
        has converged.

        size: (number of topics,).
        key: the random key of the start.
        start: a fit of a smaller size, whose topics are kept. None starts each topic from a few documents.
        """
        (n_topics,), (capacity,) = size, capacity_of(size)
        state, before = self.begin(n_topics, capacity, key, start), 0
        if start is None and self.model.tempering < 1:
            # Hofmann's order; from scratch a low exponent leaves topics alike
            state, before = self.climb(state, n_topics, 1.0)
        state, passes = self.climb(state, n_topics)
        passes += before
        natural = np.asarray(state.counts)[:, :n_topics].T.copy()
        estimate = Estimate(self.model, size, {"topic_word": natural}, 0.0, 0.0, passes)
        lower = float(self._likelihood(estimate).sum())
        return estimate._replace(log_lower=lower, log_upper=just_above(lower))

    def begin(self, n_topics: int, capacity: int, key: Array, start: Estimate | None = None) -> Aspects:
        """Return the parameters at which EM begins: topics from a few documents each, even proportions.

        n_topics: the number of topics.
        capacity: the length of the arrays over topics.
        key: the random key of the documents drawn.
        start: a fit of another size, whose topics are kept, or None.
        """
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        kept = 0 if start is None else min(start.size[0], n_topics)
        counts = np.zeros((self.counts.shape[1], capacity), np.float32)
        if start is not None:
            counts[:, :kept] = start.natural["topic_word"][:kept].T
        new = seeded_counts(self.counts, n_topics - kept, self.settings.start_tokens, random)
        # a topic's share of all tokens: beside it the smoothing is what it will be later
        counts[:, kept:n_topics] = (
            new * (self.counts.sum() / n_topics / np.maximum(new.sum(1, keepdims=True), TINY))
        ).T
        exists = (np.arange(capacity) < n_topics).astype(np.float32)
        even = np.broadcast_to(exists / n_topics, (*self.packed.documents.shape, capacity))
        return Aspects(counts, even.copy())

    def climb(
        self, state: Aspects, n_topics: int, tempering: float | None = None, most: int | None = None
    ) -> tuple[Aspects, int]:
        """Run EM from given parameters until it converges; return (the last parameters, how many passes were made).

        state: the parameters to start from; their memory is reused.
        tempering: the exponent b of the E-step; by default the model's.
        most: the most passes; by default those of the settings.
        """
        state, passes = aspect_passes(
            self.packed.tiles,
            state,
            np.int32(n_topics),
            np.float32(self.model.smoothing),
            np.float32(self.model.tempering if tempering is None else tempering),
            np.int32(self.settings.document_sweeps),
            np.int32(self.settings.fewest_passes),
            np.int32(self.settings.passes if most is None else most),
            np.float32(self.settings.tolerance),
            np.float32(self.settings.momentum),
        )
        return state, int(passes)

    def _likelihood(self, estimate: Estimate) -> Float64[np.ndarray, " document"]:
        """Return the log-likelihood of every training document at folded-in proportions and a fit's topics,
        (document,), nats.
        """
        topics = point_topics(estimate)
        theta = fold_in(topics, self.counts, self.model.tempering)
        return log_likelihood(theta, topics, self.counts)


@kernel(donate_argnames=("state",), brief=True)
@counted
def aspect_passes(
    tiles: DocumentTiles,
    state: Aspects,
    n_topics: int | Array | np.ndarray,
    smoothing: float | Array | np.ndarray,
    tempering: float | Array | np.ndarray,
    sweeps: int | Array | np.ndarray,
    fewest: int | Array | np.ndarray,
    passes: int | Array | np.ndarray,
    tolerance: float | Array | np.ndarray,
    momentum: float | Array | np.ndarray,
) -> tuple[Aspects, Array]:
    """Run up to `passes` passes of EM for pLSI; return (the last parameters, how many passes were made).

    The objective is Σ n_dw log Σ_k (θ_dk β_kw)^b / b, which for b = 1 is the log-likelihood. Here n are the word
    counts, θ the documents' proportions and β the topics. EM stops after at least `fewest` passes, when one changes the
    objective by less than the share `tolerance`.

    A pass is over-relaxed (Salakhutdinov and Roweis 2003). It begins at the last topics β times (β / previous
    β)^momentum, normalised. A factor is used because a sum could make an entry zero, where it would stay. If the last
    pass lowered the objective, the next one begins at β itself.

    tiles: the documents, each array (batch, tile, …).
    state: the parameters to start from; their memory is reused.
    n_topics: only the first `n_topics` columns exist.
    smoothing: the number added to every expected count of a topic.
    tempering: the exponent b.
    sweeps: updates of a document's proportions in a pass.
    momentum: the exponent of over-relaxation.
    """
    tiles = jax.tree.map(jnp.asarray, tiles)
    exists = jnp.arange(state.counts.shape[1]) < n_topics

    def normalise(topics: Array) -> Array:
        topics = jnp.where(exists, topics, 0.0)
        return topics / jnp.maximum(topics.sum(0), TINY)

    def one_pass(carry: Climb) -> Climb:
        # M-step of the topics, then over-relaxation, then β^b for the tempered E-step
        topics = normalise(jnp.asarray(carry.state.counts) + smoothing)
        share = jnp.where(carry.after > carry.before, momentum, 0.0)
        update_proportions = (topics / jnp.maximum(carry.topics, TINY)) ** share
        power = normalise(topics * jnp.where(carry.topics > 0, update_proportions, 1.0)) ** tempering
        power = jnp.where(exists, power, 0.0)

        def one_tile(total: Array, x: tuple[DocumentTiles, Array]) -> tuple[Array, tuple[Array, Array]]:
            tile, theta = x
            theta, expected, fit = _update_tile(power[tile.words], tile, theta, tempering, sweeps)
            return total.at[tile.words].add(expected), (theta, fit)

        def one_batch(total: Array, x: tuple[DocumentTiles, Array]) -> tuple[Array, tuple[Array, Array]]:
            return jax.lax.scan(one_tile, total, x)

        proportions = jnp.asarray(carry.state.proportions)
        total, (theta, fits) = jax.lax.scan(one_batch, jnp.zeros_like(topics), (tiles, proportions))
        return Climb(Aspects(total, theta), topics, carry.after, fits.sum() / tempering, carry.passes + 1)

    def unfinished(carry: Climb) -> Array:
        gain = carry.after - carry.before
        moving = (gain < 0) | (gain > tolerance * jnp.abs(carry.after))
        return (carry.passes < passes) & ((carry.passes < fewest) | moving)

    low = jnp.asarray(-jnp.inf, jnp.float32)
    start = Climb(state, jnp.zeros_like(jnp.asarray(state.counts)), low, low, jnp.asarray(0))
    climbed = jax.lax.while_loop(unfinished, one_pass, start)
    return climbed.state, climbed.passes


def _update_tile(
    rows: Float[Array, "block slot topic"],
    tile: DocumentTiles,
    theta: Float[Array, "document topic"],
    tempering: float | Array | np.ndarray,
    sweeps: int | Array | np.ndarray,
) -> tuple[Array, Array, Array]:
    """Update the topic proportions θ of a tile's documents, and compute their expected counts.

    rows: β^b at the tile's words, with β the topics and b the tempering.
    tile: the documents.
    theta: θ to start from.
    tempering: the exponent b.
    sweeps: how many updates; the last one gives all three results from one E-step.

    Returns: (θ (document, topic), expected counts (block, slot, topic), Σ n log Σ_k (θ_dk β_kw)^b of the tile in nats).
    """
    counts, slots = jnp.asarray(tile.counts), jnp.asarray(tile.slots)

    def word_masses(theta: Array) -> tuple[Array, Array]:
        power = theta**tempering
        return power, jnp.maximum((rows * power[slots][:, None]).sum(-1), TINY)

    def update_proportions(theta: Array, power: Array, per_block: Array) -> Array:
        new = power * jnp.zeros_like(theta).at[slots].add(per_block)
        total = new.sum(-1, keepdims=True)
        return jnp.where(total > 0, new / jnp.where(total > 0, total, 1.0), theta)

    def update(_: Array | int, theta: Array) -> Array:
        power, mass = word_masses(theta)
        return update_proportions(theta, power, (rows * (counts / mass)[..., None]).sum(1))

    theta = jax.lax.fori_loop(0, sweeps - 1, update, theta)
    # the last sweep: p(k | d, w) n_dw = rows · θ^b · n_dw / mass
    power, mass = word_masses(theta)
    shares = rows * (counts / mass)[..., None]
    expected = shares * power[slots][:, None]
    return update_proportions(theta, power, shares.sum(1)), expected, (counts * jnp.log(mass)).sum()


def describe_documents_of_plsi(model: PLSI, estimate: Estimate, data: Dataset) -> Described:
    """Return the topic proportions of each document and log p(document | proportions, topics), nats: `describe_units`
    of pLSI.

    The proportions are folded in: fitted to the document at fixed topics. For a training document this is what pLSI
    maximises. For a new document it is no likelihood, since proportions were fitted to the very words that are scored.
    """
    topics, counts = point_topics(estimate), counts_of(data)
    theta = fold_in(topics, counts, model.tempering)
    return Described(theta, log_likelihood(theta, topics, counts))


def score_documents_of_plsi(
    model: PLSI, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Return log p(document) at folded-in proportions, with a note that it is no likelihood: `score_units` of pLSI.

    capacity, samples, key: not used, since nothing is sampled.
    """
    score = describe_units(model, estimate, data).log_lower
    return UnitScores(score, 0.0, "folding in on the words that are scored: no likelihood")


def no_evidence_chain_of_plsi(model: PLSI, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> Chain:
    """Raise ValueError, because pLSI has no evidence to anneal."""
    raise ValueError(
        'got PLSI with evidence="marginal", expected evidence="plug-in": pLSI integrates no parameter out, so its only '
        "score is the likelihood of its estimates, which grows with the size. Use lv.models.LDA for a marginal evidence"
    )


def point_topics(estimate: Estimate) -> Float64[np.ndarray, "topic word"]:
    """Return the estimated probability of each word in each topic, (topic, word), float64; rows sum to 1.

    No probability is below `FLOOR`.
    """
    model = estimate.model
    assert isinstance(model, PLSI)
    counts = np.maximum(estimate.natural["topic_word"].astype(np.float64), 0) + model.smoothing
    raised = np.maximum(counts / np.maximum(counts.sum(1, keepdims=True), FLOOR), FLOOR)
    return raised / raised.sum(1, keepdims=True)


def log_likelihood(
    theta: Float64[np.ndarray, "document topic"], topics: Float64[np.ndarray, "topic word"], counts: csr_array
) -> Float64[np.ndarray, " document"]:
    """Return the log-likelihood of each document, Σ_w n_dw log Σ_k θ_dk β_kw, (document,), in nats, float64.

    theta: θ, the topic proportions of each document.
    topics: β, the probability of each word in each topic.
    counts: n, the count of each word in each document, (document, word).
    """
    rows = row_of_each_nonzero(counts)
    word_topic = np.ascontiguousarray(topics.T)
    terms = np.empty(counts.nnz)
    for begin in range(0, counts.nnz, WORDS_AT_ONCE):
        part = slice(begin, begin + WORDS_AT_ONCE)
        mass = np.einsum("ek,ek->e", theta[rows[part]], word_topic[counts.indices[part]])
        with np.errstate(divide="ignore"):
            terms[part] = counts.data[part] * np.log(mass)
    return np.bincount(rows, weights=terms, minlength=counts.shape[0]).astype(np.float64)


RATE = 0.9
"""The factor by which the exponent is lowered each time (Hofmann 1999, §3.3)."""
LOOK = 5
"""The number of EM passes between two evaluations on the held-out documents."""
DEFAULT = PLSISettings()
HELD_OUT = 0.1
"""The share of the training documents that is held out to decide."""


class Tempering(NamedTuple):
    """The exponent chosen for pLSI's tempered EM, with the exponents tried.

    | field | meaning |
    |---|---|
    | `best` | the exponent chosen |
    | `tried` | (exponent, best held-out perplexity at it) in the order tried |
    | `start` | the topics at the best perplexity, from which a fit of all documents may begin |
    """

    best: float
    tried: tuple[tuple[float, float], ...]
    start: Estimate


def choose_tempering(
    counts: csr_array,
    n_topics: int,
    *,
    key: Key[Array, ""],
    smoothing: float = 0.0,
    least: float = 0.3,
    settings: PLSISettings = DEFAULT,
) -> Tempering:
    """Choose the exponent b = 1, 0.9, 0.81, … of pLSI's tempered EM at which held-out documents are predicted best.

    The method is that of Hofmann (1999, §3.3). EM runs on 90 % of the documents, and stops early when the other 10 %
    are predicted no better. Then b is lowered and EM goes on from the best parameters so far. The search ends when a
    lower b predicts no better, or is below `least`.

    Held-out documents are folded in on half of their tokens and scored on the other half. Words that the 90 % do not
    have are left out, since without smoothing they are impossible at every b. To fit all documents with the choice,
    call `PLSIEstimator(PLSI(smoothing, best), …).fit(…, start)`.

    counts: the count of each word in each document, (document, word).
    n_topics: the number of topics.
    key: the random key of the split and of the start.
    smoothing: the number added to every expected count of a topic.
    least: the smallest exponent that is tried.
    settings: how much work EM does.

    Raises ValueError for fewer than 10 documents.
    """
    if counts.shape[0] < 10:
        raise ValueError(f"got {counts.shape[0]} documents, expected at least 10, of which a tenth decides")
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel()).permutation(counts.shape[0])
    deciding, kept = np.split(order, [round(HELD_OUT * counts.shape[0])])
    kept_counts = csr_array(counts[np.sort(kept)])
    observed, held_out = split_documents(_drop_unseen_words(csr_array(counts[deciding]), kept_counts), 0.5, seed=0)
    fitting = PLSIEstimator(PLSI(smoothing), documents(kept_counts), settings)

    def run_until_worse(state: Aspects, tempering: float, first: int) -> tuple[float, Aspects]:
        """Run EM until the held-out perplexity rises, and return (perplexity, state) of the best evaluation.

        state: the parameters to start from. tempering: the exponent b.
        first: passes before the first evaluation; later ones are LOOK passes apart.
        """
        best, ahead = (math.inf, state), first
        while True:
            state, passes = fitting.climb(_copy_state(state), n_topics, tempering, ahead)
            topics = point_topics(_estimate_from_state(fitting.model, state, n_topics))
            score = document_completion(topics, FoldedIn(tempering), observed, held_out).perplexity
            worse, best = score >= best[0], min(best, (score, _copy_state(state)), key=lambda look: look[0])
            if worse or passes < ahead:
                return best
            ahead = LOOK

    # lower the exponent step by step, always from the best parameters so far, until that predicts no better
    (capacity,), tempering = capacity_of((n_topics,)), 1.0
    tried: list[tuple[float, float]] = []
    best = (math.inf, fitting.begin(n_topics, capacity, key))
    while tempering >= least:
        score, state = run_until_worse(best[1], tempering, LOOK if tried else settings.fewest_passes)
        tried.append((tempering, score))
        if score >= best[0]:
            break
        best, tempering = (score, state), tempering * RATE
    chosen = min(tried, key=lambda each: each[1])[0]
    return Tempering(chosen, tuple(tried), _estimate_from_state(PLSI(smoothing, chosen), best[1], n_topics))


def _copy_state(state: Aspects) -> Aspects:
    """Return a copy of EM's parameters, because EM overwrites those that it begins at."""
    return Aspects(*(np.array(part) for part in state))


def _estimate_from_state(model: PLSI, state: Aspects, n_topics: int) -> Estimate:
    """Return a fit whose topics are EM's present parameters; its bounds are 0 and mean nothing."""
    return Estimate(model, (n_topics,), {"topic_word": np.asarray(state.counts)[:, :n_topics].T.copy()}, 0.0, 0.0, 0)


def _drop_unseen_words(counts: csr_array, training: csr_array) -> csr_array:
    """Return the counts of the documents without words that no training document has, (document, word).

    training: the counts of the training documents.
    """
    seen = np.asarray(training.sum(0)).ravel() > 0
    out = csr_array(counts, copy=True)
    out.data = np.where(seen[out.indices], out.data, 0)
    out.eliminate_zeros()
    return out


def proportions_of_plsi(model: PLSI, estimate: Estimate, training: Dataset) -> TrainingDocuments:
    """Return the empirical distribution of the training documents' proportions, each weighted by its share of the
    tokens.
    """
    lengths = np.asarray(counts_of(training).sum(1), np.float64)
    return TrainingDocuments(describe_units(model, estimate, training).representation, lengths / lengths.sum())
