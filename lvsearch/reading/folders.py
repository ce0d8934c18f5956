"""Read folders and archives of texts, with a document per .txt file."""

import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lvsearch.files.ordinary import require_ordinary
from lvsearch.files.packed_files import ZIP, decode_text, is_hidden, read_text, zip_members

LINES = ".txt"
"""The ending of files of text: one document in a folder, or by itself a document per line."""
SHOWN = 5
"""The number of files that a note names."""


class TextFiles(NamedTuple):
    """The text files below a folder, or in a .zip; each is a document.

    root: the folder or archive
    names: the paths of the files inside it
    labels: the class of each file, which is the name of its top folder; None unless every file is in some folder
    notes: sentences on files that were left out
    """

    root: Path
    names: tuple[str, ...]
    labels: tuple[str, ...] | None
    notes: tuple[str, ...]

    def texts(self, places: slice, encoding: str) -> list[str]:
        """Return the texts of some of the files.

        places: which of `names`
        encoding: the encoding of the files

        Raises ValueError for a file that is no text in this encoding.
        """
        if self.root.suffix.lower() != ZIP:
            return [read_text(self.root / name, encoding) for name in self.names[places]]
        with zipfile.ZipFile(self.root) as archive:
            return [decode_text(archive.read(name), f"{self.root}/{name}", encoding) for name in self.names[places]]


def holds_text_files(path: str | os.PathLike[str]) -> bool:
    """Return True for a folder, or a .zip of several files."""
    path = Path(path)
    return path.is_dir() or (path.suffix.lower() == ZIP and path.is_file() and len(zip_members(path)) != 1)


def text_files(path: str | os.PathLike[str]) -> TextFiles:
    """Return the .txt files below a folder or in a .zip, in the order of their paths.

    The ending may be in capitals. Hidden files, files in hidden folders and files with other endings are left out, and
    notes say so.

    Raises:
        ValueError: there is no such file (files with other endings are named); a link out of the folder, a pipe or a
            device in it.
    """
    root = Path(path)
    if root.suffix.lower() == ZIP and root.is_file():
        with zipfile.ZipFile(root) as archive:
            every = sorted(PurePosixPath(entry.filename) for entry in archive.infolist() if not entry.is_dir())
    else:
        found = sorted(file for file in root.rglob("*") if not file.is_dir())
        every = [PurePosixPath(file.relative_to(root).as_posix()) for file in found]
    hidden = [file for file in every if is_hidden(file)]
    others = [file for file in every if not is_hidden(file) and not _is_text(file)]
    inner = [file for file in every if not is_hidden(file) and _is_text(file)]
    notes = tuple(_left_out_notes(hidden, "hidden")) + tuple(_left_out_notes(others, "not .txt"))
    if not inner:
        raise ValueError(
            f"{path}: got {'an archive' if root.is_file() else 'a folder'} without .txt files; expected some, each a "
            f"document{''.join(f'; {note}' for note in notes)}"
        )
    if not root.is_file():
        _refuse_foreign_files(root, inner)
    labels = tuple(file.parts[0] for file in inner) if all(len(file.parts) > 1 for file in inner) else None
    return TextFiles(root, tuple(map(str, inner)), labels, notes)


def _refuse_foreign_files(root: Path, names: Sequence[PurePosixPath]) -> None:
    """Raise ValueError for a link that leads out of the folder, and for anything but an ordinary file.

    root: the folder
    names: the paths of the files inside it
    """
    inside = root.resolve()
    for name in names:
        file = root / name
        if not file.resolve().is_relative_to(inside):
            raise ValueError(
                f"{file}: got a link out of the folder, to {file.resolve()}, which may be anybody's file; expected "
                "files in it: copy the document there, or take the link away"
            )
        require_ordinary(file)


def _is_text(file: PurePosixPath) -> bool:
    """Return True if a file's name ends in .txt, in any case."""
    return file.name.lower().endswith(LINES)


def _left_out_notes(files: Sequence[PurePosixPath], why: str) -> Iterator[str]:
    """Yield one note that counts files that were left out and names the first five; nothing if there are none.

    files: the files
    why: completes "files that are …"
    """
    if files:
        more = f" and {len(files) - SHOWN:,} more" if len(files) > SHOWN else ""
        yield f"left out {len(files):,} files that are {why}: {', '.join(map(str, files[:SHOWN]))}{more}"
