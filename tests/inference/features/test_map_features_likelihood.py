"""The likelihoods of the feature search: incremental = direct = brute force, batched = one by one, bounds hold."""

import itertools

import jax
import numpy as np
import pytest
from map_features_oracles import gaussian_with_missing, noisy_or_marginal
from scipy.special import logsumexp

from lvsearch.inference.features import LinearGaussian, NoisyOr, log_marginal, posterior_loadings
from lvsearch.inference.features.contract import BoundLikelihood
from lvsearch.inference.features.expansion import select_nodes

RNG = np.random.default_rng(7)
Z = RNG.integers(0, 2, (7, 4))
REAL = RNG.normal(size=(7, 5)) + Z @ RNG.normal(size=(4, 5))
BINARY = (REAL > 0.3).astype(float)
HOLES = RNG.random((7, 5)) < 0.7
HOLES[:, 2] = HOLES[:, 0]  # two columns with one pattern
HOLES[3] = False  # a row with nothing known
EVERYTHING = np.ones((7, 5), bool)


def bound(name: str, observed: np.ndarray) -> BoundLikelihood:
    if name == "gaussian":
        return LinearGaussian(0.6, 1.3).bind(np.where(observed, REAL, np.nan), observed)
    return NoisyOr(0.8, 0.05, 0.3).bind(np.where(observed, BINARY, np.nan), observed)


def direct(name: str, features: np.ndarray, observed: np.ndarray) -> float:
    if name == "gaussian":
        return gaussian_with_missing(REAL, features, 0.6, 1.3, observed)
    return noisy_or_marginal(BINARY, features, 0.8, 0.05, 0.3, observed)


CASES = [(name, mask) for name in ("gaussian", "noisy-or") for mask in ("all", "holes")]


@pytest.mark.parametrize(("name", "mask"), CASES)
def test_rows_one_by_one_are_the_whole(name: str, mask: str):
    """Features are opened as rows come, one twice as a new feature and once in its prior state: all the same number."""
    observed = EVERYTHING if mask == "all" else HOLES
    likelihood = bound(name, observed)
    state, total, seen = likelihood.empty(1), 0.0, 0
    for n, z in enumerate(Z):
        last = int(np.flatnonzero(z).max(initial=-1)) + 1
        opened = z[:seen] > 0
        new = int(z[seen:].sum())
        row, terms = np.array([n]), likelihood.prepare(likelihood.resize(state, max(seen, 1)), np.array([n]))
        bits = np.zeros((1, 1, max(seen, 1)), bool)
        bits[0, 0, :seen] = opened
        step = likelihood.log_predictive(terms, bits, np.array([[new]]))[0, 0, 0]
        seen = max(seen, last)
        state = likelihood.resize(state, max(seen, 1))
        wide = likelihood.prepare(state, row)
        placed = np.pad(z[:seen] > 0, (0, max(1 - seen, 0)))[None]
        same = likelihood.log_predictive(wide, placed[None], np.array([[0]]))[0, 0, 0]
        assert step == pytest.approx(same, abs=1e-10)
        state, total = likelihood.extend(state, row, placed), total + step
    assert total == pytest.approx(direct(name, Z, observed), abs=1e-9)
    whole = likelihood.log_likelihoods(np.stack([Z, 1 - Z, Z * 0]) > 0)
    expected = [direct(name, features, observed) for features in (Z, 1 - Z, Z * 0)]
    np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "mask"), CASES)
def test_a_row_taken_out_was_never_there(name: str, mask: str):
    likelihood = bound(name, EVERYTHING if mask == "all" else HOLES)
    with_it = without = likelihood.empty(4)
    for n, z in enumerate(Z):
        with_it = likelihood.extend(with_it, np.array([n]), z[None] > 0)
        if n != 2:
            without = likelihood.extend(without, np.array([n]), z[None] > 0)
    for ours, expected in zip(likelihood.remove(with_it, np.array([2]), Z[[2]] > 0), without, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("name", "mask"), CASES)
def test_batch_is_one_by_one(name: str, mask: str):
    likelihood = bound(name, EVERYTHING if mask == "all" else HOLES)
    rows = np.array([2, 3, 5])
    state = select_nodes(likelihood.empty(4), np.zeros(3, int))
    for n in (0, 1, 4):
        state = likelihood.extend(state, np.full(3, n), np.stack([Z[n], Z[n - 1], 1 - Z[n]]) > 0)
    bits = RNG.random((3, 6, 4)) < 0.5
    new = np.array([[0, 1], [2, 0], [1, 3]])
    together = likelihood.log_predictive(likelihood.prepare(state, rows), bits, new)
    for b, c, j in itertools.product(range(3), range(6), range(2)):
        terms = likelihood.prepare(select_nodes(state, [b]), rows[[b]])
        alone = likelihood.log_predictive(terms, bits[[b]][:, [c]], new[[b]][:, [j]])
        assert together[b, c, j] == pytest.approx(alone[0, 0, 0], abs=1e-12)


def test_device_agrees_with_the_host():
    for observed in (EVERYTHING, HOLES):
        host = LinearGaussian(0.6, 1.3).bind(REAL, observed)
        device = LinearGaussian(0.6, 1.3, jax.devices()[0]).bind(REAL, observed)
        state = select_nodes(host.empty(4), [0, 0])
        for n in (0, 1, 4):
            state = host.extend(state, np.full(2, n), np.stack([Z[n], 1 - Z[n]]) > 0)
        terms = host.prepare(state, np.array([2, 5]))
        bits, new = RNG.random((2, 3, 4)) < 0.5, np.array([[0, 1], [2, 0]])
        expected = host.log_predictive(terms, bits, new)
        np.testing.assert_allclose(device.log_predictive(terms, bits, new), expected, rtol=1e-13)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "mask"), CASES)
def test_bounds_hold_for_every_assignment(name: str, mask: str):
    """remaining_bound against every completion of some prefixes; row_bound against rows wherever they come."""
    observed = EVERYTHING if mask == "all" else HOLES
    likelihood = bound(name, observed)
    order = np.array([4, 0, 6, 2])
    remaining = likelihood.remaining_bound(order)
    assert remaining[-1] == 0.0
    tightest = np.full(5, np.inf)
    for bits in itertools.product(itertools.product([False, True], repeat=2), repeat=4):
        state, steps = likelihood.empty(2), []
        for n, z in zip(order, bits, strict=True):
            terms = likelihood.prepare(state, np.array([n]))
            steps.append(likelihood.log_predictive(terms, np.array([[z]]), np.array([[0]]))[0, 0, 0])
            state = likelihood.extend(state, np.array([n]), np.array([z]))
            with_new = likelihood.log_predictive(terms, np.array([[z]]), np.array([[0, 1, 4]]))[0, 0]
            assert np.all(with_new <= likelihood.row_bound(np.array([n]), np.array([0, 1, 4]))[0] + 1e-12)
        after = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
        tightest = np.minimum(tightest, remaining - after)
    assert tightest.min() >= -1e-12
    falling = likelihood.row_bound(order, np.arange(6))
    assert np.all(np.diff(falling, axis=1) <= 0)


@pytest.mark.parametrize("sigma_x", [0.1, 0.9])
def test_no_row_beats_the_gaussian_bound_below_or_above_one_over_root_two_pi(sigma_x: float):
    """Rows all alike and shared features: the likelihood comes close to the bound, and above 1 for small σ_x."""
    X = np.tile(RNG.normal(size=(1, 2)), (6, 1))
    likelihood = LinearGaussian(sigma_x, 1.0).bind(X)
    value = log_marginal(X, np.ones((6, 1), int), sigma_x, 1.0)
    ceiling = likelihood.remaining_bound(np.arange(6))[0]
    assert value <= ceiling
    trivial = -6 * 2 / 2 * np.log(2 * np.pi * sigma_x**2)
    assert ceiling <= trivial + 1e-9
    assert (value > 0) == (sigma_x < 0.3)  # the printed bound, probability one for the rest, fails for the small one


def test_direct_marginal_and_loadings():
    for observed in (EVERYTHING, HOLES):
        X = np.where(observed, REAL, np.nan)
        assert log_marginal(X, Z, 0.6, 1.3, observed) == pytest.approx(
            gaussian_with_missing(REAL, Z, 0.6, 1.3, observed), abs=1e-10
        )
        mean, covariance = posterior_loadings(X, Z, 0.6, 1.3, observed)
        for d in range(5):
            z, x = Z[observed[:, d]], REAL[observed[:, d], d]
            precision = z.T @ z / 0.36 + np.eye(4) / 1.69
            np.testing.assert_allclose(covariance[d], np.linalg.inv(precision), rtol=1e-10)
            np.testing.assert_allclose(mean[:, d], np.linalg.solve(precision, z.T @ x / 0.36), rtol=1e-10)
        ours = LinearGaussian(0.6, 1.3).bind(X, observed).loadings(Z)
        np.testing.assert_allclose(ours.mean, mean)
        np.testing.assert_allclose(ours.sd**2, np.array([np.diag(c) for c in covariance]).T)
    assert log_marginal(REAL, np.zeros((7, 0)), 0.6, 1.3) == pytest.approx(log_marginal(REAL, Z * 0, 0.6, 1.3))
    empty = log_marginal(np.full((2, 3), np.nan), np.eye(2), 0.6, 1.3, np.zeros((2, 3), bool))
    assert empty == pytest.approx(0.0, abs=1e-12)


def test_noisy_or_loadings_are_those_of_brute_force():
    X, features = BINARY[:5], Z[:5, :3]
    ours = NoisyOr(0.8, 0.05, 0.3).bind(X).loadings(features)
    patterns = np.array(list(itertools.product([0, 1], repeat=3)))
    for d in range(5):
        off = 0.95 * 0.2 ** (patterns @ features.T)
        logs = np.log(np.where(X[:, d] > 0, 1 - off, off)).sum(axis=1)
        logs += patterns.sum(axis=1) * np.log(0.3) + (3 - patterns.sum(axis=1)) * np.log(0.7)
        mean = np.exp(logs - logsumexp(logs)) @ patterns
        np.testing.assert_allclose(ours.mean[:, d], mean, rtol=1e-10)
        np.testing.assert_allclose(ours.sd[:, d], np.sqrt(mean * (1 - mean)), rtol=1e-10)


def test_further_rows_may_split_a_pattern():
    likelihood = LinearGaussian(0.6, 1.3)
    before = likelihood.bind(REAL[:4])
    after = before.with_rows(np.where(HOLES, REAL, np.nan)[4:], HOLES[4:])
    state = before.empty(4)
    for n in range(4):
        state = before.extend(state, np.array([n]), Z[[n]] > 0)
    state, total = after.adopt(state, before), log_marginal(REAL[:4], Z[:4], 0.6, 1.3)
    for n in range(4, 7):
        terms = after.prepare(state, np.array([n]))
        total += after.log_predictive(terms, Z[[n]][None] > 0, np.array([[0]]))[0, 0, 0]
        state = after.extend(state, np.array([n]), Z[[n]] > 0)
    observed = np.concatenate([EVERYTHING[:4], HOLES[4:]])
    assert total == pytest.approx(gaussian_with_missing(REAL, Z, 0.6, 1.3, observed), abs=1e-9)


def test_errors():
    with pytest.raises(ValueError, match="sigma_x"):
        LinearGaussian(0.0, 1.0)
    with pytest.raises(ValueError, match="sigma_a"):
        LinearGaussian(1.0, float("nan"))
    with pytest.raises(ValueError, match="strength"):
        NoisyOr(strength=1.0)
    with pytest.raises(ValueError, match="other than 0 and 1"):
        NoisyOr().bind(REAL)
    with pytest.raises(ValueError, match="rescale"):
        LinearGaussian(1.0, 1.0).bind(REAL * 1e200)
    with pytest.raises(ValueError, match="at most 12"):
        NoisyOr().bind(BINARY).empty(13)
    with pytest.raises(ValueError, match="columns"):
        LinearGaussian(1.0, 1.0).bind(REAL).with_rows(REAL[:, :2], None)
    with pytest.raises(ValueError, match="rows of X"):
        log_marginal(REAL, Z[:3], 1.0, 1.0)
    with pytest.raises(ValueError, match="row 1, column 0"):
        log_marginal(np.array([[1.0], [np.nan]]), np.eye(2), 1.0, 1.0)
    with pytest.raises(ValueError, match="booleans"):
        log_marginal(REAL, Z, 1.0, 1.0, np.ones((7, 5)))


def test_noisy_or_is_certain_without_rounding_beyond_one():
    """Here the probabilities of the patterns with the first feature add up to 1 + 2e-16; the sd must stay a number."""
    features = np.eye(1, 6, dtype=int).repeat(40, axis=0)
    features[30:, 1:] = np.random.default_rng(8).integers(0, 2, (10, 5))
    loadings = NoisyOr(0.8, 0.05, 0.3).bind(np.ones((40, 3))).loadings(features)
    assert np.isfinite(loadings.sd).all()
    assert 1 - 1e-9 < loadings.mean.max() <= 1
