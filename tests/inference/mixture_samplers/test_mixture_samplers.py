"""Samplers of Dirichlet-process mixtures: partition frequencies, Geweke's test, calibration, each failing on a bug.

False alarms. Every z is a difference over its standard error from independent chains or batch means; |z| < 4.5 for at
most 30 numbers fails by chance for fewer than 1 of 2,000 keys (doubled for the small number of batches).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
from compiled import Compiled
from scipy.special import logsumexp
from scipy.stats import chisquare

import lvsearch as lv
from lvsearch.inference.mixture_samplers import (
    MixtureTrace,
    autocorrelation,
    blocked_gibbs,
    collapsed_gibbs,
    raftery_lewis,
    slice_sampler,
)
from lvsearch.inference.mixture_samplers.chain import ChainRows, LabelState, log_occupancy, log_rows, natural_of_labels
from lvsearch.inference.mixture_samplers.sampler import PartitionStates, partition_sampler
from lvsearch.inference.mixture_samplers.sweeps import (
    blocked_sweep,
    collapsed_sweep,
    draw_log_weights,
    log_stick_occupancy,
    slice_sweep,
    truncated_weights,
)
from lvsearch.inference.mixtures.rows import pack_increment
from lvsearch.models.components import DiagonalComponents, KnownCovarianceComponents
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.families import Beta, BetaStatistics, Gamma, GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.units import Row

Z_LIMIT = 4.5
TRUNCATION = 4


def run_blocked(model: DPMixture, data: Any, **settings: Any) -> MixtureTrace:
    return blocked_gibbs(model, data, truncation=TRUNCATION, **settings)


class Sampler(NamedTuple):
    """A sampler, its sweep, the prior it has, and the places its chains get in the joint tests."""

    name: str
    run: Callable[..., MixtureTrace]
    sweep: Callable[..., Any]
    truncated: bool
    capacity: int


SAMPLERS = (
    Sampler("collapsed", collapsed_gibbs, collapsed_sweep, False, 6),
    Sampler("blocked", run_blocked, blocked_sweep, True, TRUNCATION),
    Sampler("slice", slice_sampler, slice_sweep, False, 32),
)
by_name = attrgetter("name")
by_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=by_name)


# ── partition frequencies ───────────────────────────────────────────────────────────────────────────────────────────


def frequency_z(sampler: Sampler, kind: cases.Kind, concentration: Any, sweeps: int, n: int = 5) -> np.ndarray:
    """z of the frequency of every partition whose probability is above 0.005, by 40 batch means."""
    rows = kind.rows[:n]
    if sampler.truncated:
        prior = partial(exact.log_truncated_prior, truncation=TRUNCATION, alpha=concentration)
    elif isinstance(concentration, GammaPrior):
        prior = exact.gamma_process_prior(float(concentration.shape), float(concentration.rate))
    else:
        prior = partial(exact.log_process_prior, alpha=concentration)
    joint = exact.log_joint_of_partitions(rows, kind.log_marginal, prior)
    log_p = np.array(list(joint.values()))
    probability = np.exp(log_p - logsumexp(log_p))
    data = lv.Points.from_array(rows, missing="nan").dataset()
    trace = sampler.run(DPMixture(kind.component, concentration), data, key=jax.random.key(3), sweeps=sweeps)
    visited = trace.partitions()[len(trace.kept) // 20 :]
    every = np.array(list(joint))
    codes = every @ n ** np.arange(n)
    at = (visited @ n ** np.arange(n))[:, None] == codes[probability > 0.005]
    batches = at[: len(at) // 40 * 40].reshape(40, -1, at.shape[1]).mean(1)
    return (batches.mean(0) - probability[probability > 0.005]) / (batches.std(0, ddof=1) / np.sqrt(40) + 1e-4)


@pytest.mark.parametrize(
    "sampler",
    [
        SAMPLERS[0],
        pytest.param(SAMPLERS[1], marks=pytest.mark.thorough),
        pytest.param(SAMPLERS[2], marks=pytest.mark.slow),
    ],
    ids=by_name,
)
def test_partition_frequencies_are_exact(sampler):
    """Five rows, all 52 partitions, diagonal components with missing cells."""
    assert np.abs(frequency_z(sampler, cases.DIAGONAL, 1.3, 6000)).max() < Z_LIMIT


@pytest.mark.slow
@by_sampler
@pytest.mark.parametrize("kind", cases.CASES, ids=lambda kind: kind.name)
def test_partition_frequencies_are_exact_for_every_kind(sampler, kind):
    assert np.abs(frequency_z(sampler, kind, 1.3, 40_000)).max() < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if not s.truncated], ids=lambda s: s.name)
def test_partition_frequencies_with_an_inferred_concentration(sampler):
    assert np.abs(frequency_z(sampler, cases.KNOWN, GammaPrior(2.0, 1.5), 40_000, n=6)).max() < Z_LIMIT


# ── joint tests: everything drawn forwards, and by the sampler ──────────────────────────────────────────────────────

N_ROWS, ALPHA_PRIOR = 5, GammaPrior(3.0, 2.0)
MODEL = DPMixture(DiagonalComponents(0.3, 1.4, 0.5, 3.0, 2.0), ALPHA_PRIOR)


def log_places(key: Any, alpha: Any, sampler: Sampler) -> Any:
    """log weights of the places: sticks, the last taking all that is left (beyond 32 of the process, nothing is)."""
    n = sampler.capacity
    sticks = Beta().sample(key, BetaStatistics(jnp.zeros(n), jnp.full(n, alpha - 1)))
    log_value = sticks.log_value.at[-1].set(0.0)
    return log_value + jnp.cumsum(sticks.log_complement) - sticks.log_complement


def draw_rows(key: Any, labels: Any, capacity: int) -> Any:
    """Rows given labels, parameters drawn from the prior."""
    key_parameters, key_rows = jax.random.split(key)
    component = MODEL.components
    prior = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (capacity, *leaf.shape)), component.prior(1))
    parameters = component.family.sample(key_parameters, prior)
    blank = Row(jnp.zeros((N_ROWS, 1)), jnp.ones((N_ROWS, 1), bool))
    own = jax.tree.map(lambda leaf: leaf[labels], parameters)
    draw = jax.vmap(component.draw)
    return draw(jax.random.split(key_rows, N_ROWS), own, blank)


def joint_draw(key: Any, sampler: Sampler) -> Any:
    """(α, labels, rows): labels by the sampler's own prior on partitions, whatever it collapses."""
    key_alpha, key_sticks, key_labels, key_rows = jax.random.split(key, 4)
    shape, rate = ALPHA_PRIOR
    alpha = Gamma().value(Gamma().sample(key_alpha, GammaStatistics(jnp.asarray(shape - 1), jnp.asarray(rate))))
    wide = sampler if sampler.truncated else sampler._replace(capacity=32)
    labels = jax.random.categorical(key_labels, log_places(key_sticks, alpha, wide), shape=(N_ROWS,))
    if sampler.name == "collapsed":  # places mean nothing there: order of appearance
        first = jnp.argmax(labels[:, None] == labels, axis=1)
        seen = jnp.cumsum(first == jnp.arange(N_ROWS)) - 1
        labels = seen[first]
    return alpha, labels, draw_rows(key_rows, labels, wide.capacity)


def as_rows(values: Any) -> ChainRows:
    component, observed = MODEL.components, jnp.ones(values.shape, bool)
    coordinates = jax.vmap(component.coordinates)(Row(values, observed))
    return ChainRows(
        jax.vmap(component.increment)(coordinates, observed),
        jax.vmap(lambda y, o: pack_increment(component, y, o))(coordinates, observed),
        component.prior(1),
    )


def rows_given_labels(key: Any, labels: Any, capacity: int) -> Any:
    return draw_rows(key, labels, capacity)


def numbers(alpha: Any, labels: Any, values: Any) -> Any:
    """Functions of a joint draw: α, components, pairs together, sizes of rows, and where they meet."""
    together = (labels[:, None] == labels).mean()
    occupied = (jnp.argmax(labels[:, None] == labels, axis=1) == jnp.arange(N_ROWS)).sum()
    size = jnp.log1p(values**2).mean()
    apart = jnp.log1p((values - values[:, 0]) ** 2)
    close = (apart * (labels[:, None] == labels)).mean()
    return jnp.stack([alpha, jnp.log(alpha), occupied, together, size, close, occupied * size, alpha * occupied])


def planted_collapsed(model: Any, key: Any, state: Any, rows: Any, capacity: int) -> Any:
    """Rows are drawn with a concentration half too large."""
    return collapsed_sweep(model, key, state._replace(alpha=1.5 * state.alpha), rows, capacity)


def planted_blocked(model: Any, key: Any, state: Any, rows: Any, capacity: int) -> Any:
    """Sticks given assignments are drawn with a concentration half too large."""
    return blocked_sweep(model, key, state._replace(alpha=1.5 * state.alpha), rows, capacity)


def planted_slice(model: Any, key: Any, state: Any, rows: Any, capacity: int) -> Any:
    """Sticks and α given labels are drawn with a concentration half too large."""
    return slice_sweep(model, key, state._replace(alpha=1.5 * state.alpha), rows, capacity)


def sharp_collapsed(model: Any, key: Any, state: Any, rows: Any, capacity: int) -> Any:
    """Every row counts twice."""
    twice = rows._replace(increments=jax.tree.map(lambda leaf: 2 * leaf, rows.increments))
    return collapsed_sweep(model, key, state, twice, capacity)


def sharp_blocked(model: Any, key: Any, state: Any, rows: Any, capacity: int) -> Any:
    """Labels are drawn by the square of the density."""
    return blocked_sweep(model, key, state, rows._replace(packed=2 * rows.packed), capacity)


def sharp_slice(model: Any, key: Any, state: Any, rows: Any, capacity: int) -> Any:
    """Labels are drawn by the square of the density."""
    return slice_sweep(model, key, state, rows._replace(packed=2 * rows.packed), capacity)


SHARP = {"collapsed": sharp_collapsed, "blocked": sharp_blocked, "slice": sharp_slice}
PLANTED = {"collapsed": planted_collapsed, "blocked": planted_blocked, "slice": planted_slice}


@partial(jax.jit, static_argnames=("sampler", "n_chains", "sweeps"))
def geweke_draws(sampler: Sampler, key: Any, n_chains: int, sweeps: int) -> Any:
    """(numbers of forward draws, their averages along chains begun at a forward draw): (chain, number) each."""

    def chain(k: Any) -> Any:
        alpha, labels, values = joint_draw(k, sampler)

        def step(carry: Any, step_key: Any) -> Any:
            state, values = carry
            key_sweep, key_rows = jax.random.split(step_key)
            state, _ = sampler.sweep(MODEL, key_sweep, state, as_rows(values), sampler.capacity)
            # before the rows are drawn again: after that only the law of the labels shows, and by the symmetry of the
            # components a wrong likelihood leaves that as it is
            seen = numbers(state.alpha, state.labels, values)
            return (state, rows_given_labels(key_rows, state.labels, sampler.capacity)), seen

        begin = LabelState(labels, alpha), values
        return jax.lax.scan(step, begin, jax.random.split(jax.random.fold_in(k, 1), sweeps))[1].mean(0)

    keys = jax.random.split(key, (2, n_chains))
    return jax.vmap(lambda k: numbers(*joint_draw(k, sampler)))(keys[0]), jax.vmap(chain)(keys[1])


def geweke_z(sampler: Sampler, key: int, n_chains: int = 2500, sweeps: int = 6) -> np.ndarray:
    with jax.enable_x64(True):
        forward, chains = (np.asarray(x) for x in geweke_draws(sampler, jax.random.key(key), n_chains, sweeps))
    error = np.sqrt(forward.var(0, ddof=1) / len(forward) + chains.var(0, ddof=1) / len(chains))
    return np.abs(forward.mean(0) - chains.mean(0)) / error


@by_sampler
@pytest.mark.slow
def test_geweke(sampler):
    assert geweke_z(sampler, 0).max() < Z_LIMIT


@by_sampler
@pytest.mark.slow
def test_geweke_finds_planted_bugs(sampler):
    assert geweke_z(sampler._replace(sweep=PLANTED[sampler.name]), 0).max() > 1.5 * Z_LIMIT


@pytest.mark.parametrize("sampler", SAMPLERS[:2], ids=lambda sampler: sampler.name)
@pytest.mark.slow
def test_geweke_finds_a_wrong_likelihood(sampler):
    """Not the slice sampler's: with weights out of the way its moves between two components are symmetric, and what is
    left of the bug is below 2 standard errors here."""
    assert geweke_z(sampler._replace(sweep=SHARP[sampler.name]), 0).max() > 1.5 * Z_LIMIT


@pytest.mark.slow
def test_partition_frequencies_find_a_wrong_likelihood(monkeypatch):
    """The slice sampler's."""
    monkeypatch.setattr("lvsearch.inference.mixture_samplers.sweeps.slice_sweep", SHARP["slice"])
    assert np.abs(frequency_z(SAMPLERS[2], cases.DIAGONAL, 1.3, 6000)).max() > 1.5 * Z_LIMIT


REPLICATES, DRAWS, THIN, BURN = 1600, 7, 12, 60


@partial(jax.jit, static_argnames=("sampler",))
def ranks(sampler: Sampler, keys: Any) -> Any:
    """The rank of the truth among DRAWS thinned draws from the posterior, for each of several numbers."""

    def quantities(state: LabelState, rows: ChainRows) -> Any:
        occupied = (jnp.argmax(state.labels[:, None] == state.labels, axis=1) == jnp.arange(N_ROWS)).sum()
        first = (state.labels == state.labels[0]).sum()
        capacity = 32 if not sampler.truncated else sampler.capacity
        natural, counts = natural_of_labels(state.labels, rows, capacity)
        score = log_rows(MODEL, natural, counts, rows) + log_occupancy(counts, state.alpha)
        return jnp.stack([state.alpha, occupied * 1.0, first * 1.0, score])

    def one(key: Any) -> Any:
        key_truth, key_chain, key_ties = jax.random.split(key, 3)
        alpha, labels, values = joint_draw(key_truth, sampler)
        rows = as_rows(values)
        truth = quantities(LabelState(labels, alpha), rows)

        def step(state: Any, k: Any) -> Any:
            state = sampler.sweep(MODEL, k, state, rows, sampler.capacity)[0]
            return state, quantities(state, rows)

        begin = LabelState(jnp.zeros(N_ROWS, labels.dtype), jnp.asarray(1.5))
        visited = jax.lax.scan(step, begin, jax.random.split(key_chain, BURN + DRAWS * THIN))[1]
        drawn = visited[BURN + THIN - 1 :: THIN]
        close = jnp.abs(drawn - truth) <= 1e-9 * (1 + jnp.abs(truth))
        below, equal = ((drawn < truth) & ~close).sum(0), close.sum(0)
        return below + jax.random.randint(key_ties, truth.shape, 0, equal + 1)

    return jax.vmap(one)(keys)


@cache
def calibration_p(sampler: Sampler) -> np.ndarray:
    """χ² of uniform ranks, one p-value per number."""
    with jax.enable_x64(True):
        found = np.asarray(ranks(sampler, jax.random.split(jax.random.key(6), REPLICATES)))
    return np.array([chisquare(np.bincount(column, minlength=DRAWS + 1)).pvalue for column in found.T])


@pytest.mark.slow
@by_sampler
def test_chains_are_calibrated(sampler):
    """Simulation-based calibration (Talts et al. 2018): 4 numbers, p > 1e-4: false alarms below 1 in 2,000."""
    assert calibration_p(sampler).min() > 1e-4


@pytest.mark.slow
@by_sampler
def test_calibration_finds_planted_bugs(sampler):
    assert calibration_p(sampler._replace(sweep=PLANTED[sampler.name])).min() < 1e-8


# ── chains as people run them ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_capacity_changes_no_draw(monkeypatch):
    """A chain that had to grow is the chain that had room from the start."""
    data = lv.Points.from_array(np.arange(12.0)[:, None] * 4).dataset()
    model = DPMixture(KnownCovarianceComponents(0.2), GammaPrior(5.0, 1.0))
    for run in (collapsed_gibbs, slice_sampler):
        chains = []
        for capacity in (2, 64):
            monkeypatch.setattr("lvsearch.inference.mixture_samplers.sampler.FIRST_CAPACITY", capacity)
            chains.append(run(model, data, key=jax.random.key(2), sweeps=12))
        np.testing.assert_array_equal(chains[0].kept, chains[1].kept)
        np.testing.assert_array_equal(chains[0].alpha, chains[1].alpha)
        assert chains[0].occupied.max() > 4


@cache
def short_chain(run: Callable[..., MixtureTrace], keep: int) -> MixtureTrace:
    data = lv.Points.from_array(np.array([[-2.1], [-1.8], [0.3], [2.2], [1.9]])).dataset()
    return run(DPMixture(DiagonalComponents(), 1.3), data, key=jax.random.key(0), sweeps=20, keep=keep)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sampler", [*(pytest.param(each, marks=pytest.mark.slow) for each in SAMPLERS[:2]), SAMPLERS[2]], ids=by_name
)
def test_predictive_density_integrates_to_one(sampler):
    trace = short_chain(sampler.run, keep=5)
    assert trace.kept.shape == (4, 5)
    t = np.linspace(-14, 14, 4001)
    grid = lv.Points.from_array(np.sinh(t)[:, None]).dataset()
    density = np.exp(trace.predictive_log_density(grid))
    assert np.trapezoid(density * np.cosh(t), t) == pytest.approx(1, abs=2e-3)


@pytest.mark.thorough
def test_slice_weights_are_those_of_the_partition():
    """n_k / (N + α) on average wherever a component has its place, and sticks of the rest in the free places."""
    counts, alpha = jnp.array([0.0, 3, 0, 1]), 1.3
    keys = jax.random.split(jax.random.key(0), 20_000)
    with jax.enable_x64(True):
        draw = jax.jit(jax.vmap(lambda k: draw_log_weights(k, counts, jnp.asarray(alpha))))
        log_weights, log_beyond = draw(keys)
        weights, beyond = np.exp(log_weights), np.exp(log_beyond)
    np.testing.assert_allclose(weights.sum(1) + beyond, 1, rtol=1e-12)
    rest, passed = alpha / (4 + alpha), alpha / (1 + alpha)
    expected = [rest * (1 - passed), 3 / (4 + alpha), rest * passed * (1 - passed), 1 / (4 + alpha)]
    z = (weights.mean(0) - expected) / (weights.std(0) / np.sqrt(len(keys)))
    assert np.abs(z).max() < Z_LIMIT


def test_the_density_of_labels_on_truncated_sticks_sums_to_one():
    with jax.enable_x64(True):
        labels = np.array(list(product(range(3), repeat=4)))
        counts = jnp.asarray([np.bincount(one, minlength=3) for one in labels], float)
        log_p = jax.jit(jax.vmap(lambda n: log_stick_occupancy(n, jnp.asarray(1.3))))(counts)
    assert logsumexp(log_p) == pytest.approx(0, abs=1e-9)


def test_the_density_of_a_state_counts_the_prior_of_its_concentration():
    """Integrated over α it is the joint of rows and partition under that prior."""
    rows, labels = cases.KNOWN.rows[:4], np.array([0, 1, 0, 2])
    prior = GammaPrior(2.0, 1.5)
    log_prior = exact.gamma_process_prior(2.0, 1.5)
    expected = exact.log_joint_of_partitions(rows, cases.KNOWN.log_marginal, log_prior)[tuple(labels.tolist())]
    grid = np.exp(np.linspace(-12, 4, 2001))
    model, data = DPMixture(cases.KNOWN.component, prior), cases.dataset(rows)
    sampler = partition_sampler(collapsed_sweep, log_occupancy, model, data, labels[None], None)
    with jax.enable_x64(True):
        every = jnp.asarray(np.broadcast_to(labels, (len(grid), 4)))
        states = PartitionStates(every, jnp.asarray(grid), jnp.asarray(np.zeros(len(grid), bool)))
        density = Compiled(sampler).log_density(states)
    found = np.log(np.trapezoid(np.exp(np.asarray(density) - expected) * grid, np.log(grid)))
    assert found == pytest.approx(0, abs=1e-4)


def test_truncated_weights_are_the_mean_of_the_sticks():
    weights, left = truncated_weights(np.array([3.0, 0, 2]), 1.3, 5)
    assert weights.sum() + left == pytest.approx(1, abs=1e-12)
    assert weights[0] == pytest.approx(4 / (4 + 1.3 + 2))


@pytest.mark.thorough
def test_chains_refuse_what_they_cannot_sample():
    data = lv.Points.from_array(cases.VALUES).dataset()
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="expected a DPMixture"):
        collapsed_gibbs(lv.models.FiniteMixture(), data, key=key, sweeps=1)  # pyright: ignore
    with pytest.raises(ValueError, match="at least 1 sweep"):
        slice_sampler(DPMixture(), data, key=key, sweeps=0)
    with pytest.raises(ValueError, match="one for each of 7 rows"):
        collapsed_gibbs(DPMixture(), data, key=key, sweeps=1, start=[0, 1])
    with pytest.raises(ValueError, match="at most the truncation"):
        blocked_gibbs(DPMixture(), data, key=key, sweeps=1, truncation=2, start=range(7))
    trace = short_chain(slice_sampler, keep=5)
    with pytest.raises(ValueError, match="kept no partitions"):
        replace(trace, kept=trace.kept[:0], kept_alpha=trace.kept_alpha[:0]).predictive_log_density(data)
    holed = lv.Points.from_array(cases.HOLED, missing="nan").dataset()
    with pytest.raises(ValueError, match="missing cells"):
        collapsed_gibbs(DPMixture(cases.FULL.component), holed, key=key, sweeps=1)


@pytest.mark.slow
def test_a_chain_that_keeps_nothing_predicts_nothing():
    data = lv.Points.from_array(cases.VALUES).dataset()
    with pytest.raises(ValueError, match="kept no partitions"):
        collapsed_gibbs(DPMixture(), data, key=jax.random.key(0), sweeps=1, keep=0).predictive_log_density(data)


@pytest.mark.slow
def test_diagnostics_know_a_slow_chain():
    """An autoregressive series of lag-one correlation 0.9, against independent numbers."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(20_000)
    slow = np.zeros_like(noise)
    for i in range(1, len(noise)):
        slow[i] = 0.9 * slow[i - 1] + noise[i]
    np.testing.assert_allclose(autocorrelation(slow, 3), 0.9 ** np.arange(4), atol=0.03)
    assert autocorrelation(np.ones(10), 2).tolist() == [1, 0, 0]
    quick, long = raftery_lewis(noise), raftery_lewis(slow)
    assert quick.lag == 1
    assert quick.burn_in <= 5
    assert long.lag > 8
    assert long.burn_in > 20
    assert raftery_lewis(np.ones(100)) == (0, 1, 1)
