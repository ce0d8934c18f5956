"""Count in how many documents each word is, and decide by limits on this number whether the word is kept.

The words are counted in files on disk if there are too many of them for the memory.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import IO, NamedTuple

from lvsearch.models.plain_arguments import real_number, whole_number

MOST_WORDS = 2_000_000
"""The number of distinct words in memory above which they are written to a file, in order."""


class WordFrequency(NamedTuple):
    """A word, the number of documents with it, and the number of its occurrences."""

    word: str
    documents: int
    tokens: int


class WordFrequencies:
    """Adds up the frequencies of words exactly, for any number of words. Use it in a `with` statement.

    Its temporary files are removed at the end of the `with`.

    most_words: the number of distinct words in memory above which they go to a file
    """

    def __init__(self, most_words: int = MOST_WORDS):
        self._most, self._here, self._runs = most_words, {}, []
        self._files = ExitStack()

    def __enter__(self) -> "WordFrequencies":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, found: Iterable[WordFrequency]) -> None:
        """Add the frequencies of words in some more documents. A word may be among them several times."""
        here: dict[str, tuple[int, int]] = self._here
        for word, documents, tokens in found:
            before = here.get(word, (0, 0))
            here[word] = (before[0] + documents, before[1] + tokens)
        if len(here) > self._most:
            run = self._files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115
            run.writelines(json.dumps((word, *here[word])) + "\n" for word in sorted(here))
            self._runs.append(run)
            here.clear()

    def all(self) -> Iterator[WordFrequency]:
        """Yield every word once with its total frequencies, in alphabetical order."""
        last = ((word, *self._here[word]) for word in sorted(self._here))
        for word, parts in groupby(merge(*map(_read_run, self._runs), last, key=itemgetter(0)), key=itemgetter(0)):
            each = list(parts)
            yield WordFrequency(word, sum(part[1] for part in each), sum(part[2] for part in each))


def _read_run(run: IO[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (word, documents, tokens) from a temporary file, from its beginning.

    Only one reader may use the file at a time.
    """
    run.seek(0)
    for line in run:
        word, documents, tokens = json.loads(line)
        yield word, documents, tokens


MANY = 200
"""The number of documents from which on rare and common words are left out by default."""


class Limits(NamedTuple):
    """Limits on the number of documents that a term must be in to be kept.

    least: the smallest number of documents; 1 is no limit
    most: the greatest fraction of the documents; 1 is no limit
    """

    least: int
    most: float

    @classmethod
    def of_texts(cls, n_texts: int, least: int | None, most: float | int | None) -> "Limits":
        """Return the limits for texts, with defaults that depend on the number of texts.

        By default there are no limits below 200 texts. From there on `least` is a hundredth of the texts but at most 5,
        and `most` is a half.

        n_texts: the number of texts
        least: the smallest number of documents of a term; None for the default
        most: the greatest fraction of documents of a term; None for the default

        Raises ValueError for a limit out of range.
        """
        many = n_texts >= MANY
        return cls.checked(
            least if least is not None else min(5, n_texts // 100) if many else 1,
            most if most is not None else 0.5 if many else 1.0,
        )

    @classmethod
    def of_counts(cls, least: int | None, most: float | int | None) -> "Limits":
        """Return the limits for counts, without defaults: None is no limit.

        least: the smallest number of documents of a term
        most: the greatest fraction of documents of a term

        Raises ValueError for a limit out of range.
        """
        return cls.checked(1 if least is None else least, 1.0 if most is None else most)

    @classmethod
    def checked(cls, least: int, most: float | int) -> "Limits":
        """Return the limits after checking them. Raises ValueError for a limit out of range."""
        return cls(
            whole_number("minimum_document_frequency", least, least=1),  # 1: no limit
            real_number("maximum_document_fraction", most, above=0, most=1),  # 1: no limit
        )

    def rule(self, n_documents_of_term: int, n_documents: int) -> str | None:
        """Return the words for the limit that leaves a term out, completing "words …"; None for a term that is kept.

        n_documents_of_term: the number of documents with the term
        n_documents: the number of all documents
        """
        if n_documents_of_term < self.least:
            return self.rare
        return self.common if n_documents_of_term > self.most * n_documents else None

    @property
    def rare(self) -> str:
        """The words for the lower limit, such as "in fewer than 5 documents"."""
        return f"in fewer than {self.least:,} documents"

    @property
    def common(self) -> str:
        """The words for the upper limit, such as "in more than 50% of the documents"."""
        return f"in more than {self.most:.0%} of the documents"
