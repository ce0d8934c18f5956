"""Documents as counts of words: what every topic model here is given.

A corpus is a matrix of whole counts (documents × terms) with names for its rows and columns. Nothing in it is ever
dropped in silence: empty documents and unused terms stay in place, so row 17 is still the user's document 17, and
`Corpus.notes` tells what was done to the texts on the way in.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int
from scipy.sparse import csr_array

from lvsearch.data.base import Data, Nouns
from lvsearch.data.readers import canonical_counts, count_texts, encode_texts, frame_counts, read_ldac
from lvsearch.data.vocabulary import (
    LETTERS,
    Analyzer,
    UnknownWords,
    as_strings,
    checked_vocabulary,
    one_per_document,
    read_vocabulary,
)
from lvsearch.files.string_arrays import holds, packed, unpacked
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.models.units import BagOfWords


@dataclass(frozen=True, eq=False, repr=False)
class Corpus(Data):
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

    unit_type: ClassVar[type] = BagOfWords
    nouns: ClassVar[Nouns] = Nouns("corpus", "document", "documents", "token", "tokens")
    accepted: ClassVar[str] = "a Corpus or a matrix of counts"

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
            stop_words = tuple(stop_words)
            if not all(isinstance(word, str) for word in stop_words):
                raise ValueError("got stop words that are not all strings; expected 'english', a list of words or None")
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

    @classmethod
    def of(cls, data: Any) -> "Corpus":
        """A corpus as it is, or counts as `from_matrix` takes them. Raises ValueError for anything else."""
        return data if isinstance(data, Corpus) else cls.from_matrix(data)

    # -- sizes --------------------------------------------------------------------------------------------------

    @property
    def n_documents(self) -> int:
        return len(self.counts.indptr) - 1

    @property
    def n_terms(self) -> int:
        return len(self.vocabulary)

    @property
    def n_units(self) -> int:
        """Documents."""
        return self.n_documents

    @property
    def n_tokens(self) -> int:
        return self.n_observations

    @property
    def observations_per_unit(self) -> Int[np.ndarray, " docs"]:
        """Tokens in each document: `document_lengths`."""
        return self.document_lengths

    @property
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """The axis of words is named by the vocabulary."""
        return {"word": self.vocabulary}

    @property
    def unit_labels(self) -> tuple[str, ...] | None:
        """`document_labels`."""
        return self.document_labels

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

    # -- for models and new data ----------------------------------------------------------------------------------

    def dataset(self) -> Dataset:
        """The documents in padded batches, bucketed by their number of distinct words."""
        return documents(self.counts)

    def like_this(self, data: Any) -> "Corpus":
        """New documents over this vocabulary: a corpus, or counts with a column per term (a data frame: these terms).

        Raises:
            ValueError: another number of words; another vocabulary, or this one in another order.
        """
        if isinstance(data, Data) and not isinstance(data, Corpus):
            raise ValueError(
                f"got {type(data).__name__} ({data.describe()}), expected documents over the words of the training "
                "corpus"
            )
        corpus = Corpus.of(data)
        if corpus.n_terms != self.n_terms:
            raise ValueError(
                f"got documents over {corpus.n_terms} words, expected the {self.n_terms} of the training corpus: "
                "use training.encode(texts), or split one corpus"
            )
        if isinstance(data, Corpus | pd.DataFrame) and corpus.vocabulary != self.vocabulary:
            raise ValueError(
                "got documents over another vocabulary of the same length: use training.encode(texts), or split one "
                "corpus"
            )
        return corpus

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

    def part(self, rows: Int[np.ndarray, " chosen"], note: str) -> "Corpus":
        """The documents with these numbers, in this order, and a note saying so."""

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

    # -- identity, storage and looks ----------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the content: counts, vocabulary, names and labels (not notes or analyzer)."""
        digest = hashlib.sha256(b"lvsearch corpus 1")
        for array in (self.counts.indptr, self.counts.indices, self.counts.data):
            digest.update(np.asarray(array, dtype="<i8").tobytes())
        words = (self.counts.shape, self.vocabulary, self.document_names, self.document_labels)
        digest.update(json.dumps(words).encode())
        return digest.hexdigest()

    def to_frame(self) -> pd.DataFrame:
        """The counts as a wide sparse table: a row per document (named where it has a name), a column per term."""
        return pd.DataFrame.sparse.from_spmatrix(self.counts, index=self.document_names, columns=list(self.vocabulary))

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The analyzer as settings; counts, vocabulary, notes, names and labels as arrays."""
        counts = csr_array(self.counts)
        numbers = {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr}
        some = {"names": self.document_names, "labels": self.document_labels}
        texts = {"vocabulary": self.vocabulary, "notes": self.notes, **{n: v for n, v in some.items() if v is not None}}
        for name, values in texts.items():
            numbers |= packed(name, values)
        return {"analyzer": None if self.analyzer is None else asdict(self.analyzer)}, numbers

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Corpus":
        """The inverse of `to_storage`."""
        known = [name for name in ("vocabulary", "notes", "names", "labels") if holds(name, arrays)]
        texts = {name: unpacked(name, arrays) for name in known}
        return cls.from_csr(
            arrays["data"],
            arrays["indices"],
            arrays["indptr"],
            texts["vocabulary"],
            document_names=texts.get("names"),
            document_labels=texts.get("labels"),
            notes=texts["notes"],
            analyzer=None if settings["analyzer"] is None else Analyzer.from_json(settings["analyzer"]),
        )

    def describe(self) -> str:
        """Such as "2,410 documents (1 empty), 2,961 terms, 124,000 tokens"."""
        return (
            f"{self.n_documents:,} documents ({self.n_empty_documents:,} empty), {self.n_terms:,} terms, "
            f"{self.n_tokens:,} tokens"
        )

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Documents, terms, tokens and labels, a line each."""
        labels = "none" if self.document_labels is None else f"{len(set(self.document_labels)):,} distinct"
        return (
            ("documents", f"{self.n_documents:,}, of which {self.n_empty_documents:,} empty"),
            ("terms", f"{self.n_terms:,}, of which {self.n_unused_terms:,} unused"),
            ("tokens", f"{self.n_tokens:,}, median {np.median(self.document_lengths):,.0f} per document"),
            ("labels", labels),
        )

    def __repr__(self) -> str:
        return f"Corpus({self.n_documents:,} documents, {self.n_terms:,} terms, {self.n_tokens:,} tokens)"
