"""Cholesky factors and triangular systems of many small matrices, in plain array operations.

`jax.scipy.linalg` hands a batch of matrices to LAPACK in pieces, on the threads that run the program. If a program has
as many such calls at a time as there are threads (two, on two cores), each call waits for pieces that no thread is left
to compute. The program then never ends (jaxlib up to 0.10; mended in 0.11). A loop over the columns has no such
problem.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.kernels import kernel


@kernel()
def cholesky(matrix: Float[Array, "*element dim dim"]) -> Float[Array, "*element dim dim"]:
    """Return the lower triangular L with LLᵀ = matrix; NaN where the matrix is not positive definite.

    matrix: symmetric.
    """
    matrix = 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))  # makes gradients symmetric too
    rows = jnp.arange(matrix.shape[-1])

    def column(j: Array | int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, factor = state
        below = jnp.where(rows >= j, rest[..., :, j], 0) / jnp.sqrt(rest[..., j, j])[..., None]
        return rest - below[..., :, None] * below[..., None, :], factor.at[..., :, j].set(below)

    return jax.lax.fori_loop(0, len(rows), column, (matrix, jnp.zeros_like(matrix)))[1]


@kernel(static_argnames="transposed")
def solve_lower(
    factor: Float[Array, "*element dim dim"], right: Float[Array, "*element dim column"], transposed: bool = False
) -> Float[Array, "*element dim column"]:
    """Return the X of L X = right, or of Lᵀ X = right if `transposed`, shape (elements…, dim, column).

    factor: L, lower triangular, with zeros above its diagonal.
    """
    n_dims = factor.shape[-1]
    columns = jnp.swapaxes(factor, -1, -2) if transposed else factor

    def row(i: Array | int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, solution = state
        j = n_dims - 1 - i if transposed else i
        found = rest[..., j, :] / factor[..., j, j][..., None]
        return rest - columns[..., :, j][..., None] * found[..., None, :], solution.at[..., j, :].set(found)

    return jax.lax.fori_loop(0, n_dims, row, (right, jnp.zeros_like(right)))[1]


def inverse_from(factor: Float[Array, "*element dim dim"]) -> Float[Array, "*element dim dim"]:
    """Return the symmetric matrix (LLᵀ)⁻¹, (elements…, dim, dim), from the Cholesky factor L."""
    eye = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = solve_lower(factor, eye)
    return jnp.swapaxes(inverse, -1, -2) @ inverse


def log_determinant(factor: Float[Array, "*element dim dim"]) -> Float[Array, "*element"]:
    """Return log |LLᵀ|, the log of the determinant, shape (elements…), from the Cholesky factor L."""
    return 2 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
