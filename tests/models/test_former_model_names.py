"""Names that were changed still work, and warn."""

import numpy as np
import pytest

from lvsearch.models import Admixture, CategoricalComponents, DiagonalComponents, MixedComponents, PoissonComponents
from lvsearch.models.families import GammaStatistics
from lvsearch.models.hyperpriors import GammaPrior


def test_former_constructors_make_the_same_models():
    words = ("a=1", "a=2", "b=1", "b=2", "b=3")
    with pytest.warns(DeprecationWarning, match="from_vocabulary"):
        assert Admixture.of_vocabulary(words, 2.0).describe() == Admixture.from_vocabulary(words, 2.0).describe()
    with pytest.warns(DeprecationWarning, match="from_columns"):
        former = CategoricalComponents.of_columns(words)
    assert former.categories == CategoricalComponents.from_columns(words).categories == (2, 3)
    parts = [(PoissonComponents(), ["visits"]), (DiagonalComponents(), ["height"])]
    with pytest.warns(DeprecationWarning, match="from_columns"):
        mixed = MixedComponents.of_columns(("height", "visits"), parts)
    assert mixed.columns == MixedComponents.from_columns(("height", "visits"), parts).columns == ((1,), (0,))


def test_former_names_of_components_give_the_same_hyperparameters():
    kind = DiagonalComponents(pseudo_count=GammaPrior(2.0, 4.0))
    with pytest.warns(DeprecationWarning, match="with_numbers"):
        given = kind.given({"pseudo_count": 3.0})
    assert given.number("pseudo_count") == kind.with_numbers({"pseudo_count": 3.0}).number("pseudo_count") == 3.0
    hyper = {"pseudo_count": GammaStatistics(np.log(2.0), np.array(-2.5))}
    with pytest.warns(DeprecationWarning, match="with_expected_numbers"):
        at = kind.at(hyper)
    assert at.number("pseudo_count") == kind.with_expected_numbers(hyper).number("pseudo_count") == 2.5
