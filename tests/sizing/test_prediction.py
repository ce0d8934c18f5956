"""Plug-in prediction: the joint optimum against all vertices, exact cases, and the two ways of averaging."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvsearch.sizing import sizes
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.prediction import estimate_prediction, predict_per_unit, predict_whole_set
from lvsearch.sizing.witness import WitnessSearch

TABLE = sizes.Table([0.13, 0.42, 0.07, 0.38])
TRUTH = np.array([-9.3, -7.1, -7.0, -5.2])
PREDICTIVE = np.array([[-3.1, -0.9], [-2.0, -2.2], [-4.4, -1.0], [-2.6, -0.8]])  # four sizes, two documents
CEILINGS = np.array([-1.7, -0.5])


def searched(order, width, nested=True):
    search = WitnessSearch(TABLE, ceiling=-5.0, nested=nested)
    for size in order:
        search.record(size, Evidence(TRUTH[size - 1] - width, min(TRUTH[size - 1] + width, -5.0)))
    return search.bounds()


@pytest.mark.parametrize("order", [(1,), (1, 2), (1, 4), (1, 3, 2), (1, 2, 4, 3)])
@pytest.mark.parametrize("width", [0.0, 0.5])
@pytest.mark.parametrize("nested", [True, False])
def test_prediction_is_bracketed_on_an_enumerable_case(order, width, nested):
    bounds = searched(order, width, nested)
    log_joint = np.array([TABLE.log_pmf(size) for size in range(1, 5)]) + TRUTH
    rows = PREDICTIVE[[size - 1 for size in sorted(order)]]
    whole = log_sum(log_joint + PREDICTIVE.sum(axis=1)) - log_sum(log_joint)
    documents = sum(log_sum(log_joint + column) - log_sum(log_joint) for column in PREDICTIVE.T)
    total = rows.sum(axis=1)
    got = predict_whole_set(bounds, total - width, total + width, float(CEILINGS.sum()))
    assert got.log_lower <= whole + 1e-12
    assert whole <= got.log_upper + 1e-12
    assert (got.form, got.kind) == ("whole set", "certified")
    got = predict_per_unit(bounds, rows - width, rows + width, CEILINGS)
    assert got.log_lower <= documents + 1e-12
    assert documents <= got.log_upper + 1e-12
    if len(order) == 4 and width == 0.0:  # everything is known: the interval closes on p, not on 2p (Eq. 13)
        assert got.log_lower == pytest.approx(documents, abs=1e-12)
        assert got.log_upper == pytest.approx(documents, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_the_ends_are_the_extremes_over_all_vertices(seed):
    rng = np.random.default_rng(seed)
    search = WitnessSearch(sizes.Poisson(2.3), ceiling=0.0, nested=bool(seed % 2))
    for size in range(1, 5):
        lower = -float(rng.gamma(2.0, 1.5))
        search.record(size, Evidence(lower, lower + float(rng.gamma(1.0))))
    bounds = search.bounds()
    lower = -0.2 - rng.gamma(2.0, 1.0, size=4)
    upper = np.minimum(lower + rng.gamma(1.0, 0.3, size=4), -0.2)
    got = predict_whole_set(bounds, lower, upper, -0.2)
    ends = list(zip(bounds.weights_lower, bounds.weights_upper, strict=True))
    ends.append((bounds.unvisited_lower, bounds.unvisited_upper))
    vertices = [np.array(weights) for weights in product(*ends)]
    lowest = min(log_sum(w + np.append(lower, -math.inf)) - log_sum(w) for w in vertices)
    highest = max(log_sum(w + np.append(upper, -0.2)) - log_sum(w) for w in vertices)
    assert got.log_lower == pytest.approx(lowest, rel=1e-10, abs=1e-12)
    assert got.log_upper == pytest.approx(highest, rel=1e-10, abs=1e-12)


def test_per_document_adds_and_may_beat_the_best_size_where_the_whole_set_cannot():
    bounds = searched((1, 2, 3, 4), 0.0)
    exact = np.array([[-9.0, -1.0], [-1.0, -9.0], [-6.0, -6.0], [-8.0, -2.0]])
    ceilings = np.array([-0.5, -0.5])
    together = predict_per_unit(bounds, exact, exact, ceilings)
    apart = [predict_per_unit(bounds, exact[:, [d]], exact[:, [d]], ceilings[[d]]) for d in (0, 1)]
    assert together.log_lower == pytest.approx(sum(part.log_lower for part in apart))
    best = float(exact.sum(axis=1).max())
    assert together.log_lower > best
    assert predict_whole_set(bounds, exact.sum(axis=1), exact.sum(axis=1), -1.0).log_upper <= best + 1e-12


def test_no_nan_at_the_edges():
    search = WitnessSearch(sizes.Poisson(2.3), ceiling=math.inf)
    search.record(1, Evidence(-5.0, math.inf))
    search.record(2, Evidence(-4.0, -3.0))
    bounds = search.bounds()
    impossible = np.array([-math.inf, -math.inf])
    got = predict_whole_set(bounds, impossible, impossible, math.inf)
    assert (got.log_lower, got.log_upper) == (-math.inf, math.inf)
    got = predict_whole_set(bounds, np.array([-2.0, -1.0]), np.array([-2.0, -1.0]), 0.0)
    assert (got.log_lower, got.log_upper) == (-math.inf, 0.0)
    finished = searched((1, 2, 3, 4), 0.0)
    assert predict_whole_set(finished, np.full(4, -math.inf), np.full(4, -math.inf), 0.0).log_upper == -math.inf


def test_the_diminishing_kind_is_named_and_tighter():
    search = WitnessSearch(sizes.Poisson(6))
    for size in range(1, 16):
        search.record(size, -100.0 + 40.0 * (1.0 - math.exp(-0.45 * size)))
    rows = -20.0 + 5.0 * (1.0 - 0.7 ** np.arange(15.0))
    certified = predict_whole_set(search.bounds(), rows, rows, -3.0)
    diminishing = predict_whole_set(search.diminishing(), rows, rows, -3.0)
    assert diminishing.kind == "diminishing"
    assert certified.log_lower <= diminishing.log_lower <= diminishing.log_upper <= certified.log_upper
    assert diminishing.describe().startswith("of these fits, if gains diminish, whole set: ")


def test_a_plain_estimate_is_labelled():
    probability = np.array([0.2, 0.0, 0.7, 0.1])
    got = estimate_prediction(probability, PREDICTIVE)
    assert got.log_whole_set == pytest.approx(math.log(probability @ np.exp(PREDICTIVE.sum(axis=1))))
    assert got.log_per_unit == pytest.approx(np.log(probability @ np.exp(PREDICTIVE)).sum())
    assert got.describe().startswith("estimate over the sizes whose fit was kept")


def test_bad_predictions_are_explained():
    bounds = searched((1, 2), 0.1)
    fine = np.array([-3.0, -2.0])
    for lower, upper, ceiling, says in [
        (np.array([-3.0, math.nan]), fine, 0.0, "NaN"),
        (fine, fine - 1.0, 0.0, "lower <= upper"),
        (np.zeros(3), np.zeros(3), 0.0, "row per size"),
        (fine, fine, -2.5, "above the ceiling"),
        (fine, fine, math.nan, "NaN"),
    ]:
        with pytest.raises(ValueError, match=says):
            predict_whole_set(bounds, lower, upper, ceiling)
    with pytest.raises(ValueError, match="sum to 1"):
        estimate_prediction(np.array([0.2, 0.2]), np.zeros((2, 3)))
