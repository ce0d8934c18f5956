"""A fitted block model: its clusters of rows and of columns, and the matrix in their order, for people."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from lvsearch.data.points import Points
from lvsearch.fitted.block_plot import draw_blocks
from lvsearch.fitted.model import FittedModel
from lvsearch.models.block_model import COLUMN, ROW, LatentBlockModel
from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import dressed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class FittedBlocks(FittedModel):
    """Row clusters × column clusters at one size. Rows and columns are named as the data name them."""

    @property
    def model(self) -> LatentBlockModel:
        """The model with the hyper-parameters of this fit."""
        model = self.estimate.model
        assert isinstance(model, LatentBlockModel)
        return model

    def row_memberships(self, data: Any = None) -> pd.DataFrame:
        """q(cluster) of each row, rows summing to 1. data: by default the training data."""
        points = self._points(data)
        shares = np.asarray(self._describe(points).representation, np.float64)
        names = pd.RangeIndex(points.n_units) if points.row_names is None else pd.Index(points.row_names)
        return pd.DataFrame(shares, index=names, columns=pd.RangeIndex(shares.shape[1], name=ROW))

    def row_labels(self, data: Any = None) -> pd.Series:
        """The most probable cluster of each row."""
        return self.row_memberships(data).idxmax(axis=1).rename(ROW)

    def column_memberships(self) -> pd.DataFrame:
        """q(cluster) of each column, rows summing to 1: a row per column of the data."""
        logits = np.asarray(self.estimate.natural[COLUMN], np.float64)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        index = pd.Index(self._points(None).columns)
        return pd.DataFrame(shares, index=index, columns=pd.RangeIndex(shares.shape[1], name=COLUMN))

    def column_labels(self) -> pd.Series:
        """The most probable cluster of each column."""
        return self.column_memberships().idxmax(axis=1).rename(COLUMN)

    def block_means(self) -> pd.DataFrame:
        """The mean of a cell of each block, parameters at their posterior means: row clusters × column clusters."""
        component = self.model.component
        with jax.enable_x64(True):
            statistics = component.family.point(jax.tree.map(jnp.asarray, self.estimate.natural["blocks"]))
            means = np.asarray(jax.vmap(lambda row: component.moments(row)[0])(statistics), np.float64)
        rows, columns = (pd.RangeIndex(n, name=name) for n, name in zip(means.shape, (ROW, COLUMN), strict=True))
        return pd.DataFrame(means, index=rows, columns=columns)

    def plot_blocks(self, ax: "Axes | None" = None) -> "Axes":
        """The training matrix with its rows and columns in the order of their clusters, the borders of blocks drawn;
        rows and columns are named where there is room. Returns the axes."""
        axes = dressed(ax, height=6.4)
        write_caption(axes, self.draw_blocks(axes))
        return axes

    def draw_blocks(self, axes: "Axes") -> Caption:
        """`plot_blocks` on axes as they are; the caption is returned, not written."""
        points = self._points(None)
        return draw_blocks(
            points, self.row_labels().to_numpy(), self.column_labels().to_numpy(), self.block_means(), axes
        )

    def _points(self, data: Any) -> Points:
        points = self.training if data is None else self.training.like_this(data)
        if not isinstance(points, Points):
            raise ValueError(f"got rows as {type(points).__name__}, expected Points, whose columns have names")
        return points
