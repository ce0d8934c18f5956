"""Left-to-right estimators: Wallach's particles (lr) and Buntine's sequential sampler (lrs).

  log p(j | α, β) = Σ_l log p(j_l | j_<l),   p(j_l | j_<l) ≈ mean over samples k_<l ~ p(k_<l | j_<l) of
                                                             Σ_t β_{t,j_l} (C_t(k_<l) + α_t) / (l + Σα)     (Eq. 5–7)

Position by position: sweep k_<l given j_<l, record the predictive probability of j_l after each sweep, then draw k_l
given j_l. One kernel, two settings:

  lr   `samples` chains, one sweep each per position: the chains never forget their start, so the bias stays however
       many there are. Each prediction is a proper distribution, so on documents of the model it errs low.
  lrs  one chain, `samples` sweeps per position: consistent, since every position's mean converges.

Departure from Buntine §3.6 as printed: the sweep at l there conditions on j_l and is used for p(j_l | ·), which is
biased; a sweep given j_≤l estimates p(j_{l+1} | j_≤l), as here. The order of a bag of words is by word index.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float64, Key
from scipy import sparse

from lvsearch.inference.likelihood.documents import Tile, TopicSet
from lvsearch.inference.likelihood.gibbs_sweep import (
    Assignment,
    block_uniforms,
    choose,
    lane_keys,
    one_hot,
    sweep,
    sweep_keys,
    token_tile,
)
from lvsearch.inference.likelihood.per_tile import estimate_tiles
from lvsearch.inference.likelihood.result import Bias, Estimate

GROUPS = 10
"""Samples are recorded as this many consecutive groups: the spread between group means is the standard error."""

LANES = 512  # documents × chains per call: enough to hide the loop's overhead, few enough to stay in cache


@partial(jax.jit, static_argnames=("chains", "sweeps"))
def _predictions(word_topic, alpha, words, counts, lengths, rows, key, chains: int, sweeps: int):
    """Per position: sums of p(j_l | k_<l) over groups of samples (position, group, document), and sums of squares."""
    beta, real = token_tile(word_topic, words, counts)
    n_positions, n_topics, n_documents = beta.shape
    keys = lane_keys(key, rows, chains)
    total = jnp.sum(alpha)
    groups = min(GROUPS, chains * sweeps)
    chain_groups, sweep_groups = (groups, 1) if chains >= groups else (1, groups)
    # sums over chains of one group as a product with a fixed (chain, group) table
    of_chain = jax.nn.one_hot(jnp.arange(chains) * chain_groups // chains, chain_groups)

    def at_position(position, carry):
        state, sums, squares = carry

        def one_sweep(r, inner):
            state, sums, squares = inner
            state = sweep(sweep_keys(keys, position * (sweeps + 1) + r), position, state, alpha, beta, real)
            weight = (state.counts + alpha[:, None, None]) * beta[position][:, :, None]
            p = jnp.sum(weight, axis=0) / (position + total)
            by_group = jnp.einsum("dc,cg->gd", p, of_chain, precision=lax.Precision.HIGHEST)
            first = r * sweep_groups // sweeps
            sums = lax.dynamic_update_slice(
                sums,
                lax.dynamic_slice(sums, (position, first, 0), (1, chain_groups, n_documents)) + by_group,
                (position, first, 0),
            )
            return state, sums, squares.at[position].add(jnp.sum(p * p, axis=1))

        state, sums, squares = lax.fori_loop(0, sweeps, one_sweep, (state, sums, squares))
        uniform = block_uniforms(sweep_keys(keys, position * (sweeps + 1) + sweeps), 0, 1)[0]
        new = choose((state.counts + alpha[:, None, None]) * beta[position][:, :, None], uniform)
        added = state.counts + one_hot(new, n_topics, real[position])
        return Assignment(state.topic.at[position].set(new), added), sums, squares

    start = Assignment(
        jnp.zeros((n_positions, n_documents, chains), jnp.int32), jnp.zeros((n_topics, n_documents, chains), beta.dtype)
    )
    sums = jnp.zeros((n_positions, groups, n_documents), beta.dtype)
    squares = jnp.zeros((n_positions, n_documents), beta.dtype)
    _, sums, squares = lax.fori_loop(0, jnp.max(lengths), at_position, (start, sums, squares))
    return sums, squares


def _summarise(
    sums: Float64[np.ndarray, "position group document"],
    squares: Float64[np.ndarray, "position document"],
    lengths: np.ndarray,
    samples: int,
    independent_chains: bool,
) -> Estimate:
    """log p̂ = Σ_l log mean_l with its error, in float64.

    Error of log mean_l to first order: the relative deviation of the group means. Chains carry their deviation from
    position to position, so it is summed over positions before squaring; the groups of one chain's sweeps are close to
    independent between positions. Effective samples: independent draws at every position that would err as much.
    """
    groups = sums.shape[1]
    real = np.arange(sums.shape[0])[:, None] < lengths
    sizes = np.bincount(np.arange(samples) * groups // samples, minlength=groups)
    mean = np.where(real, sums.sum(axis=1) / samples, 1.0)
    relative = np.where(real[:, None], sums / sizes[:, None] / mean[:, None] - 1, 0.0)
    relative[0] = 0.0  # the first word is predicted by the prior alone
    if independent_chains:
        variance = np.sum(relative.sum(axis=0) ** 2, axis=0) / (groups * max(groups - 1, 1))
    else:
        variance = np.sum(relative**2, axis=(0, 1)) / (groups * max(groups - 1, 1))
    spread = np.where(real, np.maximum(squares / samples / mean**2 - 1, 0.0), 0.0)
    spread[0] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(variance > 0, np.minimum(spread.sum(axis=0) / variance, samples), samples)
        return Estimate(
            np.log(mean).sum(axis=0), np.sqrt(variance) if groups > 1 else np.full_like(variance, np.nan), effective
        )


@dataclass(frozen=True)
class LeftToRight:
    """Left-to-right estimation with independent chains of one sweep (lr) or one chain of many sweeps (lrs)."""

    independent_chains: bool
    bias: Bias
    samples: int = 100

    def estimate(self, topics: TopicSet, counts: sparse.csr_array, samples: int, key: Key[Array, " "]) -> Estimate:
        chains, sweeps = (samples, 1) if self.independent_chains else (1, samples)

        def one_tile(tile: Tile, word_topic, alpha) -> Estimate:
            lengths = tile.counts.sum(axis=1)
            sums, squares = _predictions(
                word_topic, alpha, tile.words, tile.counts, lengths, tile.padded_rows, key, chains, sweeps
            )
            return _summarise(
                np.asarray(sums, np.float64), np.asarray(squares, np.float64), lengths, samples, self.independent_chains
            )

        return estimate_tiles(topics, counts, one_tile, documents_per_tile=max(1, LANES // chains))
