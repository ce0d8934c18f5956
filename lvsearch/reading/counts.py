"""Check counts of any form, and read counts from files of other programs.

Sparse and dense matrices become checked counts in one canonical form (`canonical_counts`). Files are those of LDA-C,
Matrix Market, SciPy, UCI's docword and SVMlight.
"""

import io
import os
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, issparse, load_npz

from lvsearch.files.packed_files import open_text, open_unpacked, read_text
from lvsearch.files.plain_text import one_line
from lvsearch.files.untrusted_files import require_ordinary
from lvsearch.inference.data.mapped import MappedCounts
from lvsearch.reading.vocabulary import ordered_terms, read_lines, read_vocabulary

_LARGEST = int(np.iinfo(np.int32).max)
"""The largest count that is accepted, 2³¹ − 1."""
_LDAC_LINE = re.compile(r"\d{1,10}(?:[ \t]+\d{1,10}:\d{1,10})*", re.ASCII)
"""Matches a line of an LDA-C file, `N id:count id:count …`."""


def canonical_counts(matrix: Any, terms: Any = None, first: int = 0) -> csr_array:
    """Return checked counts in canonical form: a read-only int32 `csr_array` (documents, terms) of their own.

    Column ids are sorted within each row, and zeros are not stored. Counts in files stay there. They were checked when
    they were written, and are checked again when they are read.

    Args:
        matrix: any scipy sparse matrix or array (repeated entries are added, as scipy does), or anything that
            `numpy.asarray` makes two-dimensional (NumPy, JAX, nested lists).
        terms: the vocabulary, not yet checked, to name terms in messages.
        first: the number of the first document in messages, for a block of documents.

    Raises:
        ValueError: not two-dimensional; not numbers; NaN, infinite, negative, fractional counts; counts above 2³¹ − 1;
            no documents; ids outside the matrix (damaged sparse input).
    """
    if isinstance(matrix, MappedCounts) and matrix.source is not None:
        return matrix
    refuse_masked(matrix, "a missing value is not a count: decide whether it means 0 (matrix.filled(0))")
    if not issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"got {matrix.ndim} axes, shape {matrix.shape}; expected 2: a row per document")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"got counts of type {matrix.dtype}; expected whole numbers, such as int32")
    if matrix.shape[0] == 0:
        raise ValueError("got no documents (0 rows); expected at least one")
    # Wider than the result, so that entries given twice cannot wrap around when they are added.
    matrix = matrix.astype(np.int64 if matrix.dtype.kind in "bi" else np.float64)
    if issparse(matrix) and matrix.format in ("csr", "csc", "bsr"):
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"got a damaged {matrix.format} matrix: {error}; expected ids within its shape") from error
    counts = csr_array(matrix)
    counts.sum_duplicates()
    _check_values(counts, terms, first)
    counts = csr_array((counts.data.astype(np.int32), counts.indices, counts.indptr), shape=counts.shape)
    counts.eliminate_zeros()
    for array in (counts.data, counts.indices, counts.indptr):
        array.flags.writeable = False
    return counts


def refuse_masked(array: Any, expected: str) -> None:
    """Raise ValueError for a masked array with masked cells, whose hidden values NumPy would silently use.

    array: any object
    expected: what was expected, for the message
    """
    masked = int(np.ma.getmaskarray(array).sum()) if isinstance(array, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(f"got a masked array with {masked:,} masked cells; {expected}")


def _check_values(counts: csr_array, terms: Any, first: int) -> None:
    """Raise ValueError for the first count that is not a whole number from 0 to 2³¹ − 1.

    The message names its document and its term.

    counts: (documents, terms)
    terms: a name for each column, or None
    first: the number of the first document, for the message
    """
    values = counts.data
    checks = (
        (~np.isfinite(values), "a finite count; a missing value is not a count: decide whether it means 0"),
        (values < 0, "counts of 0 or more; differences and embeddings are not counts"),
        (
            values != np.floor(values),
            "whole numbers; TF-IDF weights and proportions are not counts: pass what they were made from, "
            "for instance scikit-learn's CountVectorizer instead of TfidfVectorizer",
        ),
        (values > _LARGEST, f"counts up to {_LARGEST:,} (int32); are the units too small?"),
    )
    for bad, expected in checks:
        if bad.any():
            entry = int(np.argmax(bad))
            document = int(np.searchsorted(counts.indptr, entry, side="right")) - 1 + first
            term = int(counts.indices[entry])
            named = isinstance(terms, Sequence | np.ndarray) and term < len(terms)
            name = f" ({str(terms[term])!r})" if named else ""
            raise ValueError(
                f"got {values[entry]} in document {document}, term {term}{name}, and {int(bad.sum()):,} such value(s) "
                f"in all; expected {expected}"
            )


def kept_in_place(n_empty: int, n_documents: int, n_unused: int, n_terms: int) -> tuple[str, ...]:
    """Return notes on empty documents and on terms that occur nowhere; none if there are none.

    Both stay in place, so that rows and columns keep their numbers.

    n_empty, n_documents: the numbers of empty documents and of all documents
    n_unused, n_terms: the numbers of terms that occur nowhere and of all terms
    """
    notes: tuple[str, ...] = ()
    if n_empty:
        notes += (f"{n_empty:,} of {n_documents:,} documents are empty; kept in place",)
    if n_unused:
        notes += (f"{n_unused:,} of {n_terms:,} terms occur nowhere; kept in place",)
    return notes


def read_ldac(path: str | os.PathLike[str], n_terms: int | None) -> csr_array:
    """Read the counts of an LDA-C file: a line `N id:count …` per document, with N distinct ids from 0.

    Args:
        path: the file.
        n_terms: the size of the vocabulary; None for one more than the largest id.

    Raises:
        ValueError: a line of another form; an N different from the number of ids; an id twice; an id outside the
            vocabulary, each with the line's number. Also a file without documents.
    """
    rows = [ldac_row(line, path, number, n_terms) for number, line in enumerate(read_lines(path), start=1)]
    if not rows:
        raise ValueError(f"{path}: got no documents; expected a line `N id:count …` per document")

    return ldac_counts(rows, n_terms)


def ldac_counts(rows: Sequence[Sequence[int]], n_terms: int | None) -> csr_array:
    """Return the counts of documents as a sparse matrix (documents, terms).

    rows: a list id, count, id, count, … for each document
    n_terms: the size of the vocabulary; None for one more than the largest id
    """
    pairs = np.array([value for row in rows for value in row], dtype=np.int64).reshape(-1, 2)
    starts = np.concatenate([[0], np.cumsum([len(row) // 2 for row in rows])])
    width = n_terms if n_terms is not None else int(pairs[:, 0].max(initial=-1)) + 1
    return csr_array((pairs[:, 1], pairs[:, 0], starts), shape=(len(rows), width))


def ldac_row(line: str, path: str | os.PathLike[str], number: int, n_terms: int | None) -> list[int]:
    """Return a line of an LDA-C file, `N id:count id:count …`, as a list id, count, id, count, ….

    line: the line
    path, number: the file and the number of the line, for messages
    n_terms: the size of the vocabulary; None if it is not known

    Raises ValueError for a line of another form, an N different from the number of ids, an id twice, and an id outside
    the vocabulary.
    """
    line = line.strip(" \t")
    if not _LDAC_LINE.fullmatch(line):
        raise ValueError(f"{path}, line {number}: {_what_is_wrong(line)}")
    stated, *row = map(int, line.replace(":", " ").split())
    ids = row[::2]
    if stated != len(ids):
        raise ValueError(
            f"{path}, line {number}: got N = {stated} but {len(ids)} id:count pairs; expected as many as N says; "
            "is the line cut off, or N the number of tokens? It is the number of distinct terms"
        )
    if len(set(ids)) < len(ids):
        twice = next(term for term, times in Counter(ids).items() if times > 1)
        raise ValueError(f"{path}, line {number}: got id {twice} twice; expected one pair per id: add the counts")
    if n_terms is not None and ids and max(ids) >= n_terms:
        raise ValueError(
            f"{path}, line {number}: got id {max(ids)} with a vocabulary of {n_terms:,} terms; expected ids from 0 "
            f"to {n_terms - 1}; are they counted from 1, or is this another corpus's vocabulary?"
        )
    return row


def _what_is_wrong(line: str) -> str:
    """Return the message that says why a line is not in LDA-C form."""
    if not line:
        return "got an empty line; expected `N id:count …`; an empty document is written `0`"
    first, *pairs = re.split(r"[ \t]+", line)  # other white space, such as non-breaking spaces, is part of what is bad
    if not re.fullmatch(r"\d{1,10}", first, re.ASCII):
        return f"got {first!r} first; expected N, the number of distinct terms in the document"
    bad = next(pair for pair in pairs if not re.fullmatch(r"\d{1,10}:\d{1,10}", pair, re.ASCII))
    return f"got {bad!r}; expected id:count, two whole numbers of 0 or more (ids from 0, counts up to {_LARGEST:,})"


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

    Of a symmetric matrix both halves are read, of which the file has one.

    path: the file
    documents: which axis of the matrix the documents are, `ROWS` or `COLUMNS`
    words: the vocabulary, or None

    Raises:
        ValueError: a file of another form; a vocabulary with as many words as there are documents.
    """
    from scipy.io import mmread  # slow to import, and few need it

    matrix_market_head(path)
    with open_unpacked(path) as file:
        content = file.read()
    try:
        matrix = csr_array(mmread(io.BytesIO(content), spmatrix=False))
    except (ValueError, OverflowError, EOFError) as error:
        raise ValueError(f"{path}: {one_line(error)}; expected a Matrix Market file") from error
    return orient_documents(matrix, documents, words, path)


class MatrixMarketHead(NamedTuple):
    """The first lines of a Matrix Market file, which say what its other lines hold.

    n_rows, n_columns: the sizes of the matrix
    n_stored: the number of entries in the file
    n_lines: the number of lines before the first entry
    dense: True if there is a number for every cell, and no ids
    ones: True if entries have no number; each counts 1
    symmetric: True if an entry (i, j) also stands for (j, i)
    """

    n_rows: int
    n_columns: int
    n_stored: int
    n_lines: int
    dense: bool
    ones: bool
    symmetric: bool


def matrix_market_head(path: str | os.PathLike[str]) -> MatrixMarketHead:
    """Read the head of a Matrix Market file.

    Raises ValueError for a file of another form, for a matrix that cannot hold counts, such as a skew-symmetric one or
    one of complex numbers, and for a symmetric one that is not square.
    """
    with open_text(path, "latin-1") as file:  # comments may be in any encoding, all else is ASCII
        banner, n_lines, line = next(file, "").split(), 2, next(file, "")
        while line.startswith("%") or (line and not line.strip()):
            n_lines, line = n_lines + 1, next(file, "")
    form, field, symmetry = ([word.lower() for word in banner[2:5]] + [""] * 3)[:3]
    sizes, dense = line.split(), form == "array"
    is_banner = [word.lower() for word in banner[:2]] == ["%%matrixmarket", "matrix"]
    if not is_banner or form not in ("array", "coordinate") or len(sizes) != (2 if dense else 3):
        raise ValueError(f"{path}: got {' '.join(banner)[:60]!r} first; expected a Matrix Market file")
    fields = ("integer", "real", "double", "unsigned-integer", *(() if dense else ("pattern",)))
    if symmetry not in ("general", "symmetric") or field not in fields:
        raise ValueError(
            f"{path}: got a {symmetry} matrix of {field} numbers; expected a general or symmetric one of counts, a row "
            "per document"
        )
    try:
        n_rows, n_columns, *stored = (int(size) for size in sizes)
    except ValueError as error:
        raise ValueError(f"{path}, line {n_lines}: {error}; expected the sizes of a matrix") from error
    symmetric = symmetry == "symmetric"
    if symmetric and n_rows != n_columns:
        raise ValueError(f"{path}: got a symmetric matrix of {n_rows:,} × {n_columns:,}; expected a square one")
    n_cells = n_rows * (n_rows + 1) // 2 if symmetric else n_rows * n_columns
    n_stored = n_cells if dense else stored[0]
    return MatrixMarketHead(n_rows, n_columns, n_stored, n_lines, dense, field == "pattern", symmetric)


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
            f"{path}: {one_line(error)}; expected a sparse matrix written by scipy.sparse.save_npz"
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


def uci_head(lines: Sequence[str], path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Return the numbers of documents, of words and of entries, which the first three lines of a UCI file say.

    Raises ValueError for other lines, and for fewer than three.
    """
    head = [line.strip() for line in lines]
    if len(head) < 3 or not all(line.isascii() and line.isdigit() for line in head):
        raise ValueError(
            f"{path}: got {' / '.join(head)[:60]!r} first; expected three lines with a whole number each, documents, "
            "words and entries, as UCI's docword files have"
        )
    return int(head[0]), int(head[1]), int(head[2])


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
    n_documents, n_words, n_entries = uci_head(head[:3], path)
    # 2. the entries, all whole numbers in range
    body = head[3] if len(head) > 3 else ""
    try:
        table = pd.read_csv(io.StringIO(body), sep=r"\s+", header=None, dtype=np.int64, skip_blank_lines=False)
        entries = table.to_numpy()
    except pd.errors.EmptyDataError:
        entries = np.zeros((0, 3), np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{path}: {one_line(error)}; expected `document word count` on every line after the third"
        ) from error
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
    with open_unpacked(path) as file:
        ids, labels = parse_svmlight(file.read(), path)
    lowest, highest = int(ids.indices.min(initial=1 << 30)), int(ids.indices.max(initial=0))
    first, notes = svmlight_first_id(lowest, highest, None if words is None else len(words), first_id, path)
    width = max(highest + 1 - first, 1) if words is None else len(words)
    if highest - first >= width:
        raise ValueError(f"{path}: got id {highest} with a vocabulary of {width:,} terms")
    counts = csr_array((ids.data, ids.indices - first, ids.indptr), shape=(ids.shape[0], width))
    return FileCounts(counts, words, svmlight_labels(labels), notes=notes)


def parse_svmlight(content: bytes, path: str | os.PathLike[str]) -> tuple[csr_array, np.ndarray]:
    """Return (counts, labels) of lines `label id:count …` of SVMlight.

    content: the lines
    path: the file that they are from, for messages

    Columns of the counts (documents, ids) are the ids as the file has them; labels are numbers, (documents,).

    Raises ValueError for lines of another form, and for labels that are no numbers (NaN).
    """
    from sklearn.datasets import load_svmlight_file  # slow to import, and few need it

    try:
        counts, labels = load_svmlight_file(io.BytesIO(content), zero_based=True)  # pyright: ignore[reportArgumentType]
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{path}: {one_line(error)}; expected lines `label id:count …`, as SVMlight has them"
        ) from error
    unknown = np.isnan(labels)
    if unknown.any():
        raise ValueError(
            f"{path}: got {int(unknown.sum()):,} documents with the label NaN; expected a number for each: leave such "
            "documents out, or give them a number of their own"
        )
    return csr_array(counts), np.asarray(labels, np.float64)


def svmlight_labels(labels: np.ndarray) -> tuple[str, ...]:
    """Return the labels of SVMlight files as text that differs wherever they do: "1000001", "0.5".

    labels: the labels as numbers, (documents,)
    """
    return tuple(str(int(label)) if label.is_integer() else repr(label) for label in labels.tolist())


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
