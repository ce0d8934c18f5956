"""Components whose columns are of several kinds, such as measurements, counts and categories."""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.categorical import CategoricalComponents
from lvsearch.models.components.component import Component
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.components.indicator_names import number_name, question_of
from lvsearch.models.components.requirements import required_numbers
from lvsearch.models.exponential.mixed import MixedFamily
from lvsearch.models.families import Family
from lvsearch.models.units import Row


class MixedComponents(Component):
    """Groups of columns of different kinds, independent given the component: p(x | θ) = Π_j p(x_j | θ_j) over groups j.

    parts: the kinds of components, one for each group of columns. Their hyper-parameters are numbers.
    columns: for each group the numbers of its columns. Every column of the data is in one group. `from_columns` takes
        names.

    Raises ValueError for columns that are missing or named twice, for parts of which some are estimated and some not,
    and for `LevelComponents` (use `CategoricalComponents` for such columns).
    """

    parts: tuple[Component, ...]
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    elliptical: ClassVar[bool] = False

    def __init__(self, parts: Sequence[Component], columns: Sequence[Sequence[int]]):
        self.parts = tuple(required_numbers(part, "parts") for part in parts)
        self.columns = tuple(tuple(int(column) for column in chosen) for chosen in columns)
        everything = sorted(column for chosen in self.columns for column in chosen)
        if len(self.columns) != len(self.parts) or everything != list(range(len(everything))) or not everything:
            raise ValueError(
                f"got columns={columns!r} for {len(self.parts)} parts, expected for each the numbers of its columns, "
                "every column from 0 on in one of them"
            )
        if any(part.own_extents for part in self.parts):
            raise ValueError("got a part with levels, expected CategoricalComponents and indicators of the levels")
        if len({part.estimated for part in self.parts}) > 1:
            raise ValueError("got parts of which some are estimated, expected all or none")

    @classmethod
    def from_columns(cls, names: Sequence[str], parts: Sequence[tuple[Component, Sequence[str]]]) -> "MixedComponents":
        """Make the components from the names of the columns of `lv.Points`.

        names: the names of all columns.
        parts: each kind of component with the names of its columns. "sex" stands for the indicators "sex=female",
            "sex=male" too.

        Raises ValueError for a name that no column has.
        """
        by_name = {name: [number] for number, name in enumerate(names)}
        for number, name in enumerate(names):
            question = question_of(name)
            if question is not None:
                by_name.setdefault(question, []).append(number)
        written = [[name if name in by_name else number_name(name) for name in chosen] for _, chosen in parts]
        for chosen in written:
            for name in chosen:
                if name not in by_name:
                    raise ValueError(f"got the column {name!r}, expected one of {', '.join(map(repr, by_name))}")
        columns = [[number for name in chosen for number in by_name[name]] for chosen in written]
        return cls([part for part, _ in parts], columns)

    @classmethod
    def of_columns(cls, names: Sequence[str], parts: Sequence[tuple[Component, Sequence[str]]]) -> "MixedComponents":
        """Make the components from names of columns. Deprecated: the former name of `from_columns`; it warns."""
        warnings.warn(
            "MixedComponents.of_columns is called MixedComponents.from_columns now", DeprecationWarning, stacklevel=2
        )
        return cls.from_columns(names, parts)

    @classmethod
    def scaled_to(cls, values: Any, names: Sequence[str]) -> "MixedComponents":
        """Make the components for rows of `lv.Points.from_categories(frame, numbers=…)`.

        values, names: the `values` and `columns` of these points. Columns of numbers get
            `DiagonalComponents.scaled_to`; columns named "name=category" get `CategoricalComponents`.

        Raises ValueError where there are no numbers or no categories, and for a column that does not vary.
        """
        coded = [number for number, name in enumerate(names) if question_of(name) is not None]
        numbers = [number for number, name in enumerate(names) if question_of(name) is None]
        if not coded or not numbers:
            raise ValueError(
                f"got {len(numbers)} columns of numbers and {len(coded)} of categories, expected both: "
                "DiagonalComponents or CategoricalComponents take the one alone"
            )
        real = DiagonalComponents.scaled_to(np.asarray(values)[:, numbers])
        return cls([real, CategoricalComponents.from_columns([names[number] for number in coded])], [numbers, coded])

    @property
    def estimated(self) -> bool:  # pyright: ignore
        return self.parts[0].estimated

    @property
    def family(self) -> Family:
        return MixedFamily(tuple(part.family for part in self.parts), tuple(map(len, self.columns)))

    @property
    def prior_family(self) -> Family:
        return MixedFamily(tuple(part.prior_family for part in self.parts), tuple(map(len, self.columns)))

    def n_dims(self, statistics: Any) -> int:
        return sum(map(len, self.columns))

    def describe(self) -> str:
        """Describe each group of columns, such as "columns 0, 1: Gaussians …; column 2: independent counts …"."""
        named = zip(self.parts, self.columns, strict=True)
        return "; ".join(
            f"column{'s' * (len(chosen) > 1)} {', '.join(map(str, chosen))}: {part.describe()}"
            for part, chosen in named
        )

    def check(self, units: Row) -> None:
        n_columns = np.shape(units.value)[-1]
        if n_columns != self.n_dims(None):
            raise ValueError(
                f"got rows of {n_columns} columns for parts of {self.n_dims(None)} columns, expected the same number: "
                "give MixedComponents every column of the data"
            )
        for part, own in self._split_columns(units):
            part.check(own)

    def prior(self, n_dims: int) -> tuple[Any, ...]:
        return tuple(part.prior(len(chosen)) for part, chosen in zip(self.parts, self.columns, strict=True))

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        return self._join_columns([part.coordinates(own) for part, own in self._split_columns(unit)])

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> tuple[Any, ...]:
        return tuple(part.increment(coordinates[own], observed[own]) for part, own in self._own_columns)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        each = [part.log_carrier(coordinates[own], observed[own]) for part, own in self._own_columns]
        return sum(each[1:], each[0])

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return an upper bound on each row's log-density, the sum over the groups of columns, in nats, shape
        (rows,).
        """
        return np.sum([part.log_ceiling(own) for part, own in self._split_columns(units)], axis=0)

    def plug_in(self) -> "MixedComponents":
        return MixedComponents([part.plug_in() for part in self.parts], self.columns)

    def moments(self, statistics: tuple[Any, ...]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """Return (mean, covariance) of a row of one component, shapes (dim,) and (dim, dim), columns in the order of
        the data.

        statistics: for each group of columns the statistics of its parameters. Different groups are independent.
        """
        found = [part.moments(own) for part, own in zip(self.parts, statistics, strict=True)]
        covariance = jax.scipy.linalg.block_diag(*(covariance for _, covariance in found))
        order = self._order
        return self._join_columns([mean for mean, _ in found]), covariance[order][:, order]

    def draw(self, key: Array, statistics: tuple[Any, ...], unit: Row) -> Float[Array, " dim"]:
        keys = jax.random.split(key, len(self.parts))
        drawn = zip(self._split_columns(unit), keys, statistics, strict=True)
        return self._join_columns([part.draw(k, own, row) for (part, row), k, own in drawn])

    def _split_columns(self, units: Row) -> list[tuple[Component, Row]]:
        """Return (kind of component, its columns) for each group of columns.

        units: one row, or several stacked rows.
        """
        return [(part, Row(units.value[..., own], units.observed[..., own])) for part, own in self._own_columns]

    @property
    def _own_columns(self) -> list[tuple[Component, np.ndarray]]:
        """The groups of columns, as (kind of component, numbers of its columns)."""
        return [(part, np.array(chosen)) for part, chosen in zip(self.parts, self.columns, strict=True)]

    @property
    def _order(self) -> np.ndarray:
        """The position of each column of the data if the groups of columns stand one after another, shape (dim,)."""
        return np.argsort([column for chosen in self.columns for column in chosen])

    def _join_columns(self, parts: list[Float[Array, " _"]]) -> Float[Array, " dim"]:
        """Return the columns of all groups in the order of the data, shape (dim,).

        parts: for each group the numbers of its columns' cells.
        """
        return jnp.concatenate(parts)[self._order]
