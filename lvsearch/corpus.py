"""Documents as counts of words: what every topic model here is given.

A corpus is a matrix of whole counts (documents × terms) with names for its rows and columns. Nothing in it is ever
dropped in silence: empty documents and unused terms stay in place, so row 17 is still the user's document 17, and
`Corpus.notes` tells what was done to the texts on the way in.
"""

import hashlib
import html
import json
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from scipy.sparse import csr_array

from lvsearch.readers import canonical_counts, count_texts, encode_texts, frame_counts, read_ldac
from lvsearch.vocabulary import (
    LETTERS,
    Analyzer,
    UnknownWords,
    as_strings,
    checked_vocabulary,
    one_per_document,
    read_vocabulary,
)


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Word counts of documents. Build one with `from_texts`, `from_matrix` or `from_ldac`.

    The constructor itself trusts nothing either: it copies, checks and brings into canonical form what it is given.
    Equality and hash go by `fingerprint`.

    Attributes:
        counts: (docs, terms) int32, sorted ids, no stored zeros, read-only.
        vocabulary: the terms, one per column, distinct.
        document_names: what a person calls each document (a title, a path), or None.
        document_labels: a class for each document, shown beside topics and never used in fitting, or None.
        notes: what was dropped, kept or selected, in the order in which it happened.
        analyzer: how the texts were cut into words; None for counts that came without texts.
        unknown: for encoded texts, the words the vocabulary does not hold; None otherwise.

    Raises:
        ValueError: no documents or no terms; negative, fractional, NaN, infinite or too large counts; a vocabulary,
            names or labels of the wrong length; a term that occurs twice.
    """

    counts: csr_array
    vocabulary: tuple[str, ...]
    document_names: tuple[str, ...] | None = None
    document_labels: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    analyzer: Analyzer | None = None
    unknown: UnknownWords | None = None

    def __post_init__(self) -> None:
        counts = canonical_counts(self.counts, self.vocabulary)
        vocabulary = checked_vocabulary(self.vocabulary, counts)
        names = one_per_document("document_names", self.document_names, counts)
        labels = one_per_document("document_labels", self.document_labels, counts)
        for field, value in (
            ("counts", counts),
            ("vocabulary", vocabulary),
            ("document_names", names),
            ("document_labels", labels),
            ("notes", tuple(self.notes)),
        ):
            object.__setattr__(self, field, value)

    # -- from data ----------------------------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[Any],
        *,
        stop_words: str | Iterable[str] | None = "english",
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        token_pattern: str = LETTERS,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
    ) -> "Corpus":
        """Cut texts into words and count them (scikit-learn's `CountVectorizer`), lower-cased.

        The defaults aim at topics a person can read: words of three letters or more without digits, English stop
        words out, and from 200 documents on also words that are too rare to place or too common to tell anything.

        Args:
            texts: strings, one per document; an empty one stays in place as an empty document.
            stop_words: "english" (scikit-learn's list), the words themselves, or None.
            minimum_document_frequency: keep words that occur in at least so many documents. Default: a hundredth
                of the documents but at most 5 (1 below 200 documents).
            maximum_document_fraction: keep words that occur in at most this fraction of the documents. Default:
                0.5 (1, no limit, below 200 documents).
            token_pattern: a regular expression, every match a word. Default: `\\b[^\\W\\d_]{3,}\\b`; use
                `(?u)\\b\\w\\w+\\b` for scikit-learn's own, with two-letter words and numbers.
            document_names, document_labels: one per text.

        Raises:
            ValueError: a single string; an element that is not a string; no texts; a limit out of range; no word
                left under these settings.
        """
        if stop_words is not None and not isinstance(stop_words, str):
            stop_words = tuple(sorted(set(stop_words)))
        analyzer = Analyzer(stop_words=stop_words, token_pattern=token_pattern)
        counts, terms, note = count_texts(texts, analyzer, minimum_document_frequency, maximum_document_fraction)
        return cls._reported(counts, terms, document_names, document_labels, (str(analyzer), note), analyzer)

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,
        vocabulary: Iterable[Any] | None = None,
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
    ) -> "Corpus":
        """Counts that were made elsewhere.

        Args:
            matrix: (docs, terms) whole numbers: a scipy sparse matrix or array of any format (entries given twice
                are added), a dense NumPy or JAX array, or a wide pandas table, whose columns are the vocabulary and
                whose index, unless it is the default one, names the documents.
            vocabulary: one term per column (`CountVectorizer.get_feature_names_out()`). Default: "term0", "term1"….
            document_names, document_labels: one per row.

        Raises:
            ValueError: see `Corpus`; also counts without a single token, and a vocabulary given beside a table.
        """
        if isinstance(matrix, pd.DataFrame):
            if vocabulary is not None:
                raise ValueError("got a table and a vocabulary; expected one: a table's columns are its terms")
            matrix, vocabulary, index = frame_counts(matrix)
            document_names = index if document_names is None else document_names
        counts = canonical_counts(matrix, vocabulary)
        return cls._reported(counts, vocabulary, document_names, document_labels, (), None)

    @classmethod
    def from_ldac(
        cls,
        path: str | os.PathLike[str],
        vocabulary: str | os.PathLike[str] | Collection[Any] | None = None,
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
    ) -> "Corpus":
        """A file in LDA-C form: a line `N id:count …` per document, ids counted from 0, N the number of pairs.

        Args:
            path: the file.
            vocabulary: a text file with one term per line, or the terms. Default: "term0", "term1"… up to the
                largest id.
            document_names, document_labels: one per line.

        Raises:
            ValueError: a malformed line, N that does not match, an id twice or out of range, each with the line's
                number; see also `Corpus`.
        """
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = read_vocabulary(vocabulary)
        counts = read_ldac(path, None if vocabulary is None else len(vocabulary))
        return cls._reported(counts, vocabulary, document_names, document_labels, (), None)

    @classmethod
    def from_csr(
        cls,
        data: Int[np.ndarray, " counts"],
        indices: Int[np.ndarray, " ids"],
        indptr: Int[np.ndarray, " starts"],
        vocabulary: Iterable[Any],
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
        notes: Iterable[str] = (),
        analyzer: Analyzer | None = None,
    ) -> "Corpus":
        """Rebuild a corpus from the three arrays of `counts` as they were stored, checking all of them.

        Raises:
            ValueError: arrays that do not describe a matrix with one column per term; see also `Corpus`.
        """
        vocabulary = tuple(vocabulary)
        try:
            counts = csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(vocabulary)))
        except ValueError as error:
            raise ValueError(
                f"got {len(data)} counts, {len(indices)} ids and {len(indptr)} row starts that form no matrix with "
                f"{len(vocabulary)} columns ({error}); expected the arrays of a csr matrix; is the file damaged?"
            ) from error
        names = as_strings("document_names", document_names)
        labels = as_strings("document_labels", document_labels)
        return cls(counts, vocabulary, names, labels, tuple(notes), analyzer)

    @classmethod
    def _reported(
        cls,
        counts: csr_array,
        vocabulary: Iterable[Any] | None,
        document_names: Iterable[Any] | None,
        document_labels: Iterable[Any] | None,
        notes: tuple[str, ...],
        analyzer: Analyzer | None,
    ) -> "Corpus":
        """A corpus fresh from data, with what a person should know about it in its notes."""
        terms = checked_vocabulary(vocabulary, counts)
        names = as_strings("document_names", document_names)
        labels = as_strings("document_labels", document_labels)
        corpus = cls(counts, terms, names, labels, notes, analyzer)
        if not corpus.n_tokens:
            raise ValueError(f"got {corpus.n_documents:,} documents without a single token; expected counts above 0")
        if corpus.n_empty_documents:
            notes += (f"{corpus.n_empty_documents:,} of {corpus.n_documents:,} documents are empty; kept in place",)
        if corpus.n_unused_terms:
            notes += (f"{corpus.n_unused_terms:,} of {corpus.n_terms:,} terms occur nowhere; kept in place",)
        return replace(corpus, notes=notes)

    # -- sizes --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n_documents

    @property
    def n_documents(self) -> int:
        return len(self.counts.indptr) - 1

    @property
    def n_terms(self) -> int:
        return len(self.vocabulary)

    @cached_property
    def n_tokens(self) -> int:
        return int(self.document_lengths.sum())

    @cached_property
    def document_lengths(self) -> Int[np.ndarray, " docs"]:
        """Tokens in each document, int64."""
        return np.asarray(self.counts.astype(np.int64).sum(axis=1))

    @cached_property
    def term_totals(self) -> Int[np.ndarray, " terms"]:
        """Tokens of each term, int64."""
        return np.asarray(self.counts.astype(np.int64).sum(axis=0))

    @property
    def n_empty_documents(self) -> int:
        return int(np.sum(self.document_lengths == 0))

    @property
    def n_unused_terms(self) -> int:
        return int(np.sum(self.term_totals == 0))

    # -- parts --------------------------------------------------------------------------------------------------

    def select(self, document_ids: Iterable[Any]) -> "Corpus":
        """The documents with these ids, in the given order, over the same vocabulary.

        Args:
            document_ids: row numbers from 0, or a boolean mask with one entry per document.

        Raises:
            ValueError: no document chosen; an id out of range; a mask of the wrong length.
        """
        rows = self._rows(document_ids)
        return self._part(rows, f"selected {len(rows):,} of {self.n_documents:,} documents")

    def split(self, test_fraction: float | int = 0.1, seed: int = 0) -> "tuple[Corpus, Corpus]":
        """(train, test): a random part of the documents held out, each side in the original order.

        Both share the vocabulary. The test side has `test_fraction` of the documents, rounded, at least one, and
        leaves at least one to train on. The same seed always gives the same split.

        Raises:
            ValueError: a fraction outside (0, 1); a single document.
        """
        if not 0 < test_fraction < 1:
            raise ValueError(f"got test_fraction={test_fraction}; expected a fraction between 0 and 1, such as 0.1")
        if self.n_documents < 2:
            raise ValueError("got a corpus of 1 document; expected at least 2 to split")
        n_test = min(max(round(test_fraction * self.n_documents), 1), self.n_documents - 1)
        held_out = np.random.default_rng(seed).permutation(self.n_documents)[:n_test]
        return self._without_and_with(held_out, f"test_fraction={test_fraction}, seed={seed}")

    def folds(self, n: int, seed: int = 0) -> "list[tuple[Corpus, Corpus]]":
        """(train, test) n times: every document is in exactly one test part, whose sizes differ by one at most.

        Raises:
            ValueError: n below 2 or above the number of documents.
        """
        if not 2 <= n <= self.n_documents:
            raise ValueError(f"got n={n} folds of {self.n_documents:,} documents; expected 2 to {self.n_documents:,}")
        shuffled = np.random.default_rng(seed).permutation(self.n_documents)
        return [
            self._without_and_with(held_out, f"fold {fold} of {n}, seed={seed}")
            for fold, held_out in enumerate(np.array_split(shuffled, n), start=1)
        ]

    def encode(
        self,
        texts: Iterable[Any],
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
    ) -> "Corpus":
        """New texts in this vocabulary, cut as the texts of this corpus were.

        Words outside the vocabulary are left out and reported in `.unknown` (also in the notes): among them those
        that were dropped here for being too rare or too common. A text of which nothing is known stays in place as
        an empty document. A corpus that came as counts cuts words by `Analyzer.for_vocabulary`.

        Raises:
            ValueError: a single string; an element that is not a string; no texts.
        """
        analyzer = self.analyzer or Analyzer.for_vocabulary(self.vocabulary)
        counts, unknown = encode_texts(texts, analyzer, self.vocabulary)
        names = as_strings("document_names", document_names)
        labels = as_strings("document_labels", document_labels)
        encoded = Corpus(counts, self.vocabulary, names, labels, (str(unknown),), analyzer, unknown)
        if not encoded.n_empty_documents:
            return encoded
        empty = f"{encoded.n_empty_documents:,} of {len(encoded):,} documents hold no known word; kept in place"
        return replace(encoded, notes=(*encoded.notes, empty))

    def _without_and_with(self, held_out: Int[np.ndarray, " held_out"], how: str) -> "tuple[Corpus, Corpus]":
        is_test = np.zeros(self.n_documents, dtype=bool)
        is_test[held_out] = True
        train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        return (
            self._part(train, f"{len(train):,} of {self.n_documents:,} documents to train on ({how})"),
            self._part(test, f"{len(test):,} of {self.n_documents:,} documents held out ({how})"),
        )

    def _rows(self, document_ids: Iterable[Any]) -> Int[np.ndarray, " chosen"]:
        ids = np.asarray(document_ids if isinstance(document_ids, np.ndarray) else list(document_ids))
        if ids.dtype == bool and ids.shape != (self.n_documents,):
            raise ValueError(f"got a mask of shape {ids.shape}; expected one entry for each of {len(self):,} documents")
        rows = np.flatnonzero(ids) if ids.dtype == bool else ids
        if not rows.size:
            raise ValueError("got no document ids; expected at least one")
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= self.n_documents:
            raise ValueError(
                f"got document ids of type {rows.dtype}, shape {rows.shape}, from {rows.min()} to {rows.max()}; "
                f"expected a list of whole numbers from 0 to {self.n_documents - 1}"
            )
        return rows.astype(np.int64)

    def _part(self, rows: Int[np.ndarray, " chosen"], note: str) -> "Corpus":
        def chosen(values: tuple[str, ...] | None) -> tuple[str, ...] | None:
            return None if values is None else tuple(values[row] for row in rows)

        return replace(
            self,
            counts=self.counts[rows],
            document_names=chosen(self.document_names),
            document_labels=chosen(self.document_labels),
            notes=(*self.notes, note),
            unknown=None,
        )

    # -- identity and looks -------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the content: counts, vocabulary, names and labels (not notes or analyzer)."""
        digest = hashlib.sha256(b"lvsearch corpus 1")
        for array in (self.counts.indptr, self.counts.indices, self.counts.data):
            digest.update(np.asarray(array, dtype="<i8").tobytes())
        words = (self.counts.shape, self.vocabulary, self.document_names, self.document_labels)
        digest.update(json.dumps(words).encode())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Corpus) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def to_frame(self) -> pd.DataFrame:
        """The counts as a wide sparse table: a row per document (named where it has a name), a column per term."""
        return pd.DataFrame.sparse.from_spmatrix(self.counts, index=self.document_names, columns=list(self.vocabulary))

    def _facts(self) -> tuple[tuple[str, str], ...]:
        labels = "none" if self.document_labels is None else f"{len(set(self.document_labels)):,} distinct"
        return (
            ("documents", f"{self.n_documents:,}, of which {self.n_empty_documents:,} empty"),
            ("terms", f"{self.n_terms:,}, of which {self.n_unused_terms:,} unused"),
            ("tokens", f"{self.n_tokens:,}, median {np.median(self.document_lengths):,.0f} per document"),
            ("labels", labels),
            ("fingerprint", self.fingerprint[:16]),
        )

    def summary(self) -> str:
        """Sizes, fingerprint and notes as text, a line each."""
        facts = [f"{name + ':':<13}{value}" for name, value in self._facts()]
        return "\n".join(["Corpus", *facts, *(f"- {note}" for note in self.notes)])

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"Corpus({self.n_documents:,} documents, {self.n_terms:,} terms, {self.n_tokens:,} tokens)"

    def _repr_html_(self) -> str:
        facts = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._facts())
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<table><caption>Corpus</caption><tbody>{facts}</tbody></table><ul>{notes}</ul>"
