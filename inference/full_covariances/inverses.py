"""Inverse matrices of all components and particles, computed once and updated while rows come and go.

A component's Normal–Wishart posterior has ν degrees of freedom, a scale matrix B, a mean m and κ rows, prior included,
in D columns. Its natural parameters (ν − D, B + κmmᵀ, κm, κ) are one matrix and one number, and A is its log
normaliser:

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
    """The posterior of each component's mean and covariance: an inverse matrix and three numbers.

    The matrix N combines scale matrix, mean and number of rows (see the file's docstring).

    | field | meaning | shape |
    |---|---|---|
    | `degrees` | degrees of freedom, prior included | (component, particle) |
    | `count` | number of rows, prior included | (component, particle) |
    | `log_determinant` | log of the determinant of N, nats | (component, particle) |
    | `inverse` | the inverse of N | (side, side, component, particle), side = number of columns + 1 |
    """

    degrees: Float[Array, "*#component #particle"]
    count: Float[Array, "*#component #particle"]
    log_determinant: Float[Array, "*#component #particle"]
    inverse: Float[Array, "side side *#component #particle"]


class Amounts(NamedTuple):
    """The numbers of `Inverses` without the matrix: degrees of freedom, number of rows, and log determinant of N."""

    degrees: Float[Array, "*#component #particle"]
    count: Float[Array, "*#component #particle"]
    log_determinant: Float[Array, "*#component #particle"]


class Direction(NamedTuple):
    """A vector z multiplied by each component's inverse matrix N⁻¹.

    along: N⁻¹z.
    square: zᵀN⁻¹z.
    """

    along: Float[Array, "side *#component #particle"]
    square: Float[Array, "*#component #particle"]


def invert_all(
    matrices: Float[Array, "side side component particle"],
) -> tuple[Float[Array, "side side component particle"], Float[Array, "component particle"]]:
    """Return the inverse and the log determinant (nats) of symmetric positive definite matrices, by Gauss–Jordan steps.

    The log determinant is NaN where a matrix is not positive definite.
    """
    places = jnp.arange(len(matrices))

    def sweep_pivot(pivot_index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        """Make the Gauss–Jordan step of one pivot."""
        rest, log_determinant = carry
        column = rest[pivot_index]
        pivot = column[pivot_index]
        scaled = column / pivot
        is_pivot = (places == pivot_index)[:, None, None]
        others = rest - column[:, None] * scaled[None]
        both = jnp.where(
            is_pivot[:, None] & is_pivot[None], -1 / pivot, jnp.where(is_pivot[:, None], scaled[None], scaled[:, None])
        )
        return jnp.where(is_pivot[:, None] | is_pivot[None], both, others), log_determinant + jnp.log(pivot)

    begin = matrices, jnp.zeros(matrices.shape[2:], matrices.dtype)
    negative, log_determinant = jax.lax.fori_loop(0, len(matrices), sweep_pivot, begin)
    return -negative, log_determinant


def direction(inverses: Inverses, z: Float[Array, "side *particle"]) -> Direction:
    """Return the products of the vector z with each component's inverse matrix.

    inverses: the components' inverses.
    z: the vector, the same for all components and particles, or one of each particle.
    """
    if z.ndim > 1:
        along = jnp.einsum("sp,stkp->tkp", z, inverses.inverse)
        return Direction(along, jnp.einsum("tp,tkp->kp", z, along))
    along = jnp.tensordot(z, inverses.inverse, 1)
    return Direction(along, jnp.tensordot(z, along, 1))


def update_amounts(
    amounts: Amounts, square: Float[Array, "*#component particle"], times: Array, degrees: Array
) -> Amounts:
    """Return the amounts after `times` · zzᵀ is added to each component's matrix (see `add_square`).

    square: zᵀN⁻¹z.
    times: how often it is added, negative where it is removed; the number of rows grows by as much.
    degrees: added to the degrees of freedom.
    """
    log_determinant = amounts.log_determinant + jnp.log1p(times * square)
    return Amounts(amounts.degrees + degrees, amounts.count + times, log_determinant)


def add_square(
    inverses: Inverses,
    z: Direction,
    times: Float[Array, "component particle"],
    degrees: Float[Array, "component particle"],
    count: Float[Array, "component particle"],
) -> Inverses:
    """Return the inverses after `times` · zzᵀ is added to each component's matrix.

    It uses the formula of Sherman & Morrison.

    inverses: the components' inverses before.
    z: the vector's products with these inverses.
    times: how often it is added; negative where it is removed.
    degrees: added to the degrees of freedom.
    count: added to the number of rows. That number is also an entry of the matrix, which `times` already changes.
    """
    return Inverses(
        inverses.degrees + degrees,
        inverses.count + count,
        inverses.log_determinant + jnp.log1p(times * z.square),
        subtract_square(inverses.inverse, times / (1 + times * z.square), z.along),
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

    return jax.lax.cond(
        (scale != 0).any(), lambda i, s, a: i - (s * a)[:, None] * a[None], lambda i, *_: i, inverse, scale, along
    )


def replace_empty(inverses: Inverses, is_empty: Bool[Array, "component particle"], empty: Inverses) -> Inverses:
    """Return the inverses with those marked by `is_empty` replaced by `empty`."""

    def pick(new: Array, old: Array) -> Array:
        """Return the new number where a component is empty, else the old one."""
        return jnp.where(is_empty, new, old)

    inverse = replace_inverses(inverses.inverse, is_empty, empty.inverse)
    degrees, count, log_determinant = (pick(new, old) for new, old in zip(empty[:-1], inverses[:-1], strict=True))
    return Inverses(degrees, count, log_determinant, inverse)


def replace_inverses(
    inverse: Float[Array, "side side component particle"],
    is_empty: Bool[Array, "component particle"],
    empty: Float[Array, "side side #component #particle"],
) -> Float[Array, "side side component particle"]:
    """Return the inverse matrices with `empty` in place of those marked by `is_empty`."""
    return jax.lax.cond(
        is_empty.any(), lambda old, new: jnp.where(is_empty, new, old), lambda old, _: old, inverse, empty
    )
