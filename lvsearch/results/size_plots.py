"""Draw what a search found by size, on given axes: the posterior over sizes, and the log evidence behind it.

The posterior is drawn as estimates, or as intervals that are proved or assumed. The log evidence is drawn by size,
against the time spent, and as bounds in the order of the search.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.fitted.mixture_posterior import estimate_of_number_in_use
from lvsearch.pictures.size_axis import SizeAxis
from lvsearch.pictures.style import Caption, palette_of
from lvsearch.recommending.recommendation import draw_recommendation
from lvsearch.results.findings import Findings
from lvsearch.results.wording import (
    best_estimate,
    bounds_in_words,
    component_name,
    gives_number_in_use,
    has_probabilities,
    kind_of,
    limit_in_words,
    name_of_chains,
    probability_in_words,
    scale_in_words,
    short_answer,
    unit_name,
)
from lvsearch.sizing.bounds import OF_FITS
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.posterior import Posterior, format_probability, posterior
from lvsearch.sizing.words import first_to_last, size_text, sizes_in_words, with_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NEGLIGIBLE = 1e-3
"""Sizes whose 95 % point lies below this probability are left out of the picture."""
NEIGHBOURS = 2
"""How many sizes of negligible probability are still shown on each side."""


def draw_posterior(result: Findings, axes: "Axes", kind: str | None = None) -> Caption:
    """Draw the probability of each size on existing axes, and return a caption without drawing it.

    For a search by prediction, which has no posterior, the held-out score of each size is drawn.

    result: the search.
    axes: matplotlib axes.
    kind: "estimate", "certified" (proved intervals) or "diminishing" (intervals that assume diminishing gains); None
        for the default of the result.

    Raises ValueError for a kind that the result does not have, and for a search without a single successful fit.
    """
    if result.by_prediction and result.recommended is not None:
        return draw_recommendation(result.recommended, axes)
    kind = kind_of(result, kind)
    result.best_size  # noqa: B018 — raises where there is nothing to draw
    if kind == "estimate":
        return _draw_estimate(result, axes)
    return _draw_intervals(result, posterior(result.certified() if kind == "certified" else result.diminishing()), axes)


def size_label(unit: str) -> str:
    """Return the label of the axis of sizes: "number of topics" for the plural noun "topics", "size" for "size"."""
    return f"number of {visible(unit)}" if unit != "size" else "size"


def _draw_estimate(result: Findings, axes: "Axes") -> Caption:
    """Draw the estimated probability of each size on existing axes, and return a caption without drawing it."""
    # No error bars: where the evidence is uncertain they would reach from 0 to 1 on every size. The band says what is
    # known: these sizes together hold the probability.
    in_use = result.partitions if gives_number_in_use(result) else None
    found = result.estimated if in_use is None else estimate_of_number_in_use(in_use)
    palette, together = palette_of(axes), found.indistinguishable
    high = found.probability_upper.tolist()
    # leave out sizes of negligible probability, except those that may be the best and their neighbours
    shown = _with_neighbours([p >= NEGLIGIBLE or s in together for s, p in zip(found.sizes, high, strict=True)])
    sizes = [size for size, one in zip(found.sizes, shown, strict=True) if one]
    mean = found.probability[np.array(shown)]
    where = SizeAxis.from_sizes(sizes)
    at = where.positions(sizes)
    where.shade(axes, together)
    colours = [palette.accent if s == found.best else palette.main if s in together else palette.faint for s in sizes]
    axes.vlines(at, 0.0, mean, color=colours, linewidth=2.4, zorder=3)
    axes.scatter(at, mean, s=42, c=colours, zorder=4, linewidths=0)
    best = sizes.index(found.best)
    text = size_text(found.best)
    if has_probabilities(result):
        text = f"{text}: {format_probability(float(mean[best]))}"
    _annotate_point(axes, float(at[best]), float(mean[best]), text, leftwards=best > len(sizes) / 2)
    where.ticks(axes, found.best)
    axes.set_ylim(0.0, 1.05 if mean.max() > 0.5 else 1.3 * float(mean.max()))
    axes.set_ylabel("probability among the sizes tried")
    label = size_label(unit_name(result))
    axes.set_xlabel(label if in_use is None else f"{label} in use", parse_math=False)
    left_out = len(found.sizes) - len(sizes)
    shaded = sizes_in_words(together) if len(found.best) == 1 else first_to_last(together)
    parts = [
        f"{best_estimate(result)}.",
        f"Shaded: {shaded}, which hold 95 % between them or cannot be told from the best." if len(together) > 1 else "",
        f"{_basis(result)}: {probability_in_words(result)}.",
        f"{with_noun(left_out, 'other sizes')}: {'each ' if left_out > 1 else ''}below 0.001." if left_out else "",
    ]
    limit = limit_in_words(result)
    text = " ".join(part for part in parts if part)
    return Caption(short_answer(result), f"{text}\n{limit}" if limit else text)


def _basis(result: Findings) -> str:
    """Return a phrase that says what the probabilities of an estimated posterior come from."""
    if result.partitions is not None:
        return f"From {name_of_chains(result)} of the data, all sizes at once"
    if result.curve is not None:
        return f"From what one {component_name(result)} more gains, averaged over the errors"
    return f"An estimate over the sizes tried, averaged over the errors of their {result.settings.evidence} evidence"


def _with_neighbours(worth: Sequence[bool]) -> list[bool]:
    """Return True for each size to show: all from the first to the last True in `worth`, and two more on each side."""
    first, last = worth.index(True), len(worth) - 1 - list(reversed(worth)).index(True)
    return [first - NEIGHBOURS <= position <= last + NEIGHBOURS for position in range(len(worth))]


def _draw_intervals(result: Findings, table: Posterior, axes: "Axes") -> Caption:
    """Draw the interval of the probability of each size as a bar, and return a caption without drawing it.

    table: the intervals, with a last row for all sizes that were not tried.
    """
    palette, rows = palette_of(axes), table.rows[:-1]
    sizes = [row.size for row in rows if row.size is not None]
    where = SizeAxis.from_sizes(sizes, reserved=True)
    rest = where.beyond
    if table.is_vacuous:
        _shade_from_zero(axes, where, table)
    else:
        places = [where.edges(size) for size in sizes]
        middle = [(0.19 * low + 0.81 * high, 0.81 * low + 0.19 * high) for low, high in places]
        _draw_bars(axes, middle, [(r.probability_lower, r.probability_upper) for r in rows], palette.main)
        wide = where.edges(sizes[-1])[1] - where.edges(sizes[-1])[0]
        ends = table.unvisited.probability_lower, table.unvisited.probability_upper
        _draw_bars(axes, [(rest - 0.31 * wide, rest + 0.31 * wide)], [ends], palette.faint)
    border = (
        float(where.positions([sizes[-1]])[0] * rest) ** 0.5
        if where.logarithmic
        else (where.positions(sizes).max() + rest) / 2
    )
    axes.axvline(border, color=palette.faint, linewidth=0.8, linestyle=":", zorder=1)
    where.ticks(axes, extra={float(rest): "un-\nvisited"})
    axes.set_ylim(-0.02, 1.05)
    axes.set_ylabel("probability of the size: from … to")
    axes.set_xlabel(size_label(unit_name(result)), parse_math=False)
    return Caption(
        "Probability of each size: from … to",
        f"intervals {table.basis}{scale_in_words(result)}; {result.settings.evidence} evidence; "
        f"{bounds_in_words(result, table.kind)}",
    )


def _draw_bars(
    axes: "Axes", places: Sequence[tuple[float, float]], ends: Sequence[tuple[float, float]], colour: str
) -> None:
    """Draw a bar from the lower to the upper end of each interval.

    The two ends are drawn as lines, so that an interval of no width can be seen too.

    places: (left, right) of each bar, on the axis of sizes.
    ends: (lower, upper) of each interval.
    colour: the colour of the bars.
    """
    left, right = np.array(places).T
    low, high = np.array(ends).T
    axes.bar(left, high - low, right - left, low, align="edge", color=colour, alpha=0.7, linewidth=0, zorder=3)
    axes.hlines([*low, *high], [*left, *left], [*right, *right], color=colour, linewidth=1.4, zorder=4)


def _shade_from_zero(axes: "Axes", where: SizeAxis, table: Posterior) -> None:
    """Shade the intervals of all sizes as one area with a note, for intervals that all begin at probability 0.

    Bars would look like knowledge: no single size is proved to have any probability.

    where: the axis of sizes. table: the intervals.
    """
    palette, at = palette_of(axes), np.array([where.edges(size) for size in where.sizes]).ravel()
    high = np.repeat([row.probability_upper for row in table.rows[:-1]], 2)
    axes.fill_between(at, 0.0, high, color=palette.band, linewidth=0, zorder=1)
    axes.vlines(where.beyond, 0.0, table.unvisited.probability_upper, color=palette.band, linewidth=9, zorder=1)
    axes.text(
        0.5,
        0.5,
        "No single size is proved any probability:\neach may have none (shaded: what it may\nhave at most)",
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=10,
        color=palette.accent,
        bbox={"boxstyle": "round,pad=0.5", "facecolor": palette.background, "edgecolor": palette.accent, "alpha": 0.95},
        zorder=6,
    )


def _annotate_point(axes: "Axes", x: float, y: float, text: str, leftwards: bool) -> None:
    """Write `text` beside the point (x, y), in the colour of the best size, to its left or to its right."""
    palette = palette_of(axes)
    axes.annotate(
        text,
        (x, y),
        (-9 if leftwards else 9, 5),
        textcoords="offset points",
        ha="right" if leftwards else "left",
        fontsize=10,
        color=palette.accent,
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.15", "facecolor": palette.background, "edgecolor": "none", "alpha": 0.85},
        zorder=7,
        parse_math=False,
    )


MOST_TICKS = 16
LONG = 300.0
"""The number of seconds above which the time axis is in minutes."""
LEGEND_SIZE = 9


class Curve(NamedTuple):
    """The log evidence of every size that has a finite estimate, by increasing size, relative to the best, in nats.

    visits: the records of these sizes, one per size.
    relative: estimated log evidence minus `top`, (sizes,).
    error: standard errors of the estimates, (sizes,).
    lower, upper: log evidence by forward and by backward annealing minus `top`, (sizes,); without annealing, the
        estimate minus and plus one standard error.
    top: the largest estimate of log evidence.
    """

    visits: tuple[Visit, ...]
    relative: Float[np.ndarray, " sizes"]
    error: Float[np.ndarray, " sizes"]
    lower: Float[np.ndarray, " sizes"]
    upper: Float[np.ndarray, " sizes"]
    top: float


def draw_evidence(result: Findings, axes: "Axes") -> Caption:
    """Draw the log evidence of each size on existing axes, and return a caption without drawing it.

    Plug-in evidence is drawn as bounds in the order of the search, other evidence as estimates against size.

    Raises ValueError for a search without a single successful fit, and for one by prediction, which has no evidence.
    """
    _require_evidence(result)
    if result.evaluator.nested:
        return _draw_expansions(result, axes)
    by_differences = result.partitions is not None or result.curve is not None
    return _draw_differences(result, axes) if by_differences else _draw_by_size(result, axes)


def _require_evidence(result: Findings) -> None:
    """Raise ValueError, with the reason, for a search that has no evidence of any size."""
    if result.evaluator.nested:
        result.best_size  # noqa: B018 — raises without a successful fit
    else:
        result.estimated  # noqa: B018 — raises without a successful fit, and after a search by prediction


def has_progress(result: Findings) -> bool:
    """Return True if some size that was fitted has evidence, which can be drawn against the time spent.

    None has where chains over partitions were interrupted before the first fit, or hardly visited the sizes fitted.
    """
    return result.evaluator.nested or any(_has_known_evidence(result, visit) for visit in result.visits)


def _has_known_evidence(result: Findings, visit: Visit) -> bool:
    """Return True if the size of `visit` has evidence above −∞ that can be drawn.

    Evidence from chains over partitions is drawn only if its standard error is at most `MOST_ERROR`.
    """
    error = result.standard_errors.get(visit.size)
    return error is not None and (result.partitions is None or error <= MOST_ERROR)


def draw_progress(result: Findings, axes: "Axes") -> Caption:
    """Draw the log evidence of each size against the time spent on fits, and return a caption without drawing it.

    Sizes are in the order in which they were first tried.

    Raises ValueError for a search without a single successful fit, and for one by prediction, which has no evidence.
    """
    _require_evidence(result)
    if not has_progress(result):
        raise ValueError(
            "got a search that was stopped before a size with evidence was fitted; expected one such fit, whose time "
            "can be drawn: lv.resume goes on with the search"
        )
    visits = tuple(visit for visit in result.visits if not visit.failed)
    spent = np.cumsum([visit.seconds for visit in visits])
    ranked = np.array([_has_known_evidence(result, visit) for visit in visits])
    unit, spent = ("minutes", spent / 60) if spent[-1] > LONG else ("seconds", spent)
    if result.evaluator.nested:
        caption = _draw_bounds_by_time(
            result, axes, np.cumsum([v.seconds for v in result.visits]) / (60 if unit == "minutes" else 1)
        )
    else:
        visits = tuple(visit for visit, one in zip(visits, ranked, strict=True) if one)
        caption = _draw_estimates_by_time(result, axes, visits, spent[ranked])
    axes.set_xlabel(f"{unit} spent on fits, one size after the other")
    return caption


# ── of each size ────────────────────────────────────────────────────────────────────────────────────────────────────


def _curve(result: Findings) -> Curve:
    """Return the estimated log evidence of all sizes whose evidence can be drawn, by increasing size."""
    visits = tuple(
        sorted((visit for visit in result.visits if _has_known_evidence(result, visit)), key=lambda visit: visit.size)
    )
    scale = result.evaluator.scale
    estimate = np.array([visit.estimate for visit in visits]) / scale
    error = np.array([result.standard_errors[visit.size] for visit in visits])
    lower, upper = estimate - error, estimate + error
    for place, visit in enumerate(visits):
        if visit.annealed is not None:
            lower[place], upper[place] = visit.annealed.lower / scale, visit.annealed.upper / scale
    top = float(estimate.max())
    return Curve(visits, estimate - top, error, lower - top, upper - top, top)


def _not_drawn_in_words(result: Findings) -> str:
    """Return a phrase that names the fitted sizes that are not drawn, and why; empty if there are none."""
    sizes = sorted(visit.size for visit in result.visits if not visit.failed and not _has_known_evidence(result, visit))
    why = "whose evidence is −∞" if result.partitions is None else HARDLY_VISITED
    return f"; not drawn: {sizes_in_words(sizes)}, {why}" if sizes else ""


MOST_ERROR = 3.0
"""The largest standard error, in nats, with which a size's log evidence from chains is drawn.

Chains that hardly visited a size know its evidence to hundreds of nats.
"""

HARDLY_VISITED = "which the chains hardly visited"


def _draw_differences(result: Findings, axes: "Axes") -> Caption:
    """Draw the log evidence of all sizes relative to the most probable one, and return a caption without drawing it.

    For evidence from gains and from chains over partitions, which know the differences between sizes better than their
    heights, and know sizes that were not fitted. Dots are sizes that were fitted, or visited by the chains.
    """
    palette, found = palette_of(axes), result.estimated
    sizes, _, estimate, errors = result.estimates()
    if result.curve is None:
        known, source = errors <= MOST_ERROR, f"from {name_of_chains(result)}"
        measured = set(sizes)
    else:
        known, source = np.isfinite(errors), f"added up from what one {component_name(result)} more gains"
        measured = {visit.size for visit in result.visits if visit.gain is not None}
    drawn = [size for size, one in zip(sizes, known, strict=True) if one]
    relative, errors = estimate[known] - estimate[sizes.index(found.best)], errors[known]
    where = SizeAxis.from_sizes(drawn)
    at, dots = where.positions(drawn), np.array([size in measured for size in drawn])
    where.shade(axes, found.indistinguishable)
    axes.fill_between(at, relative - errors, relative + errors, color=palette.main, alpha=0.3, lw=0, zorder=2)
    axes.plot(at, relative, color=palette.main, linewidth=1.2, zorder=3)
    axes.plot(at[dots], relative[dots], "o", color=palette.main, markersize=5, zorder=3)
    axes.plot(where.positions([found.best]), 0.0, "o", color=palette.accent, markersize=7.5, zorder=5)
    nat = 1 / result.evaluator.scale
    linear = _set_depth_scale(axes, relative, errors, [size in found.indistinguishable for size in drawn], nat)
    where.ticks(axes, found.best)
    axes.set_xlabel(size_label(unit_name(result)), parse_math=False)
    axes.set_ylabel(f"nats above the most probable size{scale_in_words(result)}")
    left_out = [size for size, one in zip(sizes, known, strict=True) if not one]
    missing = f"; not drawn: {sizes_in_words(left_out)}, {HARDLY_VISITED}" if left_out else ""
    fitted = "" if dots.all() else "; dots: sizes that were measured"
    shaded = f"; shaded: {sizes_in_words(found.indistinguishable)}, which hold 95 % between them"
    return Caption(
        "Estimated evidence for each size",
        f"log p(data | size) relative to the most probable size (orange), {source}; band ± 1 standard error of the "
        f"difference to it{fitted}{shaded if len(found.indistinguishable) > 1 else ''}{missing}{linear}",
    )


def _draw_by_size(result: Findings, axes: "Axes") -> Caption:
    """Draw the estimated log evidence against size, and return a caption without drawing it.

    Every fit is a dot. Bands show one standard error and the estimates by forward and backward annealing.
    """
    palette, curve, found = palette_of(axes), _curve(result), result.estimated
    sizes = [visit.size for visit in curve.visits]
    where = SizeAxis.from_sizes(sizes)
    at, scale = where.positions(sizes), result.evaluator.scale
    dots = [
        (float(position), trial.estimate / scale - curve.top)
        for position, visit in zip(at, curve.visits, strict=True)
        for trial in visit.trials
        if trial.failure is None and math.isfinite(trial.estimate)
    ]
    axes.plot(*zip(*dots, strict=True), "o", color=palette.faint, alpha=0.6, markersize=3.5, linewidth=0, zorder=2)
    where.shade(axes, found.indistinguishable)
    low, high = curve.relative - curve.error, curve.relative + curve.error
    # the light band also covers the two annealed estimates, which may lie farther apart than the standard errors
    axes.fill_between(
        at, np.minimum(low, curve.lower), np.fmax(high, curve.upper), color=palette.main, alpha=0.12, lw=0
    )
    axes.fill_between(at, low, high, color=palette.main, alpha=0.3, lw=0, zorder=2)
    axes.plot(at, curve.relative, color=palette.main, linewidth=1.2, zorder=3)
    axes.vlines(at, low, high, color=palette.main, linewidth=2.6, zorder=3)
    axes.plot(at, curve.relative, "o", color=palette.main, markersize=5, zorder=4)
    best = sizes.index(found.best)
    axes.plot(at[best], curve.relative[best], "o", color=palette.accent, markersize=7.5, zorder=5)
    close = [size in found.indistinguishable for size in sizes]
    linear = _set_depth_scale(axes, curve.relative, curve.error, close, 1 / scale)
    where.ticks(axes, found.best)
    axes.set_xlabel(size_label(unit_name(result)), parse_math=False)
    axes.set_ylabel(f"nats relative to the best{scale_in_words(result)}")
    ends = ", light: the ends of annealing" if any(visit.annealed is not None for visit in curve.visits) else ""
    shaded = f"; shaded: the evidence cannot choose between {sizes_in_words(found.indistinguishable)}"
    return Caption(
        "Estimated evidence for each size",
        f"log p(data | size), {result.settings.evidence} evidence, relative to the best; band ± 1 standard error{ends}"
        f"; faint dots: every trial{shaded if len(found.indistinguishable) > 1 else ''}"
        f"{linear}{_not_drawn_in_words(result)}\n{bounds_in_words(result, 'certified')}",
    )


def _set_depth_scale(
    axes: "Axes",
    relative: Float[np.ndarray, " sizes"],
    error: Float[np.ndarray, " sizes"],
    close: list[bool],
    nat: float,
) -> str:
    """Set the vertical axis so that every size is on it and single nats can be read near the best.

    The scale is linear down to where the sizes that may be the best end, and over at least one nat of all the data:
    smaller differences decide nothing. If other sizes lie far below, it is logarithmic there.

    axes: matplotlib axes.
    relative: the log evidence of each size, relative to the best.
    error: its standard errors.
    close: for each size, True if it cannot be told from the best.
    nat: one nat of all the data, in the unit of `relative`; less than 1 if evidence is weighed per observation.

    Returns the words that the caption adds about the scale; empty if it is linear.
    """
    lowest = float(np.min(relative - error))
    above = max(float(np.max(relative + error)), 1e-12)
    # none is close where no size was fitted that may be the best
    matter = max(-float(np.min((relative - error)[np.array(close)], initial=0.0)), above, nat)
    linear = 10.0 ** math.ceil(math.log10(matter))
    if lowest > -4 * linear:
        depth = max(-lowest, matter)
        axes.set_ylim(-1.08 * depth, max(above * 1.3, 0.06 * depth))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}".replace("-", "−"))
        return ""
    from matplotlib.ticker import FixedLocator, NullLocator

    decades = [linear * 10.0**power for power in range(math.ceil(math.log10(-lowest / linear)) + 1)]
    axes.set_yscale("symlog", linthresh=linear, linscale=1.0)
    axes.yaxis.set_major_locator(FixedLocator([*(-value for value in reversed(decades)), -linear / 2, 0.0]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"−{-value:,.6g}" if value else "0")
    axes.set_ylim(1.5 * lowest, max(1.2 * above, 0.08 * linear))
    axes.axhline(-linear, color=palette_of(axes).faint, linewidth=0.8, linestyle=":", zorder=1)
    return f"; the scale is logarithmic below −{linear:,.6g} (dotted)"


# ── against time and in order ───────────────────────────────────────────────────────────────────────────────────────


def _draw_estimates_by_time(
    result: Findings, axes: "Axes", visits: tuple[Visit, ...], spent: Float[np.ndarray, " visits"]
) -> Caption:
    """Draw the estimated log evidence of each size against time, with the best so far as a line; return a caption.

    visits: the records of the sizes with evidence above −∞, in the order of the search.
    spent: the time at which the fits of each size were done, (visits,), in the unit of the time axis.
    """
    palette, curve, found = palette_of(axes), _curve(result), result.estimated
    place = {visit.size: position for position, visit in enumerate(curve.visits)}
    order = [place[visit.size] for visit in visits]
    relative, error = curve.relative[order], curve.error[order]
    axes.step(spent, np.maximum.accumulate(relative), where="post", color=palette.main, linewidth=1.6, zorder=2)
    axes.vlines(spent, relative - error, relative + error, color=palette.main, linewidth=2, zorder=3)
    colours = [palette.accent if visit.size == found.best else palette.main for visit in visits]
    axes.scatter(spent, relative, s=22, c=colours, zorder=4, linewidths=0)
    close = [visit.size in found.indistinguishable for visit in curve.visits]
    linear = _set_depth_scale(axes, curve.relative, curve.error, close, 1 / result.evaluator.scale)
    for number, (x, y, visit) in enumerate(zip(spent, relative, visits, strict=True)):
        if len(visits) <= MOST_TICKS or visit.size == found.best or number % math.ceil(len(visits) / MOST_TICKS) == 0:
            axes.annotate(
                size_text(visit.size),
                (float(x), float(y)),
                (-5, 4),
                textcoords="offset points",
                ha="right",
                fontsize=8.5,
                color=palette.accent if visit.size == found.best else palette.muted,
            )
    axes.set_ylabel(f"nats relative to the best{scale_in_words(result)}")
    return Caption(
        "Evidence against time",
        "log p(data | size) of each size where its fits ended, relative to the best, ± 1 standard error; numbers are "
        "sizes, the line is the best so far. A size's later fits are counted where it was first visited"
        f"{linear}{_not_drawn_in_words(result)}",
    )


def _draw_bounds_by_time(result: Findings, axes: "Axes", spent: Float[np.ndarray, " visits"]) -> Caption:
    """Draw the proved bounds on log p(data) against time, and return a caption without drawing it.

    spent: the time at which the fits of each size were done, (visits,), in the unit of the time axis.
    """
    _draw_bound_curves(result, axes, spent)
    axes.legend(fontsize=LEGEND_SIZE)
    return Caption("Bounds against time", f"bounds on log p(data), {OF_FITS}; {bounds_in_words(result, 'certified')}")


def _draw_bound_curves(result: Findings, axes: "Axes", at: Float[np.ndarray, " visits"]) -> None:
    """Draw the lower and the upper bound on log p(data) after every size tried, and shade the area between them.

    at: the horizontal position of each size in the order of the search, (visits,): a time or a number.
    """
    palette, table = palette_of(axes), result.bounds()
    lower, upper = table["log_lower"].to_numpy(), table["log_upper"].to_numpy()
    known = np.isfinite(upper)
    axes.plot(at, lower, color=palette.main, linewidth=2.0, label="lower bound, proved of these fits", zorder=4)
    if known.any():
        axes.plot(
            at[known],
            upper[known],
            color=palette.accent,
            linewidth=2.0,
            linestyle=(0, (5, 1)),
            label="upper bound, proved of these fits",
            zorder=4,
        )
        axes.fill_between(at[known], lower[known], upper[known], color=palette.band, linewidth=0, zorder=0)
    axes.yaxis.set_major_formatter("{x:,.4g}" if result.settings.per_token else "{x:,.0f}")
    axes.set_ylabel(f"nats{scale_in_words(result)}")


def _draw_expansions(result: Findings, axes: "Axes") -> Caption:
    """Draw the bounds on log p(data) after every size tried, for plug-in evidence, and return a caption.

    Vertical lines are the interval of log p(data | size, θ) of each size, at its fitted parameters θ.
    """
    palette, visits = palette_of(axes), result.visits
    steps = np.arange(1, len(visits) + 1)
    _draw_bound_curves(result, axes, steps.astype(np.float64))
    ends = np.array([[visit.evidence.lower, visit.evidence.upper] for visit in visits]) / result.evaluator.scale
    drawn = np.isfinite(ends).all(axis=1)
    low, high = ends[drawn].T
    label = "log p(data | size, θ) of the fit: interval"
    axes.vlines(steps[drawn], low, high, color=palette.faint, linewidth=4.0, label=label, zorder=2)
    axes.fill_between(steps[drawn], low, high, color=palette.faint, alpha=0.25, linewidth=0, zorder=1)
    if result.prior.dimension == 1 and not result.diminishing().still_rising:
        level, label = result.diminishing().log_upper, "upper end if gains diminish (assumed)"
        axes.axhline(level, color=palette.accent, linestyle=":", linewidth=1.6, label=label, zorder=3)
    labels = [size_text(visit.size) for visit in visits]
    every = max(1, math.ceil(len(steps) / MOST_TICKS))
    axes.set_xticks(steps[::every], labels[::every])
    axes.margins(x=0.02)
    axes.set_xlabel(f"{size_label(unit_name(result))}, in the order of expansion", parse_math=False)
    axes.legend(fontsize=LEGEND_SIZE, loc="center right", frameon=True, facecolor=palette.background, edgecolor="none")
    kind = result.default_kind
    second = "" if kind == "certified" else f"\n{bounds_in_words(result, kind)}"
    return Caption(f"Bounds on log p(data), {OF_FITS}", bounds_in_words(result, "certified") + second)
