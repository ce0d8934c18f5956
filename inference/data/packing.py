"""Packs documents into tiles of equal shape, so that one program serves documents of every length.

A tile holds about 512 distinct words, few enough for its (token, topic) array to stay in a core's cache. Documents
stand in it one after another, each padded to a multiple of 8 slots. A *block* of 8 slots belongs to one document, so a
sum over a document is a sum inside blocks and then over few blocks. Tiles are dealt to batches, and topics are updated
after every batch.
"""

import math
from dataclasses import dataclass
from heapq import heapreplace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse import csr_array

from lvsearch.inference.sharding import n_shares

BLOCK = 8
"""The number of slots in a block. All of them belong to one document."""
TILE_BLOCKS_CPU, TILE_BLOCKS_ACCELERATOR = 64, 32768
"""About the most blocks in a tile, unless the longest document needs more.

On a CPU a tile should stay in the cache; an accelerator needs larger tiles to be kept busy.
"""
MOST_BATCHES = 16
"""The most batches that a corpus is divided into."""


class DocumentTiles(NamedTuple):
    """Documents packed into tiles: arrays of equal shape that hold a few documents each. A count of 0 is padding.

    | field | shape | meaning |
    |---|---|---|
    | `words` | (batch, tile, block, 8) | word ids |
    | `counts` | (batch, tile, block, 8) | how often each word occurs |
    | `slots` | (batch, tile, block) | which document of the tile the block belongs to, counted from 0 in each tile |
    """

    words: Int[Array | np.ndarray, "batch tile block slot"]
    counts: Float[Array | np.ndarray, "batch tile block slot"]
    slots: Int[Array | np.ndarray, "batch tile block"]


@dataclass(frozen=True)
class PackedDocuments:
    """Documents in tiles, with the place of each document.

    `documents` (batch, tile, slot) says which document of the corpus each document slot of a tile holds; −1 for none.
    """

    tiles: DocumentTiles
    documents: Int[np.ndarray, "batch tile document"]
    n_documents: int
    n_words: int

    @property
    def n_batches(self) -> int:
        """The number of batches that the tiles are divided into."""
        return self.documents.shape[0]

    @property
    def lengths(self) -> Float[np.ndarray, "batch tile document"]:
        """The number of tokens of the document in each document slot, (batch, tile, slot)."""
        out = np.zeros(self.documents.shape)
        batch, tile, _ = np.indices(self.tiles.slots.shape)
        np.add.at(out, (batch, tile, self.tiles.slots), np.asarray(self.tiles.counts, np.float64).sum(-1))
        return out

    def gather(self, per_slot: Array | np.ndarray) -> np.ndarray:
        """Return results per document slot in the order of the corpus, (document, …).

        per_slot: (batch, tile, slot, …).
        """
        values = np.asarray(per_slot)
        real = self.documents >= 0
        out = np.zeros((self.n_documents, *values.shape[3:]), values.dtype)
        out[self.documents[real]] = values[real]
        return out

    def scatter(self, per_document: np.ndarray) -> np.ndarray:
        """Return values of documents in their document slots, (batch, tile, slot, …), and 0 in slots without a
        document.

        This is the inverse of `gather`.

        per_document: the values in the order of the corpus, (document, …).
        """
        real = self.documents >= 0
        out = np.zeros((*self.documents.shape, *per_document.shape[1:]), per_document.dtype)
        out[real] = per_document[self.documents[real]]
        return out


def device_tile_blocks(n_blocks: int, longest: int, n_batches: int) -> int:
    """Return the most blocks (of 8 distinct words) in a tile on this device, unless the longest document needs more.

    On an accelerator each batch is one tile or several large ones, all equally full. Tiles larger than a batch would
    leave fewer batches than asked for, and fits would need more passes.

    n_blocks: the number of blocks of all documents. longest: that of the longest document.
    n_batches: into how many batches the documents are to be divided.
    """
    if jax.default_backend() == "cpu":
        return TILE_BLOCKS_CPU
    batch_blocks = math.ceil(n_blocks / n_batches)
    tiles_per_batch = math.ceil(batch_blocks / TILE_BLOCKS_ACCELERATOR)
    return math.ceil(batch_blocks / tiles_per_batch) + longest


def batches_for(n_pairs: int, n_words: int) -> int:
    """Return into how many batches a corpus should be divided.

    The work of a batch is proportional to its words plus a few times the vocabulary. With more batches fewer passes are
    needed. On AP and Cora, with 26 and 40 (document, word) pairs per word of the vocabulary, two or three batches reach
    a score soonest.

    n_pairs: the number of (document, distinct word) pairs of the corpus.
    n_words: the number of words of the vocabulary.
    """
    return int(np.clip(n_pairs // (12 * n_words), 1, MOST_BATCHES))


def pack(counts: csr_array, n_batches: int | None = None, tile_blocks: int | None = None) -> PackedDocuments:
    """Return the documents of counts (documents, words), whole numbers, packed into tiles.

    Documents are dealt longest first, each to the tile with most room, so that tiles hold equal work. Tiles are dealt
    to batches in a fixed random order, because corpora come sorted. Empty documents have a slot too. On a mesh of
    devices each batch has a multiple of the number of devices as tiles, of which the last may be empty.

    n_batches: the most batches; None: by `batches_for`.
    tile_blocks: the number of blocks of 8 distinct words in a tile; None: by the device (`device_tile_blocks`).
    """
    if n_batches is None:
        n_batches = batches_for(counts.nnz, counts.shape[1])
    blocks = -(-np.diff(counts.indptr) // BLOCK)
    longest = int(blocks.max(initial=1))
    if tile_blocks is None:
        tile_blocks = device_tile_blocks(max(int(blocks.sum()), 1), longest, n_batches)
    tile = deal(blocks, max(tile_blocks, longest))
    n_tiles = int(tile.max(initial=0)) + 1
    n_batches = min(n_batches, n_tiles)
    tiles_per_batch = -(-n_tiles // (n_batches * n_shares())) * n_shares()
    # tiles in a random order, dealt to the batches in turn: `at` is each document's tile, counted batch after batch
    place = np.argsort(np.random.default_rng(0).permutation(n_tiles))[tile]
    at = place % n_batches * tiles_per_batch + place // n_batches

    places = place_documents(at, blocks)
    shape = (n_batches * tiles_per_batch, places.tile_blocks, places.slots)
    tiles, documents = fill_tiles(counts, at, places, shape)
    batched = DocumentTiles(*(leaf.reshape(n_batches, tiles_per_batch, *leaf.shape[2:]) for leaf in tiles))
    return PackedDocuments(batched, documents.reshape(n_batches, tiles_per_batch, -1), len(blocks), counts.shape[1])


class TilePlaces(NamedTuple):
    """The positions of documents in their tiles.

    | field | meaning |
    |---|---|
    | `order` | document numbers, tile by tile and longest first |
    | `slot` | the document slot of each of these documents in its tile, counted from 0 |
    | `first` | the first block of each of these documents in its tile |
    | `blocks` | the number of blocks (of 8 distinct words) of each document, in the order of the corpus |
    """

    order: Int[np.ndarray, " document"]
    slot: Int[np.ndarray, " document"]
    first: Int[np.ndarray, " document"]
    blocks: Int[np.ndarray, " document"]

    @property
    def tile_blocks(self) -> int:
        """The number of blocks of the fullest tile."""
        return max(1, int((self.first + self.blocks[self.order]).max(initial=1)))

    @property
    def slots(self) -> int:
        """The number of document slots that a tile needs: the most documents in one tile."""
        return int(self.slot.max(initial=0)) + 1


def place_documents(at: Int[np.ndarray, " document"], blocks: Int[np.ndarray, " document"]) -> TilePlaces:
    """Return the positions of documents that stand one after another in their tiles, longest first.

    at: the tile that each document was dealt to, (document,).
    blocks: the number of blocks of each document, (document,).
    """
    order = np.lexsort((np.arange(blocks.size), -blocks, at))  # tile by tile, longest first
    starts_tile = np.diff(at[order], prepend=-1) > 0
    slot, first = _sum_within(starts_tile, np.ones_like(blocks)), _sum_within(starts_tile, blocks[order])
    return TilePlaces(order, slot, first, blocks)


def fill_tiles(
    counts: csr_array, at: Int[np.ndarray, " document"], places: TilePlaces, shape: tuple[int, int, int]
) -> tuple[DocumentTiles, Int[np.ndarray, "tile slot"]]:
    """Return the documents of counts (documents, words) written into tiles, as a single batch.

    A block is 8 places for distinct words, all of one document. A document slot is a document's number in its tile.

    at: the tile of each document, (document,).
    places: the slot, first block and number of blocks of each document.
    shape: (tiles, blocks in each tile, document slots in each tile).

    Returns: (the tiles, the number in `counts` of the document in each slot (tile, slot), −1 for none).
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
    slots.ravel()[_concatenate_ranges(begins[order], blocks[order])] = np.repeat(places.slot, blocks[order])
    cells = _concatenate_ranges(begins * BLOCK, np.diff(counts.indptr))
    words.ravel()[cells], values.ravel()[cells] = counts.indices, counts.data
    return DocumentTiles(words[None], values[None], slots[None]), documents


def _sum_within(starts: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """Return the running sum of the amounts before each entry, begun again at 0 where `starts` is True."""
    before = np.cumsum(amounts) - amounts
    return before - np.repeat(before[starts], np.diff(np.flatnonzero(np.append(starts, True))))


def _concatenate_ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the numbers begins[i], …, begins[i] + lengths[i] − 1, one range after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))


def deal(blocks: np.ndarray, tile_blocks: int) -> np.ndarray:
    """Return the tile that each document is dealt to, (document,), such that all tiles are nearly equally full.

    A tile gets at most `tile_blocks` blocks. If the tiles turn out too few, as many are added as the leftover blocks
    need. Adding one tile at a time would deal all documents again for each, which is quadratic in their number.

    blocks: the number of blocks of each document, (document,).
    """
    order, amounts = np.argsort(-blocks, kind="stable").tolist(), blocks.tolist()
    n_tiles = max(1, -(-sum(amounts) // tile_blocks))
    while True:
        tile_of = np.zeros(blocks.size, np.int64)
        filled = [(0, tile) for tile in range(n_tiles)]  # a heap: the emptiest comes first
        left = sum(amounts)
        for document in order:
            amount = amounts[document]
            full, tile = filled[0]
            if full + amount > tile_blocks:
                break
            tile_of[document] = tile
            heapreplace(filled, (full + amount, tile))
            left -= amount
        else:
            return tile_of
        n_tiles += -(-left // tile_blocks)
