"""Store strings as two plain arrays: the text of all, and the position where each one ends.

NumPy's own arrays of strings give every entry the width of the longest one, and lose NUL characters at the end.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from lvsearch.inference.data.mapped import FileArray

TEXT, ENDS, KNOWN = ".text", ".ends", ".known"
"""Endings of the names of the arrays: the text of all strings, where each ends, and which strings are not missing."""
AT_ONCE = 1 << 14
"""The number of strings that are read or written at once."""


def pack_strings(name: str, strings: Iterable[str]) -> dict[str, np.ndarray]:
    """Return strings as two arrays: {name + ".text": bytes of all in UTF-8, name + ".ends": position after each}.

    Unpaired surrogates are kept.
    """
    encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {name + TEXT: np.frombuffer(b"".join(encoded), np.uint8), name + ENDS: ends}


def unpack_strings(name: str, arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the strings that `pack_strings` packed under this name, or that an earlier version stored as one array.

    name: the name of the strings
    arrays: {name: array}, with ".text" and ".ends" behind the name

    Raises KeyError for a missing array, ValueError for ends that do not divide the text.
    """
    if name in arrays:
        return tuple(arrays[name].tolist())
    text, ends = arrays[name + TEXT].tobytes(), np.asarray(arrays[name + ENDS], np.int64)
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    if np.any(starts > ends) or (ends[-1] if len(ends) else 0) != len(text):
        raise ValueError(
            f"got ends of {name!r} that do not divide its text of {len(text):,} bytes; is the file damaged?"
        )
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return tuple(text[start:end].decode("utf-8", "surrogatepass") for start, end in pairs)


def has_strings(name: str, arrays: Mapping[str, np.ndarray]) -> bool:
    """Return True if `arrays` hold strings under this name, for `unpack_strings`."""
    return name in arrays or name + TEXT in arrays


def json_list(values: Iterable[Any]) -> Iterator[str]:
    """Yield the text of `json.dumps(list(values))` in pieces, so that long lists need not be in memory at once."""
    yield "["
    between, waiting = "", iter(values)
    while chosen := list(islice(waiting, AT_ONCE)):
        yield between + json.dumps(chosen)[1:-1]
        between = ", "
    yield "]"


class StoredStrings(Sequence):
    """A sequence of strings in files, which are read only when they are used.

    text: the UTF-8 bytes of all strings, in a file
    ends: the position after each string in `text`, in a file
    known: True for each string that exists and False for each that is missing and reads as None, in a file. None if no
        string is missing
    """

    def __init__(self, text: FileArray, ends: FileArray, known: FileArray | None = None):
        self.text, self.ends, self.known = text, ends, known

    def __len__(self) -> int:
        return self.ends.length

    def __getitem__(self, index: Any) -> Any:
        """Return one string for a number, a tuple for a slice, and an array (chosen,) for an array of numbers."""
        if isinstance(index, np.ndarray):
            return np.array([self[int(each)] for each in index], dtype=object)
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            together = step == 1 and first < last
            return tuple(self._read(first, last) if together else (self[each] for each in range(first, last, step)))
        number = int(index) + len(self) * int(index < 0)
        if not 0 <= number < len(self):
            raise IndexError(f"got string {index} of {len(self):,}")
        return self._read(number, number + 1)[0]

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self), AT_ONCE):
            yield from self._read(first, min(first + AT_ONCE, len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | StoredStrings):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def tolist(self) -> list[Any]:
        """Return all strings as a list."""
        return list(self)

    def _read(self, first: int, last: int) -> list[Any]:
        """Return the strings from `first` up to `last`. Raises ValueError if the files are damaged."""
        ends = self.ends.read(max(first - 1, 0), last).tolist()
        begin = ends.pop(0) if first else 0
        starts = [begin, *ends[:-1]]
        pairs = list(zip(starts, ends, strict=True))
        if any(start > end for start, end in pairs):
            raise ValueError(f"{self.ends.path}: got ends of texts that do not ascend: restore the folder from a copy")
        text = self.text.read(begin, ends[-1]).tobytes()
        try:
            found = [text[start - begin : end - begin].decode("utf-8", "surrogatepass") for start, end in pairs]
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.text.path}: got no UTF-8 ({error}): restore the folder from a copy") from error
        if self.known is None:
            return found
        known = self.known.read(first, last).tolist()
        return [string if there else None for string, there in zip(found, known, strict=True)]
