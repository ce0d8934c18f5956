"""Stochastic variational inference for LDA: topics move after every few documents, for data that are read once.

Memoized passes keep what every batch said and subtract it when the batch comes again; with one pass there is no again.
Here the topics' natural parameters follow noisy natural gradients instead (Hoffman, Blei, Wang & Paisley 2013, §2.4 and
Figure 4). Minibatches 1 … M share all documents out; one of them is drawn, and n_m are the expected counts of its
documents at the topics of the moment:

    λ ← λ + ρ_t (η + M n_m − λ)

The bracket is the natural gradient of the evidence bound (its Eq. 24) but for its noise, and right on average: the mean
of M n_m over the minibatches is Σ_m n_m. Steps with Σ ρ_t = ∞ and Σ ρ_t² < ∞ (Robbins & Monro 1951) end at a fixed
point of coordinate ascent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import fsum, inf
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import StoredDocuments, counts_of
from lvsearch.inference.data.packing import DocumentTiles, PackedDocuments, device_tile_blocks, pack
from lvsearch.inference.data.streaming import DocumentPiece, StreamedDocuments, pack_streamed, streamed_layout
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.generators import folded, shuffled, split_key
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.estimator import TopicEstimator, exact_alpha
from lvsearch.models.families import PointSimplex
from lvsearch.models.kernels import kernel
from lvsearch.models.lda import LDA

Schedule = Callable[[int], float | Array]
"""Number of a step, from 0, -> ρ in (0, 1]: a function, or a schedule of optax."""
MOST_SWEEPS, TOLERANCE = 30, 0.05
"""Of a minibatch's documents: at most so many sweeps, until γ moves by less than so many tokens."""


def robbins_monro(delay: float = 10.0, forgetting: float = 0.7) -> Schedule:
    """ρ_t = (t + delay)^(−forgetting), t from 0 (Hoffman et al. 2013, Eq. 26), at most 1.

    A longer delay holds on to the start. Raises ValueError for a forgetting outside (0.5, 1], with which steps would
    not end anywhere, and a negative delay.
    """
    if not 0.5 < forgetting <= 1 or delay < 0:
        raise ValueError(
            f"got delay={delay}, forgetting={forgetting}; expected a delay of at least 0 and forgetting in (0.5, 1]"
        )
    return lambda step: min(1.0, max(step + delay, 1e-30) ** -forgetting)


@dataclass(frozen=True)
class Minibatches:
    """All documents shared out: at hand (`packed`), or on disk."""

    packed: PackedDocuments | StreamedDocuments

    @classmethod
    def of(cls, data: Dataset, documents: int) -> "Minibatches":
        """Minibatches of about so many documents of a data set. Raises ValueError for files that are damaged."""
        wanted = max(1, round(data.n_units / documents))
        if not isinstance(data.original, StoredDocuments):
            return cls(pack(counts_of(data), wanted))
        files = data.original.files
        return cls(pack_streamed(files, streamed_layout(files, device_tile_blocks()), wanted))

    def __len__(self) -> int:
        return self.packed.n_batches

    def pieces(self, number: int) -> Iterator[DocumentPiece]:
        """The documents of one minibatch, in one piece where they are at hand."""
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
    """Topics by stochastic variational inference, one step for every minibatch of about so many `documents`.

    In every pass the minibatches come in another order, drawn with `key`. schedule: the size of step t = 0, 1, …;
    default `robbins_monro()`. start: a fit to go on from, of this size or another; by default topics start from a few
    documents each, as those of `lv.fit` do. bound: whether to make one more pass, for the bound on the evidence in
    float64, nats; else it is −∞. Hyper-parameters that have priors stay at their means. The steps' total work is that
    of `passes` passes; of documents on disk a minibatch is in memory at a time, and nothing is kept of it.

    Raises ValueError for a size, number of documents or of passes below 1, a model whose topics are point estimates,
    and a step outside (0, 1].
    """
    if isinstance(model.topics, PointSimplex):
        raise ValueError("got an LDA whose topics are point estimates; expected topic_concentration, their prior")
    for name, value in (("size", size), ("documents", documents), ("passes", passes)):
        if value < 1:
            raise ValueError(f"got {name}={value}, expected at least 1")
    model, schedule = model.at_prior_means(), robbins_monro() if schedule is None else schedule
    (capacity,) = capacity_of((size,))
    eta, alpha = float(model.numbers()[1]), exact_alpha(model, size, capacity).astype(np.float32)
    minibatches = Minibatches.of(data, documents)
    key_start, key_order = split_key(key)
    fitting = cast(TopicEstimator, estimator(model, data))
    total = jnp.asarray(fitting.start_counts(size, capacity, key_start, start, eta))
    for number in range(passes):
        order = shuffled(folded(key_order, number), len(minibatches))
        for step, chosen in enumerate(order.tolist(), start=number * len(order)):
            rate = float(schedule(step))
            if not 0 < rate <= 1:
                raise ValueError(f"got a step of {rate} at number {step}; expected a schedule with steps in (0, 1]")
            found = expected_counts(minibatches, chosen, total, alpha, eta)
            total = _moved(total, found, np.float32(rate), np.float32(len(minibatches)))
    natural = np.asarray(total)[:, :size].T + np.float32(eta - 1)
    lower = _bound(model, minibatches, natural, capacity) if bound else -inf
    return Estimate(model, (size,), {"topic_word": natural}, lower, inf, passes + bound)


def expected_counts(
    minibatches: Minibatches, number: int, total: Array, alpha: Float[np.ndarray, " topic"], eta: float
) -> Float[Array, "word topic"]:
    """The expected counts n_m of the documents of one minibatch, at topics Dirichlet(total + η), total (word, topic).

    Their mean over all minibatches, times how many these are, is what a pass over all documents finds.
    """
    topics = kernels.exp_log_topics(total, np.float32(eta), alpha)
    return sum((_settled(piece, topics, alpha)[1] for piece in minibatches.pieces(number)), jnp.zeros_like(total))


def _settled(piece: DocumentPiece, topics: Array, alpha: np.ndarray) -> tuple[Array, Array]:
    """γ (1, tile, document, topic) of a piece's documents from an even start, and their counts (word, topic)."""
    exists = alpha > 0
    even = np.where(exists, alpha + piece.lengths[..., None] / exists.sum(), 0.0).astype(np.float32)
    tiles = DocumentTiles(*(leaf[None] for leaf in piece.tiles))
    return kernels.document_pass(tiles, topics, even[None], alpha, sweeps=MOST_SWEEPS, tolerance=np.float32(TOLERANCE))


def _bound(model: LDA, minibatches: Minibatches, natural: np.ndarray, capacity: int) -> float:
    """The evidence bound in float64 at exactly `natural` (topic, word), nats."""
    n_topics, n_words = natural.shape
    concentration = np.ones((n_words, capacity))
    concentration[:, :n_topics] = natural.astype(np.float64).T + 1
    alpha, eta = exact_alpha(model, n_topics, capacity), float(model.numbers()[1])
    narrow = alpha.astype(np.float32)
    topics = kernels.exp_log_topics((concentration - eta).astype(np.float32), np.float32(eta), narrow)
    with jax.enable_x64(True):
        of_topics, log_topics = kernels.topic_bound(concentration, np.float64(eta), alpha > 0)
    sums = [float(of_topics)]
    for number in range(len(minibatches)):
        for piece in minibatches.pieces(number):
            gamma = np.asarray(_settled(piece, topics, narrow)[0]).astype(np.float64)
            with jax.enable_x64(True):
                tiles = DocumentTiles(*(leaf[None] for leaf in piece.tiles))
                per_slot = np.asarray(kernels.document_bounds(tiles, log_topics, gamma, alpha))[0]
            sums.append(float(per_slot[piece.documents >= 0].sum()))
    return fsum(sums)


@kernel(donate_argnames=("total",))
@counted
def _moved(total: Array, found: Array, rate: Array, times: Array) -> Array:
    return (1 - rate) * total + rate * times * found
