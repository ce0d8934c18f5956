"""The point at which every check of a model looks at it: a small size, and statistics that can occur, in float64.

The statistics are found from the model's own gradients, as mean field finds its start. Indicators are random; then each
other latent variable gets the natural parameter that the log-joint gives it. This module does not use
`lvsearch.inference`, so that a model that breaks the inference still gets an answer.
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
    | `model` | the model |
    | `size` | the number of components of each size variable |
    | `capacity` | the number of places (array slots) of each size variable, at least the size |
    | `units` | a few of the data's units (observations), stacked on a leading axis, floats in float64 |
    | `extents` | lengths of the axes of the shared latent variables that the data decide |
    | `on` | {axis: mask of the entries that exist}, from `Model.active` |
    | `g` | {name: sufficient statistics} of the latent variables that all units share |
    | `l` | {name: sufficient statistics} of the latent variables of each unit, units leading |
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
    """Return (log_prior in nats, {name: its gradient by the statistics of each shared latent variable}).

    g: {name: statistics} of the shared latent variables. on: {axis: mask of the entries that exist}.
    """
    return jax.value_and_grad(lambda m: model.log_prior(m, on))(g)


@kernel()
def unit_gradients(
    model: Model, g: dict[str, Statistics], l: dict[str, Statistics], units: Unit, on: Masks
) -> tuple[Any, tuple[dict[str, Statistics], dict[str, Statistics]]]:
    """Return (log_unit of each unit in nats, (gradients by `g`, gradients by `l`)), units on a leading axis everywhere.

    g: {name: statistics} of the shared latent variables. l: {name: statistics} of the local ones, units leading.
    units: units stacked on a leading axis. on: {axis: mask of the entries that exist}, without the units' own axes.
    """

    def one(unit: Unit, lu: dict[str, Statistics]) -> Any:
        exists = masks_of_unit(model, unit, on)
        by_both = jax.value_and_grad(lambda m, n: model.log_unit(m, n, unit, exists), argnums=(0, 1))
        return by_both(g, lu)

    return jax.vmap(one)(units, l)


def masks_of_unit(model: Model, unit: Unit, on: Masks) -> dict[str, Any]:
    """Return {axis: mask of the entries that exist}: the masks of the size `on` together with those of the unit's
    own axes.
    """
    return {**on, **{axis: extent for axis, extent in model.extents(unit).items() if not isinstance(extent, int)}}


def call_or_explain(what: str, model: Model, function: Callable[..., T], *arguments: Any) -> T:
    """Return `function(*arguments)`, or raise a ValueError that explains an error from inside it.

    what: the method of `Model` that is computed, for the error. model: the model, for the error.
    arguments: the arguments, of which the last is {axis: mask of the entries that exist}.
    """
    try:
        return function(*arguments)
    except Exception as error:  # whatever the author's code raises
        on = arguments[-1]
        raise ValueError(
            f"{what} of {type(model).__name__} cannot be computed: got {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else 'without a message'}; expected one number "
            f"in nats from the statistics {_describe_statistics(model)}, with the masks {sorted(on)}"
        ) from error


def _describe_statistics(model: Model) -> str:
    """Describe the statistics of each latent variable, to be read in an error message.

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
    """Return statistics at which to check a model: such as can occur, with distinct components, in float64.

    They are random where the model gives a latent variable none.

    units: units stacked on a leading axis. extents: lengths of the axes that the data decide.
    size: the number of components. capacity: the number of places (array slots). seed: seed of the random indicators.

    Raises ValueError where the log-joint cannot be computed.
    """
    on = {axis: np.asarray(mask) for axis, mask in model.active(size, capacity).items()}
    lengths = {axis: len(mask) for axis, mask in on.items()}
    sites, local_sites = model.globals(), model.locals()
    blank = {n: zeros(s, {**lengths, **extents}) for n, s in sites.items()}
    # globals begin at statistics of 0, locals at random indicators
    g, natural_l = dict(blank), random_indicators(model, units, lengths, seed)
    _, at_zero = call_or_explain("log_prior", model, prior_gradient, model, blank, on)
    beginning = global_statistics(model, at_zero, on)
    # a site without axes, such as a scale, begins at its prior: 0 is no possible scale
    g |= {n: beginning[n] for n, s in sites.items() if not s.axes}
    blank_l = as_numpy(local_statistics(model, natural_l, units, on))
    # locals that have no statistics yet are 0, so that products with them are finite
    l = jax.tree.map(lambda leaf: np.where(np.isfinite(leaf), leaf, 0.0), blank_l)
    # then each local site that is no indicator gets its complete conditional, given the indicators
    others = [name for name, site in local_sites.items() if not isinstance(site.family, IndicatorFamily)]
    choosing = {site.gate.site for site in local_sites.values() if site.gate is not None}
    chosen = {name: np.ones_like(value) if name in choosing else value for name, value in l.items()}

    def conditionals_of_others(g: dict[str, Statistics]) -> dict[str, Statistics]:
        by_site = call_or_explain("log_unit", model, unit_gradients, model, g, chosen, units, on)[1][1]
        each = as_numpy(per_copy(model, by_site, units))
        return natural_l | {name: each[name] for name in others}

    improper: list[str] = []
    if others:
        natural_l = conditionals_of_others(g)
        found = local_statistics(model, natural_l, units, on)
        improper = [name for name in others if not _is_finite(found[name])]
        # a conditional may need globals that are not 0: missing cells have no precision but that of their component
        natural_l |= {name: _legal_like(local_sites[name], natural_l[name]) for name in improper}
        l = _replace_not_finite(local_statistics(model, natural_l, units, on), seed)
    # then each global site gets its complete conditional, given the locals
    by_prior = call_or_explain("log_prior", model, prior_gradient, model, g, on)[1]
    by_units = call_or_explain("log_unit", model, unit_gradients, model, g, l, units, on)[1][0]
    natural_g = jax.tree.map(lambda prior, each: np.asarray(prior) + np.asarray(each).sum(0), by_prior, by_units)
    g = _replace_not_finite(global_statistics(model, natural_g, on), seed)
    if improper:
        natural_l = conditionals_of_others(g)
        l = _replace_not_finite(local_statistics(model, natural_l, units, on), seed)
    return Probe(model, size, capacity, units, extents, on, g, l, natural_g, natural_l)


def _is_finite(statistics: Statistics) -> bool:
    """Return True if all statistics of a latent variable are finite numbers."""
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(statistics))


def _legal_like(site: Site, natural: Statistics) -> Statistics:
    """Return natural parameters of a proper distribution for every element of a local latent variable, units leading.

    natural: parameters of the same shapes.
    """
    widest = max(jax.tree.leaves(natural), key=np.ndim)
    return as_numpy(site.family.legal(widest.shape, np.float64))


def zeros(site: Site, lengths: Mapping[str, int]) -> Statistics:
    """Return sufficient statistics of 0 for one latent variable, NumPy arrays on its axes.

    lengths: {axis: length} of all axes.
    """
    return as_numpy(site.family.zeros(tuple(lengths[axis] for axis in site.axes), np.float64))


def random_indicators(model: Model, units: Unit, lengths: Mapping[str, int], seed: int) -> dict[str, Statistics]:
    """Return {name: natural parameters} of the local latent variables, units leading.

    They are random log-odds for indicators and 0 for all others.

    units: units stacked on a leading axis. lengths: {axis: length} of the size axes. seed: seed of the log-odds.
    """
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
    """Return {name: E[t]} of the local latent variables of each unit, units leading; 0 where elements do not exist.

    natural: {name: natural parameters} of the local latent variables, units leading.
    units: units stacked on a leading axis. on: {axis: mask of the entries that exist}.
    """
    sites = model.locals()

    def one(unit: Unit, eta: dict[str, Statistics]) -> dict[str, Statistics]:
        exists = masks_of_unit(model, unit, on)
        return {name: expected_statistics(site, eta[name], exists) for name, site in sites.items()}

    return jax.vmap(one)(units, natural)


def expected_statistics(site: Site, natural: Statistics, on: Masks) -> Statistics:
    """Return E[t] of a latent variable's elements that exist, and 0 for the others.

    natural: its natural parameters. on: {axis: mask of the entries that exist}.
    """
    mask = site.element_mask(on, len(site.element_axes))

    def masked(leaf: Any) -> Any:
        return leaf if mask is None else jnp.where(mask.reshape(mask.shape + (1,) * (leaf.ndim - mask.ndim)), leaf, 0)

    return jax.tree.map(masked, site.family.mean(natural, site.event_mask(on)))


@kernel()
def global_statistics(model: Model, natural: dict[str, Statistics], on: Masks) -> dict[str, Statistics]:
    """Return {name: E[t]} of the latent variables that all units share, 0 where elements do not exist.

    natural: {name: natural parameters}. on: {axis: mask of the entries that exist}.
    """
    return {name: expected_statistics(site, natural[name], on) for name, site in model.globals().items()}


@kernel()
def per_copy(model: Model, gradients: dict[str, Statistics], units: Unit) -> dict[str, Statistics]:
    """Return {name: natural parameters} of the local latent variables: gradients divided by copies, 0 without copies.

    gradients: {name: gradient by the statistics}, units leading. units: units stacked on a leading axis.
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
    """Return a pytree with its arrays as NumPy arrays, so that changing them one by one compiles nothing."""
    return jax.tree.map(np.asarray, tree)


def _replace_not_finite(statistics: dict[str, Statistics], seed: int) -> dict[str, Statistics]:
    """Return {name: statistics} with standard normal numbers in the place of those that are not finite."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: np.where(np.isfinite(leaf), leaf, rng.normal(size=leaf.shape)), statistics)


def check_proper(p: Probe) -> None:
    """Check that the complete conditional of every latent variable is in its family: that its mean is finite.

    p: the model with natural parameters of its latent variables.

    Raises ValueError naming a variable where it is not.
    """
    of_globals = global_statistics(p.model, p.natural_g, p.on)
    of_locals = local_statistics(p.model, p.natural_l, p.units, p.on)
    for kind, sites, natural, mean in (
        ("local", p.model.locals(), p.natural_l, of_locals),
        ("global", p.model.globals(), p.natural_g, of_globals),
    ):
        for name, site in sites.items():
            if _is_finite(mean[name]):
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
    """Return (name of the field, array) for each array of one variable's statistics; the name is "" if there is only
    one.
    """
    leaves = jax.tree_util.tree_leaves_with_path(statistics)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), np.asarray(leaf)) for path, leaf in leaves]
