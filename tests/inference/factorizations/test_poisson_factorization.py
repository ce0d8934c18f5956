"""Poisson factorisation: its evidence against enumeration, its kernel against the generic engine, and what people read
off a fit. The contract's behaviours are in `test_models.py`."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import poisson_oracles as oracles
import pytest
from compiled import Compiled
from scipy.special import gammaln
from scipy.stats import gamma, kstest, nbinom, poisson

import lvsearch as lv
from lvsearch.inference.engine.describing import describe_units, score_units
from lvsearch.inference.engine.estimate import Estimate, beliefs_of, capacity_of, pad_axes
from lvsearch.inference.engine.estimator import GenericEstimator, estimator, exact_bound
from lvsearch.inference.engine.meanfield import MeanField, cast, fit_locals
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.evidence import (
    PoissonFactorizationChain,
    backward,
    evidence_chain,
    flat_chain,
    forward,
    path_needs_fit,
    simulated_like,
    true_state,
)
from lvsearch.inference.evidence.poisson_factorization import FactorState
from lvsearch.inference.evidence.simulation import pack_simulated
from lvsearch.inference.factorizations.anchored import AnchoredFactorization, NearState, near_fit
from lvsearch.inference.factorizations.estimator import (
    PRUNED_SWEEPS,
    FactorizationEstimator,
    FactorizationState,
    priors_of,
)
from lvsearch.inference.factorizations.kernel import (
    FURTHEST,
    HIGHEST,
    LOWEST,
    CountMatrix,
    Fitted,
    Gammas,
    most_probable_noise,
    sweep,
)
from lvsearch.inference.factorizations.moves import FAINT, MatrixLines, log_cells, log_cells_change_of_noise
from lvsearch.models.families import GammaStatistics
from lvsearch.models.units import Row

A, C, MU = 0.9, 0.6, 0.7
MODEL = lv.models.PoissonFactorization(A, C, MU)
CELLS = np.array([[2, 0, 0], [0, 1, np.nan], [0, 0, 0], [np.nan, 0, 1], [1, 0, 0]])
"""Five counts, two cells missing, a row of zeros."""
R = 4.0
NOISY = lv.models.PoissonFactorization(A, C, MU, R)
INFERRED = lv.models.PoissonFactorization(A, C, MU, lv.models.GammaPrior(8.0, 2.0))
NOISY_CELLS = np.array([[2, 0], [0, 3], [np.nan, 1]])


def tiny() -> lv.Points:
    return lv.Points.from_array(CELLS, missing="nan")


@cache
def planted() -> tuple[lv.Points, np.ndarray]:
    """60 × 9 counts of three factors with three columns each, one cell missing, one row of zeros; and the factors."""
    rng, factors = np.random.default_rng(0), np.kron(np.eye(3), [12.0, 6.0, 3.0])
    counts = rng.poisson(rng.gamma(0.5, 2.0, (60, 3)) @ factors).astype(float)
    counts[0, 0], counts[1] = np.nan, 0.0
    names = [f"{kind}{number}" for kind in "abc" for number in range(3)]
    points = lv.Points.from_array(counts, missing="nan", columns=names, row_names=[f"row {n}" for n in range(60)])
    return points, factors


@cache
def fitted() -> lv.FittedModel:
    points, _ = planted()
    return lv.fit(lv.models.PoissonFactorization.scaled_to(points.values), points, size=3)


# ── the model ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_oracle_is_the_average_over_the_prior():
    for size in (1, 3):
        sampled, error = oracles.sampled_log_evidence(CELLS, size, A, C, MU, draws=100_000)
        assert abs(oracles.log_evidence(CELLS, size, A, C, MU) - sampled) < 4 * error


def test_the_oracle_of_noise_is_the_average_over_the_prior_and_has_the_limit_without():
    exact = oracles.noisy_log_evidence(NOISY_CELLS, 1, A, C, MU, R)
    sampled, error = oracles.sampled_log_evidence(NOISY_CELLS, 1, A, C, MU, draws=100_000, noise_shape=R)
    assert abs(exact - sampled) < 4 * error + 0.01
    limit = oracles.noisy_log_evidence(NOISY_CELLS, 1, A, C, MU, 1e6)
    assert limit == pytest.approx(oracles.log_evidence(NOISY_CELLS, 1, A, C, MU), abs=2e-3)
    assert abs(exact - limit) > 0.1


@pytest.mark.slow
def test_the_mean_of_a_cell_and_the_whole_of_a_row_do_not_move_with_the_size():
    model, shape = lv.models.PoissonFactorization(A, 2.0, 5.0), (400, 300)
    for size in (1, 6):
        units = Row(np.zeros(shape), np.ones(shape, bool))
        _, l, drawn = model.simulate(jax.random.key(size), (size,), units, {"dim": shape[1]})
        whole = -np.sum(l["intensities"].negative_value, axis=1)
        assert whole.mean() == pytest.approx(1.0, abs=4 / np.sqrt(A * len(whole)))
        assert whole.var() == pytest.approx(1 / A, rel=0.4)
        assert np.mean(drawn.value) == pytest.approx(5.0, rel=0.25)


def test_scales_are_read_off_the_observed_cells():
    scaled = lv.models.PoissonFactorization.scaled_to
    assert float(scaled(CELLS).mean_count) == pytest.approx(5 / 13)
    by_column = scaled(CELLS, by_column=True).mean_count
    np.testing.assert_allclose(by_column, (np.array([3, 1, 1]) + 5 / 13) / (np.array([4, 5, 4]) + 1))
    assert "a mean for each column" in scaled(CELLS, by_column=True).describe()
    for wrong in (np.zeros((2, 2)), np.full((2, 2), np.nan), [1.0, 2.0]):
        with pytest.raises(ValueError, match="expected a matrix"):
            scaled(wrong)


def test_what_is_no_count_is_refused():
    for wrong in (-1.0, 0.5):
        with pytest.raises(ValueError, match=f"got a cell with {wrong}"):
            lv.fit(MODEL, [[1.0, wrong], [2.0, 0.0]], size=2)
    with pytest.raises(ValueError, match="no plug-in form"):
        lv.search(MODEL, tiny(), evidence="plug-in", progress=False)
    with pytest.raises(ValueError, match="mean_count=0"):
        lv.models.PoissonFactorization(mean_count=0)


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", [pytest.param(MODEL, marks=pytest.mark.slow), NOISY], ids=["Poisson", "noisy"])
def test_densities_of_a_state_are_those_of_scipy(model: lv.models.PoissonFactorization):
    """log p(counts | state), log p(state, counts), and gains that add up along the path."""
    chain, rng = PoissonFactorizationChain.from_data(model, tiny().dataset(), 2, 4), np.random.default_rng(0)
    theta, beta = rng.gamma(1.0, 1.0, (8, 4, 3)), rng.gamma(1.0, 1.0, (3, 4, 3))
    with jax.enable_x64(True):
        state = FactorState(jnp.log(theta), jnp.log(beta))
        ratio, density, *gains = jax.jit(
            lambda c, s: (
                c.log_ratio(s),
                c.log_density(s),
                c.log_gain(s, *jnp.array([0.0, 0.3])),
                c.log_gain(s, *jnp.array([0.3, 0.65])),
                c.log_gain(s, *jnp.array([0.65, 1.0])),
            )
        )(chain, state)
    mean = np.einsum("nkp,vkp->pnv", theta[:5, :2], beta[:, :2])
    of_cells = poisson.logpmf(CELLS, mean) if model is MODEL else nbinom.logpmf(CELLS, R, R / (R + mean))
    of_data = np.nansum(of_cells, axis=(1, 2))
    np.testing.assert_allclose(ratio, of_data, rtol=1e-10)
    np.testing.assert_allclose(np.sum(gains, axis=0), of_data, rtol=1e-10)
    prior = gamma.logpdf(theta[:5, :2], A / 2, scale=1 / A).sum((0, 1)) + gamma.logpdf(
        beta[:, :2], C, scale=MU / C
    ).sum((0, 1))
    np.testing.assert_allclose(density, of_data + prior, rtol=1e-10)


def path_weights(
    counts: np.ndarray, theta: np.ndarray, beta: np.ndarray, t: float, noise_shape: float | None
) -> np.ndarray:
    """log π_t over the prior of each draw, up to a constant, by the definition. theta: (draw, row, factor)."""
    parts = theta[:, :, None, :] * np.swapaxes(beta, 1, 2)[:, None]  # draw, row, column, factor
    x = np.nan_to_num(counts)
    whole, share = np.floor(t * x), t * x - np.floor(t * x)
    some = (parts ** share[..., None]).sum(-1) * float(beta.shape[1]) ** (share - 1)
    expected = -t * parts.sum(-1)
    if noise_shape is not None:
        expected = -(noise_shape + t * x) * np.log(noise_shape + t * parts.sum(-1))
    cells = whole * np.log(parts.sum(-1)) + np.log(some) + expected
    return np.where(np.isnan(counts), 0.0, cells).sum((1, 2))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "t"),
    [(MODEL, 0.45), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((MODEL, 1.0), (NOISY, 0.45)))],
)
def test_a_sweep_leaves_every_place_of_the_path_as_it_is(model: lv.models.PoissonFactorization, t: float):
    """Draws of π_t, resampled from the prior, before and after: the same means of what no relabelling changes."""
    counts, n = np.array([[3.0, 0.0], [1.0, np.nan], [0.0, 1.0]]), 10_000
    rng = np.random.default_rng(0)
    theta, beta = rng.gamma(A / 2, 1 / A, (30 * n, 3, 2)), rng.gamma(C, MU / C, (30 * n, 2, 2))
    log = path_weights(counts, theta, beta, t, None if model is MODEL else R)
    chosen = rng.choice(len(log), n, p=np.exp(log - log.max()) / np.exp(log - log.max()).sum())
    data = lv.Points.from_array(counts, missing="nan").dataset()
    chain = PoissonFactorizationChain.from_data(model, data, 2, 3)
    rows = np.ones((chain.exposed.shape[0], 3, n))  # padding, of rows and of factors, may hold anything
    rows[:3, :2], columns = np.moveaxis(theta[chosen], 0, -1), np.ones((2, 3, n))
    columns[:, :2] = np.moveaxis(beta[chosen].transpose(0, 2, 1), 0, -1)
    with jax.enable_x64(True):
        begun = FactorState(jnp.log(rows), jnp.log(columns))
        after = one_sweep(chain, jax.random.key(1), begun, jnp.asarray(t))
    for each in seen_of(begun), seen_of(after):
        assert np.all(np.isfinite(each))
    difference = seen_of(after) - seen_of(begun)
    z = difference.mean(1) / (difference.std(1) / np.sqrt(n))
    assert np.abs(z).max() < 4.5
    assert np.all(difference.std(1) > 0.1)


one_sweep = jax.jit(lambda chain, key, state, t: chain.step(key, state, t, backward=False))


def seen_of(state: FactorState) -> np.ndarray:
    """Functions (which, draw) that do not change under relabelling: logs of the cells' means, of the rows' and the
    columns' totals, and how even the factors are."""
    theta, beta = np.exp(state.log_intensities[:3, :2]), np.exp(state.log_factors[:, :2])
    means = np.einsum("nkp,vkp->nvp", theta, beta).reshape(6, -1)
    even = np.abs(np.log(beta.sum(0)[0]) - np.log(beta.sum(0)[1]))
    return np.stack([*np.log(means), *np.log(theta.sum(1)), *np.log(beta.sum(1)), even])


def exact_of(model: lv.models.PoissonFactorization, size: int) -> tuple[float, float]:
    """log p(`NOISY_CELLS` | size) and its standard error: all allocations, quadrature, or draws of the prior; nats."""
    if model is MODEL:
        return oracles.log_evidence(NOISY_CELLS, size, A, C, MU), 0.0
    if model is NOISY:
        return oracles.noisy_log_evidence(NOISY_CELLS, size, A, C, MU, R), 0.01
    return oracles.sampled_log_evidence(
        NOISY_CELLS, size, A, C, MU, draws=400_000, noise_shape=lambda rng, n: rng.gamma(8.0, 0.5, n)
    )


@pytest.mark.slow
def test_annealed_evidence_is_that_of_all_allocations():
    data, temperatures = tiny().dataset(), np.linspace(0, 1, 65)[1:]
    for size in (1, 2, 3):
        exact = oracles.log_evidence(CELLS, size, A, C, MU)
        chain = PoissonFactorizationChain.from_data(MODEL, data, size, 4)
        there = forward(chain, jax.random.key(1), temperatures, islands=32, particles=32)
        back = backward(chain, jax.random.key(2), there.state, temperatures, islands=32)
        assert there.moved
        for ends in (there.log_evidence, back.log_evidence):
            assert abs(ends.mean() - exact) < 4 * ends.std() / np.sqrt(32) + ends.var()
            assert ends.std() < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("path", ["from the prior", "from about a fit"])
@pytest.mark.parametrize("model", [MODEL, NOISY, INFERRED], ids=["Poisson", "noisy", "inferred"])
def test_annealed_evidence_of_noisy_counts_is_that_of_the_oracle(model: lv.models.PoissonFactorization, path: str):
    data, temperatures = lv.Points.from_array(NOISY_CELLS, missing="nan").dataset(), np.linspace(0, 1, 65)[1:]
    exact, known = exact_of(model, 2)
    chain = (
        PoissonFactorizationChain.from_data(model, data, 2, 4)
        if path == "from the prior"
        else near(model, NOISY_CELLS, 2)
    )
    there = forward(chain, jax.random.key(1), temperatures, islands=32, particles=64)
    back = backward(chain, jax.random.key(2), there.state, temperatures, islands=32)
    assert there.moved
    assert there.labelled == (path == "from about a fit")
    for ends in (there.log_evidence, back.log_evidence):
        assert abs(ends.mean() - exact) < 4 * np.hypot(ends.std() / np.sqrt(32), known) + ends.var()
        assert ends.std() < 0.3


@pytest.mark.slow
def test_the_generic_path_has_the_same_evidence():
    chain, temperatures = flat_chain(MODEL, tiny().dataset(), (2,), (4,)), np.linspace(0, 1, 129)[1:]
    there = forward(chain, jax.random.key(1), temperatures, islands=8, particles=16)
    assert there.log_evidence.mean() == pytest.approx(oracles.log_evidence(CELLS, 2, A, C, MU), abs=0.2)


@pytest.mark.slow
def test_true_latents_begin_backward_paths_above_forward_ones():
    """Where nothing is assumed, both ends hold: 40 × 8 cells of counts, drawn from the model."""
    simulated = simulated_like(
        lv.Points.from_array(np.zeros((40, 8))).dataset(),
        lv.models.PoissonFactorization(mean_count=4.0),
        (3,),
        jax.random.key(0),
    )
    chain = PoissonFactorizationChain.from_data(lv.models.PoissonFactorization(mean_count=4.0), simulated.data, 3, 4)
    temperatures = np.linspace(0, 1, 201)[1:] ** 2
    with jax.enable_x64(True):
        truth = true_state(chain, simulated, 32)
    np.testing.assert_allclose(truth.log_factors[:, :3, 5], simulated.globals["factors"].log_value.T)
    there = forward(chain, jax.random.key(1), temperatures, islands=2, particles=16)
    back = backward(chain, jax.random.key(2), truth, temperatures, islands=2)
    assert there.log_evidence.max() < back.log_evidence.min() + 3
    assert back.log_evidence.mean() - there.log_evidence.mean() < 15


# ── from about a fit ────────────────────────────────────────────────────────────────────────────────────────────────


def near(model: lv.models.PoissonFactorization, cells: np.ndarray, size: int) -> AnchoredFactorization:
    data = lv.Points.from_array(cells, missing="nan").dataset()
    return near_fit(model, data, size, estimator(model, data).fit((size,), jax.random.key(0), None))


@cache
def about_three() -> AnchoredFactorization:
    """About a fit of three factors."""
    return near(INFERRED, CELLS, 3)


@pytest.mark.thorough
def test_densities_near_a_fit_are_those_of_scipy():
    """log p(state, counts) and log q, of counts whose noise has a shape that is inferred."""
    chain, rng = about_three(), np.random.default_rng(0)
    theta, beta = (rng.gamma(1.0, 1.0, (3, lines, chain.capacity)) for lines in (5, 3))
    r = rng.gamma(8.0, 0.5, 3)
    with jax.enable_x64(True):
        state = NearState(*map(jnp.log, (theta, beta, r)))
        density, ratio = jax.jit(lambda c, s: (c.log_density(s), c.log_ratio(s)))(chain, state)
    mean = np.einsum("pnk,pvk->pnv", theta[..., :3], beta[..., :3])
    wide = r[:, None, None]
    expected = np.nansum(nbinom.logpmf(CELLS, wide, wide / (wide + mean)), axis=(1, 2))
    expected += gamma.logpdf(theta[..., :3], A / 3, scale=1 / A).sum((1, 2)) + gamma.logpdf(r, 8.0, scale=0.5)
    expected += gamma.logpdf(beta[..., :3], C, scale=MU / C).sum((1, 2))
    np.testing.assert_allclose(density, expected, rtol=1e-9)
    q = chain.start
    about = gamma.logpdf(theta, q.intensities, scale=1 / q.intensity_rates)[..., :3].sum((1, 2))
    about += gamma.logpdf(beta, q.factors, scale=1 / q.factor_rates)[..., :3].sum((1, 2))
    about += gamma.logpdf(r, q.noise, scale=1 / q.noise_rate)
    np.testing.assert_allclose(density - ratio, about, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("planted_bug", [False, True])
def test_a_sweep_near_a_fit_leaves_every_place_of_the_path_as_it_is(planted_bug: bool):
    """Draws of π_t, resampled from q, before and after: the same means; not so where a rate is wrong."""
    chain, n, t = near(INFERRED, NOISY_CELLS, 2), 4_000, 0.6
    with jax.enable_x64(True):
        drawn = jax.jit(lambda c, key: c.init(key, 8 * n))(chain, jax.random.key(0))
        log = t * np.asarray(jax.jit(lambda c, s: c.log_ratio(s))(chain, drawn))
        weight = np.exp(log - log.max())
        chosen = np.random.default_rng(0).choice(len(log), n, p=weight / weight.sum())
        begun = chain.take(drawn, jnp.asarray(chosen))
        used = (
            chain
            if not planted_bug
            else eqx.tree_at(lambda c: c.prior.factor_rates, chain, chain.prior.factor_rates * 2)
        )
        after = one_sweep(used, jax.random.key(1), begun, jnp.asarray(t))
    difference = seen_near(after) - seen_near(begun)
    z = np.abs(difference.mean(1) / (difference.std(1) / np.sqrt(n)))
    assert (z.max() > 6) if planted_bug else (z.max() < 4.5)
    assert np.all(difference.std(1) > 0.03)


def seen_near(state: NearState) -> np.ndarray:
    """(which, particle): logs of the cells' means, of each factor's columns in all, and of r."""
    theta, beta = np.exp(state.log_intensities[..., :2]), np.exp(state.log_factors[..., :2])
    means = np.einsum("pnk,pvk->nvp", theta, beta).reshape(6, -1)
    return np.stack([*np.log(means), *np.log(beta.sum(1)).T, np.asarray(state.log_noise)])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_entries_too_small_for_counts_to_tell_are_drawn_from_the_tail(count: int):
    """One entry a line, one cell: value | count ~ Gamma(shape + count, rate + 1), left as it is; and at shapes of a
    tenth what begins at one far place of the tail is spread over all of it by one move."""
    n, shape, rate, limit = 20_000, 0.1, 1.0, np.log(FAINT)
    with jax.enable_x64(True):
        lines = MatrixLines(
            jnp.ones(1, bool),
            jnp.full((n, 1), float(count)),
            jnp.ones((n, 1)),
            None,
            jnp.ones((1, 1, 1)),
            jnp.asarray(shape),
            jnp.asarray(rate),
            jnp.ones(()),
        )

        @jax.jit
        def move(lines: MatrixLines, key: jax.Array, here: jax.Array) -> jax.Array:
            redrawn, accept = jax.random.uniform(key, (2, 1, n, 1))
            at = lines.position(here)
            return lines._accept(accept[..., 0], at, *lines._redraw_faint(redrawn, lines._faint_limit(), at)).log_value

        value = gamma.rvs(shape + count, scale=1 / (rate + 1), size=(1, n, 1), random_state=np.random.default_rng(0))
        here = jnp.log(jnp.asarray(value))
        for number in range(5):
            here = move(lines, jax.random.key(number), here)
        assert np.all((here < limit) == (np.log(value) < limit))
        assert kstest(np.exp(here).ravel(), gamma(shape + count, scale=1 / (rate + 1)).cdf).pvalue > 1e-3
        far = move(lines, jax.random.key(9), jnp.full_like(here, -80.0))
    if not count:
        below = gamma(shape, scale=1 / (rate + 1)).cdf
        assert kstest(np.exp(far).ravel(), lambda value: below(value) / below(FAINT)).pvalue > 1e-3


@pytest.mark.thorough
def test_labels_are_scored_by_where_they_go():
    """What q says of a state under new labels is what the scores said before; three factors tell an order from its
    inverse."""
    chain, places = Compiled(about_three()), about_three().capacity
    order = jnp.asarray([[1, 2, 0, *range(3, places)]])
    with jax.enable_x64(True):
        state = jax.jit(lambda c, key: c.init(key, 1))(about_three(), jax.random.key(0))
        scores, after = chain.label_scores(state)[0], chain.label_scores(chain.relabel(state, order))[0]
    was = np.argsort(order[0])  # factor k is what factor was[k] was
    np.testing.assert_allclose(np.diag(after), np.asarray(scores)[np.arange(places), was], rtol=1e-6)
    assert not np.allclose(np.diag(after)[:3], np.diag(scores)[:3])


@pytest.mark.thorough
def test_many_counts_are_annealed_from_a_fit():
    few, many = (lv.Points.from_array(CELLS * times, missing="nan").dataset() for times in (1, 1e5))
    fit = estimator(INFERRED, few).fit((3,), jax.random.key(0), None)
    assert not path_needs_fit(INFERRED, few)
    assert path_needs_fit(INFERRED, many)
    assert isinstance(evidence_chain(INFERRED, many, (3,), fit), AnchoredFactorization)
    assert isinstance(evidence_chain(INFERRED, few, (3,), fit), PoissonFactorizationChain)


@pytest.mark.slow
def test_true_latents_of_many_counts_begin_backward_paths_above_forward_ones():
    """Whatever the labelling in which they were drawn, and with the shape of the noise drawn too."""
    model = lv.models.PoissonFactorization(mean_count=60.0, noise_shape=lv.models.GammaPrior(4.0, 0.4))
    blank = lv.Points.from_array(np.zeros((40, 10))).dataset()
    simulated = simulated_like(blank, model, (3,), jax.random.key(3))
    data = pack_simulated(simulated.data)
    chain = near_fit(model, data, 3, estimator(model, data).fit((3,), jax.random.key(0), None))
    temperatures = np.linspace(0, 1, 201)[1:]
    with jax.enable_x64(True):
        truth = true_state(chain, simulated, 16)
    mean = np.exp(truth.log_intensities[3]) @ np.exp(truth.log_factors[3]).T  # places without a factor hold 1 in both
    drawn = -simulated.locals["intensities"].negative_value @ -simulated.globals["factors"].negative_value
    np.testing.assert_allclose(mean - (chain.capacity - 3), drawn[: len(mean)], rtol=1e-6)
    there = forward(chain, jax.random.key(1), temperatures, islands=2, particles=8)
    back = backward(chain, jax.random.key(2), truth, temperatures, islands=2)
    assert there.log_evidence.max() < back.log_evidence.min() + 3
    assert back.log_evidence.mean() - there.log_evidence.mean() < 40


def test_cells_change_with_the_noise_as_their_log_probabilities_do():
    """In float32 too, where a small change of the shape changes large sums little."""
    rng = np.random.default_rng(0)
    x, mean = rng.poisson(3_000.0, (50, 20)).astype(float), rng.gamma(3.0, 1_000.0, (2, 50, 20))
    seen = (rng.random(x.shape) < 0.9).astype(float)
    before = np.array([20.0, 5.0])[:, None, None]
    after = before * np.array([1.0001, 2.0])[:, None, None]
    with jax.enable_x64(True):
        # `log_cells` leaves out x log r, which no mean decides
        expected = log_cells(*map(jnp.asarray, (x, seen, after, mean))) - log_cells(
            *map(jnp.asarray, (x, seen, before, mean))
        )
        change = log_cells_change_of_noise(*map(jnp.asarray, (x, seen, before, after, mean)))
        np.testing.assert_allclose(change, expected, atol=1e-8)
        single = (jnp.asarray(each, jnp.float32) for each in (x, seen, before, after, mean))
        np.testing.assert_allclose(log_cells_change_of_noise(*single), expected, rtol=5e-3, atol=1e-4)


# ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_the_kernel_is_the_generic_engine():
    """The same bound at the same factors, every row's at its optimum."""
    data, size = tiny().dataset(), (2,)
    estimate = estimator(MODEL, data).fit(size, jax.random.key(0), None)
    assert estimate.log_lower < oracles.log_evidence(CELLS, 2, A, C, MU)
    capacity = capacity_of(size)
    beliefs = beliefs_of(MODEL, pad_axes(MODEL, estimate.natural, size, capacity), size, capacity=capacity)
    locals_ = tuple(
        fit_locals(
            MODEL,
            beliefs.mean,
            batch,
            blank_locals(MODEL, batch, size, capacity=capacity),
            size,
            capacity=capacity,
            sweeps=300,
        )
        for batch in cast(data, np.float32).batches
    )
    generic = exact_bound(MODEL, data, estimate.natural, MeanField(beliefs, locals_, (), True), size, capacity)
    assert estimate.log_lower == pytest.approx(generic, abs=1e-4)


@cache
def ascent_of_planted(n_factors: int) -> tuple[FactorizationEstimator, FactorizationState]:
    """The estimator of the planted counts, with noise, and the end of one short ascent with so many factors."""
    fitting = FactorizationEstimator(lv.models.PoissonFactorization(noise_shape=5.0), planted()[0].dataset())
    begin = fitting._random_factors(n_factors, np.random.default_rng(0))
    return fitting, fitting._short_ascent(priors_of(fitting.model, n_factors), fitting.counts, begin)


def test_several_sweeps_are_one_sweep_several_times():
    fitting, ascent = ascent_of_planted(4)
    priors, one_by_one = priors_of(fitting.model, 4), ascent.fitted
    for _ in range(5):
        one_by_one = sweep(ascent.counts, priors, one_by_one)
    for found, expected in zip(
        jax.tree.leaves(sweep(ascent.counts, priors, ascent.fitted, 5)), jax.tree.leaves(one_by_one), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_factor_that_is_left_out_is_the_one_that_is_missed_least():
    """Though not every factor is tried again after the first was left out."""
    fitting, ascent = ascent_of_planted(6)
    kept = ascent
    for size in (5, 4, 3):
        priors = priors_of(fitting.model, size)
        without = [kept.without_factor(k).after_sweeps(priors, PRUNED_SWEEPS) for k in range(size + 1)]
        best = max(without, key=lambda each, priors=priors: fitting._value(priors, each))
        kept = fitting._refresh(priors, fitting._run_sweeps(priors, best, fitting.settings.pruning_sweeps))
    found = fitting._drop_factors(ascent, 3)
    priors = priors_of(fitting.model, 3)
    assert fitting._value(priors, found) == pytest.approx(fitting._value(priors, kept), abs=1e-6)


@pytest.mark.slow
def test_the_kernel_ends_no_lower_than_the_generic_engine():
    points, _ = planted()
    model, data = fitted().model, points.dataset()
    assert fitted().estimate.log_lower > GenericEstimator(model, data).fit((3,), jax.random.key(0), None).log_lower - 1


def test_scores_of_one_factor_are_closed_forms():
    """A row's intensity integrated out: a negative multinomial; the lower bound below it."""
    data = tiny().dataset()
    leaves: list[Any] = [np.array([[3.0, 1.0, 0.5]], np.float32), np.full((1, 3), 2.0, np.float32)]
    natural = {"factors": GammaStatistics(*leaves)}
    estimate = Estimate(MODEL, (1,), natural, -np.inf, np.inf, 0)
    beta = (leaves[0][0] + 1) / 2
    seen, x = ~np.isnan(CELLS), np.nan_to_num(CELLS)
    total, exposure = x.sum(1), A + seen @ beta
    exact = A * np.log(A) - gammaln(A) + gammaln(A + total) - (A + total) * np.log(exposure)
    exact += (x * np.log(beta) - gammaln(x + 1)).sum(1)
    found = score_units(MODEL, estimate, data, capacity=(8,), samples=4000, key=jax.random.key(0))
    np.testing.assert_allclose(found.per_unit, exact, atol=0.05)
    assert abs(found.per_unit.sum() - exact.sum()) < 4 * found.monte_carlo_error + 1e-9
    assert np.all(describe_units(MODEL, estimate, data).log_lower <= exact + 1e-6)
    one, two = (
        score_units(MODEL, estimate, data, capacity=(8,), samples=samples, key=jax.random.key(0)) for samples in (1, 2)
    )  # an odd number is raised, since half of the draws come from either proposal
    np.testing.assert_array_equal(one.per_unit, two.per_unit)


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_factors_are_those_planted():
    (points, factors), best = planted(), fitted()
    top = best.top_columns(3)
    assert sorted(sorted(row) for row in top["columns"]) == [[f"{kind}{n}" for n in range(3)] for kind in "abc"]
    assert top["prevalence"].sum() == pytest.approx(1.0)
    signatures = best.signatures()
    np.testing.assert_allclose(signatures.sum(axis=1), 1.0)
    own = signatures.loc[[top.index[list(map(sorted, top["columns"])).index([f"a{n}" for n in range(3)])]]]
    np.testing.assert_allclose(own.to_numpy()[0, :3], factors[0, :3] / 21, atol=0.03)
    exposures, expected = best.exposures(), best.expected_counts()
    missing = np.where(points.observed, 0.0, expected.to_numpy()).sum(axis=1)
    np.testing.assert_allclose(exposures.sum(axis=1), points.filled.sum(axis=1) + missing, rtol=1e-6)
    np.testing.assert_allclose(expected.to_numpy().sum(), np.nansum(points.values), rtol=0.05)
    assert list(expected.columns) == list(points.columns)
    assert expected.index[0] == "row 0"
    assert expected.iloc[1].sum() < 2  # the row of zeros; the others have 21 on average
    assert best.transform(points).shape == (60, 3)
    with pytest.raises(ValueError, match="n_columns=0"):
        best.top_columns(0)


def test_of_one_factor_every_count_is_its_own():
    """Exposures of rows that hold 5, 0 and 3 counts were 4.40, .73 and 2.94: the mean of another row like each."""
    fit = lv.fit(lv.models.PoissonFactorization(), np.array([[0, 4, 1], [0, 0, 0], [2, 0, 1.0]]), size=1)
    np.testing.assert_allclose(fit.exposures()[fit.factors().index[0]], [5.0, 0.0, 3.0], atol=1e-9)


def test_factors_are_matched_and_compared_by_cells_and_by_columns():
    (points, factors), best = planted(), fitted()
    references = pd.DataFrame(factors.T, index=list(points.columns), columns=["one", "two", "three"])
    found = best.match(references.iloc[::-1])
    assert sorted(found.reference) == ["one", "three", "two"]
    assert found.cosine.min() > 0.99
    members = best.members()
    np.testing.assert_allclose(members.shares.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(members.weight.sum(), np.nansum(points.values))
    np.testing.assert_allclose(members.amount, best.exposures().sum(axis=0), rtol=0.02)
    affinity = best.affinity(best)
    np.testing.assert_allclose(np.diag(affinity), 1.0, rtol=1e-6)
    assert affinity[~np.eye(3, dtype=bool)].max() < 0.2


@pytest.mark.thorough
def test_the_shape_of_the_noise_is_found():
    """Of counts that vary by m²/4; without it the same fit says nothing of it, and is much worse."""
    rng, factors = np.random.default_rng(1), np.kron(np.eye(2), np.linspace(40.0, 10.0, 20))
    mean = rng.gamma(2.0, 0.5, (80, 2)) @ factors
    counts = rng.poisson(mean * rng.gamma(R, 1 / R, mean.shape)).astype(float)
    noisy = lv.models.PoissonFactorization.scaled_to(counts, noise_shape=lv.models.GammaPrior(1.0, 0.1))
    data = lv.Points.from_array(counts).dataset()
    fit = estimator(noisy, data).fit((2,), jax.random.key(0), None)
    assert float(fit.model.noise_shape) == pytest.approx(R, rel=0.25)
    given = estimator(fit.model, data).fit((2,), jax.random.key(0), None)
    assert fit.log_lower == pytest.approx(given.log_lower, abs=8)  # what not knowing r costs
    assert fit.log_lower < given.log_lower
    plain = lv.models.PoissonFactorization.scaled_to(counts)
    assert fit.log_lower > estimator(plain, data).fit((2,), jax.random.key(0), None).log_lower + 100
    assert "r ~ Gamma(1, rate 0.1)" in noisy.describe()
    with pytest.raises(ValueError, match="with_noise_shape"):
        noisy.given_noise_shape()


@pytest.mark.parametrize(("start", "nearest"), [(1e6, HIGHEST), (1e-6, LOWEST)])
def test_noise_that_begins_outside_the_range_is_moved_into_it(start: float, nearest: float):
    """The prior mean of r, where it begins, may be any number."""
    counts = CountMatrix.of_cells(np.array([[1.0, 4.0]]), np.ones((1, 2)), start)
    fitted = Fitted(Gammas(np.ones((1, 1)), np.ones((1, 1))), Gammas(np.ones((1, 2)), np.ones((1, 2))))
    found = most_probable_noise(counts, lv.models.GammaPrior(1.0, 1 / start), fitted)
    assert abs(np.log(found) - nearest) <= FURTHEST


def test_held_out_cells_are_scored_from_the_others_of_their_row():
    (points, _), best = planted(), fitted()
    hidden = np.zeros(points.shape, bool)
    hidden[5:15, 1] = True
    known = lv.Points.from_array(points.values, points.observed & ~hidden, columns=points.columns)
    asked = lv.Points.from_array(np.nan_to_num(points.values), hidden, columns=points.columns)
    scores = best.score_cells(known, asked)
    assert np.array_equal(np.isnan(scores), ~hidden)
    plain = poisson.logpmf(points.values[hidden], np.nanmean(points.values[:, 1]))
    assert scores[hidden].sum() > plain.sum() + 10
    with pytest.raises(ValueError, match="expected the same rows"):
        best.score_cells(known, asked.part(np.arange(3), "three"))


def test_held_out_cells_that_are_known_or_of_other_rows_are_refused():
    """Scores of cells that the row was read with are no predictions, and nor are scores of another row's cells."""
    points, _ = planted()
    frame = points.to_frame().iloc[:4].set_axis(list("abcd"))
    hidden = np.zeros(frame.shape, bool)
    hidden[:, 0] = points.observed[:4, 0]
    known, asked = (lv.Points.from_frame(frame.mask(mask), missing="nan") for mask in (hidden, ~hidden))
    assert np.isfinite(fitted().score_cells(known, asked)[hidden]).all()
    with pytest.raises(ValueError, match=f"{points.observed[:4].sum()} held-out cells that are known in data too"):
        fitted().score_cells(*[lv.Points.from_frame(frame, missing="nan")] * 2)
    with pytest.raises(ValueError, match="held-out row 0 is called 'd', expected 'a'"):
        fitted().score_cells(known, lv.Points.from_frame(frame.mask(~hidden).iloc[::-1], missing="nan"))


@pytest.mark.slow  # fits of three are in a shorter tier, and searches that are stored
def test_a_search_by_bounds_finds_three_and_is_kept(tmp_path):
    points, _ = planted()
    result = lv.search(fitted().model, points, max_size=5, evidence="bound", progress=False)
    assert result.best_size == (3,)
    result.save(tmp_path / "run")
    again = lv.load(tmp_path / "run")
    np.testing.assert_array_equal(again.best.factors(), result.best.factors())
    assert again.best.model.describe() == fitted().model.describe()


@pytest.mark.slow
def test_the_annealed_search_finds_three():
    points, _ = planted()
    result = lv.search(fitted().model, points, max_size=6, progress=False)
    assert result.best_size == (3,)
    assert result.posterior().set_index("size").loc[3, "probability"] > 0.9
    compared = result.compare_held_out(planted()[0].part(np.arange(20), "the first rows"))
    assert "importance sampling" in compared["estimator"].iloc[0]


@pytest.mark.slow
def test_samples_have_the_posterior_means_of_importance_sampling():
    """Total expected count of the tiny matrix, which no relabelling changes."""
    trace = lv.sample(MODEL, tiny(), size=2, draws=4000, chains=4, units=True, progress=False)
    factors, intensities = trace["factors"], trace["intensities"]
    whole = (intensities @ factors).sum((-1, -2)).ravel()
    rng, n = np.random.default_rng(0), 1_000_000
    theta, beta = rng.gamma(A / 2, 1 / A, (n, 5, 2)), rng.gamma(C, MU / C, (n, 2, 3))
    mean = theta @ beta
    x = np.nan_to_num(CELLS)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(np.isnan(CELLS), 0.0, np.where(x > 0, x * np.log(mean), 0.0) - mean).sum((1, 2))
    weight = np.exp(log - log.max())
    expected = float(weight @ mean.sum((1, 2)) / weight.sum())
    assert whole.mean() == pytest.approx(expected, rel=0.05)
