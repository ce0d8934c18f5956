"""Arrays that lie in a temporary file while they are not being worked on."""

import tempfile
import weakref

import numpy as np


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
