"""Convert any file of documents to a corpus on disk, without holding all of it in memory."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from lvsearch.files.array_folders import is_array_folder, new_array_folder
from lvsearch.files.storage import refuse_existing
from lvsearch.models.plain_arguments import as_list, as_path
from lvsearch.reading.blocks import CountSource, TextSource
from lvsearch.reading.counts import ROWS, CountOptions, canonical_counts, kept_in_place
from lvsearch.reading.document_table import BlockKind, DocumentTable, TableColumn, as_kind, block_kind, joined_kind
from lvsearch.reading.opening import H5AD, NPZ, counts_in, ending_of, is_counts, refuse_text_options
from lvsearch.reading.other_libraries import is_tenx
from lvsearch.reading.stored_corpus import CorpusWriter, StoredParts, write_stored
from lvsearch.reading.vocabulary import checked_vocabulary
from lvsearch.tables.frames import columns_in_words
from lvsearch.texts.analyzer import ENGLISH, Analyzer, Rule, chosen_stop_words
from lvsearch.texts.choosing import NAMED_COMMON, Limits, WordFrequencies, WordFrequency, chosen_terms, pruned_terms
from lvsearch.texts.counting import checked_texts, count_terms, encode_texts, frequencies_of, term_columns


def convert(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    text: Any = None,
    id: Any = None,
    label: Any = None,
    keep: Iterable[Any] | None = None,
    vocabulary: str | os.PathLike[str] | Collection[Any] | None = None,
    encoding: str = "utf-8",
    documents: str = ROWS,
    first_id: int | None = None,
    layer: str | None = None,
    stop_words: str | Iterable[str] | None = ENGLISH,
    minimum_document_frequency: int | None = None,
    maximum_document_fraction: float | int | None = None,
    token_pattern: str | None = None,
    ngram_range: tuple[int, int] = (1, 1),
    tokenizer: Callable[[str], Iterable[str]] | None = None,
) -> Path:
    """Read a file of documents one block at a time and write it as a corpus to a new folder, for `lv.Corpus.open`.

    Use it for files that are larger than memory. The corpus is that of `Corpus.open(source, …)`; only text columns of
    Arrow and Parquet files that hold other things than text are read differently. Texts are read twice: once for the
    words, once for the counts. Memory holds a block of documents, the vocabulary, and for files with a line per entry
    (Matrix Market, UCI) sixteen bytes per document. Temporary files go to the folder that `TMPDIR` names.

    Args:
        source: a file as for `Corpus.open`, or a folder of texts.
        folder: a new folder, which appears when everything is written.
        text, id, label: for tables, the columns of the texts, of their names and of their classes.
        keep: for tables, the columns that become metadata; None for all others.
        vocabulary: for counts, a file with a word per line, or the words.
        encoding: the encoding of texts and of the vocabulary.
        documents: for a matrix of counts, whether documents are its "rows" or its "columns".
        first_id: for SVMlight files, the id of the first word, 0 or 1; None to infer it.
        layer: for AnnData files, the layer that holds counts; None for the matrix X.
        stop_words: for texts, a language, the words to leave out, or None.
        minimum_document_frequency: the least number of documents of a word that is kept. None: for texts a default by
            their number, for counts no limit.
        maximum_document_fraction: the greatest fraction of documents of a word that is kept. None: for texts a default
            by their number, for counts no limit.
        token_pattern: for texts, a regular expression of a word; None for words as Unicode defines them.
        ngram_range: for texts, (shortest, longest) runs of words that are counted.
        tokenizer: for texts, a function from a text to its words, in place of `token_pattern`.

    Returns `folder`. Raises FileNotFoundError if there is no source, FileExistsError if `folder` holds something, and
    ValueError for a file of another form and for options that do not fit it.
    """
    source, folder = as_path("source", source), as_path("folder", folder)
    if not source.exists():
        raise FileNotFoundError(f"no file {source}")
    if is_array_folder(source):
        raise ValueError(f"{source} is written by lvsearch already; expected a file of documents, or a folder of texts")
    refuse_existing(folder)
    columns = (text, id, label, keep)
    limits = (minimum_document_frequency, maximum_document_fraction)
    if is_counts(source):
        refuse_text_options(source, columns, (stop_words != ENGLISH, token_pattern, tokenizer, ngram_range != (1, 1)))
        _convert_counts(source, folder, CountOptions(vocabulary, encoding, documents, first_id, layer), limits)
        return folder
    if vocabulary is not None or documents != ROWS or first_id is not None or layer is not None:
        raise ValueError(
            f"{source} holds texts, which bring their own words; expected no vocabulary=, documents=, first_id= or "
            "layer="
        )
    analyzer = Analyzer(chosen_stop_words(stop_words), token_pattern, ngram_range=ngram_range, tokenizer=tokenizer)
    texts = TextSource(source, text, id, label, None if keep is None else tuple(as_list("keep", keep)), encoding)
    _convert_texts(texts, folder, analyzer, *limits)
    return folder


def _convert_counts(
    source: Path, folder: Path, options: CountOptions, limits: tuple[int | None, float | int | None]
) -> None:
    """Write the counts of a file as a corpus to a new folder, one block of documents at a time.

    source: the file, or a folder of 10x Genomics
    folder: the new folder
    options: how a person says that the file is to be read
    limits: (least number of documents, greatest fraction of documents) of a term that is kept
    """
    if is_tenx(source) or ending_of(source) in (NPZ, H5AD):
        _convert_whole(source, folder, options, limits)
        return
    words = options.words()
    counts = CountSource(source, None if words is None else len(words), options.documents, options.first_id)
    look = _find_kept_terms(counts, words, limits)
    with new_array_folder(folder) as writer:
        into, notes = CorpusWriter(writer), ()
        for block in counts.blocks():
            kept = block.counts if look is None else look.keep_columns(block.counts)
            into.add(kept, labels=block.labels)
            notes = block.notes
        terms = look.terms if look is not None else checked_vocabulary(words, csr_array((1, max(into.width, 1))))
        into.finish(terms, (*notes, *(() if look is None else look.notes), *_notes_on_empty(into, len(terms))))


class _KeptTerms(NamedTuple):
    """The terms of a file of counts that are kept.

    columns: their columns in the file, increasing, (terms,)
    terms: their names
    notes: sentences on the terms that are left out
    """

    columns: np.ndarray
    terms: tuple[str, ...]
    notes: tuple[str, ...]

    def keep_columns(self, counts: csr_array) -> csr_array:
        """Return the counts of the kept terms, (documents, kept terms), in canonical form.

        counts: a block of counts, (documents, terms up to the largest of the block)
        """
        width = max(counts.shape[1], int(self.columns.max()) + 1)
        wide = csr_array((counts.data, counts.indices, counts.indptr), shape=(counts.shape[0], width))
        return canonical_counts(wide[:, self.columns])


def _find_kept_terms(
    source: CountSource, words: Sequence[str] | None, limits: tuple[int | None, float | int | None]
) -> _KeptTerms | None:
    """Read a file of counts once to find the terms within limits. Return None if there are no limits.

    source: the file
    words: the vocabulary, or None
    limits: (least number of documents, greatest fraction of documents) of a term that is kept; None for no limit
    """
    if limits == (None, None):
        return None
    documents, tokens, n_documents = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    for block in source.blocks():
        width = max(block.counts.shape[1], len(documents))
        documents, tokens = (np.pad(each, (0, width - len(each))) for each in (documents, tokens))
        documents += np.bincount(block.counts.indices, minlength=width)
        tokens += np.bincount(block.counts.indices, weights=block.counts.data, minlength=width).astype(np.int64)
        n_documents += block.counts.shape[0]
    terms = checked_vocabulary(words, csr_array((1, max(len(documents), 1))))
    found = pruned_terms(terms, documents, tokens, n_documents, None, limits, most_listed=NAMED_COMMON)
    return _KeptTerms(found.columns, tuple(terms[place] for place in found.columns), found.notes)


def _convert_whole(
    source: Path, folder: Path, options: CountOptions, limits: tuple[int | None, float | int | None]
) -> None:
    """Write a file of counts that cannot be read in blocks as a corpus to a new folder.

    These are files of SciPy, AnnData and 10x Genomics. They are read into memory.

    limits: (least number of documents, greatest fraction of documents) of a term that is kept; None for no limit
    """
    found = counts_in(source, options)
    counts = canonical_counts(found.counts, found.vocabulary)
    terms, notes = checked_vocabulary(found.vocabulary, counts), found.notes
    if limits != (None, None):
        totals = np.asarray(counts.sum(axis=0, dtype=np.int64))
        frequencies = np.bincount(counts.indices, minlength=len(terms))
        chosen = pruned_terms(terms, frequencies, totals, counts.shape[0], None, limits)
        counts, notes = canonical_counts(counts[:, chosen.columns]), (*notes, *chosen.notes)
        terms = tuple(terms[place] for place in chosen.columns)
    table = None if found.metadata is None else DocumentTable.from_frame(found.metadata, strict=False)[0]
    names = None if found.names is None else tuple(found.names)
    empty, unused = int((np.diff(counts.indptr) == 0).sum()), len(terms) - len(np.unique(counts.indices))
    notes = (*notes, *kept_in_place(empty, counts.shape[0], unused, len(terms)))
    with new_array_folder(folder) as writer:
        write_stored(writer, StoredParts(counts, terms, names, found.labels, notes, None, table))


class _TextSummary(NamedTuple):
    """The result of the first reading of all texts.

    words: the vocabulary
    notes: sentences on the files and on words left out
    kinds: {column of the metadata: its kind, or None if files cannot keep the column}; None without metadata
    index: name and kind of the index of the metadata, or None
    """

    words: tuple[str, ...]
    notes: tuple[str, ...]
    kinds: dict[str, str | None] | None
    index: tuple[str, str] | None


def _convert_texts(
    source: TextSource,
    folder: Path,
    analyzer: Analyzer,
    minimum_document_frequency: int | None,
    maximum_document_fraction: float | int | None,
) -> None:
    """Write a file or folder of texts as a corpus to a new folder. It is read once for the words, then for the counts.

    source: the texts
    folder: the new folder
    analyzer: cuts texts into words
    minimum_document_frequency: the least number of documents of a term that is kept; None for the default
    maximum_document_fraction: the greatest fraction of documents of a term that is kept; None for the default
    """
    look = _summarise_texts(source, analyzer, minimum_document_frequency, maximum_document_fraction)
    kinds = look.kinds or {}
    left_out = [name for name, kind in kinds.items() if kind is None]
    if left_out and source.keep is not None:
        raise ValueError(
            f"got the column {left_out[0]!r}, whose values are no numbers, yes or no, times or text; expected such: "
            "files keep no other"
        )
    kept = {name: kind for name, kind in kinds.items() if kind is not None}
    columns = term_columns(look.words, analyzer)
    with new_array_folder(folder) as writer:
        into = CorpusWriter(writer)
        for block in source.blocks(as_text=[name for name, kind in kept.items() if kind == "text"]):
            encoded = encode_texts(count_terms(block.texts, analyzer), columns, len(look.words))
            counts = canonical_counts(encoded.counts)
            into.add(counts, block.names, block.labels, _columns(block.metadata, kept, look.index))
        notes = [*look.notes, *_notes_on_empty(into, len(look.words))]
        if left_out:
            notes.append(f"metadata without {columns_in_words(left_out)}, whose values files cannot keep")
        stored = None if look.kinds is None else [*kept.items(), *([look.index] if look.index else [])]
        into.finish(look.words, notes, analyzer, stored, look.index is not None)


def _summarise_texts(
    source: TextSource,
    analyzer: Analyzer,
    minimum_document_frequency: int | None,
    maximum_document_fraction: float | int | None,
) -> _TextSummary:
    """Read all texts once, and return the vocabulary and the kinds of the metadata's columns.

    source: the texts
    analyzer: cuts texts into words
    minimum_document_frequency: the least number of documents of a term that is kept; None for the default
    maximum_document_fraction: the greatest fraction of documents of a term that is kept; None for the default
    """
    kinds: dict[str, list[BlockKind]] | None = None
    index: list[BlockKind] = []
    index_name, n_texts, notes = "", 0, tuple[str, ...]()
    with ExitStack() as files:
        frequencies = files.enter_context(WordFrequencies())
        dropped = {rule: files.enter_context(WordFrequencies()) for rule in Rule}
        spellings: dict[str, Counter[str]] = defaultdict(Counter)
        for block in source.blocks():
            checked_texts(block.texts, first=n_texts)
            found = count_terms(block.texts, analyzer)
            frequencies.add(frequencies_of(found))
            for rule, words in found.dropped.items():
                dropped[Rule(rule)].add(WordFrequency(word, 0, n_tokens) for word, n_tokens in words.items())
            for word, others in found.spellings.items():
                spellings[word] += others
            n_texts, notes = n_texts + len(block.texts), block.notes  # the last block's notes cover all blocks
            if block.metadata is None:
                continue
            kinds = {} if kinds is None else kinds
            for name, column in block.metadata.items():
                kinds.setdefault(str(name), []).append(block_kind(str(name), column))
            if not isinstance(block.metadata.index, pd.RangeIndex):
                index_name = "" if block.metadata.index.name is None else str(block.metadata.index.name)
                index.append(block_kind(index_name, pd.Series(block.metadata.index)))
        if not n_texts:
            raise ValueError("got no texts; expected at least one document")
        chosen = chosen_terms(
            frequencies.all(),
            {rule: words.all() for rule, words in dropped.items()},
            spellings,
            analyzer,
            Limits.of_texts(n_texts, minimum_document_frequency, maximum_document_fraction),
            n_texts,
            most_listed=NAMED_COMMON,
        )
    joined = None if kinds is None else {name: joined_kind(each) for name, each in kinds.items()}
    named = (index_name, joined_kind(index) or "text") if index else None
    return _TextSummary(chosen.terms, (*notes, str(analyzer), *chosen.notes), joined, named)


def _columns(metadata: pd.DataFrame | None, kinds: dict[str, str], index: tuple[str, str] | None) -> list[TableColumn]:
    """Return a block of the metadata as columns of given kinds, with the index last if there is one.

    metadata: a data frame with a row per document of the block; None gives no columns
    kinds: {column: its kind}
    index: name and kind of the index, or None
    """
    if metadata is None:
        return []
    columns = [as_kind(name, pd.Series(metadata[name]), kind) for name, kind in kinds.items()]
    return columns if index is None else [*columns, as_kind(index[0], pd.Series(metadata.index), index[1])]


def _notes_on_empty(into: CorpusWriter, n_terms: int) -> tuple[str, ...]:
    """Return notes on empty documents and unused terms of a corpus that is being written.

    into: the writer, after the last document
    n_terms: the size of the vocabulary

    Raises ValueError if there is not a single token.
    """
    if not into.n_tokens:
        raise ValueError(f"got {into.n_documents:,} documents without a single token; expected counts above 0")
    return kept_in_place(into.n_empty, into.n_documents, into.n_unused(n_terms), n_terms)
