"""NumPyro models of one's own under the search: their evidence against oracles, what is refused, what may fail."""

import dataclasses
import functools
import importlib.util
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro_cases import COUNTS, KNOWN, VALUES, labelled_counts, normal_means, summed_counts
from scipy.stats import multivariate_normal

import lvsearch as lv
from lvsearch.bridges.numpyro_models import NumpyroEvaluator
from lvsearch.bridges.numpyro_program import chain_of
from lvsearch.inference.annealing.density import tune_step_lengths
from lvsearch.inference.evidence import anneal, effort
from lvsearch.searching.evaluators import brackets_of

needs_funsor = pytest.mark.skipif(importlib.util.find_spec("funsor") is None, reason='needs ".[enumerate]"')
CASES = [pytest.param(name, marks=needs_funsor if name == "labelled_counts" else ()) for name in KNOWN]
FAST = ("normal_means",)


@functools.cache
def evaluator(name: str) -> NumpyroEvaluator:
    """One for all tests: it keeps its programs."""
    return lv.from_numpyro(KNOWN[name].model).evaluator(KNOWN[name].data, 0)


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*FAST, *[pytest.param(c, marks=pytest.mark.slow) for c in KNOWN if c not in FAST]])
def test_evidence_is_that_of_the_oracle(name):
    if name == "labelled_counts":
        pytest.importorskip("funsor")
    found = evaluator(name)
    for trial in (0, 1):
        fit = found.evaluate((2,), None, trial)
        (bracket,) = fit.brackets
        assert fit.info.failure is None
        assert bracket.standard_error < 0.25
        assert abs(fit.estimate - KNOWN[name].evidence(2)) < 4 * bracket.standard_error + 0.02


@needs_funsor
@pytest.mark.slow
def test_labels_are_summed_out_exactly():
    """log p(data | latents) at the same latents, labels as sites against labels summed out by the model: the same."""
    with jax.enable_x64(True):
        state = evaluator("summed_counts").chain((2,)).init(jax.random.key(1), 5)
        labelled = evaluator("labelled_counts").chain((2,))
        np.testing.assert_allclose(labelled.init(jax.random.key(1), 5).position, state.position)
        densities = jax.vmap(lambda u: labelled.log_densities(u, labelled.size))(state.position)
        np.testing.assert_allclose(densities[:, 1], state.log_likelihood, rtol=1e-12)


@pytest.mark.slow
def test_draws_and_density_of_the_prior_belong_together():
    """E[e^(log q − log p)] = 1 over draws of the prior, q a density within it: neither the bijections nor the Jacobian
    may be missing. q is a normal in coordinates, narrower than the prior."""
    chain = evaluator("summed_counts").chain((2,))
    with jax.enable_x64(True):
        u = chain.init(jax.random.key(3), 20_000).position
        log_prior = jax.vmap(lambda u: chain.log_densities(u, chain.size)[0])(u)
        z = (u - u.mean(0)) / (0.7 * u.std(0))
        log_q = (-0.5 * z**2 - 0.5 * jnp.log(2 * jnp.pi) - jnp.log(0.7 * u.std(0))).sum(1)
        weight = np.exp(np.asarray(log_q - log_prior))
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(len(weight))
    assert weight.std() / np.sqrt(len(weight)) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_errors_are_calibrated(name):
    """Of 120 annealings of a size, pilots of their own each, 90 % sets hold the exact evidence 90 times in a hundred:
    within three binomial standard errors, 0.82 of them at least."""
    chain, exact = evaluator(name).chain((2,)), KNOWN[name].evidence(2)
    held = []
    for seed in range(120):
        key = jax.random.key(seed)
        ready, profile = tune_step_lengths(chain, jax.random.fold_in(key, 1), 64)
        work = effort(ready, 0)
        (bracket,) = brackets_of(anneal(ready, key, work, profile), work)
        held.append(abs(bracket.estimate - exact) < 1.645 * bracket.standard_error)
    assert np.mean(held) > 0.82


@pytest.mark.slow
def test_the_same_posterior_as_the_built_in():
    """A mixture of Gaussians of known variance, its prior that of `FiniteMixture`: log evidence of every size within
    three of the two standard errors together."""
    rows = np.concatenate([np.random.default_rng(0).normal(centre, 1.0, 15) for centre in (-3.0, 3.0)])

    def mixture(size, data):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(size)))
        means = numpyro.sample("means", dist.Normal(0.0, 5.0).expand([size]).to_event(1))
        with numpyro.plate("rows", len(data)):
            numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, 1.0)), obs=data)

    ours = lv.models.FiniteMixture(lv.models.KnownCovarianceComponents(1.0, 0.0, 1 / 25))
    searches = [
        lv.search(model, data, max_size=3, exhaustive=True, progress=False).posterior().set_index("size")
        for model, data in ((lv.from_numpyro(mixture), rows), (ours, rows[:, None]))
    ]
    apart = searches[0]["log_evidence"] - searches[1]["log_evidence"]
    error = np.hypot(searches[0]["standard_error"], searches[1]["standard_error"])
    assert (apart.abs() < 3 * error).all()


# ── searching ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_a_search_masks_and_reports_what_fails():
    """One program serves the sizes of a capacity; a size whose model has no number is told, and the search goes on.
    Rows of one level, a sum of `size` standard normals, are normal together."""

    def broken_at_two(size, data, capacity):
        steps = numpyro.sample("steps", dist.Normal().expand([capacity]).to_event(1))
        level = jnp.where(jnp.arange(capacity) < size, steps, 0.0).sum()
        numpyro.sample("x", dist.Normal(level, 1.0).expand([len(data)]), obs=data)
        numpyro.factor("never", jnp.where(size == 2, jnp.nan, 0.0))

    result = lv.search(lv.from_numpyro(broken_at_two), VALUES, max_size=3, starts=1, progress=False)
    assert result.compiles["_advance"] == result.compiles["_adapt_step_lengths"] == 1
    failures = result.starts().set_index("size")["failure"]
    assert "size 2 has log p(data | latents) = nan" in failures[2]
    assert not failures[1]
    assert not failures[3]
    assert "broken_at_two, annealed from its prior, sizes masked" in str(result)
    assert "1 fit(s) failed" in str(result)
    table = result.posterior().set_index("size")
    n = len(VALUES)
    exact = [multivariate_normal(np.zeros(n), np.eye(n) + size).logpdf(VALUES) for size in (1, 3)]
    assert (np.abs(table["log_evidence"] - exact) < 4 * table["standard_error"] + 0.02).all()
    with pytest.raises(ValueError, match="code is not stored"):
        result.save("nowhere")


def test_a_model_that_raises_at_a_size():
    def fragile(size, data):
        if size == 2:
            raise RuntimeError("no such size")
        normal_means(size, data)

    found = lv.from_numpyro(fragile).evaluator(VALUES, 0)
    fit = found.evaluate((2,), None)
    assert fit.info.failure == "size 2 raised RuntimeError: no such size; it is reported, not ranked"
    assert not fit.brackets


def test_a_path_does_not_depend_on_the_order():
    first = evaluator("normal_means")
    with_others = [first.evaluate((2,), None).brackets, first.evaluate((2,), None, 1).brackets]
    alone = dataclasses.replace(first, _tuned={}).evaluate((2,), None, 1).brackets
    assert with_others[1] == alone
    assert with_others[0] != alone


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def improper(size, data):
    numpyro.sample("level", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.factor("f", 0.0)


def parameter(size, data):
    numpyro.sample("x", dist.Normal(numpyro.param("level", 0.0), 1.0))
    numpyro.factor("f", 0.0)


def endless(size, data):
    numpyro.sample("x", dist.Normal())
    numpyro.sample("n", dist.Poisson(3.0))
    numpyro.factor("f", 0.0)


def subsampled(size, data):
    level = numpyro.sample("level", dist.Normal())
    with numpyro.plate("rows", len(data), subsample_size=2):
        numpyro.sample("x", dist.Normal(level), obs=numpyro.subsample(data, 0))


def masked_prior(size, data):
    with numpyro.handlers.mask(mask=jnp.arange(3) < 2):
        numpyro.sample("level", dist.Normal().expand([3]))
    numpyro.factor("f", 0.0)


def nothing_seen(size, data):
    numpyro.sample("level", dist.Normal())


def nothing_latent(size, data):
    numpyro.sample("x", dist.Normal(), obs=data)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (improper, "site 'level' has an improper prior"),
        (parameter, "site 'level' is a parameter without a prior: expected numpyro.sample with a prior"),
        (endless, r"site 'n' is discrete without an end \(Poisson\)"),
        (subsampled, "site 'rows' draws a subsample"),
        (masked_prior, "site 'level' is a latent whose prior is scaled or masked"),
        (nothing_seen, "observes nothing"),
        (nothing_latent, "without continuous latents"),
    ],
)
def test_models_whose_evidence_means_nothing(model, says):
    with pytest.raises(ValueError, match=says):
        lv.search(lv.from_numpyro(model), VALUES, progress=False)


def of_a_level(observe):
    """A model f(size, data) of one latent level, whose observations `observe(level, data)` declares."""

    def model(size, data):
        observe(numpyro.sample("level", dist.Normal(0.0, 3.0)), data)

    return model


def in_plate(level, data):
    with numpyro.plate("rows", len(data)):
        numpyro.sample("x", dist.Normal(level), obs=data)


def in_plate_scaled(level, data):
    with numpyro.handlers.scale(scale=2.0):
        in_plate(level, data)


def in_scan(level, data):
    def step(last, x):
        numpyro.sample("x", dist.Normal(0.5 * last + level), obs=x)
        return x, None

    scan(step, 0.0, jnp.asarray(data))


def after_the_last(level, data):
    with numpyro.plate("rows", len(data)):
        numpyro.sample("x", dist.Normal(0.5 * jnp.concatenate([jnp.zeros(1), data[:-1]]) + level), obs=data)


def masked(level, data):
    data = jnp.asarray(data)
    with numpyro.plate("rows", len(data)), numpyro.handlers.mask(mask=~jnp.isnan(data)):
        numpyro.sample("x", dist.Normal(level), obs=jnp.nan_to_num(data))


ROWS = np.array([0.3, -1.2, 2.0, 0.7])
HOLED = np.array([0.3, np.nan, 2.0, 0.7])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("observe", "data", "same", "as_data"),
    [
        (in_plate_scaled, ROWS, in_plate, np.repeat(ROWS, 2)),
        (in_scan, ROWS, after_the_last, ROWS),
        (masked, HOLED, in_plate, HOLED[[0, 2, 3]]),
    ],
    ids=["scale", "scan", "mask"],
)
def test_scaled_observations_count_so_often_and_loops_and_masks_do_what_they_say(observe, data, same, as_data):
    """log p(data | latents) at draws of the prior, of two models that are one."""
    with jax.enable_x64(True):
        one, other = (
            chain_of(functools.partial(lambda f, d, size: of_a_level(f)(size, d), f, d), jnp.asarray([1]))
            for f, d in ((observe, data), (same, as_data))
        )
        states = [chain.init(jax.random.key(0), 3) for chain in (one, other)]
        np.testing.assert_array_equal(states[0].position, states[1].position)
        np.testing.assert_allclose(states[0].log_likelihood, states[1].log_likelihood, rtol=1e-12)


def states_in_scan(size, data):
    with numpyro.plate("states", 2):
        means = numpyro.sample("means", dist.Normal(0.0, 3.0))
        transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)))

    def step(state, x):
        state = numpyro.sample("state", dist.Categorical(transition[state]))
        numpyro.sample("x", dist.Normal(means[state]), obs=x)
        return state, None

    scan(step, 0, jnp.asarray(data))


def labels_scaled(size, data):
    means = numpyro.sample("means", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(data)), numpyro.handlers.scale(scale=2.0):
        label = numpyro.sample("label", dist.Categorical(jnp.ones(2) / 2))
        numpyro.sample("x", dist.Normal(means[label]), obs=data)


@pytest.mark.parametrize(
    ("model", "data", "says"),
    [
        (of_a_level(in_plate), HOLED, r"site 'x' observes NaN in 1 of 4 numbers: expected numbers.*handlers\.mask"),
        (
            states_in_scan,
            ROWS,
            r"discrete latents \(state\) beside .*scan.*lv\.models\.HiddenMarkov.*forward recursion",
        ),
        (labels_scaled, ROWS, "site '(label|x)' is scaled beside discrete latents"),
    ],
    ids=["NaN", "scan", "scale"],
)
def test_data_and_loops_without_evidence_are_refused_with_what_to_write(model, data, says):
    with pytest.raises(ValueError, match=says):
        lv.search(lv.from_numpyro(model), data, progress=False)


def test_batches_beside_labels_need_a_plate():
    def loose(size, data):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        means = numpyro.sample("means", dist.Normal().expand([2]))
        with numpyro.plate("rows", len(data)):
            numpyro.sample("x", dist.Normal(means[numpyro.sample("label", dist.Categorical(weights))]), obs=data)

    with pytest.raises(ValueError, match="site 'means' has several elements in no plate"):
        lv.from_numpyro(loose).evaluator(VALUES, 0)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("lvsearch.bridges.numpyro_program.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=re.escape('pip install "lvsearch[enumerate]"')):
        lv.from_numpyro(labelled_counts).evaluator(COUNTS, 0)


def forgotten(size, data, capacity):
    rates = numpyro.sample("rates", dist.Gamma(1.0, 1.0).expand([capacity]).to_event(1))
    numpyro.sample("x", dist.Poisson(rates.sum()).expand([len(data)]), obs=data)


def counted_in_python(size, data, capacity):
    rates = numpyro.sample("rates", dist.Gamma(1.0, 1.0).expand([int(size)]).to_event(1))
    numpyro.sample("x", dist.Poisson(rates.sum()).expand([len(data)]), obs=data)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (forgotten, r"at size 1 with capacity=2 and 4, expected the same: entries beyond the size"),
        (counted_in_python, "uses its size as a number of Python"),
    ],
)
def test_masks_are_checked(model, says):
    with pytest.raises(ValueError, match=says):
        lv.search(lv.from_numpyro(model), COUNTS, progress=False)


@pytest.mark.parametrize("given", [lambda size: None, lambda size, data, more: None])
def test_what_is_no_model(given):
    with pytest.raises(ValueError, match=r"f\(size, data"):
        lv.from_numpyro(given)


@pytest.mark.parametrize("settings", [{"evidence": "bound"}, {"evidence": "plug-in"}, {"per_token": True}])
def test_other_evidence_is_refused(settings):
    with pytest.raises(ValueError, match="for a NumPyro model, expected"):
        lv.search(lv.from_numpyro(summed_counts), COUNTS, max_size=2, **settings)
