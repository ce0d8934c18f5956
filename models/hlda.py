"""Hierarchical latent Dirichlet allocation on a truncated tree, by nested stick-breaking.

Source: Blei (2004), §6.1–6.2 and the nested Dirichlet process of §6.2; paths of different lengths are its §6.4. The
generative story:

    1. sticks            V_c ~ Beta(1, γ)                    for every node c below the root
    2. topics            β_c ~ Dirichlet(η_ℓ, …, η_ℓ)        for every node, ℓ its level
    3. path lengths      λ ~ Dirichlet(1, …, 1)              over the lengths allowed; only where there are several
    4. path              c_d: length ~ Categorical(λ), then at each node the i-th child with probability
                         V_i Π_{j<i} (1 − V_j)
    5. proportions       θ_d ~ Dirichlet(α_1, …, α_ℓ)        over the ℓ levels of the path
    6. level             z_dn ~ Categorical(θ_d)
    7. word              w_dn ~ Categorical(β of the node at level z_dn of c_d)

d are documents and n their tokens. A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `branching` | γ | () | > 0 |
| `levels` | α | (level,) | > 0 |
| `topics` | η | (level,) | > 0 |
| `depth`, `lengths` | L, and the lengths of paths | static | |
| site `sticks_ℓ` | (log V, log(1 − V)) | (branch_2, …, branch_ℓ) | (0, 1) |
| site `topic_word_ℓ` | log β | (branch_2, …, branch_ℓ, word) | simplex |
| site `lengths` | log λ | (length,) | simplex; only where there are several |
| site `path` | c_d, over the nodes at which a path may end | (path,) | one-hot |
| site `proportions_ℓ` | log θ_d of a path that ends at this node | (end_ℓ, level_ℓ) | simplex |
| site `assignment_ℓ` | z_dn likewise, one for each *distinct* word | (token, end_ℓ, level_ℓ) | one-hot |

Proportions and levels are gated by the path (`Gate`): those of an end node exist only where the path ends there. So q
is q(c) q(θ | c) q(z | c), paths are summed out exactly, and every path has its own level proportions.

Departure from the source. The last stick keeps its prior, and q gives no mass to branches beyond the truncation. Those
sticks and topics have their prior as q and cancel. So the bound is one on the evidence of the infinite tree, and a
wider truncation only gives a better bound.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float

from lvsearch.models.contract import (
    Gate,
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Model,
    Site,
    concentration_parameter,
    first,
    is_known_false,
)
from lvsearch.models.exponential.simplex import log_symmetric_dirichlet
from lvsearch.models.families import Beta, BetaStatistics, Categorical, Dirichlet
from lvsearch.models.hierarchical_process import log_stick_weights
from lvsearch.models.plain_arguments import whole_number
from lvsearch.models.topic_model import saturated_log_likelihood
from lvsearch.models.units import BagOfWords

MOST_LEVELS = 100
"""The greatest depth of a tree. Each level has its own hyper-parameters, and no document has a path this long."""


class HLDA(Model):
    """Hierarchical LDA; `size` is the truncation: the largest number of branches below a node of each level, root
    first.

    depth: levels of the tree, root included; at least 2 for mean field (depth 1 is one topic), any for `lv.fit_tree`.
    branching: γ, the concentration of the nested process; a larger one gives more branches.
    levels: α, of the Dirichlet on a document's level proportions; one number, or one per level.
    topics: η, of the symmetric Dirichlet on each topic's words; one number, or one per level.
    lengths: the numbers of levels that paths may have, such as (2, 3). By default every path reaches a leaf.

    `size` (4, 3) at depth 3 is a tree of 1 + 4 + 12 nodes. It truncates q and is no size of the model, whose tree is
    infinite: every truncation bounds the same evidence from below. The number of branches is answered by the sampler
    (`lv.fit_tree`, `lv.occupied`).
    """

    branching: HyperparameterArray
    levels: HyperparameterArray
    topics: HyperparameterArray
    depth: int = eqx.field(static=True)
    lengths: tuple[int, ...] = eqx.field(static=True)
    size_names: tuple[str, ...] = eqx.field(static=True)

    nested = False
    process = True
    unit_type = BagOfWords
    representation = "path"

    def __init__(
        self,
        depth: int = 3,
        branching: Any = 1.0,
        levels: Any = 10.0,
        topics: Any = 0.1,
        lengths: Sequence[int] | None = None,
    ):
        self.depth = depth = whole_number("depth", depth, least=1, most=MOST_LEVELS)
        self.branching = concentration_parameter("branching", branching)
        if self.branching.ndim or is_known_false(self.branching > 0):
            raise ValueError(f"branching must be one positive number, got {branching!r}")
        self.levels, self.topics = _per_level("levels", levels, depth), _per_level("topics", topics, depth)
        self.lengths = (self.depth,) if lengths is None else tuple(sorted({int(n) for n in lengths}))
        if not self.lengths or not 1 <= self.lengths[0] <= self.lengths[-1] <= self.depth:
            raise ValueError(f"got lengths={lengths!r}, expected numbers of levels from 1 to the depth, {depth}")
        self.size_names = tuple(f"branches at level {level}" for level in range(1, self.depth))

    def describe(self) -> str:
        """Describe the model in one line, such as "HLDA: 3 levels; branching 1; levels (10, 10, 10); topics (0.1, 0.1,
        0.1)".
        """

        def values(array: HyperparameterArray) -> str:
            return f"({', '.join(f'{x:g}' for x in array.tolist())})"

        several = "" if len(self.lengths) == 1 else f"; paths of {', '.join(map(str, self.lengths))} levels"
        return (
            f"HLDA: {self.depth} levels; branching {float(self.branching):g}; levels {values(self.levels)}; "
            f"topics {values(self.topics)}{several}"
        )

    # ── sites ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all documents share: the sticks below each node, the topics of the nodes,
        and the shares of path lengths.
        """
        sites = {f"sticks_{n}": Site(Beta(), _branches(n)) for n in range(2, self.depth + 1)}
        sites |= {f"topic_word_{n}": Site(Dirichlet(), (*_branches(n), "word")) for n in range(1, self.depth + 1)}
        return {**sites, "lengths": Site(Dirichlet(), ("length",))} if len(self.lengths) > 1 else sites

    def locals(self) -> dict[str, Site]:
        """Return the latent variables of one document: its path, and for each path length the level of each word and
        the shares of levels.
        """
        sites = {}
        for n in self.lengths:
            axes = (f"end_{n}", f"level_{n}")
            gate = Gate("path", partial(self._ends, n))
            sites[f"assignment_{n}"] = Site(Categorical(), ("token", *axes), copies=_copies, gate=gate)
            sites[f"proportions_{n}"] = Site(Dirichlet(), axes, gate=gate)
        return {**sites, "path": Site(Categorical(), ("path",))}

    def extents(self, unit: BagOfWords) -> dict[str, int]:
        """Return {"token": number of columns of the document, "level_ℓ": ℓ for each path length ℓ}."""
        return {"token": unit.words.shape[-1], **{f"level_{n}": n for n in self.lengths}}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return the masks by axis: the branches that exist at each level, and the nodes at which paths may end."""
        branch = {f"branch_{i + 2}": first(n, capacity[i]) for i, n in enumerate(size)}
        ends = {f"end_{n}": _node_mask([branch[axis] for axis in _branches(n)]) for n in self.lengths}
        masks = {**branch, **ends, "path": jnp.concatenate(list(ends.values()))}
        return {**masks, "length": jnp.ones(len(self.lengths), bool)} if len(self.lengths) > 1 else masks

    # ── the log-joint ───────────────────────────────────────────────────────────────────────────────────────────────

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return the sum of log Dirichlet(topic of a node | η of its level) and log Beta(stick of a node | 1, γ), in
        nats.

        If paths may end at several depths, the log density of a flat Dirichlet of their shares is added.

        g: {"topic_word_ℓ", "sticks_ℓ", "lengths": statistics}; shapes in the module's table.
        on: {axis: mask of the entries that exist}.
        """
        total = jnp.zeros((), g["topic_word_1"].dtype)
        for n in range(1, self.depth + 1):
            exists = _node_mask([on[axis] for axis in _branches(n)])
            log_beta = g[f"topic_word_{n}"].reshape(len(exists), -1)
            per_node = log_symmetric_dirichlet(log_beta, self.topics[n - 1], log_beta.shape[-1])
            if n > 1:
                complement = g[f"sticks_{n}"].log_complement.reshape(-1)
                per_node = per_node + jnp.log(self.branching) + (self.branching - 1) * complement
            total = total + jnp.where(exists, per_node, 0.0).sum()
        if len(self.lengths) > 1:
            total = total + gammaln(jnp.asarray(float(len(self.lengths)), total.dtype))  # a flat Dirichlet
        return total

    def log_unit(self, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> Float[Array, ""]:
        """Return log p(c) + log p(θ | c) + Σ_n log p(level_n, word_n | c, θ) of one document with path c, in nats.

        θ are the proportions of levels, and n runs over the tokens of the document.

        g: {"topic_word_ℓ", "sticks_ℓ", "lengths": statistics}. l: {"path", "proportions_ℓ", "assignment_ℓ":
            statistics}.
        unit: the document. on: {axis: mask of the entries that exist}.
        """
        total = jnp.zeros((), g["topic_word_1"].dtype)
        for position, n in enumerate(self.lengths):
            log_theta = l[f"proportions_{n}"]
            weighted = unit.counts[:, None, None] * l[f"assignment_{n}"]  # (token, end, level)
            words = (weighted * (log_theta + self._log_words(g, unit, on, n))).sum((0, 2))
            log_path = self._log_weights(g, on, n)
            if len(self.lengths) > 1:
                log_path = log_path + g["lengths"][position]
            # gated: log p(c_d), log p(θ | c), and the words and levels of an end count where the path ends there
            log_end = log_path + self._log_proportions(log_theta) + words
            total = total + jnp.where(on[f"end_{n}"], self._ends(n, l["path"], on) * log_end, 0.0).sum()
        return total

    def _ends(self, n: int, path: Float[Array | np.ndarray, " path"], on: Masks) -> Float[Array | np.ndarray, " end"]:
        """Return the entries of the path's indicator that belong to paths of n levels, shape (end,).

        n: the number of levels. path: the indicator of the path, shape (path,). on: {axis: mask}, for the lengths of
            the axes.
        """
        begin = sum(len(on[f"end_{other}"]) for other in self.lengths if other < n)
        return path[begin : begin + len(on[f"end_{n}"])]

    def _log_words(self, g: Latents, unit: BagOfWords, on: Masks, n: int) -> Float[Array, "token end level"]:
        """Return log β of each word of a document at each level of the path to each end node, shape (token, end,
        level).

        g: {"topic_word_ℓ": log β}. unit: the document. on: {axis: mask}, for the lengths of the axes.
        n: the number of levels of the paths.
        """
        shape = tuple(len(on[axis]) for axis in _branches(n))
        levels = []
        for level in range(1, n + 1):
            log_beta = g[f"topic_word_{level}"][..., unit.words]  # (branch_2, …, branch_level, token)
            # every end below this node has its topic: broadcast over the deeper branches
            spread = log_beta.reshape(*shape[: level - 1], *(1,) * (n - level), -1)
            levels.append(jnp.broadcast_to(spread, (*shape, len(unit.words))).reshape(prod(shape), -1).T)
        return jnp.stack(levels, axis=-1)

    def _log_weights(self, g: Latents, on: Masks, n: int) -> Float[Array, " end"]:
        """Return log p(path to each end node | its length) = Σ_levels [log V_i + Σ_{j<i} log(1 − V_j)], in nats, shape
        (end,).

        V are the sticks of the branches; i is the branch that the path takes.

        g: {"sticks_ℓ": (log V, log(1 − V))}. on: {axis: mask of the branches that exist}.
        n: the number of levels of the paths.
        """
        total = jnp.zeros(())
        for level in range(2, n + 1):
            mask = _node_mask([on[axis] for axis in _branches(level)]).reshape([len(on[a]) for a in _branches(level)])
            sticks = jax.tree.map(lambda leaf, mask=mask: jnp.where(mask, leaf, 0.0), g[f"sticks_{level}"])
            total = total[..., None] + log_stick_weights(sticks)
        return total.reshape(-1)

    def _log_proportions(self, log_theta: Float[Array, "end level"]) -> Float[Array, " end"]:
        """Return log Dirichlet(θ | α_1, …, α_ℓ) of the level proportions θ of each end node, in nats, shape (end,).

        log_theta: log θ, shape (end, level).
        """
        alpha = jnp.asarray(self.levels[: log_theta.shape[-1]], log_theta.dtype)
        return gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * log_theta).sum(-1)

    # ── the rest of the contract ────────────────────────────────────────────────────────────────────────────────────

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return 0 nats: sticks have an order, so no relabelling of a fit is equally good."""
        return 0.0

    def ceiling(self, units: BagOfWords) -> float:
        """Return Σ_d Σ_w n_dw log(n_dw / N_d) in nats: the log-likelihood if each document had its own word
        frequencies.

        n_dw is how often document d has word w, and N_d the length of document d. units: all documents.

        Proof: given topics, path and proportions every token of document d has one distribution over words. Σ_w n_w log
        p_w over the simplex is greatest at p_w = n_w / N (Gibbs' inequality). An average is at most the maximum.
        """
        return saturated_log_likelihood(units)

    def plug_in(self) -> "HLDA":
        """Raise ValueError: the model has no plug-in form."""
        raise ValueError(
            'HLDA has no plug-in form, got evidence="plug-in": use evidence="marginal". With estimated topics, every '
            "document would be given a leaf of its own"
        )

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> BagOfWords:
        """Draw a word for every token of a document, given its path and the level of each token.

        g: {"topic_word_ℓ": log β}. l: {"path", "assignment_ℓ": indicators}.
        unit: a document with one token in every column (counts 0 or 1); its words are replaced.
        on: {axis: mask of the entries that exist}.
        """
        grid = BagOfWords(jnp.arange(g["topic_word_1"].shape[-1]), unit.counts)
        logits = jnp.zeros(())
        for n in self.lengths:
            log_beta = self._log_words(g, grid, on, n)  # (word, end, level)
            logits = logits + jnp.einsum("tel,e,wel->tw", l[f"assignment_{n}"], self._ends(n, l["path"], on), log_beta)
        return BagOfWords(jax.random.categorical(key, logits).astype(unit.words.dtype), unit.counts)

    def simulate(self, key: Array, size: tuple[int, ...], units: BagOfWords, extents: Mapping[str, int]) -> JointDraw:
        """Draw from the joint of the truncated tree: paths that leave the truncation are drawn again.

        size: the largest number of branches below a node of each level.
        units: documents with one token in each column (counts 0 or 1); their words are replaced.
        extents: {"word": V}, the number V of words in the vocabulary.

        Returns (statistics of the globals by name, statistics of the locals by name with documents leading, the
        documents). Proportions and levels of end nodes that a path does not reach have no meaning. They are drawn from
        uniform distributions, as the generic Gibbs sampler draws them.
        """
        keys = iter(jax.random.split(key, 2 * self.depth + 2 * len(self.lengths) + 3))
        n_docs, length = units.words.shape
        on, g, l = self.active(size, size), {}, {}
        # 1. sticks and 2. topics of every node
        for n in range(2, self.depth + 1):
            shape = tuple(size[: n - 1])
            natural = BetaStatistics(jnp.zeros(shape), jnp.broadcast_to(jnp.asarray(self.branching) - 1, shape))
            g[f"sticks_{n}"] = Beta().sample(next(keys), natural)
        for n in range(1, self.depth + 1):
            eta = jnp.broadcast_to(jnp.asarray(self.topics[n - 1]), (*size[: n - 1], extents["word"]))
            g[f"topic_word_{n}"] = Dirichlet().sample(next(keys), eta - 1)
        # 3. shares of path lengths, and 4. the end node of every document's path
        several = len(self.lengths) > 1
        if several:
            g["lengths"] = Dirichlet().sample(next(keys), jnp.zeros(len(self.lengths)))
        log_paths = [
            self._log_weights(g, on, n) + (g["lengths"][i] if several else 0.0) for i, n in enumerate(self.lengths)
        ]
        chosen = jax.random.categorical(next(keys), jnp.concatenate(log_paths), shape=(n_docs,))
        l["path"] = jax.nn.one_hot(chosen, sum(len(x) for x in log_paths))
        for n in self.lengths:
            # 5. level proportions and 6. levels, for every node at which a path of n levels may end
            reached = jax.vmap(lambda path, n=n: self._ends(n, path, on))(l["path"])[..., None] > 0  # (doc, end, 1)
            alpha = jnp.where(reached, jnp.asarray(self.levels[:n]), 1.0)
            log_theta = Dirichlet().sample(next(keys), alpha - 1)
            logits = jnp.where(reached, log_theta, 0.0)[:, None]
            drawn = jax.random.categorical(next(keys), logits, shape=(n_docs, length, reached.shape[1]))
            l[f"assignment_{n}"], l[f"proportions_{n}"] = jax.nn.one_hot(drawn, n), log_theta
        return g, l, self._draw_units(next(keys), g, l, units, on)


def _branches(n: int) -> tuple[str, ...]:
    """Return the names of the axes that index the nodes at level n, ("branch_2", …, "branch_n"); () for the root."""
    return tuple(f"branch_{level}" for level in range(2, n + 1))


def _node_mask(masks: list[Any]) -> Bool[Array, " nodes"]:
    """Return the mask of the nodes of one level that exist, flattened with the last branch fastest, shape (nodes,).

    A node exists where all branches on its path do.

    masks: which branches exist, one mask for each level below the root.
    """
    nodes = masks[0] if masks else jnp.ones(1, bool)
    for mask in masks[1:]:
        nodes = (nodes[:, None] & mask).reshape(-1)
    return nodes


def _copies(unit: BagOfWords) -> Any:
    """Return the copies of each distinct word of a document, shape (token, 1), with an axis for the end nodes."""
    return unit.counts[:, None]


def _per_level(name: str, value: Any, depth: int) -> HyperparameterArray:
    """Return a hyper-parameter as one positive number per level, shape (level,).

    name: the name of the hyper-parameter, for the error. value: one number, or one per level.
    depth: the number of levels.

    Raises ValueError for other shapes and for numbers that are not positive.
    """
    array = concentration_parameter(name, value)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != depth):
        raise ValueError(f"got {name} of shape {array.shape}, expected one number or one for each of {depth} levels")
    if is_known_false(array > 0):
        raise ValueError(f"{name} must be positive, got {value!r}")
    return array * np.ones(depth)
