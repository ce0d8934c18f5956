"""Columns of categories: against independent blocks, against yes-or-no cells, and published optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from compiled import Compiled
from scipy.special import gammaln

import lvsearch as lv
from lvsearch.models import BernoulliComponents, CategoricalComponents, FiniteMixture
from lvsearch.models.components import log_likelihood, log_predictive, log_prior
from lvsearch.models.exponential.simplex import SimplexBlocks
from lvsearch.models.families import BetaStatistics, Dirichlet, PointSimplex
from lvsearch.models.units import Row

WIDTHS = (3, 2, 4)
NATURAL = np.random.default_rng(0).gamma(2.0, size=(2, sum(WIDTHS)))
ANSWERS = pd.DataFrame(
    {"smokes": ["no", "yes", "no", None, "no"], "party": pd.Categorical(list("abcab"), ["c", "a", "b", "none"])}
)


def blocks(leaf: np.ndarray) -> list[np.ndarray]:
    return np.split(np.asarray(leaf), np.cumsum(WIDTHS)[:-1], axis=-1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "base",
    [Dirichlet(), pytest.param(PointSimplex(smoothing=0.5), marks=pytest.mark.slow)],
    ids=lambda base: type(base).__name__,
)
def test_blocks_are_the_base_block_by_block(float64, base):
    family, natural = Compiled(SimplexBlocks(base, WIDTHS)), jnp.asarray(NATURAL)
    apart = [jnp.asarray(block) for block in blocks(NATURAL)]
    for name in ("mean", "point"):
        each = [np.asarray(getattr(Compiled(base), name)(block)) for block in apart]
        np.testing.assert_allclose(getattr(family, name)(natural), np.concatenate(each, -1), rtol=1e-12)
    for name in ("log_normaliser", "entropy"):
        each = [np.asarray(getattr(Compiled(base), name)(block)) for block in apart]
        np.testing.assert_allclose(getattr(family, name)(natural), np.sum(each, 0), rtol=1e-12)
    mean = family.mean(natural)
    np.testing.assert_allclose(family.mean(family.natural(mean)), mean, rtol=1e-9)
    for block in blocks(family.value(family.sample(jax.random.key(0), natural))):
        np.testing.assert_allclose(block.sum(-1), 1, rtol=1e-9)


@pytest.mark.slow  # Dirichlets by blocks, whose own draws are tested with the families
def test_draws_have_the_expected_statistics(float64):
    family = Compiled(SimplexBlocks(Dirichlet(), WIDTHS))
    drawn = np.asarray(family.sample(jax.random.key(1), jnp.broadcast_to(NATURAL[0], (4000, NATURAL.shape[1]))))
    error = drawn.std(0) / np.sqrt(4000)
    assert np.all(np.abs(drawn.mean(0) - np.asarray(family.mean(jnp.asarray(NATURAL[0])))) < 5 * error)


def test_numpyro_has_blocks_of_one_width_alone():
    assert SimplexBlocks(Dirichlet(), (2, 2)).to_numpyro(jnp.ones((3, 4))).event_shape == (2, 2)
    with pytest.raises(ValueError, match="got blocks of 2 to 3 entries, expected one width"):
        SimplexBlocks(Dirichlet(), (2, 3)).to_numpyro(jnp.ones(5))


def test_two_categories_are_yes_or_no(float64):
    """The same densities of the same rows, and the same bound of the same fit, prior and missing answers included."""
    bits = np.array([[1, 0], [0, 0], [1, 1], [1, np.nan], [0, 1.0]])
    observed = ~np.isnan(bits)
    pairs = np.repeat(np.where(observed, bits, 0), 2, 1)
    pairs[:, 1::2] = 1 - pairs[:, 1::2]
    seen = np.repeat(observed, 2, 1)
    yes_or_no, two = BernoulliComponents(0.7, 0.7), CategoricalComponents((2, 2), 0.7)
    theta = np.array([[0.2, 0.9], [0.6, 0.3]])
    of_bits = BetaStatistics(np.log(theta), np.log1p(-theta))
    of_pairs = np.log(np.stack([theta, 1 - theta], -1).reshape(2, 4))
    prior_of, likelihood_of, predictive_of = (jax.jit(each) for each in (log_prior, log_likelihood, log_predictive))
    np.testing.assert_allclose(prior_of(two, of_pairs, {}), prior_of(yes_or_no, of_bits, {}), rtol=1e-6)
    prior = np.broadcast_to(two.prior(4), (2, 4))
    prior_bits = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (2, 2)), yes_or_no.prior(2))
    for row in range(len(bits)):
        wide, narrow = Row(pairs[row], seen[row]), Row(bits[row], observed[row])
        np.testing.assert_allclose(
            likelihood_of(two, of_pairs, wide), likelihood_of(yes_or_no, of_bits, narrow), rtol=1e-6
        )
        np.testing.assert_allclose(predictive_of(two, prior, wide), predictive_of(yes_or_no, prior_bits, narrow))


@pytest.mark.thorough
def test_one_class_has_its_exact_evidence():
    """K = 1: a Dirichlet-multinomial for each question, over the answers that are known."""
    points = lv.Points.from_categories(ANSWERS, missing="nan")
    model = FiniteMixture(CategoricalComponents.from_columns(points.columns, 0.6))
    exact = 0.0
    for counts in ([3, 1], [1, 2, 2, 0]):
        n, k = np.array(counts), len(counts)
        exact += gammaln(k * 0.6) - gammaln(k * 0.6 + n.sum()) + (gammaln(0.6 + n) - gammaln(0.6)).sum()
    assert lv.fit(model, points, size=1).evidence.lower == pytest.approx(exact, rel=1e-6)


def test_a_frame_of_answers_becomes_indicators():
    points = lv.Points.from_categories(ANSWERS, missing="nan")
    assert points.columns == ("smokes=no", "smokes=yes", "party=c", "party=a", "party=b", "party=none")
    for given in (points.columns, points):
        assert CategoricalComponents.from_columns(given).categories == (2, 4)
    np.testing.assert_array_equal(points.values[1], [0, 1, 0, 0, 1, 0])
    assert np.isnan(points.values[3, :2]).all()
    assert points.values[3, 2:].tolist() == [0, 1, 0, 0]


@pytest.mark.thorough
def test_draws_of_a_row_are_one_category_a_column():
    component = CategoricalComponents((3, 2))
    model = FiniteMixture(component)
    empty = Row(np.zeros((50, 5)), np.ones((50, 5), bool))
    rows = jax.jit(lambda key: model.simulate(key, (2,), empty, {"dim": 5})[2])(jax.random.key(0))
    component.check(rows)
    mean, covariance = component.moments(jnp.log(jnp.array([0.5, 0.3, 0.2, 0.9, 0.1])))
    np.testing.assert_allclose(mean, [0.5, 0.3, 0.2, 0.9, 0.1], rtol=1e-6)
    np.testing.assert_allclose(covariance[:3, :3].sum(), 0, atol=1e-6)
    assert float(covariance[0, 3]) == 0


def test_answers_that_are_refused():
    answers = pd.DataFrame({"a": ["x", "y"], "age": [1.0, 2.0]})
    for frame, numbers, message in (
        (pd.concat([answers, answers], axis=1), (), "got the column 'a' twice; expected distinct names"),
        (answers, "age", "got numbers='age', expected a list"),
        (pd.DataFrame({"a": [["x"], ["y", "x"]]}), (), r"got the list \['x'\] in the column 'a', expected one answer"),
    ):
        with pytest.raises(ValueError, match=message):
            lv.Points.from_categories(frame, numbers=numbers)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r'1 empty cells in the column \'smokes\'.*missing="nan"'):
        lv.Points.from_categories(ANSWERS)
    with pytest.raises(ValueError, match="column 'q' with 1 categories"):
        lv.Points.from_categories(pd.DataFrame({"q": ["a", "a"]}))
    with pytest.raises(ValueError, match=r'expected "name=category"'):
        CategoricalComponents.from_columns(["a"])
    for given in ("party=a", None):
        with pytest.raises(ValueError, match="expected the names of the columns, or a table that has them"):
            CategoricalComponents.from_columns(given)
    with pytest.raises(ValueError, match="at least 2 each"):
        CategoricalComponents((2, 1))
    component = CategoricalComponents((2, 2))
    with pytest.raises(ValueError, match="got rows of 3 cells for 4 categories"):
        component.check(Row(np.zeros((2, 3)), np.ones((2, 3), bool)))
    for wrong in ([1, 1, 0, 1], [0, 0, 0, 1], [0.5, 0.5, 1, 0]):
        with pytest.raises(ValueError, match="row 1 with no single category in column 0"):
            component.check(Row(np.array([[1, 0, 0, 1], wrong], float), np.ones((2, 4), bool)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optima"),
    [
        ("carcinoma", {2: -317.2568, 3: -293.705, 4: -289.2858}),
        ("values", {1: -543.6498, 2: -504.4677, 3: -503.3011}),
        ("gss82", {2: -2783.268, 3: -2754.545, 4: -2746.621}),
    ],
)
def test_published_optima_are_reached(data_folder, name, optima):
    """Linzer & Lewis (2011), poLCA: the highest likelihoods known, each reached by one of 40 starts (of carcinoma with
    four classes by one in eight) and passed by none before it."""
    points = lv.Points.from_categories(pd.read_csv(data_folder / "latent_class" / f"{name}.csv"))
    model = FiniteMixture(CategoricalComponents.from_columns(points.columns)).plug_in()
    for size, published in optima.items():
        for seed in range(40):
            found = lv.fit(model, points, size=size, seed=seed).evidence.lower
            assert found < published + 1e-3
            if found > published - 1e-3:
                break
        else:
            pytest.fail(f"{size} classes: {published} was not reached")


@pytest.mark.slow
def test_planted_classes_are_found():
    rng = np.random.default_rng(4)
    of_class = rng.dirichlet([0.2, 0.2, 0.2], (3, 5))
    classes = rng.integers(0, 3, 80)
    answers = [[rng.choice(3, p=of_class[c, j]) for j in range(5)] for c in classes]
    points = lv.Points.from_categories(pd.DataFrame(answers).astype(pd.CategoricalDtype([0, 1, 2])))
    model = FiniteMixture(CategoricalComponents.from_columns(points.columns, 0.2))
    result = lv.search(model, points, prior=lv.sizes.Uniform(5), max_size=5, progress=False)
    assert result.best.size == (3,)
