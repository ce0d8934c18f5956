"""Checks of each latent variable (site) by itself: its declaration, the terms that it enters, and its family.

- `check_declared`: axes, families and sizes fit together, before anything is computed.
- `check_multilinear`: every term of the log-joint is linear in the statistics of each latent variable, as all updates
  assume.
- `check_normalisers`: the mean of a user's own family equals the gradient of its log-normaliser (Blei 2004, Eq. 2.3).
"""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import equinox as eqx
import jax
import numpy as np

from lvsearch.models import families
from lvsearch.models.checks.probe import Probe, fields_of, prior_gradient, unit_gradients
from lvsearch.models.contract import Model, Site, Statistics, Unit
from lvsearch.models.families import Family
from lvsearch.models.kernels import kernel


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
            _check_declaration(f"the {kind} site {site_name!r} of {name}", site, lengths, sources)
    for site_name, site in model.locals().items():
        _check_local(f"the local site {site_name!r} of {name}", site, model.locals(), unit, {**sizes, **own})
    if model.representation not in model.locals():
        raise ValueError(
            f"got representation={model.representation!r} for {name}, expected a local site, {_listed(model.locals())}"
            f"{_suggestion(model.representation, model.locals())}: `transform` returns its expected value"
        )
    both = {**model.globals(), **model.locals()}
    return ", ".join(f"{n} ({', '.join(site.axes)})" for n, site in both.items())


def _check_declaration(what: str, site: Site, lengths: Mapping[str, int], sources: str) -> None:
    """Raise ValueError if the family, axes or slices of one latent variable (site) do not fit together.

    what: the variable's name, for the error. lengths: {axis: length} of all axes.
    sources: where axes come from, for the error.
    """
    if not isinstance(site.family, Family):
        hint = f"; write {site.family.__name__}() with parentheses" if isinstance(site.family, type) else ""
        raise ValueError(f"{what} has the family {site.family!r}, expected one of lv.models.families{hint}")
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
            _check_linear(p, where, gradient, name, site, at, lead, rng)
    prior, unit = ", ".join(p.model.globals()), ", ".join((*p.model.globals(), *p.model.locals()))
    return f"log_prior in {prior}; log_unit in {unit}"


def _check_linear(
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


OURS = frozenset(getattr(families, name) for name in families.__all__)
"""The families of lvsearch, which this check skips: they have tests, and compiling them here would double its time."""
NORMALISER_TOLERANCE = 1e-6
"""The largest relative difference. Families compute a digamma, or a gradient of log Γ, in more than one way."""


@kernel()
def _gradient_and_mean(family: Family, natural: Any) -> tuple[Any, Any]:
    """Return (gradient of the log-normaliser, E[t(x)]) of a family at natural parameters, two pytrees of one
    structure.
    """
    return jax.grad(lambda eta: family.log_normaliser(eta).sum())(natural), family.mean(natural)


def check_normalisers(p: Probe) -> str:
    """Check the mean of those families that are not lvsearch's own, at the natural parameters of the model's variables.

    p: the model with natural parameters of its latent variables.

    Returns what was checked, as text. Raises ValueError naming the latent variable, the family and the statistic.
    """
    levels = [(p.model.globals(), p.natural_g), (p.model.locals(), p.natural_l)]
    own = [(n, s, nat[n]) for sites, nat in levels for n, s in sites.items() if type(s.family) not in OURS]
    for name, site, natural in own:
        _check_family(type(p.model).__name__, name, site, natural)
    return ", ".join(type(site.family).__name__ for _, site, _ in own) or "families of lv.models, tested on their own"


def _check_family(model: str, name: str, site: Site, natural: Any) -> None:
    """Raise ValueError if the mean of a latent variable's family differs from the gradient of its log-normaliser.

    model, name: the names of the model and of the variable, for the error. site: the latent variable.
    natural: natural parameters of its family.
    """
    gradient, mean = _gradient_and_mean(site.family, natural)
    for (field, got), (_, expected) in zip(fields_of(mean), fields_of(gradient), strict=True):
        if not np.allclose(got, expected, rtol=NORMALISER_TOLERANCE, atol=NORMALISER_TOLERANCE):
            index = np.unravel_index(np.argmax(np.abs(got - expected)), got.shape)
            family = type(site.family).__name__
            raise ValueError(
                f"{family}, the family of the site {name!r} of {model}, has a mean that is not the gradient of its "
                f"log-normaliser: got E[t] = {got[index]:.6g} {f'of {field} ' if field else ''}where the gradient is "
                f"{expected[index]:.6g}, expected the same; correct {family}.mean or {family}.log_normaliser"
            )
