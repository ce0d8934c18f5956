"""Files of documents, read as their endings say: the dispatch behind `Corpus.open` and the command line."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lvsearch.files.ordinary import require_ordinary
from lvsearch.reading.count_files import FileCounts, read_matrix_market, read_svmlight, read_uci
from lvsearch.reading.readers import documents_in, read_documents, read_ldac
from lvsearch.reading.tables import ARROW, TABLES, Documents, frame_documents, read_table, table_in
from lvsearch.reading.vocabulary import read_text

LINES = ".txt"
TEXTS = (LINES, *TABLES, *ARROW)
SVMLIGHT = (".svmlight", ".libsvm", ".svm")
COUNTS = (".ldac", ".mtx", *SVMLIGHT, ".uci")


def ending_of(path: str | os.PathLike[str]) -> str:
    """What a file's name says that it holds, one of `TEXTS` or `COUNTS`, or any other ending; .gz is looked through."""
    name = Path(path).name.lower().removesuffix(".gz")
    return ".uci" if name.startswith("docword") else Path(name).suffix


def is_counts(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds counts by its name."""
    return ending_of(path) in COUNTS


def counts_in(path: str | os.PathLike[str], n_terms: int | None) -> FileCounts:
    """The counts of a file; n_terms: size of the vocabulary, None where there is none. Errors as for its reader."""
    require_ordinary(path)
    ending = ending_of(path)
    if ending == ".mtx":
        return read_matrix_market(path)
    if ending in SVMLIGHT:
        return read_svmlight(path, n_terms)
    return read_uci(path) if ending == ".uci" else FileCounts(read_ldac(path, n_terms))


def texts_in(
    path: str | os.PathLike[str], text: Any, id: Any, label: Any, keep: Iterable[Any] | None, encoding: str
) -> Documents:
    """The documents of a file or a folder: `Corpus.open` says which. Errors are said there."""
    ending, options = ending_of(path), (text, id, label, keep)
    if Path(path).is_dir():
        refuse_columns(path, "a folder of texts", options)
        return read_folder(path, encoding)
    if ending == LINES:
        refuse_columns(path, "a document per line", options)
        return Documents(read_documents(path, encoding))
    if ending not in TEXTS:
        raise ValueError(unknown_ending(path, ending))
    require_ordinary(path)
    return frame_documents(read_table(path, ending, text, id, encoding), text, id, label, keep)


def texts_of(
    content: str, name: str, ending: str, text: Any, id: Any, label: Any, keep: Iterable[Any] | None
) -> Documents:
    """The documents of a text that came without a file, in the form that files of this ending have.

    ending: .txt or one of `TABLES`. Errors as for `texts_in`; `name` is what they call it.
    """
    if ending == LINES:
        refuse_columns(name, "a document per line", (text, id, label, keep))
        return Documents(documents_in(content))
    return frame_documents(table_in(content, name, ending, text, id), text, id, label, keep)


def read_folder(path: str | os.PathLike[str], encoding: str = "utf-8") -> Documents:
    """The .txt files below a folder in the order of their paths, each a document.

    Named by their paths within the folder; where every file is in some folder of it, that folder is its class.

    Raises:
        ValueError: no such file; bytes of another encoding.
    """
    files, names, labels = folder_documents(path)
    return Documents([read_text(file, encoding) for file in files], names, labels)


def folder_documents(
    path: str | os.PathLike[str],
) -> tuple[list[Path], tuple[str, ...], tuple[str, ...] | None]:
    """The files of `read_folder`, their names and their classes. Links to folders are not followed.

    ValueError where there are none, for a link out of the folder, and for a pipe or a device among them.
    """
    folder = Path(path)
    files = sorted(file for file in folder.rglob("*.txt") if not file.is_dir())
    inside = folder.resolve()
    for file in files:
        if not file.resolve().is_relative_to(inside):
            raise ValueError(
                f"{file}: got a link out of the folder, to {file.resolve()}, which may be anybody's file; expected "
                "files in it: copy the document there, or take the link away"
            )
        require_ordinary(file)
    if not files:
        raise ValueError(f"{path}: got a folder without .txt files; expected some, each a document")
    inner = [file.relative_to(folder) for file in files]
    labels = tuple(file.parts[0] for file in inner) if all(len(file.parts) > 1 for file in inner) else None
    return files, tuple(file.as_posix() for file in inner), labels


def unknown_ending(path: Any, ending: str) -> str:
    """What says that no reader knows such files."""
    return (
        f"{path}: got the ending {ending!r}; expected one of {', '.join((*TEXTS, *COUNTS))}, or a folder of .txt "
        "files: rename the file, or read it yourself and use lv.Corpus.from_texts or from_frame"
    )


def refuse_columns(name: Any, what: str, options: Iterable[Any]) -> None:
    """ValueError for names of columns where there are none."""
    if any(option is not None for option in options):
        raise ValueError(
            f"{name} holds {what}; expected no names of columns (text=, id=, label=, keep=; --text-column and others "
            "on the command line)"
        )
