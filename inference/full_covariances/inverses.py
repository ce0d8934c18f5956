"""Inverse matrices of all components and particles, computed once and updated while rows come and go.

The natural parameters (ν − D, B + κmmᵀ, κm, κ) of a component's Normal–Wishart are one matrix and one number:

    N = [[B + κmmᵀ, κm], [κmᵀ, κ]],      log|B| = log|N| − log κ,
    A = ½νD log 2 + log Γ_D(ν/2) − ½ν log|N| + ½(ν − D) log κ + ½D log 2π.

A row y that counts u times adds u zzᵀ to N, where z = (y, 1). By the matrix determinant lemma and the formula of
Sherman & Morrison (1950), with s = zᵀN⁻¹z,

    log|N + u zzᵀ| = log|N| + log(1 + us),      (N + u zzᵀ)⁻¹ = N⁻¹ − u/(1 + us) · N⁻¹z (N⁻¹z)ᵀ.

This takes (D + 1)² products, none of which waits for another, where a factor of N takes D³/6. Rounding adds up from one
update to the next, so inverses are computed anew with every sweep.

Particles are on the last axis, which compilers turn into vectors.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Inverses(NamedTuple):
    """The sums of the rows of each component with its prior, as an inverse matrix and three numbers.

    | field | letter | shape |
    |---|---|---|
    | `degrees` | ν | (component, particle) |
    | `count` | κ | (component, particle) |
    | `log_determinant` | log of the determinant of N | (component, particle) |
    | `inverse` | N⁻¹ | (side, side, component, particle), side = D + 1 |
    """

    degrees: Float[Array, "*#component #particle"]
    count: Float[Array, "*#component #particle"]
    log_determinant: Float[Array, "*#component #particle"]
    inverse: Float[Array, "side side *#component #particle"]


class Direction(NamedTuple):
    """A vector z as N sees it: `along` is N⁻¹z, (side, component, particle); `square` is zᵀN⁻¹z, (component,
    particle).
    """

    along: Float[Array, "side *#component #particle"]
    square: Float[Array, "*#component #particle"]


def invert_all(
    matrices: Float[Array, "side side component particle"],
) -> tuple[Float[Array, "side side component particle"], Float[Array, "component particle"]]:
    """Return (N⁻¹, log|N|) of symmetric positive definite matrices N, by Gauss–Jordan steps.

    log|N| is NaN where N is not positive definite.
    """
    places = jnp.arange(len(matrices))

    def swept(place: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        """Make the Gauss–Jordan step of one pivot."""
        rest, log_determinant = carry
        column = rest[place]
        pivot = column[place]
        scaled = column / pivot
        here = (places == place)[:, None, None]
        others = rest - column[:, None] * scaled[None]
        both = jnp.where(
            here[:, None] & here[None], -1 / pivot, jnp.where(here[:, None], scaled[None], scaled[:, None])
        )
        return jnp.where(here[:, None] | here[None], both, others), log_determinant + jnp.log(pivot)

    begin = matrices, jnp.zeros(matrices.shape[2:], matrices.dtype)
    negative, log_determinant = jax.lax.fori_loop(0, len(matrices), swept, begin)
    return -negative, log_determinant


def direction(of: Inverses, z: Float[Array, " side"]) -> Direction:
    """Return the direction of the vector z, the same for all components and particles."""
    along = jnp.tensordot(z, of.inverse, 1)
    return Direction(along, jnp.tensordot(z, along, 1))


def add_square(
    of: Inverses,
    z: Direction,
    times: Float[Array, "component particle"],
    degrees: Float[Array, "component particle"],
    count: Float[Array, "component particle"],
) -> Inverses:
    """Return the inverses after `times` · zzᵀ is added to N, by the formula of Sherman & Morrison.

    z: the direction of the vector.
    times: how often it is added; negative where it is removed.
    degrees: added to ν.
    count: added to κ, which is also part of N.
    """
    return Inverses(
        of.degrees + degrees,
        of.count + count,
        of.log_determinant + jnp.log1p(times * z.square),
        subtract_square(of.inverse, times / (1 + times * z.square), z.along),
    )


def subtract_square(
    inverse: Float[Array, "side side component particle"],
    scale: Float[Array, "component particle"],
    along: Float[Array, "side component particle"],
) -> Float[Array, "side side component particle"]:
    """Return inverse − scale · along alongᵀ, unchanged where every scale is 0.

    The condition makes compilers compute `scale` beforehand. Otherwise they would compute it, with everything it
    depends on, again for each of the (D + 1)² entries.
    """

    def less(inverse: Array, scale: Array, along: Array) -> Array:
        return inverse - (scale * along)[:, None] * along[None]

    return jax.lax.cond((scale != 0).any(), less, lambda inverse, *_: inverse, inverse, scale, along)


def replace_empty(of: Inverses, here: Bool[Array, "component particle"], empty: Inverses) -> Inverses:
    """Return the inverses with those marked by `here` replaced by `empty`."""

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(here, new, old)

    inverse = jax.lax.cond(here.any(), pick, lambda _, old: old, empty.inverse, of.inverse)
    degrees, count, log_determinant = (pick(new, old) for new, old in zip(empty[:-1], of[:-1], strict=True))
    return Inverses(degrees, count, log_determinant, inverse)


def direction_without(z: Direction, times: Float[Array, "component particle"]) -> Direction:
    """Return the direction of z in N − times · zzᵀ, given its direction in N."""
    rest = 1 - times * z.square
    return Direction(z.along / rest, z.square / rest)
