"""The most probable tree of topics by hill climbing, paths and levels together: a start that no chain finds by itself.

1. Documents enter an empty tree one by one, in random order, each at its best path and levels together. Blocks of
   levels are optimised after each (`relevel`). The best of several orders is continued.
2. Every document leaves and enters again at its best path and levels.
3. The tree is rearranged, levels are optimised anew, and what gains is kept; then step 2 follows again.

A rearrangement puts a node with all below it under another parent, or merges it with a node of its level. Or it splits
a leaf by a word that some of its documents have.

Nothing is accepted that lowers log p(words, levels, paths). A round of step 3 tries about nodes² trees, so it is for
some hundred documents and some dozen nodes. It finds modes and does not sample the posterior.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse
from jaxtyping import Array

from lvsearch.inference.generators import generator
from lvsearch.inference.trees.allocated_tree import AllocatedTree, Options
from lvsearch.inference.trees.corpus import canonical
from lvsearch.inference.trees.density import Allocation
from lvsearch.inference.trees.hyper import TreeHyper
from lvsearch.inference.trees.relevel import LEAST_GAIN, relevel, relevel_anew

ROUNDS = 4
"""The most rounds in which every document is moved, between two rearrangements."""


def climb(
    counts: scipy.sparse.csr_array,
    hyper: TreeHyper,
    key: Array,
    *,
    orders: int = 10,
    start: Allocation | None = None,
) -> Allocation:
    """Return the most probable allocation found by hill climbing over trees, from several starts.

    counts: the count of each word in each document, (document, word).
    hyper: the hyper-parameters.
    key: the random key of the orders.
    orders: how many random orders of the documents to start from.
    start: an allocation to start from too, or None.

    Raises ValueError if there are neither orders nor a start.
    """
    if orders < 0 or (orders == 0 and start is None):
        raise ValueError(f"got orders={orders}, expected at least 1, or a start")
    counts, rng = canonical(counts), generator(key)
    tree, begins = AllocatedTree(counts, hyper), []
    if start is not None:
        tree.load(start)
        _improve(tree, rng)
        begins.append((tree.score(), tree.allocation))
    for order in rng.spawn(orders):
        tree = _insert_all(counts, hyper, order)
        _improve(tree, rng)
        begins.append((tree.score(), tree.allocation))
    tree.load(max(begins, key=lambda scored: scored[0])[1])
    while _rearrange(tree, rng):
        _improve(tree, rng)
    return tree.allocation


def _insert_all(counts: scipy.sparse.csr_array, hyper: TreeHyper, rng: np.random.Generator) -> AllocatedTree:
    """Return a tree that all documents have entered in random order, each at its best path and levels."""
    tree = AllocatedTree(counts, hyper)
    for d in rng.permutation(counts.shape[0]).tolist():
        _insert_best(tree, d)
        relevel(tree)
    return tree


def _insert_best(tree: AllocatedTree, d: int) -> None:
    """Insert document `d` at its best path and levels; this changes the tree."""
    options = tree.options()
    scores, at = tree.best_levels(d, options)
    best = int(scores.argmax())
    tree.insert(d, options.paths[best], tree.counts_at_levels(d, at[best]))


def _improve(tree: AllocatedTree, rng: np.random.Generator) -> None:
    """Optimise levels, and move one document at a time, until none changes its path or `ROUNDS` rounds are over.

    This changes the tree.
    """
    relevel_anew(tree)
    for _ in range(ROUNDS):
        moved = _move_each_document(tree, rng)
        relevel(tree)
        if not moved:
            return


def _move_each_document(tree: AllocatedTree, rng: np.random.Generator) -> int:
    """Move every document to its best path and levels, if that gains; return how many changed their path."""
    moved = 0
    for d in rng.permutation(len(tree.paths)).tolist():
        path, level_counts = tree.remove(d)
        options = tree.options()
        scores, at = tree.best_levels(d, options)
        best = int(scores.argmax())
        own = int(np.flatnonzero((options.paths == path).all(1))[0])
        if scores[best] > tree.score_document(d, path, level_counts, options.log_prior[own]) + LEAST_GAIN:
            tree.insert(d, options.paths[best], tree.counts_at_levels(d, at[best]))
            moved += best != own
        else:
            tree.insert(d, path, level_counts)
    return moved


def _rearrange(tree: AllocatedTree, rng: np.random.Generator) -> bool:
    """Make the first rearrangement that gains, tried in random order; return False if none does."""
    before, score = tree.allocation, tree.score()
    ideas = list(_rearrangements(tree))
    for number in rng.permutation(len(ideas)).tolist():
        members, paths = ideas[number]
        for again in (False, True):
            tree.load(before._replace(paths=paths))
            if again:
                _reinsert(tree, rng.permutation(members))
            relevel(tree)
            if tree.score() > score + LEAST_GAIN:
                return True
    tree.load(before)
    return False


def _reinsert(tree: AllocatedTree, members: np.ndarray) -> None:
    """Take documents out of the tree, then put them back one by one on their old paths, at their best levels.

    The best levels are those given the documents that are in the tree already. This changes the tree.

    members: the numbers of the documents.
    """
    on = tree.paths.copy()
    for d in members.tolist():
        tree.remove(d)
    for d in members.tolist():
        path = on[d]
        _, at = tree.best_levels(d, Options(path[None], np.zeros(1)))
        tree.insert(d, path, tree.counts_at_levels(d, at[0]))


def _rearrangements(tree: AllocatedTree) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield every tree that is one rearrangement away, as (numbers of the documents moved, paths of all documents)."""
    paths, depth = tree.paths, tree.hyper.depth
    fresh = int(paths.max()) + 1
    for level in range(1, depth):
        nodes, first = np.unique(paths[:, level], return_index=True)
        beginnings = paths[first]
        for node, beginning in zip(nodes.tolist(), beginnings, strict=True):
            members = np.flatnonzero(paths[:, level] == node)

            def move_branch(onto: np.ndarray, members: np.ndarray = members) -> tuple[np.ndarray, np.ndarray]:
                """Return (members, paths of all documents), with the paths of the members beginning with the nodes
                `onto`.
                """
                after = paths.copy()
                after[members, : len(onto)] = onto
                return members, after

            # the branch under another parent, under new nodes from some level on, and merged with a node of its level
            for parent in np.unique(paths[:, level - 1]):
                if parent != beginning[level - 1]:
                    yield move_branch(paths[paths[:, level - 1] == parent][0, :level])
            for opened in range(1, level):
                if (paths[:, opened] == beginning[opened]).sum() > len(members):
                    yield move_branch(np.append(beginning[:opened], fresh + np.arange(level - opened)))
            for other in beginnings[nodes != node]:
                yield move_branch(other[: level + 1])
    # leaves split by a word that some of their documents have
    for node in np.unique(paths[:, -1]) if depth > 1 else ():
        members = np.flatnonzero(paths[:, -1] == node)
        has = tree.counts[members].toarray() > 0
        splits = {tuple(column) for column in has.T[(has.any(0) & ~has.all(0))].tolist()}
        for split in sorted(splits):
            after = paths.copy()
            after[members[np.array(split)], -1] = fresh
            yield members, after
