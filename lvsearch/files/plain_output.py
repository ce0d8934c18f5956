"""Print on terminals that lack some characters: output after hours of work must not fail because of a minus sign.

Terminals and pipes of some systems know only about 200 characters. If "−" is missing, a plain sign is printed.
"""

import codecs
import sys

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
