"""Names, coherence, prevalence, places and colours of topics, against counts done by hand."""

import datetime
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.sparse import csr_array
from scipy.spatial.distance import jensenshannon

import lvsearch as lv
from lvsearch.comparison.alignment import component_map, draw_component_map
from lvsearch.texts.analyzer import Analyzer
from lvsearch.topics.coloured_text import ColouredText, colour_text
from lvsearch.topics.distinctive_words import TopicSketch, frex_scores, names_of, top_words
from lvsearch.topics.topic_map import topic_places
from lvsearch.topics.topic_scores import npmi_coherence
from lvsearch.topics.topic_shares import plot_prevalence, prevalence
from lvsearch.trees.topic_tree import TopicTree, TreeNode

WORDS = ["the", "apple", "pear", "iron", "tin"]


def axes():
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


@cache
def fitted():
    """Two kinds of documents that share a word; the first ten are about fruit."""
    counts = np.zeros((20, 5), int)
    counts[:, 0] = 6
    counts[:10, 1:3] = [3, 2]
    counts[10:, 3:5] = [2, 3]
    labels = ["fruit"] * 10 + ["metal"] * 10
    corpus = lv.Corpus.from_matrix(counts, vocabulary=WORDS, document_labels=labels)
    return lv.fit(lv.models.LDA(concentration=0.5, topic_concentration=0.1), corpus, size=2, seed=0, starts=3)


def fruit() -> int:
    return int(np.argmax(fitted().table("topic_word")["apple"]))


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_frex_is_the_harmonic_mean_of_two_ranks():
    topic_word = np.array([[0.5, 0.3, 0.15, 0.05], [0.5, 0.05, 0.05, 0.4]])
    scores = frex_scores(topic_word, 0.25)
    frequency = np.array([[4, 3, 2, 1], [4, 1.5, 1.5, 3]]) / 4
    share = topic_word / topic_word.sum(axis=0)
    exclusivity = np.array([[(row <= value).sum() for value in row] for row in share]) / 4
    np.testing.assert_allclose(scores, 1 / (0.25 / exclusivity + 0.75 / frequency))
    assert top_words(frex_scores(topic_word), WORDS, 1) == [["apple"], ["iron"]]  # not what both have
    with pytest.raises(ValueError, match="exclusivity"):
        frex_scores(topic_word, 1.5)


def test_names_are_distinctive_words_or_what_the_namer_says():
    fit = fitted()
    names = fit.names(2)
    assert set(names[fruit()].split()) == {"apple", "pear"}
    shown: list[TopicSketch] = []
    named = fit.names(namer=lambda sketch: shown.append(sketch) or "the same")
    assert list(named) == ["the same", "the same (2)"]
    assert [sketch.topic for sketch in shown] == [0, 1]
    sketch = shown[fruit()]
    assert sketch.words[0] == "the"
    assert sketch.distinctive[0] in ("apple", "pear")
    assert sketch.documents[0] in {f"document {d}" for d in range(10)}
    assert sum(each.share for each in shown) == pytest.approx(1)
    for wrong in ("", None):
        with pytest.raises(ValueError, match="as the name of topic 0"):
            names_of(shown, lambda _, wrong=wrong: wrong, 2)  # pyright: ignore[reportArgumentType]


# ── coherence, correlations, places ─────────────────────────────────────────────────────────────────────────────────


def test_coherence_is_that_of_pairs_counted_one_by_one():
    rng = np.random.default_rng(0)
    counts = (rng.random((30, 6)) < 0.4) * rng.integers(1, 4, (30, 6))
    counts[:, 4] = 1  # in every document
    counts[:, 5] = 0  # in none
    counts[counts[:, 0] > 0, 1] = 0  # never with the first
    top = np.array([[0, 1, 2], [2, 3, 4], [4, 5, 0]])
    has = counts > 0

    def npmi(v: int, w: int) -> float:
        both, one, other = (has[:, v] & has[:, w]).mean(), has[:, v].mean(), has[:, w].mean()
        if one == 0 or other == 0:
            return 0.0
        return -1.0 if both == 0 else float(np.log(both / one / other) / -np.log(both))

    expected = [np.mean([npmi(*pair) for pair in combinations(row, 2)]) for row in top.tolist()]
    np.testing.assert_allclose(npmi_coherence(top, csr_array(counts)), expected)
    assert npmi_coherence(np.array([[0, 1]]), csr_array(np.eye(2)[[0, 0, 1]] + np.eye(2)[[1, 1, 0]]))[0] == 1.0
    found = fitted().coherence(3)
    assert found[fruit()] > 0
    with pytest.raises(ValueError, match="got n_words=1, expected a whole number of at least 2"):
        fitted().coherence(1)


def test_topics_that_exclude_each_other_are_negatively_correlated():
    table = fitted().correlations().to_numpy()
    np.testing.assert_allclose(table, [[1, -1], [-1, 1]], atol=1e-6)


def test_three_topics_keep_their_distances_in_the_plane():
    topics = np.random.default_rng(1).dirichlet(np.full(8, 0.3), 3)
    places, shown = topic_places(topics)
    assert shown == pytest.approx(1)
    for one, other in combinations(range(3), 2):
        wanted = jensenshannon(topics[one], topics[other])
        assert np.linalg.norm(places[one] - places[other]) == pytest.approx(wanted)
    np.testing.assert_array_equal(topic_places(topics[:1])[0], [[0, 0]])
    ax = fitted().plot_topic_map(axes())
    assert {"0", "1"} <= {text.get_text() for text in ax.texts}


# ── prevalence ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_prevalence_by_values_that_have_no_order_is_refused():
    with pytest.raises(ValueError, match="types int, str, which have no order"):
        prevalence(np.full((3, 2), 0.5), np.array(["a", 1, "a"], object))


def test_prevalence_has_the_means_of_groups_and_intervals_that_hold_them():
    rng, missed, means = np.random.default_rng(2), 0, np.array([0.2, 0.8])
    for seed in range(40):
        shares = np.column_stack([rng.beta(2, 8, 60), np.zeros(60)])
        shares[:, 1] = 1 - shares[:, 0]
        by = ["a"] * 30 + ["b"] * 30
        table = prevalence(shares, by, seed=seed)
        assert list(table["group"]) == ["a", "a", "b", "b"]
        np.testing.assert_allclose(table["mean"], [*shares[:30].mean(0), *shares[30:].mean(0)])
        missed += int(((table["lower"] > means[table["topic"]]) | (table["upper"] < means[table["topic"]])).sum())
    assert missed < 0.12 * 160  # 95 % intervals, a little narrow at 30 documents
    assert missed > 0


def test_numbers_are_cut_into_groups_and_missing_values_left_out():
    shares = np.column_stack([np.linspace(0, 1, 40), 1 - np.linspace(0, 1, 40)])
    years = pd.Series([*range(1980, 2019), np.nan])
    table = prevalence(shares, years, bins=3)
    assert table["group"].nunique() == 3
    assert table.groupby("group", observed=True)["documents"].first().sum() == 39
    means = table[table["topic"] == 0]["mean"].to_numpy()
    assert (np.diff(means) > 0).all()  # groups are in order
    few = prevalence(shares, [1, 2] * 20, bins=3)
    assert list(few["group"].unique()) == [1, 2]
    assert np.isnan(prevalence(shares[:1], ["x"])["lower"]).all()
    for wrong, message in ((["a"] * 3, "got 3 values for 40"), ([None] * 40, "no document")):
        with pytest.raises(ValueError, match=message):
            prevalence(shares, wrong)


@pytest.mark.parametrize(
    ("dates", "groups"),
    [
        (
            pd.date_range("2000-01-01", periods=40, freq="61D"),
            "2000-01 … 2002-03, 2002-05 … 2004-05, 2004-07 … 2006-07",
        ),
        (pd.to_datetime(["2008-02-07"] * 20 + ["2008-01-05"] * 20), "2008-01, 2008-02"),
        (  # days, where groups share a month
            pd.date_range("2008-01-01", periods=40, freq="3D", tz="UTC"),
            "2008-01-01 … 2008-02-09, 2008-02-12 … 2008-03-19, 2008-03-22 … 2008-04-27",
        ),
    ],
)
def test_groups_of_dates_are_called_by_months_in_the_order_of_time(dates: pd.DatetimeIndex, groups: str):
    shares = np.column_stack([np.linspace(0, 1, 40), 1 - np.linspace(0, 1, 40)])
    frame = pd.DataFrame({"posted": dates})
    table = prevalence(shares, frame["posted"], bins=3)
    assert ", ".join(dict.fromkeys(table["group"])) == groups
    assert table[table["topic"] == 0]["documents"].sum() == 40
    ax = plot_prevalence(table, pd.Series(["first", "second"]), axes())
    assert [label.get_text() for label in ax.get_xticklabels()] == groups.split(", ")
    assert ax.lines[0].get_linewidth() == 1  # groups in order are joined


TEXTS = ["2008-01-05", "2008-01-20", None, "2008-04-01", "2008-04-02", "2008-06-30"]


@pytest.mark.parametrize(
    "dates",
    [
        TEXTS,
        pd.Series(pd.to_datetime(TEXTS)),
        np.array([text or "NaT" for text in TEXTS], "datetime64[D]"),
        [None if text is None else datetime.date.fromisoformat(text) for text in TEXTS],
        # a date has the month of its own clock, which in Greenwich may be another one
        pd.Series(pd.to_datetime(TEXTS).tz_localize("Asia/Tokyo")),
        [None if text is None else f"{text}T00:30:00+09:00" for text in TEXTS],
    ],
    ids=["texts", "pandas", "numpy", "python", "zone", "texts with a zone"],
)
def test_periods_of_the_calendar_hold_their_documents_and_gaps(dates: Any):
    shares = np.column_stack([np.linspace(0, 1, 6), 1 - np.linspace(0, 1, 6)])
    table = prevalence(shares, dates, period="month")
    first = table[table["topic"] == 0]
    assert list(first["group"]) == [f"2008-0{month}" for month in range(1, 7)]
    assert list(first["documents"]) == [2, 0, 0, 2, 0, 1]
    np.testing.assert_allclose(first["mean"], [0.1, np.nan, np.nan, 0.7, np.nan, 1.0])
    np.testing.assert_array_equal(np.isnan(first["lower"]), [False, True, True, False, True, True])
    quarters = prevalence(shares, dates, period="quarter")
    assert list(quarters["group"].cat.categories) == ["2008Q1", "2008Q2"]
    np.testing.assert_allclose(quarters[quarters["topic"] == 1]["mean"], [0.9, 0.2])
    assert set(prevalence(shares, dates, period="year")["group"]) == {"2008"}


@pytest.mark.parametrize(
    ("values", "period", "message"),
    [
        ([2008, 2009], "year", r"got 2008 for document 0 with period='year', expected a date.*str\(year\)"),
        (["2008-01-01", "31.01.2008"], "year", "got '31.01.2008' for document 1"),
        (["2008-01-01", "2008-13-01"], "month", "got '2008-13-01' for document 1"),
        (["today", "today"], "month", "got 'today'"),
        (["2008-01", "2009"], "month", "got '2009' for document 1"),  # in no month
        (["2008-01", "2009"], "week", "got period='week', expected one of 'month', 'quarter', 'year'"),
        ([None, None], "month", "got no document whose value is known"),
    ],
)
def test_periods_of_what_is_no_date_are_refused(values: list[Any], period: str, message: str):
    with pytest.raises(ValueError, match=message):
        prevalence(np.full((2, 2), 0.5), values, period=period)


def test_years_as_texts_are_years():
    table = prevalence(np.full((2, 2), 0.5), ["1066", "1068"], period="year")
    assert list(table["group"].cat.categories) == ["1066", "1067", "1068"]


def test_the_picture_of_periods_has_gaps_and_names_some_of_many():
    days = [text or "2008-02-01" for text in TEXTS]
    corpus = fitted().training.select(range(6))
    fit = replace(fitted(), training=corpus)
    ax = fit.plot_prevalence(days, period="month", ax=axes())
    assert [label.get_text() for label in ax.get_xticklabels()] == [f"2008-0{month}" for month in range(1, 7)]
    height = np.asarray(ax.lines[0].get_ydata(), float)
    np.testing.assert_array_equal(np.isnan(height), [False, False, True, False, True, False])
    table = prevalence(np.full((2, 2), 0.5), ["2000-01", "2007-12"], period="month")
    ax = plot_prevalence(table, pd.Series(["first", "second"]), axes())
    assert [label.get_text() for label in ax.get_xticklabels()][:3] == ["2000-01", "2000-05", "2000-09"]
    assert len(np.asarray(ax.lines[0].get_xdata())) == 96


def test_a_fit_knows_its_labels_and_its_metadata():
    table = fitted().prevalence().set_index(["group", "topic"])["mean"]
    assert table["fruit", fruit()] > 0.7 > table["metal", fruit()]
    with pytest.raises(ValueError, match="column of its metadata"):
        fitted().prevalence("year")
    ax = fitted().plot_prevalence(ax=axes())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["fruit", "metal"]


# ── documents, exports, maps ────────────────────────────────────────────────────────────────────────────────────────


def coloured_by(text: str, vocabulary: tuple[str, ...], analyzer: Analyzer) -> ColouredText:
    """A text under two topics, of the even and of the odd terms."""
    topics = np.array([[place % 2 == topic for place in range(len(vocabulary))] for topic in (0, 1)], float)
    topics /= topics.sum(1, keepdims=True)
    return colour_text(text, topics, np.ones(2), vocabulary, ["a", "b"], analyzer, n_topics=2, threshold=0.5)


@pytest.mark.parametrize(
    ("text", "vocabulary", "analyzer", "known"),
    [
        ("Paris and Rome", ("Paris", "Rome"), Analyzer(None, None, False, normalize=False, tokenizer=str.split), 2),
        ("हिन्दी और पानी", ("हिन्दी", "पानी"), Analyzer(None), 2),
        ("STRASSE, Bach.", ("straße", "bach"), Analyzer(None), 2),
        ("the C++ of 2023", ("c++", "2023"), Analyzer(None, r"c\+\+|\d+"), 2),
        ("Old York in New York!", ("york", "new york"), Analyzer(("york",), ngram_range=(1, 2)), 0),
        ("Old York in New York!", ("old", "new york"), Analyzer(None, ngram_range=(1, 2)), 3),
        ("mice ran", ("mouse", "run"), Analyzer(None, tokenizer=lambda text: ["mouse", "run"]), 2),
        ("I saw Rome. In new  york.", ("Rome.", "new  york"), Analyzer.for_vocabulary(("Rome.", "new  york")), 2),
    ],
)
def test_a_text_is_cut_by_the_rules_of_the_corpus_before_it_is_coloured(text, vocabulary, analyzer, known):
    if not known:
        with pytest.raises(ValueError, match="none in the vocabulary"):
            coloured_by(text, vocabulary, analyzer)
        return
    found = coloured_by(text, vocabulary, analyzer)
    assert "".join(found.pieces) == ("mouse run" if text == "mice ran" else text)
    assert found.words["known"].sum() == known
    assert found.words["word"].tolist() == [
        piece for piece, is_word in zip(found.pieces, found.is_word, strict=True) if is_word
    ]
    assert sum(colour is not None for colour in found.colours()) == known


@pytest.mark.parametrize("form", [list, tuple, np.array])
def test_a_list_of_words_is_coloured_as_it_is(form):
    kinds = [["Rome.", "new york", "the"], ["iron", "New. York", "the"]]
    corpus = lv.Corpus.from_tokens([kinds[number % 2] * 3 for number in range(12)])
    fit = lv.fit(lv.models.LDA(concentration=0.5, topic_concentration=0.1), corpus, size=2, seed=0)
    found = fit.coloured(form([*kinds[0], "new york", "york", "rome."]))
    assert found.words["word"].tolist() == ["Rome.", "new york", "the", "new york", "york", "rome."]
    assert found.words["known"].tolist() == [True] * 4 + [False] * 2
    assert found.topics["tokens"].sum() == pytest.approx(4)
    assert "".join(found.pieces) == "Rome. new york the new york york rome."
    for wrong in (3, None, ["apple", 3], {"Rome.": 1}):
        with pytest.raises(ValueError, match="expected a text or a list of words"):
            fit.coloured(wrong)


@pytest.mark.thorough
def test_a_coloured_text_has_no_topic_with_fewer_than_zero_tokens():
    """Rounding left −1e-11 tokens to a topic of an HDP."""
    kinds = [["cat", "mat", "sat"], ["stock", "market", "falls"], ["dogs", "bark", "loud"]]
    corpus = lv.Corpus.from_tokens([kinds[number % 3] * 2 for number in range(24)])
    fit = lv.fit(lv.models.HDP(), corpus, size=4, seed=0)
    assert (fit.coloured(["cat", "market"]).topics["tokens"] >= 0).all()


def test_words_of_a_document_are_coloured_by_where_they_came_from():
    fit = fitted()
    document = fit.document(2)
    apple = next(word for word in document.words if word.text == "apple")
    assert (apple.count, apple.topic) == (3, fruit())
    beta, theta = fit.table("topic_word")["apple"].to_numpy(), fit.proportions[2]
    assert apple.probability == pytest.approx(float((theta * beta)[fruit()] / (theta * beta).sum()))
    assert sum(word.count for word in document.words) == 11
    assert f"<sub>{fruit()}</sub>" in document.to_html()
    assert "apple" in str(document)
    drawn = [text.get_text() for text in document.plot(axes()).texts]
    assert f"apple×3 {fruit()}" in drawn
    with pytest.raises(ValueError, match="0 … 19"):
        fit.document(20)


def test_pyldavis_takes_what_is_given():
    inputs = fitted().to_pyldavis()
    assert inputs.topic_term_dists.shape == (2, 5)
    np.testing.assert_allclose(inputs.topic_term_dists.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(inputs.doc_topic_dists.sum(1), 1, atol=1e-12)
    assert list(inputs.doc_lengths) == [11] * 20
    assert list(inputs.term_frequency) == [120, 30, 20, 20, 30]
    assert inputs.vocab == tuple(WORDS)


def test_pyldavis_itself():
    package = pytest.importorskip("pyLDAvis", reason="pyLDAvis is not installed")
    package.prepare(**fitted().to_pyldavis()._asdict(), mds="mmds", R=3)


def test_the_map_between_sizes_draws_all_units_once():
    first = np.eye(2)[[0] * 6 + [1] * 4]
    second = np.eye(3)[[0] * 3 + [2] * 3 + [1] * 4]
    ax = axes()
    caption = draw_component_map(component_map(first, second), ax)
    bars = sorted(-patch.get_height() for patch in ax.patches)
    np.testing.assert_allclose(bars, sorted([0.6, 0.4, 0.3, 0.3, 0.4]))
    assert len(ax.collections) == 3  # bands: 0 to 0, 0 to 2, 1 to 1
    assert "0 → 0 + 2" in caption.text
    right = [float(patch.get_y()) for patch in ax.patches if patch.get_x() > 0.5]
    assert len(right) == 3


def test_many_even_parts_are_a_split():
    """A component of eight even parts, none of which has 15 % of it, is said to split into all eight."""
    even = component_map(np.ones((40, 1)), np.eye(8)[np.arange(40) % 8])
    assert even.splits == {0: tuple(range(8))}
    assert even.describe() == f"0 → {' + '.join(map(str, range(8)))} ({', '.join(['12%'] * 8)})"
    ax = axes()
    many = component_map(np.ones((120, 1)), np.eye(30)[np.arange(120) % 30])
    assert "0 → 0 + 1 + 2" in draw_component_map(many, ax).text
    assert len(ax.collections) == 30  # a band to every part, though each has 3 % of the units


def test_the_rest_of_a_component_is_told():
    parts = np.repeat([0, 1, 2, 3], [50, 36, 10, 4])
    assert component_map(np.ones((100, 1)), np.eye(4)[parts]).describe() == "0 → 0 + 1 (50%, 36%) and others (14%)"
    parts = np.repeat([0, 1, 2], [80, 10, 10])
    assert component_map(np.ones((100, 1)), np.eye(3)[parts]).describe() == "0 → 0 and others (20%)"
    assert component_map(np.eye(2)[[0, 0]], np.eye(1)[[0, 0]]).describe() == "0 → 0, 1 holds no units"


def test_a_tree_of_many_nodes_is_no_taller_than_asked():
    words = tuple((f"word{i}", 0.1) for i in range(6))
    leaves = [TreeNode(i, 0, 1, float(500 - i), 1.0, words, ()) for i in range(1, 400)]
    tree = TopicTree((TreeNode(0, None, 0, 1e5, 1.0, words, ()), *leaves))
    svg = tree.to_svg()
    height = float(svg.split('height="')[1].split('"')[0])
    assert 1000 < height <= 1400
    shown = svg.count("<rect") - 1
    assert f"and {399 - shown} smaller below" in svg
    assert "499 documents" in svg  # the largest stay
    assert tree.to_svg(most_height=10**6).count("<rect") == 400
