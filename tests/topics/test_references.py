"""Topics beside distributions that are known."""

import numpy as np
import pandas as pd
import pytest

import lvsearch as lv
from lvsearch.comparison.alignment import match_references

WORDS = [f"w{i}" for i in range(12)]


def known(seed=0, n=4):
    columns = np.random.default_rng(seed).dirichlet(np.full(len(WORDS), 0.2), n).T
    return pd.DataFrame(columns, index=WORDS, columns=[f"S{i}" for i in range(n)])


def test_partners_are_found_whatever_the_order_of_words_and_topics():
    references = known()
    topics = references.T.iloc[[2, 0, 3]].set_axis(["a", "b", "c"])
    found = match_references(topics, references.sample(frac=1, random_state=1))
    assert found.reference.tolist() == ["S2", "S0", "S3"]
    np.testing.assert_allclose(found.cosine, 1.0)
    assert found.index.tolist() == ["a", "b", "c"]


def test_pairs_are_one_to_one_and_the_nearest_is_told_beside():
    references = known(n=2)
    close = 0.9 * references["S0"] + 0.1 * references["S1"]
    topics = pd.DataFrame([references["S0"], close, references["S1"]], index=[0, 1, 2])
    found = match_references(topics, references)
    assert found.reference.tolist() == ["S0", None, "S1"]
    assert np.isnan(found.cosine[1])
    assert found.nearest.tolist() == ["S0", "S0", "S1"]
    expected = close @ references["S0"] / np.linalg.norm(close) / np.linalg.norm(references["S0"])
    assert found.nearest_cosine[1] == pytest.approx(expected)


@pytest.mark.thorough
def test_the_matrix_of_a_signature_tool_is_fitted_and_matched():
    rng = np.random.default_rng(0)
    references = known(1, 3)
    exposures = rng.dirichlet(np.full(3, 0.3), 60) * 1000
    matrix = pd.DataFrame(rng.poisson(exposures @ references.to_numpy().T).T, index=WORDS)
    matrix.columns = [f"tumour{i}" for i in range(60)]
    fit = lv.fit(lv.models.LDA(1.0, 0.2), lv.Corpus.from_matrix(matrix.T), size=3, seed=0)
    found = fit.match(references)
    assert sorted(found.reference) == ["S0", "S1", "S2"]
    assert found.cosine.min() > 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("evidence", ["marginal", pytest.param("plug-in", marks=pytest.mark.slow)])
def test_topics_of_many_tokens_a_word_are_found_from_every_start(evidence):
    """Where passes are moved too far ahead topics end that share words, thousands of nats lower."""
    rng = np.random.default_rng(0)
    planted = rng.dirichlet(np.full(60, 0.2), 8)
    exposures = rng.dirichlet(np.full(8, 0.25), 150) * rng.gamma(2, 1500, (150, 1))
    counts = rng.poisson(exposures @ planted)
    references = pd.DataFrame(planted.T, index=[f"w{i}" for i in range(60)])
    corpus = lv.Corpus.from_matrix(pd.DataFrame(counts, columns=references.index))
    fits = [lv.fit(lv.models.LDA(2.0, 0.2), corpus, size=8, seed=seed, evidence=evidence) for seed in range(3)]
    for fit in fits:
        assert (fit.match(references).cosine > 0.9).all()
    lower = [fit.evidence.lower for fit in fits]
    assert max(lower) - min(lower) < 1e-3 * abs(max(lower))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.drop(index="w3"), "without 1 of 12 words, such as 'w3'"),
        (lambda r: pd.concat([r, r.iloc[:1]]), "'w0' twice"),
        (lambda r: r[[]], "without a column"),
        (lambda r: r.assign(S1=0.0), "'S1' with values"),
        (lambda r: r.assign(S2=-r.S2), "'S2' with values"),
        (lambda r: r.assign(S2=np.nan), "'S2' with values"),
    ],
)
def test_references_that_are_none_are_refused(change, message):
    references = known()
    with pytest.raises(ValueError, match=message):
        match_references(references.T, change(references))
