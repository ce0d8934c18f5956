"""Compute how similar the components of two fits are, by the observations they hold and by the data they emit.

Both similarities are 0 for components that have nothing in common and 1 for equal ones, in any model.

The similarity of members compares how much of each observation (a row, a token) is in each component. It is the Jaccard
coefficient that Hennig (2007, *Computational Statistics & Data Analysis* 52, 258–271) uses for the stability of a
cluster. Here it is taken of shares in place of sets (Σ min / Σ max), and corrected for chance as Hubert & Arabie (1985)
correct the Rand index.

The similarity of parameters is the affinity of Bhattacharyya (1943), ∫ √(p q), of the distributions of one observation.
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
"""The similarity above which a component counts as found again: more than half of the members of both are the same.

No second component of the other fit can have the same members then.
"""
LEVELS = 128
"""The number of levels to which shares are rounded when the agreement by chance is computed."""
DRAWS = 256
"""The number of observations drawn of each component for an affinity. Its standard error is .022 at most."""


class ComponentMembers(NamedTuple):
    """The observations (rows or tokens) that belong to each component of a fit, as shares.

    | field | meaning |
    |---|---|
    | `shares` | the share of each observation in each component, from 0 to 1; rows of a mixture sum to 1 |
    | `weight` | how many observations each row stands for, such as the occurrences of one word in a document |
    | `noun` | the word for one observation: "row", "token" |
    """

    shares: Float[np.ndarray, "observation component"]
    weight: Float[np.ndarray, " observation"]
    noun: str

    @property
    def amount(self) -> Float[np.ndarray, " component"]:
        """The number of observations in each component: the weighted sum of their shares, (component,)."""
        return self.weight @ self.shares

    @property
    def occupied(self) -> Bool[np.ndarray, " component"]:
        """True for components that hold some observation more than any other component does.

        An empty component still has a little of every observation, in the same way in every fit. So a share above 0 is
        not enough.
        """
        # a row may have several features, each with a share above ½: then all of them are occupied
        most = np.minimum(self.shares.max(axis=1, keepdims=True), 0.5)
        return ((self.shares >= most) & (self.weight[:, None] > 0)).any(axis=0)


def member_similarity(first: ComponentMembers, second: ComponentMembers) -> Float[np.ndarray, "component other"]:
    """Return how similar each component of one fit is to each component of another, by the observations they hold.

    first, second: the shares of the same observations in the components of the two fits

    Returns numbers from 0 to 1, (components of the first fit, components of the second).

    Let r and s be the shares of two components. Their similarity is the Jaccard coefficient J = Σ min(r, s) / Σ max(r,
    s), with sums over observations, corrected for chance: (J − J₀) / (1 − J₀). J₀ is the coefficient by chance, of
    shares with the same distributions that are assigned to observations independently. With shares of 0 or 1, J > ½ can
    hold for at most one component of the other fit.

    If two components take the same share of every observation, chance cannot be ruled out. The similarity is then 1 if
    that share is all of the observation, as in a fit of one component, and 0 otherwise. Components that are not
    `occupied` have similarity 0.

    Raises ValueError for different numbers of observations.
    """
    if len(first.shares) != len(second.shares):
        raise ValueError(
            f"got shares of {len(first.shares):,} and of {len(second.shares):,} observations; expected the same ones "
            "in both"
        )
    total = max(float(first.weight.sum()), 1e-300)
    both = np.stack([first.weight @ np.minimum(share[:, None], second.shares) for share in first.shares.T])
    found = _jaccard(both, first.amount, second.amount)
    # J₀ from the distributions of the shares: E min(r, s) of independent r and s is ∫ P(r > t) P(s > t) dt
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
    """Return Jaccard coefficients: amount in both components / amount in either, for every pair of components.

    both: the amount of observations that a component of one fit and a component of the other share
    one, other: the amounts in the components of each fit
    """
    return both / np.maximum(one[:, None] + other - both, 1e-300)


def _survival(members: ComponentMembers) -> Float[np.ndarray, "component level"]:
    """Return how many observations have a share above each of 128 levels, for each component, (component, level).

    The levels are ½/128, 1½/128, 2½/128, ….
    """
    below = np.clip(np.ceil(members.shares * LEVELS - 0.5), 0, LEVELS).astype(np.int64)  # levels below each share
    counted = np.stack([np.bincount(column, members.weight, minlength=LEVELS + 1) for column in below.T])
    return np.cumsum(counted[:, ::-1], axis=1)[:, -2::-1]


def partners(similarity: Float[np.ndarray, "component other"]) -> Float[np.ndarray, " component"]:
    """Return the similarity of each component to its partner in another fit; 0 for components without a partner.

    Each component has at most one partner. Partners are chosen so that the total similarity is greatest.

    similarity: of each component to each component of the other fit, (components, other components)
    """
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    rows, columns = linear_sum_assignment(-similarity)
    found = np.zeros(len(similarity))
    found[rows] = similarity[rows, columns]
    return found


def word_affinity(
    first: Float[np.ndarray, "topic word"], second: Float[np.ndarray, "other word"]
) -> Float[np.ndarray, "topic other"]:
    """Return the Bhattacharyya affinity Σ √(p q) over words, for each topic p of one fit and each q of another.

    first, second: p(word | topic) over the same words, (topics, words)
    """
    return np.sqrt(first) @ np.sqrt(second).T


def row_affinity(
    component: Component, first: Any, second: Any, like: Row, key: Key[Array, ""]
) -> Float[np.ndarray, "component other"] | None:
    """Return the Bhattacharyya affinity ∫ √(p q) of every component of one fit and every component of another.

    Here p and q are the densities of one row in the two components.

    component: the kind of component, such as Gaussians with full covariances
    first, second: expected sufficient statistics of the parameters of each fit's components, components on the leading
        axis of every array
    like: rows of the data. A kind whose rows have a given total, such as counts, draws rows with the totals of these
    key: a random key

    It is computed by Monte Carlo in float64, in the same way for every kind of component. With x from p or q, each for
    half of the draws, ∫ √(p q) = E sech ½ log(p / q), a mean of numbers between 0 and 1.

    Returns (component, other), or None for a kind of component that cannot draw rows.
    """
    n_first, n_second = (len(jax.tree.leaves(each)[0]) for each in (first, second))
    n = n_first + n_second
    (capacity,) = capacity_of((n,))  # padded to a capacity, so that fits of many sizes share one compiled program
    try:
        with jax.enable_x64(True):
            padded = np.arange(capacity) % n
            every = jax.tree.map(lambda one, other: jnp.concatenate([one, other])[padded], first, second)
            log_density = np.asarray(_log_densities(component, every, like, key))[:n, :, :n]
    except NotImplementedError:  # a user's kind of component need not define `draw`
        return None
    own = np.arange(n)
    ratio = log_density[own, :, own][:, :, None] - log_density  # (drawn from, draw, component)
    decay = np.exp(-0.5 * np.abs(ratio))
    agreed = np.where(np.isnan(ratio), 0.0, 2 * decay / (1 + decay**2)).mean(axis=1)
    return (agreed[:n_first, n_first:] + agreed[n_first:, :n_first].T) / 2


@eqx.filter_jit
@full_precision
def _log_densities(component: Component, every: Any, like: Row, key: Key[Array, ""]) -> Array:
    """Draw `DRAWS` rows from each component, and return their log density under every component, nats.

    component: the kind of component
    every: expected sufficient statistics of the parameters of all components, components on the leading axis
    like: rows of the data, whose totals the drawn rows get
    key: a random key

    Returns shape (component drawn from, draw, component).
    """

    def densities_of_draws(key: Array, statistics: Any) -> Array:
        """Draw `DRAWS` rows from one component; return their log density under every component, (draw, component)."""
        key_rows, key_like = jax.random.split(key)
        chosen = jax.random.randint(key_like, (DRAWS,), 0, len(like.value))
        units = Row(jnp.asarray(like.value)[chosen], jnp.ones((DRAWS, like.value.shape[1]), bool))
        rows = jax.vmap(lambda k, unit: component.draw(k, statistics, unit))(jax.random.split(key_rows, DRAWS), units)
        return jax.vmap(lambda row: log_likelihood(component, every, Row(row, jnp.ones(row.shape, bool))))(rows)

    return jax.vmap(densities_of_draws)(jax.random.split(key, len(jax.tree.leaves(every)[0])), every)
