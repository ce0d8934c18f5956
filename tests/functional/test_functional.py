"""`lv.functional`: against the host's engine, exact numbers, and finite differences; under jit, vmap and grad."""

import itertools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import partition_oracles
import pytest
from jax.scipy.special import betaln as betaln_of
from jax.scipy.special import gammaln as gammaln_of
from scipy.special import betaln, gammaln, logsumexp

import lvsearch as lv
from lvsearch import functional
from lvsearch.inference.engine import meanfield
from lvsearch.models import (
    BernoulliComponents,
    DiagonalComponents,
    FiniteMixture,
    IndependentNormalMixture,
    KnownCovarianceComponents,
)

ONES, ZEROS, WEIGHT = 1.5, 0.8, 0.7
BITS = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1]], float)


def bernoulli(concentration=WEIGHT) -> FiniteMixture:
    return FiniteMixture(BernoulliComponents(ONES, ZEROS), concentration)


def enumerated(size: int) -> tuple[float, float]:
    """(log p(BITS | size), P(the first and the last row share their component | BITS)), over all labellings."""
    logs, together = [], []
    for labels in itertools.product(range(size), repeat=len(BITS)):
        counts = np.bincount(labels, minlength=size)
        log = gammaln(size * WEIGHT) - gammaln(size * WEIGHT + len(BITS))
        log += (gammaln(WEIGHT + counts) - gammaln(WEIGHT)).sum()
        for k in range(size):
            rows = BITS[np.array(labels) == k]
            ones = rows.sum(0)
            log += (betaln(ONES + ones, ZEROS + len(rows) - ones) - betaln(ONES, ZEROS)).sum()
        logs.append(log)
        together.append(labels[0] == labels[-1])
    log_evidence = float(logsumexp(logs))
    return log_evidence, float(np.exp(logsumexp(np.array(logs)[together]) - log_evidence))


@pytest.fixture(scope="module")
def two_groups() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(-1, 1, (11, 2)), rng.normal(1, 1, (8, 2))])


COUNTS = np.random.default_rng(1).poisson(1.0, (7, 9))
LDA = lv.models.LDA(2.0, 0.3)


# ── mean field ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "data", "size"),
    [
        pytest.param(LDA, COUNTS, 3, marks=pytest.mark.slow),
        (FiniteMixture(), np.random.default_rng(0).normal(size=(13, 2)), 2),
        pytest.param(lv.models.HDP(), COUNTS, 3, marks=pytest.mark.slow),
        pytest.param(lv.models.IBP(), np.random.default_rng(0).normal(size=(9, 3)), 2, marks=pytest.mark.slow),
        pytest.param(lv.models.HLDA(3), COUNTS, (2, 2), marks=pytest.mark.slow),
        pytest.param(lv.models.MixtureOfUnigrams(), COUNTS, 2, marks=pytest.mark.slow),
        pytest.param(lv.models.DPMixture(), np.random.default_rng(0).normal(size=(13, 2)), 3, marks=pytest.mark.slow),
        pytest.param(
            lv.models.CorrLDA(),
            ([np.random.default_rng(i).normal(size=(3, 2)) for i in range(6)], COUNTS[:6]),
            2,
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, lv.models.Model) else None,
)
def test_updates_climb_to_what_the_engine_calls_the_bound(model, data, size):
    batch, extents = functional.batch_of(model, data)
    vb = functional.mean_field(size, extents)
    state = jax.jit(vb.init)(model, jax.random.key(0), batch)

    def step(s, _):
        new = vb.update(model, s, batch)
        return new, vb.elbo(model, new, batch)

    end, bounds = jax.jit(lambda s: jax.lax.scan(step, s, None, length=12))(state)
    bounds = np.asarray(bounds)
    assert np.all(np.diff(bounds) >= -1e-5 * np.abs(bounds[1:])), bounds
    assert bounds[-1] > bounds[0]
    sizes = size if isinstance(size, tuple) else (size,)
    of_engine = meanfield.bound(model, (batch,), end.globals, (end.locals,), sizes, capacity=sizes)
    np.testing.assert_allclose(bounds[-1], of_engine, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "components",
    [
        pytest.param(lambda number: KnownCovarianceComponents(1.0, 0.0, number), id="pseudo_count"),
        pytest.param(lambda number: DiagonalComponents(rate=number), id="rate", marks=pytest.mark.slow),
    ],
)
def test_derivatives_agree_with_finite_differences(float64, two_groups, components):
    """Of the bound, and of a share of q, which knows the way there only through the point where it ends."""
    batch, extents = functional.batch_of(FiniteMixture(), two_groups)
    vb = functional.mean_field(2, extents)
    start = jax.jit(vb.init)(FiniteMixture(components(0.5)), jax.random.key(0), batch)

    def both(concentration, number, settled):
        model = FiniteMixture(components(number), concentration)
        end = vb.settle(model, start, batch, 400) if settled else vb.run(model, start, batch, 400)
        return vb.elbo(model, end, batch), end.globals.mean["weights"][0]

    slopes = jax.jit(jax.jacrev(both, argnums=(0, 1)), static_argnums=2)
    both = jax.jit(both, static_argnums=2)
    at, step = (1.0, 0.5), 1e-4
    found = [np.array(slopes(*at, settled)) for settled in (False, True)]  # (function, which)
    for which in range(2):
        ahead, behind = (
            both(*(value + sign * step * (which == i) for i, value in enumerate(at)), False) for sign in (1, -1)
        )
        expected = (np.array(ahead) - np.array(behind)) / (2 * step)
        for each in found:
            np.testing.assert_allclose(each[:, which], expected, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "components",
    [KnownCovarianceComponents(1.0), pytest.param(DiagonalComponents(), marks=pytest.mark.slow)],
    ids=["known", "diagonal"],
)
def test_many_fits_side_by_side_are_those_one_by_one(two_groups, components):
    model, vb = FiniteMixture(components), functional.mean_field(2, {"dim": 2})
    sets = jnp.stack([jnp.asarray(two_groups), jnp.asarray(two_groups[::-1] * 1.5)]).astype(jnp.float32)
    keys = jax.random.split(jax.random.key(0), 3)

    def bound(key, values):
        batch = functional.Batch(functional.Row(values, jnp.ones(values.shape, bool)), jnp.ones(len(values)))
        return vb.elbo(model, vb.run(model, vb.init(model, key, batch), batch, 15), batch)

    many = jax.jit(jax.vmap(jax.vmap(bound, (0, None)), (None, 0)))(keys, sets)
    one = jax.jit(bound)
    np.testing.assert_allclose(many, [[one(key, values) for key in keys] for values in sets], rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model",
    [pytest.param(FiniteMixture(), marks=pytest.mark.slow), IndependentNormalMixture(scale=4.0)],
    ids=["finite", "independent"],
)
def test_clear_clusters_of_many_rows_are_found(model):
    """Both components began as a blur of all rows where labels were random, and ended so: 475 nats below."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(-1, 0.3, (500, 1)), rng.normal(1, 0.3, (500, 1))]).astype(np.float32)
    batch = functional.Batch(functional.Row(values, np.ones(values.shape, bool)), np.ones(1000, np.float32))
    vb = functional.mean_field(2, {"dim": 1})
    state = vb.run(model, vb.init(model, jax.random.key(0), batch), batch, 20)
    shares = np.asarray(state.locals.mean["component"])
    assert abs(shares[:500].mean(0) - shares[500:].mean(0)).min() > 0.95


@pytest.mark.slow
def test_sizes_side_by_side_in_one_program(two_groups):
    model = FiniteMixture()
    batch, extents = functional.batch_of(model, two_groups)

    def bound(size, capacity):
        vb = functional.mean_field(size, extents, capacity=capacity)
        # a start that does not depend on the room: every row's first column says which half it leans to
        lean = jnp.where(jnp.arange(4 if capacity else size) < 1, 1.0, -1.0) * batch.units.value[:, :1]
        state = jax.jit(vb.init)(model, jax.random.key(0), batch)
        on = model.active((size,), (4,) if capacity else (size,))["component"]
        share = jnp.where(on, jax.nn.softmax(jnp.where(on, lean, -jnp.inf)), 0.0)
        local = state.locals._replace(natural={"component": lean}, mean={"component": share})
        begun = vb._globals(model, state.globals, batch, local)
        return vb.elbo(model, vb.run(model, functional.MeanFieldState(begun, local), batch, 10), batch)

    together = jax.jit(jax.vmap(lambda size: bound(size, 4)))(jnp.arange(1, 4))
    np.testing.assert_allclose(together, [bound(size, None) for size in (1, 2, 3)], rtol=1e-5)


@pytest.mark.thorough
def test_a_new_model_of_one_shape_is_not_traced_anew(two_groups):
    batch, extents = functional.batch_of(FiniteMixture(), two_groups)
    vb = functional.mean_field(2, extents)
    traces = []

    @jax.jit
    def bound(model, key):
        traces.append(key)
        return vb.elbo(model, vb.run(model, vb.init(model, key, batch), batch, 2), batch)

    values = [float(bound(FiniteMixture(None, c), jax.random.key(0))) for c in (0.5, 1.0, 2.0)]
    assert len(traces) == 1
    assert len(set(values)) == 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "data"), [pytest.param(LDA, COUNTS, marks=pytest.mark.slow), (bernoulli(), BITS)], ids=["LDA", "mixture"]
)
def test_no_nan_on_the_way(model, data):
    """With room for more components than there are, forwards and backwards."""
    batch, extents = functional.batch_of(model, data)
    vb = functional.mean_field(2, extents, capacity=3)
    state = jax.jit(vb.init)(model, jax.random.key(0), batch)
    with jax.debug_nans(True):
        slopes = jax.jit(jax.grad(lambda m: vb.elbo(m, vb.run(m, state, batch, 3), batch)))(model)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


# ── density, samples, evidence ──────────────────────────────────────────────────────────────────────────────────────


def test_density_is_that_of_the_conjugate_posterior():
    """One component: log p(BITS, θ) and the Jacobian of the logit, written by hand."""
    model = bernoulli()
    density = functional.log_density(model, 1, *functional.batch_of(model, BITS))
    position = jax.jit(density.init)(jax.random.key(3))
    theta = np.asarray(jax.jit(density.constrain)(position)["components"], float)[0]
    ones = BITS.sum(0)
    by_hand = (ONES + ones) * np.log(theta) + (ZEROS + len(BITS) - ones) * np.log1p(-theta) - betaln(ONES, ZEROS)
    np.testing.assert_allclose(jax.jit(density.log_density)(position), by_hand.sum(), rtol=1e-5)


@pytest.mark.thorough
def test_annealed_evidence_and_its_slope_in_the_data_are_those_of_all_partitions(float64):
    """Components of known covariance; both ends have one slope."""
    values, pseudo_count, step = np.array([[0.4], [-1.2], [2.1], [0.9], [-0.6]]), 0.5, 1e-5
    model = FiniteMixture(KnownCovarianceComponents(1.0, 0.0, pseudo_count), WEIGHT)
    batch, extents = functional.batch_of(model, values)
    way = np.random.default_rng(0).normal(size=values.shape)

    def ends(cells):
        moved = functional.Batch(functional.Row(cells, batch.units.observed), batch.weight)
        return functional.annealed_evidence(
            model, jax.random.key(1), moved, size=2, extents=extents, steps=40, islands=16, particles=64
        )

    found, slopes = jax.jit(lambda cells: jax.jvp(ends, (cells,), (jnp.asarray(way),)))(batch.units.value)
    marginal = partition_oracles.known_marginal(np.eye(1), np.zeros(1), pseudo_count)
    behind, exact, ahead = (
        partition_oracles.log_evidence(
            values + t * way, marginal, lambda labels: partition_oracles.log_finite_prior(labels, 2, WEIGHT)
        )
        for t in (-step, 0.0, step)
    )
    forward, backward, slope = (np.asarray(each) for each in (found.forward, found.backward, slopes.forward))
    error = np.hypot(forward.std(), backward.std()) / np.sqrt(16) + 0.01
    assert forward.mean() - 3 * error < exact < backward.mean() + 3 * error
    assert backward.mean() - forward.mean() < 0.3
    np.testing.assert_allclose(slope, slopes.backward, rtol=1e-12)
    error = slope.std(ddof=1) / np.sqrt(16)
    assert abs(slope.mean() - (ahead - behind) / (2 * step)) < 6 * error
    assert error < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_annealed_evidence_has_the_enumerated_number_between_its_ends(float64, size):
    model = bernoulli()
    batch, extents = functional.batch_of(model, BITS)
    found = jax.jit(
        lambda m, key: functional.annealed_evidence(
            m, key, batch, size=size, extents=extents, steps=60, islands=8, particles=32
        )
    )(model, jax.random.key(0))
    exact, _ = enumerated(size)
    forward, backward = np.asarray(found.forward), np.asarray(found.backward)
    error = np.hypot(forward.std(), backward.std()) / np.sqrt(8) + 0.01
    assert forward.mean() - 3 * error < exact < backward.mean() + 3 * error
    assert backward.mean() - forward.mean() < 0.3


def log_evidence_of_bits(numbers: jax.Array, size: int) -> jax.Array:
    """log p(BITS | size) over all labellings; `numbers` are the pseudo-counts of ones, and the concentration."""
    ones, weight = numbers
    places = np.eye(size)[list(itertools.product(range(size), repeat=len(BITS)))]  # (labelling, row, component)
    counts, of_ones = places.sum(1), np.einsum("lrk,rd->lkd", places, BITS)
    log = gammaln_of(size * weight) - gammaln_of(size * weight + len(BITS))
    log = log + (gammaln_of(weight + counts) - gammaln_of(weight)).sum(1)
    log = log + (betaln_of(ones + of_ones, ZEROS + counts[..., None] - of_ones) - betaln_of(ones, ZEROS)).sum((1, 2))
    return jax.nn.logsumexp(log)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_derivatives_of_annealed_evidence_are_those_of_the_enumerated_evidence(float64, size):
    """The slope and the matrix of second derivatives in two hyper-parameters, each within five of its errors."""
    batch, extents = functional.batch_of(bernoulli(), BITS)
    at, islands = jnp.array([ONES, WEIGHT]), 16

    def forward(numbers, key):
        model = FiniteMixture(BernoulliComponents(numbers[0], ZEROS), numbers[1])
        return functional.annealed_evidence(
            model, key, batch, size=size, extents=extents, steps=8, islands=islands, particles=256
        ).forward

    def exact(numbers):
        return log_evidence_of_bits(numbers, size)

    np.testing.assert_allclose(exact(at), enumerated(size)[0], rtol=1e-9)
    key = jax.random.key(0)
    slopes = jax.jit(jax.jacrev(forward))(at, key)
    curvatures = jax.jit(jax.jacfwd(jax.jacrev(forward)))(at, key)
    for found, right in ((slopes, jax.grad(exact)(at)), (curvatures, jax.hessian(exact)(at))):
        found = np.asarray(found)
        error = found.std(0, ddof=1) / np.sqrt(islands) + 1e-9
        assert np.all(np.abs(found.mean(0) - right) < 5 * error)
        assert np.all(error < 0.15)


@pytest.mark.slow
def test_both_ends_of_annealed_evidence_have_the_slope_of_the_evidence_in_the_data(float64):
    """One component with normal-gamma parameters: the rows are distributed as Student's t, whose slope is in closed
    form.
    """
    pseudo_count, shape, rate = 0.5, 2.0, 0.7
    values = np.random.default_rng(3).normal(size=(6, 1))
    model = FiniteMixture(DiagonalComponents(0.0, 1.0, pseudo_count, shape, rate))
    batch, extents = functional.batch_of(model, values)

    def ends(cells):
        moved = functional.Batch(functional.Row(cells, batch.units.observed), batch.weight)
        return functional.annealed_evidence(
            model, jax.random.key(1), moved, size=1, extents=extents, steps=8, islands=16, particles=256
        )

    slopes = jax.jit(jax.jacfwd(ends))(batch.units.value)
    np.testing.assert_allclose(slopes.forward, slopes.backward, rtol=1e-12)
    inverse = np.eye(6) - 1 / (pseudo_count + 6)
    exact = -(shape + 3) * inverse @ values / (rate + (values.T @ inverse @ values) / 2)
    found = np.asarray(slopes.forward)
    error = found.std(0, ddof=1) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(0) - exact) < 6 * error)
    assert np.all(error < 0.1)


@pytest.mark.thorough
def test_the_slope_of_the_evidence_is_the_mean_slope_of_the_log_joint(float64):
    """Fisher's identity at one component, whose draws are independent; the evidence is a ratio of beta functions."""
    batch, extents = functional.batch_of(bernoulli(), BITS)
    chain = functional.gibbs(1, extents)

    @jax.jit
    def slopes(key):
        first, rest = jax.random.split(key)

        def step(state, k):
            new = chain.step(bernoulli(), k, state, batch)

            def log_joint(ones):
                return chain.log_joint(FiniteMixture(BernoulliComponents(ones, ZEROS), WEIGHT), new, batch)

            return new, jax.grad(log_joint)(ONES)

        return jax.lax.scan(step, chain.init(bernoulli(), first, batch), jax.random.split(rest, 4000))[1]

    found, ones = np.asarray(slopes(jax.random.key(0))), BITS.sum(0)
    ahead, behind = (
        (betaln(a + ones, ZEROS + len(BITS) - ones) - betaln(a, ZEROS)).sum() for a in (ONES + 1e-5, ONES - 1e-5)
    )
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - (ahead - behind) / 2e-5) < 5 * error  # false alarm: 1 in a million


@pytest.mark.thorough
def test_gibbs_visits_labellings_as_often_as_their_probability():
    model = bernoulli()
    batch, extents = functional.batch_of(model, BITS)
    chain = functional.gibbs(2, extents)

    @jax.jit
    @jax.vmap
    def shares(key):
        key_first, key_rest = jax.random.split(key)

        def step(state, step_key):
            new = chain.step(model, step_key, state, batch)
            labels = new.locals[0]["component"].argmax(-1)
            return new, labels[0] == labels[-1]

        same = jax.lax.scan(step, chain.init(model, key_first, batch), jax.random.split(key_rest, 600))[1]
        return same[100:].mean()

    means = np.asarray(shares(jax.random.split(jax.random.key(0), 24)))
    assert abs(means.mean() - enumerated(2)[1]) < 4 * means.std() / np.sqrt(24)  # false alarm: 1 in 10,000


@pytest.mark.slow
def test_log_joint_of_a_state_is_the_models(two_groups):
    model = FiniteMixture()
    batch, extents = functional.batch_of(model, two_groups)
    chain = functional.gibbs(2, extents)
    state = jax.jit(chain.init)(model, jax.random.key(0), batch)
    on = model.active((2,), (2,))
    of_unit = jax.jit(lambda l, unit: model.log_unit(state.globals, l, unit, on))
    by_unit = [of_unit(*jax.tree.map(lambda leaf, r=row: leaf[r], (state.locals[0], batch.units))) for row in range(19)]
    expected = float(model.log_prior(state.globals, on)) + float(np.sum(by_unit))
    np.testing.assert_allclose(chain.log_joint(model, state, batch), expected, rtol=1e-5)


# ── fits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "data", "exact"),
    [pytest.param(LDA, COUNTS, False, marks=pytest.mark.slow), (bernoulli(), BITS, True)],
    ids=["LDA", "mixture"],
)
def test_a_fit_says_the_same_inside_and_outside_of_a_program(model, data, exact):
    fit = lv.fit(model, data, size=2)
    inside, (batch, _) = fit.functional(), functional.batch_of(model, data)
    assert inside.exact is exact
    described, per_unit, score = jax.jit(lambda f, b: (f.transform(b), f.log_likelihood(b), f.score(b)))(inside, batch)
    np.testing.assert_allclose(described, fit.transform(data), atol=2e-4)
    np.testing.assert_allclose(per_unit, fit.score_units(data), rtol=1e-5)
    np.testing.assert_allclose(score, fit.score(data), rtol=1e-5)


EXPORTED = """
import jax, jax.export, numpy as np
import lvsearch as lv
from lvsearch import functional
rng = np.random.default_rng(0)
data = [(lv.models.FiniteMixture(), rng.normal(size=(12, 2))), (lv.models.LDA(2.0, 0.3), rng.poisson(1.0, (7, 9)))]
for model, values in data:
    inside, (batch, _) = lv.fit(model, values, size=2).functional(), functional.batch_of(model, values)
    (units,) = jax.export.symbolic_shape("units")
    leaves, form = jax.tree.flatten(batch)
    shapes = [jax.ShapeDtypeStruct((units, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
    def outputs(*arrays):
        batch = jax.tree.unflatten(form, arrays)
        return inside.transform(batch), inside.log_likelihood(batch), inside.score(batch)
    exported = jax.export.export(jax.jit(outputs))(*shapes)
    for number in (3, 7):
        some = [leaf[:number] for leaf in leaves]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), exported.call(*some), outputs(*some))
"""


@pytest.mark.slow
def test_an_exported_fit_takes_any_number_of_units():
    """The number of units is a symbol, so that no branch may hang on it; checks of types in tests cannot read it."""
    done = subprocess.run([sys.executable, "-c", EXPORTED], env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["run", *(pytest.param(n, marks=pytest.mark.slow) for n in ("transform", "settle", "gibbs", "evidence"))]
)
def test_a_model_does_not_keep_the_precision_of_its_first_use(name):
    """In float32, outside of any program, and then in float64: `fit.score` failed for good after `transform`."""
    fit = lv.fit(bernoulli(), BITS, size=2)
    model, key = fit.model, jax.random.key(0)
    batch, extents = functional.batch_of(model, BITS)
    vb, chain = functional.mean_field(2, extents), functional.gibbs(2, extents)
    if name == "transform":
        fit.functional().transform(batch)
        fit.functional().log_likelihood(batch)
    elif name == "gibbs":
        jax.lax.scan(
            lambda s, k: (chain.step(model, k, s, batch), None), chain.init(model, key, batch), jax.random.split(key, 2)
        )
    elif name == "evidence":
        functional.annealed_evidence(model, key, batch, size=2, extents=extents, steps=2, particles=2)
    else:
        state = vb.init(model, key, batch)
        jax.lax.scan(lambda s, _: (vb.update(model, s, batch), None), state, None, length=2)
        getattr(vb, name)(model, state, batch, 2)
    assert np.isfinite(fit.score(BITS))
    with jax.enable_x64(True):
        assert fit.functional().score(functional.batch_of(model, BITS).batch).dtype == np.float64


@pytest.mark.slow  # the slope of the bound and the values of the score are in a shorter tier
def test_a_fits_score_has_a_slope_in_the_data(float64, two_groups):
    fit = lv.fit(FiniteMixture(), two_groups, size=2)
    inside, (batch, _) = fit.functional(), functional.batch_of(fit.model, two_groups)
    score = jax.jit(lambda values: inside.score(batch._replace(units=batch.units._replace(value=values))))
    slope = jax.jit(jax.grad(score))(batch.units.value)
    step = np.zeros(two_groups.shape)
    step[3, 1] = 1e-5
    there, back = (float(score(batch.units.value + sign * step)) for sign in (1, -1))
    assert float(slope[3, 1]) == pytest.approx((there - back) / 2e-5, rel=1e-5)


# ── what cannot be ──────────────────────────────────────────────────────────────────────────────────────────────────

TRACED_MODELS = [
    lambda x: lv.models.LDA(x, x),
    lambda x: lv.models.HDP(x, x, x),
    lambda x: lv.models.HLDA(3, x, x, x),
    lambda x: lv.models.CorrLDA(x),
    lambda x: lv.models.GMLDA(x),
    lambda x: lv.models.IBP(x, x, x),
    lambda x: lv.models.MixtureOfUnigrams(x, x),
    lambda x: lv.models.DPMixture(None, x),
    lambda x: lv.models.HDPMixture(None, x, x),
    lambda x: FiniteMixture(DiagonalComponents(x, x, x, x, x), x),
    lambda x: FiniteMixture(lv.models.FullCovarianceComponents(x, x, x, x, x)),
    lambda x: FiniteMixture(lv.models.KnownCovarianceComponents(x, x, x)),
    lambda x: FiniteMixture(lv.models.MultinomialComponents(x)),
    lambda x: FiniteMixture(BernoulliComponents(x, x)),
    lambda x: FiniteMixture(lv.models.CategoricalComponents((2, 3), x)),
    lambda x: FiniteMixture(lv.models.PoissonComponents(x, x)),
    lambda x: FiniteMixture(lv.models.NegativeBinomialComponents(x, x, x)),
    lambda x: lv.models.LatentBlockModel(lv.models.LevelComponents((1, 2), x), x, x),
    lambda x: lv.models.PoissonFactorization(x, x, x, x),
    lambda x: lv.models.HiddenMarkov(DiagonalComponents(), x, x, x),
]


@pytest.mark.parametrize("make", TRACED_MODELS, ids=range(len(TRACED_MODELS)))
def test_models_are_made_of_traced_numbers(make):
    made = jax.eval_shape(make, jnp.asarray(0.5))
    assert jax.tree.structure(made) == jax.tree.structure(make(0.5))


def test_concrete_numbers_are_still_checked():
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=r"positive|finite"):
            lv.models.LDA(2.0, wrong)


def test_errors_say_what_to_do():
    model = LDA
    batch, extents = functional.batch_of(model, COUNTS)
    with pytest.raises(ValueError, match="expected also the length of word: batch_of"):
        functional.mean_field(2).init(model, jax.random.key(0), batch)
    with pytest.raises(ValueError, match="expected 1 numbers: topics"):
        functional.mean_field((2, 2), extents).init(model, jax.random.key(0), batch)
    with pytest.raises(ValueError, match="without capacity="):
        jax.jit(lambda n: functional.mean_field(n, extents).places.size[0])(2)
    for size, capacity in ((0, None), (3, 2), ((1, 2), 4)):
        with pytest.raises(ValueError, match="expected positive sizes, each with its room"):
            functional.mean_field(size, extents, capacity=capacity)
    with pytest.raises(ValueError, match="local_sweeps=0"):
        functional.mean_field(2, extents, local_sweeps=0)


SHARDED = """
import jax, numpy as np
import lvsearch as lv
from lvsearch import functional
from jax.sharding import Mesh, PartitionSpec as P
assert jax.device_count() == 2
values = np.random.default_rng(0).normal(size=(12, 2))
fit = lv.fit(lv.models.FiniteMixture(), values, size=2)
inside, (batch, _) = fit.functional(), functional.batch_of(fit.model, values)
mesh = Mesh(np.array(jax.devices()), ("rows",))
for of in (functional.FittedFunctions.transform, functional.FittedFunctions.log_likelihood):
    split = jax.shard_map(of, mesh=mesh, in_specs=(P(), P("rows")), out_specs=P("rows"))
    np.testing.assert_allclose(jax.jit(split)(inside, batch), of(inside, batch), atol=1e-5)
placed = jax.device_put(batch, jax.NamedSharding(mesh, P("rows")))
vb = functional.mean_field(2, {"dim": 2})
start = vb.init(fit.model, jax.random.key(0), batch)
bound = jax.jit(lambda b: vb.elbo(fit.model, vb.run(fit.model, start, b, 10), b))
np.testing.assert_allclose(bound(placed), bound(batch), rtol=1e-5)
"""


@pytest.mark.slow
def test_a_fit_goes_over_two_devices():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
