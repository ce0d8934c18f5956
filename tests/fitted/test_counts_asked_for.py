"""Numbers that say how much of a fit is shown or drawn: wrong ones are refused in words, and never read as others."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from fits_without_parameters import fit_without_parameters

import lvsearch as lv

WRONG = (-1, 0, True)
WRONG_SEEDS = (-1, 2**40)


@cache
def cases() -> dict[str, tuple[lv.models.Model, Any]]:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(mean, 0.5, (8, 2)) for mean in (-3, 3)])
    kinds, counts = lv.models, rng.poisson(3, (8, 4))
    kind = kinds.DiagonalComponents.scaled_to(rows)
    return {
        "mixture": (kinds.FiniteMixture(kind), rows),
        "sequences": (kinds.HiddenMarkov(kind), lv.Groups.from_arrays([rows])),
        "topics": (kinds.LDA(), lv.Corpus.from_any(counts)),
        "counts": (kinds.PoissonFactorization(), counts),
    }


@cache
def fits() -> dict[str, Any]:
    """Numbers are refused before any parameter is read."""
    return {name: fit_without_parameters(*case) for name, case in cases().items()}


def points() -> lv.Points:
    return fits()["counts"].training


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "uncertain": lambda n: fits()["mixture"].uncertain(n),
    "rows": lambda n: fits()["mixture"].sample(n),
    "draws of rows": lambda n: fits()["mixture"].occupied_under_fit(draws=n),
    "lengths": lambda n: fits()["sequences"].sample([3, n]),
    "words": lambda n: fits()["topics"].topics(n_words=n),
    "words of names": lambda n: fits()["topics"].names(n),
    "words compared": lambda n: fits()["topics"].coherence(n),
    "documents": lambda n: fits()["topics"].representative(0, n=n),
    "topics of a text": lambda n: fits()["topics"].coloured("term0", n_topics=n),
    "words recommended": lambda n: fits()["topics"].recommend([[1, 0, 0, 0]], n),
    "draws recommended": lambda n: fits()["topics"].recommend([[1, 0, 0, 0]], draws=n),
    "groups": lambda n: fits()["topics"].prevalence(by=np.arange(8), bins=n),
    "columns": lambda n: fits()["counts"].top_columns(n),
    "draws of cells": lambda n: fits()["counts"].score_cells(points(), points(), draws=n),
}
SEEDS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda seed: fits()["mixture"].sample(2, seed=seed),
    "occupied": lambda seed: fits()["mixture"].occupied_under_fit(seed=seed),
    "sequences": lambda seed: fits()["sequences"].sample([2], seed=seed),
    "recommended": lambda seed: fits()["topics"].recommend([[1, 0, 0, 0]], seed=seed),
    "prevalence": lambda seed: fits()["topics"].prevalence(by=np.arange(8), seed=seed),
    "cells": lambda seed: fits()["counts"].score_cells(points(), points(), seed=seed),
}


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
def test_wrong_numbers_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected a whole number"):
        NUMBERS[name](wrong)


@pytest.mark.parametrize("wrong", WRONG_SEEDS, ids=repr)
@pytest.mark.parametrize("name", SEEDS)
def test_wrong_seeds_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match="got seed="):
        SEEDS[name](wrong)


@pytest.mark.parametrize("wrong", [-1, 9, True], ids=repr)
def test_numbers_of_topics_and_documents_that_there_are_not_are_refused(wrong: Any) -> None:
    topics = lv.fit(lv.models.Unigram(), cases()["topics"][1], size=1)
    for call in (topics.representative, topics.document):
        with pytest.raises(ValueError, match="expected"):
            call(wrong)


@pytest.mark.thorough
def test_columns_that_are_called_like_those_of_samples_are_kept() -> None:
    """Drawn rows of clusters have a column `component` beside those of the data."""
    mixture = lv.fit(*cases()["mixture"], size=2)
    named = lv.Points.from_array(mixture.training.values, columns=["component", "x"])
    drawn = replace(mixture, training=named).sample(3)
    assert list(drawn) == ["component", "x", "component"]
    np.testing.assert_array_equal(drawn, mixture.sample(3))


@pytest.mark.slow
def test_columns_that_are_called_like_those_of_drawn_sequences_are_kept() -> None:
    """There are two of them."""
    sequences = lv.fit(*cases()["sequences"], size=2)
    rows = lv.Points.from_array(sequences.training.rows.values, columns=["state", "sequence"])
    drawn = replace(sequences, training=replace(sequences.training, rows=rows)).sample([3])
    assert list(drawn) == ["sequence", "state", "state", "sequence"]
    np.testing.assert_array_equal(drawn, sequences.sample([3]))
