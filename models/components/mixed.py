"""Components whose columns are of several kinds, such as measurements, counts and categories.

Each kind has its own family of parameters. `MixedFamily` is the joint family of these independent parameters, side by
side on one event axis, each with its own statistics.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import column_names, required_numbers
from lvsearch.models.components.categorical import CategoricalComponents, number_name, question_of
from lvsearch.models.components.component import Component
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.contract import ExpectedCells
from lvsearch.models.exponential.family import Family, NumpyroDistribution, RandomKey
from lvsearch.models.units import Row


class MixedFamily(Family[tuple[Any, ...]]):
    """The joint family of independent parameters (x_1, …, x_J) of J groups of columns.

    x_j is of family `parts[j]` and belongs to `widths[j]` columns. Statistics are a tuple of the statistics of each
    group's family. A family of numbers has one element for each column. A family on an event or on a matrix has one
    element for all columns of its group.
    """

    parts: tuple[Family, ...]
    widths: tuple[int, ...] = eqx.field(static=True)

    event_ndim: ClassVar[int] = 1

    @property
    def field_event_ndims(self) -> tuple[int, ...]:  # pyright: ignore
        """The number of event axes of every array of the statistics, group after group."""
        return tuple(ndim for part in self.parts for ndim in _leaf_ndims(part))

    def log_normaliser(self, natural: tuple[Any, ...], event_mask: Any = None) -> Float[Array, "*element"]:
        return self._sum_over_parts(natural, lambda part, own: part.log_normaliser(own))

    def mean(self, natural: tuple[Any, ...], event_mask: Any = None) -> tuple[Any, ...]:
        return self._each(natural, lambda part, own: part.mean(own))

    def natural(self, mean: tuple[Any, ...], event_mask: Any = None) -> tuple[Any, ...]:
        return self._each(mean, lambda part, own: part.natural(own))

    def entropy(self, natural: tuple[Any, ...], event_mask: Any = None) -> Float[Array, "*element"]:
        return self._sum_over_parts(natural, lambda part, own: part.entropy(own))

    def sample(self, key: RandomKey, natural: tuple[Any, ...], event_mask: Any = None) -> tuple[Any, ...]:
        keys = jax.random.split(key, len(self.parts))
        return tuple(part.sample(k, own) for part, k, own in zip(self.parts, keys, natural, strict=True))

    def point(self, natural: tuple[Any, ...], event_mask: Any = None) -> tuple[Any, ...]:
        return self._each(natural, lambda part, own: part.point(own))

    def value(self, statistics: tuple[Any, ...], event_mask: Any = None) -> tuple[Any, ...]:
        return self._each(statistics, lambda part, own: part.value(own))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, ...]:
        """Return statistics of 0 of every group of columns.

        shape: the axes of the elements, then the number of columns of all groups together.
        """
        return tuple(part.zeros(_shape(part, shape[:-1], n), dtype) for part, n in self._with_widths())

    def legal(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, ...]:
        return tuple(part.legal(_shape(part, shape[:-1], n), dtype) for part, n in self._with_widths())

    def to_numpyro(self, natural: tuple[Any, ...]) -> NumpyroDistribution:
        """Raise ValueError: NumPyro has no distribution of parameters of several kinds."""
        raise ValueError(
            "got parameters of columns of several kinds, for which NumPyro has no one distribution; use the samplers "
            "of lvsearch"
        )

    def _with_widths(self) -> list[tuple[Family, int]]:
        """Return (family, number of columns) of each group of columns."""
        return list(zip(self.parts, self.widths, strict=True))

    def _each(self, leaves: tuple[Any, ...], function: Callable[[Family, Any], Any]) -> tuple[Any, ...]:
        """Return function(family, its own statistics) of each group of columns, as a tuple.

        leaves: for each group its statistics.
        """
        return tuple(function(part, own) for part, own in zip(self.parts, leaves, strict=True))

    def _sum_over_parts(self, natural: tuple[Any, ...], number: Callable[[Family, Any], Array]) -> Array:
        """Return the sum of number(family, its own natural parameters) over groups of columns, shape (elements…).

        A family of numbers has one element per column, and these are summed too.

        natural: for each group its natural parameters.
        """
        found = self._each(natural, number)
        return sum(
            (one if part.event_ndim else one.sum(-1) for part, one in zip(self.parts, found, strict=True)),
            jnp.zeros((), found[0].dtype),
        )


def _leaf_ndims(part: Family) -> tuple[int, ...]:
    """Return the number of axes, beyond those of the components, of each array of a family's statistics."""
    fields: Any = part.statistics_type
    return part.field_event_ndims or (1,) * (1 if fields is None else len(fields._fields))


def _shape(part: Family, elements: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return the shape of the statistics of one group of columns; a family on a matrix has the axis of columns twice.

    part: the family of the group. elements: the leading axes. width: the number of columns.
    """
    return (*elements, *(width,) * max(1, part.event_ndim))


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
    def from_columns(cls, names: Any, parts: Sequence[tuple[Component, Sequence[str]]]) -> "MixedComponents":
        """Make the components from the names of the columns of `lv.Points`.

        names: these points, or the names of all columns.
        parts: each kind of component with the names of its columns. "sex" stands for the indicators "sex=female",
            "sex=male" too.

        Raises ValueError for a name that no column has.
        """
        names = column_names(names)
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

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        location, deviation = np.full((2, n_dims), np.nan)
        for part, own in self._own_columns:
            location[own], deviation[own] = part.expected_cells(len(own))
        return ExpectedCells(location, deviation)

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

    def free_parameters(self, n_dims: int) -> int:
        return sum(p.free_parameters(len(own)) for p, own in zip(self.parts, self.columns, strict=True))

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

    def marginal_log_densities(
        self, statistics: tuple[Any, ...], columns: tuple[int, ...], values: Float[Array, "point chosen"]
    ) -> Float[Array, "point component"]:
        found = jnp.zeros(())
        for part, own, theirs in zip(self.parts, self.columns, statistics, strict=True):
            asked = [place for place, column in enumerate(columns) if column in own]
            if asked:  # the columns of other parts are independent of these
                numbers = tuple(own.index(columns[place]) for place in asked)
                found = found + part.marginal_log_densities(theirs, numbers, values[:, np.array(asked)])
        return found

    @property
    def keeps_totals(self) -> bool:
        return any(part.keeps_totals for part in self.parts)

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
