"""What a word is in Unicode: letters of any script with their marks, and which scripts write short words.

Python's `\\w` knows no combining marks: the vowel signs of Hindi and Thai, the vowel marks of Arabic and Hebrew,
accents that stand alone. They are added here, after the rule that a mark never begins a word (Unicode Standard Annex
29).
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache

from lvsearch.files.plain_text import JOINERS

LEAST_LETTERS = 3
"""Shorter words of an alphabet are mostly grammar ("of"); in other scripts words of one character have meaning."""
ALPHABETS = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "COPTIC", "FULLWIDTH"})
"""First words of the Unicode names of letters in scripts that write every vowel as a letter of its own."""
UNSPACED = frozenset({"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"})
"""The same, of scripts that put no blanks between words."""
LONGEST_UNSPACED = 10
"""Characters of a word of such a script; longer ones are mostly phrases that nobody has cut."""


@cache
def word_pattern() -> re.Pattern[str]:
    """The regular expression of a word: letters, marks and digits, joined by underscores, without those at its ends."""
    marks = "".join(_ranges(code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"))
    piece = rf"[^\W_]+(?:(?:[{marks}]+|[{JOINERS}]+(?=[^\W_]))[^\W_]*)*"
    return re.compile(rf"{piece}(?:_+{piece})*")


@cache
def ascii_word_pattern() -> re.Pattern[str]:
    """`word_pattern` for texts of ASCII characters alone: there are no marks to look for, which takes half the time."""
    return re.compile(r"[^\W_]+(?:_+[^\W_]+)*")


def words_of(text: str) -> list[str]:
    """The words of a text in their order."""
    return (ascii_word_pattern() if text.isascii() else word_pattern()).findall(text)


def composed(text: str) -> str:
    """Compose letters and their marks (NFC), and take out soft hyphens, which only say where a line may break."""
    return text if text.isascii() else unicodedata.normalize("NFC", text).replace("\u00ad", "")


def lowered(text: str) -> str:
    """The text in lower case. The Turkish dotted capital İ becomes i; Python alone would leave a dot behind."""
    return text.replace("\u0130", "i").lower()


def folded(word: str) -> str:
    """What words that differ only in case have in common, such as "strasse" of "Straße" and "STRASSE"."""
    return word if word.isascii() else unicodedata.normalize("NFC", word.casefold())


def has_digits(word: str) -> bool:
    """Whether a digit or another number stands in a word."""
    return any(character.isalnum() and not character.isalpha() for character in word)


def is_short(word: str) -> bool:
    """Whether a word of an alphabet has fewer than `LEAST_LETTERS` letters."""
    letters = [character for character in word if character.isalpha()]
    return len(letters) < LEAST_LETTERS and any(_script(letter) in ALPHABETS for letter in letters)


def is_uncut(word: str) -> bool:
    """Whether a word is so long, in a script without blanks between words, that it is probably several."""
    return len(word) > LONGEST_UNSPACED and _script(word[0]) in UNSPACED


def is_unspaced(word: str) -> bool:
    """Whether a word begins in a script without blanks between words."""
    return _script(word[0]) in UNSPACED


@cache
def _script(character: str) -> str:
    """The first word of a character's Unicode name, which for letters is that of their script."""
    return unicodedata.name(character, "").replace("-", " ").partition(" ")[0]


def _ranges(codes: Iterable[int]) -> Iterable[str]:
    """Rising code points as the inside of a character class."""
    first = last = -2
    for code in (*codes, -2):
        if code == last + 1:
            last = code
            continue
        if first >= 0:
            yield rf"\U{first:08x}-\U{last:08x}"
        first = last = code
