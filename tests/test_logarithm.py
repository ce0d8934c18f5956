"""The logarithm in float64: to its last place, at its ends, under derivatives, and off the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from scipy.special import digamma, gammaln

from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.exponential.logarithm import MANY, log_positive

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("widest", [1e-6, 1.0, 700.0])
def test_it_is_the_logarithm_within_a_unit_of_the_last_place(widest):
    x = np.exp(np.random.default_rng(0).uniform(-widest, widest, 100_000))
    found, known = np.asarray(jax.jit(log_positive)(x)), np.log(x)
    assert np.max(np.abs(found - known) / np.spacing(np.abs(known))) <= 1.0


def test_its_ends_are_those_of_the_logarithm():
    x = np.repeat([0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 1.0, 2.0**-1022, np.finfo(float).max], MANY)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_array_equal(log_positive(x), np.log(x))


def test_derivatives_of_all_orders():
    for order, known in ((1, 1 / 3.0), (2, -1 / 9.0), (3, 2 / 27.0)):
        derivative = log_positive
        for _ in range(order):
            derivative = jax.grad(derivative)
        assert float(derivative(3.0)) == pytest.approx(known, rel=1e-14)


def test_float32_is_the_library_s():
    x = jnp.asarray([0.1, 3.0, 1e20], jnp.float32)
    assert log_positive(x).dtype == jnp.float32
    np.testing.assert_array_equal(log_positive(x), jnp.log(x))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_devices_take_their_own(platform):
    text = export.export(jax.jit(log_positive), platforms=[platform])(jnp.ones(MANY)).mlir_module()
    assert "stablehlo.log" in text
    assert "bitcast_convert" not in text


def test_few_numbers_are_not_worth_a_larger_program():
    few, many = (jax.jit(log_positive).lower(jnp.ones(n)).as_text() for n in (MANY - 1, MANY))
    assert "bitcast_convert" not in few
    assert "bitcast_convert" in many


def test_log_gamma_far_out_and_close_in():
    x = np.exp(np.random.default_rng(1).uniform(-200, 200, 20_000))
    known = gammaln(x)
    assert np.max(np.abs(jax.jit(log_gamma_positive)(x) - known) / np.maximum(1, np.abs(known))) < 1e-11
    slope = jax.jit(jax.vmap(jax.grad(log_gamma_positive)))(x)
    assert np.max(np.abs(slope - digamma(x)) / np.maximum(1, np.abs(digamma(x)))) < 1e-11
    assert float(log_gamma_positive(0.0)) == np.inf
