"""Check vocabularies and names, and read the text files that hold them."""

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import pandas as pd
from pandas.api.types import is_scalar

from lvsearch.files.packed_files import read_text
from lvsearch.files.string_arrays import StoredStrings
from lvsearch.models.plain_arguments import as_list, as_names

MOST_UNNAMED = 10_000_000
"""The largest number of terms without names. More are no vocabulary, and their made-up names alone would fill the
memory.
"""


UNNAMED = "term{}"
"""The name of a term without a word; its id stands in the braces."""


def ordered_terms(vocabulary: Iterable[Any]) -> tuple[str, ...]:
    """Return the terms as strings, in their order.

    Raises ValueError for a single string, and for a set or a dictionary, which has no order.
    """
    if isinstance(vocabulary, str):
        raise ValueError(f"got the string {vocabulary[:40]!r} as vocabulary; expected a list of terms")
    if isinstance(vocabulary, Mapping | Set):
        raise ValueError(
            f"got a {type(vocabulary).__name__} as vocabulary, whose order is not the columns'; expected a list of "
            "terms, the first one naming column 0; for a CountVectorizer pass .get_feature_names_out()"
        )
    return tuple(str(term) for term in as_list("vocabulary", vocabulary))


def checked_vocabulary(vocabulary: Iterable[Any] | None, counts: Any) -> tuple[str, ...]:
    """Return the terms as strings, one per column of counts.

    vocabulary: the terms; None names them "term0", "term1", …
    counts: a matrix (documents, terms)

    Raises:
        ValueError: no terms; a single string; an unordered container; another number of terms than columns; a term that
            occurs twice.
    """
    n_columns = counts.shape[1]
    if vocabulary is None and n_columns > MOST_UNNAMED:
        raise ValueError(
            f"got counts with {n_columns:,} columns and no vocabulary; expected at most {MOST_UNNAMED:,} without one: "
            "number the terms that occur from 0 (ids that are hashes or row numbers leave the rest empty)"
        )
    if vocabulary is None:
        vocabulary = [UNNAMED.format(column) for column in range(n_columns)]
    terms = ordered_terms(vocabulary)
    if len(terms) != n_columns:
        raise ValueError(
            f"got a vocabulary of {len(terms):,} terms for counts with {n_columns:,} columns; expected one term per "
            "column; rows are documents: transpose a terms × documents matrix first"
        )
    if not terms:
        raise ValueError("got no terms (0 columns); expected at least one term")
    if len(set(terms)) < len(terms):
        first: dict[str, int] = {}
        for column, term in enumerate(terms):
            if first.setdefault(term, column) != column:
                raise ValueError(
                    f"got the term {term!r} twice in the vocabulary (columns {first[term]:,} and {column:,}); expected "
                    "distinct terms; add their columns up, or rename one"
                )
    return terms


def as_strings(what: str, values: Iterable[Any] | None) -> tuple[str, ...] | StoredStrings | None:
    """Return names or labels as strings. None stays None, and strings in files stay there.

    what: the noun for the values, for messages
    values: the names or labels

    Raises:
        ValueError: a single string in place of a list; a set or a dict; missing values (None, NaN), whose text would be
            one more name.
    """
    if isinstance(values, str):
        raise ValueError(f"got the string {values[:40]!r} as {what}; expected a list with one entry per document")
    if values is None or isinstance(values, StoredStrings):
        return values
    listed = as_names(what, values)
    missing = [place for place, value in enumerate(listed) if is_missing(value)]
    if missing:
        raise ValueError(
            f"got {len(missing):,} missing values of {len(listed):,} in {what}, the first for document {missing[0]:,}; "
            "expected one for each: leave such documents out, or give them a text of their own, such as 'unknown'"
        )
    return tuple(str(value) for value in listed)


def is_missing(value: Any) -> bool:
    """Return True for a single value that stands for none: None, NaN, NaT or pandas' NA."""
    return not isinstance(value, str) and is_scalar(value) and bool(pd.isna(value))


def one_per_document(what: str, values: Iterable[Any] | None, counts: Any) -> tuple[str, ...] | StoredStrings | None:
    """Return names or labels as strings, after checking that there is one for each row of counts. None stays None.

    what: the noun for the values, for messages
    values: the names or labels
    counts: a matrix (documents, terms)

    Raises:
        ValueError: too few or too many of them, or missing ones; a single string in place of a list.
    """
    strings = as_strings(what, values)
    if strings is not None and len(strings) != counts.shape[0]:
        raise ValueError(f"got {len(strings):,} {what} for {counts.shape[0]:,} documents; expected one for each")
    return strings


def read_vocabulary(path: str | os.PathLike[str], encoding: str = "utf-8") -> tuple[str, ...]:
    """Read the terms of a text file, one per line; line n, counted from 0, names id n.

    gensim's dictionary as text (`Dictionary.save_as_text`) is read too: the number of documents, then lines `id word
    documents` separated by tabs, in any order. Ids without a word are named
    "term0", "term1", ….

    Raises:
        ValueError: an empty line before the last term; an id twice; bytes that are not of this encoding.
    """
    lines = [line.strip() for line in read_lines(path, encoding)]
    entries = [line.split("\t") for line in lines]
    if len(lines) > 1 and lines[0].isdigit() and all(len(e) == 3 and e[0].isdigit() for e in entries[1:]):
        return _dictionary([(int(place), word) for place, word, _ in entries[1:]], path)
    for number, term in enumerate(lines, start=1):
        if not term:
            raise ValueError(f"{path}, line {number}: got an empty line; expected one term per line, without gaps")
    return tuple(lines)


def _dictionary(entries: Sequence[tuple[int, str]], path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the words of gensim's dictionary in the order of their ids; ids without a word get a name.

    entries: pairs (id, word)
    path: the file, for messages

    Raises ValueError for an id twice, and for ids that are too large to number words by.
    """
    width = 1 + max(place for place, _ in entries)
    if width > MOST_UNNAMED:
        raise ValueError(f"{path}: got ids up to {width - 1:,}; expected at most {MOST_UNNAMED:,}")
    words = [UNNAMED.format(place) for place in range(width)]
    for place, word in entries:
        if words[place] != UNNAMED.format(place):
            raise ValueError(f"{path}: got the id {place} twice; expected one word for each id")
        words[place] = word
    return tuple(words)


def read_lines(path: str | os.PathLike[str], encoding: str = "utf-8") -> list[str]:
    """Return the lines of a text file, without empty ones at its end.

    Raises ValueError for a file that is no text in this encoding.
    """
    text = read_text(path, encoding).rstrip(" \t\n")
    return text.split("\n") if text else []
