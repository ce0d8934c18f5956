"""Hill climbing over trees: its counts against the density, blocks of levels, and trees drawn from the prior found."""

import jax
import numpy as np
import pytest
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.inference.trees import (
    Allocation,
    GEMLevels,
    agglomerated_start,
    climb,
    draw_corpus,
    log_joint,
    settle_levels,
    tree_hyper,
)
from lvsearch.inference.trees.allocated_tree import NEW, AllocatedTree, levels_by_share, relevel
from lvsearch.inference.trees.corpus import canonical

PEAKED = tree_hyper(3, 1.0, (50, 30, 10), 0.005)
HYPERS = pytest.mark.parametrize(
    "hyper",
    [tree_hyper(3, 0.7, (1.5, 0.6, 2.0), (0.9, 0.3, 0.5)), tree_hyper(3, 0.7, GEMLevels(0.4, 1.7, 3), (0.9, 0.3, 0.5))],
    ids=["Dirichlet", "GEM"],
)


def same_tree(a: np.ndarray, b: np.ndarray) -> bool:
    """Every node of one tree has the documents of a node of the other."""
    return all(
        len(set(zip(x.tolist(), y.tolist(), strict=True))) == len(set(x.tolist())) == len(set(y.tolist()))
        for x, y in zip(a.T, b.T, strict=True)
    )


@pytest.fixture(scope="module")
def corpus():
    counts, true = draw_corpus(np.random.default_rng(3), PEAKED, np.full(30, 250), 60)
    return canonical(counts), true


@HYPERS
def test_scores_of_options_differ_as_the_density_does(hyper):
    """A document on every path open to it, new ones included: score and log p(w, z, c) differ by one constant."""
    counts, true = draw_corpus(np.random.default_rng(0), hyper, np.array([12, 7, 9, 0, 15]), 6)
    tree = AllocatedTree(canonical(counts), hyper, true)
    for d in range(5):
        path, level_counts = tree.remove(d)
        options = tree.options()
        assert np.exp(options.log_prior).sum() == pytest.approx(1, abs=1e-12)
        scores, at = tree.best_levels(d, options)
        offsets = []
        for option, score, levels in zip(options.paths, scores, at, strict=True):
            tree.insert(d, option, tree.counts_at_levels(d, levels))
            offsets.append(tree.score() - score)
            again, _ = tree.remove(d)
            assert np.array_equal(again, option)
        own = int(np.flatnonzero((options.paths == path).all(1))[0])
        there = tree.score_document(d, path, level_counts, options.log_prior[own])
        tree.insert(d, path, level_counts)
        np.testing.assert_allclose([*offsets, tree.score() - there], offsets[0], atol=1e-9)


def test_counts_are_those_of_the_allocation(corpus):
    """Tables after documents left and entered, with more nodes than places at first, equal tables made afresh."""
    counts, true = corpus
    tree = AllocatedTree(counts, PEAKED, true)
    for d in range(25):
        _, level_counts = tree.remove(d)
        tree.insert(d, np.array([0, NEW, NEW]), level_counts)
    afresh = AllocatedTree(counts, PEAKED, tree.allocation)
    for level in range(3):
        _, first = np.unique(tree.paths[:, level], return_index=True)
        ours, theirs = tree.paths[first, level], afresh.paths[first, level]
        for name in ("table", "totals", "documents"):
            assert np.array_equal(getattr(tree, name)[ours], getattr(afresh, name)[theirs])
    assert np.array_equal(tree.per_document, afresh.per_document)
    assert tree.table.sum() == counts.sum()


@pytest.mark.thorough
@HYPERS
def test_blocks_move_while_that_gains(hyper):
    counts, true = draw_corpus(np.random.default_rng(1), hyper, np.array([12, 7, 9, 0, 15]), 6)
    counts = canonical(counts)
    tree = AllocatedTree(counts, hyper, true)
    relevel(tree)
    first = tree.score()
    assert first >= log_joint(counts, true, hyper).total
    assert np.array_equal(tree.level_counts.sum(1), counts.data)
    document = np.repeat(np.arange(5), np.diff(counts.indptr))
    for level in range(3):  # every block, moved by hand, loses or is none
        for node in np.unique(tree.paths[:, level]):
            for word in range(6):
                cells = np.flatnonzero((tree.paths[document, level] == node) & (counts.indices == word))
                for begin in range(3):
                    for end in range(3):
                        moved = tree.level_counts.copy()
                        moved[cells, end] += moved[cells, begin] * (begin != end)
                        moved[cells, begin] *= begin == end
                        score = log_joint(counts, Allocation(tree.paths, moved), hyper).total
                        assert score <= first + 1e-6


def test_words_that_no_token_could_move_alone(corpus):
    """The words of the root, put on the leaves, come back; sweeps of single tokens, cooled, had left them there."""
    counts, true = corpus
    misplaced = true.level_counts.copy()
    misplaced[:, 2] += misplaced[:, 0]
    misplaced[:, 0] = 0
    best_levels = settle_levels(counts, PEAKED, Allocation(true.paths, misplaced), jax.random.key(0), passes=0)
    assert log_joint(counts, best_levels, PEAKED).total >= log_joint(counts, true, PEAKED).total
    assert same_tree(best_levels.paths, true.paths)


@pytest.mark.slow
def test_the_true_tree_is_found(corpus):
    """A tree from the prior, of peaked topics: as probable as the truth, and far above the dendrogram's."""
    counts, true = corpus
    found = climb(counts, PEAKED, jax.random.key(0), orders=1)
    best_levels = settle_levels(counts, PEAKED, true, jax.random.key(0), passes=0)
    scores = [
        log_joint(counts, each, PEAKED).total for each in (agglomerated_start(counts, PEAKED), best_levels, found)
    ]
    assert same_tree(found.paths, true.paths) or scores[2] >= scores[1]
    assert scores[2] > scores[0] + 10
    again = climb(counts, PEAKED, jax.random.key(0), orders=0, start=found)
    assert log_joint(counts, again, PEAKED).total >= scores[2]


@pytest.mark.parametrize("depth", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dense",
    [[[4, 1, 0]], [[0, 0], [0, 0]], [[5], [2], [0]], [[3, 0, 1], [0, 2, 0], [0, 0, 0]]],
    ids=["one document", "no words at all", "vocabulary of one word", "an empty document"],
)
def test_any_corpus_at_any_depth(dense, depth):
    counts, hyper = canonical(csr_array(np.array(dense))), tree_hyper(depth, 1.0, 1.0, 0.2)
    found = climb(counts, hyper, jax.random.key(0), orders=2)
    assert found.paths.shape == (len(dense), depth)
    assert np.isfinite(log_joint(counts, found, hyper).total)
    assert np.array_equal(levels_by_share(counts, found.paths).level_counts.sum(1), counts.data)


@pytest.mark.thorough
def test_fit_tree_begins_where_the_climb_ends(corpus):
    counts, _ = corpus
    model = lv.models.HLDA(3, branching=1.0, levels=(50, 30, 10), topics=0.005)
    fitted = lv.fit_tree(model, counts, sweeps=0, climbs=1, seed=2)
    assert fitted.log_joint > lv.fit_tree(model, counts, sweeps=0, seed=2).log_joint
    wide = [lv.fit_tree(model, counts, sweeps=0, start_branching=b).tree().nodes for b in (1e-9, 50.0)]
    assert len(wide[0]) == 3 < len(wide[1])
    with pytest.raises(ValueError, match="start_branching=-1"):
        lv.fit_tree(model, counts, start_branching=-1.0)
    with pytest.raises(ValueError, match="one way to start"):
        lv.fit_tree(model, counts, climbs=1, start_branching=1.0)
    with pytest.raises(ValueError, match="at least 1"):
        climb(counts, PEAKED, jax.random.key(0), orders=0)
    with pytest.raises(ValueError, match="climbs=-1"):
        lv.fit_tree(model, counts, climbs=-1)
