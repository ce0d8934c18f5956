"""A search of a mixture of rows by chains over partitions: what it finds, against enumeration, and how it stops."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.reports.report import write_report
from lvsearch.results import wording
from lvsearch.searching import allocation_evaluator
from lvsearch.searching.allocation_evaluator import MOST_SWEEPS, PRECISION

SIZES = 8
PRIOR, OTHER_PRIOR = lv.sizes.Geometric(0.25), lv.sizes.Poisson(2)
ROWS = cases.VALUES[:5]
MODEL = lv.models.FiniteMixture(cases.KNOWN.component, 1.3)
SETTINGS: dict[str, Any] = {"prior": PRIOR, "max_size": SIZES, "seed": 0, "progress": False}


@cache
def searched() -> lv.SearchResult:
    return lv.search(MODEL, ROWS, **SETTINGS)


def enumerated(prior: lv.sizes.SizePrior) -> tuple[np.ndarray, np.ndarray]:
    """(p(K | rows) of K = 1 … SIZES, p(K₊ | rows) of K₊ = 1 … number of rows)."""
    joint = np.full((SIZES, len(ROWS)), -np.inf)
    for labels in exact.partitions(len(ROWS)):
        array = np.array(labels)
        parts = max(labels)
        likelihood = sum(cases.KNOWN.log_marginal(ROWS[array == part]) for part in range(parts + 1))
        for size in range(1, SIZES + 1):
            weight = prior.log_pmf((size,)) + exact.log_finite_prior(labels, size, 1.3) + likelihood
            joint[size - 1, parts] = np.logaddexp(joint[size - 1, parts], weight)
    probability = np.exp(joint - logsumexp(joint))
    return probability.sum(1), probability.sum(0)


def off_by(result: lv.SearchResult, truth: np.ndarray) -> float:
    """The largest distance of a probability from the truth, in its Monte Carlo errors."""
    assert result.partitions is not None
    table = result.posterior()
    error = result.partitions.monte_carlo_error[table["size"] - 1]
    return float(np.abs((table["probability"] - truth[table["size"] - 1]) / error).max())


def test_the_default_agrees_with_enumeration() -> None:
    result = searched()
    sizes, occupied = enumerated(PRIOR)
    assert result.settings.evidence == "partitions"
    assert off_by(result, sizes) < 4
    found = result.partitions
    assert found is not None
    assert found.is_settled
    assert np.abs(found.occupied_probability - occupied[: len(found.occupied_probability)]).max() < 4 * PRECISION


def test_another_prior_weighs_the_same_draws_anew() -> None:
    other = searched().with_prior(OTHER_PRIOR)
    sizes, _ = enumerated(OTHER_PRIOR)
    assert off_by(other, sizes) < 4
    assert off_by(searched(), sizes) > 10  # the two priors can be told apart
    assert "occupied:" not in other.summary()
    assert "next:" not in other.summary()  # no partitions are known under it


def test_the_card_says_what_the_largest_size_leaves_out() -> None:
    """Only annealed searches said it. Under another prior the share is another one."""
    assert f"not tried:   Sizes above {SIZES} were not allowed and hold 0.100 of the prior" in searched().summary()
    wide = searched().with_prior(lv.sizes.Uniform(2 * SIZES)).summary()
    assert f"uniform on 1…{2 * SIZES};" in wide
    assert f"not tried:   Sizes above {SIZES} were not allowed and hold 0.500 of the prior" in wide


def test_what_needs_annealed_evidence_says_which_search_it_got() -> None:
    """It named evidence='partitions', which nobody had asked for, and "what is audited" to people who had not."""
    by_chains = r"got a search by chains over partitions, the default for this model, expected annealed evidence"
    with pytest.raises(ValueError, match=f'{by_chains}: `sensitivity` needs .*evidence="annealed"'):
        searched().sensitivity()
    with pytest.raises(ValueError, match=f'{by_chains}: `audit` needs .*evidence="annealed"'):
        searched().audit()


def test_starts_change_nothing() -> None:
    """Chains go on until they agree, as the documentation of `starts` says."""
    again = lv.search(MODEL, ROWS, **SETTINGS, starts=1)
    assert again.posterior().equals(searched().posterior())


def test_members_of_a_mixture_prior_agree_with_enumeration() -> None:
    """An improbable size, whose evidence is known to many nats only, decided how probable its member is."""
    members = (lv.sizes.Geometric(0.5), lv.sizes.Table([0.0] * (SIZES - 1) + [1.0]))
    prior = lv.sizes.Mixture((0.9999, 0.0001), members)
    evidence, _ = enumerated(lv.sizes.Uniform(SIZES))
    of_member = [np.exp([member.log_pmf((size,)) for size in range(1, SIZES + 1)]) @ evidence for member in members]
    truth = np.array(prior.weights) * of_member
    for result in (lv.search(MODEL, ROWS, **{**SETTINGS, "prior": prior}), searched().with_prior(prior)):
        found = result.prior_members()
        np.testing.assert_allclose(found["probability"], truth / truth.sum(), rtol=0.1)
        assert (found["probability_lower"] <= truth / truth.sum()).all()
        assert (found["probability_upper"] >= truth / truth.sum()).all()


def test_no_size_above_the_largest_is_fitted() -> None:
    """The chains know larger sizes where they were begun with a larger limit."""
    evaluator = allocation_evaluator.AllocationEvaluator(MODEL, lv.Points.from_array(ROWS).dataset(), seed=0)
    chains = evaluator.lengthen(None, PRIOR, (SIZES,))
    while not chains.run.blocks:
        chains = evaluator.lengthen(chains, PRIOR, (SIZES,))
    visits = searched().visits[:1]
    upwards = lv.sizes.Poisson(40)
    assert evaluator.next_fit(chains, visits, upwards, None, 1) != (2,)
    assert evaluator.next_fit(chains, visits, upwards, (2,), 1) == (2,)


def test_the_answer_is_read() -> None:
    result = searched()
    best = int(enumerated(PRIOR)[0].argmax()) + 1
    assert result.is_finished
    assert result.best_size == (best,)
    assert result.summary().startswith(f"{best} component")
    assert "chains over partitions" in result.summary()
    assert "occupied:" in result.summary()
    assert "next:        result.partition() says which rows" in result.summary()
    assert result.best.predict().shape == (len(ROWS),)
    assert {"size", "probability", "log_evidence", "standard_error"} <= set(result.posterior().columns)
    assert "lv-card" in result._repr_html_()
    for draw in (result.plot_posterior, result.plot_bounds, result.plot_progress):
        draw()
    # rows are scored under draws of sizes and parameters, not at the means of fits: of few rows that is nats apart
    predicted = result.predict(ROWS).estimate
    assert predicted is not None
    expected = result.draws(4000).log_predictive(ROWS)["log_predictive"].sum()
    assert predicted.log_per_unit == pytest.approx(expected, rel=1e-6)
    assert "draws of all sizes and parameters" in predicted.describe()


def test_an_open_number_is_told_by_the_components_that_hold_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headline was "17 components (4 %); 95 %: 6–54" for galaxies, which nobody can act on."""
    result = searched()
    assert result.partitions is not None
    assert "number open" not in result.summary()  # the range of these few rows is wide, but has few numbers
    monkeypatch.setattr(wording, "LEAST_WIDTH_OPEN", 2)
    held, best, _ = result.partitions.occupied_summary()
    told = result.summary()
    assert told.startswith(f"{held[0][0]}–{held[-1][0]} components hold rows (95 %), most probably {best[0]} (")
    assert "number open" in told
    assert "dynamic=True" in told  # what to do
    assert "components hold rows" in result._repr_html_()
    other = result.with_prior(OTHER_PRIOR)  # nothing is known of the components that hold rows
    assert "hold rows" not in other.summary()


def test_a_search_that_was_cut_off_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    cut = lv.search(MODEL, ROWS, **SETTINGS, seconds=0, out=tmp_path / "cut", report=False)
    assert not cut.is_finished
    assert "Unfinished" in cut.summary()
    assert cut.visits  # something was fitted all the same
    resumed = lv.resume(tmp_path / "cut", report=False, progress=False)
    assert resumed.posterior().equals(searched().posterior())
    assert lv.load(tmp_path / "cut").posterior().equals(resumed.posterior())


@pytest.mark.thorough
def test_a_search_that_was_interrupted_before_its_first_fit_is_read(tmp_path: Path) -> None:
    """Ctrl-C during the chains: they have an answer, and no size was fitted."""
    whole = searched()
    state = replace(whole.state, visits=(), kept={}, stopped="interrupted")
    cut = replace(whole, state=state)
    assert cut.summary().startswith("Unfinished (interrupted): ")
    assert "sizes fitted: none" in cut.summary()
    assert "certified:" not in cut.summary()
    assert "<img" in cut._repr_html_()
    assert cut.best_size == whole.best_size
    cut.plot_posterior()
    cut.plot_bounds()
    with pytest.raises(ValueError, match="stopped before a size with evidence was fitted"):
        cut.plot_progress()
    assert write_report(cut, tmp_path / "report").is_file()


@pytest.mark.thorough
def test_a_search_whose_fitted_sizes_are_all_improbable_has_a_report(tmp_path: Path) -> None:
    """Where time is short, size 1 alone is fitted, and chains name larger ones."""
    whole = searched()
    improbable = min(whole.visits, key=lambda visit: whole.posterior().set_index("size")["probability"][visit.size[0]])
    found = replace(whole.estimated, indistinguishable=((SIZES,),))
    cut = replace(whole, state=replace(whole.state, visits=(improbable,), stopped="stopped after 0 seconds"))
    object.__setattr__(cut, "estimated", found)  # as if the data had many components
    cut.plot_progress()
    assert write_report(cut, tmp_path / "report").is_file()


def test_a_fitted_size_that_the_chains_hardly_visited_is_named_and_not_drawn_against_time() -> None:
    """Its evidence is known to hundreds of nats: its error bar hid the other sizes."""
    result = replace(searched())
    left_out = next(visit.size for visit in result.visits if visit.size != result.best_size)
    errors = {**result.standard_errors, left_out: 460.0}
    object.__setattr__(result, "standard_errors", errors)
    axes = result.plot_progress()
    low, high = axes.get_ylim()
    assert high - low < 100
    words = " ".join(text.get_text() for text in axes.texts).replace("\n", " ")
    assert f"not drawn: {left_out[0]}, which the chains hardly visited" in words
    assert "relative to the best" in axes.get_ylabel()


def test_chains_that_are_too_short_give_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_SWEEPS > 256
    monkeypatch.setattr(allocation_evaluator, "MOST_SWEEPS", 32)
    monkeypatch.setattr(allocation_evaluator, "PRECISION", 1e-6)
    result = lv.search(MODEL, ROWS, **SETTINGS)
    assert result.is_finished
    assert result.summary().startswith("No single number yet")
    assert "R-hat is" in result.summary()
    assert "more time (seconds=)" not in result.summary()  # it made all its sweeps


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (lv.models.DPMixture(), {}),
        (MODEL, {"per_token": True}),
        (lv.models.LDA(), {}),
    ],
)
def test_what_has_no_chains_is_refused(model: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        lv.search(model, ROWS, evidence="partitions", **given)


def test_an_audit_asks_for_annealed_evidence() -> None:
    with pytest.raises(ValueError, match="annealed"):
        searched().audit()


# ── other priors, and priors with holes ─────────────────────────────────────────────────────────────────────────────


@cache
def three_clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(mean, 0.3, (12, 2)) for mean in (-4, 0, 4)])


def table(*weights: float) -> lv.sizes.Table:
    return lv.sizes.Table(np.array(weights, float) / sum(weights))


@cache
def search_of_clusters(*weights: float, max_size: int | None = None) -> lv.SearchResult:
    """Search three clear clusters under a table of prior weights; without weights, under the default prior."""
    rows = three_clusters()
    model = lv.models.FiniteMixture(components=lv.models.DiagonalComponents.scaled_to(rows))
    prior = {"prior": table(*weights)} if weights else {}
    return lv.search(model, rows, seed=0, progress=False, max_size=max_size, **prior)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("searched_under", "max_size", "asked", "message"),
    [
        ((1, 1, 0, 1, 1, 1), None, (1, 1, 1, 1, 1), r"0\.200 to sizes that the chains never saw \(3\).*Search again"),
        ((1, 1, 1, 0, 1, 1), None, (0, 0, 0, 0, 0, 0, 1, 2), r"gives >0\.999 to sizes"),
        ((1, 1, 0, 1, 1, 1), None, (1, 1, 0, 1, 1, 1, 2), r"never saw \(those above 6\).*Search again"),
        ((), 6, (1, 1), "no draw of the chains has a number of components that this prior allows"),
    ],
)
def test_a_prior_that_the_draws_say_nothing_of_is_refused(
    searched_under: tuple[int, ...], max_size: int | None, asked: tuple[int, ...], message: str
) -> None:
    """Sizes that the first prior excluded had probability 0 under the second one, and nothing said so."""
    result = search_of_clusters(*searched_under, max_size=max_size)
    with pytest.raises(ValueError, match=message):
        result.with_prior(table(*asked))


@pytest.mark.thorough
def test_a_prior_that_the_draws_know_is_weighed_anew() -> None:
    result = search_of_clusters(max_size=6)
    assert result.with_prior(lv.sizes.Geometric(0.5)).best_size == (3,)  # its sizes above 6 are not allowed anyway
    assert search_of_clusters(1, 1, 0, 1, 1, 1).with_prior(table(1, 1, 0, 2, 2)).best_size == (4,)


@pytest.mark.thorough
def test_a_prior_with_a_hole_between_probable_sizes_is_read() -> None:
    result = search_of_clusters(1, 1, 1, 0, 1, 1)
    assert "3 components" in str(result)
    shown = result.posterior().set_index("size")
    assert shown.loc[4, "probability"] == 0
    assert np.isnan(shown.loc[4, ["log_evidence", "standard_error"]].to_numpy(float)).all()
    assert np.isfinite(shown.loc[[3, 5, 6], "log_evidence"]).all()
    assert np.isfinite(result.diminishing().log_upper)


@pytest.mark.thorough
def test_a_prior_that_excludes_a_fitted_size_is_read() -> None:
    """The excluded size kept the evidence that it had under the prior of the search, infinitely high above the rest."""
    result = search_of_clusters(max_size=6)
    assert any(size > (3,) for size in (visit.size for visit in result.visits))  # a size that the new prior excludes
    anew = result.with_prior(lv.sizes.Uniform(3))
    assert str(anew)
    assert anew._repr_html_()
    assert all(visit.from_gains is None for visit in anew.visits if visit.size > (3,))
    assert np.isfinite(anew.posterior()["log_evidence"]).all()


@pytest.mark.thorough
def test_the_share_of_the_prior_not_tried_counts_allowed_sizes_alone() -> None:
    result = search_of_clusters(max_size=6)
    prior = lv.sizes.weak()
    allowed = sum(np.exp(prior.log_pmf((size,))) for size in range(1, 7))
    shown = sum(np.exp(prior.log_pmf((size,))) for size in result.posterior()["size"])
    assert result.unvisited[0] == pytest.approx(allowed - shown)
    assert result.prior_above_largest == pytest.approx(1 - allowed)


@pytest.mark.thorough
def test_a_member_of_one_improbable_size_has_the_share_of_that_size() -> None:
    rows, weights = three_clusters(), (0.999, 0.001)
    members = (lv.sizes.Geometric(0.5), lv.sizes.Table([0.0] * 5 + [1.0]))
    model = lv.models.FiniteMixture(components=lv.models.FullCovarianceComponents.scaled_to(rows))
    prior = lv.sizes.Mixture(weights, members)
    result = lv.search(model, rows, prior=prior, max_size=6, seed=0, progress=False)
    assert result.partitions is not None
    of_second = weights[1] / np.exp(prior.log_pmf((6,)))  # p(second member | 6 components)
    expected = result.partitions.probability[5] * of_second
    assert result.prior_members()["probability"].iloc[1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
def test_the_picture_of_the_evidence_has_the_sizes_that_chains_visited() -> None:
    """One component, which the chains never saw in three clear clusters, stretched it by hundreds of nats."""
    result = search_of_clusters(max_size=6)
    sizes, _, estimate, errors = result.estimates()
    axes = result.plot_bounds()
    line = max(axes.lines, key=lambda line: len(line.get_xdata()))
    known = errors <= 3
    assert sorted(line.get_xdata()) == [size for (size,), one in zip(sizes, known, strict=True) if one]
    best = estimate[sizes.index(result.best_size)]
    np.testing.assert_allclose(line.get_ydata(), estimate[known] - best)
    assert (1,) not in [size for size, one in zip(sizes, known, strict=True) if one]
