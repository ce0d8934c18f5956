"""Planes that cut each component's rows in two, and how much better two components would explain the rows than one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.mixtures.packing import PackedColumns, pack_increment, unpack_sums
from lvsearch.inference.mixtures.rows import RowTiles
from lvsearch.models.components import Component, log_normalisers
from lvsearch.models.kernels import kernel

POWER_STEPS, TWO_MEANS_STEPS = 10, 4
"""Steps of the power iteration for a direction, and steps of two-means for where to cut."""


class Cuts(NamedTuple):
    """A hyperplane through each component's rows, and what splitting the component there would gain.

    | field | meaning |
    |---|---|
    | `directions` | (component, dim) the normal vector of each plane |
    | `middles` | (component,) a row x is on the far side of its plane if directions · x > middles |
    | `gains` | (component,) log evidence of the rows under two components minus that under one, nats |

    The gains include n log n of the rows n on each side, the weight that labels have.
    """

    directions: Float[Array, "component dim"]
    middles: Float[Array, " component"]
    gains: Float[Array, " component"]

    def far(self, coordinates: Float[np.ndarray, "row dim"], component: int) -> np.ndarray:
        """Return which rows are on the far side of one component's plane, (row,), bool."""
        return coordinates @ np.asarray(self.directions[component]) > float(self.middles[component])


@kernel(static_argnames=("layout",), brief=True)
@counted
def find_cuts(
    component: Component, shares: Float[Array, "tile row component"], tiles: RowTiles, *, layout: PackedColumns
) -> Cuts:
    """Find a plane that cuts each component's rows in two, and what splitting the component there would gain.

    The first plane is normal to the direction in which the rows spread most: the first eigenvector of their covariance.
    The eigenvector is found by power iteration without a matrix of columns × columns. A few steps of two-means then
    move the plane.

    component: the kind of component.
    shares: responsibilities, (tile, row, component).
    tiles: the rows.
    layout: which columns of the rows' packed sufficient statistics vary.
    """
    weights = shares * tiles.weight[..., None]
    counts = jnp.maximum(weights.sum((0, 1)), 1e-12)
    means = jnp.einsum("trk,trd->kd", weights, tiles.coordinates) / counts[:, None]

    def spread(_: Any, directions: Array) -> Array:
        def one(total: Array, tile: tuple[Array, Array]) -> tuple[Array, None]:
            w, x = tile
            along = w * (x @ directions.T - (means * directions).sum(-1))
            return total + along.T @ x - along.sum(0)[:, None] * means, None

        new = jax.lax.scan(one, jnp.zeros_like(directions), (weights, tiles.coordinates))[0]  # pyright: ignore
        return new / jnp.maximum(jnp.linalg.norm(new, axis=-1, keepdims=True), 1e-30)

    def sums(directions: Array, middles: Array) -> tuple[Array, Array]:
        # Sums of packed increments of the far rows and of all rows (2K, S), and how many rows these are (2K,).

        def one(total: tuple[Array, Array], tile: tuple[Array, RowTiles]) -> tuple[tuple[Array, Array], None]:
            w, t = tile
            packed = jax.vmap(lambda y, o: pack_increment(component, y, o))(t.coordinates, t.observed)
            far = jnp.where(t.coordinates @ directions.T > middles, w, 0.0)
            both = jnp.concatenate([far, w], axis=-1)
            return (total[0] + both.T @ packed, total[1] + both.sum(0)), None

        width = len(layout.varying) + len(layout.constants)
        zero = jnp.zeros((2 * len(counts), width), weights.dtype), jnp.zeros(2 * len(counts), weights.dtype)
        return jax.lax.scan(one, zero, (weights, tiles))[0]

    def two_means(_: Any, plane: tuple[Array, Array]) -> tuple[Array, Array]:
        directions, middles = plane
        far = jnp.where(jnp.einsum("trd,kd->trk", tiles.coordinates, directions) > middles, weights, 0.0)
        n_far = far.sum((0, 1))
        n_near = counts - n_far
        beyond = jnp.einsum("trk,trd->kd", far, tiles.coordinates)
        far_mean = beyond / jnp.maximum(n_far, 1e-12)[:, None]
        near_mean = (means * counts[:, None] - beyond) / jnp.maximum(n_near, 1e-12)[:, None]
        between, centre = far_mean - near_mean, 0.5 * (far_mean + near_mean)
        both = (n_far > 1e-6) & (n_near > 1e-6)
        return jnp.where(both[:, None], between, directions), jnp.where(both, (between * centre).sum(-1), middles)

    # The plane: direction by power iteration, then both direction and place by two-means.
    begin = jax.random.normal(jax.random.key(0), means.shape, means.dtype)
    directions = jax.lax.fori_loop(0, POWER_STEPS, spread, begin)
    plane = directions, (means * directions).sum(-1)
    directions, middles = jax.lax.fori_loop(0, TWO_MEANS_STEPS, two_means, plane)
    # The gain: log normalisers of both sides, minus those of all rows and of an empty component.
    increments, n = sums(directions, middles)
    (far, everything), (n_far, n_all) = jnp.split(increments, 2), jnp.split(n, 2)
    # one call for everything: a log normaliser may be large to compile
    groups = jnp.concatenate([far, everything - far, everything, jnp.zeros_like(far)])
    n = jnp.concatenate([n_far, n_all - n_far, n_all, jnp.zeros_like(n_far)])
    prior = jax.tree.map(
        lambda leaf: jnp.broadcast_to(jnp.asarray(leaf, weights.dtype), (len(n), *jnp.shape(leaf))),
        component.prior(layout.n_dims),
    )
    rows = jax.tree.map(jnp.add, unpack_sums(component, groups, prior), prior)
    heights = log_normalisers(component, rows) + jnp.where(n > 0, n * jnp.log(jnp.maximum(n, 1e-30)), 0.0)
    beyond, nearer, together, empty = jnp.split(heights, 4)
    return Cuts(directions, middles, beyond + nearer - together - empty)
