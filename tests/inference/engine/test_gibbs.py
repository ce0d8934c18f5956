"""Blocked Gibbs against exact posterior moments, Geweke's joint-distribution test, and NUTS.

False alarms. Every z below is a difference over its batch-means (or independent-sample) standard error. With fixed keys
a test either always passes or always fails; over keys, |z| < 4.5 for at most 40 numbers fails by chance in fewer than
1 of 1,000 keys (40 · 2 · (1 − Φ(4.5)) = 3e-4, doubled for the small number of batches).
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import Compiled
from engine_steps import gibbs_sweep
from scipy.sparse import csr_array

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.engine.reference import reference_model
from lvsearch.models.families import Beta, BetaStatistics, Dirichlet, Gamma, GammaStatistics
from lvsearch.models.lda import LDA
from lvsearch.models.units import BagOfWords

SIZE, CAPACITY = (2,), (3,)
ALPHA, ETA = np.array([0.5, 1.4]), 0.6
COUNTS = np.array([[3, 0, 1], [0, 2, 0]])
Z_LIMIT = 4.5


def data() -> Dataset:
    return documents(csr_array(COUNTS.astype(np.int32)))


def start(model: LDA, batch: Batch) -> GibbsState:
    n, length = batch.units.words.shape
    on = np.arange(CAPACITY[0]) < SIZE[0]
    log_theta = np.where(on, -np.log(SIZE[0]), 0.0).astype(np.float32)
    log_beta = np.where(on[:, None], -np.log(3.0), 0.0).astype(np.float32) * np.ones((1, 3), np.float32)
    l = {"assignment": jnp.zeros((n, length, CAPACITY[0])), "proportions": jnp.asarray(np.tile(log_theta, (n, 1)))}
    return GibbsState({"topic_word": jnp.asarray(log_beta)}, (l,))


@partial(jax.jit, static_argnames=("sweeps",))
def chain(model: LDA, key: Any, state: GibbsState, batch: Batch, ids: Any, sweeps: int) -> tuple[Any, Any]:
    """(θ, β) after each sweep."""

    def one(state: GibbsState, sweep_key: Any) -> tuple[GibbsState, tuple[Any, Any]]:
        state = gibbs_sweep(model, sweep_key, state, (batch,), (ids,), SIZE, capacity=CAPACITY)
        return state, (jnp.exp(state.locals[0]["proportions"]), jnp.exp(state.globals["topic_word"]))

    return jax.lax.scan(one, state, jax.random.split(key, sweeps))[1]


def z_scores(samples: np.ndarray, truth: np.ndarray, n_batches: int = 50) -> np.ndarray:
    """Samples (sweep, …) against exact means, by batch means."""
    batches = samples[: len(samples) // n_batches * n_batches].reshape(n_batches, -1, *samples.shape[1:]).mean(1)
    return (batches.mean(0) - truth) / (batches.std(0, ddof=1) / np.sqrt(n_batches))


@cache
def long_chain() -> tuple[np.ndarray, np.ndarray]:
    (batch,), (ids,) = data().batches, data().unit_ids
    model = LDA(ALPHA, ETA)
    theta, beta = chain(model, jax.random.key(5), start(model, batch), batch, ids, 20_000)
    return np.asarray(theta, np.float64)[500:, :, :2], np.asarray(beta, np.float64)[500:, :2]


@pytest.mark.thorough
def test_gibbs_has_the_exact_posterior_moments():
    """E[θ], E[β] of every document and topic, counts as copies, one topic of the capacity absent."""
    exact = oracles.lda_posterior(COUNTS, ALPHA, ETA)
    theta, beta = long_chain()
    z = np.concatenate([z_scores(theta, exact.proportions).ravel(), z_scores(beta, exact.topics).ravel()])
    assert np.abs(z).max() < Z_LIMIT
    assert np.abs(theta.mean(0) - exact.proportions).max() < 0.02
    assert np.abs(z_scores(beta, exact.topics[::-1])).max() > 3 * Z_LIMIT  # the same test tells the topics apart


@pytest.mark.thorough
def test_same_draw_whatever_the_batch():
    """A unit's key is folded with its id: batches of other documents in another order draw the same numbers."""
    model, whole = LDA(ALPHA, ETA), data()
    (batch,), state = whole.batches, start(LDA(ALPHA, ETA), whole.batches[0])

    def one_by_one(order: tuple[int, ...]) -> GibbsState:
        rows = tuple(np.array([row]) for row in order)
        batches = tuple(jax.tree.map(lambda x, r=r: x[r], batch) for r in rows)
        l = tuple(jax.tree.map(lambda x, r=r: x[r], state.locals[0]) for r in rows)
        return gibbs_sweep(
            model, jax.random.key(1), GibbsState(state.globals, l), batches, rows, SIZE, capacity=CAPACITY
        )

    forwards, backwards = one_by_one((0, 1)), one_by_one((1, 0))
    for one, other in zip(forwards.locals, backwards.locals[::-1], strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    np.testing.assert_allclose(forwards.globals["topic_word"], backwards.globals["topic_word"], rtol=1e-5)
    assert not np.array_equal(forwards.locals[0]["proportions"], forwards.locals[1]["proportions"])


# ── Geweke ──────────────────────────────────────────────────────────────────────────────────────────────────────────

N_DOCS, LENGTH, N_WORDS = 3, 4, 3


class DoubledPrior(LDA):
    """The planted bug: log_unit has (α − 1) log θ twice."""

    def log_unit(self, g: Any, l: Any, unit: Any, on: Any) -> Any:
        extra = jnp.where(on["topic"], (self.alpha(on) - 1) * l["proportions"], 0.0).sum()
        return super().log_unit(g, l, unit, on) + extra


class HalvedCopies(LDA):
    """The other planted bug: the gradient of an indicator is divided by twice its copies."""

    def locals(self) -> Any:
        sites = super().locals()
        return {**sites, "assignment": sites["assignment"]._replace(copies=lambda unit: 2 * unit.counts)}


def moments(g: Any, l: Any, words: Any) -> Any:
    """Functions of the joint draw, first and second moments and where parameters meet data: (function,)."""
    theta, beta = jnp.exp(l["proportions"]), jnp.exp(g["topic_word"])
    first_word = (words == 0).mean(-1)
    return jnp.concatenate(
        [
            theta.mean(0),
            (theta**2).mean(0),
            (theta[:, 0] * first_word).mean(0)[None],
            beta[:, 0],
            beta[:, 0] ** 2,
            beta[:, 0] * first_word.mean(),
            jnp.maximum(l["proportions"], -10).mean(0),
        ]
    )


@partial(jax.jit, static_argnames=("model_type", "n_chains", "sweeps"))
def geweke_draws(model_type: type, key: Any, n_chains: int, sweeps: int) -> tuple[Any, Any]:
    """(marginal-conditional draws, successive-conditional chain averages): (chain, function) each.

    Chains start from an exact joint draw, so they are stationary from the first step if the sampler is right.
    """
    truth, sampler = LDA(ALPHA, ETA), model_type(ALPHA, ETA)
    units = BagOfWords(jnp.zeros((N_DOCS, LENGTH), jnp.int32), jnp.ones((N_DOCS, LENGTH)))
    ids, on = jnp.arange(N_DOCS), truth.active(SIZE, SIZE)

    def joint(k: Any) -> Any:
        return truth.simulate(k, SIZE, units, {"word": N_WORDS})

    def successive(k: Any) -> Any:
        g, l, drawn = joint(k)

        def step(carry: Any, step_key: Any) -> Any:
            state, words = carry
            key_sweep, key_words = jax.random.split(step_key)
            batch = Batch(BagOfWords(words, units.counts), jnp.ones(N_DOCS))
            state = gibbs_sweep(sampler, key_sweep, state, (batch,), (ids,), SIZE, capacity=SIZE)
            keys = jax.random.split(key_words, N_DOCS)
            draw = jax.vmap(lambda kk, lu, u: truth.draw_unit(kk, state.globals, lu, u, on))
            words = draw(keys, state.locals[0], batch.units).words
            return (state, words), moments(state.globals, state.locals[0], words)

        first = (GibbsState(g, (l,)), drawn.words)
        return jax.lax.scan(step, first, jax.random.split(jax.random.fold_in(k, 1), sweeps))[1].mean(0)

    keys = jax.random.split(key, (2, n_chains))
    return jax.vmap(lambda k: moments(*joint(k)[:2], joint(k)[2].words))(keys[0]), jax.vmap(successive)(keys[1])


def geweke_z(model_type: type, key: int) -> np.ndarray:
    """Two samples of independent numbers per function: no autocorrelation to estimate."""
    marginal, successive = (np.asarray(x, np.float64) for x in geweke_draws(model_type, jax.random.key(key), 1000, 12))
    error = np.sqrt(marginal.var(0, ddof=1) / len(marginal) + successive.var(0, ddof=1) / len(successive))
    return np.abs(marginal.mean(0) - successive.mean(0)) / error


@pytest.mark.slow
def test_geweke():
    """Joint draws made forwards and by the sampler agree: 15 functions, |z| < 4.5, false alarms below 1e-4."""
    assert geweke_z(LDA, 0).max() < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("planted", [DoubledPrior, HalvedCopies])
def test_geweke_finds_planted_bugs(planted):
    """The same test, the same sizes, a wrong sampler: it must fail, and clearly."""
    assert geweke_z(planted, 0).max() > 1.5 * Z_LIMIT


# ── the reference posterior ─────────────────────────────────────────────────────────────────────────────────────────


def test_statistics_are_found_from_the_family_alone():
    """t(x) = ∂ log p(x | η) / ∂η + E_η[t], against the statistics written out."""
    theta = jnp.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(Compiled(Dirichlet()).statistics_at(theta, jnp.ones(3)), np.log(theta), rtol=1e-4)
    gamma = Compiled(Gamma()).statistics_at(jnp.array(1.7), GammaStatistics(jnp.array(1.0), jnp.array(1.0)))
    np.testing.assert_allclose(gamma, [np.log(1.7), -1.7], rtol=1e-4)
    beta = Compiled(Beta()).statistics_at(jnp.array(0.3), BetaStatistics(jnp.array(1.0), jnp.array(1.0)))
    np.testing.assert_allclose(beta, [np.log(0.3), np.log(0.7)], rtol=1e-4)


def test_plug_in_models_have_no_reference():
    from numpyro.handlers import seed

    model = seed(reference_model(LDA(ALPHA, ETA).plug_in(), data(), SIZE), jax.random.key(0))
    with pytest.raises(ValueError, match="point estimate"):
        model()


@pytest.mark.slow
def test_nuts_agrees_with_gibbs():
    """NUTS on the continuous sites, indicators summed out, against Gibbs and the exact means (0.03)."""
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(
        NUTS(reference_model(LDA(ALPHA, ETA), data(), SIZE)), num_warmup=1000, num_samples=8000, progress_bar=False
    )
    mcmc.run(jax.random.key(2))
    samples = mcmc.get_samples()
    theta, beta = long_chain()
    exact = oracles.lda_posterior(COUNTS, ALPHA, ETA)
    np.testing.assert_allclose(samples["topic_word"].mean(0), beta.mean(0), atol=0.03)
    np.testing.assert_allclose(samples["proportions/0"].mean(0), theta.mean(0), atol=0.03)
    np.testing.assert_allclose(samples["topic_word"].mean(0), exact.topics, atol=0.03)
