"""Decide by limits on the number of documents with a term whether the term is kept."""

from typing import NamedTuple

from lvsearch.models.plain_arguments import real_number, whole_number

MANY = 200
"""The number of documents from which on rare and common words are left out by default."""


class Limits(NamedTuple):
    """Limits on the number of documents that a term must be in to be kept.

    least: the smallest number of documents; 1 is no limit
    most: the greatest fraction of the documents; 1 is no limit
    """

    least: int
    most: float

    @classmethod
    def of_texts(cls, n_texts: int, least: int | None, most: float | int | None) -> "Limits":
        """Return the limits for texts, with defaults that depend on the number of texts.

        By default there are no limits below 200 texts. From there on `least` is a hundredth of the texts but at most 5,
        and `most` is a half.

        n_texts: the number of texts
        least: the smallest number of documents of a term; None for the default
        most: the greatest fraction of documents of a term; None for the default

        Raises ValueError for a limit out of range.
        """
        many = n_texts >= MANY
        return cls.checked(
            least if least is not None else min(5, n_texts // 100) if many else 1,
            most if most is not None else 0.5 if many else 1.0,
        )

    @classmethod
    def of_counts(cls, least: int | None, most: float | int | None) -> "Limits":
        """Return the limits for counts, without defaults: None is no limit.

        least: the smallest number of documents of a term
        most: the greatest fraction of documents of a term

        Raises ValueError for a limit out of range.
        """
        return cls.checked(1 if least is None else least, 1.0 if most is None else most)

    @classmethod
    def checked(cls, least: int, most: float | int) -> "Limits":
        """Return the limits after checking them. Raises ValueError for a limit out of range."""
        return cls(
            whole_number("minimum_document_frequency", least, least=1),  # 1: no limit
            real_number("maximum_document_fraction", most, above=0, most=1),  # 1: no limit
        )

    def rule(self, n_documents_of_term: int, n_documents: int) -> str | None:
        """Return the words for the limit that leaves a term out, completing "words …"; None for a term that is kept.

        n_documents_of_term: the number of documents with the term
        n_documents: the number of all documents
        """
        if n_documents_of_term < self.least:
            return self.rare
        return self.common if n_documents_of_term > self.most * n_documents else None

    @property
    def rare(self) -> str:
        """The words for the lower limit, such as "in fewer than 5 documents"."""
        return f"in fewer than {self.least:,} documents"

    @property
    def common(self) -> str:
        """The words for the upper limit, such as "in more than 50% of the documents"."""
        return f"in more than {self.most:.0%} of the documents"
