"""Documents as counts of words: what every topic model here is given.

A corpus is a matrix of whole counts (documents × terms) with names for its rows and columns (`DocumentCounts`). Here it
is made: from texts, tables, matrices, files, and what other libraries hold.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.sparse import csr_array

from lvsearch.data.base import Data
from lvsearch.data.document_counts import DocumentCounts
from lvsearch.files.array_folders import is_array_folder
from lvsearch.reading.document_table import DocumentTable
from lvsearch.reading.opening import counts_in, is_counts, texts_in
from lvsearch.reading.other_libraries import anndata_counts, bag_counts, is_anndata, is_bags
from lvsearch.reading.readers import canonical_counts, count_texts, encode_texts, kept_in_place, read_ldac
from lvsearch.reading.stored_corpus import open_stored
from lvsearch.reading.tables import (
    Documents,
    as_frame,
    columns_in_words,
    frame_counts,
    frame_documents,
    holds_texts,
    index_names,
    text_columns,
)
from lvsearch.reading.vocabulary import (
    LETTERS,
    Analyzer,
    as_strings,
    checked_vocabulary,
    chosen_stop_words,
    read_vocabulary,
)


class Corpus(DocumentCounts):
    """Word counts of documents. Build one with `from_texts`, `from_frame`, `open` or `from_matrix`; also `from_ldac`,
    `from_bags` (gensim), `from_anndata`.

    The constructor itself trusts nothing either: it copies, checks and brings into canonical form what it is given.
    Equality and hash go by `fingerprint`. Attributes and errors are those of `DocumentCounts`.
    """

    # -- from texts ---------------------------------------------------------------------------------------------

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
        metadata: Any = None,
    ) -> "Corpus":
        """Cut texts into words and count them (scikit-learn's `CountVectorizer`), lower-cased.

        The defaults aim at topics a person can read: words of three letters or more without digits, English stop
        words out, and from 200 documents on also words that are too rare to place or too common to tell anything.

        Args:
            texts: strings, one per document; an empty one stays in place as an empty document. The index of a pandas
                Series, unless the default one, names the documents.
            stop_words: "english" (scikit-learn's list), the words themselves, or None.
            minimum_document_frequency: keep words that occur in at least so many documents. Default: a hundredth
                of the documents but at most 5 (1 below 200 documents).
            maximum_document_fraction: keep words that occur in at most this fraction of the documents. Default:
                0.5 (1, no limit, below 200 documents).
            token_pattern: a regular expression, every match a word. Default: `\\b[^\\W\\d_]{3,}\\b`; use
                `(?u)\\b\\w\\w+\\b` for scikit-learn's own, with two-letter words and numbers.
            document_names, document_labels: one per text.
            metadata: a data frame (or a table with `to_pandas()`), a row per text.

        Raises:
            ValueError: a single string; a data frame (see `from_frame`); an element that is not a string; no texts; a
                limit out of range; no word left under these settings; metadata that files cannot keep.
        """
        analyzer = Analyzer(stop_words=chosen_stop_words(stop_words), token_pattern=token_pattern)
        counts, terms, note = count_texts(texts, analyzer, minimum_document_frequency, maximum_document_fraction)
        names = index_names(texts) if document_names is None else document_names
        return cls._reported(counts, terms, names, document_labels, (str(analyzer), note), analyzer, metadata)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        text: Any,
        id: Any = None,
        label: Any = None,
        keep: Iterable[Any] | None = None,
        stop_words: str | Iterable[str] | None = "english",
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        token_pattern: str = LETTERS,
    ) -> "Corpus":
        """A data frame with a text in every row; its other columns stay beside the documents as `metadata`.

        Args:
            frame: a pandas DataFrame, or a table with `to_pandas()`: a Hugging Face `Dataset`, a Polars frame.
            text, id, label: the names of the columns with the texts, the documents' names (default: the frame's
                index) and their classes (default: none).
            keep: the columns of the metadata. Default: all but text and id; those whose values files cannot keep, such
                as lists, are left out, and a note says so.
            stop_words, minimum_document_frequency, maximum_document_fraction, token_pattern: as for `from_texts`.

        Raises:
            ValueError: no such column; a missing text, id or label; columns of `keep` that files cannot keep; and as
                `from_texts`.
        """
        found = frame_documents(as_frame(frame), text, id, label, keep)
        corpus = cls.from_texts(
            found.texts,
            stop_words=stop_words,
            minimum_document_frequency=minimum_document_frequency,
            maximum_document_fraction=maximum_document_fraction,
            token_pattern=token_pattern,
            document_names=found.names,
            document_labels=found.labels,
        )
        return corpus._with_metadata(found, strict=keep is not None)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        text: Any = None,
        id: Any = None,
        label: Any = None,
        keep: Iterable[Any] | None = None,
        vocabulary: str | os.PathLike[str] | Collection[Any] | None = None,
        encoding: str = "utf-8",
        verify: bool | None = None,
    ) -> "Corpus":
        """A file, read as its ending says (.gz behind it is looked through), or a folder.

        | ending | what it holds |
        |---|---|
        | .txt | a document per line |
        | .csv, .tsv, .jsonl, .ndjson, .parquet | a table: `text` (and `id`, `label`, `keep`) as for `from_frame` |
        | none, a folder that `save` or `lv.convert` wrote | a corpus, which stays there: its arrays are memory maps |
        | none, another folder | a document per .txt file below it, named by its path; folders in it are classes |
        | .ldac | counts, LDA-C; as all counts with a `vocabulary`, a file with a word per line or the words |
        | .mtx | counts, Matrix Market, a row per document |
        | .svmlight, .libsvm, .svm | counts, a class first on every line |
        | a name that begins with docword, or .uci | counts, as UCI's bags of words |

        encoding: of texts and of the vocabulary. Texts are cut into words with the defaults of `from_texts`: for others
        read the table yourself and use `from_frame`. verify: of a corpus in a folder, whether to compare the checksums
        of all files, and not only lengths, numbers and the sum of the counts; None: where all hold at most a gibibyte.

        Raises:
            FileNotFoundError: no such file.
            ValueError: an unknown ending; bytes of another encoding, with file and line; a table without `text=`, with
                the names of its columns; what is wrong in the file, with the line; see also `from_texts`, `Corpus`.
        """
        if is_array_folder(Path(path)):
            if any(option is not None for option in (text, id, label, keep, vocabulary)):
                raise ValueError(f"{path} holds a corpus; expected no text=, id=, label=, keep= or vocabulary=")
            return cls.of_stored(open_stored(Path(path), verify))
        if is_counts(path):
            if any(option is not None for option in (text, id, label, keep)):
                raise ValueError(f"{path} holds counts; expected no text=, id=, label= or keep=: they are of tables")
            if isinstance(vocabulary, str | os.PathLike):
                vocabulary = read_vocabulary(vocabulary, encoding)
            found = counts_in(path, None if vocabulary is None else len(vocabulary))
            return cls._reported(found.counts, vocabulary, None, found.labels, (), None)
        if vocabulary is not None:
            raise ValueError(f"{path} holds texts, which bring their own words; expected no vocabulary=")
        documents = texts_in(path, text, id, label, keep, encoding)
        return cls.of_documents(documents, strict=keep is not None)

    @classmethod
    def of_documents(cls, documents: Documents, strict: bool = False) -> "Corpus":
        """Texts with what is known of them, with the defaults of `from_texts`.

        strict: whether every column of the metadata must be kept; else a note names those that files cannot keep.
        """
        corpus = cls.from_texts(documents.texts, document_names=documents.names, document_labels=documents.labels)
        return corpus._with_metadata(documents, strict)

    # -- from counts --------------------------------------------------------------------------------------------

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,
        vocabulary: Iterable[Any] | None = None,
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
        metadata: Any = None,
    ) -> "Corpus":
        """Counts that were made elsewhere.

        Args:
            matrix: (docs, terms) whole numbers: a scipy sparse matrix or array of any format (entries given twice
                are added), a dense NumPy or JAX array, or a wide pandas table, whose columns are the vocabulary and
                whose index, unless it is the default one, names the documents.
            vocabulary: one term per column (`CountVectorizer.get_feature_names_out()`). Default: "term0", "term1"….
            document_names, document_labels: one per row.
            metadata: a data frame (or a table with `to_pandas()`), a row per row.

        Raises:
            ValueError: see `Corpus`; also counts without a single token, and a vocabulary given beside a table.
        """
        if isinstance(matrix, pd.DataFrame):
            if vocabulary is not None:
                raise ValueError("got a table and a vocabulary; expected one: a table's columns are its terms")
            matrix, vocabulary, index = frame_counts(matrix)
            document_names = index if document_names is None else document_names
        counts = canonical_counts(matrix, vocabulary)
        return cls._reported(counts, vocabulary, document_names, document_labels, (), None, metadata)

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
    def from_bags(
        cls,
        bags: Iterable[Any],
        vocabulary: Any = None,
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
    ) -> "Corpus":
        """gensim's bags of words: for every document a list of pairs (id, count), ids from 0.

        vocabulary: a gensim `Dictionary` (or any dictionary id to word, or word to id), or the words in order. Raises
        ValueError for other things, ids outside the vocabulary, and as `from_matrix`.
        """
        counts, words = bag_counts(bags, vocabulary)
        return cls._reported(counts, words, document_names, document_labels, (), None)

    @classmethod
    def from_anndata(cls, data: Any, *, layer: str | None = None) -> "Corpus":
        """An `AnnData`: cells are documents, genes are words, `.obs` is the metadata.

        layer: of which the counts are; by default `.X`, which often holds logarithms and is then refused. Raises
        ValueError for anything else, a layer that it does not have, and as `from_matrix`.
        """
        found = anndata_counts(data, layer)
        try:
            corpus = cls.from_matrix(found.counts, found.vocabulary, document_names=found.names)
        except ValueError as error:
            layers = ", ".join(map(repr, data.layers)) or "none here"
            raise ValueError(f"{error}; of an AnnData, layer= says where the counts are ({layers})") from error
        return corpus._with_metadata(Documents([], metadata=found.metadata))

    @classmethod
    def of(cls, data: Any) -> "Corpus":
        """A corpus as it is, or made of what is plainly one thing.

        Texts (a list, a Series, an array of strings), counts as `from_matrix` takes them, gensim's bags, an `AnnData`,
        a table whose one column holds texts. Raises ValueError for anything else.
        """
        data = list(data) if isinstance(data, Iterator) else data
        if isinstance(data, Corpus):
            return data
        if holds_texts(data):
            return cls.from_texts(data)
        if is_bags(data):
            return cls.from_bags(data)
        if is_anndata(data):
            return cls.from_anndata(data)
        if hasattr(data, "to_pandas") or isinstance(data, dict):
            data = as_frame(data)
        if isinstance(data, pd.DataFrame) and (words := text_columns(data)):
            if data.shape[1] == 1:
                return cls.from_frame(data, text=words[0])
            raise ValueError(
                f"got a data frame with text in {columns_in_words(words)}; expected to know which column holds the "
                "documents: lv.Corpus.from_frame(frame, text=…), or training.encode(frame[…]) for new ones; or counts "
                "with a column per word"
            )
        return cls.from_matrix(data)

    @classmethod
    def _reported(
        cls,
        counts: csr_array,
        vocabulary: Iterable[Any] | None,
        document_names: Iterable[Any] | None,
        document_labels: Iterable[Any] | None,
        notes: tuple[str, ...],
        analyzer: Analyzer | None,
        metadata: Any = None,
    ) -> "Corpus":
        """A corpus fresh from data, with what a person should know about it in its notes."""
        terms = checked_vocabulary(vocabulary, counts)
        names = as_strings("document_names", document_names)
        labels = as_strings("document_labels", document_labels)
        table = None if metadata is None else DocumentTable.from_frame(as_frame(metadata), strict=True)[0]
        corpus = cls(counts, terms, names, labels, notes, analyzer, document_table=table)
        if not corpus.n_tokens:
            raise ValueError(f"got {corpus.n_documents:,} documents without a single token; expected counts above 0")
        kept = kept_in_place(corpus.n_empty_documents, corpus.n_documents, corpus.n_unused_terms, corpus.n_terms)
        return replace(corpus, notes=(*notes, *kept))

    def _with_metadata(self, documents: Documents, strict: bool = False) -> "Corpus":
        if documents.metadata is None:
            return self
        table, left_out = DocumentTable.from_frame(documents.metadata, strict=strict)
        note = f"metadata without {columns_in_words(left_out)}, whose values files cannot keep"
        return replace(self, document_table=table, notes=(*self.notes, *((note,) if left_out else ())))

    # -- new data -------------------------------------------------------------------------------------------------

    def like_this(self, data: Any) -> "Corpus":
        """New documents over this vocabulary: a corpus, texts (which are encoded), or counts with a column per term (a
        data frame: these terms).

        Raises:
            ValueError: another number of words; another vocabulary, or this one in another order; see also `encode`.
        """
        if isinstance(data, Data) and not isinstance(data, Corpus):
            raise ValueError(
                f"got {type(data).__name__} ({data.describe()}), expected documents over the words of the training "
                "corpus"
            )
        data = list(data) if isinstance(data, Iterator) else data
        if isinstance(data, str) or holds_texts(data):
            return self.encode(data)
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
        metadata: Any = None,
    ) -> "Corpus":
        """New texts in this vocabulary, cut as the texts of this corpus were.

        Words outside the vocabulary are left out and reported in `.unknown` (also in the notes): among them those
        that were dropped here for being too rare or too common. A text of which nothing is known stays in place as
        an empty document. A corpus that came as counts cuts words by `Analyzer.for_vocabulary`.

        Raises:
            ValueError: a single string; a data frame (pass its column of texts); an element that is not a string; no
                texts.
        """
        analyzer = self.analyzer or Analyzer.for_vocabulary(self.vocabulary)
        counts, unknown = encode_texts(texts, analyzer, self.vocabulary)
        names = as_strings("document_names", index_names(texts) if document_names is None else document_names)
        labels = as_strings("document_labels", document_labels)
        table = None if metadata is None else DocumentTable.from_frame(as_frame(metadata), strict=True)[0]
        encoded = Corpus(counts, self.vocabulary, names, labels, (str(unknown),), analyzer, unknown, table)
        if not encoded.n_empty_documents:
            return encoded
        empty = f"{encoded.n_empty_documents:,} of {len(encoded):,} documents hold no known word; kept in place"
        return replace(encoded, notes=(*encoded.notes, empty))
