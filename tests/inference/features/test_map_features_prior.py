"""The Indian buffet process on classes: sums, expectations, the sequential scheme, and the best completion."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from map_features_oracles import log_prior_of_counts, matrices, matrix
from scipy.stats import poisson

from lvsearch.inference.features.prior import (
    Columns,
    best_completion_gains,
    best_gains,
    binary,
    class_gains,
    column_groups,
    harmonic,
    left_ordered,
    log_poisson,
    log_prior,
    unopened_best,
)


def all_classes(n_rows: int, most: int, alpha: float = 1.7):
    """(Z, log P) of every class with at most `most` features, by the oracle."""
    for k in range(most + 1):
        counts = matrices(n_rows, k)
        yield from zip((matrix(c, n_rows) for c in counts), log_prior_of_counts(counts, n_rows, alpha), strict=True)


def best_completion(Z: np.ndarray, n_rows: int, alpha: float) -> float:
    """The largest log prior of all matrices of `n_rows` rows whose first rows are Z, from the gains of its groups."""
    remaining = n_rows - len(Z)
    groups = sum(best_gains(m, g, remaining, n_rows, alpha)[g] for m, g in column_groups(Z))
    return -alpha * harmonic(n_rows) + groups + unopened_best(remaining, n_rows, alpha)


def test_log_prior_is_that_of_the_class_and_sums_to_one():
    values = [(log_prior(Z, 1.7), expected) for Z, expected in all_classes(3, 6)]
    ours, expected = np.array(values).T
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)
    tail = poisson.sf(6, 1.7 * harmonic(3))  # K₊ ~ Poisson(α H_N): what the sum leaves out, exactly
    np.testing.assert_allclose(np.exp(ours).sum(), 1 - tail, rtol=1e-12)


def test_expected_features_per_row_and_in_all():
    total = np.zeros(5)
    for Z, value in all_classes(3, 11):
        total += np.exp(value) * np.array([1, *Z.sum(axis=1), Z.shape[1]])
    np.testing.assert_allclose(total, [1, 1.7, 1.7, 1.7, 1.7 * (1 + 1 / 2 + 1 / 3)], rtol=2e-3)


def sequential(n_rows: int, alpha: float, most: int) -> dict[bytes, float]:
    """P of each class by the buffet: row n takes dish k with m_k/n, opens Poisson(α/n); matrices of a class added."""
    reached = {(): 1.0}
    for n in range(1, n_rows + 1):
        following = defaultdict(float)
        for columns, probability in reached.items():
            for taken in itertools.product([0, 1], repeat=len(columns)):
                chance = [sum(c) / n if t else 1 - sum(c) / n for c, t in zip(columns, taken, strict=True)]
                for new in range(most - len(columns) + 1):
                    grown = [(*c, t) for c, t in zip(columns, taken, strict=True)] + [(0,) * (n - 1) + (1,)] * new
                    share = probability * float(np.prod(chance)) * float(poisson.pmf(new, alpha / n))
                    following[tuple(sorted(grown, reverse=True))] += share
        reached = following
    return {np.array(c, int).reshape(-1, n_rows).T.tobytes(): p for c, p in reached.items()}


def test_agrees_with_the_buffet():
    buffet = sequential(3, 1.7, 3)
    compared = 0
    for Z, _ in all_classes(3, 3):
        expected = buffet[np.ascontiguousarray(left_ordered(Z)).tobytes()]
        np.testing.assert_allclose(np.exp(log_prior(Z, 1.7)), expected, rtol=1e-12)
        compared += 1
    assert compared == len(buffet) == 1 + 7 + 28 + 84


def test_left_ordered():
    Z = np.array([[0, 1, 0, 1, 0], [1, 0, 0, 1, 0], [1, 1, 0, 0, 1]])
    np.testing.assert_array_equal(left_ordered(Z), [[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1]])
    rng = np.random.default_rng(0)
    for _ in range(20):
        Z = rng.integers(0, 2, (4, 6))
        canonical = left_ordered(Z)
        np.testing.assert_array_equal(left_ordered(Z[:, rng.permutation(6)]), canonical)
        numbers = [int("".join(map(str, column)), 2) for column in canonical.T]
        assert numbers == sorted(numbers, reverse=True)
        assert 0 not in numbers
        rows = rng.permutation(4)
        assert log_prior(Z[rows], 0.8) == pytest.approx(log_prior(canonical, 0.8), abs=1e-12)
    assert left_ordered(np.zeros((3, 2))).shape == (3, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("alpha", [0.4, 2.0, 4.5])  # above N = 3, opening features can raise the prior
def test_best_completion_is_the_maximum(alpha: float):
    best: dict[tuple[int, bytes], float] = defaultdict(lambda: -np.inf)
    prefixes = {}
    for Z, value in all_classes(3, 7, alpha):
        for n in range(4):
            prefix = left_ordered(Z[:n])
            key = n, prefix.tobytes()
            best[key], prefixes[key] = max(best[key], value), prefix
    compared = 0
    for key, prefix in prefixes.items():
        if prefix.shape[1] <= 2:  # its best completion then has at most 7 features
            assert best_completion(prefix, 3, alpha) == pytest.approx(best[key], abs=1e-11)
            compared += 1
    assert compared == 1 + 3 + 10 + 36


def test_majority_rule_as_printed_is_no_bound():
    """The score printed for one dish of the first rows lies below what its best completion adds."""
    misses = 0
    for n_rows in range(2, 12):
        for placed in range(1, n_rows):
            for ones in range(1, placed + 1):
                taken = ones >= placed / 2
                p = (ones + n_rows - placed) / n_rows if taken else 1 - (ones + n_rows - placed) / n_rows
                Z = np.zeros((placed, 1), int)
                Z[:ones] = 1
                rest = best_completion(Z, n_rows, 1.0) + harmonic(n_rows) - (log_prior(Z, 1.0) + harmonic(placed))
                misses += (n_rows - placed) * np.log(max(p, 1e-300)) < rest - 1e-12
    assert misses > 0


def test_gains_of_a_row_are_differences_of_the_prior():
    rng = np.random.default_rng(3)
    for _ in range(60):
        placed, n_rows, alpha = int(rng.integers(1, 4)), 5, float(rng.choice([0.5, 2.0, 7.0]))
        Z = left_ordered(rng.integers(0, 2, (placed, int(rng.integers(1, 5)))))
        columns, capacity = columns_of(Z, Z.shape[1] + 3), Z.shape[1] + 3
        depth = np.array([placed])
        best, here = best_completion_gains(columns, depth, n_rows, alpha, 3), class_gains(columns, depth, alpha, 3)
        for taken in itertools.product([0, 1], repeat=Z.shape[1]):
            if any(columns.same[0, k] and taken[k] > taken[k - 1] for k in range(1, len(taken))):
                continue  # the same class as with the two swapped
            new = int(rng.integers(0, 4))
            after = np.zeros((placed + 1, Z.shape[1] + new), int)
            after[:placed, : Z.shape[1]], after[placed] = Z, (*taken, *[1] * new)
            bits = np.zeros((1, capacity), bool)
            bits[0, : after.shape[1]] = after[placed]
            for gains, expected in ((best, best_completion(after, n_rows, alpha)), (here, log_prior(after, alpha))):
                assert gains.base[0] + bits[0] @ gains.bit[0] + gains.new[0, new] == pytest.approx(expected, abs=1e-11)
            following, expected = columns.after(bits), columns_of(after, capacity)
            np.testing.assert_array_equal(following.ones, expected.ones)
            np.testing.assert_array_equal(following.same, expected.same)


def columns_of(Z: np.ndarray, capacity: int) -> Columns:
    ones, same = np.zeros((1, capacity), int), np.zeros((1, capacity), bool)
    ones[0, : Z.shape[1]] = Z.sum(axis=0)
    same[0, 1 : Z.shape[1]] = (Z[:, 1:] == Z[:, :-1]).all(axis=0)
    return Columns(ones, same)


def test_harmonic_growth():
    assert harmonic(0) == 0.0
    assert harmonic(4) == pytest.approx(25 / 12)
    assert harmonic(10**5) == pytest.approx(np.log(10**5) + np.euler_gamma, abs=1e-5)
    assert log_poisson(3, 2.5) == pytest.approx(poisson.logpmf(3, 2.5))


def test_errors():
    with pytest.raises(ValueError, match="binary"):
        binary(np.array([[0, 2]]))
    with pytest.raises(ValueError, match="matrix"):
        left_ordered(np.zeros(3))
    with pytest.raises(ValueError, match="alpha"):
        log_prior(np.eye(2), 0.0)
