"""One compiled sweep of the collapsed Gibbs sampler over documents: the path as a block, then the level of every token.

Source: Blei (2004), §6.2.1, corrected. Let c_d be the path of document d, z_dn the level of its n-th token, n_ℓ and
n_ℓw the tokens (of word w) at the path's node of level ℓ in all other documents, m the document's own tokens, V the
number of words and η the topics' concentration. For each document in turn,

    p(c_d = path | rest) ∝ p(path | c_−d) Π_ℓ Γ(n_ℓ + Vη) / Γ(n_ℓ + m_ℓ + Vη) · Π_w Γ(n_ℓw + m_ℓw + η) / Γ(n_ℓw + η)
    p(z_dn = ℓ  | rest) ∝ p(ℓ | z_d,−n) (n_ℓw + η) / (n_ℓ + Vη)

Paths are those to every existing leaf and, below every existing inner node, one path that is new from there on (a new
restaurant's first customer opens its first table with probability 1).

The loop is sequential, as Gibbs sampling is, but compiled whole. On a CPU, XLA emits a small loop as straight machine
code. Three rules keep the inner loops small:

- They hold scalars and slices only.
- Every array is updated before it is read again, or only read, or only written. Otherwise it is copied.
- A drawn level passes an optimization barrier. Otherwise each update draws it anew.

log Γ at whole counts comes from tables. Scores of a level are sums over the document's words at this level, eight words
× all places (array slots of nodes) at a time. Everything is float64.

The tree and its documents are arrays of fixed shapes. Nodes live in array slots, called places. Each level has a
contiguous range of places (`Layout`). A place that no document passes is free. A layout is part of the compile key, and
ranges grow by doubling, so a chain compiles O(log nodes) times.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jaxtyping import Array, Int
from scipy.special import gammaln

from lvsearch.inference.compiles import counted
from lvsearch.inference.trees.density import DirichletLevels, TreeHyper
from lvsearch.models.kernels import kernel

Layout = tuple[int, ...]
"""The first place (array slot) of each level, and the number of all places: (0, 1, 17, 81) has levels of 1, 16 and
64.
"""
SMALLEST = 16
"""The fewest places (array slots) of a level below the root."""


class TreeTokens(NamedTuple):
    """A corpus, token by token. The `cell` of a token is the nonzero (document, word) count that it belongs to.

    | field | shape | meaning |
    |---|---|---|
    | `cell_word` | (cells,) | word of each cell |
    | `doc_cells` | (docs + 1,) | first cell of each document |
    | `word`, `cell` | (tokens,) | word and cell of each token |
    | `doc_tokens` | (docs + 1,) | first token of each document |
    """

    cell_word: Int[np.ndarray, " cells"] | Array
    doc_cells: Int[np.ndarray, " docs_and_one"] | Array
    word: Int[np.ndarray, " tokens"] | Array
    cell: Int[np.ndarray, " tokens"] | Array
    doc_tokens: Int[np.ndarray, " docs_and_one"] | Array


class TreeState(NamedTuple):
    """The arrays that a sweep changes. A place is an array slot that a node can take.

    | field | shape | meaning |
    |---|---|---|
    | `levels` | (tokens,) | level of each token, 0 = root |
    | `paths` | (docs, level) | place of the node of each level on the document's path |
    | `node_word` | (V, place) | tokens of each word at each place |
    | `node_tokens` | (place,) | tokens at each place |
    | `documents` | (place,) | documents through each place; 0 = free |
    | `parent` | (place,) | place of the parent; anything if the place is free |
    """

    levels: Int[np.ndarray, " tokens"] | Array
    paths: Int[np.ndarray, "docs level"] | Array
    node_word: Int[np.ndarray, "word place"] | Array
    node_tokens: Int[np.ndarray, " place"] | Array
    documents: Int[np.ndarray, " place"] | Array
    parent: Int[np.ndarray, " place"] | Array


def tokens_of(counts: scipy.sparse.csr_array) -> TreeTokens:
    """Return the tokens of a corpus, in the order of the nonzero (document, word) counts."""
    copies = np.asarray(counts.data, np.int64)
    cell = np.repeat(np.arange(len(copies)), copies)
    return TreeTokens(
        counts.indices.astype(np.int32),
        counts.indptr.astype(np.int32),
        counts.indices[cell].astype(np.int32),
        cell.astype(np.int32),
        np.concatenate([[0], np.cumsum(copies)])[counts.indptr].astype(np.int32),
    )


def state_of(
    tokens: TreeTokens,
    n_words: int,
    levels: Int[np.ndarray, " tokens"],
    paths: Int[np.ndarray, "docs level"],
    least: Layout | None = None,
) -> tuple[TreeState, Layout]:
    """Return the arrays of a state from levels and paths, and the layout of their array slots.

    tokens: the corpus.
    n_words: the number of words in the vocabulary.
    levels: the level of each token.
    paths: the node of each level on each document's path, with any labels.
    least: a layout whose ranges are kept at levels that leave a slot free.
    """
    depth, places, layout = paths.shape[1], [], [0]
    for level in range(depth):
        labels, place = np.unique(paths[:, level], return_inverse=True)
        wanted = places_for(len(labels), level)
        if least is not None and (level == 0 or len(labels) < _length(least, level)):
            wanted = _length(least, level)
        places.append(layout[-1] + place)
        layout.append(layout[-1] + wanted)
    at = np.stack(places, axis=1).astype(np.int32)
    n_places = layout[-1]
    parent = np.zeros(n_places, np.int32)
    for level in range(1, depth):
        parent[at[:, level]] = at[:, level - 1]
    document = np.repeat(np.arange(len(paths)), np.diff(tokens.doc_tokens))
    node_word = np.zeros((n_words, n_places), np.int32)
    np.add.at(node_word, (tokens.word, at[document, levels]), 1)
    state = TreeState(
        np.asarray(levels, np.int32),
        at,
        node_word,
        node_word.sum(0, dtype=np.int32),
        np.bincount(at.ravel(), minlength=n_places).astype(np.int32),
        parent,
    )
    return state, tuple(layout)


def places_for(n_nodes: int, level: int) -> int:
    """Return how many array slots a level gets for `n_nodes` nodes: a power of two, at least a fifth of them free."""
    return 1 if level == 0 else max(SMALLEST, 1 << (n_nodes + n_nodes // 4 + 3).bit_length())


def _length(layout: Layout, level: int) -> int:
    """Return how many array slots a level has in a layout."""
    return layout[level + 1] - layout[level]


def levels_of(counts: scipy.sparse.csr_array, level_counts: Int[np.ndarray, "nonzeros level"]) -> np.ndarray:
    """Return the level of each token, (token,), from how many tokens of each cell are at each level.

    A cell is a nonzero (document, word) count; its tokens are given levels from the root down.
    """
    depth = level_counts.shape[1]
    return np.repeat(np.tile(np.arange(depth), len(counts.data)), level_counts.ravel()).astype(np.int32)


WORDS = 8
"""The number of words whose scores are summed at a time."""


class SweepTables(NamedTuple):
    """The tables in which a sweep looks up numbers, float64.

    | field | shape | entry n |
    |---|---|---|
    | `word` | (level, counts) | log Γ(n + η_ℓ), with η_ℓ the topics' concentration at a level |
    | `total` | (level, counts) | log Γ(n + Vη_ℓ), with V the number of words |
    | `customers`, `seats` | (docs + 1,) | log n; log(n + γ), with γ the concentration of branching |
    | `topics`, `mass` | (level,) | η_ℓ; Vη_ℓ |
    | `before`, `after` | (level,) | level prior: α_ℓ and what is unused (Dirichlet); the two parameters of the sticks |
    | `log_branching` | () | log γ |
    | `inverse_temperature` | () | 1 draws from the posterior; less flattens both conditionals |
    """

    word: Any
    total: Any
    customers: Any
    seats: Any
    topics: Any
    mass: Any
    before: Any
    after: Any
    log_branching: Any
    inverse_temperature: Any


def tables_of(
    hyper: TreeHyper, n_words: int, n_docs: int, word_total: int, n_tokens: int, inverse_temperature: float = 1.0
) -> SweepTables:
    """Return the tables in which a sweep looks up numbers, at given hyper-parameters.

    n_words, n_docs, n_tokens: sizes of the corpus.
    word_total: the most tokens that one word has in the corpus.
    inverse_temperature: 1 draws from the posterior, less flattens both conditionals.
    """
    eta = hyper.topics[:, None]
    if isinstance(hyper.levels, DirichletLevels):
        before, after = hyper.levels.alpha, np.zeros(hyper.depth)
    else:
        a, b = hyper.levels.sticks()
        before, after = np.full(hyper.depth, a), np.full(hyper.depth, b)
    return SweepTables(
        gammaln(np.arange(word_total + 1) + eta),
        gammaln(np.arange(n_tokens + 1) + n_words * eta),
        np.log(np.maximum(np.arange(n_docs + 1), 1)),
        np.log(np.arange(n_docs + 1) + hyper.branching),
        hyper.topics,
        n_words * hyper.topics,
        before,
        after,
        np.float64(np.log(hyper.branching)),
        np.float64(inverse_temperature),
    )


def _get(array: Any, index: Any) -> Any:
    """Return the entry of an array at a traced index, without its first axis."""
    return lax.dynamic_index_in_dim(array, index, 0, keepdims=False)


def _set(array: Any, index: Any, value: Any) -> Any:
    """Return the array with the entry at a traced index replaced."""
    return lax.dynamic_update_index_in_dim(array, value, index, 0)


def _look_up(table: Any, index: Any) -> Any:
    """Return table[index] without a check of the bounds."""
    return table.at[index].get(mode="promise_in_bounds")


class _Randoms(NamedTuple):
    """The uniform numbers of a sweep: one for every document's path and one for every token's level."""

    path: Any
    token: Any


@dataclass(frozen=True)
class _Sweep:
    """One sweep while it is traced: its constants, and the steps for one document.

    `uniform`: a number for every document's path and every token's level.
    `width`: the number of slots for the words of a document.

    The other fields are the arguments of `tree_sweep`. In the methods, d is a document, z the levels of all tokens, m
    the document's tokens at each level, and a place the array slot of a node.
    """

    corpus: TreeTokens
    tables: SweepTables
    uniform: _Randoms
    layout: Layout
    depth: int
    n_words: int
    n_places: int
    width: int
    most_tokens: int
    sticks: bool
    tempered: bool
    paths_fixed: bool

    @property
    def of_level(self) -> list[slice]:
        """The range of places (array slots of nodes) of each level."""
        return [slice(self.layout[level], self.layout[level + 1]) for level in range(self.depth)]

    @property
    def each_level(self) -> Array:
        """The numbers of the levels, (level,)."""
        return jnp.arange(self.depth, dtype=jnp.int32)

    def remove(self, d: Any, z: Any, path: Any, node_word: Any) -> tuple[Any, Any]:
        """Take a document's tokens out of the counts.

        d: the document. z: the levels of all tokens. path: its nodes. node_word: tokens by word and node, flat.

        Returns: (the counts without the document, its own counts by cell and level, flat).
        """
        begin = self.corpus.doc_cells[d]

        def one(t: Any, carry: Any) -> Any:
            node_word, own = carry
            level = _get(z, t)
            at = _get(self.corpus.word, t) * self.n_places + _get(path, level)
            cell = (_get(self.corpus.cell, t) - begin) * self.depth + level
            return _set(node_word, at, _get(node_word, at) - 1), _set(own, cell, _get(own, cell) + 1)

        own = jnp.zeros(self.width * self.depth, jnp.int32)
        return lax.fori_loop(self.corpus.doc_tokens[d], self.corpus.doc_tokens[d + 1], one, (node_word, own))

    def word_scores(self, d: Any, own: Any, node_word: Any, level: int) -> tuple[Any, Any]:
        """Return Σ_w log Γ(n_w + m_w + η) − log Γ(n_w + η) for each node of a level, and for a new node, in nats.

        Here n_w are the tokens of word w at the node, m_w those of the document at this level, η the topics'
        concentration.

        d: the document. own: its own counts by cell and level, flat. node_word: counts of the other documents, flat.
        """
        begin, n_cells = self.corpus.doc_cells[d], self.corpus.doc_cells[d + 1] - self.corpus.doc_cells[d]

        def pick(cell: Any, carry: Any) -> Any:
            word, copies, n = carry
            here = _get(own, cell * self.depth + level)
            return (
                _set(word, n, _get(self.corpus.cell_word, begin + cell)),
                _set(copies, n, here),
                n + (here > 0).astype(jnp.int32),
            )

        zeros = jnp.zeros(self.width, jnp.int32)
        word, copies, n = lax.fori_loop(jnp.int32(0), n_cells, pick, (zeros, zeros, jnp.int32(0)))
        n_here = self.layout[level + 1] - self.layout[level]
        dims = lax.GatherDimensionNumbers((1,), (0,), (0, 1))
        table, grid = self.tables.word[level], node_word.reshape(self.n_words, self.n_places)

        def some(i: Any, total: Any) -> Any:
            w = lax.dynamic_slice_in_dim(word, i * WORDS, WORDS)
            m = lax.dynamic_slice_in_dim(copies, i * WORDS, WORDS)[:, None]
            corner = jnp.stack([w, jnp.full_like(w, self.layout[level])], 1)
            n_w = lax.gather(grid, corner, dims, (1, n_here), mode="promise_in_bounds")
            return total + (_look_up(table, n_w + m) - _look_up(table, n_w)).sum(0)

        scores = lax.fori_loop(jnp.int32(0), (n + WORDS - 1) // WORDS, some, jnp.zeros(n_here, jnp.float64))
        return scores, (_look_up(table, copies) - table[0]).sum()

    def draw_path(self, d: Any, own: Any, m: Any, node_word: Any, node_tokens: Any, documents: Any, parent: Any) -> Any:
        """Draw a document's path: return the place of its last existing node. If that is no leaf, the path is new below
        it.

        d: the document. own: its own counts by cell and level, flat. m: its tokens at each level.
        node_word, node_tokens, documents, parent: the tree without the document, as in `TreeState`.
        """
        customers, seats = _look_up(self.tables.customers, documents), _look_up(self.tables.seats, documents)
        reach, new = [jnp.zeros(1, jnp.float64)], [jnp.zeros((), jnp.float64)]
        # log weight of reaching each place of a level, and of a new node there
        for level in range(1, self.depth):
            here, total = self.of_level[level], self.tables.total[level]
            scores, fresh = self.word_scores(d, own, node_word, level)
            scores = scores - _look_up(total, node_tokens[here] + m[level]) + _look_up(total, node_tokens[here])
            above = parent[here]
            chosen = customers[here] - _look_up(seats, above) + _look_up(reach[-1], above - self.layout[level - 1])
            reach.append(jnp.where(documents[here] > 0, scores + chosen, -jnp.inf))
            new.append(fresh - _get(total, m[level]) + total[0])
        # options: leave the tree below an inner node, or end at an existing leaf; then a draw by inversion
        options = []
        for level in range(self.depth - 1):
            opened = self.tables.log_branching - seats[self.of_level[level]] + sum(new[level + 1 :])
            options.append(reach[level] + opened)
        options = jnp.concatenate([*options, reach[-1]])
        if self.tempered:
            options = options * self.tables.inverse_temperature
        weights = jnp.exp(options - options.max())

        def further(carry: Any) -> Any:
            place, left = carry
            return place + 1, left - _get(weights, place + 1)

        begin = (jnp.int32(0), self.uniform.path[d] * weights.sum() - weights[0])
        drawn, _ = lax.while_loop(lambda c: (c[1] >= 0) & (c[0] < self.n_places - 1), further, begin)
        # rounding of the sum may run past the last option: never onto a free place
        return jnp.where(weights[drawn] > 0, drawn, jnp.argmax(weights).astype(jnp.int32))

    def add(self, d: Any, z: Any, path: Any, node_word: Any) -> Any:
        """Return the counts by word and node, flat, with a document's tokens added.

        d: the document. z: the levels of all tokens. path: its nodes. node_word: the counts without it.
        """

        def one(t: Any, node_word: Any) -> Any:
            at = _get(self.corpus.word, t) * self.n_places + _get(path, _get(z, t))
            return _set(node_word, at, _get(node_word, at) + 1)

        return lax.fori_loop(self.corpus.doc_tokens[d], self.corpus.doc_tokens[d + 1], one, node_word)

    def draw_levels(self, d: Any, z: Any, path: Any, node_word: Any, others: Any, m: Any) -> tuple[Any, Any, Any]:
        """Draw the level of every token of a document in turn.

        d: the document. z: the levels of all tokens. path: its nodes. node_word: counts by word and node, flat.
        others: tokens of other documents at each node of the path.
        m: the document's tokens at each level.

        Returns: (z, node_word, m) with the new levels.
        """
        place = [path[level] for level in range(self.depth)]
        mass = others + self.tables.mass

        def one(t: Any, carry: Any) -> Any:
            drawn_levels, node_word, m = carry
            row, old = _get(self.corpus.word, t) * self.n_places, _get(z, t)
            # take the token out; weigh the levels by prior times topic; draw by inversion; put the token back
            at = row + _get(path, old)
            node_word = _set(node_word, at, _get(node_word, at) - 1)
            m = m - (self.each_level == old)
            total, cumulative, left = jnp.float64(0), [], jnp.float64(1)
            for level in range(self.depth):
                prior = self.tables.before[level] + m[level]
                if self.sticks:
                    deeper = sum((m[j] for j in range(level + 1, self.depth)), jnp.int32(0))
                    both = prior + self.tables.after[level] + deeper
                    prior, left = (left * prior / both, left * (self.tables.after[level] + deeper) / both)
                    prior = prior if level < self.depth - 1 else prior + left
                weight = (
                    prior * (_get(node_word, row + place[level]) + self.tables.topics[level]) / (mass[level] + m[level])
                )
                total = total + (weight**self.tables.inverse_temperature if self.tempered else weight)
                cumulative.append(total)
            x = _get(self.uniform.token, t) * total
            drawn = sum(((x >= cumulative[level]).astype(jnp.int32) for level in range(self.depth - 1)), jnp.int32(0))
            drawn = lax.optimization_barrier(drawn)
            at = row + _get(path, drawn)
            drawn_levels = _set(drawn_levels, t - begin, drawn)
            return drawn_levels, _set(node_word, at, _get(node_word, at) + 1), m + (self.each_level == drawn)

        begin, end = self.corpus.doc_tokens[d], self.corpus.doc_tokens[d + 1]
        drawn_levels, node_word, m = lax.fori_loop(
            begin, end, one, (jnp.zeros(self.most_tokens, jnp.int32), node_word, m)
        )
        old = lax.dynamic_slice_in_dim(z, begin, self.most_tokens)
        kept = jnp.where(jnp.arange(self.most_tokens) < end - begin, drawn_levels, old)
        return lax.dynamic_update_slice_in_dim(z, kept, begin, 0), node_word, m

    def document(self, carry: Any) -> Any:
        """Redraw one document: take it out, draw its path, put it back and draw its levels.

        carry: the loop's state (z, paths, node_word, node_tokens, documents, parent, number of the document, True if a
            level has no free place left), which is returned for the next document.
        """
        z, paths, node_word, node_tokens, documents, parent, d, _ = carry
        path = paths[d]
        node_word, own = self.remove(d, z, path, node_word)
        m = own.reshape(-1, self.depth).sum(0, dtype=jnp.int32)
        node_tokens = node_tokens.at[path].add(-m)
        documents = documents.at[path].add(-1)
        last = (
            path[self.depth - 1]
            if self.paths_fixed
            else self.draw_path(d, own, m, node_word, node_tokens, documents, parent)
        )
        # the nodes of the path: existing ones up from the last, free places below it
        nodes: list[Any] = [None] * self.depth
        at = last
        for level in range(self.depth - 1, -1, -1):
            free = self.layout[level] + jnp.argmin(documents[self.of_level[level]]).astype(jnp.int32)
            exists = last >= self.layout[level]
            nodes[level] = jnp.where(exists, at, free)
            at = jnp.where(exists, parent[at], at)
        for level in range(1, self.depth):
            parent = _set(parent, nodes[level], nodes[level - 1])
        path = jnp.stack(nodes)
        documents = documents.at[path].add(1)
        node_word = self.add(d, z, path, node_word)
        others = node_tokens[path]
        z, node_word, m = self.draw_levels(d, z, path, node_word, others, m)
        node_tokens = node_tokens.at[path].set(others + m)
        crowded = [(documents[self.of_level[level]] > 0).all() for level in range(1, self.depth)]
        full = jnp.stack(crowded).any() if crowded else jnp.asarray(False)
        return z, _set(paths, d, path), node_word, node_tokens, documents, parent, d + 1, full


@kernel(static_argnames=("layout", "longest", "most_tokens", "sticks", "tempered", "paths_fixed"))
@counted
def tree_sweep(
    key: Array,
    tokens: TreeTokens,
    state: TreeState,
    tables: SweepTables,
    first: Any,
    *,
    layout: Layout,
    longest: int,
    most_tokens: int,
    sticks: bool,
    tempered: bool,
    paths_fixed: bool = False,
) -> tuple[TreeState, Array]:
    """Make one sweep over documents from number `first` on.

    Returns: (the state, the document before which the loop stopped because a level had no free array slot, else the
        number of documents). A sweep that stopped goes on with the same key and a roomier layout: random numbers belong
        to documents and tokens.

    key: the random key of the sweep.
    tokens: the corpus.
    state: paths, levels and counts before the sweep.
    tables: numbers that depend on the hyper-parameters.
    layout: the range of array slots of each level.
    longest: at least the most distinct words of a document.
    most_tokens: at least the most tokens of a document.
    sticks: True for GEM levels, False for Dirichlet.
    tempered: True if the inverse temperature is not 1.
    paths_fixed: True to draw levels only.
    """
    n_docs, depth = state.paths.shape
    n_words, n_places = state.node_word.shape
    key_path, key_token = jax.random.split(key)
    uniform = _Randoms(
        jax.random.uniform(key_path, (n_docs,), jnp.float64),
        jax.random.uniform(key_token, (state.levels.shape[0] + 1,), jnp.float64),
    )
    # arrays are padded, so that slices of fixed length never run beyond their ends
    width = -(-longest // WORDS) * WORDS + WORDS
    corpus = TreeTokens(
        jnp.pad(jnp.asarray(tokens.cell_word), (0, width)),
        jnp.asarray(tokens.doc_cells),
        jnp.pad(jnp.asarray(tokens.word), (0, 1)),
        jnp.pad(jnp.asarray(tokens.cell), (0, 1)),
        jnp.asarray(tokens.doc_tokens),
    )
    sweep = _Sweep(
        corpus,
        tables,
        uniform,
        layout,
        depth=depth,
        n_words=n_words,
        n_places=n_places,
        width=width,
        most_tokens=most_tokens,
        sticks=sticks,
        tempered=tempered,
        paths_fixed=paths_fixed,
    )
    begin = (
        jnp.pad(jnp.asarray(state.levels), (0, most_tokens)),
        *(jnp.asarray(leaf) for leaf in (state.paths, jnp.reshape(state.node_word, -1))),
        *(jnp.asarray(leaf) for leaf in state[3:]),
        jnp.asarray(first, jnp.int32),
        jnp.asarray(False),
    )
    z, paths, node_word, *rest, stopped, _ = lax.while_loop(lambda c: (c[-2] < n_docs) & ~c[-1], sweep.document, begin)
    return TreeState(z[:-most_tokens], paths, node_word.reshape(n_words, n_places), *rest), stopped
