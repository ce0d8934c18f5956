"""Read counts from objects and files of other libraries: AnnData, gensim, and folders of 10x Genomics.

AnnData and 10x Genomics hold counts of genes in single cells. Objects of these libraries are recognised by their
attributes, without importing the libraries; anndata is imported only to read its files.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from lvsearch.files.plain_text import one_line
from lvsearch.reading.counts import COLUMNS, FileCounts, read_matrix_market
from lvsearch.reading.vocabulary import MOST_UNNAMED, UNNAMED, read_lines


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
            vocabulary, with the document's number; a dictionary with two words of one id, or ids below 0.
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

    Raises ValueError for a dictionary if an id is too large to number words by or below 0, or if two words have one id.
    """
    if not isinstance(vocabulary, Mapping):
        return [str(word) for word in vocabulary]
    keys = list(vocabulary.keys())
    pairs = [(key, vocabulary[key]) for key in keys]
    pairs = pairs if _is_by_id(vocabulary) else [(place, word) for word, place in pairs]
    width = max([largest, *(place for place, _ in pairs)], default=-1) + 1
    if width > MOST_UNNAMED:
        raise ValueError(f"got ids up to {width - 1:,}; expected at most {MOST_UNNAMED:,}: number the words from 0")
    named: dict[int, str] = {}
    for place, word in pairs:
        if place < 0:
            raise ValueError(f"got the id {place} of the word {word!r}; expected whole numbers from 0")
        if place in named:
            raise ValueError(f"got the id {place} of {named[place]!r} and of {word!r}; expected one word for each")
        named[place] = str(word)
    return [named.get(place, UNNAMED.format(place)) for place in range(width)]


def _is_by_id(vocabulary: Mapping[Any, Any]) -> bool:
    """Return True if a dictionary goes from id to word, False if from word to id. Raises ValueError for neither."""
    keys = list(vocabulary.keys())
    values = [vocabulary[key] for key in keys]
    by_id, by_word = (all(isinstance(each, int | np.integer) for each in side) for side in (keys, values))
    if by_id == by_word and keys:
        raise ValueError("got a dictionary that is neither id to word nor word to id; expected one of the two")
    return by_id


MATRIX = "matrix.mtx"
GENES = ("features.tsv", "genes.tsv")
BARCODES = "barcodes.tsv"
"""The names of the files of 10x Genomics: the counts, the names of genes, and the barcodes, which name the cells."""


class TenxFolder(NamedTuple):
    """The three files that 10x Genomics writes.

    matrix: the counts, genes × cells, in Matrix Market form
    genes: a line per gene: its id, its name, and its kind
    barcodes: a line per cell: its name
    """

    matrix: Path
    genes: Path
    barcodes: Path


def tenx_folder(path: str | os.PathLike[str]) -> TenxFolder | None:
    """Return the files of 10x Genomics in a folder, or beside a matrix file; None if they are not all there.

    They may be packed (.gz), and may share a prefix before their names.
    """
    path = Path(path)
    if path.is_dir():
        matrices = [file for name in (MATRIX, f"{MATRIX}.gz") if (file := path / name).is_file()]
        matrices = matrices or sorted(file for file in path.iterdir() if _is_matrix(file))
        return next((found for matrix in matrices if (found := _files_beside(matrix)) is not None), None)
    return _files_beside(path) if path.is_file() and _is_matrix(path) else None


def is_tenx(path: str | os.PathLike[str]) -> bool:
    """Return True for a folder of 10x Genomics (counts of genes in single cells), or for the matrix file in one."""
    return tenx_folder(path) is not None


def read_tenx(folder: TenxFolder) -> FileCounts:
    """Read the counts of a folder of 10x Genomics, with a row per cell.

    Genes have their names, or their ids if a file has no names. If several genes share a name, their ids are added to
    it, and a note counts them. Rows that are no genes, such as antibodies, are kept, and a note counts them.

    Raises:
        ValueError: a matrix of another form; another number of genes or cells than there are names.
    """
    matrix = read_matrix_market(folder.matrix, documents=COLUMNS).counts  # cells are the columns of the file
    genes = [line.split("\t") for line in read_lines(folder.genes)]
    cells = [line.split("\t")[0] for line in read_lines(folder.barcodes)]
    if matrix.shape != (len(cells), len(genes)):
        raise ValueError(
            f"{folder.matrix}: got a matrix of {matrix.shape[1]:,} genes × {matrix.shape[0]:,} cells with "
            f"{len(genes):,} names in {folder.genes.name} and {len(cells):,} in {folder.barcodes.name}; expected one "
            "name for each"
        )
    names = [gene[1] if len(gene) > 1 else gene[0] for gene in genes]
    times = Counter(names)
    shared = sum(times[name] > 1 for name in names)
    words = [f"{name} ({gene[0]})" if times[name] > 1 else name for name, gene in zip(names, genes, strict=True)]
    kinds = Counter(gene[2] for gene in genes if len(gene) > 2)
    notes = ("genes × cells, as 10x Genomics writes them: cells are documents",)
    if shared:
        notes += (f"{shared:,} genes share their name with another; their ids stand behind it",)
    if len(kinds) > 1:
        notes += (f"of several kinds: {', '.join(f'{kind} ({count:,})' for kind, count in kinds.items())}",)
    return FileCounts(matrix, words, names=cells, notes=notes)


def read_h5ad(path: str | os.PathLike[str], layer: str | None) -> FileCounts:
    """Read the counts of an AnnData's file, or of one of its layers; needs the package anndata.

    Raises:
        ValueError: there is no such layer, the file has another form, or anndata is not installed.
    """
    try:
        import anndata  # pyright: ignore[reportMissingImports] — an extra
    except ImportError as error:
        raise ValueError(f"{path}: .h5ad files need anndata: pip install 'lvsearch[single-cells]'") from error
    try:
        data = anndata.read_h5ad(path)
    except (ValueError, KeyError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path}: {one_line(error)}; expected a file that AnnData wrote") from error
    found = anndata_counts(data, layer)
    return FileCounts(found.counts, found.vocabulary, names=found.names, metadata=found.metadata)


def _is_matrix(file: Path) -> bool:
    """Return True if a file's name is that of a 10x matrix, packed or not."""
    return file.name.removesuffix(".gz").endswith(MATRIX)


def _files_beside(matrix: Path) -> TenxFolder | None:
    """Return the three files of 10x Genomics to which a matrix file belongs, or None if one is missing."""
    prefix = matrix.name.removesuffix(".gz").removesuffix(MATRIX)

    def find_file(*names: str) -> Path | None:
        """Return the first existing file of these names, packed or not; None if there is none."""
        files = (matrix.with_name(f"{prefix}{name}{packed}") for name in names for packed in ("", ".gz"))
        return next((file for file in files if file.is_file()), None)

    genes, barcodes = find_file(*GENES), find_file(BARCODES)
    return None if genes is None or barcodes is None else TenxFolder(matrix, genes, barcodes)
