"""Read the documents that `lvsearch search` is given: files, folders or standard input."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lvsearch.data.corpus import Corpus

STDIN = Path("-")
"""The value of `--texts` that stands for standard input."""
ENDINGS = {"lines": ".txt", "csv": ".csv", "tsv": ".tsv", "jsonl": ".jsonl", "json": ".json"}
"""The file ending that each value of `--format` stands for."""


def check_sources(options: argparse.Namespace) -> None:
    """Raise ValueError for options of documents that do not go together, and FileNotFoundError for missing files.

    It imports nothing heavy, so that a mistake is answered at once.
    """
    columns = (options.text_column, options.id_column, options.label_column, options.format)
    if options.vocabulary is not None and options.corpus is None:
        raise ValueError("got --vocabulary without --corpus: texts bring their own words")
    if options.corpus is not None and any(option is not None for option in columns):
        raise ValueError(
            "got --corpus with --text-column, --id-column, --label-column or --format: they are of --texts"
        )
    for path in (options.corpus, options.vocabulary, options.seed_words):
        if path is not None and not path.is_file() and not (path is options.corpus and path.is_dir()):
            raise FileNotFoundError(f"no file {path}")
    if options.texts is not None and options.texts != STDIN and not options.texts.exists():
        raise FileNotFoundError(f"no file {options.texts}")


def read_seed_words(path: Path, encoding: str) -> dict[str, list[str]]:
    """Return {name of a topic: its words} from a file of seed words.

    path: a file whose lines are `name: word word …`, or, if its name ends in .json, a JSON object {name: [word, …]}.
    encoding: the encoding of the file.

    Raises ValueError for other contents and for a name that is there twice.
    """
    try:
        text = path.read_text(encoding=encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"{path} is not text in {encoding} ({error}); expected its encoding as --encoding") from error
    if path.suffix.lower() == ".json":
        pairs = _json_pairs(path, text)
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for line in lines:
            if ":" not in line:
                raise ValueError(f"{path} has the line {line[:60]!r}, expected name: word word …")
        pairs = [(name.strip(), words.split()) for name, _, words in (line.partition(":") for line in lines)]
    found = dict(pairs)
    if not found or len(found) < len(pairs) or "" in found:
        raise ValueError(f"{path} names {len(pairs)} topics, of which {len(found)} differ; expected one name for each")
    return found


def _json_pairs(path: Path, text: str) -> list[tuple[str, list[str]]]:
    """Return the pairs (name, words) of a JSON object; a name that is there twice is there twice."""
    import json

    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); expected an object {{name: [word, …]}}") from error
    is_object = isinstance(pairs, list) and all(isinstance(pair, tuple) for pair in pairs)
    if not is_object or not all(isinstance(ws, list) and all(isinstance(w, str) for w in ws) for _, ws in pairs):
        raise ValueError(f"{path} holds other JSON than an object {{name: [word, …]}} of words")
    return pairs


def read_corpus(options: argparse.Namespace) -> "Corpus":
    """Return the corpus that `--texts` or `--corpus` names, with rare, common and stop words left out as asked.

    Raises ValueError if the documents cannot be read in the way that the options state.
    """
    return _read_texts(options) if options.corpus is None else _read_counts(options)


def _read_counts(options: argparse.Namespace) -> "Corpus":
    """Return the corpus of `--corpus`: a file of word counts, or a folder that `lvsearch convert` wrote.

    A file with an unknown ending is read as LDA-C (lines `N id:count …`).
    """
    from lvsearch.data.corpus import Corpus
    from lvsearch.files.array_folders import is_array_folder
    from lvsearch.reading.opening import is_counts
    from lvsearch.reading.vocabulary import read_vocabulary

    if options.token_pattern is not None or options.ngram_range != (1, 1):
        raise ValueError("got --corpus with --token-pattern or --ngram-range: they cut --texts into words")
    is_known = is_counts(options.corpus)
    if options.corpus.is_dir() and not is_known and not is_array_folder(options.corpus):
        raise ValueError(
            f"got --corpus {options.corpus}, a folder; expected one that lvsearch convert wrote, or of 10x Genomics"
        )
    if is_known or options.corpus.is_dir():
        corpus = Corpus.open(
            options.corpus,
            vocabulary=options.vocabulary,
            encoding=options.encoding,
            documents=options.documents,
            first_id=options.first_id,
            layer=options.layer,
        )
    else:  # an unknown ending: LDA-C, which knows none of the options of the other forms
        if options.documents != "rows" or options.first_id is not None or options.layer is not None:
            raise ValueError(
                f"got --documents, --first-id or --layer for {options.corpus}, which is read as LDA-C; expected a "
                "matrix, SVMlight or .h5ad, by the ending of its name"
            )
        words = None if options.vocabulary is None else read_vocabulary(options.vocabulary, options.encoding)
        corpus = Corpus.from_ldac(options.corpus, vocabulary=words)
    # counts are pruned only where an option asks for it; texts below have limits by default
    limits = (options.minimum_document_frequency, options.maximum_document_fraction)
    if limits == (None, None) and options.stop_words is None:
        return corpus
    return corpus.pruned(
        stop_words=None if options.stop_words is None else stop_words_of(options),
        minimum_document_frequency=limits[0],
        maximum_document_fraction=limits[1],
    )


def _read_texts(options: argparse.Namespace) -> "Corpus":
    """Return the corpus of `--texts`, counted by words.

    The form is the one that `--format` or the file's name states; without either, each line is a document.
    """
    from lvsearch.data.corpus import Corpus
    from lvsearch.files.packed_files import decode_text, read_text
    from lvsearch.reading.opening import (
        TEXTS,
        documents_in_file,
        documents_in_string,
        ending_of,
        holds_text_files,
        is_counts,
    )
    from lvsearch.texts.analyzer import Analyzer, chosen_stop_words

    if options.documents != "rows" or options.first_id is not None or options.layer is not None:
        raise ValueError("got --texts with --documents, --first-id or --layer: they are of --corpus")
    path, columns = options.texts, (options.text_column, options.id_column, options.label_column, None)
    is_folder = path != STDIN and holds_text_files(path)
    if path != STDIN and path.is_file() and not path.stat().st_size:
        raise ValueError(f"got --texts {path}, an empty file; expected at least one document")
    if path != STDIN and is_counts(path):
        raise ValueError(f"got --texts {path}, a file of counts by its name; expected texts: say --corpus {path}")
    if is_folder and options.format is not None:
        raise ValueError(f"got --format {options.format} for a folder; expected a file")
    # from standard input, from a file whose ending says its form, or from a file whose form the options say
    if path == STDIN:
        name, content = "standard input", decode_text(sys.stdin.buffer.read(), "standard input", options.encoding)
        documents = documents_in_string(content, name, ENDINGS[options.format or "lines"], *columns)
    elif options.format is None and (is_folder or ending_of(path) in TEXTS):
        documents = documents_in_file(path, *columns, options.encoding)
    else:
        content = read_text(path, options.encoding)
        documents = documents_in_string(content, str(path), ENDINGS[options.format or "lines"], *columns)
    analyzer = Analyzer(
        chosen_stop_words(stop_words_of(options)), options.token_pattern, ngram_range=options.ngram_range
    )
    limits = (options.minimum_document_frequency, options.maximum_document_fraction)
    return Corpus.from_documents(documents, analyzer, *limits)


def stop_words_of(options: argparse.Namespace) -> "str | tuple[str, ...] | None":
    """Return the stop words that `--stop-words` states: the name of a language, the words of a file, or None.

    Without the option it is "english"; None leaves no words out.

    Raises ValueError for the name of a file that does not exist.
    """
    from lvsearch.reading.vocabulary import read_lines

    if options.stop_words is None:
        return "english"
    if options.stop_words == "none":
        return None
    path = Path(options.stop_words)
    if path.is_file():
        return tuple(word for word in map(str.strip, read_lines(path)) if word)
    if not options.stop_words.isalpha():
        raise ValueError(
            f"got --stop-words {options.stop_words}, but there is no such file; expected a file with a word per line, "
            "english, another language such as german, or none"
        )
    return options.stop_words
