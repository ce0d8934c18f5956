"""The documents that `lvsearch search` is given: files, folders, standard input."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lvsearch.data.corpus import Corpus

STDIN = Path("-")
ENDINGS = {"lines": ".txt", "csv": ".csv", "tsv": ".tsv", "jsonl": ".jsonl"}
"""What `--format` calls the forms that file names say."""


def check_sources(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, and files that are not there, before anything heavy is imported.

    Raises ValueError and FileNotFoundError.
    """
    columns = (options.text_column, options.id_column, options.label_column, options.format)
    if options.vocabulary is not None and options.corpus is None:
        raise ValueError("got --vocabulary without --corpus: texts bring their own words")
    if options.corpus is not None and any(option is not None for option in columns):
        raise ValueError(
            "got --corpus with --text-column, --id-column, --label-column or --format: they are of --texts"
        )
    for path in (options.corpus, options.vocabulary):
        if path is not None and not path.is_file() and not (path is options.corpus and path.is_dir()):
            raise FileNotFoundError(f"no file {path}")
    if options.texts is not None and options.texts != STDIN and not options.texts.exists():
        raise FileNotFoundError(f"no file {options.texts}")


def read_corpus(options: argparse.Namespace) -> "Corpus":
    """The corpus that the options name. Raises ValueError for what is wrong with it, as `Corpus.open` does."""
    from lvsearch.data.corpus import Corpus
    from lvsearch.files.array_folders import is_array_folder
    from lvsearch.reading.opening import TEXTS, ending_of, is_counts, texts_of
    from lvsearch.reading.vocabulary import decoded, read_text, read_vocabulary

    text, id, label = options.text_column, options.id_column, options.label_column
    if options.corpus is not None:
        if is_counts(options.corpus) or options.corpus.is_dir():
            if options.corpus.is_dir() and not is_array_folder(options.corpus):
                raise ValueError(f"got --corpus {options.corpus}, a folder; expected one that lvsearch convert wrote")
            return Corpus.open(options.corpus, vocabulary=options.vocabulary, encoding=options.encoding)
        words = None if options.vocabulary is None else read_vocabulary(options.vocabulary, options.encoding)
        return Corpus.from_ldac(options.corpus, vocabulary=words)
    path = options.texts
    known = path != STDIN and (path.is_dir() or ending_of(path) in TEXTS)
    if known and options.format is None:
        return Corpus.open(path, text=text, id=id, label=label, encoding=options.encoding)
    if path != STDIN and is_counts(path):
        raise ValueError(f"got --texts {path}, a file of counts by its name; expected texts: say --corpus {path}")
    if path != STDIN and path.is_dir():
        raise ValueError(f"got --format {options.format} for a folder; expected a file")
    if path == STDIN:
        name, content = "standard input", decoded(sys.stdin.buffer.read(), "standard input", options.encoding)
    else:
        name, content = str(path), read_text(path, options.encoding)
    ending = ENDINGS[options.format or "lines"]
    return Corpus.of_documents(texts_of(content, name, ending, text, id, label, None))
