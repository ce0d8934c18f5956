"""Statistics of the shares of topics in documents: by group with confidence intervals, together, and by label.

`prevalence` is the mean share of each topic (cluster, feature) in groups of documents, with confidence intervals, and
`plot_prevalence` its picture. `share_correlations` says which topics occur together, and `label_topics` which label
fits each topic best.
"""

from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.models.plain_arguments import one_of, real_number, shortened_repr, whole_number
from lvsearch.pictures.style import MARKERS, Caption, in_house_style, palette_of, write_caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def label_topics(labels: tuple[str, ...], tokens: Float[np.ndarray, "docs topic"]) -> list[str]:
    """Return for each topic the label whose documents use it most, one label per topic.

    The score of a label is its share of the topic's tokens, times log(1 + how many times more often it uses the topic
    than all documents do).

    labels: the label of each document.
    tokens: the expected number of tokens of each topic in each document.
    """
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    table = np.zeros((len(names), tokens.shape[1]))
    np.add.at(table, index, tokens)
    share = table / np.maximum(table.sum(axis=0, keepdims=True), 1e-12)
    lift = share / np.maximum(table.sum(axis=1, keepdims=True) / max(table.sum(), 1e-12), 1e-12)
    return [str(names[i]) for i in np.argmax(share * np.log1p(lift), axis=0)]


def share_correlations(proportions: Float[np.ndarray, "docs topic"]) -> pd.DataFrame:
    """Return the correlation over documents between the shares of every two topics, (topic, topic).

    It is NaN for a topic whose share never varies.

    proportions: the share of each topic in each document.
    """
    centred = proportions - proportions.mean(axis=0)
    spread = np.sqrt((centred**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        table = centred.T @ centred / (spread[:, None] * spread)
    return pd.DataFrame(table)


LEVEL, DRAWS = 0.95, 400
MOST_LINES = 6
MOST_LABELS = 24
"""The largest number of groups in order that are all named below a picture; of more, some at equal distances are."""
PERIODS = {"month": "M", "quarter": "Q", "year": "Y"}
"""The calendar periods into which dates are divided, and pandas' sign for each."""


def prevalence(
    proportions: Float[np.ndarray, "docs topic"],
    by: Any,
    *,
    bins: int = 5,
    period: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the mean share of each topic in each group of documents: a row per group and topic.

    proportions: the result of `transform`, a row per document.
    by: a value for each document, all of one kind, such as texts, numbers or dates. Numbers and dates with more than
        `bins` different values are divided into `bins` groups of equal size. Documents whose value is missing are left
        out.
    bins: the number of groups that numbers and dates are divided into. A group of dates is called by its first and its
        last date, such as "2008-01 … 2008-02": months, or days or times where months would not tell groups apart.
    period: "month", "quarter" or "year": the groups are all such periods of the calendar from the first date to the
        last, called "2008-01", "2008Q1" or "2008"; `bins` is not used. A period without a document has no mean (NaN).
        Values are dates or their ISO texts, and a date with a time zone counts by its own local time. None divides
        dates into `bins` groups.
    level: the probability with which an interval holds the mean of the population of documents.
    seed: the seed of the resampling.

    Columns: group, topic, mean, lower, upper, documents. Intervals come from resampling documents (percentiles of 400
    bootstrap means). They take each document's proportions as known. A group of one document has no interval (NaN).

    Raises ValueError for values of another number of documents, values that are all missing, values of several types
    that have no order, or a level outside (0, 1). With a period also for values that are no dates.
    """
    values = pd.Series(np.asarray(by) if not isinstance(by, pd.Series) else by.to_numpy())
    if len(values) != len(proportions):
        raise ValueError(f"got {len(values)} values for {len(proportions)} documents, expected one for each")
    level, bins = real_number("level", level, above=0, below=1), whole_number("bins", bins, least=1)
    if period is None:
        values, groups, in_time = _groups_of_equal_size(values, bins)
    else:
        values, groups, in_time = *_calendar_groups(values, one_of("period", period, tuple(PERIODS))), True
    if not groups:
        raise ValueError("got no document whose value is known, expected one or more")
    rng, tail, rows = np.random.default_rng(seed), (1 - level) / 2, []
    for group in groups:
        shares = proportions[np.asarray(values == group, bool)]
        mean = shares.mean(axis=0) if len(shares) else np.full(shares.shape[1], np.nan)
        lower, upper = _interval(shares, tail, rng)
        rows += [
            (group, topic, mean[topic], lower[topic], upper[topic], len(shares)) for topic in range(shares.shape[1])
        ]
    table = pd.DataFrame(rows, columns=["group", "topic", "mean", "lower", "upper", "documents"])
    if in_time:  # texts that have an order, so that a picture joins them
        table["group"] = pd.Categorical(table["group"], categories=groups, ordered=True)
    return table


def _groups_of_equal_size(values: pd.Series, bins: int) -> tuple[pd.Series, list[Any], bool]:
    """Return the group of each value, the groups in order, and True if they are names of dates in the order of time.

    values: a value for each document. A value is a group itself, except where numbers or dates have more than `bins`
        different values: these are divided into `bins` groups of equal size.
    """
    are_dates = pd.api.types.is_datetime64_any_dtype(values)
    ordered = (pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)) or are_dates
    groups: list[Any] = _sorted_values(values)
    dates = values
    if ordered and len(groups) > bins:
        values = pd.Series(pd.qcut(values, bins, duplicates="drop"))
        groups = _sorted_values(values)
    if are_dates:  # called by the dates that are in a group, since the ends of its interval have times to the second
        names = _names_of_dates([(dates[values == group].min(), dates[values == group].max()) for group in groups])
        values, groups = values.astype(object).map(dict(zip(groups, names, strict=True))), names
    return values, groups, are_dates


def _calendar_groups(values: pd.Series, period: str) -> tuple[pd.Series, list[str]]:
    """Return the name of the calendar period of each date, and the names of all periods from the first to the last.

    values: dates, or their texts in the form of ISO 8601, a value for each document; a missing one has no period (NaN).
    period: "month", "quarter" or "year".

    Raises ValueError for values that are no dates.
    """
    sign, known = PERIODS[period], values.dropna()
    if pd.api.types.is_datetime64_any_dtype(known):
        held = known.dt.tz_localize(None).dt.to_period(sign)
    else:
        once = known.astype(object).drop_duplicates()  # many documents have the date of another one
        period_of = {value: _as_date(value, place, period).to_period(sign) for place, value in once.items()}
        held = known.astype(object).map(period_of)
    names = pd.Series([str(each) for each in held], index=known.index, dtype=object).reindex(values.index)
    return names, [] if held.empty else [str(each) for each in pd.period_range(held.min(), held.max())]


def _as_date(value: Any, place: Any, period: str) -> pd.Timestamp:
    """Return a date, or the text of one, as a timestamp without a time zone: the local time that it says.

    place: the number of the document, for the message.
    period: "month", "quarter" or "year", which the date must be in; the text of a year alone is in no month.

    Raises ValueError for anything else, such as a number, of which nobody knows whether it counts years or seconds.
    """
    is_text = isinstance(value, str) and value[:1].isdigit() and (period == "year" or len(value) > len("2008"))
    if is_text or isinstance(value, date | np.datetime64):
        try:
            found = pd.Timestamp(pd.to_datetime(value, format="ISO8601") if is_text else value)
            return cast(pd.Timestamp, found.tz_localize(None))
        except ValueError:  # a text of another form
            pass
    raise ValueError(
        f"got {shortened_repr(value)} for document {place} with period={period!r}, expected a date: datetime64, a date "
        'of Python or pandas, or a text such as "2008-01-31". Years as numbers: period="year", by=[str(year) for year '
        "in years]"
    )


def _sorted_values(values: pd.Series) -> list[Any]:
    """Return the different known values in order. Raises ValueError for values of types that have no order."""
    found = values.dropna().unique().tolist()
    try:
        return sorted(found)
    except TypeError as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in found}))
        raise ValueError(
            f"got values of the types {kinds}, which have no order; expected one type: turn them into texts first, "
            "such as by=[str(value) for value in values]"
        ) from error


def _names_of_dates(groups: list[tuple[pd.Timestamp, pd.Timestamp]]) -> list[str]:
    """Return a name for each group of dates: "2008-01 … 2008-02", or "2008-01" where it begins and ends in one month.

    Days stand in place of months, and times in place of days, where two groups would share a month or a day. The
    names are distinct, since the groups are.

    groups: the first and the last date of each group, in the order of time.
    """
    names: list[str] = []
    for form in ("%Y-%m", "%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S.%f"):
        ends = [(first.strftime(form), last.strftime(form)) for first, last in groups]
        names = [first if first == last else f"{first} … {last}" for first, last in ends]
        if all(before[1] < after[0] for before, after in pairwise(ends)):
            break
    return names


def _interval(
    shares: Float[np.ndarray, "docs topic"], tail: float, rng: np.random.Generator
) -> Float[np.ndarray, "end topic"]:
    """Return the lower and upper ends of the bootstrap interval of each topic's mean share, (2, topic).

    shares: the shares of topics in each document. tail: the probability beyond each end.
    """
    n = len(shares)
    if n < 2:
        return np.full((2, shares.shape[1]), np.nan)
    # one draw at a time: all draws at once would be an array (draws, docs), too large for a large corpus
    means = np.stack([rng.multinomial(n, np.full(n, 1 / n)) @ shares / n for _ in range(DRAWS)])
    return np.quantile(means, [tail, 1 - tail], axis=0)


def plot_prevalence(table: pd.DataFrame, names: pd.Series, ax: "Axes | None" = None) -> "Axes":
    """Draw the mean share of topics over groups of documents, a line per topic with its intervals, and return the axes.

    The picture has the six topics that differ most between groups.

    table: the result of `prevalence`.
    names: the name of each topic, indexed by its number.
    ax: axes to draw on; None makes new ones.
    """
    axes = in_house_style(ax)
    palette = palette_of(axes)
    groups = list(dict.fromkeys(table["group"]))
    # a group without documents has no mean, and does not count here
    means = {topic: rows["mean"].to_numpy(np.float64) for topic, rows in table.groupby("topic")}
    spread = pd.Series({topic: float(np.nanmax(mean) - np.nanmin(mean)) for topic, mean in means.items()})
    topics = list(spread.sort_values(ascending=False, kind="stable").index[:MOST_LINES])
    in_order = getattr(table["group"].dtype, "ordered", False) or not isinstance(groups[0], str | bool)
    step = -(-len(groups) // MOST_LABELS) if in_order else 1
    # lines of different topics stand a little beside each other, so that intervals do not overlap; of many groups there
    # is no room for this, and the intervals of a topic become one band
    apart = 0.6 / max(1, len(topics)) if step == 1 else 0.0
    for place, topic in enumerate(sorted(topics)):
        rows = table[table["topic"] == topic]
        at = np.arange(len(groups)) + (place - (len(topics) - 1) / 2) * apart
        mean, lower, upper = (np.asarray(rows[column]) for column in ("mean", "lower", "upper"))
        colour, marker = palette.colour_of_part(place), MARKERS[place % len(MARKERS)]
        label = visible(f"{topic}: {names.loc[topic]}").replace("$", r"\$")
        axes.plot(
            at,
            mean,
            marker=marker,
            markersize=None if step == 1 else 2.5,  # seen between two gaps, where there is no line
            color=colour,
            linewidth=1 if in_order else 0,
            label=label,
            zorder=3,
        )
        if step == 1:
            axes.vlines(at, lower, upper, color=colour, linewidth=2, alpha=0.7, zorder=2)
        else:
            axes.fill_between(at, lower, upper, color=colour, alpha=0.12, linewidth=0, zorder=2)
    labels = [visible(str(group)) for group in groups[::step]]
    is_tilted = max(map(len, labels)) * len(labels) > 60
    axes.set_xticks(range(0, len(groups), step), labels, rotation=30 if is_tilted else 0)
    if is_tilted:  # a tilted text ends below its tick
        for tick in axes.get_xticklabels():
            tick.set(ha="right", rotation_mode="anchor")
    for tick in axes.get_xticklabels():
        tick.set_parse_math(False)
    axes.set_ylim(0, None)
    axes.set_ylabel("mean share of a document")
    axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=palette.ink)
    left_out = len(spread) - len(topics)
    write_caption(
        axes,
        Caption(
            "Prevalence of topics",
            f"mean share over the documents of a group, 95 % intervals over documents"
            f"{f'; {left_out} topics that differ less are left out' if left_out else ''}",
        ),
    )
    return axes
