"""The direct-assignment samplers of HDPs on enumerable data: exact, and seen to be inexact with a planted bug.

Seeds are fixed; |z| below 4.5 for at most 20 numbers is a false-alarm rate below 1.4e-4.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import hdp_oracles
import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.rows import groups_of_rows
from lvsearch.inference.hdp import direct_assignment, franchise, gibbs, group_direct_assignment
from lvsearch.inference.hdp.gibbs import row_emission
from lvsearch.inference.hdp.sampler import FranchiseSampler, states_of_partitions
from lvsearch.inference.topic_samplers.collapsed import Tokens, expand
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.units import Row

Z_LIMIT = 4.5
COUNTS = np.array([[2, 1, 0], [0, 1, 0], [1, 0, 1]])
ETA, GAMMA, ALPHA = 0.4, 1.3, 0.8
SHARP = HDP(ETA, GAMMA, ALPHA)


def tokens_of(counts: np.ndarray) -> Tokens:
    return Tokens(*(jnp.asarray(leaf) for leaf in expand(documents(csr_array(counts.astype(np.int32))))))


# ── the exact posterior ─────────────────────────────────────────────────────────────────────────────────────────────


def statistics(z: Any) -> Any:
    """How many topics (indicators of 1, 2, 3), and for each pair of tokens whether they share one."""
    n = len(z)
    same = z[:, None] == z
    earlier = jnp.tril(jnp.ones((n, n), bool), -1)
    n_topics = (~(same & earlier).any(1)).sum()
    pairs = same[jnp.triu_indices(n, 1)]
    return jnp.concatenate([n_topics == jnp.arange(1, 4), pairs]).astype(jnp.float32)


ROWS, GROUP_SIZES = cases.DIAGONAL.rows[:5], (2, 1, 2)
OF_ROWS = HDPMixture(cases.DIAGONAL.component, GAMMA, ALPHA)


def topics() -> tuple[HDP, Any, np.ndarray, dict]:
    """(model, what members say, unit of each, exact posterior) of the words of documents."""
    tokens = tokens_of(COUNTS)
    joint = hdp_oracles.posterior(COUNTS, ETA, hdp_oracles.known(GAMMA), hdp_oracles.known(ALPHA))
    return SHARP, gibbs.word_counts(SHARP, tokens, COUNTS.shape[1]), np.asarray(tokens.document), joint


def topics_of_a_prior() -> tuple[HDP, Any, np.ndarray, dict]:
    """Of the words again, γ from almost 0 to 10: where the order of a sweep's draws matters."""
    prior = GammaPrior(0.5, 0.3)
    model, tokens = HDP(ETA, prior, ALPHA), tokens_of(COUNTS)
    joint = hdp_oracles.posterior(COUNTS, ETA, hdp_oracles.gamma_grid(0.5, 0.3), hdp_oracles.known(ALPHA))
    return model, gibbs.word_counts(model, tokens, COUNTS.shape[1]), np.asarray(tokens.document), joint


def groups() -> tuple[HDPMixture, Any, np.ndarray, dict]:
    """The same of rows in groups, some of their cells missing."""
    members = OF_ROWS.members(Row(np.nan_to_num(ROWS), ~np.isnan(ROWS)))
    likelihood = hdp_oracles.row_likelihood(ROWS, cases.DIAGONAL.log_marginal)
    joint = hdp_oracles.posterior_of(GROUP_SIZES, likelihood, hdp_oracles.known(GAMMA), hdp_oracles.known(ALPHA))
    unit_of = np.repeat(np.arange(3, dtype=np.int32), GROUP_SIZES)
    return OF_ROWS, row_emission(OF_ROWS, members), unit_of, joint


def chain_z(problem: Any, sweeps: int, n_chains: int = 1500) -> np.ndarray:
    """|z| of averages over independent chains, their first quarter left out."""
    model, emission, unit_of, joint = problem()
    log_joint = np.array(list(joint.values()))
    each = np.array([np.asarray(statistics(jnp.array(labels))) for labels in joint])
    exact = np.exp(log_joint - logsumexp(log_joint)) @ each

    def one(key: Any) -> Any:
        def swept(state: Any, number: Any, adding: bool) -> Any:
            k = jax.random.fold_in(key, number)
            return franchise.sweep(model, state, jnp.asarray(unit_of), emission, k, adding=adding)

        def step(state: Any, number: Any) -> Any:
            state = swept(state, number, False)
            return state, statistics(state.assignments)

        empty = franchise.empty_state(len(unit_of), 3, emission, 8, GAMMA, ALPHA)
        visited = jax.lax.scan(step, swept(empty, 0, True), jnp.arange(1, sweeps + 1))[1]
        return visited[sweeps // 4 :].mean(0)

    means = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), n_chains)), np.float64)
    error = np.sqrt(means.var(0, ddof=1) / n_chains)
    return np.abs(means.mean(0) - exact) / np.maximum(error, 1e-9)


@pytest.mark.parametrize(
    ("problem", "n_chains"),
    [
        pytest.param(topics, 1500, marks=pytest.mark.slow),
        pytest.param(topics_of_a_prior, 1500, marks=pytest.mark.slow),
        # the number of topics with γ drawn is compared in the fast tier by test_occupied.py
        pytest.param(topics_of_a_prior, 500, marks=pytest.mark.slow),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_the_chain_of_topics_has_the_exact_posterior(problem, n_chains):
    """Number of topics and co-assignments over all seatings of the franchise, γ known and drawn."""
    assert chain_z(problem, 60, n_chains).max() < Z_LIMIT


@pytest.mark.slow
def test_the_chain_of_groups_has_the_exact_posterior(float64):
    assert chain_z(groups, 60, 800).max() < Z_LIMIT


@pytest.mark.slow
def test_the_exact_posterior_finds_weights_of_another_gamma(monkeypatch):
    """The planted bug: weights drawn given the concentration that the sweep began with."""
    right = franchise.draw_concentration

    def drawn_late(key: Any, prior: Any, now: Any, n_tables: Any, customers: Any) -> Any:
        new = right(key, prior, now, n_tables, customers)
        return Late(now, new) if isinstance(prior, GammaPrior) else new

    class Late(NamedTuple):
        before: Any
        after: Any

    def weights(key: Any, tables: Any, gamma: Late) -> Any:
        return right_weights(key, tables, gamma.before)

    right_weights, sweep = franchise.draw_weights, franchise.sweep

    def swept(*arguments: Any, adding: bool) -> Any:
        state = sweep(*arguments, adding=adding)
        return state._replace(gamma=state.gamma.after)

    monkeypatch.setattr(franchise, "draw_concentration", drawn_late)
    monkeypatch.setattr(franchise, "draw_weights", weights)
    monkeypatch.setattr(franchise, "sweep", swept)
    assert chain_z(topics_of_a_prior, 60).max() > 1.5 * Z_LIMIT


@pytest.mark.slow
def test_the_exact_posterior_finds_tables_that_are_tokens(monkeypatch):
    """The planted bug: shared weights from members instead of tables."""

    def every_member(state: Any, unit_of: Any, uniforms: Any) -> Any:
        return state.total

    monkeypatch.setattr(franchise, "draw_tables", every_member)
    assert chain_z(topics, 60).max() > 1.5 * Z_LIMIT
    with jax.enable_x64(True):
        assert chain_z(groups, 60).max() > 1.5 * Z_LIMIT


@pytest.mark.thorough
@pytest.mark.parametrize("labels", [pytest.param((0,) * 6, marks=pytest.mark.slow), (0, 1, 1, 0, 0, 1)])
def test_the_density_of_a_state_is_that_of_its_partition(labels):
    """Weights of one and of two parts integrated out by quadrature: the joint of the seatings, summed over tables."""
    data = documents(csr_array(COUNTS.astype(np.int32)))
    members, labels = gibbs.words_of(SHARP, data), np.array([labels])
    n_parts, n = labels.max() + 1, 100
    shares = 0.5 - 0.5 * np.cos(np.pi * (np.arange(n) + 0.5) / n)  # Chebyshev's nodes: the density rises at both ends
    width = 0.5 * np.pi / n * np.sin(np.pi * (np.arange(n) + 0.5) / n)
    first, second = (axis.ravel() for axis in np.meshgrid(shares, shares))
    weights = np.stack([first, (1 - first) * second], 1) if n_parts == 2 else shares[:, None]
    area = np.outer(width, width).ravel() * (1 - first) if n_parts == 2 else width
    n_points = len(area)
    begin = states_of_partitions(SHARP, np.repeat(labels, n_points, axis=0))
    begin = begin._replace(weight=weights[:, labels[0]], left=1 - weights.sum(1))
    with jax.enable_x64(True):
        sampler = FranchiseSampler.from_members(SHARP, members, begin)
        density = np.asarray(jax.jit(lambda s: s.log_density(s.init(jax.random.key(0), n_points)))(sampler))
    exact = topics()[3][tuple(labels[0].tolist())]
    in_use = weights.sum(1)
    area = area / ((1 - in_use) * in_use ** (n_parts - 1))  # from the coordinates of the density to the weights
    assert logsumexp(density, b=area) == pytest.approx(exact, abs=1e-3)


@cache
def drawn(draws: int, after: Any = None) -> Any:
    settings = {"chains": 4, "warmup": 40, "thin": 3, "seed": 1, "units": True, "progress": False}
    return lv.sample(HDP(ETA, GammaPrior(0.5, 0.3), ALPHA), COUNTS, draws=draws, after=after, **settings)


@pytest.mark.slow
def test_draws_of_a_process_of_topics_are_exact():
    """`lv.sample` from starts far apart: how many topics, and how large the largest is; R̂ and effective draws."""
    trace, joint = drawn(1200), topics_of_a_prior()[3]
    log_joint = np.array(list(joint.values()))
    found = np.array([(max(z) + 1, np.bincount(z).max()) for z in joint])
    exact = np.exp(log_joint - logsumexp(log_joint)) @ found
    for name, mean in zip(("occupied", "largest"), exact.tolist(), strict=True):
        row = trace.diagnostics().loc[name]
        assert abs(row["mean"] - mean) < Z_LIMIT * row["standard_error"]
        assert row["effective_sample_size"] > 200
        assert row["rhat"] < 1.02
    assert trace.agree
    assert trace.names == ("occupied", "largest", "corpus_concentration", "topic")
    assert trace["topic"].shape == (4, 1200, COUNTS.sum())


@pytest.mark.slow
def test_draws_of_a_process_of_topics_go_on():
    """More topics than places in between: the same bits as in one run."""
    whole, again = drawn(1200), drawn(1200, after=drawn(70))
    for name in ("log_density", *whole.names):
        np.testing.assert_array_equal(whole[name], again[name])
    for one, other in zip(whole.state, again.state, strict=True):
        np.testing.assert_array_equal(one, other)


# ── counts, keys, borders ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def data() -> Any:
    return documents(csr_array(np.random.default_rng(0).poisson(0.7, (9, 11)).astype(np.int32)))


@pytest.fixture(scope="module")
def sample(data: Any) -> Any:
    return direct_assignment(HDP(0.2), data, sweeps=4, key=jax.random.key(3))


@pytest.mark.thorough
def test_counts_are_those_of_the_assignments(data, sample):
    tokens, z = expand(data), sample.assignments
    counted = np.zeros_like(sample.topic_word)
    np.add.at(counted, (z, tokens.word), 1)
    np.testing.assert_array_equal(sample.topic_word, counted)
    assert sample.document_topic.sum() == len(z)
    assert (np.diff(counted.sum(1)) <= 0).all()
    assert sample.occupied[-1] == len(sample.beta) == len(np.unique(z))
    assert 0 < sample.beta.sum() < 1
    np.testing.assert_allclose(sample.topics().sum(1), 1)
    assert len(sample.occupied) == len(sample.gammas) == 4


@pytest.mark.thorough
def test_a_sample_scores_documents(data, sample):
    counts = csr_array(np.eye(11, dtype=np.int32)[:3])
    topics, key = sample.topics(), jax.random.key(0)
    found = lv.inference.document_likelihood(topics, sample.alpha, counts, method="exact", key=key)
    shares = sample.alpha / sample.alpha.sum()
    np.testing.assert_allclose(found.log_likelihood, np.log(shares @ sample.topics())[:3], rtol=1e-5)


@pytest.mark.slow
def test_more_topics_than_places_are_found_places(monkeypatch, data):
    """A sweep that runs out of places is made again with more, and no draw depends on how many there are."""
    model, roomy = HDP(0.2, 8.0, 5.0), direct_assignment(HDP(0.2, 8.0, 5.0), data, sweeps=2, key=jax.random.key(0))
    monkeypatch.setattr(gibbs, "FIRST_TOPIC_CAPACITY", 2)
    found = direct_assignment(model, data, sweeps=2, key=jax.random.key(0))
    assert found.occupied.max() > 2
    assert found.topic_word.sum() == len(found.assignments)
    for one, other in zip(found.trace.state, roomy.trace.state, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.thorough
def test_a_chain_goes_on(data, sample):
    more = direct_assignment(HDP(0.2), data, sweeps=2, key=jax.random.key(3), start=sample)
    whole = direct_assignment(HDP(0.2), data, sweeps=6, key=jax.random.key(3))
    for one, other in zip(more.trace.state, whole.trace.state, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(more.occupied[:4], sample.occupied)
    np.testing.assert_array_equal(more.trace.log_density, whole.trace.log_density)


@pytest.mark.thorough
def test_bad_input_is_refused(data, sample):
    with pytest.raises(ValueError, match="got sweeps=0"):
        direct_assignment(HDP(0.2), data, sweeps=0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="got a start from other documents"):
        direct_assignment(HDP(0.2), documents(csr_array(COUNTS)), sweeps=1, key=jax.random.key(0), start=sample)


# ── groups of rows ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def of_groups() -> Any:
    """41 rows in three far clusters and four groups, one of them empty."""
    rows = cases.clusters()
    data = groups_of_rows(rows, np.ones(rows.shape, bool), np.array([15, 0, 1, 25]))
    model = HDPMixture(lv.models.DiagonalComponents.scaled_to(rows))
    return partial(group_direct_assignment, model, data, key=jax.random.key(1))


@pytest.mark.slow
def test_a_chain_of_groups_goes_on(of_groups):
    """Sums are those of the assignments; the chain continued is the chain."""
    sample = of_groups(sweeps=6, keep=2)
    assert sample.occupied[-1] == len(sample.beta) >= 3
    assert sample.kept.shape == (3, 41)
    np.testing.assert_array_equal(sample.group_component.sum(1), [15, 0, 1, 25])
    np.testing.assert_array_equal(sample.group_component.sum(0), np.bincount(sample.assignments))
    pseudo_counts = sample.natural[3][:, 0]  # κ of each component's posterior
    np.testing.assert_allclose(pseudo_counts, 0.1 + sample.group_component.sum(0), rtol=1e-9)
    more = of_groups(sweeps=2, keep=2, start=sample)
    np.testing.assert_array_equal(more.occupied[:6], sample.occupied)
    assert len(more.kept) == 4
    with pytest.raises(ValueError, match="got sweeps=0"):
        of_groups(sweeps=0)
    model, _ = of_groups.args
    other = groups_of_rows(cases.clusters(), np.ones((41, 2), bool), np.array([41]))
    with pytest.raises(ValueError, match="got a start from other groups"):
        group_direct_assignment(model, other, key=jax.random.key(1), sweeps=1, start=sample)


@pytest.mark.slow
def test_more_components_than_places_are_found_places(of_groups, monkeypatch):
    """A sweep that runs out of places is made again with more."""
    monkeypatch.setattr("lvsearch.inference.hdp.gibbs.FIRST_COMPONENT_CAPACITY", 2)
    sample = of_groups(sweeps=3)
    assert sample.occupied.max() >= 3
    np.testing.assert_array_equal(sample.group_component.sum(1), [15, 0, 1, 25])
