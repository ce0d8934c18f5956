"""Read counts of genes in single cells: folders of 10x Genomics, and AnnData's files."""

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from scipy.sparse import csr_array

from lvsearch.files.packed_files import open_unpacked
from lvsearch.reading.count_files import FileCounts
from lvsearch.reading.other_libraries import anndata_counts
from lvsearch.reading.vocabulary import read_lines

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
    from scipy.io import mmread  # imported here: few calls need it, and it is slow to import

    with open_unpacked(folder.matrix) as file:
        try:
            matrix = csr_array(csr_array(mmread(file, spmatrix=False)).T)
        except (ValueError, OverflowError, EOFError) as error:
            raise ValueError(f"{folder.matrix}: {' '.join(str(error).split())}; expected Matrix Market") from error
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
        raise ValueError(f"{path}: {' '.join(str(error).split())}; expected a file that AnnData wrote") from error
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
