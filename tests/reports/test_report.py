"""The card, the report folder and the held-out comparison, on one small search."""

import html.parser
import json
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

import lvsearch as lv
from lvsearch.command.json_answer import json_answer
from lvsearch.command.simulated import planted, verdict
from lvsearch.files.plain_text import markdown
from lvsearch.fitted.kinds import component_table
from lvsearch.inference.likelihood import document_likelihood
from lvsearch.reports import report
from lvsearch.reports.page_parts import parts_of
from lvsearch.reports.report import write_report
from lvsearch.results.card import card, facts, headline, near_table, summary
from lvsearch.results.heldout import agreement, held_out_comparison
from lvsearch.results.plots import SLIDE, _list_components, draw_slide


@pytest.fixture(scope="module")
def split():
    drawn = planted(3, n_documents=60, n_tokens=30, n_terms=40, seed=1)
    labels = ["<a>" if document % 2 else "b|c" for document in range(60)]
    corpus = lv.Corpus.from_matrix(drawn.corpus.counts, drawn.corpus.vocabulary, document_labels=labels)
    return corpus.split(0.3, seed=0)


@pytest.fixture(scope="module")
def result(split):
    return lv.search(
        lv.models.LDA(),
        split[0],
        prior=lv.sizes.Poisson(3),
        max_size=4,
        starts=2,
        seed=2,
        keep=3,
        evidence="bound",
        progress=False,
    )


@pytest.fixture(scope="module")
def comparison(result, split):
    return result.compare_held_out(split[1], samples=20)


def nested():
    return lv.search(
        lv.from_function(lambda size: -20.0 / size[0], nested=True, ceiling=0.0),
        prior=lv.sizes.Poisson(4),
        max_size=5,
        progress=False,
    )


def beginning(result) -> str:
    """Of the answer: the most probable number, or why there is none."""
    number = result.best_size[0]
    if not result.estimated.is_decided:
        return "No single number yet: the evidence cannot choose between "
    return "1 topic (" if number == 1 else f"{number} topics ("


# ── the card ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_summary_answers_first_and_says_what_it_rests_on(result):
    lines = summary(result).splitlines()
    decided = result.estimated.is_decided
    assert lines[0].startswith((beginning(result), "Still rising at"))
    text = "\n".join(lines)
    for said in (
        "probability: " if decided else "probability: none yet: standard errors of",
        "too far apart to prove anything",
        "zero-truncated Poisson, rate 3",
        "topic_concentration 0.05; concentration 5 in total, spread evenly (α = 5/K)",
        f"42 documents (0 empty), 40 terms, 1,260 tokens; fingerprint {result.training.fingerprint[:16]}",
        "seed 2, 2 fits of each size near the best, largest size allowed 4",
        "result.compare_held_out(test)",
        "jax ",
        "device ",
    ):
        assert said in text
    assert "1.000" not in text
    assert repr(result) == summary(result)


def test_an_answer_that_is_decided_has_its_probability():
    found = lv.search(
        lv.from_function(lambda size: -2.0 * (size[0] - 3) ** 2), prior=lv.sizes.Poisson(3), max_size=6, progress=False
    )
    chance = found.posterior().set_index("size")["probability"][3]
    lines = summary(found).splitlines()
    assert lines[0].startswith(f"Size 3 ({100 * chance:.0f} %)")
    assert f"{chance:.3f} for size 3" in "\n".join(lines)


def test_plug_in_evidence_is_described_by_its_kinds():
    text = summary(nested())
    assert "proved:" in text
    assert "of these fits, not of the best parameters of a size" in text
    assert "certified" not in text
    assert "diminishing:" in text
    assert "a function of the size" in text
    assert "%)" not in text.splitlines()[0]  # no probability under bounds that leave everything open


def test_failures_are_reported_and_a_search_without_a_fit_has_a_card():
    failing = lv.search(
        lv.from_function(lambda size: float("nan") if size[0] == 2 else -1.0),
        prior=lv.sizes.Poisson(2),
        max_size=4,
        progress=False,
    )
    assert "1 fit(s) failed and were not ranked" in summary(failing)
    hopeless = lv.search(
        lv.from_function(lambda size: float("nan")), prior=lv.sizes.Poisson(2), max_size=2, progress=False
    )
    assert summary(hopeless).startswith("No fit succeeded")
    assert "not a number" in card(hopeless)


def test_the_table_holds_the_sizes_near_the_best(result):
    table = near_table(result)
    (row,) = [text for text in table["size"] if text.startswith("→")]
    assert row == f"→ {result.best_size[0]}"
    assert not table.isin(["1.000"]).any(axis=None)
    assert near_table(nested())["size"].iloc[-1] == "unvisited"


class Tags(html.parser.HTMLParser):
    """Every opened tag is closed, and nothing is loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.sources = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("img", "br", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.thorough
def test_card_is_self_contained_well_formed_html(result, comparison):
    tags = Tags()
    tags.feed(card(result, comparison))
    assert tags.open == []
    assert "script" not in tags.seen
    assert [source[:22] for source in tags.sources] == ["data:image/png;base64,"]
    assert "agrees" in card(result, comparison)
    assert result._repr_html_().startswith("<div class='lv-card'>")


def test_card_escapes_what_comes_from_the_data(result):
    from dataclasses import replace

    corpus = replace(result.training, notes=("<script>alert(1)</script>",))
    text = card(replace(result, training=corpus))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


# ── held-out documents ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_comparison_is_paired_and_relative_to_the_most_probable_size(result, split, comparison):
    import jax

    assert tuple(comparison["size"]) == tuple(sorted(size[0] for size in result.state.kept))
    reference = comparison.set_index("size").loc[result.best_size[0]]
    assert reference["difference_per_token"] == 0.0
    assert reference["standard_error"] == 0.0
    # Padding every size to one capacity changes nothing: the same numbers without it.
    scores, two = {}, sorted({int(comparison["size"].min()), int(result.best_size[0])})
    for size in two:
        fitted = result.fit(int(size))
        found = document_likelihood(
            fitted.table("topic_word").to_numpy(np.float64),
            fitted.alpha,
            split[1],
            method="ais",
            samples=8,  # particles: a quarter of the samples asked for, in eight islands of one at least
            key=jax.random.key(0),
        )
        scores[size] = found.log_likelihood
    tokens = split[1].n_tokens
    compared = comparison.set_index("size")["log_p_per_token"].loc[two]
    np.testing.assert_allclose(compared, [s.sum() / tokens for s in scores.values()], atol=1e-3)
    assert (comparison["standard_error"] >= 0).all()
    assert (comparison["log_p_per_token"] > -np.log(40)).all()  # better than uniform words


def test_agreement_names_the_verdict(comparison):
    better = comparison.copy()
    better.attrs = dict(comparison.attrs)
    reference = comparison.attrs["reference"][0]
    better["difference_per_token"] = np.where(better["size"] == reference, 0.0, -0.5)
    better["log_p_per_token"] = np.where(better["size"] == reference, -3.0, -3.5)
    assert agreement(better).startswith(f"agrees: {reference} predicts best")
    other = int(better["size"][better["size"] != reference].iloc[0])
    documents = comparison.attrs["n_units"]
    for gain, error, said in (
        (0.01, 0.005, "agrees within 0.02"),
        (0.3, 0.1, "disagrees by more than 0.02"),
        (0.3, 0.29, f"cannot tell on {documents} documents whether sizes differ by more than 0.02"),
        (0.01, 0.02, f"cannot tell on {documents} documents whether sizes differ by more than 0.02"),
    ):
        better.loc[better["size"] == other, "difference_per_token"] = gain
        better.loc[better["size"] == other, "standard_error"] = error
        better.loc[better["size"] == other, "log_p_per_token"] = -3.0 + gain
        assert agreement(better).startswith(said)


def test_one_document_has_no_error(result, split):
    with pytest.raises(ValueError, match="at least two"):
        held_out_comparison(result, split[1].select([0]))


def test_held_out_documents_come_back(result, split, tmp_path):
    result.save(tmp_path / "without")
    assert lv.load(tmp_path / "without").held_out is None
    replace(result, held_out=split[1]).save(tmp_path / "with")
    loaded = lv.load(tmp_path / "with").held_out
    assert loaded is not None
    assert (loaded.counts != split[1].counts).nnz == 0
    assert loaded.notes == split[1].notes


# ── the folder ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_report_holds_pictures_tables_and_one_summary(result, comparison, tmp_path):
    path = write_report(result, tmp_path / "report", held_out=comparison)
    names = {file.name for file in path.parent.iterdir()}
    assert names == {
        *("index.html", "summary.md"),
        *("posterior.png", "bounds.png", "held_out.png"),
        *("posterior.csv", "bounds.csv", "starts.csv", "topics.csv", "topic_words.csv", "held_out.csv"),
    }
    for name in ("posterior", "bounds", "held_out"):
        assert (path.parent / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    saved = pd.read_csv(path.parent / "posterior.csv")
    pd.testing.assert_frame_equal(saved, result.posterior(), check_dtype=False)
    words = pd.read_csv(path.parent / "topic_words.csv")
    table = result.best.table("topic_word")
    first = words[(words["topic"] == 0) & (words["rank"] == 1)].iloc[0]
    assert first["word"] == table.columns[table.to_numpy()[0].argmax()]
    np.testing.assert_allclose(first["probability"], table.to_numpy()[0].max(), rtol=1e-6)
    text = path.read_text(encoding="utf-8")
    assert text.startswith((f"# {beginning(result)}", "# Still rising at"))
    assert "(held_out.png)" in text
    assert "label" in text
    assert "b\\|c" in text or "\\<a>" in text  # labels are escaped where Markdown would eat them
    assert len(pd.read_csv(path.parent / "topics.csv")) == result.best_size[0]


@pytest.mark.thorough
def test_report_can_be_written_again_and_without_test_data(result, tmp_path):
    write_report(result, tmp_path)
    before = (tmp_path / "posterior.csv").read_text()
    path = write_report(result, tmp_path)
    assert (tmp_path / "posterior.csv").read_text() == before
    assert not (tmp_path / "held_out.csv").exists()
    assert not list(tmp_path.glob(".*"))
    assert "not looked at" in path.read_text(encoding="utf-8")


def test_report_of_a_function_has_no_topics(tmp_path):
    path = write_report(nested(), tmp_path)
    assert not (tmp_path / "topics.csv").exists()
    assert "unvisited" in path.read_text(encoding="utf-8")


def test_columns_of_the_data_may_have_the_name_of_the_index(monkeypatch):
    """Data of a hidden Markov model may have a column "state", for example."""

    class Fit(lv.FittedModel):
        """A fit with one table, which is all that a report needs of models without a section of their own."""

        def __init__(self):
            pass

        def tables(self):
            return {"means": pd.DataFrame({"state": [0.5], "x": [2.0]}, index=pd.RangeIndex(1, name="state"))}

    monkeypatch.setattr(report, "_best_model", lambda result: Fit())
    table = report._tables(nested(), None)["means"]
    assert list(table) == ["state", "state", "x"]
    section = parts_of(Fit())
    assert section is not None
    assert section.grids[0].columns == ("state", "state", "x")


def test_one_size_alone_has_no_error_from_a_comparison(result):
    alone = replace(result, state=replace(result.state, visits=result.visits[:1]))
    assert "of one size alone, so that nothing is compared" in summary(alone)
    assert "spread of repeated fits" not in summary(alone)


def test_one_of_a_thing_is_counted_in_the_singular():
    assert "(1 size, 1 fit, " in summary(
        lv.search(lv.from_function(lambda size: -1.0), prior=lv.sizes.Poisson(2), seconds=0, progress=False)
    )


def test_nothing_is_written_when_there_is_nothing_to_report(tmp_path):
    hopeless = lv.search(
        lv.from_function(lambda size: float("nan")), prior=lv.sizes.Poisson(2), max_size=2, progress=False
    )
    with pytest.raises(ValueError, match="no fit succeeded"):
        write_report(hopeless, tmp_path / "report")
    assert not (tmp_path / "report").exists()


# ── planted topics ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_planted_corpus_is_drawn_from_its_topics():
    drawn = planted(3, n_documents=400, n_tokens=50, n_terms=20, topic_concentration=0.05, seed=4)
    assert drawn.corpus.counts.shape == (400, 20)
    assert (drawn.corpus.document_lengths == 50).all()
    np.testing.assert_allclose(drawn.topic_word.sum(1), 1.0)
    expected = (drawn.proportions @ drawn.topic_word).mean(0)
    np.testing.assert_allclose(drawn.corpus.term_totals / drawn.corpus.n_tokens, expected, atol=0.02)
    with pytest.raises(ValueError, match="n_topics=0"):
        planted(0)


def test_verdict_is_honest(result):
    found = result.estimated
    assert "found, as the most probable" in verdict(found.best[0], found)
    assert "before it tried that size" in verdict(99, found)
    for size in found.sizes:
        if size == found.best:
            continue
        said = "cannot choose between" if size in found.indistinguishable else "NOT found"
        assert said in verdict(size[0], found)


def test_facts_name_each_thing_once(result):
    names = [fact.name for fact in facts(result)]
    assert len(names) == len(set(names))


# ── topics as a person reads them ───────────────────────────────────────────────────────────────────────────────────


def test_reports_show_topics_as_they_were_arranged(result, tmp_path):
    fit = result.best
    first, second, *others = fit.topic_numbers
    shown = fit.merged([(second, first)]).renamed({second: "the <first> two"})
    arranged = result.with_topics(shown)
    write_report(arranged, tmp_path / "report")
    topics = pd.read_csv(tmp_path / "report" / "topics.csv")
    assert sorted(topics["topic"]) == [second, *others]
    assert "the <first> two" in set(topics["name"])
    words = pd.read_csv(tmp_path / "report" / "topic_words.csv")
    assert set(words["topic"]) == {second, *others}
    assert markdown("the <first> two") in (tmp_path / "report" / "summary.md").read_text(encoding="utf-8")
    parts = parts_of(arranged.best_shown)
    assert [row.number for row in parts.rows] == topics["topic"].tolist()
    assert {row.name for row in parts.rows if row.number == second} == {"the <first> two"}
    assert {piece.part for unit in parts.explorer.units for piece in unit.pieces} <= {second, *others, None}
    assert {part for unit in parts.explorer.units for part, _ in unit.shares} <= {second, *others}
    assert "the &lt;first&gt; two" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    answer = json.loads(json_answer(arranged, tmp_path / "report" / "index.html"))
    assert [topic["topic"] for topic in answer["topics"]] == topics["topic"].tolist()
    # the answer is that of the search, and the folder keeps the arrangement
    assert arranged.best_size == result.best_size
    pd.testing.assert_frame_equal(arranged.posterior(), result.posterior())
    arranged.save(tmp_path / "run")
    again = lv.load(tmp_path / "run")
    assert again.arrangement == shown.arrangement
    assert again.best_shown.topics()["words"].tolist() == shown.topics()["words"].tolist()
    assert type(result.best_shown) is type(fit)


def test_topics_of_another_fit_are_refused(result):
    other = lv.fit(lv.models.LDA(), result.training, size=3, seed=5)
    with pytest.raises(ValueError, match=r"got topics of another fit, expected those of result\.best"):
        result.with_topics(other.without([0]))
    # another prior may make another size the most probable one: its topics are shown as they are
    arranged = result.with_topics(result.best.without([0]))
    moved = arranged.with_prior(lv.sizes.Table(tuple(float(size == 4 - result.best_size[0]) for size in (1, 2, 3, 4))))
    assert moved.best_size != result.best_size
    assert type(moved.best_shown) is type(result.best)


# ── one slide, one table ────────────────────────────────────────────────────────────────────────────────────────────


def texts_of(draw) -> list[str]:
    """All texts of a figure that `draw` draws."""
    figure = Figure(figsize=SLIDE, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_a_slide_has_the_answer_the_posterior_and_the_topics_as_they_were_arranged(result, tmp_path):
    first, second, *_ = result.best.topic_numbers
    arranged = result.with_topics(result.best.renamed({first: "an $own$ name"}).without([second]))
    texts = texts_of(partial(draw_slide, arranged))
    assert texts_of(partial(draw_slide, nested()))  # no components
    said = " ".join(texts).replace("\n", " ")
    assert headline(result) in said
    assert "Probability of each size" in texts
    assert "number of topics" in texts
    assert "an $own$ name" in texts
    for topic, row in arranged.best_shown.topics().iterrows():
        assert {str(topic), f"{row['prevalence']:.1%}"} <= set(texts)
        assert any(text.startswith(row["words"][:30]) for text in texts)
    assert str(result.best.names()[second]) not in texts
    assert any("LDA with 3 topics, fitted to 42 documents" in text and "1 hidden" in text for text in texts)
    for name in ("slide.svg", "slide.png"):
        arranged.save_slide(tmp_path / name)
        before = (tmp_path / name).read_bytes()
        arranged.save_slide(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before  # the same every time
    ElementTree.fromstring((tmp_path / "slide.svg").read_text(encoding="utf-8"))
    assert imread(tmp_path / "slide.png").shape[:2] == (1200, 2132)
    with pytest.raises(ValueError, match=r"got 'slide\.pptx', expected a name that ends in \.png or \.svg"):
        result.save_slide(tmp_path / "slide.pptx")


def test_a_slide_lists_the_largest_components_and_counts_the_others():
    table = pd.DataFrame({"name": [f"name {k}" for k in range(13)], "share": np.arange(13, 0, -1) / 91})
    texts = texts_of(lambda figure: _list_components(table, "clusters", figure.add_subplot()))
    assert [text for text in texts if text.startswith("name ")] == [f"name {k}" for k in range(10)]
    assert "and 3 smaller clusters" in texts


def test_the_table_of_components(result, tmp_path):
    result.save_table(tmp_path / "topics.csv")
    table, topics = pd.read_csv(tmp_path / "topics.csv", index_col="topic"), result.best.topics()
    assert table.columns.tolist() == ["name", "share", "label", "words"]
    assert table["words"].to_dict() == topics["words"].to_dict()
    assert table["name"].to_dict() == result.best.names().to_dict()
    np.testing.assert_allclose(table["share"], topics["prevalence"])
    with pytest.raises(ValueError, match=r"expected a name that ends in \.csv or \.xlsx"):
        result.save_table(tmp_path / "topics.txt")
    with pytest.raises(ValueError, match="has no data and no models"):
        nested().save_table(tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()


def test_a_table_for_excel(result, tmp_path, monkeypatch):
    def missing(*_, **__):
        raise ImportError("No module named 'openpyxl'")

    with monkeypatch.context() as patched:
        patched.setattr(pd.DataFrame, "to_excel", missing)
        with pytest.raises(ValueError, match=r"need openpyxl: pip install 'lvsearch\[excel\]'"):
            result.save_table(tmp_path / "topics.xlsx")
    pytest.importorskip("openpyxl")
    result.with_topics(result.best.renamed({0: "=1+1"})).save_table(tmp_path / "topics.xlsx")
    table = pd.read_excel(tmp_path / "topics.xlsx", index_col="topic")
    assert table["name"][0] == "'=1+1"  # a text, no formula
    assert table["words"].to_dict() == result.best.topics()["words"].to_dict()


@pytest.mark.thorough
def test_tables_of_clusters_states_and_others(monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(mean, 0.5, (12, 2)) for mean in (-3, 3, 3)])
    points = lv.Points.from_array(rows, columns=["name", "width"])  # a column may have a name of the table's own
    kind = lv.models.DiagonalComponents.scaled_to(rows)
    clusters = lv.fit(lv.models.FiniteMixture(kind), points, size=2, seed=0)
    table = component_table(clusters)
    assert table.columns.tolist() == ["name", "share", "name", "width"]
    assert table["share"].is_monotonic_decreasing
    assert table["width"].to_dict() == clusters.means()["width"].to_dict()
    hidden = lv.fit(lv.models.HiddenMarkov(kind), lv.Groups.from_arrays([rows]), size=2, seed=0)
    states = component_table(hidden)
    assert states["share"].sum() == pytest.approx(1)
    np.testing.assert_allclose(states["share"].sort_index(), np.concatenate(hidden.transform(hidden.training)).mean(0))
    assert states["name"].sort_index().tolist() == list(hidden.component_names())
    # units that are described by other numbers than shares, as a model of one's own may have
    for shares in (np.array([[0.2, 0.3]]), np.array([[-0.2, 1.2]])):
        with monkeypatch.context() as patched:
            patched.setattr(type(hidden), "transform", lambda self, data, shares=shares: shares)
            assert component_table(hidden).columns.tolist() == ["name"]
