"""Counts in the files of other programs: Matrix Market, UCI's docword, SVMlight. (LDA-C is in `readers`.)"""

import io
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from lvsearch.reading.vocabulary import read_text


class FileCounts(NamedTuple):
    """counts: (documents, terms), as yet unchecked. labels: a class for each document, or None."""

    counts: csr_array
    labels: tuple[str, ...] | None = None


def read_matrix_market(path: str | os.PathLike[str]) -> FileCounts:
    """A Matrix Market file, coordinates or a dense array, a row per document.

    Raises:
        ValueError: a file of another form.
    """
    from scipy.io import mmread  # slow to import, and few need it

    try:
        matrix = mmread(str(Path(path)), spmatrix=False)
    except (ValueError, OverflowError, EOFError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}; expected a Matrix Market file") from error
    return FileCounts(csr_array(matrix))


def read_uci(path: str | os.PathLike[str]) -> FileCounts:
    """UCI's bags of words (docword.*.txt): lines D, W and N, then N lines `document word count`, ids from 1.

    Raises:
        ValueError: with its number, a line of another form or with an id out of range; another number of lines than N.
    """
    content = read_text(path)
    head = content.split("\n", 3)
    if len(head) < 3 or not all(line.strip().isascii() and line.strip().isdigit() for line in head[:3]):
        raise ValueError(
            f"{path}: got {' / '.join(head[:3])[:60]!r} first; expected three lines with a whole number each, "
            "documents, words and entries, as UCI's docword files have"
        )
    n_documents, n_words, n_entries = (int(line) for line in head[:3])
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
    return FileCounts(csr_array((entries[:, 2], where), shape=(n_documents, n_words)))


def read_svmlight(path: str | os.PathLike[str], n_terms: int | None) -> FileCounts:
    """SVMlight's (LIBSVM's) lines `label id:count …`, ids from 0 where some id is 0, else from 1; labels as text.

    n_terms: size of the vocabulary; None for the largest id. Raises ValueError for a file of another form.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        counts, labels = load_svmlight_file(str(Path(path)), n_features=n_terms)
    except (ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: {reason}; expected lines `label id:count …`, as SVMlight has them") from error
    return FileCounts(csr_array(counts), tuple(f"{label:g}" for label in np.asarray(labels)))
