"""Fits and searches of LDA with seeds: seeded topics come first, have their names, and bound the sizes from below."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lvsearch as lv
from lvsearch.command.simulated import Planted, planted
from lvsearch.fitted.topics import FittedTopics
from lvsearch.results.result import SearchResult

SEEDED = 3
"""How many of the planted topics have seeds, and how many words of each."""


@cache
def documents() -> Planted:
    return planted(n_topics=4, n_documents=60, n_tokens=40, n_terms=100, seed=1)


def seeds_of(drawn: Planted, topics: list[int]) -> dict[str, list[str]]:
    """The most probable words of some planted topics, by name."""
    return {
        f"planted {topic}": [drawn.corpus.vocabulary[word] for word in np.argsort(-drawn.topic_word[topic])[:SEEDED]]
        for topic in topics
    }


def cosines(fit: FittedTopics, drawn: Planted) -> np.ndarray:
    """The cosine similarity of each fitted topic with each planted one, (fitted, planted)."""
    found, true = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (fit.table("topic_word").to_numpy(np.float64), drawn.topic_word)
    )
    return found @ true.T


def cosines_of_old_words(fit: FittedTopics) -> np.ndarray:
    """The cosine similarity of each topic with each planted one, by the words that were planted, (fitted, planted)."""
    true = documents().topic_word
    return (
        fit.table("topic_word").to_numpy(np.float64)[:, : true.shape[1]]
        @ (true / np.linalg.norm(true, axis=1)[:, None]).T
    )


@cache
def seeded_fit() -> FittedTopics:
    model = lv.models.LDA().with_seeds(documents().corpus, seeds_of(documents(), [2, 0]))
    fit = lv.fit(model, documents().corpus, size=4, seed=0)
    assert isinstance(fit, FittedTopics)
    return fit


def test_topics_with_seeds_come_first_and_keep_their_names(tmp_path: Path):
    fit = seeded_fit()
    assert cosines(fit, documents())[:2].argmax(1).tolist() == [2, 0]
    assert fit.names().tolist()[:2] == ["planted 2", "planted 0"]
    assert "planted" not in " ".join(fit.names().tolist()[2:])
    assert fit.names(namer=lambda sketch: f"topic {sketch.topic}").tolist()[1:3] == ["planted 0", "topic 2"]
    assert fit.topics().sort_index()["name"].tolist() == fit.names().tolist()
    shown = fit.renamed({1: "sport"}).without([3])
    assert shown.names().tolist()[:2] == ["planted 2", "sport"]
    fit.save(tmp_path / "fit")
    again = lv.load_fit(tmp_path / "fit")
    assert isinstance(again, FittedTopics)
    assert again.names().tolist() == fit.names().tolist()
    np.testing.assert_array_equal(again.estimate.model.seeds.counts, fit.estimate.model.seeds.counts)  # pyright: ignore
    np.testing.assert_array_equal(again.transform(documents().corpus), fit.transform(documents().corpus))


@pytest.mark.thorough
def test_a_fit_with_seeds_is_updated_with_new_words():
    corpus = documents().corpus
    more = lv.Corpus.from_matrix(np.ones((2, 3), int), [*corpus.vocabulary[:2], "brand-new"])
    newer = seeded_fit().update(more)
    assert newer.names().tolist()[:2] == ["planted 2", "planted 0"]
    assert newer.estimate.model.seeds.n_words == newer.training.n_terms == corpus.n_terms + 1  # pyright: ignore
    assert cosines_of_old_words(newer)[:2].argmax(1).tolist() == [2, 0]


def test_topics_of_another_fit_can_be_held_where_they_are():
    """Counts of a fit's topics as seeds, ten times as many as there are tokens: these topics hardly move."""
    drawn, first = documents(), seeded_fit()
    words = first.table("topic_word").to_numpy(np.float64)[:2]
    held = lv.models.LDA().with_seeds(drawn.corpus, np.round(words * 20_000), names=["a", "b"])
    fit = lv.fit(held, drawn.corpus, size=4, seed=1)
    assert np.abs(fit.table("topic_word").to_numpy()[:2] - words).sum(1).max() < 0.1
    assert fit.names().tolist()[:2] == ["a", "b"]  # pyright: ignore


@cache
def seeded_search(evidence: str) -> SearchResult:
    """Sizes up to 5 for two seeded topics."""
    model = lv.models.LDA().with_seeds(documents().corpus, seeds_of(documents(), [2, 0]))
    return lv.search(model, documents().corpus, evidence=evidence, max_size=5, starts=2, progress=False)


@pytest.mark.parametrize("evidence", ["bound", pytest.param("predictive", marks=pytest.mark.thorough)])
def test_a_search_begins_at_the_topics_with_seeds(evidence, tmp_path):
    result = seeded_search(evidence)
    assert result.visits[0].size == (2,)
    assert min(visit.size for visit in result.visits) == (2,)
    assert "given at least 2" in result.prior.describe()
    if evidence == "bound":
        assert result.best_size == (4,)
        other = result.with_prior(lv.sizes.Uniform(10))
        assert other.posterior()["probability"].sum() == pytest.approx(1.0)  # pyright: ignore
        assert other.prior == lv.sizes.AtLeast(lv.sizes.Uniform(10), 2)
        result.save(tmp_path / "run")
        again = lv.load(tmp_path / "run")
        assert again.prior == result.prior
        assert again.posterior().equals(result.posterior())
        assert again.best.names().tolist() == result.best.names().tolist()  # pyright: ignore


@pytest.mark.thorough
@pytest.mark.parametrize("evidence", ["bound", pytest.param("marginal", marks=pytest.mark.slow)])
def test_every_size_from_there_on_is_visited_if_asked(evidence):
    drawn = planted(n_topics=2, n_documents=12, n_tokens=10, n_terms=20, seed=2)
    model = lv.models.LDA().with_seeds(drawn.corpus, seeds_of(drawn, [0, 1]))
    result = lv.search(model, drawn.corpus, evidence=evidence, max_size=4, exhaustive=True, starts=1, progress=False)
    assert sorted(visit.size for visit in result.visits) == [(2,), (3,), (4,)]


def test_sizes_without_room_for_the_seeds_are_refused_before_anything_is_fitted():
    drawn = documents()
    model = lv.models.LDA().with_seeds(drawn.corpus, seeds_of(drawn, [2, 0]))
    with pytest.raises(ValueError, match="got size=1, expected at least 2"):
        lv.fit(model, drawn.corpus, size=1)
    with pytest.raises(ValueError, match="got max_size=1, expected at least 2"):
        lv.search(model, drawn.corpus, max_size=1, progress=False)
    with pytest.raises(ValueError, match="got seeds, expected none for the plug-in form"):
        lv.search(model, drawn.corpus, evidence="plug-in", max_size=3, progress=False)
    with pytest.raises(ValueError, match="sizes from 2 on"):
        lv.search(model, drawn.corpus, prior=lv.sizes.Uniform(1), progress=False)
    with pytest.raises(ValueError, match="words: make the seeds with this corpus"):
        lv.fit(model, planted(n_terms=50, n_documents=20).corpus, size=4)


@pytest.mark.slow
def test_seeded_topics_are_the_planted_ones_in_twenty_of_twenty():
    """Three of seven planted topics have three of their words as seeds: they come first, in the order given."""
    for seed in range(20):
        drawn = planted(seed=seed)
        chosen = np.random.default_rng(seed).permutation(drawn.n_topics)[:SEEDED].tolist()
        model = lv.models.LDA().with_seeds(drawn.corpus, seeds_of(drawn, chosen))
        fit = lv.fit(model, drawn.corpus, size=drawn.n_topics, seed=seed)
        assert isinstance(fit, FittedTopics)
        found = cosines(fit, drawn)[:SEEDED]
        assert found.argmax(1).tolist() == chosen, seed
        assert found.max(1).min() > 0.9, seed


@pytest.mark.slow
def test_without_seeds_they_do_not_come_first():
    """What the test above would say of any order."""
    drawn = planted(seed=0)
    fit = lv.fit(lv.models.LDA(), drawn.corpus, size=drawn.n_topics, seed=0)
    assert isinstance(fit, FittedTopics)
    chosen = np.random.default_rng(0).permutation(drawn.n_topics)[:SEEDED].tolist()
    assert cosines(fit, drawn)[:SEEDED].argmax(1).tolist() != chosen
