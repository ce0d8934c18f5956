"""Fits and annealed paths of block models that begin near one labelling, which a short annealing found.

*The estimator*: mean field from where a short annealing ended, and from the groups that chains over partitions found
(`estimate_from_partitions`), where a search has run some. Coordinate ascent alone stops at the first division of
the rows that fits some division of the columns. On 100 × 80 planted cells of 4 × 3 blocks it stops 2,200 nats below the
evidence from scattered labels, and 70 nats below from an annealing. On 50 animals × 85 attributes fits of 10 × 22
clusters from an annealing used five row clusters, and their bounds were 40 nats below those from a chain's groups. A
smaller size's fit is tried as a start too, and the better one is kept.

*The second annealed path* starts from a q about one labelling, and is shorter. Candidates are the particles with which
a first path ended, and particles at the labels of a fit. All make some sweeps in the posterior, and the one whose joint
probability is highest then gives the factors of q. These are averages over further sweeps of the conditional
probabilities of its labels, and of the natural parameters of its blocks and weights. All factors are made broader, so
that q covers what the posterior may hold around them. The path does the rest.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.anchors import LABELS_RUN, mix_with_even, pick_highest, settle_best_particles
from lvsearch.inference.annealing.dispatch import effort
from lvsearch.inference.annealing.particles import Compilation, forward
from lvsearch.inference.block_models.chain import BlockChain, BlockStart, BlockState, layout_of, packed_cells
from lvsearch.inference.chains import Anchor
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.engine.estimate import Estimate, beliefs_of, capacity_of
from lvsearch.inference.engine.estimator import GenericEstimator
from lvsearch.inference.engine.meanfield import MeanField, ascend
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.generators import fold_in, generator
from lvsearch.models.block_model import COLUMN, LatentBlockModel
from lvsearch.models.kernels import kernel

FITTED = 8
"""The number of particles that begin with the labels of a fit."""
DATA_SHARE = 0.5
"""The share of the data's information about blocks and weights that q has: its variances are twice the posterior's."""


def anchor_of_blocks(chain: BlockChain, key: Key[Array, ""], states: Sequence[BlockState]) -> Anchor:
    """Return the annealing path from a q about the labelling in which the best of some particles ends.

    That path is short, and q is normalised, so nothing of it is estimated beforehand. A fit of hundreds of rows and
    columns leaves little uncertainty around one labelling. With 24 temperatures the path's two ends were within a nat
    of each other, where the ends of the path from the prior were hundreds of nats apart.

    chain: the block model's chain on its first path.
    states: final states of the first path, one per half of the annealing.
    """
    known = average_best_particle(chain, key, states)
    return Anchor(eqx.tree_at(lambda c: c.start, chain, _broaden(chain, known), is_leaf=lambda x: x is None), 0.0)


def average_best_particle(chain: BlockChain, key: Key[Array, ""], states: Sequence[BlockState]) -> BlockStart:
    """Return averages over the sweeps of the particle that ends with the highest joint probability.

    These are the probabilities of its labels, the numbers of rows and columns in each cluster, and the sums of each
    block.

    states: particles of the posterior. Particles at the labels of a fit join them if the chain has such labels.
    """
    fits = []
    if chain.fitted is not None:
        with jax.enable_x64(True):
            rows, columns = (np.repeat(labels[:, None], FITTED, axis=1) for labels in chain.fitted)
            fits = [_state_with_labels(chain, fold_in(key, FITTED), jnp.asarray(rows), jnp.asarray(columns))]
    return settle_best_particles(chain, key, states, _describe, LABELS_RUN, further=fits).averages


_state_with_labels = kernel(brief=True)(lambda chain, key, rows, columns: chain.state_from_labels(key, rows, columns))


def _describe(chain: BlockChain, state: BlockState) -> BlockStart:
    """Return what describes each particle, shaped like a `BlockStart`.

    Labels are given as probabilities, clusters by their numbers of rows and columns, blocks by the sums of their cells'
    statistics. Particles are on the last axis.
    """
    rows, columns = chain.counts(state)
    sums = chain.sums(state.rows, state.columns)
    row_labels, column_labels = (
        jax.nn.softmax(scores, axis=1)
        for scores in (
            state.row_weights + chain.row_likelihoods(state),
            state.column_weights + chain.column_likelihoods(state),
        )
    )
    return BlockStart(row_labels, column_labels, rows, columns, sums)


_describe_once = kernel(brief=True)(lambda chain, state: (_describe(chain, state), chain.log_density(state)))


def describe_best_particle(chain: BlockChain, state: BlockState) -> BlockStart:
    """Return what describes the particle with the highest joint probability, shaped like a `BlockStart`.

    Labels are given as probabilities, clusters by their numbers of rows and columns, blocks by the sums of their cells'
    statistics.
    """
    with jax.enable_x64(True):
        return pick_highest(*_describe_once(chain, state))[0]


def _broaden(chain: BlockChain, known: BlockStart) -> BlockStart:
    """Return q about one labelling from a particle's averages, made broader than the posterior around that labelling.

    Labels are mixed with even ones, and what the data say about weights and blocks is weakened.

    known: probabilities of labels, rows and columns in each cluster, and sums of each block.
    """
    sides = []
    for probability, number in zip((known.rows, known.columns), chain.size, strict=True):
        exists = np.arange(probability.shape[1]) < int(number)
        mixed = mix_with_even(probability, exists)
        sides.append(np.log(np.where(exists, mixed / mixed.sum(1, keepdims=True), 1.0)))
    model = chain.model
    return BlockStart(
        sides[0],
        sides[1],
        np.asarray(model.row_concentration) + DATA_SHARE * known.row_weights,
        np.asarray(model.column_concentration) + DATA_SHARE * known.column_weights,
        np.asarray(chain.prior) + DATA_SHARE * known.blocks,
    )


SETTLING = 20
"""The number of sweeps at the last temperature."""
TEMPERATURES = 32
"""The number of temperatures, from where a few cells count to all of them. Each is a fixed share above the last."""
FEW_CELLS = 10
"""The number of cells that count at the first temperature."""


class BlockEstimator(GenericEstimator):
    """An estimator that fits block models by the generic engine's mean field, started from annealed labels."""

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return the better of two coordinate ascents: one from an annealing and, if there is a fit to begin from, one
        from that.

        size: how many row clusters and column clusters.
        key: the random key of the starts.
        start: a fit of this size or of a smaller one; None if there is none.
        """
        capacity = capacity_of(size)
        scattered = scattered_start(self.model, key, self.data, size, capacity)
        begins = [self._anneal_start(scattered, key, size, capacity)]
        if start is not None:
            begins.append(self._grown(scattered, start, size, capacity))
        fits = [
            ascend(self.model, self.data, begin, size, capacity=capacity, sweeps=self.sweeps, tolerance=self.tolerance)
            for begin in begins
        ]
        best = max(fits, key=lambda fit: fit.trace[-1])
        return self._finished_estimate(best, size, capacity, sum(len(fit.trace) for fit in fits))

    def _anneal_start(
        self, begin: MeanField, key: Array, size: tuple[int, ...], capacity: tuple[int, ...]
    ) -> MeanField:
        """Return a start whose parameters follow from the labels of the best particle of a short annealing.

        begin: a random start, whose beliefs about parameters are replaced.
        size, capacity: how many row and column clusters exist, and how many array slots there are for them.
        """
        model = self.model
        assert isinstance(model, LatentBlockModel)
        chain = BlockChain.from_data(model, self.data, size, capacity)
        work = effort(chain, 0)
        n_cells = max(FEW_CELLS + 1, int(sum(np.asarray(batch.units.observed).sum() for batch in self.data.batches)))
        rising = np.geomspace(FEW_CELLS / n_cells, 1.0, TEMPERATURES)
        ended = forward(
            chain,
            key,
            np.concatenate([rising, np.ones(SETTLING)]),
            islands=work.islands,
            particles=work.particles,
            begin=_states_before_first_sweep(chain, generator(key), work.islands * work.particles),
            compilation=Compilation.SOON_WHERE_DATA_ARE_FEW,
        )
        known = describe_best_particle(chain, ended.state)
        old, natural = begin.beliefs.natural, _natural_parameters(model, chain.prior, known)
        # in the precision of the engine's own start
        same = jax.tree.map(lambda new, was: np.asarray(new, np.asarray(was).dtype), natural, dict(old))
        return begin._replace(beliefs=beliefs_of(model, same, size, capacity=capacity))


def _natural_parameters(
    model: LatentBlockModel, prior: Float[np.ndarray | Array, " number"], known: BlockStart
) -> dict[str, Any]:
    """Return the natural parameters of a fit around one labelling, by the names of the model's latent variables.

    prior: natural parameters of a block's prior, packed.
    known: the probabilities of the labels, the numbers of rows and columns in each cluster, and the blocks' sums.
    """
    return {
        "row_weights": np.asarray(model.row_concentration) - 1 + known.row_weights,
        "column_weights": np.asarray(model.column_concentration) - 1 + known.column_weights,
        "blocks": layout_of(model.component).unpack(np.asarray(prior) + known.blocks),
        COLUMN: np.log(np.maximum(known.columns, 1e-6)),
    }


def estimate_from_partitions(
    model: LatentBlockModel, data: Dataset, labels: Int[np.ndarray, " element"], size: tuple[int, ...]
) -> Estimate:
    """Return a fit whose parameters follow from given groups of the rows and of the columns, for other fits to begin
    from. Its lower bound is −∞.

    data: the matrix.
    labels: the group of each row, −1 for padding, and then of each column.
    size: how many row clusters and column clusters, at least as many as there are groups.
    """
    units, weight = padded_rows(data)
    with jax.enable_x64(True):
        cells, _, prior = (np.asarray(each) for each in packed_cells(model, units))
    rows, columns = labels[: len(weight)], labels[len(weight) :]
    of_rows, of_columns = _indicators(rows, size[0]), _indicators(columns, size[1])
    sums = np.einsum("nds,nk,dl->kls", cells, of_rows, of_columns)
    known = BlockStart(of_rows, of_columns, of_rows.sum(0), of_columns.sum(0), sums)
    natural = jax.tree.map(lambda each: np.asarray(each, np.float32), _natural_parameters(model, prior, known))
    return Estimate(model, size, natural, -np.inf, np.inf, 0)


def _indicators(labels: Int[np.ndarray, " element"], size: int) -> Float[np.ndarray, "element group"]:
    """Return 1 where an element is in a group, else 0, (element, group). labels: any numbers, negative for none."""
    numbers = np.unique(labels[labels >= 0])
    found = np.zeros((len(labels), size))
    found[:, : len(numbers)] = labels[:, None] == numbers
    return found


def _states_before_first_sweep(chain: BlockChain, random: np.random.Generator, particles: int) -> BlockState:
    """Return states with cluster weights drawn from the prior and nothing else; all other latent variables are 0.

    Their first sweep, at temperature 0, draws the other latent variables from the prior. Drawing everything in a
    program of its own would take longer to compile than all else in a fit of few cells.

    particles: the number of particles.
    """
    n_rows, n_dims, n_numbers = chain.increments.shape
    weights: list[Any] = []
    for places, size, a in zip(
        chain.capacity, chain.size, (chain.model.row_concentration, chain.model.column_concentration), strict=True
    ):
        log_gamma = np.log(random.gamma(np.asarray(a) + 1, size=(places, particles)))
        log_gamma += np.log(random.uniform(size=log_gamma.shape)) / np.asarray(a)  # of small shapes too
        log_gamma[int(size) :] = -np.inf
        weights.append(log_gamma - np.logaddexp.reduce(log_gamma, axis=0))
    row_weights, column_weights = weights
    zeros: Any = np.zeros
    rows, columns = (zeros((n, particles), np.int32) for n in (n_rows, n_dims))
    blocks = zeros((*chain.capacity, n_numbers, particles))
    return BlockState(rows, columns, row_weights, column_weights, blocks, zeros(particles))
