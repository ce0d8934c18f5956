"""Docstrings as they are written here, made into reStructuredText before autodoc parses them.

The house writes for people who read source: `code` in single backticks, examples between ``` fences, tables with
bars, displayed formulas by indenting, arguments as sentences ("rate: of the prior"). Google's sections (Args, Raises…)
are left to Napoleon.
"""

import inspect
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"(Args|Arguments|Attributes|Raises|Returns|Yields|Note|Notes|Example|Examples):$")
ENTRY = re.compile(r"\w+(, \w+)*: \S")
LIST_ITEM = re.compile(r"(-|\d+\.) ")
SEPARATOR = re.compile(r"\|[-:| ]+\|$")
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
ENUMERATOR = re.compile(r"\(?[A-Za-z]{1,4}[.)] ")


def setup(app: Sphinx) -> dict[str, bool]:
    """Before Napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-process-signature", _short_arrays)
    app.connect("autodoc-skip-member", _skip_aliases)
    return {"parallel_read_safe": True}


def _process(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = restructured(lines, _parameters(value))
    if what in ("attribute", "data", "property"):
        lines.insert(0, "")  # else Napoleon takes what stands before a colon in the first line for a type


def _short_arrays(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Arrays under the name that people know."""
    return tuple(text and text.replace("jaxlib._jax.Array", "Array") for text in (signature, returns))  # pyright: ignore


def _skip_aliases(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Fields of a NamedTuple are told in its docstring; what Python writes of them says nothing."""
    return True if (getattr(value, "__doc__", None) or "").startswith("Alias for field number") else None


def _parameters(value: Any) -> tuple[str, ...]:
    """The names that a sentence of the docstring may be about."""
    try:
        names = list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        names = []
    return tuple(dict.fromkeys([*names, *getattr(value, "__annotations__", {})]))


def restructured(lines: list[str], parameters: Iterable[str] = ()) -> list[str]:
    """The docstring's lines as reStructuredText."""
    out: list[str] = []
    parameters, at, section = tuple(parameters), 0, -1
    while at < len(lines):
        line = lines[at].rstrip()
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if not text:
            out.append("")
            at += 1
            continue
        if indent <= section:
            section = -1
        end = _block_end(lines, at)
        if SECTION.match(text):
            section = indent
            out += [*_space(out), line]
            at += 1
        elif text.startswith(">>>"):
            out += [*_space(out), *(each.rstrip() for each in lines[at:end]), ""]
            at = end
        elif text.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), len(lines))
            out += [*_space(out), f".. code-block:: {text[3:] or 'none'}", "", *_displayed(lines[at + 1 : end]), ""]
            at = end + 1
        elif text.startswith("|") and at + 1 < len(lines) and SEPARATOR.match(lines[at + 1].strip()):
            end = next((i for i in range(at, len(lines)) if not lines[i].strip().startswith("|")), len(lines))
            out += [*_space(out), *_table([each.strip() for each in lines[at:end]], " " * indent), ""]
            at = end
        elif section >= 0:
            end = _entry_end(lines, at, end, indent)
            out += _entry([each.rstrip() for each in lines[at:end]])
            at = end
        elif LIST_ITEM.match(text):
            end = _item_end(lines, at, indent)
            out += [*([] if _in_list(out) else _space(out)), *_item(lines[at:end], indent)]
            at = end
        elif indent > 0:
            end = _indented_end(lines, at)
            out += [*_space(out), ".. code-block:: none", "", *_displayed(lines[at:end]), ""]
            at = end
        else:
            end = _paragraph_end(lines, at, end)
            out += _paragraph("\n".join(each.strip() for each in lines[at:end]), parameters)
            at = end
    return [*out, ""]


# ── where things end ────────────────────────────────────────────────────────────────────────────────────────────────


def _block_end(lines: list[str], at: int) -> int:
    """The next empty line."""
    return next((i for i in range(at, len(lines)) if not lines[i].strip()), len(lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _entry_end(lines: list[str], at: int, end: int, indent: int) -> int:
    """An entry of a section: up to the next line that is indented as little."""
    return next((i for i in range(at + 1, end) if _indent(lines[i]) <= indent), end)


def _item_end(lines: list[str], at: int, indent: int) -> int:
    """An item of a list, with its continuation lines."""
    return next(
        (i for i in range(at + 1, len(lines)) if not lines[i].strip() or _indent(lines[i]) <= indent), len(lines)
    )


def _indented_end(lines: list[str], at: int) -> int:
    """Text that is displayed: up to the next line at the margin."""
    end = next((i for i in range(at, len(lines)) if lines[i].strip() and _indent(lines[i]) == 0), len(lines))
    while not lines[end - 1].strip():
        end -= 1
    return end


def _paragraph_end(lines: list[str], at: int, end: int) -> int:
    """Return where a paragraph ends. Indented lines below an argument, or below "Returns: …", continue it."""
    starts, entry = (">>>", "|"), ENTRY.match(lines[at])
    for i in range(at + 1, end):
        text = lines[i].strip()
        if _indent(lines[i]):
            if not entry:
                return i
            continue
        if LIST_ITEM.match(text) or SECTION.match(text) or text.startswith(starts):
            return i
        entry = ENTRY.match(text)
    return end


# ── what is written ─────────────────────────────────────────────────────────────────────────────────────────────────


def inline(text: str) -> str:
    """Code in double backticks, everything else without a meaning to reStructuredText."""
    parts = []
    for position, part in enumerate(CODE.split(text)):
        if position % 2:
            before = "\\ " if parts and parts[-1] and re.match(r"[\w’]", parts[-1][-1]) else ""
            parts.append(f"{before}``{' '.join(part.strip('`').split())}``")
        else:
            escaped = re.sub(r"([\\*|])", r"\\\1", part)
            escaped = re.sub(r"_(?!\w)", r"\\_", escaped)
            glued = position and escaped and re.match(r"[\w\[(“‘]", escaped[0])
            parts.append(f"\\ {escaped}" if glued else escaped)
    return "".join(parts)


def _paragraph(text: str, parameters: tuple[str, ...]) -> list[str]:
    """A paragraph; the arguments that it describes become a list."""
    if parameters:
        names = "|".join(re.escape(name) for name in parameters)
        pattern = re.compile(rf"(?:^|(?<=\. )|(?<=\.\n)|(?<=\n))((?:{names})(?:, (?:{names}))*): ")
        pieces = pattern.split(text)
        if len(pieces) > 1:
            out = _lines(pieces[0])
            for name, said in zip(pieces[1::2], pieces[2::2], strict=True):
                head, *rest = _lines(said) or [""]
                shown = ", ".join(f"``{each}``" for each in name.split(", "))
                out += [*_space(out), f"- {shown}: {head}", *(f"  {each}" for each in rest)]
            return [*out, ""]
    return _lines(text)


def _lines(text: str) -> list[str]:
    written = inline(text.strip())
    if ENUMERATOR.match(written):
        written = f"\\{written}"
    return written.split("\n") if written else []


def _entry(lines: list[str]) -> list[str]:
    """An entry of a section, "name: what it is": the name stays as it is."""
    lead = " " * _indent(lines[0])
    name, colon, rest = lines[0].strip().partition(": ")
    first = f"{lead}{name}{colon}" if colon and re.fullmatch(r"[\w.*, ()]+", name) else lead
    said = rest if first != lead else lines[0].strip()
    written = inline("\n".join([said, *(each.strip() for each in lines[1:])])).split("\n")
    deeper = " " * (_indent(lines[1]) if len(lines) > 1 else 0)
    return [first + written[0], *(deeper + each for each in written[1:])]


def _item(lines: list[str], indent: int) -> list[str]:
    mark = LIST_ITEM.match(lines[0].strip())
    assert mark is not None
    lead = " " * indent
    text = "\n".join([lines[0].strip()[mark.end() :], *(each.strip() for each in lines[1:])])
    head, *rest = inline(text).split("\n")
    return [f"{lead}{mark.group()}{head}", *(f"{lead}{' ' * mark.end()}{each}" for each in rest)]


def _displayed(lines: list[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in textwrap.dedent("\n".join(lines)).split("\n")]


def _table(rows: list[str], lead: str) -> list[str]:
    out = [f"{lead}.. list-table::", f"{lead}   :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip("|"))]
        for position, cell in enumerate(_joined(cells, rows[1].count("|") - 1)):
            out.append(f"{lead}   {'*' if position == 0 else ' '} - {inline(cell)}")
    return out


def _joined(cells: list[str], columns: int) -> list[str]:
    """A bar inside the last cell, as in p(x | z), separates nothing."""
    return [*cells[: columns - 1], " | ".join(cells[columns - 1 :])]


def _space(out: list[str]) -> list[str]:
    return [""] if out and out[-1] else []


def _in_list(out: list[str]) -> bool:
    """Whether the last paragraph is an item of a list."""
    for line in reversed(out):
        if not line:
            return False
        if LIST_ITEM.match(line.strip()):
            return True
    return False
