"""Counts of words with names for their rows and columns: the content of a `Corpus`, wherever it came from.

Nothing is dropped silently. Empty documents and unused terms stay in place, so row 17 is still the user's document 17.
`notes` says what was done to the texts when they were read.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Int
from scipy.sparse import csr_array, vstack

from lvsearch.data.base import Data, Nouns
from lvsearch.files.array_folders import new_array_folder
from lvsearch.files.storage import CorruptFolderError
from lvsearch.files.string_arrays import StoredStrings, has_strings, pack_strings, unpack_strings
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.mapped import files_of
from lvsearch.models.plain_arguments import as_path
from lvsearch.models.units import BagOfWords
from lvsearch.reading.counts import canonical_counts
from lvsearch.reading.document_table import DocumentTable
from lvsearch.reading.stored_corpus import (
    StoredParts,
    corpus_fingerprint,
    open_stored,
    write_stored,
    written_fingerprint,
)
from lvsearch.reading.vocabulary import as_strings, checked_vocabulary, one_per_document
from lvsearch.texts.analyzer import Analyzer
from lvsearch.texts.choosing import NAMED, DroppedWords
from lvsearch.texts.counting import UnknownWords

C = TypeVar("C", bound="DocumentCounts")
UNLABELLED = "unlabelled"
"""The label of a document that has none, where it is joined to documents with labels."""


@dataclass(frozen=True, eq=False, repr=False)
class DocumentCounts(Data):
    """The content of a `Corpus`: it checks, describes and stores the counts. `Corpus` has the methods that make one.

    The constructor copies its arguments, checks them and brings them into canonical form. Two are equal if their
    fingerprints are.

    Attributes:
        counts: (docs, terms) int32, sorted ids, no stored zeros, read-only; memory maps if a folder was opened.
        vocabulary: the terms, one per column, distinct.
        document_names: the name of each document for people (a title, a path), or None.
        document_labels: a class for each document, shown beside topics and never used in fitting, or None.
        notes: notes on what was dropped, kept or selected, in the order in which it happened.
        analyzer: the rules by which texts were cut into words; None for counts that came without texts.
        unknown: for encoded texts, the words that the vocabulary does not hold; None otherwise.
        document_table: further facts about each document, or None; `metadata` shows them as a data frame.
        dropped: for texts, every word that was left out, with its occurrences and the rule; None otherwise.

    Raises:
        ValueError: no documents or no terms; negative, fractional, NaN, infinite or too large counts; a vocabulary,
            names, labels or metadata of the wrong length; a term that occurs twice.
    """

    unit_type: ClassVar[type] = BagOfWords
    nouns: ClassVar[Nouns] = Nouns("corpus", "document", "documents", "token", "tokens")
    accepted: ClassVar[str] = "a Corpus, texts or a matrix of counts"

    counts: csr_array
    vocabulary: tuple[str, ...]
    document_names: tuple[str, ...] | StoredStrings | None = None
    document_labels: tuple[str, ...] | StoredStrings | None = None
    notes: tuple[str, ...] = ()
    analyzer: Analyzer | None = None
    unknown: UnknownWords | None = None
    document_table: DocumentTable | None = None
    dropped: DroppedWords | None = None

    def __post_init__(self) -> None:
        counts = canonical_counts(self.counts, self.vocabulary)
        vocabulary = checked_vocabulary(self.vocabulary, counts)
        names = one_per_document("document_names", self.document_names, counts)
        labels = one_per_document("document_labels", self.document_labels, counts)
        if self.document_table is not None and self.document_table.n_rows != counts.shape[0]:
            raise ValueError(
                f"got metadata of {self.document_table.n_rows:,} rows for {counts.shape[0]:,} documents; expected one "
                "for each, in their order"
            )
        for field, value in (
            ("counts", counts),
            ("vocabulary", vocabulary),
            ("document_names", names),
            ("document_labels", labels),
            ("notes", tuple(self.notes)),
        ):
            object.__setattr__(self, field, value)

    def _with_notes(self: C, notes: Sequence[str]) -> C:
        """Return the same documents with other notes. Everything else was checked before, and is shared."""
        other = object.__new__(type(self))
        for field in fields(self):
            object.__setattr__(other, field.name, getattr(self, field.name))
        object.__setattr__(other, "notes", tuple(notes))
        return other

    @classmethod
    def from_csr(
        cls: type[C],
        data: Int[np.ndarray, " counts"],
        indices: Int[np.ndarray, " ids"],
        indptr: Int[np.ndarray, " starts"],
        vocabulary: Iterable[Any],
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
        notes: Iterable[str] = (),
        analyzer: Analyzer | None = None,
        document_table: DocumentTable | None = None,
    ) -> C:
        """Make a corpus again from the three stored arrays of `counts`, and check all of them.

        data, indices, indptr: the arrays of a csr matrix (documents, terms).
        vocabulary: one term per column.
        document_names, document_labels: one per document, or None.
        notes, analyzer, document_table: attributes of the class.

        Raises:
            ValueError: arrays that do not describe a matrix with one column per term; see also the class.
        """
        vocabulary = tuple(vocabulary)
        if not _form_a_matrix(data, indices, indptr, len(vocabulary)):
            raise ValueError(
                f"got {np.size(data)} counts, {np.size(indices)} ids and {np.size(indptr)} row starts that form no "
                f"matrix with {len(vocabulary)} columns; expected the arrays of a csr matrix; is the file damaged?"
            )
        counts = csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(vocabulary)))
        names = as_strings("document_names", document_names)
        labels = as_strings("document_labels", document_labels)
        return cls(counts, vocabulary, names, labels, tuple(notes), analyzer, document_table=document_table)

    @classmethod
    def from_stored(cls: type[C], stored: StoredParts) -> C:
        """Return the corpus of a folder that was opened.

        stored: the content of the folder. Raises `CorruptFolderError` if it is no valid corpus.
        """
        try:
            return cls(
                stored.counts,
                stored.vocabulary,
                stored.names,
                stored.labels,
                stored.notes,
                stored.analyzer,
                document_table=stored.table,
            )
        except ValueError as error:
            files = files_of(stored.counts)
            where = "the folder of the corpus" if files is None else files.folder
            raise CorruptFolderError(f"{where}: {error}; restore it from a copy") from error

    def save(self, folder: str | Path) -> None:
        """Write the corpus to a new folder, from which `Corpus.open` maps it into memory.

        It is written atomically and with checksums; `lvsearch.reading.stored_corpus` documents the content. Only the
        notes of `unknown` and `dropped` are kept. Raises FileExistsError if something is there already, ValueError
        for a folder that is no path.
        """
        with new_array_folder(as_path("folder", folder)) as writer:
            write_stored(
                writer,
                StoredParts(
                    self.counts,
                    self.vocabulary,
                    self.document_names,
                    self.document_labels,
                    self.notes,
                    self.analyzer,
                    self.document_table,
                ),
            )

    # -- sizes --------------------------------------------------------------------------------------------------

    @property
    def n_documents(self) -> int:
        """The number of documents."""
        return len(self.counts.indptr) - 1

    @property
    def n_terms(self) -> int:
        """The number of terms in the vocabulary."""
        return len(self.vocabulary)

    @property
    def n_units(self) -> int:
        """The number of documents."""
        return self.n_documents

    @property
    def n_tokens(self) -> int:
        """The number of tokens in all documents together."""
        return self.n_observations

    @property
    def observations_per_unit(self) -> Int[np.ndarray, " docs"]:
        """The number of tokens in each document, shape (docs,), int64; equal to `document_lengths`."""
        return self.document_lengths

    @property
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """The vocabulary, as {"word": terms}: the names of the entries of a model's axis "word"."""
        return {"word": self.vocabulary}

    @property
    def unit_labels(self) -> Sequence[str] | None:
        """The class of each document, or None; equal to `document_labels`."""
        return self.document_labels

    @cached_property
    def document_lengths(self) -> Int[np.ndarray, " docs"]:
        """The number of tokens in each document, (docs,) int64."""
        files = files_of(self.counts)
        return np.asarray(self.counts.astype(np.int64).sum(axis=1)) if files is None else files.row_totals()

    @cached_property
    def term_totals(self) -> Int[np.ndarray, " terms"]:
        """The number of tokens of each term, (terms,) int64."""
        files = files_of(self.counts)
        return np.asarray(self.counts.astype(np.int64).sum(axis=0)) if files is None else files.word_totals()

    @property
    def metadata(self) -> pd.DataFrame | None:
        """A new data frame of the further facts about each document, a row per document; None if there are none.

        Its index is that of the frame that it came from, else the documents' names or numbers.
        """
        return None if self.document_table is None else self.document_table.to_frame(self.document_names)

    @property
    def n_empty_documents(self) -> int:
        """The number of documents without a single token."""
        return int(np.sum(self.document_lengths == 0))

    @property
    def n_unused_terms(self) -> int:
        """The number of terms that occur in no document."""
        return int(np.sum(self.term_totals == 0))

    # -- for models -----------------------------------------------------------------------------------------------

    def dataset(self) -> Dataset:
        """Return the documents in padded batches, bucketed by their number of distinct words."""
        return documents(self.counts)

    def part(self: C, rows: Int[np.ndarray, " chosen"], note: str) -> C:
        """Return some of the documents as a new corpus over the same vocabulary, in the given order, with a note that
        says so.

        rows: numbers of documents, from 0. note: the note to add.
        """

        def chosen(values: tuple[str, ...] | StoredStrings | None) -> tuple[str, ...] | None:
            """Return the chosen entries of names or labels; None for None."""
            return None if values is None else tuple(values[row] for row in rows)

        return replace(
            self,
            counts=self.counts[rows],
            document_names=chosen(self.document_names),
            document_labels=chosen(self.document_labels),
            notes=(*self.notes, note),
            unknown=None,
            dropped=None,
            document_table=None if self.document_table is None else self.document_table.part(rows),
        )

    def _followed_by(self: C, more: "DocumentCounts", columns: Int[np.ndarray, " terms"]) -> C:
        """Return these documents followed by others, over this vocabulary with new terms after the old ones.

        Documents without a name, where others have one, are called "document 12" by their number. Documents without a
        label, where others have one, get the label "unlabelled". Cells of metadata that only the others have are empty.

        more: the other documents.
        columns: the column of this vocabulary of each term of `more`, (terms,); −1 for a new term.
        """
        is_new = columns < 0
        new_terms = tuple(term for term, new in zip(more.vocabulary, is_new, strict=True) if new)
        places = np.where(is_new, self.n_terms + np.cumsum(is_new) - 1, columns)
        entries, width = csr_array(more.counts).tocoo(), self.n_terms + len(new_terms)
        own = csr_array(self.counts)
        first = csr_array((own.data, own.indices, own.indptr), (len(self), width))
        second = csr_array((entries.data, (entries.row, places[entries.col])), shape=(len(more), width))
        tokens = int(more.term_totals[is_new].sum())
        said = "no new words were added"
        if new_terms:
            further = f" and {len(new_terms) - NAMED:,} more" if len(new_terms) > NAMED else ""
            said = (
                f"{len(new_terms):,} of their words are new ({tokens:,} of {more.n_tokens:,} tokens) and come last: "
                f"{', '.join(new_terms[:NAMED])}{further}"
            )
        lists = [each.dropped for each in (self, more) if each.dropped is not None]
        return replace(
            self,
            counts=csr_array(vstack([first, second])),
            vocabulary=(*self.vocabulary, *new_terms),
            document_names=_joined_texts(self.document_names, more.document_names, len(self), len(more), "document {}"),
            document_labels=_joined_texts(self.document_labels, more.document_labels, len(self), len(more), UNLABELLED),
            notes=(*self.notes, f"joined {len(more):,} documents to {len(self):,}; {said}", *more.notes),
            unknown=None,
            dropped=DroppedWords(tuple(loss for each in lists for loss in each.losses)) if lists else None,
            document_table=_joined_tables(self, more),
        )

    # -- identity, storage and looks ----------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hash, in hexadecimal, of counts, vocabulary, names, labels and metadata (not of notes or
        analyzer).
        """
        names, labels = self.document_names, self.document_labels
        return corpus_fingerprint(self.counts, self.vocabulary, names, labels, self.document_table)

    @cached_property
    def _folder(self) -> Path | None:
        """The folder that the corpus was opened from; None for a corpus in memory.

        A search stores only this path, so the content is first compared with the fingerprint that was written to the
        folder.
        Raises `CorruptFolderError` if they differ.
        """
        files = files_of(self.counts)
        if files is None:
            return None
        if written_fingerprint(files.folder) not in (None, self.fingerprint):
            raise CorruptFolderError(
                f"{files.folder}: the documents there differ from those that were written there: the folder was "
                "damaged or changed; restore it from a copy, or convert the documents again"
            )
        return files.folder.absolute()

    def to_frame(self) -> pd.DataFrame:
        """Return the counts as a wide sparse table: a row per document (named if it has a name), a column per term."""
        return pd.DataFrame.sparse.from_spmatrix(self.counts, index=self.document_names, columns=list(self.vocabulary))

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the corpus as (settings that JSON can store, {name: array}).

        For a corpus in a folder, only the path of the folder is stored.
        """
        if self._folder is not None:
            return {"folder": str(self._folder)}, {}
        counts = csr_array(self.counts)
        numbers = {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr}
        some = {"names": self.document_names, "labels": self.document_labels}
        texts = {"vocabulary": self.vocabulary, "notes": self.notes, **{n: v for n, v in some.items() if v is not None}}
        for name, values in texts.items():
            numbers |= pack_strings(name, values)
        settings: dict[str, Any] = {"analyzer": None if self.analyzer is None else self.analyzer.to_json()}
        if self.document_table is not None:
            settings["metadata"], arrays = self.document_table.to_storage()
            numbers |= arrays
        return settings, numbers

    @classmethod
    def from_storage(cls: type[C], settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> C:
        """Return the corpus that `to_storage` encoded as `settings` and `arrays`."""
        if "folder" in settings:
            return cls.from_stored(open_stored(Path(settings["folder"])))
        known = [name for name in ("vocabulary", "notes", "names", "labels") if has_strings(name, arrays)]
        texts = {name: unpack_strings(name, arrays) for name in known}
        table = settings.get("metadata")  # older folders know of none
        return cls.from_csr(
            arrays["data"],
            arrays["indices"],
            arrays["indptr"],
            texts["vocabulary"],
            document_names=texts.get("names"),
            document_labels=texts.get("labels"),
            notes=texts["notes"],
            analyzer=None if settings["analyzer"] is None else Analyzer.from_json(settings["analyzer"]),
            document_table=None if table is None else DocumentTable.from_storage(table, arrays),
        )

    def describe(self) -> str:
        """Return the sizes in one line, such as "2,410 documents (1 empty), 2,961 terms, 124,000 tokens"."""
        return (
            f"{self.n_documents:,} documents ({self.n_empty_documents:,} empty), {self.n_terms:,} terms, "
            f"{self.n_tokens:,} tokens"
        )

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return (name, value) pairs: the numbers of documents, terms, tokens and labels, and the columns of the
        metadata.
        """
        labels = "none" if self.document_labels is None else f"{len(set(self.document_labels)):,} distinct"
        known = () if self.document_table is None else self.document_table.columns
        metadata = (("metadata", ", ".join(column.name for column in known)),) if known else ()
        return (
            ("documents", f"{self.n_documents:,}, of which {self.n_empty_documents:,} empty"),
            ("terms", f"{self.n_terms:,}, of which {self.n_unused_terms:,} unused"),
            ("tokens", f"{self.n_tokens:,}, median {np.median(self.document_lengths):,.0f} per document"),
            ("labels", labels),
            *metadata,
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_documents:,} documents, {self.n_terms:,} terms, {self.n_tokens:,} tokens)"
        )


def _joined_texts(
    first: Sequence[str] | None, second: Sequence[str] | None, n_first: int, n_second: int, missing: str
) -> tuple[str, ...] | None:
    """Return the names (or labels) of some documents followed by those of others; None if neither has any.

    first, second: the names of both, or None. n_first, n_second: the numbers of documents.
    missing: the name of a document without one; "{}" in it stands for the document's number.
    """
    if first is None and second is None:
        return None
    numbers = range(n_first + n_second)
    parts = ((first, numbers[:n_first]), (second, numbers[n_first:]))
    return tuple(
        name
        for names, places in parts
        for name in ((missing.format(place) for place in places) if names is None else names)
    )


def _joined_tables(first: DocumentCounts, second: DocumentCounts) -> DocumentTable | None:
    """Return the metadata of some documents followed by those of others; None if neither has any."""
    parts = (first, second)
    if all(each.document_table is None for each in parts):
        return None
    is_indexed = any(each.document_table is not None and each.document_table.index is not None for each in parts)
    frames = [
        pd.DataFrame(index=each.document_names or range(len(each))) if each.metadata is None else each.metadata
        for each in parts
    ]
    with warnings.catch_warnings():  # pandas announces other types of columns that are empty in one part
        warnings.simplefilter("ignore", FutureWarning)
        joined = pd.concat(frames, ignore_index=not is_indexed)
    return DocumentTable.from_frame(joined, strict=True)[0]


def _form_a_matrix(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_columns: int) -> bool:
    """Return True if three stored arrays form a valid csr matrix with `n_columns` columns.

    SciPy does not check row starts and ids, and would write to the memory that wrong ones name.
    """
    arrays = (data, indices, indptr)
    if any(a.ndim != 1 or a.dtype.kind not in "iu" for a in arrays) or not len(indptr):
        return False
    if len(data) != len(indices) or indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        return False
    return bool(np.all((indices >= 0) & (indices < n_columns)))
