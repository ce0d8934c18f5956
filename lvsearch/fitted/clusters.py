"""The class `FittedMixture`: a fitted mixture of rows, with clusters, densities, samples and pictures.

All numbers are in the units of the data. The pictures show the rows in two columns, coloured by component, or in all
pairs of several columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Float64

from lvsearch.comparison.similarity import row_affinity
from lvsearch.data.base import Data
from lvsearch.data.points import Points, row_index
from lvsearch.files.plain_text import visible
from lvsearch.fitted.model import FittedModel, column_names_of, comparable_fit
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixtures import predictive_log_density
from lvsearch.models.components import Component, draw_rows
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.plain_arguments import as_list, checked_seed, whole_number
from lvsearch.models.units import Row
from lvsearch.pictures.style import MARKERS, Caption, draw_captioned, in_house_style, palette_of
from lvsearch.sizing.words import with_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INSIDE = 0.9
"""The share of a Gaussian's rows inside its ellipse."""
MOST_COLUMNS = 5
"""The number of columns in a picture of pairs, if no columns are named."""


def checked_columns(points: Points, columns: Any, number: tuple[int, int | None]) -> tuple[Any, ...]:
    """Return `columns` as a tuple, checked to be names of columns of `points`.

    number: the fewest and the most columns; None for any number.

    Raises ValueError for unknown names, and for fewer or more columns.
    """
    chosen, known = tuple(as_list("columns", columns)), points.columns
    fewest, most = number
    if not fewest <= len(chosen) <= (most or len(chosen)) or any(name not in known for name in chosen):
        words = "two or more" if most is None else "two" if fewest == 2 else "one or two"
        raise ValueError(f"got columns {chosen}, expected {words} of {', '.join(map(repr, known))}")
    return chosen


MOST_LEVELS = 10
"""The largest number of different whole numbers in a column whose rows are spread out in a scatter plot."""
SPREAD = 0.2
"""The largest distance by which rows are moved from such a whole number, in units of the column."""


def _has_levels(points: Points, column: int) -> bool:
    """Return True if a column holds few different whole numbers, such as 0 and 1, on which rows would lie in heaps."""
    values = np.unique(points.values[points.observed[:, column], column])
    return len(values) <= MOST_LEVELS and bool((values == np.round(values)).all())


def _spread_values(points: Points, column: int) -> Float[np.ndarray, " row"]:
    """Return the values of a column for a scatter plot: rows on a few whole numbers are moved apart at random."""
    if not _has_levels(points, column):
        return points.values[:, column]
    return points.values[:, column] + np.random.default_rng(column).uniform(-SPREAD, SPREAD, points.n_units)


def _scatter(points: Points, shares: Float[np.ndarray, "row component"], x: int, y: int, axes: "Axes") -> None:
    """Draw a scatter plot of two columns, with rows coloured by their most probable component; uncertain rows are pale.

    shares: q(component), the probability of each component for each row.
    x, y: the numbers of the columns on the horizontal and on the vertical axis. Rows that miss either are left out.
        Rows on a few whole numbers are moved apart at random, so that they do not lie in one dot.
    """
    across, upwards = (_spread_values(points, column) for column in (x, y))
    palette, of_row = palette_of(axes), shares.argmax(axis=1)
    both = points.observed[:, x] & points.observed[:, y]
    for component in np.unique(of_row[both]).tolist():
        rows = both & (of_row == component)
        axes.scatter(
            across[rows],
            upwards[rows],
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


LABEL = "component"
Mixture = TypeVar("Mixture", bound="FittedMixture")
MIXTURES_AT_ONCE = 16
"""The number of mixtures from which rows are drawn at once, side by side."""


@dataclass(frozen=True, repr=False)
class FittedMixture(FittedModel[MixtureModel | IndependentNormalMixture]):
    """A mixture model of rows, fitted at one size (number of components).

    Tables label rows with their names in the data, or with numbers if they have none.
    """

    _useful_calls: ClassVar[tuple[str, ...]] = (
        "labels()",
        "memberships(new)",
        "means()",
        "uncertain()",
        "plot_clusters()",
        "sample(100)",
    )

    def weights(self) -> pd.Series:
        """Return the expected mixing weight of each component, E[π_k], as a series (components,).

        In a nonparametric process the weights sum to less than 1; the rest belongs to components that are not in the
        fit.
        """
        weights, _ = self.model.expected_weights(self.estimate.natural)
        return pd.Series(weights, index=pd.RangeIndex(len(weights), name=LABEL), name="weight")

    def means(self) -> pd.DataFrame:
        """Return the mean of a row under each component as a table (components, columns).

        Parameters are at their posterior means.
        """
        with jax.enable_x64(True):
            means = _component_means(self.model.components, self._statistics())
        return pd.DataFrame(np.asarray(means), index=pd.RangeIndex(len(means), name=LABEL), columns=self._columns)

    def covariances(self) -> dict[int, pd.DataFrame]:
        """Return {component number: covariance of a row under this component}, as tables (columns, columns).

        Parameters are at their posterior means. For multinomial components it is the covariance of a row with a single
        count.
        """
        _, covariances = self._moments()
        frames = (pd.DataFrame(each, index=self._columns, columns=self._columns) for each in covariances)
        return dict(enumerate(frames))

    def memberships(self, data: Any = None) -> pd.DataFrame:
        """Return the probability of each component for each row under the fit, (rows, components); rows sum to 1.

        data: the rows; by default the training data.
        """
        rows = self._data_as(Points, data)
        shares = np.asarray(self._describe(rows).representation, np.float64)
        return pd.DataFrame(shares, index=row_index(rows), columns=pd.RangeIndex(shares.shape[1], name=LABEL))

    def labels(self, data: Any = None) -> pd.Series:
        """Return the number of the most probable component of each row, as a series (rows,).

        data: the rows; by default the training data.
        """
        return self.memberships(data).idxmax(axis=1).rename(LABEL)

    def predict(self, data: Any = None) -> np.ndarray:
        """Return the number of the most probable component of each row, as an array (rows,), like scikit-learn.

        data: the rows; by default the training data.
        """
        return self.labels(data).to_numpy()

    def uncertain(self, n: int = 10, data: Any = None) -> pd.DataFrame:
        """Return the `n` rows whose component is least certain, as a table, the least certain row first.

        data: the rows; by default the training data.

        The columns are `component` (the most probable one), `probability`, `second` (the second most probable
        component), and `second_probability`.

        Raises ValueError for a mixture of one component, and for n below 1.
        """
        n = whole_number("n", n, least=1)
        shares = self.memberships(data)
        values = shares.to_numpy()
        if values.shape[1] < 2:
            raise ValueError("got a mixture of one component, expected two or more: every row is certain")
        order = np.argsort(-values, axis=1, kind="stable")[:, :2]
        first, second = (np.take_along_axis(values, order[:, [place]], axis=1)[:, 0] for place in (0, 1))
        least = np.argsort(first, kind="stable")[:n]
        columns = {LABEL: order[least, 0], "probability": first[least]}
        columns |= {"second": order[least, 1], "second_probability": second[least]}
        return pd.DataFrame(columns, index=shares.index[least])

    def fill_missing(self, data: Any = None) -> pd.DataFrame:
        """Return the rows with each missing cell at its expected value given the row's other cells, as a table.

        The expected value is averaged over components by their probability for the row. Within a component it is the
        mean, or where cells depend on each other their regression by the component's covariance, at the parameters'
        posterior means. A filled-in
        cell has less spread than a cell that was seen: a second analysis of the table has to allow for that.

        data: the rows; by default the training data.

        Raises ValueError for kinds of components without means, or whose rows are never partial, such as counts of
        words.
        """
        rows = self._data_as(Points, data)
        shares = self.memberships(rows).to_numpy()
        means, covariances = self._moments()
        values = rows.values.copy()
        for pattern in np.unique(rows.observed, axis=0):
            missing = ~pattern
            if not missing.any():
                continue
            own = np.flatnonzero((rows.observed == pattern).all(axis=1))
            expected = np.broadcast_to(means[:, None, missing], (len(means), len(own), missing.sum()))
            if pattern.any() and not self.model.components.cellwise:
                within, across = covariances[:, pattern][:, :, pattern], covariances[:, pattern][:, :, missing]
                slopes = np.linalg.solve(within, across)  # (component, seen, missing)
                expected = expected + (values[own][:, pattern] - means[:, None, pattern]) @ slopes
            values[np.ix_(own, missing)] = np.einsum("nk,knd->nd", shares[own], expected)
        return pd.DataFrame(values, index=row_index(rows), columns=self._columns)

    def log_density(self, data: Any = None) -> pd.Series:
        """Return log p(row | the training data, size) of each row, in nats, as a series (rows,).

        Parameters are integrated out under the fit's variational distribution.

        data: the rows; by default the training data.

        Raises ValueError for plug-in fits, whose density is `score_units`, and for `IndependentNormalMixture`, whose
        density has no closed form.
        """
        rows = self._data_as(Points, data)
        return pd.Series(
            predictive_log_density(self.estimate, rows.dataset()), index=row_index(rows), name="log_density"
        )

    def sample(self, n: int, seed: int = 0) -> pd.DataFrame:
        """Draw `n` new rows from the mixture, with parameters at their posterior means.

        Rows of counts get the totals of training rows drawn at random.

        Returns a table (n rows) with the columns of the data and a last column `component`, where each row came from. A
        column of the data that is called `component` stays too, so that the name stands twice.

        Raises ValueError for n below 1 and a seed that is none.
        """
        n, seed = whole_number("n", n, least=1), checked_seed(seed)
        rng, key = np.random.default_rng(seed), jax.random.key(seed)
        weights = self.weights().to_numpy()
        chosen = rng.choice(len(weights), size=n, p=weights / weights.sum())
        like = self._data_as(Points, None)
        totals = like.filled[rng.integers(len(like.filled), size=n)]
        with jax.enable_x64(True):
            statistics = self._statistics()
            each = jax.tree.map(lambda leaf: leaf[chosen], statistics)
            units = Row(totals, np.ones(totals.shape, bool))
            values = jax.vmap(self.model.components.draw)(jax.random.split(key, n), each, units)
        frame = pd.DataFrame(np.asarray(values), columns=self._columns)
        frame.insert(len(frame.columns), LABEL, chosen, allow_duplicates=True)  # the data may have such a column
        return frame

    def update(self: Mixture, new: Any, *, seed: int = 0) -> Mixture:
        """Return a fit of the same model and size to the training rows and new ones together, begun at this fit.

        Components keep their numbers: component k of the new fit is component k of this one, with what the new rows
        add. A cluster that only the new rows have gets no number of its own: `SearchResult.update` asks how many there
        are now, and `unusual` shows rows that no cluster explains.

        new: rows over the same columns, as `Points.joined` takes them.
        seed: decides what this fit does not say; of most models nothing.

        Raises ValueError for other data, and for processes (`DPMixture`), whose components are kept in order of size.
        """
        self._require_numbers_that_stay()
        joined = self.training.joined(new)
        return self._continued(joined, self.estimate, checked_seed(seed))

    def affinity(self, other: FittedModel) -> Float[np.ndarray, "component other"] | None:
        """Return the Bhattacharyya coefficient ∫ √(p q) of each component of this fit with each of another.

        p and q are the densities of a row under the two components. The coefficient is 1 for equal densities and 0 for
        densities without overlap. It is estimated by Monte Carlo.

        other: a mixture of the same kind of components, fitted to rows with the same columns.

        Returns (components of this fit, components of `other`), or None for components that cannot draw rows.
        """
        other = comparable_fit(FittedMixture, other, self.training)
        like = Row(self._data_as(Points, None).filled, self._data_as(Points, None).observed)
        with jax.enable_x64(True):
            statistics = self._statistics(), other._statistics()
        return row_affinity(self.model.components, *statistics, like, jax.random.key(0))

    def _calls_to_try(self) -> tuple[str, ...]:
        refused = {
            "uncertain()": self.estimate.size[0] < 2,
            "plot_clusters()": len(self._data_as(Points, None).columns) < 2,
        }
        return tuple(call for call in self._useful_calls if not refused.get(call, False))

    def component_names(self) -> tuple[str, ...]:
        """Return a name for each component, such as "petal width 0.25, petal length 1.5".

        A name has the two columns in which the component's mean is farthest from the data's mean, with the component's
        means. For answers to questions ("smokes=often 0.91, eats=meat 0.8") it has the answers of two questions that
        are more frequent than in the data. Kinds of components without means give "component 0", ….
        """
        try:
            return column_names_of(self.means(), self._data_as(Points, None), relative=True)
        except ValueError:  # a user's kind of component need not define `moments`
            return super().component_names()

    def plot_clusters(self, columns: tuple[Any, Any] | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the training rows in two columns, coloured by component, and return the axes.

        Rows of uncertain component are pale. Ellipses hold 90 % of a component where it is Gaussian.

        columns: the names of two columns; by default the first two columns.
        ax: the axes to draw on; None for a new figure.

        Raises ValueError for data of fewer than two columns and for unknown names.
        """
        points = self._data_as(Points, None)
        chosen = checked_columns(points, points.columns[:2] if columns is None else columns, (2, 2))
        return draw_captioned(ax, partial(self._draw_clusters, chosen), width=6.4, height=5.2)

    def draw_clusters(self, axes: "Axes") -> Caption:
        """Draw the training rows in the first two columns, coloured by component, on existing axes.

        Returns a caption, without drawing it.
        """
        return self._draw_clusters(self._data_as(Points, None).columns[:2], axes)

    def plot_pairs(self, columns: Sequence[Any] | None = None) -> "Figure":
        """Draw the training rows in all pairs of several columns, with a histogram of each, and return the figure.

        columns: the names of two or more columns; by default the first five columns.

        Raises ValueError for fewer than two columns and for unknown names.
        """
        import matplotlib.pyplot as plt

        points, shares = self._data_as(Points, None), self.memberships().to_numpy()
        chosen = checked_columns(points, points.columns[:MOST_COLUMNS] if columns is None else columns, (2, None))
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

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _shapes(self, units: Data) -> Any:
        """Return a number for each row: rows with the same missing cells have one, if cells alone say what is drawn.

        Where rows of counts are drawn with the total of a row, no two rows have the same shape.
        """
        if not isinstance(units, Points) or self.model.components.keeps_totals:
            return np.arange(units.n_units)
        return np.unique(units.observed, axis=0, return_inverse=True)[1].ravel()

    def _drawn_like(self, units: Data, rng: np.random.Generator) -> Points:
        """Return rows with the same missing cells that are drawn from this fit, parameters at their posterior means."""
        rows = self._data_as(Points, units)
        with jax.enable_x64(True):
            statistics = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[None], self._statistics())
        weights = self.weights().to_numpy(np.float64)[None]
        key = jax.random.key(int(rng.integers(2**31)))
        values = simulated_rows(self.model.components, key, statistics, weights / weights.sum(), rows)[0]
        return replace(rows, values=values)

    def _unit_index(self, units: Data) -> pd.Index:
        """Return the names of rows as the index of a table, or their numbers if they have no names."""
        return row_index(self._data_as(Points, units))

    def _draw_clusters(self, columns: Sequence[Any], axes: "Axes") -> Caption:
        """Draw the training rows in two columns, coloured by component, on existing axes.

        The number of each component stands at its mean, and an ellipse around it where the component is elliptical.

        columns: the names of two columns of the data, on the horizontal and on the vertical axis.

        Returns a caption, without drawing it.
        """
        points, shares = self._data_as(Points, None), self.memberships().to_numpy()
        (means, covariances), has_ellipses = self._moments(), self.model.components.elliptical
        x, y = (points.columns.index(name) for name in columns)
        _scatter(points, shares, x, y, axes)
        palette, of_row = palette_of(axes), shares.argmax(axis=1)
        plate = {"boxstyle": "circle,pad=0.2", "facecolor": palette.background, "edgecolor": "none", "alpha": 0.85}
        for component in np.unique(of_row).tolist():
            centre = float(means[component, x]), float(means[component, y])
            style = {"ha": "center", "va": "center", "weight": "bold", "color": palette.ink, "zorder": 4}
            axes.annotate(str(component), centre, bbox=plate, **style)
            if has_ellipses:
                covariance = covariances[component][np.ix_([x, y], [x, y])]
                _ellipse(axes, centre, covariance, palette.colour_of_part(component))
        axes.set_xlabel(visible(str(columns[0])), parse_math=False)
        axes.set_ylabel(visible(str(columns[1])), parse_math=False)
        occupied, size = len(np.unique(of_row)), shares.shape[1]
        ellipses = "; ellipses hold 90 % of a component" if has_ellipses else ""
        is_spread = _has_levels(points, x) or _has_levels(points, y)
        spread = "; rows on whole numbers are moved apart at random" if is_spread else ""
        title = with_noun(size, "components")
        return Caption(
            title if occupied == size else f"{title}, {occupied} with rows",
            f"rows by their most probable component, uncertain ones pale{ellipses}{spread}",
        )

    @property
    def _columns(self) -> list[str]:
        """The names of the columns of the training data."""
        return list(self._data_as(Points, None).columns)

    def _statistics(self) -> Any:
        """Return the sufficient statistics of the components' parameters at their posterior means, in float64.

        It is a pytree of arrays with components on the first axis. Call it inside `jax.enable_x64(True)`.
        """
        return self.model.expected_components(jax.tree.map(jnp.asarray, self.estimate.natural))

    def _moments(self) -> tuple[Float[np.ndarray, "component dim"], Float[np.ndarray, "component dim dim"]]:
        """Return the means (components, columns) and covariances (components, columns, columns) of a row."""
        with jax.enable_x64(True):
            means, covariances = jax.vmap(self.model.components.moments)(self._statistics())
        return np.asarray(means), np.asarray(covariances)


@kernel(brief=True)
def _component_means(component: Component, statistics: Any) -> Float[jax.Array, "component dim"]:
    """Return the mean of a row under each component, (components, columns).

    The function is compiled, so that XLA drops the covariances (columns × columns each) before they are computed.

    component: the kind of component, such as Gaussian.
    statistics: sufficient statistics of the parameters, with components on the first axis.
    """
    return jax.vmap(lambda one: component.moments(one)[0])(statistics)


def simulated_rows(
    component: Component, key: Array, parameters: Any, weights: Float64[np.ndarray, "draw component"], points: Points
) -> Float64[np.ndarray, "draw row column"]:
    """Draw as many rows as there are points from each of several mixtures, (draw, row, column), NaN where the points
    have no cell.

    component: the kind of component. key: the random key. parameters: statistics of θ, (draw, component, …).
    weights: of the components. points: rows whose number, missing cells and totals, where a kind does not model them,
        the drawn rows have.
    """
    units = rows_of(points.dataset())[0]
    with jax.enable_x64(True), np.errstate(divide="ignore"):
        like = Row(np.asarray(units.value), np.asarray(units.observed))
        drawn = _simulated(component, key, parameters, np.log(weights), like)
    return np.where(like.observed, np.asarray(drawn), np.nan)


@kernel(once=True)
def _simulated(
    component: Component, key: Array, parameters: Any, log_weights: Float[Array, "draw component"], like: Row
) -> Float[Array, "draw row column"]:
    """Draw rows from the mixture of each draw, (draw, row, column).

    parameters: statistics of the components, (draw, component, …). log_weights: of the components, nats.
    like: rows that say how many to draw, and their totals where a kind does not model it.
    """
    n_draws, n_rows = len(log_weights), len(like.value)

    def one(draw: tuple[Array, Any, Array]) -> Array:
        own_key, statistics, log_weight = draw
        key_component, key_rows = jax.random.split(own_key)
        chosen = jax.random.categorical(key_component, log_weight, shape=(n_rows,))
        return draw_rows(component, key_rows, statistics, chosen, like)

    return jax.lax.map(one, (jax.random.split(key, n_draws), parameters, log_weights), batch_size=MIXTURES_AT_ONCE)
