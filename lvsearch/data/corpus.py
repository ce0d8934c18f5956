"""Documents as counts of words, the data of topic models.

A corpus is a matrix of whole counts (documents × terms) with names for its rows and columns (`DocumentCounts`). This
module makes one from texts, tables, matrices, files, and objects of other libraries.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lvsearch.data.base import refuse_other_kind
from lvsearch.data.counted_documents import CountedDocuments
from lvsearch.files.array_folders import is_array_folder
from lvsearch.models.plain_arguments import as_path
from lvsearch.reading.counts import ROWS, CountOptions
from lvsearch.reading.document_table import DocumentTable
from lvsearch.reading.opening import counts_in, documents_in_file, is_counts, refuse_text_options
from lvsearch.reading.other_libraries import is_anndata, is_bags
from lvsearch.reading.stored_corpus import open_stored
from lvsearch.reading.vocabulary import as_strings
from lvsearch.tables.frames import (
    Documents,
    as_frame,
    columns_in_words,
    frame_documents,
    holds_texts,
    index_names,
    is_table,
    refuse_another_order,
    text_columns,
)
from lvsearch.texts.analyzer import ENGLISH, Analyzer, chosen_stop_words
from lvsearch.texts.choosing import DroppedWords, Limits
from lvsearch.texts.counting import (
    checked_documents,
    checked_texts,
    count_terms,
    count_texts,
    counts_with_new_words,
    encode_texts,
    is_words,
    kept_counts,
    term_columns,
)

Tokenizer = Callable[[str], Iterable[str]]


class Corpus(CountedDocuments):
    """The word counts of documents.

    Build one with `from_texts`, `from_frame`, `open` or `from_matrix`; also with `from_tokens`, `from_ldac`,
    `from_bags` (gensim) and `from_anndata`. Attributes and errors are documented in `DocumentCounts`.

    ```python
    corpus = lv.Corpus.from_texts(["apples and pears", "pears and plums"], stop_words=None)
    train, test = corpus.split(0.5)
    ```

    The constructor copies its arguments, checks them and brings them into canonical form. Two corpora are equal if
    their fingerprints are.
    """

    # -- from texts ---------------------------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[Any],
        *,
        stop_words: str | Iterable[str] | None = ENGLISH,
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        token_pattern: str | None = None,
        ngram_range: tuple[int, int] = (1, 1),
        tokenizer: Tokenizer | None = None,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
        metadata: Any = None,
    ) -> "Corpus":
        r"""Cut texts into words and count them.

        A word is a run of letters, their marks and digits, joined by underscores, in any script. Accents are composed,
        and words that differ in case alone are one word. The defaults aim at topics that a person can read. English
        stop words, words with digits, and in alphabets words of fewer than three letters are left out. From 200
        documents on, words that are very rare or very common are left out too. Notes name what was left out, and
        `dropped` lists all of it.

        Args:
            texts: strings, one per document; an empty one stays in place as an empty document. The index of a pandas
                Series, unless the default one, names the documents.
            stop_words: "english" (scikit-learn's list), another language ("german"; needs `lvsearch[stop-words]`), the
                words themselves, or None.
            minimum_document_frequency: keep words that occur in at least this many documents. Default: a hundredth of
                the documents but at most 5 (1 below 200 documents).
            maximum_document_fraction: keep words that occur in at most this fraction of the documents. Default: 0.5 (1,
                no limit, below 200 documents).
            token_pattern: a regular expression; every match (or its one group) is a word. It replaces the rules on
                digits and short words. `(?u)\\b\\w\\w+\\b` is scikit-learn's, with two-letter words and numbers.
            ngram_range: (shortest, longest) runs of words to count; (1, 2) counts single words and pairs. Stop words
                are left out first.
            tokenizer: a function from a text to its words, in place of `token_pattern`, such as one that cuts Chinese
                or returns base forms. Its words are lower-cased, and stop words are left out.
            document_names, document_labels: one per text.
            metadata: a data frame (or a table with `to_pandas()`), a row per text.

        Raises:
            ValueError: a single string; a data frame (see `from_frame`); an element that is not a string; no texts; a
                limit out of range; no word left under these settings; metadata that files cannot keep; labels or
                metadata whose index has the names of the documents in another order.
        """
        analyzer = Analyzer(chosen_stop_words(stop_words), token_pattern, ngram_range=ngram_range, tokenizer=tokenizer)
        names = index_names(texts) if document_names is None else as_strings("document_names", document_names)
        refuse_another_order("document_labels", document_labels, names)
        labels = as_strings("document_labels", document_labels)
        known = [None if each is None else tuple(each) for each in (names, labels)]
        documents = Documents(checked_texts(texts), known[0], known[1])
        limits = (minimum_document_frequency, maximum_document_fraction)
        return cls.from_documents(documents, analyzer, *limits, metadata=metadata)

    @classmethod
    def from_tokens(
        cls,
        documents: Iterable[Any],
        *,
        stop_words: str | Iterable[str] | None = None,
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
        metadata: Any = None,
    ) -> "Corpus":
        """Count the words of documents that are lists of words already; the words are kept as they are.

        Args:
            documents: lists of strings.
            stop_words: words that are left out; by default none.
            minimum_document_frequency, maximum_document_fraction, document_names, document_labels, metadata: as for
                `from_texts`.

        Raises:
            ValueError: a document is no list of strings; a limit out of range; no word left; metadata that files cannot
                keep; labels or metadata whose index has the names of the documents in another order.
        """
        listed = checked_documents(documents)
        text = next((place for place, document in enumerate(listed) if not is_words(document)), None)
        if text is not None:
            raise ValueError(
                f"got a text as document {text}; expected a list of words: lv.Corpus.from_texts cuts texts"
            )
        if not listed:
            raise ValueError("got no documents; expected at least one")
        analyzer = Analyzer(chosen_stop_words(stop_words), tokenizer=str.split, lowercase=False, normalize=False)
        limits = Limits.of_texts(len(listed), minimum_document_frequency, maximum_document_fraction)
        found = kept_counts(count_terms(listed, analyzer), analyzer, limits)
        names = index_names(documents) if document_names is None else document_names
        notes = ("words as they came", *found.notes)
        return cls._from_reader(found.counts, found.terms, names, document_labels, notes, None, metadata, found.dropped)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        text: Any,
        id: Any = None,
        label: Any = None,
        keep: Iterable[Any] | None = None,
        stop_words: str | Iterable[str] | None = ENGLISH,
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        token_pattern: str | None = None,
        ngram_range: tuple[int, int] = (1, 1),
        tokenizer: Tokenizer | None = None,
    ) -> "Corpus":
        """Count the words of the texts in a data frame, one text per row; other columns are kept as `metadata`.

        Args:
            frame: a pandas DataFrame, or a table with `to_pandas()`: a Hugging Face `Dataset`, a Polars frame.
            text: the name of the column of texts.
            id: the name of the column of document names; by default the frame's index is used.
            label: the name of the column of classes; by default there are none.
            keep: the columns of the metadata. By default all but text and id. Columns whose values files cannot keep,
                such as lists, are then left out, and a note says so.
            stop_words, minimum_document_frequency, maximum_document_fraction, token_pattern, ngram_range, tokenizer: as
                for `from_texts`.

        Raises:
            ValueError: there is no such column; a text, id or label is missing; columns of `keep` cannot be kept in
                files; or for the reasons of `from_texts`.
        """
        analyzer = Analyzer(chosen_stop_words(stop_words), token_pattern, ngram_range=ngram_range, tokenizer=tokenizer)
        found = frame_documents(as_frame(frame), text, id, label, keep)
        limits = (minimum_document_frequency, maximum_document_fraction)
        return cls.from_documents(found, analyzer, *limits, strict=keep is not None)

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
        documents: str = ROWS,
        first_id: int | None = None,
        layer: str | None = None,
        stop_words: str | Iterable[str] | None = ENGLISH,
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        token_pattern: str | None = None,
        ngram_range: tuple[int, int] = (1, 1),
        tokenizer: Tokenizer | None = None,
    ) -> "Corpus":
        """Read documents from a file, by its ending, or from a folder. Compressed files (.gz, .bz2, .xz, .zst, .zip)
        are unpacked.

        | ending | what it holds |
        |---|---|
        | .txt | a document per line |
        | .csv, .tsv, .jsonl, .json, .xlsx, .parquet, .feather | a table with columns `text`, `id`, `label`, `keep` |
        | .dta, .sav | the same from Stata or SPSS; cells are the labels of their numbers |
        | .json, an array of strings | a document per string |
        | none, a folder that `save` or `lv.convert` wrote | a corpus, which stays there: its arrays are memory maps |
        | none, a folder with matrix.mtx, features.tsv, barcodes.tsv | single cells, as 10x Genomics writes them |
        | none, another folder, or a .zip of several files | a document per .txt file; folders in it are classes |
        | .ldac | counts, LDA-C; `vocabulary` is the words, or a file with a word per line, here and for all counts |
        | .mtx, .mm, .npz | counts, Matrix Market or SciPy (`save_npz`); `documents` are its "rows" or "columns" |
        | .h5ad | counts of an `AnnData`, those of `layer` |
        | .svmlight, .libsvm, .svm | counts, a class first on every line; `first_id` is 0 or 1 where unclear |
        | a name that begins with docword, or .uci | counts, as UCI's bags of words |

        Hidden files of a folder, and those with other endings, are left out, and notes name them. A vocabulary may also
        be gensim's dictionary as text (`Dictionary.save_as_text`).

        Args:
            path: the file or folder.
            text, id, label, keep: columns of a table, as for `from_frame`.
            vocabulary: for counts, the terms or a file with one per line.
            encoding: the encoding of texts and of the vocabulary.
            verify: for a corpus in a folder, True compares the checksums of all files; False compares lengths, numbers
                and the sum of the counts only. None compares checksums if the files hold at most a gibibyte.
            documents: for a matrix, whether documents are its "rows" or its "columns".
            first_id: the smallest id in a file of counts, 0 or 1.
            layer: the layer of an `AnnData` with the counts.
            stop_words, token_pattern, ngram_range, tokenizer: for texts, as for `from_texts`.
            minimum_document_frequency, maximum_document_fraction: for texts as for `from_texts`, for counts as for
                `pruned`. Stop words of counts are removed with `pruned`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: an unknown ending; bytes of another encoding, with file and line; a table without `text=`, with
                the names of its columns; damaged content, with the line; see also `from_texts`, `Corpus`.
        """
        limits = (minimum_document_frequency, maximum_document_fraction)
        columns, of_counts = (text, id, label, keep), (documents != ROWS, first_id is not None, layer is not None)
        # whether options were given that say how texts are cut; a file of counts refuses them
        is_cut = (stop_words != ENGLISH, token_pattern, tokenizer, ngram_range != (1, 1))
        path = as_path("path", path)
        # 1. a folder that lvsearch wrote: the corpus is as it was when it was saved
        if is_array_folder(path):
            if any(option is not None for option in (*columns, vocabulary)) or any((*of_counts, *is_cut)):
                raise ValueError(
                    f"{path} holds a corpus; expected no text=, id=, label=, keep= or vocabulary=, and nothing that "
                    "says how files are read: they were when it was written"
                )
            corpus = cls.from_stored(open_stored(path, verify))
            return corpus._pruned_to_limits(limits)
        # 2. a file of counts
        if is_counts(path):
            refuse_text_options(path, columns, is_cut)
            found = counts_in(path, CountOptions(vocabulary, encoding, documents, first_id, layer))
            corpus = cls._from_reader(found.counts, found.vocabulary, found.names, found.labels, found.notes, None)
            corpus = corpus._with_metadata(Documents([], metadata=found.metadata))
            return corpus._pruned_to_limits(limits)
        # 3. a file or folder of texts
        if vocabulary is not None or any(of_counts):
            raise ValueError(
                f"{path} holds texts, which bring their own words; expected no vocabulary=, documents=, first_id= or "
                "layer="
            )
        analyzer = Analyzer(chosen_stop_words(stop_words), token_pattern, ngram_range=ngram_range, tokenizer=tokenizer)
        return cls.from_documents(
            documents_in_file(path, *columns, encoding), analyzer, *limits, strict=keep is not None
        )

    @classmethod
    def from_documents(
        cls,
        documents: Documents,
        analyzer: Analyzer,
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        *,
        metadata: Any = None,
        strict: bool = False,
    ) -> "Corpus":
        """Count the words of documents whose names, labels and metadata have been read already.

        documents: the texts, with the name, label and metadata of each.
        analyzer: the rules by which texts are cut into words.
        minimum_document_frequency, maximum_document_fraction: as for `from_texts`.
        metadata: a table with a row per document, all columns of which must be kept.
        strict: True if every column of the documents' own metadata must be kept; else a note names those that files
            cannot keep.

        Raises the errors of `from_texts`.
        """
        limits = (minimum_document_frequency, maximum_document_fraction)
        found = count_texts(documents.texts, analyzer, *limits)
        notes = (str(analyzer), *found.notes)
        names, labels = documents.names, documents.labels
        corpus = cls._from_reader(found.counts, found.terms, names, labels, notes, analyzer, metadata, found.dropped)
        return corpus._with_metadata(documents, strict)

    @classmethod
    def from_any(cls, data: Any) -> "Corpus":
        """Return a corpus as it is, or make one if the kind of data is unambiguous.

        data: texts (a list, a Series, an array of strings), lists of words, counts as for `from_matrix`, gensim's bags,
            an `AnnData`, or a table whose one column holds texts.

        Raises ValueError for anything else.
        """
        data = list(data) if isinstance(data, Iterator) else data
        if isinstance(data, Corpus):
            return data
        if holds_texts(data):
            return cls.from_texts(data)
        if isinstance(data, list | tuple) and data and all(map(is_words, data)):
            return cls.from_tokens(data)
        if is_bags(data):
            return cls.from_bags(data)
        if is_anndata(data):
            return cls.from_anndata(data)
        if is_table(data) or isinstance(data, dict):
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

    # -- new data -------------------------------------------------------------------------------------------------

    def like_this(self, data: Any) -> "Corpus":
        """Return new documents as a corpus over the vocabulary of this corpus, the training data.

        data: a corpus, texts or lists of words (which are encoded), or counts with a column per term; a data frame or
            an `AnnData` must have these terms as columns, a bare matrix has them by position.

        Raises:
            ValueError: another number of words; another vocabulary, or this one in another order; see also `encode`.
        """
        refuse_other_kind(data, Corpus, "documents over the words of the training corpus")
        data = list(data) if isinstance(data, Iterator) else data
        if _are_texts(data):
            return self.encode(data)
        corpus = Corpus.from_any(data)
        if corpus.n_terms != self.n_terms:
            raise ValueError(
                f"got documents over {corpus.n_terms} words, expected the {self.n_terms} of the training corpus: "
                "use training.encode(texts), or split one corpus"
            )
        brings_words = isinstance(data, Corpus) or is_table(data) or is_anndata(data)  # a bare matrix brings none
        if brings_words and corpus.vocabulary != self.vocabulary:
            pairs = enumerate(zip(corpus.vocabulary, self.vocabulary, strict=True))
            place, (got, expected) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
            is_order = set(corpus.vocabulary) == set(self.vocabulary)
            raise ValueError(
                f"got documents over {'these words in another order' if is_order else 'other words'}: column {place} "
                f"is {got!r}, expected {expected!r}: use training.encode(texts), split one corpus, or bring the "
                "columns into the order of training.vocabulary"
            )
        return corpus if brings_words else replace(corpus, vocabulary=self.vocabulary)

    def joined(self, other: Any) -> "Corpus":
        """Return these documents followed by others, with their new words added after the words of this vocabulary.

        Words of this vocabulary keep their numbers, so that tables of fits to both corpora line up. Nothing is lost in
        silence: notes name the words that are new, and those that are left out.

        Args:
            other: a corpus, a table of counts with terms as columns or an `AnnData`, whose words are all kept; words
                that by this corpus' rules differ in case alone are one. A bare matrix of counts, whose columns are the
                words of this vocabulary. Or texts (or lists of words), which are cut by the rules of this corpus. Of
                their new words those are kept that `from_texts` keeps of as many documents as both have together: from
                200 documents on, words in at least a hundredth of all documents but at most 5, and in at most half of
                all. Words in `dropped`, which this corpus left out before, stay out, since they are not
                counted in its own documents.

        Raises:
            ValueError: a matrix with another number of columns; a data frame of texts (pass its column); for texts the
                reasons of `encode`.
        """
        refuse_other_kind(other, Corpus, "documents")
        other = list(other) if isinstance(other, Iterator) else other
        if _are_texts(other):
            more = self._counted_with_new_words(other)
        elif is_table(other) and text_columns(as_frame(other)):
            raise ValueError(
                "got a data frame of texts; expected their column, frame[…], which is cut by the same rules"
            )
        elif isinstance(other, Corpus) or is_table(other) or is_anndata(other):
            more = Corpus.from_any(other)
        else:
            more = self.like_this(other)
        fold = None if self.analyzer is None else self.analyzer.fold
        known = {} if self.analyzer is None else term_columns(self.vocabulary, self.analyzer)
        known |= {term: column for column, term in enumerate(self.vocabulary)}
        columns = [
            known.get(term, -1 if fold is None else known.get(" ".join(map(fold, term.split(" "))), -1))
            for term in more.vocabulary
        ]
        return self._followed_by(more, np.array(columns, np.int64))

    def _counted_with_new_words(self, texts: Iterable[Any]) -> "Corpus":
        """Return texts, cut by the rules of this corpus, over its words that occur in them and their new words.

        Which new words are kept is documented in `joined`.
        """
        analyzer = self.analyzer or Analyzer.for_vocabulary(self.vocabulary)
        listed = checked_documents(texts)
        if listed and all(map(is_words, listed)):
            analyzer = Analyzer.for_words(self.analyzer)
        found = count_terms(listed, analyzer)
        known = term_columns(self.vocabulary, analyzer)
        left_out = set() if self.dropped is None else {word for loss in self.dropped.losses for word, _ in loss.words}
        counted = counts_with_new_words(found, known, self.vocabulary, left_out, len(self) + len(listed))
        names, dropped = index_names(texts), counted.dropped
        if not counted.terms:  # no word at all: empty documents
            return replace(self.encode(listed, document_names=names), dropped=dropped)
        return Corpus(counted.counts, counted.terms, names, None, counted.notes, analyzer, dropped=dropped)

    def encode(
        self,
        texts: Iterable[Any],
        *,
        document_names: Iterable[Any] | None = None,
        document_labels: Iterable[Any] | None = None,
        metadata: Any = None,
        tokenizer: Tokenizer | None = None,
    ) -> "Corpus":
        """Count the words of new texts in the vocabulary of this corpus, with texts cut by its rules.

        Words outside the vocabulary are left out and reported in `.unknown` and in the notes. Among them are words that
        this corpus dropped as too rare or too common. A text without any known word stays in place as an empty
        document. If this corpus was made of counts, words are cut by `Analyzer.for_vocabulary`.

        Args:
            texts: strings, or lists of words, which are kept as they are.
            document_names, document_labels: one per text.
            metadata: a data frame, a row per text.
            tokenizer: the function that cut the texts of this corpus, if the corpus was read from a folder, which
                cannot keep functions.

        Raises:
            ValueError: a single string; a data frame (pass its column of texts); an element that is not a string; no
                texts; a tokenizer that a folder did not keep; labels or metadata whose index has the names of the
                documents in another order.
        """
        analyzer = self.analyzer or Analyzer.for_vocabulary(self.vocabulary)
        analyzer = analyzer if tokenizer is None else replace(analyzer, tokenizer=tokenizer, token_pattern=None)
        listed, cut = checked_documents(texts), analyzer
        if listed and all(map(is_words, listed)):  # words as they stand: no rule leaves any of them out
            cut = Analyzer.for_words(self.analyzer)
        counts, unknown, losses = encode_texts(
            count_terms(listed, cut), term_columns(self.vocabulary, cut), self.n_terms
        )
        names = as_strings("document_names", index_names(texts) if document_names is None else document_names)
        for what, values in (("document_labels", document_labels), ("metadata", metadata)):
            refuse_another_order(what, values, names)
        labels = as_strings("document_labels", document_labels)
        table = None if metadata is None else DocumentTable.from_frame(as_frame(metadata), strict=True)[0]
        notes, dropped = (str(unknown), *map(str, losses)), DroppedWords(losses)
        encoded = Corpus(counts, self.vocabulary, names, labels, notes, analyzer, unknown, table, dropped)
        if not encoded.n_empty_documents:
            return encoded
        empty = f"{encoded.n_empty_documents:,} of {len(encoded):,} documents hold no known word; kept in place"
        return encoded._with_notes((*encoded.notes, empty))


def _are_texts(data: Any) -> bool:
    """Return True if data are texts or lists of words, which are yet to be counted."""
    lists = isinstance(data, list | tuple) and bool(data) and all(map(is_words, data))
    return isinstance(data, str) or holds_texts(data) or lists
