"""The annealed path of mixtures with weights and parameters integrated out, against all K^N labellings.

False alarms. Keys are fixed: a test always passes or always fails. Over keys, each z below is normal to good
approximation, and |z| < 4.5 for the at most 2,000 transition probabilities of a test fails by chance in fewer than 2 of
100 keys; the averages of AIS weights are one z each.
"""

from functools import cache, partial
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import partition_oracles as exact
import pytest
from compiled import Compiled
from mixture_cases import BERNOULLI, CASES, DIAGONAL, Kind
from scipy.special import gammaln, logsumexp

from lvsearch.inference.annealing import particles as annealing
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.models import FiniteMixture, Row
from lvsearch.models.components import BernoulliComponents

CONCENTRATION = 0.8
Z_LIMIT = 4.5
pytestmark = pytest.mark.usefixtures("float64")
kinds = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.name)


def chain_of(kind: Kind, n: int, size: int, capacity: int) -> CollapsedMixtureChain:
    data = mixture_cases.dataset(kind.rows[:n])
    return CollapsedMixtureChain.from_data(FiniteMixture(kind.component, CONCENTRATION), data, size, capacity)


def all_labels(n: int, size: int) -> np.ndarray:
    """(row, labelling)"""
    return np.array(list(product(range(size), repeat=n)), np.int32).T


def padded(labels: np.ndarray, chain: CollapsedMixtureChain) -> Any:
    """Rows of padding are labelled too, which must not matter: with the last component."""
    n_more = len(chain.weight) - len(labels)
    return jnp.asarray(np.pad(labels, [(0, n_more), (0, 0)], constant_values=int(chain.size) - 1))


def log_likelihoods(kind: Kind, n: int, size: int) -> np.ndarray:
    """log p(rows | labels) of every labelling."""
    group = cache(lambda members: kind.log_marginal(kind.rows[list(members)]))
    every = all_labels(n, size).T
    groups = [[tuple(np.flatnonzero(one == k).tolist()) for k in range(size)] for one in every]
    return np.array([sum(group(members) for members in one if members) for one in groups])


def log_priors(n: int, size: int) -> np.ndarray:
    counts = np.array([np.bincount(one, minlength=size) for one in all_labels(n, size).T])
    each = (gammaln(CONCENTRATION + counts) - gammaln(CONCENTRATION)).sum(1)
    return each + gammaln(size * CONCENTRATION) - gammaln(size * CONCENTRATION + n)


@partial(jax.jit, static_argnames="backward")
def step(chain: Any, key: Any, state: Any, temperature: Any, backward: bool = False) -> Any:
    return chain.step(key, state, temperature, backward=backward)


# ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", mixture_cases.TWO_KINDS)
def test_densities_of_all_labellings(kind):
    """log p(rows | z) and log p(rows, z), three of four places in use, rows of padding in one of them."""
    n, size = 5, 3
    chain = chain_of(kind, n, size, 4)
    labels = padded(all_labels(n, size), chain)
    chain = Compiled(chain)
    state = chain.state_from_labels(labels)
    likelihood = log_likelihoods(kind, n, size)
    np.testing.assert_allclose(chain.log_ratio(state), likelihood, rtol=0, atol=1e-9)
    np.testing.assert_allclose(chain.log_density(state), likelihood + log_priors(n, size), rtol=0, atol=1e-9)
    evidence = exact.log_evidence(
        kind.rows[:n],
        kind.log_marginal,
        partial(exact.log_finite_prior, n_components=size, concentration=CONCENTRATION),
    )
    assert logsumexp(np.asarray(chain.log_density(state))) == pytest.approx(evidence, abs=1e-9)
    assert chain.label_scores(state) is None


@pytest.mark.thorough
def test_padding_contributes_nothing():
    """Rows of weight 0, whatever they hold, and places beyond the size: the same densities and the same draws."""
    chain = chain_of(DIAGONAL, 5, 3, 4)
    wider = chain_of(DIAGONAL, 5, 3, 6)
    (batch,) = mixture_cases.dataset(DIAGONAL.rows[:5]).batches
    real = np.asarray(batch.weight) > 0
    odd = Row(np.where(real[:, None], batch.units.value, 99.0), batch.units.observed | ~real[:, None])
    data = Dataset.of_batches((Batch(odd, batch.weight),), (np.where(real, np.arange(8), -1),), {"dim": 2}, 5)
    disturbed = CollapsedMixtureChain.from_data(FiniteMixture(DIAGONAL.component, CONCENTRATION), data, 3, 4)
    labels, key = padded(all_labels(5, 3), chain), jax.random.key(1)
    begun = [Compiled(one).state_from_labels(labels) for one in (chain, wider, disturbed)]
    moved = [step(one, key, state, 0.4) for one, state in zip((chain, wider, disturbed), begun, strict=True)]
    chain, wider, disturbed = map(Compiled, (chain, wider, disturbed))
    for state, new, one in zip(begun[1:], moved[1:], (wider, disturbed), strict=True):
        np.testing.assert_allclose(one.log_density(state), chain.log_density(begun[0]), rtol=1e-13)
        np.testing.assert_array_equal(new.labels[:5], moved[0].labels[:5])
        np.testing.assert_allclose(one.log_density(new), chain.log_density(moved[0]), rtol=1e-13)
    others = chain.state_from_labels(jnp.where(real[:, None], labels, 0))
    np.testing.assert_array_equal(chain.log_density(others), chain.log_density(begun[0]))
    assert int(moved[1].labels.max()) == 2


def test_one_program_serves_every_size():
    chains = [chain_of(DIAGONAL, 5, size, 4) for size in (1, 2, 4)]
    states = [jax.jit(CollapsedMixtureChain.init, static_argnums=2)(c, jax.random.key(0), 50) for c in chains]
    before = step._cache_size()
    for chain, state in zip(chains, states, strict=True):
        new = step(chain, jax.random.key(1), state, 0.5)
        assert int(new.labels.max()) < int(chain.size)
    assert step._cache_size() - before <= 1


# ── draws ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def conditional_matrices(log_target: np.ndarray, n: int, size: int) -> list[np.ndarray]:
    """For each row the matrix (labelling, labelling) that draws it anew from its conditional under the target."""
    every = all_labels(n, size).T
    matrices = []
    for row in range(n):
        same = (np.delete(every, row, 1)[:, None] == np.delete(every, row, 1)[None]).all(-1)
        weight = np.where(same, np.exp(log_target - log_target.max()), 0.0)
        matrices.append(weight / weight.sum(1, keepdims=True))
    return matrices


def z_of_transitions(
    chain: Any, n: int, size: int, temperature: float, sweep: np.ndarray, backward: bool, repeats: int
) -> float:
    """The largest |z| of the frequencies with which each labelling leads to each other one in one sweep."""
    start = chain.state_from_labels(padded(np.repeat(all_labels(n, size), repeats, axis=1), chain))
    labels = np.asarray(step(chain, jax.random.key(7), start, temperature, backward).labels)[:n]
    code = (labels * size ** np.arange(n)[::-1, None]).sum(0).reshape(-1, repeats)
    frequency = np.stack([np.bincount(one, minlength=len(sweep)) for one in code]) / repeats
    usual = sweep * repeats > 10  # rarer ones are not normal
    error = np.where(usual, np.sqrt(sweep * (1 - sweep) / repeats), np.inf)
    return float(np.abs((frequency - sweep) / error).max())


def check_transitions(kind: Kind, temperature: float, repeats: int) -> None:
    n, size = 3, 3
    chain = chain_of(kind, n, size, 4)
    target = log_priors(n, size) + temperature * log_likelihoods(kind, n, size)
    matrices = conditional_matrices(target, n, size)
    for backward in (False, True):
        sweep = np.linalg.multi_dot(matrices[::-1] if backward else matrices)
        np.testing.assert_allclose(np.exp(target) @ sweep, np.exp(target), rtol=1e-10)
        z = partial(z_of_transitions, chain, n, size, sweep=sweep, repeats=repeats)
        assert z(temperature, backward=backward) < Z_LIMIT
        assert z(1.0, backward=backward) > Z_LIMIT  # without the power t
        assert z(temperature, backward=not backward) > Z_LIMIT  # in the other order


@pytest.mark.slow  # the sweep about a labelling, below, is in a shorter tier
def test_sweep_draws_from_the_tempered_conditionals():
    """One sweep's transition matrix is the product of the enumerated conditionals of π_t, in the order of the sweep:
    so it leaves π_t as it is, and backward is the time reversal of forward."""
    check_transitions(DIAGONAL, 0.3, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.3, 0.7])
@kinds
def test_sweep_draws_from_the_tempered_conditionals_of_every_kind(kind, temperature):
    check_transitions(kind, temperature, 6000)


@pytest.mark.thorough
def test_first_draws_have_the_prior_of_labels():
    n, size, draws = 4, 3, 40_000
    chain = chain_of(BERNOULLI, n, size, 5)
    labels = np.asarray(jax.jit(CollapsedMixtureChain.init, static_argnums=2)(chain, jax.random.key(2), draws).labels)
    code = (labels[:n] * size ** np.arange(n)[::-1, None]).sum(0)
    frequency, probability = np.bincount(code, minlength=size**n) / draws, np.exp(log_priors(n, size))
    z = (frequency - probability) / np.sqrt(probability * (1 - probability) / draws)
    assert np.abs(z).max() < Z_LIMIT


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@partial(jax.jit, static_argnames=("particles", "backward"))
def annealed(chain: Any, key: Any, state: Any, temperatures: Any, particles: int, backward: bool) -> Any:
    """log weights (particle,) of annealed importance sampling, from the prior, or back to it from `state`."""
    begin = chain.init(jax.random.fold_in(key, 0), particles) if state is None else state

    def one(carry: Any, ends: Any) -> Any:
        state, log_weight, index = carry
        fold = jax.random.fold_in(key, index)
        now, then = ends
        log_weight = log_weight + (then - now) * chain.log_ratio(state)
        return (chain.step(fold, state, then, backward=backward), log_weight, index + 1), None

    ends = temperatures[:-1], temperatures[1:]
    return jax.lax.scan(one, (begin, jnp.zeros(particles), 1), ends)[0][1]


def z_of_evidence(kind: Kind, n: int, size: int, seeds: int, particles: int = 20) -> tuple[float, float]:
    """z of the average weight over its expectation, from the prior and from exact posterior draws."""
    chain = chain_of(kind, n, size, 4)
    log_target = log_priors(n, size) + log_likelihoods(kind, n, size)
    evidence = logsumexp(log_target)
    rng = np.random.default_rng(5)
    drawn = rng.choice(len(log_target), (seeds * particles,), p=np.exp(log_target - evidence))
    posterior = Compiled(chain).state_from_labels(padded(all_labels(n, size)[:, drawn], chain))
    up, many = np.linspace(0, 1, 9) ** 2, seeds * particles
    forward = annealed(chain, jax.random.key(3), None, up, many, False)
    back = annealed(chain, jax.random.key(4), posterior, up[::-1].copy(), many, True)
    ratios = np.exp(np.asarray(forward) - evidence), np.exp(np.asarray(back) + evidence)
    zs = [(r.reshape(seeds, -1).mean(1) - 1) for r in ratios]
    return tuple(float(z.mean() / (z.std(ddof=1) / np.sqrt(seeds))) for z in zs)


@pytest.mark.slow  # the path about a labelling, below, is in a shorter tier
@pytest.mark.parametrize("kind", [DIAGONAL], ids=lambda kind: kind.name)
def test_annealing_has_the_exact_evidence(kind):
    """E[weight] = evidence from the prior, and E[weight back] = 1 / evidence from the posterior."""
    assert np.abs(z_of_evidence(kind, 6, 3, 40)).max() < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@kinds
def test_annealing_has_the_exact_evidence_of_every_kind(kind, size):
    assert np.abs(z_of_evidence(kind, 7, size, 400)).max() < Z_LIMIT


# ── the path about one labelling ────────────────────────────────────────────────────────────────────────────────────


def about_labels(kind: Kind, n: int, size: int, capacity: int = 4) -> tuple[CollapsedMixtureChain, np.ndarray]:
    """(A chain whose q leans to one labelling, the path from the prior's; log q of every labelling, nats)."""
    chain = chain_of(kind, n, size, capacity)
    lean = np.random.default_rng(8).dirichlet(np.full(size, 0.6), len(chain.weight))
    log_lean = np.full((len(lean), capacity), -np.inf)
    log_lean[:, :size] = np.log(0.9 * lean + 0.1 / size)
    anchored = eqx.tree_at(lambda c: c.anchor, chain, log_lean, is_leaf=lambda leaf: leaf is None)
    labels = all_labels(n, size)
    return anchored, np.take_along_axis(log_lean[:n], labels, axis=1).sum(0)


@pytest.mark.thorough
def test_sweep_about_a_labelling_draws_from_the_tempered_conditionals():
    n, size, temperature = 3, 3, 0.4
    chain, log_q = about_labels(DIAGONAL, n, size)
    log_p = log_priors(n, size) + log_likelihoods(DIAGONAL, n, size)
    state = Compiled(chain).state_from_labels(padded(all_labels(n, size), chain))
    np.testing.assert_allclose(Compiled(chain).log_ratio(state), log_p - log_q, rtol=0, atol=1e-9)
    matrices = conditional_matrices((1 - temperature) * log_q + temperature * log_p, n, size)
    for backward in (False, True):
        sweep = np.linalg.multi_dot(matrices[::-1] if backward else matrices)
        z = partial(z_of_transitions, chain, n, size, sweep=sweep, repeats=1000, backward=backward)
        assert z(temperature) < Z_LIMIT
        assert z(0.9) > Z_LIMIT


def test_renamed_states_are_scored_as_what_they_are():
    n, size = 4, 3
    chain, _ = about_labels(DIAGONAL, n, size)
    labels = padded(all_labels(n, size), chain)
    chain = Compiled(chain)
    state = chain.state_from_labels(labels)
    scores = np.asarray(chain.label_scores(state))
    order = np.array([2, 0, 1, 3])
    renamed = chain.relabel(state, jnp.broadcast_to(jnp.asarray(order), (state.labels.shape[1], 4)))
    np.testing.assert_array_equal(renamed.labels[:n], order[np.asarray(state.labels[:n])])
    log_q = np.asarray(chain.log_density(renamed) - chain.log_ratio(renamed))
    np.testing.assert_allclose(scores[:, order[:3], np.arange(3)].sum(1), log_q, rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_annealing_about_a_labelling_has_the_exact_evidence(seeds):
    """All labellings counted, though q knows one: E[p̂] = p(rows) forwards, 1 / p(rows) back from posterior draws."""
    n, size, particles = 5, 3, 10
    chain, _ = about_labels(DIAGONAL, n, size)
    log_target = log_priors(n, size) + log_likelihoods(DIAGONAL, n, size)
    evidence = logsumexp(log_target)
    up = np.linspace(0, 1, 7)[1:]
    there = annealing.forward(chain, jax.random.key(3), up, islands=seeds, particles=particles)
    rng = np.random.default_rng(5)
    drawn = rng.choice(len(log_target), (seeds * particles,), p=np.exp(log_target - evidence))
    posterior = Compiled(chain).state_from_labels(padded(all_labels(n, size)[:, drawn], chain))
    back = annealing.backward(chain, jax.random.key(4), posterior, up, islands=seeds)
    assert there.labelled
    for ratio in (np.exp(there.log_evidence - evidence), np.exp(evidence - back.log_evidence)):
        assert abs(ratio.mean() - 1) < Z_LIMIT * ratio.std(ddof=1) / np.sqrt(seeds)


# ── the border ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_has_no_path_is_refused():
    data = mixture_cases.dataset(BERNOULLI.rows)
    with pytest.raises(ValueError, match="nothing is integrated out"):
        CollapsedMixtureChain.from_data(FiniteMixture(BernoulliComponents()).plug_in(), data, 2, 2)
    with pytest.raises(ValueError, match="capacity"):
        CollapsedMixtureChain.from_data(FiniteMixture(BernoulliComponents()), data, 3, 2)
    twice = Dataset.of_batches(
        tuple(b._replace(weight=2 * b.weight) for b in data.batches), data.unit_ids, data.extents, 7
    )
    with pytest.raises(ValueError, match="weight"):
        CollapsedMixtureChain.from_data(FiniteMixture(BernoulliComponents()), twice, 2, 2)
    with pytest.raises(ValueError, match="0 or 1 in every cell"):
        CollapsedMixtureChain.from_data(
            FiniteMixture(BernoulliComponents()), mixture_cases.dataset(DIAGONAL.rows), 2, 2
        )
