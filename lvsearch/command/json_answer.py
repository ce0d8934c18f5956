"""The answer of a search as one JSON object for programs, with keys that stay from version to version."""

import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lvsearch.results.wording import answer
from lvsearch.topics.readable_topics import ReadableTopics

if TYPE_CHECKING:
    from lvsearch.results.result import SearchResult

N_WORDS = 10
"""The number of words of each topic."""


def json_answer(result: "SearchResult", page: Path) -> str:
    """Return the answer of a search as JSON text; the how-to on topics in a table lists its keys.

    Sizes are numbers, or lists of numbers for several size variables. What is not known is null, and so are infinite
    numbers, which JSON has not.

    result: the search, with at least one fit
    page: the report's page, index.html
    """
    sizes = [] if result.by_prediction else _records(result.posterior())
    is_estimate = not result.by_prediction and not result.evaluator.nested
    best = result.best_shown
    topics = best.topics(N_WORDS).reset_index() if isinstance(best, ReadableTopics) else pd.DataFrame()
    record = {
        "lvsearch": version("lvsearch"),
        "answer": answer(result),
        "size": _size(result.best_size),
        "indistinguishable": [_size(size) for size in result.estimated.indistinguishable] if is_estimate else None,
        "sizes": sizes,
        "not_compared": [{"size": _size(size), "why": why} for size, why in result.not_compared.items()],
        "recommended": None if result.recommended is None else _size(result.recommended.size),
        "is_finished": result.is_finished,
        "why_unfinished": result.why_unfinished,
        "evidence": result.settings.evidence,
        "prior": None if result.by_prediction else result.prior.describe(),
        "seed": result.settings.seed,
        "seconds": result.seconds,
        "topics": _records(topics),
        "report": str(page.resolve()),
    }
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)


def _size(size: Any) -> Any:
    """Return a size as one number, or as a list if there are several size variables."""
    numbers = [int(number) for number in np.atleast_1d(size)]
    return numbers[0] if len(numbers) == 1 else numbers


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as {column: value}, with plain numbers and texts; None for what is no number."""
    return [{str(name): _plain(value) for name, value in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    """Return a cell as a number, a text or None, which are what JSON knows."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, int | np.integer | bool | np.bool_):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return str(value)
