"""Look up lists of stop words, the frequent words such as "the" that every text has, by language."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from lvsearch.models.plain_arguments import as_list

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
