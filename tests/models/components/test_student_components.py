"""Student's t components: every labelling and every width against enumeration, along rows and down temperatures.

The oracle is SciPy's Student t, row after row, given the rows' multipliers; nothing of lvsearch is repeated there.

False alarms. Keys are fixed: a test always passes or always fails. Over keys, |z| < 4.5 of at most ten numbers fails by
chance in fewer than 1 of 10,000.
"""

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import pytest
from compiled import Compiled
from numpy.testing import assert_allclose
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_t, norm, t

import lvsearch as lv
from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.evidence import evidence_chain
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.row_by_row import RowByRow
from lvsearch.inference.evidence.simulation import simulated_like, true_state
from lvsearch.models import (
    DiagonalComponents,
    DPMixture,
    FiniteMixture,
    Row,
    StudentComponents,
)
from lvsearch.models.components.component import draw_parameters, log_likelihood
from lvsearch.models.hyperpriors import GammaPrior

CONCENTRATION, DEGREES, VARIANTS, SIZE, Z_LIMIT = 0.8, 3.0, 2, 2, 4.5
DIAGONAL = StudentComponents(cases.DIAGONAL.component, DEGREES, VARIANTS)
FULL = StudentComponents(cases.FULL.component, DEGREES, VARIANTS)
GroupMarginal = Callable[[np.ndarray, np.ndarray], float]
"""(Rows of one group, their multipliers) -> log p(rows | multipliers), parameters integrated out, nats."""


def diagonal_group(rows: np.ndarray, u: np.ndarray) -> float:
    total = 0.0
    for x, m, s in zip(rows.T, cases.LOCATION, cases.SCALE, strict=True):
        k, a, b, centre = 0.3, 2.5, 0.7 * s**2, m
        for value, w in zip(x, u, strict=True):
            if np.isnan(value):
                continue
            total += t(2 * a, centre, np.sqrt(b * (k + w) / (a * k * w))).logpdf(value)
            b += 0.5 * k * w * (value - centre) ** 2 / (k + w)
            centre, k, a = (k * centre + w * value) / (k + w), k + w, a + 0.5
    return float(total)


def full_group(rows: np.ndarray, u: np.ndarray) -> float:
    n_dims, total = rows.shape[1], 0.0
    k, v, centre, scatter = 0.3, 2.5 + n_dims - 1, cases.LOCATION, 0.7 * np.diag(cases.SCALE**2)
    for x, w in zip(rows, u, strict=True):
        free = v - n_dims + 1
        total += multivariate_t(centre, scatter * (k + w) / (k * w * free), df=free).logpdf(x)
        scatter = scatter + k * w / (k + w) * np.outer(x - centre, x - centre)
        centre, k, v = (k * centre + w * x) / (k + w), k + w, v + 1
    return float(total)


KINDS = [(DIAGONAL, cases.HOLED, diagonal_group), (FULL, cases.VALUES, full_group)]
by_kind = pytest.mark.parametrize(("component", "rows", "group"), KINDS, ids=["diagonal", "full"])


def every_label(n: int) -> np.ndarray:
    """(row, labelling): component · variants + variant."""
    return np.array(list(product(range(SIZE * VARIANTS), repeat=n)), np.int32).T


def log_joint(component: StudentComponents, rows: np.ndarray, group: GroupMarginal, labels: np.ndarray) -> np.ndarray:
    """log p(rows, labelling), one a column of `labels`."""
    out = []
    for label in labels.T:
        z, v = np.divmod(label, VARIANTS)
        n = np.bincount(z, minlength=SIZE)
        each = (gammaln(CONCENTRATION + n) - gammaln(CONCENTRATION)).sum()
        total = each + gammaln(SIZE * CONCENTRATION) - gammaln(SIZE * CONCENTRATION + len(z))
        total += component.log_variants[v].sum()
        out.append(total + sum(group(rows[z == k], component.multipliers[v[z == k]]) for k in range(SIZE)))
    return np.array(out)


def chain_of(component: StudentComponents, rows: np.ndarray) -> CollapsedMixtureChain:
    return CollapsedMixtureChain.from_data(FiniteMixture(component, CONCENTRATION), cases.dataset(rows), SIZE, 3)


def padded(labels: np.ndarray, chain: CollapsedMixtureChain) -> jax.Array:
    return jnp.asarray(np.pad(labels, [(0, len(chain.weight) - len(labels)), (0, 0)]))


# ── the density ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_multipliers_are_those_of_a_gamma():
    """Means of powers of u below 2V."""
    component = StudentComponents(DiagonalComponents(), 4.0, 4)
    u, w = component.multipliers, np.exp(component.log_variants)
    powers = np.arange(8)
    assert_allclose([w @ u**k for k in powers], np.exp(gammaln(2 + powers) - gammaln(2) - powers * np.log(2)))


@pytest.mark.parametrize(("n_dims", "most"), [(1, 0.2), (2, 0.2), (13, 0.4)])
def test_rows_are_nearly_students(n_dims, most):
    """Within so many nats of the density of Student's t, out to a distance of four."""
    component = StudentComponents(DiagonalComponents(), 4.0, 4)
    x = np.zeros((41, n_dims))
    x[:, 0] = np.linspace(0, 4, 41)
    scale = 1 / np.sqrt(component.multipliers)
    log_density = logsumexp(component.log_variants + norm.logpdf(x[..., None], scale=scale).sum(1), axis=1)
    assert np.abs(log_density - multivariate_t(np.zeros(n_dims), np.eye(n_dims), df=4).logpdf(x)).max() < most


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_rows_are_mixtures_of_widths_and_drawn_so():
    statistics = draw_parameters(FULL, jax.random.key(0), 2, 2)
    one = jax.tree.map(lambda leaf: leaf[1], statistics)
    mean, covariance = FULL.gaussians.moments(one)
    unit = Row(jnp.asarray(cases.VALUES[0]), jnp.ones(2, bool))
    each = [multivariate_normal_log(cases.VALUES[0], mean, covariance / u) for u in FULL.multipliers]
    assert float(log_likelihood(FULL, statistics, unit)[1]) == pytest.approx(logsumexp(FULL.log_variants + each))
    draw = jax.jit(jax.vmap(lambda key: FULL.draw(key, one, unit)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), 20_000)))
    centre, spread = FULL.moments(one)
    deviation = np.sqrt(np.diag(spread))
    assert_allclose((drawn.mean(0) - centre) / deviation, 0, atol=5 / np.sqrt(20_000))
    assert_allclose(
        np.cov(drawn.T) / np.outer(deviation, deviation), spread / np.outer(deviation, deviation), atol=0.08
    )


def multivariate_normal_log(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    from scipy.stats import multivariate_normal

    return float(multivariate_normal(np.asarray(mean), np.asarray(covariance)).logpdf(x))


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("component", "rows", "group"),
    [KINDS[0], pytest.param(*KINDS[1], marks=pytest.mark.slow)],
    ids=["diagonal", "full"],
)
@pytest.mark.usefixtures("float64")
def test_densities_of_all_labellings(component, rows, group):
    n = 3
    chain = chain_of(component, rows[:n])
    labels, chain = padded(every_label(n), chain), Compiled(chain)
    state = chain.state_from_labels(labels)
    expected = log_joint(component, rows[:n], group, every_label(n))
    assert_allclose(chain.log_density(state), expected, atol=1e-9)
    log_prior = np.asarray(chain.log_labels(state))
    assert logsumexp(log_prior) == pytest.approx(0, abs=1e-9)
    assert_allclose(chain.log_ratio(state), expected - log_prior, atol=1e-9)


def check_prefixes(component: StudentComponents, rows: np.ndarray, group: GroupMarginal, n: int, islands: int) -> None:
    """E[p̂(first m rows)] = p(first m rows), and back from exact draws of the posterior E[1/p̂] = 1/p(all)."""
    sampler = sequential(chain_of(component, rows[:n]), jax.random.key(0))
    assert isinstance(sampler, RowByRow)
    ordered = rows[sampler.order[:n]]
    exact = np.array([logsumexp(log_joint(component, ordered[:m], group, every_label(m))) for m in range(1, n + 1)])
    found = grow(sampler, jax.random.key(3), 3, islands=islands, particles=8).log_evidence[:n]
    ratios = np.exp(found - exact[:, None])
    assert_allclose(ratios[0], 1.0, rtol=1e-6)
    z = (ratios[1:].mean(1) - 1) / (ratios[1:].std(1, ddof=1) / np.sqrt(islands))
    assert np.abs(z).max() < Z_LIMIT
    log_target = log_joint(component, rows[:n], group, every_label(n))
    drawn = np.random.default_rng(5).choice(len(log_target), islands * 8, p=np.exp(log_target - logsumexp(log_target)))
    posterior = sampler.chain.state_from_labels(padded(every_label(n)[:, drawn], sampler.chain))
    back = np.exp(exact[-1] - shrink(sampler, jax.random.key(4), posterior, 3, islands=islands).log_evidence)
    assert abs((back.mean() - 1) / (back.std(ddof=1) / np.sqrt(islands))) < Z_LIMIT


@pytest.mark.slow
@by_kind
@pytest.mark.usefixtures("float64")
def test_every_prefix_has_its_exact_evidence(component, rows, group):
    check_prefixes(component, rows, group, n=4, islands=1000)


@pytest.mark.slow
def test_a_search_has_the_enumerated_evidence_and_bounds_below_it():
    rows = cases.VALUES[:5]
    exact = logsumexp(log_joint(FULL, rows, full_group, every_label(5)))
    model = FiniteMixture(FULL, CONCENTRATION)
    result = lv.search(model, rows, prior=lv.sizes.Uniform(2), max_size=2, starts=1, progress=False)
    assert result.posterior()["log_evidence"][1] == pytest.approx(exact, abs=0.1)
    assert exact - 6 < result.fit(2).estimate.log_lower <= exact + 1e-6
    fit = result.fit(2)
    assert_allclose(fit.memberships().sum(axis=1), 1.0, rtol=1e-5)
    single = logsumexp([logsumexp(FULL.log_variants + [full_group(rows[:1], np.array([u])) for u in FULL.multipliers])])
    alone = lv.fit(model, rows[1:2], size=1)
    assert alone.log_density(rows[:1])[0] != pytest.approx(single)  # the predictive, not the prior's
    assert np.isfinite(alone.log_density(rows)).all()


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_the_true_state_and_hyper_parameters_have_the_models_density():
    """By the model itself, with and without numbers in place of priors."""
    weak = DiagonalComponents(cases.LOCATION, cases.SCALE, GammaPrior(1.0, 1.0), 2.5, GammaPrior(2.0, 1.0))
    model = FiniteMixture(StudentComponents(weak, DEGREES, VARIANTS))
    simulated = simulated_like(cases.dataset(cases.VALUES), model, (SIZE,), jax.random.key(2))
    chain = evidence_chain(model, simulated.data, (SIZE,), None)
    assert isinstance(chain, HyperMixture)
    state = true_state(chain, simulated, 3)
    component, variants = np.argmax(simulated.locals["component"], -1), simulated.locals["variant"]
    np.testing.assert_array_equal(np.asarray(state.labels)[:, 0] // VARIANTS, component)
    chosen = variants[np.arange(len(component)), component, np.asarray(state.labels)[:, 0] % VARIANTS]
    np.testing.assert_array_equal(chosen, 1.0)
    hyper = {name: np.exp(np.asarray(each)[:, 0]) for name, each in state.log_hyper.items()}
    given = model.components.with_numbers({"pseudo_count": hyper["pseudo_count"][0], "rate": hyper["rate"]})
    plain = CollapsedMixtureChain.from_data(FiniteMixture(given), simulated.data, SIZE, chain.capacity)
    same = plain.state_from_labels(state.labels)
    assert_allclose(chain.log_ratio(state), plain.log_ratio(same), rtol=1e-9)


@pytest.mark.slow
def test_wide_rows_need_no_component_of_their_own():
    """Two groups and a few rows far out: the estimator puts these in a wide variant of the nearest group."""
    rng = np.random.default_rng(0)
    rows = np.array([[0, 0], [9, 0.0]])[np.repeat([0, 1], 30)] + rng.standard_normal((60, 2))
    rows[::15] += np.array([[5.0, 5], [-4, 6], [4, -6], [5, 6]])
    evidence = []
    for component in (DiagonalComponents(4.5, 3.0), StudentComponents(DiagonalComponents(4.5, 3.0))):
        fits = [
            estimator(FiniteMixture(component), cases.dataset(rows)).fit((k,), jax.random.key(0), None) for k in (2, 3)
        ]
        evidence.append([fit.log_lower for fit in fits])
    (gaussian_two, gaussian_three), (student_two, student_three) = evidence
    assert gaussian_three > gaussian_two
    assert student_two > student_three


# ── the border ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="expected DiagonalComponents or FullCovarianceComponents"):
        StudentComponents(cases.BERNOULLI.component)
    with pytest.raises(ValueError, match="got degrees=0"):
        StudentComponents(DiagonalComponents(), 0.0)
    with pytest.raises(ValueError, match="at least 2"):
        StudentComponents(DiagonalComponents(), 4.0, 1)
    with pytest.raises(ValueError, match=r"arise in one of 2 variants.*`FiniteMixture` alone"):
        DPMixture(DIAGONAL)
    with pytest.raises(ValueError, match="no plug-in form"):
        FiniteMixture(DIAGONAL).plug_in()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "component", [pytest.param(DIAGONAL, id="diagonal"), pytest.param(FULL, id="full", marks=pytest.mark.slow)]
)
def test_the_contract_holds_and_fits_are_kept(component, tmp_path):
    points = lv.Points.from_array(cases.VALUES)
    model = FiniteMixture(component, CONCENTRATION)
    assert lv.models.check(model, points).model == "FiniteMixture"
    fit = lv.fit(model, points, size=2)
    fit.save(tmp_path / "fit")
    again = lv.load_fit(tmp_path / "fit")
    assert again.model.describe() == model.describe()
    np.testing.assert_array_equal(again.transform(points), fit.transform(points))
