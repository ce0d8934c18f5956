"""Slow and independent: hierarchical LDA token by token, all its states by enumeration, and batches of tiny corpora."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse
from scipy.special import gammaln

from lvsearch.inference.trees import Allocation, DirichletLevels, TreeHyper, draw_corpus
from lvsearch.inference.trees.sweep import (
    Layout,
    SweepTables,
    TreeState,
    TreeTokens,
    levels_of,
    state_of,
    tables_of,
    tree_sweep,
)

Documents = tuple[tuple[int, ...], ...]
"""The words of each document, token by token."""
Paths = tuple[tuple[int, ...], ...]


# ── one state, predicted step by step ───────────────────────────────────────────────────────────────────────────────


def log_path_urn(paths: Paths, branching: float) -> float:
    """log p(c) as the product of each document's choices given those before it."""
    total, customers = 0.0, Counter()
    for path in paths:
        for parent, node in pairwise(path):
            seated = customers[node]
            total += np.log(seated if seated else branching) - np.log(customers[parent] + branching)
        customers.update(path)
    return total


def level_urn(hyper: TreeHyper, before: Counter) -> np.ndarray:
    """p(level of the next token | levels of the document's tokens so far)."""
    depth, n = hyper.depth, np.array([before[level] for level in range(hyper.depth)], float)
    if isinstance(hyper.levels, DirichletLevels):
        return (hyper.levels.alpha + n) / (hyper.levels.alpha + n).sum()
    a, b = hyper.levels.mean_share * hyper.levels.scale, (1 - hyper.levels.mean_share) * hyper.levels.scale
    left, out = 1.0, []
    for level in range(depth - 1):
        share = (a + n[level]) / (a + b + n[level:].sum())
        out.append(left * share)
        left *= 1 - share
    return np.array([*out, left])


def log_joint_urn(documents: Documents, levels: Paths, paths: Paths, hyper: TreeHyper, n_words: int) -> float:
    """log p(w, z, c), every token predicted from those before it."""
    total, seen = log_path_urn(paths, hyper.branching), defaultdict(Counter)
    for words, z, path in zip(documents, levels, paths, strict=True):
        before: Counter = Counter()
        for word, level in zip(words, z, strict=True):
            total += np.log(level_urn(hyper, before)[level])
            before[level] += 1
            topic, eta = seen[path[level]], hyper.topics[level]
            total += np.log((topic[word] + eta) / (topic.total() + n_words * eta))
            topic[word] += 1
    return total


# ── all states ──────────────────────────────────────────────────────────────────────────────────────────────────────


def all_paths(n_docs: int, depth: int) -> Iterator[Paths]:
    """Every assignment of documents to paths, nodes numbered in order of appearance."""

    def extend(done: list[tuple[int, ...]], parents: dict[int, int]) -> Iterator[Paths]:
        if len(done) == n_docs:
            yield tuple(done)
            return
        for path, tree in walks((0,), parents):
            yield from extend([*done, path], tree)

    def walks(path: tuple[int, ...], parents: dict[int, int]) -> Iterator[tuple[tuple[int, ...], dict[int, int]]]:
        if len(path) == depth:
            yield path, parents
            return
        for child in [node for node, parent in parents.items() if parent == path[-1]]:
            yield from walks((*path, child), parents)
        new = len(parents)
        yield from walks((*path, new), {**parents, new: path[-1]})

    return extend([], {0: -1})


def renumbered(paths: Any) -> Paths:
    """Nodes numbered in order of appearance, as `all_paths` has them."""
    number: dict[int, int] = {}
    return tuple(tuple(number.setdefault(int(node), len(number)) for node in path) for path in paths)


def posterior(documents: Documents, hyper: TreeHyper, n_words: int) -> tuple[dict[tuple[Paths, Paths], float], float]:
    """({(paths, levels): probability}, log evidence) by enumeration."""
    states = {}
    spans = [len(words) for words in documents]
    for paths in all_paths(len(documents), hyper.depth):
        for flat in product(range(hyper.depth), repeat=sum(spans)):
            cuts = np.cumsum([0, *spans])
            levels = tuple(flat[a:b] for a, b in pairwise(cuts.tolist()))
            states[paths, levels] = log_joint_urn(documents, levels, paths, hyper, n_words)
    log_weights = np.array(list(states.values()))
    evidence = float(np.logaddexp.reduce(log_weights))
    return dict(zip(states, np.exp(log_weights - evidence).tolist(), strict=True)), evidence


def as_counts(documents: Documents, levels: Paths, n_words: int, depth: int) -> tuple[scipy.sparse.csr_array, Any]:
    """(counts, level counts of their stored cells)."""
    table = np.zeros((len(documents), n_words, depth), np.int64)
    for d, (words, z) in enumerate(zip(documents, levels, strict=True)):
        np.add.at(table, (d, list(words), list(z)), 1)
    counts = scipy.sparse.csr_array(table.sum(-1))
    counts.sort_indices()
    document = np.repeat(np.arange(len(documents)), np.diff(counts.indptr))
    return counts, table[document, counts.indices]


def two_level_evidence(counts: np.ndarray, hyper: TreeHyper) -> float:
    """log p(w) of a tree of depth 2 with Dirichlet levels: all levels of all tokens, all partitions into leaves."""
    n_docs, n_words = counts.shape
    (eta_root, eta_leaf), alpha = hyper.topics, hyper.levels.alpha
    words = [np.repeat(np.arange(n_words), row) for row in counts]
    blocks = [np.array(block) for block in product([0, 1], repeat=n_docs) if any(block)]
    index = {tuple(block.tolist()): i for i, block in enumerate(blocks)}
    partitions, log_prior = [], []
    for paths in all_paths(n_docs, 2):
        leaves = np.array([path[1] for path in paths])
        partitions.append([index[tuple((leaves == leaf).astype(int).tolist())] for leaf in np.unique(leaves)])
        log_prior.append(log_path_urn(paths, hyper.branching))

    def topic(n: np.ndarray, eta: float) -> np.ndarray:
        normal = gammaln(n_words * eta) - gammaln(n.sum(-1) + n_words * eta)
        return (gammaln(n + eta) - gammaln(eta)).sum(-1) + normal

    terms = []
    for flat in product([0, 1], repeat=int(counts.sum())):
        z = np.split(np.array(flat, int), np.cumsum([len(w) for w in words])[:-1])
        at_leaf = np.array([np.bincount(w[level == 1], minlength=n_words) for w, level in zip(words, z, strict=True)])
        per_level = np.stack([counts.sum(1) - at_leaf.sum(1), at_leaf.sum(1)], axis=1)
        levels = (gammaln(per_level + alpha) - gammaln(alpha)).sum(1) + gammaln(alpha.sum())
        fixed = (levels - gammaln(counts.sum(1) + alpha.sum())).sum() + topic((counts - at_leaf).sum(0), eta_root)
        of_block = topic(np.array(blocks) @ at_leaf, eta_leaf)
        trees = [prior + of_block[blocks_in].sum() for prior, blocks_in in zip(log_prior, partitions, strict=True)]
        terms.append(fixed + np.logaddexp.reduce(trees))
    return float(np.logaddexp.reduce(terms))


# ── many tiny corpora at once ───────────────────────────────────────────────────────────────────────────────────────

LAYOUT = (0, 1, 9, 25)


class Tiny(NamedTuple):
    """A corpus in arrays whose shapes its content does not decide: cells are padded to the number of tokens."""

    tokens: TreeTokens
    state: TreeState


def tiny(counts: scipy.sparse.csr_array, allocation: Allocation, layout: Layout = LAYOUT) -> Tiny:
    n_tokens = int(counts.data.sum())
    cell = np.repeat(np.arange(len(counts.data)), counts.data)
    tokens = TreeTokens(
        np.pad(counts.indices, (0, n_tokens - len(counts.indices))).astype(np.int32),
        counts.indptr.astype(np.int32),
        counts.indices[cell].astype(np.int32),
        cell.astype(np.int32),
        np.concatenate([[0], np.cumsum(counts.data)])[counts.indptr].astype(np.int32),
    )
    levels = levels_of(counts, allocation.level_counts)
    state, found = state_of(tokens, counts.shape[1], levels, allocation.paths, least=layout)
    assert found == layout, "the fixture's layout has too few places"
    return Tiny(tokens, state)


def stacked(cases: list[Tiny]) -> Tiny:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *cases)


def tables(hyper: TreeHyper, n_words: int, n_docs: int, n_tokens: int) -> SweepTables:
    return tables_of(hyper, n_words, n_docs, n_tokens, n_tokens)


@partial(jax.jit, static_argnames=("layout", "width", "sticks"))
def sweeps(
    keys: Any, batch: Tiny, of_each: SweepTables, *, width: int, sticks: bool = False, layout: Layout = LAYOUT
) -> TreeState:
    """One sweep of every corpus of the batch, each with its own key and tables."""

    def one(key: Any, case: Tiny, looked_up: SweepTables) -> TreeState:
        return tree_sweep(
            key,
            case.tokens,
            case.state,
            looked_up,
            0,
            layout=layout,
            longest=width,
            most_tokens=width,
            sticks=sticks,
            tempered=False,
        )[0]

    return jax.vmap(one)(keys, batch, of_each)


def same_for_all(looked_up: SweepTables, n: int) -> SweepTables:
    return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (n, *np.shape(leaf))), looked_up)


def draw_tiny(rng: np.random.Generator, hyper: TreeHyper, lengths: np.ndarray, n_words: int) -> Tiny:
    return tiny(*draw_corpus(rng, hyper, lengths, n_words))
