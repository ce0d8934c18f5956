"""The picture of a matrix in the order of its row and column clusters."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Int

from lvsearch.data.points import Points
from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption
from lvsearch.pictures.style import palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED_ROWS, NAMED_COLUMNS = 60, 100
"""The largest numbers of rows and of columns that are labelled with their names."""


def draw_blocks(
    points: Points,
    rows: Int[np.ndarray, " row"],
    columns: Int[np.ndarray, " column"],
    means: pd.DataFrame,
    axes: "Axes",
) -> Caption:
    """Draw a matrix with rows and columns in the order of their clusters, and return a caption without drawing it.

    Clusters are ordered by the falling mean of their cells. So are rows and columns within a cluster.

    points: the matrix. rows: the cluster of each row. columns: the cluster of each column.
    means: the mean of a cell of each block, row clusters × column clusters.
    """
    from matplotlib.colors import LinearSegmentedColormap

    palette, values = palette_of(axes), np.asarray(points.values)
    order_rows, row_edges = _order_by_cluster(values, rows, points.observed)
    order_columns, column_edges = _order_by_cluster(values.T, columns, points.observed.T)
    # missing cells are NaN, which the colour map shows in grey; the extreme per cent of values share the end colours
    shades = LinearSegmentedColormap.from_list("cells", [palette.background, palette.band, palette.main]).with_extremes(
        bad=palette.grid
    )
    low, high = np.nanquantile(values, [0.01, 0.99])
    shown = values[np.ix_(order_rows, order_columns)]
    axes.imshow(shown, cmap=shades, vmin=low, vmax=max(high, low + 1e-9), aspect="auto", interpolation="nearest")
    for edge in row_edges:
        axes.axhline(edge - 0.5, color=palette.accent, linewidth=1.3)
    for edge in column_edges:
        axes.axvline(edge - 0.5, color=palette.accent, linewidth=1.3)
    axes.grid(visible=False)
    names = points.row_names or tuple(map(str, range(len(rows))))
    if len(rows) <= NAMED_ROWS:
        axes.set_yticks(range(len(rows)), [visible(names[row]) for row in order_rows], fontsize=7, parse_math=False)
    if len(columns) <= NAMED_COLUMNS:
        labels = [visible(points.columns[column]) for column in order_columns]
        small = 6.5 if len(columns) <= 60 else 4.8
        axes.set_xticks(range(len(columns)), labels, fontsize=small, rotation=90, parse_math=False)
    n_rows, n_columns = means.shape
    missing = float(1 - points.observed.mean())
    holes = f" Grey: the {missing:.0%} of the cells that were not observed." if missing else ""
    return Caption(
        f"{n_rows} row clusters × {n_columns} column clusters",
        "Rows and columns in the order of their most probable clusters, the larger mean first; lines part clusters. "
        f"White to dark: {low:g} to {high:g}.{holes}",
    )


def _order_by_cluster(
    values: np.ndarray, labels: Int[np.ndarray, " each"], observed: np.ndarray
) -> tuple[Int[np.ndarray, " each"], list[int]]:
    """Return the order of the rows by cluster, (rows,), and the positions in this order where a next cluster begins.

    Clusters, and rows within a cluster, are ordered by the falling mean of their observed cells.

    values: the matrix, (rows, columns). labels: the cluster of each row. observed: False for missing cells.
    """
    cells = np.where(observed, values, 0.0).sum(1) / np.maximum(observed.sum(1), 1)
    clusters = sorted(set(labels.tolist()), key=lambda k: -float(cells[labels == k].mean()))
    parts = [np.flatnonzero(labels == k) for k in clusters]
    parts = [part[np.argsort(-cells[part], kind="stable")] for part in parts]
    return np.concatenate(parts), np.cumsum([len(part) for part in parts])[:-1].tolist()
