"""Count in how many documents each word is, in files on disk if there are too many words for the memory."""

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import IO, NamedTuple

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
