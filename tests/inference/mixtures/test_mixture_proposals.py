"""Proposals of mixtures: where components are cut, what is tried, and that it is kept only when it is better."""

from functools import cache

import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import pytest
from mixture_cases import clusters, dataset

import lvsearch as lv
from lvsearch.inference.compiles import compiles, compiles_since
from lvsearch.inference.mixtures import FitHistory, MixtureEstimator, MixtureSettings
from lvsearch.inference.mixtures.kernel import gains_together
from lvsearch.inference.mixtures.proposals import Cuts, Idea, Standing, find_cuts, ideas
from lvsearch.inference.mixtures.rows import prepare
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.finite_mixture import FiniteMixture

KINDS = pytest.mark.parametrize(
    "kind", [cases.DIAGONAL, pytest.param(cases.FULL, marks=pytest.mark.slow)], ids=lambda kind: kind.name
)


@cache
def history() -> FitHistory:
    """One fit, from a start that proposals can better."""
    settings = MixtureSettings(starts=1, start_sweeps=1)
    model = FiniteMixture(lv.models.DiagonalComponents.scaled_to(clusters()))
    return MixtureEstimator(model, dataset(clusters()), settings).fit_with_history((4,), jax.random.key(1))


# ── cuts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cuts_of(component, rows: np.ndarray, shares: np.ndarray) -> Cuts:
    prepared = prepare(FiniteMixture(component), dataset(rows))
    n_tiles, length = prepared.tiles.weight.shape
    wide = np.zeros((n_tiles * length, shares.shape[1]))
    wide[: len(rows)] = shares
    tiles = jax.tree.map(jnp.asarray, prepared.tiles)
    found = find_cuts(component, wide.reshape(n_tiles, length, -1), tiles, layout=prepared.layout)
    return jax.tree.map(np.asarray, found)


@KINDS
def test_a_cut_gains_what_the_two_sides_have_over_the_whole(kind, float64):
    """By the marginal likelihoods of the two groups of rows, and their share of the labels."""
    rows = np.nan_to_num(kind.rows)
    found = cuts_of(kind.component, rows, np.ones((len(rows), 1)))
    prepared = prepare(FiniteMixture(kind.component), dataset(rows))
    far = found.far(prepared.tiles.coordinates.reshape(-1, rows.shape[1])[: len(rows)], 0)
    assert 0 < far.sum() < len(rows)
    sides = [rows[far], rows[~far]]
    apart = sum(kind.log_marginal(side) + len(side) * np.log(len(side)) for side in sides)
    assert found.gains[0] == pytest.approx(apart - kind.log_marginal(rows) - len(rows) * np.log(len(rows)), abs=1e-8)


@KINDS
def test_a_merger_gains_what_the_whole_has_over_the_two_groups(kind, float64):
    """By the marginal likelihoods of the groups: above 0 where one component explains both better."""
    rows = np.nan_to_num(kind.rows)
    units, groups = dataset(rows), np.array_split(np.arange(len(rows)), 3)
    n_dims = rows.shape[1]
    component, prior = kind.component, kind.component.prior(n_dims)
    coordinates = jnp.asarray(
        prepare(FiniteMixture(component), units).tiles.coordinates.reshape(-1, n_dims)[: len(rows)]
    )
    increments = jax.jit(jax.vmap(component.increment))(coordinates, jnp.ones(rows.shape, bool))
    natural = jax.tree.map(
        lambda leaf, each: np.stack([leaf + np.asarray(each)[group].sum(0) for group in groups]), prior, increments
    )
    found = np.asarray(jax.jit(lambda each: gains_together(component, each, jnp.ones(3, bool), n_dims))(natural))
    for j, k in ((0, 1), (0, 2), (1, 2)):
        whole = kind.log_marginal(rows[np.concatenate([groups[j], groups[k]])])
        apart = kind.log_marginal(rows[groups[j]]) + kind.log_marginal(rows[groups[k]])
        assert found[j, k] == pytest.approx(whole - apart, abs=1e-8)


@pytest.mark.thorough
def test_two_groups_in_one_component_are_cut_apart_and_one_group_is_left_whole(float64):
    rows = clusters()[:34]
    component = lv.models.FullCovarianceComponents.scaled_to(rows)
    group = np.repeat([0, 1], [20, 14])
    together = cuts_of(component, rows, np.ones((34, 1)))
    coordinates = prepare(FiniteMixture(component), dataset(rows)).tiles.coordinates.reshape(-1, 2)[:34]
    far = together.far(coordinates, 0)
    assert together.gains[0] > 5
    misplaced = np.sum(far == (group == 1))
    assert min(misplaced, 34 - misplaced) <= 1  # one row lies between the groups
    apart = cuts_of(component, rows, np.eye(3)[group])
    assert np.all(apart.gains[:2] < 0)
    assert apart.gains[2] == pytest.approx(0, abs=1e-9)  # without rows


# ── proposals ───────────────────────────────────────────────────────────────────────────────────────────────────────


def standing_of(shares: np.ndarray, together: np.ndarray) -> Standing:
    return Standing(None, shares, shares.sum(0), together, {})  # pyright: ignore


def test_all_that_looks_better_is_first_tried_at_once():
    """Components 0 and 1 gain by a cut, places 3 and 4 are free, and 0 and 2 are better as one."""
    shares = np.eye(5)[np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])]
    coordinates = np.array([-1.0, -1, 1, 1, -1, 1, 1, 0, 0])[:, None]
    cuts = Cuts(np.ones((5, 1)), np.zeros(5), np.array([2.0, 3.0, -1.0, 0.0, 0.0]))
    together = np.full((5, 5), -1.0)
    together[0, 2] = together[1, 2] = 0.5
    found: list[Idea] = list(ideas(standing_of(shares, together), cuts, coordinates, False, 1))
    births = found[0]
    assert (births.kind, births.components) == ("births", (1, 3, 0, 4))
    np.testing.assert_array_equal(births.shares.sum(0), [2, 1, 2, 2, 2])
    assert [idea.kind for idea in found[1:]] == ["merge", "delete", "birth"]  # one pair alone is no "merges"
    assert found[3].components[0] == 1
    for idea in found:
        np.testing.assert_allclose(idea.shares.sum(1), 1)


def test_mergers_at_once_touch_a_component_once():
    shares = np.eye(4)[np.array([0, 1, 2, 3])]
    cuts = Cuts(np.ones((4, 1)), np.zeros(4), np.full(4, -1.0))
    together = np.full((4, 4), -1.0)
    together[0, 1], together[1, 2], together[2, 3] = 3.0, 2.0, 1.0
    first = next(iter(ideas(standing_of(shares, together), cuts, np.zeros((4, 1)), False, 1)))
    assert (first.kind, first.components) == ("merges", (0, 1, 2, 3))
    np.testing.assert_array_equal(first.shares.sum(0), [2, 0, 2, 0])


@pytest.mark.thorough
def test_every_proposal_is_recorded_with_its_gain():
    record = history().proposals
    assert {proposal.kind for proposal in record} >= {"merge", "delete", "birth"}
    for proposal in record:
        assert proposal.gain == pytest.approx(sum(proposal.terms.values()), abs=1e-9)
        assert set(proposal.terms) == {"rows", "log prior", "entropy of weights", "entropy of components"}
        assert not proposal.accepted or proposal.gain > 0


def test_bound_rises_along_the_ascent_and_by_accepted_proposals():
    fit = history()
    assert np.diff(fit.bounds).min() >= -1e-9
    gained = sum(proposal.gain for proposal in fit.proposals if proposal.accepted)
    assert fit.estimate.log_lower >= fit.bounds[-1] + gained - 1e-4


def test_one_component_has_all_rows_and_nothing_is_tried():
    """No start along the rows is climbed, and no program of proposals is compiled."""
    rows = clusters()[:, :1]
    model = FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows))
    before = compiles()
    fit = MixtureEstimator(model, dataset(rows), MixtureSettings()).fit_with_history((1,), jax.random.key(0))
    assert not {"sequential_pass", "survey", "find_cuts"} & set(compiles_since(before))
    assert fit.proposals == ()
    assert fit.estimate.passes < MixtureSettings().start_sweeps


@pytest.mark.slow
def test_proposals_leave_a_bad_optimum():
    """Two groups in one component and one cut in two: a coordinate step cannot leave it, merge and birth can."""
    rows = np.concatenate([clusters(), clusters() + np.array([9, -9])])
    model = DPMixture(lv.models.DiagonalComponents.scaled_to(rows), 1.0)
    stuck = MixtureEstimator(model, dataset(rows), MixtureSettings(starts=1, rounds=0))
    free = MixtureEstimator(model, dataset(rows), MixtureSettings(starts=1))
    keys = [jax.random.key(seed) for seed in range(4)]
    before = np.array([stuck.fit((8,), key, None).log_lower for key in keys])
    after = np.array([free.fit((8,), key, None).log_lower for key in keys])
    assert np.all(after >= before - 1e-3)
    assert np.ptp(after) < 0.2 * np.ptp(before)


@pytest.mark.slow
def test_many_rows_are_begun_on_some_of_them():
    """Half of the rows find the same three groups, and everything reported is of all rows."""
    model = FiniteMixture(lv.models.DiagonalComponents.scaled_to(clusters()))
    whole = MixtureEstimator(model, dataset(clusters()), MixtureSettings())
    begun = MixtureEstimator(model, dataset(clusters()), MixtureSettings(sample_rows=20))
    a, b = (each.fit((3,), jax.random.key(0), None).log_lower for each in (whole, begun))
    assert b == pytest.approx(a, abs=1e-3)
