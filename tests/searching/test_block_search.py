"""A search of a block model by chains over both partitions: what it finds, against enumeration, and how it is kept."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import block_oracles as blocks
import numpy as np
import pytest

import lvsearch as lv
from lvsearch.fitted.mixture_posterior import MixturePosterior
from lvsearch.results import wording
from lvsearch.results.wording import each_number_in_words
from lvsearch.searching.allocation_evaluator import PRECISION, AllocationEvaluator
from lvsearch.sizing.words import MOST_LISTED, first_to_last

BITS = np.array([[1, 1, 0], [1, np.nan, 0], [0, 1, 1], [0, 0, 1.0]])
MARGINAL, CONCENTRATIONS = blocks.bernoulli_marginal(0.7, 1.2), (1.4, 0.6)
MODEL = lv.models.LatentBlockModel(lv.models.BernoulliComponents(0.7, 1.2), *CONCENTRATIONS)
POINTS = lv.Points.from_array(BITS, missing="nan")
TIED = np.where(np.eye(6, 5) > 0, 9.0, 1.0) / np.where(np.eye(6, 5) > 0, 9.0, 1.0).sum()
"""K = L is nine times as probable as any other pair."""
INDEPENDENT = np.outer(0.7 ** np.arange(8), 0.5 ** np.arange(4))
PRIOR, OTHER_PRIOR = (lv.sizes.Table(table / table.sum()) for table in (TIED, INDEPENDENT))
SETTINGS: dict[str, Any] = {"prior": PRIOR, "max_size": (6, 4), "seed": 0, "progress": False}


@cache
def searched() -> lv.SearchResult:
    return lv.search(MODEL, POINTS, **SETTINGS)


def truth_under(prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p(K, L | cells) of up to 6 × 4 clusters, and of the pairs of occupied ones, by enumeration."""
    cut = prior[:6, :4] / prior[:6, :4].sum()
    return blocks.posterior_of_sizes(BITS, MARGINAL, np.log(cut), CONCENTRATIONS)


def off_by(result: lv.SearchResult, truth: np.ndarray) -> float:
    """The largest distance of a probability from the truth, in its Monte Carlo errors."""
    assert result.partitions is not None
    table = result.posterior()
    places = table["row_clusters"] - 1, table["column_clusters"] - 1
    return float(np.abs((table["probability"] - truth[places]) / result.partitions.monte_carlo_error[places]).max())


@pytest.mark.thorough
def test_the_default_agrees_with_enumeration() -> None:
    """Under a prior that ties the two sizes to each other, and cut off before its end."""
    result = searched()
    sizes, occupied = truth_under(TIED)
    assert result.settings.evidence == "partitions"
    assert off_by(result, sizes) < 4
    assert len(result.posterior()) == 24
    found = result.partitions
    assert found is not None
    assert found.is_settled
    shown = tuple(map(slice, found.occupied_probability.shape))
    assert np.abs(found.occupied_probability - occupied[shown]).max() < 4 * PRECISION
    assert found.occupied()["probability"].sum() == pytest.approx(1.0)
    assert result.best_size == tuple(int(each) + 1 for each in np.unravel_index(sizes.argmax(), sizes.shape))


@pytest.mark.thorough
def test_the_card_tells_each_number_by_itself_and_many_pairs_as_two_ranges() -> None:
    result, (sizes, _) = searched(), truth_under(TIED)
    for axis, name in enumerate(("row cluster", "column cluster")):
        truth = sizes.sum(1 - axis)
        best, chance, held = result.estimated.one_variable(axis)
        assert best == truth.argmax() + 1
        assert chance == pytest.approx(truth.max(), abs=0.03)
        assert truth[np.array(held) - 1].sum() > 0.93
        assert f"{best} {name}" in (each_number_in_words(result) or "")
    assert "each number" in result.summary()
    pairs = result.estimated.indistinguishable
    assert len(pairs) > MOST_LISTED
    assert result.summary().splitlines()[0].endswith(f"95 %: {first_to_last(pairs)}.")


@pytest.mark.thorough
def test_open_numbers_are_told_by_the_clusters_that_have_members(monkeypatch: pytest.MonkeyPatch) -> None:
    result = searched()
    monkeypatch.setattr(wording, "LEAST_WIDTH_OPEN", 2)
    assert result.partitions is not None
    told, (held, best, _) = result.summary(), result.partitions.occupied_summary()
    (rows, columns) = ((min(each), max(each)) for each in zip(*held, strict=True))
    ranges = f"{rows[0]}–{rows[1]} row clusters × {columns[0]}–{columns[1]} column clusters"
    assert told.startswith(f"{ranges} have members (95 %), most probably {best[0]}×{best[1]} (")
    assert "the model has 1–6 row clusters × 1–4 column clusters (95 %)" in told
    assert "each number" not in told


@pytest.mark.thorough
def test_no_number_by_itself_where_larger_ones_may_be_better(monkeypatch: pytest.MonkeyPatch) -> None:
    assert each_number_in_words(searched()) is not None
    monkeypatch.setattr(wording, "_best", lambda result: (2, 4))  # four column clusters were the most allowed
    assert searched().summary().startswith("Still rising at 2 row clusters × 4 column clusters")
    assert each_number_in_words(searched()) is None


@pytest.mark.thorough
def test_chains_that_disagree_at_a_limit_advise_to_raise_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MixturePosterior, "is_settled", False)
    at_limit = replace(searched())  # without what was computed of it before
    assert at_limit.settings.max_size == (6, 4)
    assert "raise max_size" in at_limit.summary()
    free = replace(at_limit, settings=replace(at_limit.settings, max_size=None))
    assert "No single number yet" in free.summary()
    assert "raise max_size" not in free.summary()


@pytest.mark.thorough
def test_fits_begin_from_the_groups_of_a_chain_also_those_made_on_demand() -> None:
    result = searched()
    evaluator = result.evaluator
    assert isinstance(evaluator, AllocationEvaluator)
    start = evaluator.start_of(result.state.partitions, (3, 3))
    assert start is not None
    begun = result.fit((3, 3)).evidence
    assert begun is not None
    assert begun.lower >= evaluator.refit((3, 3)).evidence.lower - 1e-3
    assert "the groups of a chain" in set(result.starts()["start"])


@pytest.mark.thorough
def test_another_prior_weighs_the_same_draws_anew() -> None:
    other = searched().with_prior(OTHER_PRIOR)
    assert off_by(other, truth_under(INDEPENDENT)[0]) < 4
    assert off_by(searched(), truth_under(INDEPENDENT)[0]) > 10  # the two priors can be told apart


@pytest.mark.thorough
def test_a_prior_with_sizes_beyond_those_of_the_chains_is_refused() -> None:
    found = lv.search(MODEL, POINTS, prior=lv.sizes.Table(np.full((6, 4), 1 / 24)), seed=0, progress=False)
    with pytest.raises(ValueError, match=r"sizes that the chains never saw \(those above 6×4\).*Search again"):
        found.with_prior(lv.sizes.Product(lv.sizes.Geometric(0.3), lv.sizes.Geometric(0.3)))


@pytest.mark.thorough
def test_members_of_a_mixture_prior_agree_with_enumeration() -> None:
    prior = lv.sizes.Mixture((0.5, 0.5), (PRIOR, OTHER_PRIOR))
    evidence, _ = truth_under(np.ones((6, 4)))
    of_member = [(table[:6, :4] / table.sum() * evidence).sum() for table in (TIED, INDEPENDENT)]
    found = searched().with_prior(prior).prior_members()
    np.testing.assert_allclose(found["probability"], of_member / np.sum(of_member), rtol=0.05)


@pytest.mark.thorough
def test_the_answer_is_read_and_drawn() -> None:
    result = searched()
    told = result.summary()
    assert "16 chains over partitions of the rows and of the columns" in told
    assert "occupied row clusters and column clusters are most probable" in told
    assert "next:        result.partition() says which rows belong together\n" in told
    assert result.best.row_labels().shape == (4,)
    assert result.best.column_labels().shape == (3,)
    assert result.partition().labels.shape == (4,)
    assert result.coclustering().shape == (4, 4)
    for draw in (result.plot_posterior, result.plot_bounds, result.plot_progress, result.plot_lattice):
        draw()
    assert "lv-card" in result._repr_html_()
    assert result.predict(POINTS).estimate is not None
    with pytest.raises(ValueError, match="expected a mixture of rows"):
        result.draws()
    again = result.mixture_posterior(precision=0.05)
    assert again.probability.shape == (6, 4)
    assert list(again.posterior().columns[:2]) == ["row_clusters", "column_clusters"]


@pytest.mark.thorough
def test_a_search_that_was_cut_off_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    cut = lv.search(MODEL, POINTS, **SETTINGS, seconds=0, out=tmp_path / "cut", report=False)
    assert not cut.is_finished
    resumed = lv.resume(tmp_path / "cut", progress=False)
    assert resumed.posterior().equals(searched().posterior())
    assert lv.load(tmp_path / "cut").posterior().equals(resumed.posterior())


def test_tables_over_both_sizes_have_an_end() -> None:
    with pytest.raises(ValueError, match=r"got max_size=80×4, expected a size from 1 to 64"):
        lv.mixture_posterior(MODEL, POINTS, max_size=(80, 4))
