"""Write `report/index.html`: everything about a search on one page that needs no network, for readers of the report.

The page is made in two steps. `page_of` returns its content as plain data, and `render` puts it into the template,
which escapes every text. The page can be read by keyboard, with screen readers, without colour vision, light and dark,
on paper, and without scripts, which only filter the documents.
"""

import base64
import hashlib
import math
import platform
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import pandas as pd

from lvsearch.comparison.alignment import component_map, draw_component_map
from lvsearch.files.plain_text import visible
from lvsearch.files.storage import versions, write_text
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.topics import FittedTopics
from lvsearch.pictures.inline_svg import colour_variables
from lvsearch.pictures.style import DARK, LIGHT, Palette
from lvsearch.reports.page_parts import Drawing, Entry, Page, Parts, draw_with_caption, grid_of, parts_of
from lvsearch.results.card import facts, headline, near_table
from lvsearch.results.findings import Findings
from lvsearch.results.plots import draw_held_out, draw_lattice
from lvsearch.results.size_plots import draw_evidence, draw_posterior, draw_progress, has_progress
from lvsearch.results.wording import limit_in_words
from lvsearch.scrutiny.persistence import MOST_ROWS
from lvsearch.searching.controller import FINISHED
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import size_text
from lvsearch.topics.readable_topics import ReadableTopics

NAME = "index.html"
ROW_HEIGHT = 0.32
"""The height of a row in the picture of components that persist, in inches."""
FIRST = ("probability", "number open", "topics", "fewer units", "not tried")
"""The facts at the top; held-out data come before them if they were compared."""
ELSEWHERE = ("limit", "search", "prior", "versions")
"""The facts that are shown in another place of the page."""


def write_page(result: Findings, folder: str | Path, *, held_out: pd.DataFrame | None = None) -> Path:
    """Write the page of a search into `folder` (made if missing), atomically, and return its path.

    result: the search
    folder: where the page is written
    held_out: the comparison of sizes on held-out data, from `lvsearch.results.heldout.held_out_comparison`; None
        without held-out data

    Raises ValueError for a search without a single successful fit.
    """
    path = Path(folder) / NAME
    write_text(path, render(page_of(result, held_out)))
    return path


def page_of(result: Findings, held_out: pd.DataFrame | None = None) -> Page:
    """Return the content of the page of a search as plain data.

    result: the search
    held_out: the comparison of sizes on held-out data, or None

    Raises ValueError for a search without a single successful fit.
    """
    # 1. pictures of the answer: held-out data first, then the posterior, then what was asked of the answer
    best_size = result.best_size  # raises where there is nothing to report
    best, shown_best = (None, None) if result.training is None else (result.best, result.best_shown)
    lead = []
    if held_out is not None:
        lead.append(draw_with_caption(partial(draw_held_out, held_out), "heldout", "Held-out score of each size"))
    shown = "What each size predicts" if result.by_prediction else "Probability of each size"
    lead.append(draw_with_caption(partial(draw_posterior, result), "posterior", shown))
    asked = result.scrutiny
    if asked.robustness is not None:
        lead.append(draw_with_caption(asked.robustness.draw, "robustness", "What fewer units say"))
    if asked.sensitivity is not None and result.prior.dimension == 1:
        lead.append(draw_with_caption(asked.sensitivity.draw, "sensitivity", "What other priors say"))
    if result.prior.dimension == 2:
        lead.append(draw_with_caption(partial(draw_lattice, result), "lattice", "Probability over both numbers", 4.6))
    # 2. pictures of what the answer rests on, and the facts
    evidence = []
    if not result.by_prediction:
        evidence.append(draw_with_caption(partial(draw_evidence, result), "evidence", "Evidence of each size"))
        if has_progress(result):  # chains over partitions that were interrupted have an answer, and no fit yet
            drawn = draw_with_caption(partial(draw_progress, result), "progress", "Evidence against the time spent")
            evidence.append(drawn)
    known = [Entry(fact.name, fact.text) for fact in facts(result, held_out)]
    first = FIRST if held_out is None else ("held-out", *FIRST)
    numbers = {name: str(value) for name, value in versions().items()} | {"Python": platform.python_version()}
    return Page(
        title=visible(headline(result)),
        answer=headline(result),
        warning=limit_in_words(result) or "",
        key_facts=tuple(entry for entry in known if entry.name in first),
        lead=tuple(lead),
        sizes=grid_of("Sizes near the answer", near_table(result)),
        parts=None if shown_best is None else _parts_of_best(result, shown_best),
        between=None if best is None else _draw_split_and_merged(result, best, best_size),
        evidence=tuple(evidence),
        facts=tuple(entry for entry in known if entry.name not in (*first, *ELSEWHERE)),
        settings=_settings(result, known),
        versions=tuple(Entry(name, text) for name, text in numbers.items()),
        fingerprint="" if result.training is None else result.training.fingerprint,
    )


def render(page: Page) -> str:
    """Return the page as HTML. Every text is escaped, with control characters spelled out.

    Only the page's own script may run.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        """Return a text with invisible characters spelled out; markup and other values are unchanged."""
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    templates = files("lvsearch.reports") / "template"
    texts = {name: (templates / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=shown, trim_blocks=True, lstrip_blocks=True
    )
    script = texts["page.js"]
    return environment.from_string(texts["page.html"]).render(
        page=page,
        svg=Markup,  # pictures are elements of ours, in which matplotlib has escaped every text
        style=Markup(_colours(LIGHT, DARK) + texts["page.css"]),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        n_colours=len(LIGHT.series),
        percent=_percent,
    )


def _settings(result: Findings, known: list[Entry]) -> tuple[Entry, ...]:
    """Return the settings of the search as named facts.

    known: the facts of the printed result, of which the prior is taken
    """
    settings = result.settings
    most = "none" if settings.max_size is None else size_text(settings.max_size)
    return (
        Entry("evidence", settings.evidence + (", weighed per token" if settings.per_token else "")),
        *(entry for entry in known if entry.name == "prior"),
        Entry("largest size allowed", most),
        Entry("seed", str(settings.seed)),
        Entry("fits of a size", f"at most {settings.starts}" if result.evaluator.repeatable else "1"),
        Entry("sizes grown from smaller ones", "yes" if settings.grow else "no"),
        Entry("every size visited", "yes" if settings.exhaustive else "no: those near the best"),
        Entry("ended", result.why_unfinished or FINISHED),
        Entry("time", f"{result.seconds:,.0f} seconds"),
    )


def _parts_of_best(result: Findings, best: FittedModel | ReadableTopics) -> Parts | None:
    """Return what the page shows of the components of the best size; None if it shows nothing of such a model.

    result: the search; if the persistence of components was computed, its picture is added
    best: the fitted model of the best size, its topics as they were arranged
    """
    parts, persistence = parts_of(best), result.scrutiny.persistence
    if parts is None or persistence is None:
        return parts
    height = ROW_HEIGHT * min(len(persistence.names), MOST_ROWS) + 1.4
    drawing = draw_with_caption(persistence.draw, "persistence", "How surely each component exists", height)
    return replace(parts, drawings=(*parts.drawings, drawing))


def _draw_split_and_merged(result: Findings, best: FittedModel, size: Size) -> Drawing | None:
    """Draw which components split or merge between the best size and the most probable other size that was kept.

    result: the search
    best: the fitted model of the best size
    size: the best size

    Returns None if no other fit was kept, or if units of the model have no shares of components.
    """
    log_weight = {v.size: result.prior.log_pmf(v.size) + v.estimate / result.evaluator.scale for v in result.visits}
    others = [s for s, fit in result.state.kept.items() if fit.state is not None and s != size and s in log_weight]
    others = [s for s in others if log_weight[s] > -math.inf and fits_apart(s, size)]
    if result.prior.dimension != 1 or not others:
        return None
    other = result.fit(max(others, key=lambda s: (log_weight[s], s)))
    first, second = sorted((best, other), key=lambda fitted: fitted.size)
    shares = [_shares(fitted) for fitted in (first, second)]
    if any(getattr(each, "ndim", 0) != 2 for each in shares):
        return None
    # topics have names, their two most distinctive words; other components only numbers
    names = None
    if isinstance(first, FittedTopics) and isinstance(second, FittedTopics):
        names = (list(first.names(2)), list(second.names(2)))
    draw = partial(draw_component_map, component_map(*shares), names=names)
    return draw_with_caption(draw, "between", "Which components of one size became which of the other", 4.6)


def _shares(fitted: FittedModel):
    """Return the share of each component in each training unit (document or row), (units, components)."""
    return fitted.proportions if isinstance(fitted, FittedTopics) else fitted.transform(fitted.training)


def fits_apart(one: Size, other: Size) -> bool:
    """Return True if a map between the components of two sizes says anything.

    It does not if a size has a single component, which holds everything.
    """
    return min(*one, *other) > 1


def _colours(light: Palette, dark: Palette) -> str:
    """Return the part of the style sheet that defines the colours of a palette for light and one for dark pages."""

    def block(palette: Palette) -> str:
        """Return the colours of one palette as variables of the style sheet, "--ink:#1c2530;…"."""
        return "".join(f"{name}:{colour};" for name, colour in colour_variables(palette).items())

    return f":root{{{block(light)}}}\n@media (prefers-color-scheme: dark){{:root{{{block(dark)}}}}}\n"


def _percent(share: float) -> str:
    """Return a share from 0 to 1 as a percentage, such as "12.3%"; below 0.001 it is "<0.1%"."""
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"
