"""A check that the log-joint does not depend on padding: the values of missing cells, and elements of no copies.

What is padding depends on the type of unit (observation): `with_padding` and `with_other_missing_cells` say it for each
type of `lvsearch.models.units`.
"""

from functools import singledispatch
from typing import Any

import jax
import numpy as np

from lvsearch.models.checks.capacity import are_close
from lvsearch.models.checks.probe import Probe, call_or_explain, local_statistics, unit_gradients
from lvsearch.models.contract import Unit
from lvsearch.models.units import AnnotatedImage, BagOfWords, GroupOfRows, Row

EXTRA = 2
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
        _compare(name, before, after, f"counts padding: {EXTRA} empty entries more in every unit")
        looked.append(f"{EXTRA} empty entries more in every unit")
    return "; ".join(looked) or f"units of type {type(p.units).__name__} have no padding here"


def _padded(p: Probe, units: Unit) -> dict[str, Any]:
    """Return {local latent variable: natural parameters} on the longer axes of `units`; 0 at entries that were added.

    p: the model with natural parameters for shorter units. units: the units with more padding, stacked.
    """
    lengths = {a: e if isinstance(e, int) else len(e) for a, e in p.model.extents(_first_unit(units)).items()}
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


def _first_unit(units: Unit) -> Unit:
    """Return the first of several units that are stacked on a leading axis."""
    return jax.tree.map(lambda leaf: leaf[0], units)


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
    """Return the array with `EXTRA` zeros added at the end of one axis."""
    values = np.asarray(leaf)
    return np.pad(values, [(0, EXTRA if a == axis else 0) for a in range(values.ndim)])


@with_padding.register
def _widened_documents(units: BagOfWords) -> BagOfWords:
    """Return documents with 2 columns of count 0 added to each."""
    return BagOfWords(_longer(units.words, 1), _longer(units.counts, 1))


@with_other_missing_cells.register
def _disturbed_documents(units: BagOfWords) -> BagOfWords:
    """Return documents with word 0 in the columns of count 0."""
    return BagOfWords(np.where(np.asarray(units.counts) > 0, units.words, 0), units.counts)


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
    """Return annotated images with other contents in absent regions and word 0 in caption columns of count 0."""
    present = np.asarray(units.present).reshape(np.shape(units.present) + (1,) * (np.ndim(units.regions) - 2))
    other = np.asarray(ELSEWHERE if np.ndim(units.regions) > 2 else 0, np.asarray(units.regions).dtype)
    words = np.where(np.asarray(units.counts) > 0, units.words, 0)
    return AnnotatedImage(np.where(present, units.regions, other), units.present, words, units.counts)
