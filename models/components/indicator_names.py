r"""Names of columns of 0 and 1 that stand for answers to a question: "question=category".

The first "=" ends the question, so that a category may hold any ("age=>=10"). A "=" inside a question, or in the name
of a column of numbers, is written "\=", and a backslash in such a name is written twice.
"""

import re
from typing import Any

_QUESTION = re.compile(r"((?:\\.|[^\\=])*)=", re.DOTALL)


def indicator_name(question: Any, category: Any) -> str:
    """Return the name of the column that is 1 where the answer to a question is `category`: "question=category"."""
    return f"{number_name(question)}={category}"


def number_name(column: Any) -> str:
    """Return the name of a column of numbers with "=" and backslashes escaped, so that no indicator has the same
    name.
    """
    return str(column).replace("\\", "\\\\").replace("=", "\\=")


def question_of(name: str) -> str | None:
    """Return the question in the name of an indicator, still escaped; None for the name of a column of numbers."""
    found = _QUESTION.match(name)
    return None if found is None else found.group(1)
