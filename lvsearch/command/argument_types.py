"""Read the numbers of a command line; other words end in a message that says what was expected."""

import argparse
import math


def read_number(text: str) -> float:
    """Return the number of an argument such as "0.5". Raises `argparse.ArgumentTypeError` for other words."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number, such as 60 or 0.5") from None


def read_positive_number(text: str) -> float:
    """Return the finite number above 0 of an argument such as "0.5".

    Raises `argparse.ArgumentTypeError` for other words and numbers.
    """
    number = read_number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a finite number above 0")
    return number


def read_whole_number(text: str) -> int:
    """Return the whole number of an argument such as "3". Raises `argparse.ArgumentTypeError` for other words."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number, such as 3") from None


def read_two_numbers(text: str) -> tuple[int, int]:
    """Return the two whole numbers of an argument such as "1,2"; a single number, "2" or "2,", gives (2, 2).

    Raises `argparse.ArgumentTypeError` for anything else.
    """
    first, _, last = text.partition(",")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected two whole numbers, such as 1,2") from None
