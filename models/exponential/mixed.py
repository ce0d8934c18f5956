"""Several families side by side on one event axis, each with its own statistics."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.exponential.family import Family, NumpyroDistribution, RandomKey


class MixedFamily(Family[tuple[Any, ...]]):
    """Independent parameters (x_1, …, x_J) of several groups of columns; x_j is of family `parts[j]` over `widths[j]`
    columns.

    Statistics are a tuple of the parts' own statistics. A family of numbers has one element for each column. A family
    on an event or on a matrix has one element for all its columns.
    """

    parts: tuple[Family, ...]
    widths: tuple[int, ...] = eqx.field(static=True)

    event_ndim: ClassVar[int] = 1

    @property
    def field_event_ndims(self) -> tuple[int, ...]:  # pyright: ignore
        """The number of event axes of every array of the statistics, the parts' one after another."""
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
        """Return statistics of 0. shape: the elements, then the number of columns of all parts together."""
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
        """Return each part with its number of columns."""
        return list(zip(self.parts, self.widths, strict=True))

    def _each(self, leaves: tuple[Any, ...], function: Callable[[Family, Any], Any]) -> tuple[Any, ...]:
        """Return function(part, its own statistics) of each part."""
        return tuple(function(part, own) for part, own in zip(self.parts, leaves, strict=True))

    def _sum_over_parts(self, natural: tuple[Any, ...], number: Callable[[Family, Any], Array]) -> Array:
        """Return the sum of number(part, its own statistics) over parts, and over columns of families of numbers."""
        found = self._each(natural, number)
        return sum(
            (one if part.event_ndim else one.sum(-1) for part, one in zip(self.parts, found, strict=True)),
            jnp.zeros((), found[0].dtype),
        )


def _leaf_ndims(part: Family) -> tuple[int, ...]:
    """Return how many axes beyond those of the components each array of a part's statistics has."""
    fields: Any = part.statistics_type
    return part.field_event_ndims or (1,) * (1 if fields is None else len(fields._fields))


def _shape(part: Family, elements: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return the shape of a part's statistics: a family on a matrix has its columns twice."""
    return (*elements, *(width,) * max(1, part.event_ndim))
