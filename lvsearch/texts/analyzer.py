"""Cut texts into words and terms, and decide which rule leaves a word out."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from lvsearch.models.plain_arguments import shortened_repr
from lvsearch.texts.letters import LEAST_LETTERS, compose, fold_case, has_digits, is_short, to_lower, words_of
from lvsearch.texts.stop_words import ENGLISH, english_stop_words, listed_stop_words

LEGACY_PATTERN = r"(?u)\b[^\W\d_]{3,}\b"
"""The pattern of words in version 0.1; corpora in folders of that version still name it."""


class Rule(StrEnum):
    """The reason why a word is left out before terms are counted; the value completes "words …"."""

    UNMATCHED = "that token_pattern does not match"
    STOP = "that are stop words"
    DIGITS = "with digits"
    SHORT = f"of fewer than {LEAST_LETTERS} letters"


class Cut(NamedTuple):
    """The words of a text in order, in the spelling of the text or lower-cased.

    words: the words that the analyzer found
    unmatched: other words, in places where `token_pattern` matched nothing
    """

    words: list[str]
    unmatched: list[str]


class MissingTokenizer(NamedTuple):
    """Stands for a tokenizer that a folder could not keep; calling it raises a ValueError that gives its name."""

    name: str

    def __call__(self, text: str) -> list[str]:
        raise ValueError(
            f"got texts for a corpus that was cut by the function {self.name}, which files cannot keep; expected "
            "encode(texts, tokenizer=…) with that function"
        )


@dataclass(frozen=True)
class Analyzer:
    """Turns texts into terms; it is kept with a corpus so that new texts are cut in the same way.

    Attributes:
        stop_words: a language ("english" is scikit-learn's list of 318 words), a tuple of words, or None. Stop words
            are themselves cut like texts, so "don't" also removes the "don" and "t" that are left of it.
        token_pattern: a regular expression; every match, or its one group, is a word. None: words as Unicode defines
            them (`letters.word_pattern`), without words with digits and, in alphabets, those of fewer than three
            letters.
        lowercase: True if texts are lower-cased first.
        ngram_range: (shortest, longest) runs of words that are terms.
        normalize: True if accents are composed (NFC), and words that differ in case alone are one ("STRASSE" and
            "straße"). False in corpora of version 0.1.
        tokenizer: a function from a text to its words, in place of `token_pattern`. It sees the text as it is, and only
            stop words are left out of its words.

    Raises:
        ValueError: an unknown list of stop words; a `token_pattern` that does not compile or has several groups; an
            `ngram_range` that is no pair of rising whole numbers from 1; a tokenizer beside a token_pattern.
    """

    stop_words: str | tuple[str, ...] | None = ENGLISH
    token_pattern: str | None = None
    lowercase: bool = True
    ngram_range: tuple[int, int] = (1, 1)
    normalize: bool = True
    tokenizer: Callable[[str], Iterable[str]] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop_words, str):
            listed_stop_words(self.stop_words)  # raises for a language that there is no list of
        low, high = self.ngram_range
        if not 1 <= low <= high:
            raise ValueError(
                f"got ngram_range={self.ngram_range}; expected two whole numbers, 1 <= first <= second, such as (1, 2)"
            )
        if self.token_pattern is None:
            return
        if self.tokenizer is not None:
            raise ValueError("got a tokenizer and a token_pattern; expected one of them: both cut texts into words")
        if not isinstance(self.token_pattern, str):
            raise ValueError(
                f"got token_pattern={shortened_repr(self.token_pattern)}, expected a regular expression as a text"
            )
        try:
            n_groups = re.compile(self.token_pattern).groups
        except re.error as error:
            raise ValueError(
                f"got token_pattern={self.token_pattern!r}, which does not compile ({error}); "
                "expected a regular expression that matches one word"
            ) from error
        if n_groups > 1:
            raise ValueError(
                f"got token_pattern={self.token_pattern!r} with {n_groups} groups; expected at most one, the word: "
                "write the others as (?:…)"
            )

    @classmethod
    def for_vocabulary(cls, vocabulary: Sequence[str]) -> "Analyzer":
        """Return an analyzer for a given vocabulary, by which every term of the vocabulary can be found in texts.

        Use it for counts that came without their analyzer. Words have two characters or more, but words of the
        vocabulary that look otherwise, such as "c++", are found too. If terms have several words, separated by blanks,
        runs of as many words are counted. Texts are lower-cased unless some term has capitals. English stop words are
        removed unless they are words of a term.
        """
        words = {word for term in vocabulary for word in term.split(" ") if word}
        lengths = [term.count(" ") + 1 for term in vocabulary]
        plain = re.compile(r"\w\w+")
        odd = sorted((word for word in words if not plain.fullmatch(word)), key=lambda word: (-len(word), word))
        pattern = "|".join([*(rf"(?<!\w){re.escape(word)}(?!\w)" for word in odd), r"\b\w\w+\b"])
        return cls(
            stop_words=tuple(sorted(english_stop_words().difference(words))),
            token_pattern=rf"(?u){pattern}",
            lowercase=all(term == term.lower() for term in vocabulary),
            ngram_range=(min(lengths, default=1), max(lengths, default=1)),
            normalize=False,
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Analyzer":
        """Return the analyzer that `to_json` encoded. One that version 0.1 encoded cuts texts as that version did.

        A tokenizer, which is kept only by name, becomes one that raises ValueError when it is called.
        """
        known: dict[str, Any] = {"ngram_range": (1, 1), "normalize": False, "tokenizer": None, **fields}
        stop_words, tokenizer = known["stop_words"], known["tokenizer"]
        known["stop_words"] = tuple(stop_words) if isinstance(stop_words, list) else stop_words
        known["ngram_range"] = tuple(known["ngram_range"])
        known["tokenizer"] = None if tokenizer is None else MissingTokenizer(tokenizer)
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data; of a tokenizer only the name is kept."""
        return {
            "stop_words": self.stop_words if isinstance(self.stop_words, str | None) else list(self.stop_words),
            "token_pattern": self.token_pattern,
            "lowercase": self.lowercase,
            "ngram_range": list(self.ngram_range),
            "normalize": self.normalize,
            "tokenizer": None if self.tokenizer is None else _name_of(self.tokenizer),
        }

    def cut_text(self, text: str) -> Cut:
        """Return the words of a text in order, before stop words and others are left out.

        Raises whatever the tokenizer raises, and ValueError if it returns other things than strings.
        """
        if self.tokenizer is not None:
            words = list(self.tokenizer(text))
            if not all(isinstance(word, str) for word in words):
                raise ValueError(f"got {words[:3]!r} from the tokenizer; expected a list of words, which are strings")
            return Cut([word for word in map(self._spelled, words) if word], [])
        text = self._spelled(text)
        return Cut(words_of(text), []) if self._pattern is None else _cut_by_pattern(self._pattern, text)

    def fold(self, word: str) -> str:
        """Return the folded form of a word, under which it is counted; spellings that differ in case alone share it."""
        return fold_case(word) if self.normalize and self.lowercase else word

    def rule(self, word: str) -> Rule | None:
        """Return the rule that leaves a word out, or None for a word that counts. word: as `fold` returns it."""
        if word in self._stop_words:
            return Rule.STOP
        if self.token_pattern is not None or self.tokenizer is not None:
            return None
        return Rule.DIGITS if has_digits(word) else Rule.SHORT if is_short(word) else None

    def terms(self, words: Sequence[str]) -> Sequence[str]:
        """Return the terms made of the words of a text: the words, or runs of them joined by blanks."""
        low, high = self.ngram_range
        if high == 1:
            return words
        starts = ((size, start) for size in range(low, high + 1) for start in range(len(words) - size + 1))
        return [" ".join(words[start : start + size]) for size, start in starts]

    def _spelled(self, text: str) -> str:
        """Return a text with accents composed and in lower case, as far as `normalize` and `lowercase` say so."""
        text = compose(text) if self.normalize else text
        if not self.lowercase:
            return text
        return compose(to_lower(text)) if self.normalize else text.lower()

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """The compiled `token_pattern`, or None."""
        return None if self.token_pattern is None else re.compile(self.token_pattern)

    @cached_property
    def _stop_words(self) -> frozenset[str]:
        """The folded stop words. They are cut like texts, and each is also kept whole."""
        listed = listed_stop_words(self.stop_words) if isinstance(self.stop_words, str) else self.stop_words or ()
        plain = self if self.tokenizer is None else Analyzer(None, None, self.lowercase, normalize=self.normalize)
        pieces = {self.fold(piece) for word in listed for piece in plain.cut_text(word).words}
        return frozenset(pieces | {self.fold(self._spelled(word)) for word in listed})

    def __str__(self) -> str:
        if self.tokenizer is not None:
            cut = f"words as the function {_name_of(self.tokenizer)} gives them"
        elif self.token_pattern is not None:
            cut = f"words match {self.token_pattern}"
        else:
            cut = "words of letters, their marks and digits, joined by underscores"
        runs = "" if self.ngram_range == (1, 1) else f"; terms are runs of {_range_in_words(*self.ngram_range)} words"
        stop_words = "no stop words"
        if self.stop_words == ENGLISH:
            stop_words = "scikit-learn's English stop words"
        elif isinstance(self.stop_words, str):
            stop_words = f"the {len(listed_stop_words(self.stop_words)):,} stop words of {self.stop_words}"
        elif self.stop_words:
            stop_words = f"{len(self.stop_words):,} stop words"
        return f"{cut}{', lower-cased' * self.lowercase}{runs}; {stop_words} removed"


def _cut_by_pattern(pattern: re.Pattern[str], text: str) -> Cut:
    """Return the matches of a pattern in a text as words, and the words of the text between the matches.

    pattern: a regular expression; if it has a group, the group is the word
    """
    words, between, end = [], [], 0
    for match in pattern.finditer(text):
        start, stop = match.span(pattern.groups)
        if start < stop:
            words.append(text[start:stop])
            between.append(text[end:start])
            end = stop
    between.append(text[end:])
    return Cut(words, [word for piece in between for word in words_of(piece)])


def _name_of(function: Callable[..., Any]) -> str:
    """Return the module and name of a function as text, such as "my_module.my_tokenizer"."""
    if isinstance(function, MissingTokenizer):
        return function.name
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}.{name}"


def _range_in_words(low: int, high: int) -> str:
    """Return a range of numbers in words, such as "2" or "1 to 3"."""
    return str(low) if low == high else f"{low} to {high}"
