"""Genotypes of individuals: the number of copies of every allele of every locus that each individual has.

They are read from files of other programs: STRUCTURE's data file, PLINK's .ped, .raw and .bed, and variant calls (VCF).
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lvsearch.data.base import Nouns
from lvsearch.data.corpus import Corpus
from lvsearch.data.points import Points
from lvsearch.files.packed_files import open_text
from lvsearch.files.untrusted_files import open_ordinary
from lvsearch.models.admixture import alleles_of
from lvsearch.models.plain_arguments import as_path, shortened_repr, whole_number
from lvsearch.reading.vocabulary import read_lines

PED_COLUMNS = ("family", "individual", "father", "mother", "sex", "phenotype")
BIM_COLUMNS = ("chromosome", "variant", "place in centimorgans", "place in bases", "allele 1", "allele 2")
RAW_COLUMNS = ("FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE")
VCF_COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT")
UNKNOWN = "."
"""The mark of an unknown allele, an absent name or an absent value in a VCF file, and of an absent name in a .bim."""
UNKNOWN_IN_PLINK = "0"
"""The mark of an unknown allele in PLINK's .ped and .bim files."""
OTHER = "other"
"""The name of the second allele in .raw files, which count one allele and do not name the other."""


class GenotypeCounts(NamedTuple):
    """The number of copies of each allele in each individual.

    counts: copies, (individuals, alleles of all loci); the alleles of one locus are neighbours
    vocabulary: "locus=allele" for each column
    names: the names of the individuals
    populations: the population of each individual in the file, or None
    notes: what was left out
    """

    counts: csr_array
    vocabulary: tuple[str, ...]
    names: tuple[str, ...]
    populations: tuple[str, ...] | None
    notes: tuple[str, ...]


def read_structure(
    path: str | os.PathLike[str],
    *,
    marker_names: bool,
    populations: bool,
    extra_columns: int,
    one_row: bool,
    ploidy: int,
    missing: str,
) -> GenotypeCounts:
    """Read the alleles of individuals from a data file of the program STRUCTURE, and count their copies.

    An individual has `ploidy` lines, one for each copy of the genome, with an allele of each locus. With `one_row` it
    has a single line with `ploidy` columns for each locus. A name and other columns come first.

    path: the file
    marker_names: True if the first line names the loci
    populations: True if the second column is the population of each individual
    extra_columns: the number of further columns before the alleles
    one_row: True if an individual has one line
    ploidy: the number of copies of the genome in an individual
    missing: the mark of an unknown allele

    Raises ValueError, with the number of the line, for lines of another length, and for a name that changes within an
    individual. Also for another number of lines, two loci with one name, and no locus that varies.
    """
    lines = [(number, line.split()) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    markers = lines.pop(0)[1] if marker_names and lines else []
    if not lines:
        raise ValueError(f"{path}: got no individuals, expected a line for each copy of the genome of each")
    before = 1 + populations + extra_columns
    per_line = ploidy if one_row else 1
    width = before + per_line * len(markers) if marker_names else len(lines[0][1])
    for number, cells in lines:
        if len(cells) != width:
            raise ValueError(
                f"{path}, line {number}: got {len(cells)} columns, expected {width}: a name, "
                f"{'a population, ' if populations else ''}{extra_columns} other columns and {per_line} for each of "
                f"{len(markers) or (width - before) // per_line} loci. Say marker_names=, populations=, extra_columns= "
                "and one_row= as the file has them"
            )
    rows_each = 1 if one_row else ploidy
    if len(lines) % rows_each or (width - before) % per_line or width <= before:
        raise ValueError(
            f"{path}: got {len(lines)} lines of {width} columns, expected {rows_each} lines an individual, and "
            f"{per_line} columns a locus after the first {before}: say ploidy= and one_row= as the file has them"
        )
    groups = [lines[start : start + rows_each] for start in range(0, len(lines), rows_each)]
    for group in groups:
        odd = next((each for each in group if each[1][0] != group[0][1][0]), None)
        if odd is not None:
            raise ValueError(
                f"{path}, line {odd[0]}: got the individual {odd[1][0]!r} after one line of {group[0][1][0]!r}, "
                f"expected {rows_each} lines of each: say ploidy= or one_row=True"
            )
    n_loci = (width - before) // per_line
    loci = markers or [f"locus{number}" for number in range(n_loci)]
    copies = np.array([[cells[before:] for _, cells in group] for group in groups], object)
    # (individual, copy, locus) for both forms
    alleles = copies[:, 0].reshape(len(groups), n_loci, ploidy).swapaxes(1, 2) if one_row else copies
    names = [group[0][1][0] for group in groups]
    from_where = [group[0][1][1] for group in groups] if populations else None
    return count_alleles(alleles, loci, names, from_where, missing, path)


def read_ped(path: str | os.PathLike[str]) -> GenotypeCounts:
    """Read the alleles of individuals from PLINK's .ped file, and count their copies.

    A line has six columns, and then two alleles of each variant, 0 where missing. The names of variants come from the
    .map file beside it, if there is one. The family is the population.

    Raises ValueError, with the number of the line, for lines of another length, also of the .map file; if two variants
    have one name, or no variant varies.
    """
    lines = [(number, line.split()) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    lines = [(number, cells) for number, cells in lines if not cells[0].startswith("#")]
    if not lines:
        raise ValueError(f"{path}: got no individuals, expected a line for each")
    map_file = Path(path).with_suffix(".map")
    names = _variant_names(map_file) if map_file.exists() else None
    width = len(lines[0][1]) if names is None else 6 + 2 * len(names)
    for number, cells in lines:
        if len(cells) != width or width <= 6 or width % 2:
            beside = "" if names is None else f" ({map_file.name} has {len(names)} variants)"
            raise ValueError(
                f"{path}, line {number}: got {len(cells)} columns, expected {width}{beside}: "
                f"{', '.join(PED_COLUMNS)}, then two alleles for each variant"
            )
    n_loci = (width - 6) // 2
    table = np.array([cells for _, cells in lines], object)
    alleles = table[:, 6:].reshape(len(lines), n_loci, 2).swapaxes(1, 2)
    loci = names or [f"variant{number}" for number in range(n_loci)]
    return count_alleles(alleles, loci, table[:, 1].tolist(), table[:, 0].tolist(), UNKNOWN_IN_PLINK, path)


def _variant_names(path: Path) -> list[str]:
    """Return the names of the variants in a .map file of PLINK, the second column of each line.

    Raises ValueError, with the number of the line, for a line of a single column.
    """
    wanted = "the chromosome, the name of the variant and its place, as PLINK writes them"
    return [cells[1] for _, cells in _numbered_lines(path, 2, wanted)]


def _numbered_lines(path: Path, least: int, wanted: str) -> list[tuple[int, list[str]]]:
    """Return (number, cells) of each line of a .map, .bim or .fam file of PLINK, without empty lines.

    least: the least number of cells that a line has
    wanted: what a line has, for messages

    Raises ValueError, with the number of the line, for a line of fewer cells.
    """
    lines = [(number, line.split()) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    for number, cells in lines:
        if len(cells) < least:
            raise ValueError(f"{path}, line {number}: got {shortened_repr(' '.join(cells))} alone; expected {wanted}")
    return lines


def read_raw(path: str | os.PathLike[str]) -> GenotypeCounts:
    """Read the copies of alleles in individuals from PLINK's .raw file, as `plink --recode A` writes it.

    Behind a header, a line has six columns, and then for each variant the copies of the allele that the header names:
    0, 1, 2 or NA. The other allele is called "other". The family is the population.

    Raises ValueError, with the number of the line, for another header, lines of another length and other numbers; also
    if two variants have one name, or no variant varies.
    """
    lines = [line.split() for line in read_lines(path)]
    header = lines[0] if lines else []
    if tuple(header[:6]) != RAW_COLUMNS or len(header) < 7:
        raise ValueError(
            f"{path}, line 1: got {' '.join(header[:7])!r}, expected {' '.join(RAW_COLUMNS)} and a column for each "
            "variant: plink --recode A writes such files"
        )
    rows = []
    for number, cells in enumerate(lines[1:], 2):
        if not cells:
            continue
        bad = next((cell for cell in cells[6:] if cell not in ("0", "1", "2", "NA")), None)
        if len(cells) != len(header) or bad is not None:
            got = f"{len(cells)} columns" if bad is None else repr(bad)
            raise ValueError(
                f"{path}, line {number}: got {got}, expected {len(header)} columns, of variants 0, 1, 2 or NA; files "
                "of --recode AD have a second column for each, leave it out with --recode A"
            )
        rows.append(cells)
    if not rows:
        raise ValueError(f"{path}: got no individuals, expected a line for each after the header")
    loci, named = zip(*(variant.rpartition("_")[::2] for variant in header[6:]), strict=True)
    # a count c of the named allele means: c copies carry it, and the others carry OTHER
    table = np.array(rows, object)
    copies = np.empty((len(rows), 2, len(loci)), object)
    for place, allele in enumerate(named):
        column = table[:, 6 + place]
        for copy in (0, 1):
            known = np.where(column.astype(str) > str(copy), allele, OTHER)
            copies[:, copy, place] = np.where(column == "NA", "NA", known)
    return count_alleles(copies, loci, table[:, 1].tolist(), table[:, 0].tolist(), "NA", path)


def count_alleles(
    alleles: np.ndarray,
    loci: Sequence[str],
    names: Iterable[str],
    populations: Iterable[str] | None,
    missing: str,
    path: str | os.PathLike[str],
) -> GenotypeCounts:
    """Count the copies of each allele in each individual. Loci with a single allele, which tell nothing, are left out.

    alleles: the name of each allele, (individual, copy of the genome, locus)
    loci: the name of each locus
    names: the names of the individuals
    populations: the population of each individual, or None
    missing: the mark of an unknown allele
    path: the file, for messages

    Raises ValueError if two loci have one name, and if no locus is left.
    """
    _refuse_repeated(loci, path)
    counted = [count_locus(locus, alleles[:, :, place], missing) for place, locus in enumerate(loci)]
    return put_loci_together(counted, names, populations, (), path)


def _refuse_repeated(loci: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Raise ValueError if two loci have one name.

    loci: the name of each locus
    path: the file that names them, for messages
    """
    twice = next((name for name, times in Counter(loci).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: got two loci named {twice!r}, expected distinct names")


class LocusCounts(NamedTuple):
    """The number of copies of each allele of one locus in each individual.

    words: "locus=allele" for each allele that some individual has
    copies: the number of copies, (individuals, alleles)
    """

    words: tuple[str, ...]
    copies: np.ndarray


def count_locus(locus: str, alleles: np.ndarray, missing: str) -> LocusCounts:
    """Count the copies of each allele of a locus in each individual.

    locus: the name of the locus
    alleles: the name of each allele, (individual, copy of the genome)
    missing: the mark of an unknown allele
    """
    column = alleles.astype(str)
    found = sorted(set(column.ravel()) - {missing}, key=_allele_order)
    copies = [(column == allele).sum(1, dtype=np.int32) for allele in found]
    together = np.stack(copies, axis=1) if copies else np.zeros((len(column), 0), np.int32)
    return LocusCounts(tuple(f"{locus}={allele}" for allele in found), together)


def _allele_order(allele: str) -> tuple[int, str]:
    """Return the key by which the alleles of a locus are sorted: short names first, so that 98 stands before 102."""
    return len(allele), allele


def put_loci_together(
    counted: Sequence[LocusCounts],
    names: Iterable[str],
    populations: Iterable[str] | None,
    notes: tuple[str, ...],
    path: str | os.PathLike[str],
) -> GenotypeCounts:
    """Return the counts of all loci in one table. Loci with a single allele, which tell nothing, are left out.

    counted: the copies of the alleles of each locus
    names: the names of the individuals
    populations: the population of each individual, or None
    notes: what was left out before
    path: the file, for messages

    Raises ValueError if no locus is left.
    """
    varying = [each for each in counted if len(each.words) > 1]
    constant = len(counted) - len(varying)
    if not varying:
        before = "".join(f"; {note}" for note in notes)
        raise ValueError(
            f"{path}: got {len(counted)} loci with one allele or none each, expected some that vary{before}"
        )
    notes = (*notes, *([f"{constant} of {len(counted)} loci with one allele or none left out"] if constant else []))
    together = csr_array(np.concatenate([each.copies for each in varying], axis=1))
    vocabulary = tuple(word for each in varying for word in each.words)
    from_where = None if populations is None else tuple(populations)
    return GenotypeCounts(together, vocabulary, tuple(names), from_where, notes)


# ── PLINK's binary files ─────────────────────────────────────────────────────────────────────────────────────────────

BED_BEGINNING = b"\x6c\x1b"
"""The first two bytes of PLINK's .bed files. A third one says in which order the genotypes are."""
BY_VARIANT, BY_INDIVIDUAL = b"\x01", b"\x00"
"""The third byte of a .bed file: all individuals of a variant are neighbours, or all variants of an individual."""
GENOTYPES_IN_A_BYTE = 4
GENOTYPES_AT_ONCE = 1 << 22
"""The number of genotypes of a .bed file that are read at once, if one variant has no more."""
CODES_OF_BYTES = (np.arange(256)[:, None] >> np.arange(0, 8, 2) & 3).astype(np.uint8)
"""The codes of the four genotypes in each byte, the lowest bits first, (256, 4)."""
COPIES_BY_CODE = np.array([[2, 0], [0, 0], [1, 1], [0, 2]], np.int8)
"""The copies of alleles 1 and 2 that each code stands for, (4, 2). Code 1 is a missing genotype."""
MISSING_CODE = 1


def read_bed(path: str | os.PathLike[str]) -> GenotypeCounts:
    """Read the copies of alleles in individuals from PLINK's .bed file.

    Beside it are two files of text: .bim names the variants and their two alleles, .fam the individuals. The family is
    the population. A variant called "." is named by its place. An allele called 0 is unknown, as in .ped files. A note
    says how many genotypes are missing.

    Raises FileNotFoundError if one of the three files is missing. Raises ValueError for a file that is no .bed or whose
    genotypes go individual by individual; for no individuals, and for a size in bytes other than that of the
    individuals and variants named; with the number of the line, for a line of .bim or .fam that lacks columns, and for
    a variant whose alleles have one name; if two variants have one name, or no variant varies.
    """
    path = as_path("path", path)
    counted, missing = [], 0
    with open_ordinary(path) as file:
        _require_bed(file.read(len(BED_BEGINNING) + 1), path)
        bim, fam = (_beside(path, ending) for ending in (".bim", ".fam"))
        people = [cells for _, cells in _numbered_lines(fam, len(PED_COLUMNS), ", ".join(PED_COLUMNS))]
        if not people:
            raise ValueError(f"{fam}: got no individuals, expected a line for each")
        variants = _bim_variants(bim)
        width = -(-len(people) // GENOTYPES_IN_A_BYTE)
        size, expected = os.fstat(file.fileno()).st_size, len(BED_BEGINNING) + 1 + width * len(variants)
        if size != expected:
            raise ValueError(
                f"{path}: got {size:,} bytes, expected {expected:,}: {len(BED_BEGINNING) + 1} at the beginning, then "
                f"{width:,} for each of {len(variants):,} variants in {bim.name}, with {GENOTYPES_IN_A_BYTE} of "
                f"{len(people):,} individuals in {fam.name} to a byte. Take .bed, .bim and .fam of one run of PLINK, "
                "each whole"
            )
        at_once = max(1, GENOTYPES_AT_ONCE // len(people))
        for first in range(0, len(variants), at_once):
            block = variants[first : first + at_once]
            packed = np.frombuffer(file.read(width * len(block)), np.uint8).reshape(len(block), width)
            # the last byte of a variant is filled up with codes of nobody
            codes = CODES_OF_BYTES[packed].reshape(len(block), -1)[:, : len(people)]
            missing += int((codes == MISSING_CODE).sum())
            counted += [_bed_locus(*variant, of_variant) for variant, of_variant in zip(block, codes, strict=True)]
    total = len(people) * len(variants)
    notes = (f"missing genotypes: {missing:,} of {total:,}",) if missing else ()
    return put_loci_together(counted, [cells[1] for cells in people], [cells[0] for cells in people], notes, path)


def _require_bed(beginning: bytes, path: Path) -> None:
    """Raise ValueError if the first three bytes are not those of a .bed file that goes variant by variant."""
    if beginning == BED_BEGINNING + BY_INDIVIDUAL:
        raise ValueError(
            f"{path}: got genotypes individual by individual (the third byte is 00), expected them variant by variant "
            f"(01): plink --bfile {path.stem} --make-bed --out rewritten writes them so"
        )
    if beginning != BED_BEGINNING + BY_VARIANT:
        raise ValueError(
            f"{path}: got the first bytes {beginning.hex(' ') or '(none)'}, expected "
            f"{(BED_BEGINNING + BY_VARIANT).hex(' ')}, with which a .bed file of PLINK begins: plink --make-bed writes "
            "it. Intervals of a genome, in text files that are also called .bed, hold no genotypes"
        )


def _beside(path: Path, ending: str) -> Path:
    """Return the path of the file of another ending beside a .bed file. Raises FileNotFoundError if it is missing."""
    other = path.with_suffix(ending)
    if not other.exists():
        raise FileNotFoundError(
            f"no file {other}: expected {path.stem}.bim, which names variants, and {path.stem}.fam, which names "
            f"individuals, beside {path.name}, as plink --make-bed writes them"
        )
    return other


def _bim_variants(path: Path) -> list[tuple[str, tuple[str, str]]]:
    """Return the name and the two alleles of each variant in a .bim file of PLINK.

    Raises ValueError, with the number of the line, for a line that lacks columns and for two alleles with one name;
    also if two variants have one name.
    """
    variants = []
    for number, cells in _numbered_lines(path, len(BIM_COLUMNS), ", ".join(BIM_COLUMNS)):
        chromosome, name, _, position, *alleles = cells[: len(BIM_COLUMNS)]
        if alleles[0] == alleles[1] != UNKNOWN_IN_PLINK:
            raise ValueError(
                f"{path}, line {number}: got {alleles[0]!r} as both alleles of {name!r}, expected two alleles"
            )
        variants.append((_name_or_place(name, chromosome, position), tuple(alleles)))
    _refuse_repeated([name for name, _ in variants], path)
    return variants


def _bed_locus(locus: str, alleles: tuple[str, str], codes: np.ndarray) -> LocusCounts:
    """Count the copies of both alleles of a variant in each individual.

    locus: the name of the variant
    alleles: the names of alleles 1 and 2
    codes: the code of each individual's genotype, from 0 to 3
    """
    copies = COPIES_BY_CODE[codes]
    found = [place for place, allele in enumerate(alleles) if allele != UNKNOWN_IN_PLINK and copies[:, place].any()]
    found.sort(key=lambda place: _allele_order(alleles[place]))
    return LocusCounts(tuple(f"{locus}={alleles[place]}" for place in found), copies[:, found])


# ── variant calls ───────────────────────────────────────────────────────────────────────────────────────────────────


class CalledVariant(NamedTuple):
    """One line of a VCF file.

    line: its number in the file, from 1
    name: the ID, or "chromosome:position" without one
    alleles: REF, and then every ALT
    failed: the filters that the variant failed; () for PASS, and where no filter was applied
    genotypes: the GT of each individual, such as "0/1", "1|1" or "./."; () if the line has none
    """

    line: int
    name: str
    alleles: tuple[str, ...]
    failed: tuple[str, ...]
    genotypes: tuple[str, ...]


def read_vcf(path: str | os.PathLike[str], *, ploidy: int, keep_filtered: bool) -> GenotypeCounts:
    """Read the alleles of individuals from a VCF file of text, packed or not, and count their copies.

    ploidy: the number of copies of the genome; a genotype with another number of alleles is unknown
    keep_filtered: True to keep variants that failed a filter

    A variant is named by its ID, else by its place, and by place and alleles where two would have one name. Notes say
    how many variants and genotypes were left out, and why.

    Raises ValueError, with the number of the line, for a file that is no VCF, lines of another length, and genotypes of
    alleles that the variant does not have. Also for two individuals or two variants with one name, and no locus that
    varies.
    """
    counted: list[LocusCounts] = []
    first_line: dict[str, int] = {}
    without_genotypes, filtered, failed, odd = 0, 0, Counter(), []
    with open_text(path) as file:
        lines = enumerate((line.rstrip("\n") for line in file), 1)
        individuals = _vcf_individuals(lines, path)
        for variant in _vcf_variants(lines, len(individuals), path):
            if variant.failed and not keep_filtered:
                filtered, failed = filtered + 1, failed + Counter(variant.failed)
                continue
            if not variant.genotypes:
                without_genotypes += 1
                continue
            name = variant.name
            if name in first_line:  # of two lines at one place, the alleles tell them apart
                name = f"{name}:{variant.alleles[0]}>{','.join(variant.alleles[1:])}"
            if name in first_line:
                raise ValueError(
                    f"{path}, line {variant.line}: got the variant {name!r} again after line {first_line[name]}, "
                    "expected distinct IDs, or distinct places and alleles"
                )
            first_line[name] = variant.line
            column, others = _vcf_alleles(variant, individuals, ploidy, path)
            odd += [(individuals[place], name) for place in others]
            counted.append(count_locus(name, column, UNKNOWN))
    n_variants = len(counted) + without_genotypes + filtered
    notes = []
    if filtered:
        named = ", ".join(f"{name} {times:,}" for name, times in failed.most_common(5))
        notes.append(f"variants that failed a filter, left out: {filtered:,} of {n_variants:,} ({named})")
    if without_genotypes:
        notes.append(f"variants without genotypes (GT), left out: {without_genotypes:,} of {n_variants:,}")
    if odd:
        who, where = odd[0]
        notes.append(
            f"genotypes of another number of alleles than {ploidy}, taken as unknown: {len(odd):,} (the first: {who} "
            f"at {where})"
        )
    return put_loci_together(counted, individuals, None, tuple(notes), path)


def _vcf_individuals(lines: Iterator[tuple[int, str]], path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read the header of a VCF file up to its last line, and return the names of the individuals.

    lines: (number, text) of each line; the header is taken from it

    Raises ValueError, with the number of the line, for another header, no individual, and a name that occurs twice.
    """
    number, line = next(lines, (1, ""))
    if not line.startswith("##fileformat=VCF"):
        raise ValueError(
            f"{path}, line 1: got {shortened_repr(line)}, expected ##fileformat=VCFv4.2 or another version"
        )
    while line.startswith("##"):
        number, line = next(lines, (number + 1, ""))
    columns = line.split("\t")
    fixed, individuals = tuple(columns[: len(VCF_COLUMNS)]), tuple(columns[len(VCF_COLUMNS) :])
    if fixed != VCF_COLUMNS or not individuals:
        got = "no individuals" if fixed in (VCF_COLUMNS, VCF_COLUMNS[:-1]) else shortened_repr(line)
        raise ValueError(
            f"{path}, line {number}: got {got}, expected the line {' '.join(VCF_COLUMNS)} and the names of "
            "individuals, separated by tabs"
        )
    twice = next((name for name, times in Counter(individuals).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"{path}, line {number}: got two individuals named {twice!r}, expected distinct names")
    return individuals


def _vcf_variants(
    lines: Iterator[tuple[int, str]], n_individuals: int, path: str | os.PathLike[str]
) -> Iterator[CalledVariant]:
    """Yield the variants of a VCF file, a line each.

    lines: (number, text) of each line after the header

    Raises ValueError, with the number of the line, for lines of another length.
    """
    width = len(VCF_COLUMNS) + n_individuals
    for number, line in lines:
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) != width:
            raise ValueError(
                f"{path}, line {number}: got {len(cells)} columns, expected {width}, separated by tabs: "
                f"{len(VCF_COLUMNS)} of the variant and one for each of {n_individuals} individuals"
            )
        chromosome, position, name, ref, alt, _, failed, _, form = cells[: len(VCF_COLUMNS)]
        keys = form.split(":")
        place = keys.index("GT") if "GT" in keys else None
        yield CalledVariant(
            number,
            _name_or_place(name, chromosome, position),
            (ref, *([] if alt == UNKNOWN else alt.split(","))),
            () if failed in (UNKNOWN, "PASS") else tuple(failed.split(";")),
            () if place is None else tuple(_value_at(cell, place) for cell in cells[len(VCF_COLUMNS) :]),
        )


def _name_or_place(name: str, chromosome: str, position: str) -> str:
    """Return the name of a variant, or "chromosome:position" if the file gives "." for it."""
    return f"{chromosome}:{position}" if name == UNKNOWN else name


def _value_at(cell: str, place: int) -> str:
    """Return the value at a place of a cell such as "0/1:35:9"; values at the end may be left out, and are unknown."""
    values = cell.split(":", place + 1)
    return values[place] if place < len(values) else UNKNOWN


def _vcf_alleles(
    variant: CalledVariant, individuals: Sequence[str], ploidy: int, path: str | os.PathLike[str]
) -> tuple[np.ndarray, list[int]]:
    """Return the names of the alleles of a variant, (individual, copy), and who has another number of alleles.

    The alleles of the latter are unknown.

    Raises ValueError, with the number of the line, for a genotype of other alleles than the variant has.
    """
    numbers = {str(number): allele for number, allele in enumerate(variant.alleles)} | {UNKNOWN: UNKNOWN}
    by_genotype: dict[str, tuple[str, ...]] = {}
    others, rows = [], []
    for place, genotype in enumerate(variant.genotypes):
        if genotype not in by_genotype:
            copies = re.split(r"[/|]", genotype.lstrip("/|"))
            unknown = next((copy for copy in copies if copy not in numbers), None)
            if unknown is not None:
                raise ValueError(
                    f"{path}, line {variant.line}: got the genotype {genotype!r} of {individuals[place]}, expected "
                    f"numbers of alleles from 0 to {len(variant.alleles) - 1}, or . where unknown, such as 0/1 or ./."
                )
            by_genotype[genotype] = tuple(numbers[copy] for copy in copies)
        found = by_genotype[genotype]
        if len(found) != ploidy:
            if set(found) != {UNKNOWN}:
                others.append(place)
            found = (UNKNOWN,) * ploidy
        rows.append(found)
    return np.array(rows, str), others


class Genotypes(Corpus):
    """A corpus whose documents are individuals and whose words are alleles, "locus=allele", locus after locus.

    Build one with `from_structure`, `from_ped`, `from_raw`, `from_bed` or `from_vcf`, or from counts with
    `from_matrix`. A missing genotype has no copies. `document_labels` are the populations that the file names; they are
    never used in fitting.
    Use it with `lv.models.Admixture.from_vocabulary(genotypes.vocabulary)`, or without admixture with `points()`.
    """

    nouns: ClassVar[Nouns] = Nouns("genotypes", "individual", "individuals", "allele copy", "allele copies")
    accepted: ClassVar[str] = "Genotypes or a matrix of counts of alleles"

    @classmethod
    def from_structure(
        cls,
        path: str | os.PathLike[str],
        *,
        marker_names: bool = True,
        populations: bool = False,
        extra_columns: int = 0,
        one_row: bool = False,
        ploidy: int = 2,
        missing: str | int = "-9",
    ) -> "Genotypes":
        """Read a data file of STRUCTURE, whose columns are separated by blanks.

        Args:
            path: the file.
            marker_names: True if the first line names the loci.
            populations: True if a column after the individual's name says where it is from (STRUCTURE's PopData).
            extra_columns: the number of other columns before the genotypes (PopFlag, LocData, phenotype…).
            one_row: True if all copies of an individual are on one line, those of a locus side by side (ONEROWPERIND);
                else each copy of the genome has a line.
            ploidy: the number of copies of the genome.
            missing: the mark of an unknown allele.

        Raises:
            ValueError: with the line, a line of another length or an individual with another number of lines; two loci
                of one name; no locus that varies; a `missing` that is neither text nor a whole number.
        """
        if isinstance(missing, bool) or not isinstance(missing, str | int | np.integer):
            raise ValueError(f"got missing={missing!r}, expected the mark as it stands in the file, such as '-9'")
        return cls._read(
            read_structure(
                path,
                marker_names=marker_names,
                populations=populations,
                extra_columns=extra_columns,
                one_row=one_row,
                ploidy=ploidy,
                missing=str(missing),
            )
        )

    @classmethod
    def from_ped(cls, path: str | os.PathLike[str]) -> "Genotypes":
        """Read a .ped file of PLINK. Families become the populations, and a .map file beside it names the variants.

        Raises ValueError, with the line, for lines of another length.
        """
        return cls._read(read_ped(path))

    @classmethod
    def from_raw(cls, path: str | os.PathLike[str]) -> "Genotypes":
        """Read a .raw file of PLINK (`--recode A`): the copies of the named allele and of the other one.

        Raises ValueError, with the line, for another header, lines of another length, and values other than 0, 1, 2 or
        NA.
        """
        return cls._read(read_raw(path))

    @classmethod
    def from_bed(cls, path: str | os.PathLike[str]) -> "Genotypes":
        """Read a .bed file of PLINK (`--make-bed`), with the .bim and .fam files of the same name beside it.

        A variant is a locus, called by its name in the .bim file, or "chromosome:position" where that is ".". Families
        become the populations. `notes` say how many genotypes are missing and how many loci do not vary.

        Raises FileNotFoundError if one of the three files is missing. Raises ValueError for a file that is no .bed or
        goes individual by individual; for another number of bytes than the individuals and variants need; with the
        line, for wrong lines of the .bim and .fam; for two variants of one name and for no locus that varies.
        """
        return cls._read(read_bed(path))

    @classmethod
    def from_vcf(cls, path: str | os.PathLike[str], *, ploidy: int = 2, keep_filtered: bool = False) -> "Genotypes":
        """Read the genotypes (GT) of a VCF file: text, also packed (.vcf.gz). Phase is not used.

        A variant is a locus, called by its ID, else "chromosome:position"; its alleles are REF and every ALT. `notes`
        say what was left out: variants that failed a filter or have no genotypes, loci that do not vary, and genotypes
        of another ploidy. The file names no populations.

        Args:
            path: the file. Of a binary one (.bcf): `bcftools view -o calls.vcf.gz calls.bcf`.
            ploidy: the number of copies of the genome. A genotype with another number of alleles, such as "1" of a male
                on X, is unknown.
            keep_filtered: True keeps variants whose column FILTER names filters that they failed.

        Raises:
            ValueError: with the line, a header or a line of another form, or a genotype of alleles that the variant has
                not; two individuals or variants of one name; no locus that varies; a ploidy below 1.
        """
        return cls._read(read_vcf(path, ploidy=whole_number("ploidy", ploidy, least=1), keep_filtered=keep_filtered))

    @classmethod
    def _read(cls, found: GenotypeCounts) -> "Genotypes":
        """Return the genotypes that a reader of files found.

        found: counts, vocabulary, names, populations and notes.
        """
        return cls(found.counts, found.vocabulary, found.names, found.populations, found.notes)

    @property
    def alleles(self) -> tuple[int, ...]:
        """The number of alleles of each locus, in the order of the vocabulary."""
        return alleles_of(self.vocabulary)

    def points(self) -> Points:
        """Return the counts as rows, for mixtures in which each individual belongs to one population.

        Use it with `FiniteMixture(lv.models.GenotypeComponents(genotypes.alleles))`.
        """
        return Points.from_array(
            self.counts.toarray().astype(float), columns=self.vocabulary, row_names=self.document_names
        )

    def describe(self) -> str:
        """Return the sizes in one line, such as "120 individuals, 40 loci, 122 alleles, 9,412 allele copies"."""
        return (
            f"{self.n_documents:,} individuals, {len(self.alleles):,} loci, {self.n_terms:,} alleles, "
            f"{self.n_tokens:,} allele copies"
        )

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return (name, value) pairs: the numbers of individuals, loci, alleles, copies and populations."""
        named = "not named" if self.document_labels is None else f"{len(set(self.document_labels)):,} named"
        return (
            ("individuals", f"{self.n_documents:,}, of which {self.n_empty_documents:,} without a genotype"),
            ("loci", f"{len(self.alleles):,}"),
            ("alleles", f"{self.n_terms:,}"),
            ("allele copies", f"{self.n_tokens:,}"),
            ("populations", named),
        )
