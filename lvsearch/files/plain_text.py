"""Words, labels and names come from data: here they are made safe for what shows them, and stay readable.

Terminals obey control characters, Markdown draws links and pictures, spreadsheets run cells that begin with =.
"""

import re
import unicodedata

import pandas as pd

JOINERS = "\u200c\u200d"
"""Invisible, and part of words in Persian, Hindi and others."""
MARKDOWN = re.compile(r"[\\`*_|<\[\]&~$@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""What begins markup, entities, formulas and links, those without brackets among them."""
FORMULA = "=+-@"
"""Signs with which a spreadsheet begins to compute."""


def visible(text: str) -> str:
    """The same text on one line, characters that are obeyed or not seen (escapes, line ends, marks that turn the
    direction of writing) spelled out, such as \\x1b."""
    if text.isprintable():
        return text
    shown = (c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown)


def markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return MARKDOWN.sub(r"\\\g<0>", visible(text))


def spreadsheet(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every text in it, names of columns included, on one line (`visible`), and with an apostrophe
    before what a spreadsheet would compute."""

    def guarded(value: object) -> object:
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
    """Whether a spreadsheet may compute a text, or a line of it where it is cut in lines: behind white space, and of
    full-width or small signs too, which some programs turn into plain ones."""
    begins = (line.strip()[:1] for line in text.replace("\t", "\n").splitlines())
    return any(sign and unicodedata.normalize("NFKC", sign) in FORMULA for sign in begins)
