"""What `print(fit)` and a notebook show of a fit: a short card, made without inference."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import lvsearch as lv
from lvsearch.fitted import model as fitted_model
from lvsearch.fitted.model import FittedModel


@cache
def topics(evidence: str = "bound") -> FittedModel:
    counts = np.zeros((20, 5), int)
    counts[:, 0] = 6
    counts[:10, 1:3] = [3, 2]
    counts[10:, 3:5] = [2, 3]
    corpus = lv.Corpus.from_matrix(counts, vocabulary=["the", "apple", "pear", "iron", "<b>tin</b>"])
    return lv.fit(lv.models.LDA(concentration=0.5, topic_concentration=0.1), corpus, size=2, evidence=evidence, seed=0)


@cache
def clusters() -> FittedModel:
    rng = np.random.default_rng(0)
    values = np.repeat([[0.0, 5.0], [9.0, 5.0]], 15, axis=0) + 0.1 * rng.standard_normal((30, 2))
    frame = pd.DataFrame(values, columns=["length", "width"])
    return lv.fit(
        lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(frame.to_numpy())), frame, size=2, seed=0
    )


def test_a_print_of_topics_is_a_short_card():
    shown = repr(topics())
    lines = shown.splitlines()
    assert lines[0] == "LDA with 2 topics, fitted to 20 documents (220 tokens)"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["evidence", "topic 0", "topic 1", "model", "try"]
    assert "log p(data | 2 topics) is at least −" in lines[1]
    assert lines[1].endswith(" nats (proved)")
    assert any("apple" in line and "pear" in line for line in lines[2:4])
    assert "fit.topics()" in lines[-1]
    assert "array(" not in shown
    assert len(shown) < 900


def test_the_bounds_shown_are_proved_too():
    """A lower bound is rounded down and an upper one up."""
    shown = repr(replace(topics(), evidence=lv.Evidence(-1234.9, -1000.1)))
    assert "at least −1,235 and at most −1,000 nats (proved)" in shown
    assert "is −12.0 nats" in repr(replace(topics(), evidence=lv.Evidence(-12.0)))
    assert "nothing is proved" in repr(replace(topics(), evidence=lv.Evidence(-np.inf, np.inf)))


@pytest.mark.slow
def test_a_plug_in_fit_says_of_what_its_probability_is():
    assert "log p(data | these estimated parameters)" in repr(topics("plug-in"))


def test_printing_describes_no_unit(monkeypatch: pytest.MonkeyPatch):
    def refuse(self, data):
        raise AssertionError("a print ran inference")

    monkeypatch.setattr(FittedModel, "_describe", refuse)
    for fit in (topics(), clusters()):
        assert "1: " in repr(replace(fit))  # a copy has nothing cached
        assert fit._repr_html_()


def test_the_card_of_a_notebook_has_the_same_facts_escaped():
    page = topics()._repr_html_()
    assert page is not None
    assert page.startswith("<div class='lv-card'>")
    assert "<h3>LDA with 2 topics" in page
    assert "&lt;b&gt;tin" in page
    assert "<b>tin" not in page


def test_clusters_are_named_by_their_columns():
    lines = repr(clusters()).splitlines()
    assert lines[0] == "FiniteMixture with 2 components, fitted to 30 rows (60 cells)"
    assert sum("length" in line for line in lines if line.strip().startswith("component ")) == 2


def test_a_print_never_raises(monkeypatch: pytest.MonkeyPatch):
    half_made = object.__new__(type(topics()))
    assert "FittedTopics" in repr(half_made)
    assert half_made._repr_html_() is None
    monkeypatch.setattr(type(clusters()), "component_names", lambda self: 1 / 0)
    assert "component 0" not in repr(clusters())


def test_many_components_and_large_fits_stay_short(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(type(clusters()), "component_names", lambda self: ("x" * 500,) * 50)
    lines = repr(clusters()).splitlines()
    assert "30 more: fit.component_names()" in lines[-3]
    assert max(map(len, lines[2:-2])) < 130
    monkeypatch.setattr(fitted_model, "MOST_NUMBERS", 10)
    assert "component 0" not in repr(clusters())


def test_a_witness_is_said():
    fit = topics()
    shown = repr(replace(fit, size=(3,)))
    assert "LDA with 3 topics" in shown
    assert "this is the fit of 2 topics: no fit of 3 topics was better" in shown


def subclasses(of: type) -> list[type]:
    return [of, *(each for below in of.__subclasses__() for each in subclasses(below))]


@pytest.mark.parametrize("kind", subclasses(FittedModel))
def test_every_kind_of_fit_names_methods_that_it_has_and_prints_a_card(kind: type[FittedModel]):
    assert kind.__repr__ is FittedModel.__repr__  # a dataclass writes its own unless told not to
    assert 3 <= len(kind._useful_calls) <= 6
    assert all(callable(getattr(kind, call.partition("(")[0])) for call in kind._useful_calls)


@pytest.mark.parametrize("fitted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_latent_class_is_named_by_its_frequent_answers_to_two_questions(fitted: bool):
    """The names were "smokes=often 0.0895, smokes=never 0.91": one question twice, the rare answer first."""
    z = np.repeat([0, 1], 20)
    often = np.random.default_rng(0).random((3, 40)) < np.where(z, 0.9, 0.1)
    frame = pd.DataFrame(dict(zip(("smokes", "drinks", "eats"), np.where(often, "often", "never"), strict=True)))
    points = lv.Points.from_categories(frame)
    if fitted:
        kind = lv.models.CategoricalComponents.from_columns(points.columns)
        names = lv.fit(lv.models.FiniteMixture(kind), points, size=2, seed=0).component_names()
    else:
        means = pd.DataFrame([points.values[z == k].mean(axis=0) for k in (0, 1)], columns=points.columns)
        names = fitted_model.column_names_of(means, points, relative=True)
    assert len(names) == 2
    for name in names:
        answers = [answer.rsplit(" ", 1) for answer in name.split(", ")]
        assert len({answer.split("=")[0] for answer, _ in answers}) == 2
        assert len({answer.split("=")[1] for answer, _ in answers}) == 1  # all "often", or all "never"
        assert all(float(share) > 0.7 for _, share in answers)


def test_a_feature_of_no_row_has_no_loadings_in_its_name():
    """It was called "c 4.46e−20, d 8.61e−20"."""
    rng = np.random.default_rng(0)
    rows = (rng.random((30, 2)) < 0.5) @ np.array([[3.0, 0.0, 1.0], [0.0, 3.0, 1.0]]) + 0.3 * rng.standard_normal(
        (30, 3)
    )
    values = pd.DataFrame([[3.0, 0.0, 1.0], [1e-20, 0.0, -1e-19]], columns=["a", "b", "c"])
    points = lv.Points.from_array(rows, columns=["a", "b", "c"])
    found = fitted_model.column_names_of(values, points, relative=False)
    assert found == ("a 3, c 1", "adds to no column")


def test_a_process_of_topics_calls_them_topics():
    fit = lv.fit(lv.models.HDP(), topics().training, size=2, seed=0)
    assert "topic 0:" in repr(fit)
    assert "component" not in repr(fit)


def test_the_card_of_one_component_of_one_column_names_only_calls_that_answer():
    rows = pd.DataFrame({"x": np.arange(9.0) % 2})
    fit = lv.fit(lv.models.FiniteMixture(lv.models.BernoulliComponents()), rows, size=1)
    assert "uncertain" not in repr(fit)
    assert "plot_clusters" not in repr(fit)
    assert "fit.uncertain()" in repr(clusters())
    assert "fit.plot_clusters()" in repr(clusters())
