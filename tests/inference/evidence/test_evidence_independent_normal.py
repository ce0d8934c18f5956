"""The annealed path of Gaussian mixtures with independent priors, against enumeration with quadrature, and its moves.

False alarms. Keys are fixed: a test always passes or always fails. Over keys, each z below is normal to good
approximation, and |z| < 4.5 for at most 60 numbers fails by chance in fewer than 1 of 1,000 keys.
"""

from dataclasses import fields
from functools import partial
from typing import Any

import independent_normal_oracles as exact
import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import pytest
from engine_steps import gibbs_sweep
from scipy.stats import gamma, kstest

from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain
from lvsearch.models import IndependentNormalMixture, Row
from lvsearch.models.families import GammaStatistics, GaussianStatistics

MODEL = IndependentNormalMixture(mixture_cases.LOCATION, mixture_cases.SCALE, 0.7, 2.2, 1.3, 1.9, 0.8)
PRIOR = exact.Prior(mixture_cases.LOCATION, mixture_cases.SCALE, 0.7, 2.2, 1.3, 1.9)
ROWS = mixture_cases.HOLED
Z_LIMIT = 4.5
pytestmark = pytest.mark.usefixtures("float64")


def chain_of(rows: np.ndarray, size: int, capacity: int = 4) -> IndependentNormalChain:
    return IndependentNormalChain.from_data(MODEL, mixture_cases.dataset(rows), size, capacity)


init = partial(jax.jit, static_argnums=2)(IndependentNormalChain.init)
log_ratio = jax.jit(IndependentNormalChain.log_ratio)
log_density = jax.jit(IndependentNormalChain.log_density)


@partial(jax.jit, static_argnames="backward")
def step(chain: Any, key: Any, state: Any, temperature: Any, backward: bool = False) -> Any:
    return chain.step(key, state, temperature, backward=backward)


# ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_log_ratio_is_the_density_of_the_rows():
    """Σ log Normal(x | its component) over observed cells, in the data's unit, by SciPy."""
    from scipy.stats import norm

    chain = chain_of(ROWS, 3)
    state = init(chain, jax.random.key(0), 9)
    labels = np.asarray(state.labels)[: len(ROWS)]
    for p in range(9):
        mean = MODEL.location + MODEL.scale * np.asarray(state.mean)[labels[:, p], :, p]
        deviation = MODEL.scale * np.asarray(state.precision)[labels[:, p], :, p] ** -0.5
        expected = np.nansum(norm(mean, deviation).logpdf(ROWS))
        np.testing.assert_allclose(log_ratio(chain, state)[p], expected, rtol=1e-10)


@pytest.mark.thorough
def test_padding_contributes_nothing():
    """Rows of weight 0, whatever they hold, and places beyond the size: the same densities."""
    chain, wider = chain_of(ROWS, 3), chain_of(ROWS, 3, 5)
    (batch,) = mixture_cases.dataset(ROWS).batches
    real = np.asarray(batch.weight)[:, None] > 0
    odd = Row(np.where(real, batch.units.value, 99.0), batch.units.observed | ~real)
    data = Dataset.of_batches(
        (Batch(odd, batch.weight),), (np.where(real[:, 0], np.arange(8), -1),), {"dim": 2}, len(ROWS)
    )
    disturbed = IndependentNormalChain.from_data(MODEL, data, 3, 4)
    state = step(chain, jax.random.key(1), init(chain, jax.random.key(0), 9), 0.4)
    assert np.all(np.isfinite(log_density(chain, state)))
    assert int(state.labels.max()) == 2
    more = state._replace(
        log_weights=jnp.pad(state.log_weights, [(0, 1), (0, 0)], constant_values=-jnp.inf),
        mean=jnp.pad(state.mean, [(0, 1), (0, 0), (0, 0)], constant_values=7.0),
        precision=jnp.pad(state.precision, [(0, 1), (0, 0), (0, 0)], constant_values=3.0),
    )
    relabelled = state._replace(labels=jnp.where(real, state.labels, 0))
    for one, same in ((disturbed, state), (wider, more), (chain, relabelled)):
        np.testing.assert_allclose(log_ratio(one, same), log_ratio(chain, state), rtol=1e-13)
    for one, same in ((disturbed, state), (wider, more)):
        np.testing.assert_allclose(log_density(one, same), log_density(chain, state), rtol=1e-13)
    np.testing.assert_array_equal(
        step(disturbed, jax.random.key(2), state, 0.4).mean, step(chain, jax.random.key(2), state, 0.4).mean
    )
    assert chain.label_scores(state) is None


@pytest.mark.thorough
def test_one_program_serves_every_size():
    chains = [chain_of(ROWS, size) for size in (1, 2, 4)]
    states = [init(chain, jax.random.key(0), 9) for chain in chains]
    before = step._cache_size()
    for chain, state in zip(chains, states, strict=True):
        assert int(step(chain, jax.random.key(1), state, 0.5).labels.max()) < int(chain.size)
    assert step._cache_size() - before <= 1


# ── the model's conditionals ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow  # the model's densities: `test_models.py`
def test_conditionals_are_the_gradient_of_the_log_joint():
    """Natural parameters of the complete conditionals at sampled statistics, as the paper gives them, at t = 1; and the
    generic sampler runs on the model."""
    chain, size, capacity = chain_of(ROWS, 3), (3,), (4,)
    state = init(chain, jax.random.key(5), 9)
    (batch,), (ids,) = mixture_cases.dataset(ROWS).batches, mixture_cases.dataset(ROWS).unit_ids
    on = MODEL.active(size, capacity)
    mean, precision, rate = state.mean[..., 0], state.precision[..., 0], state.rate[:, 0]
    g = {
        "weights": jnp.where(on["component"], state.log_weights[:, 0], 0.0),
        "mean": GaussianStatistics(mean, -0.5 * mean**2),
        "precision": GammaStatistics(jnp.log(precision), -precision),
        "rate": GammaStatistics(jnp.log(rate), -rate),
    }
    l = {"component": jax.nn.one_hot(state.labels[:, 0], 4)}

    def log_joint(g: Any) -> Any:
        each = jax.vmap(lambda unit, lu: MODEL.log_unit(g, lu, unit, on))(batch.units, l)
        return MODEL.log_prior(g, on) + (batch.weight * each).sum()

    natural = jax.jit(jax.grad(log_joint))(g)
    seen, y = ~np.isnan(ROWS), np.nan_to_num((ROWS - MODEL.location) / MODEL.scale)
    z = np.asarray(l["component"])[: len(ROWS)]
    n, total, squares = z.T @ seen, z.T @ y, z.T @ y**2
    expected = {
        "weights": 0.8 - 1 + z.sum(0),
        "mean": GaussianStatistics(precision * total, 0.7 + n * precision),
        "precision": GammaStatistics(2.2 - 1 + n / 2, rate + 0.5 * (squares - 2 * mean * total + n * mean**2)),
        "rate": GammaStatistics(jnp.full(2, 1.3 - 1 + 3 * 2.2), 1.9 + precision[:3].sum(0)),
    }
    for name, leaf in expected.items():
        cut = (lambda x: np.asarray(x)) if name == "rate" else (lambda x: np.asarray(x)[:3])
        jax.tree.map(lambda a, b, cut=cut: np.testing.assert_allclose(cut(a), cut(b), rtol=1e-9), natural[name], leaf)
    swept = gibbs_sweep(MODEL, jax.random.key(6), GibbsState(g, (l,)), (batch,), (ids,), size, capacity=capacity)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(swept))
    assert not np.array_equal(swept.globals["mean"].value, mean)


# ── draws ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [0.1, 1.0, *(pytest.param(a, marks=pytest.mark.slow) for a in (0.9, 2.5, 40.0))])
def test_gamma_draws(shape):
    """Kolmogorov and Smirnov: p < 1e-4 by chance in 5 of 10,000 keys."""
    drawn = np.exp(np.asarray(log_gamma_draws(jax.random.key(3), jnp.full(5000, shape))))
    assert kstest(drawn, gamma(shape).cdf).pvalue > 1e-4


def moments(chain: Any, state: Any) -> np.ndarray:
    """Functions of the state that do not change under relabelling, and one that does: (function, particle)."""
    n, exists = len(ROWS), np.arange(chain.capacity) < int(chain.size)
    weights = np.exp(np.asarray(state.log_weights))[exists]
    mean, log_precision = np.asarray(state.mean)[exists], np.log(np.asarray(state.precision))[exists]
    labels = np.asarray(state.labels)[:n]
    fit = np.asarray(chain.log_ratio(state))
    together = (labels[0] == labels[1]).astype(float), (labels[2] == labels[5]).astype(float)
    first = (labels == 0).mean(0)
    return np.stack(
        [
            np.maximum(fit, -60),
            *together,
            first,
            (weights**2).sum(0),
            weights[0] * mean[0, 0],
            mean.sum((0, 1)),
            (mean**2).sum((0, 1)),
            (mean * np.tanh(log_precision)).sum((0, 1)),
            np.tanh(log_precision).sum((0, 1)),
            np.tanh(np.log(np.asarray(state.rate))).sum(0),
            (np.tanh(np.log(np.asarray(state.rate))) * np.tanh(log_precision).sum(0)).sum(0),
        ]
    )


class HalfTempered(IndependentNormalChain):
    """The planted bug: labels are drawn without the power t."""

    def _labels(self, key: Any, state: Any, temperature: Any) -> Any:
        return super()._labels(key, state, jnp.ones_like(temperature))


def z_of_invariance(chain: Any, moved: Any, temperature: float, backward: bool, particles: int) -> np.ndarray:
    """Prior draws weighted into π_t, before and after sweeps by `moved`: z of the differences of their moments."""
    state = init(chain, jax.random.key(11), particles)
    log_weight = temperature * np.asarray(log_ratio(chain, state))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    before, after = moments(chain, state), state
    for i in range(2):
        after = step(moved, jax.random.key(20 + i), after, temperature, backward)
    difference = moments(chain, after) - before
    mean = (weight * difference).sum(1)
    return mean / np.sqrt((weight**2 * (difference - mean[:, None]) ** 2).sum(1))


@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True])
def test_sweeps_leave_the_path_as_it_is(backward):
    """Exact draws of π_t, by weighting draws of the prior; the same test fails on labels drawn without the power."""
    chain, t = chain_of(ROWS, 3), 0.3
    assert np.abs(z_of_invariance(chain, chain, t, backward, 20_000)).max() < Z_LIMIT
    wrong = HalfTempered(**{field.name: getattr(chain, field.name) for field in fields(chain)})
    assert np.abs(z_of_invariance(chain, wrong, t, backward, 20_000)).max() > Z_LIMIT


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@partial(jax.jit, static_argnames="particles")
def annealed(chain: Any, key: Any, particles: int, temperatures: Any) -> Any:
    """log weights (particle,) of annealed importance sampling from the prior."""

    def one(carry: Any, ends: Any) -> Any:
        state, log_weight, index = carry
        now, then = ends
        log_weight = log_weight + (then - now) * chain.log_ratio(state)
        return (chain.step(jax.random.fold_in(key, index), state, then, backward=False), log_weight, index + 1), None

    begin = chain.init(jax.random.fold_in(key, 0), particles), jnp.zeros(particles), 1
    return jax.lax.scan(one, begin, (temperatures[:-1], temperatures[1:]))[0][1]


def z_of_evidence(rows: np.ndarray, size: int, seeds: int, particles: int) -> float:
    evidence = exact.log_evidence(rows, size, 0.8, PRIOR)
    temperatures = np.linspace(0, 1, 41) ** 3
    weights = np.asarray(annealed(chain_of(rows, size), jax.random.key(4), seeds * particles, temperatures))
    ratios = np.exp(weights - evidence).reshape(seeds, particles).mean(1)
    error = ratios.std(ddof=1) / np.sqrt(seeds)
    assert error < 0.15
    return float((ratios.mean() - 1) / error)


@pytest.mark.thorough
def test_annealing_has_the_exact_evidence():
    assert abs(z_of_evidence(ROWS[:5], 3, 40, 50)) < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_annealing_has_the_exact_evidence_of_more_rows(size):
    assert abs(z_of_evidence(ROWS, size, 200, 100)) < Z_LIMIT


def z_of_prefixes(sampler: Any, islands: int, particles: int) -> np.ndarray:
    """z of E[p̂(first m rows)] = p(first m rows), m = 1, …, forward along the rows."""
    n = int(sampler.n_units)
    order = sampler.rows.order[:n]
    evidence = np.array([exact.log_evidence(ROWS[order[:m]], 3, 0.8, PRIOR) for m in range(1, n + 1)])
    found = grow(sampler, jax.random.key(5), 3, islands=islands, particles=particles).log_evidence[:n]
    ratios = np.exp(found - evidence[:, None])
    return (ratios.mean(1) - 1) / (ratios.std(1, ddof=1) / np.sqrt(islands))


@pytest.mark.thorough
@pytest.mark.parametrize(("islands", "particles"), [(50, 16), pytest.param(2000, 50, marks=pytest.mark.slow)])
def test_rows_in_turn_have_the_exact_evidence_of_every_prefix(islands, particles):
    """Means and precisions integrated out, the rates drawn: the path that a search takes."""
    sampler = sequential(evidence_chain(MODEL, mixture_cases.dataset(ROWS[:5]), (3,), None), jax.random.key(1))
    assert np.abs(z_of_prefixes(sampler, islands, particles)).max() < Z_LIMIT


@pytest.mark.slow
def test_rows_that_go_again_have_the_exact_evidence_under_a_wide_prior_of_rates():
    """Back to the prior itself, the paper's Gamma(0.2), weights have an infinite variance: 0.45 nats too high."""
    rows = np.random.default_rng(0).normal(size=(6, 1))
    model = IndependentNormalMixture.scaled_to(rows)
    prior = exact.Prior(model.location, model.scale, 1.0, 2.0, 0.2, 10.0)
    evidence = exact.log_evidence(rows, 1, 1.0, prior)
    chain = evidence_chain(model, mixture_cases.dataset(rows), (1,), None)
    there = grow(sequential(chain, jax.random.key(1)), jax.random.key(2), 8, islands=1, particles=40 * 32)
    back = shrink(sequential(chain, jax.random.key(3)), jax.random.key(4), there.state, 8, islands=40)
    assert back.log_evidence.mean() == pytest.approx(evidence, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "evidence"), [(2, -235.25), (3, -226.68)])
def test_galaxies(data_folder, size, evidence):
    """82 velocities in thousands of km/s (Roeder 1990, as R's MASS prints them), Richardson & Green's prior: the log
    evidence that an independent sampler found."""
    velocities = np.loadtxt(data_folder / "dpmix" / "MASS_galaxies.csv")[:, None] / 1000
    model = IndependentNormalMixture.scaled_to(velocities)
    chain = IndependentNormalChain.from_data(model, mixture_cases.dataset(velocities), size, 4)
    temperatures = np.concatenate([[0.0], np.geomspace(1e-6, 0.15, 1600), np.linspace(0.15, 1, 4801)[1:]])
    log_weights = np.asarray(annealed(chain, jax.random.key(0), 64, temperatures))
    assert np.logaddexp.reduce(log_weights) - np.log(64) == pytest.approx(evidence, abs=0.3)


# ── the border ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_defaults_are_those_of_the_paper():
    """ξ, κ = 1/R², α, g, h = 10/R², δ in the data's unit."""
    model = IndependentNormalMixture.scaled_to(np.array([[9.0, np.nan], [34.0, 2.0], [20.0, -2.0]]))
    np.testing.assert_array_equal([model.location, model.scale], [[21.5, 0.0], [25.0, 4.0]])
    rest = (model.mean_precision, model.shape, model.rate_shape, model.rate_rate, model.concentration)
    assert rest == (1.0, 2.0, 0.2, 10.0, 1.0)
    with pytest.raises(ValueError, match="no range"):
        IndependentNormalMixture.scaled_to(np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"expected \(rows, columns\)"):
        IndependentNormalMixture.scaled_to(np.ones(3))
    with pytest.raises(ValueError, match="no plug-in form"):
        model.plug_in()
    with pytest.raises(ValueError, match="capacity"):
        chain_of(ROWS, 5)
