"""Hierarchical LDA by collapsed Gibbs sampling: densities, conditionals and chains against enumeration."""

from collections import Counter
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
import tree_oracles as oracle
from scipy.sparse import csr_array
from scipy.special import gammaln
from scipy.stats import chisquare, gamma

import lvsearch as lv
from lvsearch.inference.compiles import compiles, compiles_since
from lvsearch.inference.diagnostics import mean_effective_sample_size
from lvsearch.inference.sampling import run
from lvsearch.inference.trees import (
    Allocation,
    GEMLevels,
    TreeCorpus,
    TreePriors,
    TreeSampler,
    agglomerated_start,
    draw_corpus,
    draw_paths,
    draw_start,
    log_joint,
    merge_siblings,
    run_chain,
    sample_tree,
    settle_levels,
    tree_hyper,
)
from lvsearch.inference.trees.corpus import canonical
from lvsearch.inference.trees.density import log_paths
from lvsearch.inference.trees.sampler import TreeRecorder
from lvsearch.inference.trees.updates import positive_draw
from lvsearch.models.hlda import HLDA
from lvsearch.models.hyperpriors import GammaPrior

DOCUMENTS = ((0, 2, 0), (2,), (1, 0))
N_WORDS, WIDTH = 4, 16
DIRICHLET = tree_hyper(3, 0.7, (1.5, 0.6, 2.0), (0.9, 0.3, 0.5))
GEM = tree_hyper(3, 0.7, GEMLevels(0.4, 1.7, 3), (0.9, 0.3, 0.5))
HYPERS = pytest.mark.parametrize("hyper", [DIRICHLET, GEM], ids=["Dirichlet", "GEM"])
SMALLEST_P = 1e-5


def counts_of(dense: Any) -> csr_array:
    return canonical(csr_array(np.array(dense)))


@HYPERS
def test_log_joint_is_the_product_of_predictions(hyper):
    """One function scores anybody's allocation: against urns, at random states."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        paths = draw_paths(rng, 3, 3, 1.0)
        levels = tuple(tuple(rng.integers(0, 3, len(words)).tolist()) for words in DOCUMENTS)
        counts, level_counts = oracle.as_counts(DOCUMENTS, levels, N_WORDS, 3)
        expected = oracle.log_joint_urn(DOCUMENTS, levels, oracle.renumbered(paths), hyper, N_WORDS)
        scored = log_joint(counts, Allocation(paths * 7 + 3, level_counts), hyper)
        assert scored.total == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("branching", [0.3, 4.0])
def test_paths_have_probability_one_together(branching):
    every = list(oracle.all_paths(4, 3))
    assert len(every) == len(set(every)) == 60
    assert sum(np.exp(log_paths(np.array(paths), branching)) for paths in every) == pytest.approx(1, abs=1e-12)


def test_the_path_likelihood_counts_the_document():
    """The misprint of the last Γ: without the document's own words the ratio is no probability."""
    hyper = tree_hyper(2, 1.0, 1.0, 0.5)
    others, own = np.array([2.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0])
    counts = counts_of([others, own])
    together = np.array([[0, 1], [0, 1]])
    leaf_only = np.stack([np.zeros(4), counts.data], 1).astype(int)
    both = log_joint(counts, Allocation(together, leaf_only), hyper).words
    alone = log_joint(counts_of([others]), Allocation(together[:1], leaf_only[:2]), hyper).words
    corrected = (gammaln(others + own + 0.5) - gammaln(others + 0.5)).sum() - gammaln(3 + 2 + 1.5) + gammaln(3 + 1.5)
    assert both - alone == pytest.approx(corrected, abs=1e-10)
    assert corrected < 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("hyper", "n"),
    [
        pytest.param(GEM, 5_000, id="GEM"),
        pytest.param(GEM, 20_000, id="GEM-long", marks=pytest.mark.slow),
        pytest.param(DIRICHLET, 20_000, id="Dirichlet", marks=pytest.mark.slow),
    ],
)
def test_conditionals_equal_enumeration(hyper, n, float64):
    """The first document's path given all else, and then its levels, over many keys from one state."""
    levels, paths = ((0, 2, 1), (2,), (1, 1)), ((0, 1, 2), (0, 1, 3), (0, 4, 5))
    counts, level_counts = oracle.as_counts(DOCUMENTS, levels, N_WORDS, 3)
    case = oracle.tiny(counts, Allocation(np.array(paths), level_counts))
    batch = oracle.stacked([case] * n)
    tables = oracle.same_for_all(oracle.tables(hyper, N_WORDS, 3, 6), n)
    end = oracle.sweeps(jax.random.split(jax.random.key(1), n), batch, tables, width=WIDTH, sticks=hyper is GEM)
    # one document is visited first: its new path depends on the start alone
    before = np.asarray(case.state.paths)
    options = [(0, 1, 3), (0, 1, 9), (0, 4, 5), (0, 4, 9), (0, 8, 9)]
    log_weights = [oracle.log_joint_urn(DOCUMENTS, levels, (option, *paths[1:]), hyper, N_WORDS) for option in options]
    probabilities = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    # places of the other documents' nodes name the options
    second, third = before[1], before[2]
    after = np.asarray(end.paths)
    # documents 1 and 2 move later in the sweep, so read document 0's choice off what it shares with the start's places
    inner = after[:, 0, 1]
    leaf = after[:, 0, 2]
    kind = np.select(
        [
            (inner == second[1]) & (leaf == second[2]),
            (inner == second[1]),
            (inner == third[1]) & (leaf == third[2]),
            (inner == third[1]),
        ],
        [0, 1, 2, 3],
        default=4,
    )
    observed = np.bincount(kind, minlength=5)
    assert chisquare(observed, probabilities * n).pvalue > SMALLEST_P


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("hyper", "n"),
    [
        pytest.param(DIRICHLET, 2000, id="Dirichlet"),
        pytest.param(DIRICHLET, 4000, id="Dirichlet-long", marks=pytest.mark.slow),
        pytest.param(GEM, 4000, id="GEM", marks=pytest.mark.slow),
    ],
)
def test_chains_visit_states_as_often_as_they_are_probable(hyper, n, float64):
    """Thousands of chains of 12 sweeps on six tokens: the frequency of every tree, and of every occupancy of levels."""
    exact, _ = oracle.posterior(DOCUMENTS, hyper, N_WORDS)
    trees, roots = {}, np.zeros(7)
    for (paths, levels), probability in exact.items():
        trees[paths] = trees.get(paths, 0.0) + probability
        roots[sum(z.count(0) for z in levels)] += probability
    start = ((0, 0, 0), (0,), (0, 0)), ((0, 1, 2),) * 3
    counts, level_counts = oracle.as_counts(DOCUMENTS, start[0], N_WORDS, 3)
    batch = oracle.stacked([oracle.tiny(counts, Allocation(np.array(start[1]), level_counts))] * n)
    tables = oracle.same_for_all(oracle.tables(hyper, N_WORDS, 3, 6), n)
    for number in range(12):
        keys = jax.random.split(jax.random.key(number), n)
        batch = batch._replace(state=oracle.sweeps(keys, batch, tables, width=WIDTH, sticks=hyper is GEM))
    seen = Counter(oracle.renumbered(paths) for paths in np.asarray(batch.state.paths))
    observed = np.array([seen[tree] for tree in trees])
    assert observed.sum() == n
    assert chisquare(observed, np.array(list(trees.values())) * n).pvalue > SMALLEST_P
    at_root = np.bincount((np.asarray(batch.state.levels) == 0).sum(1), minlength=7)
    assert chisquare(at_root, roots * n).pvalue > SMALLEST_P


@pytest.mark.thorough
def test_a_sweep_keeps_its_books():
    """Counts, parents and sums follow from paths and levels after every sweep; and no document or token is lost."""
    rng = np.random.default_rng(4)
    hyper = tree_hyper(3, 1.0, (3, 2, 1), 0.1)
    counts, true = draw_corpus(rng, hyper, rng.integers(0, 30, 25), 12)
    trace = run_chain(counts, hyper, jax.random.key(0), sweeps=6, score_every=2, keep=3)
    assert trace.sweep.tolist() == [0, 2, 4, 6]
    assert len(trace.kept) == 2
    for allocation in (trace.best, trace.last):
        assert np.array_equal(allocation.level_counts.sum(1), canonical(counts).data)
        assert len(set(allocation.paths[:, 0])) == 1
    assert log_joint(counts, trace.best, trace.best_hyper).total == trace.best_log_joint
    again = run_chain(counts, hyper, jax.random.key(0), sweeps=6, score_every=2)
    assert np.array_equal(again.log_joint, trace.log_joint)
    settled = settle_levels(counts, hyper, true, jax.random.key(1), passes=1)
    assert oracle.renumbered(settled.paths) == oracle.renumbered(true.paths)
    assert log_joint(counts, settled, hyper).total >= log_joint(counts, true, hyper).total


def test_agglomerated_start_is_a_tree_worth_starting_from():
    """As probable, within a few per cent, as the truth that made the data; and fine on documents without words."""
    hyper = tree_hyper(3, 1.0, (50, 30, 10), 0.005)
    counts, true = draw_corpus(np.random.default_rng((0, 0)), hyper, np.full(60, 250), 100)
    start = agglomerated_start(counts, hyper)
    truth = log_joint(counts, true, hyper).total
    assert log_joint(counts, start, hyper).total > 1.05 * truth
    for dense in ([[0, 0], [0, 0]], [[1, 2]], [[1, 0], [0, 0], [2, 2]]):
        degenerate = agglomerated_start(counts_of(dense), hyper)
        assert np.isfinite(log_joint(counts_of(dense), degenerate, hyper).total)


@pytest.mark.thorough
def test_merging_siblings_gains():
    """Every node of a true tree torn in two is put together again, and log p never falls."""
    hyper = tree_hyper(3, 1.0, (3, 2, 1), 0.05)
    counts, true = draw_corpus(np.random.default_rng(4), hyper, np.full(20, 60), 30)
    torn = true._replace(paths=np.concatenate([true.paths[:, :1], 2 * true.paths[:, 1:]], axis=1))
    torn.paths[::2, 1:] += 1
    merged = merge_siblings(canonical(counts), torn, hyper)
    scores = [log_joint(counts, a, hyper).total for a in (torn, merged, true)]
    assert scores[1] >= scores[2] > scores[0]
    trace = run_chain(counts, hyper, jax.random.key(0), sweeps=4, merge_every=2)
    assert np.isfinite(trace.log_joint).all()


@pytest.mark.thorough
def test_places_grow_by_doubling():
    """40 documents of words of their own need 40 leaves: two doublings, two more compilations, the tree kept whole."""
    counts = counts_of(np.kron(np.eye(40, dtype=int), np.full((1, 2), 6)))
    hyper = tree_hyper(2, 1.0, (1.0, 50.0), 0.01)
    start = draw_start(np.random.default_rng(0), counts, hyper)
    before = compiles()
    trace = run_chain(counts, hyper, jax.random.key(0), sweeps=4, start=start._replace(paths=np.array([[0, 1]] * 40)))
    assert trace.nodes[-1].tolist() == [1, 40]
    assert compiles_since(before)["tree_sweep"] <= 3


@pytest.mark.thorough
@pytest.mark.parametrize("depth", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_any_depth(depth):
    counts = counts_of([[3, 0, 1], [0, 2, 0], [0, 0, 0]])
    trace = run_chain(counts, tree_hyper(depth, 0.5, 1.0, 0.2), jax.random.key(2), sweeps=5)
    assert trace.best.paths.shape == (3, depth)
    assert np.isfinite(trace.log_joint).all()
    if depth == 1:  # no choice: one topic, whose evidence is a Dirichlet-multinomial's
        eta, n = 0.2, np.array([3, 2, 1])
        exact = gammaln(3 * eta) - gammaln(6 + 3 * eta) + (gammaln(n + eta) - gammaln(eta)).sum()
        assert trace.log_joint == pytest.approx(np.full(len(trace.log_joint), exact), abs=1e-10)


@pytest.mark.parametrize(
    "dense",
    [
        pytest.param([[4, 1, 0]], id="one document", marks=pytest.mark.slow),
        pytest.param([[0, 0, 0]], id="one empty document", marks=pytest.mark.slow),
        pytest.param([[0, 0], [0, 0]], id="no words at all"),
        pytest.param([[5], [2], [0]], id="vocabulary of one word", marks=pytest.mark.slow),
    ],
)
def test_degenerate_corpora(dense):
    trace = run_chain(counts_of(dense), tree_hyper(3, 1.0, 1.0, 0.2), jax.random.key(2), sweeps=5)
    assert np.isfinite(trace.log_joint).all()
    assert trace.best.paths.shape == (len(dense), 3)


@pytest.mark.parametrize(("branching", "leaves"), [(1e-200, 1), (1e200, 6)])
def test_extreme_branching(branching, leaves):
    """γ near 0: one path for all. γ huge: a path for each document."""
    counts = counts_of(np.full((6, 3), 2))
    trace = run_chain(counts, tree_hyper(3, branching, 1.0, 0.5), jax.random.key(0), sweeps=8)
    assert trace.nodes[-1].tolist() == [1, leaves, leaves]
    assert np.isfinite(trace.log_joint).all()


@pytest.mark.slow
def test_slice_draws_have_their_density():
    """γ given a tree, against its density on a grid."""
    rng, paths = np.random.default_rng(0), np.array([[0, 1, 2], [0, 1, 3], [0, 1, 3], [0, 4, 5]])
    prior = GammaPrior(2.0, 1.5)
    value, draws = 1.0, []
    for _ in range(4000):
        value = positive_draw(rng, lambda g: log_paths(paths, g), value, prior)
        draws.append(value)
    grid = np.exp(np.linspace(-6, 4, 2000))
    log_density = np.array([log_paths(paths, g) for g in grid.tolist()]) + 2 * np.log(grid) - 1.5 * grid
    cumulative = np.cumsum(np.exp(log_density - log_density.max()))
    expected = np.interp([0.1, 0.5, 0.9], cumulative / cumulative[-1], grid)
    np.testing.assert_allclose(np.quantile(draws, [0.1, 0.5, 0.9]), expected, rtol=0.12)


@pytest.mark.thorough
def test_hyperparameters_move_where_they_have_a_prior():
    counts, _ = draw_corpus(np.random.default_rng(1), DIRICHLET, np.full(10, 20), 8)
    priors = TreePriors(GammaPrior(1.0, 1.0), GammaPrior(1.0, 0.5), GammaPrior(1.0, 2.0))
    for hyper in (DIRICHLET, GEM):
        last = run_chain(counts, hyper, jax.random.key(0), sweeps=2, priors=priors).last_hyper
        assert last.branching != hyper.branching
        assert not np.any(last.topics == hyper.topics)
        assert type(last.levels) is type(hyper.levels)
        assert last.levels != hyper.levels if hyper is GEM else not np.any(last.levels.alpha == hyper.levels.alpha)


def test_the_best_chain_comes_first():
    counts, _ = draw_corpus(np.random.default_rng(1), DIRICHLET, np.full(10, 20), 8)
    traces = sample_tree(
        counts, DIRICHLET, jax.random.key(0), sweeps=3, chains=3, temperatures=(2.0, 1.5), start_branchings=(None, 5.0)
    )
    scores = [trace.best_log_joint for trace in traces]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3


def test_bad_settings_of_chains_are_refused():
    counts, _ = draw_corpus(np.random.default_rng(1), DIRICHLET, np.full(3, 5), 8)
    with pytest.raises(ValueError, match="merge_every=-1"):
        run_chain(counts, DIRICHLET, jax.random.key(0), sweeps=1, merge_every=-1)
    with pytest.raises(ValueError, match="no start_branchings"):
        sample_tree(counts, DIRICHLET, jax.random.key(0), sweeps=1, start_branchings=())


@pytest.mark.thorough
def test_states_of_different_hyperparameters_are_compared_with_their_priors():
    """Inside a chain and between chains: p(w, z, c) times the prior densities, SciPy's."""
    counts, _ = draw_corpus(np.random.default_rng(1), DIRICHLET, np.full(10, 20), 8)
    priors = TreePriors(GammaPrior(2.0, 1.5), GammaPrior(3.0, 0.5), GammaPrior(1.5, 40.0))

    def expected(trace: Any, hyper: Any) -> float:
        of_levels = hyper.levels.scale if isinstance(hyper.levels, GEMLevels) else hyper.levels.alpha
        total = gamma.logpdf(hyper.branching, 2.0, scale=1 / 1.5) + np.sum(gamma.logpdf(of_levels, 3.0, scale=2.0))
        total += gamma.logpdf(hyper.topics, 1.5, scale=1 / 40.0).sum()
        return log_joint(counts, trace.best, hyper).total + total

    for hyper in (DIRICHLET, GEM):
        traces = sample_tree(counts, hyper, jax.random.key(0), sweeps=12, chains=2, priors=priors)
        for trace in traces:
            assert trace.best_log_joint == trace.log_joint.max()
            assert trace.best_log_joint == pytest.approx(expected(trace, trace.best_hyper), abs=1e-9)
        assert traces[0].best_log_joint >= traces[1].best_log_joint
    only = sample_tree(counts, GEM, jax.random.key(0), sweeps=2, priors=TreePriors(branching=priors.branching))[0]
    without = log_joint(counts, only.best, only.best_hyper).total
    assert only.best_log_joint - without == pytest.approx(gamma.logpdf(only.best_hyper.branching, 2.0, scale=1 / 1.5))


def test_a_trace_has_the_nodes_after_every_sweep():
    counts, _ = draw_corpus(np.random.default_rng(1), DIRICHLET, np.full(10, 20), 8)
    trace = run_chain(counts, DIRICHLET, jax.random.key(0), sweeps=7, score_every=3)
    assert trace.nodes_each.shape == (7, 3)
    np.testing.assert_array_equal(trace.nodes_each[trace.sweep[1:] - 1], trace.nodes[1:])
    assert run_chain(counts, DIRICHLET, jax.random.key(0), sweeps=0).nodes_each.shape == (0, 3)


# ── as the one run loop has them ────────────────────────────────────────────────────────────────────────────────────


@cache
def drawn(draws: int, after: Any = None) -> Any:
    levels = tuple((0,) * len(words) for words in FOUR)
    counts, _ = oracle.as_counts(FOUR, levels, 3, 2)
    settings = {"warmup": 30, "thin": 2, "seed": 0, "units": True, "progress": False}
    return lv.sample(HLDA(2, 1.2, (0.8, 1.1), (0.6, 0.5)), counts, draws=draws, after=after, **settings)


FOUR = ((0, 0), (0, 1), (2, 2), (1,))


@pytest.mark.slow
def test_draws_of_trees_are_exact():
    """`lv.sample` from starts far apart: how many branches, against enumeration; R̂ and effective draws are said."""
    trace = drawn(250)
    states, _ = oracle.posterior(FOUR, tree_hyper(2, 1.2, (0.8, 1.1), (0.6, 0.5)), 3)
    exact = sum(probability * len({path[1] for path in paths}) for (paths, _), probability in states.items())
    leaves = trace["nodes"][..., 1].astype(float)
    error = leaves.std() / np.sqrt(mean_effective_sample_size(leaves))
    assert abs(leaves.mean() - exact) < 4.5 * error
    assert trace.names == ("nodes", "levels", "paths")
    assert trace["paths"].shape == (4, 250, 4, 2)
    np.testing.assert_array_equal(leaves[0, :5], [len(set(paths[:, 1])) for paths in trace["paths"][0, :5]])
    row = trace.diagnostics().loc["nodes"]
    assert row["rhat"] < 1.05
    assert row["effective_sample_size"] > 100


@pytest.mark.slow
def test_draws_of_trees_go_on():
    whole, again = drawn(250), drawn(250, drawn(60))
    for name in ("log_density", *whole.names):
        np.testing.assert_array_equal(whole[name], again[name])
    for one, other in zip(whole.state, again.state, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "hyper", [pytest.param(DIRICHLET, id="Dirichlet"), pytest.param(GEM, id="GEM", marks=pytest.mark.slow)]
)
def test_chains_with_drawn_hyperparameters_go_on(hyper):
    """The best state so far, the temperatures and the sweeps that merge are part of the chain."""
    counts, _ = draw_corpus(np.random.default_rng(1), DIRICHLET, np.full(10, 20), 8)
    corpus, priors = TreeCorpus.from_counts(counts), TreePriors(*[GammaPrior(1.0, 1.0)] * 3)
    starts = tuple(draw_start(np.random.default_rng(seed), corpus.counts, hyper) for seed in range(2))
    sampler = TreeSampler(corpus, hyper, starts, priors, (2.0,), merge_every=5, score_every=2)
    settings = {"chains": 2, "warmup": 1, "recorder": TreeRecorder.for_sampler(sampler, units=False)}
    part = run(sampler, jax.random.key(0), draws=3, **settings)
    whole, again = (run(sampler, jax.random.key(0), draws=9, after=after, **settings) for after in (None, part))
    assert whole.names == ("nodes", "branching", "level_prior", "topics")
    for name in ("log_density", *whole.names):
        np.testing.assert_array_equal(whole[name], again[name])
    for one, other in zip(whole.state, again.state, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "at least 1 level"),
        ({"branching": 0}, "positive"),
        ({"topics": (0.1, 0.2)}, "for each of 3 levels"),
        ({"levels": -1.0}, "positive finite"),
        ({"levels": GEMLevels(1.0, 1.0, 3)}, "mean_share"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        tree_hyper(**{"depth": 3, **arguments})


def test_bad_allocations_and_settings():
    counts = counts_of([[1, 1], [0, 2]])
    fits = np.array([[1, 0], [0, 1], [2, 0]])
    for paths, levels, message in (
        ([[0, 1]], fits, "a node per level"),
        ([[0, 1], [5, 2]], fits, "one root"),
        ([[0, 0], [0, 1]], fits, "got node 0 at two levels"),
        ([[0, 1], [0, 2]], fits[:2], "level_counts of shape"),
        ([[0, 1], [0, 2]], fits + 1, "add up"),
    ):
        with pytest.raises(ValueError, match=message):
            log_joint(counts, Allocation(np.array(paths), levels), tree_hyper(2))
    three = np.array([[1, 0, 0], [0, 1, 0], [2, 0, 0]])
    with pytest.raises(ValueError, match="two parents"):
        log_joint(counts, Allocation(np.array([[0, 1, 3], [0, 2, 3]]), three), tree_hyper(3))
    with pytest.raises(ValueError, match="sweeps=-1"):
        run_chain(counts, tree_hyper(2), jax.random.key(0), sweeps=-1)
    with pytest.raises(ValueError, match="temperatures"):
        run_chain(counts, tree_hyper(2), jax.random.key(0), sweeps=1, temperatures=(0.0,))
    with pytest.raises(ValueError, match="negative"):
        counts_of([[-1, 2]])
