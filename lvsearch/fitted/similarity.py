"""How alike the components of two fits are: by the observations that are in them, and by how they draw new ones.

Both similarities are 0 for what has nothing in common and 1 for what is the same, whatever the model. That of members
asks of each observation (a row, a token) how much of it is in the component: the Jaccard coefficient that Hennig (2007,
*Computational Statistics & Data Analysis* 52, 258–271) takes for the stability of a cluster, of shares in place of sets
(Σ min / Σ max), corrected for chance as Hubert & Arabie (1985) correct the Rand index. That of parameters is the
affinity of Bhattacharyya (1943), ∫ √(p q), of the distributions of one observation.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.models.components.component import Component, log_likelihood
from lvsearch.models.kernels import full_precision
from lvsearch.models.units import Row

HALF = 0.5
"""More than half of the members of both, beyond chance: no second component of the other fit can have them too."""
LEVELS = 128
"""Shares are told apart to this part of 1 where agreement by chance is reckoned."""
DRAWS = 256
"""Observations drawn of each component for an affinity: its standard error is .022 at most."""


class ComponentMembers(NamedTuple):
    """What is in the components of a fit.

    | field | meaning |
    |---|---|
    | `shares` | how much of each observation is in each component, from 0 to 1; rows of a mixture sum to 1 |
    | `weight` | how many observations each stands for, as the occurrences of one word in a document |
    | `noun` | what people call one observation: "row", "token" |
    """

    shares: Float[np.ndarray, "observation component"]
    weight: Float[np.ndarray, " observation"]
    noun: str

    @property
    def amount(self) -> Float[np.ndarray, " component"]:
        """Observations in each component."""
        return self.weight @ self.shares

    @property
    def occupied(self) -> Bool[np.ndarray, " component"]:
        """Whether some observation is in it rather than in another component. What is in no other sense empty still has
        a little of every observation, in the same way in every fit."""
        most = np.minimum(self.shares.max(axis=1, keepdims=True), 0.5)  # of several features one may have more
        return ((self.shares >= most) & (self.weight[:, None] > 0)).any(axis=0)


def member_similarity(first: ComponentMembers, second: ComponentMembers) -> Float[np.ndarray, "component other"]:
    """Of each component of one fit and each of another over the same observations: how far the same ones are in both.

    The Jaccard coefficient J = Σ min(r, s) / Σ max(r, s) of their shares, less what shares so distributed have in
    common by chance, J₀, if they belonged to observations without regard to each other: (J − J₀) / (1 − J₀). With hard
    shares, J > ½ can hold for one component of the other fit at most. Where two components take the same share of
    every observation nothing tells them from chance: 1 if that share is all of it, as in a fit of one component, else
    0. Components that are not `occupied` are like no other: 0. Raises ValueError for other observations.
    """
    if len(first.shares) != len(second.shares):
        raise ValueError(
            f"got shares of {len(first.shares):,} and of {len(second.shares):,} observations; expected the same ones "
            "in both"
        )
    total = max(float(first.weight.sum()), 1e-300)
    both = np.stack([first.weight @ np.minimum(share[:, None], second.shares) for share in first.shares.T])
    found = _jaccard(both, first.amount, second.amount)
    above, above_other = _survival(first), _survival(second)
    by_chance = _jaccard(
        above @ above_other.T / (LEVELS * total), above.sum(axis=1) / LEVELS, above_other.sum(axis=1) / LEVELS
    )
    undecided = by_chance > 1 - 1 / LEVELS
    whole = np.minimum(first.amount[:, None], second.amount) > (1 - 1 / LEVELS) * total
    corrected = (found - by_chance) / np.where(undecided, 1.0, 1 - by_chance)
    decided = np.where(undecided, whole.astype(np.float64), np.maximum(corrected, 0.0))
    return np.where(first.occupied[:, None] & second.occupied, decided, 0.0)


def _jaccard(
    both: Float[np.ndarray, "component other"],
    one: Float[np.ndarray, " component"],
    other: Float[np.ndarray, " other"],
) -> Float[np.ndarray, "component other"]:
    return both / np.maximum(one[:, None] + other - both, 1e-300)


def _survival(members: ComponentMembers) -> Float[np.ndarray, "component level"]:
    """Observations whose share of each component is above each of the levels ½/128, 1½/128, …

    E min(r, s) of independent r and s is ∫ P(r > t) P(s > t) dt."""
    below = np.clip(np.ceil(members.shares * LEVELS - 0.5), 0, LEVELS).astype(np.int64)  # levels below each share
    counted = np.stack([np.bincount(column, members.weight, minlength=LEVELS + 1) for column in below.T])
    return np.cumsum(counted[:, ::-1], axis=1)[:, -2::-1]


def partners(similarity: Float[np.ndarray, "component other"]) -> Float[np.ndarray, " component"]:
    """How similar each component is to its partner, 0 without one: one to one, as similar in all as can be."""
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    rows, columns = linear_sum_assignment(-similarity)
    found = np.zeros(len(similarity))
    found[rows] = similarity[rows, columns]
    return found


def word_affinity(
    first: Float[np.ndarray, "topic word"], second: Float[np.ndarray, "other word"]
) -> Float[np.ndarray, "topic other"]:
    """Σ √(p q) over words, of distributions over the same words."""
    return np.sqrt(first) @ np.sqrt(second).T


def row_affinity(
    component: Component, first: Any, second: Any, like: Row, key: Key[Array, ""]
) -> Float[np.ndarray, "component other"] | None:
    """∫ √(p q) of the densities of one row, for every component of one fit and every one of another.

    first, second: statistics of the components' parameters, components leading. like: rows whose totals are those of
    the rows drawn. By Monte Carlo, the same for every kind of component: with x from p or q, each half of the draws,
    ∫ √(p q) = E sech ½ log(p / q), a mean of numbers between 0 and 1. In float64. None for a kind that cannot be drawn.
    """
    n_first, n_second = (len(jax.tree.leaves(each)[0]) for each in (first, second))
    n = n_first + n_second
    (capacity,) = capacity_of((n,))  # so that fits of many sizes share one program
    try:
        with jax.enable_x64(True):
            padded = np.arange(capacity) % n
            every = jax.tree.map(lambda one, other: jnp.concatenate([one, other])[padded], first, second)
            log_density = np.asarray(_log_densities(component, every, like, key))[:n, :, :n]
    except NotImplementedError:  # a kind of one's own need not say how it is drawn
        return None
    own = np.arange(n)
    ratio = log_density[own, :, own][:, :, None] - log_density  # (drawn from, draw, component)
    decay = np.exp(-0.5 * np.abs(ratio))
    agreed = np.where(np.isnan(ratio), 0.0, 2 * decay / (1 + decay**2)).mean(axis=1)
    return (agreed[:n_first, n_first:] + agreed[n_first:, :n_first].T) / 2


@eqx.filter_jit
@full_precision
def _log_densities(component: Component, every: Any, like: Row, key: Key[Array, ""]) -> Array:
    """log p of DRAWS rows of each component under each: (drawn from, draw, component), nats."""

    def of_one(key: Array, statistics: Any) -> Array:
        key_rows, key_like = jax.random.split(key)
        chosen = jax.random.randint(key_like, (DRAWS,), 0, len(like.value))
        units = Row(jnp.asarray(like.value)[chosen], jnp.ones((DRAWS, like.value.shape[1]), bool))
        rows = jax.vmap(lambda k, unit: component.draw(k, statistics, unit))(jax.random.split(key_rows, DRAWS), units)
        return jax.vmap(lambda row: log_likelihood(component, every, Row(row, jnp.ones(row.shape, bool))))(rows)

    return jax.vmap(of_one)(jax.random.split(key, len(jax.tree.leaves(every)[0])), every)
