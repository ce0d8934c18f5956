"""Checks that the log-joint does not depend on three things: empty places, the order of components, and padding.

- Empty places. Arrays have more places (slots) than components exist; masks leave the empty ones out. A mask forgotten
  in `log_prior` changes the evidence by tens of nats, by as much as the capacity is larger than the size. Nothing else
  reports it.
- The order of components. `log_symmetry` must be the log of the number of relabellings that keep the log-joint.
- Padding: the values of missing cells, and elements of no copies. What is padding depends on the type of unit
  (observation): `with_padding` and `with_other_missing_cells` say it for each type of `lvsearch.models.units`.
"""

from collections.abc import Mapping
from functools import singledispatch
from math import lgamma
from typing import Any, NamedTuple

import jax
import numpy as np

from lvsearch.models.checks.probe import Probe, call_or_explain, local_statistics, prior_gradient, unit_gradients
from lvsearch.models.contract import Latents, Model, Site, Statistics, Unit
from lvsearch.models.units import AnnotatedImage, BagOfWords, GroupOfRows, Row

TOLERANCE = 1e-9
Places = Mapping[str, np.ndarray]
"""{axis: mask of the entries that exist}, as NumPy arrays whose values are known (not traced by JAX)."""
EXTRA_PLACES = 2
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
    return f"{', '.join(_longer_axes(p, wide))}: {EXTRA_PLACES} empty places more change values by {worst:.1g} nats"


def _wide_masks(p: Probe) -> dict[str, np.ndarray]:
    """Return {axis: mask} of the model's masks at a capacity that is larger by 2.

    p: the model and its size.

    Raises ValueError if no axis gets longer, or if more entries exist than at the smaller capacity.
    """
    name, more = type(p.model).__name__, tuple(c + EXTRA_PLACES for c in p.capacity)
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
    sites: Mapping[str, Site], statistics: Latents, old: Places, new: Places, lead: int
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


def check_relabelling(p: Probe, seed: int) -> str:
    """Check that `log_symmetry` is log K! where the K components can be renamed, and 0 where they cannot.

    Components that the model tells apart (`n_given`) keep their places and are not counted.

    Only models with one size variable and one axis of its length are checked; others may have symmetries of their own.

    p: the model, units and statistics at which to check. seed: seed that makes components distinct.

    Returns what was found, as text. Raises ValueError saying both numbers.
    """
    one_more = tuple(n + 1 for n in p.size)
    lengths = [{a: len(m) for a, m in p.model.active(p.size, each).items()} for each in (p.size, one_more)]
    axes = [axis for axis, length in lengths[0].items() if lengths[1][axis] > length]
    name = type(p.model).__name__
    if len(axes) != 1 or len(p.size) != 1:
        return f"not looked at: {len(p.size)} size variable(s) with {len(axes)} axes"
    axis, k = axes[0], p.size[0]
    rng = np.random.default_rng(seed)
    distinct = jax.tree.map(lambda leaf: np.asarray(leaf) + rng.uniform(1, 2, np.shape(leaf)), p.natural_g)
    given = p.model.n_given
    said, every = float(p.model.log_symmetry(p.size, distinct)), lgamma(k - given + 1)
    order = np.append(np.arange(given), given + np.roll(np.arange(k - given), 1))
    # a hyper-parameter of K numbers may belong to the entries, so the check passes with it renamed or not
    models = (p.model, _renamed(p.model, k, order))
    renamed = min(abs(_relative_change(p, model, axis, order)) for model in models)
    symmetric = are_close(renamed, 0.0)
    if symmetric and not np.isclose(said, every):
        raise ValueError(
            f"log_symmetry of {name} is {said:.6g} for {k - given} distinct entries of {axis!r}, expected "
            f"log {k - given}! = {every:.6g}: renaming them changes nothing. Return lv.models.log_relabellings of one "
            "row of natural parameters for each entry"
        )
    if not symmetric and not np.isclose(said, 0):
        raise ValueError(
            f"log_symmetry of {name} is {said:.6g} for {k} distinct entries of {axis!r}, but renaming them moves the "
            f"log-joint by {renamed:.3g} of its size; expected 0, or a term that treats all of them alike"
        )
    return f"log {k - given}! = {every:.4g}" if symmetric else f"none: the entries of {axis} have an order"


def _relative_change(p: Probe, model: Model, axis: str, order: np.ndarray) -> float:
    """Return by how much the log-joint changes when the components are renamed, relative to 1 + its absolute value.

    model: the model that evaluates the renamed statistics. axis: the axis of the components.
    order: the new order of the components, shape (component,).
    """
    g = {n: _reordered(s, p.g[n], axis, order, 0) for n, s in p.model.globals().items()}
    l = {n: _reordered(s, p.l[n], axis, order, 1) for n, s in p.model.locals().items()}
    before = _log_joint(p, p.model, p.g, p.l)
    return (_log_joint(p, model, g, l) - before) / (1 + abs(before))


def _log_joint(p: Probe, model: Model, g: Any, l: Any) -> float:
    """Return the log-joint of the units of `p` in nats.

    g: {name: statistics} of the shared latent variables. l: {name: statistics} of the local ones, units leading.
    """
    return float(prior_gradient(model, g, p.on)[0]) + float(np.sum(unit_gradients(model, g, l, p.units, p.on)[0]))


def _reordered(site: Site, statistics: Statistics, axis: str, order: np.ndarray, lead: int) -> Statistics:
    """Return the statistics of one latent variable with the entries of `axis` in another order.

    site: the latent variable. order: the new order, shape (entry,).
    lead: the number of leading axes before those of the variable.
    """

    def one(leaf: Any) -> np.ndarray:
        values = np.asarray(leaf)
        for position, name in enumerate(site.axes[: values.ndim - lead]):
            if name == axis:
                values = np.take(values, order, position + lead)
        return values

    return jax.tree.map(one, statistics)


def _renamed(model: Model, k: int, order: np.ndarray) -> Model:
    """Return the model with its hyper-parameters of shape (k,), one value for each component, in another order.

    k: the number of components. order: the new order, shape (k,).
    """
    return jax.tree.map(lambda leaf: np.asarray(leaf)[order] if np.shape(leaf) == (k,) else leaf, model)


EXTRA_ENTRIES = 2
"""How many padded entries are added to each unit."""
ELSEWHERE = 7.5
"""The value that is put into missing cells, to see that it changes nothing."""


def check_padding(p: Probe, seed: int) -> str:
    """Check that log_unit and its gradients do not change with padding added, or with other contents in the padding.

    p: the model, units and statistics at which to check. seed: seed of the random contents.

    Returns what was checked, as text. Raises ValueError saying which padding counts.
    """
    name, before = type(p.model).__name__, unit_gradients(p.model, p.g, p.l, p.units, p.on)
    looked = []
    # 1. other contents in cells that were not observed
    units = with_other_missing_cells(p.units)
    if not are_close(units, p.units):
        after = call_or_explain("log_unit", p.model, unit_gradients, p.model, p.g, p.l, units, p.on)
        _compare(name, before, after, "reads what was not observed (a missing cell, a word of no copies)")
        looked.append("what was not observed")
    # 2. other statistics of elements that have no copies
    copied = {n: np.asarray(jax.vmap(s.copies)(p.units)) for n, s in p.model.locals().items() if s.copies is not None}
    if any((copies == 0).any() for copies in copied.values()):
        rng = np.random.default_rng(seed)
        natural = dict(p.natural_l)
        for site_name, copies in copied.items():

            def scattered(leaf: Any, none: np.ndarray = copies == 0) -> np.ndarray:
                lead = none.reshape(none.shape + (1,) * (np.ndim(leaf) - none.ndim))
                return np.asarray(leaf) + np.where(lead, rng.normal(size=np.shape(leaf)), 0)

            natural[site_name] = jax.tree.map(scattered, natural[site_name])
        l = local_statistics(p.model, natural, p.units, p.on)
        after = call_or_explain("log_unit", p.model, unit_gradients, p.model, p.g, l, p.units, p.on)
        _compare(name, before, after, f"counts elements of no copies of {', '.join(map(repr, copied))}")
        looked.append(f"{', '.join(copied)} of no copies")
    # 3. empty entries added to every unit
    units = with_padding(p.units)
    if units is not None:
        l = local_statistics(p.model, _padded(p, units), units, p.on)
        after = call_or_explain("log_unit", p.model, unit_gradients, p.model, p.g, l, units, p.on)
        _compare(name, before, after, f"counts padding: {EXTRA_ENTRIES} empty entries more in every unit")
        looked.append(f"{EXTRA_ENTRIES} empty entries more in every unit")
    return "; ".join(looked) or f"units of type {type(p.units).__name__} have no padding here"


def _padded(p: Probe, units: Unit) -> dict[str, Any]:
    """Return {local latent variable: natural parameters} on the longer axes of `units`; 0 at entries that were added.

    p: the model with natural parameters for shorter units. units: the units with more padding, stacked.
    """
    extents = p.model.extents(jax.tree.map(lambda leaf: leaf[0], units))
    lengths = {a: e if isinstance(e, int) else len(e) for a, e in extents.items()}
    natural = {}
    for name, site in p.model.locals().items():

        def longer(leaf: Any, axes: tuple[str, ...] = site.axes) -> np.ndarray:
            values = np.asarray(leaf)
            width = [
                (0, 0),
                *((0, lengths.get(a, have) - have) for a, have in zip(axes, values.shape[1:], strict=False)),
            ]
            return np.pad(values, width)

        natural[name] = jax.tree.map(longer, p.natural_l[name])
    return natural


def _compare(name: str, before: Any, after: Any, what: str) -> None:
    """Raise ValueError if values of log_unit, or its gradients by the shared latent variables, differ.

    name: the name of the model. before, after: results of `unit_gradients`.
    what: what the model did wrong, for the error.
    """
    difference = float(np.max(np.abs(np.asarray(before[0]) - np.asarray(after[0]))))
    remedy = (
        "Multiply counts into every term, and mask what is over cells or rows by the unit's `observed` and `present`: "
        "jnp.where(unit.observed, term, 0.0).sum()"
    )
    if not are_close(before[0], after[0]):
        raise ValueError(
            f"log_unit of {name} {what}: got a value of a unit that moves by {difference:.6g} nats, "
            f"expected none. {remedy}"
        )
    for site, gradient in before[1][0].items():
        if not are_close(gradient, after[1][0][site]):
            raise ValueError(
                f"log_unit of {name} {what}: got a gradient by the site {site!r} that moves, expected the "
                f"same. {remedy}"
            )


# ── what each type of unit calls padding ────────────────────────────────────────────────────────────────────────────


@singledispatch
def with_padding(units: Unit) -> Unit | None:
    """Return the stacked units with 2 empty entries added to each, as in a batch of longer units; None without
    padding.

    By default it is None, as an array that is no list of entries has nothing to pad. The report of the check then says
    that units of this type have no padding, so that the author of another type sees that it was not looked at.
    """
    return None


@singledispatch
def with_other_missing_cells(units: Unit) -> Unit:
    """Return the stacked units with other contents in cells that are missing.

    By default they are unchanged, as a type of unit has no missing cells unless it registers how they are marked.
    """
    return units


def _longer(leaf: Any, axis: int) -> np.ndarray:
    """Return the array with `EXTRA_ENTRIES` zeros added at the end of one axis."""
    values = np.asarray(leaf)
    return np.pad(values, [(0, EXTRA_ENTRIES if a == axis else 0) for a in range(values.ndim)])


def _with_other_words(words: Any, occurs: np.ndarray) -> np.ndarray:
    """Return word numbers with another one in every place that holds no word.

    Padding mostly has word 0, and then gets the largest number that occurs. Other padding gets word 0.

    words: the numbers, (unit, column). occurs: True where the place holds a word, (unit, column).
    """
    numbers = np.asarray(words)
    largest = np.max(numbers, initial=0, where=occurs).astype(numbers.dtype)
    return np.where(occurs, numbers, np.where(numbers == 0, largest, np.zeros_like(numbers)))


@with_padding.register
def _widened_documents(units: BagOfWords) -> BagOfWords:
    """Return documents with 2 columns of count 0 added to each."""
    return BagOfWords(_longer(units.words, 1), _longer(units.counts, 1))


@with_other_missing_cells.register
def _disturbed_documents(units: BagOfWords) -> BagOfWords:
    """Return documents with another word in the columns of count 0."""
    return BagOfWords(_with_other_words(units.words, np.asarray(units.counts) > 0), units.counts)


@with_other_missing_cells.register
def _disturbed_rows(units: Row) -> Row:
    """Return rows with 7.5 in the missing cells."""
    return Row(np.where(units.observed, units.value, ELSEWHERE), units.observed)


@with_padding.register
def _widened_groups(units: GroupOfRows) -> GroupOfRows:
    """Return groups with 2 rows added to each that do not exist."""
    return GroupOfRows(*(_longer(leaf, 1) for leaf in units))


@with_other_missing_cells.register
def _disturbed_groups(units: GroupOfRows) -> GroupOfRows:
    """Return groups of rows with 7.5 in the missing cells."""
    return GroupOfRows(np.where(units.observed, units.value, ELSEWHERE), units.observed, units.present)


@with_padding.register
def _widened_images(units: AnnotatedImage) -> AnnotatedImage:
    """Return annotated images with 2 absent regions and 2 caption columns of count 0 added to each."""
    return AnnotatedImage(*(_longer(leaf, 1) for leaf in units))


@with_other_missing_cells.register
def _disturbed_images(units: AnnotatedImage) -> AnnotatedImage:
    """Return annotated images with other contents in absent regions and other words in caption columns of count 0."""
    present = np.asarray(units.present)
    if np.ndim(units.regions) > 2:
        regions = np.where(present[..., None], units.regions, np.asarray(ELSEWHERE, np.asarray(units.regions).dtype))
    else:
        regions = _with_other_words(units.regions, present)
    words = _with_other_words(units.words, np.asarray(units.counts) > 0)
    return AnnotatedImage(regions, units.present, words, units.counts)
