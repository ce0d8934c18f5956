"""Choose which terms of texts are kept and how they are spelled, and list every word that is left out.

Terms are kept by limits on the number of documents that they are in. The documents are counted in files on disk if
there are too many words for the memory.

The list has the words by the rule that left them out, with their numbers of tokens. A rule is the reason why a word is
left out; its text completes "words …", such as "that are stop words".
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import IO, NamedTuple

import numpy as np
import pandas as pd

from lvsearch.models.plain_arguments import real_number, whole_number
from lvsearch.texts.analyzer import Analyzer, Rule, is_uncut, is_unspaced

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


UNCUT_SHARE = 0.2
"""The share of long tokens in scripts without blanks above which a note says that texts seem not to be cut into
words.
"""


class ChosenTerms(NamedTuple):
    """The terms that are kept.

    terms: the terms in their most frequent spelling, in alphabetical order
    folded: the folded form of each term, shared by spellings that differ in case alone
    notes: sentences on how many were kept, and what was left out
    dropped: all words that were left out
    """

    terms: tuple[str, ...]
    folded: tuple[str, ...]
    notes: tuple[str, ...]
    dropped: DroppedWords


def chosen_terms(
    frequencies: Iterable[WordFrequency],
    dropped: Mapping[str, Iterable[WordFrequency]],
    spellings: Mapping[str, Mapping[str, int]],
    analyzer: Analyzer,
    limits: Limits,
    n_texts: int,
    most_listed: int | None = None,
) -> ChosenTerms:
    """Choose the terms that are in enough documents and not in too many, and list all that is left out.

    Args:
        frequencies: the frequencies of all terms, in folded form, each term once.
        dropped: {rule: frequencies of the words that it left out before terms were made}.
        spellings: {folded word: {other spelling: how often}}.
        analyzer: the analyzer that cut the texts, for messages.
        limits: how many documents a term must and may be in.
        n_texts: the number of documents.
        most_listed: how many words each loss lists; None for all of them.

    Raises:
        ValueError: there are no words, or none is kept.
    """
    # 1. words that were left out before terms were made
    tallies = {rule: Tally(NAMED, most_listed) for rule in Rule}
    for rule, words in dropped.items():
        for word, _, n_tokens in words:
            tallies[Rule(rule)].add(word, n_tokens)
    losses: list[tuple[str, Tally]] = [(rule, tally) for rule, tally in tallies.items() if tally.n_words]
    # 2. terms, which are kept or left out by the number of their documents
    rare, common = Tally(NAMED, most_listed), Tally(NAMED_COMMON, most_listed)
    kept: list[str] = []
    n_tokens_kept, n_terms, tokens_of_spelled, uncut = 0, 0, dict[str, int](), UncutWords()
    for term, n_documents, n_tokens in frequencies:
        n_terms += 1
        uncut.add(term, n_tokens)
        if term in spellings:
            tokens_of_spelled[term] = n_tokens
        rule = limits.rule(n_documents, n_texts)
        if rule is None:
            kept.append(term)
            n_tokens_kept += n_tokens
        else:
            (rare if rule == limits.rare else common).add(term, n_tokens)
    if not n_terms:
        raise ValueError(no_words(n_texts, analyzer, [tally.loss(rule, str) for rule, tally in losses]))
    # 3. the account, in usual spelling
    spelled = spelling_of(spellings, tokens_of_spelled)
    losses += [(rule, tally) for rule, tally in ((limits.rare, rare), (limits.common, common)) if tally.n_words]
    account = DroppedWords(tuple(tally.loss(rule, spelled) for rule, tally in losses))
    ordered = sorted((spelled(term), term) for term in kept)
    notes = (
        kept_words(len(kept), n_tokens_kept, account, limits, n_texts),
        *account.notes(),
        *uncut.notes(),
    )
    return ChosenTerms(tuple(term for term, _ in ordered), tuple(folded for _, folded in ordered), notes, account)


class PrunedTerms(NamedTuple):
    """The columns of a matrix of counts that are kept.

    columns: their numbers, increasing, (kept terms,)
    notes: sentences on what was left out
    dropped: all words that were left out
    """

    columns: np.ndarray
    notes: tuple[str, ...]
    dropped: DroppedWords


def pruned_terms(
    terms: Sequence[str],
    documents: np.ndarray,
    tokens: np.ndarray,
    n_documents: int,
    stop_words: str | tuple[str, ...] | None,
    limits: tuple[int | None, float | int | None],
    most_listed: int | None = None,
) -> PrunedTerms:
    """Choose the terms of a matrix of counts that are no stop words, in enough documents and not in too many.

    Args:
        terms: a name for each column.
        documents: the number of documents with each term, (terms,).
        tokens: the number of occurrences of each term, (terms,).
        n_documents: the number of all documents.
        stop_words: a language, the words, or None.
        limits: (smallest number of documents, greatest fraction of documents) of a term; None for no limit. Terms in no
            document are left out only if a smallest number is given.
        most_listed: how many words each loss lists; None for all of them.

    Raises:
        ValueError: a limit is out of range, or no term is kept.
    """
    bounds = Limits.of_counts(*limits)
    analyzer = Analyzer(stop_words, token_pattern=r"\S+")
    stopped: list[WordFrequency] = []
    others: list[WordFrequency] = []
    for word in map(WordFrequency, terms, documents.tolist(), tokens.tolist()):
        if analyzer.rule(analyzer.fold(word.word.lower())) is not None:
            stopped.append(word)
        elif not word.documents and limits[0] is None:
            others.append(word._replace(documents=bounds.least))  # kept in place
        else:
            others.append(word)
    chosen = chosen_terms(others, {Rule.STOP: stopped}, {}, analyzer, bounds, n_documents, most_listed)
    column = {term: place for place, term in enumerate(terms)}
    columns = np.array(sorted(column[term] for term in chosen.terms), np.int64)
    return PrunedTerms(columns, chosen.notes, chosen.dropped)


class UncutWords:
    """Notices texts that were not cut into words, in scripts without blanks between words, such as Chinese."""

    def __init__(self) -> None:
        self._n_tokens, self._long, self._example = 0, 0, ""

    def add(self, term: str, n_tokens: int) -> None:
        """Add a term with the number of its occurrences."""
        if term.isascii() or not is_unspaced(term):
            return
        self._n_tokens += n_tokens
        if is_uncut(term):
            self._long, self._example = self._long + n_tokens, self._example or term

    def notes(self) -> tuple[str, ...]:
        """Return one note if over a fifth of the tokens in such scripts are as long as phrases; else none."""
        if self._long <= UNCUT_SHARE * self._n_tokens:
            return ()
        return (
            f"{self._long:,} of {self._n_tokens:,} tokens in scripts without blanks between words are as long as "
            f"phrases, such as {self._example!r}: cut the texts into words first (tokenizer=, or Corpus.from_tokens)",
        )


def spelling_of(spellings: Mapping[str, Mapping[str, int]], tokens: Mapping[str, int]) -> Callable[[str], str]:
    """Return a function from a folded term to its most frequent spelling; of ties the alphabetically first is taken.

    spellings: {folded word: {other spelling: how often}}
    tokens: {folded word: occurrences in all spellings together}
    """
    chosen: dict[str, str] = {}
    for word, others in spellings.items():
        counts = Counter(others)
        counts[word] += max(tokens.get(word, 0) - counts.total(), 0)
        chosen[word] = min(counts, key=lambda spelling: (-counts[spelling], spelling))
    if not chosen:
        return str
    return lambda term: " ".join(chosen.get(word, word) for word in term.split(" "))


def no_words(n_texts: int, analyzer: Analyzer, losses: Iterable[Loss]) -> str:
    """Return the message for texts without a single word that the analyzer counts.

    losses: the words that were left out, one entry per rule
    """
    why = "; ".join(map(str, losses)) or "they hold no letters"
    what = "tokenizer" if analyzer.tokenizer is not None else "token_pattern"
    return (
        f"got {n_texts:,} texts without a single word ({why}); expected words that are not stop words: change {what} "
        "or stop_words"
    )


def kept_words(n_kept: int, n_tokens: int, dropped: DroppedWords, limits: Limits, n_texts: int) -> str:
    """Return the note that says how many words and tokens were kept.

    n_kept, n_tokens: the number of terms that are kept, and of their occurrences
    dropped: all words that were left out
    limits: how many documents a term must and may be in
    n_texts: the number of documents

    Raises ValueError if no word was kept.
    """
    n_words = n_kept + sum(loss.n_words for loss in dropped.losses)
    if not n_kept:
        raise ValueError(
            f"got no word in at least {limits.least} and at most {limits.most:.0%} of {n_texts:,} documents (of "
            f"{n_words:,} distinct words); expected some; lower minimum_document_frequency or raise "
            "maximum_document_fraction"
        )
    return (
        f"kept {n_kept:,} of {n_words:,} words, {n_tokens:,} of {n_tokens + dropped.n_tokens:,} tokens, with terms in "
        f"at least {limits.least} and at most {limits.most:.0%} of the documents"
    )
