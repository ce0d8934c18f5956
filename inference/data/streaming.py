"""Documents packed into tiles that lie on disk, for passes that hold a piece of a batch at a time.

The tiles are those of `packing`, of documents that are read a run at a time. Where one run holds them all, the tiles
and batches are the same to the last number; else each run is dealt to tiles of its own, and the tiles of all runs to
batches in one random order. What is kept in memory is a few bytes for every tile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lvsearch.inference.data.mapped import CountFiles
from lvsearch.inference.data.packing import BLOCK, DocumentTiles, deal, fill_tiles, place_documents
from lvsearch.inference.data.scratch import ScratchArray

RUN_PAIRS = 1 << 21
"""(document, word) pairs that are dealt to tiles together."""
PIECE_CELLS, PIECE_SLOTS = 1 << 20, 1 << 16
"""Places for words and for documents in a piece, at most: 8 MiB of tiles, and of γ 4 bytes a slot and topic."""


class StreamedLayout(NamedTuple):
    """What tiles of these documents will be, before there are any.

    | field | meaning |
    |---|---|
    | `runs` | (first, last + 1) of the documents that are dealt together |
    | `tiles_of_runs` | how many tiles each run fills |
    | `most_blocks` | that a tile may have |
    | `tile_blocks`, `tile_slots` | blocks and places for documents that a tile has |
    """

    runs: tuple[tuple[int, int], ...]
    tiles_of_runs: tuple[int, ...]
    most_blocks: int
    tile_blocks: int
    tile_slots: int

    @property
    def n_tiles(self) -> int:
        return sum(self.tiles_of_runs)

    @property
    def slots(self) -> int:
        """Places for documents in all tiles."""
        return self.n_tiles * self.tile_slots

    @property
    def cells(self) -> int:
        """Places for words in all tiles."""
        return self.n_tiles * self.tile_blocks * BLOCK

    @property
    def piece_tiles(self) -> int:
        """Tiles in a piece at most."""
        most = min(PIECE_CELLS // (self.tile_blocks * BLOCK), PIECE_SLOTS // self.tile_slots)
        return min(max(most, 1), self.n_tiles)


class DocumentPiece(NamedTuple):
    """Part of a batch, in memory; of tiles beyond the last all counts are 0.

    | field | shape | meaning |
    |---|---|---|
    | `first` | | its first tile among all |
    | `tiles` | (tile, block, 8), (tile, block) | words, counts, slots |
    | `lengths` | (tile, document) | tokens |
    | `documents` | (tile, document) | which document of the corpus, −1 for none |
    """

    first: int
    tiles: DocumentTiles
    lengths: Float[np.ndarray, "tile document"]
    documents: Int[np.ndarray, "tile document"]

    @property
    def last(self) -> int:
        """One more than its last tile."""
        return self.first + len(self.lengths)


@dataclass(frozen=True)
class StreamedDocuments:
    """Packed documents on disk: `n_batches` of `pieces_per_batch` pieces of `piece_tiles` tiles each."""

    records: ScratchArray
    n_batches: int
    pieces_per_batch: int
    piece_tiles: int
    n_documents: int
    n_with_words: int
    n_words: int

    @property
    def n_tiles(self) -> int:
        """Padding among them."""
        return self.records.n_rows

    @property
    def tile_slots(self) -> int:
        """Places for documents in a tile."""
        return self.records.row["documents"].shape[0]

    def pieces(self, batch: int | None = None) -> Iterator[DocumentPiece]:
        """The pieces of a batch, or of all one after another, in order."""
        batches = range(self.n_batches) if batch is None else (batch,)
        for piece in (b * self.pieces_per_batch + p for b in batches for p in range(self.pieces_per_batch)):
            first = piece * self.piece_tiles
            found = self.records.read(first, first + self.piece_tiles)
            tiles = DocumentTiles(*(np.ascontiguousarray(found[name]) for name in DocumentTiles._fields))
            yield DocumentPiece(first, tiles, found["lengths"].copy(), found["documents"] - 1)


def streamed_layout(files: CountFiles, tile_blocks: int) -> StreamedLayout:
    """The layout of documents in tiles of so many blocks, or as many as the longest has; reads the row starts alone."""
    longest = max((int(lengths.max(initial=1)) for lengths in files.lengths()), default=1)
    most = max(tile_blocks, -(-longest // BLOCK))
    runs = tuple(files.runs(RUN_PAIRS))
    tiles, blocks_filled, slots_filled = [], 1, 1
    for run in runs:
        blocks = _blocks(files, run)
        at = deal(blocks, most)
        places = place_documents(at, blocks)
        tiles.append(int(at.max(initial=0)) + 1)
        blocks_filled, slots_filled = max(blocks_filled, places.tile_blocks), max(slots_filled, places.slots)
    return StreamedLayout(runs, tuple(tiles), most, blocks_filled, slots_filled)


def pack_streamed(files: CountFiles, layout: StreamedLayout, n_batches: int) -> StreamedDocuments:
    """Documents as tiles on disk, in so many batches at most.

    Raises ValueError for files that are damaged, OSError where the disk is full.
    """
    n_batches = min(n_batches, layout.n_tiles)
    per_batch = -(-layout.n_tiles // n_batches)
    pieces = -(-per_batch // layout.piece_tiles)
    piece_tiles = -(-per_batch // pieces)
    place = np.argsort(np.random.default_rng(0).permutation(layout.n_tiles))
    positions = place % n_batches * (pieces * piece_tiles) + place // n_batches
    records = ScratchArray(n_batches * pieces * piece_tiles, _record(layout))
    with_words, before = 0, 0
    for run, n_tiles in zip(layout.runs, layout.tiles_of_runs, strict=True):
        filled = _filled(files, run, layout, n_tiles)
        with_words += int((filled["lengths"] > 0).sum())
        for tile, position in enumerate(positions[before : before + n_tiles].tolist()):
            records.write(position, filled[tile : tile + 1])
        before += n_tiles
    return StreamedDocuments(records, n_batches, pieces, piece_tiles, files.n_documents, with_words, files.n_words)


def _record(layout: StreamedLayout) -> np.dtype:
    """A tile on disk; of `documents` 0 is none, since what was never written is 0."""
    blocks, slots = layout.tile_blocks, layout.tile_slots
    return np.dtype(
        [
            ("words", np.int32, (blocks, BLOCK)),
            ("counts", np.float32, (blocks, BLOCK)),
            ("slots", np.int32, (blocks,)),
            ("lengths", np.float64, (slots,)),
            ("documents", np.int64, (slots,)),
        ]
    )


def _filled(files: CountFiles, run: tuple[int, int], layout: StreamedLayout, n_tiles: int) -> np.ndarray:
    """The tiles of a run, (tile,) records."""
    counts, blocks = files.rows(*run), _blocks(files, run)
    at = deal(blocks, layout.most_blocks)
    tiles, documents = fill_tiles(
        counts, at, place_documents(at, blocks), (n_tiles, layout.tile_blocks, layout.tile_slots)
    )
    found = np.zeros(n_tiles, _record(layout))
    found["words"], found["counts"], found["slots"] = (leaf[0] for leaf in tiles)
    there = documents >= 0
    found["lengths"][there] = counts.sum(axis=1, dtype=np.float64)[documents[there]]
    found["documents"][there] = documents[there] + run[0] + 1
    return found


def _blocks(files: CountFiles, run: tuple[int, int]) -> Int[np.ndarray, " document"]:
    return -(-np.diff(files.row_starts(*run)) // BLOCK)
