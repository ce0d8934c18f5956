"""Fits of LDA to documents on disk, read piece by piece: memoized passes, and stochastic variational inference.

**Memoized passes** are those of `topics.estimator`, one piece of a batch at a time. For documents in memory a pass is
one compiled program over arrays. Here the documents' tiles and γ, the parameters of their topic proportions, lie in
temporary files (`data.streaming`, `data.mapped`). A piece of a batch is read and updated by the same kernel. Its γ is
written back while the next piece is being computed. Memory holds the topics, the counts of every batch and one piece:
apart from a few bytes per document, nothing grows with the number of documents.

Sums over documents are grouped differently than in one program, and the quantity that decides when to stop is summed in
float64. Results therefore agree with those of documents in memory to float32's rounding, not to the bit.

**Stochastic variational inference** updates the topics after every few documents, for data that are read once. Memoized
passes keep the counts of every batch, and subtract them when the batch comes again. With a single pass no batch comes
again. Here the topics' natural parameters λ follow noisy natural gradients instead (Hoffman, Blei, Wang & Paisley 2013,
§2.4 and Figure 4). All documents are divided into minibatches 1, …, M. At step t one minibatch m is drawn, and n_m are
the expected counts (word, topic) of its documents at the current topics:

    λ ← λ + ρ_t (η + M n_m − λ)

Here η is the topics' prior concentration and ρ_t the step size. The bracket is an unbiased estimate of the natural
gradient of the evidence bound (its Eq. 24), since the mean of M n_m over the minibatches is Σ_m n_m. Steps with Σ ρ_t =
∞ and Σ ρ_t² < ∞ (Robbins & Monro 1951) converge to a fixed point of coordinate ascent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import fsum, inf
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.special import digamma as scipy_digamma

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import StoredDocuments, counts_of
from lvsearch.inference.data.packing import DocumentTiles, PackedDocuments, batches_for, pack
from lvsearch.inference.data.streaming import (
    DocumentPiece,
    ScratchArray,
    StreamedDocuments,
    pack_streamed,
    streamed_layout_on_device,
)
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.estimator import MemoryPlan, estimator
from lvsearch.inference.generators import fold_in, permutation, split_key
from lvsearch.inference.likelihood.bounds import document_bounds
from lvsearch.inference.sharding import on_host
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.estimator import TopicEstimator, exact_alpha
from lvsearch.inference.topics.passes import (
    BatchCounts,
    Passes,
    PassSettings,
    passes_in_turn,
    streamed_plan,
    visit_tiles,
)
from lvsearch.models.families import PointSimplex
from lvsearch.models.kernels import kernel
from lvsearch.models.lda import LDA

T = TypeVar("T")


def estimator_of_lda(model: LDA, data: Dataset) -> TopicEstimator:
    """Return the estimator of LDA, for documents on disk or in memory."""
    if isinstance(data.original, StoredDocuments):
        return StreamedTopicEstimator(model, data)
    return TopicEstimator(model, data)


class StreamedTopicEstimator(TopicEstimator):
    """The estimator of `LDA` for documents on disk. `TopicEstimator` is its counterpart for documents in memory."""

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return how many bytes one fit holds at its worst moment. The formula is in `streamed_plan`.

        size: (number of topics,).
        """
        (capacity,) = capacity_of(size)
        return streamed_plan(self._layout, self.n_words, capacity, self._batches_within(capacity))

    def _prepare(self, data: Dataset) -> None:
        """Read how the documents' files are laid out, and keep the dataset. Raises ValueError if documents are not in
        files.
        """
        self.data, original = data, data.original
        if not isinstance(original, StoredDocuments):
            raise ValueError(f"got {type(original).__name__}, expected documents in files, as Corpus.open has them")
        self._files = original.files
        self.n_tokens = float(self._files.n_tokens)
        n_batches = batches_for(self._files.n_pairs, self.n_words)
        self._layout = streamed_layout_on_device(self._files, n_batches)
        self._packed_on_disk: StreamedDocuments | None = None

    def capacity(self, n_topics: int) -> int:
        """Return the length of arrays over topics."""
        return capacity_of((n_topics,))[0]

    def _batches_within(self, capacity: int) -> int:
        """Return into how many batches the documents are divided: as many as the memory budget allows.

        The number is halved further each time memory ran out.

        capacity: the length of the arrays over topics.
        """
        n_batches = min(batches_for(self._files.n_pairs, self.n_words), self._layout.n_tiles)
        budget = self.chunks.budget_bytes
        while n_batches > 1 and streamed_plan(self._layout, self.n_words, capacity, n_batches).peak_bytes > budget:
            n_batches //= 2
        return max(n_batches >> self.chunks.halvings, 1)

    def _lay_out(self, capacity: int) -> None:
        """Pack the documents into batches on disk, unless they are packed already into as many batches as `capacity`
        topics allow.
        """
        n_batches, packed = self._batches_within(capacity), self._packed_on_disk
        if packed is None or packed.n_batches != n_batches:
            self._packed_on_disk = pack_streamed(self._files, self._layout, n_batches)

    @property
    def _documents(self) -> StreamedDocuments:
        """The documents packed on disk."""
        assert self._packed_on_disk is not None
        return self._packed_on_disk

    def _words_in(self, chosen: Int[np.ndarray, " chosen"]) -> Float[np.ndarray, " word"]:
        """Return how often each word occurs in the chosen documents together, (word,).

        chosen: the numbers of the documents.
        """
        found = np.zeros(self.n_words)
        for document in np.sort(chosen).tolist():
            found += self._files.rows(document, document + 1).sum(axis=0)
        return found

    def _start_state(self, pseudo_counts: np.ndarray, alpha: np.ndarray) -> kernels.Counts:
        """Return the state before the first pass: topics from pseudo-counts, and even topic proportions for every
        document.

        pseudo_counts: how many tokens of each word each topic begins with, (word, topic).
        alpha: the concentration of the proportions on each topic, (topic,); 0 for topics that do not exist.
        """
        documents, exists = self._documents, alpha > 0
        gammas = ScratchArray(documents.n_tiles, np.dtype((np.float32, (documents.tile_slots, len(alpha)))))
        for piece in documents.pieces():
            even = np.where(exists, alpha + piece.lengths[..., None] / exists.sum(), 0.0)
            gammas.write(piece.first, even.astype(np.float32))
        total = jnp.asarray(pseudo_counts, jnp.float32)
        return kernels.Counts(total, jnp.zeros((documents.n_batches, *total.shape), total.dtype), gammas)

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
        """Make up to `passes` memoized passes over the batches, and return the result.

        state: counts and documents' parameters before the first pass.
        alpha: the concentration of the proportions on each topic, (topic,).
        eta: the concentration of the topics' prior.
        rule: how expected counts follow from a document's parameters.
        sweeps: how many updates each document gets in a pass.
        tolerance: the change at which passes end (`PassSettings`).
        """
        total, per_batch, gammas = state
        narrow = np.float32(eta)

        def visit(batch: int, weights: Array, scale: Array) -> BatchCounts:
            """Update the documents of one batch, piece by piece, and return the batch's counts and fits."""
            new, fits, waiting = jnp.zeros_like(weights), [], None
            for piece in self._documents.pieces(batch):
                gamma = gammas.read(piece.first, piece.last)
                new, gamma, fit = visit_tiles(
                    rule, weights, scale, piece.tiles, gamma, new, alpha, narrow, np.int32(sweeps)
                )
                fits.append(fit)
                if waiting is not None:  # the last piece is computed by now, while this one has only begun
                    gammas.write(waiting[0], np.asarray(waiting[1]))
                waiting = piece.first, gamma
            if waiting is not None:
                gammas.write(waiting[0], np.asarray(waiting[1]))
            return BatchCounts([new], fits)

        momentum, seeds = self.settings.momentum, self._seeds(len(alpha))
        made_with = PassSettings(rule, alpha, eta, sweeps, passes, tolerance, momentum, self.n_tokens, seeds)
        total, per_batch, made, fit = passes_in_turn(total, per_batch, made_with, visit)
        return Passes(kernels.Counts(total, per_batch, gammas), made, fit)

    def _document_pass(self, topics: Any, gamma: Any, alpha: np.ndarray, sweeps: int, tolerance: float) -> Any:
        """Fit every document's topic proportions at fixed topics.

        topics: exp E[log β], (word, topic).
        gamma: γ, the Dirichlet parameters of the proportions, on disk; they are overwritten.
        alpha: the concentration of the proportions on each topic, (topic,).
        sweeps, tolerance: the most updates of a document, and the change of γ in tokens at which they end.

        Returns: (γ on disk, the documents' expected counts (word, topic)).
        """
        gammas, total = cast(ScratchArray, gamma), jnp.zeros_like(topics)
        for piece in self._documents.pieces():
            tiles = DocumentTiles(*(leaf[None] for leaf in piece.tiles))
            found, counts = kernels.document_pass(
                tiles,
                topics,
                gammas.read(piece.first, piece.last)[None],
                alpha,
                sweeps=sweeps,
                tolerance=np.float32(tolerance),
            )
            gammas.write(piece.first, on_host(found)[0])
            total = total + counts
        return gammas, total

    def _sum_over_documents(self, program: Callable[[DocumentTiles, Any], T], state: kernels.Counts) -> T:
        """Return the sum over all documents of what a program returns, a pytree of arrays, float64.

        program: a function of documents and of γ, the parameters of their proportions.
        state: counts and, on disk, documents' parameters.
        """
        gammas = cast(ScratchArray, state.proportions)

        def of_piece(piece: DocumentPiece) -> T:
            tiles, here = DocumentTiles(*(leaf[None] for leaf in piece.tiles)), gammas.read(piece.first, piece.last)
            return program(tiles, here[None])

        return kernels.sum_of_parts(map(of_piece, self._documents.pieces()))

    def _document_bound(self, log_topics: Array, gamma: Any, alpha: np.ndarray) -> float:
        """Return the documents' part of the lower bound on the log evidence, in nats, float64.

        log_topics: E[log β] of the topics.
        gamma: γ, the Dirichlet parameters of every document's proportions, on disk.
        alpha: the concentration of the proportions on each topic, (topic,).
        """
        gammas, sums = cast(ScratchArray, gamma), []
        for piece in self._documents.pieces():
            tiles = DocumentTiles(*(leaf[None] for leaf in piece.tiles))
            wide = gammas.read(piece.first, piece.last)[None].astype(np.float64)
            per_slot = on_host(kernels.document_bounds(tiles, log_topics, wide, alpha))[0]
            sums.append(float(per_slot[piece.documents >= 0].sum()))
        return fsum(sums)

    def _certified(self, topics: np.ndarray, alpha: np.ndarray) -> tuple[float, float]:
        """Return lower and upper bounds on log p(all documents | topics, α), nats.

        topics: probability of each word in each topic. alpha: the concentration of the proportions on each topic,
            (topic,).
        """
        ends = [document_bounds(topics, alpha, counts_of(part)) for part in self.data.iter_parts()]
        return fsum(float(each.lower.sum()) for each in ends), fsum(float(each.upper.sum()) for each in ends)

    def _documents_with_words(self) -> int:
        """Return the number of documents that have a word."""
        return self._documents.n_with_words

    def _mean_log_proportions(self, gamma: Any, n_topics: int) -> Float[np.ndarray, " topic"]:
        """Return the mean of E[log θ_k] over the documents that have words, (topic,), where θ are a document's
        proportions.

        gamma: γ, the Dirichlet parameters of every document's proportions, on disk.
        """
        gammas, total = cast(ScratchArray, gamma), np.zeros(n_topics)
        for piece in self._documents.pieces():
            g = gammas.read(piece.first, piece.last)[piece.lengths > 0][:, :n_topics].astype(np.float64)
            total += (scipy_digamma(g) - scipy_digamma(g.sum(-1, keepdims=True))).sum(0)
        return total / self._documents.n_with_words


Schedule = Callable[[int], float | Array]
"""The type of a step-size schedule: step number 0, 1, … -> size ρ in (0, 1]. Schedules of optax are of this type."""
MOST_SWEEPS, TOLERANCE = 30, 0.05
"""The most sweeps over a minibatch's documents. They stop earlier once γ changes by less than `TOLERANCE` tokens.

γ are the parameters of the documents' topic proportions.
"""


def robbins_monro(delay: float = 10.0, forgetting: float = 0.7) -> Schedule:
    """Return the step-size schedule ρ_t = min(1, (t + delay)^(−forgetting)) for t = 0, 1, … (Hoffman et al. 2013, Eq.
    26).

    delay: a number of steps, at least 0; with a longer delay the first minibatches change the topics less.
    forgetting: how fast steps shrink, in (0.5, 1]. Outside of it the steps would not converge.

    Raises ValueError for a forgetting outside (0.5, 1] and for a negative delay.
    """
    if not 0.5 < forgetting <= 1 or delay < 0:
        raise ValueError(
            f"got delay={delay}, forgetting={forgetting}; expected a delay of at least 0 and forgetting in (0.5, 1]"
        )
    return lambda step: min(1.0, max(step + delay, 1e-30) ** -forgetting)


@dataclass(frozen=True)
class Minibatches:
    """All documents divided into minibatches, in memory or on disk.

    `packed`: the documents in the arrays, or files, that the kernels read. `len()` is the number of minibatches.
    """

    packed: PackedDocuments | StreamedDocuments

    @classmethod
    def from_dataset(cls, data: Dataset, documents: int) -> "Minibatches":
        """Divide a data set into minibatches of about `documents` documents.

        Raises ValueError if its files are damaged.
        """
        wanted = max(1, round(data.n_units / documents))
        if not isinstance(data.original, StoredDocuments):
            return cls(pack(counts_of(data), wanted))
        files = data.original.files
        return cls(pack_streamed(files, streamed_layout_on_device(files, wanted), wanted))

    def __len__(self) -> int:
        """Return the number of minibatches."""
        return self.packed.n_batches

    def pieces(self, number: int) -> Iterator[DocumentPiece]:
        """Yield the documents of minibatch `number`, piece by piece. Documents in memory come in one piece."""
        packed = self.packed
        if isinstance(packed, StreamedDocuments):
            yield from packed.pieces(number)
            return
        tiles = DocumentTiles(*(leaf[number] for leaf in packed.tiles))
        # lengths of this minibatch alone: those of all documents would be made anew for each
        alone = PackedDocuments(
            DocumentTiles(*(leaf[None] for leaf in tiles)),
            packed.documents[number][None],
            packed.n_documents,
            packed.n_words,
        )
        yield DocumentPiece(number * len(tiles.slots), tiles, alone.lengths[0], packed.documents[number])


def stochastic_topics(
    model: LDA,
    data: Dataset,
    size: int,
    *,
    key: Key[Array, ""],
    documents: int = 256,
    passes: int = 1,
    schedule: Schedule | None = None,
    start: Estimate | None = None,
    bound: bool = True,
) -> Estimate:
    """Fit topics by stochastic variational inference, with one step for every minibatch.

    The total work is that of `passes` passes over the documents. Of documents on disk one minibatch is in memory at a
    time, and nothing is kept of it. Hyper-parameters that have priors stay at their prior means.

    model: an LDA whose topics have a prior.
    size: the number of topics.
    documents: about how many documents a minibatch has.
    passes: how often all documents are visited; each pass has its own random order, drawn with `key`.
    schedule: the size of step t = 0, 1, …; by default `robbins_monro()`.
    start: a fit to begin from, of this size or another. By default each topic starts from a few documents, as in
    `lv.fit`.
    bound: whether to make one more pass that computes the bound on the evidence in float64, nats; else it is −∞.

    Raises ValueError for a size, number of documents or number of passes below 1, for a step outside (0, 1], and for a
    model with seeds or whose topics are point estimates.
    """
    if model.seeds is not None:
        raise ValueError(
            "got an LDA with seeds, expected one without: fit it with lv.fit, whose passes see all documents"
        )
    if isinstance(model.topics, PointSimplex):
        raise ValueError("got an LDA whose topics are point estimates; expected topic_concentration, their prior")
    for name, value in (("size", size), ("documents", documents), ("passes", passes)):
        if value < 1:
            raise ValueError(f"got {name}={value}, expected at least 1")
    # hyper-parameters at their prior means; the start of the topics
    model, schedule = model.at_prior_means(), robbins_monro() if schedule is None else schedule
    (capacity,) = capacity_of((size,))
    eta, alpha = float(model.numbers()[1]), exact_alpha(model, size, capacity).astype(np.float32)
    minibatches = Minibatches.from_dataset(data, documents)
    key_start, key_order = split_key(key)
    fitting = cast(TopicEstimator, estimator(model, data))
    total = jnp.asarray(fitting.start_counts(size, capacity, key_start, start, eta))
    for number in range(passes):  # one natural-gradient step for every minibatch, in a new order in every pass
        order = permutation(fold_in(key_order, number), len(minibatches))
        for step, chosen in enumerate(order.tolist(), start=number * len(order)):
            rate = float(schedule(step))
            if not 0 < rate <= 1:
                raise ValueError(f"got a step of {rate} at number {step}; expected a schedule with steps in (0, 1]")
            found = expected_counts(minibatches, chosen, total, alpha, eta)
            total = _step_topics(total, found, np.float32(rate), np.float32(len(minibatches)))
    natural = np.asarray(total)[:, :size].T + np.float32(eta - 1)
    lower = _bound(model, minibatches, natural, capacity) if bound else -inf
    return Estimate(model, (size,), {"topic_word": natural}, lower, inf, passes + bound)


def expected_counts(
    minibatches: Minibatches, number: int, total: Array, alpha: Float[np.ndarray, " topic"], eta: float
) -> Float[Array, "word topic"]:
    """Return the expected number of times that each topic wrote each word in the documents of one minibatch, (word,
    topic).

    The sum over all minibatches is what a full pass over the documents finds. The topics' distributions are
    Dirichlet(total + η).

    number: which minibatch.
    total: the topics' expected counts so far, (word, topic).
    alpha: the concentration of the documents' proportions on each topic; 0 for topics that do not exist.
    eta: η, the concentration of the topics' prior.
    """
    topics = kernels.exp_log_topics(total, np.float32(eta), alpha)
    return sum((_fit_documents(piece, topics, alpha)[1] for piece in minibatches.pieces(number)), jnp.zeros_like(total))


def _fit_documents(piece: DocumentPiece, topics: Array, alpha: np.ndarray) -> tuple[Array, Array]:
    """Fit the topic proportions of a piece's documents at fixed topics, from an even start until they converge.

    topics: exp E[log β], (word, topic).
    alpha: the concentration on each topic; 0 for topics that do not exist.

    Returns: (γ, the Dirichlet parameters of the proportions, (1, tile, document, topic); the documents' expected
        counts, (word, topic)).
    """
    exists = alpha > 0
    even = np.where(exists, alpha + piece.lengths[..., None] / exists.sum(), 0.0).astype(np.float32)
    tiles = DocumentTiles(*(leaf[None] for leaf in piece.tiles))
    return kernels.document_pass(tiles, topics, even[None], alpha, sweeps=MOST_SWEEPS, tolerance=np.float32(TOLERANCE))


def _bound(model: LDA, minibatches: Minibatches, natural: np.ndarray, capacity: int) -> float:
    """Return the lower bound on the log evidence at exactly the given topics, in nats, computed in float64.

    natural: natural parameters of q(topics), (topic, word).
    capacity: the length of the arrays over topics.
    """
    n_topics, n_words = natural.shape
    concentration = np.ones((n_words, capacity))
    concentration[:, :n_topics] = natural.astype(np.float64).T + 1
    alpha, eta = exact_alpha(model, n_topics, capacity), float(model.numbers()[1])
    narrow = alpha.astype(np.float32)
    topics = kernels.exp_log_topics((concentration - eta).astype(np.float32), np.float32(eta), narrow)
    with jax.enable_x64(True):
        of_topics, log_topics = kernels.topic_bound(concentration, np.float64(eta), alpha > 0)
    # log-bound = the topics' part + each document's part at its converged γ
    sums = [float(of_topics)]
    for number in range(len(minibatches)):
        for piece in minibatches.pieces(number):
            gamma = np.asarray(_fit_documents(piece, topics, narrow)[0]).astype(np.float64)
            with jax.enable_x64(True):
                tiles = DocumentTiles(*(leaf[None] for leaf in piece.tiles))
                per_slot = np.asarray(kernels.document_bounds(tiles, log_topics, gamma, alpha))[0]
            sums.append(float(per_slot[piece.documents >= 0].sum()))
    return fsum(sums)


@kernel(donate_argnames=("total",))
@counted
def _step_topics(total: Array, found: Array, rate: Array, times: Array) -> Array:
    """Return the topics' expected counts after one step, (1 − ρ) `total` + ρ M `found`, (word, topic).

    This is the step on λ; both sides leave out the prior concentration η.

    total: the counts before it. found: the expected counts of the minibatch. rate: ρ. times: M, the number of
        minibatches.
    """
    return (1 - rate) * total + rate * times * found
