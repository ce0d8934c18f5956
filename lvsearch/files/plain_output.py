"""Signs that a terminal has not: what is printed after hours of work must not fail for a minus sign.

Terminals and pipes of some systems know no more than 200 characters. Where one has no "−", plain signs take its place.
"""

import codecs
import sys

PLAIN = {"−": "-", "–": "-", "…": "...", "×": "x", "±": "+/-", "≥": ">=", "≤": "<=", "∞": "inf", "→": "->", "÷": "/"}
"""What stands for a sign where it cannot be written."""
NAME = "lvsearch.plain"


def print_any_text() -> None:
    """From here on, what standard output and standard error cannot encode is printed in plain signs, and else escaped
    such as \\\\u4e2d."""
    codecs.register_error(NAME, _in_plain_signs)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a stream of somebody else may have none
        if reconfigure is not None:
            reconfigure(errors=NAME)


def _in_plain_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(PLAIN.get(sign, sign.encode("ascii", "backslashreplace").decode()) for sign in signs), error.end
