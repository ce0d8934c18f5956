"""Mixtures whose scales have Gamma priors: mean field and annealed paths against enumeration times quadrature.

False alarms. Keys are fixed: a test always passes or always fails. Over keys each z is normal to good approximation.
"""

from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import partition_oracles as partitions
import pytest
import scale_oracles as oracles
from compiled import Compiled
from mixture_cases import VALUES, dataset
from scipy.special import gammaln, logsumexp

import lvsearch as lv
from lvsearch.inference.annealing import particles as annealing
from lvsearch.inference.annealing.hyperparameters import gamma_around
from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.engine.estimate import beliefs_of, capacity_of, pad_axes
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.engine.meanfield import bound, cast, fit_locals
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.evidence import HyperMixture, evidence_chain, simulated_like, true_state
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixtureState
from lvsearch.models import DiagonalComponents, DPMixture, FiniteMixture, FullCovarianceComponents, GammaPrior
from lvsearch.models.components import log_hyper_prior, log_prior
from lvsearch.models.families import GammaStatistics

N, CONCENTRATION, SHAPE = 5, 0.8, 2.5
COUNT, RATE = GammaPrior(1.5, 2.0), GammaPrior(2.0, 1.5)
ROWS = np.where(np.arange(2 * N).reshape(N, 2) == 3, np.nan, VALUES[:N])
MODEL = FiniteMixture(DiagonalComponents(0.0, 1.0, COUNT, SHAPE, RATE), CONCENTRATION)
Z_LIMIT = 4.5
pytestmark = pytest.mark.usefixtures("float64")


@cache
def exact(size: int) -> oracles.Enumerated:
    grids = oracles.gamma_grid(1.5, 2.0, 70), oracles.gamma_grid(2.0, 1.5, 90)
    return oracles.enumerated(ROWS, size, CONCENTRATION, oracles.Diagonal(*grids, SHAPE))


def chain_of(size: int, capacity: int = 4, model: FiniteMixture = MODEL) -> HyperMixture:
    return HyperMixture.from_data(model, dataset(ROWS), size, capacity)


def padded(labels: np.ndarray, chain: HyperMixture) -> Any:
    return jnp.asarray(np.pad(labels, [(0, len(chain.mixture.weight) - len(labels)), (0, 0)]))


def about_labels(chain: HyperMixture) -> HyperMixture:
    """A second path: q leans to one labelling, and to numbers that are not the priors' means."""
    size, capacity = int(chain.size), chain.capacity
    lean = np.full((len(chain.mixture.weight), capacity), -np.inf)
    lean[:, :size] = np.log(0.9 * np.random.default_rng(8).dirichlet(np.full(size, 0.6), len(lean)) + 0.1 / size)
    start = {"pseudo_count": gamma_around(np.array([[0.4]])), "rate": gamma_around(np.array([[0.8], [1.5]]))}
    courses = {name: course._replace(start=start[name]) for name, course in chain.courses.items()}
    return eqx.tree_at(lambda c: (c.mixture, c.courses), chain, (chain.mixture.around_labelling(lean), courses))


PATHS = pytest.mark.parametrize("path", [lambda chain: chain, about_labels], ids=["prior", "labelling"])


# ── the model ───────────────────────────────────────────────────────────────────────────────────────────────────────


def kinds(prior: GammaPrior) -> tuple[Any, Any]:
    return DiagonalComponents(0.3, 1.2, prior, 2.5, prior), FullCovarianceComponents(0.3, 1.2, prior, 2.5, prior)


DIAGONAL, FULL = kinds(GammaPrior(1.5, 0.5))


@pytest.mark.parametrize(
    "kind", [pytest.param(DIAGONAL, id="diagonal"), pytest.param(FULL, id="full", marks=pytest.mark.slow)]
)
def test_prior_given_hyperparameters_is_that_of_the_numbers(kind):
    """λ(h) is linear in h and A(λ(h)) linear in log h, so that at a draw of h both statistics say the same."""
    values = {name: np.array([0.7, 2.2]) if axes else np.array(0.4) for name, axes in kind.hyper_axes.items()}
    hyper = {name: GammaStatistics(jnp.log(value), -jnp.asarray(value)) for name, value in values.items()}
    given = kind.with_numbers(values)
    one = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)) * 1.0, given.prior(2))
    drawn = Compiled(kind.family).sample(jax.random.key(0), one)
    density = jax.jit(log_prior)
    np.testing.assert_allclose(density(kind, drawn, hyper), density(given, drawn, {}), rtol=1e-12)
    from scipy.stats import gamma

    expected = sum(gamma.logpdf(value, 1.5, scale=2.0).sum() for value in values.values())
    assert float(log_hyper_prior(kind, hyper)) == pytest.approx(expected, abs=1e-10)
    assert kind.at_prior_means().describe() == type(kind)(0.3, 1.2, 3.0, 2.5, 3.0).describe()


@pytest.mark.thorough
def test_simulated_scales_have_their_prior():
    """Each data set has a draw of its own for each column, and the precisions of its components are Gamma given it."""
    model = FiniteMixture(DiagonalComponents(0.0, 1.0, 0.5, 3.0, GammaPrior(4.0, 2.0)))
    units = lv.models.Row(np.zeros((1, 2)), np.ones((1, 2), bool))
    draw = jax.jit(jax.vmap(lambda key: model.simulate(key, (100,), units, {"dim": 2})[0]))
    found = draw(jax.random.split(jax.random.key(0), 60))
    rate, tau = -found["rate"].negative_value, -found["components"].negative_precision
    assert rate.shape == (60, 2)
    assert abs(float(rate.mean()) - 2.0) < Z_LIMIT * 1.0 / np.sqrt(120)  # of deviation √4 / 2
    np.testing.assert_allclose(tau.mean(1) * rate / 3.0, 1.0, atol=Z_LIMIT / np.sqrt(300))


@pytest.mark.thorough
def test_bound_is_below_the_exact_evidence_and_the_generic_engines():
    """Of the kernel's fit, at exactly its state, hyper-parameters included; and it is stationary in them."""
    data, size = dataset(ROWS), (2,)
    fit = estimator(MODEL, data).fit(size, jax.random.key(0), None)
    assert fit.log_lower < exact(2).log_evidence
    assert fit.log_lower > exact(2).log_evidence - 6.0
    capacity = capacity_of(size)
    natural = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), pad_axes(MODEL, fit.natural, size, capacity))
    beliefs = beliefs_of(MODEL, natural, size, capacity=capacity)
    (batch,) = cast(data, np.float64).batches
    blank = blank_locals(MODEL, batch, size, capacity=capacity)
    l = fit_locals(MODEL, beliefs.mean, batch, blank, size, capacity=capacity, sweeps=2)
    assert float(bound(MODEL, (batch,), beliefs, (l,), size, capacity=capacity)) == pytest.approx(
        fit.log_lower, abs=1e-6
    )
    on = MODEL.active(size, capacity)
    slopes = jax.jit(jax.grad(lambda mean: MODEL.log_prior(mean, on)))(beliefs.mean)
    for name in ("pseudo_count", "rate"):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-2), slopes[name], natural[name])


# ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_density_of_all_labellings_at_every_node():
    """log p(rows, z, h) against SciPy's Student t, a cell missing, at nodes of both grids."""
    size = 3
    chain, known = chain_of(size), exact(size)
    rows = padded(known.labels, chain)
    chain = Compiled(chain)
    nodes = np.array([[20, 30, 30], [30, 45, 60], [50, 60, 45]])  # of κ, b_1, b_2
    for count, *rate in nodes:
        log_hyper = {
            "pseudo_count": np.full((1, known.labels.shape[1]), known.model.pseudo_count.log_value[count]),
            "rate": np.repeat(known.model.rate.log_value[rate][:, None], known.labels.shape[1], axis=1),
        }
        state = chain.state_from_labels(rows, jax.tree.map(jnp.asarray, log_hyper))
        log_rows = sum(known.log_rows[:, d, count, node] for d, node in enumerate(rate))
        np.testing.assert_allclose(chain.log_ratio(state), log_rows, rtol=0, atol=1e-9)
        grids = known.model.pseudo_count, known.model.rate
        steps = [np.log(grid.log_value[1] - grid.log_value[0]) for grid in grids]
        weights = [grid.log_weight - step - grid.log_value for grid, step in zip(grids, steps, strict=True)]  # p(h)
        log_joint = log_rows + known.log_prior + weights[0][count] + weights[1][rate].sum()
        np.testing.assert_allclose(chain.log_density(state), log_joint, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_density_of_full_covariances():
    """At numbers of its own for each column, against the multivariate t."""
    rows, size = VALUES[:4], 2
    model = FiniteMixture(FullCovarianceComponents(0.0, 1.0, 0.3, 2.5, RATE), CONCENTRATION)
    chain = HyperMixture.from_data(model, dataset(rows), size, 3)
    labels = np.array([[0, 1, 1, 0], [0, 0, 0, 0]]).T
    spread = np.array([[0.7, 0.4], [1.9, 0.9]])
    state = Compiled(chain).state_from_labels(padded(labels, chain), {"spread": jnp.log(spread)})
    found = np.asarray(Compiled(chain).log_ratio(state))
    for particle in range(2):
        scale = np.sqrt(spread[:, particle])  # a spread of w is one of 1 in a unit √w times as large
        marginal = partitions.full_marginal(np.zeros(2), scale, 0.3, 2.5, 1.0)
        groups = [rows[labels[:, particle] == k] for k in range(size)]
        expected = sum(marginal(group) for group in groups if len(group))
        assert found[particle] == pytest.approx(expected, abs=1e-9)


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def posterior_states(chain: HyperMixture, draws: int) -> HyperMixtureState:
    """Exact draws of the posterior."""
    known = exact(int(chain.size))
    labels, log_count, log_rate = oracles.posterior_draws(known, draws, np.random.default_rng(5))
    hyper = {"pseudo_count": jnp.asarray(log_count[None]), "rate": jnp.asarray(log_rate)}
    return jax.jit(HyperMixture.state_from_labels)(chain, padded(labels, chain), hyper)


def z_of_evidence(chain: HyperMixture, seeds: int, particles: int = 10, units: bool = False) -> tuple[float, float]:
    """z of E[p̂] over p(rows), from q and back to it from exact draws of the posterior. units: along the data."""
    known, begin = exact(int(chain.size)), posterior_states(chain, seeds * particles)
    if units:
        sampler = sequential(chain, jax.random.key(2))
        there = grow(sampler, jax.random.key(3), 4, islands=seeds, particles=particles)
        back = shrink(sampler, jax.random.key(4), begin, 4, islands=seeds)
    else:
        up = np.linspace(0, 1, 8)[1:]
        there = annealing.forward(chain, jax.random.key(3), up, islands=seeds, particles=particles)
        back = annealing.backward(chain, jax.random.key(4), begin, up, islands=seeds)
    forward = there.log_evidence[-1] if units else there.log_evidence
    ratios = np.exp(forward - known.log_evidence), np.exp(known.log_evidence - back.log_evidence)
    return tuple(float((r.mean() - 1) / (r.std(ddof=1) / np.sqrt(seeds))) for r in ratios)


@pytest.mark.slow  # in a shorter tier rows in turn have it, by the same moves both ways
@PATHS
def test_annealing_has_the_exact_evidence(path):
    """E[p̂] = p(rows), labels enumerated and all three hyper-parameters integrated, on both paths and both ways."""
    assert np.abs(z_of_evidence(path(chain_of(2)), 150)).max() < Z_LIMIT


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_rows_in_turn_have_the_exact_evidence(seeds):
    """The same along the data, hyper-parameters from their priors before any row."""
    assert np.abs(z_of_evidence(chain_of(2), seeds, units=True)).max() < Z_LIMIT


@pytest.mark.slow
@PATHS
def test_annealing_has_the_exact_evidence_of_three(path):
    assert np.abs(z_of_evidence(path(chain_of(3)), 1500)).max() < Z_LIMIT


class Untempered(HyperMixture):
    """A planted mistake: hyper-parameters move as if t were 1."""

    def _move_hyper(self, key: Any, state: HyperMixtureState, temperature: Any, backward: bool, own: Any) -> Any:
        return super()._move_hyper(key, state, jnp.ones_like(temperature), backward, jnp.ones_like(own))


@pytest.mark.slow
def test_a_move_without_the_temperature_is_seen():
    right = chain_of(2)
    wrong = Untempered(right.mixture, right.component, right.courses, right.n_dims)
    assert np.abs(z_of_evidence(wrong, 400)).max() > Z_LIMIT


@pytest.mark.slow
def test_columns_that_hang_together_move_one_after_another():
    """Full covariances, each column's spread with a prior: the evidence by quadrature of both spreads."""
    rows, size = VALUES[:4], 2
    model = FiniteMixture(FullCovarianceComponents(0.0, 1.0, 0.3, 2.5, RATE), CONCENTRATION)
    grid = oracles.gamma_grid(2.0, 1.5, 26)
    terms = []
    for first, log_weight in zip(grid.log_value, grid.log_weight, strict=True):
        for second, more in zip(grid.log_value, grid.log_weight, strict=True):
            scale = np.sqrt(np.exp([first, second]))
            marginal = partitions.full_marginal(np.zeros(2), scale, 0.3, 2.5, 1.0)
            prior = partial(partitions.log_finite_prior, n_components=size, concentration=CONCENTRATION)
            terms.append(log_weight + more + partitions.log_evidence(rows, marginal, prior))
    chain = HyperMixture.from_data(model, dataset(rows), size, 2)
    there = annealing.forward(chain, jax.random.key(3), np.linspace(0, 1, 8)[1:], islands=1500, particles=10)
    ratio = np.exp(there.log_evidence - logsumexp(terms))
    assert abs(ratio.mean() - 1) < Z_LIMIT * ratio.std(ddof=1) / np.sqrt(len(ratio))


# ── a least width ───────────────────────────────────────────────────────────────────────────────────────────────────


TIES = np.array([0.0] * 6 + [-1.1, 0.6])[:, None]
LEAST, WIDE, ONE = 1e-8, 0.05, GammaPrior(1.0, 1.0)


def with_least(name: str, least: float) -> FiniteMixture:
    """In one column both kinds say the same: a Wishart of one dimension is a Gamma of half the degrees and spread."""
    half = GammaPrior(1.0, 0.5)
    component = {
        "diagonal": DiagonalComponents(0.0, 1.0, ONE, 2.0, ONE, least_rate=least),
        "full": FullCovarianceComponents(0.0, 1.0, ONE, 4.0, half, least_spread=2 * least),
    }[name]
    return FiniteMixture(component, CONCENTRATION)


@cache
def exact_with_ties(least: float) -> float:
    grids = oracles.gamma_grid(1.0, 1.0, 60), oracles.gamma_grid(1.0, 1.0, 110)
    return oracles.enumerated(TIES, 2, CONCENTRATION, oracles.Diagonal(*grids, 2.0, least)).log_evidence


def test_equal_cells_have_a_finite_evidence_only_with_a_least_width():
    """Sixteen equal cells in one component and four others in another, as quadrature reaches further down."""

    def log_joint(lowest: float, least: float) -> float:
        log_value = np.linspace(lowest, 3.4, int(-3 * lowest))
        grid = oracles.Grid(log_value, log_value - np.exp(log_value) + np.log(log_value[1] - log_value[0]))
        model = oracles.Diagonal(grid, grid, 2.0, least)
        both = model.column(np.full(16, 0.7)) + model.column(np.array([-1.0, 0.4, 0.9, -0.2]))
        return float(logsumexp(both + grid.log_weight[:, None] + grid.log_weight))

    assert log_joint(-60.0, 0.0) > log_joint(-30.0, 0.0) + 20.0
    assert log_joint(-60.0, LEAST) == pytest.approx(log_joint(-30.0, LEAST), abs=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["diagonal", pytest.param("full", marks=pytest.mark.slow)])
def test_bound_is_finite_and_below_the_evidence_of_equal_cells(name):
    fit = estimator(with_least(name, LEAST), dataset(TIES)).fit((2,), jax.random.key(0), None)
    assert np.isfinite(fit.log_lower)
    assert fit.log_lower < exact_with_ties(LEAST)


@pytest.mark.slow  # the path is that of the tests above; that a least width ends it is asked of the bound
@pytest.mark.parametrize("name", ["diagonal", "full"])
def test_annealing_has_the_exact_evidence_of_equal_cells(name):
    """Along the rows, from the prior: E[p̂] = p(rows). The least width is one that such short paths come upon."""
    chain = evidence_chain(with_least(name, WIDE), dataset(TIES), (2,), None)
    sampler = sequential(chain, jax.random.key(2))
    there = grow(sampler, jax.random.key(3), 4, islands=200, particles=32)
    ratio = np.exp(there.log_evidence[-1] - exact_with_ties(WIDE))
    assert abs(ratio.mean() - 1) < Z_LIMIT * ratio.std(ddof=1) / np.sqrt(len(ratio))
    assert ratio.std(ddof=1) < 2.0  # so that a missing nat would be seen


# ── weights ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_dynamic_weights_share_one_concentration():
    """α/K for each of K: the density of labels, the log-joint and what is drawn."""
    component = DiagonalComponents()
    model = FiniteMixture(component, 1.8, dynamic=True)
    static = FiniteMixture(component, 0.6)
    assert model.describe().endswith("1.8 over all components")
    chains = [evidence_chain(one, dataset(ROWS), (3,), None) for one in (model, static)]
    labels = jnp.asarray(np.random.default_rng(0).integers(3, size=(len(chains[0].weight), 20)))
    density = jax.jit(lambda chain: chain.log_density(chain.state_from_labels(labels)))
    densities = [np.asarray(density(chain)) for chain in chains]
    np.testing.assert_allclose(densities[0], densities[1], rtol=1e-12)
    g = model.draw_weights(jax.random.key(0), (3,))
    on = model.active((3,), (5,))
    padded_weights = {"weights": jnp.pad(g["weights"], (0, 2))}
    expected = gammaln(1.8) - 3 * gammaln(0.6) + float((0.6 - 1) * g["weights"].sum())
    assert float(model.log_weights_prior(padded_weights, on)) == pytest.approx(expected, rel=1e-12)


# ── the border ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_infer_scales_says_so():
    kind = DiagonalComponents.weak(VALUES)
    for model in (DPMixture, lv.models.HiddenMarkov, lv.models.HDPMixture):
        with pytest.raises(ValueError, match="rate have priors, expected numbers"):
            model(kind)
    with pytest.raises(ValueError, match="one positive number"):
        DiagonalComponents(rate=GammaPrior(-1.0, 1.0))
    with pytest.raises(ValueError, match="or one per column"):
        DiagonalComponents(rate=[[1.0]])


def test_one_number_per_column_is_as_one_column_each():
    """A rate for each column, given: the prior of each column by itself."""
    both = DiagonalComponents(rate=[0.3, 0.9]).prior(2)
    for column, rate in enumerate((0.3, 0.9)):
        alone = DiagonalComponents(rate=rate).prior(1)
        jax.tree.map(lambda a, b, c=column: np.testing.assert_allclose(a[c], b[0]), both, alone)


# ── around the chain ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # of numbers instead of priors in test_audit.py
def test_simulated_data_are_bracketed_from_their_truth():
    """Audits: backward paths that begin at the labels and hyper-parameters that the data were drawn with."""
    simulated = simulated_like(dataset(ROWS), MODEL, (2,), jax.random.key(1))
    chain = evidence_chain(MODEL, simulated.data, (2,), None)
    state = true_state(chain, simulated, 16)
    assert {name: each.shape for name, each in state.log_hyper.items()} == {"pseudo_count": (1, 16), "rate": (2, 16)}
    np.testing.assert_array_equal(state.log_hyper["rate"][:, 3], simulated.globals["rate"].log_value)
    np.testing.assert_array_equal(state.labels[:, 0], np.argmax(simulated.locals["component"], -1))


@pytest.mark.slow
def test_samples_and_occupied_components():
    """Draws of h beside the rows of each component; K₊ of a search beside K, never above it."""
    trace = lv.sample(MODEL, ROWS[[0, 2, 4]], size=2, chains=2, draws=20, progress=False)
    assert trace["rate"].shape == (2, 20, 2)
    assert trace["pseudo_count"].shape == (2, 20)
    result = lv.search(
        FiniteMixture(DiagonalComponents.weak(VALUES), 0.3, dynamic=True), VALUES, max_size=3, starts=1, progress=False
    )
    table = result.occupied_under_fits()
    assert table["components"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(table[["size_probability", "occupied_under_fits"]].sum(), 1.0)
    assert (table["occupied_under_fits"].cumsum() >= table["size_probability"].cumsum() - 1e-12).all()


@pytest.mark.slow
def test_scales_with_priors_are_stored(tmp_path):
    model = FiniteMixture(FullCovarianceComponents.weak(VALUES), 2.0, dynamic=True)
    result = lv.search(model, VALUES, max_size=2, starts=1, progress=False, out=tmp_path / "run", report=False)
    again = lv.load(tmp_path / "run")
    assert again.best.model.describe() == result.best.model.describe() == model.describe()
    assert again.best.table("spread").shape == (2, 1)
