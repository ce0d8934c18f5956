"""Strings as two plain arrays, their text and where each ends: of any length, and with any character at the end.

NumPy's own arrays of strings give every entry the width of the longest, and lose NULs at its end.
"""

from collections.abc import Iterable, Mapping

import numpy as np

TEXT, ENDS = ".text", ".ends"


def packed(name: str, strings: Iterable[str]) -> dict[str, np.ndarray]:
    """Two arrays under names of their own: UTF-8, and the position after each string (half surrogates survive)."""
    encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {name + TEXT: np.frombuffer(b"".join(encoded), np.uint8), name + ENDS: ends}


def unpacked(name: str, arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The inverse of `packed`; also of an array of strings, as earlier versions wrote them.

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


def holds(name: str, arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether `unpacked` finds strings of this name."""
    return name in arrays or name + TEXT in arrays
