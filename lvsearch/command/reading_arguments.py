"""Options that say how documents are read: columns of tables, words of texts, layouts of counts."""

import argparse


def add_columns(data: argparse._ActionsContainer) -> None:
    """Add the options that say which columns of a table hold text, id and label, and its encoding."""
    data.add_argument("--text-column", metavar="NAME", help="of a table: the column with the texts")
    data.add_argument("--id-column", metavar="NAME", help="of a table: the column that names the documents")
    data.add_argument("--label-column", metavar="NAME", help="of a table: a class to show beside topics, never fitted")
    data.add_argument(
        "--encoding", default="utf-8", help="of texts and vocabulary, such as latin-1 (default: %(default)s)"
    )


def add_cutting(data: argparse._ActionsContainer) -> None:
    """Add the options that say how texts are cut into words, and which words are kept."""
    data.add_argument(
        "--stop-words",
        metavar="WORDS",
        help="english (of texts the default), another language such as german (lvsearch[stop-words]), a file with "
        "a word per line, or none",
    )
    data.add_argument(
        "--token-pattern",
        metavar="REGEX",
        help="of texts: every match is a word (default: letters, their marks and digits, joined by underscores; words "
        "with digits and, in alphabets, of fewer than three letters are left out)",
    )
    data.add_argument(
        "--ngram-range",
        type=_two_numbers,
        metavar="FIRST,LAST",
        default=(1, 1),
        help="of texts: count runs of so many words; 1,2 for single words and pairs (default: 1,1)",
    )
    data.add_argument(
        "--minimum-document-frequency",
        type=int,
        metavar="N",
        help="keep words in at least so many documents (default: of 200 texts or more a hundredth of them, at most 5)",
    )
    data.add_argument(
        "--maximum-document-fraction",
        type=float,
        metavar="F",
        help="keep words in at most this part of the documents (default: of 200 texts or more 0.5)",
    )


def add_counts(data: argparse._ActionsContainer) -> None:
    """Add the options that say how files of counts are laid out."""
    data.add_argument(
        "--documents",
        choices=("rows", "columns"),
        default="rows",
        help="of a matrix (.mtx, .mm, .npz): what its documents are (default: %(default)s)",
    )
    data.add_argument(
        "--first-id", type=int, choices=(0, 1), help="of SVMlight: the id of the first word, where it is not plain"
    )
    data.add_argument("--layer", metavar="NAME", help="of .h5ad: the layer that holds counts (default: X)")


def _two_numbers(text: str) -> tuple[int, int]:
    """Return the two numbers of an argument such as "1,2"; a single number stands for both."""
    first, _, last = text.partition(",")
    return int(first), int(last or first)
