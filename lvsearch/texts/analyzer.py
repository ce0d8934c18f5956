r"""Cut texts into words and terms, and decide which rule leaves a word out.

A word consists of letters of any script with their marks. Python's `\w` does not include combining marks: the vowel
signs of Hindi and Thai, the vowel marks of Arabic and Hebrew, accents that stand alone. They are added here. A mark
never begins a word (Unicode Standard Annex 29). It is also known here which scripts write short words.

Lists of stop words, the frequent words such as "the" that every text has, are looked up by language.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from importlib import import_module
from itertools import accumulate
from numbers import Integral
from typing import Any, NamedTuple

from lvsearch.files.plain_text import JOINERS
from lvsearch.models.plain_arguments import as_list, shortened_repr

LEAST_LETTERS = 3
"""Shorter words of an alphabet are mostly grammar ("of"); in other scripts words of one character have meaning."""
ALPHABETS = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "COPTIC", "FULLWIDTH"})
"""The first words of the Unicode names of letters, in scripts that write every vowel as a letter of its own."""
UNSPACED = frozenset({"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"})
"""The first words of the Unicode names of letters, in scripts that put no blanks between words."""
LONGEST_UNSPACED, LONGEST_HAN = 10, 5
"""The longest word of such a script, in characters, and of Chinese characters; longer ones are mostly phrases.

Most words of Chinese characters have one to four of them.
"""


@cache
def word_pattern() -> re.Pattern[str]:
    """Return the regular expression of a word: letters, marks and digits, joined by underscores inside the word."""
    marks = "".join(_as_ranges(code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"))
    piece = rf"[^\W_]+(?:(?:[{marks}]+|[{JOINERS}]+(?=[^\W_]))[^\W_]*)*"
    return re.compile(rf"{piece}(?:_+{piece})*")


@cache
def ascii_word_pattern() -> re.Pattern[str]:
    """Return the regular expression of a word in texts of ASCII characters alone. It takes half the time."""
    return re.compile(r"[^\W_]+(?:_+[^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Return the words of a text in order: runs of letters, their marks and digits."""
    return pattern_for(text).findall(text)


def pattern_for(text: str) -> re.Pattern[str]:
    """Return the pattern of a word that finds the words of this text: a faster one if the text is ASCII."""
    return ascii_word_pattern() if text.isascii() else word_pattern()


def compose(text: str) -> str:
    """Compose letters and their marks (NFC), and remove soft hyphens, which only say where a line may break."""
    return text if text.isascii() else unicodedata.normalize("NFC", text).replace("\u00ad", "")


def to_lower(text: str) -> str:
    """Return the text in lower case. The Turkish capital İ becomes i; Python alone would leave a dot behind."""
    return text.replace("\u0130", "i").lower()


def fold_case(word: str) -> str:
    """Return the folded form of a word, common to all spellings by case: "strasse" for "Straße" and "STRASSE"."""
    return word if word.isascii() else unicodedata.normalize("NFC", word.casefold())


def has_digits(word: str) -> bool:
    """Return True if a word has a digit or another number sign, such as "½", in it."""
    return any(character.isalnum() and not character.isalpha() for character in word)


def is_short(word: str) -> bool:
    """Return True for a word with fewer than three letters in a script where such words mean little (`ALPHABETS`)."""
    letters = [character for character in word if character.isalpha()]
    return len(letters) < LEAST_LETTERS and any(_script(letter) in ALPHABETS for letter in letters)


def is_uncut(word: str) -> bool:
    """Return True if a word is so long, in a script without blanks between words, that it is probably several words."""
    script = _script(word[0])
    return script in UNSPACED and len(word) > (LONGEST_HAN if script == "CJK" else LONGEST_UNSPACED)


def is_unspaced(word: str) -> bool:
    """Return True if a word begins in a script without blanks between words."""
    return _script(word[0]) in UNSPACED


@cache
def _script(character: str) -> str:
    """Return the first word of a character's Unicode name, which for letters is their script."""
    return unicodedata.name(character, "").replace("-", " ").partition(" ")[0]


def _as_ranges(codes: Iterable[int]) -> Iterable[str]:
    """Yield increasing code points as ranges such as "\\U00000300-\\U0000036f", for a regular expression's class."""
    first = last = -2
    for code in (*codes, -2):
        if code == last + 1:
            last = code
            continue
        if first >= 0:
            yield rf"\U{first:08x}-\U{last:08x}"
        first = last = code


ENGLISH = "english"
"""The language of the default list."""


def english_stop_words() -> frozenset[str]:
    """Return scikit-learn's list of 318 English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # takes most of a second to import

    return ENGLISH_STOP_WORDS


@cache
def listed_stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language: scikit-learn's for "english", else those of the package `stop-words`.

    Raises ValueError if the package is not installed, or does not have the language.
    """
    if language == ENGLISH:
        return english_stop_words()
    try:
        package: Any = import_module("stop_words")  # an extra
    except ImportError as error:
        raise ValueError(
            f"got stop_words={language!r}; expected 'english', None or the words themselves; lists of other languages "
            "come with: pip install 'lvsearch[stop-words]'"
        ) from error
    try:
        return frozenset(package.get_stop_words(language))
    except package.StopWordError as error:
        raise ValueError(
            f"got stop_words={language!r}; expected 'english', None, the words themselves, or one of "
            f"{', '.join(package.AVAILABLE_LANGUAGES)}"
        ) from error


def chosen_stop_words(stop_words: str | Iterable[str] | None) -> str | tuple[str, ...] | None:
    """Return stop words as an `Analyzer` keeps them: the name of a language, sorted words, or None for none.

    stop_words: the name of a language such as "english", the words, or None

    Raises ValueError for words that are not all strings.
    """
    if stop_words is None or isinstance(stop_words, str):
        return stop_words
    words = as_list("stop_words", stop_words)
    if not all(isinstance(word, str) for word in words):
        raise ValueError("got stop words that are not all strings; expected 'english', a list of words or None")
    return tuple(sorted(set(words)))


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
            them (`word_pattern`), without words with digits and, in alphabets, those of fewer than three
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
        runs = self.ngram_range
        is_pair = isinstance(runs, tuple | list) and len(runs) == 2 and all(isinstance(each, Integral) for each in runs)
        if not is_pair or not 1 <= runs[0] <= runs[1]:
            raise ValueError(
                f"got ngram_range={shortened_repr(runs)}; expected two whole numbers, such as (1, 2), the first "
                "at least 1 and the second no smaller"
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
        # A term with two blanks in a row, or one at its end, is no run of words joined by blanks: it is found whole.
        cut = [[term] if "" in term.split(" ") else term.split(" ") for term in vocabulary]
        words = {word for each in cut for word in each if word}
        lengths = [len(each) for each in cut]
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
    def for_words(cls, of_texts: "Analyzer | None") -> "Analyzer":
        """Return an analyzer for documents that are lists of words. It keeps every word as it is.

        of_texts: the analyzer that cut the texts of a corpus, whose runs of words are terms; None if there was none
        """
        runs = (1, 1) if of_texts is None else of_texts.ngram_range
        return cls(None, ngram_range=runs, tokenizer=str.split, lowercase=False, normalize=False)

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

        Raises whatever the tokenizer raises, and ValueError if it returns anything but a list of strings.
        """
        if self.tokenizer is not None:
            found = self.tokenizer(text)
            if isinstance(found, str | bytes) or not isinstance(found, Iterable):  # a string would be cut into letters
                raise ValueError(
                    f"got {shortened_repr(found)} from the tokenizer; expected a list of words, such as text.split()"
                )
            words = list(found)
            if not all(isinstance(word, str) for word in words):
                raise ValueError(f"got {words[:3]!r} from the tokenizer; expected a list of words, which are strings")
            return Cut([word for word in map(self._spelled, words) if word], [])
        text = self._spelled(text)
        return Cut(words_of(text), []) if self._pattern is None else _cut_by_pattern(self._pattern, text)

    def find_words(self, text: str | Sequence[str]) -> tuple[str, list[tuple[str, int, int]]]:
        """Return a text as it can be shown, and its words in order as (spelling, start, end in the shown text).

        text: a text, or its words, which are shown joined by blanks

        The words of a text are those of `cut_text`. Of a tokenizer, each word is searched for after the one before. If
        one does not stand in the text, such as a stem, the words joined by blanks are shown instead.

        Raises what `cut_text` raises.
        """
        if not isinstance(text, str):
            return _joined_by_blanks(text)
        shown, spelled = compose(text) if self.normalize else text, self._spelled(text)
        if len(shown) != len(spelled):  # lower-casing has changed a length, so places of one are not those of the other
            shown = spelled
        if self.tokenizer is None:
            pattern = self._pattern or pattern_for(spelled)
            spans = [match.span(pattern.groups) for match in pattern.finditer(spelled)]
            return shown, [(spelled[start:end], start, end) for start, end in spans if start < end]
        words, found, end = self.cut_text(text).words, [], 0
        for word in words:
            start = spelled.find(word, end)
            if start < 0:
                return _joined_by_blanks(words)
            end = start + len(word)
            found.append((word, start, end))
        return shown, found

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


def _joined_by_blanks(words: Sequence[str]) -> tuple[str, list[tuple[str, int, int]]]:
    """Return words as one text with blanks between them, and each word as (word, start, end in the text)."""
    ends = accumulate(len(word) + 1 for word in words)
    return " ".join(words), [(word, end - len(word) - 1, end - 1) for word, end in zip(words, ends, strict=True)]


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
