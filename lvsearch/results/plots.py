"""Draw the pictures of a search: the posterior over sizes, the evidence behind it, and the scores on held-out units.

Every function takes matplotlib axes and returns them. Without axes it makes a figure, light or dark as matplotlib is
set (`lvsearch.pictures.style`). The caption of each picture names the kind of its intervals.

The posterior over two size variables is drawn as a lattice with a square for each size. A slide (`write_slide`) has the
answer in one sentence, the posterior and the components.
"""

import io
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lvsearch.comparison.alignment import draw_component_map
from lvsearch.files.plain_text import visible
from lvsearch.files.storage import write_bytes
from lvsearch.fitted.kinds import component_table
from lvsearch.fitted.mixture_posterior import SHOWN, MixturePosterior
from lvsearch.fitted.model import fit_headline
from lvsearch.fitted.partition_draws import draw_coclustering
from lvsearch.fitted.topics import ArrangedTopics
from lvsearch.models.plain_arguments import as_path
from lvsearch.pictures.style import (
    HEIGHT,
    LIGHT,
    WIDTH,
    Caption,
    draw_captioned,
    in_house_style,
    palette_of,
    with_palette,
    write_caption,
)
from lvsearch.recommending.recommendation import draw_differences
from lvsearch.results.card import headline
from lvsearch.results.findings import Findings
from lvsearch.results.heldout import WITHIN
from lvsearch.results.size_plots import draw_evidence, draw_posterior, draw_progress, size_label
from lvsearch.results.wording import limit_in_words, probability_in_words, short_answer, unit_name
from lvsearch.sizing.posterior import format_probability, posterior
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import size_text
from lvsearch.topics.readable_topics import ReadableTopics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LATTICE_HEIGHT = 6.0
"""The height of the picture of two size variables, in inches."""


def plot_posterior(result: Findings, ax: "Axes | None" = None, kind: str | None = None) -> "Axes":
    """Draw the probability of each size, and return the axes.

    result: the search.
    ax: matplotlib axes; None makes a new figure.
    kind: "estimate", "certified" or "diminishing", as in `SearchResult.posterior`; by default what suits the evidence.

    Under "estimate" a line ends at the probability averaged over the standard errors of the evidence. Sizes that cannot
    be told from the best are shaded. Under "certified" and "diminishing" a bar covers the whole interval, and the last
    bar stands for all unvisited sizes together. If sizes were doubled, the axis of sizes is logarithmic.

    Raises ValueError for a kind that the result does not have.
    """
    return draw_captioned(ax, partial(draw_posterior, result, kind=kind))


def plot_bounds(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """Draw the evidence against size, in nats, and return the axes.

    Marginal evidence: the estimate of log p(data | size) relative to the best. Every fit is a faint dot; bands show one
    standard error and the ends of annealing. Below the sizes that may be the best, the scale is logarithmic.

    Plug-in evidence: the bounds on log p(data) after every visit, and the interval of log p(data | size, θ) of each
    size as it was visited. Both hold for the parameters that were fitted.

    result: the search.
    ax: matplotlib axes; None makes a new figure.
    """
    return draw_captioned(ax, partial(draw_evidence, result))


def plot_lattice(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """Draw the probability of each size of two size variables as a shaded square, and return the axes.

    Sizes that were tried are marked, and the best one is framed.

    result: the search, over a model with two size variables.
    ax: matplotlib axes; None makes a new figure.

    Raises ValueError for another number of size variables.
    """
    return draw_captioned(ax, partial(draw_lattice, result), height=LATTICE_HEIGHT)


def plot_progress(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """Draw the log evidence of each size in nats against the time spent on fits, and return the axes.

    Plug-in evidence is drawn as bounds on log p(data).

    result: the search.
    ax: matplotlib axes; None makes a new figure.
    """
    return draw_captioned(ax, partial(draw_progress, result))


def plot_component_map(
    result: Findings, size: Size | int, larger: Size | int | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw which components split and which merged between the fits of two sizes, and return the axes.

    result: the search.
    size: the smaller size.
    larger: the larger size; None for the next larger size that was tried.
    ax: matplotlib axes; None makes a new figure.

    Raises ValueError if no larger size was tried.
    """
    sizes = result.sizes_of_map(size, larger)
    title = None
    if result.prior.dimension > 1:  # the numbers of components that are drawn do not say which sizes these are
        noun = result.evaluator.size_names[0].replace("_", " ").capitalize()
        title = f"{noun} from {size_text(sizes[0])} to {size_text(sizes[1])}: what split, what merged"
    return draw_captioned(ax, partial(draw_component_map, result.component_map(*sizes), title=title))


def plot_coclustering(chains: MixturePosterior, loss: str, ax: "Axes | None" = None) -> "Axes":
    """Draw how probable it is that two rows are in one component, rows in the order of a partition; return the axes.

    chains: the posterior from chains over partitions.
    loss: "vi" or "binder", by which the partition is chosen.
    ax: matplotlib axes; None makes a new figure.
    """
    draw = partial(draw_coclustering, chains.drawn_partitions()[0], chains.partition(loss))
    return draw_captioned(ax, draw, *SQUARE)


def plot_held_out(comparison: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Draw the held-out log-likelihood per token (or cell) of each size, and return the axes.

    Values are relative to the most probable size, in nats, ± one standard error.

    comparison: a table from `lvsearch.results.heldout.held_out_comparison`.
    ax: matplotlib axes; None makes a new figure.
    """
    return draw_captioned(ax, partial(draw_held_out, comparison))


# ── one slide ─────────────────────────────────────────────────────────────────────────────────────────────────────────


SLIDE = (13.33, 7.5)
"""The width and height of a slide, in inches: those of slides of sixteen to nine in other programs."""
MARGIN = 0.03
"""The width of the empty margin of a slide, as a share of its width."""
MOST_LISTED = 10
"""The largest number of components that a slide lists."""
HEADLINE_WIDTH, LIST_WIDTH = 78, 70
"""The largest numbers of characters in a line of the headline, and in a line of the list, of a slide."""
DPI = 160
"""The resolution of pictures in files, in dots per inch."""
PICTURE_FILES: dict[str, dict[str, str | None]] = {".png": {"Software": "lvsearch"}, ".svg": {"Date": None}}
"""The endings of files for pictures, with what stands in such a file beside the picture: nothing that time changes."""


def write_figure(
    path: str | Path, draw: "Callable[[Figure], object]", width: float = WIDTH, height: float = HEIGHT
) -> None:
    """Draw a figure in light colours and write it as a .png or .svg file, which appears complete or not at all.

    path: the file
    draw: a function that draws on a matplotlib figure
    width, height: the size of the figure, in inches

    Raises ValueError for a file of another ending.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = as_path("path", path)
    ending = path.suffix.lower()
    if ending not in PICTURE_FILES:
        raise ValueError(f"got {path.name!r}, expected a name that ends in {' or '.join(PICTURE_FILES)}")
    buffer = io.BytesIO()
    with with_palette(LIGHT), matplotlib.rc_context({"svg.hashsalt": "lvsearch"}):
        figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(buffer, format=ending[1:], metadata=PICTURE_FILES[ending])
    write_bytes(path, buffer.getvalue())


def write_slide(result: Findings, path: str | Path) -> None:
    """Write one slide of a search as a .png or .svg file: the answer in one sentence, the posterior, the components.

    result: the search.
    path: the file, which is replaced if it exists.

    Raises ValueError for a file of another ending, and for a search without a single successful fit.
    """
    write_figure(path, partial(draw_slide, result), *SLIDE)


def draw_slide(result: Findings, figure: "Figure") -> None:
    """Draw the slide of a search on an empty figure with a constrained layout.

    Left is the probability of each size (or what each size predicts), with its caption. Right are the ten largest
    components of the best size with their shares, by name, topics with their words. A line below says what was fitted.

    Raises ValueError for a search without a single successful fit.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    result.best_size  # noqa: B018 — raises where there is nothing to show
    best = None if result.training is None else result.best_shown
    lines = textwrap.wrap(visible(headline(result)), HEADLINE_WIDTH)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(w_pad=MARGIN * SLIDE[0] / 2, h_pad=MARGIN * SLIDE[1])
    style = {"fontsize": 19, "fontweight": "bold", "color": LIGHT.ink, "parse_math": False}
    figure.suptitle("\n".join(lines), x=MARGIN, ha="left", **style)
    # 1. the posterior, on the left half where there are components to list
    columns = figure.add_gridspec(1, 1 if best is None else 2)
    axes = in_house_style(figure.add_subplot(columns[0]))
    lattice = result.prior.dimension == 2 and not result.by_prediction
    caption = (draw_lattice if lattice else draw_posterior)(result, axes)
    figure.draw_without_rendering()  # lines of the caption are as long as the axes are wide, which the layout decides
    title = "What each size predicts" if result.by_prediction else "Probability of each size"
    write_caption(axes, Caption(title, caption.text))
    if best is None:
        return
    # 2. the components, from below the headline on
    below = 1 - 2.2 * MARGIN - 0.044 * len(lines)
    table = component_table(best)
    shown = ("name", "share", "words") if isinstance(best, ReadableTopics) else ("name", "share")
    told = table.loc[:, ~table.columns.duplicated() & table.columns.isin(shown)]  # data may have columns of these names
    _list_components(told, unit_name(result), figure.add_axes((0.54, 0.09, 0.46 - MARGIN, below - 0.09)))
    fit, arranged = (best.fit, best.arrangement.describe()) if isinstance(best, ArrangedTopics) else (best, "")
    fitted = fit_headline(fit) + (f"; shown are {arranged}" if arranged else "")
    figure.supxlabel(visible(fitted), x=MARGIN, ha="left", fontsize=10, color=LIGHT.muted, parse_math=False)


def _list_components(table: pd.DataFrame, noun: str, axes: "Axes") -> None:
    """Draw the first components of a table as a list with bars for their shares, on axes that are not shown.

    table: names, shares and words of the components, of `component_table`
    noun: the word for several components, such as "topics"
    """
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    listed = table.iloc[:MOST_LISTED]
    largest = max(float(table["share"].to_numpy(np.float64).max()), 1e-12) if "share" in table else 1.0
    height, rest = 1 / (MOST_LISTED + 0.6), len(table) - len(listed)
    for place, (number, row) in enumerate(zip(listed.index.tolist(), listed.to_dict("records"), strict=True)):
        top, colour = 1 - place * height, LIGHT.colour_of_part(number)
        name = textwrap.shorten(visible(str(row["name"])), LIST_WIDTH - 26, placeholder=" …")
        axes.text(0.0, top, str(number), va="top", fontsize=12, weight="bold", color=colour)
        axes.text(0.06, top, name, va="top", fontsize=12, weight="bold", color=LIGHT.ink, parse_math=False)
        if "share" in row:
            axes.text(1.0, top, f"{row['share']:.1%}", ha="right", va="top", fontsize=12, color=LIGHT.ink)
            at = [0.88 - 0.16 * row["share"] / largest, 0.88], [top - 0.15 * height] * 2
            axes.plot(*at, color=colour, linewidth=7, alpha=0.55, solid_capstyle="butt")
        if "words" in row:
            words = textwrap.shorten(visible(str(row["words"])), LIST_WIDTH, placeholder=" …")
            lower = top - 0.42 * height
            axes.text(0.06, lower, words, va="top", fontsize=10.5, color=LIGHT.muted, parse_math=False)
    if rest:
        told = f"and {rest:,} smaller {noun}"
        axes.text(0.06, 1 - MOST_LISTED * height, told, va="top", fontsize=10.5, color=LIGHT.muted, parse_math=False)


# ── held-out data ─────────────────────────────────────────────────────────────────────────────────────────────────────


def draw_held_out(comparison: pd.DataFrame, axes: "Axes") -> Caption:
    """Draw the held-out score of each size relative to the most probable size, and return a caption without drawing it.

    Scores are log-likelihoods in nats per token or cell, with one standard error.

    comparison: a table from `lvsearch.results.heldout.held_out_comparison`.
    """
    reference, names, nouns = (comparison.attrs[name] for name in ("reference", "size_names", "nouns"))
    draw_differences(
        [tuple(int(part) for part in row) for row in comparison[list(names)].to_numpy()],
        comparison[f"difference_per_{nouns.observation}"].to_numpy(),
        comparison["standard_error"].to_numpy(),
        axes,
        marked=reference,
        within=WITHIN,
        label=size_label(comparison.attrs["unit"]),
        scale=f"nats per {nouns.observation}, above {size_text(reference)}",
    )
    return Caption(
        f"Held-out {nouns.units}: which size predicts best",
        f"{comparison.attrs['n_units']:,} {nouns.units}, {comparison.attrs['n_observations']:,} {nouns.observations}; "
        f"paired differences ± 1 standard error to {size_text(reference)}, the most probable size (orange); shaded: "
        f"within {WITHIN} nats per {nouns.observation}, as good; {comparison.attrs['estimator']}",
    )


# ── two size variables ────────────────────────────────────────────────────────────────────────────────────────────────


WRITTEN = 0.01
"""The smallest probability that is written into its square."""
SQUARE = (6.4, 5.6)
"""The width and height of a picture of pairs of rows, in inches."""
MOST_WRITTEN = 14
"""The most squares along the longer side for which probabilities are written into the squares."""


def draw_lattice(result: Findings, axes: "Axes") -> Caption:
    """Draw the probability of each size of two size variables as a shaded square, and return a caption.

    Sizes that were tried are marked, and the best one is framed. Chains over partitions compare all sizes; of these the
    ones with a probability that tables show are marked. The caption is not drawn.

    result: the search. axes: matplotlib axes to draw on.

    Raises ValueError unless the model has two size variables.
    """
    names = result.evaluator.size_names
    if len(names) != 2:
        raise ValueError(f"got {len(names)} size variable(s), expected two: use plot_posterior")
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    palette, chances, best = palette_of(axes), _chances(result), result.best_size
    tried = [visit.size for visit in result.visits] if result.partitions is None else list(chances)
    rows, columns = (max(size[axis] for size in tried) for axis in (0, 1))
    shown = np.full((rows, columns), np.nan)
    for size, chance in chances.items():
        shown[size[0] - 1, size[1] - 1] = chance
    shades = LinearSegmentedColormap.from_list(
        "probability", [palette.background, palette.band, palette.main]
    ).with_extremes(bad=palette.background)
    top = max(0.05, float(np.sqrt(max(chances.values()))))
    edges = np.arange(columns + 1) + 0.5, np.arange(rows + 1) + 0.5
    # a square root: sizes that hold a few hundredths are seen beside those that hold most
    axes.pcolormesh(*edges, np.sqrt(shown), cmap=shades, vmin=0.0, vmax=top, edgecolors=palette.grid, linewidth=0.6)
    for size in tried:
        chance = chances.get(size, 0.0)
        if chance < WRITTEN:
            axes.plot(size[1], size[0], marker="o", markersize=3.2, color=palette.faint, linewidth=0)
        elif max(rows, columns) <= MOST_WRITTEN:
            colour = palette.background if np.sqrt(chance) > 0.75 * top else palette.ink
            text = format_probability(chance)[:4] if chance < 0.995 else format_probability(chance)
            axes.text(size[1], size[0], text, ha="center", va="center", fontsize=8.5, color=colour)
    for size in result.estimated.indistinguishable if not result.evaluator.nested else ():
        axes.add_patch(
            Rectangle((size[1] - 0.5, size[0] - 0.5), 1, 1, fill=False, edgecolor=palette.ink, linewidth=1.2)
        )
    axes.add_patch(
        Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor=palette.accent, linewidth=2.6, zorder=5)
    )
    axes.grid(visible=False)
    for axis, number, name in ((axes.xaxis, columns, names[1]), (axes.yaxis, rows, names[0])):
        axis.set_ticks(np.arange(1, number + 1, max(1, -(-number // MOST_WRITTEN))))
        axis.set_label_text(f"number of {visible(name).replace('_', ' ')}", parse_math=False)
    axes.set_aspect("equal")
    return _caption(result, len(tried))


def _caption(result: Findings, n_tried: int) -> Caption:
    """Return the caption of the picture of two size variables. n_tried: the number of sizes that were tried."""
    if result.evaluator.nested:
        text = f"Shade: the least that is proved of each size ({posterior(result.certified()).basis})."
        title = f"{size_text(result.best_size)} has the largest prior × evidence"
    else:
        together = len(result.estimated.indistinguishable)
        framed = f" Framed thinly: the {together} that the evidence cannot choose between." if together > 1 else ""
        among = "" if result.partitions is not None else " among the sizes tried"
        text = f"Shade: probability{among}, {probability_in_words(result)}.{framed}"
        title = short_answer(result)
    limit = limit_in_words(result)
    blank = f"not tried ({n_tried} were)" if result.partitions is None else f"below {SHOWN:g}"
    text = f"{text} Dots: below .01. Blank: {blank}. Framed: the most probable."
    return Caption(title, f"{text}\n{limit}" if limit else text)


def _chances(result: Findings) -> dict[Size, float]:
    """Return {size: posterior probability}; for plug-in evidence the proved lower end of the probability."""
    if result.evaluator.nested:
        rows = posterior(result.certified()).rows[:-1]
        return {row.size: row.probability_lower for row in rows if row.size is not None}
    return dict(zip(result.estimated.sizes, result.estimated.probability.tolist(), strict=True))
