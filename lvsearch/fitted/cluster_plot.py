"""Pictures of a mixture: rows in two columns, coloured by component, or in all pairs of several columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from lvsearch.data.points import Points
from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import MARKERS, in_house_style, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSIDE = 0.9
"""The share of a Gaussian's rows inside its ellipse."""
MOST_COLUMNS = 5
"""The number of columns in a picture of pairs, if no columns are named."""


def plot_clusters(
    points: Points,
    shares: Float[np.ndarray, "row component"],
    means: Float[np.ndarray, "component dim"],
    covariances: Float[np.ndarray, "component dim dim"] | None,
    columns: tuple[Any, Any] | None,
    ax: "Axes | None",
) -> "Axes":
    """Draw the rows in two columns, coloured by component, with a caption, and return the axes.

    Rows of uncertain component are pale. The number of each component stands at its mean.

    points: the rows. shares: q(component), the probability of each component for each row.
    means: the mean of each component.
    covariances: the covariance of each component, drawn as an ellipse; None for components that are not Gaussian.
    columns: the names of two columns; None for the first two. ax: the axes to draw on; None for a new figure.

    Raises ValueError unless `columns` are two columns of the data.
    """
    chosen = _checked_columns(points, points.columns[:2] if columns is None else columns, 2)
    axes = in_house_style(ax, 6.4, 5.2)
    write_caption(axes, draw_clusters(points, shares, means, covariances, (chosen[0], chosen[1]), axes))
    return axes


def draw_clusters(
    points: Points,
    shares: Float[np.ndarray, "row component"],
    means: Float[np.ndarray, "component dim"],
    covariances: Float[np.ndarray, "component dim dim"] | None,
    columns: tuple[Any, Any],
    axes: "Axes",
) -> Caption:
    """Draw the rows in two columns, coloured by component, on existing axes, and return a caption without drawing it.

    points: the rows. shares: q(component), the probability of each component for each row.
    means, covariances: of each component, in all columns. Without covariances no ellipses are drawn.
    columns: the names of two columns of the data, on the horizontal and on the vertical axis.
    """
    x, y = (points.columns.index(name) for name in columns)
    _scatter(points, shares, x, y, axes)
    palette, of_row = palette_of(axes), shares.argmax(axis=1)
    plate = {"boxstyle": "circle,pad=0.2", "facecolor": palette.background, "edgecolor": "none", "alpha": 0.85}
    for component in np.unique(of_row).tolist():
        centre = float(means[component, x]), float(means[component, y])
        style = {"ha": "center", "va": "center", "weight": "bold", "color": palette.ink, "zorder": 4}
        axes.annotate(str(component), centre, bbox=plate, **style)
        if covariances is not None:
            _ellipse(axes, centre, covariances[component][np.ix_([x, y], [x, y])], palette.colour_of_part(component))
    axes.set_xlabel(visible(str(columns[0])), parse_math=False)
    axes.set_ylabel(visible(str(columns[1])), parse_math=False)
    occupied = len(np.unique(of_row))
    ellipses = "; ellipses hold 90 % of a component" if covariances is not None else ""
    return Caption(
        f"{occupied} component{'s' if occupied != 1 else ''}",
        f"rows by their most probable component, uncertain ones pale{ellipses}",
    )


def plot_pairs(points: Points, shares: Float[np.ndarray, "row component"], columns: Sequence[Any] | None) -> "Figure":
    """Draw the rows in all pairs of several columns, coloured by component, and return the figure.

    The diagonal has a histogram of each column.

    points: the rows. shares: q(component), the probability of each component for each row.
    columns: the names of two or more columns; None for the first five.

    Raises ValueError for fewer than two columns, and for unknown names.
    """
    import matplotlib.pyplot as plt

    chosen = _checked_columns(points, points.columns[:MOST_COLUMNS] if columns is None else columns, None)
    n = len(chosen)
    figure, grid = plt.subplots(n, n, figsize=(2.0 * n, 2.0 * n), squeeze=False, dpi=150, layout="constrained")
    for row, below in enumerate(chosen):
        for column, left in enumerate(chosen):
            axes = in_house_style(grid[row, column])
            x, y = points.columns.index(left), points.columns.index(below)
            if row == column:
                _histogram(points, shares, x, axes)
            else:
                _scatter(points, shares, x, y, axes)
            axes.tick_params(labelsize=7, labelbottom=row == n - 1, labelleft=column == 0 and row != 0)
            if row == n - 1:
                axes.set_xlabel(visible(str(left)), parse_math=False, fontsize=9)
            if column == 0:
                axes.set_ylabel(visible(str(below)), parse_math=False, fontsize=9)
    return figure


def _checked_columns(points: Points, columns: Sequence[Any], wanted: int | None) -> tuple[Any, ...]:
    """Return `columns` as a tuple, checked to be names of columns of `points`.

    wanted: the number of columns that there must be; None for two or more.

    Raises ValueError for unknown names, and for another number of columns than `wanted`.
    """
    chosen, known = tuple(columns), points.columns
    right = len(chosen) >= 2 if wanted is None else len(chosen) == wanted
    if not right or any(name not in known for name in chosen):
        raise ValueError(
            f"got columns {chosen}, expected {'two' if wanted == 2 else 'two or more'} of {', '.join(map(repr, known))}"
        )
    return chosen


def _scatter(points: Points, shares: Float[np.ndarray, "row component"], x: int, y: int, axes: "Axes") -> None:
    """Draw a scatter plot of two columns, with rows coloured by their most probable component; uncertain rows are pale.

    shares: q(component), the probability of each component for each row.
    x, y: the numbers of the columns on the horizontal and on the vertical axis. Rows that miss either are left out.
    """
    palette, of_row = palette_of(axes), shares.argmax(axis=1)
    both = points.observed[:, x] & points.observed[:, y]
    for component in np.unique(of_row[both]).tolist():
        rows = both & (of_row == component)
        axes.scatter(
            points.values[rows, x],
            points.values[rows, y],
            s=18,
            color=palette.colour_of_part(component),
            marker=MARKERS[component % len(MARKERS)],
            alpha=np.clip(shares[rows].max(axis=1), 0.15, 0.9),
            linewidths=0,
            zorder=2,
        )


def _histogram(points: Points, shares: Float[np.ndarray, "row component"], x: int, axes: "Axes") -> None:
    """Draw a stacked histogram of one column, coloured by the most probable component of each row.

    shares: q(component), the probability of each component for each row.
    x: the number of the column. Rows that miss it are left out.
    """
    palette, of_row = palette_of(axes), shares.argmax(axis=1)
    known = points.observed[:, x]
    parts = np.unique(of_row[known]).tolist()
    values = [points.values[known & (of_row == part), x] for part in parts]
    axes.hist(values, bins=20, stacked=True, color=[palette.colour_of_part(part) for part in parts])
    axes.set_yticks([])


def _ellipse(axes: "Axes", centre: tuple[float, float], covariance: np.ndarray, colour: str) -> None:
    """Draw the ellipse that holds 90 % (`INSIDE`) of a two-dimensional Gaussian on the axes.

    centre: the mean. covariance: (2, 2), of the two columns drawn. colour: of the line.
    """
    from matplotlib.patches import Ellipse

    lengths, directions = np.linalg.eigh(covariance)
    width, height = 2 * np.sqrt(-2 * np.log(1 - INSIDE) * np.maximum(lengths, 0.0))
    angle = np.degrees(np.arctan2(directions[1, 0], directions[0, 0]))
    axes.add_patch(Ellipse(centre, width, height, angle=angle, fill=False, edgecolor=colour, linewidth=1.6, zorder=3))
