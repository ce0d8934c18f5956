"""Make words, labels and names from data safe for the place where they are shown, and keep them readable.

Terminals obey control characters, Markdown draws links and pictures, and spreadsheets run cells that begin with =.

Output after hours of work must not fail because of a minus sign. Terminals and pipes of some systems know only about
200 characters. If "−" is missing, a plain sign is printed.
"""

import codecs
import re
import sys
import unicodedata

import pandas as pd

JOINERS = "\u200c\u200d"
"""Invisible characters that are part of words in Persian, Hindi and other languages."""
MARKDOWN = re.compile(r"[\\`*_|<\[\]&~$@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""Characters that begin markup, entities, formulas and links in Markdown."""
FORMULA = "=+-@"
"""Signs with which a formula in a spreadsheet may begin."""


def visible(text: str) -> str:
    r"""Return the text on one line, with control characters and invisible characters spelled out, such as \x1b.

    These are escapes, line ends, and marks that change the direction of writing.
    """
    if text.isprintable():
        return text
    shown = (c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown)


def one_line(error: BaseException) -> str:
    """Return the message of an exception on one line, for a sentence that goes on after it."""
    return " ".join(str(error).split())


def markdown(text: str) -> str:
    """Return the text on one line, escaped so that Markdown shows it as it is."""
    return MARKDOWN.sub(r"\\\g<0>", visible(text))


def spreadsheet(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table that is safe for spreadsheets.

    Every text, names of columns included, is on one line (`visible`). An apostrophe stands before what a spreadsheet
    would run as a formula.
    """

    def guarded(value: object) -> object:
        """Return a cell that is shown as text; other values are unchanged."""
        if not isinstance(value, str):
            return value
        line = visible(value)
        return f"'{line}" if _computes(value) else line

    text = [place for place in range(table.shape[1]) if not pd.api.types.is_numeric_dtype(table.dtypes.iloc[place])]
    guarded_table = table.copy()
    for place in text:
        guarded_table.isetitem(place, table.iloc[:, place].map(guarded))
    guarded_table.columns = [guarded(name) for name in table.columns]
    return guarded_table


def _computes(text: str) -> bool:
    """Return True if a spreadsheet may run a text, or one of its lines, as a formula.

    White space before the sign is skipped. Full-width and small signs count too, since some programs turn them into
    plain ones.
    """
    begins = (line.strip()[:1] for line in text.replace("\t", "\n").splitlines())
    return any(sign and unicodedata.normalize("NFKC", sign) in FORMULA for sign in begins)


# ── terminals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


PLAIN = {"−": "-", "–": "-", "…": "...", "×": "x", "±": "+/-", "≥": ">=", "≤": "<=", "∞": "inf", "→": "->", "÷": "/"}
"""The plain signs that replace characters which cannot be printed."""
NAME = "lvsearch.plain"
"""The name under which `codecs` knows the error handler of this module."""


def print_any_text() -> None:
    r"""Make standard output and standard error print plain signs for characters that they cannot encode.

    Other characters are escaped, such as \u4e2d.
    """
    codecs.register_error(NAME, _in_plain_signs)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a stream of somebody else may have none
        if reconfigure is not None:
            reconfigure(errors=NAME)


def _in_plain_signs(error: UnicodeError) -> tuple[str, int]:
    """Return (plain signs for the characters that cannot be encoded, position at which encoding goes on).

    It is an error handler for `codecs.register_error`.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(PLAIN.get(sign, sign.encode("ascii", "backslashreplace").decode()) for sign in signs), error.end
