"""The posterior of K and of occupied components from chains, against enumeration of all partitions of a few rows."""

from collections.abc import Callable
from functools import cache
from typing import Any

import independent_normal_oracles
import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
import tied_oracles
from partition_chains import most_deviating, plant_in_jumps, run, z_scores, z_scores_of_pairs
from scipy.special import logsumexp
from tiers import in_tiers

import lvsearch as lv
from lvsearch.inference.allocation_chains import (
    AllocationRun,
    AllocationTrace,
    PartitionChain,
    Seats,
    allocation_chain,
    run_chains,
    supported_sizes,
)
from lvsearch.inference.allocation_chains.partitions import Move
from lvsearch.inference.evidence import log_marginals

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


def enumerated_pairs(
    rows: np.ndarray, log_rows: Callable[[tuple[int, ...]], float], concentration: float, *, dynamic: bool
) -> np.ndarray:
    """p(two rows are together | rows), (row, row), by the same enumeration."""
    prior, partitions = log_size_prior(), list(exact.partitions(len(rows)))
    log_joint = np.array(
        [
            logsumexp(
                [
                    prior[size - 1] + exact.log_finite_prior(labels, size, concentration / (size if dynamic else 1))
                    for size in range(1, SIZES + 1)
                ]
            )
            + log_rows(labels)
            for labels in partitions
        ]
    )
    labels = np.array(partitions)
    together = labels[:, :, None] == labels[:, None]
    return np.tensordot(np.exp(log_joint - logsumexp(log_joint)), together, 1)


KINDS = in_tiers(cases.CASES, lambda kind: kind is cases.CASES[0], lambda kind: kind.name.replace(" ", "-"))
"""One kind in the fast tier: each takes some twenty processor seconds, and all share the chain."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "dynamic", [pytest.param(False, id="static", marks=pytest.mark.slow), pytest.param(True, id="dynamic")]
)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_enumeration(kind: cases.Kind, dynamic: bool) -> None:
    rows = kind.rows[:6]
    model = lv.models.FiniteMixture(kind.component, 1.3, dynamic=dynamic)
    truth = enumerated(rows, by_groups(rows, kind.log_marginal), 1.3, dynamic=dynamic)
    trace = run(model, rows, log_size_prior(), sweeps=800)
    assert max(error.max() for _, error in (trace.sizes(), trace.occupied())) < 0.01
    assert most_deviating(trace, *truth) < 4
    pairs = enumerated_pairs(rows, by_groups(rows, kind.log_marginal), 1.3, dynamic=dynamic)
    assert trace.draws.groups.shape == (19 * 4, 6, 16)  # the last 19 of 25 blocks, without the padding of the rows
    assert np.abs(z_scores_of_pairs(trace, pairs)).max() < 4.5
    assert np.abs(z_scores_of_pairs(trace, pairs[::-1, ::-1])).max() > 8  # rows in another order are told apart


@pytest.mark.thorough
@pytest.mark.parametrize("n_rows", [5, pytest.param(6, marks=pytest.mark.slow)])
def test_one_covariance_agrees_with_enumeration(n_rows: int) -> None:
    """The rows of all groups hang together there; and the weights of parts do not change with their number."""
    rows, given = cases.VALUES[:n_rows], (cases.LOCATION, cases.SCALE, 0.3, 2.5, 0.7)
    model = lv.models.TiedMixture(cases.FULL.component, 1.3)

    @cache
    def log_rows(labels: tuple[int, ...]) -> float:
        return tied_oracles.log_marginal(rows, np.array(labels), *given)

    truth, trace = enumerated(rows, log_rows, 1.3, dynamic=False), run(model, rows, log_size_prior())
    assert most_deviating(trace, *truth) < 4
    assert np.abs(z_scores_of_pairs(trace, enumerated_pairs(rows, log_rows, 1.3, dynamic=False))).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("rows", [cases.HOLED[:5]], ids=["holed"])
def test_independent_normals_agree_with_enumeration(rows: np.ndarray) -> None:
    """Means and precisions by quadrature, the rates moved by slices."""
    model = lv.models.IndependentNormalMixture(cases.LOCATION, cases.SCALE, 0.7, 2.2, 1.3, 1.9, 0.8)
    prior = independent_normal_oracles.Prior(cases.LOCATION, cases.SCALE, 0.7, 2.2, 1.3, 1.9)
    joint = np.full((SIZES, len(rows)), -np.inf)
    for size in range(1, SIZES + 1):
        for labels, log_joint in independent_normal_oracles.log_joint(rows, size, 0.8, prior).items():
            weight = log_size_prior()[size - 1] + log_joint
            joint[size - 1, max(labels)] = np.logaddexp(joint[size - 1, max(labels)], weight)
    probability = np.exp(joint - logsumexp(joint))
    trace = run(model, rows, log_size_prior(), sweeps=1024)
    assert most_deviating(trace, probability.sum(1), probability.sum(0)) < 4


# ── many data sets ──────────────────────────────────────────────────────────────────────────────────────────────────


def rows_of(seed: int) -> np.ndarray:
    """Six rows of one to six clusters."""
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.standard_normal((rng.integers(1, 7), 2))
    return centres[rng.integers(0, len(centres), 6)] + rng.gamma(1.0, 0.5) * rng.standard_normal((6, 2))


def z_of_data_sets(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors in standard errors over many data sets, of sizes and of occupied components."""
    of_sizes, of_occupied = [], []
    kind = cases.DIAGONAL
    for seed in range(n):
        rows, dynamic = rows_of(seed), bool(seed % 2)
        model = lv.models.FiniteMixture(kind.component, 1.3, dynamic=dynamic)
        truth = enumerated(rows, by_groups(rows, kind.log_marginal), 1.3, dynamic=dynamic)
        z = z_scores(run(model, rows, log_size_prior(), seed=seed, sweeps=256), *truth)
        of_sizes.append(z[0])
        of_occupied.append(z[1])
    return np.concatenate(of_sizes), np.concatenate(of_occupied)


@pytest.mark.usefixtures("float64")
def test_rows_of_a_jump_are_close_in_some_column() -> None:
    """Pairs are drawn with their probabilities, from evenly spread uniform numbers; a missing cell has the value 0."""
    rows = np.array([[1.3, -0.2], [0.4, 2.1], [np.nan, -0.4], [-1.9, -1.7], [0.9, 1.8]])
    chain = allocation_chain(lv.models.FiniteMixture(cases.DIAGONAL.component), cases.dataset(rows), np.zeros(3), None)
    assert isinstance(chain, PartitionChain)
    orders, n_padded = ([3, 2, 1, 4, 0], [3, 2, 0, 4, 1]), chain.mixture.elements
    assert n_padded > len(rows)  # and padding is last
    assert np.asarray(chain.in_order)[:, : len(rows)].tolist() == [*orders]
    assert sorted(np.asarray(chain.in_order)[0].tolist()) == list(range(n_padded))
    expected = np.zeros((n_padded, n_padded))
    for order in orders:
        for place, row in enumerate(order):
            for away in (1, 2, 3, 4):
                pair, probability = (row, order[(place + away) % 5]), (1 / away - 1 / (away + 1)) / 0.8 / 10
                expected[pair] += probability / 2
                expected[pair[::-1]] += probability / 2
    one, other = np.meshgrid((np.arange(40) + 0.5) / 40, (np.arange(8000) + 0.5) / 8000)
    uniforms = jnp.asarray(np.stack([one.ravel(), other.ravel()]))
    move = Move(jax.random.key(0), jnp.arange(n_padded), jnp.zeros((n_padded, 1)), uniforms[0], uniforms)
    drawn = np.zeros_like(expected)
    np.add.at(drawn, tuple(np.asarray(each) for each in chain._two_rows(move)), 1 / one.size)
    np.testing.assert_allclose(drawn, expected, atol=2e-4)


@pytest.mark.slow
def test_errors_are_as_large_as_they_say() -> None:
    """|z| < 2 in 90 to 98 % of the probabilities, over many data sets; a fifth of the sizes is one number each."""
    for z in z_of_data_sets(DATA_SETS):
        assert 0.90 <= (np.abs(z) < 2).mean() <= 0.98
        assert abs(z.mean()) < 0.3


# ── planted ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("bug", ["the way back", "a new part"])
def test_a_wrong_chain_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new part that weighs twice as much as it should, and jumps that forget the probability of their proposal."""
    if bug == "a new part":
        right = Seats.log_scores

        def log_scores(self: Seats, counts: Any) -> Any:
            return right(self, counts) + jnp.where(counts > 0.5, 0.0, np.log(2.0))

        monkeypatch.setattr(Seats, "log_scores", log_scores)
    else:
        plant_in_jumps(monkeypatch)
    kind, rows = cases.KNOWN, cases.VALUES[:5]
    truth = enumerated(rows, by_groups(rows, kind.log_marginal), 1.3, dynamic=False)
    trace = run(lv.models.FiniteMixture(kind.component, 1.3), rows, log_size_prior(), sweeps=3072)
    assert most_deviating(trace, *truth) > 6


# ── quadrature ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("float64")
def test_quadrature_has_the_integral() -> None:
    """Against the trapezium rule in log τ on a fine grid, where rows lie within three deviations of the prior."""
    rng, grid = np.random.default_rng(0), np.linspace(-40, 40, 40_001)
    for n in (0, 1, 2, 3, 10, 200):
        y = rng.normal(rng.normal(0, 0.5), 0.1, n)
        kappa, alpha, beta = rng.uniform(0.5, 2), rng.uniform(2, 5), 10.0 ** rng.uniform(-4, 1)
        tau, shape = np.exp(grid), alpha + n / 2
        spread = (y**2).sum() - tau * y.sum() ** 2 / (kappa + n * tau)
        log_integrand = shape * grid - beta * tau - 0.5 * tau * spread + 0.5 * np.log(2 * np.pi / (kappa + n * tau))
        expected = logsumexp(log_integrand) + np.log(grid[1] - grid[0])
        mean = y.sum() / max(n, 1)
        rate = beta + 0.5 * ((y - mean) ** 2).sum()
        given = (jnp.asarray(each) for each in (shape, rate, mean, float(n), kappa))
        assert float(log_marginals(*given)) == pytest.approx(expected, abs=2e-5)


@pytest.mark.slow  # what such chains are worth is tested by itself below
def test_chains_that_all_stay_at_one_partition_are_precise_enough() -> None:
    """Three clusters that no row can leave: every draw is the same, which is the best of reasons to stop."""
    rows = np.repeat([[-40.0, 0.0], [0.0, 40.0], [40.0, -40.0]], 20, axis=0)
    rows += np.random.default_rng(0).normal(0.0, 0.3, rows.shape)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents(0.0, 1.0, 0.001, 2.0, 0.2))
    data = cases.dataset(rows)
    trace = run_chains(
        lambda places: allocation_chain(model, data, log_size_prior(), places),
        jax.random.key(0),
        precision=0.02,
        most_sweeps=2048,
    )
    assert (trace.parts == 3).all()
    assert trace.is_settled(0.02)
    assert trace.sweeps == 256  # the first test


@pytest.mark.parametrize(("arrival", "visits"), [(4, 16 * 32), (256, 16), (0, 16 * 128)])
def test_chains_that_never_change_are_worth_more_visits_the_sooner_they_came(arrival: int, visits: float) -> None:
    parts = np.full((1, 16, 128), 3)
    trace = AllocationTrace(np.full((16, 4), 0.25), parts, np.zeros((16, 128)), 256, arrival)
    assert np.isnan(trace.effective_sample_size)
    assert trace.visits == visits
    assert trace.sizes()[1] == pytest.approx(np.full(4, 0.5 / (visits + 1)))


def test_chains_that_agree_by_chance_are_not_precise() -> None:
    """The blocks of every chain are at 0.1 and 0.9, so that the averages of all chains are the same."""
    of_first = np.tile([0.1, 0.9], 8)[:, None, None]
    probability = np.broadcast_to(np.concatenate([of_first, 1 - of_first], axis=2), (16, 16, 2))
    draws = np.random.default_rng(0).integers(1, 3, (16, 32, 16))
    chains = AllocationRun(np.zeros((1, 16), int), {}, 16, draws[:, :, None], draws.astype(float), probability, 16)
    least = np.sqrt(0.16 * 12 / 11 / (12 * 16))  # 12 of 16 blocks are kept
    assert chains.trace().sizes()[1] == pytest.approx([least, least])


def test_sweeps_that_were_left_out_count_as_not_yet_arrived() -> None:
    """Two of six blocks were discarded (64 sweeps). One chain was elsewhere until the fifth sweep after them."""
    parts = np.full((4, 32, 1, 16), 3)
    parts[0, 4, 0, 7] = 2
    log_rows = np.zeros((4, 32, 16))
    labels = np.zeros((1, 16), int)
    unfinished = AllocationRun(labels, {}, 16, parts, log_rows, np.full((4, 16, 4), 0.25), 6)
    assert unfinished.trace().arrival == 64 + 5
    assert unfinished.trace().parts.shape == (1, 16, 96)
    warmed_up = unfinished._replace(has_warm_up=True)
    assert warmed_up.trace().parts.shape == (1, 16, 64)  # chains may have gone on from one state
