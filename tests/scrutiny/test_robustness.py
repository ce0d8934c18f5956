"""What fewer units say: the numbers read off a made-up curve, and a search of rows that are not what the model says."""

from dataclasses import replace

import numpy as np
import pytest

import lvsearch as lv
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.scrutiny.scrutiny import Scrutiny


def made_up(steps: list[tuple[int, int]], n_sizes: int = 6, orders: int = 4, noise: float = 0.0) -> Robustness:
    """Evidence that supports a size from so many units on, of (units, size): 8 nats above every smaller one."""
    units = np.arange(1, 201)
    supported = np.ones(200, int)
    for first, size in steps:
        supported[units >= first] = size
    sizes = np.arange(1, n_sizes + 1)
    # a size above the one supported is as good as it; one below is 8 nats worse
    log_evidence = np.where(sizes >= supported[:, None], 0.0, -8.0) - 4.0 * (sizes > supported[:, None])
    spread = noise * np.random.default_rng(0).normal(size=(orders, 1, n_sizes))
    return Robustness(units, log_evidence + spread, np.zeros(n_sizes), 200, "rows", "components")


def test_the_longest_stretch_on_a_logarithmic_scale():
    found = made_up([(5, 2), (10, 3), (150, 5)])
    assert found.supported[[0, 4, 9, 149]].tolist() == [1, 2, 3, 5]
    assert found.size == 3
    assert found.stretch == (10, 149)
    expected = np.log([5 / 1, 10 / 5, 150 / 10, 1, 201 / 150, 1]) / np.log(201)
    np.testing.assert_allclose(found.share, expected, atol=1e-12)
    assert found.confidence == 1.0
    assert found.grows
    assert not found.limited
    assert found.describe() == (
        "3 components are what 10 to 149 rows support, the longest stretch; 200 support 5: more rows ask for more, to "
        "mend the model perhaps."
    )
    assert found.together == (1, 2, 3)
    assert found.table()["supported"].tolist() == found.supported.tolist()


def test_one_component_and_no_growth_are_said_so():
    assert (
        made_up([]).describe()
        == "1 component is what 1 to 200 rows support, the longest stretch; no more are supported by 200."
    )
    assert made_up([(20, 6)]).limited


def test_units_that_were_not_taken_are_said_so():
    assert replace(made_up([(5, 2)]), n_units=5000).describe().endswith("no more are supported by 200 of 5,000.")


def read_off(units: list[int], supported: list[int], n_sizes: int) -> Robustness:
    """A check in which so many units support these sizes, 100 nats above every smaller one."""
    sizes = np.arange(1, n_sizes + 1)
    log_evidence = np.where(sizes == np.array(supported)[:, None], 0.0, -100.0)[None].repeat(2, axis=0)
    return Robustness(
        np.array(units), log_evidence, np.log(np.ones(n_sizes) / n_sizes), units[-1], "rows", "components"
    )


def test_more_may_be_supported_where_no_larger_size_was_tried():
    """It said that no more are supported by 60, where no larger size than 3 was tried."""
    limited = read_off([1, 2, 4, 8, 16, 32, 60], [3] * 7, 3)
    assert limited.describe() == (
        "3 components are what 1 to 60 rows support, the longest stretch; 60 support 3, the largest size that was "
        "tried: more may be supported."
    )
    grows = made_up([(20, 2), (190, 6)])
    assert grows.describe().endswith(
        "200 support at least 6, the largest size that was tried: more rows ask for more, to mend the model perhaps."
    )


def test_a_stretch_leaves_out_units_that_support_another_size():
    """It gave the first and the last number of units, with others between them that support 2."""
    found = read_off([1, 2, 4, 8, 16, 32, 60], [1, 1, 2, 1, 1, 1, 2], 3)
    assert found.stretch == (8, 32)
    assert found.describe().startswith(
        "1 component is what 8 to 32 rows support, the longest of its 2 stretches, which are longer together than those"
        " of any other size; 60 support 2"
    )
    with pytest.raises(ValueError, match="got a prior that gives no probability to any size from 1 to 3"):
        found.with_prior(lv.sizes.Table([0, 0, 0, 0, 1]))
    assert Scrutiny(robustness=found).with_prior(lv.sizes.Table([0, 0, 0, 0, 1])).robustness is None
    assert Scrutiny(robustness=found).with_prior(lv.sizes.Uniform(2)).robustness is not None


def test_orders_that_disagree_lower_the_confidence():
    found = made_up([(5, 2), (32, 3)], orders=3, noise=6.0)
    assert 0 < found.confidence < 1
    assert found.share.sum() == pytest.approx(1.0)


@pytest.fixture(scope="module")
def skewed() -> lv.SearchResult:
    rng = np.random.default_rng(2)
    values = np.array([[0.0, 0.0], [8.0, 5.0]])[rng.choice(2, 60)] + rng.gamma(2.0, 1.0, (60, 2))
    kind = lv.models.DiagonalComponents.scaled_to(values)
    return lv.search(lv.models.FiniteMixture(kind), values, max_size=3, starts=1, seed=1, progress=False)


@pytest.mark.thorough
def test_two_skewed_clusters(skewed):
    found = skewed.robustness(orders=2, max_size=3, seed=3, progress=False)
    assert found.units[-1] == 60
    assert found.log_evidence.shape == (2, len(found.units), 3)
    assert found.size == 2
    assert 2 in found.together
    # the evidence of all rows is that of the search, and of one component exact in every order
    np.testing.assert_allclose(found.log_evidence[:, -1, 0], skewed.visits[0].estimate, atol=1e-6)
    same = skewed.robustness(orders=2, max_size=3, seed=3, progress=False)
    np.testing.assert_array_equal(same.log_evidence, found.log_evidence)
    axes = found.plot()
    assert "2 components" in axes.get_title(loc="left")


@pytest.mark.slow
def test_two_clusters_of_one_covariance():
    rng = np.random.default_rng(3)
    values = np.array([[0.0, 0.0], [6.0, 4.0]])[rng.choice(2, 40)] + rng.normal(size=(40, 2))
    tied = lv.models.TiedMixture(lv.models.FullCovarianceComponents.scaled_to(values))
    result = lv.search(tied, values, max_size=3, starts=1, seed=1, progress=False)
    found = result.robustness(orders=2, max_size=3, seed=3, progress=False)
    np.testing.assert_allclose(found.log_evidence[:, -1, 0], result.visits[0].estimate, atol=1e-6)
    assert found.size == 2


@pytest.mark.thorough
def test_a_search_asks_fewer_units_where_it_is_told_to_and_keeps_what_they_say(skewed, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    model, rows = skewed.evaluator.base_model, skewed.training
    result = lv.search(model, rows, max_size=2, starts=1, seed=1, robustness=True, out=folder, progress=False)
    assert result.scrutiny.robustness is not None
    assert result.scrutiny.robustness.n_units == 60
    assert f"fewer units: {result.scrutiny.robustness.describe()}" in " ".join(result.summary().split())
    assert result.scrutiny.robustness.describe() in (folder / "report" / "index.html").read_text(encoding="utf-8")
    loaded = lv.load(folder).scrutiny.robustness
    np.testing.assert_array_equal(loaded.log_evidence, result.scrutiny.robustness.log_evidence)
    assert str(loaded) == str(result.scrutiny.robustness)
    flat, steep = (result.with_prior(lv.sizes.Geometric(p)).scrutiny.robustness for p in (0.01, 0.999))
    np.testing.assert_array_equal(flat.log_evidence, loaded.log_evidence)
    assert steep.probability[-1, 0] > flat.probability[-1, 0]
    with monkeypatch.context() as patched:
        patched.setattr("lvsearch.results.result.robust_search", lambda *_, **__: pytest.fail("asked again untold"))
        resumed = lv.resume(folder, report=False, progress=False).scrutiny.robustness
    assert str(resumed) == str(loaded)  # of the same fits: it stays
    np.testing.assert_array_equal(resumed.log_evidence, loaded.log_evidence)


@pytest.mark.thorough
def test_an_interruption_keeps_the_search(skewed, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lvsearch.results.result.robust_search", interrupted)
    model, rows = skewed.evaluator.base_model, skewed.training
    result = lv.search(model, rows, max_size=2, starts=1, seed=1, robustness=True, progress=False)
    assert (result.state.stopped, result.scrutiny.robustness) == ("finished", None)
    assert "without what fewer units say" in capsys.readouterr().err


@pytest.mark.thorough
def test_searches_that_cannot_be_asked_are_refused_before_they_begin(skewed):
    rows = skewed.training
    with pytest.raises(ValueError, match="annealed"):
        lv.search(skewed.evaluator.base_model, rows, evidence="bound", max_size=2, robustness=True, progress=False)
    counts = np.array([[2, 1], [0, 3], [1, 1]])
    with pytest.raises(ValueError, match="units can come one after another"):
        lv.search(lv.models.PoissonFactorization(), counts, max_size=2, robustness=True, progress=False)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("units", lambda units: units[::-1]),
        ("log_evidence", lambda evidence: evidence[:, :-1]),
        ("log_evidence", lambda evidence: evidence * np.nan),
        ("log_prior", lambda prior: prior[:-1]),
    ],
)
def test_what_was_stored_is_looked_at(name, changed):
    stored, arrays = made_up([(5, 2)]).to_stored()
    assert str(Robustness.from_stored(stored, arrays)) == str(made_up([(5, 2)]))
    with pytest.raises(TypeError):
        Robustness.from_stored(stored, {**arrays, name: changed(arrays[name])})


@pytest.mark.thorough
def test_what_cannot_be_asked_is_refused(skewed):
    with pytest.raises(ValueError, match="orders=1"):
        skewed.robustness(orders=1)
    bound = lv.search(skewed.evaluator.base_model, skewed.training, evidence="bound", max_size=2, progress=False)
    with pytest.raises(ValueError, match="annealed"):
        bound.robustness()
