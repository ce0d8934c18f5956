"""What a labelling is worth: permanents against sums over all permutations, and orders drawn in proportion."""

from itertools import permutations
from math import factorial, lgamma

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from lvsearch.inference.annealing import relabelling
from lvsearch.inference.annealing.relabelling import (
    _log_permanent,
    _scale_doubly_stochastic,
    draw_orders,
    log_labelling,
)


def scores(n: int, spread: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, spread, (n, n))


def log_permanent(each: np.ndarray) -> float:
    """The log of the permanent of exp(scores), by the library's two steps."""
    scaled, log_scale = _scale_doubly_stochastic(each[None])
    return _log_permanent(scaled[0], log_scale[0])


def by_enumeration(each: np.ndarray) -> float:
    n = len(each)
    return float(logsumexp([each[list(order), np.arange(n)].sum() for order in permutations(range(n))]))


@pytest.mark.parametrize("spread", [0.0, 0.3, 5.0, 300.0])
@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_permanent_is_the_sum_over_permutations(n, spread):
    each = scores(n, spread, n) + 100.0 * np.eye(n)
    assert log_permanent(each) == pytest.approx(by_enumeration(each), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_permanent_beside_a_component_without_rows(seed):
    """Its scores are 0 whatever it is called, two others are as good as equal, and the rest are hundreds of nats apart:
    by Sinkhorn's steps alone, blocks were not square."""
    each = scores(4, 300.0, seed)
    each[:, 0] = 0.0
    each[:, 3] = each[:, 1] + scores(4, 1e-3, seed)[0]
    assert log_permanent(each) == pytest.approx(by_enumeration(each), rel=1e-9, abs=1e-6)


def test_large_blocks_are_sampled_without_bias_to_speak_of():
    n = relabelling.LARGEST_BLOCK + 4
    assert log_permanent(np.zeros((n, n))) == pytest.approx(lgamma(n + 1), abs=1e-6)
    each = scores(n, 0.4, 3)
    pairs = np.kron(np.eye(2), np.ones((n // 2, n // 2))).astype(bool)
    split = np.where(pairs, each, -1e4)
    halves = [log_permanent(each[a, a]) for a in (slice(0, n // 2), slice(n // 2, n))]
    assert log_permanent(split) == pytest.approx(sum(halves), abs=1e-6)


def test_worth_goes_from_nothing_to_all_labellings():
    same, apart = np.zeros((1, 4, 4)), 50.0 * np.eye(4)[None]
    assert log_labelling(same) == pytest.approx(0.0, abs=1e-9)
    assert log_labelling(apart) == pytest.approx(lgamma(5), abs=1e-6)
    swapped = apart[:, [1, 0, 2, 3]]
    assert log_labelling(swapped)[0] == pytest.approx(lgamma(5) - 100.0, abs=1e-6)


def test_components_that_do_not_exist_are_not_counted():
    exists = np.arange(4) < 3
    padded = np.where(exists[:, None] & exists, scores(4, 1.0, 8), np.where(np.eye(4, dtype=bool), 0.0, -np.inf))
    assert log_labelling(padded[None]) == pytest.approx(log_labelling(padded[None, :3, :3]), abs=1e-9)


def test_worth_averages_to_one_over_relabelled_states():
    """Σ_σ f(σ state) / Σ f = 1: what makes the estimate unbiased whatever f is."""
    each, n = scores(4, 2.0, 5), 4
    worth = [log_labelling(each[list(order)][None])[0] - np.log(factorial(n)) for order in permutations(range(n))]
    assert logsumexp(worth) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("largest", [14, 1])
def test_orders_are_drawn_in_proportion(monkeypatch, largest):
    """χ² of 3,000 draws of 6 orders (p > 1e-4); the long chain of exchanges too."""
    monkeypatch.setattr(relabelling, "LARGEST_BLOCK", largest)
    each = scores(3, 0.8, 2)
    drawn = draw_orders(np.repeat(each[None], 3000, axis=0), np.random.default_rng(0))
    orders = list(permutations(range(3)))
    weights = np.exp([each[list(order), np.arange(3)].sum() for order in orders])
    counts = [(drawn == order).all(1).sum() for order in orders]
    assert chisquare(counts, 3000 * weights / weights.sum()).pvalue > 1e-4
