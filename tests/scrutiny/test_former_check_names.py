"""Names that were changed still work, and warn."""

import numpy as np
import pytest

import lvsearch as lv
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.scrutiny.scrutiny import Scrutiny
from lvsearch.scrutiny.sensitivity import Sensitivity, Variant


def variant(name: str, estimates: tuple[float, float]) -> Variant:
    return Variant(name, 1.0, None, ((1,), (2,)), (np.log(0.5), np.log(0.5)), estimates, (0.1, 0.1))


SENSITIVITY = Sensitivity((variant("", (0.0, 9.0)), variant("rate", (9.0, 0.0))), ("components",))
ROBUSTNESS = Robustness(np.array([1, 4]), np.zeros((2, 2, 3)), np.zeros(3), 4, "rows", "components")


def test_former_names_of_checks_give_the_same():
    with pytest.warns(DeprecationWarning, match="disagreeing"):
        assert SENSITIVITY.moved == SENSITIVITY.disagreeing == SENSITIVITY.variants[1:]
    prior = lv.sizes.Poisson(2)
    with pytest.warns(DeprecationWarning, match="with_prior"):
        assert SENSITIVITY.under(prior) == SENSITIVITY.with_prior(prior)
    with pytest.warns(DeprecationWarning, match="with_prior"):
        former = ROBUSTNESS.under(prior)
    np.testing.assert_array_equal(former.log_prior, ROBUSTNESS.with_prior(prior).log_prior)
    with pytest.warns(DeprecationWarning, match="with_prior"):
        both = Scrutiny(robustness=ROBUSTNESS, sensitivity=SENSITIVITY).under(prior)
    assert both.sensitivity == SENSITIVITY.with_prior(prior)
