"""Two-level processes small enough to test their samplers: documents of words, and groups of rows.

Each case knows how to draw members forwards and again given their assignments, so that one set of tests (frequencies,
Geweke's, calibration) serves every kind of part.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lvsearch.inference.hdp import franchise
from lvsearch.inference.hdp.franchise import Franchise, MemberLikelihood
from lvsearch.inference.hdp.gibbs import RowEmission, WordCounts
from lvsearch.models.components import DiagonalComponents
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hierarchical_process import HierarchicalProcess
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.units import Row

LENGTHS, PLACES = (4, 2, 5), 24
UNIT_OF = np.repeat(np.arange(len(LENGTHS), dtype=np.int32), LENGTHS)
N_MEMBERS = len(UNIT_OF)
PRIORS = GammaPrior(4.0, 4.0), GammaPrior(3.0, 2.0)


class Case(NamedTuple):
    """A model, and its members: `again` draws them given their assignments and what they say of parts (key, emitted,
    z); `nothing` is what no member says; `emission` makes of them what the sampler takes; `apart` is how unlike two of
    them are (member, member)."""

    name: str
    model: HierarchicalProcess
    again: Callable[[Any, Any, Any], Any]
    nothing: Callable[[], Any]
    emission: Callable[[Any], MemberLikelihood]
    apart: Callable[[Any], Any]


VOCABULARY, ETA = 3, 0.5


def words_again(key: Any, word_topic: Any, z: Any) -> Any:
    key_topics, key_words = jax.random.split(key)
    topics = jax.random.dirichlet(key_topics, word_topic.T + ETA)
    return jax.random.categorical(key_words, jnp.log(topics)[z]).astype(jnp.int32)


COMPONENT = DiagonalComponents(0.3, 1.4, 0.5, 3.0, 2.0)


def rows_again(key: Any, emitted: Any, z: Any) -> Any:
    key_parameters, key_rows = jax.random.split(key)
    parameters = COMPONENT.family.sample(key_parameters, emitted.natural)
    own = jax.tree.map(lambda leaf: leaf[z], parameters)
    blank = Row(jnp.zeros((N_MEMBERS, 1)), jnp.ones((N_MEMBERS, 1), bool))
    return jax.vmap(COMPONENT.draw)(jax.random.split(key_rows, N_MEMBERS), own, blank)


def emission_of_rows(values: Any) -> RowEmission:
    observed = jnp.ones(values.shape, bool)
    y = jax.vmap(COMPONENT.coordinates)(Row(values, observed))
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, y.dtype), COMPONENT.prior(1))
    return RowEmission(COMPONENT, jax.vmap(COMPONENT.increment)(y, observed), prior)


TOPICS = Case(
    "topics",
    HDP(ETA, *PRIORS),
    words_again,
    lambda: jnp.zeros((VOCABULARY, PLACES), jnp.int32),
    lambda words: WordCounts(words, jnp.full(VOCABULARY, ETA)),
    lambda words: 1.0 * (words[:, None] != words),
)
GROUPS = Case(
    "groups of rows",
    HDPMixture(COMPONENT, *PRIORS),
    rows_again,
    lambda: emission_of_rows(jnp.zeros((1, 1))).empty(PLACES),
    emission_of_rows,
    lambda values: jnp.log1p(((values[:, None] - values) ** 2).sum(-1)),
)
CASES = (TOPICS, GROUPS)


def with_members(case: Case, state: Franchise, members: Any) -> Franchise:
    """The state of these assignments for other members: what they say of parts, added one by one."""
    emission = case.emission(members)

    def add(emitted: Any, x: Any) -> Any:
        return emission.add(emitted, *x), None

    numbers = jnp.arange(N_MEMBERS, dtype=jnp.int32)
    emitted = jax.lax.scan(add, emission.empty(PLACES), (numbers, state.assignments))[0]
    return state._replace(emitted=emitted)


def joint_draw(case: Case, key: Any) -> tuple[Franchise, Any]:
    """(state, members) forwards: concentrations, sticks, weights of units, assignments, parts, members."""
    keys = jax.random.split(key, 6)
    (a, b), (c, d) = (case.model.concentration_of(level) for level in case.model.levels)  # pyright: ignore
    gamma, alpha = (
        jax.random.gamma(keys[0], jnp.asarray(a, float)) / b,
        jax.random.gamma(keys[1], jnp.asarray(c, float)) / d,
    )
    gamma, alpha = jnp.asarray(gamma, float), jnp.asarray(alpha, float)
    sticks = jax.random.beta(keys[2], 1.0, gamma, (PLACES,))
    beta = sticks * jnp.cumprod(jnp.append(1.0, 1 - sticks[:-1]))
    log_theta = jax.random.loggamma(keys[3], jnp.broadcast_to(alpha * beta + 1e-12, (len(LENGTHS), PLACES)))
    z = jax.random.categorical(keys[4], log_theta[UNIT_OF]).astype(jnp.int32)
    members = case.again(keys[5], case.nothing(), z)
    state = franchise.empty_state(N_MEMBERS, len(LENGTHS), case.emission(members), PLACES, gamma, alpha)
    total = state.total.at[z].add(1)
    beta = jnp.where(total > 0, beta, 0.0)
    state = state._replace(
        assignments=z, in_unit=state.in_unit.at[UNIT_OF, z].add(1), total=total, beta=beta, left=1 - beta.sum()
    )
    return with_members(case, state, members), members


def swept(case: Case, state: Franchise, members: Any, key: Any, *, adding: bool = False) -> Franchise:
    return franchise.sweep(case.model, state, jnp.asarray(UNIT_OF), case.emission(members), key, adding=adding)


def numbers(case: Case, state: Franchise, members: Any) -> Any:
    """Functions of everything: concentrations, how many parts, who is with whom within and across units, how alike
    members of one part are."""
    z, n_parts = state.assignments, (state.total > 0).sum() / 5
    same = z[:, None] == z
    log_gamma, log_alpha, apart = jnp.log(state.gamma), jnp.log(state.alpha), case.apart(members)
    together, size = (same * apart).mean(), apart.mean()
    shares = same[0, 1:3].mean(), same[0, 6:].mean(), same.mean()
    parts = [n_parts, n_parts**2, log_gamma, log_gamma**2, log_alpha, log_alpha**2, together, size, *shares, state.left]
    return jnp.stack([*parts, log_gamma * n_parts, log_alpha * shares[0], n_parts * size])
