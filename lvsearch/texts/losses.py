"""List the words that were left out when texts were counted, with their numbers of tokens, by rule.

A rule is the reason why a word is left out; its text completes "words …", such as "that are stop words".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

NAMED = 10
"""The number of words that a note names; they are the most frequent ones."""
NAMED_COMMON = 50
"""The number of words in too many documents that a note names.

It is larger than `NAMED`, since these words may be what the texts are about.
"""


class Loss(NamedTuple):
    """The words that one rule left out.

    rule: completes "words …", such as "of fewer than 3 letters"
    n_words, n_tokens: the number of distinct words, and of their occurrences
    words: each word with its occurrences, the most frequent first; only the first `NAMED_COMMON` if texts were counted
        on disk
    shown: how many of the words a note names
    """

    rule: str
    n_words: int
    n_tokens: int
    words: tuple[tuple[str, int], ...]
    shown: int = NAMED

    def __str__(self) -> str:
        words = ", ".join(f"{word} ({count:,})" for word, count in self.words[: self.shown])
        more = self.n_words - min(self.shown, len(self.words))
        return (
            f"left out {_with_noun(self.n_tokens, 'token')} of {_with_noun(self.n_words, 'word')} {self.rule}: {words}"
            f"{f' and {more:,} more' if more else ''}"
        )


@dataclass(frozen=True)
class DroppedWords:
    """Every word that was left out when texts were counted.

    Attributes:
        losses: the words left out by each rule that left some out, in the order in which rules are applied.
    """

    losses: tuple[Loss, ...] = ()

    @property
    def n_tokens(self) -> int:
        """The number of occurrences of all words that were left out."""
        return sum(loss.n_tokens for loss in self.losses)

    def table(self) -> pd.DataFrame:
        """Return a table with a row for each word that was left out: `word`, `tokens` (its occurrences) and `rule`."""
        rows = [(word, tokens, loss.rule) for loss in self.losses for word, tokens in loss.words]
        return pd.DataFrame(rows, columns=["word", "tokens", "rule"])

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each rule that left words out, with the most frequent of these words."""
        return tuple(map(str, self.losses))


class Tally:
    """Counts the words that one rule leaves out, and lists the most frequent ones.

    shown: how many words the note of the loss names
    most_listed: how many words are kept, at least `shown`; None for all
    """

    def __init__(self, shown: int, most_listed: int | None):
        self._shown, self._most = shown, most_listed
        self._words: list[tuple[str, int]] = []
        self.n_words, self.n_tokens = 0, 0

    def add(self, word: str, n_tokens: int) -> None:
        """Add a word with the number of its occurrences. Each word may be added once only."""
        self.n_words, self.n_tokens = self.n_words + 1, self.n_tokens + n_tokens
        self._words.append((word, n_tokens))
        if self._most is not None and len(self._words) > 64 * self._most:
            self._words = self._ordered()[: self._most]

    def loss(self, rule: str, spelled: Callable[[str], str]) -> Loss:
        """Return the loss of a rule: how many words and tokens were added, and the most frequent of these words.

        At most `most_listed` words are listed, most frequent first, each with its occurrences.

        rule: completes "words …", such as "of fewer than 3 letters"
        spelled: a function from a word as it was added to its spelling for people
        """
        words = tuple((spelled(word), n_tokens) for word, n_tokens in self._ordered()[: self._most])
        return Loss(rule, self.n_words, self.n_tokens, words, self._shown)

    def _ordered(self) -> list[tuple[str, int]]:
        """Return the words, most frequent first."""
        return sorted(self._words, key=lambda item: (-item[1], item[0]))


def losses_of(counts: Mapping[str, Mapping[str, int]], rules: Iterable[str]) -> tuple[Loss, ...]:
    """Return the words left out by each rule that left some out, in the order of `rules`.

    counts: {rule: {word: occurrences}}
    """
    losses = []
    for rule in rules:
        tally = Tally(NAMED, None)
        for word, n_tokens in counts.get(rule, {}).items():
            tally.add(word, n_tokens)
        if tally.n_words:
            losses.append(tally.loss(rule, str))
    return tuple(losses)


def _with_noun(number: int, noun: str) -> str:
    """Return a number with its noun, such as "3 words"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
