"""Every chain that is annealed or sampled, checked by ranks that are exactly uniform if its sweeps are right.

Latents and data are drawn from the joint: the latents are a draw of the posterior. They are given a place M, uniform
among 0 … DRAWS; the chain runs forwards from them to the end and, by its time reversal, backwards to the beginning
(Besag & Clifford 1989). All DRAWS + 1 states then have one joint distribution whatever M was, so that the rank of the
true one among them is uniform (Talts et al. 2018), exactly: no burn-in, nothing assumed about mixing, and the reversed
sweeps, in which stochastic upper ends begin, are checked beside the forward ones.

p-values of χ² over REPLICATES data sets, one for each number: the smallest of at most 6 is above 1e-4 but for one key
in 1,600. The planted bug, sweeps at another temperature than that of the posterior, must be found in every one.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import pytest
from annotation_cases import FEATURES
from jaxtyping import Array
from scipy.stats import chisquare

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.annealing.generic import flat_chain
from lvsearch.inference.chains import Chain, State
from lvsearch.inference.evidence import evidence_chain, sampled_chain, true_state
from lvsearch.inference.evidence.simulation import simulated_like
from lvsearch.inference.factor_analyzers import FactorAnalyzerChain
from lvsearch.inference.sampling.trace import Recorder, recorder
from lvsearch.models import hyperpriors
from lvsearch.models.contract import Model

REPLICATES, DRAWS, THIN = 800, 7, 3
"""Data sets; states beside the true one; sweeps from each to the next."""
SMALLEST_P = 1e-4
WARM = 0.4
"""The temperature of the planted bug."""

ROWS = np.random.default_rng(0).normal(0, 1, (6, 2))
COUNTS = np.random.default_rng(1).integers(0, 3, (5, 4)) + np.eye(5, 4, dtype=np.int64)
PAIRS = (list(FEATURES), [["a"], ["b", "c"], ["a"], ["b"], ["c"]])
WIDE = hyperpriors.GammaPrior(2.0, 1.5)


class RowsInTurn(FactorAnalyzerChain):
    """Sweeps of the path along the rows in the place of those of all rows at once."""

    def step(self, key: Array, state: State, temperature: Array, *, backward: bool) -> State:
        order, n_rows = jnp.argsort(self.weight == 0, stable=True), (self.weight > 0).sum()
        swept = self.sweep_in_turn(key, state, order, n_rows, backward)
        return jax.lax.cond(
            temperature < 1, lambda: self.sweep_at_once(key, swept, self.weight > 0, WARM), lambda: swept
        )


class Case(NamedTuple):
    """data: of which the simulated ones take their shape alone; generic: the chain that any log-joint has; in_turn:
    `RowsInTurn`; sampled: the chain of `lv.sample`."""

    model: Model
    data: Any
    size: tuple[int, ...] = (2,)
    generic: bool = False
    in_turn: bool = False
    sampled: bool = False

    def chain(self, data: Any) -> Chain:
        if self.generic:
            return flat_chain(self.model, data, self.size, self.size)
        if self.in_turn:
            chain = evidence_chain(self.model, data, self.size, None)
            return RowsInTurn(*(getattr(chain, entry.name) for entry in fields(chain)))
        if self.sampled:
            return sampled_chain(self.model, data, self.size)
        return evidence_chain(self.model, data, self.size, None)


CASES: dict[str, Callable[[], Case]] = {
    "LDA": lambda: Case(lv.models.LDA(0.9, 0.3), COUNTS),
    "LDA, hyper-priors": lambda: Case(lv.models.LDA(WIDE, hyperpriors.GammaPrior(1.5, 4.0)), COUNTS),
    "LDA, generic": lambda: Case(lv.models.LDA(0.9, 0.3), COUNTS, generic=True),
    **{
        f"mixture of {kind.name}": partial(Case, lv.models.FiniteMixture(kind.component), mixture_cases.points(kind))
        for kind in mixture_cases.CASES
    },
    "mixture, hyper-priors": lambda: Case(lv.models.FiniteMixture(lv.models.FullCovarianceComponents.weak(ROWS)), ROWS),
    "tied mixture": lambda: Case(lv.models.TiedMixture(), ROWS),
    "tied mixture, hyper-priors": lambda: Case(
        lv.models.TiedMixture(lv.models.FullCovarianceComponents.weak(ROWS)), ROWS
    ),
    "tied mixture, generic": lambda: Case(lv.models.TiedMixture(), ROWS, generic=True),
    "factor analysers": lambda: Case(lv.models.FactorAnalyzerMixture(), ROWS),
    "factor analysers, hyper-priors": lambda: Case(
        lv.models.FactorAnalyzerMixture(lv.models.FactorAnalyzerComponents.weak(ROWS, 2)), ROWS
    ),
    "factor analysers, rows in turn": lambda: Case(lv.models.FactorAnalyzerMixture(), ROWS, in_turn=True),
    "mixture, generic": lambda: Case(lv.models.FiniteMixture(), ROWS, generic=True),
    "mixture of unigrams": lambda: Case(lv.models.MixtureOfUnigrams(), COUNTS),
    "independent normal": lambda: Case(lv.models.IndependentNormalMixture(), ROWS),
    "independent normal, drawn": lambda: Case(lv.models.IndependentNormalMixture(), ROWS, sampled=True),
    "hidden Markov": lambda: Case(lv.models.HiddenMarkov(), [ROWS[:4], ROWS[4:]]),
    "Poisson factorization": lambda: Case(lv.models.PoissonFactorization(), COUNTS),
    "block model": lambda: Case(lv.models.LatentBlockModel(), (ROWS > 0).astype(float), (2, 2)),
    "features": lambda: Case(lv.models.IBP(), ROWS),
    "GM-LDA": lambda: Case(lv.models.GMLDA(), PAIRS),
    "Corr-LDA": lambda: Case(lv.models.CorrLDA(), PAIRS),
    "GM-mixture": lambda: Case(lv.models.GMMixture(), PAIRS),
}


def numbers(chain: Chain, record: Recorder, state: State) -> Array:
    """What is ranked: log p(state, data), log p / q, and what is recorded in one number whatever the labels."""
    pairs = zip(record.values(chain, state), record.quantities, strict=True)
    recorded = [values[0] for values, quantity in pairs if not quantity.axes and not quantity.labelled]
    return jax.numpy.stack([chain.log_density(state)[0], chain.log_ratio(state)[0], *recorded])


def walk(chain: Chain, record: Recorder, key: Array, state: State, temperature: Array, backward: bool) -> Array:
    """(draw, number) of the DRAWS states after this one."""

    def draw(state: State, key: Array) -> tuple[State, Array]:
        def sweep(state: State, key: Array) -> tuple[State, None]:
            return chain.step(key, state, temperature, backward=backward), None

        state, _ = jax.lax.scan(sweep, state, jax.random.split(key, THIN))
        return state, numbers(chain, record, state)

    return jax.lax.scan(draw, state, jax.random.split(key, DRAWS))[1]


class Truth(NamedTuple):
    """Latents and data of one draw of the joint: state is that of the latents, a draw of the posterior."""

    chain: Chain
    record: Recorder
    state: State
    keys: Array


@cache
def truths(name: str, replicates: int) -> list[Truth]:
    case = CASES[name]()
    like = data_for(case.model, case.data).dataset()

    def truth(replicate: int) -> Truth:
        keys = jax.random.split(jax.random.key(replicate), 3)
        simulated = simulated_like(like, case.model, case.size, keys[0])
        chain = case.chain(simulated.data)
        return Truth(chain, recorder(chain, simulated.data, units=False), true_state(chain, simulated, 1), keys[1:])

    with jax.enable_x64(True):
        return [truth(replicate) for replicate in range(replicates)]


@jax.jit
def walked(truths: Truth, temperature: Array) -> tuple[Array, Array, Array]:
    """Truths side by side -> the numbers of each and, (truth, draw, number), those of a walk to either side of it."""

    def one(truth: Truth) -> tuple[Array, Array, Array]:
        chain, record, state, keys = truth
        sides = (walk(chain, record, keys[n], state, temperature, backward) for n, backward in enumerate((True, False)))
        return numbers(chain, record, state), *sides

    return jax.vmap(one)(truths)


def side_by_side(truths: list[Truth]) -> list[Truth]:
    """Those whose arrays have the same shapes together, in one call."""
    groups: dict[Any, list[Truth]] = {}
    for truth in truths:
        leaves, structure = jax.tree.flatten(truth)
        groups.setdefault((structure, *map(np.shape, leaves)), []).append(truth)
    return [jax.tree.map(lambda *leaves: jnp.stack(leaves), *group) for group in groups.values()]


def p_values(name: str, replicates: int, temperature: float = 1.0) -> np.ndarray:
    """Of the uniformity of each number's rank."""
    random, ranks = np.random.default_rng(0), []
    with jax.enable_x64(True):
        for group in side_by_side(truths(name, replicates)):
            for truth, before, after in zip(*map(np.asarray, walked(group, temperature)), strict=True):
                assert np.isfinite(truth).all()
                place = random.integers(DRAWS + 1)
                others = np.concatenate([before[:place], after[: DRAWS - place]])
                # the same state, its sums in another order
                close = np.abs(others - truth) <= 1e-9 * (1 + np.abs(truth))
                below = ((others < truth) & ~close).sum(0)
                ranks.append(below + random.integers(close.sum(0) + 1))
    assert len(ranks) == replicates
    return np.array([chisquare(np.bincount(column, minlength=DRAWS + 1)).pvalue for column in np.array(ranks).T])


@pytest.mark.slow  # in a shorter tier each chain has its exact posterior or evidence where it is made
@pytest.mark.parametrize("name", CASES)
def test_ranks_are_uniform(name: str):
    assert p_values(name, REPLICATES).min() > SMALLEST_P


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_sweeps_at_another_temperature_are_found(name: str):
    assert p_values(name, REPLICATES, WARM).min() < SMALLEST_P**2
