"""Convert regions and captions from lists, arrays or CSV files to the form that `PairedCorpus` holds."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, issparse

from lvsearch.data.corpus import Corpus
from lvsearch.data.matrix_inputs import common_width
from lvsearch.files.plain_text import one_line
from lvsearch.files.untrusted_files import require_ordinary
from lvsearch.models.plain_arguments import as_list, numbers
from lvsearch.reading.counts import canonical_counts, refuse_masked
from lvsearch.reading.vocabulary import checked_vocabulary
from lvsearch.tables.delimited import UnnamedValuesError, check_header, dialect_of, every_value_named
from lvsearch.tables.frames import aligned_frames

MOST_REGIONS = 100_000_000
"""The largest number of region tokens that is read, since each count is expanded into that many regions."""


def regions_of(regions: Any, names: Iterable[Any] | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return (all regions, number of regions per image, names) from lists, arrays or token counts.

    regions: the argument of `PairedCorpus.from_arrays`: features or token counts of every image.
    names: one per feature or token; None takes those of the columns of data frames, or makes "feature0"… or "token0"….

    Returns regions of shape (region, feature) or (region,), those of one image next to each other; counts (image,).
    Raises ValueError for regions that have no such form, and for data frames of different columns.
    """
    if issparse(regions) or (isinstance(regions, np.ndarray) and regions.ndim == 2):
        counts = canonical_counts(regions)
        per_image = np.asarray(counts.astype(np.int64).sum(axis=1))
        if per_image.sum() > MOST_REGIONS:
            raise ValueError(
                f"got {per_image.sum():,} region tokens, expected at most {MOST_REGIONS:,}: each is a region of its "
                "own; are the units too small?"
            )
        tokens = np.repeat(counts.indices, np.asarray(counts.data, np.int64)).astype(np.int32)
        return tokens, per_image, checked_vocabulary(_default_names("token", names, counts.shape[1]), counts)
    images = as_list("regions", regions)
    frames = aligned_frames("image", images)
    if frames is not None:  # their columns are matched by name
        images = [frame.to_numpy() for frame in frames]
        names = frames[0].columns if names is None else names
    for image in images:
        refuse_masked(image, "expected features that are known: leave such regions out")
    lists = [numbers("regions", image) for image in images]
    width = common_width(lists, "image", "region", "feature")
    held = np.concatenate([image.reshape(-1, width) for image in lists])
    named = tuple(str(name) for name in _default_names("feature", names, width))
    return held, np.array([len(image) if image.size else 0 for image in lists], np.int64), named


def _default_names(what: str, names: Iterable[Any] | None, length: int) -> Iterable[Any]:
    """Return `names`, or if it is None default names such as "feature0", "feature1", ….

    what: the noun, such as "feature". length: how many names to make.
    """
    return [f"{what}{number}" for number in range(length)] if names is None else names


def captions_of(captions: Any, vocabulary: Iterable[Any] | None, n_images: int) -> Corpus:
    """Return a corpus of captions from word counts, from lists of words, or from None (no captions).

    captions: counts (images, words), a list of words for every image, or None. vocabulary: the known words, or None.
    n_images: the number of images, used for None.

    Raises ValueError for words outside the vocabulary, and for None without a vocabulary.
    """
    words = None if vocabulary is None else tuple(str(word) for word in as_list("vocabulary", vocabulary))
    if captions is None:
        if words is None:
            raise ValueError("got no captions and no vocabulary; expected the words that captions could have")
        return Corpus(csr_array((n_images, len(words)), dtype=np.int32), words)
    if issparse(captions) or isinstance(captions, np.ndarray):
        counts = canonical_counts(captions)
        return Corpus(counts, checked_vocabulary(words, counts))
    captions = as_list("captions", captions)
    if any(isinstance(image, str) for image in captions):
        raise ValueError("got a caption that is one string; expected a list of words for every image")
    lists = [[str(word) for word in as_list("caption", image)] for image in captions]
    words = tuple(sorted({word for image in lists for word in image})) if words is None else words
    known = {word: column for column, word in enumerate(words)}
    unknown = next((word for image in lists for word in image if word not in known), None)
    if unknown is not None:
        raise ValueError(
            f"got the caption word {unknown!r}, which the vocabulary of {len(words):,} words does not hold"
        )
    table = np.zeros((len(lists), len(words)), np.int32)
    for row, image in enumerate(lists):
        for word in image:
            table[row, known[word]] += 1
    return Corpus(csr_array(table), words)


def _read_csv(path: str | os.PathLike[str], *needed: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return (the cells of a CSV file as text, without white space around them, notes on how the file is written).

    Cells stay text, because a name read as a number may lose its zeros in one file (007, 7) and gain decimals in
    another (1, 1.0).

    needed: columns that must exist, without empty cells.

    Raises ValueError for missing columns or cells, and for quotes that do not enclose a value where others do.
    """
    require_ordinary(path)

    def opened() -> IO[str]:
        return Path(path).open(encoding="utf-8-sig", errors="replace", newline="")

    dialect = dialect_of(opened, path, Path(path).suffix.lower())
    with opened() as file:
        check_header(file, path, dialect)
    options: dict[str, Any] = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig", "index_col": False}
    try:
        with every_value_named(path):
            frame = pd.read_csv(path, **dialect.pandas(), **options)
    except UnnamedValuesError:
        raise
    except ValueError as error:
        raise ValueError(f"{path}: {one_line(error)}; expected comma-separated columns, UTF-8") from error
    frame = pd.DataFrame({name: frame[name].fillna("").str.strip() for name in frame.columns})  # "": short lines
    for name in needed:
        if name not in frame.columns:
            raise ValueError(f"{path}: got columns {', '.join(map(str, frame.columns))}; expected one named {name!r}")
        empty = np.asarray(frame[name]) == ""
        if empty.any():
            raise ValueError(
                f"{path}: got {int(empty.sum())} empty cells in the column {name!r}, the first in row "
                f"{int(np.argmax(empty)) + 1} below the header; leave such lines out"
            )
    return frame, tuple(f"{Path(path).name}: {note}" for note in dialect.notes)


class PairedTables(NamedTuple):
    """The content of two CSV files: the fields of a `PairedCorpus`, and each image's name and list of caption words.

    | field | meaning |
    |---|---|
    | `regions`, `region_counts`, `region_names` | the fields of `PairedCorpus` |
    | `images` | the name of each image |
    | `captions` | the caption words of each image |
    | `notes` | how the files are written, where that was not plain |
    """

    regions: np.ndarray
    region_counts: np.ndarray
    region_names: tuple[str, ...]
    images: tuple[str, ...]
    captions: list[list[str]]
    notes: tuple[str, ...]


def read_tables(
    regions: str | os.PathLike[str], captions: str | os.PathLike[str], image: str, word: str
) -> PairedTables:
    """Return the content of the two files of `PairedCorpus.from_csv`, which documents their content and the errors.

    regions, captions: the files. image, word: the names of the columns of images and of caption words.
    """
    # one line of `table` is a region, one line of `words` a caption word
    (table, of_regions), (words, of_words) = _read_csv(regions, image), _read_csv(captions, image, word)
    if len(table) and len(words) and not {*table[image]} & {*words[image]}:
        raise ValueError(
            f"got {regions} with images such as {table[image].iloc[0]!r} and {captions} with images such as "
            f"{words[image].iloc[0]!r}, none in both; expected the same names: they are compared as text"
        )
    images = list(dict.fromkeys([*table[image], *words[image]]))
    position = {name: index for index, name in enumerate(images)}
    owners = np.array([position[name] for name in table[image]], np.int64)
    order, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=len(images))
    held, names = _regions_from_columns(regions, table.drop(columns=image), image)
    by_image: list[list[str]] = [[] for _ in images]
    for name, text in zip(words[image], words[word], strict=True):
        by_image[position[name]].append(text)
    return PairedTables(held[order], counts, names, tuple(images), by_image, (*of_regions, *of_words))


def _regions_from_columns(
    path: str | os.PathLike[str], columns: pd.DataFrame, image: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return (features or token of each row, names) from the columns beside the image's column.

    Several columns, or one of numbers, are features (row, feature). A single column of text holds tokens (row,).

    path, image: the file and the name of the image's column, for errors. columns: the other columns, as text.

    Raises ValueError for text beside other columns.
    """
    names = tuple(str(name) for name in columns.columns)
    numbers = [_column_numbers(columns.iloc[:, place]) for place in range(len(names))]
    if len(names) == 1 and numbers[0] is None:
        tokens = columns.iloc[:, 0].to_numpy()
        if "" in tokens:
            raise ValueError(f"{path}: got an empty token in the column {names[0]!r}; leave such lines out")
        kinds, ids = np.unique(tokens, return_inverse=True)
        return ids.astype(np.int32), tuple(str(kind) for kind in kinds)
    text = [name for name, values in zip(names, numbers, strict=True) if values is None]
    if text or not names:
        got = f"the column {text[0]!r} without numbers" if text else "no features"
        raise ValueError(
            f"{path}: got {got}; expected numbers beside the column {image!r}, or a single column of tokens"
        )
    return np.stack([values for values in numbers if values is not None], axis=1), names


def _column_numbers(column: pd.Series) -> np.ndarray | None:
    """Return the numbers in a column of text, NaN in empty cells; None if some cell is neither empty nor a number."""
    if any(
        "_" in text or not text.isascii() for text in column
    ):  # 1_000, and digits of other scripts: Python reads both
        return None
    try:
        return column.where(column != "", "nan").to_numpy().astype(np.float64)
    except ValueError:
        return None
