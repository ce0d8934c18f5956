"""Several families side by side on one event axis, each with its own statistics."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.exponential.family import Family, NumpyroDistribution, RandomKey


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
