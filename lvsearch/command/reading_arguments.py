"""Add the options of the command line that say how documents are read: columns, words of texts, layouts of counts."""

import argparse


def add_columns(data: argparse._ActionsContainer) -> None:
    """Add the options that say which columns of a table hold text, id and label, and in which encoding it is.

    data: a parser, or a group of its options
    """
    data.add_argument("--text-column", metavar="NAME", help="for a table: the column with the texts")
    data.add_argument("--id-column", metavar="NAME", help="for a table: the column that names the documents")
    data.add_argument("--label-column", metavar="NAME", help="for a table: a class to show beside topics, never fitted")
    data.add_argument(
        "--encoding", default="utf-8", help="encoding of texts and vocabulary, such as latin-1 (default: %(default)s)"
    )


def add_cutting(data: argparse._ActionsContainer) -> None:
    """Add the options that say how texts are cut into words, and which words are kept.

    data: a parser, or a group of its options
    """
    data.add_argument(
        "--stop-words",
        metavar="WORDS",
        help="english (the default for texts), another language such as german (lvsearch[stop-words]), a file with "
        "a word per line, or none",
    )
    data.add_argument(
        "--token-pattern",
        metavar="REGEX",
        help="for texts: every match is a word (default: letters, their marks and digits, joined by underscores; words "
        "with digits and, in alphabets, of fewer than three letters are left out)",
    )
    data.add_argument(
        "--ngram-range",
        type=_two_numbers,
        metavar="FIRST,LAST",
        default=(1, 1),
        help="for texts: count runs of FIRST to LAST words; 1,2 for single words and pairs (default: 1,1)",
    )
    data.add_argument(
        "--minimum-document-frequency",
        type=int,
        metavar="N",
        help="keep words in at least N documents (default: for 200 texts or more a hundredth of them, at most 5)",
    )
    data.add_argument(
        "--maximum-document-fraction",
        type=float,
        metavar="F",
        help="keep words in at most this part of the documents (default: 0.5 for 200 texts or more)",
    )


def add_counts(data: argparse._ActionsContainer) -> None:
    """Add the options that say how files of word counts are laid out.

    data: a parser, or a group of its options
    """
    data.add_argument(
        "--documents",
        choices=("rows", "columns"),
        default="rows",
        help="for a matrix (.mtx, .mm, .npz): whether documents are rows or columns (default: %(default)s)",
    )
    data.add_argument(
        "--first-id",
        type=int,
        choices=(0, 1),
        help="for SVMlight: the id of the first word, if the file leaves it open",
    )
    data.add_argument("--layer", metavar="NAME", help="for .h5ad: the layer that holds counts (default: X)")


def _two_numbers(text: str) -> tuple[int, int]:
    """Return the two whole numbers of an argument such as "1,2"; a single number, "2" or "2,", gives (2, 2).

    Raises ValueError for anything else.
    """
    first, _, last = text.partition(",")
    return int(first), int(last or first)
