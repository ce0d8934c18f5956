"""A check that the log-joint does not depend on empty places (entries between the size and the capacity).

A mask forgotten in `log_prior` changes the evidence by tens of nats, by as much as the capacity is larger than the
size. Nothing else reports it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from lvsearch.models.checks.probe import Probe, called, prior_gradient, unit_gradients
from lvsearch.models.contract import Site, Statistics

TOLERANCE = 1e-9
Places = Mapping[str, np.ndarray]
"""{axis: mask}, with values that are known (not traced)."""
EXTRA = 2
"""How many empty places are added to the entries that exist."""


class _Half(NamedTuple):
    """One half of the log-joint (`log_prior` or `log_unit`), computed without and with empty places.

    `where`: its name. `lead`: the number of leading axes of its gradients before those of the site. `narrow`, `wide`:
        (values, gradients by the globals) without and with empty places.
    """

    where: str
    lead: int
    narrow: tuple[Any, dict[str, Statistics]]
    wide: tuple[Any, dict[str, Statistics]]


def check_capacity(p: Probe) -> str:
    """Check that empty places change neither value nor gradients, and that gradients at empty places are 0.

    Returns how close the values were, as text. Raises ValueError naming the half of the log-joint, the axes and the
    sites.
    """
    model = p.model
    wide = _wide_masks(p)
    g = moved_to(model.globals(), p.g, p.on, wide, 0)
    l = moved_to(model.locals(), p.l, p.on, wide, 1)
    prior = called("log_prior", model, prior_gradient, model, g, wide)
    unit = _globals_only(called("log_unit", model, unit_gradients, model, g, l, p.units, wide))
    halves = (
        _Half("log_prior", 0, prior_gradient(model, p.g, p.on), prior),
        _Half("log_unit", 1, _globals_only(unit_gradients(model, p.g, p.l, p.units, p.on)), unit),
    )
    worst = max(_check_half(p, wide, half) for half in halves)
    return f"{', '.join(_grown(p, wide))}: {EXTRA} empty places more change values by {worst:.1g} nats"


def _wide_masks(p: Probe) -> dict[str, np.ndarray]:
    """Return the masks of a larger capacity. Raises ValueError where it adds no places, or makes more entries exist."""
    name, more = type(p.model).__name__, tuple(c + EXTRA for c in p.capacity)
    wide = {axis: np.asarray(mask) for axis, mask in p.model.active(p.size, more).items()}
    grown = _grown(p, wide)
    if not grown:
        raise ValueError(
            f"active of {name} gives the same masks for a capacity of {p.capacity} and of {more}, expected an axis "
            "with as many places as `capacity` says, of which the first `size` exist"
        )
    for axis in grown:
        if wide[axis].sum() != p.on[axis].sum():
            raise ValueError(
                f"active of {name} says that {wide[axis].sum()} entries of {axis!r} exist in {len(wide[axis])} places "
                f"and {p.on[axis].sum()} in {len(p.on[axis])}, expected as many at the same size, {p.size}"
            )
    return wide


def _grown(p: Probe, wide: Places) -> list[str]:
    """Return the axes that are longer in the masks `wide`."""
    return [axis for axis, mask in wide.items() if len(mask) != len(p.on[axis])]


def _check_half(p: Probe, wide: Places, half: _Half) -> float:
    """Return by how much the value changed, in nats.

    Raises ValueError for more than rounding, or a gradient that changed.
    """
    sites, grown = p.model.globals(), _grown(p, wide)
    where = f"{half.where} of {type(p.model).__name__}"
    places = ", ".join(f"{axis!r} has {len(p.on[axis])} or {len(wide[axis])} places" for axis in grown)
    remedy = (
        f"Mask every term over that axis before its sum: jnp.where(on[{grown[0]!r}], term, 0.0).sum(); a count of "
        f"entries is on[{grown[0]!r}].sum()"
    )
    value, wide_value = np.sum(half.narrow[0]), np.sum(half.wide[0])
    at_empty = {name: _largest_at_empty(site, half.wide[1][name], wide, half.lead) for name, site in sites.items()}
    suspects = [name for name, largest in at_empty.items() if largest]
    if not close(value, wide_value):
        among = f" (its gradient by {', '.join(map(repr, suspects))} is not 0 there)" if suspects else ""
        raise ValueError(
            f"{where} counts places that hold nothing{among}: got {value:.6g} and {wide_value:.6g} nats at one size, "
            f"{p.size}, as {places}; expected the same. {remedy}"
        )
    back = moved_to(sites, half.wide[1], wide, p.on, half.lead)
    for name in sites:
        if not close(half.narrow[1][name], back[name]):
            raise ValueError(
                f"{where} has another gradient by the site {name!r} as {places}; expected the same at one size, "
                f"{p.size}. {remedy}"
            )
    if suspects:
        raise ValueError(
            f"{where} has a gradient by the site {suspects[0]!r} at places that hold nothing, got "
            f"{at_empty[suspects[0]]:.6g}, expected 0. {remedy}"
        )
    return abs(float(value - wide_value))


def _globals_only(found: Any) -> tuple[Any, Any]:
    """Return (value, gradients by the globals) from the result of `unit_gradients`."""
    value, (by_globals, _) = found
    return value, by_globals


def moved_to(
    sites: Mapping[str, Site], statistics: Mapping[str, Statistics], old: Places, new: Places, lead: int
) -> dict[str, Statistics]:
    """Return statistics with the entries that exist moved from the places of the masks `old` to those of `new`.

    sites: the sites. statistics: their statistics.
    lead: the number of leading axes before those of the site.

    Places that do not exist get 0.
    """

    def relocate(leaf: Any, site: Site) -> np.ndarray:
        values = np.asarray(leaf)
        for position, axis in enumerate(site.axes[: values.ndim - lead]):
            if axis in old and len(old[axis]) != len(new[axis]):
                existing = np.compress(old[axis], values, axis=position + lead)
                shape = [*values.shape]
                shape[position + lead] = len(new[axis])
                values = np.zeros(shape, values.dtype)
                index = [slice(None)] * values.ndim
                index[position + lead] = np.flatnonzero(new[axis])  # pyright: ignore
                values[tuple(index)] = existing
        return values

    return {n: jax.tree.map(lambda leaf, s=site: relocate(leaf, s), statistics[n]) for n, site in sites.items()}


def _largest_at_empty(site: Site, gradient: Statistics, on: Places, lead: int) -> float:
    """Return the largest absolute gradient at a place that does not exist; 0 where there is no such place."""

    def outside(leaf: Any) -> float:
        values = np.asarray(leaf)
        exists = np.ones((1,) * values.ndim, bool)
        for position, axis in enumerate(site.axes[: values.ndim - lead]):
            if axis in on:
                shape = [-1 if a == position + lead else 1 for a in range(values.ndim)]
                exists = exists & np.asarray(on[axis]).reshape(shape)
        return float(np.max(np.abs(np.where(exists, 0, values)), initial=0))

    return max(map(outside, jax.tree.leaves(gradient)))


def close(a: Any, b: Any) -> bool:
    """Return True if two pytrees of one structure are equal but for rounding."""

    def one(x: Any, y: Any) -> bool:
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        scale = 1 + max(np.max(np.abs(x), initial=0), np.max(np.abs(y), initial=0))
        return bool(np.all(np.abs(x - y) <= TOLERANCE * scale))  # False for NaN

    return all(map(one, jax.tree.leaves(a), jax.tree.leaves(b)))
