"""The hyper-parameters of hierarchical LDA: how trees branch, how documents use levels, how sharp topics are.

| field | letter | shape | meaning |
|---|---|---|---|
| `branching` | γ | () | concentration of the nested Chinese restaurant process: large values open new branches |
| `levels` | α, or (m, π) | | prior of a document's level proportions: `DirichletLevels` or `GEMLevels` |
| `topics` | η_ℓ | (level,) | symmetric Dirichlet of the topics at each level |

Level proportions with a Dirichlet prior are those of Blei (2004), §6.2. With a GEM prior they are θ_ℓ = V_ℓ Π_{j<ℓ} (1
− V_j), where V_ℓ ~ Beta(mπ, (1 − m)π) and the last level takes what is left (Blei, Griffiths & Jordan 2010, §4).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betaln, gammaln

Levels = Float[np.ndarray, " level"]


class DirichletLevels(NamedTuple):
    """The Dirichlet prior of a document's proportions over levels.

    `alpha`: (level,), the concentration on each level from the root down.
    """

    alpha: Levels

    def log_evidence(self, counts: np.ndarray) -> Float[np.ndarray, " docs"]:
        """Return log p(levels of each document's tokens), (docs,), in nats, with proportions integrated out.

        counts: tokens of each document at each level, (docs, level).
        """
        total = self.alpha.sum()
        per_level = gammaln(counts + self.alpha) - gammaln(self.alpha)
        return per_level.sum(-1) + gammaln(total) - gammaln(counts.sum(-1) + total)

    def mean(self, counts: np.ndarray) -> np.ndarray:
        """Return the expected level proportions of each document given its levels, (docs, level).

        counts: tokens of each document at each level, (docs, level).
        """
        posterior = counts + self.alpha
        return posterior / posterior.sum(-1, keepdims=True)


class GEMLevels(NamedTuple):
    """The GEM(m, π) prior of a document's proportions over levels, by stick breaking, cut at the depth of the tree.

    mean_share: m in (0, 1), the mean share that a level takes of what the levels above leave.
    scale: π > 0; the larger, the less the share varies between documents.
    depth: the number of levels.
    """

    mean_share: float
    scale: float
    depth: int

    def sticks(self) -> tuple[float, float]:
        """Return the two parameters (mπ, (1 − m)π) of the Beta distribution of each stick."""
        return self.mean_share * self.scale, (1 - self.mean_share) * self.scale

    def log_evidence(self, counts: np.ndarray) -> Float[np.ndarray, " docs"]:
        """Return log p(levels of each document's tokens), (docs,), in nats, with proportions integrated out.

        counts: tokens of each document at each level, (docs, level).
        """
        a, b = self.sticks()
        deeper = counts[:, ::-1].cumsum(1)[:, ::-1] - counts
        here, below = counts[:, :-1], deeper[:, :-1]  # the last level takes what is left, with certainty
        return (betaln(a + here, b + below) - betaln(a, b)).sum(-1)

    def mean(self, counts: np.ndarray) -> np.ndarray:
        """Return the expected level proportions of each document given its levels, (docs, level).

        counts: tokens of each document at each level, (docs, level).
        """
        a, b = self.sticks()
        deeper = counts[:, ::-1].cumsum(1)[:, ::-1] - counts
        share = (a + counts) / (a + b + counts + deeper)
        share[:, -1] = 1.0
        left = np.concatenate([np.ones((len(counts), 1)), np.cumprod(1 - share[:, :-1], axis=1)], axis=1)
        return share * left


class TreeHyper(NamedTuple):
    """The hyper-parameters of hierarchical LDA.

    `branching`: γ, the concentration of the nested Chinese restaurant process; large values open new branches.
    `levels`: the prior of a document's proportions over levels.
    `topics`: η, the concentration of the topics' Dirichlet prior at each level, (level,).
    """

    branching: float
    levels: DirichletLevels | GEMLevels
    topics: Levels

    @property
    def depth(self) -> int:
        """The number of levels of the tree, the root's included."""
        return len(self.topics)


def tree_hyper(
    depth: int = 3,
    branching: float | int = 1.0,
    levels: object = 10.0,
    topics: object = 0.1,
) -> TreeHyper:
    """Return checked hyper-parameters of a tree of `depth` levels.

    branching: γ, the concentration of branching.
    levels: the concentration α of level proportions, one number for all levels or one per level; or a `GEMLevels`.
    topics: η, the concentration of topics, one for all levels or one per level.

    Raises ValueError for a depth below 1, and for anything that is not positive and finite.
    """
    if depth < 1:
        raise ValueError(f"got depth={depth}, expected at least 1 level: the root")
    eta = _per_level("topics", topics, depth)
    if isinstance(levels, GEMLevels):
        if levels.depth != depth or not 0 < levels.mean_share < 1 or not 0 < levels.scale < np.inf:
            raise ValueError(f"got {levels}, expected 0 < mean_share < 1, scale > 0 and depth {depth}")
        prior: DirichletLevels | GEMLevels = levels
    else:
        prior = DirichletLevels(_per_level("levels", levels, depth))
    gamma = float(branching)
    if not 0 < gamma < np.inf:
        raise ValueError(f"got branching={branching!r}, expected a positive number; near 0 all documents share a path")
    return TreeHyper(gamma, prior, eta)


def _per_level(name: str, value: object, depth: int) -> np.ndarray:
    """Return a hyper-parameter as one positive number per level, (level,). Raises ValueError if it cannot be that."""
    array = np.asarray(value, np.float64)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != depth):
        raise ValueError(f"got {name} of shape {array.shape}, expected one number or one for each of {depth} levels")
    array = np.broadcast_to(array, (depth,)).copy()
    if not np.all((array > 0) & np.isfinite(array)):
        raise ValueError(f"got {name}={value!r}, expected positive finite numbers")
    return array
