"""A check that every term of the log-joint is linear in the statistics of each latent variable, as all updates
assume.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from lvsearch.models.checks.probe import Probe, fields_of, prior_gradient, unit_gradients
from lvsearch.models.contract import Site, Statistics

TOLERANCE = 1e-8
SLICES = 4
"""The largest number of slices of one latent variable that are checked, one by one."""


def check_multilinear(p: Probe, seed: int) -> str:
    """Check that the gradient by a latent variable does not change with that variable's own statistics.

    If the variable is updated slice by slice, this holds within one slice.

    p: the model, units and statistics at which to check. seed: seed of the random steps.

    Returns what was checked, as text. Raises ValueError naming the half of the log-joint, the variable and its
    statistics.
    """
    rng = np.random.default_rng(seed)

    def prior_by_globals(g: Any) -> Any:
        return prior_gradient(p.model, g, p.on)[1]

    def units_by_globals(g: Any) -> Any:
        return unit_gradients(p.model, g, p.l, p.units, p.on)[1][0]

    def units_by_locals(l: Any) -> Any:
        return unit_gradients(p.model, p.g, l, p.units, p.on)[1][1]

    for where, gradient, sites, at, lead in (
        ("log_prior", prior_by_globals, p.model.globals(), p.g, 0),
        ("log_unit", units_by_globals, p.model.globals(), p.g, 0),
        ("log_unit", units_by_locals, p.model.locals(), p.l, 1),
    ):
        for name, site in sites.items():
            _check_site(p, where, gradient, name, site, at, lead, rng)
    prior, unit = ", ".join(p.model.globals()), ", ".join((*p.model.globals(), *p.model.locals()))
    return f"log_prior in {prior}; log_unit in {unit}"


def _check_site(
    p: Probe,
    where: str,
    gradient: Callable[[Any], Any],
    name: str,
    site: Site,
    at: dict[str, Statistics],
    lead: int,
    rng: np.random.Generator,
) -> None:
    """Raise ValueError if the gradient by one latent variable (site) changes when that variable takes a random step.

    p: the model and the units. where: the name of the half of the log-joint, for the error.
    gradient: function of all statistics `at` that returns {latent variable: gradient}.
    name, site: the latent variable to check. at: {latent variable: statistics}, the point to start from.
    lead: the number of leading axes before those of the variable. rng: draws the step.
    """
    # a term is linear in a site iff the gradient by the site stays the same when the site takes a random step
    before = gradient(at)[name]
    step = jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)) * (1 + np.abs(leaf)), at[name])
    for here in _slices(site, step, lead):
        moved = jax.tree.map(lambda leaf, s, h: leaf + s * h, at[name], step, here)
        if not _changed_fields(before, gradient({**at, name: moved})[name], here):
            continue
        interacting = _interacting(gradient, name, at, step, here)
        within = f" within one slice of {site.slices!r}" if site.slices is not None else ""
        raise ValueError(
            f"{where} of {type(p.model).__name__} is not linear in the statistics of the site {name!r}{within}: got a "
            f"gradient by {interacting[0]} that moves with {interacting[1]}, expected every term to be multilinear: a "
            "sum of products of statistics of different sites. A square is a statistic of its own (of an indicator z, "
            "z² is z; a Gaussian's −x²/2 is negative_half_square), and log x is one of a Gamma's. Where the elements "
            "of a site interact with each other, name their axis in Site(slices=…)"
        )


def _slices(site: Site, step: Statistics, lead: int) -> Iterator[Statistics]:
    """Yield which elements of a latent variable take the step together: all of them, or those of one slice after
    another.

    site: the latent variable. step: a pytree in the shape of its statistics.
    lead: the number of leading axes before those of the variable.

    Each yielded value is a pytree of arrays of 0 and 1, of the rank of each leaf and broadcastable to it.
    """
    if site.slices is None:
        yield jax.tree.map(lambda leaf: np.ones((1,) * leaf.ndim), step)
        return
    place = site.axes.index(site.slices) + lead
    for index in range(min(jax.tree.leaves(step)[0].shape[place], SLICES)):

        def one(leaf: np.ndarray, index: int = index) -> np.ndarray:
            shape = [-1 if axis == place else 1 for axis in range(leaf.ndim)]
            return (np.arange(leaf.shape[place]) == index).astype(float).reshape(shape)

        yield jax.tree.map(one, step)


def _changed_fields(before: Statistics, after: Statistics, here: Statistics) -> list[str]:
    """Return the names of the fields of a statistic whose gradient changed in a slice.

    before, after: the gradient at the two points. here: 1 in the slice and 0 elsewhere, broadcastable to the gradients.
    A gradient that is NaN counts as changed.
    """
    pairs = list(zip(fields_of(before), fields_of(after), fields_of(here), strict=True))
    scale = 1 + max(np.nan_to_num(np.abs(a)).max(initial=0) for (_, a), _, _ in pairs)
    # a gradient of log_unit by a global has the units in front, and `here` broadcasts from the right
    return [
        field
        for (field, a), (_, b), (_, h) in pairs
        if not np.all(np.abs(a - b) * h <= TOLERANCE * max(scale, np.abs(b).max(initial=0)))  # NaN counts as changed
    ]


def _interacting(
    gradient: Callable[[Any], Any], name: str, at: Any, step: Statistics, here: Statistics
) -> tuple[str, str]:
    """Return (statistics whose gradient changes, the statistic that changes it), each as "variable.field".

    gradient: function of all statistics `at` that returns {latent variable: gradient}. name: the latent variable.
    at: {latent variable: statistics}. step: the random step of the variable. here: 1 in the slice and 0 elsewhere.
    """
    before = gradient(at)[name]
    leaves, tree = jax.tree.flatten(step)
    # move one field of the statistic at a time, to name the one that the gradient depends on
    for index, (field, _) in enumerate(fields_of(step)):
        alone = jax.tree.unflatten(tree, [leaf if i == index else np.zeros_like(leaf) for i, leaf in enumerate(leaves)])
        moved = jax.tree.map(lambda leaf, s, h: leaf + s * h, at[name], alone, here)
        fields = _changed_fields(before, gradient({**at, name: moved})[name], here)
        if fields:
            return " and ".join(_dotted(name, f) for f in fields), _dotted(name, field)
    return name, name


def _dotted(name: str, field: str) -> str:
    """Return "variable.field", or the variable's name alone where its statistic is one array (field "")."""
    return f"{name}.{field}" if field else name
