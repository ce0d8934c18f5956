"""The estimator of LDA for documents on disk: the memoized passes of `topics.estimator`, one piece of a batch at a
time.

For documents in memory a pass is one compiled program over arrays. Here the documents' tiles and γ, the parameters of
their topic proportions, lie in temporary files (`streaming`, `scratch`). A piece of a batch is read and updated by the
same kernel. Its γ is written back while the next piece is being computed. Memory holds the topics, the counts of every
batch and one piece: apart from a few bytes per document, nothing grows with the number of documents.

Sums over documents are grouped differently than in one program, and the quantity that decides when to stop is summed in
float64. Results therefore agree with those of documents in memory to float32's rounding, not to the bit.
"""

from math import fsum
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import digamma as scipy_digamma

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import StoredDocuments, counts_of
from lvsearch.inference.data.memory import MemoryPlan
from lvsearch.inference.data.packing import DocumentTiles, batches_for, device_tile_blocks
from lvsearch.inference.data.scratch import ScratchArray
from lvsearch.inference.data.streaming import StreamedDocuments, pack_streamed, streamed_layout
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.likelihood.bounds import document_bounds
from lvsearch.inference.sharding import on_host
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.estimator import TopicEstimator
from lvsearch.inference.topics.memoized import streamed_plan
from lvsearch.inference.topics.passes import BatchCounts, PassSettings, passes_in_turn, visit_tiles
from lvsearch.models.lda import LDA


@estimator.register
def _lda_estimator(model: LDA, data: Dataset) -> TopicEstimator:
    """Return the estimator of LDA, for documents on disk or in memory: the overload of `estimator` for `LDA`."""
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
        self._layout = streamed_layout(self._files, device_tile_blocks())
        self._packed_on_disk: StreamedDocuments | None = None

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
    ) -> tuple[kernels.Counts, int]:
        """Make up to `passes` memoized passes over the batches; return (the new state, how many passes were made).

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

        made_with = PassSettings(rule, alpha, eta, sweeps, passes, tolerance, self.settings.momentum, self.n_tokens)
        total, per_batch, made = passes_in_turn(total, per_batch, made_with, visit)
        return kernels.Counts(total, per_batch, gammas), made

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
