"""The class `FittedFeatures`: a fitted model in which rows have binary features, and each feature adds a loading."""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.data.points import Points
from lvsearch.files.plain_text import visible
from lvsearch.fitted.model import FittedModel, column_names_of, comparable_fit
from lvsearch.inference.engine.describing import site_value
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.ibp import IBP
from lvsearch.models.plain_arguments import as_list, shortened_repr, whole_number
from lvsearch.pictures.style import Caption, draw_captioned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL = "feature"
DIVERGING = "PuOr_r"
"""A colour map that people without colour vision can read; values near 0 are as light as paper."""
ON_LIGHT, ON_DARK = "#010101", "#fefefe"
"""The colours of numbers on light and on dark cells. The cells are the same on dark pages, so no palette is used."""
MOST_NUMBERS = 120
"""The largest number of cells of a picture of loadings in which every cell shows its number."""


@dataclass(frozen=True, repr=False)
class FittedFeatures(FittedModel[IBP]):
    """A binary feature model, fitted at one size (number of features).

    A row is the sum of the loadings of the features that it has, plus Gaussian noise.
    """

    _useful_calls: ClassVar[tuple[str, ...]] = ("loadings()", "shares()", "transform(new)", "plot_loadings()")

    def loadings(self) -> pd.DataFrame:
        """Return the loadings as a table (features, columns): what a feature adds to each column of a row that has it.

        Values are posterior means, in the units of the data.
        """
        return self.table("loadings")

    def shares(self) -> pd.Series:
        """Return the expected share of the training rows that have each feature, as a series (features,), 0 to 1."""
        has = np.asarray(self.transform(self.training), np.float64)
        return pd.Series(has.mean(axis=0), index=pd.RangeIndex(has.shape[1], name=LABEL), name="share")

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "feature other"]:
        """Return the Bhattacharyya coefficient ∫ √(p q) of each feature of this fit with each feature of another.

        p and q are the densities of a row that has only the one feature. The coefficient is exp(−λ |A_k − A_j|² / 8),
        with A_k and A_j the loadings of the two features, and λ this fit's noise precision.

        other: a fitted feature model of rows with the same columns.

        Returns (features of this fit, features of `other`), from 0 to 1.
        """
        other = comparable_fit(FittedFeatures, other, self.training)
        mine, theirs = (fit.loadings().to_numpy(np.float64) for fit in (self, other))
        given = self.model.noise_precision
        precision = site_value(self.estimate, "noise_precision") if isinstance(given, GammaPrior) else given
        return np.exp(-np.asarray(precision, np.float64) / 8 * ((mine[:, None] - theirs) ** 2).sum(axis=-1))

    def component_names(self) -> tuple[str, ...]:
        """Return a name for each feature, such as "petal width 0.25, petal length 1.5".

        A name has the two columns to which the feature adds most, in standard deviations of the data, and its loadings.
        A feature that no row has, whose loadings are 0, is called "adds to no column".
        """
        assert isinstance(self.training, Points)
        return column_names_of(self.loadings(), self.training, relative=False)

    def plot_loadings(self, shape: tuple[int, int] | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the loadings, a row per feature, the most common features first, and return the axes.

        shape: (height, width) if the columns are the pixels of an image: every feature is then drawn as an image.
        ax: the axes to draw on; None for a new figure.

        Raises ValueError for a shape with another number of columns, and for anything but two whole numbers.
        """
        return draw_captioned(ax, partial(draw_loadings, self.loadings(), self.shares(), shape=shape))


def draw_loadings(
    loadings: pd.DataFrame, shares: pd.Series, axes: "Axes", shape: tuple[int, int] | None = None
) -> Caption:
    """Draw the loadings on existing axes, a row per feature, the most common features first.

    loadings: what each feature adds to each column, (features, columns). shares: the share of rows with each feature.
    shape: (height, width) if the columns are the pixels of an image: every feature is then drawn as an image.

    Returns a caption, without drawing it.

    Raises ValueError for a shape with another number of columns, and for anything but two whole numbers.
    """
    order = shares.sort_values(ascending=False, kind="stable").index
    values = loadings.loc[order].to_numpy(np.float64)
    if shape is not None:
        height_and_width = [whole_number("shape", length, least=1) for length in as_list("shape", shape)]
        if len(height_and_width) != 2 or math.prod(height_and_width) != values.shape[1]:
            raise ValueError(
                f"got shape={shortened_repr(shape)}, expected (height, width) with height × width = {values.shape[1]} "
                "columns"
            )
    limit = max(float(np.abs(values).max(initial=0.0)), 1e-12)
    axes.grid(False)
    picture = values if shape is None else _mosaic(values, shape)
    image = axes.imshow(picture, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto" if shape is None else "equal")
    axes.figure.colorbar(image, ax=axes, shrink=0.85, label="loading")
    if shape is None:
        axes.set_yticks(range(len(order)), [f"{number}: {shares.loc[number]:.0%}" for number in order])
        axes.set_ylabel("feature: share of the rows that have it")
        names = [visible(str(name)) for name in loadings.columns]
        every = max(1, len(names) // 12)
        axes.set_xticks(range(0, len(names), every), names[::every], rotation=30 if max(map(len, names)) > 6 else 0)
        for tick in axes.get_xticklabels():
            tick.set_parse_math(False)
        if picture.size <= MOST_NUMBERS:
            _write_numbers(axes, picture, limit)
    else:
        axes.set_axis_off()
    return Caption(
        "Loadings of the features", "what a feature adds to each column of a row that has it; most common first"
    )


def _write_numbers(axes: "Axes", values: np.ndarray, limit: float) -> None:
    """Write the value of each cell of a heat map into the cell, in a colour that can be read on it.

    values: (rows, columns). limit: the absolute value at the dark ends of the colour map.
    """
    for (row, column), value in np.ndenumerate(values):
        colour = ON_DARK if abs(value) > 0.6 * limit else ON_LIGHT
        axes.text(column, row, f"{value:.2g}".replace("-", "−"), ha="center", va="center", fontsize=8, color=colour)


def _mosaic(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return several images as one image, in a grid as near to square as possible, with NaN lines between them.

    values: the pixels of each image, (images, height × width). shape: (height, width) of an image.
    """
    n_columns = int(np.ceil(np.sqrt(len(values))))
    n_rows = -(-len(values) // n_columns)
    tall, wide = shape[0] + 1, shape[1] + 1
    out = np.full((n_rows * tall - 1, n_columns * wide - 1), np.nan)
    for number, value in enumerate(values):
        row, column = divmod(number, n_columns)
        out[row * tall : row * tall + shape[0], column * wide : column * wide + shape[1]] = value.reshape(shape)
    return out
