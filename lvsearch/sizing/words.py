"""Sizes and counted things in words, for messages."""

from collections.abc import Sequence

from lvsearch.sizing.sizes import Size


def size_text(size: Size) -> str:
    """Return a size as text, such as "5" or "3×2"."""
    return "×".join(map(str, size))


def size_with_nouns(size: Size, names: Sequence[str]) -> str:
    """Return a size with its nouns, such as "18 topics" or "3 topics × 2 regions".

    names: the names of the size variables, such as "topics" or "row_clusters".
    """
    return " × ".join(with_noun(number, name.replace("_", " ")) for number, name in zip(size, names, strict=True))


def sizes_in_words(sizes: Sequence[Size]) -> str:
    """Return sizes in increasing order as text: "12–14, 20" for one size variable, "2×3, 4×1" for several."""
    if any(len(size) > 1 for size in sizes):
        return ", ".join(map(size_text, sorted(sizes)))
    runs: list[tuple[int, int]] = []
    for (size,) in sorted(sizes):
        if runs and size == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], size)
        else:
            runs.append((size, size))
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


MOST_LISTED = 4
"""The largest number of sizes of several size variables that are listed. Of more, each variable's range is told."""


def first_to_last(sizes: Sequence[Size]) -> str:
    """Return the range from the smallest to the largest size, such as "10–14".

    Of several size variables a few sizes are listed, "2×3, 2×4", and of more the range of each variable is told, such
    as "2–3 × 2–19". Not all of the sizes within these ranges need be among `sizes`.

    sizes: one or more sizes.
    """
    if len(sizes[0]) > 1 and len(sizes) <= MOST_LISTED:
        return sizes_in_words(sizes)
    ends = [(min(numbers), max(numbers)) for numbers in zip(*sizes, strict=True)]
    return " × ".join(str(first) if first == last else f"{first}–{last}" for first, last in ends)


def between_in_words(sizes: Sequence[Size]) -> str:
    """Return sizes as they follow "between": "12 and 14" for 12, 13 and 14, "12–14 and 20", or "2×3 and 4×1".

    sizes: two sizes or more.
    """
    runs = sizes_in_words(sizes).split(", ")
    if len(runs) == 1:
        return runs[0].replace("–", " and ")
    return f"{', '.join(runs[:-1])} and {runs[-1]}"


def with_noun(number: int, plural: str) -> str:
    """Return a number with its noun, such as "3 occupied components" or "1 occupied component".

    For the number one, the first word that ends in s loses the s.

    number: the number of things.
    plural: the noun in the plural, with any words around it.
    """
    if number != 1:
        return f"{number} {plural}"
    words = plural.split(" ")
    last = next((place for place, word in enumerate(words) if word.endswith("s")), None)
    return " ".join(["1", *(word[:-1] if place == last else word for place, word in enumerate(words))])


def had_not_finished(why: str | None) -> str:
    """Return a clause which says that a search had not finished when it was checked; "" if `why` is None.

    The clause has no full stop.

    why: the reason why the search did not finish, from `Findings.why_unfinished`; None if it finished.
    """
    return (
        "" if why is None else f"the search had not finished when this was asked ({why}): its answer may still change"
    )


def is_or_are(number: int) -> str:
    """Return "is" for one thing and "are" for any other number."""
    return "is" if number == 1 else "are"
