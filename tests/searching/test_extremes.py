"""Far ends of everything: hyper-parameters from 1e-6 to 1e6, documents of 1 and 100,000 tokens, 1 and 1,000 topics, 1
and a million words, rows at 1e±150. No NaN, no negative probability, bounds in order.
"""

import math
from typing import Any

import jax
import numpy as np
import pytest
from annotation_cases import FEATURES
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.inference.likelihood import document_likelihood
from lvsearch.models.contract import Model
from lvsearch.searching.evaluators import data_ceiling

ENDS = (1e-6, 1e6)
ROWS = np.random.default_rng(0).normal(0, 1, (8, 2)) + 4 * (np.arange(8) % 2)[:, None]
COUNTS = np.random.default_rng(1).integers(0, 3, (6, 5)) + np.eye(6, 5, dtype=np.int64)


def assert_sound(fitted: lv.FittedModel, ceiling: float) -> None:
    """Every table and every representation: numbers, no negative ones where they are probabilities; the bound below
    what is proved to be above it."""
    low, high = fitted.estimate.log_lower, fitted.estimate.log_upper
    assert -math.inf < low <= high + 1e-6 * (1 + abs(low))
    assert low <= ceiling + 1e-6 * (1 + abs(ceiling))
    for name, table in fitted.tables().items():
        values = table.select_dtypes("number").to_numpy(np.float64)
        assert not np.isnan(values).any(), name
    shares = np.asarray(fitted.transform(fitted.training), np.float64)
    assert np.all(np.isfinite(shares))
    assert np.all(shares >= 0)


def assert_fits(model: Model, data: Any, size: Any, **given: Any) -> lv.FittedModel:
    fitted = lv.fit(model, data, size=size, seed=0, **given)
    assert_sound(fitted, data_ceiling(model, fitted.training.dataset()))
    return fitted


# ── hyper-parameters ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("eta", ENDS)
@pytest.mark.parametrize("alpha", ENDS)
def test_topics(alpha: float, eta: float):
    assert_fits(lv.models.LDA(alpha, eta), COUNTS, 2)


MODELS = {
    "finite mixture": lambda end: (lv.models.FiniteMixture(concentration=end), ROWS, 2),
    "DP mixture": lambda end: (lv.models.DPMixture(concentration=end), ROWS, 3),
    "HDP": lambda end: (lv.models.HDP(topic_concentration=end), COUNTS, 3),
    "HDP mixture": lambda end: (lv.models.HDPMixture(concentration=end), [ROWS[:4], ROWS[4:]], 3),
    "hidden Markov": lambda end: (lv.models.HiddenMarkov(None, end, end), [ROWS[:3], ROWS[3:6]], 2),
    "hidden Markov stickiness": lambda end: (lv.models.HiddenMarkov(stickiness=end), [ROWS[:3], ROWS[3:6]], 2),
    "Poisson factorization": lambda end: (lv.models.PoissonFactorization(end, 0.3), COUNTS, 2),
    "Poisson factorization factors": lambda end: (lv.models.PoissonFactorization(1.0, end), COUNTS, 2),
    "Poisson factorization mean": lambda end: (lv.models.PoissonFactorization(mean_count=end), COUNTS, 2),
    "hLDA levels": lambda end: (lv.models.HLDA(2, levels=end), COUNTS, 2),
    "hLDA topics": lambda end: (lv.models.HLDA(2, topics=end), COUNTS, 2),
    "hLDA branching": lambda end: (lv.models.HLDA(2, branching=end), COUNTS, 2),
    "IBP": lambda end: (lv.models.IBP(end), ROWS, 2),
    "GM-LDA": lambda end: (lv.models.GMLDA(end), (list(FEATURES), [["a"], ["b"], ["a"], [], ["c"]]), 2),
    "Corr-LDA": lambda end: (lv.models.CorrLDA(end), (list(FEATURES), [["a"], ["b"], ["a"], [], ["c"]]), 2),
    "GM-mixture": lambda end: (lv.models.GMMixture(end), (list(FEATURES), [["a"], ["b"], ["a"], [], ["c"]]), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_family(name: str, end: float):
    assert_fits(*MODELS[name](end))


# ── sizes of data and models ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("evidence", ["marginal", "plug-in"])
def test_documents_of_one_token_and_of_a_hundred_thousand(evidence: str):
    random = np.random.default_rng(2)
    counts = np.zeros((4, 50), np.int64)
    counts[0, 3] = 1
    counts[1] = random.multinomial(100_000, random.dirichlet(np.full(50, 0.1)))
    counts[2, 7] = 100_000
    fitted = assert_fits(lv.models.LDA(), counts, 3, evidence=evidence)
    assert np.all(np.isfinite(fitted.score(counts)))
    topics, alpha = fitted.table("topic_word").to_numpy(), np.full(3, 1.0)
    ends = document_likelihood(topics / topics.sum(1, keepdims=True), alpha, counts, method="bounds")
    assert ends.lower is not None
    assert ends.upper is not None
    assert np.all(ends.lower <= ends.upper)
    estimate = document_likelihood(topics, alpha, counts[:1], method="mfi", key=jax.random.key(0))
    assert np.all(np.isfinite(estimate.log_likelihood))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 1000])
def test_one_topic_and_a_thousand(size: int):
    counts = np.random.default_rng(3).poisson(0.3, (40, 60)) + np.eye(40, 60, dtype=np.int64)
    assert_fits(lv.models.LDA(), counts, size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 1000])
def test_one_component_and_a_thousand(size: int):
    assert_fits(lv.models.FiniteMixture(), np.random.default_rng(4).normal(0, 1, (60, 2)), size)


@pytest.mark.slow
@pytest.mark.parametrize("n_words", [1, 1_000_000])
def test_vocabularies_of_one_word_and_of_a_million(n_words: int):
    random = np.random.default_rng(5)
    rows, words = np.repeat(np.arange(10), 30), random.integers(0, n_words, 300)
    counts = csr_array((np.ones(300, np.int64), (rows, words)), shape=(10, n_words))
    fitted = lv.fit(lv.models.LDA(), counts, size=2, seed=0)
    assert -math.inf < fitted.estimate.log_lower <= 1e-6
    np.testing.assert_allclose(fitted.transform(fitted.training).sum(1), 1, atol=1e-5)


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("unit", [1e-150, 1e150])
def test_rows_in_impossible_units(unit: float):
    """Refused with what to do: their squares are no float32."""
    with pytest.raises(ValueError, match=r"got .*e[-+]1(49|50).*rescale the column"):
        lv.fit(lv.models.FiniteMixture(), ROWS * unit, size=2, seed=0)
    regions = [row[None] for row in ROWS * unit]
    with pytest.raises(ValueError, match="rescale the feature"):
        lv.fit(lv.models.CorrLDA(), (regions, [["a"]] * len(ROWS)), size=2, seed=0)
    assert lv.Points.from_array(np.zeros((2, 2))).shape == (2, 2)  # nothing to rescale


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_clusters_do_not_depend_on_the_unit(unit: float):
    fits = [
        lv.fit(lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(r)), r, size=2, seed=0)
        for r in (ROWS, ROWS * unit)
    ]
    np.testing.assert_array_equal(*(fit.transform(fit.training).argmax(1) for fit in fits))
    expected = fits[0].estimate.log_lower - ROWS.size * math.log(unit)
    assert fits[1].estimate.log_lower == pytest.approx(expected, rel=1e-4)
