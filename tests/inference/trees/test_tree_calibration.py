"""Geweke's joint-distribution test and simulation-based calibration (Talts et al. 2018) of the tree sampler.

Corpora of 5 documents × 5 tokens over 3 words, hundreds at once. Geweke: forward draws of (tree, levels, words) against
chains of (a sweep | words; words | tree, levels). Calibration: the rank of the true numbers among posterior draws is
uniform. Both must fail on planted bugs: topics whose mass forgets the vocabulary, and a γ that is not the tree's.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tree_oracles as oracle
from scipy.stats import chisquare

from lvsearch.inference.trees import Allocation, GEMLevels, TreeHyper, draw_corpus, tree_hyper
from lvsearch.inference.trees.simulate import draw_words
from lvsearch.inference.trees.sweep import SweepTables

LENGTHS, N_WORDS, N_TOKENS, WIDTH = np.full(5, 5), 3, 25, 16
HYPERS = {
    "Dirichlet": tree_hyper(3, 0.9, (2.0, 1.0, 0.7), (0.8, 0.5, 0.3)),
    "GEM": tree_hyper(3, 0.9, GEMLevels(0.45, 2.0, 3), (0.8, 0.5, 0.3)),
}
pytestmark = pytest.mark.slow


def sound(tables: SweepTables) -> SweepTables:
    return tables


def mass_without_vocabulary(tables: SweepTables) -> SweepTables:
    return tables._replace(mass=tables.mass / N_WORDS)


def wrong_branching(tables: SweepTables) -> SweepTables:
    return tables._replace(log_branching=tables.log_branching + np.log(2.0))


BUGS = [mass_without_vocabulary, wrong_branching]


def numbers(state: Any, word: Any) -> np.ndarray:
    """(corpora, 6): inner nodes, leaves, pairs of documents in one leaf, tokens at the root and last level, tokens of
    word 0 at the root."""
    levels, paths = np.asarray(state.levels), np.asarray(state.paths)
    inner = [len(set(p[:, 1].tolist())) for p in paths]
    leaves = [len(set(p[:, 2].tolist())) for p in paths]
    pairs = (paths[:, :, None, 2] == paths[:, None, :, 2]).sum((1, 2))
    root = levels == 0
    columns = inner, leaves, pairs, root.sum(1), (levels == 2).sum(1), (root & (np.asarray(word) == 0)).sum(1)
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)


def batch_of(cases: list[tuple[Any, Allocation]]) -> oracle.Tiny:
    return oracle.stacked([oracle.tiny(*case) for case in cases])


def in_any_order(rng: np.random.Generator, batch: oracle.Tiny) -> oracle.Tiny:
    """The levels of a cell's copies in random order, as in the joint distribution of tokens.

    Sorted, as an `Allocation` gives them, they are no draw from it: the counts of a sweep from there are off."""
    cell = np.asarray(batch.tokens.cell)
    order = np.argsort(cell + rng.random(cell.shape), axis=1)
    levels = np.take_along_axis(np.asarray(batch.state.levels), order, axis=1)
    return batch._replace(state=batch.state._replace(levels=levels))


def tables_for(hyper: TreeHyper, bug: Callable[[SweepTables], SweepTables], n: int) -> SweepTables:
    return oracle.same_for_all(bug(oracle.tables(hyper, N_WORDS, len(LENGTHS), N_TOKENS)), n)


def swept(batch: oracle.Tiny, tables: SweepTables, hyper: TreeHyper, key: int) -> oracle.Tiny:
    keys = jax.random.split(jax.random.key(key), len(batch.state.paths))
    sticks = isinstance(hyper.levels, GEMLevels)
    return batch._replace(state=oracle.sweeps(keys, batch, tables, width=WIDTH, sticks=sticks))


def geweke_z(hyper: TreeHyper, bug: Callable[[SweepTables], SweepTables], n: int = 1500, steps: int = 6) -> np.ndarray:
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        forward = batch_of([draw_corpus(rng, hyper, LENGTHS, N_WORDS) for _ in range(n)])
        expected = numbers(forward.state, forward.tokens.word)
        batch = batch_of([draw_corpus(rng, hyper, LENGTHS, N_WORDS) for _ in range(n)])
        tables = tables_for(hyper, bug, n)
        for step in range(steps):
            batch = swept(in_any_order(rng, batch), tables, hyper, step)
            redrawn = []
            for paths, levels in zip(np.asarray(batch.state.paths), np.asarray(batch.state.levels), strict=True):
                per_level = np.stack([(levels.reshape(len(LENGTHS), -1) == k).sum(1) for k in range(3)], axis=1)
                redrawn.append(draw_words(rng, hyper, paths.astype(np.int64), per_level, N_WORDS))
            batch = batch_of(redrawn)
        visited = numbers(batch.state, batch.tokens.word)
    error = np.sqrt((expected.var(0, ddof=1) + visited.var(0, ddof=1)) / n)
    return np.abs(expected.mean(0) - visited.mean(0)) / error


@pytest.mark.parametrize("name", HYPERS)
def test_geweke(name):
    """6 numbers, |z| < 4.5: false alarms below 1e-4."""
    assert geweke_z(HYPERS[name], sound).max() < 4.5


@pytest.mark.parametrize("bug", BUGS)
def test_geweke_finds_planted_bugs(bug):
    assert geweke_z(HYPERS["Dirichlet"], bug).max() > 1.5 * 4.5


def calibration_p(
    hyper: TreeHyper, bug: Callable[[SweepTables], SweepTables], n: int = 1200, draws: int = 7
) -> np.ndarray:
    """p-values of uniform ranks, one per number; chains start from one path for all, all tokens at the root."""
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        truth = [draw_corpus(rng, hyper, LENGTHS, N_WORDS) for _ in range(n)]
        batch = batch_of(truth)
        true_numbers, word = numbers(batch.state, batch.tokens.word), batch.tokens.word
        one_path = np.tile(np.arange(3), (len(LENGTHS), 1))
        starts = []
        for counts, _ in truth:
            level_counts = np.zeros((len(counts.data), 3), np.int64)
            level_counts[:, 0] = counts.data
            starts.append((counts, Allocation(one_path, level_counts)))
        batch, tables, seen = batch_of(starts), tables_for(hyper, bug, n), []
        for step in range(30 + 8 * draws):
            batch = swept(batch, tables, hyper, 100 + step)
            if step >= 30 and (step - 30) % 8 == 7:
                seen.append(numbers(batch.state, word))
    below, equal = (np.array(seen) < true_numbers).sum(0), (np.array(seen) == true_numbers).sum(0)
    ranks = below + rng.integers(equal + 1)
    return np.array([chisquare(np.bincount(column, minlength=draws + 1)).pvalue for column in ranks.T])


@pytest.mark.parametrize("name", HYPERS)
def test_chains_are_calibrated(name):
    assert calibration_p(HYPERS[name], sound).min() > 1e-4


@pytest.mark.parametrize("bug", BUGS)
def test_calibration_finds_planted_bugs(bug):
    assert calibration_p(HYPERS["Dirichlet"], bug).min() < 1e-8
