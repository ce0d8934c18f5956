"""Read bytes from files: unpack them, decode them as text, and name the kind of a file that is no text."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, TextIO, cast

from lvsearch.files.untrusted_files import open_ordinary, require_ordinary
from lvsearch.models.plain_arguments import as_path, shortened_repr

ZSTANDARD = ".zst"


def open_zstandard(path: Path, mode: str) -> Any:
    """Open a file that Zstandard packed. mode: "rb".

    Raises ValueError if there is no reader: Python has one from 3.14 on, and the package zstandard is one.
    """
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd as reader
        else:
            import zstandard as reader  # pyright: ignore[reportMissingImports] — an extra
    except ImportError as error:
        raise ValueError(
            f"{path}: .zst files need zstandard: pip install 'lvsearch[zstandard]', or unpack it (zstd -d)"
        ) from error
    return reader.open(path, mode)


PACKED: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ZSTANDARD: open_zstandard,
}
"""Endings of files that hold one packed file, and the functions that open them."""
ZIP = ".zip"
SIGNATURES = (
    (b"PK\x03\x04", "a ZIP archive, as .zip, .xlsx and .docx files are"),
    (b"\x1f\x8b", "packed by gzip: name it .gz"),
    (b"BZh", "packed by bzip2: name it .bz2"),
    (b"\xfd7zXZ", "packed by xz: name it .xz"),
    (b"\x28\xb5\x2f\xfd", "packed by Zstandard: name it .zst"),
    (b"%PDF", "a PDF: take its text out first (pdftotext)"),
    (b"\xd0\xcf\x11\xe0", "an old Office file (.doc, .xls): save it as text, .csv or .xlsx"),
    (b"{\\rtf", "rich text (RTF): save it as plain text"),
    (b"\x89HDF", "an HDF5 file, as .h5ad files are: lv.Corpus.open reads those by their ending"),
    (b"PAR1", "a Parquet file: name it .parquet"),
    (b"ARROW1", "an Arrow file: name it .feather"),
    (b"\x93NUMPY", "an array of NumPy: name it .npy, or pass it to lv.Corpus.from_matrix"),
    (b"SQLite format 3", "a database of SQLite: read a table of it with pandas.read_sql"),
    (b"\x80\x02", "a pickle of Python: load it there, and pass what it holds"),
    (b"\x80\x03", "a pickle of Python: load it there, and pass what it holds"),
    (b"\x80\x04", "a pickle of Python: load it there, and pass what it holds"),
    (b"\x80\x05", "a pickle of Python: load it there, and pass what it holds"),
)
"""The first bytes of files that are no text, and what to do with such files."""
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
CHARACTERS_AT_ONCE = 1 << 20
"""The number of characters that are read at once where a text is read through."""
HEAD = 1024
"""The number of bytes in which signs of a file that is no text are looked for."""
BAD_PACKING = (OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""The exceptions of unpacking. An OSError with a number is the system's own, such as a missing file."""


def errors_of_unpacking() -> tuple[type[Exception], ...]:
    """Return the exceptions of unpacking, those of Zstandard only if its reader was imported."""
    readers = (sys.modules.get(name) for name in ("zstandard", "compression.zstd"))
    return (*BAD_PACKING, *(reader.ZstdError for reader in readers if reader is not None))


def unpacked_name(path: str | os.PathLike[str]) -> str:
    """Return the name that a file has once it is unpacked, in lower case: "docs.csv" for "Docs.csv.gz".

    For a .zip with one file it is the name of that file. Raises ValueError if a file named .zip is not one.
    """
    path = as_path("path", path)
    name = path.name.lower()
    if name.endswith(ZIP) and path.is_file():
        members = zip_members(path)
        name = PurePosixPath(members[0]).name.lower() if len(members) == 1 else name
    for ending in PACKED:
        name = name.removesuffix(ending)
    return name


def zip_members(path: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the files in a .zip, sorted, without hidden files and folders.

    Raises ValueError for a file that is no .zip.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except BAD_PACKING as error:
        raise _not_packed(path, error, "zip") from error
    return sorted(name for name in names if not is_hidden(PurePosixPath(name)))


def is_hidden(path: PurePosixPath | Path) -> bool:
    """Return True for a file that an editor or a system made, by its path.

    These are paths with a name that begins with a dot, or with macOS's folder `__MACOSX`.
    """
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


@contextmanager
def open_unpacked(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a file opened for reading bytes, unpacked if its ending is .gz, .bz2, .xz, .zst or .zip (of
    one file).

    Raises ValueError, also inside the block that reads, for a file that is not packed as its name says, and for a .zip
    of several files.
    """
    path = as_path("path", path)
    ending = path.suffix.lower()
    if ending not in PACKED and ending != ZIP:
        with open_ordinary(path) as file:
            yield file
        return
    require_ordinary(path)
    try:
        if ending == ZIP:
            members = zip_members(path)
            if len(members) != 1:
                raise ValueError(f"{path}: got {len(members)} files in it; expected one")
            with zipfile.ZipFile(path) as archive, archive.open(members[0]) as file:
                yield file
        else:
            with PACKED[ending](path, "rb") as file:
                yield file
    except errors_of_unpacking() as error:
        kinds = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ZSTANDARD: "Zstandard", ZIP: "zip"}
        raise _not_packed(path, error, kinds[ending]) from error


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Return the text of a file, unpacked by its ending. Line ends of all systems become line feeds.

    path: the file
    encoding: the encoding of the text, as Python names it

    Raises:
        ValueError: a file that is no text (its kind is named); bytes that are not of this encoding, with the place of
            the first; an unknown encoding; a file that is not packed as its name says.
    """
    with open_unpacked(path) as file:
        content = file.read()
    return decode_text(content, path, encoding)


def decode_text(content: bytes, name: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Return bytes as text. Line ends of all systems become line feeds.

    content: the bytes
    name: the name of the file, for messages
    encoding: the encoding of the text, as Python names it

    Raises ValueError for bytes that are no text, or not of this encoding, and for an unknown encoding.
    """
    codec = _codec(encoding)
    refuse_foreign(content[:HEAD], name, codec)
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        start = error.object.rfind(b"\n", 0, error.start) + 1
        line = error.object.count(b"\n", 0, start) + 1
        place = f" in line {line}, byte {error.start - start + 1}"
        raise ValueError(_not_of_encoding(name, encoding, error, place, content)) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def open_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> Iterator[IO[str]]:
    """Yield a file opened for reading text piece by piece, unpacked by its ending. Line ends become line feeds.

    path: the file
    encoding: the encoding of the text, as Python names it

    Raises ValueError, also inside the block that reads, for a file that is no text, or not of this encoding.
    """
    codec = _codec(encoding)
    with open_unpacked(path) as file:
        head = file.read(HEAD)
    refuse_foreign(head, path, codec)
    with open_unpacked(path) as file, io.TextIOWrapper(file, encoding=codec) as text:
        try:
            yield text
        except UnicodeDecodeError as error:
            raise ValueError(_not_of_encoding(path, encoding, error, "", head)) from error


def has_mixed_line_ends(path: str | os.PathLike[str], encoding: str = "utf-8") -> bool:
    """Return True if some lines of a text file end in a carriage return alone, and others in a line feed.

    path: the file
    encoding: the encoding of the text, as Python names it

    Raises ValueError for a file that is no text, or not of this encoding.
    """
    with open_text(path, encoding) as text:
        while text.read(CHARACTERS_AT_ONCE):
            pass
        ends = cast(TextIO, text).newlines
        return isinstance(ends, tuple) and "\r" in ends


def refuse_foreign(head: bytes, name: Any, codec: str) -> None:
    """Raise ValueError if a file is no text in this encoding, by its first bytes; the message says what it is.

    head: the first bytes of the file
    name: the name of the file, for messages
    codec: Python's name of the encoding
    """
    wide = codec.startswith(("utf-16", "utf-32"))
    if head[:2] in UTF16 and not wide:
        if codec.startswith("utf-8"):
            return  # decoding raises an error that gives the place
        raise ValueError(f"{name}: got text that begins as UTF-16 does; expected encoding='utf-16' for it")
    what = next((what for signature, what in SIGNATURES if head.startswith(signature)), None)
    if what is None and b"\x00" in head and not wide:
        what = "no text in this encoding: there are NUL bytes in it; it is a file of a program, or UTF-16"
    if what is not None:
        raise ValueError(f"{name}: got a file that is {what}; expected text")


def _not_packed(path: Path | str | os.PathLike[str], error: Exception, program: str) -> Exception:
    """Return the error to raise for a file that could not be unpacked.

    path: the file
    error: the error of unpacking; one of the system, such as a missing file, is returned as it is
    program: the name of the program that packs such files, such as "gzip"
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return ValueError(f"{path}: {error}; expected a file written by {program}, as its name says")


def _codec(encoding: str) -> str:
    """Return Python's name of an encoding; for UTF-8 the one that skips a byte order mark.

    Raises ValueError for an unknown encoding.
    """
    try:
        codec = codecs.lookup(encoding).name
    except (LookupError, TypeError) as error:
        raise ValueError(
            f"got encoding={shortened_repr(encoding)}, which Python does not know; expected one such as utf-8, latin-1 "
            "or cp1252"
        ) from error
    return "utf-8-sig" if codec == "utf-8" else codec


def _not_of_encoding(name: Any, encoding: str, error: UnicodeDecodeError, place: str, head: bytes) -> str:
    """Return the message for bytes that are not of the stated encoding, with a guess at the right one.

    name: the name of the file
    encoding: the stated encoding
    error: the error of decoding, which holds the bytes
    place: where the bytes are, in words, or ""
    head: the first bytes of the file
    """
    got = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
    guess = "encoding='latin-1' or 'cp1252' are common"
    if head[:2] in UTF16:
        guess = "it begins as UTF-16 does: encoding='utf-16'"
    return (
        f"{name}: got bytes that are not {encoding.upper()}: {got}{place}; expected {encoding.upper()} text: "
        f"say what the file is in ({guess}; on the command line --encoding), or convert it (iconv -t UTF-8)"
    )
