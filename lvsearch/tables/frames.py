"""Read data frames with a row per document, or wide ones with a column per term."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lvsearch.models.plain_arguments import as_list
from lvsearch.texts.counting import checked_texts

SHOWN = 12
"""The number of column names that a message lists."""


class Documents(NamedTuple):
    """The texts of documents, and what is known of each document.

    texts: the texts, one per document
    names, labels: a name and a class for each text, or None
    metadata: a data frame with a row per text, or None
    notes: sentences on how they were read, and what was left out
    """

    texts: list[str]
    names: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    metadata: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()


def columns_in_words(columns: Iterable[Any]) -> str:
    """Return names of columns as text, such as "'id', 'body', 'year'"; of more than twelve only the first twelve."""
    names = [repr(name) for name in columns]
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")


def has_column(columns: pd.Index, name: Any) -> bool:
    """Return True if one of the columns has this name; what cannot be a name, such as a list, is none."""
    return isinstance(name, Hashable) and name in columns


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurred before; None if all are distinct."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def require_distinct(noun: str, names: Iterable[str], where: str = "") -> None:
    """Raise ValueError if a name occurs twice.

    noun: what has the names, such as "column name". where: what the error begins with, such as the name of a file.
    """
    twice = first_repeated(names)
    if twice is not None:
        raise ValueError(f"{where}got the {noun} {twice!r} twice; expected distinct names")


def refuse_levels(frame: pd.DataFrame) -> None:
    """Raise ValueError for a data frame whose rows or columns have several levels of names."""
    if isinstance(frame.index, pd.MultiIndex) or isinstance(frame.columns, pd.MultiIndex):
        raise ValueError("got several levels of names; expected one: frame.reset_index(), or join them")


def is_table(data: Any) -> bool:
    """Return True for a pandas data frame, or a table of another library (Polars, Arrow, Hugging Face)."""
    return isinstance(data, pd.DataFrame) or (
        hasattr(data, "to_pandas") and (hasattr(data, "columns") or hasattr(data, "column_names"))
    )


def as_frame(table: Any) -> pd.DataFrame:
    """Return a data frame as it is, or convert another library's table (Hugging Face datasets, Polars, Arrow).

    Raises ValueError for anything else.
    """
    if isinstance(table, pd.DataFrame):
        return table
    if hasattr(table, "to_pandas"):
        try:
            is_arrow = hasattr(table, "to_batches") or hasattr(table, "to_arrow")  # Polars' tables are Arrow's
            frame = frame_of_arrow(table) if is_arrow else table.to_pandas()
        except ImportError:  # Polars needs pyarrow for this; lists of its columns need no other package
            frame = pd.DataFrame({name: _column_of_list(table[name].to_list()) for name in table.columns})
        if isinstance(frame, pd.DataFrame):
            return frame
    if isinstance(table, dict) and all(hasattr(part, "to_pandas") for part in table.values()):
        raise ValueError(
            f"got several data sets ({columns_in_words(table)}); expected one of them, such as data['train']"
        )
    module, name = type(table).__module__, type(table).__qualname__
    raise ValueError(
        f"got {name if module == 'builtins' else f'{module}.{name}'}; expected a pandas DataFrame, or a table with "
        "to_pandas()"
    )


def frame_of_arrow(rows: Any) -> pd.DataFrame:
    """Return a table or a record batch of Arrow, or a table of Polars, as a data frame.

    Whole numbers beside missing ones become Int64. Arrow by itself would round them to float64.
    """
    frame = rows.to_pandas(integer_object_nulls=True)
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if column.dtype == object:
            frame.isetitem(place, _as_nullable_wholes(column))
    return frame


def _column_of_list(values: list[Any]) -> pd.Series:
    """Return values as a column, whole numbers as Int64, so that none is rounded beside a missing one."""
    wholes = _as_nullable_wholes(pd.Series(values, dtype=object))
    return pd.Series(values) if wholes.dtype == object else wholes


def _as_nullable_wholes(column: pd.Series) -> pd.Series:
    """Return a column of objects as Int64 if all that are not missing are whole numbers it holds; else as it is."""
    known = column.dropna()
    if known.empty or not all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return column
    try:
        return column.astype("Int64")
    except (OverflowError, TypeError):  # beyond int64
        return column


def aligned_frames(noun: str, items: Sequence[Any]) -> list[pd.DataFrame] | None:
    """Return tables as data frames with the columns of the first one, in its order; None if there is no table.

    noun: the word for an item in messages, such as "group"
    items: tables; those without a cell may be anything, and become frames without rows

    Raises ValueError for tables of other columns, for a column name twice, and for matrices among tables.
    """
    frames = [as_frame(item) if is_table(item) else item for item in items]
    first = next((frame for frame in frames if isinstance(frame, pd.DataFrame) and frame.size), None)
    if first is None:
        return None
    columns, aligned = list(first.columns), []
    require_distinct("column", map(str, columns))
    for number, frame in enumerate(frames):
        if not np.size(frame):
            aligned.append(first.iloc[:0])
            continue
        if not isinstance(frame, pd.DataFrame):
            raise ValueError(
                f"got {type(frame).__name__} as {noun} {number} among data frames; expected data frames throughout, "
                "whose columns are matched by name, or matrices throughout: frame.to_numpy()"
            )
        if len(frame.columns) != len(columns) or set(frame.columns) != set(columns):
            raise ValueError(
                f"got the columns {columns_in_words(frame.columns)} in {noun} {number}; expected "
                f"{columns_in_words(columns)}, as in the first data frame"
            )
        aligned.append(frame.loc[:, columns])
    return aligned


def frame_documents(
    frame: pd.DataFrame, text: Any, id: Any = None, label: Any = None, keep: Iterable[Any] | None = None
) -> Documents:
    """Return the documents of a data frame with a row per document.

    frame: the data frame
    text: the column of texts
    id: the column of names; by default the index
    label: the column of classes, or None
    keep: the columns of the metadata; by default all but text and id

    Raises:
        ValueError: there is no such column; several levels of names; a missing text, id or label; values that are not
            strings.
    """
    refuse_levels(frame)
    if isinstance(keep, str):
        raise ValueError(f"got keep={keep!r}; expected a list of columns: keep=[{keep!r}]")
    kept = None if keep is None else as_list("keep", keep)
    for what, name in (("text", text), ("id", id), ("label", label), *(("keep", name) for name in kept or ())):
        if not has_column(frame.columns, name) and not (name is None and what in ("id", "label")):
            raise ValueError(
                f"got {what}={name!r}, expected one of the columns {columns_in_words(frame.columns)}"
                f"{'; text= names the one that holds the texts' if what == 'text' else ''}"
            )
    texts = _complete_column(frame, text, "the documents without text, frame.fillna({…: ''}) keeps them as empty ones")
    named = frame if id is None else frame.set_index(_complete_column(frame, id, "a name for every document"))
    labels = (
        None
        if label is None
        else tuple(str(value) for value in _complete_column(frame, label, "a class for every document"))
    )
    others = [name for name in frame.columns if name not in (text, id)] if kept is None else kept
    names = tuple(str(name) for name in named.index)
    return Documents(checked_texts(texts.tolist()), names, labels, named.loc[:, others])


def index_names(values: Any) -> tuple[str, ...] | None:
    """Return the index of a pandas Series or data frame as names; None for other objects, and for a default index."""
    if not isinstance(values, pd.Series | pd.DataFrame) or values.index.equals(pd.RangeIndex(len(values))):
        return None
    return tuple(str(name) for name in values.index)


def refuse_another_order(what: str, values: Any, names: Iterable[str] | None) -> None:
    """Raise ValueError if the index of values has the names of the documents in another order than the documents.

    what: the noun for the values, for the message
    values: a pandas Series or data frame with an entry for each document; other objects have no index
    names: the names of the documents, or None
    """
    own = index_names(values)
    if own is None or names is None:
        return
    expected = tuple(names)
    if own == expected or sorted(own) != sorted(expected):
        return
    place = next(place for place, pair in enumerate(zip(own, expected, strict=True)) if pair[0] != pair[1])
    raise ValueError(
        f"got {what} with the names of the documents as index, in another order: row {place} is {own[place]!r}, "
        f"expected {expected[place]!r}; bring them into the order of the documents (.loc[names]), or drop the index "
        "(.reset_index(drop=True)) where they are in this order"
    )


def holds_texts(data: Any) -> bool:
    """Return True if a list, Series or one-dimensional array holds strings, by its first element."""
    if isinstance(data, list | tuple):
        return bool(data) and isinstance(data[0], str)
    flat = isinstance(data, pd.Series) or (isinstance(data, np.ndarray) and data.ndim == 1)
    return flat and len(data) > 0 and isinstance(data[0] if isinstance(data, np.ndarray) else data.iloc[0], str)


def text_columns(frame: pd.DataFrame) -> list[Any]:
    """Return the columns whose first value that is not missing is a string."""
    found = []
    for place, name in enumerate(frame.columns):
        known = frame.iloc[:, place].dropna()
        if len(known) and isinstance(known.iloc[0], str):
            found.append(name)
    return found


def _complete_column(frame: pd.DataFrame, name: Any, expected: str) -> pd.Series:
    """Return a column of a data frame, after checking that no value is missing, (rows,).

    frame: the data frame
    name: the column
    expected: what was expected, for the message

    Raises ValueError if values are missing, or two columns have this name.
    """
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"got the column {name!r} twice; expected distinct names")
    missing = column.isna().to_numpy()
    if missing.any():
        first = int(missing.argmax())
        row = (
            frame.index[first] if isinstance(frame.index, pd.RangeIndex) else first
        )  # rows of a block are numbered through
        raise ValueError(
            f"got {missing.sum():,} missing values of {len(frame):,} in the column {name!r}, the first in row "
            f"{row}; expected {expected}: leave such rows out, frame.dropna(subset=[{name!r}])"
        )
    return column


def frame_counts(frame: pd.DataFrame) -> tuple[Any, list[str], list[str] | None]:
    """Return a wide table as (counts, terms, document names): a row per document, a column per term.

    The names are the table's index, or None for pandas' default index 0, 1, 2, ….

    Raises:
        ValueError: a column that does not hold numbers.
    """
    for column, dtype in frame.dtypes.items():
        if not pd.api.types.is_numeric_dtype(dtype):
            raise ValueError(
                f"got a column {column!r} of type {dtype}; expected a wide table of counts, a column per term; from a "
                "long one: .pivot_table(index='document', columns='word', values='count', aggfunc='sum', fill_value=0)"
                "; where a column holds texts: lv.Corpus.from_frame(frame, text=…)"
            )
    default = frame.index.equals(pd.RangeIndex(len(frame)))
    names = None if default else [str(name) for name in frame.index]
    terms = [str(column) for column in frame.columns]
    if len(terms) and all(isinstance(dtype, pd.SparseDtype) and dtype.fill_value == 0 for dtype in frame.dtypes):
        return frame.sparse.to_coo(), terms, names
    return frame.to_numpy(dtype=np.float64, na_value=np.nan), terms, names
