"""Read files and folders of documents, by their endings, for `Corpus.open` and the command line.

A folder or archive of texts has a document per .txt file.
"""

import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from lvsearch.files.packed_files import BAD_PACKING, ZIP, decode_text, is_hidden, read_text, unpacked_name, zip_members
from lvsearch.files.plain_text import one_line
from lvsearch.files.untrusted_files import require_ordinary
from lvsearch.reading.counts import (
    CountOptions,
    FileCounts,
    read_ldac,
    read_matrix_market,
    read_npz,
    read_svmlight,
    read_uci,
)
from lvsearch.reading.other_libraries import is_tenx, read_h5ad, read_tenx, tenx_folder
from lvsearch.tables.frames import Documents, frame_documents
from lvsearch.tables.table_files import ARROW, BINARY, JSON, TABLES, json_strings, read_table, table_in

LINES = ".txt"
"""The ending of files of text: one document in a folder, or by itself a document per line."""
SHOWN = 5
"""The number of files that a note names."""


class TextFiles(NamedTuple):
    """The text files below a folder, or in a .zip; each is a document.

    root: the folder or archive
    names: the paths of the files inside it
    labels: the class of each file, which is the name of its top folder; None unless every file is in some folder.
        Folders around all files of an archive do not count
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

        Raises ValueError for a file that is no text in this encoding, and for one in a .zip that is damaged or needs a
        password.
        """
        if self.root.suffix.lower() != ZIP:
            return [read_text(self.root / name, encoding) for name in self.names[places]]
        with zipfile.ZipFile(self.root) as archive:
            return [
                decode_text(_packed_content(archive, name), f"{self.root}/{name}", encoding)
                for name in self.names[places]
            ]


def _packed_content(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a file in an archive. name: its path in the archive.

    Raises ValueError for a file that is damaged, needs a password, or is packed in a way that Python does not know.
    """
    try:
        return archive.read(name)
    except BAD_PACKING as error:
        raise ValueError(
            f"{archive.filename}: {one_line(error)}; expected an archive whose files can be read: unpack it "
            "(unzip, 7z) and open the folder"
        ) from error


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
    folders = [file.parts[:-1] for file in inner]
    # A folder that was packed is a folder around all files of the archive; unpacked, it is the root.
    shared = takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False))
    around = len(list(shared)) if root.is_file() else 0
    labels = tuple(parts[around] for parts in folders) if all(len(parts) > around for parts in folders) else None
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


TEXTS = (LINES, *TABLES, *BINARY, *ARROW)
"""The endings of files of texts."""
SVMLIGHT = (".svmlight", ".libsvm", ".svm")
MATRIX_MARKET = (".mtx", ".mm")
NPZ, H5AD = ".npz", ".h5ad"
COUNTS = (".ldac", *MATRIX_MARKET, *SVMLIGHT, ".uci", NPZ, H5AD)
"""The endings of files of counts. UCI's files begin with "docword"; `ending_of` gives them ".uci"."""


def ending_of(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file's name, which says what the file holds, such as ".csv" for "docs.csv.gz".

    Endings of packed files such as .gz are removed first. For a .zip with one file it is the ending of that file.
    """
    name = unpacked_name(path)
    return ".uci" if name.startswith("docword") else Path(name).suffix


def is_counts(path: str | os.PathLike[str]) -> bool:
    """Return True if a path names a file of counts, by its ending, or a folder of 10x Genomics, by its files."""
    return is_tenx(path) or ending_of(path) in COUNTS


def counts_in(path: str | os.PathLike[str], options: CountOptions) -> FileCounts:
    """Return the counts of a file, or of a folder of 10x Genomics, by the reader for its ending.

    path: the file or folder
    options: how a person says that the file is to be read

    Raises ValueError for a file of another form than its ending says, and for options that such a file does not have.
    """
    ending = ending_of(path)
    folder = tenx_folder(path)
    options.refuse_others(path, ending, (*MATRIX_MARKET, NPZ), SVMLIGHT, H5AD, folder is not None)
    if folder is not None:
        return read_tenx(folder)
    if ending == H5AD:
        return read_h5ad(path, options.layer)
    words = options.words()
    if ending in MATRIX_MARKET:
        return read_matrix_market(path, options.documents, words)
    if ending == NPZ:
        return read_npz(path, options.documents, words)
    if ending in SVMLIGHT:
        return read_svmlight(path, words, options.first_id)
    if ending == ".uci":
        return read_uci(path, words)
    return FileCounts(read_ldac(path, None if words is None else len(words)), words)


def documents_in_file(
    path: str | os.PathLike[str], text: Any, id: Any, label: Any, keep: Iterable[Any] | None, encoding: str
) -> Documents:
    """Return the documents of a file or a folder of texts, with names, classes and metadata.

    path: the file or folder
    text, id, label: columns of a table with the texts, their names and their classes; None if there is none
    keep: the columns of a table that become metadata; None for all others
    encoding: the encoding of text files

    Raises ValueError for an unknown ending, a file of another form, and columns that do not exist.
    """
    columns = (text, id, label, keep)
    if holds_text_files(path):
        refuse_columns(path, "a folder of texts", columns)
        files = text_files(path)
        return Documents(files.texts(slice(None), encoding), files.names, files.labels, notes=files.notes)
    ending = ending_of(path)
    if ending not in TEXTS:
        raise ValueError(unknown_ending(path, ending))
    if ending in (LINES, JSON):
        return documents_in_string(read_text(path, encoding), path, ending, *columns)
    table = read_table(path, ending, text, id, label, encoding)
    return frame_documents(table.frame, *columns)._replace(notes=table.notes)


def documents_in_string(
    content: str, name: Any, ending: str, text: Any, id: Any, label: Any, keep: Iterable[Any] | None
) -> Documents:
    """Return the documents in a string, such as the content of standard input.

    content: the string, in the form of files with this ending
    name: what errors call the string
    ending: ".txt" for a document per line, or one of `TABLES`
    text, id, label: columns of a table with the texts, their names and their classes; None if there is none
    keep: the columns of a table that become metadata; None for all others

    Raises ValueError for content of another form, and for columns that do not exist.
    """
    strings = documents_in(content) if ending == LINES else json_strings(content) if ending == JSON else None
    if strings is not None:
        refuse_columns(name, "a document per line" if ending == LINES else "an array of texts", (text, id, label, keep))
        return Documents(strings)
    table = table_in(content, name, ending, text, id, label)
    return frame_documents(table.frame, text, id, label, keep)._replace(notes=table.notes)


def documents_in(text: str) -> list[str]:
    """Return the lines of a string, a document each; empty lines are empty documents.

    Lines end at line feeds only. Form feeds, U+0085 and U+2028, where `str.splitlines` divides too, stay inside
    documents.
    """
    return text.removesuffix("\n").split("\n") if text else []


def unknown_ending(path: Any, ending: str) -> str:
    """Return the message for a file whose ending no reader knows."""
    return (
        f"{path}: got the ending {ending!r}; expected one of {', '.join((*TEXTS, *COUNTS))}, or a folder of .txt "
        "files: rename the file, or read it yourself and use lv.Corpus.from_texts or from_frame"
    )


def refuse_columns(name: Any, what: str, options: Iterable[Any]) -> None:
    """Raise ValueError if names of columns were given for a file without columns.

    name: the name of the file, for the message
    what: what the file holds, for the message
    options: the names of columns, None for those not given
    """
    if any(option is not None for option in options):
        raise ValueError(
            f"{name} holds {what}; expected no names of columns (text=, id=, label=, keep=; --text-column and others "
            "on the command line)"
        )


def refuse_text_options(path: Any, columns: Iterable[Any], cutting: Iterable[Any]) -> None:
    """Raise ValueError if options for texts were given for a file of counts.

    path: the file, for the message
    columns: the names of columns, None for those not given
    cutting: for each option on how texts are cut, True if it was given
    """
    if any(option is not None for option in columns):
        raise ValueError(f"{path} holds counts; expected no text=, id=, label= or keep=: they are of tables")
    if any(cutting):
        raise ValueError(
            f"{path} holds counts; expected no token_pattern=, ngram_range= or tokenizer=, which cut texts; "
            "corpus.pruned(stop_words=…) leaves words out of counts"
        )
