"""Data far from 0, such as times in seconds since 1970: who is in which component does not depend on the offset."""

import numpy as np
import pandas as pd
import pytest
from tiers import in_tiers

import lvsearch as lv
from lvsearch.fitted.clusters import FittedMixture
from lvsearch.inference.engine.estimator import needs_double
from lvsearch.models import Model

OFFSET = 1.7e9
TRUTH = np.repeat([0, 1, 2], 20)


def rows() -> np.ndarray:
    """Three clusters of unit width, 8 apart, at unix times; float32 rounds them to multiples of 128."""
    rng = np.random.default_rng(0)
    return OFFSET + np.array([-8.0, 0.0, 8.0])[TRUTH][:, None] + rng.standard_normal((60, 2))


def models() -> dict[str, Model]:
    values, kinds = rows(), lv.models
    diagonal, full = kinds.DiagonalComponents.scaled_to(values), kinds.FullCovarianceComponents.scaled_to(values)
    return {
        "diagonal": kinds.FiniteMixture(diagonal),
        "full": kinds.FiniteMixture(full),
        "weak": kinds.FiniteMixture(kinds.DiagonalComponents.weak(values)),
        "student": kinds.FiniteMixture(kinds.StudentComponents(diagonal)),
        "known": kinds.FiniteMixture(kinds.KnownCovarianceComponents(np.eye(2), values.mean(0))),
        "tied": kinds.TiedMixture(full),
        "process": kinds.DPMixture(diagonal),
        "independent": kinds.IndependentNormalMixture.scaled_to(values),
    }


def is_truth(labels: np.ndarray) -> bool:
    """Whether the labels are the planted ones under other names."""
    return len({*zip(TRUTH, labels, strict=True)}) == 3


@pytest.mark.parametrize(
    # the others put the origin into the rows as the first does
    "name",
    in_tiers(models(), lambda name: name == "diagonal"),
)
def test_a_mixture_of_unix_times_puts_every_row_into_its_cluster(name: str) -> None:
    values = rows()
    fit = lv.fit(models()[name], values, size=3, seed=0)
    shares = np.asarray(fit.transform(values))
    assert is_truth(shares.argmax(1))
    assert shares[np.arange(60), shares.argmax(1)].min() > 0.9
    if isinstance(fit, FittedMixture):
        assert is_truth(fit.labels().to_numpy())
        assert is_truth(fit.predict(values))


@pytest.mark.slow
def test_a_hidden_markov_model_of_unix_times_knows_the_state_of_every_row() -> None:
    frame = pd.DataFrame(rows(), columns=["a", "b"])
    groups = lv.Groups.from_frame(frame.assign(sequence="one"), group="sequence")
    fit = lv.fit(lv.models.HiddenMarkov(lv.models.DiagonalComponents.scaled_to(frame.to_numpy())), groups, size=3)
    (shares,) = fit.transform(groups)
    assert is_truth(np.asarray(shares).argmax(1))


def test_float64_is_asked_for_where_rounding_would_merge_rows_and_nowhere_else() -> None:
    near = rows() - OFFSET
    holed = np.where(np.arange(120).reshape(60, 2) % 7 == 0, np.nan, rows())
    assert needs_double(lv.Points.from_array(rows()).dataset())
    assert needs_double(lv.Points.from_array(holed, missing="nan").dataset())  # a 0 in a hole is no spread
    frame = pd.DataFrame(rows(), columns=["a", "b"]).assign(sequence="one")
    assert needs_double(lv.Groups.from_frame(frame, group="sequence").dataset())
    assert not needs_double(lv.Points.from_array(near).dataset())
    assert not needs_double(lv.Points.from_array(1e6 * near).dataset())
