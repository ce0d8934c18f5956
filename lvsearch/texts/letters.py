r"""Define words in Unicode: letters of any script with their marks, and which scripts write short words.

Python's `\w` does not include combining marks: the vowel signs of Hindi and Thai, the vowel marks of Arabic and Hebrew,
accents that stand alone. They are added here. A mark never begins a word (Unicode Standard Annex 29).
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
    return (ascii_word_pattern() if text.isascii() else word_pattern()).findall(text)


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
