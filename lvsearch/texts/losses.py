"""What was left out on the way from texts to counts: which words, how many tokens, by which rule."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

NAMED = 10
"""Words that a note names, the most frequent ones."""
NAMED_COMMON = 50
"""The same of words that are in too many documents: they may be what the texts are about."""


class Loss(NamedTuple):
    """The words that one rule left out.

    rule: completes "words …", such as "of fewer than 3 letters". n_words, n_tokens: how many, and how often they
    occur in all. words: each word with its occurrences, the most frequent first; all of them, or the first
    `NAMED_COMMON` where texts were counted on disk. shown: how many of these a note names.
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
            f"left out {_numbered(self.n_tokens, 'token')} of {_numbered(self.n_words, 'word')} {self.rule}: {words}"
            f"{f' and {more:,} more' if more else ''}"
        )


@dataclass(frozen=True)
class DroppedWords:
    """Every word that texts lost on the way to counts.

    Attributes:
        losses: one for each rule that left something out, in the order in which rules are applied.
    """

    losses: tuple[Loss, ...] = ()

    @property
    def n_tokens(self) -> int:
        """Occurrences of all words that were left out."""
        return sum(loss.n_tokens for loss in self.losses)

    def table(self) -> pd.DataFrame:
        """A row for each word that was left out: `word`, `tokens` (its occurrences) and `rule`."""
        rows = [(word, tokens, loss.rule) for loss in self.losses for word, tokens in loss.words]
        return pd.DataFrame(rows, columns=["word", "tokens", "rule"])

    def notes(self) -> tuple[str, ...]:
        """A sentence for each rule, which names the most frequent words."""
        return tuple(map(str, self.losses))


class Tally:
    """Counts words of one rule and lists the most frequent ones.

    shown: words that the note of the loss names. most_listed: words that are kept, at least `shown`; None for all.
    """

    def __init__(self, shown: int, most_listed: int | None):
        self._shown, self._most = shown, most_listed
        self._words: list[tuple[str, int]] = []
        self.n_words, self.n_tokens = 0, 0

    def add(self, word: str, n_tokens: int) -> None:
        """One more word, which has not been added before."""
        self.n_words, self.n_tokens = self.n_words + 1, self.n_tokens + n_tokens
        self._words.append((word, n_tokens))
        if self._most is not None and len(self._words) > 64 * self._most:
            self._words = self._ordered()[: self._most]

    def loss(self, rule: str, spelled: Callable[[str], str]) -> Loss:
        """All that was added; `spelled`: from a folded word to its spelling."""
        words = tuple((spelled(word), n_tokens) for word, n_tokens in self._ordered()[: self._most])
        return Loss(rule, self.n_words, self.n_tokens, words, self._shown)

    def _ordered(self) -> list[tuple[str, int]]:
        return sorted(self._words, key=lambda item: (-item[1], item[0]))


def losses_of(counts: Mapping[str, Mapping[str, int]], rules: Iterable[str]) -> tuple[Loss, ...]:
    """The losses by rule, in the order of `rules`; counts: occurrences by rule and word."""
    losses = []
    for rule in rules:
        tally = Tally(NAMED, None)
        for word, n_tokens in counts.get(rule, {}).items():
            tally.add(word, n_tokens)
        if tally.n_words:
            losses.append(tally.loss(rule, str))
    return tuple(losses)


def _numbered(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
