"""Words: how a text is cut into them, and which of them a corpus knows."""

import codecs
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lvsearch.files.ordinary import read_ordinary
from lvsearch.files.string_arrays import StoredStrings
from lvsearch.models.plain_arguments import listed, shown

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import CountVectorizer
else:
    CountVectorizer = Any  # scikit-learn takes most of a second to import: only cutting texts into words does

LETTERS = r"(?u)\b[^\W\d_]{3,}\b"
"""Words of three letters or more; anything with a digit or an underscore in it is left out whole."""


def english_stop_words() -> frozenset[str]:
    """scikit-learn's list of 318 words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS


@dataclass(frozen=True)
class Analyzer:
    """How a text becomes words; kept with a corpus so that new texts are cut in the same way.

    Attributes:
        stop_words: "english" (scikit-learn's list of 318 words), a tuple of words, or None. Stop words are
            themselves cut by `token_pattern`, so "don't" also removes the "don" that the pattern leaves of it.
        token_pattern: a regular expression; every match is a word.
        lowercase: whether texts are lower-cased first.

    Raises:
        ValueError: another stop word list asked for by name; a `token_pattern` that does not compile.
    """

    stop_words: str | tuple[str, ...] | None = "english"
    token_pattern: str = LETTERS
    lowercase: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.stop_words, str) and self.stop_words != "english":
            raise ValueError(
                f"got stop_words={self.stop_words!r}; expected 'english', None or the words themselves; "
                "for another language pass its stop words as a list"
            )
        if not isinstance(self.token_pattern, str):
            raise ValueError(f"got token_pattern={shown(self.token_pattern)}, expected a regular expression as a text")
        try:
            re.compile(self.token_pattern)
        except re.error as error:
            raise ValueError(
                f"got token_pattern={self.token_pattern!r}, which does not compile ({error}); "
                "expected a regular expression that matches one word"
            ) from error

    @classmethod
    def for_vocabulary(cls, vocabulary: Sequence[str]) -> "Analyzer":
        """The analyzer for a vocabulary that came without one: no rule of ours may hide a word that is in it.

        Words of two characters or more; lower-cased unless some term has capitals; English stop words removed
        unless they are terms.
        """
        return cls(
            stop_words=tuple(sorted(english_stop_words().difference(vocabulary))),
            token_pattern=r"(?u)\b\w\w+\b",
            lowercase=all(term == term.lower() for term in vocabulary),
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Analyzer":
        """From its fields as JSON gives them, where tuples have become lists."""
        stop_words = fields["stop_words"]
        return cls(**{**fields, "stop_words": tuple(stop_words) if isinstance(stop_words, list) else stop_words})

    def vectorizer(self) -> CountVectorizer:
        """scikit-learn's vectoriser with these settings, unfitted, counting every word."""
        from sklearn.feature_extraction.text import CountVectorizer

        listed = english_stop_words() if self.stop_words == "english" else self.stop_words or ()
        cut = CountVectorizer(lowercase=self.lowercase, token_pattern=self.token_pattern).build_analyzer()
        stop_words = sorted({piece for word in listed for piece in cut(word)})
        return CountVectorizer(
            lowercase=self.lowercase, token_pattern=self.token_pattern, stop_words=stop_words or None, dtype=np.int64
        )

    def tokens(self) -> Callable[[str], list[str]]:
        """The function from a text to its words, in order, stop words removed."""
        return self.vectorizer().build_analyzer()

    def __str__(self) -> str:
        stop_words = {"english": "scikit-learn's English stop words", None: "no stop words"}.get(
            self.stop_words if isinstance(self.stop_words, str) or self.stop_words is None else "",
            f"{len(self.stop_words or ()):,} stop words",
        )
        return f"words match {self.token_pattern}{', lower-cased' * self.lowercase}; {stop_words} removed"


@dataclass(frozen=True)
class UnknownWords:
    """The words of encoded texts that are not in the vocabulary (stop words are not counted as words).

    Attributes:
        n_tokens: occurrences of unknown words.
        n_all_tokens: occurrences of all words, known and unknown.
        n_distinct: different unknown words.
        most_frequent: the up to ten most frequent (word, occurrences), ties in alphabetical order.
    """

    n_tokens: int
    n_all_tokens: int
    n_distinct: int
    most_frequent: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        if not self.n_tokens:
            return "every word is in the vocabulary"
        shown = ", ".join(f"{word} ({count:,})" for word, count in self.most_frequent)
        return (
            f"{self.n_tokens:,} of {self.n_all_tokens:,} tokens ({self.n_distinct:,} distinct words) are not in the "
            f"vocabulary and were left out; the most frequent: {shown}"
        )


def chosen_stop_words(stop_words: str | Iterable[str] | None) -> str | tuple[str, ...] | None:
    """As an `Analyzer` keeps them. ValueError for words that are not all strings."""
    if stop_words is None or isinstance(stop_words, str):
        return stop_words
    words = listed("stop_words", stop_words)
    if not all(isinstance(word, str) for word in words):
        raise ValueError("got stop words that are not all strings; expected 'english', a list of words or None")
    return tuple(sorted(set(words)))


MOST_UNNAMED = 10_000_000
"""Terms that are given names of ours: more are no vocabulary, and their names alone would fill the memory."""


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that stood there before; None where all are distinct."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def checked_vocabulary(vocabulary: Iterable[Any] | None, counts: Any) -> tuple[str, ...]:
    """The terms as strings, one per column of counts; "term0", "term1"… where there are none.

    Raises:
        ValueError: no terms; a single string; an unordered container; another number of terms than columns;
            a term that occurs twice.
    """
    n_columns = counts.shape[1]
    if vocabulary is None and n_columns > MOST_UNNAMED:
        raise ValueError(
            f"got counts with {n_columns:,} columns and no vocabulary; expected at most {MOST_UNNAMED:,} without one: "
            "number the terms that occur from 0 (ids that are hashes or row numbers leave the rest empty)"
        )
    if vocabulary is None:
        vocabulary = [f"term{column}" for column in range(n_columns)]
    if isinstance(vocabulary, str):
        raise ValueError(f"got the string {vocabulary[:40]!r} as vocabulary; expected a list of terms")
    if isinstance(vocabulary, Mapping | Set):
        raise ValueError(
            f"got a {type(vocabulary).__name__} as vocabulary, whose order is not the columns'; expected a list of "
            "terms, the first one naming column 0; for a CountVectorizer pass .get_feature_names_out()"
        )
    terms = tuple(str(term) for term in listed("vocabulary", vocabulary))
    if len(terms) != n_columns:
        raise ValueError(
            f"got a vocabulary of {len(terms):,} terms for counts with {n_columns:,} columns; expected one term per "
            "column; rows are documents: transpose a terms × documents matrix first"
        )
    if not terms:
        raise ValueError("got no terms (0 columns); expected at least one term")
    if len(set(terms)) < len(terms):
        first: dict[str, int] = {}
        for column, term in enumerate(terms):
            if first.setdefault(term, column) != column:
                raise ValueError(
                    f"got the term {term!r} twice in the vocabulary (columns {first[term]:,} and {column:,}); expected "
                    "distinct terms; add their columns up, or rename one"
                )
    return terms


def as_strings(what: str, values: Iterable[Any] | None) -> tuple[str, ...] | StoredStrings | None:
    """Names or labels as strings; None stays None, and those in files stay there.

    Raises:
        ValueError: a single string in place of a list.
    """
    if isinstance(values, str):
        raise ValueError(f"got the string {values[:40]!r} as {what}; expected a list with one entry per document")
    if isinstance(values, StoredStrings):
        return values
    return None if values is None else tuple(str(value) for value in listed(what, values))


def one_per_document(what: str, values: Iterable[Any] | None, counts: Any) -> tuple[str, ...] | StoredStrings | None:
    """Names or labels as strings, one for each row of counts; None stays None.

    Raises:
        ValueError: too few or too many of them; a single string in place of a list.
    """
    strings = as_strings(what, values)
    if strings is not None and len(strings) != counts.shape[0]:
        raise ValueError(f"got {len(strings):,} {what} for {counts.shape[0]:,} documents; expected one for each")
    return strings


def read_vocabulary(path: str | os.PathLike[str], encoding: str = "utf-8") -> tuple[str, ...]:
    """The terms of a text file, one per line; line n, counted from 0, names id n.

    Raises:
        ValueError: an empty line before the last term; bytes that are not of this encoding.
    """
    lines = [line.strip() for line in read_lines(path, encoding)]
    for number, term in enumerate(lines, start=1):
        if not term:
            raise ValueError(f"{path}, line {number}: got an empty line; expected one term per line, without gaps")
    return tuple(lines)


def read_lines(path: str | os.PathLike[str], encoding: str = "utf-8") -> list[str]:
    """The lines of a text file, without the empty ones at its end. Errors as for `read_text`."""
    text = read_text(path, encoding).rstrip(" \t\n")
    return text.split("\n") if text else []


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """A text file, every line ended by a line feed; one that ends in .gz is unpacked.

    Raises:
        ValueError: bytes that are not of this encoding, with the place of the first; an encoding there is none of; a
            .gz file that is none.
    """
    content = read_ordinary(path)
    if Path(path).suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: {error}; expected a file written by gzip, as its name says") from error
    return decoded(content, path, encoding)


def decoded(content: bytes, name: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Bytes as text, every line ended by a line feed; `name` is what messages call them. Errors as for `read_text`."""
    try:
        codec = codecs.lookup(encoding).name
        text = content.decode("utf-8-sig" if codec == "utf-8" else codec)
    except LookupError as error:
        raise ValueError(
            f"got encoding={encoding!r}, which Python does not know; expected one such as utf-8, latin-1 or cp1252"
        ) from error
    except UnicodeDecodeError as error:
        start = error.object.rfind(b"\n", 0, error.start) + 1
        line = error.object.count(b"\n", 0, start) + 1
        place = f"{_bytes(error.object[error.start : error.end])} in line {line}, byte {error.start - start + 1}"
        utf16 = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        guess = "it begins as UTF-16 does: encoding='utf-16'" if utf16 else "encoding='latin-1' or 'cp1252' are common"
        raise ValueError(
            f"{name}: got bytes that are not {encoding.upper()}: {place}; expected {encoding.upper()} text: "
            f"say what the file is in ({guess}; on the command line --encoding), or convert it (iconv -t UTF-8)"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bytes(content: bytes) -> str:
    return " ".join(f"0x{byte:02x}" for byte in content)
