"""Files of documents, read as their endings say: the dispatch behind `Corpus.open` and the command line."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lvsearch.files.packed_files import read_text, unpacked_name
from lvsearch.reading.count_files import CountOptions, FileCounts, read_matrix_market, read_npz, read_svmlight, read_uci
from lvsearch.reading.folders import LINES, holds_text_files, text_files
from lvsearch.reading.readers import documents_in, read_ldac
from lvsearch.reading.single_cells import is_tenx, read_h5ad, read_tenx, tenx_folder
from lvsearch.tables.frames import Documents, frame_documents
from lvsearch.tables.table_files import ARROW, EXCEL, JSON, TABLES, json_strings, read_table, table_in

TEXTS = (LINES, *TABLES, *EXCEL, *ARROW)
SVMLIGHT = (".svmlight", ".libsvm", ".svm")
MATRIX_MARKET = (".mtx", ".mm")
NPZ, H5AD = ".npz", ".h5ad"
COUNTS = (".ldac", *MATRIX_MARKET, *SVMLIGHT, ".uci", NPZ, H5AD)


def ending_of(path: str | os.PathLike[str]) -> str:
    """What a file's name says that it holds, one of `TEXTS` or `COUNTS`, or any other ending.

    It is looked for under .gz and other endings of packed files; of a .zip with one file it is that file's.
    """
    name = unpacked_name(path)
    return ".uci" if name.startswith("docword") else Path(name).suffix


def is_counts(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds counts by its name, or a folder by the names of the files in it."""
    return is_tenx(path) or ending_of(path) in COUNTS


def counts_in(path: str | os.PathLike[str], options: CountOptions) -> FileCounts:
    """The counts of a file, or of a folder of 10x Genomics. Errors as for its reader, and for options that are not of
    such files."""
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


def texts_in(
    path: str | os.PathLike[str], text: Any, id: Any, label: Any, keep: Iterable[Any] | None, encoding: str
) -> Documents:
    """The documents of a file or a folder: `Corpus.open` says which. Errors are said there."""
    columns = (text, id, label, keep)
    if holds_text_files(path):
        refuse_columns(path, "a folder of texts", columns)
        files = text_files(path)
        return Documents(files.texts(slice(None), encoding), files.names, files.labels, notes=files.notes)
    ending = ending_of(path)
    if ending not in TEXTS:
        raise ValueError(unknown_ending(path, ending))
    if ending in (LINES, JSON):
        return texts_of(read_text(path, encoding), path, ending, *columns)
    table = read_table(path, ending, text, id, label, encoding)
    return frame_documents(table.frame, *columns)._replace(notes=table.notes)


def texts_of(
    content: str, name: Any, ending: str, text: Any, id: Any, label: Any, keep: Iterable[Any] | None
) -> Documents:
    """The documents of a text that came without a file, in the form that files of this ending have.

    ending: .txt or one of `TABLES`. Errors as for `texts_in`; `name` is what they call it.
    """
    strings = documents_in(content) if ending == LINES else json_strings(content) if ending == JSON else None
    if strings is not None:
        refuse_columns(name, "a document per line" if ending == LINES else "an array of texts", (text, id, label, keep))
        return Documents(strings)
    table = table_in(content, name, ending, text, id, label)
    return frame_documents(table.frame, text, id, label, keep)._replace(notes=table.notes)


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


def refuse_text_options(path: Any, columns: Iterable[Any], cutting: Iterable[Any]) -> None:
    """ValueError for options of texts where a file holds counts: names of columns (None where not given), and how texts
    are cut (true where it was said)."""
    if any(option is not None for option in columns):
        raise ValueError(f"{path} holds counts; expected no text=, id=, label= or keep=: they are of tables")
    if any(cutting):
        raise ValueError(
            f"{path} holds counts; expected no token_pattern=, ngram_range= or tokenizer=, which cut texts; "
            "corpus.pruned(stop_words=…) leaves words out of counts"
        )
