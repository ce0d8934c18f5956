"""Write a report: a folder of pictures, tables and one readable summary, for people who were not there.

| file | content |
|---|---|
| `index.html` | everything on one page that needs no network: open it in a browser (`lvsearch.reports.page`) |
| `summary.md` | the answer, the pictures, the topics, and the facts that decided them |
| `posterior.png`, `bounds.png`, `held_out.png`, `fewer_units.png` | the pictures |
| `posterior.csv`, `bounds.csv`, `starts.csv` | the result's tables |
| `topics.csv`, `topic_words.csv` | the topics of the most probable size; every topic's top words with probabilities |
| `loadings.csv`, … | models without topics: each table of parameters of the most probable size, under its name |
| `held_out.csv` | the score of each kept size on held-out documents or rows |
| `persistence.csv` | how surely each component exists, if it was computed |
| `fewer_units.csv` | the sizes that fewer units support, if they were computed |
| `other_scores.csv`, `other_score_choices.csv`, `other_scores.png` | other scores, after `lvsearch scores` |
| `audit.csv` | the estimates for simulated data beside their true evidence, if it was computed |

Pictures and tables are written under a temporary name and then renamed; those of an earlier report are replaced. In
tables, text that a spreadsheet would run as a formula has an apostrophe before it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from lvsearch.files.plain_text import markdown
from lvsearch.files.storage import write_text
from lvsearch.pictures.style import HEIGHT
from lvsearch.reports.page import write_page
from lvsearch.results.card import facts, headline, near_table
from lvsearch.results.findings import Findings
from lvsearch.results.plots import write_figure
from lvsearch.results.wording import size_in_words
from lvsearch.scrutiny.other_scores import OtherScores
from lvsearch.tables.table_files import write_table
from lvsearch.topics.readable_topics import ReadableTopics

if TYPE_CHECKING:
    from lvsearch.fitted.model import FittedModel

TOP_WORDS = 10
"""The number of words of a topic in tables for people."""
LISTED_WORDS = 30
"""The number of words of a topic in `topic_words.csv`."""


def write_report(result: Findings, folder: str | Path, *, held_out: pd.DataFrame | None = None) -> Path:
    """Write the report of a search into `folder` (made if missing) and return the path of its `summary.md`.

    result: the search
    folder: where the report is written
    held_out: the comparison of the kept sizes on held-out data, by `lvsearch.results.heldout.held_out_comparison`

    Raises ValueError for a search without a single successful fit.
    """
    from lvsearch.results.plots import plot_bounds, plot_held_out, plot_posterior

    folder = Path(folder)
    result.best_size  # noqa: B018 — raises where there is nothing to report
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in _tables(result, held_out).items():
        write_table(folder / f"{name}.csv", table)
    _write_picture(folder / "posterior.png", lambda axes: plot_posterior(result, axes))
    if not result.by_prediction:
        _write_picture(folder / "bounds.png", lambda axes: plot_bounds(result, axes))
    if held_out is not None:
        _write_picture(folder / "held_out.png", lambda axes: plot_held_out(held_out, axes))
    if result.scrutiny.robustness is not None:
        _write_picture(folder / "fewer_units.png", result.scrutiny.robustness.plot)
    if result.scrutiny.sensitivity is not None and result.prior.dimension == 1:
        _write_picture(folder / "other_priors.png", result.scrutiny.sensitivity.plot)
    write_page(result, folder, held_out=held_out)
    path = folder / "summary.md"
    write_text(path, _summary(result, held_out))
    return path


def write_other_scores(found: OtherScores, folder: str | Path) -> None:
    """Write scores such as BIC and coherence into `folder` (made if missing).

    They are two tables, every score of every size and the size that each score selects, and a picture.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {"other_scores": found.table(), "other_score_choices": found.choices()}.items():
        write_table(folder / f"{name}.csv", table)
    _write_picture(folder / "other_scores.png", found.plot, height=found.height)


def topics_table(fitted: "FittedModel | ReadableTopics") -> pd.DataFrame:
    """Return a table of topics for people, the most prevalent first; an empty table for models without topics.

    Its columns are topic, name (if topics were given names), share of the tokens, label (if documents have labels), and
    words.
    """
    if not isinstance(fitted, ReadableTopics):
        return pd.DataFrame()
    frame = fitted.topics(TOP_WORDS).reset_index()
    frame["prevalence"] = [f"{share:.1%}" for share in frame["prevalence"]]
    return frame.rename(columns={"prevalence": "share"})


def _tables(result: Findings, held_out: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """Return the tables of the report as {file name without ending: table}.

    held_out: the comparison of sizes on held-out data, or None
    """
    tables = {"starts": result.starts()}
    if result.recommended is not None:
        tables["recommended"] = result.recommended.table()
    if not result.by_prediction:
        tables |= {"posterior": result.posterior(), "bounds": result.bounds()}
    best = _best_model(result)
    if isinstance(best, ReadableTopics):
        tables["topics"] = best.topics(TOP_WORDS).reset_index()
        tables["topic_words"] = best.topic_words(LISTED_WORDS)
    elif best is not None:
        # a column of the data may have the name of the index, such as "component"
        tables |= {name: table.reset_index(allow_duplicates=True) for name, table in best.tables().items()}
    if held_out is not None:
        tables["held_out"] = held_out
    asked = result.scrutiny
    named = {"audit": asked.audit, "persistence": asked.persistence}
    named |= {"fewer_units": asked.robustness, "other_priors": asked.sensitivity}
    tables |= {name: found.table() for name, found in named.items() if found is not None}
    if "persistence" in tables:  # its index has the numbers of the components
        tables["persistence"] = tables["persistence"].reset_index()
    return tables


def _best_model(result: Findings) -> "FittedModel | ReadableTopics | None":
    """Return the fit of the most probable size as it is shown; None for a search over a function, without models."""
    return None if result.training is None else result.best_shown


def _summary(result: Findings, held_out: pd.DataFrame | None) -> str:
    """Return the text of `summary.md`. held_out: the comparison of sizes on held-out data, or None."""
    # 1. the answer, pictures and facts
    lines = [f"# {markdown(headline(result))}", ""]
    if held_out is not None:  # held-out scores come first: they share neither prior nor evidence with the search
        lines += [f"![Held-out {held_out.attrs['nouns'].units}](held_out.png)", ""]
    lines += [
        f"![{'What each size predicts' if result.by_prediction else 'Probability of each size'}](posterior.png)",
        "",
    ]
    if result.scrutiny.robustness is not None:
        lines += ["![What fewer units say](fewer_units.png)", ""]
    if result.scrutiny.sensitivity is not None and result.prior.dimension == 1:
        lines += ["![What other priors say](other_priors.png)", ""]
    lines += [f"- **{fact.name}**: {markdown(fact.text)}" for fact in facts(result, held_out)]
    # 2. tables: topics, evidence, held-out scores
    best = _best_model(result)
    topics = pd.DataFrame() if best is None else topics_table(best)
    if best is not None and not topics.empty:
        lines += ["", f"## The topics of {markdown(size_in_words(result, result.best_size))}", "", *_markdown(topics)]
    evidence = ["## What sizes predict"] if result.by_prediction else ["## Evidence", "", "![Evidence](bounds.png)"]
    lines += ["", *evidence, "", *_markdown(near_table(result))]
    if held_out is not None:
        names, nouns = held_out.attrs["size_names"], held_out.attrs["nouns"]
        per = nouns.observation
        shown = pd.DataFrame(held_out[[*names, f"log_p_per_{per}", f"difference_per_{per}", "standard_error"]])
        shown.columns = [*names, f"nats per {per}", "above the most probable", "± s.e. (paired)"]
        shown = shown.map(lambda value: f"{value:.4f}" if isinstance(value, float) else value)
        lines += ["", f"## Held-out {nouns.units}", "", *_markdown(shown)]
    units = "sizes" if result.training is None else result.training.nouns.units
    tables = ", ".join(f"`{name}.csv`" for name in _tables(result, held_out))
    lines += ["", f"On one page, with the {units}: `index.html`. Tables: {tables}.", ""]
    return "\n".join(lines)


def _markdown(table: pd.DataFrame) -> list[str]:
    """Return the lines of a Markdown table."""
    header = "| " + " | ".join(markdown(str(name)) for name in table.columns) + " |"
    rows = ["| " + " | ".join(markdown(str(cell)) for cell in row) + " |" for row in table.itertuples(index=False)]
    return [header, "|" + "---|" * len(table.columns), *rows]


def _write_picture(path: Path, draw: Any, height: float = HEIGHT) -> None:
    """Draw a picture on the axes of a new figure and write it as a .png file.

    path: the file
    draw: a function that draws on matplotlib axes
    height: the height of the figure, in inches
    """
    write_figure(path, lambda figure: draw(figure.add_subplot()), height=height)
