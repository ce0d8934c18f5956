"""Chains over the features of rows: against enumeration of all feature matrices, against the model itself, and on
planted features.
"""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import Compiled
from scipy import special, stats

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.allocation_chains import (
    AllocationState,
    FeatureChain,
    advance,
    allocation_chain,
    run_chains,
    run_one_more_block,
)
from lvsearch.inference.allocation_chains.feature_rows import FeatureData, FeatureParameters, log_feature_prior
from lvsearch.inference.allocation_chains.features import propose_exclusive_or
from lvsearch.inference.features.marginal import log_marginal
from lvsearch.models.hyperpriors import GammaPrior

SIZES = np.log([0.2, 0.5, 0.3])
ROWS = np.array([[1.3, -0.4], [1.1, 0.2], [-0.7, 0.9], [0.1, np.nan]])
NUMBERS = {"concentration": 1.5, "loading_precision": 0.7, "noise_precision": 3.0}


def parameters(n_features=3.0, **numbers):
    numbers = {**NUMBERS, **numbers}
    exact = (numbers["noise_precision"], numbers["loading_precision"], numbers["concentration"] / n_features)
    return FeatureParameters(*(jnp.asarray(each) for each in (*exact, n_features)))


def by_enumeration(values, observed, concentrations, weights):
    """Return (p(K | rows), p(number of features in use | rows)), from the sum over all feature matrices.

    concentrations, weights: values of α and their probabilities.
    """
    n_rows, sizes = len(values), np.exp(SIZES)
    of_size, in_use = np.zeros(len(sizes)), np.zeros(len(sizes) + 1)
    sigma = (NUMBERS["noise_precision"] ** -0.5, NUMBERS["loading_precision"] ** -0.5)
    for size in range(1, len(sizes) + 1):
        for cells in product([0, 1], repeat=n_rows * size):
            features = np.array(cells).reshape(n_rows, size)
            counts = features.sum(0)
            sticks = concentrations / size
            log_prior = sum(
                np.log(sticks) + special.betaln(count + sticks, n_rows - count + 1) for count in counts
            )  # a Beta–Bernoulli integral for each feature
            likelihood = np.exp(log_marginal(values, features, *sigma, observed))
            weight = sizes[size - 1] * float(weights @ np.exp(log_prior)) * likelihood
            of_size[size - 1] += weight
            in_use[(counts > 0).sum()] += weight
    return of_size / of_size.sum(), in_use / in_use.sum()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("prior", "precision"),
    [
        pytest.param(None, 0.01, id="given"),
        pytest.param(None, 0.004, id="given-precisely", marks=pytest.mark.slow),
        pytest.param(GammaPrior(2.0, 1.5), 0.004, id="drawn", marks=pytest.mark.slow),
    ],
)
def test_agrees_with_enumeration(prior, precision):
    model = lv.models.IBP(**{**NUMBERS, **({} if prior is None else {"concentration": prior})})
    points, weights = (np.array([NUMBERS["concentration"]]), np.ones(1))
    if prior is not None:
        quantile = (np.arange(200) + 0.5) / 200
        points, weights = stats.gamma.ppf(quantile, prior.shape, scale=1 / prior.rate), np.full(200, 1 / 200)
    observed = np.isfinite(ROWS)
    expected_sizes, expected_in_use = by_enumeration(np.where(observed, ROWS, 0.0), observed, points, weights)
    data = lv.Points.from_array(ROWS, missing="nan").dataset()
    trace = run_chains(
        lambda places: allocation_chain(model, data, SIZES, places),
        jax.random.key(0),
        precision=precision,
        most_sweeps=8192,
    )
    probability, error = trace.sizes()
    assert np.all(np.abs(probability - expected_sizes) < 4 * error), (probability, expected_sizes, error)
    numbers = np.arange(len(expected_in_use))
    visited = (trace.parts[0, ..., None] == numbers).mean(1)
    error = visited.std(0, ddof=1) / np.sqrt(len(visited))
    assert np.all(np.abs(visited.mean(0) - expected_in_use) < 4 * error + 1e-3), (visited.mean(0), expected_in_use)


def test_likelihood_and_prior_agree_with_the_plain_form():
    rng = np.random.default_rng(0)
    observed = rng.random((7, 5)) < 0.8
    values, features = rng.normal(size=(7, 5)), np.pad((rng.random((7, 3)) < 0.5) * 1.0, ((0, 0), (0, 2)))
    with jax.enable_x64(True):
        rows = FeatureData.of(values, observed)
        found = float(Compiled(rows).log_marginal(features, parameters()))
        prior_of = jax.jit(log_feature_prior, static_argnums=3)
        prior = float(prior_of(features.sum(0), 0.4, 3.0, 7))
        assert prior_of(features.sum(0), 0.4, 2.0, 7) == -np.inf
    sigma = (NUMBERS["noise_precision"] ** -0.5, NUMBERS["loading_precision"] ** -0.5)
    assert np.isclose(found, log_marginal(np.where(observed, values, 0.0), features, *sigma, observed), rtol=1e-10)
    expected = sum(np.log(0.4) + special.betaln(count + 0.4, 8 - count) for count in features[:, :3].sum(0))
    assert np.isclose(prior, expected, rtol=1e-10)


def test_rows_that_leave_and_come_back_change_nothing():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        rows = Compiled(FeatureData.of(rng.normal(size=(6, 4)), rng.random((6, 4)) < 0.7))
        features, row = (rng.random((6, 3)) < 0.5) * 1.0, jnp.asarray(2)
        tables = rows.tables(jnp.asarray(features), parameters())
        without = rows.remove_row(tables, row, features[2])
        fresh = rows.tables(jnp.asarray(np.where(np.arange(6)[:, None] == 2, 0.0, features)), parameters())
        again = rows.add_row(without, row, features[2])
    # a row without features says nothing about the loadings
    for one, other in zip(jax.tree.leaves(without), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(tables), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.slow
def test_alternating_with_draws_of_the_data_leaves_the_prior_unchanged():
    """Geweke's test: steps of the chain and draws of the rows in turn draw from the joint distribution."""
    priors = {
        "concentration": GammaPrior(3.0, 2.0),
        "loading_precision": GammaPrior(4.0, 3.0),
        "noise_precision": GammaPrior(5.0, 2.0),
    }
    n_rows, n_columns, n_chains, n_steps = 3, 2, 64, 1500
    observed = np.array([[True, True], [True, False], [True, True]])

    @jax.jit
    def run(key):
        chain = FeatureChain(FeatureData.of(np.zeros((n_rows, n_columns)), observed), SIZES, {}, priors, 8)

        def one(carry, index):
            state, values = carry
            keys = jax.random.split(jax.random.fold_in(key, index), n_chains)

            def move(key, features, log_hyper, values):
                key_step, key_loadings, key_noise = jax.random.split(key, 3)
                own = eqx.tree_at(lambda c: c.rows.values, chain, values)
                features, log_hyper = own._step_one(key_step, features, log_hyper)
                numbers = {name: jnp.exp(each[0]) for name, each in log_hyper.items()}
                loadings = own.rows.draw_loadings(key_loadings, features, parameters(**numbers))
                noise = jax.random.normal(key_noise, values.shape) / jnp.sqrt(numbers["noise_precision"])
                return features, log_hyper, (features @ loadings + noise) * observed

            features, log_hyper, values = jax.vmap(move, (0, 0, 1, 0), (0, 1, 0))(keys, *state, values)
            used = (features.sum(1) > 0.5).sum(1)
            seen = (used, *(log_hyper[name][0] for name in priors))
            return ((features, log_hyper), values), seen

        log_hyper = chain.init(jax.random.fold_in(key, n_steps), n_chains).log_hyper
        begin = ((jnp.zeros((n_chains, n_rows, 8)), log_hyper), jnp.zeros((n_chains, n_rows, n_columns)))
        return jax.lax.scan(one, begin, jnp.arange(n_steps))[1]

    with jax.enable_x64(True):
        used, *logs = (np.asarray(each)[100:] for each in run(jax.random.key(3)))

    rng = np.random.default_rng(0)
    size = 1 + rng.choice(3, p=np.exp(SIZES), size=400_000)
    alpha = rng.gamma(3.0, 1 / 2.0, len(size))
    has = rng.random((len(size), n_rows, 3)) < (rng.beta(alpha / size, 1.0, (3, len(size))).T)[:, None]
    has &= np.arange(3) < size[:, None, None]
    in_use = has.any(1).sum(1)
    rate = rng.gamma(4.0, 1 / 3.0, len(size)), rng.gamma(5.0, 1 / 2.0, len(size))
    expected = {"in use": in_use, "one in use": in_use == 1}
    expected |= {"α": np.log(alpha), "λ_A": np.log(rate[0]), "λ_x": np.log(rate[1])}
    found = {"in use": used, "one in use": used == 1, "α": logs[0], "λ_A": logs[1], "λ_x": logs[2]}
    for name, draws in found.items():
        of_chain = draws.mean(0)
        z = (of_chain.mean() - expected[name].mean()) / (of_chain.std(ddof=1) / np.sqrt(n_chains))
        assert abs(z) < 4, (name, z)


def planted(n_rows, n_columns, n_features, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    features = rng.random((n_rows, n_features)) < 0.3
    loadings = rng.normal(size=(n_features, n_columns))
    return features, features @ loadings + noise * rng.normal(size=(n_rows, n_columns))


@pytest.mark.slow
def test_the_warm_up_finds_planted_features():
    """In 64 moves of the warm-up most chains come to the six features of the data."""
    features, rows = planted(60, 15, 6)
    model = lv.models.IBP()
    with jax.enable_x64(True):
        chain = allocation_chain(model, data_for(model, rows).dataset(), np.log(np.full(16, 1 / 16)), 8)
        state = chain.init(jax.random.key(0), 8)
        for block in range(2):
            state, *_ = advance(chain, jax.random.key(block), state, warming_up=True)
        assert ((np.asarray(chain.counts(state.labels)) > 0).sum(0) == 6).sum() >= 6
        best = int(np.argmax(np.asarray(chain.log_posterior(state))))
    found = np.asarray(state.labels)[:, :, best]
    found = found[:, found.any(0)]
    apart = np.abs(found[:, :, None] - features[:, None].astype(float)).mean(0)  # share of rows, (found, planted)
    assert apart.min(0).max() < 0.05


@pytest.mark.thorough
def test_chains_far_below_the_best_go_on_from_another():
    model = lv.models.IBP()
    features, rows = planted(60, 15, 6)
    with jax.enable_x64(True):
        chain = allocation_chain(model, data_for(model, rows).dataset(), np.zeros(16), 16)
        begin = jax.jit(lambda chain, key: chain.init(key, 3))(chain, jax.random.key(0))
        labels = np.array(begin.labels)
        labels[:, :6, 0] = labels[:, :6, 1] = features
        labels[0, 0, 1] ^= 1  # one wrong cell costs a few nats, not twenty
        labels[:, :6, 2] = np.random.default_rng(0).random((60, 6)) < 0.5
        log_hyper = {name: jnp.zeros((1, 3)) for name in begin.log_hyper}
        after = Compiled(chain).end_warm_up(
            jax.random.key(1), AllocationState(jnp.asarray(labels), log_hyper, begin.log_rows)
        )
    after = np.asarray(after.labels)
    np.testing.assert_array_equal(after[..., :2], labels[..., :2])
    assert any(np.array_equal(after[..., 2], labels[..., each]) for each in (0, 1))


def test_places_are_added_without_a_change_of_features():
    model = lv.models.IBP()
    _, rows = planted(30, 6, 3)
    data = data_for(model, rows).dataset()
    with jax.enable_x64(True):
        narrow, wide = (allocation_chain(model, data, np.zeros(40), places) for places in (8, 16))
        state = narrow.init(jax.random.key(0), 4)
        labels = np.array(state.labels)
        labels[:3, :2] = 1
        wider = wide.resume(labels, {name: np.array(each) for name, each in state.log_hyper.items()})
    assert wider.labels.shape == (30, 16, 4)
    np.testing.assert_array_equal(np.asarray(wider.labels)[:, :8], labels)
    assert not np.asarray(wider.labels)[:, 8:].any()


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_bit():
    model = lv.models.IBP()
    _, rows = planted(12, 3, 2)
    data = data_for(model, rows).dataset()

    def make(places: int | None):
        return allocation_chain(model, data, SIZES, places)

    run = None
    for _ in range(5):
        run = run_one_more_block(make, jax.random.key(0), run, precision=0.1, chains=4)
    again = None
    for _ in range(3):
        again = run_one_more_block(make, jax.random.key(0), again, precision=0.1, chains=4)
    restored = again._replace(log_hyper={name: np.array(each) for name, each in again.log_hyper.items()})
    for _ in range(2):
        restored = run_one_more_block(make, jax.random.key(0), restored, precision=0.1, chains=4)
    for one, other in zip(jax.tree.leaves(run), jax.tree.leaves(restored), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_nothing_of_a_warm_up_is_recorded():
    model = lv.models.IBP()
    _, rows = planted(60, 15, 6)
    data, run = data_for(model, rows).dataset(), None
    for block in range(1, 4):
        run = run_one_more_block(
            lambda places: allocation_chain(model, data, np.log(np.full(16, 1 / 16)), places),
            jax.random.key(0),
            run,
            precision=0.1,
            chains=8,
        )
        assert (run.spent, run.blocks, run.warm_up_left) == (block, 0, 3 - block)


def test_an_exclusive_or_is_its_own_reverse():
    features = np.random.default_rng(0).integers(0, 2, (9, 5)).astype(np.float32)
    features[:, 3] = 0.0
    propose = jax.jit(propose_exclusive_or)
    for seed in range(20):
        once = np.asarray(propose(jax.random.key(seed), features))
        twice = propose(jax.random.key(seed), once)
        assert (once != features).any(0).sum() == 1
        np.testing.assert_array_equal(twice, features)
    alone = np.zeros((4, 3), np.float32)
    alone[:, 1] = 1.0
    np.testing.assert_array_equal(propose(jax.random.key(0), alone), alone)
