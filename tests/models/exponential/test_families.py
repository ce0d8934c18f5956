"""One table, families × behaviours: each family against SciPy, against `jax.grad`, and against its own smaller self."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from compiled import Compiled
from tiers import in_tiers

from lvsearch.models import families as f


class Case(NamedTuple):
    """A family at asymmetric parameters, and the same distribution in SciPy.

    natural: NumPy float64 leaves, elements (2, 3), and 4 event entries where there is an event.
    log_density: value, element index -> log density by SciPy.
    entropy: element index -> entropy by SciPy, in nats.
    """

    family: f.Family
    natural: Any
    log_density: Callable[[Any, tuple[int, int]], float]
    entropy: Callable[[tuple[int, int]], float]


SHAPE = np.array([[0.3, 1.0, 2.5], [0.9, 7.0, 40.0]])
RATE = np.array([[2.0, 0.5, 1.5], [10.0, 0.1, 3.0]])
SECOND = np.array([[2.0, 0.7, 1.5], [10.0, 0.9, 3.0]])
CENTRE = np.array([[-1.5, 0.0, 2.0], [0.3, 4.0, -0.7]])
COUNT = np.array([[0.5, 2.0, 3.5], [1.5, 0.2, 8.0]])
CONCENTRATION = np.array(
    [
        [[0.2, 1.0, 2.5, 0.7], [1.0, 1.0, 1.0, 1.0], [5.0, 0.4, 9.0, 2.0]],
        [[0.1, 0.3, 0.2, 0.15], [30.0, 3.0, 0.5, 12.0], [2.0, 0.6, 1.1, 0.9]],
    ]
)
LOGITS = np.array(
    [
        [[0.0, 1.0, -2.0, 0.5], [3.0, 3.0, 1.0, -1.0], [-4.0, -5.0, -3.0, -6.0]],
        [[9.0, 8.0, 2.0, 1.0], [0.2, 0.1, 0.3, 0.4], [-1.0, 2.0, -3.0, 0.0]],
    ]
)
PROBABILITY = 1 / (1 + np.exp(-CENTRE))
KNOWN_PRECISION = 2.5


def gamma(i):
    return scipy.stats.gamma(SHAPE[i], scale=1 / RATE[i])


def gaussian(i):
    return scipy.stats.norm(CENTRE[i], COUNT[i] ** -0.5)


def known_precision_gaussian(i):
    return scipy.stats.norm(CENTRE[i], KNOWN_PRECISION**-0.5)


def normal_gamma_log_density(value, i):
    given = scipy.stats.norm(CENTRE[i], (COUNT[i] * value.precision) ** -0.5)
    return gamma(i).logpdf(value.precision) + given.logpdf(value.mean)


def normal_gamma_entropy(i):
    """H(τ) + E_τ[H(μ | τ)]."""
    expected_log_precision = scipy.special.digamma(SHAPE[i]) - np.log(RATE[i])
    return gamma(i).entropy() + 0.5 * (np.log(2 * np.pi * np.e / COUNT[i]) - expected_log_precision)


def dirichlet(i):
    return scipy.stats.dirichlet(CONCENTRATION[i])


def on_simplex(value):
    return np.asarray(value, np.float64) / np.sum(np.asarray(value, np.float64))


CASES = {
    "Dirichlet": Case(
        f.Dirichlet(),
        CONCENTRATION - 1,
        lambda x, i: dirichlet(i).logpdf(on_simplex(x)),
        lambda i: dirichlet(i).entropy(),
    ),
    "Categorical": Case(
        f.Categorical(),
        LOGITS,
        lambda x, i: scipy.special.log_softmax(LOGITS[i])[int(x)],
        lambda i: scipy.stats.entropy(scipy.special.softmax(LOGITS[i])),
    ),
    "Beta": Case(
        f.Beta(),
        f.BetaStatistics(SHAPE - 1, SECOND - 1),
        lambda x, i: scipy.stats.beta(SHAPE[i], SECOND[i]).logpdf(x),
        lambda i: scipy.stats.beta(SHAPE[i], SECOND[i]).entropy(),
    ),
    "Bernoulli": Case(
        f.Bernoulli(),
        CENTRE,
        lambda x, i: scipy.stats.bernoulli(PROBABILITY[i]).logpmf(int(x)),
        lambda i: scipy.stats.bernoulli(PROBABILITY[i]).entropy(),
    ),
    "Gamma": Case(
        f.Gamma(),
        f.GammaStatistics(SHAPE - 1, RATE),
        lambda x, i: gamma(i).logpdf(x),
        lambda i: gamma(i).entropy(),
    ),
    "Gaussian": Case(
        f.Gaussian(),
        f.GaussianStatistics(COUNT * CENTRE, COUNT),
        lambda x, i: gaussian(i).logpdf(x),
        lambda i: gaussian(i).entropy(),
    ),
    "KnownPrecisionGaussian": Case(
        f.KnownPrecisionGaussian(KNOWN_PRECISION),
        KNOWN_PRECISION * CENTRE,
        lambda x, i: known_precision_gaussian(i).logpdf(x),
        lambda i: known_precision_gaussian(i).entropy(),
    ),
    "NormalGamma": Case(
        f.NormalGamma(),
        f.NormalGammaStatistics(SHAPE - 0.5, RATE + COUNT * CENTRE**2 / 2, COUNT * CENTRE, COUNT),
        normal_gamma_log_density,
        normal_gamma_entropy,
    ),
}
INDICES = list(np.ndindex(2, 3))
MASKED = {"Dirichlet": f.Dirichlet(), "Categorical": f.Categorical(), "PointSimplex": f.PointSimplex(smoothing=0.25)}
MASKED_NATURAL = {"Dirichlet": CONCENTRATION - 1, "Categorical": LOGITS, "PointSimplex": CONCENTRATION}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


def fast_for(*names: str) -> pytest.MarkDecorator:
    """The families of these names in the fast tier, all others in the slow one."""
    return pytest.mark.parametrize("case", in_tiers(CASES, lambda name: name in names), indirect=True)


def to_jax(tree):
    return jax.tree.map(jnp.asarray, tree)


def pick(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def inner(natural, statistics, event_ndim):
    total = sum(
        np.asarray(a, np.float64) * np.asarray(b, np.float64)
        for a, b in zip(jax.tree.leaves(natural), jax.tree.leaves(statistics), strict=True)
    )
    return total.sum(-1) if event_ndim else total


def assert_trees_close(actual, desired, **tolerance):
    assert jax.tree.structure(actual) == jax.tree.structure(desired)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(desired), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


# --- Every family -----------------------------------------------------------------------------------------------------


def test_every_exported_family_is_in_the_tables():
    final = {n for n in f.__all__ if inspect.isclass(getattr(f, n)) and issubclass(getattr(f, n), f.Family)}
    final -= {"Family", "UnitCarrierFamily", "IndicatorFamily"}
    elsewhere = {"NormalWishart", "PointMean", "PointProbability"}  # test_matrix_families.py
    elsewhere |= {"PointGaussian"}  # below
    elsewhere |= {"MarkovChain"}  # test_markov_chain.py
    elsewhere |= {"TiedNormalWishart"}  # test_tied_normal_wishart.py
    elsewhere |= {"NormalGammaRegression", "VectorGaussian"}  # test_regression_families.py
    assert final - elsewhere == set(CASES) | set(MASKED)


def test_families_are_abstract_or_final(case):
    """No concrete method of a base class is overridden, and no family is derived from a concrete one."""
    for base in type(case.family).__mro__[1:]:
        if not (inspect.isclass(base) and issubclass(base, f.Family)):
            continue
        assert inspect.isabstract(base)
        concrete = {n for n, m in vars(base).items() if inspect.isfunction(m) and not n.startswith("__")}
        concrete -= base.__abstractmethods__
        for name in concrete:
            assert inspect.getattr_static(type(case.family), name) is vars(base)[name], (base, name)


@pytest.mark.thorough
def test_gradient_of_log_normaliser_is_mean(case, float64):
    natural = to_jax(case.natural)
    gradient = jax.jit(jax.grad(lambda eta: case.family.log_normaliser(eta).sum()))(natural)
    assert_trees_close(gradient, Compiled(case.family).mean(natural), rtol=1e-11, atol=1e-12)


def test_entropy_matches_scipy(case, float64):
    entropy = Compiled(case.family).entropy(to_jax(case.natural))
    assert entropy.shape == (2, 3)
    np.testing.assert_allclose(
        entropy, [[case.entropy((i, j)) for j in range(3)] for i in range(2)], rtol=1e-9, atol=1e-10
    )


@fast_for("Gamma", "Gaussian")
def test_entropy_in_single_precision(case):
    family = Compiled(case.family)
    with jax.enable_x64(True):
        exact = np.asarray(family.entropy(to_jax(case.natural)))
    entropy = family.entropy(to_jax(jax.tree.map(np.float32, case.natural)))
    assert entropy.dtype == jnp.float32
    np.testing.assert_allclose(entropy, exact, rtol=1e-4, atol=3e-5)


def log_carrier(family, statistics):
    if isinstance(family, f.KnownPrecisionGaussian):
        return 0.5 * (np.log(KNOWN_PRECISION / (2 * np.pi)) - KNOWN_PRECISION * np.asarray(statistics) ** 2)
    return np.zeros((2, 3))


def test_density_matches_scipy_and_numpyro(case, float64):
    """log h + ⟨η, t⟩ − A at drawn values: SciPy's and NumPyro's log density of `value`."""

    @jax.jit
    def drawn(key: jax.Array, natural: Any) -> tuple[Any, ...]:
        statistics = case.family.sample(key, natural)
        value, distribution = case.family.value(statistics), case.family.to_numpyro(natural)
        assert distribution.batch_shape == (2, 3)
        stacked = jnp.stack(value, -1) if isinstance(value, tuple) else value
        return statistics, value, case.family.log_normaliser(natural), distribution.log_prob(stacked)

    natural = to_jax(case.natural)
    statistics, value, log_normaliser, numpyros = drawn(jax.random.key(7), natural)
    ours = inner(natural, statistics, case.family.event_ndim) - np.asarray(log_normaliser)
    ours = ours + log_carrier(case.family, statistics)
    value = jax.tree.map(np.asarray, value)
    scipys = [[case.log_density(pick(value, (i, j)), (i, j)) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(ours, scipys, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(numpyros, ours, rtol=1e-8, atol=1e-8)


@fast_for("Bernoulli", "Gaussian")
def test_numpyro_draws_have_our_mean(case):
    """The same expected value by our sampler and by NumPyro's: draws of one are draws of the other."""
    natural = pick(to_jax(jax.tree.map(np.float32, case.natural)), (0, 2))
    draws = case.family.to_numpyro(natural).sample(jax.random.key(3), (4000,))
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (4000, *leaf.shape)), natural)
    value = case.family.value(Compiled(case.family).sample(jax.random.key(4), repeated))
    ours = np.asarray(jnp.stack(value, -1) if isinstance(value, tuple) else value, np.float64)
    theirs = np.asarray(draws, np.float64)
    assert ours.shape == theirs.shape
    error = np.sqrt((ours.var(0) + theirs.var(0)) / 4000)
    np.testing.assert_array_less(np.abs(ours.mean(0) - theirs.mean(0)), 4.5 * error)


@fast_for(*(name for name in CASES if name != "Dirichlet"))  # its inversion is asked of many scales below
def test_natural_inverts_mean(case, float64):
    family, natural = Compiled(case.family), to_jax(case.natural)
    mean = family.mean(natural)
    back = family.natural(mean)
    assert_trees_close(family.mean(back), mean, rtol=1e-10, atol=1e-12)
    if isinstance(case.family, f.Categorical):  # unique up to a constant: the one with A = 0
        natural = natural - np.asarray(family.log_normaliser(natural))[..., None]
    assert_trees_close(back, natural, rtol=1e-9, atol=1e-10)


@pytest.mark.thorough
@fast_for("Categorical", "Bernoulli", "Gamma", "Gaussian", "KnownPrecisionGaussian")
def test_sampled_statistics_have_the_expected_mean(case):
    """Mean over 8,000 draws within 4.5 standard errors, for each of at most 24 coordinates (false alarms: 2e-4)."""
    natural = to_jax(jax.tree.map(np.float32, case.natural))
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (8_000, *leaf.shape)), natural)
    drawn = Compiled(case.family).sample(jax.random.key(11), repeated)
    for t, expected in zip(jax.tree.leaves(drawn), jax.tree.leaves(Compiled(case.family).mean(natural)), strict=True):
        t = np.asarray(t, np.float64)
        error = t.std(0) / np.sqrt(len(t)) + 1e-5 * (1 + np.abs(expected))
        np.testing.assert_array_less(np.abs(t.mean(0) - np.asarray(expected)), 4.5 * error)


@fast_for("Bernoulli", "Gaussian")
def test_draws_are_reproducible_and_elements_independent(case):
    natural = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[0, 2], (500, *leaf[0, 2].shape)), to_jax(case.natural))
    natural = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), natural)
    first, again = (Compiled(case.family).sample(jax.random.key(5), natural) for _ in range(2))
    assert_trees_close(first, again, rtol=0, atol=0)
    t = np.asarray(jax.tree.leaves(first)[0], np.float64).reshape(500, -1)
    centred = t - t.mean(0)
    lagged = (centred[1:] * centred[:-1]).sum(0) / (centred**2).sum(0)
    assert np.all(np.abs(lagged) < 0.2)  # 4.5 standard errors of a correlation of 500 pairs


def test_point_is_the_statistic_of_the_mean_value(case, float64):
    natural = to_jax(case.natural)
    point = Compiled(case.family).point(natural)
    assert jax.tree.structure(point) == jax.tree.structure(natural)
    if isinstance(case.family, f.Categorical):
        np.testing.assert_allclose(point, scipy.special.softmax(LOGITS, -1), rtol=1e-12)
        return
    value = case.family.value(point)
    means = {
        "Dirichlet": CONCENTRATION / CONCENTRATION.sum(-1, keepdims=True),
        "Beta": SHAPE / (SHAPE + SECOND),
        "Bernoulli": PROBABILITY,
        "Gamma": SHAPE / RATE,
        "Gaussian": CENTRE,
        "KnownPrecisionGaussian": CENTRE,
        "NormalGamma": f.MeanAndPrecision(CENTRE, SHAPE / RATE),
    }
    assert_trees_close(value, means[type(case.family).__name__], rtol=1e-12, atol=1e-12)


def test_dtype_follows_the_argument(case):
    def everything(natural, key):
        mean = case.family.mean(natural)
        return (
            mean,
            case.family.log_normaliser(natural),
            case.family.entropy(natural),
            case.family.natural(mean),
            case.family.sample(key, natural),
            case.family.point(natural),
        )

    for dtype, x64 in ((jnp.float32, False), (jnp.float64, True)):
        with jax.enable_x64(x64):
            natural = jax.tree.map(lambda leaf, dtype=dtype: jnp.asarray(leaf, dtype), case.natural)
            results = jax.eval_shape(everything, natural, jax.random.key(0))
            assert {leaf.dtype for leaf in jax.tree.leaves(results)} == {np.dtype(dtype)}


@fast_for("Dirichlet", "Gaussian")
def test_families_pass_through_jit_and_vmap(case):
    natural = to_jax(jax.tree.map(np.float32, case.natural))
    direct = Compiled(case.family).mean(natural)
    mapped = jax.jit(jax.vmap(jax.vmap(lambda family, eta: family.mean(eta), (None, 0)), (None, 0)))(
        case.family, natural
    )
    assert_trees_close(mapped, direct, rtol=1e-5, atol=1e-5)


def test_strict_promotion_in_our_own_arithmetic(case, strict_dtypes):
    natural = to_jax(jax.tree.map(np.float32, case.natural))
    jax.eval_shape(lambda eta: (case.family.mean(eta), case.family.entropy(eta)), natural)


# --- Masks ------------------------------------------------------------------------------------------------------------

EXISTS = np.array([True, False, True, True])


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.slow if n == "PointSimplex" else ()) for n in MASKED])
def masked(request):
    return MASKED[request.param], MASKED_NATURAL[request.param]


@pytest.mark.parametrize("garbage", [0.0, -1.0, -7.0, np.inf, np.nan])
def test_masked_equals_the_smaller_unmasked(masked, garbage, float64):
    """Whatever stands in the entries that do not exist, results are those of the smaller family and 0 there."""
    family, natural = Compiled(masked[0]), masked[1]
    whole = jnp.asarray(np.where(EXISTS, natural, garbage))
    small = jnp.asarray(natural[..., EXISTS])
    np.testing.assert_allclose(family.log_normaliser(whole, EXISTS), family.log_normaliser(small), rtol=1e-13)
    np.testing.assert_allclose(family.entropy(whole, EXISTS), family.entropy(small), rtol=1e-12, atol=1e-13)
    for method in ("mean", "point"):
        result = np.asarray(getattr(family, method)(whole, EXISTS))
        np.testing.assert_allclose(result[..., EXISTS], getattr(family, method)(small), rtol=1e-13)
        assert np.all(result[..., ~EXISTS] == 0)
    mean = np.where(EXISTS, family.mean(whole, EXISTS), garbage)
    back = np.asarray(family.natural(jnp.asarray(mean), EXISTS))
    np.testing.assert_allclose(family.mean(jnp.asarray(back), EXISTS), family.mean(whole, EXISTS), rtol=1e-10)
    assert np.all(back[..., ~EXISTS] == 0)
    drawn = np.asarray(family.sample(jax.random.key(1), whole, EXISTS))
    assert np.all(drawn[..., ~EXISTS] == 0)
    np.testing.assert_allclose(
        family.value(jnp.asarray(drawn), EXISTS), family.value(jnp.asarray(drawn * EXISTS), EXISTS)
    )


@jax.jit
@jax.grad
def gradient_of_everything(eta, family, exists):
    return (
        family.log_normaliser(eta, exists).sum()
        + family.entropy(eta, exists).sum()
        + family.mean(eta, exists).sum()
        + family.point(eta, exists).sum()
    )


@pytest.mark.parametrize(
    "exists", [EXISTS, np.zeros(4, bool), np.array([[[True]], [[False]]])], ids=["some", "none", "rows"]
)
def test_gradients_under_masks_are_finite(masked, exists):
    family, natural = masked
    whole = jnp.asarray(np.where(exists, natural, -1.0).astype(np.float32))
    gradient = np.asarray(gradient_of_everything(whole, family, exists))
    assert np.all(np.isfinite(gradient))
    assert np.all(gradient[np.broadcast_to(~exists, gradient.shape)] == 0)


@pytest.mark.thorough
def test_nothing_exists_gives_nothing(masked):
    family, natural = Compiled(masked[0]), masked[1]
    none = np.zeros(4, bool)
    natural = jnp.asarray(natural, jnp.float32)
    for result in (
        family.log_normaliser(natural, none),
        family.entropy(natural, none),
        family.mean(natural, none),
        family.natural(natural, none),
        family.point(natural, none),
        family.sample(jax.random.key(0), natural, none),
    ):
        assert np.all(np.asarray(result) == 0)


def test_masked_draws_follow_the_smaller_family():
    natural = np.broadcast_to(LOGITS[0, 1].astype(np.float32), (20_000, 4))
    drawn = np.asarray(Compiled(f.Categorical()).sample(jax.random.key(2), natural, EXISTS), np.float64)
    expected = np.where(EXISTS, scipy.special.softmax(np.where(EXISTS, LOGITS[0, 1], -np.inf)), 0)
    error = np.sqrt(expected * (1 - expected) / 20_000)
    assert np.all(np.abs(drawn.mean(0) - expected) <= 4.5 * error)


# --- Indicators standing for copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exists", [pytest.param(None, marks=pytest.mark.slow, id="all"), pytest.param(EXISTS, id="masked")]
)
def test_multinomial_counts(exists):
    """Whole counts that sum to the copies, with the multinomial's mean and covariance, under jit and vmap."""
    family = f.Categorical()
    natural = jnp.asarray(LOGITS[0, 0], jnp.float32)
    copies = jnp.array([0.0, 1.0, 5.0, 300.0])
    draws = 8000
    sample = jax.jit(jax.vmap(lambda key: family.sample_counts(key, jnp.broadcast_to(natural, (4, 4)), copies, exists)))
    average = np.asarray(sample(jax.random.split(jax.random.key(8), draws)), np.float64)
    counts = average * np.asarray(copies)[:, None]
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
    np.testing.assert_allclose(counts.sum(-1), np.broadcast_to(copies, (draws, 4)), atol=1e-4)
    assert np.all(average[:, 0] == 0)
    p = np.asarray(Compiled(family).mean(natural, exists), np.float64)
    for i, n in enumerate(np.asarray(copies)[1:], start=1):
        covariance = n * (np.diag(p) - np.outer(p, p))
        error = np.sqrt(np.diag(covariance) / draws)
        assert np.all(np.abs(counts[:, i].mean(0) - n * p) <= 4.5 * error + 1e-9)
        sampled = np.cov(counts[:, i].T)
        np.testing.assert_allclose(sampled, covariance, atol=6 * np.sqrt(3 / draws) * np.diag(covariance).max())


def test_binomial_counts():
    family = f.Bernoulli()
    natural = jnp.asarray(CENTRE, jnp.float32)
    copies = jnp.array([[0.0, 1.0, 7.0], [2.0, 400.0, 30.0]])
    sample = jax.jit(jax.vmap(lambda key: family.sample_counts(key, natural, copies)))
    average = np.asarray(sample(jax.random.split(jax.random.key(9), 8000)), np.float64)
    n = np.asarray(copies)
    np.testing.assert_allclose(average * n, np.round(average * n), atol=1e-4)
    assert np.all(average[:, 0, 0] == 0)
    some = n > 0
    error = np.sqrt((PROBABILITY * (1 - PROBABILITY))[some] / n[some] / 8000)
    assert np.all(np.abs(average.mean(0)[some] - PROBABILITY[some]) <= 4.5 * error)


# --- The point simplex ------------------------------------------------------------------------------------------------


def test_point_simplex_is_the_maximiser(float64):
    """No other point of the simplex has a greater ⟨η + smoothing, log θ⟩."""
    rng = np.random.default_rng(0)
    for smoothing in (0.0, 0.5):
        family = f.PointSimplex(smoothing=smoothing)
        counts = jnp.asarray(CONCENTRATION)
        best = np.asarray(family.mean(counts))
        np.testing.assert_allclose(np.exp(best).sum(-1), 1, rtol=1e-14)
        others = np.log(rng.dirichlet(np.ones(4), size=(200, 1, 1)))
        objective = ((CONCENTRATION + smoothing) * best).sum(-1)
        assert np.all(((CONCENTRATION + smoothing) * others).sum(-1) <= objective)


def test_point_simplex_gradient_entropy_and_inverse(float64):
    plain, counts = f.PointSimplex(), jnp.asarray(CONCENTRATION)
    family, smoothed = Compiled(plain), Compiled(f.PointSimplex(smoothing=0.25))
    gradient = jax.jit(jax.grad(lambda eta: plain.log_normaliser(eta).sum()))(counts)
    np.testing.assert_allclose(gradient, family.mean(counts), rtol=1e-11)
    assert np.all(np.asarray(family.entropy(counts)) == 0)
    mean = smoothed.mean(counts)
    np.testing.assert_allclose(smoothed.mean(smoothed.natural(mean)), mean, rtol=1e-12)
    np.testing.assert_allclose(smoothed.sample(jax.random.key(0), counts), mean)
    delta = plain.to_numpyro(counts)
    assert (delta.batch_shape, delta.event_shape) == ((2, 3), (4,))
    np.testing.assert_allclose(delta.log_prob(family.value(family.mean(counts))), 0)


def test_point_simplex_stays_on_the_simplex_where_counts_vanish():
    family = f.PointSimplex()
    counts = jnp.array([[0.0, 3.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [-2.0, 1.0, -1.0, 0.0], [1e-38, 1e30, 0.0, 1.0]])
    log_theta = np.asarray(Compiled(family).mean(counts), np.float64)
    assert np.all(np.isfinite(log_theta))
    np.testing.assert_allclose(np.exp(log_theta).sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.exp(log_theta[0]), [0, 0.75, 0, 0.25], atol=1e-7)
    np.testing.assert_allclose(np.exp(log_theta[1]), 0.25, rtol=1e-6)
    np.testing.assert_allclose(log_theta[0, 0], np.log(1e-30), rtol=1e-6)
    assert np.all(np.isfinite(jax.jit(jax.grad(lambda eta: family.mean(eta).sum()))(counts)))


def test_point_simplex_refuses_impossible_settings():
    with pytest.raises(ValueError, match="expected a number of pseudo-counts"):
        f.PointSimplex(smoothing=-1.0)
    with pytest.raises(ValueError, match="expected the smallest probability"):
        f.PointSimplex(floor=0.0)


# --- The point Gaussian -----------------------------------------------------------------------------------------------


def gaussian_sums(x):
    """(n/2, Σx²/2, Σx, n): the natural parameter of observations (n, …)."""
    n = np.full(x.shape[1:], float(len(x)))
    return f.NormalGammaStatistics(*map(jnp.asarray, (n / 2, (x**2).sum(0) / 2, x.sum(0), n)))


def test_point_gaussian_is_the_maximiser(float64):
    """Mean and variance of the observations: no other (μ, τ) has a greater likelihood."""
    x = np.random.default_rng(0).normal([1.0, -2.0, 0.3], [0.5, 2.0, 1.0], size=(7, 3))
    plain, family, natural = f.PointGaussian(), Compiled(f.PointGaussian()), gaussian_sums(x)
    best = family.mean(natural)
    value = jax.tree.map(np.asarray, family.value(best))
    np.testing.assert_allclose(value.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(1 / value.precision, x.var(0), rtol=1e-11)
    likelihood = scipy.stats.norm(value.mean, value.precision**-0.5).logpdf(x).sum(0) + 3.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(family.log_normaliser(natural), likelihood, rtol=1e-11)
    for shift, scale in ((0.1, 1.0), (0.0, 1.1), (-0.05, 0.9)):
        other = scipy.stats.norm(value.mean + shift, value.precision**-0.5 * scale).logpdf(x).sum(0)
        assert np.all(other + 3.5 * np.log(2 * np.pi) < likelihood)
    gradient = jax.jit(jax.grad(lambda eta: plain.log_normaliser(eta).sum()))(natural)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), gradient, best)
    again = family.mean(family.natural(best))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), again, best)
    assert np.all(np.asarray(family.entropy(natural)) == 0)
    jax.tree.map(np.testing.assert_array_equal, family.sample(jax.random.key(0), natural), best)
    jax.tree.map(np.testing.assert_array_equal, family.point(natural), best)
    delta = plain.to_numpyro(natural)
    assert (delta.batch_shape, delta.event_shape) == ((3,), (2,))


def test_point_gaussian_keeps_its_floor(float64):
    """One observation has no variance, none has no mean either; gradients stay numbers."""
    single = gaussian_sums(np.array([[2.0, -1.0]]))
    family, floored = Compiled(f.PointGaussian()), Compiled(f.PointGaussian(0.25))
    value = jax.tree.map(np.asarray, floored.value(floored.mean(single)))
    np.testing.assert_allclose(value.mean, [2, -1])
    np.testing.assert_allclose(1 / value.precision, 0.25)
    nothing = f.NormalGammaStatistics(*(jnp.zeros(2) for _ in range(4)))
    empty = family.value(family.mean(nothing))
    np.testing.assert_array_equal(empty, ([0, 0], [1, 1]))
    gradient_at = jax.jit(jax.grad(lambda eta: f.PointGaussian().log_normaliser(eta).sum()))
    for natural in (single, nothing):
        gradient = gradient_at(natural)
        assert all(np.all(np.isfinite(leaf)) for leaf in gradient)
    with pytest.raises(ValueError, match="variance_floor is the smallest variance"):
        f.PointGaussian(0.0)


# --- Sources and edges ------------------------------------------------------------------------------------------------


def test_conjugate_gaussian_of_the_thesis(float64):
    """§2.1.2 as it should read: a = ½η²/Λ; under the prior (λ₁, λ₂), E[η] = Λλ₁/λ₂, E[−a] = −½(1/λ₂ + λ₁²Λ/λ₂²)."""
    precision, first, second = 2.5, jnp.asarray(0.7), jnp.asarray(3.0)
    eta = f.Gaussian().mean(f.GaussianStatistics(first, second / precision))
    np.testing.assert_allclose(eta.value, precision * 0.7 / 3.0, rtol=1e-14)
    np.testing.assert_allclose(
        eta.negative_half_square / precision, -0.5 * (1 / 3.0 + 0.7**2 * precision / 3.0**2), rtol=1e-14
    )
    np.testing.assert_allclose(f.KnownPrecisionGaussian(precision).log_normaliser(first), 0.5 * 0.7**2 / precision)


def test_gradient_of_a_textbook_log_joint_is_the_natural_parameter(float64):
    """A Dirichlet–multinomial written as the textbook writes it: the gradient is the posterior's concentration − 1."""
    alpha, counts = jnp.array([0.4, 2.0, 1.3]), jnp.array([3.0, 0.0, 5.0])

    def log_joint(log_theta):
        return ((alpha - 1) * log_theta).sum() + (counts * log_theta).sum()

    natural = jax.grad(log_joint)(f.Dirichlet().mean(alpha - 1))
    np.testing.assert_allclose(f.Dirichlet().to_numpyro(natural).concentration, alpha + counts)


@pytest.mark.parametrize(
    "entries", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(50, marks=pytest.mark.slow)]
)
def test_dirichlet_inversion_over_many_scales(entries, float64):
    exponents = [(-3, 0), (-2, 2), (0, 4), (-3, 4)]
    concentration = 10 ** np.concatenate([np.random.default_rng(1).uniform(*ends, (20, entries)) for ends in exponents])
    natural = jnp.asarray(concentration - 1)
    family = Compiled(f.Dirichlet())
    np.testing.assert_allclose(family.natural(family.mean(natural)) + 1, concentration, rtol=1e-7)


def test_gamma_inversion_over_many_scales(float64):
    shape = np.logspace(-3, 4, 60)
    natural = f.GammaStatistics(jnp.asarray(shape - 1), jnp.asarray(1 + shape**0.3))
    family = Compiled(f.Gamma())
    back = family.natural(family.mean(natural))
    np.testing.assert_allclose(back.log_value + 1, shape, rtol=1e-8)


def test_sparse_dirichlet_draws_keep_their_logarithms():
    """Concentration 0.001 in float32: most entries are below the smallest float, none is −inf."""
    drawn = np.asarray(Compiled(f.Dirichlet()).sample(jax.random.key(0), jnp.full((200, 5), 0.001 - 1)))
    assert np.all(np.isfinite(drawn))
    assert drawn.min() < -200
    np.testing.assert_allclose(np.exp(drawn).sum(-1), 1, rtol=2e-4)  # a logarithm of −1000 has an error of 6e-5
