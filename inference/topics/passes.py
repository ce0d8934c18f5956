"""Passes over documents: their layout within a budget of memory, and the passes that Python drives batch by batch.

*Layout.* Memoized updates keep the expected counts of every batch of documents, so that a batch's old counts can be
subtracted exactly. They grow fastest of all arrays. Fewer batches save this memory, but cost passes, since the topics
move after every batch. A tile is a small group of documents that is worked on at once. The memory of a layout is a
formula.

*Passes in turn* are made for documents on disk, and for many documents on a CPU. `kernel.memoized_passes` is one
compiled program. On a CPU it works on one small loop at a time, so on little more than one core. Here the tiles of a
batch are divided into lanes, each with a thread of its own. The results agree with the one program up to float32's
rounding, since sums over documents are grouped differently.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import fsum, inf
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import csr_array

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.packing import BLOCK, TILE_BLOCKS_CPU, DocumentTiles, PackedDocuments
from lvsearch.inference.data.streaming import RUN_PAIRS, StreamedLayout
from lvsearch.inference.engine.estimator import MIB, Chunks, MemoryPlan, Part
from lvsearch.inference.sharding import n_shares
from lvsearch.inference.topics import kernel as kernels
from lvsearch.models.kernels import kernel

# ── the layout and its memory ─────────────────────────────────────────────────────────────────────────────────────────


FLOAT32, FLOAT64 = 4, 8
"""Bytes of a number of each type."""
PROGRAMS = 80 * MIB
"""Bytes that stay allocated after the programs of one capacity were compiled; measured on CPU, about the same for every
shape.
"""
KEPT_COPIES = 2
"""Copies of the counts kept per batch: the start on the host, and the state, which is updated in place."""
PASS_TOPICS, BOUND_TOPICS = 8, 15
"""The number of arrays (word, topic) that exist at once, in passes and while the bound is computed.

In passes (float32) they are the start, the total, the last total, the step, weights, scaled weights, a batch's counts
and a tile's. For the bound (float64) they are the concentration on host and device, E[log β], four of float32, and the
terms of log Γ and digamma (10 by `memory_analysis`).
"""
PASS_PROPORTIONS, BOUND_PROPORTIONS = 3, 3
"""The number of arrays (document, topic) that exist at once, in passes and while the bound is computed.

In passes they are the start, the state and a pass's own. For the bound they are two of float64, and two of float32,
which count half.
"""
TILE_COPIES = 4
"""The number of arrays (token, topic) of the tile being worked on that exist at once.

They are the topics' weights at the words, responsibilities before and after normalising, and the expected counts.
"""
RUN_BYTES = 120
"""The most bytes that a (document, word) pair takes while documents are dealt to tiles.

They are word numbers and counts as read, where they go (three arrays of 8 bytes), tiles, records of tiles, and Python's
lists of documents.
"""
PIECE_COPIES = 3
"""The number of copies of a piece of a batch that exist (as read, as arrays of their own, on the device).

Its documents' parameters exist as often: as read, updated, being written.
"""


class Layout(NamedTuple):
    """The sizes of batches and tiles into which documents are packed, which decide the memory.

    `n_batches`: into how many batches the documents are divided.
    `tile_blocks`: how many blocks of 8 words a tile (small group of documents) has.
    `least_blocks`: the fewest blocks that a tile may have.
    """

    n_batches: int
    tile_blocks: int
    least_blocks: int  # no tile is made smaller than this

    def halved(self) -> "Layout":
        """Return the layout with half the batches, or with smaller tiles if there is one batch.

        If nothing is left to halve, the layout itself is returned.
        """
        if self.n_batches > 1:
            return self._replace(n_batches=self.n_batches // 2)
        return self._replace(tile_blocks=max(self.tile_blocks // 2, self.least_blocks))


class Packing(NamedTuple):
    """The sizes of packed documents in their largest layout, from which the memory plan is computed.

    `layout`: the largest layout.
    `n_words`: the number of words in the vocabulary.
    `slots`: how many documents all tiles together have room for.
    `cells`: how many (document, word) pairs all tiles together have room for.
    """

    layout: Layout
    n_words: int
    slots: int
    cells: int


def packing_of(packed: PackedDocuments, counts: csr_array) -> Packing:
    """Return the sizes of packed documents, from which the memory plan is computed.

    packed: the documents as packed.
    counts: the same documents as a matrix (document, word).
    """
    blocks = packed.tiles.slots.shape[-1]
    longest = int(np.max(-(-np.diff(counts.indptr) // BLOCK), initial=1))
    layout = Layout(packed.n_batches, blocks, min(blocks, max(TILE_BLOCKS_CPU, longest)))
    return Packing(layout, packed.n_words, packed.documents.size, packed.tiles.words.size)


def topic_plan(packing: Packing, capacity: int, layout: Layout) -> MemoryPlan:
    """Return the memory plan of one fit of topics, in bytes: the larger of two moments.

    Let there be V words, K topics (the capacity), B batches, D places for documents, N places for words, and T words in
    a tile. Then the moments are

        passes   2·4·B·V·K + 8·4·V·K + 3·4·D·K + 9·N + 4·4·T·K + programs
        bound    1·4·B·V·K + 15·8·V·K + 3·8·D·K + 9·N + 4·8·T·K + programs

    The passes' arrays are float32, the bound's float64. A word takes 8 bytes, and each block of 8 words 4 more for the
    number of its document.

    packing: the sizes of the documents.
    capacity: K, the length of the arrays over topics.
    layout: the layout to plan for.
    """
    counts = FLOAT32 * packing.n_words * capacity
    tile = layout.tile_blocks * BLOCK * capacity
    tiles = Part("tiles", packing.cells * 2 * FLOAT32 + packing.cells // BLOCK * FLOAT32)
    programs = Part("compiled programs", PROGRAMS)
    passes = (
        Part("counts kept per batch", KEPT_COPIES * layout.n_batches * counts),
        Part("topics", PASS_TOPICS * counts),
        Part("proportions", PASS_PROPORTIONS * FLOAT32 * packing.slots * capacity),
        Part("tile at work", TILE_COPIES * FLOAT32 * tile),
        tiles,
        programs,
    )
    bound = (
        Part("counts kept per batch", layout.n_batches * counts),
        Part("topics", BOUND_TOPICS * counts * (FLOAT64 // FLOAT32)),
        Part("proportions", BOUND_PROPORTIONS * FLOAT64 * packing.slots * capacity),
        Part("tile at work", TILE_COPIES * FLOAT64 * tile),
        tiles,
        programs,
    )
    worst = max(passes, bound, key=lambda parts: sum(part.n_bytes for part in parts))
    return MemoryPlan(worst, layout.n_batches, counts)


def layout_within(packing: Packing, capacity: int, chunks: Chunks) -> Layout:
    """Return the largest layout of documents whose memory plan is within the budget, or the smallest one if none is.

    It is then halved as often as memory ran out before (`chunks.halvings`).

    packing: the sizes of the documents.
    capacity: the length of the arrays over topics.
    chunks: the budget in bytes, and how often to halve.
    """
    layout = packing.layout
    while topic_plan(packing, capacity, layout).peak_bytes > chunks.budget_bytes and layout.halved() != layout:
        layout = layout.halved()
    for _ in range(chunks.halvings):
        layout = layout.halved()
    return layout


def streamed_plan(layout: StreamedLayout, n_words: int, capacity: int, n_batches: int) -> MemoryPlan:
    """Return the memory plan of one fit of topics to documents on disk, in bytes: the larger of two moments.

    Let there be V words, K topics (the capacity), B batches and T words in a tile. A piece of a batch has N' places for
    words and D' places for documents; all documents have N and D. Then the moments are

        passes   (B + 1)·4·V·K + 8·4·V·K + 3·9·N' + 3·4·D'·K + 4·4·T·K + run + programs
        bound    B·4·V·K + 15·8·V·K + 3·9·N' + 3·8·D'·K + 4·8·T·K + programs

    Besides, each document takes some tens of bytes, and the disk holds 9·N + 4·D·K.

    layout: how the documents are laid out on disk.
    n_words: V.
    capacity: K.
    n_batches: B.
    """
    counts = FLOAT32 * n_words * capacity
    tile = layout.tile_blocks * BLOCK * capacity
    cells, slots = layout.piece_tiles * layout.tile_blocks * BLOCK, layout.piece_tiles * layout.tile_slots
    piece = Part("piece of a batch", PIECE_COPIES * (cells * 2 * FLOAT32 + cells // BLOCK * FLOAT32))
    programs = Part("compiled programs", PROGRAMS)
    passes = (
        Part("counts kept per batch", (n_batches + 1) * counts),
        Part("topics", PASS_TOPICS * counts),
        Part("proportions", PIECE_COPIES * FLOAT32 * slots * capacity),
        Part("tile at work", TILE_COPIES * FLOAT32 * tile),
        Part("documents being packed", RUN_BYTES * min(RUN_PAIRS, layout.cells)),
        piece,
        programs,
    )
    bound = (
        Part("counts kept per batch", n_batches * counts),
        Part("topics", BOUND_TOPICS * counts * (FLOAT64 // FLOAT32)),
        Part("proportions", BOUND_PROPORTIONS * FLOAT64 * slots * capacity),
        Part("tile at work", TILE_COPIES * FLOAT64 * tile),
        piece,
        programs,
    )
    worst = max(passes, bound, key=lambda parts: sum(part.n_bytes for part in parts))
    return MemoryPlan(worst, n_batches, counts)


# ── passes in turn ────────────────────────────────────────────────────────────────────────────────────────────────────


LEAST_WORK = 8_000_000
"""The (document, word) pairs times topics from which a pass is divided into lanes: some tens of milliseconds of one
core.

Below, starting the lanes would cost as much as they gain.
"""
MOST_LANES = 4
"""The largest number of lanes (threads).

Each lane has expected counts (word, topic) of its own, which are added while all lanes wait. More lanes would cost as
much as they gain.
"""

Result = TypeVar("Result")


class PassSettings(NamedTuple):
    """The settings of passes over documents.

    | field | meaning |
    |---|---|
    | `rule` | how topics follow from counts, and responsibilities from topics |
    | `alpha` | concentration of the documents' proportions on each topic, (topic,); 0 for topics that do not exist |
    | `eta` | concentration of the topics' prior |
    | `sweeps` | how often a document is updated at each visit |
    | `passes` | the most passes |
    | `tolerance` | nats per token that a pass must gain for passes to go on |
    | `momentum` | the share of the last pass's step by which topics are moved on before a pass |
    | `n_tokens` | the number of tokens of all documents |
    | `seeds` | imaginary tokens of each word in each topic, (word, topic); None for none |
    """

    rule: kernels.UpdateRule
    alpha: Float[np.ndarray, " topic"]
    eta: float
    sweeps: int
    passes: int
    tolerance: float
    momentum: float
    n_tokens: float
    seeds: Float[np.ndarray, "word topic"] | None = None


class Passes(NamedTuple):
    """The result of passes over all documents.

    | field | meaning |
    |---|---|
    | `state` | counts and documents' parameters |
    | `made` | how many passes were made |
    | `fit` | the fit of the last pass, nats (`kernel.memoized_passes`); −∞ if none was made |
    """

    state: kernels.Counts
    made: int
    fit: float


class BatchCounts(NamedTuple):
    """The result of visiting one batch: expected counts (word, topic) and fit (nats) of each of the batch's parts."""

    counts: list[Array]
    fits: list[Array]


def passes_in_turn(
    total: Array, per_batch: Array, settings: PassSettings, visit: Callable[[int, Array, Array], BatchCounts]
) -> tuple[Array, Array, int, float]:
    """Make memoized passes over all batches, one batch after another, until a pass gains too little.

    At each visit a batch's old expected counts are subtracted and its new ones added (see `kernel.memoized_passes`).

    total: expected counts of all batches, (word, topic).
    per_batch: expected counts of each batch, (batch, word, topic). The buffer is reused.
    visit: (number of a batch, weights (word, topic), scale (topic,)) -> the batch's counts and fits at the topics
        weights × scale.

    Returns: (counts of all batches, counts of each batch, how many passes were made, the fit of the last one in nats).
    """
    step = jnp.zeros_like(total)
    last, fit, made, eta = -inf, -inf, 0, np.float32(settings.eta)

    def overshot() -> bool:
        return fit < last - (1.0 + kernels.OVERSHOT * settings.n_tokens)

    while made < settings.passes and (made < 2 or overshot() or fit - last > settings.tolerance * settings.n_tokens):
        before, fits = total, []
        share = 0.0 if made == settings.passes - 1 or overshot() else settings.momentum
        total = _ahead(before, step, np.float32(share))
        for batch in range(len(per_batch)):
            found = visit(batch, *_topics(total, settings.alpha, eta, settings.seeds, rule=settings.rule))
            total, per_batch = _replace_batch(total, per_batch, tuple(found.counts), np.int32(batch))
            fits += found.fits
        total = per_batch.sum(0)
        from_tokens = abs(float(before.sum()) - settings.n_tokens) < 0.01 * settings.n_tokens
        step = total - before if from_tokens else jnp.zeros_like(total)
        last, fit, made = fit, fsum(float(each) for each in fits), made + 1
    return total, per_batch, made, fit


def lanes_for(packed: PackedDocuments, capacity: int) -> int:
    """Return into how many lanes (threads) passes over documents in memory are divided; 1 if one program is as fast.

    capacity: the length of the arrays over topics.
    """
    tiles = packed.tiles.words
    if jax.default_backend() != "cpu" or n_shares() > 1 or tiles.size * capacity < LEAST_WORK:
        return 1
    # Processors of the machine, not those that this process may use: sums are rounded by the number of lanes, and
    # workers that were given fewer processors should find the same bits.
    return min(os.cpu_count() or 1, MOST_LANES, tiles.shape[1])


def passes_in_lanes(packed: PackedDocuments, state: kernels.Counts, settings: PassSettings, n_lanes: int) -> Passes:
    """Make memoized passes over documents in memory in several threads, and return the result.

    packed: the documents.
    state: counts and documents' parameters before the first pass.
    n_lanes: the number of threads.
    """
    proportions = np.array(state.proportions)
    eta, sweeps = np.float32(settings.eta), np.int32(settings.sweeps)

    def visit(batch: int, weights: Array, scale: Array) -> BatchCounts:
        gammas = proportions[batch]

        def one_lane(lane: int) -> tuple[Array, Array]:
            tiles = DocumentTiles(*(_part(np.asarray(leaf)[batch], lane, n_lanes, 0.0) for leaf in packed.tiles))
            gamma, none = _part(gammas, lane, n_lanes, 1.0), jnp.zeros_like(weights)
            new, gamma, fit = visit_tiles(
                settings.rule, weights, scale, tiles, gamma, none, settings.alpha, eta, sweeps
            )
            own = gammas[_places(len(gammas), lane, n_lanes)]
            own[:] = np.asarray(gamma)[: len(own)]  # waits: what is dispatched ahead holds its counts already
            return new, fit

        counts, fits = zip(*threads.map(one_lane, range(n_lanes)), strict=True)
        return BatchCounts(list(counts), list(fits))

    total, per_batch = jnp.asarray(state.total), jnp.asarray(state.per_batch)
    with ThreadPoolExecutor(n_lanes) as threads:
        total, per_batch, made, fit = passes_in_turn(total, per_batch, settings, visit)
    return Passes(kernels.Counts(total, per_batch, proportions), made, fit)


def in_lanes(
    program: Callable[[DocumentTiles, np.ndarray], Result], packed: PackedDocuments, gamma: Any, n_lanes: int
) -> list[Result]:
    """Run a program in several threads, each on its own tiles of documents; return the list of results.

    program: (tiles (batch, tile, …), γ of their documents) -> result.
    packed: the documents.
    gamma: γ, the parameters of the documents' topic proportions, (batch, tile, document, topic).
    n_lanes: the number of threads.
    """
    gammas, wide = np.asarray(gamma), jax.config.jax_enable_x64  # pyright: ignore

    def one_lane(lane: int) -> Result:
        tiles = DocumentTiles(*(_part(np.asarray(leaf), lane, n_lanes, 0.0, axis=1) for leaf in packed.tiles))
        with jax.enable_x64(wide):  # a thread has a precision of its own
            return program(tiles, _part(gammas, lane, n_lanes, 1.0, axis=1))

    with ThreadPoolExecutor(n_lanes) as threads:
        return list(threads.map(one_lane, range(n_lanes)))


def join_lanes(lanes: Sequence[Array], packed: PackedDocuments) -> np.ndarray:
    """Return the results of all lanes, (batch, tile, …), as one array without the tiles that filled up the last lane.

    lanes: the results, each for a lane's tiles.
    packed: the documents.
    """
    return np.concatenate([np.asarray(each) for each in lanes], axis=1)[:, : packed.documents.shape[1]]


def _places(n_tiles: int, lane: int, n_lanes: int) -> slice:
    """Return which tiles a lane has, as a slice. All lanes have equally many, but the last may have fewer."""
    length = -(-n_tiles // n_lanes)
    return slice(lane * length, (lane + 1) * length)


def _part(leaf: np.ndarray, lane: int, n_lanes: int, fill: float, axis: int = 0) -> np.ndarray:
    """Return a lane's tiles of an array, filled up with `fill` so that all lanes have equally many and share one
    program.

    axis: the axis of the tiles.
    """
    n_tiles = leaf.shape[axis]
    own = leaf[(slice(None),) * axis + (_places(n_tiles, lane, n_lanes),)]
    missing = -(-n_tiles // n_lanes) - own.shape[axis]
    if not missing:
        return own
    return np.pad(own, [(0, missing if at == axis else 0) for at in range(leaf.ndim)], constant_values=fill)


visit_tiles = kernel(static_argnames=("rule",), donate_argnames=("counts",))(counted(kernels.visit))


@kernel(static_argnames=("rule",))
@counted
def _topics(
    total: Array, alpha: Array, eta: Array, seeds: Array | None, *, rule: kernels.UpdateRule
) -> tuple[Array, Array]:
    """Return (weights (word, topic), scale (topic,)) of the topics that follow from expected counts by a rule,
    compiled.

    total: expected counts, (word, topic).
    alpha: 0 for topics that do not exist.
    eta: concentration of the topics' prior.
    seeds: imaginary tokens, (word, topic), or None.
    """
    return rule.topics(kernels.with_seeds(total, seeds), eta, alpha > 0)


@kernel()
@counted
def _ahead(before: Array, step: Array, share: Array) -> Array:
    """Return expected counts (word, topic) moved on by a share of the last step, and at least 0."""
    return jnp.maximum(before + share * step, 0.0)


@kernel(donate_argnames=("total", "per_batch"))
@counted
def _replace_batch(total: Array, per_batch: Array, found: tuple[Array, ...], batch: Array) -> tuple[Array, Array]:
    """Return (counts of all batches, counts of each batch) with new counts of one batch in place of its old ones.

    total: expected counts of all batches, (word, topic).
    per_batch: expected counts of each batch, (batch, word, topic).
    found: the new counts of the batch's parts, which are added up.
    batch: the number of the batch.
    """
    new = sum(found[1:], start=found[0])
    total = jnp.maximum(total + new - per_batch[batch], 0.0)
    # in place, where the read above provably comes first: see `kernel._passes`
    return total, per_batch.at[batch + (total.min() < 0)].set(new)
