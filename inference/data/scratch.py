"""Arrays that lie in a file while they are not being worked on."""

import tempfile
import weakref

import numpy as np


class ScratchArray:
    """An array (row, …) in a file without a name, which goes with the process however that ends.

    It is read and written a few rows at a time, and not mapped: pages of a map count as memory of the process for as
    long as they stay. The file is in the folder for temporary files (`TMPDIR`). Rows never written are 0.
    """

    def __init__(self, n_rows: int, row: np.dtype):
        self.n_rows, self.row = n_rows, row
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 — closed when this goes
        weakref.finalize(self, self._file.close)
        self._file.truncate(self.nbytes)

    @property
    def nbytes(self) -> int:
        """On disk."""
        return self.n_rows * self.row.itemsize

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first … last − 1, (rows, …), of their own. Raises OSError where the file was cut off."""
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
        """Put rows (rows, …) at `first` and after it. Raises OSError where the disk is full."""
        left = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        self._file.seek(first * self.row.itemsize)
        while left:
            left = left[self._file.write(left) :]
