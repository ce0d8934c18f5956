"""The class `FittedBlocks`: a fitted latent block model, with clusters of rows, clusters of columns, and means.

Its picture shows the matrix in the order of its row and column clusters.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Int

from lvsearch.data.points import Points, row_index
from lvsearch.files.plain_text import visible
from lvsearch.fitted.model import FittedModel
from lvsearch.models.block_model import COLUMN, ROW, LatentBlockModel
from lvsearch.pictures.style import Caption, draw_captioned, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class FittedBlocks(FittedModel[LatentBlockModel]):
    """A latent block model, fitted at one size (number of row clusters, number of column clusters).

    A block is the cells of one row cluster in one column cluster. Tables have the names of the data's rows and columns.
    """

    _useful_calls: ClassVar[tuple[str, ...]] = ("row_labels()", "column_labels()", "block_means()", "plot_blocks()")

    def row_memberships(self, data: Any = None) -> pd.DataFrame:
        """Return the probability of each row cluster for each row under the fit, (rows, row clusters); rows sum to 1.

        data: the rows; by default the training data.
        """
        points = self._data_as(Points, data)
        shares = np.asarray(self._describe(points).representation, np.float64)
        return pd.DataFrame(shares, index=row_index(points), columns=pd.RangeIndex(shares.shape[1], name=ROW))

    def row_labels(self, data: Any = None) -> pd.Series:
        """Return the number of the most probable row cluster of each row, as a series (rows,).

        data: the rows; by default the training data.
        """
        return self.row_memberships(data).idxmax(axis=1).rename(ROW)

    def column_memberships(self) -> pd.DataFrame:
        """Return the probability of each column cluster for each column of the data under the fit.

        The table is (columns, column clusters), with a row per column of the data; rows sum to 1.
        """
        logits = np.asarray(self.estimate.natural[COLUMN], np.float64)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        index = pd.Index(self._data_as(Points, None).columns)
        return pd.DataFrame(shares, index=index, columns=pd.RangeIndex(shares.shape[1], name=COLUMN))

    def column_labels(self) -> pd.Series:
        """Return the number of the most probable column cluster of each column, as a series (columns,)."""
        return self.column_memberships().idxmax(axis=1).rename(COLUMN)

    def block_means(self) -> pd.DataFrame:
        """Return the mean of a cell in each block, as a table (row clusters, column clusters).

        Parameters are at their posterior means.
        """
        component = self.model.component
        with jax.enable_x64(True):
            statistics = component.family.point(jax.tree.map(jnp.asarray, self.estimate.natural["blocks"]))
            means = np.asarray(jax.vmap(lambda row: component.moments(row)[0])(statistics), np.float64)
        rows, columns = (pd.RangeIndex(n, name=name) for n, name in zip(means.shape, (ROW, COLUMN), strict=True))
        return pd.DataFrame(means, index=rows, columns=columns)

    def plot_blocks(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the training matrix with rows and columns in the order of their clusters, and return the axes.

        Lines mark the borders of blocks. Rows and columns are named where there is room.

        ax: the axes to draw on; None for a new figure.
        """
        return draw_captioned(ax, self.draw_blocks, height=6.4)

    def draw_blocks(self, axes: "Axes") -> Caption:
        """Draw the training matrix with rows and columns in the order of their clusters, on existing axes.

        Clusters are ordered by the falling mean of their cells. So are rows and columns within a cluster.

        Returns a caption, without drawing it.
        """
        from matplotlib.colors import LinearSegmentedColormap

        points, palette = self._data_as(Points, None), palette_of(axes)
        values, (n_rows, n_columns) = np.asarray(points.values), points.shape
        order_rows, row_edges = _order_by_cluster(values, self.row_labels().to_numpy(), points.observed)
        labels = self.column_labels().to_numpy()
        order_columns, column_edges = _order_by_cluster(values.T, labels, points.observed.T)
        # missing cells are NaN, shown in grey; the extreme per cent of values share the end colours
        shades = LinearSegmentedColormap.from_list("cells", [palette.background, palette.band, palette.main])
        shades = shades.with_extremes(bad=palette.grid)
        low, high = np.nanquantile(values, [0.01, 0.99])
        shown = values[np.ix_(order_rows, order_columns)]
        axes.imshow(shown, cmap=shades, vmin=low, vmax=max(high, low + 1e-9), aspect="auto", interpolation="nearest")
        for edge in row_edges:
            axes.axhline(edge - 0.5, color=palette.accent, linewidth=1.3)
        for edge in column_edges:
            axes.axvline(edge - 0.5, color=palette.accent, linewidth=1.3)
        axes.grid(visible=False)
        names = points.row_names or tuple(map(str, range(n_rows)))
        if n_rows <= NAMED_ROWS:
            axes.set_yticks(range(n_rows), [visible(names[row]) for row in order_rows], fontsize=7, parse_math=False)
        if n_columns <= NAMED_COLUMNS:
            shown_names = [visible(points.columns[column]) for column in order_columns]
            small = 6.5 if n_columns <= 60 else 4.8
            axes.set_xticks(range(n_columns), shown_names, fontsize=small, rotation=90, parse_math=False)
        row_clusters, column_clusters = self.block_means().shape
        missing = float(1 - points.observed.mean())
        holes = f" Grey: the {missing:.0%} of the cells that were not observed." if missing else ""
        return Caption(
            f"{row_clusters} row clusters × {column_clusters} column clusters",
            "Rows and columns in the order of their most probable clusters, the larger mean first; lines part clusters."
            f" White to dark: {low:g} to {high:g}.{holes}",
        )


NAMED_ROWS, NAMED_COLUMNS = 60, 100
"""The largest numbers of rows and of columns that are labelled with their names."""


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
