"""The most probable tree by hill climbing, paths and levels optimised together: a start that no chain finds by itself.

    1. documents enter an empty tree one by one, in random order, each at its best path and levels together; blocks of
       levels are optimised after each (`relevel`); the best of several orders goes on
    2. every document leaves and enters again at its best path and levels
    3. a node with all below it is put under another parent, merged with a node of its level, or a leaf is torn in two
       by a word that some of its documents have; levels are optimised anew, and what gains is kept; then 2 again

Nothing is accepted that lowers log p(w, z, c). A round of 3 tries about nodes² trees: for some hundred documents and
some dozen nodes. It finds modes and draws from no posterior.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse
from jaxtyping import Array

from lvsearch.inference.generators import generator
from lvsearch.inference.trees.books import Options, TreeBooks
from lvsearch.inference.trees.corpus import canonical
from lvsearch.inference.trees.density import Allocation
from lvsearch.inference.trees.hyper import TreeHyper
from lvsearch.inference.trees.relevel import LEAST_GAIN, relevel, relevel_anew

ROUNDS = 4


def climb(
    counts: scipy.sparse.csr_array,
    hyper: TreeHyper,
    key: Array,
    *,
    orders: int = 10,
    start: Allocation | None = None,
) -> Allocation:
    """The best allocation found from `orders` random orders of the documents, and from `start` where there is one.

    Raises ValueError without any.
    """
    if orders < 0 or (orders == 0 and start is None):
        raise ValueError(f"got orders={orders}, expected at least 1, or a start")
    counts, rng = canonical(counts), generator(key)
    books, begins = TreeBooks(counts, hyper), []
    if start is not None:
        books.load(start)
        _improve(books, rng)
        begins.append((books.score(), books.allocation))
    for order in rng.spawn(orders):
        books = _entered(counts, hyper, order)
        _improve(books, rng)
        begins.append((books.score(), books.allocation))
    books.load(max(begins, key=lambda scored: scored[0])[1])
    while _rearrange(books, rng):
        _improve(books, rng)
    return books.allocation


def _entered(counts: scipy.sparse.csr_array, hyper: TreeHyper, rng: np.random.Generator) -> TreeBooks:
    books = TreeBooks(counts, hyper)
    for d in rng.permutation(counts.shape[0]).tolist():
        _enter_best(books, d)
        relevel(books)
    return books


def _enter_best(books: TreeBooks, d: int) -> None:
    options = books.options()
    scores, at = books.settled(d, options)
    best = int(scores.argmax())
    books.enter(d, options.paths[best], books.one_level(d, at[best]))


def _improve(books: TreeBooks, rng: np.random.Generator) -> None:
    """Levels, and one document at a time, until no document changes its path (`ROUNDS` at most)."""
    relevel_anew(books)
    for _ in range(ROUNDS):
        moved = _sweep(books, rng)
        relevel(books)
        if not moved:
            return


def _sweep(books: TreeBooks, rng: np.random.Generator) -> int:
    """Every document to its best path and levels; how many changed their path."""
    moved = 0
    for d in rng.permutation(len(books.paths)).tolist():
        path, level_counts = books.leave(d)
        options = books.options()
        scores, at = books.settled(d, options)
        best = int(scores.argmax())
        own = int(np.flatnonzero((options.paths == path).all(1))[0])
        if scores[best] > books.score_there(d, path, level_counts, options.log_prior[own]) + LEAST_GAIN:
            books.enter(d, options.paths[best], books.one_level(d, at[best]))
            moved += best != own
        else:
            books.enter(d, path, level_counts)
    return moved


def _rearrange(books: TreeBooks, rng: np.random.Generator) -> bool:
    """The first rearrangement that gains, in random order, is made; False where none does."""
    before, score = books.allocation, books.score()
    ideas = list(_rearrangements(books))
    for number in rng.permutation(len(ideas)).tolist():
        members, paths = ideas[number]
        for again in (False, True):
            books.load(before._replace(paths=paths))
            if again:
                _enter_again(books, rng.permutation(members))
            relevel(books)
            if books.score() > score + LEAST_GAIN:
                return True
    books.load(before)
    return False


def _enter_again(books: TreeBooks, members: np.ndarray) -> None:
    """The members leave together and enter one by one, on the same paths at new levels."""
    on = books.paths.copy()
    for d in members.tolist():
        books.leave(d)
    for d in members.tolist():
        path = on[d]
        _, at = books.settled(d, Options(path[None], np.zeros(1)))
        books.enter(d, path, books.one_level(d, at[0]))


def _rearrangements(books: TreeBooks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(documents moved, all paths) of every tree near this one."""
    paths, depth = books.paths, books.hyper.depth
    fresh = int(paths.max()) + 1
    for level in range(1, depth):
        nodes, first = np.unique(paths[:, level], return_index=True)
        beginnings = paths[first]
        for node, beginning in zip(nodes.tolist(), beginnings, strict=True):
            members = np.flatnonzero(paths[:, level] == node)

            def moved(onto: np.ndarray, members: np.ndarray = members) -> tuple[np.ndarray, np.ndarray]:
                after = paths.copy()
                after[members, : len(onto)] = onto
                return members, after

            for parent in np.unique(paths[:, level - 1]):
                if parent != beginning[level - 1]:
                    yield moved(paths[paths[:, level - 1] == parent][0, :level])
            for opened in range(1, level):
                if (paths[:, opened] == beginning[opened]).sum() > len(members):
                    yield moved(np.append(beginning[:opened], fresh + np.arange(level - opened)))
            for other in beginnings[nodes != node]:
                yield moved(other[: level + 1])
    for node in np.unique(paths[:, -1]) if depth > 1 else ():
        members = np.flatnonzero(paths[:, -1] == node)
        has = books.counts[members].toarray() > 0
        splits = {tuple(column) for column in has.T[(has.any(0) & ~has.all(0))].tolist()}
        for split in sorted(splits):
            after = paths.copy()
            after[members[np.array(split)], -1] = fresh
            yield members, after
