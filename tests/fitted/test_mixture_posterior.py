"""`lv.mixture_posterior`: what it takes, says and refuses."""

import mixture_cases as cases
import numpy as np
import pytest

import lvsearch as lv
from lvsearch.inference.allocation_chains.run import AllocationRun


@pytest.mark.thorough
def test_clusters_are_counted_and_the_answer_is_read() -> None:
    rows = cases.clusters()
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows))
    found = lv.mixture_posterior(model, rows, prior=lv.sizes.Poisson(3), max_size=9, precision=0.02, sweeps=512)
    sizes, occupied = found.posterior(), found.occupied()
    assert list(sizes.columns) == ["size", "log_prior", "probability", "monte_carlo_error"]
    assert list(occupied.columns) == ["occupied", "probability", "monte_carlo_error"]
    assert len(sizes) == 9
    np.testing.assert_allclose(sizes["probability"].sum(), 1.0)
    np.testing.assert_allclose(np.exp(sizes["log_prior"]).sum(), 1.0)
    assert int(occupied["probability"].argmax()) + 1 == 3
    assert found.is_settled
    assert "3 occupied components are most probable" in found.describe()
    hurried = lv.mixture_posterior(model, rows, max_size=9, precision=1e-6, sweeps=256)
    assert not hurried.is_settled
    assert hurried.describe().startswith("Not an answer yet: after 256 sweeps")


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (lv.models.DPMixture(), {}, "expected lv.models.FiniteMixture"),
        (lv.models.FiniteMixture(), {"precision": 0}, "expected a finite number above 0 and below 1"),
        (lv.models.FiniteMixture(), {"sweeps": 3}, "got sweeps=3, expected a whole number of at least 256"),
        (lv.models.FiniteMixture(), {"max_size": 0}, "expected a whole number from 1 on"),
        (lv.models.FiniteMixture(), {"max_size": 2001}, "expected a size from 1 to 2000"),
        (lv.models.FiniteMixture(), {"prior": 3}, "expected one of lv.sizes over one size"),
        (lv.models.FiniteMixture(), {"prior": lv.sizes.Table([0, 1.0]), "max_size": 1}, "expected a larger one"),
    ],
)
def test_bad_arguments_are_refused(model: object, given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lv.mixture_posterior(model, cases.clusters(), **given)  # pyright: ignore — that is the test


def test_chains_that_sum_one_partition_in_other_orders_agree() -> None:
    """Every chain stays in one partition nearly always, whose density differs between chains by rounding alone."""
    random, shape = np.random.default_rng(0), (8, 32, 4)
    moved = random.random(shape) < 0.05
    log_rows = -321.123456789 + 1e-12 * np.arange(4) - moved
    run = AllocationRun(np.zeros((6, 4), int), {}, 16, 3 + moved[:, :, None], log_rows, np.full((8, 4, 5), 0.2), 8)
    assert run.trace().rhat < 1.05
    apart = run._replace(log_rows=log_rows - np.arange(4))
    assert apart.trace().rhat > 2
