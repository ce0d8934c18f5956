"""Pictures of a search: the posterior over sizes, the evidence behind it, and what held-out units say.

Every function takes matplotlib axes and gives them back; without axes it makes a figure, light or dark as matplotlib is
set (`lvsearch.pictures.style`). The kind of every interval stands on the picture, and nothing vacuous is drawn as if it
said something.
"""

from typing import TYPE_CHECKING

import pandas as pd

from lvsearch.comparison.component_map_plot import draw_component_map
from lvsearch.pictures.captions import write_caption
from lvsearch.pictures.style import dressed
from lvsearch.results.evidence_plots import draw_evidence, draw_progress
from lvsearch.results.findings import Findings
from lvsearch.results.held_out_plot import draw_held_out
from lvsearch.results.lattice_plot import draw_lattice
from lvsearch.results.posterior_plots import draw_posterior
from lvsearch.sizing.sizes import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATTICE_HEIGHT = 6.0
"""Inches."""


def plot_posterior(result: Findings, ax: "Axes | None" = None, kind: str | None = None) -> "Axes":
    """Probability of each size.

    kind: as for `SearchResult.posterior`; by default what suits the evidence. Under "estimate" a line ends at the mean
    over the standard errors of the evidence, and sizes that cannot be told from the best are shaded. Under "certified"
    and "diminishing" a bar is the whole interval, and the last one stands for all unvisited sizes together; of nested
    evidence both are of the fits that were made, and say so. Sizes that were doubled stand on a logarithmic axis.
    Returns the axes. Raises ValueError for a kind the result does not have.
    """
    axes = dressed(ax)
    write_caption(axes, draw_posterior(result, axes, kind))
    return axes


def plot_bounds(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """What the search knows of the evidence, in nats.

    Marginal evidence: the estimate of log p(data | size) relative to the best, against size: every fit a faint dot, a
    band of one standard error and of the ends of annealing. All sizes are on the picture: below those that matter the
    scale is logarithmic. Plug-in evidence: the bounds on log p(data), proved of these fits, after every expansion, and
    the interval of log p(data | size, θ) of each size as it was expanded. Returns the axes.
    """
    axes = dressed(ax)
    write_caption(axes, draw_evidence(result, axes))
    return axes


def plot_lattice(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """Probability of each size of two variables, a square each: shaded, those tried marked, the best framed.

    Returns the axes. Raises ValueError for another number of size variables.
    """
    axes = dressed(ax, height=LATTICE_HEIGHT)
    write_caption(axes, draw_lattice(result, axes))
    return axes


def plot_progress(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """The evidence (plug-in: the bounds on log p(data)), in nats, against the time spent. Returns the axes."""
    axes = dressed(ax)
    write_caption(axes, draw_progress(result, axes))
    return axes


def plot_component_map(
    result: Findings, size: Size | int, larger: Size | int | None = None, ax: "Axes | None" = None
) -> "Axes":
    """What split and what merged between the fits of two sizes: `Findings.component_map` as a picture."""
    axes = dressed(ax)
    write_caption(axes, draw_component_map(result.component_map(size, larger), axes))
    return axes


def plot_held_out(comparison: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Held-out log-likelihood per token (or cell) relative to the most probable size, ± one standard error.

    comparison: from `lvsearch.results.heldout.held_out_comparison`. Returns the axes.
    """
    axes = dressed(ax)
    write_caption(axes, draw_held_out(comparison, axes))
    return axes
