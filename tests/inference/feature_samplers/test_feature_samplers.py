"""Samplers of features against enumerated posteriors, Geweke's joint-distribution test, and edge cases.

False alarms. Every z is a difference over its standard error, of batch means or of independent numbers. With fixed keys
a test always passes or always fails; over keys, |z| < 4.5 for at most 40 numbers fails by chance in fewer than 1 of
1,000 keys (40 · 2 · (1 − Φ(4.5)) = 3e-4, doubled for the small number of batches). Each test of a sampler is run on a
planted bug too, at the same size, and must then fail. Calibration is in `test_feature_calibration.py`.
"""

from functools import cache
from typing import Any

import buffet
import jax
import numpy as np
import oracles
import pytest
from buffet import COMPILED, SAMPLERS, Sampler
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from lvsearch.inference.feature_samplers import (
    Hyperpriors,
    collapsed_gibbs,
    loadings,
    particle_filter,
    slice_sampler,
    uncollapsed_gibbs,
)
from lvsearch.inference.feature_samplers.chain import (
    FeatureState,
    Hyperparameters,
    draw_index,
    draw_loadings,
    draw_loadings_of_new,
    full_sweep,
    log_joint,
    log_new_weights,
)
from lvsearch.inference.feature_samplers.loadings import (
    PatternLoadings,
    SharedLoadings,
    Spread,
    fit_loadings,
    read_cells,
)
from lvsearch.inference.feature_samplers.particles import resample_systematically
from lvsearch.inference.feature_samplers.sticks import draw_numbers_of_new
from lvsearch.inference.feature_samplers.trace import FeatureRecorder, FeatureSampler, FeatureStates
from lvsearch.inference.features import left_ordered, log_marginal, posterior_loadings
from lvsearch.inference.sampling import run as loop
from lvsearch.models.ibp import GammaPrior

Z_LIMIT = 4.5
X = np.array([[1.3, -0.2], [0.4, 1.9], [1.8, 1.5]])
HIDDEN = np.array([[True, True], [False, True], [True, True]])
HYPER = Hyperparameters(0.9, 0.6, 1.1)
MOST = 6
CHAINS = (collapsed_gibbs, uncollapsed_gibbs, slice_sampler)


# ── against enumeration ─────────────────────────────────────────────────────────────────────────────────────────────


@cache
def posterior(missing: bool) -> oracles.BuffetPosterior:
    observed = HIDDEN if missing else np.ones(X.shape, bool)
    return oracles.buffet_posterior(X, observed, *HYPER, MOST)


def class_of(features: np.ndarray) -> tuple[int, ...]:
    weights = 2.0 ** np.arange(len(features))[::-1]
    return tuple(sorted((weights @ features).astype(int).tolist()))


def numbers_of(classes: Any, missing: bool) -> np.ndarray:
    """Functions of each class (class, 18): K₊, the features each row has and each two rows share, the likeliest."""
    likeliest = [posterior(missing).classes[i] for i in np.argsort(-posterior(missing).probabilities)[:8]]
    rows = []
    for one in classes:
        z = oracles.history_matrix(one, len(X))
        shared = (z @ z.T)[np.triu_indices(len(X))]
        rows.append([*(len(one) == k for k in range(1, 5)), *shared, *(one == other for other in likeliest)])
    return np.array(rows, np.float64)


def posterior_z(sampler: Sampler, missing: bool, sweeps: int, key: int) -> np.ndarray:
    """z of every function, over the sweeps with at most MOST features: their law is the enumerated one."""
    observed = HIDDEN if missing else None
    values = np.where(HIDDEN, X, np.nan) if missing else X
    cells = read_cells(values, observed)
    rng = np.random.default_rng(key)
    state = FeatureState(np.zeros((len(X), 0)), HYPER)
    visited = []
    for _ in range(sweeps):
        state = sampler.sweep(rng, cells, state)
        visited.append(class_of(state.features))
    exact = posterior(missing)
    known = dict(zip(exact.classes, numbers_of(exact.classes, missing), strict=True))
    truth = exact.probabilities @ np.array(list(known.values()))
    samples = np.array([known[one] for one in visited[100:] if one in known])
    assert len(samples) > 0.95 * sweeps - 100
    return buffet.batch_z(samples, truth)


OTHER_CASES = [(SAMPLERS[0], True), *((s, missing) for s in SAMPLERS[1:] for missing in (False, True))]
CASES = [
    (SAMPLERS[0], False),
    (COMPILED, False),
    *(pytest.param(s, missing, marks=pytest.mark.slow) for s, missing in OTHER_CASES),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("sampler", "missing"), CASES, ids=lambda v: v.name if isinstance(v, Sampler) else str(v))
def test_chains_have_the_enumerated_posterior(sampler, missing):
    """Whole classes included, with and without a missing cell: 18 functions, |z| < 4.5."""
    assert np.abs(posterior_z(sampler, missing, 2000 if missing else 4000, 1)).max() < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [*SAMPLERS, COMPILED], ids=lambda s: s.name)
def test_enumeration_finds_planted_bugs(sampler, monkeypatch):
    sampler.plant(monkeypatch)
    assert np.abs(posterior_z(sampler, False, 4000, 1)).max() > 1.5 * Z_LIMIT


@pytest.mark.slow
def test_a_fixed_order_of_columns_is_found(monkeypatch):
    """What `visits` warns of: columns visited in their order of birth. Found in 40,000 sweeps, not in 4,000."""
    monkeypatch.setattr(loadings, "visits", lambda rng, n: list(enumerate(rng.random(n).tolist())))
    assert np.abs(posterior_z(SAMPLERS[0], False, 40_000, 1)).max() > 1.5 * Z_LIMIT


def evidence_ratios(n: int) -> np.ndarray:
    """Estimated over exact p(X), of independent passes."""
    exact = oracles.buffet_posterior(X, np.ones(X.shape, bool), *HYPER, 8).log_evidence
    alpha, sigma_x, sigma_a = HYPER
    passes = (
        particle_filter(X, key=key, alpha=alpha, sigma_x=sigma_x, sigma_a=sigma_a, n_particles=20)
        for key in jax.random.split(jax.random.key(3), n)
    )
    return np.exp(np.array([one.log_evidence for one in passes]) - exact)


def ratio_z(ratios: np.ndarray) -> float:
    return float(abs(ratios.mean() - 1) / (ratios.std(ddof=1) / np.sqrt(len(ratios))))


@pytest.mark.thorough
def test_particle_evidence_is_unbiased():
    """The average over 250 passes of 20 particles, with a standard error below 3 %: |z| < 4.5."""
    ratios = evidence_ratios(250)
    assert ratios.std(ddof=1) / np.sqrt(len(ratios)) < 0.03
    assert ratio_z(ratios) < Z_LIMIT


@pytest.mark.slow
def test_particle_evidence_finds_a_planted_bug(monkeypatch):
    buffet.plant_in_filter(monkeypatch)
    assert ratio_z(evidence_ratios(250)) > 1.5 * Z_LIMIT


# ── Geweke ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PRIORS = Hyperpriors(GammaPrior(4.0, 4.0), GammaPrior(5.0, 2.0), GammaPrior(5.0, 5.0))


def moments(draw: buffet.Joint) -> list[float]:
    """Functions of a joint draw: features, hyper-parameters, data, and where they meet."""
    m = draw.features.sum(0)
    logs = np.log(draw.hyper)
    size = np.log1p(draw.values**2).mean()
    return [len(m), m.sum(), m.sum() ** 2, m @ m, *logs, size, len(m) * logs[0], size * logs[1], size * m.sum()]


def geweke_z(sampler: Sampler, n_chains: int, sweeps: int, key: int) -> np.ndarray:
    """Forward draws against chains of (sweep | data, data | everything), each begun at a joint draw: (function,)."""
    rng = np.random.default_rng(key)
    forward = np.array([moments(buffet.draw_joint(rng, 3, 2, PRIORS)) for _ in range(4 * n_chains)])
    averages = []
    for _ in range(n_chains):
        draw = buffet.draw_joint(rng, 3, 2, PRIORS)
        values, state = draw.values, FeatureState(draw.features, draw.hyper)
        visited = []
        for _ in range(sweeps):
            cells = read_cells(values, None)
            state = full_sweep(rng, sampler.sweep, cells, state, PRIORS)
            kept = state.loadings
            loadings = draw_loadings(rng, cells, state.features, state.hyper) if kept is None else kept
            values = buffet.draw_values(rng, state.features, loadings, state.hyper.sigma_x)
            visited.append(moments(buffet.Joint(state.hyper, state.features, loadings, values)))
        averages.append(np.mean(visited, axis=0))
    chains = np.array(averages)
    error = np.sqrt(forward.var(0, ddof=1) / len(forward) + chains.var(0, ddof=1) / n_chains)
    return np.abs(forward.mean(0) - chains.mean(0)) / error


FAST_AND_SLOW = [SAMPLERS[0], *(pytest.param(s, marks=pytest.mark.slow) for s in SAMPLERS[1:])]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", FAST_AND_SLOW, ids=lambda s: s.name)
def test_geweke(sampler):
    """All hyper-parameters drawn, by code that the samplers share: 11 functions, |z| < 4.5."""
    assert geweke_z(sampler, 400, 8, 2).max() < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
def test_geweke_finds_planted_bugs(sampler, monkeypatch):
    """The same test, the same sizes, a wrong sampler: it must fail, and clearly."""
    sampler.plant(monkeypatch)
    assert geweke_z(sampler, 400, 8, 2).max() > 1.5 * Z_LIMIT


# ── the parts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def a_case(missing: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((6, 4))
    observed = rng.random((6, 4)) < 0.7 if missing else None
    return values, observed, (rng.random((6, 3)) < 0.5).astype(np.float64)


@pytest.mark.parametrize("missing", [False, True])
def test_running_posterior_is_the_posterior(missing):
    """Rows in and out, features in and out, against the posterior written out."""
    values, observed, features = a_case(missing)
    sigma_x, sigma_a = 0.7, 1.3
    cells, ratio = read_cells(values, observed), (sigma_x / sigma_a) ** 2
    fitted = fit_loadings(cells, features, ratio)
    assert isinstance(fitted, PatternLoadings if missing else SharedLoadings)
    others = fitted.update_row(2, features[2], -1.0)
    without = np.ones((6, 4), bool) if observed is None else observed.copy()
    without[2] = False
    mean, covariance = posterior_loadings(values, features, sigma_x, sigma_a, without)
    np.testing.assert_allclose(others.mean, mean, atol=1e-12)
    held = others.covariance[cells.pattern] if isinstance(others, PatternLoadings) else others.covariance
    np.testing.assert_allclose(sigma_x**2 * held, covariance if missing else covariance[0], atol=1e-12)
    wider = others.add_features(2).update_row(2, np.array([1.0, 0.0, 1.0, 1.0, 1.0]), 1.0)
    z = np.concatenate([features, np.zeros((6, 2))], axis=1)
    z[2] = [1, 0, 1, 1, 1]
    again = fit_loadings(cells, z, ratio)
    np.testing.assert_allclose(wider.mean, again.mean, atol=1e-12)
    np.testing.assert_allclose(wider.covariance, again.covariance, atol=1e-12)
    np.testing.assert_allclose(
        wider.update_row(2, z[2], -1.0).select(np.arange(5) < 3).covariance, others.covariance, atol=1e-12
    )


@pytest.mark.parametrize("missing", [False, True])
def test_a_row_is_scored_by_its_marginal(missing):
    """The spread of a row, and of j new features, against log p(X | Z) with and without the row."""
    values, observed, features = a_case(missing)
    mask = np.ones((6, 4), bool) if observed is None else observed
    cells, hyper = read_cells(values, observed), Hyperparameters(1.4, 0.7, 1.3)
    others = fit_loadings(cells, features, (0.7 / 1.3) ** 2).update_row(2, features[2], -1.0)
    z, spreads = others.draw_row(2, features[2], lambda k, z: 0.3, np.random.default_rng(0), hyper.sigma_x, 0.0)
    weights = log_new_weights(spreads, 0.25, hyper.sigma_a**2)
    held_out = mask.copy()
    held_out[2] = False
    for j in range(4):
        with_row = np.concatenate([features, np.zeros((6, j))], axis=1)
        with_row[2] = [*z, *[1.0] * j]
        gain = log_marginal(values, with_row, hyper.sigma_x, hyper.sigma_a, mask)
        gain -= log_marginal(values, features, hyper.sigma_x, hyper.sigma_a, held_out)
        expected = gain + 0.5 * mask[2].sum() * np.log(2 * np.pi) + j * np.log(0.25) - gammaln(j + 1)
        assert weights[j] == pytest.approx(expected, abs=1e-10)


def test_numbers_of_new_features_are_cut_where_nothing_is_left():
    """A residual that asks for dozens of features; terms beyond the cut add less than 1e-15 of the sum."""
    spreads = [Spread(3.0, 0.2, 150.0), Spread(1.0, 0.4, 90.0)]
    weights = log_new_weights(spreads, 0.7, 1.1)
    j = np.arange(400)
    every = j * np.log(0.7) - gammaln(j + 1)
    for spread in spreads:
        every += norm.logpdf(np.sqrt(spread.squares / spread.cells), scale=np.sqrt(spread.variance + 1.1 * j)) * (
            spread.cells
        )
    every += 0.5 * sum(spread.cells for spread in spreads) * np.log(2 * np.pi)
    np.testing.assert_allclose(weights, every[: len(weights)])
    assert logsumexp(every[len(weights) :]) < logsumexp(weights) - 34
    assert int(np.argmax(weights)) > 2
    assert draw_index([0.0, -np.inf, np.log(3.0)], 0.25 - 1e-9) == 0
    assert draw_index([0.0, -np.inf, np.log(3.0)], 0.25 + 1e-9) == 2
    together = draw_numbers_of_new(np.random.default_rng(0), np.full(40_000, 4), np.full(40_000, 30.0), 0.7, 0.5, 1.1)
    exact = np.exp(log_new_weights([Spread(4.0, 0.25, 30.0)], 0.7, 1.21))
    exact /= exact.sum()
    counts = np.bincount(together, minlength=len(exact))
    assert np.abs((counts - 40_000 * exact) / np.sqrt(40_000 * exact * (1 - exact)))[exact > 1e-3].max() < Z_LIMIT


@pytest.mark.parametrize("number", [10_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_loadings_of_new_features_have_their_posterior(number):
    """Mean and covariance of many draws of two features of one row, one column unseen; |z| < 4.5."""
    rng = np.random.default_rng(5)
    residual, seen = np.array([1.4, -0.6]), np.array([True, False])
    draws = np.array([draw_loadings_of_new(rng, residual, seen, 2, 0.6, 1.1) for _ in range(number)])
    mean, covariance = posterior_loadings(residual[None], np.ones((1, 2)), 0.6, 1.1, seen[None])
    assert np.abs(buffet.batch_z(draws, mean)).max() < Z_LIMIT
    centred = draws - mean
    assert np.abs(buffet.batch_z(np.einsum("sad,sbd->sdab", centred, centred), covariance)).max() < Z_LIMIT


# ── the public face ─────────────────────────────────────────────────────────────────────────────────────────────────

GIVEN = {"alpha": 1.2, "sigma_x": 0.5, "sigma_a": 1.0}
TRUE = np.array([[1, 0], [1, 1], [0, 1], [0, 0], [1, 1]])
DATA = TRUE @ np.array([[2.0, -1.0, 0.5], [0.0, 1.5, 1.5]]) + 0.1 * np.random.default_rng(0).standard_normal((5, 3))


@pytest.mark.parametrize("run", CHAINS, ids=lambda f: f.__name__)
def test_a_trace_says_what_it_visited(run):
    """Scores on left-ordered classes, at each state's own hyper-parameters; the same key, the same chain."""
    priors = Hyperpriors(GammaPrior(2.0, 2.0), GammaPrior(2.0, 1.0), GammaPrior(2.0, 2.0))
    trace = run(DATA, key=jax.random.key(1), start=TRUE, sweeps=12, keep=4, priors=priors, **GIVEN)
    assert len(trace.log_joint) == len(trace.n_features) == len(trace.seconds) == 13
    assert trace.log_joint[0] == log_joint(read_cells(DATA, None), TRUE, Hyperparameters(**GIVEN))
    last = Hyperparameters(float(trace.alpha[-1]), float(trace.sigma_x[-1]), float(trace.sigma_a[-1]))
    assert trace.log_joint[-1] == pytest.approx(log_joint(read_cells(DATA, None), trace.features, last), abs=1e-9)
    assert trace.n_features[-1] == trace.features.shape[1]
    assert len(trace.kept) == 3
    np.testing.assert_array_equal(trace.kept[-1], trace.features)
    np.testing.assert_array_equal(trace.features, left_ordered(trace.features))
    assert len(set(trace.alpha[1:].tolist())) == len(set(trace.sigma_x[1:].tolist())) == 12
    assert trace.seconds[0] == 0
    assert (trace.seconds[1:] > 0).all()
    again = run(DATA, key=jax.random.key(1), start=TRUE, sweeps=12, priors=priors, **GIVEN)
    np.testing.assert_array_equal(again.log_joint, trace.log_joint)
    other = run(DATA, key=jax.random.key(2), start=TRUE, sweeps=12, priors=priors, **GIVEN)
    assert not np.array_equal(other.log_joint, trace.log_joint)


@pytest.mark.parametrize("run", CHAINS, ids=lambda f: f.__name__)
def test_a_trace_is_that_of_the_run_loop(run):
    """Every quantity twice; what is known of the chain is said."""
    priors = Hyperpriors(concentration=GammaPrior(2.0, 2.0))
    found = run(DATA, key=jax.random.key(1), start=TRUE, sweeps=12, keep=5, priors=priors, **GIVEN)
    pairs = {"log_density": "log_joint", "occupied": "n_features", "alpha": "alpha", "sigma_x": "sigma_x"}
    for name, field in pairs.items():
        np.testing.assert_array_equal(found.trace[name][0], getattr(found, field)[1:])
    assert len(found.kept) == 2
    end = FeatureStates(*found.trace.state)
    assert end.best_log_joint[0] == found.log_joint.max()
    assert "One chain knows nothing" in repr(found.trace)


@cache
def several(sampler: Sampler, draws: int, after: Any = None) -> Any:
    """Chains side by side from starts apart, α drawn."""
    priors, cells = Hyperpriors(concentration=GammaPrior(40.0, 40.0)), read_cells(X, None)
    starts = tuple(FeatureState(np.eye(len(X))[:, :k], HYPER) for k in range(3))
    chains = FeatureSampler(sampler.sweep, cells, priors, starts)
    record = FeatureRecorder.for_rows(len(X), units=True)
    settings = {"chains": 3, "warmup": 5, "thin": 2, "recorder": record, "after": after}
    return loop(chains, jax.random.key(2), draws=draws, **settings)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sampler",
    [SAMPLERS[0], *(pytest.param(s, marks=pytest.mark.slow) for s in (*SAMPLERS[1:], COMPILED))],
    ids=lambda s: s.name,
)
def test_chains_side_by_side_go_on(sampler):
    """The same bits as in one run, Z of any width and the best so far among them; R̂ and effective draws."""
    whole, part = several(sampler, 60), several(sampler, 15)
    again = several(sampler, 60, part)
    for name in ("log_density", *whole.names):
        np.testing.assert_array_equal(again[name], whole[name])
    for one, other in zip(again.state, whole.state, strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole["features"].shape[:3] == (3, 60, 3)
    np.testing.assert_array_equal(whole["features"].any(2).sum(2), whole["occupied"])
    assert (FeatureStates(*whole.state).best_log_joint >= whole.log_density.max(1)).all()
    table = whole.diagnostics()
    assert table.loc[["log_density", "occupied", "alpha"], ["rhat", "effective_sample_size"]].notna().all(axis=None)
    settings = {"recorder": FeatureRecorder.for_rows(3, units=True), "chains": 3, "draws": 60, "warmup": 5, "thin": 2}
    starts = (FeatureState(np.eye(3), HYPER),) * 3
    other = FeatureSampler(sampler.sweep, read_cells(X + 1, None), Hyperpriors(), starts)
    with pytest.raises(ValueError, match="another run"):
        loop(other, jax.random.key(2), after=part, **settings)


def test_compiled_sweeps_find_room_for_new_features():
    """Twelve directions, two rows each: more features than the first capacity has places, and than start with any."""
    directions = np.repeat(8.0 * np.eye(12), 2, axis=0)
    data = directions + 0.1 * np.random.default_rng(0).standard_normal((24, 12))
    given = {"alpha": 3.0, "sigma_x": 0.3, "sigma_a": 3.0}
    trace = collapsed_gibbs(data, key=jax.random.key(0), sweeps=10, compiled=True, **given)
    slow = collapsed_gibbs(data, key=jax.random.key(0), sweeps=10, **given)
    assert trace.n_features.max() > 8
    np.testing.assert_allclose(trace.log_joint.max(), slow.log_joint.max(), rtol=0.1)
    again = collapsed_gibbs(data, key=jax.random.key(0), sweeps=10, compiled=True, **given)
    np.testing.assert_array_equal(again.log_joint, trace.log_joint)
    with pytest.raises(ValueError, match="compiled"):
        collapsed_gibbs(data, key=jax.random.key(0), observed=data > 0, compiled=True, **given)


@pytest.mark.parametrize("run", CHAINS, ids=lambda f: f.__name__)
def test_what_is_not_observed_is_not_read(run):
    """NaN in missing cells, a row and a column with none observed: the same chain as with any other filling."""
    observed = np.random.default_rng(1).random(DATA.shape) < 0.7
    observed[3], observed[:, 1] = False, False
    traces = [
        run(np.where(observed, DATA, fill), key=jax.random.key(0), observed=observed, sweeps=8, **GIVEN)
        for fill in (np.nan, 7.0)
    ]
    np.testing.assert_array_equal(traces[0].log_joint, traces[1].log_joint)
    assert np.isfinite(traces[0].log_joint).all()


@pytest.mark.parametrize("run", [*CHAINS, particle_filter], ids=lambda f: f.__name__)
@pytest.mark.parametrize("data", [DATA[:1], DATA[:, :1], np.ones((4, 2)), np.zeros((3, 1))])
def test_small_and_constant_data(run, data):
    """One row, one column, constant rows: finite scores, features of the right shape."""
    trace = run(data, key=jax.random.key(0), **GIVEN, **({} if run is particle_filter else {"sweeps": 5}))
    assert np.isfinite(trace.log_joint).all()
    assert len(trace.best) == len(data)
    assert trace.best.any(axis=0).all()


@pytest.mark.parametrize("run", [*CHAINS, particle_filter], ids=lambda f: f.__name__)
def test_bad_input_is_refused(run):
    key = jax.random.key(0)
    broken = DATA.copy()
    broken[1, 2] = np.nan
    with pytest.raises(ValueError, match="row 1, column 2"):
        run(broken, key=key, **GIVEN)
    with pytest.raises(ValueError, match="sigma_x"):
        run(DATA, key=key, **{**GIVEN, "sigma_x": 0.0})
    with pytest.raises(ValueError, match="alpha"):
        run(DATA, key=key, **{**GIVEN, "alpha": np.nan})
    with pytest.raises(ValueError, match="rows"):
        run(DATA, key=key, start=np.ones((6, 1)), **GIVEN)
    with pytest.raises(ValueError, match="0 or 1"):
        run(DATA, key=key, start=2 * TRUE, **GIVEN)
    with pytest.raises(ValueError, match="no rows"):
        run(DATA[:0], key=key, **GIVEN)


def test_particle_filter_goes_on_from_given_rows():
    """The rows that were given stay as they are, and weights are normalised."""
    trace = particle_filter(DATA, key=jax.random.key(0), start=TRUE[:3], n_particles=30, **GIVEN)
    assert len(trace.seconds) == len(trace.effective) == 2
    assert np.exp(trace.log_weights).sum() == pytest.approx(1)
    for one in trace.particles:
        np.testing.assert_array_equal(left_ordered(one[:3]), left_ordered(TRUE[:3]))
    again = particle_filter(DATA, key=jax.random.key(0), start=TRUE[:3], n_particles=30, **GIVEN)
    assert again.log_evidence == trace.log_evidence
    whole = particle_filter(DATA, key=jax.random.key(0), start=TRUE, n_particles=3, **GIVEN)
    assert whole.log_evidence == 0
    assert whole.log_joint == log_joint(read_cells(DATA, None), TRUE, Hyperparameters(**GIVEN))
    with pytest.raises(ValueError, match="n_particles"):
        particle_filter(DATA, key=jax.random.key(0), n_particles=0, **GIVEN)


def test_resampling_is_systematic():
    """Each particle is kept the floor or the ceiling of its share, on average its share."""
    weights = np.array([0.05, 0.4, 0.0, 0.3, 0.25])
    kept = np.array(
        [np.bincount(resample_systematically(weights, u), minlength=5) for u in (np.arange(1000) + 0.5) / 1000]
    )
    assert (np.abs(kept - 5 * weights) < 1).all()
    np.testing.assert_allclose(kept.mean(0), 5 * weights, atol=2e-3)
