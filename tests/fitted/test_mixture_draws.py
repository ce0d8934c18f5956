"""Whole draws of mixtures: predictions and parameters against enumeration, densities, names, and other programs."""

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import independent_normal_oracles
import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import pandas as pd
import partition_oracles as exact
import pytest
import tied_oracles
from compiled import Compiled
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from scipy.stats import kstest
from tiers import in_tiers

import lvsearch as lv
from lvsearch.fitted.mixture_draws import MixtureDraws
from lvsearch.inference.allocation_chains import supported_sizes
from lvsearch.models.components import log_normalisers
from lvsearch.models.units import Row
from lvsearch.results.checkpoint import decode_progress, encode_progress, progress_arrays

SIZES, CONCENTRATION = 8, 1.3
PRIOR = lv.sizes.Geometric(0.25)


def log_evidence(rows: np.ndarray, log_rows: Callable[[np.ndarray, tuple[int, ...]], float], *, dynamic: bool) -> float:
    """log p(rows) over all numbers of components and all partitions, nats. log_rows: log p(rows | partition)."""
    prior = supported_sizes(lambda size: PRIOR.log_pmf((size,)), SIZES)
    terms = []
    for labels in exact.partitions(len(rows)):
        shares = [CONCENTRATION / (size if dynamic else 1) for size in range(1, SIZES + 1)]
        of_sizes = [prior[k] + exact.log_finite_prior(labels, k + 1, shares[k]) for k in range(SIZES)]
        terms.append(logsumexp(of_sizes) + log_rows(rows, labels))
    return float(logsumexp(terms))


def by_groups(log_marginal: exact.LogMarginal) -> Callable[[np.ndarray, tuple[int, ...]], float]:
    """log p(rows | partition) of groups that are independent."""
    return lambda rows, labels: sum(log_marginal(rows[np.array(labels) == k]) for k in range(max(labels) + 1))


def exact_predictive(log_rows: Callable[..., float], rows: np.ndarray, new: np.ndarray, *, dynamic: bool) -> np.ndarray:
    """log p(new row | rows) of each, nats."""
    without = log_evidence(rows, log_rows, dynamic=dynamic)
    return np.array([log_evidence(np.vstack([rows, one]), log_rows, dynamic=dynamic) - without for one in new])


def drawn(model: Any, rows: np.ndarray, draws: int = 8000, sweeps: int = 1536) -> MixtureDraws:
    """Draws of all parameters, from long chains."""
    points = lv.Points.from_array(rows, missing="nan")
    posterior = lv.mixture_posterior(model, points, prior=PRIOR, max_size=SIZES, precision=1e-4, sweeps=sweeps)
    return posterior.draws(draws, seed=1)


def assert_predicted(draws: MixtureDraws, new: np.ndarray, truth: Any) -> None:
    """Each row's log-density is right within four standard errors, and these are small."""
    table = draws.log_predictive(lv.Points.from_array(new, missing="nan"))
    assert (table["monte_carlo_error"] < 0.02).all()
    off = np.abs(table["log_predictive"] - np.asarray(truth))
    assert (off <= 4 * table["monte_carlo_error"] + 1e-9).all(), (table, truth)


def log_rows_of_variants(component: Any) -> Callable[[np.ndarray, tuple[int, ...]], float]:
    """log p(rows | partition) of a kind whose rows arise in variants: a sum over the variants of all rows."""

    @jax.jit
    def of_group(rows: jax.Array, chosen: jax.Array) -> jax.Array:
        seen, prior = jnp.ones(rows.shape[1], bool), component.prior(rows.shape[1])
        units = Row(rows, jnp.ones(rows.shape, bool))
        y = jax.vmap(component.coordinates)(units)
        steps = jax.vmap(lambda one: component.variant_increments(one, seen))(y)
        sums = jax.tree.map(lambda p, s: p + s[jnp.arange(len(rows)), chosen].sum(0), prior, steps)
        normaliser = log_normalisers(component, jax.tree.map(lambda one: one[None], sums))[0]
        normaliser -= log_normalisers(component, jax.tree.map(lambda one: one[None], prior))[0]
        of_rows = jax.vmap(lambda one: component.log_carrier(one, seen))(y).sum()
        return normaliser + of_rows + (component.variant_tilts(seen) + component.log_variants)[chosen].sum()

    def log_marginal(rows: np.ndarray) -> float:
        with jax.enable_x64(True):
            every = itertools.product(range(component.n_variants), repeat=len(rows))
            return float(logsumexp([float(of_group(jnp.asarray(rows), jnp.array(chosen))) for chosen in every]))

    return by_groups(cache_of_groups(log_marginal))


def cache_of_groups(log_marginal: exact.LogMarginal) -> exact.LogMarginal:
    """The same, remembering what it was asked."""
    known: dict[bytes, float] = {}

    def remembered(rows: np.ndarray) -> float:
        if rows.tobytes() not in known:
            known[rows.tobytes()] = log_marginal(rows)
        return known[rows.tobytes()]

    return remembered


# ── against enumeration ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "kind",
    in_tiers(cases.CASES, lambda kind: kind is cases.BERNOULLI, lambda kind: kind.name.replace(" ", "-")),
)
def test_predictions_agree_with_enumeration(kind: cases.Kind, dynamic: bool):
    """New rows are predicted one by one, and both together."""
    rows, new, log_rows = kind.rows[:5], kind.rows[5:7], by_groups(cache_of_groups(kind.log_marginal))
    few = {"draws": 4000, "sweeps": 768} if kind is cases.BERNOULLI and not dynamic else {}  # in the fast tier
    draws = drawn(lv.models.FiniteMixture(kind.component, CONCENTRATION, dynamic=dynamic), rows, **few)
    truth = exact_predictive(log_rows, rows, new, dynamic=dynamic)
    assert_predicted(draws, new, truth)
    estimate = draws.predict(lv.Points.from_array(new, missing="nan"))
    assert estimate.log_per_unit == pytest.approx(truth.sum(), abs=0.06)
    everything, known = (log_evidence(each, log_rows, dynamic=dynamic) for each in (np.vstack([rows, new]), rows))
    assert estimate.log_whole_set == pytest.approx(everything - known, abs=0.08)
    assert "draws of all sizes and parameters" in estimate.describe()


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("kind", cases.CASES, ids=lambda kind: kind.name.replace(" ", "-"))
def test_as_many_sweeps_as_by_default_predict_to_a_hundredth_of_a_nat(kind: cases.Kind, dynamic: bool):
    rows, new, log_rows = kind.rows[:5], kind.rows[5:7], by_groups(cache_of_groups(kind.log_marginal))
    model = lv.models.FiniteMixture(kind.component, CONCENTRATION, dynamic=dynamic)
    posterior = lv.mixture_posterior(model, lv.Points.from_array(rows, missing="nan"), prior=PRIOR, max_size=SIZES)
    found = posterior.draws(4000).log_predictive(lv.Points.from_array(new, missing="nan"))["log_predictive"]
    truth = exact_predictive(log_rows, rows, new, dynamic=dynamic)
    np.testing.assert_allclose(found, truth, atol=0.01)


@pytest.mark.slow
def test_predictions_of_one_covariance_agree_with_enumeration():
    rows, given = cases.VALUES[:5], (cases.LOCATION, cases.SCALE, 0.3, 2.5, 0.7)

    def log_rows(rows: np.ndarray, labels: tuple[int, ...]) -> float:
        return tied_oracles.log_marginal(rows, np.array(labels), *given)

    draws = drawn(lv.models.TiedMixture(cases.FULL.component, CONCENTRATION), rows)
    truth = exact_predictive(log_rows, rows, cases.VALUES[5:7], dynamic=False)
    assert_predicted(draws, cases.VALUES[5:7], truth)


@pytest.mark.slow
def test_predictions_of_rows_in_variants_agree_with_enumeration():
    """Student's t: which precision a row has is drawn together with the parameters."""
    component = lv.models.StudentComponents(cases.FULL.component, 3.0, 2)
    rows, new = cases.VALUES[:4], cases.VALUES[4:6]
    draws = drawn(lv.models.FiniteMixture(component, CONCENTRATION), rows)
    truth = exact_predictive(log_rows_of_variants(component), rows, new, dynamic=False)
    assert_predicted(draws, new, truth)
    assert "parameters drawn" in draws.predict(lv.Points.from_array(new)).method


@pytest.mark.slow
def test_predictions_of_independent_normals_agree_with_enumeration():
    """Means and precisions are drawn in turn."""
    model = lv.models.IndependentNormalMixture(cases.LOCATION, cases.SCALE, 0.7, 2.2, 1.3, 1.9, CONCENTRATION)
    prior = independent_normal_oracles.Prior(cases.LOCATION, cases.SCALE, 0.7, 2.2, 1.3, 1.9)
    log_sizes = supported_sizes(lambda size: PRIOR.log_pmf((size,)), SIZES)

    def evidence(rows: np.ndarray) -> float:
        each = range(1, SIZES + 1)
        found = [independent_normal_oracles.log_evidence(rows, size, CONCENTRATION, prior) for size in each]
        return float(logsumexp(log_sizes + found))

    rows, new = cases.VALUES[:4], cases.VALUES[4:6]
    truth = [evidence(np.vstack([rows, one])) - evidence(rows) for one in new]
    assert_predicted(drawn(model, rows), new, truth)


# ── of searches ─────────────────────────────────────────────────────────────────────────────────────────────────────


def table_of_two_groups() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.5, (24, 2)) + 4 * (np.arange(24) % 3 == 0)[:, None]
    return pd.DataFrame(rows, [f"row {number}" for number in range(24)], ["x", "y"])


DIAGONAL, FULL = lv.models.DiagonalComponents, lv.models.FullCovarianceComponents


@cache
def searched(kind: Any = DIAGONAL) -> lv.SearchResult:
    table = table_of_two_groups()
    return lv.search(lv.models.FiniteMixture(kind.weak(table)), table, max_size=4, seed=0, progress=False)


@cache
def draws_of_search(kind: Any = DIAGONAL) -> MixtureDraws:
    return searched(kind).draws(300)


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "width"), [(DIAGONAL, "rate"), pytest.param(FULL, "spread", marks=pytest.mark.slow)])
def test_draws_have_everything(kind: Any, width: str):
    draws = draws_of_search(kind)
    exists = np.arange(draws.weights.shape[1]) < draws.n_components[:, None]
    np.testing.assert_allclose(draws.weights.sum(1), 1)
    assert ((draws.weights > 0) == exists).all()
    assert (draws.occupied <= draws.n_components).all()
    assert (draws.labels.max(1) < draws.n_components).all()
    assert (np.isnan(draws.means()).any(-1) == ~exists).all()
    assert draws.covariances().shape == (*draws.weights.shape, 2, 2)
    assert set(draws.hyperparameters) == {"pseudo_count", width}
    assert draws.hyperparameters[width].shape == (len(draws), 2)
    assert len(draws) == 304  # 19 of each of 16 chains
    table = draws.diagnostics()
    assert table.index.tolist() == [
        "log_likelihood",
        "n_components",
        "occupied",
        "largest_weight",
        "pseudo_count",
        width,
    ]
    assert (table.loc[["log_likelihood", "largest_weight", width], "rhat"] < 1.1).all()
    assert table.loc["n_components", "mean"] == pytest.approx(draws.n_components.mean())
    again = searched(kind).draws(300)
    np.testing.assert_array_equal(draws.means(), again.means())
    # the number of components is as probable as the search says
    numbers = searched(kind).draws(4000).n_components
    shares = np.array([(numbers == size).mean() for size in (2, 3, 4)])
    expected = searched(kind).posterior().set_index("size")["probability"].reindex([2, 3, 4], fill_value=0.0)
    np.testing.assert_allclose(shares, expected, atol=0.05)


@pytest.mark.thorough
def test_a_saved_search_has_the_same_draws(tmp_path):
    searched().save(tmp_path / "saved")
    loaded = lv.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.draws(300).means(), draws_of_search().means())
    assert loaded.predict(table_of_two_groups()[:3]) == searched().predict(table_of_two_groups()[:3])


@pytest.mark.thorough
@pytest.mark.parametrize("damage", ["rows", "chains", "components", "lengths", "infinite"])
def test_damaged_draws_are_refused(damage: str):
    chains = searched().state.partitions
    assert chains is not None
    entry, arrays = encode_progress(chains), dict(progress_arrays(chains))
    groups, rate = arrays["groups"], arrays["drawn-rate"]
    assert decode_progress(entry, arrays).run.draws.groups is groups
    arrays |= {
        "rows": {"groups": np.repeat(groups, 3, axis=1)},
        "chains": {"groups": groups[..., :-1]},
        "components": {"groups": groups + entry["places"]},
        "lengths": {"drawn-rate": rate[1:]},
        "infinite": {"drawn-rate": np.full_like(rate, np.nan)},
    }[damage]
    with pytest.raises(TypeError, match="draws of partitions"):
        decode_progress(entry, arrays)


@pytest.mark.thorough
def test_draws_of_folders_without_hyperparameters_are_refused():
    chains = searched().state.partitions
    assert chains is not None
    arrays = {name: each for name, each in progress_arrays(chains).items() if not name.startswith("drawn-")}
    older = replace(
        searched(), state=replace(searched().state, partitions=decode_progress(encode_progress(chains), arrays))
    )
    assert older.partition().sizes == searched().partition().sizes
    with pytest.raises(ValueError, match="folders of older versions"):
        older.draws()
    assert "the sizes whose fit was kept" in older.predict(table_of_two_groups()[:2]).describe()


@pytest.mark.thorough
def test_draws_of_chains_that_have_not_settled_say_so():
    assert "Not an answer yet" not in str(draws_of_search()) + str(searched().partition())
    unsettled = replace(draws_of_search(), is_settled=False)
    assert str(unsettled).startswith("Not an answer yet: the chains do not agree")
    assert str(unsettled.relabelled()).startswith("Not an answer yet")
    assert "chains that do not agree yet" in unsettled.predict(table_of_two_groups()[:2]).describe()
    assert str(replace(searched().partition(), is_settled=False)).startswith("Not an answer yet")


@pytest.mark.slow
def test_draws_of_short_chains_have_not_settled():
    short = lv.mixture_posterior(
        searched().partitions.model, table_of_two_groups(), max_size=4, precision=1e-6, sweeps=256
    )
    assert not short.draws(16).is_settled
    assert str(short.partition()).startswith("Not an answer yet")


@pytest.mark.thorough
def test_relabelled_components_are_the_same_in_all_draws():
    draws = draws_of_search()
    named = draws.relabelled()
    assert named.chains == 1
    assert named.agreement is not None
    assert named.agreement > 0.95
    assert "in which 2 components hold rows, matched by their rows" in str(named)
    assert set(named.occupied) == {2}
    means = named.means()[:, :2]
    assert (means[:, 0, 0] < 2).all()  # the larger group, about 0
    assert (means[:, 1, 0] > 2).all()
    np.testing.assert_array_equal(named.labels[0], (np.arange(24) % 3 == 0).astype(int))
    table = named.table()
    assert table.index.tolist() == [(k, what) for k in (0, 1) for what in ("weight", "x", "y")]
    assert (table["lower"] < table["mean"]).all()
    assert (table["mean"] < table["upper"]).all()
    # names do not matter to the density of rows
    chosen = np.flatnonzero(draws.occupied == 2)
    np.testing.assert_allclose(named.log_likelihood(), draws.log_likelihood()[chosen])
    with pytest.raises(ValueError, match="expected a number that some draw has"):
        draws.relabelled(9)
    with pytest.raises(ValueError, match="expected relabelled"):
        draws.table()


@pytest.mark.thorough
def test_densities_integrate_to_one_and_fit_together():
    draws = draws_of_search()
    one, two = draws.density(["y"]), draws.density(["x", "y"])
    assert list(two.columns) == ["x", "y", "density", "lower", "upper"]
    assert np.trapezoid(one["density"], one["y"]) == pytest.approx(1, abs=0.03)
    grid = two.pivot_table(index="x", columns="y", values="density")
    along = np.trapezoid(grid.to_numpy(), grid.index, axis=0)  # over x
    nearest = np.interp(grid.columns, one["y"], one["density"])
    np.testing.assert_allclose(along, nearest, atol=0.02)
    assert ((one["lower"] < one["density"]) & (one["density"] < one["upper"])).all()
    # the density of both columns is that of whole rows
    points = two[["x", "y"]][::97]
    np.testing.assert_allclose(np.exp(draws.log_likelihood(points)).mean(0), two["density"][::97], rtol=1e-6)
    # and with parameters integrated out it is the same up to chance, which is larger where rows are improbable
    dense = two[two["density"] > 0.02]
    found = draws.log_predictive(dense[["x", "y"]])
    np.testing.assert_allclose(found["log_predictive"], np.log(dense["density"]), atol=0.2)
    for columns in (None, ["x", "y"]):
        assert draws.plot_density(columns).get_xlabel() == "x"
    for columns in (["z"], ["x", "y", "x"]):
        with pytest.raises(ValueError, match="expected one or two of 'x', 'y'"):
            draws.density(columns)


@pytest.mark.parametrize("gaussians", ["diagonal", pytest.param("full", marks=pytest.mark.slow)])
def test_densities_of_heavy_tails_are_those_of_whole_rows(gaussians: str):
    """The density of both columns by themselves is that of the row, and integrates to that of one column."""
    kind = {"diagonal": cases.DIAGONAL.component, "full": cases.FULL.component}[gaussians]
    component = lv.models.StudentComponents(kind, 3.0, 2)
    natural = jax.tree.map(lambda leaf: np.stack([leaf] * 3), component.prior(2))
    statistics = Compiled(component.family).sample(jax.random.key(0), natural)
    values = np.array([[0.3, -0.2], [2.0, 1.0]], np.float32)
    grid = np.linspace(-60, 60, 6001)
    line = np.stack([np.full_like(grid, 0.3), grid], 1).astype(np.float32)
    rows = Row(values, np.ones(values.shape, bool))

    @jax.jit
    def densities(statistics: Any) -> Any:
        whole = jax.vmap(lambda row: component.log_densities(statistics, row))(rows)
        both = component.marginal_log_densities(statistics, (0, 1), jnp.asarray(np.concatenate([values, line])))
        return whole, both, component.marginal_log_densities(statistics, (0,), jnp.asarray(values[:1, :1]))[0]

    whole, both, one = map(np.asarray, densities(statistics))
    np.testing.assert_allclose(both[:2], whole, rtol=1e-4)
    np.testing.assert_allclose(np.log(np.trapezoid(np.exp(both[2:]), grid, axis=0)), one, atol=2e-3)


def few_draws(model: Any, rows: Any, **settings: Any) -> MixtureDraws:
    """Draws of chains of the smallest length."""
    return lv.mixture_posterior(model, rows, max_size=3, sweeps=256, **settings).draws(32)


def test_columns_of_several_kinds_have_the_density_of_their_own_kind():
    diagonal, poisson = lv.models.DiagonalComponents(), lv.models.PoissonComponents()
    component = lv.models.MixedComponents([diagonal, poisson], [(0, 2), (1,)])
    natural = jax.tree.map(lambda leaf: np.stack([leaf] * 2), component.prior(3))
    statistics = Compiled(component.family).sample(jax.random.key(0), natural)

    @jax.jit
    def densities(statistics: Any, values: Any) -> Any:
        return (
            component.marginal_log_densities(statistics, (1, 2), values),
            poisson.marginal_log_densities(statistics[1], (0,), values[:, :1]),
            diagonal.marginal_log_densities(statistics[0], (1,), values[:, 1:]),
        )

    both, counts, numbers = map(np.asarray, densities(statistics, jnp.array([[1.0, 0.3], [2.0, -1.0]])))
    np.testing.assert_allclose(both, counts + numbers, rtol=1e-5)


@pytest.mark.thorough
def test_counts_have_probabilities_of_whole_numbers():
    rows = pd.DataFrame({"calls": [0, 1, 0, 2, 9, 11, 10, 8], "visits": [3, 2, 4, 3, 0, 1, 0, 0]})
    draws = few_draws(lv.models.FiniteMixture(lv.models.PoissonComponents()), rows)
    table = draws.density(["calls"])
    assert table["calls"].tolist() == list(range(12))
    assert 0.6 < table["density"].sum() < 1
    with pytest.raises(ValueError, match="no density of single columns"):
        replace(draws, model=lv.models.FiniteMixture(lv.models.MultinomialComponents())).density()


@pytest.mark.thorough
def test_one_number_of_components_can_be_asked_for():
    only_three = lv.sizes.Table([0.0, 0.0, 1.0, 0.0])
    model = lv.models.FiniteMixture(DIAGONAL.scaled_to(table_of_two_groups()))
    posterior = lv.mixture_posterior(
        model, table_of_two_groups(), prior=only_three, max_size=4, sweeps=256, fewest_sweeps=300
    )
    assert posterior.sweeps == 320
    assert (posterior.draws(32).n_components == 3).all()


@pytest.mark.thorough
def test_rows_drawn_anew_are_like_the_data():
    draws, table = draws_of_search(), table_of_two_groups()
    rows = draws.simulate(seed=3)
    assert rows.shape == (len(draws), 24, 2)
    np.testing.assert_allclose(rows.mean((0, 1)), table.mean(), atol=0.25)
    np.testing.assert_array_equal(rows, draws.simulate(seed=3))


@pytest.mark.thorough
def test_arviz_gets_all_groups(monkeypatch):
    module = ModuleType("arviz")
    vars(module).update(__version__="1.2.0", from_dict=lambda groups, *, dims, coords: (groups, dims, coords))
    monkeypatch.setitem(sys.modules, "arviz", module)
    draws = draws_of_search()
    groups, dims, coords = draws.to_arviz()
    assert set(groups) == {"posterior", "log_likelihood", "posterior_predictive", "observed_data"}
    assert set(groups["posterior"]) == {"n_components", "occupied", "pseudo_count", "rate"}
    assert groups["log_likelihood"]["rows"].shape == (16, 19, 24)
    assert groups["posterior_predictive"]["rows"].shape == (16, 19, 24, 2)
    np.testing.assert_array_equal(groups["observed_data"]["rows"], table_of_two_groups())
    assert coords["row"][1] == "row 1"
    named, dims, _ = draws.relabelled().to_arviz()
    assert named["posterior"]["mean"].shape[2:] == (2, 2)
    assert dims["mean"] == ["component", "column"]


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_arviz_compares_and_leaves_out_rows():
    """PSIS-LOO agrees with leaving each row out, by enumeration, where its diagnostic says that it can be believed."""
    az = pytest.importorskip("arviz")
    rng, log_rows = np.random.default_rng(5), by_groups(cache_of_groups(cases.FULL.log_marginal))
    rows = np.array([[-2, -1], [2, 1.0]])[rng.integers(0, 2, 8)] + 0.6 * rng.standard_normal((8, 2))
    draws = drawn(lv.models.FiniteMixture(cases.FULL.component, CONCENTRATION), rows, 4000)
    found = az.loo(draws.to_arviz(), pointwise=True)
    truth = [exact_predictive(log_rows, np.delete(rows, i, 0), rows[[i]], dynamic=False)[0] for i in range(len(rows))]
    believed = np.asarray(found.pareto_k) < 0.7
    assert believed.sum() >= 5
    np.testing.assert_allclose(np.asarray(found.loo_i)[believed], np.array(truth)[believed], atol=0.12)
    other = drawn(lv.models.TiedMixture(cases.FULL.component, CONCENTRATION), rows, 1000)
    assert set(az.compare({"full": draws.to_arviz(), "tied": other.to_arviz()}).index) == {"full", "tied"}


@pytest.mark.thorough
def test_searches_without_draws_say_so():
    under_another = searched().with_prior(lv.sizes.Poisson(1))
    with pytest.raises(ValueError, match="search again with this prior"):
        under_another.draws()
    assert "the sizes whose fit was kept" in under_another.predict(table_of_two_groups()[:2]).describe()
    by_bound = lv.search(
        lv.models.FiniteMixture(), table_of_two_groups(), evidence="bound", max_size=1, seed=0, progress=False
    )
    with pytest.raises(ValueError, match="expected one of a mixture of rows by chains"):
        by_bound.draws()


# ── calibration ─────────────────────────────────────────────────────────────────────────────────────────────────────


def ranks_of_one_set(trial: int, n_rows: int = 40) -> dict[str, list[float]]:
    """Ranks say where the truth lies among the draws, from 0 to 1, also for components with names."""
    random, prior = np.random.default_rng(trial), lv.sizes.Geometric(0.3)
    component = lv.models.DiagonalComponents(0.0, 1.0, 0.02, 3.0, lv.models.GammaPrior(2.0, 2.0))
    model = lv.models.FiniteMixture(component, 1.0)
    weights = np.exp([prior.log_pmf((size,)) for size in range(1, 9)])
    size = int(random.choice(8, p=weights / weights.sum())) + 1
    every = Row(np.zeros((n_rows, 2)), np.ones((n_rows, 2), bool))
    g, l, units = model.simulate(jax.random.key(trial), (size,), every, {"dim": 2})
    truth = np.exp(np.asarray(g["weights"])), np.asarray(jax.vmap(component.moments)(g["components"])[0])
    rows, labels = np.asarray(units.value), np.asarray(l["component"]).argmax(1)
    found = lv.mixture_posterior(model, rows, prior=prior, max_size=8, precision=0.02, seed=trial)
    draws = found.draws(1000, seed=trial)

    def rank(of_draws: np.ndarray, of_truth: float) -> float:
        same = (of_draws == of_truth).mean()
        return float((of_draws < of_truth).mean() + random.random() * same)

    means = np.nan_to_num(draws.means())
    ranks = {
        "K": [rank(draws.n_components, size)],
        "rate": [rank(draws.hyperparameters["rate"][:, d], -float(g["rate"].negative_value[d])) for d in (0, 1)],
        "mean of the mixture": [rank((draws.weights * means[..., 0]).sum(1), float(truth[0] @ truth[1][:, 0]))],
        "sum of squared weights": [rank((draws.weights**2).sum(1), float((truth[0] ** 2).sum()))],
    }
    present = np.unique(labels)
    if not (draws.occupied == len(present)).any():
        return ranks
    named = draws.relabelled(len(present))
    both = np.array([[np.sum((named.labels[0] == k) & (labels == j)) for j in present] for k in range(len(present))])
    order = linear_sum_assignment(-both)[1]
    for k, j in enumerate(present[order]):
        ranks.setdefault("named weight", []).append(rank(named.weights[:, k], float(truth[0][j])))
        ranks.setdefault("named mean", []).append(rank(named.means()[:, k, 0], float(truth[1][j, 0])))
    return ranks


@pytest.mark.slow
def test_ranks_of_the_truth_are_even():
    """Truth from the prior, forty rows from the model, eighty times, ten minutes: simulation-based calibration."""
    each = [ranks_of_one_set(trial) for trial in range(80)]
    for name in ("K", "rate", "mean of the mixture", "sum of squared weights", "named weight", "named mean"):
        ranks = np.concatenate([found.get(name, []) for found in each])
        assert kstest(ranks, "uniform").pvalue > 1e-3, name
        if name != "K":
            held = (np.abs(ranks - 0.5) < 0.475).mean()
            assert abs(held - 0.95) < 4 * np.sqrt(0.95 * 0.05 / len(ranks)), (name, held)
