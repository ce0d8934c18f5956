"""The recommended size in words and as a picture, of made-up scores."""

import math
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lvsearch.data.base import Nouns
from lvsearch.recommending.recommendation import Recommendation, draw_recommendation, recommendation
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import HeldOutScores
from lvsearch.sizing.ledger import Trial, Visit

NOTHING_PROVED = Evidence(-math.inf, math.inf)
NOUNS = Nouns("table", "row", "rows", "cell", "cells")


def visited(size: int, mean: float | None) -> Visit:
    """A size whose one fit scored forty rows around a mean, or failed if it is None."""
    rows = None if mean is None else tuple((mean + np.random.default_rng(size).normal(0, 0.1, 40)).tolist())
    scores = None if rows is None else HeldOutScores(0, rows, 80, "exact", None)
    failure = "it diverged" if rows is None else None
    trial = Trial("scratch", NOTHING_PROVED, 0.0, 1.0, failure, scores=scores)
    return Visit((size,), (trial,), NOTHING_PROVED, 0.0, None, -math.inf, math.inf)


def recommended(means: dict[int, float | None], max_size: int | None = None) -> Recommendation:
    visits = [visited(size, mean) for size, mean in means.items()]
    return recommendation(visits, None, NOUNS, ("components",), None if max_size is None else (max_size,))


def test_a_size_that_predicts_worse_is_left_out_of_those_that_predict_as_well():
    found = recommended({1: -1.0, 2: -3.0, 3: -1.0, 4: -3.0, 8: -1.001})
    assert found.within[0] == (1,)
    alike = replace(found, size=(1,), within=((1,), (3,), (8,)))
    assert "; so do sizes 3, 8" in alike.describe()
    assert "; so does size 3" in replace(alike, within=((1,), (3,))).describe()
    assert "; so do sizes 2–4" in replace(alike, within=((1,), (2,), (3,), (4,))).describe()


def test_a_much_smaller_size_that_predicts_nearly_as_well_is_named():
    """Sixteen components gain 4 over one, and eight gain 3.4."""
    found = recommended({1: -5.0, 4: -3.0, 8: -1.6, 16: -1.0, 32: -2.0})
    assert found.size == (16,)
    size, share = found.enough_for_most or ((0,), 0.0)
    assert size == (8,)
    assert share == pytest.approx(0.85, abs=0.02)
    assert ". 8 components already have 8" in found.describe()
    assert found.describe().endswith(" % of what 16 gain in prediction over 1.")
    near = recommended({1: -5.0, 4: -3.0, 12: -1.6, 16: -1.0, 32: -2.0})
    assert near.enough_for_most is None  # 12 are not half as many
    assert recommended({1: -1.0, 2: -3.0}).enough_for_most is None
    one = recommended({1: -2.0, 2: -1.9, 3: -1.0, 6: -3.0})
    assert one.enough_for_most is None


def test_sizes_whose_fits_failed_were_not_compared():
    """The largest size that could be scored was called the largest size tried."""
    found = recommended({1: -3.0, 2: -1.0, 4: None, 8: None})
    assert found.failed == ((4,), (8,))
    assert found.describe() == (
        "2 components predict new rows as well as any size tried (within one standard error); not compared: 4, 8, "
        "whose fits failed. 2, the largest size that could be scored, predicts best: larger ones may predict better "
        "still."
    )
    assert Recommendation.from_json(found.to_json()) == found
    earlier = {name: value for name, value in found.to_json().items() if name != "failed"}
    assert Recommendation.from_json(earlier) == replace(found, failed=())
    complete = recommended({1: -3.0, 2: -1.0})
    assert "2, the largest size tried, predicts best" in complete.describe()
    assert "not compared" not in complete.describe()


@pytest.mark.parametrize(("best", "title"), [(1, "1 component is recommended"), (2, "2 components are recommended")])
def test_the_title_has_the_right_noun(best: int, title: str):
    found = recommended({size: -1.0 if size == best else -3.0 for size in (1, 2, 3)})
    assert draw_recommendation(found, plt.figure().add_subplot()).title == title
