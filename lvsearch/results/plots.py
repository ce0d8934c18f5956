"""Pictures of a search: the posterior over sizes, the evidence behind it, and what held-out documents say.

Every function takes matplotlib axes and gives them back; without axes it makes a figure. The kind of every interval
stands on the picture, and nothing vacuous is drawn as if it said something.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.results.findings import Findings
from lvsearch.results.wording import (
    best_estimate,
    bounds_in_words,
    kind_of,
    limit_in_words,
    scale_in_words,
    unit_name,
)
from lvsearch.sizing.bounds import OF_FITS
from lvsearch.sizing.posterior import Posterior, format_probability, posterior
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MAIN, ACCENT, FAINT, BAND = "#1f4e79", "#c2410c", "#8a94a0", "#dbe7f3"
NEGLIGIBLE = 1e-3
"""Sizes whose 95 % point lies below this probability are left outside the picture."""
MOST_TICKS = 16
CHARACTERS_PER_INCH = 17.5  # of a caption in its small type
TITLE_SHARE = 0.52  # of them that fit on a line of a title


def plot_posterior(result: Findings, ax: "Axes | None" = None, kind: str | None = None) -> "Axes":
    """Probability of each size with error bars.

    kind: as for `SearchResult.posterior`; by default what suits the evidence. Under "estimate" a dot is the mean over
    the standard errors of the evidence and its bar the 5 % to 95 % range; sizes that cannot be told from the best are
    shaded. Under "certified" and "diminishing" a bar is the whole interval, and the last one stands for all unvisited
    sizes together; of nested evidence both are of the fits that were made, and say so. Returns the axes. Raises
    ValueError for a kind the result does not have.
    """
    kind = kind_of(result, kind)
    axes = _axes(ax)
    if kind == "estimate":
        return _estimated(result, axes)
    return _intervals(result, posterior(result.certified() if kind == "certified" else result.diminishing()), axes)


def plot_bounds(result: Findings, ax: "Axes | None" = None) -> "Axes":
    """What the search knows of the evidence, in nats.

    Marginal evidence: the estimate of log p(data | size) relative to the best, against size: every fit a faint dot, the
    best of each size with an error bar of one standard error. Plug-in evidence: the bounds on log p(data), proved of
    these fits, after every expansion, and the interval of log p(data | size, θ) of each size as it was expanded.
    Returns the axes.
    """
    axes = _axes(ax)
    return _expansions(result, axes) if result.evaluator.nested else _evidence(result, axes)


def plot_held_out(comparison: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Held-out log-likelihood per token (or cell) relative to the most probable size, ± one standard error.

    comparison: from `lvsearch.results.heldout.held_out_comparison`. Returns the axes.
    """
    axes = _axes(ax)
    reference, names, nouns = (comparison.attrs[name] for name in ("reference", "size_names", "nouns"))
    sizes = [tuple(int(part) for part in row) for row in comparison[list(names)].to_numpy()]
    where = _Positions(sizes)
    at = where.of(sizes)
    difference, error = comparison[f"difference_per_{nouns.observation}"].to_numpy(), comparison["standard_error"]
    axes.axhline(0.0, color=FAINT, linewidth=0.8, zorder=1)
    axes.errorbar(at, difference, yerr=error, fmt="o", color=MAIN, capsize=3, markersize=5, elinewidth=1.4, zorder=3)
    chosen = sizes.index(reference)
    axes.plot(at[chosen], difference[chosen], "o", color=ACCENT, markersize=7, zorder=4)
    where.ticks(axes, sizes)
    axes.set_xlabel(_size_label(comparison.attrs["unit"]), parse_math=False)
    axes.set_ylabel(f"nats per {nouns.observation}, above the most probable size")
    _titles(
        axes,
        f"Held-out {nouns.units}: which size predicts best",
        f"{comparison.attrs['n_units']:,} {nouns.units}, {comparison.attrs['n_observations']:,} "
        f"{nouns.observations}; paired "
        f"differences ± 1 standard error to {_short(reference)}, the most probable size (orange); "
        f"{comparison.attrs['estimator']}",
    )
    return axes


# ── posterior ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _estimated(result: Findings, axes: "Axes") -> "Axes":
    found, unit = result.estimated, unit_name(result)
    worth = [
        high >= NEGLIGIBLE or size in found.indistinguishable for size, high in _each(found.probability_upper, found)
    ]
    shown = _with_neighbours(worth)
    sizes = [size for size, one in zip(found.sizes, shown, strict=True) if one]
    mean, low, high = (
        values[np.array(shown)] for values in (found.probability, found.probability_lower, found.probability_upper)
    )
    where = _Positions(sizes)
    at = where.of(sizes)
    _shade(axes, where, found.indistinguishable)
    # Not error bars around the mean: under a skewed posterior the mean can lie outside its own 5–95 % range.
    axes.vlines(at, low, high, color=MAIN, linewidth=1.4, zorder=3)
    axes.plot(np.tile(at, 2), [*low, *high], "_", color=MAIN, markersize=7, zorder=3)
    axes.plot(at, mean, "o", color=MAIN, markersize=5.5, zorder=4)
    best = sizes.index(found.best)
    axes.plot(at[best], mean[best], "o", color=ACCENT, markersize=7.5, zorder=5)
    _note(axes, at[best], float(mean[best]), f"{_short(found.best)}: {format_probability(float(mean[best]))}")
    where.ticks(axes, sizes)
    axes.set_ylim(-0.02, 1.05)
    axes.set_ylabel("probability of the size")
    axes.set_xlabel(_size_label(unit), parse_math=False)
    left_out = len(found.sizes) - len(sizes)
    beyond = f" {left_out} other sizes tried: each below 0.001." if left_out else ""
    limit = limit_in_words(result)
    _titles(
        axes,
        best_estimate(result),
        f"estimate over the sizes tried, given the standard errors of their {result.settings.evidence} evidence: "
        f"dots means, bars 5–95 %.{beyond}" + (f"\n{limit}" if limit else ""),
    )
    return axes


def _each(values: Float[np.ndarray, " sizes"], found) -> list[tuple[Size, float]]:
    return list(zip(found.sizes, values.tolist(), strict=True))


def _with_neighbours(worth: Sequence[bool]) -> list[bool]:
    """Everything from the first to the last that is worth showing, and two more on each side."""
    first, last = worth.index(True), len(worth) - 1 - list(reversed(worth)).index(True)
    return [first - 2 <= position <= last + 2 for position in range(len(worth))]


def _shade(axes: "Axes", where: "_Positions", together: Sequence[Size]) -> None:
    """A band behind sizes that cannot be told apart, run by run."""
    if len(together) < 2:
        return
    positions = sorted(where.of(together).tolist())
    start = previous = positions[0]
    for position in [*positions[1:], math.inf]:
        if position > previous + 1:
            axes.axvspan(start - 0.5, previous + 0.5, color=BAND, linewidth=0, zorder=0)
            start = position
        previous = position


def _intervals(result: Findings, table: Posterior, axes: "Axes") -> "Axes":
    rows = table.rows[:-1]
    sizes = [row.size for row in rows if row.size is not None]
    where = _Positions(sizes)
    at = where.of(sizes)
    low = np.array([row.probability_lower for row in rows])
    high = np.array([row.probability_upper for row in rows])
    rest = at.max() + max(2.0, 0.06 * np.ptp(at))
    axes.bar(at, high - low, 0.62, low, color=MAIN, alpha=0.75, linewidth=0, zorder=3)
    axes.hlines([*low, *high], np.tile(at - 0.31, 2), np.tile(at + 0.31, 2), color=MAIN, linewidth=1.4, zorder=4)
    unvisited = table.unvisited
    width = max(0.62, 0.02 * np.ptp(at))
    axes.bar(
        rest,
        unvisited.probability_upper - unvisited.probability_lower,
        width,
        unvisited.probability_lower,
        color=FAINT,
        alpha=0.8,
        linewidth=0,
        zorder=3,
    )
    axes.hlines(
        [unvisited.probability_lower, unvisited.probability_upper],
        rest - width / 2,
        rest + width / 2,
        color=FAINT,
        linewidth=1.4,
        zorder=4,
    )
    axes.axvline((at.max() + rest) / 2, color=FAINT, linewidth=0.8, linestyle=":", zorder=1)
    where.ticks(axes, sizes, {float(rest): "un-\nvisited"})
    axes.set_ylim(-0.02, 1.05)
    axes.set_ylabel("probability of the size: from … to")
    axes.set_xlabel(_size_label(unit_name(result)), parse_math=False)
    if table.is_vacuous:
        axes.text(
            0.5,
            0.5,
            "These intervals say nothing about single sizes:\nthe probability of each may be 0.",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=11,
            color=ACCENT,
            bbox={"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": ACCENT, "alpha": 0.95},
            zorder=6,
        )
    _titles(
        axes,
        f"Probability of each size: intervals {table.basis}{scale_in_words(result)}",
        f"{result.settings.evidence} evidence; {bounds_in_words(result, table.kind)}",
    )
    return axes


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _evidence(result: Findings, axes: "Axes") -> "Axes":
    visits = sorted((visit for visit in result.visits if not visit.failed), key=lambda visit: visit.size)
    scale, found = result.evaluator.scale, result.estimated
    sizes = [visit.size for visit in visits]
    estimate = np.array([visit.estimate for visit in visits]) / scale
    error = np.array([result.standard_errors[size] for size in sizes])
    top = float(estimate.max())
    where = _Positions(sizes)
    at = where.of(sizes)
    dots = [
        (float(position), trial.estimate / scale - top)
        for position, visit in zip(at, visits, strict=True)
        for trial in visit.trials
        if trial.failure is None and math.isfinite(trial.estimate)
    ]
    _shade(axes, where, found.indistinguishable)
    axes.plot(*zip(*dots, strict=True), "o", color=FAINT, alpha=0.55, markersize=3.5, linewidth=0, zorder=2)
    floor = _floor(estimate - top, error, [size in found.indistinguishable for size in sizes])
    inside = estimate - top >= floor
    axes.errorbar(
        at[inside],
        (estimate - top)[inside],
        yerr=error[inside],
        fmt="o",
        color=MAIN,
        capsize=3,
        markersize=5,
        elinewidth=1.4,
        zorder=3,
    )
    best = sizes.index(found.best)
    axes.plot(at[best], estimate[best] - top, "o", color=ACCENT, markersize=7, zorder=4)
    axes.set_ylim(floor, max(float(error.max(initial=0.0)) * 1.6, -0.1 * floor))
    if not inside.all():
        below = at[~inside]
        edge = np.full(len(below), floor)
        axes.plot(below, edge, "v", color=FAINT, markersize=6, clip_on=False, zorder=5, linewidth=0)
    where.ticks(axes, sizes)
    if floor < -20:
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(_size_label(unit_name(result)), parse_math=False)
    axes.set_ylabel(f"log p(data | size) − best, nats{scale_in_words(result)}")
    lowest = float((estimate - top).min())
    beyond = f"; ▼ below the frame, down to −{-lowest:,.0f}" if not inside.all() else ""
    shaded = f"; shaded: {sizes_in_words(found.indistinguishable)} cannot be told apart"
    _titles(
        axes,
        "Estimated evidence for each size",
        f"{result.settings.evidence} evidence ± 1 standard error; faint: every trial{beyond}"
        f"{shaded if len(found.indistinguishable) > 1 else ''}\n{bounds_in_words(result, 'certified')}",
    )
    return axes


def _floor(relative: Float[np.ndarray, " sizes"], error: Float[np.ndarray, " sizes"], close: Sequence[bool]) -> float:
    """Where the frame ends below: twice as deep as the sizes that matter, unless everything fits nearly as well."""
    matter = float(np.min((relative - error)[np.array(close)]))
    needed = min(2.2 * matter, -1.0)
    lowest = float(np.min(relative - error))
    if lowest == 0.0:  # a single size without error
        return -1.0
    return 1.06 * lowest if lowest > 1.5 * needed else needed


def _expansions(result: Findings, axes: "Axes") -> "Axes":
    table, visits = result.bounds(), result.visits
    scale = result.evaluator.scale
    steps = np.arange(1, len(visits) + 1)
    lower, upper = table["log_lower"].to_numpy(), table["log_upper"].to_numpy()
    known = np.isfinite(upper)
    axes.plot(steps, lower, color=MAIN, linewidth=2.0, label="lower bound, proved of these fits", zorder=4)
    if known.any():
        axes.plot(
            steps[known], upper[known], color=ACCENT, linewidth=2.0, label="upper bound, proved of these fits", zorder=4
        )
        axes.fill_between(steps[known], lower[known], upper[known], color=BAND, linewidth=0, zorder=0)
    ends = np.array([[visit.evidence.lower, visit.evidence.upper] for visit in visits]) / scale
    drawn = np.isfinite(ends).all(axis=1)
    low, high = ends[drawn].T
    axes.vlines(
        steps[drawn],
        low,
        high,
        color=FAINT,
        linewidth=5.0,
        alpha=0.8,
        label="log p(data | size, θ) of the fit: interval",
        zorder=2,
    )
    if result.prior.dimension == 1 and not result.diminishing().still_rising:
        level = result.diminishing().log_upper
        axes.axhline(
            level, color=ACCENT, linestyle="--", linewidth=1.2, label="upper end if gains diminish (assumed)", zorder=3
        )
    labels = {int(step): _short(visit.size) for step, visit in zip(steps, visits, strict=True)}
    every = max(1, math.ceil(len(steps) / MOST_TICKS))
    axes.set_xticks(steps[::every], [labels[int(step)] for step in steps[::every]])
    axes.margins(x=0.02)
    axes.yaxis.set_major_formatter("{x:,.4g}" if result.settings.per_token else "{x:,.0f}")
    axes.set_xlabel(f"{_size_label(unit_name(result))}, in the order of expansion", parse_math=False)
    axes.set_ylabel(f"nats{scale_in_words(result)}")
    axes.legend(facecolor="white", framealpha=0.85, edgecolor="none", fontsize=9, loc="center right")
    kind = result.default_kind
    second = "" if kind == "certified" else f"\n{bounds_in_words(result, kind)}"
    _titles(axes, f"Bounds on log p(data), {OF_FITS}", bounds_in_words(result, "certified") + second)
    return axes


# ── axes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Positions:
    """Where sizes stand on the x axis: at their value if there is one size variable, else side by side."""

    def __init__(self, sizes: Sequence[Size]):
        self.by_value = all(len(size) == 1 for size in sizes)
        self.rank = {size: position for position, size in enumerate(sorted(sizes))}

    def of(self, sizes: Sequence[Size]) -> Float[np.ndarray, " sizes"]:
        """One position per size."""
        return np.array([size[0] if self.by_value else self.rank[size] for size in sizes], dtype=np.float64)

    def ticks(self, axes: "Axes", sizes: Sequence[Size], extra: dict[float, str] | None = None) -> None:
        """At most 16 labelled ticks, whole numbers all; `extra` ones beside them."""
        extra = extra or {}
        at = np.sort(self.of(sizes))
        if self.by_value:
            span = at[-1] - at[0]
            step = next(s for s in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 10**9) if span / s < MOST_TICKS)
            wanted = np.arange(math.ceil(at[0] / step) * step, at[-1] + 1, step)
            labels = [f"{tick:.0f}" for tick in wanted]
            axes.set_xlim(at[0] - 0.8, max([at[-1], *extra]) + 0.8)
        else:
            every = max(1, math.ceil(len(at) / MOST_TICKS))
            ordered = sorted(sizes)
            wanted, labels = at[::every], [_short(size) for size in ordered[::every]]
            axes.tick_params(axis="x", labelrotation=45 if len(at) > 6 else 0)
        axes.set_xticks([*wanted, *extra], [*labels, *extra.values()])


def _axes(ax: "Axes | None") -> "Axes":
    """The given axes, or those of a new figure, dressed alike."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(7.6, 4.6), dpi=150, layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#e6e9ed", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=10)
    return ax


def _titles(axes: "Axes", title: str, caption: str) -> None:
    """What is seen, and what it rests on, small above the frame."""
    # Not the final width where the layout is still to be made, but near enough for breaking lines.
    inches = axes.get_window_extent().width / axes.figure.dpi
    width = max(40, int(inches * CHARACTERS_PER_INCH))
    wrapped = [visible(line) for part in caption.split("\n") for line in textwrap.wrap(part, width)]
    axes.annotate(
        "\n".join(wrapped),
        (0, 1),
        (0, 6),
        "axes fraction",
        "offset points",
        fontsize=8.5,
        color="#4b5563",
        va="bottom",
        ha="left",
        parse_math=False,
    )
    title = textwrap.fill(visible(title), int(width * TITLE_SHARE))
    axes.set_title(title, loc="left", fontsize=12.5, fontweight="bold", pad=9 + 11.5 * len(wrapped), parse_math=False)


def _note(axes: "Axes", x: float, y: float, text: str) -> None:
    axes.annotate(
        text,
        (x, y),
        (9, 7),
        textcoords="offset points",
        fontsize=10,
        color=ACCENT,
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        zorder=7,
        parse_math=False,
    )


def _short(size: Size) -> str:
    return "×".join(map(str, size))


def _size_label(unit: str) -> str:
    return f"number of {visible(unit)}" if unit != "size" else "size"
