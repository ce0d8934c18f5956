"""Documents as counts of words: what every topic model here is given.

A corpus is a matrix of whole counts (documents × terms) with names for its rows and columns (`DocumentCounts`). Here it
is made: from texts, tables, matrices, files, and what other libraries hold.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from lvsearch.data.base import Data
from lvsearch.data.counted_documents import CountedDocuments
from lvsearch.files.array_folders import is_array_folder
from lvsearch.models.plain_arguments import as_path
from lvsearch.reading.count_files import ROWS, CountOptions
from lvsearch.reading.document_table import DocumentTable
from lvsearch.reading.opening import counts_in, is_counts, refuse_text_options, texts_in
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
    text_columns,
)
from lvsearch.texts.analyzer import Analyzer
from lvsearch.texts.counting import (
    checked_documents,
    checked_texts,
    count_terms,
    count_texts,
    encode_texts,
    is_words,
    kept_counts,
    term_columns,
)
from lvsearch.texts.limits import Limits
from lvsearch.texts.losses import DroppedWords
from lvsearch.texts.stop_words import ENGLISH, chosen_stop_words

Tokenizer = Callable[[str], Iterable[str]]


class Corpus(CountedDocuments):
    """Word counts of documents. Build one with `from_texts`, `from_frame`, `open` or `from_matrix`; also `from_tokens`,
    `from_ldac`, `from_bags` (gensim), `from_anndata`.

    The constructor itself trusts nothing either: it copies, checks and brings into canonical form what it is given.
    Equality and hash go by `fingerprint`. Attributes and errors are those of `DocumentCounts`.
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
        """Cut texts into words and count them.

        A word is a run of letters, their marks and digits, joined by underscores, in any script; accents are composed,
        and words that differ in case alone are one. The defaults aim at topics a person can read: English stop words
        go, words with digits, in alphabets words of fewer than three letters, and from 200 documents on words that are
        too rare to place or too common to tell anything. Notes name what was left out, and `dropped` lists all of it.

        Args:
            texts: strings, one per document; an empty one stays in place as an empty document. The index of a pandas
                Series, unless the default one, names the documents.
            stop_words: "english" (scikit-learn's list), another language ("german"; needs `lvsearch[stop-words]`), the
                words themselves, or None.
            minimum_document_frequency: keep words that occur in at least so many documents. Default: a hundredth
                of the documents but at most 5 (1 below 200 documents).
            maximum_document_fraction: keep words that occur in at most this fraction of the documents. Default:
                0.5 (1, no limit, below 200 documents).
            token_pattern: a regular expression, every match (or its one group) a word, in place of the rules on
                digits and short words. `(?u)\\b\\w\\w+\\b` is scikit-learn's, with two-letter words and numbers.
            ngram_range: count runs of so many words, (1, 2) single words and pairs. Stop words are left out before.
            tokenizer: a function from a text to its words, in place of `token_pattern`: one that cuts Chinese, or that
                brings words to their base forms. Its words are lower-cased; stop words are left out.
            document_names, document_labels: one per text.
            metadata: a data frame (or a table with `to_pandas()`), a row per text.

        Raises:
            ValueError: a single string; a data frame (see `from_frame`); an element that is not a string; no texts; a
                limit out of range; no word left under these settings; metadata that files cannot keep.
        """
        analyzer = Analyzer(chosen_stop_words(stop_words), token_pattern, ngram_range=ngram_range, tokenizer=tokenizer)
        names = index_names(texts) if document_names is None else as_strings("document_names", document_names)
        labels = as_strings("document_labels", document_labels)
        known = [None if each is None else tuple(each) for each in (names, labels)]
        documents = Documents(checked_texts(texts), known[0], known[1])
        limits = (minimum_document_frequency, maximum_document_fraction)
        return cls.of_documents(documents, analyzer, *limits, metadata=metadata)

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
        """Documents that are cut into words already: a list of words each, which are counted as they stand.

        Args:
            documents: lists of strings.
            stop_words: words that are left out; by default none.
            minimum_document_frequency, maximum_document_fraction, document_names, document_labels, metadata: as for
                `from_texts`.

        Raises:
            ValueError: a document that is no list of strings; and as `from_texts`.
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
        return cls._reported(found.counts, found.terms, names, document_labels, notes, None, metadata, found.dropped)

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
        """A data frame with a text in every row; its other columns stay beside the documents as `metadata`.

        Args:
            frame: a pandas DataFrame, or a table with `to_pandas()`: a Hugging Face `Dataset`, a Polars frame.
            text, id, label: the names of the columns with the texts, the documents' names (default: the frame's
                index) and their classes (default: none).
            keep: the columns of the metadata. Default: all but text and id; those whose values files cannot keep, such
                as lists, are left out, and a note says so.
            stop_words, minimum_document_frequency, maximum_document_fraction, token_pattern, ngram_range, tokenizer: as
                for `from_texts`.

        Raises:
            ValueError: no such column; a missing text, id or label; columns of `keep` that files cannot keep; and as
                `from_texts`.
        """
        analyzer = Analyzer(chosen_stop_words(stop_words), token_pattern, ngram_range=ngram_range, tokenizer=tokenizer)
        found = frame_documents(as_frame(frame), text, id, label, keep)
        limits = (minimum_document_frequency, maximum_document_fraction)
        return cls.of_documents(found, analyzer, *limits, strict=keep is not None)

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
        """A file, read as its ending says, or a folder. What is packed (.gz, .bz2, .xz, .zip) is unpacked.

        | ending | what it holds |
        |---|---|
        | .txt | a document per line |
        | .csv, .tsv, .jsonl, .json, .xlsx, .parquet, .feather | a table: `text`, `id`, `label`, `keep` as there |
        | .json, an array of strings | a document per string |
        | none, a folder that `save` or `lv.convert` wrote | a corpus, which stays there: its arrays are memory maps |
        | none, a folder with matrix.mtx, features.tsv, barcodes.tsv | single cells, as 10x Genomics writes them |
        | none, another folder, or a .zip of several files | a document per .txt file; folders in it are classes |
        | .ldac | counts, LDA-C; as all counts with a `vocabulary`, a file with a word per line or the words |
        | .mtx, .mm, .npz | counts, Matrix Market or SciPy (`save_npz`); `documents` are its "rows" or "columns" |
        | .h5ad | counts of an `AnnData`, those of `layer` |
        | .svmlight, .libsvm, .svm | counts, a class first on every line; `first_id`, 0 or 1, where it is not plain |
        | a name that begins with docword, or .uci | counts, as UCI's bags of words |

        Columns of a table are those of `from_frame`. Hidden files of a folder, and those of other endings, are left
        out, and notes name them. A vocabulary may also be gensim's dictionary as text (`Dictionary.save_as_text`).

        encoding: of texts and of the vocabulary. verify: of a corpus in a folder, whether to compare the checksums
        of all files, and not only lengths, numbers and the sum of the counts; None: where all hold at most a gibibyte.
        stop_words, token_pattern, ngram_range, tokenizer: of texts, as
        for `from_texts`. minimum_document_frequency, maximum_document_fraction: of texts as for `from_texts`, of counts
        as for `pruned`, whose stop_words counts know.

        Raises:
            FileNotFoundError: no such file.
            ValueError: an unknown ending; bytes of another encoding, with file and line; a table without `text=`, with
                the names of its columns; what is wrong in the file, with the line; see also `from_texts`, `Corpus`.
        """
        limits = (minimum_document_frequency, maximum_document_fraction)
        columns, of_counts = (text, id, label, keep), (documents != ROWS, first_id is not None, layer is not None)
        is_cut = (stop_words != ENGLISH, token_pattern, tokenizer, ngram_range != (1, 1))
        path = as_path("path", path)
        if is_array_folder(path):
            if any(option is not None for option in (*columns, vocabulary)) or any((*of_counts, *is_cut)):
                raise ValueError(
                    f"{path} holds a corpus; expected no text=, id=, label=, keep= or vocabulary=, and nothing that "
                    "says how files are read: they were when it was written"
                )
            corpus = cls.of_stored(open_stored(path, verify))
            return corpus._within(limits)
        if is_counts(path):
            refuse_text_options(path, columns, is_cut)
            found = counts_in(path, CountOptions(vocabulary, encoding, documents, first_id, layer))
            corpus = cls._reported(found.counts, found.vocabulary, found.names, found.labels, found.notes, None)
            corpus = corpus._with_metadata(Documents([], metadata=found.metadata))
            return corpus._within(limits)
        if vocabulary is not None or any(of_counts):
            raise ValueError(
                f"{path} holds texts, which bring their own words; expected no vocabulary=, documents=, first_id= or "
                "layer="
            )
        analyzer = Analyzer(chosen_stop_words(stop_words), token_pattern, ngram_range=ngram_range, tokenizer=tokenizer)
        return cls.of_documents(texts_in(path, *columns, encoding), analyzer, *limits, strict=keep is not None)

    @classmethod
    def of_documents(
        cls,
        documents: Documents,
        analyzer: Analyzer,
        minimum_document_frequency: int | None = None,
        maximum_document_fraction: float | int | None = None,
        *,
        metadata: Any = None,
        strict: bool = False,
    ) -> "Corpus":
        """Count the words of texts with what is known of each.

        analyzer: what cuts them. minimum_document_frequency, maximum_document_fraction: as for `from_texts`. metadata:
        a table that is kept whole. strict: whether every column of the documents' metadata must be kept; else a note
        names those that files cannot keep. Errors as for `from_texts`.
        """
        limits = (minimum_document_frequency, maximum_document_fraction)
        found = count_texts(documents.texts, analyzer, *limits)
        notes = (str(analyzer), *found.notes)
        names, labels = documents.names, documents.labels
        corpus = cls._reported(found.counts, found.terms, names, labels, notes, analyzer, metadata, found.dropped)
        return corpus._with_metadata(documents, strict)

    @classmethod
    def of(cls, data: Any) -> "Corpus":
        """A corpus as it is, or made of what is plainly one thing.

        Texts (a list, a Series, an array of strings), lists of words, counts as `from_matrix` takes them, gensim's
        bags, an `AnnData`, a table whose one column holds texts. Raises ValueError for anything else.
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
        if isinstance(data, str) or holds_texts(data) or (isinstance(data, list) and data and all(map(is_words, data))):
            return self.encode(data)
        corpus = Corpus.of(data)
        if corpus.n_terms != self.n_terms:
            raise ValueError(
                f"got documents over {corpus.n_terms} words, expected the {self.n_terms} of the training corpus: "
                "use training.encode(texts), or split one corpus"
            )
        if (isinstance(data, Corpus) or is_table(data)) and corpus.vocabulary != self.vocabulary:
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
        tokenizer: Tokenizer | None = None,
    ) -> "Corpus":
        """New texts in this vocabulary, cut as the texts of this corpus were; or lists of words, as they stand.

        Words outside the vocabulary are left out and reported in `.unknown` (also in the notes): among them those
        that were dropped here for being too rare or too common. A text of which nothing is known stays in place as
        an empty document. A corpus that came as counts cuts words by `Analyzer.for_vocabulary`. tokenizer: the function
        that cut the texts of this corpus, where it came out of a folder, which cannot keep functions.

        Raises:
            ValueError: a single string; a data frame (pass its column of texts); an element that is not a string; no
                texts; a tokenizer that a folder did not keep.
        """
        analyzer = self.analyzer or Analyzer.for_vocabulary(self.vocabulary)
        analyzer = analyzer if tokenizer is None else replace(analyzer, tokenizer=tokenizer, token_pattern=None)
        listed, cut = checked_documents(texts), analyzer
        if listed and all(map(is_words, listed)):  # words as they stand: no rule leaves any of them out
            runs = (1, 1) if self.analyzer is None else analyzer.ngram_range
            cut = Analyzer(None, ngram_range=runs, tokenizer=str.split, lowercase=False, normalize=False)
        counts, unknown, losses = encode_texts(
            count_terms(listed, cut), term_columns(self.vocabulary, cut), self.n_terms
        )
        names = as_strings("document_names", index_names(texts) if document_names is None else document_names)
        labels = as_strings("document_labels", document_labels)
        table = None if metadata is None else DocumentTable.from_frame(as_frame(metadata), strict=True)[0]
        notes, dropped = (str(unknown), *map(str, losses)), DroppedWords(losses)
        encoded = Corpus(counts, self.vocabulary, names, labels, notes, analyzer, unknown, table, dropped)
        if not encoded.n_empty_documents:
            return encoded
        empty = f"{encoded.n_empty_documents:,} of {len(encoded):,} documents hold no known word; kept in place"
        return replace(encoded, notes=(*encoded.notes, empty))
