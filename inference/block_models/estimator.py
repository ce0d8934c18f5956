"""The estimator of block models: mean field from where a short annealing ended.

Coordinate ascent alone stops at the first division of the rows that fits some division of the columns. On 100 × 80
planted cells of 4 × 3 blocks it stops 2,200 nats below the evidence from scattered labels, and 70 nats below from an
annealing. A smaller size's fit is tried as a start beside it, and the better of the two is kept.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from lvsearch.inference.annealing.dispatch import effort
from lvsearch.inference.annealing.particles import forward
from lvsearch.inference.block_models.anchor import describe_best_particle
from lvsearch.inference.block_models.chain import BlockChain
from lvsearch.inference.block_models.packing import layout_of
from lvsearch.inference.block_models.state import BlockState
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, beliefs_of, capacity_of, cut_axes
from lvsearch.inference.engine.estimator import GenericEstimator, estimator, exact_bound
from lvsearch.inference.engine.meanfield import MeanField, ascend
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.generators import generator
from lvsearch.models.block_model import COLUMN, LatentBlockModel

SETTLING = 20
"""The number of sweeps at the last temperature."""
TEMPERATURES = 32
"""The number of temperatures, from where a few cells count to all of them. Each is a fixed share above the last."""
FEW_CELLS = 10
"""The number of cells that count at the first temperature."""


class BlockEstimator(GenericEstimator):
    """An estimator that fits block models by the generic engine's mean field, started from annealed labels."""

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return the best of several coordinate ascents: one from an annealing and, if there is a smaller fit, one from
        that.

        size: how many row clusters and column clusters.
        key: the random key of the starts.
        start: the fit of a smaller size; None if there is none.
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
        natural = cut_axes(self.model, best.beliefs.natural, size, capacity)
        lower = exact_bound(self.model, self.data, natural, best, size, capacity)
        return Estimate(self.model, size, natural, lower, np.inf, sum(len(fit.trace) for fit in fits))

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
            short=True,
        )
        known = describe_best_particle(chain, ended.state)
        old = begin.beliefs.natural
        blocks = layout_of(model.component).unpack(np.asarray(chain.prior) + known.blocks)
        natural = {
            "row_weights": np.asarray(model.row_concentration) - 1 + known.row_weights,
            "column_weights": np.asarray(model.column_concentration) - 1 + known.column_weights,
            "blocks": blocks,
            COLUMN: np.log(np.maximum(known.columns, 1e-6)),
        }
        # in the precision of the engine's own start
        same = jax.tree.map(lambda new, was: np.asarray(new, np.asarray(was).dtype), natural, dict(old))
        return begin._replace(beliefs=beliefs_of(model, same, size, capacity=capacity))


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


@estimator.register
def _block_estimator(model: LatentBlockModel, data: Dataset) -> Any:
    """Return the estimator of block models."""
    return BlockEstimator(model, data)
