"""Documents packed into tiles of equal shape, so that one program serves documents of every length.

A tile holds about 512 distinct words: small enough for its (token, topic) block to stay in a core's cache. Whole
documents stand one after another, each filled up to a multiple of 8 slots; a *block* of 8 slots belongs to one
document, so that sums over a document are sums inside blocks, then of few rows. Tiles are dealt to batches: the topics
move after every batch.
"""

from dataclasses import dataclass
from heapq import heapreplace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse import csr_array

from lvsearch.inference.sharding import n_shares

BLOCK = 8
"""Slots that belong to one document."""
TILE_BLOCKS_CPU, TILE_BLOCKS_ACCELERATOR = 64, 32768
"""Blocks in a tile, if the longest document does not need more: what stays in cache; what keeps an accelerator busy."""
MOST_BATCHES = 16


class DocumentTiles(NamedTuple):
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

    tiles: DocumentTiles
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


def device_tile_blocks() -> int:
    """Blocks in a tile on this device, if the longest document does not need more."""
    return TILE_BLOCKS_CPU if jax.default_backend() == "cpu" else TILE_BLOCKS_ACCELERATOR


def batches_for(n_pairs: int, n_words: int) -> int:
    """How many batches: a batch costs as much as its words plus a few times the vocabulary, and the more there are, the
    fewer passes are needed. Measured on AP and Cora, with 26 and 40 (document, word) pairs to each word of the
    vocabulary: two or three batches reach a score soonest."""
    return int(np.clip(n_pairs // (12 * n_words), 1, MOST_BATCHES))


def pack(counts: csr_array, n_batches: int | None = None, tile_blocks: int | None = None) -> PackedDocuments:
    """Counts (D, V), whole numbers, as tiles.

    Documents are dealt longest first, each to the tile with most room, so that tiles hold equally many of them and
    equal work; tiles are dealt to batches in a fixed random order, since corpora come sorted. Empty documents have a
    slot too. On a mesh of devices a batch has a multiple of them as tiles, of which the last may be empty.
    """
    if n_batches is None:
        n_batches = batches_for(counts.nnz, counts.shape[1])
    if tile_blocks is None:
        tile_blocks = device_tile_blocks()
    blocks = -(-np.diff(counts.indptr) // BLOCK)
    tile = deal(blocks, max(tile_blocks, int(blocks.max(initial=1))))
    n_tiles = int(tile.max(initial=0)) + 1
    n_batches = min(n_batches, n_tiles)
    tiles_per_batch = -(-n_tiles // (n_batches * n_shares())) * n_shares()
    place = np.argsort(np.random.default_rng(0).permutation(n_tiles))[tile]
    at = (
        place % n_batches * tiles_per_batch + place // n_batches
    )  # the tile of each document, batches one after another

    places = place_documents(at, blocks)
    shape = (n_batches * tiles_per_batch, places.tile_blocks, places.slots)
    tiles, documents = fill_tiles(counts, at, places, shape)
    batched = DocumentTiles(*(leaf.reshape(n_batches, tiles_per_batch, *leaf.shape[2:]) for leaf in tiles))
    return PackedDocuments(batched, documents.reshape(n_batches, tiles_per_batch, -1), len(blocks), counts.shape[1])


class TilePlaces(NamedTuple):
    """Where documents stand in their tiles.

    `order`: documents tile by tile, longest first; of each of these the `slot` that it has and its `first` block.
    `blocks`: of each document, in the order of the corpus.
    """

    order: Int[np.ndarray, " document"]
    slot: Int[np.ndarray, " document"]
    first: Int[np.ndarray, " document"]
    blocks: Int[np.ndarray, " document"]

    @property
    def tile_blocks(self) -> int:
        """Blocks of the fullest tile."""
        return max(1, int((self.first + self.blocks[self.order]).max(initial=1)))

    @property
    def slots(self) -> int:
        """Documents of the tile that has most."""
        return int(self.slot.max(initial=0)) + 1


def place_documents(at: Int[np.ndarray, " document"], blocks: Int[np.ndarray, " document"]) -> TilePlaces:
    """Documents of so many blocks one after another in the tiles (D,) that they were dealt to."""
    order = np.lexsort((np.arange(blocks.size), -blocks, at))  # tile by tile, longest first
    starts_tile = np.diff(at[order], prepend=-1) > 0
    slot, first = _within(starts_tile, np.ones_like(blocks)), _within(starts_tile, blocks[order])
    return TilePlaces(order, slot, first, blocks)


def fill_tiles(
    counts: csr_array, at: Int[np.ndarray, " document"], places: TilePlaces, shape: tuple[int, int, int]
) -> tuple[DocumentTiles, Int[np.ndarray, "tile slot"]]:
    """The documents of counts (D, V) in tiles, as yet of one batch, and which document each slot has, −1 for none.

    shape: tiles, blocks and slots of each.
    """
    n_tiles, tile_blocks, n_slots = shape
    words = np.zeros((n_tiles, tile_blocks, BLOCK), np.int32)
    values = np.zeros(words.shape, np.float32)
    slots = np.zeros((n_tiles, tile_blocks), np.int32)
    documents = np.full((n_tiles, n_slots), -1, np.int64)
    order, blocks = places.order, places.blocks
    documents[at[order], places.slot] = order

    begins = np.empty_like(blocks)  # the first block of each document among all
    begins[order] = at[order] * tile_blocks + places.first
    slots.ravel()[_ranges(begins[order], blocks[order])] = np.repeat(places.slot, blocks[order])
    cells = _ranges(begins * BLOCK, np.diff(counts.indptr))
    words.ravel()[cells], values.ravel()[cells] = counts.indices, counts.data
    return DocumentTiles(words[None], values[None], slots[None]), documents


def _within(starts: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """Running sums of what came before, begun again where `starts`."""
    before = np.cumsum(amounts) - amounts
    return before - np.repeat(before[starts], np.diff(np.flatnonzero(np.append(starts, True))))


def _ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """begins[0], begins[0] + 1, … `lengths[0]` of them, then begins[1] …"""
    before = np.cumsum(lengths) - lengths
    return np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))


def deal(blocks: np.ndarray, tile_blocks: int) -> np.ndarray:
    """The tile (D,) of each document: at most `tile_blocks` blocks in a tile, all of them nearly equally full.

    Where the tiles turn out too few, what was left over says how many to add. One more each time would deal all
    documents again for every tile that is missing, which is quadratic in their number.
    """
    order, amounts = np.argsort(-blocks, kind="stable").tolist(), blocks.tolist()
    n_tiles = max(1, -(-sum(amounts) // tile_blocks))
    while True:
        of = np.zeros(blocks.size, np.int64)
        filled = [(0, tile) for tile in range(n_tiles)]  # a heap: the emptiest comes first
        left = sum(amounts)
        for document in order:
            amount = amounts[document]
            full, tile = filled[0]
            if full + amount > tile_blocks:
                break
            of[document] = tile
            heapreplace(filled, (full + amount, tile))
            left -= amount
        else:
            return of
        n_tiles += -(-left // tile_blocks)
