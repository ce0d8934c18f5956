"""Read documents from objects of other libraries (AnnData, gensim), without importing these libraries."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from lvsearch.reading.vocabulary import MOST_UNNAMED, UNNAMED


def is_anndata(data: Any) -> bool:
    """Return True for an `AnnData`, which is a matrix with named rows and columns, and tables of both."""
    return all(hasattr(data, name) for name in ("X", "obs", "var", "obs_names", "var_names", "layers"))


class AnnotatedCounts(NamedTuple):
    """The content of an `AnnData` (single cells).

    counts: a matrix (cells, genes), not yet checked
    vocabulary: the names of the genes
    names: the names of the cells
    metadata: a table with a row per cell
    """

    counts: Any
    vocabulary: list[str]
    names: list[str]
    metadata: pd.DataFrame


def anndata_counts(data: Any, layer: str | None) -> AnnotatedCounts:
    """Return the counts of an `AnnData`, with the names of its cells and genes.

    data: the `AnnData`
    layer: the name of the layer that holds counts; None for its matrix `X`

    Raises ValueError for anything else, and for a layer that does not exist.
    """
    if not is_anndata(data):
        raise ValueError(f"got {type(data).__name__}; expected an AnnData, with .X, .obs, .var and .layers")
    if layer is not None and layer not in data.layers:
        raise ValueError(
            f"got layer={layer!r}, expected one of {', '.join(map(repr, data.layers)) or 'none: it has none'}"
        )
    if getattr(data, "isbacked", False):  # its matrix lies in the file, as no array that NumPy can make of it
        data = data.to_memory()
    counts = data.X if layer is None else data.layers[layer]
    if counts is None:
        raise ValueError(f"got an AnnData without X; expected counts: say layer= ({', '.join(map(repr, data.layers))})")
    return AnnotatedCounts(counts, [str(n) for n in data.var_names], [str(n) for n in data.obs_names], data.obs)


def is_bags(data: Any) -> bool:
    """Return True for documents in gensim's form, where each is a list of pairs (id of a word, count).

    Only the first document that is not empty is looked at; there must be one.
    """
    if not isinstance(data, Sequence) or isinstance(data, str):
        return False
    first = next((bag for bag in data if not isinstance(bag, Sequence) or len(bag)), None)
    return isinstance(first, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in first)


def bag_counts(bags: Iterable[Any], vocabulary: Any) -> tuple[csr_array, list[str] | None]:
    """Return (counts, vocabulary) of documents in gensim's form; counts of an id given twice are added.

    bags: the documents, each a list of pairs (id of a word, count)
    vocabulary: a word for each id in order, or a dictionary from id to word (gensim's `Dictionary`) or from word to id;
        None if there is none

    Returns counts (documents, words), and a word for each column, or None without a vocabulary.

    Raises:
        ValueError: a document that is no list of pairs, an id that is no whole number from 0, or an id outside the
            vocabulary, with the document's number.
    """
    entries: list[tuple[int, Any, Any]] = []
    n_documents = 0
    for document, bag in enumerate(bags):
        n_documents += 1
        try:
            entries.extend((document, term, count) for term, count in bag)
        except (TypeError, ValueError) as error:
            raise ValueError(f"got {bag!r:.60} as document {document}; expected a list of pairs (id, count)") from error
    ids = np.array([term for _, term, _ in entries]) if entries else np.zeros(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min(initial=0) < 0:
        bad = next(((d, t) for d, t, _ in entries if not isinstance(t, int | np.integer) or t < 0), entries[0][:2])
        raise ValueError(f"got the id {bad[1]!r} in document {bad[0]}; expected whole numbers from 0")
    largest = int(ids.max(initial=-1))
    words = None if vocabulary is None else _words_in_id_order(vocabulary, largest)
    width = largest + 1 if words is None else len(words)
    if largest >= width:
        document = entries[int(ids.argmax())][0]
        raise ValueError(
            f"got the id {largest} in document {document} with a vocabulary of {width:,} words; expected ids from 0 to "
            f"{width - 1}: is it another corpus's dictionary?"
        )
    values = np.array([count for _, _, count in entries]) if entries else np.zeros(0, np.int64)
    where = (np.array([document for document, _, _ in entries], np.int64), ids.astype(np.int64))
    return csr_array((values, where), shape=(n_documents, width)), words


def _words_in_id_order(vocabulary: Any, largest: int) -> list[str]:
    """Return the words in the order of their ids, from id 0.

    vocabulary: the words in order, which are returned as they are; or a dictionary between ids and words, in either
        direction, in which ids without a word get a name such as "term7"
    largest: the largest id in the documents; used with a dictionary only

    Raises ValueError for a dictionary if an id is too large to number words by.
    """
    if not isinstance(vocabulary, Mapping):
        return [str(word) for word in vocabulary]
    pairs = {word: key for key, word in vocabulary.items()} if _is_by_id(vocabulary) else dict(vocabulary)
    width = max([largest, *pairs.values()], default=-1) + 1
    if width > MOST_UNNAMED:
        raise ValueError(f"got ids up to {width - 1:,}; expected at most {MOST_UNNAMED:,}: number the words from 0")
    words = [UNNAMED.format(place) for place in range(width)]
    for word, place in pairs.items():
        words[place] = str(word)
    return words


def _is_by_id(vocabulary: Mapping[Any, Any]) -> bool:
    """Return True if a dictionary goes from id to word, False if from word to id. Raises ValueError for neither."""
    keys = list(vocabulary.keys())
    values = [vocabulary[key] for key in keys]
    by_id, by_word = (all(isinstance(each, int | np.integer) for each in side) for side in (keys, values))
    if by_id == by_word and keys:
        raise ValueError("got a dictionary that is neither id to word nor word to id; expected one of the two")
    return by_id
