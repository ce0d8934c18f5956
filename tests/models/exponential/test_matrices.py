"""Factors and triangular systems of many small matrices, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvsearch.models.exponential.matrices import cholesky, inverse_from, log_determinant, solve_lower
from lvsearch.models.families import NormalWishart, NormalWishartStatistics


def positive(n_dims: int, seed: int = 0) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((2, 3, n_dims, n_dims + 2))
    return root @ np.swapaxes(root, -1, -2)


@pytest.mark.thorough
@pytest.mark.parametrize("n_dims", [1, 2, 7])
def test_they_are_numpys(float64, n_dims):
    matrix = positive(n_dims)
    right = np.random.default_rng(1).standard_normal((2, 3, n_dims, 4))
    factor = cholesky(jnp.asarray(matrix))
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-12)
    np.testing.assert_allclose(solve_lower(factor, jnp.asarray(right)), np.linalg.solve(factor, right), atol=1e-9)
    np.testing.assert_allclose(
        solve_lower(factor, jnp.asarray(right), transposed=True),
        np.linalg.solve(np.swapaxes(factor, -1, -2), right),
        atol=1e-9,
    )
    np.testing.assert_allclose(inverse_from(factor), np.linalg.inv(matrix), atol=1e-9)
    np.testing.assert_allclose(log_determinant(factor), np.linalg.slogdet(matrix)[1], rtol=1e-12)


def test_the_gradient_of_the_log_determinant_is_the_inverse(float64):
    matrix = jnp.asarray(positive(5)[0])
    gradient = jax.grad(lambda a: log_determinant(cholesky(a)).sum())(matrix)
    np.testing.assert_allclose(gradient, np.linalg.inv(matrix), rtol=1e-8, atol=1e-10)


def test_what_is_not_positive_definite_has_no_factor():
    assert np.isnan(cholesky(jnp.asarray([[1.0, 2.0], [2.0, 1.0]]))).any()


def test_the_normal_wishart_makes_no_call_that_could_wait_for_its_own_threads():
    """Batches of LAPACK calls can stop for ever: see `matrices.py`."""
    family = NormalWishart()
    natural = NormalWishartStatistics(jnp.ones(3), 2.0 * jnp.stack([jnp.eye(2)] * 3), jnp.zeros((3, 2)), jnp.ones(3))

    def everything(key, natural):
        mean = family.mean(natural)
        drawn = family.sample(key, natural)
        return mean, drawn, family.natural(mean), family.point(natural), family.value(drawn)

    program = jax.jit(everything).lower(jax.random.key(0), natural).as_text()
    assert "while" in program
    assert "lapack" not in program
