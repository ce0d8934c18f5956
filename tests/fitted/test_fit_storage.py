"""Single fits in folders: the same answers when read back, and what cannot be kept or read is said."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import lvsearch as lv
from lvsearch.files.storage import CorruptFolderError
from lvsearch.fitted.model import FittedModel

COUNTS = np.array([[3, 0, 1, 0], [0, 2, 0, 2], [4, 1, 0, 0], [0, 0, 3, 2], [1, 3, 0, 1]])
ROWS = np.array([[0.1, -0.2], [0.3, 0.1], [4.0, 3.8], [4.2, 4.1], [-0.2, 0.0], [3.9, 4.4]])


def documents() -> FittedModel:
    return lv.fit(lv.models.LDA(1.0, 0.5), lv.Corpus.from_matrix(COUNTS), size=2)


def clusters() -> FittedModel:
    return lv.fit(lv.models.FiniteMixture(), lv.Points.from_array(ROWS), size=2)


def matrices() -> FittedModel:
    return lv.fit(lv.models.FiniteMixture(lv.models.FullCovarianceComponents()), lv.Points.from_array(ROWS), size=2)


def process() -> FittedModel:
    return lv.fit(lv.models.DPMixture(), lv.Points.from_array(ROWS), size=4)


def states() -> FittedModel:
    return lv.fit(lv.models.HiddenMarkov(), lv.Groups.from_arrays([ROWS[:4], ROWS[4:]]), size=2)


def images() -> FittedModel:
    return lv.fit(lv.models.CorrLDA(), lv.PairedCorpus.from_arrays([ROWS[:3], ROWS[3:]], COUNTS[:2]), size=2)


@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(make, marks=pytest.mark.smoke) for make in (documents, clusters)),
        *(pytest.param(make, marks=pytest.mark.slow) for make in (matrices, process, states, images)),
    ],
)
def test_a_fit_comes_back_to_the_bit(make: Callable[[], FittedModel], tmp_path):
    fit = make()
    fit.save(tmp_path / "fit")
    again = lv.load_fit(tmp_path / "fit")
    assert type(again) is type(fit)
    assert again.evidence == fit.evidence
    assert again.size == fit.size
    for ours, theirs in zip(_arrays(fit.transform(fit.training)), _arrays(again.transform(fit.training)), strict=True):
        assert_array_equal(theirs, ours)
    with pytest.raises(FileExistsError):
        fit.save(tmp_path / "fit")


def _arrays(described: Any) -> list[Any]:
    return described if isinstance(described, list) else [described]


def test_folders_of_another_kind_say_what_they_hold(tmp_path):
    search = lv.search(
        lv.models.FiniteMixture(), lv.Points.from_array(ROWS), max_size=2, starts=1, evidence="bound", progress=False
    )
    search.best.save(tmp_path / "fit")
    search.save(tmp_path / "run")
    assert_array_equal(lv.load_fit(tmp_path / "fit").labels(), search.best.labels())
    with pytest.raises(CorruptFolderError, match=r"holds a fit, expected a search: lv.load_fit"):
        lv.load(tmp_path / "fit")
    with pytest.raises(CorruptFolderError, match="holds no single fit"):
        lv.load_fit(tmp_path / "run")
    with pytest.raises(FileNotFoundError):
        lv.load_fit(tmp_path / "nothing")


def test_a_class_that_is_not_known_is_named(tmp_path, monkeypatch):
    clusters().save(tmp_path / "fit")
    monkeypatch.delattr(lv.models, "DiagonalComponents")
    with pytest.raises(CorruptFolderError, match="'DiagonalComponents', which this version"):
        lv.load_fit(tmp_path / "fit")
