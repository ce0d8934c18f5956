"""Starts of fits of mixtures: one pass over the rows in random order (Blei 2004, §5.4.1), splits of components, nearest
rows.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lvsearch.inference.compiles import counted
from lvsearch.models.components import log_normalisers
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel

FEWEST_MANY, MOST_MANY = 14, 30
"""The fewest and the most groups with which a chain begins that is to start in many groups.

So many groups fit into the array slots that samplers begin with, or into twice as many. More slots would take longer to
compile and stay for the whole chain.
"""


@kernel(static_argnames=("capacity",), brief=True, kept=True)
@counted
def sequential_pass(
    model: MixtureModel,
    key: Array,
    coordinates: Float[Array, "row dim"],
    observed: Bool[Array, "row dim"],
    weight: Float[Array, " row"],
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Int[Array, " row"]:
    """Draw a component for each row in turn, given the rows before it, to begin a fit of a mixture with.

    Row n goes to component k with probability proportional to (n_k + 1/K) · the predictive density of row n given the
    rows that k has so far. Here K is the number of components and n_k the rows of k so far.

    The thesis updates parameters incrementally along a random permutation, "a variational version of sequential
    importance sampling". Here each row's component is drawn rather than shared. Components that are equal before any
    row would share every row equally for ever.

    key: the random key of the draws.
    coordinates, observed, weight: the rows in the order of the pass, missing cells False in `observed`; rows of weight
        0 change nothing.
    size: (K,), how many components exist.
    capacity: (length of the arrays over components,), at least K.

    Returns: the component of each row, (row,).
    """
    component, (n,) = model.components.at_prior_means(), capacity
    exists = jnp.arange(n) < size[0]
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf, coordinates.dtype), component.prior(coordinates.shape[1]))
    prior = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), one)

    def step(carry: tuple[Any, Array, Array], row: tuple[Array, Array, Array, Array]) -> tuple[Any, Array]:
        natural, normaliser, counts = carry
        row_key, y, seen, w = row
        increment = component.increment(y, seen)
        after = log_normalisers(component, jax.tree.map(jnp.add, natural, increment))
        # log (n_k + 1/K) + log predictive density, which is a difference of log-normalisers
        score = jnp.log(counts + 1 / size[0]) + after - normaliser
        chosen = jax.random.categorical(row_key, jnp.where(exists, score, -jnp.inf))
        here = w * (jnp.arange(n) == chosen)
        natural = jax.tree.map(lambda t, s: t + here.reshape(-1, *[1] * (t.ndim - 1)) * s, natural, increment)
        normaliser = jnp.where(here > 0, after, normaliser)
        return (natural, normaliser, counts + here), chosen

    begin = prior, log_normalisers(component, prior), jnp.zeros(n, coordinates.dtype)
    keys = jax.random.split(key, len(weight))
    return jax.lax.scan(step, begin, (keys, coordinates, observed, weight))[1]


def start_groups(number: int, n_members: int) -> int:
    """Return in how many groups of rows a chain begins: one, many, a quarter of many, or half of many.

    Chains that agree in spite of their starts have come from far apart.

    number: the number of the chain; 0, 1, 2 and 3 choose in this order, and 4 begins again.
    n_members: how many rows are grouped. "Many" is an eighth of them, but at least 14 and at most 30.
    """
    many = int(np.clip(n_members // 8, FEWEST_MANY, MOST_MANY))
    return (1, many, many // 4, many // 2)[number % 4]


def nearest_rows(
    key: Array, coordinates: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"], groups: int
) -> Int[np.ndarray, " row"]:
    """Label each row by the nearest of `groups` rows that are drawn at random without replacement.

    A missing cell counts as 0, the prior's location. With fewer rows than groups, every row is drawn.

    coordinates, observed: the rows, and which of their cells are not missing.

    Returns: the number of the nearest drawn row, in the order of drawing, (row,).
    """
    values = np.where(observed, coordinates, 0.0).astype(np.float64)
    chosen = np.asarray(jax.random.permutation(key, len(values)))[:groups]
    # |x − c|² up to |x|²
    return np.argmin((values[chosen] ** 2).sum(1) - 2 * values @ values[chosen].T, axis=1)


def split_along_spread(
    shares: Float[np.ndarray, "row component"], coordinates: Float[np.ndarray, "row dim"], parent: int, child: int
) -> Float[np.ndarray, "row component"]:
    """Return responsibilities in which the parent's rows on one side of the parent's mean have moved to the child.

    The rows are cut across the direction in which they spread most: the first eigenvector of the parent's weighted
    covariance CᵀC. Here C are the centred rows times √weight. With more columns than rows it is computed as Cᵀu, where
    u is the first eigenvector of CCᵀ, without a matrix of columns × columns.

    shares: responsibilities, (row, component).
    coordinates: the rows.
    parent, child: the components that lose and that get rows.
    """
    w = shares[:, parent]
    total = max(float(w.sum()), 1e-12)
    centred = coordinates - (w @ coordinates) / total
    if centred.shape[1] <= centred.shape[0]:
        direction = np.linalg.eigh((w[:, None] * centred).T @ centred / total)[1][:, -1]
    else:
        scaled = np.sqrt(w / total)[:, None] * centred
        direction = scaled.T @ np.linalg.eigh(scaled @ scaled.T)[1][:, -1]
    moved = np.where(centred @ direction > 0, w, 0.0)
    out = shares.copy()
    out[:, parent] -= moved
    out[:, child] += moved
    return out


def with_component_emptied(shares: Float[np.ndarray, "row component"], gone: int) -> Float[np.ndarray, "row component"]:
    """Return responsibilities in which component `gone` has no rows.

    Its share of each row goes to the other components, in proportion to their shares of that row. Where they have none,
    it is spread over them evenly.

    shares: responsibilities, (row, component).
    """
    out = shares.copy()
    out[:, gone] = 0.0
    others = out.sum(1, keepdims=True)
    rest = np.ones(shares.shape[1])
    rest[gone] = 0.0
    return np.where(others > 1e-9, out / np.where(others > 1e-9, others, 1.0), rest / max(rest.sum(), 1.0))
