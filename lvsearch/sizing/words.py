"""Sizes and numbers of things in words."""

from collections.abc import Sequence

from lvsearch.sizing.sizes import Size


def sizes_in_words(sizes: Sequence[Size]) -> str:
    """Such as "12–14, 20": runs of consecutive sizes where there is one variable, else each size."""
    if any(len(size) > 1 for size in sizes):
        return ", ".join("×".join(map(str, size)) for size in sorted(sizes))
    runs: list[tuple[int, int]] = []
    for (size,) in sorted(sizes):
        if runs and size == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], size)
        else:
            runs.append((size, size))
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def counted(number: int, plural: str) -> str:
    """Such as "3 occupied components", "1 occupied component": of the first word in s, one has none."""
    if number != 1:
        return f"{number} {plural}"
    words = plural.split(" ")
    last = next((place for place, word in enumerate(words) if word.endswith("s")), None)
    return " ".join(["1", *(word[:-1] if place == last else word for place, word in enumerate(words))])


def had_not_finished(why: str | None) -> str:
    """What a sentence says that was asked of a search before its end, without a full stop; nothing where `why` is None.

    why: what kept the search from its end, as `Findings.why_unfinished` has it.
    """
    return (
        "" if why is None else f"the search had not finished when this was asked ({why}): its answer may still change"
    )


def is_or_are(number: int) -> str:
    """The verb of a number of things."""
    return "is" if number == 1 else "are"
