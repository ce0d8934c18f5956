"""The Gibbs sampler of images with captions: the generic one on these models, by Geweke's joint-distribution test.

False alarms: |z| > 4.5 for any of at most 45 numbers has a chance below 4e-4, at fixed keys.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from annotation_cases import REGIONS
from engine_steps import gibbs_sweep

from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.models import GMLDA, AnnotatedImage, CorrLDA, GMMixture, MultinomialComponents

Z_LIMIT, SIZE, ALPHA, N_WORDS = 4.5, (2,), np.array([0.6, 1.1]), 3
LONG = {"n_chains": 3000, "sweeps": 20}
PRESENT = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], bool)


class WordsTwice(CorrLDA):
    """The planted bug: the caption enters the log-joint twice."""

    def log_unit(self, g: Any, l: Any, unit: Any, on: Any) -> Any:
        words = (l["correspondence"] * (self.log_words(g, unit) @ l["assignment"].T)).sum()
        return super().log_unit(g, l, unit, on) + words


class PaddingCounts(CorrLDA):
    """The other planted bug: regions that are not there can have words."""

    def extents(self, unit: Any) -> Any:
        return {"region": unit.present.shape[-1], "caption": unit.words.shape[-1]}


def moments(model: Any, g: Any, l: Any, units: Any) -> Any:
    """First and second moments, where parameters meet data and latents meet either: how probable the words are under
    their factors, and which regions they come from."""
    beta, value = jnp.exp(g["factor_word"]), g["factor_region"]
    mean = value.precision_mean / -value.negative_precision
    first = (units.words == 0).mean((0, 1))
    here = units.present[..., None]
    regions = jnp.where(here, units.regions, 0).sum((0, 1)) / here.sum()
    share = l["factor"][:2] if "factor" in l else jnp.exp(l["proportions"])[:2]
    weights = [jnp.exp(g["weights"])] if "weights" in g else []
    of_words = jax.vmap(model.word_factor)(l, units)
    probable = (of_words * beta.T[units.words]).sum(-1)  # (image, word)
    chosen = [l["correspondence"].mean(1).ravel()] if "correspondence" in l else []
    return jnp.concatenate(
        [
            beta[:, 0],
            beta[:, 0] ** 2,
            jnp.tanh(mean).ravel(),
            jnp.clip(value.log_precision, -5, 5).ravel(),
            share.mean(0),
            (share**2).mean(0),
            (beta[:, 0] * first),
            jnp.tanh(mean[:, 0]) * jnp.tanh(regions[0]),
            jnp.tanh(mean[:, 0]) * first,
            probable.mean(1),
            *weights,
            *chosen,
        ]
    )


@partial(jax.jit, static_argnames=("kind", "planted", "n_chains", "sweeps"))
def draws(kind: Any, planted: Any, key: Any, n_chains: int, sweeps: int) -> tuple[Any, Any]:
    """(joint draws, averages of chains that start from one and alternate sampler and data): (chain, function) each."""
    parts = (ALPHA, MultinomialComponents(0.4), REGIONS)
    truth, sampler = kind(*parts), planted(*parts)
    on, ids = truth.active(SIZE, SIZE), jnp.arange(3)
    like = AnnotatedImage(jnp.zeros((3, 3, 2)), jnp.asarray(PRESENT), jnp.zeros((3, 2), jnp.int32), jnp.ones((3, 2)))

    def joint(k: Any) -> Any:
        return truth.simulate(k, SIZE, like, {"word": N_WORDS, "dim": 2})

    def successive(k: Any) -> Any:
        g, l, drawn = joint(k)

        def step(carry: Any, step_key: Any) -> Any:
            state, units = carry
            key_sweep, key_units = jax.random.split(step_key)
            state = gibbs_sweep(sampler, key_sweep, state, (Batch(units, jnp.ones(3)),), (ids,), SIZE, capacity=SIZE)
            keys = jax.random.split(key_units, 3)
            units = jax.vmap(lambda kk, lu, u: truth.draw_unit(kk, state.globals, lu, u, on))(
                keys, state.locals[0], units
            )
            return (state, units), moments(truth, state.globals, state.locals[0], units)

        start = (GibbsState(g, (l,)), drawn)
        return jax.lax.scan(step, start, jax.random.split(jax.random.fold_in(k, 1), sweeps))[1].mean(0)

    keys = jax.random.split(key, (2, n_chains))
    return jax.vmap(lambda k: moments(truth, *joint(k)))(keys[0]), jax.vmap(successive)(keys[1])


def largest_z(kind: Any, planted: Any, n_chains: int = 1500, sweeps: int = 12) -> float:
    marginal, successive = (
        np.asarray(x, np.float64) for x in draws(kind, planted, jax.random.key(0), n_chains, sweeps)
    )
    error = np.sqrt(marginal.var(0, ddof=1) / n_chains + successive.var(0, ddof=1) / n_chains)
    difference = np.abs(marginal.mean(0) - successive.mean(0))
    return float((difference / np.maximum(error, 1e-9)).max())  # words come from absent regions never, in both


@pytest.mark.slow
def test_geweke():
    """Joint draws made forwards and by Corr-LDA's sampler agree, with a ragged image and one without regions."""
    assert largest_z(CorrLDA, CorrLDA) < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CorrLDA, GMLDA, GMMixture])
def test_geweke_of_longer_chains(kind):
    assert largest_z(kind, kind, **LONG) < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("planted", [WordsTwice, PaddingCounts])
def test_geweke_finds_planted_bugs(planted):
    """The same test, the same chains, a wrong sampler: it must fail, and clearly."""
    assert largest_z(CorrLDA, planted, **LONG) > 1.5 * Z_LIMIT
