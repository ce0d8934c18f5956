"""Stochastic variational inference for LDA: topics are updated after every few documents, for data that are read once.

Memoized passes keep the counts of every batch, and subtract them when the batch comes again. With a single pass no
batch comes again. Here the topics' natural parameters λ follow noisy natural gradients instead (Hoffman, Blei, Wang &
Paisley 2013, §2.4 and Figure 4). All documents are divided into minibatches 1, …, M. At step t one minibatch m is
drawn, and n_m are the expected counts (word, topic) of its documents at the current topics:

    λ ← λ + ρ_t (η + M n_m − λ)

Here η is the topics' prior concentration and ρ_t the step size. The bracket is an unbiased estimate of the natural
gradient of the evidence bound (its Eq. 24), since the mean of M n_m over the minibatches is Σ_m n_m. Steps with Σ ρ_t =
∞ and Σ ρ_t² < ∞ (Robbins & Monro 1951) converge to a fixed point of coordinate ascent.
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
from lvsearch.inference.generators import fold_in, permutation, split_key
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.estimator import TopicEstimator, exact_alpha
from lvsearch.models.families import PointSimplex
from lvsearch.models.kernels import kernel
from lvsearch.models.lda import LDA

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
        return cls(pack_streamed(files, streamed_layout(files, device_tile_blocks()), wanted))

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

    Raises ValueError for a size, number of documents or number of passes below 1, for a model whose topics are point
    estimates, and for a step outside (0, 1].
    """
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
