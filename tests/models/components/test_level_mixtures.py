"""Cells of a few levels as components of mixtures: exact with one component, the enumerated posterior with more."""

from functools import partial

import block_oracles
import numpy as np
import partition_oracles as exact
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.models import DPMixture, FiniteMixture, HDPMixture, HiddenMarkov, LevelComponents

LEVELS = (1, 2, 4)
COMPONENT = LevelComponents(LEVELS, 0.7)
ROWS = np.array([[1, 4], [1, 4], [4, 1], [2, 1], [1, 2.0]])


def log_marginal(rows: np.ndarray) -> float:
    cells = block_oracles.categorical_marginal(LEVELS, 0.7)
    return sum(cells(column) for column in rows.T)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model", [FiniteMixture, *(pytest.param(m, marks=pytest.mark.slow) for m in (HiddenMarkov, DPMixture, HDPMixture))]
)
def test_one_component_is_exact(model):
    data = lv.Groups.from_arrays([ROWS[:3], ROWS[3:]]) if model in (HiddenMarkov, HDPMixture) else ROWS
    fit = lv.fit(model(COMPONENT), data, size=1)
    if model in (FiniteMixture, HiddenMarkov):
        assert fit.estimate.log_lower == pytest.approx(log_marginal(ROWS), abs=1e-5)
    else:  # a process has the rows in one component with a probability below 1
        assert fit.estimate.log_lower < log_marginal(ROWS)


@pytest.mark.thorough
def test_a_search_has_the_enumerated_posterior():
    result = lv.search(FiniteMixture(COMPONENT, 0.8), ROWS, prior=lv.sizes.Uniform(3), max_size=3, progress=False)
    prior = [partial(exact.log_finite_prior, n_components=size, concentration=0.8) for size in (1, 2, 3)]
    wanted = np.array([exact.log_evidence(ROWS, log_marginal, each) for each in prior])
    found = result.posterior()
    assert_allclose(found["log_evidence"], wanted, atol=0.1)
    assert_allclose(found["probability"], np.exp(wanted - logsumexp(wanted)), atol=0.03)
    for size, evidence in zip((1, 2, 3), wanted.tolist(), strict=True):
        assert result.fit(size).estimate.log_lower <= evidence + 1e-6
