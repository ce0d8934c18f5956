"""Inverses that are kept, against factors of every matrix: the same draws of the same keys, densities to rounding.

What the chain of any mixture draws is tested against all labellings (`test_evidence_mixtures.py`); here its labels, its
hyper-parameters and its evidence are the oracle.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import pytest

from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.evidence import CollapsedMixtureChain, HyperMixture, evidence_chain
from lvsearch.inference.evidence.mixtures import anchor_labels
from lvsearch.inference.full_covariances import FullCovarianceChain, HyperFullCovariances
from lvsearch.inference.full_covariances.inverses import Inverses, add_square, direction, invert_all
from lvsearch.models import FiniteMixture
from lvsearch.models.components import Component, FullCovarianceComponents, StudentComponents

pytestmark = pytest.mark.usefixtures("float64")
SIZE, PARTICLES = 3, 16


@cache
def rows() -> np.ndarray:
    """Three columns that depend on each other, 17 rows in two groups, one of them unknown."""
    rng = np.random.default_rng(0)
    near = rng.standard_normal((9, 3)) @ rng.standard_normal((3, 3))
    both = np.concatenate([near, 3 + rng.standard_normal((8, 3))])
    return np.where(np.arange(17)[:, None] == 4, np.nan, both)


def component(inferred: bool, variants: bool) -> Component:
    known = rows()[~np.isnan(rows()).any(1)]
    kind = FullCovarianceComponents.weak(known) if inferred else FullCovarianceComponents.scaled_to(known)
    return StudentComponents(kind) if variants else kind


def chains(inferred: bool, variants: bool) -> tuple[Any, Any]:
    """(With inverses, as of any mixture)"""
    model, data = FiniteMixture(component(inferred, variants)), mixture_cases.dataset(rows())
    own = evidence_chain(model, data, (SIZE,), None)
    kind = HyperMixture if inferred else CollapsedMixtureChain
    assert type(own) is (HyperFullCovariances if inferred else FullCovarianceChain)
    return own, kind.from_data(model, data, SIZE, own.capacity)


ALL, PLAIN = (True, True), (False, False)
SLOW = pytest.mark.slow


def test_changes_are_those_of_the_matrix():
    """Inverse and determinant after a row comes and another leaves, of 4 × 5 matrices, by NumPy."""
    rng = np.random.default_rng(1)
    roots, z, other = rng.standard_normal((4, 5, 6, 6)), rng.standard_normal(6), rng.standard_normal(6)
    matrices = np.eye(6) + roots @ np.swapaxes(roots, -1, -2) + 2 * np.outer(other, other)
    inverse, log_determinant = invert_all(jnp.moveaxis(jnp.asarray(matrices), (0, 1), (2, 3)))
    np.testing.assert_allclose(np.moveaxis(inverse, (2, 3), (0, 1)), np.linalg.inv(matrices), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrices)[1], rtol=1e-12)
    times = jnp.asarray(rng.uniform(0.5, 2, (4, 5)))
    of = Inverses(jnp.full((4, 5), 7.0), jnp.asarray(matrices[..., -1, -1]), log_determinant, inverse)
    of = add_square(of, direction(of, jnp.asarray(z)), times, jnp.ones((4, 5)), times * z[-1] ** 2)
    of = add_square(of, direction(of, jnp.asarray(other)), -times, -jnp.ones((4, 5)), -times * other[-1] ** 2)
    after = matrices + times[..., None, None] * (np.outer(z, z) - np.outer(other, other))
    np.testing.assert_allclose(np.moveaxis(of.inverse, (2, 3), (0, 1)), np.linalg.inv(after), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(of.log_determinant, np.linalg.slogdet(after)[1], rtol=1e-10)
    np.testing.assert_allclose(of.count, after[..., -1, -1], rtol=1e-12)
    assert np.isnan(invert_all(-jnp.asarray(matrices[0, 0])[:, :, None, None])[1]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, pytest.param(True, marks=SLOW)])
@pytest.mark.parametrize(
    ("inferred", "variants"), [(True, False), *(pytest.param(*each, marks=SLOW) for each in (ALL, PLAIN))]
)
def test_sweeps_are_those_of_any_mixture(inferred, variants, backward):
    """First draws, densities, labels and hyper-parameters after a sweep; that at another temperature is another."""

    @jax.jit
    def swept(chain: Any, key: Any, temperature: Any) -> Any:
        state = chain.step(key, chain.init(jax.random.key(0), PARTICLES), temperature, backward=backward)
        return state.labels, getattr(state, "log_hyper", {}), chain.log_ratio(state), chain.log_density(state)

    both = chains(inferred, variants)
    for temperature in (0.3, 1.0):
        one, other = (swept(chain, jax.random.key(5), temperature) for chain in both)
        np.testing.assert_array_equal(one[0], other[0])
        jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-9), one[1:], other[1:])
    other = swept(both[1], jax.random.key(5), 0.3)
    assert (np.asarray(one[0]) != np.asarray(other[0])).any()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inferred", "variants"), [(False, True), *(pytest.param(*each, marks=SLOW) for each in (PLAIN, ALL))]
)
def test_paths_along_the_rows_are_those_of_any_mixture(inferred, variants):
    found = []
    for chain in chains(inferred, variants):
        sampler = sequential(chain, jax.random.key(3))
        assert sampler is not None
        there = grow(sampler, jax.random.key(1), 3, islands=2, particles=8)
        back = shrink(sampler, jax.random.key(2), there.state, 3, islands=2)
        found.append((np.asarray(there.state.labels), there.log_evidence, back.log_evidence))
    one, other = found
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-8), one, other)
    assert np.ptp(one[1][-1]) > 0  # islands differ


@pytest.mark.slow
@pytest.mark.parametrize(("inferred", "variants"), [ALL, PLAIN])
def test_a_second_path_begins_where_that_of_any_mixture_does(inferred, variants):
    """Where particles settle that began at the same labels, and how often each row was where."""
    found = []
    for chain in chains(inferred, variants):
        states = [jax.jit(type(chain).init, static_argnums=2)(chain, jax.random.key(i), PARTICLES) for i in (1, 2)]
        log_q, state = anchor_labels(chain, jax.random.key(4), states)
        found.append((log_q, getattr(state, "mixture", state).labels))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-8), *found)


@pytest.mark.thorough
def test_components_that_lose_their_rows_are_as_new():
    """A row far out is alone in a component and leaves: nothing of it remains, however small the prior's spread."""
    values = np.array([[0.0, 0.1], [0.2, -0.1], [-0.1, 0.3], [1e4, -2e4]])
    model = FiniteMixture(FullCovarianceComponents(spread=1e-6))
    chain = FullCovarianceChain.from_data(model, mixture_cases.dataset(values), 2, 2)
    labels = jnp.zeros((len(chain.weight), 1), jnp.int32).at[3].set(1)
    left = jax.jit(FullCovarianceChain.remove_row)(chain, chain.state_from_labels(labels), jnp.asarray(3), chain.prior)
    empty = chain.state_from_labels(jnp.full_like(labels, -1)).natural
    for leaf, fresh in zip(left.natural, empty, strict=True):
        np.testing.assert_array_equal(leaf[..., 1, :], fresh[..., 1, :])
    assert not np.array_equal(left.natural.inverse[..., 0, :], empty.inverse[..., 0, :])
