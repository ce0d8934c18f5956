"""Read counts from files of other programs: Matrix Market, SciPy, UCI's docword, SVMlight. (`readers` reads LDA-C.)"""

import io
import os
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, load_npz

from lvsearch.files.ordinary import require_ordinary
from lvsearch.files.packed_files import open_unpacked, read_text
from lvsearch.reading.vocabulary import ordered_terms, read_vocabulary

ROWS, COLUMNS = "rows", "columns"
"""Whether documents are the rows or the columns of a matrix."""


class FileCounts(NamedTuple):
    """The content of a file of counts, not yet checked.

    counts: (documents, terms)
    vocabulary: the terms, or None if the file does not name them
    labels: a class for each document, or None
    names: a name for each document, or None
    metadata: a row for each document, or None
    notes: what was assumed when the file was read
    """

    counts: Any
    vocabulary: Sequence[str] | None = None
    labels: tuple[str, ...] | None = None
    names: Sequence[str] | None = None
    metadata: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()


class CountOptions(NamedTuple):
    """Options of a person that say how a file of counts is to be read.

    vocabulary: a file with a word per line, the words, or None
    encoding: the encoding of the vocabulary's file
    documents: which axis of a matrix the documents are, `ROWS` or `COLUMNS`
    first_id: the id of the first word in SVMlight files, 0 or 1; None to infer it
    layer: the layer of an AnnData
    """

    vocabulary: str | os.PathLike[str] | Collection[Any] | None = None
    encoding: str = "utf-8"
    documents: str = ROWS
    first_id: int | None = None
    layer: str | None = None

    def words(self) -> Sequence[str] | None:
        """Return the words of the vocabulary in order, or None without one.

        Raises ValueError for a file that is no list of words, and for a set or dictionary, which has no order.
        """
        if self.vocabulary is None:
            return None
        if isinstance(self.vocabulary, str | os.PathLike):
            return read_vocabulary(self.vocabulary, self.encoding)
        return ordered_terms(self.vocabulary)

    def refuse_others(
        self, path: Any, ending: str, matrices: Sequence[str], svmlight: Sequence[str], h5ad: str, is_tenx: bool
    ) -> None:
        """Raise ValueError for options that were given but that this form of file does not have.

        path, ending: the file and its ending
        matrices, svmlight, h5ad: the endings of matrices, of SVMlight files and of AnnData's files
        is_tenx: True for a folder of 10x Genomics
        """
        if self.documents not in (ROWS, COLUMNS):
            raise ValueError(f"got documents={self.documents!r}; expected {ROWS!r} or {COLUMNS!r} of the matrix")
        if self.first_id not in (None, 0, 1):
            raise ValueError(f"got first_id={self.first_id!r}; expected 0 or 1, the id of the first word")
        for given, is_one, option in (
            (self.documents != ROWS, ending in matrices and not is_tenx, "documents="),
            (self.first_id is not None, ending in svmlight, "first_id="),
            (self.layer is not None, ending == h5ad, "layer="),
            (self.vocabulary is not None, ending != h5ad and not is_tenx, "vocabulary="),
        ):
            if given and not is_one:
                raise ValueError(f"{path}: got {option}, which such a file knows itself or does not have; leave it out")


def read_matrix_market(
    path: str | os.PathLike[str], documents: str = ROWS, words: Sequence[str] | None = None
) -> FileCounts:
    """Read counts from a Matrix Market file, with coordinates or a dense array.

    path: the file
    documents: which axis of the matrix the documents are, `ROWS` or `COLUMNS`
    words: the vocabulary, or None

    Raises:
        ValueError: a file of another form; a vocabulary with as many words as there are documents.
    """
    return orient_documents(_matrix(path), documents, words, path)


def _matrix(path: str | os.PathLike[str]) -> csr_array:
    """Return the matrix of a Matrix Market file as it is there. Raises ValueError for a file of another form."""
    from scipy.io import mmread  # slow to import, and few need it

    with open_unpacked(path) as file:
        content = file.read()
    try:
        return csr_array(mmread(io.BytesIO(content), spmatrix=False))
    except (ValueError, OverflowError, EOFError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}; expected a Matrix Market file") from error


def read_npz(path: str | os.PathLike[str], documents: str = ROWS, words: Sequence[str] | None = None) -> FileCounts:
    """Read counts from a sparse matrix that `scipy.sparse.save_npz` wrote.

    path: the file
    documents: which axis of the matrix the documents are, `ROWS` or `COLUMNS`
    words: the vocabulary, or None

    Raises:
        ValueError: a file of another form, such as that of `numpy.savez`.
    """
    require_ordinary(path)
    try:
        matrix = load_npz(Path(path))
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(
            f"{path}: {' '.join(str(error).split())}; expected a sparse matrix written by scipy.sparse.save_npz"
        ) from error
    return orient_documents(csr_array(matrix), documents, words, path)


def orient_documents(matrix: csr_array, documents: str, words: Sequence[str] | None, path: Any) -> FileCounts:
    """Return a matrix as counts with a row per document; it is transposed if documents are its columns.

    matrix: documents and terms in either order
    documents: which axis of the matrix the documents are, `ROWS` or `COLUMNS`
    words: the vocabulary, or None
    path: the file, for messages

    Raises ValueError if the number of words shows that documents are the other axis.
    """
    counts = matrix if documents == ROWS else csr_array(matrix.T)
    if words is not None and len(words) == counts.shape[0] != counts.shape[1]:
        other = COLUMNS if documents == ROWS else ROWS
        raise ValueError(
            f"{path}: got {len(words):,} terms for counts with {counts.shape[1]:,} columns and {counts.shape[0]:,} "
            f"rows: it seems that documents are the other axis; expected documents={other!r} then (--documents {other})"
        )
    return FileCounts(counts, words)


def read_uci(path: str | os.PathLike[str], words: Sequence[str] | None = None) -> FileCounts:
    """Read counts from a file of UCI's bags of words (docword.*.txt).

    Its first three lines are the numbers of documents, words and entries. Then each line is an entry `document word
    count`, with ids from 1.

    path: the file
    words: the vocabulary, or None

    Raises:
        ValueError: a line of another form or with an id out of range, with its number; another number
            of lines than stated.
    """
    # 1. the three numbers at the head
    content = read_text(path)
    head = content.split("\n", 3)
    if len(head) < 3 or not all(line.strip().isascii() and line.strip().isdigit() for line in head[:3]):
        raise ValueError(
            f"{path}: got {' / '.join(head[:3])[:60]!r} first; expected three lines with a whole number each, "
            "documents, words and entries, as UCI's docword files have"
        )
    n_documents, n_words, n_entries = (int(line) for line in head[:3])
    # 2. the entries, all whole numbers in range
    body = head[3] if len(head) > 3 else ""
    try:
        table = pd.read_csv(io.StringIO(body), sep=r"\s+", header=None, dtype=np.int64, skip_blank_lines=False)
        entries = table.to_numpy()
    except pd.errors.EmptyDataError:
        entries = np.zeros((0, 3), np.int64)
    except (ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: {reason}; expected `document word count` on every line after the third") from error
    if entries.shape[1] != 3 or len(entries) != n_entries:
        raise ValueError(
            f"{path}: got {len(entries):,} lines of {entries.shape[1]} numbers after the third, which says "
            f"{n_entries:,}; expected as many, `document word count` each: is the file cut off?"
        )
    most = np.array([n_documents, n_words, np.iinfo(np.int64).max])
    bad = ((entries < 1) | (entries > most)).any(axis=1)
    if bad.any():
        line = int(bad.argmax())
        raise ValueError(
            f"{path}, line {line + 4}: got {' '.join(map(str, entries[line]))}; expected a document from 1 to "
            f"{n_documents:,}, a word from 1 to {n_words:,} and a count of 1 or more"
        )
    where = (entries[:, 0] - 1, entries[:, 1] - 1)
    return FileCounts(csr_array((entries[:, 2], where), shape=(n_documents, n_words)), words)


def read_svmlight(
    path: str | os.PathLike[str], words: Sequence[str] | None = None, first_id: int | None = None
) -> FileCounts:
    """Read counts and labels from a file of SVMlight (LIBSVM) with lines `label id:count …`. Labels become text.

    path: the file
    words: the vocabulary, or None
    first_id: the id of the first word, 0 or 1; None to infer it from the ids

    Raises:
        ValueError: a file of another form; ids that may begin with 0 or with 1.
    """
    from sklearn.datasets import load_svmlight_file

    with open_unpacked(path) as file:
        content = file.read()
    try:
        found, labels = load_svmlight_file(io.BytesIO(content), zero_based=True)  # pyright: ignore[reportArgumentType]
    except (ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: {reason}; expected lines `label id:count …`, as SVMlight has them") from error
    ids = csr_array(found)
    lowest, highest = int(ids.indices.min(initial=1 << 30)), int(ids.indices.max(initial=0))
    first, notes = svmlight_first_id(lowest, highest, None if words is None else len(words), first_id, path)
    width = max(highest + 1 - first, 1) if words is None else len(words)
    if highest - first >= width:
        raise ValueError(f"{path}: got id {highest} with a vocabulary of {width:,} terms")
    counts = csr_array((ids.data, ids.indices - first, ids.indptr), shape=(ids.shape[0], width))
    return FileCounts(counts, words, tuple(f"{label:g}" for label in np.asarray(labels)), notes=notes)


def svmlight_first_id(
    lowest: int, highest: int, n_terms: int | None, first_id: int | None, path: Any
) -> tuple[int, tuple[str, ...]]:
    """Return the id of the first word (0 or 1), and a note if it was assumed.

    An id of 0 means that ids begin at 0. An id as large as the vocabulary means that they begin at 1. Without a
    vocabulary they begin at 1, as the format says.

    lowest, highest: the smallest and the largest id in the file
    n_terms: the size of the vocabulary, or None
    first_id: what the person said, or None
    path: the file, for messages

    Raises:
        ValueError: a first id above the lowest; a vocabulary with which both are possible.
    """
    if first_id is not None:
        if lowest < first_id:
            raise ValueError(f"{path}: got the id {lowest} and first_id={first_id}; expected ids from {first_id} on")
        return first_id, ()
    if lowest == 0:
        return 0, ()
    if lowest > highest:  # no entries
        return 1, ()
    if n_terms is None:
        return 1, ("ids are counted from 1 (none is 0)",)
    if highest >= n_terms:
        return 1, ()
    raise ValueError(
        f"{path}: got ids from {lowest} to {highest} with a vocabulary of {n_terms:,} terms, which may begin with 0 or "
        "with 1; expected to know which: say first_id=0 or first_id=1 (--first-id on the command line)"
    )
