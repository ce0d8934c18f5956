"""Any file of documents into a corpus on disk, without ever holding all of it."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from lvsearch.files.array_folders import is_array_folder, new_array_folder
from lvsearch.files.storage import refuse_existing
from lvsearch.reading.count_blocks import CountSource
from lvsearch.reading.document_table import BlockKind, TableColumn, as_kind, block_kind, joined_kind
from lvsearch.reading.opening import is_counts
from lvsearch.reading.readers import (
    canonical_counts,
    checked_texts,
    frequency_limits,
    kept_in_place,
    kept_words,
    no_words,
)
from lvsearch.reading.stored_corpus import CorpusWriter
from lvsearch.reading.tables import columns_in_words
from lvsearch.reading.text_blocks import TextSource
from lvsearch.reading.vocabulary import LETTERS, Analyzer, checked_vocabulary, chosen_stop_words, read_vocabulary
from lvsearch.reading.words_on_disk import WordFrequencies, WordFrequency


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
    stop_words: str | Iterable[str] | None = "english",
    minimum_document_frequency: int | None = None,
    maximum_document_fraction: float | int | None = None,
    token_pattern: str = LETTERS,
) -> Path:
    """Read a file of documents a block at a time and write it as a corpus into a new folder, for `lv.Corpus.open`.

    The corpus is that of `Corpus.open(source, …)`, but for Arrow's and Parquet's text columns that hold other things
    than text. Texts are read twice: for the words, whose numbers may take files of their own, and for the counts. In
    memory lie a block of documents, the vocabulary, and, of files with a line for every entry (Matrix Market, UCI),
    sixteen bytes for each document; temporary files go to the folder that `TMPDIR` names.

    Args:
        source: a file as for `Corpus.open`, or a folder of texts.
        folder: a new one, which appears when all is written.
        text, id, label, keep: names of columns, of tables.
        vocabulary: with counts, a file with a word per line, or the words.
        encoding: of texts and of the vocabulary.
        stop_words, minimum_document_frequency, maximum_document_fraction, token_pattern: of texts, as for `from_texts`.

    Returns `folder`. Raises FileNotFoundError for no such source, FileExistsError where `folder` holds something,
    ValueError as `Corpus.open` and `from_texts` do.
    """
    source, folder = Path(source), Path(folder)
    if not source.exists():
        raise FileNotFoundError(f"no file {source}")
    if is_array_folder(source):
        raise ValueError(f"{source} is written by lvsearch already; expected a file of documents, or a folder of texts")
    refuse_existing(folder)
    columns = (text, id, label, keep)
    if is_counts(source):
        if any(option is not None for option in columns):
            raise ValueError(f"{source} holds counts; expected no text=, id=, label= or keep=: they are of tables")
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = read_vocabulary(vocabulary, encoding)
        _convert_counts(source, folder, vocabulary)
        return folder
    if vocabulary is not None:
        raise ValueError(f"{source} holds texts, which bring their own words; expected no vocabulary=")
    analyzer = Analyzer(stop_words=chosen_stop_words(stop_words), token_pattern=token_pattern)
    texts = TextSource(source, text, id, label, None if keep is None else tuple(keep), encoding)
    limits = (minimum_document_frequency, maximum_document_fraction)
    _convert_texts(texts, folder, analyzer, *limits)
    return folder


def _convert_counts(source: Path, folder: Path, vocabulary: Collection[Any] | None) -> None:
    with new_array_folder(folder) as writer:
        into, width = CorpusWriter(writer), 1
        for block in CountSource(source, None if vocabulary is None else len(vocabulary)).blocks():
            into.add(block.counts, labels=block.labels)
            width = max(width, block.counts.shape[1])
        terms = checked_vocabulary(vocabulary, csr_array((1, width if vocabulary is None else max(width, 1))))
        into.finish(terms, _notes(into, len(terms)))


class _FirstLook(NamedTuple):
    """What one reading of all texts says. `kinds`: of the columns of the metadata, None for those that files cannot
    keep; `index`: name and kind of what names the rows."""

    words: tuple[str, ...]
    note: str
    kinds: dict[str, str | None] | None
    index: tuple[str, str] | None


def _convert_texts(
    source: TextSource,
    folder: Path,
    analyzer: Analyzer,
    minimum_document_frequency: int | None,
    maximum_document_fraction: float | int | None,
) -> None:
    look = _first_look(source, analyzer, minimum_document_frequency, maximum_document_fraction)
    kinds = look.kinds or {}
    left_out = [name for name, kind in kinds.items() if kind is None]
    if left_out and source.keep is not None:
        raise ValueError(
            f"got the column {left_out[0]!r}, whose values are no numbers, yes or no, times or text; expected such: "
            "files keep no other"
        )
    kept = {name: kind for name, kind in kinds.items() if kind is not None}
    vectorizer = analyzer.vectorizer().set_params(vocabulary=list(look.words))
    with new_array_folder(folder) as writer:
        into = CorpusWriter(writer)
        for block in source.blocks(as_text=[name for name, kind in kept.items() if kind == "text"]):
            counts = canonical_counts(csr_array(vectorizer.transform(block.texts)))
            into.add(counts, block.names, block.labels, _columns(block.metadata, kept, look.index))
        notes = [str(analyzer), look.note, *_notes(into, len(look.words))]
        if left_out:
            notes.append(f"metadata without {columns_in_words(left_out)}, whose values files cannot keep")
        stored = None if look.kinds is None else [*kept.items(), *([look.index] if look.index else [])]
        into.finish(look.words, notes, analyzer, stored, look.index is not None)


def _first_look(
    source: TextSource,
    analyzer: Analyzer,
    minimum_document_frequency: int | None,
    maximum_document_fraction: float | int | None,
) -> _FirstLook:
    kinds: dict[str, list[BlockKind]] | None = None
    index: list[BlockKind] = []
    index_name, n_texts = "", 0
    with WordFrequencies() as frequencies:
        for block in source.blocks():
            checked_texts(block.texts, first=n_texts)
            frequencies.add(_frequencies(block.texts, analyzer))
            n_texts += len(block.texts)
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
        least, most = frequency_limits(n_texts, minimum_document_frequency, maximum_document_fraction)
        words, n_terms, tokens_kept, tokens = [], 0, 0, 0
        for each in frequencies.all():
            n_terms, tokens = n_terms + 1, tokens + each.tokens
            if least <= each.documents <= most * n_texts:
                words.append(each.word)
                tokens_kept += each.tokens
    if not n_terms:
        raise ValueError(no_words(n_texts, "empty vocabulary; perhaps the documents only contain stop words", analyzer))
    note = kept_words(len(words), n_terms, least, most, n_texts, tokens_kept, tokens)
    joined = None if kinds is None else {name: joined_kind(each) for name, each in kinds.items()}
    named = (index_name, joined_kind(index) or "text") if index else None
    return _FirstLook(tuple(words), note, joined, named)


def _frequencies(texts: list[str], analyzer: Analyzer) -> Iterator[WordFrequency]:
    vectorizer = analyzer.vectorizer()
    try:
        counts = csr_array(vectorizer.fit_transform(texts))
    except ValueError:  # a block without a word
        return
    terms = vectorizer.get_feature_names_out().tolist()
    documents = np.bincount(counts.indices, minlength=len(terms)).tolist()
    tokens = np.bincount(counts.indices, weights=counts.data, minlength=len(terms)).tolist()
    for word, n_documents, n_tokens in zip(terms, documents, tokens, strict=True):
        yield WordFrequency(word, n_documents, int(n_tokens))


def _columns(metadata: pd.DataFrame | None, kinds: dict[str, str], index: tuple[str, str] | None) -> list[TableColumn]:
    """A block of the metadata, and of its index where there is one, in the kinds that all blocks have together."""
    if metadata is None:
        return []
    columns = [as_kind(name, pd.Series(metadata[name]), kind) for name, kind in kinds.items()]
    return columns if index is None else [*columns, as_kind(index[0], pd.Series(metadata.index), index[1])]


def _notes(into: CorpusWriter, n_terms: int) -> tuple[str, ...]:
    if not into.n_tokens:
        raise ValueError(f"got {into.n_documents:,} documents without a single token; expected counts above 0")
    return kept_in_place(into.n_empty, into.n_documents, into.n_unused(n_terms), n_terms)
