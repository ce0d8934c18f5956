"""Components of independent columns of categories: latent classes.

Source: Lazarsfeld & Henry (1968); as a mixture of products of multinomials, Goodman (1974), Linzer & Lewis (2011).
"""

import warnings
from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.component import Component
from lvsearch.models.components.indicator_names import question_of
from lvsearch.models.components.standard import positive_parameter
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.exponential.blocks import SimplexBlocks
from lvsearch.models.families import Dirichlet, Family, PointSimplex
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row


class CategoricalComponents(Component):
    """Independent columns of categories: c_j ~ Categorical(θ_j), θ_j ~ Dirichlet(concentration, …) for every column j.

    A row holds its columns one after another as indicators: `categories[j]` cells for column j, one of them 1 and the
    others 0. Where an answer is missing, all cells of its column are. `lv.Points.from_categories(frame)` makes such
    rows, and `CategoricalComponents.from_columns(points.columns)` the components.

    categories: the number of categories of each column, at least 2.
    concentration: pseudo-counts of every category, positive.
    """

    concentration: HyperparameterArray
    categories: tuple[int, ...] = eqx.field(static=True)
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    elliptical: ClassVar[bool] = False

    def __init__(self, categories: Sequence[int], concentration: Any = 1.0, estimated: bool = False):
        self.categories = tuple(int(n) for n in categories)
        if not self.categories or min(self.categories) < 2:
            raise ValueError(f"got categories={categories!r}, expected the number of each column, at least 2 each")
        self.concentration = positive_parameter("concentration", concentration)
        self.estimated = estimated

    @classmethod
    def from_columns(cls, columns: Sequence[str], concentration: Any = 1.0) -> "CategoricalComponents":
        """Make the components for the columns of `lv.Points.from_categories`, whose names are "name=category".

        columns: the names of all columns. Neighbours with one name before "=" are the categories of one column.
        concentration: pseudo-counts of every category, positive.

        Raises ValueError for a column without "=".
        """
        for column in columns:
            if question_of(column) is None:
                raise ValueError(f'got the column {column!r}, expected "name=category": see lv.Points.from_categories')
        groups = groupby(columns, key=question_of)
        return cls([len(list(members)) for _, members in groups], concentration)

    @classmethod
    def of_columns(cls, columns: Sequence[str], concentration: Any = 1.0) -> "CategoricalComponents":
        """Make the components for named columns. Deprecated: the former name of `from_columns`; it warns."""
        warnings.warn(
            "CategoricalComponents.of_columns is called CategoricalComponents.from_columns now",
            DeprecationWarning,
            stacklevel=2,
        )
        return cls.from_columns(columns, concentration)

    @property
    def family(self) -> Family:
        return SimplexBlocks(PointSimplex() if self.estimated else Dirichlet(), self.categories)

    @property
    def prior_family(self) -> Family:
        return SimplexBlocks(Dirichlet(), self.categories)

    def describe(self) -> str:
        columns = f"{len(self.categories)} columns of categories"
        if self.estimated:
            return f"{columns} (probabilities estimated)"
        return f"{columns} (probabilities ~ Dirichlet, {as_text(self.concentration)} per category)"

    def check(self, units: Row) -> None:
        values, observed = np.asarray(units.value), np.asarray(units.observed)
        if values.shape[-1] != sum(self.categories):
            raise ValueError(
                f"got rows of {values.shape[-1]} cells for {sum(self.categories)} categories of "
                f"{len(self.categories)} columns, expected one cell for each: lv.Points.from_categories makes them"
            )
        starts = np.concatenate([[0], np.cumsum(self.categories)[:-1]])
        # a column is right if none of its cells is known, or if all are and exactly one of them is 1
        seen = np.where(observed, values, 0.0)
        known = np.add.reduceat(observed, starts, axis=-1, dtype=np.int64)
        total = np.add.reduceat(seen, starts, axis=-1)
        indicators = ((seen == 0) | (seen == 1)).all(-1)[:, None]
        right = indicators & np.where(known == 0, True, (known == np.array(self.categories)) & (total == 1))
        if not right.all():
            row, column = np.argwhere(~right)[0]
            raise ValueError(
                f"got row {row} with no single category in column {column}, expected one cell of 1 and else 0, or all "
                "missing: lv.Points.from_categories makes such rows"
            )

    def prior(self, n_dims: int) -> Float[Array, " dim"]:
        return jnp.zeros(n_dims) + (self.concentration - 1)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, " dim"]:
        return coordinates

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        return jnp.zeros((), coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return an upper bound on each row's log-probability, 0 nats, shape (rows,): a probability is at most 1."""
        return np.zeros(len(units.value))

    def plug_in(self) -> "CategoricalComponents":
        return CategoricalComponents(self.categories, self.concentration, estimated=True)

    def moments(self, statistics: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """Return (mean, covariance) of the indicators of a row of one component, shapes (dim,) and (dim, dim).

        statistics: log-probabilities of all categories, shape (dim,).

        The categories of one column exclude each other; columns are independent.
        """
        share = jnp.exp(statistics)
        column = np.repeat(np.arange(len(self.categories)), self.categories)
        return share, jnp.diag(share) - jnp.where(column[:, None] == column, share[:, None] * share, 0.0)

    def draw(self, key: Array, statistics: Float[Array, " dim"], unit: Row) -> Float[Array, " dim"]:
        ends = np.cumsum(self.categories)
        chosen = [
            jax.nn.one_hot(jax.random.categorical(jax.random.fold_in(key, j), statistics[end - n : end]), n)
            for j, (end, n) in enumerate(zip(ends, self.categories, strict=True))
        ]
        return jnp.concatenate(chosen).astype(statistics.dtype)
