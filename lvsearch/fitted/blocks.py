"""The class `FittedBlocks`: a fitted latent block model, with clusters of rows, clusters of columns, and means."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from lvsearch.data.points import Points
from lvsearch.fitted.block_plot import draw_blocks
from lvsearch.fitted.model import FittedModel
from lvsearch.models.block_model import COLUMN, ROW, LatentBlockModel
from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import in_house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class FittedBlocks(FittedModel):
    """A latent block model, fitted at one size (number of row clusters, number of column clusters).

    A block is the cells of one row cluster in one column cluster. Tables have the names of the data's rows and columns.
    """

    _useful_calls: ClassVar[tuple[str, ...]] = ("row_labels()", "column_labels()", "block_means()", "plot_blocks()")

    @property
    def model(self) -> LatentBlockModel:
        """The model (its type and hyper-parameters) that was fitted, without its fitted parameters."""
        model = self.estimate.model
        assert isinstance(model, LatentBlockModel)
        return model

    def row_memberships(self, data: Any = None) -> pd.DataFrame:
        """Return the probability of each row cluster for each row under the fit, (rows, row clusters); rows sum to 1.

        data: the rows; by default the training data.
        """
        points = self._points(data)
        shares = np.asarray(self._describe(points).representation, np.float64)
        names = pd.RangeIndex(points.n_units) if points.row_names is None else pd.Index(points.row_names)
        return pd.DataFrame(shares, index=names, columns=pd.RangeIndex(shares.shape[1], name=ROW))

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
        index = pd.Index(self._points(None).columns)
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
        axes = in_house_style(ax, height=6.4)
        write_caption(axes, self.draw_blocks(axes))
        return axes

    def draw_blocks(self, axes: "Axes") -> Caption:
        """Draw the training matrix in the order of its clusters on existing axes, and return a caption without drawing
        it.
        """
        points = self._points(None)
        return draw_blocks(
            points, self.row_labels().to_numpy(), self.column_labels().to_numpy(), self.block_means(), axes
        )

    def _points(self, data: Any) -> Points:
        """Return `data` as `Points` with the columns of the training data; for None, the training data.

        Raises ValueError for data whose columns have no names.
        """
        points = self.training if data is None else self.training.like_this(data)
        if not isinstance(points, Points):
            raise ValueError(f"got rows as {type(points).__name__}, expected Points, whose columns have names")
        return points
