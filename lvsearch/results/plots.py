"""Draw the pictures of a search: the posterior over sizes, the evidence behind it, and the scores on held-out units.

Every function takes matplotlib axes and returns them. Without axes it makes a figure, light or dark as matplotlib is
set (`lvsearch.pictures.style`). The caption of each picture names the kind of its intervals.
"""

from typing import TYPE_CHECKING

import pandas as pd

from lvsearch.comparison.component_map_plot import draw_component_map
from lvsearch.pictures.captions import write_caption
from lvsearch.pictures.style import in_house_style
from lvsearch.results.evidence_plots import draw_evidence, draw_progress
from lvsearch.results.findings import Findings
from lvsearch.results.held_out_plot import draw_held_out
from lvsearch.results.lattice_plot import draw_lattice
from lvsearch.results.posterior_plots import draw_posterior
from lvsearch.sizing.sizes import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    axes = in_house_style(ax)
    write_caption(axes, draw_posterior(result, axes, kind))
    return axes


def plot_bounds(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """Draw the evidence against size, in nats, and return the axes.

    Marginal evidence: the estimate of log p(data | size) relative to the best. Every fit is a faint dot; bands show one
    standard error and the ends of annealing. Below the sizes that may be the best, the scale is logarithmic.

    Plug-in evidence: the bounds on log p(data) after every visit, and the interval of log p(data | size, θ) of each
    size as it was visited. Both hold for the parameters that were fitted.

    result: the search.
    ax: matplotlib axes; None makes a new figure.
    """
    axes = in_house_style(ax)
    write_caption(axes, draw_evidence(result, axes))
    return axes


def plot_lattice(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """Draw the probability of each size of two size variables as a shaded square, and return the axes.

    Sizes that were tried are marked, and the best one is framed.

    result: the search, over a model with two size variables.
    ax: matplotlib axes; None makes a new figure.

    Raises ValueError for another number of size variables.
    """
    axes = in_house_style(ax, height=LATTICE_HEIGHT)
    write_caption(axes, draw_lattice(result, axes))
    return axes


def plot_progress(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """Draw the log evidence of each size in nats against the time spent on fits, and return the axes.

    Plug-in evidence is drawn as bounds on log p(data).

    result: the search.
    ax: matplotlib axes; None makes a new figure.
    """
    axes = in_house_style(ax)
    write_caption(axes, draw_progress(result, axes))
    return axes


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
    axes = in_house_style(ax)
    write_caption(axes, draw_component_map(result.component_map(size, larger), axes))
    return axes


def plot_held_out(comparison: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Draw the held-out log-likelihood per token (or cell) of each size, and return the axes.

    Values are relative to the most probable size, in nats, ± one standard error.

    comparison: a table from `lvsearch.results.heldout.held_out_comparison`.
    ax: matplotlib axes; None makes a new figure.
    """
    axes = in_house_style(ax)
    write_caption(axes, draw_held_out(comparison, axes))
    return axes
