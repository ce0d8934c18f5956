"""How many parts of a process are occupied: `lv.occupied` against enumeration, its standard errors against repetition.

Seeds are fixed. A campaign runs one posterior under many keys and looks at z = (p̂ − exact) / standard error of every
number whose exact probability is above .01.
"""

import inspect
from functools import cache, partial
from typing import Any, NamedTuple

import hdp_oracles
import jax
import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
import tree_oracles
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.mixtures import log_block_count_prior, occupied_over_chains
from lvsearch.inference.processes import occupied_chains, occupied_sampler
from lvsearch.inference.trees import hyper_of
from lvsearch.models.components import KnownCovarianceComponents
from lvsearch.models.contract import Model
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hlda import HLDA
from lvsearch.models.hyperpriors import GammaPrior

Z_LIMIT = 4.5


def by_count(joint: dict[tuple[int, ...], float]) -> np.ndarray:
    """P(0 parts), P(1 part), … from partition -> log p(data, partition)."""
    log_p = np.array(list(joint.values()))
    return np.bincount([max(labels) + 1 for labels in joint], np.exp(log_p - logsumexp(log_p)))


# ── calibration of the standard errors ──────────────────────────────────────────────────────────────────────────────


class Problem(NamedTuple):
    """A model, its data, the exact P(0 parts), P(1 part), … of each number that is counted, and how many `draws` of
    each of 4 chains it takes."""

    model: Model
    data: Any
    probabilities: tuple[np.ndarray, ...]
    draws: int


def mixture(rows: np.ndarray, component: Any, log_marginal: exact.LogMarginal, alpha: float, draws: int) -> Problem:
    joint = exact.log_joint_of_partitions(rows, log_marginal, partial(exact.log_process_prior, alpha=alpha))
    data = lv.Points.from_array(rows, missing="nan")
    return Problem(DPMixture(component, alpha), data, (by_count(joint),), draws)


def known(variance: float, count: float) -> tuple[KnownCovarianceComponents, exact.LogMarginal]:
    covariance, location = np.array([[variance]]), np.array([0.5])
    return KnownCovarianceComponents(covariance, location, count), exact.known_marginal(covariance, location, count)


@cache
def holed() -> Problem:
    """Five rows of two columns, some of their cells missing."""
    return mixture(cases.DIAGONAL.rows[:5], cases.DIAGONAL.component, cases.DIAGONAL.log_marginal, 1.3, 250)


@cache
def sticky() -> Problem:
    """Two groups of four rows: from one component to two, or back, rows have to go one by one. 6,000 draws are worth
    some 200."""
    rows = np.array([0.0, 0.1, -0.1, 0.05, 1.53, 1.45, 1.61, 1.46])[:, None]
    return mixture(rows, *known(0.2, 0.3), 0.02, 1500)


COUNTS = np.array([[2, 1, 0], [0, 1, 0], [1, 0, 1]])
ETA, GAMMA, ALPHA = 0.4, 1.3, 0.8


@cache
def topics() -> Problem:
    """Words of three documents, with a prior of γ that reaches from almost 0 to 10."""
    joint = hdp_oracles.posterior(COUNTS, ETA, hdp_oracles.gamma_grid(0.5, 0.3), hdp_oracles.known(ALPHA))
    return Problem(HDP(ETA, GammaPrior(0.5, 0.3), ALPHA), COUNTS, (by_count(joint),), 400)


@cache
def groups() -> Problem:
    rows, sizes = cases.VALUES[:5], (2, 1, 2)
    likelihood = hdp_oracles.row_likelihood(rows, cases.DIAGONAL.log_marginal)
    joint = hdp_oracles.posterior_of(sizes, likelihood, hdp_oracles.known(GAMMA), hdp_oracles.known(ALPHA))
    data = lv.Groups.from_arrays(np.split(rows, np.cumsum(sizes)[:-1]))
    return Problem(HDPMixture(cases.DIAGONAL.component, GAMMA, ALPHA), data, (by_count(joint),), 400)


def tree(model: HLDA, documents: tree_oracles.Documents, n_words: int, draws: int) -> Problem:
    states, _ = tree_oracles.posterior(documents, hyper_of(model), n_words)
    found = [np.zeros(len(documents) + 1) for _ in range(1, model.depth)]
    for (paths, _), probability in states.items():
        for level, of_level in enumerate(found, start=1):
            of_level[len({path[level] for path in paths})] += probability
    levels = tuple((0,) * len(words) for words in documents)
    counts, _ = tree_oracles.as_counts(documents, levels, n_words, model.depth)
    return Problem(model, counts, tuple(found), draws)


@cache
def branches() -> Problem:
    """Two levels, four documents: 1, 2, 3 and 4 branches are all probable."""
    return tree(HLDA(2, 1.2, (0.8, 1.1), (0.6, 0.5)), ((0, 0), (0, 1), (2, 2), (1,)), 3, 400)


@cache
def leaves() -> Problem:
    """Three levels, so two numbers of nodes."""
    return tree(HLDA(3, 0.7, (1.5, 0.6, 2.0), (0.9, 0.3, 0.5)), ((0, 2, 0), (2,), (1, 0)), 4, 400)


def campaign(problem: Problem, seeds: int, model: Model | None = None) -> np.ndarray:
    """z (seed, number); model: another one than the exact probabilities are of, for a planted bug."""
    data = data_for(problem.model, problem.data).dataset()
    sampler = occupied_sampler(problem.model if model is None else model, data)
    z = []
    for seed in range(seeds):
        counts = occupied_chains(sampler, jax.random.key(seed), chains=4, sweeps=2 * problem.draws)
        z.append(
            np.concatenate(
                [
                    z_of(occupied_over_chains(counts[..., i], problem.draws), truth)
                    for i, truth in enumerate(problem.probabilities)
                ]
            )
        )
    return np.array(z)


def z_of(found: Any, truth: np.ndarray) -> np.ndarray:
    """Of numbers whose probability is above .01; a number that no chain visited fails."""
    numbers = np.flatnonzero(truth > 0.01)
    at = np.searchsorted(found.sizes, numbers)
    np.testing.assert_array_equal(found.sizes[at], numbers)
    return (found.probability[at] - truth[numbers]) / found.standard_error[at]


@pytest.mark.slow
def test_standard_errors_hold_what_they_say():
    """20 keys: within 2 standard errors in 95 % of the cases; expected and allowed as in the campaign below."""
    z = campaign(holed(), 20)
    assert (np.abs(z) <= 2).mean() > 0.88
    assert 0.6 < np.square(z).mean() < 1.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "keys"),
    [(holed, 120), (sticky, 120), (topics, 40), (groups, 120), (branches, 40), (leaves, 40)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_standard_errors_hold_what_they_say_in_a_campaign(problem, keys):
    """2 standard errors hold 95.4 % of each number's frequencies: ± 1.9 % with 120 keys, ± 3.3 % with 40 of one number
    and less of all together. The mean square of z is 1: errors are not too wide either. -s prints both, and the mean,
    for each number of parts."""
    z = campaign(problem(), keys)
    print(np.round((np.abs(z) <= 2).mean(0), 3), np.round(np.square(z).mean(0), 2), np.round(z.mean(0), 2))
    assert (np.abs(z) <= 2).mean() > 0.9
    assert 0.65 < np.square(z).mean() < 1.5
    assert np.abs(z.mean(0)).max() * np.sqrt(keys) < Z_LIMIT


@pytest.mark.slow  # as the campaign whose power it shows
@pytest.mark.parametrize("problem", [holed, sticky], ids=["holed", "sticky"])
def test_a_concentration_twice_too_large_is_found(problem):
    """The planted bug."""
    model = problem().model
    z = campaign(problem(), 10, DPMixture(model.components, 2 * model.concentration))
    assert (np.abs(z) <= 2).mean() < 0.6


@pytest.mark.thorough
@pytest.mark.parametrize(
    "problem",
    [groups, *(pytest.param(problem, marks=pytest.mark.slow) for problem in (topics, leaves))],
    ids=lambda p: p.__name__,
)
def test_every_process_has_the_exact_posterior(problem):
    """As people ask for it, one key; the table's probabilities within their errors, and the chains agree."""
    asked = problem()
    found = lv.occupied(asked.model, asked.data, draws=asked.draws, progress=False)
    assert found.agree
    for table, truth in zip(found.tables(), asked.probabilities, strict=True):
        z = (table["probability"] - truth[table["size"]]) / table["standard_error"]
        assert np.abs(z[truth[table["size"]] > 0.01]).max() < Z_LIMIT
        assert table["probability"].sum() == pytest.approx(1)
    single = len(asked.probabilities) == 1
    assert found.posterior().columns[0] == ("size" if single else "counted")
    assert len(found.posterior()) == sum(map(len, found.tables()))


# ── what mean field says, and what a search says ────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_the_answer_of_a_fit_is_the_samplers():
    """Seven rows for which q is sure of two components (.87) and their probability is .22."""
    rows = np.array([0.0, 0.3, -0.2, 1.4, 1.9, 1.6, 3.1])[:, None]
    problem = mixture(rows, *known(0.15, 0.05), 0.3, 300)
    truth = problem.probabilities[0]
    fit = lv.fit(problem.model, rows, size=7)
    q = fit.occupied_under_fit().set_index("size")["probability"]
    assert q[2] > 0.8
    assert truth[2] < 0.23
    found = fit.occupied(draws=problem.draws, progress=False)
    z = z_of(occupied_over_chains(found.counts[..., 0], found.burn_in), truth)
    assert np.abs(z).max() < Z_LIMIT
    again = lv.occupied(problem.model, rows, draws=problem.draws, progress=False)
    np.testing.assert_array_equal(again.counts, found.counts)
    table = found.posterior()
    np.testing.assert_allclose(table["log_prior"], log_block_count_prior(7, 0.3)[table["size"] - 1])


PROCESSES = [
    (DPMixture(), cases.VALUES),
    (HDP(), COUNTS),
    (HDPMixture(), [cases.VALUES[:3], cases.VALUES[3:]]),
    (HLDA(3), COUNTS),
]


def test_every_process_is_here():
    """A model that says so of itself, and no other, is asked for occupied parts."""
    public = [m for m in vars(lv.models).values() if inspect.isclass(m) and issubclass(m, Model)]
    assert {m for m in public if m.process and not inspect.isabstract(m)} == {type(model) for model, _ in PROCESSES}


@pytest.mark.parametrize(("model", "data"), PROCESSES, ids=lambda value: type(value).__name__)
def test_truncations_are_not_searched(model, data):
    prior = lv.sizes.Product(*[lv.sizes.Poisson(3)] * 2) if len(model.size_names) == 2 else lv.sizes.Poisson(3)
    with pytest.raises(ValueError, match=r"truncations all bound .* lv\.occupied\(model, data\)"):
        lv.search(model, data, prior=prior, max_size=3, progress=False)
    assert occupied_sampler(model, data_for(model, data).dataset()).names


@pytest.mark.parametrize(
    ("model", "data", "settings", "message"),
    [
        (lv.models.FiniteMixture(), cases.VALUES, {}, "expected a model of a process"),
        (DPMixture(), cases.VALUES, {"chains": 1}, "chains=1, expected a whole number of at least 2"),
        (DPMixture(), cases.VALUES, {"draws": 3}, "draws=3, expected a whole number of at least 4"),
        (DPMixture(), None, {}, "model without data"),
        (HDP(), np.array([[0.5, 1.0]]), {}, "whole numbers"),
        (HLDA(1), COUNTS, {}, "depth 1"),
        (HLDA(3, lengths=(2, 3)), COUNTS, {}, "paths of 2, 3 levels"),
    ],
)
def test_bad_questions(model, data, settings, message):
    with pytest.raises(ValueError, match=message):
        lv.occupied(model, data, **{"draws": 4, "progress": False, **settings})


def test_only_processes_have_an_answer_beside_their_size():
    fit = lv.fit(lv.models.FiniteMixture(), cases.VALUES, size=2)
    with pytest.raises(ValueError, match="expected a model of a process"):
        fit.occupied()
    assert fit.occupied_under_fit(draws=50)["probability"].sum() == pytest.approx(1)


# ── what it says in words ───────────────────────────────────────────────────────────────────────────────────────────


def answer(counts: Any, burn_in: int = 100) -> lv.OccupiedPosterior:
    return lv.OccupiedPosterior(("occupied components",), np.asarray(counts)[..., None], burn_in, (None,))


def drawn(p: tuple[float, ...], chains: int = 4, sweeps: int = 600) -> np.ndarray:
    return 1 + np.random.default_rng(0).choice(len(p), (chains, sweeps), p=p)


def test_chains_that_agree_answer_in_a_sentence():
    found = answer(drawn((0.0, 0.3, 0.6, 0.1, 0.0)))
    assert found.agree
    assert found.describe() == "3 occupied components are most probable: 0.600 ± 0.010; 2–4 hold 95 %."
    assert "R-hat 1.00" in repr(found)
    assert "4 chains from different starts, 500 draws of each" in repr(found)
    axes = found.plot_posterior()
    assert axes.get_xlabel() == "number of occupied components"
    assert len(axes.patches) == 3
    assert not axes.get_title()


def test_chains_that_disagree_say_so():
    counts = drawn((0.0, 0.3, 0.6, 0.1))
    counts[0] += 4
    found = answer(counts)
    assert not found.agree
    assert found.describe().startswith("The chains do not agree: not an answer yet (R-hat")
    assert found.plot_posterior().get_title().startswith("The chains do not agree")
    slow = answer(np.repeat(drawn((0.0, 0.5, 0.5), sweeps=15), 40, axis=1))
    assert not slow.agree
    assert "not an answer yet" in slow.describe()
    # begun on different sides, and never met
    assert answer(np.repeat([[2], [3], [2], [3]], 300, axis=1)).rhat == np.inf


def test_one_number_throughout_is_not_certainty():
    """Every draw is 3: the error is that of as many independent draws as the slowest chain had time to come there."""
    quick, late = np.full((4, 600), 3), np.full((4, 600), 3)
    quick[:, :5], late[:, :90] = 1, 1
    for counts, effective in ((quick, 2000 / 5), (late, 2000 / 90)):
        found = answer(counts)
        assert found.agree
        shrunk = (effective + 0.5) / (effective + 1)
        expected = np.sqrt(shrunk * (1 - shrunk) / effective)
        assert found.posterior()["standard_error"].item() == pytest.approx(expected)
        assert found.describe().startswith("3 occupied components are most probable: >0.999 ± 0.0")
        assert "which never change" in repr(found)


def test_one_chain_says_that_it_is_alone():
    found = answer(drawn((0.0, 0.3, 0.6, 0.1), chains=1))
    assert "From one chain" in found.describe()
    assert found.posterior()["standard_error"].between(0.005, 0.06).all()
