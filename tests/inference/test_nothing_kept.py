"""Work that is done again leaves nothing behind and compiles nothing: JAX keeps what it traced, so whatever is traced
afresh at every call grows with the calls."""

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from annotation_cases import FEATURES

import lvsearch as lv
from lvsearch.models.contract import Model

ROWS = np.random.default_rng(0).normal(0, 1, (8, 2)) + 4 * (np.arange(8) % 2)[:, None]
COUNTS = np.random.default_rng(1).integers(0, 3, (6, 5)) + np.eye(6, 5, dtype=np.int64)
PAIRS = (list(FEATURES), [["a"], ["b"], ["a"], [], ["c"]])
GROUPS = [ROWS[:3], ROWS[3:6]]

SIZED: dict[str, Callable[[], tuple[Model, object]]] = {
    "LDA": lambda: (lv.models.LDA(), COUNTS),
    "mixture": lambda: (lv.models.FiniteMixture(), ROWS),
    "mixture, full": lambda: (lv.models.FiniteMixture(lv.models.FullCovarianceComponents()), ROWS),
    "mixture of unigrams": lambda: (lv.models.MixtureOfUnigrams(), COUNTS),
    "independent normal": lambda: (lv.models.IndependentNormalMixture(), ROWS[:, :1]),
    "tied mixture": lambda: (lv.models.TiedMixture(), ROWS),
    "factor analysers": lambda: (lv.models.FactorAnalyzerMixture(), ROWS),
    "hidden Markov": lambda: (lv.models.HiddenMarkov(), GROUPS),
    "Poisson factorization": lambda: (lv.models.PoissonFactorization(), COUNTS),
    "features": lambda: (lv.models.IBP(), ROWS),
    "GM-LDA": lambda: (lv.models.GMLDA(), PAIRS),
    "Corr-LDA": lambda: (lv.models.CorrLDA(), PAIRS),
    "GM-mixture": lambda: (lv.models.GMMixture(), PAIRS),
}
PROCESSES: dict[str, Callable[[], tuple[Model, object]]] = {
    "DP mixture": lambda: (lv.models.DPMixture(), ROWS),
    "DP mixture, full": lambda: (lv.models.DPMixture(lv.models.FullCovarianceComponents()), ROWS),
    "HDP": lambda: (lv.models.HDP(), COUNTS),
    "HDP mixture": lambda: (lv.models.HDPMixture(), GROUPS),
}


def fitting(model: Model, data: object) -> object:
    fitted = lv.fit(model, data, size=2, seed=0)  # pyright: ignore
    return fitted.tables(), fitted.transform(fitted.training)


def searching(model: Model, data: object) -> object:
    return lv.search(model, data, prior=lv.sizes.Poisson(1), max_size=2, starts=1, progress=False).posterior()  # pyright: ignore


def sampling(model: Model, data: object) -> object:
    return lv.sample(model, data, size=2, draws=4, chains=2, progress=False)  # pyright: ignore


def occupying(model: Model, data: object) -> object:
    return lv.occupied(model, data, draws=4, chains=2, progress=False).posterior()  # pyright: ignore


CALLS = 3
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"


def kept(work: Callable[[], object]) -> Counter[str]:
    """Types of the objects that calls of `work` leave behind, one a call or more, again and again; programs too."""

    made: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: made.append(event))

    def objects() -> Counter[str]:
        gc.collect()
        return Counter(program=made.count(LOWERED)) + Counter(
            "dead reference" if isinstance(each, weakref.ReferenceType) and each() is None else type(each).__name__
            for each in gc.get_objects()
        )

    def grown() -> Counter[str]:
        before = objects()
        for _ in range(CALLS):
            work()
        after = objects()
        after.subtract(before)
        return Counter({name: number for name, number in after.items() if number >= CALLS})

    gc.freeze()  # what other tests of the session keep, millions of objects, need not be looked at again and again
    try:
        for warm in (work, work, objects):  # counting leaves caches of classes behind, once
            warm()
        return grown() & grown()
    finally:
        gc.unfreeze()


@pytest.mark.thorough
@pytest.mark.parametrize("work", [searching, pytest.param(sampling, marks=pytest.mark.slow)])
def test_searches_and_samples(work: Callable[[Model, object], object]):
    """Of one model; of every other in the slow tier."""
    assert not kept(partial(work, *SIZED["mixture"]()))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSES)
def test_occupied(name: str):
    assert not kept(partial(occupying, *PROCESSES[name]()))


@pytest.mark.slow
@pytest.mark.parametrize("work", [fitting, searching, sampling])
@pytest.mark.parametrize("name", SIZED)
def test_every_model(name: str, work: Callable[[Model, object], object]):
    assert not kept(partial(work, *SIZED[name]()))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSES)
def test_every_process(name: str):
    assert not kept(partial(fitting, *PROCESSES[name]()))


@pytest.mark.slow
def test_what_is_traced_at_every_call_is_noticed():
    """The three ways in which it came about: a function of the module traced by a new tracer; constants under a `vmap`
    that is not compiled; a loop over a function made at every call."""
    assert "dead reference" in kept(lambda: jax.vmap(lambda x: x + jnp.log(np.float64(2.0)))(np.ones(3)))
    assert "PyTreeDef" in kept(lambda: jax.eval_shape(_traced, np.ones(3)))
    assert "program" in kept(lambda: jax.lax.fori_loop(0, 3, lambda i, x: x + i, 0))


def _traced(x: jax.Array) -> jax.Array:
    return x + 1
