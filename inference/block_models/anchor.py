"""Where a path of a block model ended, as the beginning of a shorter one: a q about one labelling.

Of all particles, and of others at the labels of a fit, the one whose joint is highest after some sweeps in the
posterior gives the factors of q: averages over further sweeps of the conditional probabilities of its labels, and of
the natural parameters of its blocks and weights. All are made broader, so that q covers what the posterior may hold
around them; the path does the rest.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from lvsearch.inference.annealing.dispatch import Anchor, anchored_chain, patience
from lvsearch.inference.annealing.particles import log_densities
from lvsearch.inference.block_models.chain import BlockChain, BlockStart, BlockState
from lvsearch.inference.generators import folded
from lvsearch.models.kernels import kernel

SETTLING, AVERAGED = 10, 20
"""Sweeps before the averages, and those averaged over."""
SETTLED = 16
"""Particles that settle: those whose joint is highest where the path ended."""
FITTED = 8
"""And those that begin with the labels of a fit."""
ANYWHERE = 0.02
"""Probability under q that a label is drawn evenly."""
DATA_SHARE = 0.5
"""Of what data say of blocks and weights, that q knows: its variances are twice the posterior's."""


@anchored_chain.register
def _(chain: BlockChain, key: Key[Array, ""], states: Sequence[BlockState]) -> Anchor:
    known = settled(chain, key, states)
    return Anchor(eqx.tree_at(lambda c: c.start, chain, _broadened(chain, known), is_leaf=lambda x: x is None), 0.0)


def settled(chain: BlockChain, key: Key[Array, ""], states: Sequence[BlockState]) -> BlockStart:
    """Averages of the particle, of all these, that settles with the highest joint: probabilities of labels, rows and
    columns of each cluster, sums of each block."""
    with jax.enable_x64(True):
        together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *states)
        order = np.argsort(-np.asarray(log_densities(chain, together)), kind="stable")
        together = chain.take(together, jnp.asarray(order[:SETTLED]))
        if chain.fitted is not None:
            rows, columns = (np.repeat(labels[:, None], FITTED, axis=1) for labels in chain.fitted)
            fits = _of_labels(chain, folded(key, FITTED), jnp.asarray(rows), jnp.asarray(columns))
            together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), together, fits)
        return _highest(*_averaged(chain, key, together))


_of_labels = kernel(brief=True)(lambda chain, key, rows, columns: chain.of_labels(key, rows, columns))


@patience.register
def _(chain: BlockChain) -> float:
    """q is normalised, so that nothing of the second path is estimated beforehand, and a fit of hundreds of rows and
    columns leaves little around one labelling: with 24 temperatures its two ends were within a nat of each other where
    those of the path from the prior were hundreds apart."""
    return 0.0


@kernel()
def _averaged(chain: BlockChain, key: Key[Array, ""], state: BlockState) -> tuple[BlockStart, Array]:
    """Averages for each particle, its axis last, of what a `BlockStart` holds, labels as probabilities; and of the
    joint, nats."""

    def one(index: Array, carry: tuple[BlockState, tuple[BlockStart, Array]]) -> tuple[BlockState, tuple]:
        state = chain.step(jax.random.fold_in(key, index), carry[0], jnp.ones(()), backward=False)
        share = jnp.where(index < SETTLING, 0.0, 1 / AVERAGED)
        return state, jax.tree.map(lambda mean, now: mean + share * now, carry[1], _observed(chain, state))

    begin = state, jax.tree.map(jnp.zeros_like, _observed(chain, state))
    return jax.lax.fori_loop(0, SETTLING + AVERAGED, one, begin)[1]


def _observed(chain: BlockChain, state: BlockState) -> tuple[BlockStart, Array]:
    """Of each particle, its axis last, what a `BlockStart` holds, labels as probabilities; and the joint, nats."""
    rows, columns = chain.counts(state)
    sums = chain.sums(state.rows, state.columns)
    row_labels, column_labels = (
        jax.nn.softmax(scores, axis=1)
        for scores in (
            state.row_weights + chain.row_likelihoods(state),
            state.column_weights + chain.column_likelihoods(state),
        )
    )
    return BlockStart(row_labels, column_labels, rows, columns, sums), chain.log_density(state)


_observed_once = kernel(brief=True)(_observed)


def best_of(chain: BlockChain, state: BlockState) -> BlockStart:
    """Of the particle whose joint is highest: probabilities of labels, rows and columns of each cluster, sums of each
    block."""
    with jax.enable_x64(True):
        return _highest(*_observed_once(chain, state))


def _highest(known: BlockStart, log_density: Array) -> BlockStart:
    """Of particles, their axis last, the one whose joint is highest."""
    best = int(np.argmax(np.asarray(log_density)))
    return BlockStart(*(np.asarray(leaf)[..., best] for leaf in known))


def _broadened(chain: BlockChain, known: BlockStart) -> BlockStart:
    """q from averages: probabilities of labels, rows and columns of each cluster, sums of each block."""
    sides = []
    for probability, number in zip((known.rows, known.columns), chain.size, strict=True):
        exists = np.arange(probability.shape[1]) < int(number)
        mixed = (1 - ANYWHERE) * probability + ANYWHERE * exists / exists.sum()
        sides.append(np.log(np.where(exists, mixed / mixed.sum(1, keepdims=True), 1.0)))
    model = chain.model
    return BlockStart(
        sides[0],
        sides[1],
        np.asarray(model.row_concentration) + DATA_SHARE * known.row_weights,
        np.asarray(model.column_concentration) + DATA_SHARE * known.column_weights,
        np.asarray(chain.prior) + DATA_SHARE * known.blocks,
    )
