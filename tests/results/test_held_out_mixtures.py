"""Held-out rows under mixtures: the score is the predictive density, with parameters integrated out."""

from functools import cache

import numpy as np
import pytest
from partition_oracles import diagonal_marginal, log_finite_prior, log_joint_of_partitions
from scipy.special import logsumexp
from scipy.stats import t

import lvsearch as lv
from lvsearch.inference.engine.describing import described_scores
from lvsearch.results.heldout import agreement

COUNT, SHAPE, RATE = 0.1, 2.0, 0.5
SIZES = (2, 3, 4)


def rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Seven rows to learn from and forty held out, of three clusters."""
    rng = np.random.default_rng(seed)
    centres = np.array([[-2.0, 0.0], [2.0, 0.5], [0.0, 3.0]])
    values = centres[rng.integers(3, size=47)] + 0.5 * rng.standard_normal((47, 2))
    return values[:7], values[7:]


def exact_density(train: np.ndarray, test: np.ndarray, n_components: int) -> np.ndarray:
    """log p(test row | train) of each, nats: over all partitions, each component's predictive by Student's t."""
    location, scale = train.mean(0), train.std(0)

    @cache
    def predictive(members: tuple[int, ...]) -> np.ndarray:
        total = np.zeros(len(test))
        for column in range(2):
            x = (train[list(members), column] - location[column]) / scale[column]
            count, shape = COUNT + len(x), SHAPE + len(x) / 2
            mean = x.sum() / count
            rate = RATE + 0.5 * ((x**2).sum() - count * mean**2)
            spread = np.sqrt(rate * (count + 1) / (shape * count))
            total += t(2 * shape, location[column] + scale[column] * mean, scale[column] * spread).logpdf(
                test[:, column]
            )
        return total

    joint = log_joint_of_partitions(
        train,
        diagonal_marginal(location, scale, COUNT, SHAPE, RATE),
        lambda labels: log_finite_prior(labels, n_components, 1.0),
    )
    total, each = logsumexp(list(joint.values())), []
    for labels, log_joint in joint.items():
        groups = [tuple(np.flatnonzero(np.array(labels) == k).tolist()) for k in range(max(labels) + 1)]
        if log_joint == -np.inf:
            continue
        terms = [np.log(len(group) + 1.0) + predictive(group) for group in groups]
        terms += [np.full(len(test), -np.inf if len(groups) == n_components else np.log(n_components - len(groups)))]
        terms[-1] = terms[-1] + predictive(())
        each.append(log_joint - total + logsumexp(terms, axis=0) - np.log(len(train) + n_components))
    return np.asarray(logsumexp(each, axis=0))


@pytest.mark.thorough
def test_a_mixture_is_scored_by_its_predictive_density_as_enumeration_has_it() -> None:
    train, test = rows(0)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(train))
    result = lv.search(
        model, train, prior=lv.sizes.Uniform(4), evidence="bound", keep=4, starts=1, seed=0, progress=False
    )
    compared = result.compare_held_out(test)
    table, data = compared.set_index("size"), result.training.like_this(test).dataset()
    for size in SIZES:
        exact = exact_density(train, test, size).sum() / test.size
        at_means = described_scores(model, result.fit(size).estimate, data).per_unit.sum() / test.size
        off = abs(table.loc[size, "log_p_per_cell"] - exact)
        assert off < 0.06  # q knows one mode, enumeration all
        assert off < 0.5 * abs(at_means - exact)
    assert set(table["estimator"]) == {"closed form, parameters integrated out"}
    said = agreement(compared)
    assert "closed form" in said
    assert "bound" not in said


@pytest.mark.parametrize(
    ("exact", "method"),
    [
        (True, "exact, parameters at their posterior means"),
        pytest.param(False, "variational lower bound", marks=pytest.mark.slow),  # IBP takes ten seconds to compile
    ],
)
def test_a_score_that_is_a_bound_says_so_and_one_that_is_exact_does_too(exact: bool, method: str) -> None:
    train, test = rows(0)
    model = lv.models.IndependentNormalMixture.scaled_to(train) if exact else lv.models.IBP()
    fit = lv.fit(model, train, size=2, seed=0)
    assert described_scores(fit.model, fit.estimate, lv.Points.from_array(test).dataset()).method == method
