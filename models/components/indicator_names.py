"""Names of columns of 0 and 1: "question=category".

The first "=" ends the question, so that a category may hold any ("age=>=10"). One in a question, or in the name of a
column of numbers, is written "\\=", and a backslash there twice.
"""

import re
from typing import Any

_QUESTION = re.compile(r"((?:\\.|[^\\=])*)=", re.DOTALL)


def indicator_name(question: Any, category: Any) -> str:
    """The name of the column that is 1 where the answer to a question is this category."""
    return f"{number_name(question)}={category}"


def number_name(column: Any) -> str:
    """The name of a column of numbers, such as no indicator has."""
    return str(column).replace("\\", "\\\\").replace("=", "\\=")


def question_of(name: str) -> str | None:
    """The question of an indicator, as it is written in the name; None for the name of a column of numbers."""
    found = _QUESTION.match(name)
    return None if found is None else found.group(1)
