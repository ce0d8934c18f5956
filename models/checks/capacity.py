"""A check that the log-joint does not depend on empty places, the array slots between the size and the capacity.

Arrays have more places (slots) than components exist; masks leave the empty ones out. A mask forgotten in `log_prior`
changes the evidence by tens of nats, by as much as the capacity is larger than the size. Nothing else reports it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from lvsearch.models.checks.probe import Probe, call_or_explain, prior_gradient, unit_gradients
from lvsearch.models.contract import Site, Statistics

TOLERANCE = 1e-9
Places = Mapping[str, np.ndarray]
"""{axis: mask of the entries that exist}, as NumPy arrays whose values are known (not traced by JAX)."""
EXTRA = 2
"""The number of empty places (array slots) that are added to every axis whose length the size decides."""


class _Half(NamedTuple):
    """One half of the log-joint (`log_prior` or `log_unit`), computed without and with empty places (array slots).

    | field | meaning |
    |---|---|
    | `where` | the name of the half, for error messages |
    | `lead` | the number of leading axes of its gradients: 1 if units lead, else 0 |
    | `narrow` | (value in nats, {latent variable: gradient}) without empty places |
    | `wide` | (value in nats, {latent variable: gradient}) with empty places |
    """

    where: str
    lead: int
    narrow: tuple[Any, dict[str, Statistics]]
    wide: tuple[Any, dict[str, Statistics]]


def check_capacity(p: Probe) -> str:
    """Check that empty places change neither value nor gradients of the log-joint, and have gradient 0 themselves.

    p: the model, units and statistics at which to check.

    Returns how close the values were, as text. Raises ValueError naming the half of the log-joint, the axes and the
    latent variables.
    """
    model = p.model
    wide = _wide_masks(p)
    g = move_to_masks(model.globals(), p.g, p.on, wide, 0)
    l = move_to_masks(model.locals(), p.l, p.on, wide, 1)
    prior = call_or_explain("log_prior", model, prior_gradient, model, g, wide)
    unit = _globals_only(call_or_explain("log_unit", model, unit_gradients, model, g, l, p.units, wide))
    halves = (
        _Half("log_prior", 0, prior_gradient(model, p.g, p.on), prior),
        _Half("log_unit", 1, _globals_only(unit_gradients(model, p.g, p.l, p.units, p.on)), unit),
    )
    worst = max(_check_half(p, wide, half) for half in halves)
    return f"{', '.join(_longer_axes(p, wide))}: {EXTRA} empty places more change values by {worst:.1g} nats"


def _wide_masks(p: Probe) -> dict[str, np.ndarray]:
    """Return {axis: mask} of the model's masks at a capacity that is larger by 2.

    p: the model and its size.

    Raises ValueError if no axis gets longer, or if more entries exist than at the smaller capacity.
    """
    name, more = type(p.model).__name__, tuple(c + EXTRA for c in p.capacity)
    wide = {axis: np.asarray(mask) for axis, mask in p.model.active(p.size, more).items()}
    grown = _longer_axes(p, wide)
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


def _longer_axes(p: Probe, wide: Places) -> list[str]:
    """Return the names of the axes that are longer in the masks `wide` than in the masks `p.on`."""
    return [axis for axis, mask in wide.items() if len(mask) != len(p.on[axis])]


def _check_half(p: Probe, wide: Places, half: _Half) -> float:
    """Return by how much empty places change one half of the log-joint, in nats, which is rounding only.

    wide: {axis: mask} at the larger capacity. half: values and gradients without and with empty places.

    Raises ValueError for a larger change, for a gradient that changed, or for a gradient other than 0 at empty places.
    """
    sites, grown = p.model.globals(), _longer_axes(p, wide)
    where = f"{half.where} of {type(p.model).__name__}"
    places = ", ".join(f"{axis!r} has {len(p.on[axis])} or {len(wide[axis])} places" for axis in grown)
    remedy = (
        f"Mask every term over that axis before its sum: jnp.where(on[{grown[0]!r}], term, 0.0).sum(); a count of "
        f"entries is on[{grown[0]!r}].sum()"
    )
    value, wide_value = np.sum(half.narrow[0]), np.sum(half.wide[0])
    at_empty = {name: _largest_at_empty(site, half.wide[1][name], wide, half.lead) for name, site in sites.items()}
    suspects = [name for name, largest in at_empty.items() if largest]
    if not are_close(value, wide_value):
        among = f" (its gradient by {', '.join(map(repr, suspects))} is not 0 there)" if suspects else ""
        raise ValueError(
            f"{where} counts places that hold nothing{among}: got {value:.6g} and {wide_value:.6g} nats at one size, "
            f"{p.size}, as {places}; expected the same. {remedy}"
        )
    back = move_to_masks(sites, half.wide[1], wide, p.on, half.lead)
    for name in sites:
        if not are_close(half.narrow[1][name], back[name]):
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


def move_to_masks(
    sites: Mapping[str, Site], statistics: Mapping[str, Statistics], old: Places, new: Places, lead: int
) -> dict[str, Statistics]:
    """Return {latent variable: statistics} with the entries that exist moved to the slots where another mask has them.

    sites: {name: latent variable}, whose axes the statistics have. statistics: {name: statistics} to move.
    old: {axis: mask} of the entries that exist now. new: {axis: mask} of where they go; all other slots get 0.
    lead: the number of leading axes before those of the latent variable: 1 if units lead, else 0.
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
    """Return the largest absolute gradient at an empty place (array slot that no component occupies); 0 if there is
    none.

    site: the latent variable. gradient: the gradient by its statistics. on: {axis: mask of the entries that exist}.
    lead: the number of leading axes before those of the latent variable: 1 if units lead, else 0.
    """

    def outside(leaf: Any) -> float:
        values = np.asarray(leaf)
        exists = np.ones((1,) * values.ndim, bool)
        for position, axis in enumerate(site.axes[: values.ndim - lead]):
            if axis in on:
                shape = [-1 if a == position + lead else 1 for a in range(values.ndim)]
                exists = exists & np.asarray(on[axis]).reshape(shape)
        return float(np.max(np.abs(np.where(exists, 0, values)), initial=0))

    return max(map(outside, jax.tree.leaves(gradient)))


def are_close(a: Any, b: Any) -> bool:
    """Return True if two pytrees of one structure are equal up to rounding (1e-9 of the largest entry); False for
    NaN.
    """

    def one(x: Any, y: Any) -> bool:
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        scale = 1 + max(np.max(np.abs(x), initial=0), np.max(np.abs(y), initial=0))
        return bool(np.all(np.abs(x - y) <= TOLERANCE * scale))  # False for NaN

    return all(map(one, jax.tree.leaves(a), jax.tree.leaves(b)))
