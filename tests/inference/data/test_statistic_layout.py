"""Statistics that are equal in all columns are stored and evaluated once, and nothing else changes."""

import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import pytest

import lvsearch as lv
from lvsearch.inference.data.statistic_layout import StatisticLayout
from lvsearch.inference.evidence import mixtures
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain

ROWS = np.random.default_rng(0).normal(0.0, 1.0, (12, 3))


def test_an_array_of_equal_entries_is_packed_as_one():
    one = {"count": np.full((5, 3), 2.0), "sum": np.arange(15.0).reshape(5, 3)}
    layout = StatisticLayout.of({"count": np.empty(3), "sum": np.empty(3)}, [True, False])
    packed = layout.pack(one)
    assert packed.shape == (5, 4)
    again = layout.unpack(packed)
    for name, each in one.items():
        np.testing.assert_array_equal(again[name], each)
    split = layout.split(packed.T)
    assert split["count"].shape == (1, 5)
    assert split["sum"].shape == (3, 5)


def chain_of(rows: np.ndarray, component: lv.models.components.Component) -> CollapsedMixtureChain:
    return CollapsedMixtureChain.from_data(lv.models.FiniteMixture(component), cases.dataset(rows), 3, 4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "once"),
    [
        (ROWS, (True, False, False, True)),
        (np.where(np.arange(36).reshape(12, 3) == 7, np.nan, ROWS), (False,) * 4),
        (ROWS[:, [0, 0]], (False, True, True, True)),  # two equal columns: one statistic keeps both
    ],
    ids=["complete", "a-missing-cell", "equal-columns"],
)
@pytest.mark.parametrize("weak", [False, True])
def test_counts_of_complete_rows_are_stored_once_with_the_same_result(monkeypatch, rows, once, weak):
    component = lv.models.DiagonalComponents.weak(rows) if weak else lv.models.DiagonalComponents()
    chain = chain_of(rows, component)
    if not (weak and once[1]):  # rates of equal columns may differ
        assert chain.layout.once == once
    monkeypatch.setattr(mixtures, "_equal_in_all_columns", lambda component, increments: [False] * 4)
    plain = chain_of(rows, component)
    labels = jnp.asarray(np.random.default_rng(1).integers(0, 3, (len(chain.weight), 5)), jnp.int32)
    with jax.enable_x64(True):
        found, expected = (
            np.asarray(each.gains(each.state_from_labels(labels, each.own_prior()).natural, each.own_prior()))
            for each in (chain, plain)
        )
    np.testing.assert_allclose(found.sum(0), expected.sum(0), rtol=1e-12)
