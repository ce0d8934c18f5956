"""Turn sparse, dense and LDA-C input into checked counts, and text files into lines."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from lvsearch.files.packed_files import read_text
from lvsearch.inference.data.mapped import MappedCounts
from lvsearch.reading.vocabulary import read_lines

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


def read_documents(path: str | os.PathLike[str], encoding: str = "utf-8") -> list[str]:
    """Return the lines of a text file, a document each; empty lines are empty documents.

    Raises ValueError for a file that is no text in this encoding.
    """
    return documents_in(read_text(path, encoding))


def documents_in(text: str) -> list[str]:
    """Return the lines of a string, a document each; empty lines are empty documents.

    Lines end at line feeds only. Form feeds, U+0085 and U+2028, where `str.splitlines` divides too, stay inside
    documents.
    """
    return text.removesuffix("\n").split("\n") if text else []


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
