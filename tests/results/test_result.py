"""What a result says: tables as promised, other priors without fitting, predictions that hold, models that add up."""

import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from small_searches import (
    KINDS,
    MAX_SIZE,
    N_DOCUMENTS,
    N_TERMS,
    PRIOR,
    Fake,
    annealed_visit,
    corpus,
    fake_search,
    searched,
    settings,
)

import lvsearch as lv
from lvsearch.results import findings
from lvsearch.results import result as results
from lvsearch.results.result import SearchResult
from lvsearch.searching.controller import SearchRules, SearchState
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing import bounds as bounds_of
from lvsearch.sizing.fit import Fit
from lvsearch.sizing.ledger import Visit, near_mode
from lvsearch.sizing.prediction import Prediction
from lvsearch.sizing.racing import UNSETTLED, found_so_far
from lvsearch.sizing.sizes import Size

COLUMNS = ["size", "log_prior", "log_evidence_lower", "log_evidence_upper", "standard_error"]
ESTIMATED = [*COLUMNS[:4], "log_evidence", *COLUMNS[4:]]
ENDS = ["probability_lower", "probability_upper"]
OTHER = lv.sizes.Geometric(0.35)
EVEN = lv.sizes.Table([0.5, 0.5])


@pytest.fixture
def no_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    for evidence in KINDS:
        searched(evidence)  # made once a process: not while it is forbidden
    monkeypatch.setattr(ModelEvaluator, "evaluate", lambda *_: pytest.fail("something was fitted"))


def held_out() -> lv.Corpus:
    return corpus().select(range(9, 20))


# ── the headline ────────────────────────────────────────────────────────────────────────────────────────────────────


def answer_of(*visits: Visit) -> str:
    evaluator = Fake(lambda size, trial: math.nan, nested=False, anneals=True)
    state = SearchState(visits, stopped="finished")
    return str(SearchResult(evaluator, EVEN, settings((2,)), state, None, 0.0)).splitlines()[0]


def test_errors_are_mentioned_only_where_they_leave_more_open_than_the_percentage_says():
    """It said "more than 99 %; not settled: errors of the evidence allow more than 99 % to more than 99 %"."""
    far = [annealed_visit(1, (0.0, 200.0)), annealed_visit(2, (-113.0, 200.0))]
    assert found_so_far(far, EVEN).moved_by_errors > UNSETTLED
    assert answer_of(*far) == "Size 1 (more than 99 %)."
    near = [annealed_visit(1, (0.0, 6.0)), annealed_visit(2, (-1.0, 6.0))]
    assert "not settled: an exact computation may give " in answer_of(*near)


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("evidence", "kind", "columns", "has_unvisited"),
    [
        ("bound", None, [*ESTIMATED, "probability", *ENDS], False),
        ("bound", "estimate", [*ESTIMATED, "probability", *ENDS], False),
        ("bound", "diminishing", [*COLUMNS, *ENDS], True),
        ("plug-in", None, [*COLUMNS, *ENDS], True),
        ("plug-in", "certified", [*COLUMNS, *ENDS], True),
        ("plug-in", "diminishing", [*COLUMNS, *ENDS], True),
        ("plug-in", "estimate", [*ESTIMATED, "probability", *ENDS], False),
    ],
)
def test_posterior_columns_are_as_promised(evidence: str, kind: str | None, columns: list[str], has_unvisited: bool):
    result = searched(evidence)
    table = result.posterior() if kind is None else result.posterior(kind=kind)
    assert list(table.columns) == columns
    sizes = sorted(visit.size[0] for visit in result.visits)
    assert list(table["size"]) == [*sizes, "unvisited"] if has_unvisited else list(table["size"]) == sizes
    visited = table[table["size"] != "unvisited"]
    assert list(visited["log_prior"]) == [PRIOR.log_pmf(size) for size in sizes]
    ends = table[ENDS].to_numpy()
    assert ((ends >= 0) & (ends <= 1) & (ends[:, :1] <= ends[:, 1:])).all()
    assert (visited["log_evidence_lower"] <= visited["log_evidence_upper"]).all()
    if has_unvisited:
        unvisited = math.fsum(math.exp(PRIOR.log_pmf(size)) for size in sizes)
        assert math.exp(table["log_prior"].iloc[-1]) == pytest.approx(1 - unvisited, rel=1e-9)
    if "probability" in columns:
        assert table["probability"].sum() == pytest.approx(1.0, abs=1e-12)


def test_the_two_kinds_do_not_share_a_default():
    assert (searched("bound").default_kind, searched("plug-in").default_kind) == ("estimate", "diminishing")
    assert searched("plug-in").posterior().equals(searched("plug-in").posterior("diminishing"))


def test_a_certified_posterior_under_marginal_evidence_is_refused():
    with pytest.raises(ValueError, match=r'under marginal evidence is \[0, 1\] everywhere.*posterior\(\).*"plug-in"'):
        searched("bound").posterior("certified")
    certified = searched("bound").certified()  # the bounds on log p(data) are there for whoever asks for them
    assert certified.log_lower < certified.log_upper


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"got kind='sharp', expected one of 'estimate', 'certified', 'diminishing'"):
        searched("plug-in").posterior("sharp")


def test_estimates_are_shown_with_one_standard_error_on_each_side():
    result = searched("bound")
    table = result.posterior().set_index("size")
    for visit in result.visits:
        row, error = table.loc[visit.size[0]], result.standard_errors[visit.size]
        assert row["standard_error"] == error > 0
        assert row["log_evidence_lower"] == visit.evidence.lower + visit.log_symmetry - error
        assert row["log_evidence_upper"] == visit.evidence.lower + visit.log_symmetry + error
    symmetric = {visit.size[0]: visit.log_symmetry for visit in result.visits}
    assert all(symmetric[size] == pytest.approx(math.log(math.factorial(size)), rel=1e-12) for size in symmetric)


@pytest.mark.parametrize("evidence", KINDS)
def test_bounds_have_a_row_per_expansion_and_are_monotone(evidence: str):
    result = searched(evidence)
    table = result.bounds()
    assert list(table.columns) == ["size", "log_lower", "log_upper", "seconds"]
    assert list(table["size"]) == [visit.size[0] for visit in result.visits]
    assert (table["log_lower"].diff().dropna() >= -1e-9).all()
    assert (table["log_upper"].diff().dropna() <= 1e-9).all()
    assert (table["log_lower"] <= table["log_upper"]).all()
    assert (table["seconds"] > 0).all()
    prefixes = [SearchState(result.visits[:length]) for length in range(1, len(result.visits) + 1)]
    rules = SearchRules(result.evaluator, result.prior, result.settings)
    searches = [rules.witness_search(state) for state in prefixes]
    history = [search.bounds() for search in searches]
    assert bounds_of.audit(history) == ()
    assert history[-1].log_upper == pytest.approx(table["log_upper"].iloc[-1], rel=1e-12)


@pytest.mark.parametrize("evidence", KINDS)
def test_starts_have_a_row_per_fit(evidence: str):
    result = searched(evidence)
    table = result.starts()
    of_annealing = ["log_evidence_upper", "standard_error", "steps"]
    assert list(table.columns) == [
        "size", "start", "log_evidence_lower", "log_evidence", *of_annealing, "seconds", "failure"
    ]  # fmt: skip
    assert table["standard_error"].isna().all()
    assert len(table) == sum(len(visit.trials) for visit in result.visits)
    best = table.groupby("size")["log_evidence"].max()
    assert all(best[v.size[0]] == v.estimate for v in result.visits if v.replaced_by is None)
    assert (table["failure"] == "").all()
    if evidence == "bound":
        assert (table["size"].value_counts()[[visit.size[0] for visit in near(result)]] == 3).all()
    assert table["start"].iloc[0] == "scratch"
    assert (table["start"] == "grown from 1").any() == (evidence == "plug-in")  # marginal fits shrink


def near(result: SearchResult) -> tuple[lv.sizing.ledger.Visit, ...]:
    return near_mode(result.visits, result.prior, result.settings.starts, 1.0, repeatable=True)


def test_plug_in_replacements_show_what_was_found_and_what_was_recorded():
    result = searched("plug-in")
    lower = [visit.evidence.lower for visit in result.visits]
    assert lower == sorted(lower)  # Proposition 1
    assert all(visit.log_symmetry == 0 for visit in result.visits)
    for visit in result.visits:
        best = max(visit.trials, key=lambda trial: trial.estimate)
        assert (visit.replaced_by is None) == (best.evidence == visit.evidence)


# ── another prior ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("no_fitting")
@pytest.mark.parametrize("evidence", KINDS)
def test_another_prior_is_a_re_weighting_without_any_fit(evidence: str):
    result = searched(evidence)
    other = result.with_prior(OTHER)
    assert other.prior == OTHER
    assert other.starts().equals(result.starts())
    assert other.state.kept == result.state.kept
    by_hand = {v.size: OTHER.log_pmf(v.size) + v.estimate for v in result.visits}
    assert other.best_size == max(by_hand, key=lambda size: by_hand[size])
    assert list(other.posterior("estimate")["log_prior"]) == [OTHER.log_pmf(k) for k in sorted(s[0] for s in by_hand)]
    records = [lv.sizing.evidence.Record(v.size, v.evidence, v.replaced_by) for v in result.visits]
    fresh = lv.WitnessSearch.from_records(OTHER, result.evaluator.ceiling, evidence == "plug-in", MAX_SIZE, records)
    assert other.certified() == fresh.bounds()
    last = other.bounds().iloc[-1]
    assert (last["log_lower"], last["log_upper"]) == (fresh.bounds().log_lower, fresh.bounds().log_upper)
    assert not other.bounds()["log_lower"].equals(result.bounds()["log_lower"])
    assert other.with_prior(PRIOR).posterior().equals(result.posterior())


@pytest.mark.thorough
def test_another_prior_gives_what_a_search_under_it_gives():
    """Plug-in, one size variable: the order is the same under every prior, so every row must be."""
    fresh = lv.search(
        lv.models.LDA(), corpus(), prior=OTHER, evidence="plug-in", max_size=MAX_SIZE, seed=2, progress=False
    )
    other = searched("plug-in").with_prior(OTHER)
    for kind in ("certified", "diminishing", "estimate"):
        assert other.posterior(kind).equals(fresh.posterior(kind))
    assert other.bounds().drop(columns="seconds").equals(fresh.bounds().drop(columns="seconds"))
    assert [v.replaced_by for v in other.visits] == [v.replaced_by for v in fresh.visits]


def test_another_prior_keeps_replaced_records_replaced_in_two_variables():
    def value(size: Size, trial: int) -> float:
        return -30.0 + 2.0 * size[0] + size[1] - 9.0 * (sum(size) % 3 == 0)

    first = lv.sizes.Product(lv.sizes.Poisson(2), lv.sizes.Poisson(3))
    second = lv.sizes.Joint(lambda s: -abs(s[0] - s[1]), (9, 9))
    result, _ = fake_search(Fake(value, size_names=("a", "b")), first, settings((4, 4), keep=2))
    assert any(visit.replaced_by for visit in result.visits)
    other = result.with_prior(second)
    assert [(v.size, v.evidence, v.replaced_by) for v in other.visits] == [
        (v.size, v.evidence, v.replaced_by) for v in result.visits
    ]
    assert [record.replaced_by for record in other.search.records] == [visit.replaced_by for visit in result.visits]
    lower, upper = other.bounds()["log_lower"].to_numpy(), other.bounds()["log_upper"].to_numpy()
    assert (lower[1:] >= lower[:-1] - 1e-12).all()
    assert (upper[1:] <= upper[:-1] + 1e-12).all()
    assert other.certified().log_lower == lower[-1]
    weights = {v.size: second.log_pmf(v.size) + v.evidence.lower for v in result.visits}
    assert other.best_size == min(weights, key=lambda size: (-weights[size], size))


def test_near_the_mode_is_decided_by_the_prior_given():
    result = searched("bound")
    only_two = lv.sizes.Table([0.0, 1.0])
    assert [visit.size for visit in near(result.with_prior(only_two))] == [(2,)]
    assert result.with_prior(only_two).best_size == (2,)
    table = result.with_prior(only_two).posterior().set_index("size")["probability"]
    assert dict(table) == {visit.size[0]: float(visit.size == (2,)) for visit in result.visits}


def test_a_prior_without_mass_where_anything_was_fitted_says_so():
    beyond = searched("bound").with_prior(lv.sizes.Table([0.0] * 9 + [1.0]))
    for ask in (lambda: beyond.best_size, beyond.posterior, lambda: beyond.predict(held_out())):
        with pytest.raises(ValueError, match=r"no mass to any size fitted \(1, 2, .*change the prior"):
            ask()


# ── prediction ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_plug_in_prediction_holds_every_average_that_is_possible():
    """All fits are kept. Whatever the truth is inside the ends that are known, its average lies in the interval."""
    result, docs = searched("plug-in"), held_out()
    prediction = result.predict(docs)
    assert prediction.estimate is None
    whole, single = prediction.whole_set, prediction.per_unit
    assert whole is not None
    assert single is not None
    assert (whole.form, single.form, whole.kind) == ("whole set", "per document", "certified")
    bounds = result.certified()
    assert set(bounds.sizes) == set(result.state.kept)
    ends = [result.fit(size).interval_units(docs) for size in bounds.sizes]
    low, high = (np.stack(side) for side in zip(*ends, strict=True))
    ceilings = np.array([saturated(row) for row in docs.counts.toarray()])
    random = np.random.default_rng(3)
    lower = np.append(bounds.weights_lower, bounds.unvisited_lower)
    upper = np.append(bounds.weights_upper, bounds.unvisited_upper)
    for trial in range(300):
        # the ends themselves matter most: draw uniformly, and often exactly an end
        def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            share = np.clip(random.uniform(-0.7, 1.7, np.shape(a)), 0, 1)
            return a + share * (b - a)

        weight = between(lower, upper)
        weight -= np.logaddexp.reduce(weight)
        unvisited = ceilings - random.exponential(10.0, ceilings.shape) * (trial % 3)
        scores = np.vstack([between(low, np.minimum(high, ceilings)), unvisited])
        total = np.logaddexp.reduce(weight + scores.sum(1))
        each = np.logaddexp.reduce(weight[:, None] + scores, axis=0).sum()
        assert whole.log_lower - 1e-9 <= total <= whole.log_upper + 1e-9
        assert single.log_lower - 1e-9 <= each <= single.log_upper + 1e-9
    assert whole.log_upper <= ceilings.sum() + 1e-6  # rounded outwards by its slack


def saturated(counts: np.ndarray) -> float:
    used = counts[counts > 0]
    return float((used * np.log(used / used.sum())).sum()) if used.size else 0.0


def test_prediction_without_a_kept_fit_is_wider_but_never_wrong():
    result, docs = searched("plug-in"), held_out()
    kept = {size: fit for size, fit in result.state.kept.items() if size == result.best_size}
    less = replace(result, state=replace(result.state, kept=kept)).predict(docs).whole_set
    more = result.predict(docs).whole_set
    assert less is not None
    assert more is not None
    assert less.log_lower <= more.log_lower <= more.log_upper <= less.log_upper


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of importance samples of each document: few, since numbers from the same draws are compared."""
    monkeypatch.setattr(findings, "SAMPLES", 16)
    return 16


@pytest.mark.thorough
def test_per_document_prediction_adds_over_documents_and_the_whole_set_does_not_beat_the_best(few_samples):
    result = searched("plug-in")
    first, second = corpus().select(range(11)), corpus().select(range(11, 22))
    both = corpus().select(range(22))
    parts = [result.predict(docs).per_unit for docs in (first, second, both)]
    assert parts[0].log_lower + parts[1].log_lower == pytest.approx(parts[2].log_lower, rel=1e-6)
    assert parts[0].log_upper + parts[1].log_upper == pytest.approx(parts[2].log_upper, rel=1e-6)
    marginal = searched("bound").predict(held_out()).estimate
    compared = searched("bound").compare_held_out(held_out(), samples=few_samples)
    per_size = compared["log_p_per_token"] * held_out().n_observations
    assert marginal is not None
    assert marginal.log_whole_set <= per_size.max() + 1e-9


@pytest.mark.thorough
def test_marginal_prediction_is_an_estimate_and_says_so(few_samples):
    result, docs = searched("bound"), held_out()
    prediction = result.predict(docs)
    assert (prediction.whole_set, prediction.per_unit) == (None, None)
    assert "estimate over the sizes whose fit was kept" in prediction.describe()
    assert "Each document by itself: annealed importance sampling" in prediction.describe()
    table = result.posterior().set_index("size")["probability"]
    held_out_table = result.compare_held_out(docs, samples=few_samples)
    per_size = held_out_table.set_index("size")["log_p_per_token"] * docs.n_observations
    weights = np.array([table[size] for size in per_size.index])
    by_hand = np.logaddexp.reduce(np.log(weights) + per_size.to_numpy())
    assert prediction.estimate is not None
    assert prediction.estimate.log_whole_set == pytest.approx(by_hand, rel=1e-9)
    assert prediction.estimate.log_per_unit >= prediction.estimate.log_whole_set - 1e-9
    texts = searched("plug-in").predict(docs).describe().splitlines()
    forms = ("whole set", "per document")
    assert [line.split(":")[0] for line in texts] == [f"proved of these fits, {form}" for form in forms]


def test_the_fields_of_a_prediction_are_documented():
    assert all(f"`{name}`" in (Prediction.__doc__ or "") for name in Prediction.__dataclass_fields__)


# ── fitted models ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("evidence", KINDS)
def test_scores_add_over_documents(evidence: str):
    model = searched(evidence).best
    first, second = corpus().select(range(11)), corpus().select(range(11, 22))
    both = corpus().select(range(22))
    assert model.score(first) + model.score(second) == pytest.approx(model.score(both), rel=1e-6)
    assert model.score(both) == pytest.approx(model.score_units(both).sum(), rel=1e-12)
    assert model.score_units(both)[7] == pytest.approx(0.0, abs=1e-9)  # an empty document is certain
    lower, upper = model.interval_units(both)
    assert (lower <= upper).all()
    assert (model.score_units(both) <= upper + 1e-9).all()


@pytest.mark.parametrize("evidence", KINDS)
def test_proportions_tables_and_topics(evidence: str):
    result = searched(evidence)
    model = result.best
    n_topics = model.estimate.size[0]
    proportions = model.transform(corpus())
    assert proportions.shape == (N_DOCUMENTS, n_topics)
    assert proportions.sum(1) == pytest.approx(1.0, abs=1e-9)
    assert (proportions >= 0).all()
    table = model.table("topic_word")
    assert table.shape == (n_topics, N_TERMS)
    assert (table.index.name, table.columns.name) == ("topic", "word")
    assert list(table.columns) == list(corpus().vocabulary)
    assert table.sum(axis=1).to_numpy() == pytest.approx(1.0, abs=1e-6)
    topics = model.topics(n_words=4)
    assert list(topics.columns) == ["prevalence", "label", "words"]
    assert topics["prevalence"].sum() == pytest.approx(1.0, abs=1e-6)
    assert (topics["prevalence"].diff().dropna() <= 0).all()
    assert set(topics["label"]) <= {"odd", "even"}
    for topic, words in topics["words"].items():
        assert words.split() == list(table.loc[topic].sort_values(ascending=False, kind="stable").index[:4])
    assert model.alpha.shape == (n_topics,)
    assert (model.alpha > 0).all()
    with pytest.raises(ValueError, match=r"no table 'topics': LDA has topic_word"):
        model.table("topics")


def test_documents_come_in_any_form():
    model = searched("bound").best
    counts = held_out().counts
    expected = model.score(held_out())
    for form in (counts, counts.toarray(), counts.tocoo(), held_out().to_frame()):
        assert model.score(form) == expected


def test_a_size_that_was_not_kept_is_fitted_when_asked_for():
    result = searched("bound")
    fewer = replace(result, state=replace(result.state, kept={}))
    model = fewer.fit(2)
    assert (model.size, model.estimate.size) == ((2,), (2,))
    assert model.evidence.lower == lv.fit(lv.models.LDA(), corpus(), size=2, seed=2).evidence.lower
    assert fewer.best.size == result.best.size


def test_a_size_that_was_not_kept_is_fitted_once(monkeypatch: pytest.MonkeyPatch):
    """A report asks for the best fit several times, and its size may be between those that were fitted."""
    result, made = searched("bound"), []

    def refit(evaluator: ModelEvaluator, size: Size) -> Fit:
        made.append(size)
        return result.state.kept[result.best_size]

    monkeypatch.setattr(ModelEvaluator, "refit", refit)
    fewer = replace(result, state=replace(result.state, kept={}))
    assert fewer.best.estimate is fewer.best.estimate
    fewer.fit(1), fewer.best
    assert made == [result.best_size, (1,), result.best_size]  # one fit is remembered, since fits are large


def test_one_size_without_a_search_is_the_fit_that_a_search_makes():
    result = searched("bound")
    repeated = next(visit for visit in result.visits if len(visit.trials) == 3)
    model = lv.fit(lv.models.LDA(), corpus(), size=repeated.size, seed=2, starts=3)
    from_documents = [trial.evidence.lower for trial in repeated.trials[1:]]
    assert model.evidence.lower >= max(from_documents)
    assert model.evidence.upper == result.evaluator.ceiling
    single = lv.fit(lv.models.LDA(), corpus(), size=1, seed=2, evidence="plug-in")
    assert single.evidence == searched("plug-in").visits[0].evidence


def test_evidence_is_that_of_the_state_it_carries():
    """Style trap 6: computed again from the kept arrays alone, the number is the same."""
    result = searched("plug-in")
    for size, fit in result.state.kept.items():
        lower, upper = result.fit(size).interval_units(corpus())
        assert lower.sum() == pytest.approx(fit.evidence.lower, rel=2e-4)  # the search for the ends may differ a little
        assert lower.sum() <= fit.evidence.upper + 1e-6
        assert upper.sum() >= fit.evidence.lower - 1e-6


def test_held_out_data_are_on_the_print_of_a_search_that_kept_some(monkeypatch: pytest.MonkeyPatch):
    """What was kept and which call compares on it; after that call, what it found. A print computes neither."""
    compare = results.held_out_comparison

    def with_few_samples(*given, samples, **named):  # how precise the scores are is not asked here
        return compare(*given, samples=min(samples, 16), **named)

    monkeypatch.setattr(results, "held_out_comparison", with_few_samples)
    asked = searched("bound")
    assert "corpus.split(0.1)" in repr(asked)
    kept = replace(asked, held_out=corpus().select(range(10)))
    said = "10 documents were kept out of the search, and not looked at yet: result.compare_held_out() compares"
    assert said in repr(kept)
    assert said in kept._repr_html_()
    table = kept.compare_held_out()
    first = repr(kept).splitlines()[1]
    assert first.startswith("  held-out:")
    assert "agrees" in first
    assert "not looked at" not in kept._repr_html_()
    pd.testing.assert_frame_equal(kept.compare_held_out(), table)
    assert said in repr(replace(kept))  # another prior may make another size the best
    with pytest.raises(ValueError, match="the search kept none"):
        asked.compare_held_out()


# ── sizes that were not tried ───────────────────────────────────────────────────────────────────────────────────────


def search_of_a_function(max_size: int | None, **settings) -> lv.SearchResult:
    function = lv.from_function(lambda size: -5.0 * abs(size[0] - 2))
    return lv.search(function, prior=lv.sizes.Geometric(0.05), max_size=max_size, progress=False, **settings)


def test_sizes_that_were_not_allowed_are_told_apart_from_sizes_that_were_not_tried():
    """One sentence gave the prior of sizes above the largest allowed, and the posterior of the allowed ones: 0.000."""
    told = " ".join(search_of_a_function(4, exhaustive=True).summary().split())
    assert "not tried: none: every size that is allowed and has prior probability was tried. Sizes above 4 were" in told
    assert "not allowed and hold 0.815 of the prior; nothing is said about them" in told
    free = " ".join(search_of_a_function(None).summary().split())
    assert "not allowed" not in free
    assert "not tried: sizes with 0." in free


def test_the_share_of_the_prior_of_allowed_sizes_that_were_not_tried():
    result = search_of_a_function(200)
    tried = sum(math.exp(result.prior.log_pmf(visit.size)) for visit in result.visits)
    allowed = 1 - 0.95**200
    assert result.unvisited[0] == pytest.approx(allowed - tried)
    assert result.prior_above_largest == pytest.approx(0.95**200)


def test_a_search_stopped_after_one_size_compares_nothing_and_says_so():
    """Its headline was "1 cluster (more than 99 %)" whatever the data were: the probability among one size is 1."""
    function = lv.from_function(
        lambda size: lv.Evidence(-100.0 / size[0], standard_error=0.1), size_names=("clusters",)
    )
    cut = lv.search(function, prior=lv.sizes.Geometric(0.05), seconds=0, progress=False)
    assert len(cut.visits) == 1
    told = " ".join(cut.summary().split())
    assert told.startswith(
        "Unfinished (stopped after 0 seconds): no comparison yet: 1 cluster is the only size measured; "
    )
    assert "sizes not tried hold 0.95" in told
    assert "none yet: 1 cluster is the only size measured. Give the search more time (seconds=)" in told
    assert "99 %" not in told
    assert "a flat one moves" not in told
    axes = cut.plot_posterior()
    assert axes.get_title(loc="left") == "Unfinished: no comparison yet"
    assert "1: >0.999" not in [text.get_text() for text in axes.texts]


def test_a_finished_search_without_a_number_does_not_ask_for_more_time():
    """It asked for seconds=, and went on with more seconds it ended where it was."""
    function = lv.from_function(lambda size: lv.Evidence(-float(abs(size[0] - 3)), standard_error=8.0))
    finished = lv.search(function, prior=lv.sizes.Poisson(3), max_size=4, progress=False)
    assert finished.is_finished
    told = " ".join(finished.summary().split())
    assert "too large, above 3 nats, to give any size a probability. Give evidence with smaller standard errors" in told
    cut = replace(finished, state=replace(finished.state, stopped="stopped after 9 seconds"))
    assert "Give the search more time (seconds=), or more data" in " ".join(cut.summary().split())


def test_a_search_that_is_allowed_one_size_compares_nothing_and_says_so():
    """It said "Still rising at 1 cluster, the largest allowed", as if smaller ones had been tried."""
    function = lv.from_function(
        lambda size: lv.Evidence(-100.0 / size[0], standard_error=0.1), size_names=("clusters",)
    )
    one = lv.search(function, prior=lv.sizes.Geometric(0.05), max_size=1, progress=False)
    told = " ".join(one.summary().split())
    assert told.startswith("Nothing to compare: 1 cluster is the only size allowed.")
    assert "none: 1 cluster is the only size allowed. Allow more (max_size=)" in told
    assert "ising" not in told
    assert one.plot_posterior().get_title(loc="left") == "Nothing to compare"


def test_a_search_stopped_while_the_evidence_rises_gives_no_probability():
    """It gave the largest size tried more than 99 %."""
    tried = []

    def evidence(size):
        tried.append(size)
        if len(tried) > 5:
            raise KeyboardInterrupt
        return lv.Evidence(10.0 * size[0], standard_error=0.1)

    function = lv.from_function(evidence, size_names=("clusters",))
    cut = lv.search(function, prior=lv.sizes.Geometric(0.05), progress=False)
    largest = max(tried[:5])[0]
    told = " ".join(cut.summary().split())
    assert told.startswith(f"Unfinished (interrupted): still rising at {largest} clusters, the largest tried")
    assert f"none yet: the evidence still rises at {largest} clusters, and larger sizes were not tried" in told
    assert "99 %" not in told
    assert "a flat one moves" not in told
    assert not any("0.999" in text.get_text() for text in cut.plot_posterior().texts)


def test_one_second_is_in_the_singular():
    def evidence(size):
        time.sleep(0.6)
        return -1.0

    cut = lv.search(lv.from_function(evidence), prior=lv.sizes.Geometric(0.05), seconds=1, progress=False)
    assert cut.summary().startswith("Unfinished (stopped after 1 second): ")


def test_an_error_of_rounding_is_not_told_in_digits():
    """It was "about 7.05e-14 nats" where all fits of a size agree."""
    rows = np.random.default_rng(0).normal(size=(30, 2))
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows))
    found = lv.search(model, rows, max_size=2, starts=2, evidence="bound", progress=False)
    assert "from the spread of repeated fits, is below 0.001 nats" in found.summary()


# ── more data ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def kinds_of_documents(random, kinds: tuple[int, ...], n: int) -> np.ndarray:
    """Return n documents of 20 words of each of some kinds; kind k has words 5 k to 5 k + 4 of twenty."""
    shares = np.kron(np.eye(4), np.full(5, 0.2))
    return np.concatenate([random.multinomial(20, shares[kind], n) for kind in kinds])


def batches() -> tuple[lv.Corpus, lv.Corpus]:
    """Two kinds of documents, and a batch of both and of a third one with words of its own, which come first."""
    random = np.random.default_rng(3)
    first = kinds_of_documents(random, (0, 1), 12)[:, :10]
    order = [*range(10, 15), *range(10)]
    later = kinds_of_documents(random, (0, 1, 2), 8)[:, order]
    names = [f"w{number}" for number in range(15)]
    return lv.Corpus.from_matrix(first, names[:10]), lv.Corpus.from_matrix(later, [names[place] for place in order])


@pytest.mark.thorough
def test_a_search_of_more_data_begins_where_the_last_one_ended(tmp_path):
    """A mixture of unigrams is fitted without compiling anything."""
    corpus, later = batches()
    train, test = corpus.split(0.2, seed=1)
    model, prior = lv.models.MixtureOfUnigrams(), lv.sizes.Poisson(2)
    old = lv.search(model, train, prior=prior, evidence="bound", max_size=5, seed=4, held_out=test, progress=False)
    assert old.best_size == (2,)
    new = old.update(later, progress=False)
    assert [visit.size for visit in new.visits[:3]] == [(1,), (2,), (3,)]
    assert new.visits[1].trials[0].start == "an earlier fit of this size"
    assert new.is_finished
    assert new.best_size == (3,)
    assert (new.prior, new.settings) == (old.prior, old.settings)
    assert old.best_size == (2,)
    assert new.training.vocabulary == (*corpus.vocabulary, *(f"w{number}" for number in range(10, 15)))
    before, after = old.best.table("topic_word"), new.best.table("topic_word")
    similar = np.sqrt(before.to_numpy()) @ np.sqrt(after.to_numpy()[:, :10]).T
    assert similar.argmax(axis=1).tolist() == [0, 1]
    assert after.loc[2, [f"w{number}" for number in range(10, 15)]].sum() > 0.9
    assert new.held_out.vocabulary == new.training.vocabulary
    assert new.held_out.n_tokens == test.n_tokens
    new.save(tmp_path / "run")
    assert lv.load(tmp_path / "run").best_size == (3,)
    fewer = old.update(later, max_size=2, seed=7, prior=OTHER, progress=False)
    assert max(visit.size for visit in fewer.visits) == (2,)
    assert (fewer.settings.seed, fewer.prior) == (7, OTHER)
    with pytest.raises(ValueError, match="expected documents"):
        old.update(lv.Points.from_array([[1.0]]))
    with pytest.raises(ValueError, match="seconds"):
        old.update(later, seconds=-1)


def test_a_search_over_a_function_has_no_data_to_join():
    result = lv.search(lv.from_function(lambda size: -float(size)), max_size=2, progress=False)
    with pytest.raises(ValueError, match="without a model"):
        result.update([[1]])


@pytest.mark.parametrize(
    "evidence", [pytest.param("annealed", marks=pytest.mark.slow), pytest.param("plug-in", marks=pytest.mark.thorough)]
)
def test_a_topic_that_only_the_new_batch_has_is_found(evidence):
    corpus, later = batches()
    model = lv.models.LDA(concentration=0.5, topic_concentration=0.2)
    old = lv.search(model, corpus, evidence=evidence, max_size=4, starts=1, seed=0, progress=False)
    new = old.update(later, progress=False)
    assert [visit.size for visit in new.visits[:3]] == [(1,), old.best_size, (old.best_size[0] + 1,)]
    if evidence == "annealed":
        assert (old.best_size, new.best_size) == ((2,), (3,))
        before, after = old.best.table("topic_word"), new.best.table("topic_word")
        similar = np.sqrt(before.to_numpy()) @ np.sqrt(after.to_numpy()[:, :10]).T
        assert similar.argmax(axis=1).tolist() == [0, 1]
        assert after.loc[2, [f"w{number}" for number in range(10, 15)]].sum() > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("evidence", ["marginal", "predictive"])
def test_a_cluster_that_only_the_new_batch_has_is_found(evidence):
    """Chains over partitions and predictions begin anew; clusters keep their numbers all the same."""
    random = np.random.default_rng(0)
    centres = np.array([[-5.0, 0], [5, 0], [0, 9]])
    first = centres[np.repeat([0, 1], 20)] + random.standard_normal((40, 2))
    later = centres[np.repeat([1, 2], 15)] + random.standard_normal((30, 2))
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(np.concatenate([first, later])))
    starts = 3 if evidence == "predictive" else None
    old = lv.search(model, first, evidence=evidence, max_size=4, starts=starts, seed=0, progress=False)
    new = old.update(later, progress=False)
    assert (old.best_size, new.best_size) == ((2,), (3,))
    assert new.best.labels()[:40].equals(old.best.labels())


@pytest.mark.thorough
def test_of_a_new_batch_the_same_share_is_held_out():
    """Rows of the new batch are held out too: old ones alone would not reward what is new."""
    rng = np.random.default_rng(0)
    first, later = (lv.Points.from_array(rng.normal(centre, 1.0, (40, 2))) for centre in (0.0, 12.0))
    train, test = first.split(0.25, seed=0)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents())
    old = lv.search(model, train, evidence="predictive", held_out=test, max_size=3, progress=False)
    new = old.update(later, progress=False)
    assert isinstance(new.held_out, lv.Points)
    assert isinstance(new.training, lv.Points)
    assert (len(new.held_out), len(new.training)) == (20, 60)  # of 10 and 30 before
    assert (new.held_out.values[10:] > 6).all()  # of the new cluster
    assert new.best_size[0] > old.best_size[0]
