"""A check of what a model declares about its latent variables (sites) before anything is computed: axes, families,
sizes.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import equinox as eqx
import jax
import numpy as np

from lvsearch.models.contract import Model, Site, Unit
from lvsearch.models.families import Family


def check_declared(model: Model, unit: Unit, extents: Mapping[str, int], size: tuple[int, ...]) -> str:
    """Check every latent variable's family, axes, slices, copies and gate, and the model's `representation`.

    model: the model. unit: one unit (observation) of the data.
    extents: the lengths of the axes that the data decide. size: the number of components of each size variable.

    Returns the latent variables with their axes as text. Raises ValueError naming one and what is wrong with it.
    """
    name = type(model).__name__
    _check_hyperparameters(model)
    on = model.active(size, size)
    for axis, mask in on.items():
        if np.ndim(mask) != 1 or np.asarray(mask).dtype != bool:
            raise ValueError(
                f"active of {name} gives the axis {axis!r} an array of shape {np.shape(mask)} and type "
                f"{np.asarray(mask).dtype}, expected one boolean for each entry: lv.models.first(size[0], capacity[0])"
            )
    sizes = {axis: len(mask) for axis, mask in on.items()}
    own = {axis: e if isinstance(e, int) else len(e) for axis, e in model.extents(unit).items()}
    for kind, sites, lengths, sources in (
        ("global", model.globals(), {**sizes, **extents}, "`active`, or an axis of the data"),
        ("local", model.locals(), {**sizes, **own}, "`active` or `extents`"),
    ):
        for site_name, site in sites.items():
            _check_site(f"the {kind} site {site_name!r} of {name}", site, lengths, sources)
    for site_name, site in model.locals().items():
        _check_local(f"the local site {site_name!r} of {name}", site, model.locals(), unit, {**sizes, **own})
    if model.representation not in model.locals():
        raise ValueError(
            f"got representation={model.representation!r} for {name}, expected a local site, {_listed(model.locals())}"
            f"{_suggestion(model.representation, model.locals())}: `transform` returns its expected value"
        )
    both = {**model.globals(), **model.locals()}
    return ", ".join(f"{n} ({', '.join(site.axes)})" for n, site in both.items())


def _check_site(what: str, site: Site, lengths: Mapping[str, int], sources: str) -> None:
    """Raise ValueError if the family, axes or slices of one latent variable (site) do not fit together.

    what: the variable's name, for the error. lengths: {axis: length} of all axes.
    sources: where axes come from, for the error.
    """
    if not isinstance(site.family, Family):
        hint = f"write {site.family.__name__}() with parentheses" if isinstance(site.family, type) else ""
        raise ValueError(f"{what} has the family {site.family!r}, expected one of lv.models.families; {hint}")
    for axis in site.axes:
        if axis not in lengths:
            raise ValueError(
                f"{what} has the axis {axis!r}, which does not exist: expected {_listed(lengths)}"
                f"{_suggestion(axis, lengths)}. Axes are named by {sources}"
            )
    if len(site.axes) < site.family.event_ndim:
        raise ValueError(
            f"{what} has the axes {site.axes}, but {type(site.family).__name__} is a family on an event: expected the "
            "name of its event axis, last"
        )
    if site.slices is not None and site.slices not in site.axes:
        raise ValueError(f"{what} has slices={site.slices!r}, expected one of its axes, {_listed(site.axes)}")


def _check_local(what: str, site: Site, sites: Mapping[str, Site], unit: Unit, lengths: Mapping[str, int]) -> None:
    """Raise ValueError if the copies of a local latent variable (site) do not fit its axes, or its gate the others.

    Copies are how many equal draws each element stands for; their shape must fit the axes of the elements. The gate
    decides which elements exist; it must name a local site that has no gate itself.

    what: the variable's name, for the error. sites: all local latent variables by name.
    unit: one unit (observation). lengths: {axis: length} of all axes.
    """
    if site.copies is not None:
        got, wanted = np.shape(site.copies(unit)), tuple(lengths[axis] for axis in site.element_axes)
        if len(got) != len(wanted) or any(have not in (1, n) for have, n in zip(got, wanted, strict=True)):
            raise ValueError(
                f"{what} has copies of shape {got}, expected {wanted}, or 1 where they are the same: a number for each "
                f"element, on its axes {site.element_axes}"
            )
    if site.gate is not None and (site.gate.site not in sites or sites[site.gate.site].gate is not None):
        raise ValueError(f"{what} has a gate at {site.gate.site!r}, expected a local site that has no gate itself")


def _check_hyperparameters(model: Model) -> None:
    """Raise ValueError if a leaf of the model's pytree is neither a number nor an array."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(model):
        if not eqx.is_array_like(leaf):
            raise ValueError(
                f"{type(model).__name__}{jax.tree_util.keystr(path)} is {leaf!r}, expected a number: hyper-parameters "
                "are traced. What is not a number is declared eqx.field(static=True)"
            )


def _listed(names: Any) -> str:
    """Return the names as text for an error: "one of 'a', 'b'"."""
    return "one of " + ", ".join(map(repr, names)) if names else "none, since there are none"


def _suggestion(name: str, names: Any) -> str:
    """Return " (did you mean 'x'?)" with the one of `names` that is spelled like `name`; "" if there is none."""
    close = get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
