"""Make a corpus from counts instead of texts: matrices, tables, LDA-C files, gensim's bags, single cells."""

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from lvsearch.data.document_counts import DocumentCounts
from lvsearch.reading.counts import canonical_counts, kept_in_place, read_ldac
from lvsearch.reading.document_table import DocumentTable
from lvsearch.reading.other_libraries import anndata_counts, bag_counts
from lvsearch.reading.vocabulary import as_strings, checked_vocabulary, read_vocabulary
from lvsearch.tables.frames import Documents, as_frame, columns_in_words, frame_counts, is_table, refuse_another_order
from lvsearch.texts.analyzer import Analyzer, chosen_stop_words
from lvsearch.texts.choosing import DroppedWords, pruned_terms

D = TypeVar("D", bound="CountedDocuments")


class CountedDocuments(DocumentCounts):
    """The methods of `Corpus` that read and prune counts; attributes and errors are those of `DocumentCounts`."""

    @classmethod
    def from_matrix(
        cls: type[D],
        matrix: Any,
        vocabulary: Iterable[Any] | None = None,
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
        metadata: Any = None,
    ) -> D:
        """Make a corpus of a matrix of counts (documents, terms).

        Args:
            matrix: (docs, terms) whole numbers: a scipy sparse matrix or array of any format (repeated entries are
                added), a dense NumPy or JAX array, or a wide pandas table. The columns of a table are the vocabulary,
                and its index, unless the default one, names the documents.
            vocabulary: one term per column (`CountVectorizer.get_feature_names_out()`). Default: "term0", "term1"….
            document_names, document_labels: one per row.
            metadata: a data frame (or a table with `to_pandas()`), a row per document.

        Raises:
            ValueError: see `Corpus`; also counts without a single token, a vocabulary given beside a table, and labels
                or metadata whose index has the names of the documents in another order.
        """
        if is_table(matrix):
            matrix = as_frame(matrix)
            if vocabulary is not None:
                raise ValueError("got a table and a vocabulary; expected one: a table's columns are its terms")
            matrix, vocabulary, index = frame_counts(matrix)
            document_names = index if document_names is None else document_names
        counts = canonical_counts(matrix, vocabulary)
        return cls._from_reader(counts, vocabulary, document_names, document_labels, (), None, metadata)

    @classmethod
    def from_ldac(
        cls: type[D],
        path: str | os.PathLike[str],
        vocabulary: str | os.PathLike[str] | Collection[Any] | None = None,
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
    ) -> D:
        """Read a file in LDA-C form: a line `N id:count …` per document, with ids from 0 and N the number of pairs.

        Args:
            path: the file.
            vocabulary: a text file with one term per line, or the terms. Default: "term0", "term1"… up to the largest
                id.
            document_names, document_labels: one per line.

        Raises:
            ValueError: a malformed line, an N that does not match, an id twice or out of range, each with the line's
                number; see also `Corpus`.
        """
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = read_vocabulary(vocabulary)
        counts = read_ldac(path, None if vocabulary is None else len(vocabulary))
        return cls._from_reader(counts, vocabulary, document_names, document_labels, (), None)

    @classmethod
    def from_bags(
        cls: type[D],
        bags: Iterable[Any],
        vocabulary: Any = None,
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
    ) -> D:
        """Make a corpus of gensim's bags of words: for every document a list of pairs (id, count), with ids from 0.

        bags: the bags, one per document.
        vocabulary: a gensim `Dictionary` (or any dictionary from id to word, or word to id), or the words in order.
        document_names, document_labels: one per bag.

        Raises ValueError for other input, for ids outside the vocabulary, and for the reasons of `from_matrix`.
        """
        counts, words = bag_counts(bags, vocabulary)
        return cls._from_reader(counts, words, document_names, document_labels, (), None)

    @classmethod
    def from_anndata(cls: type[D], data: Any, *, layer: str | None = None) -> D:
        """Make a corpus of an `AnnData`: cells are documents, genes are words, `.obs` is the metadata.

        data: the `AnnData`; one that is backed by a file is read into memory.
        layer: the layer with the counts; by default `.X`, which often holds logarithms and is then refused.

        Raises ValueError for anything else, for a layer that does not exist, and for the reasons of `from_matrix`.
        """
        found = anndata_counts(data, layer)
        try:
            corpus = cls.from_matrix(found.counts, found.vocabulary, document_names=found.names)
        except ValueError as error:
            layers = ", ".join(map(repr, data.layers)) or "none here"
            raise ValueError(f"{error}; of an AnnData, layer= says where the counts are ({layers})") from error
        return corpus._with_metadata(Documents([], metadata=found.metadata))

    def pruned(
        self: D,
        *,
        stop_words: str | Iterable[str] | None = None,
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
    ) -> D:
        """Return the same documents over fewer terms; notes name what was left out, and `dropped` lists all of it.

        Args:
            stop_words: "english" or another language, or the words themselves; terms that are among them are left out.
            minimum_document_frequency: keep terms that occur in at least this many documents. By default all terms
                stay; 1 removes those that occur nowhere.
            maximum_document_fraction: keep terms that occur in at most this fraction of the documents.

        Raises:
            ValueError: a limit is out of range, or no term is left.
        """
        chosen = pruned_terms(
            self.vocabulary,
            np.bincount(self.counts.indices, minlength=self.n_terms),
            self.term_totals,
            len(self),
            chosen_stop_words(stop_words),
            (minimum_document_frequency, maximum_document_fraction),
        )
        corpus = replace(
            self,
            counts=csr_array(self.counts[:, chosen.columns]),
            vocabulary=tuple(self.vocabulary[place] for place in chosen.columns),
            notes=(*self.notes, *chosen.notes),
            dropped=DroppedWords((*(() if self.dropped is None else self.dropped.losses), *chosen.dropped.losses)),
        )
        emptied = corpus.n_empty_documents - self.n_empty_documents
        if not emptied:
            return corpus
        return corpus._with_notes((*corpus.notes, f"{emptied:,} documents lost all their terms; kept in place"))

    def _pruned_to_limits(self: D, limits: tuple[int | None, float | int | None]) -> D:
        """Return the corpus with only the terms whose document frequency is within limits.

        limits: (least number of documents, greatest fraction of documents); the corpus stays unchanged if both are
            None.
        """
        if limits == (None, None):
            return self
        return self.pruned(minimum_document_frequency=limits[0], maximum_document_fraction=limits[1])

    @classmethod
    def _from_reader(
        cls: type[D],
        counts: csr_array,
        vocabulary: Iterable[Any] | None,
        document_names: Iterable[Any] | None,
        document_labels: Iterable[Any] | None,
        notes: tuple[str, ...],
        analyzer: Analyzer | None,
        metadata: Any = None,
        dropped: DroppedWords | None = None,
    ) -> D:
        """Make a corpus of data that were just read, with notes on empty documents and unused terms.

        counts: (documents, terms). vocabulary: one term per column, or None for "term0", "term1"….
        document_names, document_labels: one per document, or None. notes: notes of the reader.
        analyzer: the rules by which texts were cut, if there were any. metadata: a table with a row per document, or
            None.
        dropped: the words that were left out, if texts were cut.

        Raises ValueError if there is no token, and for labels or metadata in another order than the documents.
        """
        terms = checked_vocabulary(vocabulary, counts)
        names = as_strings("document_names", document_names)
        for what, values in (("document_labels", document_labels), ("metadata", metadata)):
            refuse_another_order(what, values, names)
        labels = as_strings("document_labels", document_labels)
        table = None if metadata is None else DocumentTable.from_frame(as_frame(metadata), strict=True)[0]
        corpus = cls(counts, terms, names, labels, notes, analyzer, document_table=table, dropped=dropped)
        if not corpus.n_tokens:
            raise ValueError(f"got {corpus.n_documents:,} documents without a single token; expected counts above 0")
        kept = kept_in_place(corpus.n_empty_documents, corpus.n_documents, corpus.n_unused_terms, corpus.n_terms)
        return corpus._with_notes((*notes, *kept))

    def _with_metadata(self: D, documents: Documents, strict: bool = False) -> D:
        """Return this corpus with the notes and the metadata of the documents that it was made of.

        documents: the documents, whose `metadata` and `notes` are used.
        strict: True raises ValueError for columns that files cannot keep; else they are left out and a note names them.
        """
        if documents.metadata is None:
            return self._with_notes((*documents.notes, *self.notes))
        table, left_out = DocumentTable.from_frame(documents.metadata, strict=strict)
        note = f"metadata without {columns_in_words(left_out)}, whose values files cannot keep"
        notes = (*documents.notes, *self.notes, *((note,) if left_out else ()))
        return replace(self, document_table=table, notes=notes)
