"""Documents packed into tiles that lie on disk, for passes that hold a piece of a batch (a few tiles) at a time.

The tiles are those of `packing`, of documents that are read one run of consecutive ones at a time. If one run holds all
documents, tiles and batches are exactly those of `packing`. Otherwise each run is dealt to tiles of its own, and the
tiles of all runs are dealt to batches in one random order. Only a few bytes per tile are kept in memory. Tiles, and
what passes keep of each document, lie in temporary files (`ScratchArray`).
"""

import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lvsearch.inference.data.mapped import CountFiles
from lvsearch.inference.data.packing import BLOCK, DocumentTiles, deal, device_tile_blocks, fill_tiles, place_documents

RUN_PAIRS = 1 << 21
"""The number of (document, word) pairs that are dealt to tiles together."""
PIECE_CELLS, PIECE_SLOTS = 1 << 20, 1 << 16
"""The most slots for words, and the most slots for documents, in a piece (a few tiles that are in memory together).

They come to 8 MiB of tiles, and to 4 bytes of γ for every document slot and topic.
"""


class ScratchArray:
    """An array (row, …) in a file without a name, which disappears with the process however that ends.

    A few rows are read and written at a time. The file is not memory-mapped, because mapped pages count as memory of
    the process for as long as they stay. It lies in the folder for temporary files (`TMPDIR`). Rows never written are
    0.

    `row` is the NumPy type of one row, which may have fields and axes of its own.
    """

    def __init__(self, n_rows: int, row: np.dtype):
        """Create the file, with room for `n_rows` rows of the NumPy type `row`, all 0."""
        self.n_rows, self.row = n_rows, row
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 — closed when this goes
        weakref.finalize(self, self._file.close)
        self._file.truncate(self.nbytes)

    @property
    def nbytes(self) -> int:
        """The size of the file in bytes."""
        return self.n_rows * self.row.itemsize

    def read(self, first: int, last: int) -> np.ndarray:
        """Return a copy of rows first, …, last − 1, (rows, …). Raises OSError if the file was cut off."""
        rows = np.empty(last - first, self.row)
        left = rows.reshape(-1).view(np.uint8).data
        self._file.seek(first * self.row.itemsize)
        while left:
            done = self._file.readinto(left)
            if not done:
                raise OSError(f"got {len(left):,} bytes too few of a temporary file; was it cut off by something else?")
            left = left[done:]
        return rows

    def write(self, first: int, rows: np.ndarray) -> None:
        """Write rows (rows, …) at row number `first` and after it. Raises OSError if the disk is full."""
        left = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        self._file.seek(first * self.row.itemsize)
        while left:
            left = left[self._file.write(left) :]


class StreamedLayout(NamedTuple):
    """The shape of the tiles that some documents are packed into, known before any tile is filled.

    | field | meaning |
    |---|---|
    | `runs` | (first, last + 1) of the consecutive documents that are dealt to tiles together |
    | `tiles_of_runs` | how many tiles each run fills |
    | `most_blocks` | the most blocks (of 8 distinct words) that a tile may be given |
    | `tile_blocks`, `tile_slots` | how many blocks, and how many slots for documents, a tile has |
    """

    runs: tuple[tuple[int, int], ...]
    tiles_of_runs: tuple[int, ...]
    most_blocks: int
    tile_blocks: int
    tile_slots: int

    @property
    def n_tiles(self) -> int:
        """The number of tiles."""
        return sum(self.tiles_of_runs)

    @property
    def slots(self) -> int:
        """The number of slots for documents in all tiles together."""
        return self.n_tiles * self.tile_slots

    @property
    def cells(self) -> int:
        """The number of slots for distinct words in all tiles together."""
        return self.n_tiles * self.tile_blocks * BLOCK

    @property
    def piece_tiles(self) -> int:
        """The most tiles in a piece, the part of a batch that is in memory at a time."""
        most = min(PIECE_CELLS // (self.tile_blocks * BLOCK), PIECE_SLOTS // self.tile_slots)
        return min(max(most, 1), self.n_tiles)


class DocumentPiece(NamedTuple):
    """Part of a batch, in memory: a few tiles of documents. Tiles beyond the last have counts of 0.

    | field | shape | meaning |
    |---|---|---|
    | `first` | | the number of its first tile among all tiles |
    | `tiles` | (tile, block, 8), (tile, block) | words, counts, slots |
    | `lengths` | (tile, document) | number of tokens of each document |
    | `documents` | (tile, document) | which document of the corpus, −1 for none |
    """

    first: int
    tiles: DocumentTiles
    lengths: Float[np.ndarray, "tile document"]
    documents: Int[np.ndarray, "tile document"]

    @property
    def last(self) -> int:
        """One more than the number of the piece's last tile."""
        return self.first + len(self.lengths)


@dataclass(frozen=True)
class StreamedDocuments:
    """Packed documents on disk: `n_batches` of `pieces_per_batch` pieces of `piece_tiles` tiles each.

    | field | meaning |
    |---|---|
    | `records` | the tiles, one in each row |
    | `n_documents` | the number of documents |
    | `n_with_words` | the number of documents that are not empty |
    | `n_words` | the number of words of the vocabulary |
    """

    records: ScratchArray
    n_batches: int
    pieces_per_batch: int
    piece_tiles: int
    n_documents: int
    n_with_words: int
    n_words: int

    @property
    def n_tiles(self) -> int:
        """The number of tiles, including empty ones that fill up the last pieces."""
        return self.records.n_rows

    @property
    def tile_slots(self) -> int:
        """The number of slots for documents in a tile."""
        return self.records.row["documents"].shape[0]

    def pieces(self, batch: int | None = None) -> Iterator[DocumentPiece]:
        """Yield the pieces of one batch in order, or of all batches one after another if `batch` is None.

        batch: the number of the batch.
        """
        batches = range(self.n_batches) if batch is None else (batch,)
        for piece in (b * self.pieces_per_batch + p for b in batches for p in range(self.pieces_per_batch)):
            first = piece * self.piece_tiles
            found = self.records.read(first, first + self.piece_tiles)
            tiles = DocumentTiles(*(np.ascontiguousarray(found[name]) for name in DocumentTiles._fields))
            yield DocumentPiece(first, tiles, found["lengths"].copy(), found["documents"] - 1)


def streamed_layout(files: CountFiles, tile_blocks: int) -> StreamedLayout:
    """Return the shape of the tiles that documents in files are packed into. Only the row starts of the files are read.

    tile_blocks: the number of blocks (of 8 distinct words) in a tile, unless the longest document needs more.
    """
    longest = max((int(lengths.max(initial=1)) for lengths in files.lengths()), default=1)
    most = max(tile_blocks, -(-longest // BLOCK))
    runs = tuple(files.runs(RUN_PAIRS))
    tiles, blocks_filled, slots_filled = [], 1, 1
    for run in runs:
        blocks = _blocks_of_documents(files, run)
        at = deal(blocks, most)
        places = place_documents(at, blocks)
        tiles.append(int(at.max(initial=0)) + 1)
        blocks_filled, slots_filled = max(blocks_filled, places.tile_blocks), max(slots_filled, places.slots)
    return StreamedLayout(runs, tuple(tiles), most, blocks_filled, slots_filled)


def streamed_layout_on_device(files: CountFiles, n_batches: int) -> StreamedLayout:
    """Return the shape of the tiles that suits this device (`device_tile_blocks`), for documents in files.

    n_batches: into how many batches the documents are to be divided.
    """
    n_blocks, longest = 1, 1
    for lengths in files.lengths():
        blocks = -(-lengths // BLOCK)
        n_blocks, longest = n_blocks + int(blocks.sum()), max(longest, int(blocks.max(initial=1)))
    return streamed_layout(files, device_tile_blocks(n_blocks, longest, n_batches))


def pack_streamed(files: CountFiles, layout: StreamedLayout, n_batches: int) -> StreamedDocuments:
    """Write documents as tiles to a temporary file, divided into at most `n_batches` batches, and return the packed
    documents.

    layout: the shape of the tiles, from `streamed_layout`.

    Raises ValueError if the files are damaged, OSError if the disk is full.
    """
    # all batches get equally many pieces, all pieces equally many tiles, rounded up: the rest is padding
    n_batches = min(n_batches, layout.n_tiles)
    per_batch = -(-layout.n_tiles // n_batches)
    pieces = -(-per_batch // layout.piece_tiles)
    piece_tiles = -(-per_batch // pieces)
    # the position of each tile: random order, dealt to the batches in turn
    place = np.argsort(np.random.default_rng(0).permutation(layout.n_tiles))
    positions = place % n_batches * (pieces * piece_tiles) + place // n_batches
    records = ScratchArray(n_batches * pieces * piece_tiles, _tile_dtype(layout))
    with_words, before = 0, 0
    for run, n_tiles in zip(layout.runs, layout.tiles_of_runs, strict=True):
        filled = _fill_tiles_of_run(files, run, layout, n_tiles)
        with_words += int((filled["lengths"] > 0).sum())
        for tile, position in enumerate(positions[before : before + n_tiles].tolist()):
            records.write(position, filled[tile : tile + 1])
        before += n_tiles
    return StreamedDocuments(records, n_batches, pieces, piece_tiles, files.n_documents, with_words, files.n_words)


def _tile_dtype(layout: StreamedLayout) -> np.dtype:
    """Return the NumPy type of one tile on disk, a record with the arrays of the tile as fields.

    The field `documents` holds document numbers plus one, because rows never written are 0 and 0 must mean no document.
    """
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


def _fill_tiles_of_run(files: CountFiles, run: tuple[int, int], layout: StreamedLayout, n_tiles: int) -> np.ndarray:
    """Return the tiles of one run of consecutive documents, as records (tile,).

    run: (first, last + 1) of the documents. layout: the shape of the tiles. n_tiles: how many tiles the run fills.
    """
    counts, blocks = files.rows(*run), _blocks_of_documents(files, run)
    at = deal(blocks, layout.most_blocks)
    tiles, documents = fill_tiles(
        counts, at, place_documents(at, blocks), (n_tiles, layout.tile_blocks, layout.tile_slots)
    )
    found = np.zeros(n_tiles, _tile_dtype(layout))
    found["words"], found["counts"], found["slots"] = (leaf[0] for leaf in tiles)
    there = documents >= 0
    found["lengths"][there] = counts.sum(axis=1, dtype=np.float64)[documents[there]]
    found["documents"][there] = documents[there] + run[0] + 1
    return found


def _blocks_of_documents(files: CountFiles, run: tuple[int, int]) -> Int[np.ndarray, " document"]:
    """Return the number of blocks of 8 distinct words of each document of a run, (document,).

    run: (first, last + 1) of the documents.
    """
    return -(-np.diff(files.row_starts(*run)) // BLOCK)
