"""Mean field for mixtures of rows, with all rows in one compiled loop of matrix products.

The results are those of the generic mean field. With the rows' indicators at their optimum, q(z_n = k) = r_nk ∝
exp(E[log π_k] + E[log p(x_n | θ_k)]), the lower bound on the log evidence is

    Σ_n weight_n log Σ_k exp(E[log π_k] + E[log p(x_n | θ_k)]) + log_prior(E[t]) + H[globals],      nats.

Here π_k is the weight of component k, θ_k its parameters, E[t] the expected sufficient statistics of all global
variables (weights, parameters, hyper-parameters), and H the entropy of their q. The globals take the sums Σ_n r_nk
s(x_n) and Σ_n r_nk, with s(x_n) the sufficient statistics of row n (Blei 2004, Eq. 5.20; Bishop 2006, §10.2).

The kernel does not know the kind of weights: their statistics are the gradient of Σ_k n_k log π_k. A row that may arise
in several variants enters the products once for each. Its responsibilities are shared between components and variants
together.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.engine.ascent import AscentTrace, sweep_until_settled
from lvsearch.inference.engine.meanfield import Beliefs, expected_statistics, globals_bound, site_entropy
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.inference.mixtures.rows import (
    PackedColumns,
    RowTiles,
    pack_each,
    pack_increment,
    pack_statistics,
    pack_variants,
    unpack_sums,
)
from lvsearch.models.components import Component, log_hyper_prior, log_normalisers
from lvsearch.models.components.component import CellsGivenOthers
from lvsearch.models.contract import Masks, Statistics
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel

HYPER_ROUNDS = 3
"""How often component parameters and their hyper-parameters are updated in turn in one sweep.

A round is cheap, because the sums over the rows are reused.
"""
WEIGHT_ROUNDS, START_ROUNDS = 3, 12
"""How often the variables of the weights (α and the sticks) are updated in a sweep, and at a start.

It costs next to nothing, and α and the sticks move together. From blank sticks, α begins far too high.
"""


class Sums(NamedTuple):
    """The sums over all rows that one pass returns.

    | field | meaning |
    |---|---|
    | `increments` | (component, packed) Σ_n r_nk s(x_n), responsibility times packed sufficient statistics |
    | `counts` | (component,) Σ_n r_nk, the expected rows of each component |
    | `log_total` | Σ_n log Σ_k exp(E[log π_k] + E[log p(x_n | θ_k)]) without log h(x_n), nats |
    """

    increments: Float[Array, "component packed"]
    counts: Float[Array, " component"]
    log_total: Float[Array, ""]


def log_responsibilities(
    model: MixtureModel, g: dict[str, Statistics], tile: RowTiles, layout: PackedColumns, on: Masks
) -> tuple[Float[Array, "row places"], Float[Array, "copies packed"]]:
    """Return the unnormalised log responsibilities of a tile's rows, and the rows' packed sufficient statistics.

    g: the expected sufficient statistics of the global variables, by name.
    tile: the rows.
    layout: which columns of the packed sufficient statistics vary.
    on: masks of the entries of each axis that exist, {axis: bool array}.

    Returns: (logits, Φ). The logits are E[log π_k] + E[log p(x_n, v | θ_k)] − log h(x_n), (row, variant · component),
        variant by variant, in nats. They are −inf for components that do not exist. Φ has the varying columns of the
        statistics of each row's variants, one after another, (row · variant, varying column).
    """
    varying = np.array(layout.varying, int)
    components = model.components
    packed = jax.vmap(lambda y, o: pack_variants(components, y, o)[:, varying])(tile.coordinates, tile.observed)
    packed = packed.reshape(-1, len(varying))
    statistics = pack_statistics(model.components, g["components"])
    columns, values = layout.constant_columns  # one product for all: an operation a column compiles for ever
    constant = statistics[:, columns] @ values.astype(statistics.dtype)
    bias = jnp.where(on["component"], model.log_weights(g, on) + constant.astype(packed.dtype), -jnp.inf)
    weights = jnp.where(on["component"][:, None], statistics[:, varying], 0.0)
    logits = packed @ weights.T + bias
    if components.n_variants > 1:
        tilts = jax.vmap(components.variant_tilts)(jnp.asarray(tile.observed)) + components.log_variants
        logits = logits + tilts.astype(packed.dtype).reshape(-1, 1)
    return logits.reshape(len(tile.weight), -1), packed


def row_sums(model: MixtureModel, g: dict[str, Statistics], tiles: RowTiles, layout: PackedColumns, on: Masks) -> Sums:
    """Make one pass over all rows and return the sums that updates of the global variables need.

    g: the expected sufficient statistics of the global variables, by name. The responsibilities follow from them.
    tiles: the rows.
    layout: which columns of the packed sufficient statistics vary.
    on: masks of the entries of each axis that exist, {axis: bool array}.
    """
    dtype = tiles.weight.dtype
    n_components, varying = len(on["component"]), np.array(layout.varying, int)

    if layout.most_missing:
        return _partial_row_sums(model, g, tiles, layout, on)

    def one(carry: Sums, tile: RowTiles) -> tuple[Sums, None]:
        # softmax over components and variants together, with the normaliser kept for the bound
        logits, packed = log_responsibilities(model, g, tile, layout, on)
        top = logits.max(-1, keepdims=True)
        each = jnp.exp(logits - top)
        total = each.sum(-1, keepdims=True)
        shares = (each * (tile.weight[:, None] / total)).reshape(-1, n_components)
        log_total = (jnp.log(total) + top)[:, 0] @ tile.weight
        sums = Sums(shares.T @ packed, shares.sum(0), log_total)
        return jax.tree.map(jnp.add, carry, sums), None

    empty = Sums(jnp.zeros((n_components, len(varying)), dtype), jnp.zeros(n_components, dtype), jnp.zeros((), dtype))
    found = jax.lax.scan(one, empty, tiles)[0]
    # constant columns were left out of the products: their sums are value times expected rows
    width = len(varying) + len(layout.constants)
    increments = jnp.zeros((n_components, width), dtype).at[:, varying].set(found.increments, unique_indices=True)
    columns, values = layout.constant_columns
    constant = found.counts[:, None] * values.astype(dtype)
    return found._replace(increments=increments.at[:, columns].set(constant, unique_indices=True))


def _laws_of_tile(
    model: MixtureModel, g: dict[str, Statistics], tile: RowTiles, layout: PackedColumns, on: Masks
) -> tuple[Float[Array, "row component"], CellsGivenOthers]:
    """Return the unnormalised log responsibilities of a tile's rows, and the laws of their missing cells in every
    component, rows leading. The former are as in `log_responsibilities`, in nats.
    """
    laws = jax.vmap(lambda y, o: model.components.laws_of_cells(g["components"], y, o, layout.most_missing))(
        jnp.asarray(tile.coordinates), jnp.asarray(tile.observed)
    )
    return jnp.where(on["component"], model.log_weights(g, on) + laws.log_mass, -jnp.inf), laws


def _partial_row_sums(
    model: MixtureModel, g: dict[str, Statistics], tiles: RowTiles, layout: PackedColumns, on: Masks
) -> Sums:
    """Return what `row_sums` returns if missing cells are latent variables of their rows.

    What a row adds to a component then depends on the component: its missing cells are expected elsewhere there.
    """
    components, dtype, n_components = model.components, tiles.weight.dtype, len(on["component"])

    def one(carry: Sums, tile: RowTiles) -> tuple[Sums, None]:
        logits, laws = _laws_of_tile(model, g, tile, layout, on)
        shares = jax.nn.softmax(logits, axis=-1) * tile.weight[:, None]

        def packed(laws: CellsGivenOthers, y: Array, o: Array) -> Float[Array, "component packed"]:
            return pack_each(components, components.expected_increments(laws, y, o))

        each = jax.vmap(packed)(laws, jnp.asarray(tile.coordinates), jnp.asarray(tile.observed))
        log_total = jnp.asarray(tile.weight) @ jax.nn.logsumexp(logits, axis=-1)
        # components that do not exist have laws without meaning
        sums = jnp.einsum("rk,rkp->kp", shares, jnp.where(on["component"][:, None], each, 0.0))
        return jax.tree.map(jnp.add, carry, Sums(sums, shares.sum(0), log_total)), None

    width = len(layout.varying) + len(layout.constants)
    empty = Sums(jnp.zeros((n_components, width), dtype), jnp.zeros(n_components, dtype), jnp.zeros((), dtype))
    return jax.lax.scan(one, empty, tiles)[0]


def update_weights(
    model: MixtureModel, beliefs: Beliefs, counts: Float[Array, " component"], on: Masks, rounds: int = WEIGHT_ROUNDS
) -> Beliefs:
    """Return q(weights, components) after coordinate steps on the variables of the mixture weights, such as sticks and
    α.

    counts: the expected number of rows of each component, (component,).
    on: masks of the entries of each axis that exist, {axis: bool array}.
    rounds: how often all weight variables are updated, if there are several.
    """
    sites = model.weight_sites()

    def log_joint(g: dict[str, Statistics]) -> Array:
        weighted = jnp.where(on["component"], counts * model.log_weights(g, on), 0.0)
        return model.log_weights_prior(g, on) + weighted.sum()

    def one_round(_: Any, b: Beliefs) -> Beliefs:
        for name, site in sites.items():
            natural = jax.grad(lambda m, b=b, n=name: log_joint({**b.mean, n: m}))(b.mean[name])
            mean = expected_statistics(site, natural, on)
            b = Beliefs({**b.natural, name: natural}, {**b.mean, name: mean})
        return b

    return jax.lax.fori_loop(0, rounds, one_round, beliefs) if len(sites) > 1 else one_round(0, beliefs)


def update_components(
    model: MixtureModel,
    beliefs: Beliefs,
    increments: Float[Array, "component packed"],
    on: Masks,
    rounds: int = HYPER_ROUNDS,
) -> Beliefs:
    """Return q(weights, components) after coordinate steps on component parameters and on their hyper-parameters that
    have priors.

    increments: sums over rows of responsibility times packed sufficient statistics, (component, packed).
    on: masks of the entries of each axis that exist, {axis: bool array}.
    rounds: how often both are updated, if there are hyper-parameters.
    """
    return update_components_from_sums(
        model, beliefs, unpack_sums(model.components, increments, beliefs.natural["components"]), on, rounds
    )


def update_components_from_sums(
    model: MixtureModel, beliefs: Beliefs, sums: Any, on: Masks, rounds: int = HYPER_ROUNDS
) -> Beliefs:
    """Return q(weights, components) after coordinate steps on component parameters and on their hyper-parameters that
    have priors.

    This is `update_components` for sums that are not packed.

    sums: sums over rows of responsibility times sufficient statistics, each leaf (component, …).
    on: masks of the entries of each axis that exist, {axis: bool array}.
    rounds: how often both are updated, if there are hyper-parameters.
    """
    sites = model.components.hyper_sites

    def one_round(_: Any, b: Beliefs) -> Beliefs:
        natural = natural_of(model, model.components.with_expected_numbers(b.mean), sums, on)
        mean = expected_statistics(model.globals()["components"], natural, on)
        b = Beliefs({**b.natural, "components": natural}, {**b.mean, "components": mean})
        for name, site in sites.items():
            natural = jax.grad(lambda m, b=b, n=name: model.log_prior({**b.mean, n: m}, on))(b.mean[name])
            b = Beliefs({**b.natural, name: natural}, {**b.mean, name: expected_statistics(site, natural, on)})
        return b

    return jax.lax.fori_loop(0, rounds, one_round, beliefs) if sites else one_round(0, beliefs)


def natural_of(model: MixtureModel, component: Component, sums: Any, on: Masks) -> Any:
    """Return the natural parameters of q(component parameters): those of the prior plus sums over rows.

    component: the kind of component, with its hyper-parameters given as numbers.
    sums: sums over rows of responsibility times sufficient statistics, each leaf (component, …).
    on: masks of the entries of each axis that exist, {axis: bool array}.

    Returns: a pytree shaped like `sums`. For estimated parameters, which have no prior, it is the sums alone.
    """
    exists = on["component"]

    def add(total: Any, prior: Any) -> Any:
        return jnp.where(exists.reshape(-1, *[1] * (total.ndim - 1)), total + prior, 0.0)

    if component.estimated:
        return jax.tree.map(lambda total: add(total, 0.0), sums)
    prior = model.prior_natural(component, component.n_dims(sums), on)
    return jax.tree.map(add, sums, jax.tree.map(lambda leaf: leaf.astype(floating_dtype(sums)), prior))


def floating_dtype(tree: Any) -> Any:
    """Return the floating-point type of the first leaf of a pytree."""
    return jax.tree.leaves(tree)[0].dtype


@kernel(static_argnames=("layout", "capacity"), brief=True, kept=True)
@counted
def ascend_rows(
    model: MixtureModel,
    beliefs: Beliefs,
    tiles: RowTiles,
    size: tuple[Array | int, ...],
    tolerance: float | Array,
    sweeps: int | Array,
    *,
    layout: PackedColumns,
    capacity: tuple[int, ...],
) -> AscentTrace:
    """Climb by coordinate ascent until a sweep gains at most `tolerance` nats, or for `sweeps` sweeps.

    beliefs: q(weights, components) to start from.
    tiles: the rows.
    size: (number of components,).
    sweeps: the most sweeps, never more than `TRACE_LENGTH`.
    layout: which columns of the packed sufficient statistics vary.
    capacity: (length of the arrays over components,).

    Returns: the trace of the ascent. The bound recorded for a sweep is that of the globals before the sweep, with the
        rows at their optimum. It leaves log h(x), the carrier of the rows, out.
    """
    on = model.active(size, capacity)

    def sweep(b: Beliefs, l: None) -> tuple[Beliefs, None, Array]:
        sums = row_sums(model, b.mean, tiles, layout, on)
        bound = sums.log_total + globals_bound(model, b, size, capacity=capacity)
        return update_components(model, update_weights(model, b, sums.counts, on), sums.increments, on), l, bound

    return sweep_until_settled(sweep, beliefs, None, tolerance, sweeps, tiles.weight.dtype)


class MixtureSurvey(NamedTuple):
    """The numbers that proposals need to know about a fit, from one pass over the rows.

    | field | meaning |
    |---|---|
    | `log_total` | Σ_n log Σ_k exp(E[log π_k] + E[log p(x_n | θ_k)]) without log h(x_n), nats |
    | `log_prior`, `entropies` | the other terms of the bound, with one entropy for each global variable, nats |
    | `counts` | (component,) expected rows of each component |
    | `shares` | (tile, row, component) responsibilities q(z_n = k), padding rows included |
    | `together` | (component, component) by how many nats one component explains the rows of two better |

    Here x_n is row n, π_k the weight and θ_k the parameters of component k, and log h(x_n) the part of the log density
    of a row that no parameter changes.
    """

    log_total: Array
    log_prior: Array
    entropies: dict[str, Array]
    counts: Float[Array, " component"]
    shares: Float[Array, "tile row component"]
    together: Float[Array, "component component"]


@kernel(static_argnames=("layout", "capacity"), brief=True, kept=True)
@counted
def survey(
    model: MixtureModel,
    beliefs: Beliefs,
    tiles: RowTiles,
    size: tuple[Array | int, ...],
    *,
    layout: PackedColumns,
    capacity: tuple[int, ...],
) -> MixtureSurvey:
    """Make one pass over the rows with fixed global variables, and return what proposals need to know about the fit.

    beliefs: q(weights, components).
    tiles: the rows.
    size: (number of components,).
    layout: which columns of the packed sufficient statistics vary.
    capacity: (length of the arrays over components,).
    """
    on = model.active(size, capacity)

    def one(total: Array, tile: RowTiles) -> tuple[Array, Array]:
        of_tile = _laws_of_tile if layout.most_missing else log_responsibilities
        logits = of_tile(model, beliefs.mean, tile, layout, on)[0]
        shares = jax.nn.softmax(logits, axis=-1).reshape(len(logits), -1, len(on["component"])).sum(1)
        return total + tile.weight @ jax.nn.logsumexp(logits, axis=-1), shares

    log_total, shares = jax.lax.scan(one, jnp.zeros((), tiles.weight.dtype), tiles)
    counts = jnp.einsum("trk,tr->k", shares, tiles.weight)
    entropies = {name: site_entropy(site, beliefs.natural[name], None, on) for name, site in model.globals().items()}
    component = model.components.with_expected_numbers(beliefs.mean)
    alone = model.posterior_from_own_rows(component, beliefs.natural["components"], on)
    together = gains_together(component, alone, on["component"], layout.n_dims)
    return MixtureSurvey(log_total, model.log_prior(beliefs.mean, on), entropies, counts, shares, together)


def gains_together(
    component: Component, natural: Any, exists: Bool[Array, " component"], n_dims: int
) -> Float[Array, "component component"]:
    """Return by how many nats one component explains the rows of components j and k better than two do.

    It is A(τ_j + τ_k − λ) + A(λ) − A(τ_j) − A(τ_k), with A the prior's log-normaliser and λ its natural parameter: the
    change of Σ_k [A(τ_k) − A(λ)], the log-probability of the rows given their labels, when j takes the rows of k.

    natural: τ, the natural parameters of q(component parameters), components on the leading axis.
    exists: the components that exist; the others are places (array slots) without one.
    n_dims: the number of columns of the rows' coordinates.

    Returns: (component, component), symmetric; its diagonal has no meaning. It is −∞ where a component does not exist.
    """
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, floating_dtype(natural)), component.prior(n_dims))
    own = jax.tree.map(jnp.add, natural, prior) if component.estimated else natural
    alone = log_normalisers(component, own)
    empty = log_normalisers(component, jax.tree.map(lambda leaf: leaf[None], prior))[0]

    def with_all(one: Any) -> Float[Array, " component"]:
        return log_normalisers(component, jax.tree.map(lambda leaf, o, p: leaf + o - p, own, one, prior))

    # places without a component have no normaliser; a NaN there would stop every program under `jax_debug_nans`
    gains = jax.lax.map(with_all, own) + empty - alone[:, None] - alone
    return jnp.where(exists[:, None] & exists, gains, -jnp.inf)


@kernel(static_argnames=("layout", "capacity"), brief=True, kept=True)
@counted
def beliefs_from(
    model: MixtureModel,
    shares: Float[Array, "tile row component"],
    tiles: RowTiles,
    size: tuple[Array | int, ...],
    *,
    layout: PackedColumns,
    capacity: tuple[int, ...],
) -> Beliefs:
    """Return the q(weights, components) that follows from given responsibilities. Every start and every proposal begins
    like this.

    shares: responsibilities, (tile, row, component).
    tiles: the rows.
    size: (number of components,).
    layout: which columns of the packed sufficient statistics vary.
    capacity: (length of the arrays over components,).
    """
    on = model.active(size, capacity)
    varying = np.array(layout.varying, int)

    def one(carry: tuple[Any, Any], both: tuple[RowTiles, Any]) -> tuple[tuple[Any, Any], None]:
        tile, share = both
        packed = jax.vmap(lambda y, o: pack_increment(model.components, y, o))(tile.coordinates, tile.observed)
        weighted = share * tile.weight[:, None]
        return (carry[0] + weighted.T @ packed, carry[1] + weighted.sum(0)), None

    dtype = tiles.weight.dtype
    n = len(on["component"])
    zero = jnp.zeros((n, len(varying) + len(layout.constants)), dtype), jnp.zeros(n, dtype)
    increments, counts = jax.lax.scan(one, zero, (tiles, shares))[0]
    blank = blank_beliefs(model, layout.n_dims, capacity, dtype)
    settled = update_weights(model, blank, counts, on, START_ROUNDS)
    return update_components(model, settled, increments, on, START_ROUNDS)


def blank_beliefs(model: MixtureModel, n_dims: int, capacity: tuple[int, ...], dtype: Any) -> Beliefs:
    """Return q(weights, components) with all sufficient statistics 0, but hyper-parameters of the components at their
    priors.

    n_dims: the number of columns of the rows' coordinates.
    capacity: (length of the arrays over components,).
    dtype: the floating-point type.
    """
    blank, component = blank_globals(model, {"dim": n_dims}, capacity, capacity, dtype), model.components
    sites = component.hyper_sites
    natural = jax.grad(lambda h: log_hyper_prior(component, h))({name: blank.mean[name] for name in sites})
    mean = {name: expected_statistics(site, natural[name], {}) for name, site in sites.items()}
    return Beliefs({**blank.natural, **natural}, {**blank.mean, **mean})
