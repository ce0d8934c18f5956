"""`map_features`: exact where it says so, honest where it cannot be, the same in batch and online."""

from functools import cache

import numpy as np
import pytest
from map_features_oracles import (
    best_matrix,
    feature_cap,
    gaussian_ceiling,
    matrices,
    matrix,
    noisy_or_marginal,
)
from tiers import in_tiers

import lvsearch as lv
from lvsearch.inference.features import LinearGaussian, MapFeatures, NoisyOr, left_ordered, log_marginal, log_prior
from lvsearch.inference.features.prior import log_poisson
from lvsearch.inference.features.refine import refine

ROOT_TWO_PI = 1 / np.sqrt(2 * np.pi)


def joint(X, Z, alpha, sigma_x, sigma_a) -> float:
    return log_prior(Z, alpha) + log_marginal(X, Z, sigma_x, sigma_a)


def random_case(seed: int):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rng.integers(1, 5), rng.integers(1, 4))) * rng.choice([0.3, 1.0, 2.0])
    alpha, sigma_x = float(rng.choice([0.3, 1.0, 2.5])), float(rng.choice([0.2, 0.35, 0.5, 1.0]))
    return X, alpha, sigma_x, float(rng.choice([0.5, 1.0, 2.0]))


ADVERSARIAL = {
    "equal rows": (np.tile([[1.0, -2.0, 0.5]], (4, 1)), 1.0, 0.35, 1.0),
    "a row is the sum of two": (np.array([[2.0, 0, 0], [0, 2.0, 0], [2.0, 2.0, 0]]), 1.0, 0.3, 1.5),
    "opposites": (np.array([[1.5, 1.5], [-1.5, -1.5], [1.5, 1.5], [-1.5, -1.5]]), 0.5, 0.5, 1.0),
    "zeros": (np.zeros((4, 2)), 1.0, 0.5, 1.0),
    "one row, many features": (np.array([[3.0]]), 4.0, 0.5, 0.5),
    "loadings too small": (np.array([[2.0], [2.0]]), 1.0, 0.5, 0.3),
    "alpha above N": (np.array([[0.5, -0.2], [0.3, 0.1]]), 5.0, 1.0, 0.5),
}
CASES = {**{f"random {seed}": random_case(seed) for seed in range(40)}, **ADVERSARIAL}
MOST_ENUMERATED = {1: 40, 2: 30, 3: 13, 4: 8}
"""Features up to which brute force can go, by number of rows: half a million matrices of four rows."""

BEYOND, TRIED_BEYOND = {f"random {seed}" for seed in (0, 2, 10, 15, 22, 32, 33)}, 6
"""Cases whose proved cap (9 to 23 features of four rows) is out of reach: there brute force stops at six.
In all others it goes up to the cap, so that no matrix whatever is better."""


@cache
def proved_best(name: str) -> tuple[MapFeatures, int]:
    """What the search proves, and the number of features that no better matrix can have (the oracle's own proof)."""
    X, alpha, sigma_x, sigma_a = CASES[name]
    found = lv.inference.map_features(X, alpha=alpha, sigma_x=sigma_x, sigma_a=sigma_a, beam=None)
    return found, feature_cap(found.log_joint, gaussian_ceiling(X, sigma_x), len(X), alpha)


QUICK = {f"random {seed}" for seed in (1, 3, 5, 6, 7, 8, 9, 10, 11, 12)} | ADVERSARIAL.keys() - {"opposites"}


@pytest.mark.parametrize("name", in_tiers(CASES, lambda name: name in QUICK))
def test_search_without_a_beam_is_exact(name: str):
    X, alpha, sigma_x, sigma_a = CASES[name]
    found, most = proved_best(name)
    assert found.gap == 0.0
    assert found.log_joint == pytest.approx(joint(X, found.features, alpha, sigma_x, sigma_a), abs=1e-10)
    np.testing.assert_array_equal(found.features, left_ordered(found.features))
    enumerated = TRIED_BEYOND if name in BEYOND else most
    assert enumerated <= MOST_ENUMERATED[len(X)]
    score, Z = best_matrix(X, alpha, sigma_x, sigma_a, enumerated)
    assert found.log_joint == pytest.approx(score, abs=1e-9)
    assert joint(X, Z, alpha, sigma_x, sigma_a) == pytest.approx(score, abs=1e-9)


@pytest.mark.slow
def test_brute_force_goes_to_the_proved_cap_in_all_cases_but_those_named():
    beyond = {name for name, (X, *_) in CASES.items() if proved_best(name)[1] > MOST_ENUMERATED[len(X)]}
    assert beyond == BEYOND
    below = [sigma_x < ROOT_TWO_PI for name, (_, _, sigma_x, _) in CASES.items() if name not in BEYOND]
    assert (sum(below), len(below)) == (18, 40)


def printed_search(X, alpha, sigma_x, sigma_a):
    """A* as printed: later rows' likelihood ≤ 1, 0 or max(1, ⌊α/i⌋) new dishes, the majority rule for the prior."""
    n_rows, queue = len(X), [(0.0, np.zeros((0, 0), int))]
    while True:
        queue.sort(key=lambda entry: entry[0])
        Z = queue.pop()[1]
        placed = len(Z)
        if placed == n_rows:
            return left_ordered(Z)
        for number in range(2 ** Z.shape[1]):
            taken = [(number >> k) & 1 for k in range(Z.shape[1])]
            for new in (0, max(1, int(alpha / (placed + 1)))):
                child = np.zeros((placed + 1, Z.shape[1] + new), int)
                child[:placed, : Z.shape[1]], child[placed] = Z, taken + [1] * new
                rows, ones = placed + 1, child.sum(axis=0)
                score = joint(X[:rows], child, alpha, sigma_x, sigma_a)
                score += sum(log_poisson(int(alpha / n), alpha / n) for n in range(rows + 1, n_rows + 1))
                if rows < n_rows:
                    p = (ones + n_rows - rows) / n_rows
                    with np.errstate(divide="ignore"):
                        score += (n_rows - rows) * float(np.log(np.where(ones >= rows / 2, p, 1 - p)).sum())
                queue.append((score, child))


def test_printed_rule_fails_where_ours_does_not():
    """Both ways: σ_x < 1/√2π makes densities exceed 1; and one row may need two new features at once."""
    X = np.tile([[1.0, -2.0, 0.5]], (4, 1))
    ours = lv.inference.map_features(X, alpha=1.0, sigma_x=0.2, sigma_a=1.0, beam=None)
    assert ours.gap == 0.0
    assert ours.log_joint == pytest.approx(best_matrix(X, 1.0, 0.2, 1.0, 4)[0], abs=1e-9)
    many = np.array([[6.0]])
    best = lv.inference.map_features(many, alpha=1.0, sigma_x=0.5, sigma_a=1.0, beam=None)
    printed = printed_search(many, 1.0, 0.5, 1.0)
    assert best.features.shape == (1, 3)
    assert best.log_joint > joint(many, printed, 1.0, 0.5, 1.0) + 1.0
    failures = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 2, (4, 2)) @ rng.normal(size=(2, 3)) + 0.1 * rng.normal(size=(4, 3))
        exact = lv.inference.map_features(X, alpha=0.8, sigma_x=0.1, sigma_a=1.0, beam=None)
        assert exact.gap == 0.0
        failures += exact.log_joint > joint(X, printed_search(X, 0.8, 0.1, 1.0), 0.8, 0.1, 1.0) + 1e-6
    assert failures >= 1


@pytest.mark.parametrize(
    ("beam", "expansion", "heuristic"),
    [
        pytest.param(
            beam, expansion, heuristic, marks=pytest.mark.slow if (beam, heuristic) == (None, "clustered") else ()
        )
        for beam in (None, 2)
        for expansion in ("complete", "paper", "column")
        for heuristic in ("admissible", "inadmissible", "clustered")
    ],
)
def test_every_mode_reports_an_honest_gap(heuristic, expansion, beam):
    """log joint ≤ the best of all ≤ log joint + gap."""
    for name in ("random 17", "a row is the sum of two"):
        X, alpha, sigma_x, sigma_a = CASES[name]
        best = proved_best(name)[0].log_joint
        found = lv.inference.map_features(
            X,
            alpha=alpha,
            sigma_x=sigma_x,
            sigma_a=sigma_a,
            beam=beam,
            heuristic=heuristic,
            expansion=expansion,
            width=2,
        )
        assert found.log_joint == pytest.approx(joint(X, found.features, alpha, sigma_x, sigma_a), abs=1e-10)
        assert found.log_joint <= best + 1e-10
        assert found.log_joint + found.gap >= best - 1e-10
        assert sorted(found.order) == list(range(len(X)))


def simulated(n_rows: int = 30, n_columns: int = 12, sigma_x: float = 0.3):
    rng = np.random.default_rng(4)
    Z = np.concatenate([np.eye(3, dtype=int), rng.integers(0, 2, (n_rows - 3, 3))])
    return Z @ rng.normal(size=(3, n_columns)) * 1.5 + sigma_x * rng.normal(size=(n_rows, n_columns)), left_ordered(Z)


@pytest.mark.parametrize("expansion", ["complete", "paper", "column"])
def test_beam_finds_the_features_that_made_the_data(expansion):
    X, Z = simulated()
    found = lv.inference.map_features(X, alpha=1.0, sigma_x=0.3, sigma_a=1.5, beam=5, expansion=expansion)
    np.testing.assert_array_equal(found.features, Z)
    assert found.loadings.mean.shape == found.loadings.sd.shape == (3, 12)
    assert np.abs(X - Z @ found.loadings.mean).max() < 4.5 * 0.3


def test_narrow_expansion_loses_nothing_when_it_is_wide():
    X, _ = simulated()
    arguments = {"alpha": 1.0, "sigma_x": 0.3, "sigma_a": 1.5, "beam": 4}
    complete = lv.inference.map_features(X, **arguments)
    column = lv.inference.map_features(X, **arguments, expansion="column", width=1 << 12)
    np.testing.assert_array_equal(complete.features, column.features)
    assert complete.gap == pytest.approx(column.gap, abs=1e-9)


def test_refining_climbs_and_keeps_the_bound():
    """A beam of one that never opens two features at once ends below the truth; hill climbing gets there."""
    X, Z = simulated()
    settings = {"alpha": 1.0, "sigma_x": 0.3, "sigma_a": 1.5, "beam": 1, "order": np.arange(30)[::-1]}
    plain = lv.inference.map_features(X, **settings)
    refined = lv.inference.map_features(X, **settings, refine=20)
    assert refined.log_joint >= plain.log_joint
    assert refined.log_joint == pytest.approx(joint(X, refined.features, 1.0, 0.3, 1.5), abs=1e-9)
    assert refined.log_joint + refined.gap == pytest.approx(plain.log_joint + plain.gap, abs=1e-9)
    fresh = LinearGaussian(0.3, 1.5).bind(X)
    start = np.concatenate([Z, Z[:, [0]] ^ Z[:, [1]]], axis=1)[:, 1:]  # spans the data with the wrong features
    climbed = refine(fresh, start, 1.0, 30, 32, 100)
    assert joint(X, climbed, 1.0, 0.3, 1.5) >= joint(X, start, 1.0, 0.3, 1.5) + 5
    np.testing.assert_array_equal(climbed, Z)
    assert refine(fresh, start, 1.0, 30, 32, start.shape[1]).shape[1] <= start.shape[1]
    with pytest.raises(ValueError, match="expected at most 1"):
        refine(fresh, start, 1.0, 30, 32, 1)


@pytest.mark.parametrize(("n_rows", "seed"), [(40, 8), pytest.param(60, 4, marks=pytest.mark.slow)])
def test_refining_takes_features_apart_that_only_make_sense_together(n_rows: int, seed: int):
    """Five features where four made the data: no row and no single column can be improved, dropping one and reseating
    all rows can."""
    rng = np.random.default_rng(seed)
    images = np.zeros((4, 16))
    for image, pixels in zip(images, ([1, 4, 5, 6, 9], [2, 3, 6, 7], [8, 12, 13], [10, 11, 14]), strict=True):
        image[pixels] = 1
    Z = rng.integers(0, 2, (n_rows, 4))
    X = Z @ images + 0.5 * rng.normal(size=(n_rows, 16))
    plain = lv.inference.map_features(X, alpha=1.0, sigma_x=0.5, sigma_a=1.0, beam=1, heuristic="inadmissible")
    assert plain.features.shape[1] == 5
    climbed = refine(LinearGaussian(0.5, 1.0).bind(X), plain.features, 1.0, 30, 32, 100)
    assert climbed.shape[1] == 4
    assert joint(X, climbed, 1.0, 0.5, 1.0) >= joint(X, Z, 1.0, 0.5, 1.0)


def test_rows_come_back_in_their_places():
    X, Z = simulated()
    shuffled = np.random.default_rng(0).permutation(len(X))
    for heuristic in ("admissible", "inadmissible", "clustered"):
        found = lv.inference.map_features(
            X[shuffled], alpha=1.0, sigma_x=0.3, sigma_a=1.5, beam=10, heuristic=heuristic, order=np.argsort(shuffled)
        )
        np.testing.assert_array_equal(found.features, left_ordered(Z[shuffled]))


def test_inadmissible_places_unlikely_rows_first():
    X, _ = simulated()
    found = lv.inference.map_features(X, alpha=1.0, sigma_x=0.3, sigma_a=1.5, beam=2, heuristic="inadmissible")
    np.testing.assert_array_equal(found.order, np.argsort(-(X**2).sum(axis=1), kind="stable"))


def test_online_is_batch():
    """The ranking of a stream knows nothing of rows to come; missing cells may appear later."""
    X, _ = simulated(20)
    observed = np.random.default_rng(1).random(X.shape) < 0.9
    observed[:8] = True
    arguments = {"alpha": 1.0, "sigma_x": 0.3, "sigma_a": 1.5, "beam": 6, "heuristic": "inadmissible"}
    batch = lv.inference.map_features(X, **arguments, observed=observed, order=np.arange(20))
    start = lv.inference.map_features(X[:8], **arguments, order=np.arange(8))
    once = start.extend(X[8:], observed[8:])
    twice = start.extend(X[8:9], observed[8:9]).extend(X[9:], observed[9:])
    for other in (once, twice):
        np.testing.assert_array_equal(other.features, batch.features)
        assert other.log_joint == pytest.approx(batch.log_joint, abs=1e-9)
        assert other.gap >= 0
    with pytest.raises(ValueError, match="keeps no beam"):
        lv.inference.map_features(X[:2], alpha=1.0, sigma_x=0.3, sigma_a=1.5, beam=None).extend(X[2:])


def test_missing_cells():
    X, Z = simulated()
    observed = np.random.default_rng(1).random(X.shape) < 0.8
    holes = np.where(observed, X, np.nan)
    found = lv.inference.map_features(
        holes,
        alpha=1.0,
        sigma_x=0.3,
        sigma_a=1.5,
        beam=8,
        observed=observed,
        heuristic="inadmissible",
        order=np.arange(30),
    )
    np.testing.assert_array_equal(found.features, Z)
    direct = log_prior(Z, 1.0) + log_marginal(holes, Z, 0.3, 1.5, observed)
    assert found.log_joint == pytest.approx(direct, abs=1e-9)
    nothing = lv.inference.map_features(
        np.full((3, 2), np.nan), alpha=1.0, sigma_x=1.0, sigma_a=1.0, observed=np.zeros((3, 2), bool), beam=None
    )
    assert nothing.gap == 0.0
    assert nothing.log_joint == pytest.approx(log_prior(nothing.features, 1.0))


def test_binary_data_by_noisy_or():
    likelihood = NoisyOr(strength=0.8, background=0.05, density=0.3)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 2, (3, 3))
        found = lv.inference.map_features(X, alpha=1.0, likelihood=likelihood, beam=None)
        assert found.gap == 0.0
        everything = np.ones(X.shape, bool)
        best = max(
            log_prior(Z, 1.0) + noisy_or_marginal(X, Z, 0.8, 0.05, 0.3, everything) for Z in small_matrices(3, 3)
        )
        assert found.log_joint == pytest.approx(best, abs=1e-10)
        assert np.all((found.loadings.mean >= 0) & (found.loadings.mean <= 1))


def small_matrices(n_rows: int, most: int):
    for k in range(most + 1):
        yield from (matrix(counts, n_rows) for counts in matrices(n_rows, k))


def test_cap_on_features():
    X, _ = simulated()
    free = lv.inference.map_features(X, alpha=1.0, sigma_x=0.3, sigma_a=1.5, beam=5)
    capped = lv.inference.map_features(X, alpha=1.0, sigma_x=0.3, sigma_a=1.5, beam=5, max_features=2)
    assert capped.features.shape[1] == 2
    assert capped.at_cap
    assert not free.at_cap
    assert capped.log_joint + capped.gap >= free.log_joint  # what was not tried counts
    small = lv.inference.map_features(X[:4], alpha=1.0, sigma_x=0.3, sigma_a=1.5, beam=None, max_features=1)
    assert small.gap > 0
    with pytest.raises(ValueError, match="at most 12"):
        lv.inference.map_features(X > 0, alpha=1.0, likelihood=NoisyOr(), max_features=13)


def test_a_search_cut_short_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 2)) * 2
    short = lv.inference.map_features(X, alpha=1.0, sigma_x=0.5, sigma_a=1.0, beam=None, limit=40)
    assert 0 < short.gap < np.inf
    longer = lv.inference.map_features(X, alpha=1.0, sigma_x=0.5, sigma_a=1.0, beam=None, limit=400)
    assert longer.log_joint >= short.log_joint
    assert longer.log_joint + longer.gap <= short.log_joint + short.gap


@pytest.mark.parametrize("beam", [None, 3])
def test_smallest_data(beam):
    settings = {"alpha": 1.0, "sigma_x": 0.5, "sigma_a": 1.0, "beam": beam}
    one = lv.inference.map_features(np.array([[0.1]]), **settings)
    assert one.features.shape == (1, 0)
    assert one.gap == 0.0
    assert one.loadings.mean.shape == (0, 1)
    row = lv.inference.map_features(np.array([[2.0, -1.0, 3.0]]), **settings)
    assert row.features.shape[0] == 1
    constant = lv.inference.map_features(np.full((5, 2), 1.0), **settings)
    np.testing.assert_array_equal(constant.features, np.ones((5, 1)))


def test_deterministic_and_reports_progress():
    X, _ = simulated()
    calls: list[tuple[int, int]] = []
    settings = {"alpha": 1.0, "sigma_x": 0.3, "sigma_a": 1.5, "beam": 5}
    first = lv.inference.map_features(X, **settings, progress=lambda done, rows: calls.append((done, rows)))
    second = lv.inference.map_features(X, **settings)
    assert calls == [(n, 30) for n in range(1, 31)]
    assert (first.log_joint, first.gap) == (second.log_joint, second.gap)
    np.testing.assert_array_equal(first.features, second.features)


GOOD = {"X": np.eye(3), "alpha": 1.0, "sigma_x": 0.5, "sigma_a": 1.0}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"X": np.array([[1.0, np.nan]])}, "row 0, column 1"),
        ({"X": np.array([[1.0, np.inf]])}, "finite"),
        ({"X": np.zeros(3)}, "shape"),
        ({"X": np.zeros((0, 3))}, "without rows"),
        ({"X": np.zeros((3, 0))}, "at least one column"),
        ({"observed": np.ones((2, 3), bool)}, "observed"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"sigma_x": -1.0}, "sigma_x"),
        ({"sigma_a": None}, "sigma_a"),
        ({"likelihood": LinearGaussian(1.0, 1.0)}, "one or the other"),
        ({"beam": 0}, "beam"),
        ({"refine": -1}, "refine"),
        ({"heuristic": "best"}, "heuristic"),
        ({"expansion": "full"}, "expansion"),
        ({"max_features": 0}, "max_features"),
        ({"order": [0, 0, 1]}, "permutation"),
    ],
)
def test_errors(change, match):
    arguments = {**GOOD, **change}
    with pytest.raises(ValueError, match=match):
        lv.inference.map_features(arguments.pop("X"), **arguments)


def test_too_many_assignments_is_an_error_that_says_what_to_do():
    X = 5 * np.eye(18)
    with pytest.raises(ValueError, match='expansion="column"'):
        lv.inference.map_features(X, alpha=1.0, sigma_x=0.1, sigma_a=1.0, beam=1)
    found = lv.inference.map_features(X, alpha=1.0, sigma_x=0.1, sigma_a=1.0, beam=1, expansion="column")
    np.testing.assert_array_equal(found.features, np.eye(18))
