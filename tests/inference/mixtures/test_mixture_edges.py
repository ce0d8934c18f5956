"""Mixtures of odd rows: finite bounds, the same answer in other units, clear errors."""

import jax
import numpy as np
import pytest
from mixture_cases import clusters, dataset

import lvsearch as lv
from lvsearch.inference.engine.estimator import estimator
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.finite_mixture import FiniteMixture

SIZE = (3,)


def edge_rows() -> dict[str, np.ndarray]:
    rows = clusters()[:12]
    return {
        "one row": rows[:1],
        "duplicates": np.repeat(rows[:3], 4, axis=0),
        "constant column": np.stack([rows[:, 0], np.full(12, 0.7)], axis=1),
        "all equal": np.full((12, 2), 1.3),
        "nothing observed": np.where(np.arange(12)[:, None] == 4, np.nan, rows),
    }


@pytest.mark.thorough
def test_equal_rows_give_a_finite_bound():
    model = FiniteMixture(lv.models.DiagonalComponents.scaled_to(clusters()))
    estimate = estimator(model, dataset(np.full_like(clusters(), 1.3))).fit(SIZE, jax.random.key(0), None)
    assert np.isfinite(estimate.log_lower)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(estimate.natural))


@pytest.mark.slow
@pytest.mark.parametrize("name", edge_rows())
def test_odd_rows_give_finite_bounds(name):
    """For every kind with a prior of its own; below the ceiling where there is one."""
    rows = edge_rows()[name]
    for component in (
        lv.models.DiagonalComponents(),
        lv.models.FullCovarianceComponents(),
        lv.models.KnownCovarianceComponents([[0.5, 0.1], [0.1, 0.4]]),
    ):
        for model in (FiniteMixture(component), DPMixture(component)):
            for size in (1, 3):
                estimate = estimator(model, dataset(rows)).fit((size,), jax.random.key(0), None)
                assert np.isfinite(estimate.log_lower)
                assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(estimate.natural))


@pytest.mark.parametrize(("scale", "offset"), [(1e6, 1e9), (1e-6, 0.0), (1e-3, 2000.0), (1e12, 0.0)])
@pytest.mark.parametrize(
    "kind",
    [lv.models.DiagonalComponents, pytest.param(lv.models.FullCovarianceComponents, marks=pytest.mark.slow)],
    ids=["diagonal", "full"],
)
def test_scale_and_origin_change_nothing(kind, scale, offset):
    """Data in another unit: the same components, and the evidence less log scale per cell."""
    rows = clusters()
    plain = estimator(FiniteMixture(kind.scaled_to(rows)), dataset(rows))
    moved = offset + scale * rows
    other = estimator(FiniteMixture(kind.scaled_to(moved)), dataset(moved))
    a, b = (e.fit(SIZE, jax.random.key(0), None) for e in (plain, other))
    assert b.log_lower + rows.size * np.log(scale) == pytest.approx(a.log_lower, abs=2e-3)


def test_data_without_a_density_are_refused():
    holed = np.where(np.arange(82).reshape(41, 2) == 5, np.nan, clusters())
    with pytest.raises(ValueError, match="rows with missing cells"):
        lv.fit(FiniteMixture(lv.models.FullCovarianceComponents()), lv.Points.from_array(holed, missing="nan"), size=2)
    with pytest.raises(ValueError, match="expected 0 or 1"):
        lv.fit(FiniteMixture(lv.models.BernoulliComponents()), clusters(), size=2)
    with pytest.raises(ValueError, match="whole numbers"):
        lv.fit(FiniteMixture(lv.models.MultinomialComponents()), clusters(), size=2)
    with pytest.raises(ValueError, match="expected 2, as in the data"):
        lv.fit(FiniteMixture(lv.models.KnownCovarianceComponents(np.eye(3))), clusters(), size=2)
    with pytest.raises(ValueError, match="whose cells are all equal"):
        lv.models.DiagonalComponents.scaled_to(edge_rows()["constant column"])
    with pytest.raises(ValueError, match="not symmetric positive definite"):
        lv.models.KnownCovarianceComponents([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match="one positive number"):
        lv.models.DiagonalComponents(rate=0.0)


@pytest.mark.thorough
def test_components_far_narrower_than_their_distance_keep_their_width():
    """Two clusters of width 1e-5 a unit apart: in float32 their parameters say nothing of how wide they are."""
    rng = np.random.default_rng(0)
    rows = np.repeat([-1.0, 1.0], 16)[:, None] + 1e-5 * rng.standard_normal((32, 2))
    model = FiniteMixture(lv.models.DiagonalComponents.weak(rows))
    fitting = estimator(model, dataset(rows))
    estimate = fitting.fit((2,), jax.random.key(0), None)
    rounded = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), estimate.natural)
    assert estimate.log_lower > 400.0  # some ten nats a cell, less what means and widths cost
    assert not fitting.bound(rounded, (2,), None) > estimate.log_lower - 1.0  # not a number
    assert {leaf.dtype for leaf in jax.tree.leaves(estimate.natural)} == {np.dtype(np.float64)}
