"""The family of paths against enumeration of all of them."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from lvsearch.models.families import MarkovChain, MarkovChainStatistics

ROWS, STATES = 4, 3
RNG = np.random.default_rng(0)
NATURAL = MarkovChainStatistics(RNG.normal(size=(2, ROWS, STATES)), RNG.normal(size=(2, ROWS, STATES, STATES)))
FAMILY = MarkovChain()
PATHS = list(product(range(STATES), repeat=ROWS))


def heights(natural: MarkovChainStatistics) -> np.ndarray:
    """log-potential of every path in `PATHS`, one element."""
    return np.array(
        [
            sum(natural.state[t, k] for t, k in enumerate(path))
            + sum(natural.step[t, path[t - 1], path[t]] for t in range(1, ROWS))
            for path in PATHS
        ]
    )


@jax.jit
def everything(natural: MarkovChainStatistics, mask: np.ndarray) -> tuple:
    """Log-normaliser, entropy, mean, a draw and the mode."""
    drawn = FAMILY.sample(jax.random.key(0), natural, mask)
    of_mean = FAMILY.log_normaliser(natural, mask), FAMILY.entropy(natural, mask), FAMILY.mean(natural, mask)
    return *of_mean, drawn, FAMILY.mode(natural, mask)


def element(index: int) -> MarkovChainStatistics:
    return MarkovChainStatistics(NATURAL.state[index], NATURAL.step[index])


@pytest.fixture(autouse=True)
def in_float64(float64: None) -> None:
    """As the engines' recorded numbers."""


@pytest.mark.thorough
def test_normaliser_mean_entropy_and_mode_are_those_of_all_paths():
    total, mean, entropy, best = jax.jit(
        lambda eta: (FAMILY.log_normaliser(eta), FAMILY.mean(eta), FAMILY.entropy(eta), FAMILY.value(FAMILY.mode(eta)))
    )(NATURAL)
    for index in range(2):
        log = heights(element(index))
        share = np.exp(log - logsumexp(log))
        np.testing.assert_allclose(total[index], logsumexp(log), rtol=1e-12)
        np.testing.assert_allclose(entropy[index], -(share * np.log(share)).sum(), rtol=1e-10)
        assert tuple(np.asarray(best[index])) == PATHS[int(np.argmax(log))]
        state, step = np.zeros((ROWS, STATES)), np.zeros((ROWS, STATES, STATES))
        for path, p in zip(PATHS, share, strict=True):
            for t, k in enumerate(path):
                state[t, k] += p
                if t:
                    step[t, path[t - 1], k] += p
        np.testing.assert_allclose(mean.state[index], state, atol=1e-12)
        np.testing.assert_allclose(mean.step[index], step, atol=1e-12)


@pytest.mark.slow
def test_natural_parameters_of_a_mean_have_it():
    mean = FAMILY.mean(NATURAL)
    back = FAMILY.natural(mean)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), FAMILY.mean(back), mean)
    np.testing.assert_allclose(FAMILY.log_normaliser(back), 0, atol=1e-12)


@pytest.mark.thorough
def test_what_does_not_exist_adds_exactly_nothing():
    """More rows and states, whatever they hold; and a chain without rows."""
    wide = MarkovChainStatistics(
        RNG.normal(size=(ROWS + 2, STATES + 1)), RNG.normal(size=(ROWS + 2, *[STATES + 1] * 2))
    )
    small = MarkovChainStatistics(wide.state[:ROWS, :STATES], wide.step[:ROWS, :STATES, :STATES])
    mask = np.zeros(wide.step.shape, bool)
    mask[:ROWS, :STATES, :STATES] = True
    total, entropy, mean, *drawn = everything(wide, mask)
    alone = everything(small, np.ones(small.step.shape, bool))
    np.testing.assert_allclose((total, entropy), alone[:2], rtol=1e-13)
    np.testing.assert_allclose(mean.step[:ROWS, :STATES, :STATES], alone[2].step, rtol=1e-13)
    for statistics in (mean, *drawn):
        assert np.all(statistics.state[ROWS:] == 0)
        assert np.all(statistics.state[:, STATES:] == 0)
        assert np.all(np.asarray(statistics.step)[~mask] == 0)
        np.testing.assert_allclose((statistics.state.sum(), statistics.step.sum()), (ROWS, ROWS - 1))
    nothing = everything(wide, np.zeros_like(mask))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(nothing))


@pytest.mark.slow
def test_draws_have_the_mean_and_counts_are_averages_of_draws():
    draw = jax.jit(jax.vmap(lambda key: FAMILY.sample(key, element(0))))
    many = draw(jax.random.split(jax.random.key(0), 4000))
    mean = FAMILY.mean(element(0))
    for drawn, expected in zip(many, mean, strict=True):
        error = np.sqrt(np.asarray(expected) * (1 - np.asarray(expected)) / 4000)
        assert np.all(np.abs(drawn.mean(0) - expected) <= 5 * error + 1e-12)
    copies = np.array([3.0, 0.0])
    counts = FAMILY.sample_counts(jax.random.key(1), NATURAL, copies)
    np.testing.assert_allclose(counts.state.sum((1, 2)), [ROWS, 0])
    assert np.all(
        np.isclose(np.asarray(counts.state[0] * 3) % 1, 0, atol=1e-9) | np.isclose(counts.state[0] * 3 % 1, 1)
    )


@pytest.mark.slow
def test_numpyro_knows_the_same_paths():
    paths = np.array([PATHS[7], PATHS[60]])
    log = [
        heights(element(i))[PATHS.index(tuple(path))] - logsumexp(heights(element(i))) for i, path in enumerate(paths)
    ]
    distribution = FAMILY.to_numpyro(jax.tree.map(jnp.asarray, NATURAL))
    np.testing.assert_allclose(distribution.log_prob(paths), log, rtol=1e-12)
    assert distribution.sample(jax.random.key(0), (5,)).shape == (5, 2, ROWS)
