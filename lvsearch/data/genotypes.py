"""Genotypes of individuals: the number of copies of every allele of every locus that each individual has."""

import os
from typing import ClassVar

from lvsearch.data.base import Nouns
from lvsearch.data.corpus import Corpus
from lvsearch.data.points import Points
from lvsearch.models.admixture import alleles_of
from lvsearch.reading.genotype_files import GenotypeCounts, read_ped, read_raw, read_structure


class Genotypes(Corpus):
    """A corpus whose documents are individuals and whose words are alleles, "locus=allele", locus after locus.

    Build one with `from_structure`, `from_ped` or `from_raw`, or from counts with `from_matrix`. A missing genotype has
    no copies. `document_labels` are the populations that the file names; they are never used in fitting. Use it with
    `lv.models.Admixture.from_vocabulary(genotypes.vocabulary)`, or without admixture with `points()`.
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
        missing: str = "-9",
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
                of one name; no locus that varies.
        """
        return cls._read(
            read_structure(
                path,
                marker_names=marker_names,
                populations=populations,
                extra_columns=extra_columns,
                one_row=one_row,
                ploidy=ploidy,
                missing=missing,
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
