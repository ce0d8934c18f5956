"""The posterior of K and of occupied components from chains, against enumeration of all partitions of a few rows."""

from collections.abc import Callable
from functools import cache

import jax
import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
import tied_oracles
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.partition_chains import PartitionTrace, partition_chain, run_partitions, supported_sizes
from lvsearch.models.contract import Model

SIZES = 12
PRIOR = lv.sizes.Geometric(0.25)
DATA_SETS = 120
"""Random data sets, whose errors are taken together."""


def log_size_prior() -> np.ndarray:
    return supported_sizes(lambda size: PRIOR.log_pmf((size,)), SIZES)


def enumerated(
    rows: np.ndarray, log_rows: Callable[[tuple[int, ...]], float], concentration: float, *, dynamic: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(p(K | rows) of K = 1 … SIZES, p(K₊ | rows) of K₊ = 1 … number of rows). log_rows: of a partition, nats."""
    joint = np.full((SIZES, len(rows)), -np.inf)
    prior = log_size_prior()
    for labels in exact.partitions(len(rows)):
        likelihood, parts = log_rows(labels), max(labels)
        for size in range(1, SIZES + 1):
            share = concentration / size if dynamic else concentration
            weight = prior[size - 1] + exact.log_finite_prior(labels, size, share) + likelihood
            joint[size - 1, parts] = np.logaddexp(joint[size - 1, parts], weight)
    probability = np.exp(joint - logsumexp(joint))
    return probability.sum(1), probability.sum(0)


def by_groups(rows: np.ndarray, log_marginal: exact.LogMarginal) -> Callable[[tuple[int, ...]], float]:
    """log p(rows | partition) of groups that are independent."""

    @cache
    def group(members: tuple[int, ...]) -> float:
        return log_marginal(rows[list(members)])

    def log_rows(labels: tuple[int, ...]) -> float:
        array = np.array(labels)
        return sum(group(tuple(np.flatnonzero(array == k).tolist())) for k in range(array.max() + 1))

    return log_rows


def run(model: Model, rows: np.ndarray, *, seed: int = 0, sweeps: int = 512) -> PartitionTrace:
    data = cases.dataset(rows)
    return run_partitions(
        lambda places: partition_chain(model, data, log_size_prior(), places),
        jax.random.key(seed),
        precision=0.0,  # all sweeps are used
        most_sweeps=sweeps,
    )


def z_scores(trace: PartitionTrace, sizes: np.ndarray, occupied: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors in standard errors, of sizes and of occupied ones that hold a hundredth of the probability or more."""
    of_sizes, of_occupied = trace.sizes(), trace.occupied()
    found = []
    for (probability, error), truth in ((of_sizes, sizes), (of_occupied, occupied)):
        n = min(len(probability), len(truth))
        shown = truth[:n] > 0.01
        found.append(((probability[:n] - truth[:n]) / error)[shown])
    return found[0], found[1]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("kind", cases.KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_agrees_with_enumeration(kind: cases.Kind, dynamic: bool) -> None:
    rows = kind.rows[:6]
    model = lv.models.FiniteMixture(kind.component, 1.3, dynamic=dynamic)
    truth = enumerated(rows, by_groups(rows, kind.log_marginal), 1.3, dynamic=dynamic)
    trace = run(model, rows)
    assert max(error.max() for _, error in (trace.sizes(), trace.occupied())) < 0.01
    assert max(np.abs(z).max() for z in z_scores(trace, *truth)) < 4
