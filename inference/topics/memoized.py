"""The memory that a fit of topics holds, as a formula, and the layout of documents that makes it fit a budget.

Memoized updates keep the expected counts of every batch of documents, so that a batch's old counts can be subtracted
exactly. They grow fastest of all arrays. Fewer batches save this memory, but cost passes, since the topics move after
every batch. A tile is a small group of documents that is worked on at once.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lvsearch.inference.data.memory import MIB, Chunks, MemoryPlan, Part
from lvsearch.inference.data.packing import BLOCK, TILE_BLOCKS_CPU, PackedDocuments
from lvsearch.inference.data.streaming import RUN_PAIRS, StreamedLayout

FLOAT32, FLOAT64 = 4, 8
"""Bytes of a number of each type."""
PROGRAMS = 80 * MIB
"""Bytes that stay allocated after the programs of one capacity were compiled; measured on CPU, about the same for every
shape.
"""
KEPT_COPIES = 2
"""Copies of the counts kept per batch: the start on the host, and the state, which is updated in place."""
PASS_TOPICS, BOUND_TOPICS = 8, 15
"""How many arrays (word, topic) exist at once, in passes and while the bound is computed.

In passes (float32) they are the start, the total, the last total, the step, weights, scaled weights, a batch's counts
and a tile's. For the bound (float64) they are the concentration on host and device, E[log β], four of float32, and the
terms of log Γ and digamma (10 by `memory_analysis`).
"""
PASS_PROPORTIONS, BOUND_PROPORTIONS = 3, 3
"""How many arrays (document, topic) exist at once, in passes and while the bound is computed.

In passes they are the start, the state and a pass's own. For the bound they are two of float64, and two of float32,
which count half.
"""
TILE_COPIES = 4
"""How many (token, topic) arrays of the tile being worked on exist at once.

They are the topics' weights at the words, responsibilities before and after normalising, and the expected counts.
"""
RUN_BYTES = 120
"""The most bytes that a (document, word) pair takes while documents are dealt to tiles.

They are word numbers and counts as read, where they go (three arrays of 8 bytes), tiles, records of tiles, and Python's
lists of documents.
"""
PIECE_COPIES = 3
"""How many copies exist of a piece of a batch (as read, as arrays of their own, on the device).

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
