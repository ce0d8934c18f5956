"""The arguments that the functions of `lvsearch.functional` take: the data as one padded batch, and checked sizes.

`batch_of` puts all units (observations) in one padded batch and says how long the model's axes are. The functions of
this room check with `checked_places` and `require_extents` for which size, capacity and lengths of axes they are made.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lvsearch.data.kinds import data_for
from lvsearch.inference.data.dataset import Batch
from lvsearch.models.contract import Model, is_traced


class Places(NamedTuple):
    """The size, the capacity and the lengths of axes for which pure functions are made.

    | field | meaning |
    |---|---|
    | `size` | the number of components of each size variable; may be traced by JAX |
    | `capacity` | the number of places (array slots) for components of each size variable, at least the size |
    | `extents` | {axis: length} of the axes that the data decide |
    """

    size: tuple[Any, ...]
    capacity: tuple[int, ...]
    extents: Mapping[str, int]


def checked_places(size: Any, extents: Mapping[str, int] | None, capacity: Any) -> Places:
    """Return size, extents and capacity in one form, as `Places`.

    size: a number, or one for each size variable. extents: {axis: length}, or None for {}.
    capacity: the largest size, in the form of `size`; None for the size itself.

    Raises ValueError for a traced size without capacity, and for sizes that are not positive or above the capacity.
    """
    sizes = tuple(size) if isinstance(size, tuple | list) else (size,)
    if capacity is None:
        if any(is_traced(n) for n in sizes):
            raise ValueError("got a traced size without capacity=, expected the largest size that arrays have room for")
        capacity = sizes
    capacities = tuple(map(int, capacity)) if isinstance(capacity, tuple | list) else (int(capacity),)
    fits = len(sizes) == len(capacities) and all(
        is_traced(n) or 1 <= n <= room for n, room in zip(sizes, capacities, strict=True)
    )
    if not fits:
        raise ValueError(f"got size={size!r} with capacity={capacity!r}, expected positive sizes, each with its room")
    return Places(sizes, capacities, dict(extents or {}))


def require_extents(model: Model, places: Places) -> None:
    """Raise ValueError if an axis of the model's shared latent variables has no length, or the size the wrong number of
    variables.

    places: the size, the capacity and the lengths of axes.
    """
    if len(places.size) != len(model.size_names):
        raise ValueError(
            f"got size={places.size!r} for {type(model).__name__}, expected {len(model.size_names)} numbers: "
            f"{', '.join(model.size_names)}"
        )
    known = {*places.extents, *model.active(places.size, places.capacity)}
    missing = {axis for site in model.globals().values() for axis in site.axes} - known
    if missing:
        raise ValueError(
            f"got extents={dict(places.extents)!r} for {type(model).__name__}, expected also the length of "
            f"{', '.join(sorted(missing))}: batch_of(model, data) gives them"
        )


class Prepared(NamedTuple):
    """A data set for the pure functions of `lvsearch.functional`.

    | field | meaning |
    |---|---|
    | `batch` | units (observations) in the order of the data on the leading axis, each of weight 1 |
    | `extents` | the lengths of the model's axes that the data decide, such as {"word": V} with V words |
    """

    batch: Batch
    extents: Mapping[str, int]


def batch_of(model: Model, data: Any) -> Prepared:
    """Return all of `data` as one batch, on the host, in the session's precision.

    model: the model. data: the data, or raw input for it, as `lv.fit` takes it.

    Units (observations) that differ in length are padded to the longest. Padding does not count in any result
    (`lvsearch.models.units` describes it for every type of unit).

    Raises ValueError for data that do not fit the model.
    """
    dataset = data_for(model, data).dataset()
    units = dataset.units_in_order()
    model.check(units)
    return Prepared(Batch(jax.tree.map(jnp.asarray, units), jnp.ones(dataset.n_units)), dict(dataset.extents))
