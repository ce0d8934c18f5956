"""A report: docstrings and names that a reader may stumble over.

    python tests/house/words.py [--list]

It counts docstrings that open without a subject or a verb, sentences of more than 40 words, functions and classes whose
name says nothing alone, arguments and results that are arrays and whose axes are named nowhere, and log-probabilities
whose unit is not said. Nothing here is a limit, because a docstring can satisfy every count and still say nothing.
Whether it says something, only a reader who has not seen the code can tell. `--list` prints where each of them is.
"""

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPENS_WITHOUT_SUBJECT = re.compile(
    r"^(Of|As|That|Those|These|What|Whichever|Where|With|Without|From|On|In|By|For|None|Who|How|It|They|Which|So|To)\b"
)
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\n")
MOST_WORDS = 40
SAYS_NOTHING = re.compile(
    r"_*(of|at|given|taken|settled|worth|placed|told|made|put|begun|kept|open|here|there|alone|moved|left|whole|others|"
    r"wanted|extended|prepared|found|seen_by|on|without|with_state|turned|cut|joined|again|said|own)_*"
)
AXES = re.compile(r"\([^()]*,[^()]*\)|\(\w*\)|\(elements…\)")
BARE_ARRAY = re.compile(r"^(np\.ndarray|Array|jax\.Array)$")
LOGARITHM = re.compile(r"(^|_)log_|evidence|likelihood")
NUMBER = re.compile(r"float|Float|ndarray|Array")
UNIT = re.compile(r"\bnats?\b|natural logarithm")


def definitions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield (place, node) of every function and class of the package; the place is "file:line name"."""
    for folder in ("models", "inference", "lvsearch"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents):
                continue  # the links in lvsearch/ to the other two folders
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def without_axes(node: ast.AST, text: str) -> bool:
    """Return True if an argument or the result is annotated as an array without axes, and the docstring names none."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or AXES.search(text):
        return False
    annotations = [each.annotation for each in (*node.args.args, *node.args.kwonlyargs) if each.arg != "key"]
    return any(each is not None and BARE_ARRAY.match(ast.unparse(each)) for each in (*annotations, node.returns))


def without_unit(node: ast.AST, text: str) -> bool:
    """Return True if a function named after a log-probability returns numbers, and the docstring names no unit."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
        return False
    return bool(LOGARITHM.search(node.name) and NUMBER.search(ast.unparse(node.returns)) and not UNIT.search(text))


def findings() -> Mapping[str, list[str]]:
    """Return the places of each kind of finding, under the words that the report prints."""
    found: dict[str, list[str]] = {
        "open without a subject or a verb": [],
        f"have a sentence of more than {MOST_WORDS} words": [],
        "have a name that says nothing alone": [],
        "are arrays whose axes are named nowhere": [],
        "are log-probabilities without a unit": [],
    }
    opening, long, vague, axes, unit = found.values()
    for place, node in definitions():
        if SAYS_NOTHING.fullmatch(node.name):
            vague.append(place)
        text = ast.get_docstring(node)
        if text is None:
            continue
        if OPENS_WITHOUT_SUBJECT.match(text):
            opening.append(place)
        prose = re.sub(r"\|.*\|", "", text)
        if any(len(sentence.split()) > MOST_WORDS for sentence in SENTENCE_END.split(prose)):
            long.append(place)
        if without_axes(node, text):
            axes.append(place)
        if without_unit(node, text):
            unit.append(place)
    return found


def main() -> None:
    """Print how many there are of each kind, and where if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print where each of them is")
    shown = parser.parse_args().list
    print(f"{sum(1 for _ in definitions()):,} functions and classes, of which")
    for words, places in findings().items():
        print(f"  {len(places):>6,}  {words}")
        for place in places if shown else ():
            print(f"          {place}")


if __name__ == "__main__":
    main()
