"""The posterior of (K, L) from chains over both partitions of a matrix, against enumeration of all of them."""

from typing import Any

import block_oracles as blocks
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from partition_chains import most_deviating, plant_in_jumps, run

import lvsearch as lv
from lvsearch.inference.allocation_chains import (
    AllocationRun,
    BlockPartitionChain,
    PartitionChain,
    SeatPrior,
    Seats,
    start_from_allocation,
)
from lvsearch.inference.allocation_chains.blocks import main_orders
from lvsearch.inference.data.rows import padded_rows
from lvsearch.inference.engine.estimator import estimator
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.components import Component

BITS = np.array([[1, 1, 0], [1, np.nan, 0], [0, 1, 1], [0, 0, 1.0]])
COUNTS = np.array([[0, 4, 1], [1, 5, 0], [7, 0, 2], [9, 1, 1.0]])
LEVELS = np.array([[1, 2, 3], [1, 2, np.nan], [3, 1, 1], [3, 2, 1.0]])
REALS = np.array([[0.1, -2.0, 1.4], [0.3, np.nan, 1.1], [1.9, 0.2, -0.7], [-2.2, 0.4, -1.0]])
KINDS: dict[str, tuple[Component, np.ndarray, blocks.Marginal]] = {
    "bits": (lv.models.BernoulliComponents(0.7, 1.2), BITS, blocks.bernoulli_marginal(0.7, 1.2)),
    "counts": (lv.models.PoissonComponents(1.0, 0.5), COUNTS, blocks.poisson_marginal(1.0, 0.5)),
    "levels": (lv.models.LevelComponents((1, 2, 3), 0.8), LEVELS, blocks.categorical_marginal((1, 2, 3), 0.8)),
    "reals": (lv.models.DiagonalComponents(0.0, 1.0, 0.3, 2.5, 0.7), REALS, blocks.normal_marginal(0.3, 2.5, 0.7)),
}
"""Kinds of blocks with a matrix of each, and the log marginal of the cells of one block."""


def tied_sizes() -> np.ndarray:
    """log p(K, L) of a prior under which the two sizes depend on each other: K = L is nine times as probable."""
    weights = np.where(np.eye(6, 5) > 0, 9.0, 1.0)
    return np.log(weights / weights.sum())


def independent_sizes() -> np.ndarray:
    prior = np.outer(0.7 ** np.arange(8), 0.5 ** np.arange(4))
    return np.log(prior / prior.sum())


PRIORS = {"tied": tied_sizes, "independent": independent_sizes}


@pytest.mark.thorough
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_enumeration(kind: str, prior: str) -> None:
    component, values, marginal = KINDS[kind]
    model, log_prior = lv.models.LatentBlockModel(component, 1.4, 0.6), PRIORS[prior]()
    truth = blocks.posterior_of_sizes(values, marginal, log_prior, (1.4, 0.6))
    trace = run(model, values, log_prior, sweeps=1024)
    assert trace.sizes()[0].shape == log_prior.shape
    assert trace.sizes()[1].max() < 0.01
    assert most_deviating(trace, *truth) < 4.5
    # and it is told apart from the answer under the other kind of prior for the two sizes
    other = np.log(np.outer(np.exp(log_prior).sum(1), np.exp(log_prior).sum(0)))
    elsewhere = blocks.posterior_of_sizes(values, marginal, other, (1.4, 0.6))
    assert (prior == "independent") == (most_deviating(trace, *elsewhere) < 4.5)


@pytest.mark.slow
@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("bug", ["weights of parts", "the other side's parts", "the way back"])
def test_a_wrong_chain_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part weighs a tenth more than it should; row moves ignore how many parts the columns have, under a prior
    that ties the two sizes; and jumps forget the probability of their proposal. Jumps repair sweeps of so few rows, so
    that a bug of the sweeps alone would not be seen.
    """
    if bug == "weights of parts":
        right = Seats._log_weight_of

        def log_weight_of(self: Seats, parts: Any) -> Any:
            return right(self, parts) + parts * np.log(1.1)

        monkeypatch.setattr(Seats, "_log_weight_of", log_weight_of)
    elif bug == "the other side's parts":
        right_rows = BlockPartitionChain.rows_given_columns

        def rows_given_columns(self: BlockPartitionChain, columns: Any) -> PartitionChain:
            chain = right_rows(self, columns)
            log_weights = jnp.broadcast_to(jnp.asarray(self.log_weights)[:, 1:2], chain.seating.log_weights.shape)
            seating = SeatPrior(chain.seating.concentrations, log_weights, None, None)
            return PartitionChain(chain.mixture, None, seating, chain.in_order)

        monkeypatch.setattr(BlockPartitionChain, "rows_given_columns", rows_given_columns)
    else:
        plant_in_jumps(monkeypatch)
    component, values, marginal = KINDS["bits"]
    truth = blocks.posterior_of_sizes(values, marginal, tied_sizes(), (1.4, 0.6))
    trace = run(lv.models.LatentBlockModel(component, 1.4, 0.6), values, tied_sizes(), sweeps=3072)
    assert most_deviating(trace, *truth) > 6


def test_orders_put_alike_rows_and_columns_side_by_side() -> None:
    """Two blocks along the diagonal: in the first order each cluster's rows are neighbours, and padding is last."""
    rows, columns = np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 0, 1])
    cells = (rows[:, None] == columns).astype(float)
    increments = np.stack([cells, 1 - cells], axis=-1)
    padded = np.concatenate([increments, np.zeros((2, 4, 2))])
    of_rows, of_columns = main_orders(padded, np.array([1.0] * 6 + [0.0] * 2))
    assert sorted(of_rows[0].tolist()) == list(range(8))
    assert set(of_rows[0][-2:].tolist()) == {6, 7}
    for order, labels in ((of_rows[0][:6], rows), (of_columns[0], columns)):
        assert (np.diff(labels[order]) != 0).sum() == 1


def test_the_best_allocation_of_a_size_is_the_most_probable_one_without_more_parts():
    parts = np.array([[2, 3, 2, 1], [4, 2, 3, 1]])[None, None]  # of each side, of four chains
    log_rows = np.array([[[-5.0, -1.0, -4.0, -9.0]]])
    run = AllocationRun(np.arange(8).reshape(2, 4), {}, 8, parts, log_rows, np.full((1, 4, 5, 5), 0.04), 1)
    sizes = {(9, 9): [1, 5], (2, 9): [2, 6], (2, 2): [3, 7]}
    for size, labels in sizes.items():
        found = run.best_labels(size)
        assert found is not None
        assert found.tolist() == labels
    assert run.best_labels((1, 0)) is None
    assert run._replace(parts=parts[:0]).best_labels((9, 9)) is None  # nothing recorded yet


@pytest.mark.thorough
def test_a_fit_from_given_groups_has_their_sums_and_ends_as_high_as_one_from_an_annealing():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 3, 20), rng.integers(0, 2, 12)
    cells = (rng.random((20, 12)) < np.array([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])[rows[:, None], columns]) * 1.0
    model, data = LatentBlockModel(), lv.Points.from_array(cells).dataset()
    padding = -np.ones(len(padded_rows(data)[1]) - 20, int)
    labels = np.concatenate([10 + rows, padding, 4 + columns])  # groups may have any numbers
    start = start_from_allocation(model, data, labels, (4, 3))
    assert start is not None
    ones = np.array([[cells[rows == k][:, columns == j].sum() for j in range(2)] for k in range(3)])
    assert start.natural["row_weights"].tolist() == [*np.bincount(rows), 0.0]  # the prior is flat
    np.testing.assert_allclose(start.natural["blocks"].log_value[:3, :2], ones, rtol=1e-6)
    fits = estimator(model, data)
    alone, begun = (fits.fit((4, 3), jax.random.key(1), each) for each in (None, start))
    assert begun.log_lower >= alone.log_lower - 1e-3
