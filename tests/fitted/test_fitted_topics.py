"""What people ask of a fitted topic model."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from fits_without_parameters import fit_without_parameters
from scipy.stats import kstest

import lvsearch as lv
from lvsearch.files.storage import CorruptFolderError, read_folder, write_folder

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


# ── topics that a person arranged ───────────────────────────────────────────────────────────────────────────────────


@cache
def of_five():
    """Five topics of documents with dates, labels and names."""
    rng = np.random.default_rng(3)
    topics = rng.dirichlet(np.full(12, 0.2), 5)
    counts = np.stack([rng.multinomial(30 + number, rng.dirichlet(np.full(5, 0.4)) @ topics) for number in range(24)])
    days = pd.DataFrame({"day": [f"2024-{1 + number % 6:02}" for number in range(24)]})
    corpus = lv.Corpus.from_matrix(counts, document_labels=["a", "b"] * 12, metadata=days)
    return lv.fit(lv.models.LDA(concentration=1.0), corpus, size=5, seed=0)


def test_given_names_are_in_every_table_and_picture():
    fit = of_five()
    named = fit.renamed({3: "weather", 0: "sport"})
    made = fit.names()
    assert named.names().to_dict() == {0: "sport", 1: made[1], 2: made[2], 3: "weather", 4: made[4]}
    assert named.topics()["name"].to_dict() == named.names().to_dict()
    pd.testing.assert_frame_equal(named.topics().drop(columns="name"), fit.topics())  # nothing else is changed
    assert named.topic_map()["name"].tolist() == named.names().tolist() == list(named.component_names())
    assert named.document(0).names[3] == "weather"
    labels = [text.get_text() for text in named.plot_prevalence().get_legend().get_texts()]
    assert "3: weather" in labels
    assert named.renamed({3: "rain"}).names()[3] == "rain"
    assert named.names(namer=lambda sketch: "x")[[1, 3]].tolist() == ["x (2)", "weather"]
    assert "name" not in fit.topics()
    np.testing.assert_array_equal(named.transform(fit.training), fit.transform(fit.training))


def test_a_hidden_topic_is_named_as_hidden_and_the_rest_is_updated():
    view = of_five().renamed({0: "sport"}).without([4])
    with pytest.raises(
        ValueError, match=r"got topic=4, which is hidden here, expected one that is shown: \(0, 1, 2, 3\)"
    ):
        view.merged([(2, 4)])
    newer = view.update(of_five().training.select([0, 1]))
    assert len(newer.training) == len(view.training) + 2
    assert newer.arrangement == view.arrangement
    assert newer.names()[0] == "sport"


def test_shares_of_merged_topics_add_up_and_their_words_are_weighted_means():
    fit = of_five()
    view = fit.merged([(3, 1), (4, 0)])
    assert view.topic_numbers == (2, 3, 4)
    of_fit = fit.proportions
    expected = np.stack([of_fit[:, 2], of_fit[:, [1, 3]].sum(1), of_fit[:, [0, 4]].sum(1)], 1)
    np.testing.assert_allclose(view.proportions, expected, rtol=1e-12)
    np.testing.assert_allclose(view.transform(fit.training), expected, rtol=1e-6)
    prevalence, words = fit.topics()["prevalence"], fit.table("topic_word").to_numpy(np.float64)
    tokens = view.topic_words(12)
    for first, other in ((3, 1), (4, 0)):
        weight = prevalence[first] / (prevalence[first] + prevalence[other])
        of_both = weight * words[first] + (1 - weight) * words[other]
        rows = tokens[tokens["topic"] == first]
        columns = [fit.training.vocabulary.index(word) for word in rows["word"]]
        np.testing.assert_allclose(rows["probability"], of_both[columns], rtol=1e-5)
        assert rows["probability"].is_monotonic_decreasing
        assert view.topics()["prevalence"][first] == pytest.approx(prevalence[first] + prevalence[other])
    table = view.prevalence().set_index(["group", "topic"])["mean"]
    before = fit.prevalence().set_index(["group", "topic"])["mean"]
    assert table["a", 3] == pytest.approx(before["a", 3] + before["a", 1])
    assert sorted(set(table.index.get_level_values("topic"))) == [2, 3, 4]
    assert view.representative(3)["share"].iloc[0] == pytest.approx(expected[:, 1].max())
    assert view.correlations().index.tolist() == view.coherence(3).index.tolist() == [2, 3, 4]
    assert [sketch.topic for sketch in view.sketches] == [2, 3, 4]


def test_the_words_of_a_document_are_those_of_the_members_of_merged_topics():
    fit = of_five()
    shares, words = fit.proportions[0], fit.table("topic_word").to_numpy(np.float64)
    posterior = shares[:, None] * words
    posterior /= posterior.sum(0)
    found = fit.merged([(3, 1)]).document(0)
    for word in found.words:
        by_topic = posterior[:, fit.training.vocabulary.index(word.text)]
        together = {0: by_topic[0], 2: by_topic[2], 3: by_topic[1] + by_topic[3], 4: by_topic[4]}
        assert word.probability == pytest.approx(max(together.values()))
        assert together[word.topic] == max(together.values())
    # words of hidden topics are left out, not given to others
    whole = {word.text: word.topic for word in fit.document(0).words}
    largest = int(shares.argmax())
    left = {word.text: word.topic for word in fit.without([largest]).document(0).words}
    assert left == {text: topic for text, topic in whole.items() if topic != largest}
    assert len(left) < len(whole)


def test_hidden_topics_keep_their_share_and_their_words():
    fit = of_five()
    view = fit.without([4, 1])
    assert view.topic_numbers == (0, 2, 3)
    np.testing.assert_array_equal(view.proportions, fit.proportions[:, [0, 2, 3]])  # they do not add up to 1
    assert view.names().to_dict() == {topic: fit.names()[topic] for topic in (0, 2, 3)}
    assert view.topics(relevance=0.3)["words"].to_dict() == {
        topic: words for topic, words in fit.topics(relevance=0.3)["words"].items() if topic not in (1, 4)
    }
    months = view.prevalence(by="day", period="month")
    of_fit = fit.prevalence(by="day", period="month")
    pd.testing.assert_frame_equal(
        months[["group", "topic", "mean"]].reset_index(drop=True),
        of_fit[~of_fit["topic"].isin([1, 4])][["group", "topic", "mean"]].reset_index(drop=True),
    )
    with pytest.raises(ValueError, match="got topic=1, expected one of 0, 2, 3"):
        view.representative(1)


def test_arrangements_follow_each_other_with_the_numbers_of_the_fit():
    view = of_five().renamed({3: "weather", 1: "rain"}).without([4]).merged([(3, 1)]).merged([(3, 0)])
    assert view.arrangement.groups == ((2,), (3, 1, 0))
    assert view.names()[3] == "weather"
    assert view.arrangement.names == ((3, "weather"),)  # a merged topic has no name any more
    assert view.arrangement.describe() == "2 of 5 topics: 1 hidden, 3 merged into 1, 1 renamed"
    printed = str(view)
    assert printed.startswith("2 of 5 topics")
    assert "weather (topics 3, 1, 0)" in printed
    assert "evidence:    none" in printed


@pytest.mark.parametrize("name", ["evidence", "estimate", "score", "interval_units", "recommend", "alpha"])
def test_arranged_topics_have_no_evidence_and_no_scores(name: str):
    with pytest.raises(AttributeError, match=f"no '{name}': merged and hidden topics are a way of reading"):
        getattr(of_five().renamed({0: "sport"}), name)


@pytest.mark.parametrize(
    ("arranged", "message"),
    [
        (lambda fit: fit.renamed({5: "x"}), "got topic=5, expected one of 0 … 4"),
        (lambda fit: fit.renamed({0: " "}), "got ' ' as the name of topic 0"),
        (lambda fit: fit.renamed({0: "a"}).renamed({2: "a"}), r"the topics 0 and 2.*merged\(\[\(0, 2\)\]\)"),
        (lambda fit: fit.merged([(0, 1), (1, 2)]), "got topic 1 twice"),
        (lambda fit: fit.merged([(0,)]), r"got the group \(0,\)"),
        (lambda fit: fit.merged([]), "got no group"),
        (lambda fit: fit.merged([(0, 1)]).without([1]), "got topic=1, expected one of 0, 2, 3, 4"),
        (lambda fit: fit.without(range(5)), "got all 5 topics to hide"),
    ],
)
def test_arrangements_of_other_topics_are_refused(arranged, message: str):
    with pytest.raises(ValueError, match=message):
        arranged(of_five())


def test_arranged_topics_are_saved_and_loaded(tmp_path):
    view = of_five().merged([(3, 1)]).renamed({3: "weather"}).without([0])
    view.save(tmp_path / "fit")
    again = lv.load_fit(tmp_path / "fit")
    assert again.arrangement == view.arrangement
    pd.testing.assert_frame_equal(again.topics(), view.topics())
    of_five().save(tmp_path / "plain")
    assert type(lv.load_fit(tmp_path / "plain")) is type(of_five())
    body, arrays = read_folder(tmp_path / "fit")
    for wrong in (
        {"n_topics": 5},
        {"n_topics": 4, "groups": [[0]], "names": []},
        {"n_topics": 5, "groups": [[7]], "names": []},
        {"n_topics": 5, "groups": [[0], [1]], "names": [[2, "x"]]},
        {"n_topics": 5, "groups": [[0], [1]], "names": [[1, 2]]},
    ):
        write_folder(tmp_path / "fit", body | {"arrangement": wrong}, arrays)
        with pytest.raises(CorruptFolderError, match="a damaged arrangement of topics"):
            lv.load_fit(tmp_path / "fit")


# ── the next batch, and documents that fit nowhere ──────────────────────────────────────────────────────────────────


WORDS = tuple(f"{kind}{number}" for kind in ("fruit", "metal", "fish") for number in range(8))
NEW_WORDS = ("fruitier", "fishier")


def planted(random, n: int, new_share: float = 0.0):
    """Return n documents of 30 words from three topics; fruit and fish may have a new word each, with this share."""
    topics = np.zeros((3, len(WORDS) + 2))
    for topic in range(3):
        topics[topic, 8 * topic : 8 * topic + 8] = np.arange(8, 0, -1) / 36
    for topic, word in ((0, len(WORDS)), (2, len(WORDS) + 1)):
        topics[topic] *= 1 - new_share
        topics[topic, word] = new_share
    counts = np.stack([random.multinomial(30, shares @ topics) for shares in random.dirichlet(np.full(3, 0.2), n)])
    return counts if new_share else counts[:, : len(WORDS)]


@cache
def first_batch(seed: int = 0):
    corpus = lv.Corpus.from_matrix(planted(np.random.default_rng(seed), 60), WORDS)
    return lv.fit(lv.models.LDA(concentration=1.0, topic_concentration=0.1), corpus, size=3, seed=seed)


def second_batch(seed: int = 0) -> lv.Corpus:
    """New words come first, so that columns differ from those of the first batch."""
    counts = planted(np.random.default_rng(1000 + seed), 30, new_share=0.2)
    order = [len(WORDS), len(WORDS) + 1, *range(len(WORDS))]
    return lv.Corpus.from_matrix(counts[:, order], [(*WORDS, *NEW_WORDS)[place] for place in order])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2, 3))])
def test_an_updated_fit_keeps_its_topics_and_puts_new_words_into_them(seed):
    old, batch = first_batch(seed), second_batch(seed)
    new = old.update(batch)
    assert (type(new), new.size, new.model.describe()) == (type(old), old.size, old.model.describe())
    assert len(new.training) == 90
    before, after = old.table("topic_word"), new.table("topic_word")
    assert after.columns.tolist() == [*WORDS, *NEW_WORDS]
    similar = np.sqrt(before.to_numpy()) @ np.sqrt(after[list(WORDS)].to_numpy()).T
    assert similar.argmax(axis=1).tolist() == [0, 1, 2]
    assert (np.diag(similar) > 0.8).all()
    for kind, word in (("fruit", "fruitier"), ("fish", "fishier")):
        own = int(before[[f"{kind}{number}" for number in range(8)]].sum(axis=1).idxmax())
        assert after[word][own] > 0.04
        assert after[word].drop(index=own).max() < 0.02
    # the fit has climbed: it explains all documents better than the old topics with the new words spread over them
    assert new.evidence.lower > old.evidence.lower + batch.n_tokens * np.log(1 / len(after.columns))
    assert new.update(batch).table("topic_word").columns.tolist() == after.columns.tolist()


@pytest.mark.parametrize(
    "model",
    [
        lv.models.MixtureOfUnigrams(),
        pytest.param(lv.models.PLSI(), marks=pytest.mark.thorough),
        pytest.param(lv.models.LDA(1.0).plug_in(), marks=pytest.mark.thorough),
    ],
    ids=["unigrams", "pLSI", "plug-in"],
)
def test_other_topic_models_are_updated_too(model):
    counts = np.kron(np.eye(2, dtype=int), np.full((5, 3), 4)) + 1
    old = lv.fit(model, lv.Corpus.from_matrix(counts, WORDS[:6]), size=2, seed=0, evidence="bound")
    more = np.hstack([counts, np.repeat([[0], [9]], 5, axis=0)])
    new = old.update(lv.Corpus.from_matrix(more, [*WORDS[:6], "late"]))
    before, after = old.table("topic_word"), new.table("topic_word")
    assert after.columns.tolist() == [*WORDS[:6], "late"]
    np.testing.assert_array_equal(
        before.idxmax(axis=1).str[-1].astype(int) < 3, after[list(WORDS[:6])].idxmax(axis=1).str[-1].astype(int) < 3
    )
    second = int(before[list(WORDS[3:6])].sum(axis=1).idxmax())
    assert after["late"][second] > 0.15 > 0.05 > after["late"][1 - second]


def test_texts_and_matrices_are_batches_too():
    corpus = lv.Corpus.from_texts(["apple pear apple", "iron tin iron"] * 5)
    old = lv.fit(lv.models.MixtureOfUnigrams(), corpus, size=2, seed=0)
    assert old.update(["a quince and an apple"]).table("topic_word").columns.tolist()[-1] == "quince"
    assert len(old.update(np.array([[1, 2, 0, 0]])).training) == 11
    with pytest.raises(ValueError, match="expected documents"):
        old.update(lv.Points.from_array([[1.0]]))


def test_a_process_cannot_keep_the_numbers_of_its_topics():
    corpus = lv.Corpus.from_matrix(np.eye(4, dtype=int) * 3, WORDS[:4])
    with pytest.raises(ValueError, match=r"HDP.*expected a model with a size"):
        fit_without_parameters(lv.models.HDP(), corpus).update(corpus)


@pytest.mark.thorough
def test_documents_of_other_words_are_the_most_unusual():
    """Thirty words spread over all topics alike, which no topic explains."""
    fit, random = first_batch(), np.random.default_rng(5)
    foreign = random.multinomial(30, np.full(len(WORDS), 1 / len(WORDS)), 3)
    data = lv.Corpus.from_matrix(
        np.concatenate([planted(random, 40), foreign]), WORDS, document_names=list(map(str, range(43)))
    )
    found = fit.unusual(data, draws=99)
    assert set(found.index[:3]) == {"40", "41", "42"}
    assert (found["p"].iloc[:3] == 0.01).all()
    assert found["p"].is_monotonic_increasing
    assert found["p"].iloc[-1] <= 1
    np.testing.assert_allclose(found["score"].loc["7"], fit.score_units(data)[7] / 30, rtol=1e-5)
    pd.testing.assert_frame_equal(found, fit.unusual(data, draws=99, seed=0))
    assert len(fit.unusual(draws=9)) == 60
    with pytest.raises(ValueError, match="draws"):
        fit.unusual(data, draws=0)


def test_an_empty_document_is_not_unusual():
    found = first_batch().unusual(np.array([[0] * 24, [5, *[0] * 23]]), draws=9)
    assert found["p"][0] == 1
    assert np.isnan(found["score"][0])


@pytest.mark.thorough
def test_p_values_of_documents_drawn_from_the_fit_are_uniform():
    """Documents of several lengths, drawn by a hand-written sampler from the fitted topics."""
    fit, random = first_batch(), np.random.default_rng(11)
    topics = fit.table("topic_word").to_numpy(np.float64)
    topics = topics / topics.sum(axis=1, keepdims=True)
    lengths = random.choice([10, 20, 40], 400)
    shares = random.dirichlet(fit.alpha, 400)
    counts = np.stack([random.multinomial(n, share @ topics) for n, share in zip(lengths, shares, strict=True)])
    found = fit.unusual(counts, draws=499, seed=3)
    assert kstest(found["p"] - random.random(400) / 500, "uniform").pvalue > 0.01
