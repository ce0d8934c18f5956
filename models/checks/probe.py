"""The point at which every check looks at a model: a small size, and statistics that can occur, in float64.

The statistics are found from the model's own gradients, as mean field finds its start. Indicators are random; then each
other site gets the natural parameter that the log-joint gives it. This module does not use the engine, so that a model
that breaks the engine still gets an answer.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lvsearch.models.contract import Masks, Model, Site, Statistics, Unit
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import kernel

T = TypeVar("T")
SHARPNESS = 1.0
"""Standard deviation of the random log-odds of indicators: probabilities are uneven, and none is near 0."""


class Probe(NamedTuple):
    """One point at which a model is checked.

    | field | meaning |
    |---|---|
    | `model`, `size`, `capacity` | as in the contract |
    | `units` | a few of the data's units, stacked on a leading axis, floats in float64 |
    | `extents` | lengths of the axes of the globals that the data decide |
    | `on` | the masks of `Model.active` |
    | `g`, `l` | statistics of the globals, and of the locals of each unit (units leading) |
    | `natural_g`, `natural_l` | natural parameters whose means `g` and `l` are |
    """

    model: Model
    size: tuple[int, ...]
    capacity: tuple[int, ...]
    units: Unit
    extents: Mapping[str, int]
    on: dict[str, np.ndarray]
    g: dict[str, Statistics]
    l: dict[str, Statistics]
    natural_g: dict[str, Statistics]
    natural_l: dict[str, Statistics]


# ── the two halves of the log-joint ─────────────────────────────────────────────────────────────────────────────────


@kernel()
def prior_gradient(model: Model, g: dict[str, Statistics], on: Masks) -> tuple[Any, dict[str, Statistics]]:
    """Return (log_prior in nats, its gradient by each global site)."""
    return jax.value_and_grad(lambda m: model.log_prior(m, on))(g)


@kernel()
def unit_gradients(
    model: Model, g: dict[str, Statistics], l: dict[str, Statistics], units: Unit, on: Masks
) -> tuple[Any, tuple[dict[str, Statistics], dict[str, Statistics]]]:
    """Return (log_unit of each unit in nats, (its gradients by globals, by locals)), units on a leading axis."""

    def one(unit: Unit, lu: dict[str, Statistics]) -> Any:
        exists = within(model, unit, on)
        by_both = jax.value_and_grad(lambda m, n: model.log_unit(m, n, unit, exists), argnums=(0, 1))
        return by_both(g, lu)

    return jax.vmap(one)(units, l)


def within(model: Model, unit: Unit, on: Masks) -> dict[str, Any]:
    """Return the masks of the size together with those of the unit's own axes."""
    return {**on, **{axis: extent for axis, extent in model.extents(unit).items() if not isinstance(extent, int)}}


def called(what: str, model: Model, function: Callable[..., T], *arguments: Any) -> T:
    """Return `function(*arguments)`, or raise a ValueError that explains an error from inside it.

    what: the method of the contract that is computed, for the error. The last argument is the masks.
    """
    try:
        return function(*arguments)
    except Exception as error:  # whatever the author's code raises
        on = arguments[-1]
        raise ValueError(
            f"{what} of {type(model).__name__} cannot be computed: got {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else 'without a message'}; expected one number "
            f"in nats from the statistics {_held(model)}, with the masks {sorted(on)}"
        ) from error


def _held(model: Model) -> str:
    """Describe each site's statistics.

    Such as "rates: GammaStatistics(log_value, negative_value) on (component, dim)".
    """

    def one(name: str, site: Site) -> str:
        fields = site.family.statistics_type
        held = "an array" if fields is None else f"{fields.__name__}({', '.join(getattr(fields, '_fields', ()))})"
        return f"{name}: {held} on ({', '.join(site.axes)})"

    return "; ".join(one(name, site) for sites in (model.globals(), model.locals()) for name, site in sites.items())


# ── statistics ──────────────────────────────────────────────────────────────────────────────────────────────────────


def probe(
    model: Model, units: Unit, extents: Mapping[str, int], size: tuple[int, ...], capacity: tuple[int, ...], seed: int
) -> Probe:
    """Find statistics that can occur, with distinct components; random ones where the model gives a site none.

    Raises ValueError where the log-joint cannot be computed.
    """
    on = {axis: np.asarray(mask) for axis, mask in model.active(size, capacity).items()}
    lengths = {axis: len(mask) for axis, mask in on.items()}
    sites, local_sites = model.globals(), model.locals()
    blank = {n: zeros(s, {**lengths, **extents}) for n, s in sites.items()}
    # globals begin at statistics of 0, locals at random indicators
    g, natural_l = dict(blank), random_indicators(model, units, lengths, seed)
    _, at_zero = called("log_prior", model, prior_gradient, model, blank, on)
    beginning = global_statistics(model, at_zero, on)
    # a site without axes, such as a scale, begins at its prior: 0 is no possible scale
    g |= {n: beginning[n] for n, s in sites.items() if not s.axes}
    blank_l = as_numpy(local_statistics(model, natural_l, units, on))
    # locals that have no statistics yet are 0, so that products with them are finite
    l = jax.tree.map(lambda leaf: np.where(np.isfinite(leaf), leaf, 0.0), blank_l)
    # then each local site that is no indicator gets its complete conditional, given the indicators
    others = [name for name, site in local_sites.items() if not isinstance(site.family, IndicatorFamily)]
    if others:
        choosing = {site.gate.site for site in local_sites.values() if site.gate is not None}
        chosen = {name: np.ones_like(value) if name in choosing else value for name, value in l.items()}
        by_site = called("log_unit", model, unit_gradients, model, g, chosen, units, on)[1][1]
        each = as_numpy(per_copy(model, by_site, units))
        natural_l |= {name: each[name] for name in others}
        l = _finite(local_statistics(model, natural_l, units, on), seed)
    # then each global site gets its complete conditional, given the locals
    by_prior = called("log_prior", model, prior_gradient, model, g, on)[1]
    by_units = called("log_unit", model, unit_gradients, model, g, l, units, on)[1][0]
    natural_g = jax.tree.map(lambda prior, each: np.asarray(prior) + np.asarray(each).sum(0), by_prior, by_units)
    g = _finite(global_statistics(model, natural_g, on), seed)
    return Probe(model, size, capacity, units, extents, on, g, l, natural_g, natural_l)


def zeros(site: Site, lengths: Mapping[str, int]) -> Statistics:
    """Return statistics of 0 on the site's axes."""
    return as_numpy(site.family.zeros(tuple(lengths[axis] for axis in site.axes), np.float64))


def random_indicators(model: Model, units: Unit, lengths: Mapping[str, int], seed: int) -> dict[str, Statistics]:
    """Return natural parameters of the locals, units leading: random log-odds for indicators, 0 for all others."""
    first = jax.tree.map(lambda leaf: leaf[0], units)
    own = {axis: e if isinstance(e, int) else len(e) for axis, e in model.extents(first).items()}
    rng, n = np.random.default_rng(seed), len(jax.tree.leaves(units)[0])
    natural = {}
    for name, site in model.locals().items():
        indicator = isinstance(site.family, IndicatorFamily)

        def drawn(leaf: Any, indicator: bool = indicator) -> np.ndarray:
            shape = (n, *leaf.shape)
            return SHARPNESS * rng.normal(size=shape) if indicator else np.zeros(shape)

        natural[name] = jax.tree.map(drawn, zeros(site, {**lengths, **own}))
    return natural


@kernel()
def local_statistics(model: Model, natural: dict[str, Statistics], units: Unit, on: Masks) -> dict[str, Statistics]:
    """Return E[t] of the locals of each unit at these natural parameters; 0 where elements do not exist."""
    sites = model.locals()

    def one(unit: Unit, eta: dict[str, Statistics]) -> dict[str, Statistics]:
        exists = within(model, unit, on)
        return {name: expected(site, eta[name], exists) for name, site in sites.items()}

    return jax.vmap(one)(units, natural)


def expected(site: Site, natural: Statistics, on: Masks) -> Statistics:
    """Return E[t] of the elements that exist, and 0 elsewhere."""
    mask = site.element_mask(on, len(site.element_axes))

    def masked(leaf: Any) -> Any:
        return leaf if mask is None else jnp.where(mask.reshape(mask.shape + (1,) * (leaf.ndim - mask.ndim)), leaf, 0)

    return jax.tree.map(masked, site.family.mean(natural, site.event_mask(on)))


@kernel()
def global_statistics(model: Model, natural: dict[str, Statistics], on: Masks) -> dict[str, Statistics]:
    """Return E[t] of the globals at these natural parameters."""
    return {name: expected(site, natural[name], on) for name, site in model.globals().items()}


@kernel()
def per_copy(model: Model, gradients: dict[str, Statistics], units: Unit) -> dict[str, Statistics]:
    """Return the natural parameters of the locals: gradients divided by copies, 0 where there are no copies.

    Units lead.
    """

    def one(site: Site, gradient: Statistics) -> Statistics:
        if site.copies is None:
            return gradient
        copies = jax.vmap(site.copies)(units)

        def divided(leaf: Any) -> Any:
            c = copies.reshape(copies.shape + (1,) * (leaf.ndim - copies.ndim))
            return jnp.where(c > 0, leaf / jnp.where(c > 0, c, 1), 0)

        return jax.tree.map(divided, gradient)

    return {name: one(site, gradients[name]) for name, site in model.locals().items()}


def as_numpy(tree: Any) -> Any:
    """Return the arrays of a pytree in NumPy. Changing them one by one then compiles nothing."""
    return jax.tree.map(np.asarray, tree)


def _finite(statistics: dict[str, Statistics], seed: int) -> dict[str, Statistics]:
    """Return the statistics with random numbers in the place of those that are not finite."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: np.where(np.isfinite(leaf), leaf, rng.normal(size=leaf.shape)), statistics)


def check_proper(p: Probe) -> None:
    """Check that the complete conditional of every site is in its family.

    Raises ValueError naming a site where it is not.
    """
    of_globals = global_statistics(p.model, p.natural_g, p.on)
    of_locals = local_statistics(p.model, p.natural_l, p.units, p.on)
    for kind, sites, natural, mean in (
        ("local", p.model.locals(), p.natural_l, of_locals),
        ("global", p.model.globals(), p.natural_g, of_globals),
    ):
        for name, site in sites.items():
            if all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(mean[name])):
                continue
            family = type(site.family).__name__
            ranges = ", ".join(
                f"{field or 'natural parameter'} from {np.min(leaf):g} to {np.max(leaf):g}"
                for field, leaf in fields_of(natural[name])
            )
            raise ValueError(
                f"the complete conditional of the {kind} site {name!r} of {type(p.model).__name__} is no {family}: got "
                f"the gradient of the log-joint by its statistics ({ranges}), expected natural parameters of a "
                f"{family} that has a mean. Look for a sign, or for a prior that is missing"
            )


def fields_of(statistics: Statistics) -> list[tuple[str, np.ndarray]]:
    """Return (name of the field, array) of one site's statistics. A statistic of one array has the name ""."""
    leaves = jax.tree_util.tree_leaves_with_path(statistics)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), np.asarray(leaf)) for path, leaf in leaves]
