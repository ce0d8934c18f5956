"""Cards: a headline with named facts below it, as lines for a terminal and as HTML for a notebook."""

import html
from collections.abc import Iterable
from typing import NamedTuple

from lvsearch.files.plain_text import visible

STYLE = """<style>
.lv-card { font: 14px/1.45 system-ui, sans-serif; color: inherit; max-width: 64em; padding: .6em 1em;
  border: 1px solid rgba(128,128,128,.35); border-radius: 8px; }
.lv-card h3 { font-size: 1.25em; margin: .2em 0 .6em; }
.lv-card .lv-row { display: flex; flex-wrap: wrap; gap: 1.2em; align-items: flex-start; }
.lv-card .lv-scroll { overflow-x: auto; max-width: 100%; }
.lv-card img { width: 30em; max-width: 100%; background: #fff; border-radius: 6px; }
.lv-card table { border-collapse: collapse; color: inherit; background: transparent; font-size: .93em; }
.lv-card tr, .lv-card th, .lv-card td { background: transparent; color: inherit; }
.lv-card th, .lv-card td { padding: .15em .7em; vertical-align: top; border: 0; }
.lv-card .lv-near td, .lv-card .lv-near th { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.lv-card .lv-near tbody tr { border-top: 1px solid rgba(128,128,128,.25); }
.lv-card .lv-near { font-size: .82em; }
.lv-card .lv-near td, .lv-card .lv-near th { padding: .1em .45em; }
.lv-card .lv-facts { margin-top: .8em; }
.lv-card .lv-facts th { text-align: left; font-weight: 600; white-space: nowrap; opacity: .75; }
.lv-card .lv-facts td { text-align: left; white-space: normal; }
</style>"""


class Fact(NamedTuple):
    """One line of a card: its name, such as "evidence", and its text."""

    name: str
    text: str


def text_card(headline: str, facts: Iterable[Fact]) -> str:
    """Return the headline and the facts as lines of plain text, a line each, with control characters spelled out."""
    lines = [visible(headline)]
    lines += [f"  {visible(fact.name) + ':':<12} {visible(fact.text)}" for fact in facts]
    return "\n".join(lines)


def html_card(headline: str, facts: Iterable[Fact], between: str = "") -> str:
    """Return the headline and the facts as self-contained HTML, for `_repr_html_`. Their texts are escaped.

    Colours come from the page around the card, light or dark.

    between: HTML that stands between the headline and the facts, such as a picture; it is not escaped.
    """
    rows = "".join(
        f"<tr><th>{html.escape(visible(fact.name))}</th><td>{html.escape(visible(fact.text))}</td></tr>"
        for fact in facts
    )
    return (
        f"<div class='lv-card'>{STYLE}<h3>{html.escape(visible(headline))}</h3>{between}"
        f"<table class='lv-facts'><tbody>{rows}</tbody></table></div>"
    )
