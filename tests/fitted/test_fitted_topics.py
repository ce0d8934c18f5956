"""What people ask of a fitted topic model."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

import lvsearch as lv

SHARED, FIRST, SECOND = 0, 1, 3


@cache
def fitted():
    """Every document is half a shared word, half words of one of two kinds; document 5 is the purest of the first."""
    counts = np.zeros((20, 5), int)
    counts[:, SHARED] = 6
    counts[:10, FIRST : FIRST + 2] = [3, 2]
    counts[10:, SECOND : SECOND + 2] = [2, 3]
    counts[5, FIRST] = 30
    corpus = lv.Corpus.from_matrix(counts, vocabulary=["the", "apple", "pear", "iron", "tin"])
    return lv.fit(lv.models.LDA(concentration=0.5, topic_concentration=0.1), corpus, size=2, seed=0, starts=3)


def test_distinctive_words_leave_out_what_all_topics_share():
    probable, distinctive = fitted().topics(2), fitted().topics(2, relevance=0.2)
    assert any("the" in words.split() for words in probable.words)
    assert not any("the" in words.split() for words in distinctive.words)
    assert sorted(sorted(words.split()) for words in distinctive.words) == [["apple", "pear"], ["iron", "tin"]]
    assert list(fitted().topics(3).words) == list(fitted().topics(3, relevance=1).words)
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="from 0"):
            fitted().topics(relevance=wrong)


def test_representative_documents_have_the_largest_shares():
    fit = fitted()
    fruit = int(np.argmax(fit.table("topic_word")["apple"]))
    found = fit.representative(fruit, n=3)
    assert found["document"].iloc[0] == 5
    assert found["share"].is_monotonic_decreasing
    assert set(found["document"]) <= set(range(10))
    with pytest.raises(ValueError, match="expected one of 0 … 1"):
        fit.representative(2)


def test_representative_documents_bring_what_is_known_of_them():
    counts = np.array([[4, 1], [1, 4], [3, 2], [5, 0]])
    frame = pd.DataFrame({"year": [1999, 2003, 2001, 1998], "share": ["a", "b", "c", "d"]})
    corpus = lv.Corpus.from_matrix(
        counts, vocabulary=["fig", "tin"], document_names=["w", "x", "y", "z"], metadata=frame
    )
    found = lv.fit(lv.models.LDA(concentration=1.0), corpus, size=2, seed=0, starts=1).representative(0, n=4)
    assert found.columns.tolist() == ["document", "share", "tokens", "name", "year", "share (metadata)"]
    assert [int(year) for year in found["year"]] == [int(frame["year"][row]) for row in found["document"]]
    assert found["name"].tolist() == ["wxyz"[row] for row in found["document"]]
    assert found["share (metadata)"].tolist() == ["abcd"[row] for row in found["document"]]


class Annotated:
    """As an `AnnData` looks."""

    def __init__(self, counts, genes, cells):
        self.X, self.layers = counts, {}
        self.obs_names, self.var_names = pd.Index(cells), pd.Index(genes)
        self.obs, self.var = pd.DataFrame(index=self.obs_names), pd.DataFrame(index=self.var_names)
        self.obsm, self.varm, self.uns = {}, {}, {}


def test_topics_are_written_into_an_anndata():
    fit, genes = fitted(), ["the", "apple", "pear", "iron", "tin"]
    own = Annotated(fit.training.counts.toarray(), genes, [str(n) for n in range(20)])
    posterior = pd.DataFrame({"size": [1, 2], "probability": [0.25, 0.75]})
    fit.to_anndata(own, posterior=posterior)
    np.testing.assert_allclose(own.obsm["X_lvsearch"], fit.proportions, atol=1e-3)
    assert own.varm["lvsearch"].shape == (5, 2)
    np.testing.assert_allclose(own.varm["lvsearch"].sum(axis=0), 1.0, rtol=1e-5)
    assert own.uns["lvsearch"]["topics"] == 2
    assert own.uns["lvsearch"]["probabilities"].tolist() == [0.25, 0.75]
    swapped = fit.training.counts.toarray()[::-1].copy()
    own.layers["swapped"] = swapped
    fit.to_anndata(own, layer="swapped")
    same = Annotated(swapped, genes, [f"other {n}" for n in range(20)])
    fit.to_anndata(same)
    np.testing.assert_allclose(own.obsm["X_lvsearch"], same.obsm["X_lvsearch"], atol=1e-6)
    others = Annotated(np.eye(5, dtype=int)[:3] * 9, genes, ["x", "y", "z"])
    fit.to_anndata(others)
    assert others.obsm["X_lvsearch"].shape == (3, 2)
    assert "sizes" not in others.uns["lvsearch"]
    with pytest.raises(ValueError, match="the 5 that the topics are over, in their order"):
        fit.to_anndata(Annotated(np.eye(5, dtype=int), genes[::-1], list("abcde")))


def test_prevalence_refuses_values_of_the_documents_in_another_order():
    frame = pd.DataFrame({"text": ["fig pear", "tin iron", "fig fig", "tin tin"], "kind": list("abab")}, list("wxyz"))
    fit = lv.fit(lv.models.LDA(), lv.Corpus.from_frame(frame, text="text"), size=2, seed=0)
    right = fit.prevalence(by=frame["kind"])
    pd.testing.assert_frame_equal(fit.prevalence(by=frame["kind"].to_numpy()), right)
    pd.testing.assert_frame_equal(fit.prevalence(by=frame["kind"].reset_index(drop=True)), right)  # other names
    with pytest.raises(ValueError, match="value 0 is of document 'z', expected 'w'"):
        fit.prevalence(by=frame["kind"].iloc[::-1])
