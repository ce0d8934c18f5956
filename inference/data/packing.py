"""Documents packed into tiles of equal shape, so that one program serves documents of every length.

A tile holds about 512 distinct words: small enough for its (token, topic) block to stay in a core's cache. Whole
documents stand one after another, each filled up to a multiple of 8 slots; a *block* of 8 slots belongs to one
document, so that sums over a document are sums inside blocks, then of few rows. Tiles are dealt to batches: the topics
move after every batch.
"""

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse import csr_array

BLOCK = 8
"""Slots that belong to one document."""
TILE_BLOCKS_CPU, TILE_BLOCKS_ACCELERATOR = 64, 32768
"""Blocks in a tile, if the longest document does not need more: what stays in cache; what keeps an accelerator busy."""
MOST_BATCHES = 16


class Tiles(NamedTuple):
    """Packed documents; 0 counts are padding.

    | field | shape | meaning |
    |---|---|---|
    | `words` | (batch, tile, block, 8) | which word |
    | `counts` | (batch, tile, block, 8) | how often |
    | `slots` | (batch, tile, block) | which document of the tile the block belongs to |
    """

    words: Int[Array | np.ndarray, "batch tile block slot"]
    counts: Float[Array | np.ndarray, "batch tile block slot"]
    slots: Int[Array | np.ndarray, "batch tile block"]


@dataclass(frozen=True)
class PackedDocuments:
    """`documents` (batch, tile, slot): which document each slot of a tile is; −1 for none."""

    tiles: Tiles
    documents: Int[np.ndarray, "batch tile document"]
    n_documents: int
    n_words: int

    @property
    def n_batches(self) -> int:
        return self.documents.shape[0]

    @property
    def lengths(self) -> Float[np.ndarray, "batch tile document"]:
        """Tokens of the document in each slot."""
        out = np.zeros(self.documents.shape)
        batch, tile, _ = np.indices(self.tiles.slots.shape)
        np.add.at(out, (batch, tile, self.tiles.slots), np.asarray(self.tiles.counts, np.float64).sum(-1))
        return out

    def gather(self, per_slot: Array | np.ndarray) -> np.ndarray:
        """Results per slot (batch, tile, document, …) in the order of the corpus."""
        values = np.asarray(per_slot)
        real = self.documents >= 0
        out = np.zeros((self.n_documents, *values.shape[3:]), values.dtype)
        out[self.documents[real]] = values[real]
        return out

    def scatter(self, per_document: np.ndarray) -> np.ndarray:
        """The inverse of `gather`: values (document, …) in their slots, 0 in slots without a document."""
        real = self.documents >= 0
        out = np.zeros((*self.documents.shape, *per_document.shape[1:]), per_document.dtype)
        out[real] = per_document[self.documents[real]]
        return out


def batches_for(counts: csr_array) -> int:
    """How many batches: a batch costs as much as its words plus a few times the vocabulary, and the more there are, the
    fewer passes are needed. Measured on AP and Cora, with 26 and 40 (document, word) pairs to each word of the
    vocabulary: two or three batches reach a score soonest."""
    return int(np.clip(counts.nnz // (12 * counts.shape[1]), 1, MOST_BATCHES))


def pack(counts: csr_array, n_batches: int | None = None, tile_blocks: int | None = None) -> PackedDocuments:
    """Counts (D, V), whole numbers, as tiles.

    Documents are dealt longest first, each to the tile with most room, so that tiles hold equally many of them and
    equal work; tiles are dealt to batches in a fixed random order, since corpora come sorted. Empty documents have a
    slot too.
    """
    if n_batches is None:
        n_batches = batches_for(counts)
    if tile_blocks is None:
        tile_blocks = TILE_BLOCKS_CPU if jax.default_backend() == "cpu" else TILE_BLOCKS_ACCELERATOR
    blocks = -(-np.diff(counts.indptr) // BLOCK)
    members = _deal(blocks, max(tile_blocks, int(blocks.max(initial=1))))
    order = np.random.default_rng(0).permutation(len(members))
    n_batches = min(n_batches, len(members))
    tiles_per_batch = -(-len(members) // n_batches)
    width = max(1, max(int(blocks[tile].sum()) for tile in members))
    shape = (n_batches, tiles_per_batch, width)
    words, values = np.zeros((*shape, BLOCK), np.int32), np.zeros((*shape, BLOCK), np.float32)
    slots = np.zeros(shape, np.int32)
    documents = np.full((n_batches, tiles_per_batch, max(map(len, members))), -1, np.int64)
    flat_words, flat_values = words.reshape(*shape[:2], -1), values.reshape(*shape[:2], -1)
    for position, tile in enumerate(order):
        at = position % n_batches, position // n_batches
        first = 0
        for slot, document in enumerate(members[tile]):
            begin, end = counts.indptr[document], counts.indptr[document + 1]
            inside = slice(first * BLOCK, first * BLOCK + end - begin)
            flat_words[at][inside] = counts.indices[begin:end]
            flat_values[at][inside] = counts.data[begin:end]
            slots[at][first : first + blocks[document]] = slot
            documents[at][slot] = document
            first += blocks[document]
    return PackedDocuments(Tiles(words, values, slots), documents, counts.shape[0], counts.shape[1])


def _deal(blocks: np.ndarray, tile_blocks: int) -> list[list[int]]:
    """Documents to tiles of at most `tile_blocks` blocks, nearly equally full."""
    n_tiles = max(1, -(-int(blocks.sum()) // tile_blocks))
    while True:
        members: list[list[int]] = [[] for _ in range(n_tiles)]
        room = [(-tile_blocks, tile) for tile in range(n_tiles)]
        heapify(room)
        for document in np.argsort(-blocks, kind="stable"):
            free, tile = room[0]
            if -free < blocks[document]:
                break
            members[tile].append(int(document))
            heapreplace(room, (free + int(blocks[document]), tile))
        else:
            return members
        n_tiles += 1
