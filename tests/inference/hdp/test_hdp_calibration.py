"""The samplers of HDPs, of topics and of groups of rows: Geweke's joint-distribution test, and calibration.

Each fails on planted bugs. Seeds are fixed; |z| below 4.5 for at most 20 numbers is a false-alarm rate below 1.4e-4, as
is p above 1e-5 for 6 numbers. Calibration: the rank of the truth among posterior draws is uniform (Talts et al. 2018).
"""

from collections.abc import Callable
from typing import Any

import franchise_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from franchise_cases import CASES, GROUPS, TOPICS, Case
from scipy.stats import chisquare

from lvsearch.inference.hdp import franchise, gibbs

Z_LIMIT, SMALLEST_P = 4.5, 1e-5
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
pytestmark = pytest.mark.slow


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────────────


def one_table_too_many(patch: pytest.MonkeyPatch) -> None:
    right = franchise.draw_tables

    def wrong(state: Any, unit_of: Any, uniforms: Any) -> Any:
        tables = right(state, unit_of, uniforms)
        return tables + (tables > 0)

    patch.setattr(franchise, "draw_tables", wrong)


def gamma_forgets_its_auxiliary(patch: pytest.MonkeyPatch) -> None:
    right = franchise.draw_concentration

    def wrong(key: Any, prior: Any, now: Any, n_tables: Any, customers: Any) -> Any:
        return right(key, prior, now, n_tables + (customers > 0).sum(), customers)

    patch.setattr(franchise, "draw_concentration", wrong)


def even_weights(patch: pytest.MonkeyPatch) -> None:
    right = franchise.draw_weights

    def wrong(key: Any, tables: Any, gamma: Any) -> Any:
        return right(key, jnp.minimum(tables, 1), gamma)

    patch.setattr(franchise, "draw_weights", wrong)


def sharp_likelihood(patch: pytest.MonkeyPatch) -> None:
    """The densities of members are squared."""
    for kind in (gibbs.WordCounts, gibbs.RowEmission):
        right = kind.densities

        def wrong(self: Any, emitted: Any, member: Any, total: Any, right: Any = right) -> Any:
            return right(self, emitted, member, total) ** 2

        patch.setattr(kind, "densities", wrong)


BUGS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    one_table_too_many,
    gamma_forgets_its_auxiliary,
    even_weights,
    sharp_likelihood,
)
by_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)


# ── Geweke ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def geweke_z(case: Case, n_chains: int = 3000, sweeps: int = 6) -> np.ndarray:
    """|z| per function: independent joint draws against the averages of independent chains that start from such."""

    def successive(key: Any) -> Any:
        def step(carry: Any, step_key: Any) -> Any:
            state, members = carry
            a, b = jax.random.split(step_key)
            state = cases.swept(case, state, members, a)
            # before the members are drawn again: after that only the law of the assignments shows
            seen = cases.numbers(case, state, members)
            members = case.again(b, state.emitted, state.assignments)
            return (cases.with_members(case, state, members), members), seen

        begin = cases.joint_draw(case, key)
        return jax.lax.scan(step, begin, jax.random.split(jax.random.fold_in(key, 1), sweeps))[1].mean(0)

    @jax.jit
    def draws(keys: Any) -> Any:
        forward = jax.vmap(lambda k: cases.numbers(case, *cases.joint_draw(case, k)))(keys[0])
        return forward, jax.vmap(successive)(keys[1])

    marginal, chains = draws(jax.random.split(jax.random.key(0), (2, n_chains)))
    marginal, chains = np.asarray(marginal, np.float64), np.asarray(chains, np.float64)
    error = np.sqrt(marginal.var(0, ddof=1) / n_chains + chains.var(0, ddof=1) / n_chains)
    return np.abs(marginal.mean(0) - chains.mean(0)) / error


@by_case
def test_geweke(case):
    """Joint draws made forwards and by the sampler agree, concentrations under their priors: 15 functions."""
    assert geweke_z(case).max() < Z_LIMIT


@by_case
@by_bug
def test_geweke_finds_planted_bugs(case, bug, monkeypatch):
    bug(monkeypatch)
    assert geweke_z(case).max() > 1.5 * Z_LIMIT


# ── calibration ─────────────────────────────────────────────────────────────────────────────────────────────────────

REPLICATES, DRAWS, THIN, BURN = 1600, 7, 40, 60


def ranked(case: Case, state: Any, members: Any) -> Any:
    """What is ranked: concentrations, parts, pairs together, alike ones together, weight left over."""
    z = state.assignments
    same = z[:, None] == z
    alike = (same * case.apart(members)).mean()
    return jnp.stack([state.gamma, state.alpha, 1.0 * (state.total > 0).sum(), same.mean(), alike, state.left])


def calibration_p(case: Case) -> np.ndarray:
    """χ² of uniform ranks of the truth among thinned draws, one p-value per number."""

    def one(key: Any) -> Any:
        key_truth, key_chain, key_ties = jax.random.split(key, 3)
        truth, members = cases.joint_draw(case, key_truth)
        empty = franchise.empty_state(
            cases.N_MEMBERS, len(cases.LENGTHS), case.emission(members), cases.PLACES, 1.0, 1.5
        )
        begin = cases.swept(case, empty, members, key_chain, adding=True)

        def step(state: Any, k: Any) -> Any:
            state = cases.swept(case, state, members, k)
            return state, ranked(case, state, members)

        visited = jax.lax.scan(step, begin, jax.random.split(jax.random.fold_in(key_chain, 1), BURN + DRAWS * THIN))[1]
        drawn, true = visited[BURN + THIN - 1 :: THIN], ranked(case, truth, members)
        close = jnp.abs(drawn - true) <= 1e-5 * (1 + jnp.abs(true))
        below, equal = ((drawn < true) & ~close).sum(0), close.sum(0)
        return below + jax.random.randint(key_ties, true.shape, 0, equal + 1)

    ranks = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(6), REPLICATES)))
    return np.array([chisquare(np.bincount(column, minlength=DRAWS + 1)).pvalue for column in ranks.T])


@by_case
def test_chains_are_calibrated(case):
    assert calibration_p(case).min() > SMALLEST_P


@by_case
@by_bug
def test_calibration_finds_planted_bugs(case, bug, monkeypatch):
    bug(monkeypatch)
    assert calibration_p(case).min() < SMALLEST_P**2


def test_the_cases_are_what_they_say():
    """Words and rows alike come from shared parts, whose number grows with both concentrations."""
    keys = jax.random.split(jax.random.key(0), 400)
    for case in (TOPICS, GROUPS):
        found = jax.jit(jax.vmap(lambda k, case=case: cases.numbers(case, *cases.joint_draw(case, k))))(keys)
        assert np.all(np.isfinite(found))
        n_parts, log_gamma = np.asarray(found)[:, 0], np.asarray(found)[:, 2]
        assert np.corrcoef(n_parts, log_gamma)[0, 1] > 0.2
