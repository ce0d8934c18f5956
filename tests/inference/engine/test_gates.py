"""Elements that exist only where an indicator says so: paths summed out exactly, and Gibbs with a pseudo-prior."""

from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_steps import gibbs_sweep
from scipy.special import betaln, digamma, gammaln, logsumexp

from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.gates import pseudo_prior
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.engine.meanfield import batch_bound, fit_locals
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.engine.summed_out import log_unit_summed
from lvsearch.models import HLDA
from lvsearch.models.contract import Site
from lvsearch.models.families import BetaStatistics, Gamma, Gaussian, KnownPrecisionGaussian
from lvsearch.models.units import BagOfWords

GAMMA, ALPHA, ETA = 0.7, np.array([1.5, 0.6]), np.array([0.9, 0.4])
ARGUMENTS = 2, GAMMA, ALPHA, ETA
MODEL = HLDA(*ARGUMENTS, lengths=(1, 2))
SIZE, CAPACITY, N_WORDS = (2,), (3,), 3
ENDS = ("root", 0, 1)
UNITS = BagOfWords(np.array([[0, 1, 2], [1, 0, 0]], np.int32), np.array([[2.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
BATCH = Batch(UNITS, np.ones(2))


def known_globals(rng: np.random.Generator) -> dict[str, Any]:
    """Statistics of parameters at single values, padded to the capacity."""
    stick, topics = rng.beta(1, GAMMA, SIZE), [rng.dirichlet(np.ones(N_WORDS), n) for n in (1, *SIZE)]
    return {
        "sticks_2": BetaStatistics(*(np.pad(np.log(v), (0, 1)) for v in (stick, 1 - stick))),
        "topic_word_1": np.log(topics[0][0]),
        "topic_word_2": np.pad(np.log(topics[1]), ((0, 1), (0, 0))),
        "lengths": np.log([0.3, 0.7]),
    }


KNOWN = known_globals(np.random.default_rng(0))


def lda_bound(words: np.ndarray, counts: np.ndarray, log_topics: np.ndarray, alpha: np.ndarray, sweeps: int) -> float:
    """Variational bound of one document of LDA with known topics (level, word), from uniform E[log θ] (Blei §3.4)."""
    log_theta, log_beta = np.zeros(len(alpha)), log_topics[:, words].T
    for _ in range(sweeps):
        log_phi = log_theta + log_beta
        log_phi = log_phi - logsumexp(log_phi, axis=1, keepdims=True)
        post = alpha + counts @ np.exp(log_phi)
        log_theta = digamma(post) - digamma(post.sum())
    of_words = (counts[:, None] * np.exp(log_phi) * (log_theta + log_beta - log_phi)).sum()
    prior = gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * log_theta).sum()
    entropy = gammaln(post).sum() - gammaln(post.sum()) - ((post - 1) * log_theta).sum()
    return float(of_words + prior + entropy)


@pytest.mark.thorough
def test_paths_are_summed_out_exactly(float64):
    """With known topics and sticks: log Σ_c p(c) exp(bound given c), and q(c) its terms."""
    g, sweeps = KNOWN, 7
    blank = blank_locals(MODEL, BATCH, SIZE, capacity=CAPACITY)
    l = fit_locals(MODEL, g, BATCH, blank, SIZE, capacity=CAPACITY, sweeps=sweeps)
    sticks = g["sticks_2"]
    log_leaf = [sticks.log_value[0], sticks.log_complement[0] + sticks.log_value[1]]
    log_prior = g["lengths"][0], *(g["lengths"][1] + np.array(log_leaf))
    root = g["topic_word_1"]
    for d in range(2):
        exists = UNITS.counts[d] > 0
        words, counts = UNITS.words[d][exists], UNITS.counts[d][exists]
        given = [lda_bound(words, counts, root[None], ALPHA[:1], sweeps)]
        given += [lda_bound(words, counts, np.stack([root, g["topic_word_2"][i]]), ALPHA, sweeps) for i in range(2)]
        terms = np.array(log_prior) + given
        per_unit = batch_bound(MODEL, g, BATCH, l, SIZE, capacity=CAPACITY)
        np.testing.assert_allclose(per_unit[d], logsumexp(terms), rtol=1e-12)
        np.testing.assert_allclose(l.mean["path"][d, :3], np.exp(terms - logsumexp(terms)), rtol=1e-9)


# ── Gibbs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def dirichlet_multinomial(counts: np.ndarray, alpha: np.ndarray) -> float:
    alpha = np.broadcast_to(alpha, counts.shape)
    return float(
        (gammaln(counts + alpha) - gammaln(alpha)).sum() + gammaln(alpha.sum()) - gammaln((counts + alpha).sum())
    )


def log_levels(per_level: np.ndarray, ends: tuple[Any, ...]) -> float:
    return sum(dirichlet_multinomial(n, ALPHA) for n, end in zip(per_level, ends, strict=True) if end != "root")


def log_state(ends: tuple[Any, ...], levels: tuple[int, ...], tokens: list[tuple[int, int]]) -> float:
    """log p(words, ends, levels) of the truncated tree: parameters integrated out. tokens: (document, word)."""
    below = [end for end in ends if end != "root"]
    n_root, taken = len(ends) - len(below), np.array([below.count(0), below.count(1)])
    total = betaln(1 + n_root, 1 + len(below))
    total += sum(np.log(GAMMA) + betaln(1 + taken[i], GAMMA + taken[i + 1 :].sum()) for i in range(2))
    topics = {end: np.zeros(N_WORDS) for end in ENDS}
    per_level = np.zeros((len(ends), 2))
    for (document, word), level in zip(tokens, levels, strict=True):
        topics[ends[document] if level else "root"][word] += 1
        per_level[document, level] += 1
    for end, counts in topics.items():
        total += dirichlet_multinomial(counts, ETA[0] if end == "root" else ETA[1])
    return float(total + log_levels(per_level, ends))


def log_state_known(ends: tuple[Any, ...], levels: tuple[int, ...], tokens: list[tuple[int, int]]) -> float:
    """The same with sticks, topics and lengths known: `KNOWN`."""
    total, per_level = 0.0, np.zeros((len(ends), 2))
    for end in ends:
        total += KNOWN["lengths"][int(end != "root")]
        if end != "root":
            total += KNOWN["sticks_2"].log_value[end] + KNOWN["sticks_2"].log_complement[:end].sum()
    for (document, word), level in zip(tokens, levels, strict=True):
        per_level[document, level] += 1
        total += KNOWN["topic_word_2"][ends[document], word] if level else KNOWN["topic_word_1"][word]
    return float(total + log_levels(per_level, ends))


def exact_numbers(log_state: Any) -> np.ndarray:
    """P(ends of both documents), 9 numbers; E[share of word 0 of document 0 at the root; it is in a leaf]."""
    tokens = [(d, int(w)) for d in range(2) for w in np.repeat(UNITS.words[d], UNITS.counts[d].astype(int))]
    states, at_root = {}, {}
    for ends in product(ENDS, repeat=2):
        options = [(0,) if ends[d] == "root" else (0, 1) for d, _ in tokens]
        for levels in product(*options):
            states[ends, levels] = log_state(ends, levels, tokens)
            share = [level == 0 for level, token in zip(levels, tokens, strict=True) if token == (0, 0)]
            at_root[ends, levels] = np.mean(share) * (ends[0] != "root")
    weights = np.exp(np.array(list(states.values())) - logsumexp(list(states.values())))
    paths = [sum(w for w, state in zip(weights, states, strict=True) if state[0] == e) for e in product(ENDS, repeat=2)]
    return np.array([*paths, weights @ np.array(list(at_root.values()))])


class KnownTree(HLDA):
    """Sticks, topics and lengths known: nothing is left but the documents' own sites."""

    def globals(self) -> Any:
        return {}

    def log_prior(self, g: Any, on: Any) -> Any:
        return jnp.zeros(())

    def log_unit(self, g: Any, l: Any, unit: Any, on: Any) -> Any:
        return super().log_unit(jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), KNOWN), l, unit, on)


@partial(jax.jit, static_argnames=("chains", "sweeps", "burn_in"))
def chain_averages(model: HLDA, key: Any, *, chains: int, sweeps: int, burn_in: int) -> Any:
    """(chain, number): averages over the chain of the numbers of `exact_numbers`."""
    batch = Batch(BagOfWords(jnp.asarray(UNITS.words), jnp.asarray(UNITS.counts, jnp.float32)), jnp.ones(2))
    g = {name: jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), KNOWN[name]) for name in model.globals()}

    def numbers(l: Any) -> Any:
        path = l["path"][:, :3]
        share = l["assignment_2"][0, 0, :, 0] @ l["path"][0, 1:]
        return jnp.append(jnp.outer(path[0], path[1]).ravel(), share)

    def one(chain_key: Any) -> Any:
        blank = blank_locals(model, batch, SIZE, capacity=CAPACITY).mean
        state = GibbsState(g, ({**blank, "path": jnp.tile(jnp.array([1.0, 0.0, 0.0, 0.0]), (2, 1))},))

        def step(state: GibbsState, step_key: Any) -> tuple[GibbsState, Any]:
            state = gibbs_sweep(model, step_key, state, (batch,), (jnp.arange(2),), SIZE, capacity=CAPACITY)
            return state, numbers(state.locals[0])

        return jax.lax.scan(step, state, jax.random.split(chain_key, sweeps))[1][burn_in:].mean(0)

    return jax.vmap(one)(jax.random.split(key, chains))


def z_against(averages: Any, log_state: Any) -> np.ndarray:
    """One independent average a chain: no autocorrelation to estimate. 10 numbers, |z| < 4.5: false alarms < 1e-4."""
    averages = np.asarray(averages, np.float64)
    error = averages.std(0, ddof=1) / np.sqrt(len(averages))
    return np.abs(averages.mean(0) - exact_numbers(log_state)) / error


@pytest.mark.slow
def test_gibbs_equals_enumeration():
    """Paths of two lengths, so that the pseudo-priors of levels do not cancel: a chain that forgets them targets
    another posterior, from which this one is told apart."""

    def forgetful(ends: tuple[Any, ...], levels: tuple[int, ...], tokens: list[tuple[int, int]]) -> float:
        return log_state_known(ends, levels, tokens) - np.log(2.0) * sum(ends[d] != "root" for d, _ in tokens)

    tree = KnownTree(*ARGUMENTS, lengths=(1, 2))
    averages = chain_averages(tree, jax.random.key(0), chains=300, sweeps=40, burn_in=20)
    assert z_against(averages, log_state_known).max() < 4.5
    assert z_against(averages, forgetful).max() > 3 * 4.5


@pytest.mark.slow
def test_gibbs_of_a_whole_tree_equals_enumeration():
    averages = chain_averages(MODEL, jax.random.key(0), chains=300, sweeps=250, burn_in=100)
    assert z_against(averages, log_state).max() < 4.5


@pytest.mark.parametrize("family", [Gaussian(), Gamma(), KnownPrecisionGaussian(2.0)], ids=lambda f: type(f).__name__)
def test_families_without_a_pseudo_prior(family):
    gate = MODEL.locals()["assignment_2"].gate
    with pytest.raises(ValueError, match="constant density"):
        pseudo_prior("x", Site(family, ("end_2",), gate=gate), jnp.zeros(2))


# ── summed out ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_levels_are_summed_out_along_the_path_taken(float64):
    """log p(words, path, θ) by hand; the levels of the other ends add nothing."""
    g, theta = KNOWN, np.array([0.3, 0.7])
    unit, on = jax.tree.map(lambda x: jnp.asarray(x[0]), UNITS), MODEL.active(SIZE, CAPACITY)
    blank = jax.tree.map(lambda x: np.asarray(x)[0], blank_locals(MODEL, BATCH, SIZE, capacity=CAPACITY).mean)
    l = {**blank, "path": np.array([0.0, 0.0, 1.0, 0.0]), "proportions_2": np.log(np.tile(theta, (3, 1)))}
    summed = jax.jit(lambda l: log_unit_summed(MODEL, g, l, unit, on, ("assignment_1", "assignment_2")))
    total, means = jax.tree.map(np.asarray, summed(l))
    of_level = theta[:, None] * np.exp([g["topic_word_1"], g["topic_word_2"][1]])
    log_prior = gammaln(ALPHA.sum()) - gammaln(ALPHA).sum() + (ALPHA - 1) @ np.log(theta)
    log_path = g["lengths"][1] + g["sticks_2"].log_complement[0] + g["sticks_2"].log_value[1]
    expected = log_path + log_prior + UNITS.counts[0] @ np.log(of_level.sum(0)[UNITS.words[0]])
    np.testing.assert_allclose(total, expected, rtol=1e-12)
    posterior = of_level / of_level.sum(0)
    np.testing.assert_allclose(means["assignment_2"][:2, 1], posterior[:, UNITS.words[0, :2]].T, rtol=1e-12)
    with pytest.raises(ValueError, match="together with 'path'"):
        log_unit_summed(MODEL, g, l, unit, on, ("assignment_2", "path"))
