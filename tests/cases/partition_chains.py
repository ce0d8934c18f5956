"""Chains over partitions of a few rows that make a given number of sweeps, their errors, and a bug to plant in them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixture_cases import dataset

from lvsearch.inference.allocation_chains import AllocationTrace, PartitionChain, allocation_chain, run_chains
from lvsearch.models.contract import Model


def run(model: Model, rows: np.ndarray, log_prior: np.ndarray, *, seed: int = 0, sweeps: int = 512) -> AllocationTrace:
    """Chains of so many sweeps each. log_prior: over sizes, nats, with an axis for each size variable."""
    data = dataset(rows)
    return run_chains(
        lambda places: allocation_chain(model, data, log_prior, places),
        jax.random.key(seed),
        precision=0.0,  # all sweeps are used
        most_sweeps=sweeps,
    )


def z_scores(trace: AllocationTrace, sizes: np.ndarray, occupied: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors in standard errors, of sizes and of occupied ones that hold a hundredth of the probability or more."""
    found = []
    for (probability, error), truth in ((trace.sizes(), sizes), (trace.occupied(), occupied)):
        common = tuple(slice(0, min(pair)) for pair in zip(probability.shape, truth.shape, strict=True))
        shown = truth[common] > 0.01
        found.append(((probability[common] - truth[common]) / error[common])[shown])
    return found[0], found[1]


def most_deviating(trace: AllocationTrace, sizes: np.ndarray, occupied: np.ndarray) -> float:
    """The largest of these errors, whatever its sign."""
    return float(np.abs(np.concatenate(z_scores(trace, sizes, occupied))).max())


def z_scores_of_pairs(trace: AllocationTrace, pairs: np.ndarray) -> np.ndarray:
    """Errors of p(two rows are together), in standard errors over chains and never below that of half a visit."""
    groups = trace.draws.groups  # (draw, row, chain)
    shares = (groups[:, :, None] == groups[:, None]).mean(0)  # (row, row, chain)
    each = len(groups) * groups.shape[2]
    error = np.maximum(shares.std(-1, ddof=1) / np.sqrt(shares.shape[-1]), 0.5 / each)
    off = ~np.eye(len(pairs), dtype=bool)
    return ((shares.mean(-1) - pairs) / error)[off]


def plant_in_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jumps forget the probability of their proposal."""
    proposing = PartitionChain._allocate

    def redrawn(self: PartitionChain, *given: Any) -> Any:
        state, log_proposal = proposing(self, *given)
        return state, jnp.zeros_like(log_proposal)

    monkeypatch.setattr(PartitionChain, "_allocate", redrawn)
