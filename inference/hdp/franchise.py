"""Gibbs sampling of a two-level process by direct assignment: parts and unit weights are integrated out.

A *unit* is a document or a group of rows, a *member* a token or a row, and a *part* a topic or a component. A *place*
is the array slot of a part. The name franchise is from the Chinese restaurant franchise: members sit at tables of their
unit, and each table serves one part.

Source: Teh, Jordan, Beal & Blei (2006), §5.3 and appendix A. Let n_jk be the members of part k in unit j without member
    i. β are the shared weights of the parts in use, and β_u is what is left for all others. γ and α are the
    concentrations of the shared weights and of a unit's weights.

    p(z_i = k | …)   ∝ (n_jk + α β_k) p(x_i | members of k)      a part in use

    p(z_i new | …)   ∝ α β_u p(x_i);  then b ~ Beta(1, γ), β_new = b β_u, β_u ← (1 − b) β_u

    m_jk             = Σ_{r=0}^{n_jk − 1} Bernoulli(α β_k / (α β_k + r))   tables (Antoniak 1974)
    γ                given the tables, by an auxiliary variable (Escobar & West 1995)

    (β, β_u)         ~ Dirichlet(m_·1, …, m_·K, γ)
    α                given the tables, by auxiliary variables (Teh et al., appendix A)

A part that loses its last member gives its weight back to β_u, because it is then one of those not in use. A
`MemberLikelihood` says what p(x_i | members of k) is. For words of topics it is a ratio of counts. For rows of
components it is a ratio of normalisers. Members are visited one by one, in the order of the units. Draws are by
inversion, with uniforms of 23 bits in float32 and of 52 bits in float64.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Int32, Key

from lvsearch.inference.topic_samplers.collapsed import draw
from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.hyperpriors import GammaPrior

TINY = 1e-30
"""The smallest value of a Gamma draw, so that no concentration is 0."""

Emitted = Any
"""A pytree of what the members at every place (array slot) say about the part there, such as counts of words."""


class Franchise(NamedTuple):
    """The state of one chain during a sweep. Places (array slots of parts) without members have weight 0.

    Members are tokens or rows; parts are topics or components; units are documents or groups of rows. The members of a
    unit sit at tables, each of which serves one part.

    | field | meaning | shape |
    |---|---|---|
    | `assignments` | the place of each member's part | (member,) |
    | `in_unit` | the number of members at each place, by unit | (unit, place) |
    | `total` | the number of members at each place | (place,) |
    | `emitted` | what the members at each place say of its part, such as counts of words | |
    | `beta` | shared weight of the part at each place | (place,) |
    | `left` | weight left for all parts without members | () |
    | `tables` | the number of tables that serve each part | (place,) |
    | `gamma`, `alpha` | concentrations of the shared weights and of a unit's weights | () |
    | `overflow` | True if a new part found no place: the state is invalid | () |
    """

    assignments: Int32[Array, " member"]
    in_unit: Int32[Array, "unit place"]
    total: Int32[Array, " place"]
    emitted: Emitted
    beta: Float[Array, " place"]
    left: Float[Array, ""]
    tables: Int32[Array, " place"]
    gamma: Float[Array, ""]
    alpha: Float[Array, ""]
    overflow: Array


@runtime_checkable
class MemberLikelihood(Protocol):
    """The likelihood of members (tokens or rows) given parts (topics or components), with the parts integrated out.

    A place is the array slot of a part, and `member` the index of a member.
    """

    def empty(self, places: int) -> Emitted:
        """Return what is known of the parts at `places` array slots without members.

        Members are tokens or rows; parts are topics or components.
        """
        ...

    def gather(self, labels: Int32[Array, " member"], places: int) -> Emitted:
        """Return what all members say of the parts, each at the place (array slot) of its label.

        Members are tokens or rows; parts are topics or components.

        labels: the place of each member's part.
        places: the number of places.
        """
        ...

    def densities(self, emitted: Emitted, member: Array, total: Int32[Array, " place"]) -> Float[Array, " place"]:
        """Return p(member | the other members at each place), up to one factor that all places share.

        Members are tokens or rows; parts are topics or components.

        A place is the array slot of a part.

        emitted: what the members at each place say of its part, without this member.
        member: the index of the member.
        total: the number of members at each place.
        """
        ...

    def remove(self, emitted: Emitted, member: Array, place: Array, last: Array) -> Emitted:
        """Return what is known of the parts after a member was removed from its place (array slot).

        Members are tokens or rows; parts are topics or components.

        last: whether it was the only member there.
        """
        ...

    def add(self, emitted: Emitted, member: Array, place: Array) -> Emitted:
        """Return what is known of the parts after a member was added at a place (array slot).

        Members are tokens or rows; parts are topics or components.
        """
        ...

    def log_density(self, emitted: Emitted, total: Int32[Array, " place"]) -> Float[Array, ""]:
        """Return log p(all members | the parts they have), without the members' base measure, nats.

        Members are tokens or rows; parts are topics or components.

        total: the number of members at each place (array slot).
        """
        ...


def empty_state(
    n_members: int, n_units: int, emission: MemberLikelihood, places: int, gamma: Any, alpha: Any
) -> Franchise:
    """Return the state without members, in which all weight is left for new parts.

    Members are tokens or rows; parts are topics or components; units are documents or groups of rows.

    It has the session's floating-point type.

    emission: the likelihood of members given parts.
    places: the number of array slots for parts.
    gamma, alpha: concentrations of the shared weights and of a unit's weights.
    """
    return Franchise(
        jnp.zeros(n_members, jnp.int32),
        jnp.zeros((n_units, places), jnp.int32),
        jnp.zeros(places, jnp.int32),
        emission.empty(places),
        jnp.zeros(places),
        jnp.ones(()),
        jnp.zeros(places, jnp.int32),
        jnp.asarray(gamma, float),
        jnp.asarray(alpha, float),
        jnp.asarray(False),
    )


# ── one sweep ───────────────────────────────────────────────────────────────────────────────────────────────────────


def seat_members(
    state: Franchise,
    unit_of: Int32[Array, " member"],
    emission: MemberLikelihood,
    uniforms: Float[Array, "member 2"],
    *,
    adding: bool,
) -> Franchise:
    """Draw the part of every member once, in order, given the other members' parts, the weights and the concentrations.

    Members are tokens or rows; parts are topics or components; units are documents or groups of rows.

    unit_of: the unit of each member.
    emission: the likelihood of members given parts.
    uniforms: two uniform random numbers for each member.
    adding: True if members are not counted yet; they are then added one by one.
    """
    n_places = len(state.beta)
    place = jnp.arange(n_places, dtype=jnp.int32)

    def one_member(carry: tuple[Any, ...], x: tuple[Array, ...]) -> tuple[tuple[Any, ...], Array]:
        """Take one member out of its part, draw its part again, and add it there.

        Members are tokens or rows; parts are topics or components.
        """
        in_unit, total, emitted, beta, left, overflow = carry
        member, unit, old, uniform = x
        # take the member out; a part without members gives its weight back
        own = jnp.zeros(n_places, jnp.int32) if adding else (place == old).astype(jnp.int32)
        here, total = in_unit[unit] - own, total - own
        if not adding:
            emitted = emission.remove(emitted, member, old, total[old] == 0)
        left = left + jnp.where(total == 0, beta, 0.0).sum()
        beta = jnp.where(total == 0, 0.0, beta)
        free = jnp.argmin(total)  # the first without members, if there is one
        overflow = overflow | (total[free] > 0)
        prior = jnp.where(place == free, state.alpha * left, here + state.alpha * beta)
        new = draw(prior * emission.densities(emitted, member, total), uniform[0])
        # a new part breaks b ~ Beta(1, γ), drawn by inversion, off what is left
        broken = jnp.where(new == free, left * -jnp.expm1(jnp.log1p(-uniform[1]) / state.gamma), 0.0)
        beta = beta + jnp.where(place == free, broken, 0.0)
        own = (place == new).astype(jnp.int32)
        in_unit = in_unit.at[unit].set(here + own)
        return (in_unit, total + own, emission.add(emitted, member, new), beta, left - broken, overflow), new

    carry = (state.in_unit, state.total, state.emitted, state.beta, state.left, state.overflow)
    members = jnp.arange(len(unit_of), dtype=jnp.int32), unit_of, state.assignments, uniforms
    (in_unit, total, emitted, beta, left, overflow), assignments = jax.lax.scan(one_member, carry, members)
    return state._replace(
        assignments=assignments.astype(jnp.int32),
        in_unit=in_unit,
        total=total,
        emitted=emitted,
        beta=beta,
        left=left,
        overflow=overflow,
    )


def draw_tables(
    state: Franchise, unit_of: Int32[Array, " member"], uniforms: Float[Array, " member"]
) -> Int32[Array, " place"]:
    """Draw the number of tables that serve the part at each place (array slot), summed over units.

    Members are tokens or rows; parts are topics or components; units are documents or groups of rows. The members of a
    unit sit at tables, each of which serves one part.

    The r-th member of its part in its unit opens a table with chance α β_k / (α β_k + r), r from 0. Here α is the
    concentration and β_k the part's weight.

    unit_of: the unit of each member.
    uniforms: one uniform random number for each member.
    """
    order = jnp.lexsort((state.assignments, unit_of))  # members of one part in one unit together, in their order
    unit, part = unit_of[order], state.assignments[order]
    number = jnp.arange(len(order))
    first = (number == 0) | (unit != jnp.roll(unit, 1)) | (part != jnp.roll(part, 1))
    earlier = number - jax.lax.cummax(jnp.where(first, number, 0))
    opening = state.alpha * state.beta[part]
    opens = first | (uniforms[order] * (opening + earlier) < opening)
    return jnp.zeros_like(state.tables).at[part].add(opens.astype(jnp.int32))


def draw_weights(
    key: Key[Array, ""], tables: Int32[Array, " place"], gamma: Float[Array, ""]
) -> tuple[Float[Array, " place"], Float[Array, ""]]:
    """Draw the shared weights and the weight left for parts without members, from a Dirichlet.

    Members are tokens or rows; parts are topics or components. The members of a unit sit at tables, each of which
    serves one part.

    Its parameters are the parts' tables and `gamma`. Weights are 0 in places (array slots) without tables. More places
    give the same bits.

    tables: the number of tables that serve the part at each place.
    gamma: the concentration of the shared weights.
    """
    shapes = jnp.append(gamma, jnp.maximum(tables, 1).astype(gamma.dtype))
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(shapes)))
    log_values = jnp.where(jnp.append(True, tables > 0), jax.vmap(jax.random.loggamma)(keys, shapes), -jnp.inf)
    values = jnp.exp(log_values - log_values.max())
    total = jax.lax.fori_loop(0, len(values), lambda i, found: found + values[i], jnp.zeros_like(gamma))  # in order
    return values[1:] / total, values[0] / total


def draw_concentration(
    key: Key[Array, ""],
    prior: Any,
    now: Float[Array, ""],
    n_tables: Int[Array, ""],
    customers: Int[Array, " group"],
) -> Float[Array, ""]:
    """Draw a concentration given that `n_tables` tables in all serve groups of customers.

    The members of a unit sit at tables, each of which serves one part.

    A fixed value is returned as it is.

    prior: a number or a `GammaPrior`.
    now: the current value.
    customers: the number of customers of each group; groups without customers say nothing.
    """
    if not isinstance(prior, GammaPrior):
        return now
    shape, rate = (jnp.asarray(value, now.dtype) for value in prior)
    key_w, key_n, key_s, key_value = jax.random.split(key, 4)
    some, n = customers > 0, jnp.maximum(customers, 1).astype(now.dtype)
    # log of Beta(now + 1, n), from the two Gammas that make it
    first = jax.random.loggamma(key_w, jnp.broadcast_to(now + 1, n.shape))
    log_w = first - jnp.logaddexp(first, jax.random.loggamma(key_n, n))
    s = jax.random.uniform(key_s, n.shape, now.dtype) * (n + now) < n
    shape = shape + n_tables - jnp.where(some, s, False).sum()
    return jnp.maximum(jax.random.gamma(key_value, shape), TINY) / (rate - jnp.where(some, log_w, 0.0).sum())


def sweep(
    model: HierarchicalProcess,
    state: Franchise,
    unit_of: Int32[Array, " member"],
    emission: MemberLikelihood,
    key: Key[Array, ""],
    *,
    adding: bool,
) -> Franchise:
    """Return the state after members, tables, γ, weights and α were drawn, each once, in this order.

    Members are tokens or rows; parts are topics or components; units are documents or groups of rows. The members of a
    unit sit at tables, each of which serves one part.

    γ and α are the concentrations of the shared weights and of a unit's weights. γ is drawn given the tables alone,
    before the weights. Drawn after them it would belong to other weights than those with which the next sweep begins.

    unit_of: the unit of each member.
    emission: the likelihood of members given parts.
    adding: True if members are not counted yet; they are then added one by one.
    """
    keys = jax.random.split(key, 5)
    n_members, dtype = len(unit_of), state.beta.dtype
    uniforms = jax.random.uniform(keys[0], (n_members, 2), dtype)
    state = seat_members(state, unit_of, emission, uniforms, adding=adding)
    tables = draw_tables(state, unit_of, jax.random.uniform(keys[1], (n_members,), dtype))
    total, used = tables.sum(), (tables > 0).sum()
    upper, lower = (model.concentration_of(level) for level in model.levels)
    gamma = draw_concentration(keys[3], upper, state.gamma, used, total[None])
    beta, left = draw_weights(keys[2], tables, gamma)
    alpha = draw_concentration(keys[4], lower, state.alpha, total, state.in_unit.sum(1))
    return state._replace(beta=beta, left=left, tables=tables, gamma=gamma, alpha=alpha)
