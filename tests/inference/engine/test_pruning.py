"""Fits that begin with too many components: they find planted features where one random start does not."""

import jax
import numpy as np
import pytest

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.engine.estimator import GenericEstimator, estimator
from lvsearch.inference.engine.meanfield import ascend, bound, cast
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.engine.pruning import PruningEstimator, refit_units, without_component

MODEL = lv.models.IBP()
SIZE = (4,)
CAPACITY = capacity_of(SIZE)


@pytest.fixture(scope="module")
def data():
    """Eighty rows, each the sum of those of six features that it has, with noise."""
    random = np.random.default_rng(0)
    features = random.random((80, 6)) < 0.4
    rows = features @ random.normal(size=(6, 20)) + 0.3 * random.normal(size=(80, 20))
    return data_for(MODEL, rows).dataset()


@pytest.fixture(scope="module")
def fitted(data):
    begin = scattered_start(MODEL, jax.random.key(1), data, SIZE, CAPACITY)
    return ascend(MODEL, data, begin, SIZE, capacity=CAPACITY, sweeps=20)


def test_fits_find_what_one_random_start_misses(data):
    """A start that ends 600 nats lower."""
    assert type(estimator(MODEL, data)) is PruningEstimator
    key = jax.random.key(0)
    single, pruned = (kind(MODEL, data).fit((6,), key, None).log_lower for kind in (GenericEstimator, PruningEstimator))
    assert pruned > single + 100


def test_a_smaller_fit_is_one_of_the_starts(data):
    smaller = PruningEstimator(MODEL, data).fit((2,), jax.random.key(0), None)
    larger = PruningEstimator(MODEL, data).fit((3,), jax.random.key(0), smaller)
    assert larger.log_lower > smaller.log_lower
    assert larger.natural["sticks"][0].shape == (3,)
    assert PruningEstimator(MODEL, data).fit((1,), jax.random.key(0), None).size == (1,)


def test_units_fitted_anew_never_lower_the_bound(data, fitted):
    def value(fit):
        return bound(MODEL, cast(data, np.float32).batches, fit.beliefs, fit.locals, SIZE, capacity=CAPACITY)

    assert value(refit_units(MODEL, data, fitted, SIZE, CAPACITY)) >= value(fitted) - 1e-3
    # each row with the features of the next one
    wrong = fitted._replace(locals=jax.tree.map(lambda leaf: np.roll(leaf, 1, axis=0), fitted.locals))
    assert value(refit_units(MODEL, data, wrong, SIZE, CAPACITY)) > value(wrong) + 100


def test_a_component_without_effect_is_removed_without_a_trace(data, fitted):
    """The others keep their numbers, in their order, and the place behind them is empty."""
    fewer = without_component(MODEL, fitted, 1, SIZE, CAPACITY)
    kept = np.array([0, 2, 3])
    for name, axis in (("loadings", 0), ("sticks", 0)):
        for old, new in zip(
            jax.tree.leaves(fitted.beliefs.natural[name]), jax.tree.leaves(fewer.beliefs.natural[name]), strict=True
        ):
            np.testing.assert_array_equal(np.asarray(new).take(range(3), axis), np.asarray(old).take(kept, axis))
            assert not np.asarray(new).take(range(3, CAPACITY[0]), axis).any()
    for old, new in zip(jax.tree.leaves(fitted.locals), jax.tree.leaves(fewer.locals), strict=True):
        np.testing.assert_array_equal(new[:, :3], np.asarray(old)[:, kept])
        assert not new[:, 3:].any()
    assert fewer.trace == ()
    again = ascend(MODEL, data, fewer, (3,), capacity=CAPACITY, sweeps=30)
    assert np.all(np.diff(again.trace) > -1e-2)
