"""Searches that compare sizes by what one topic more gains: they find the planted number.

Such searches are for corpora of more than 20,000 words. Here the limit is lowered, so that a small one takes seconds.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lvsearch as lv
from lvsearch.inference.topic_samplers import paths
from lvsearch.pictures.size_axis import SizeAxis
from lvsearch.results.card import gain_in_words
from lvsearch.sizing.gains import PooledGain
from lvsearch.workers import remote_fits

PLANTED = 3


@pytest.fixture
def gains_from_500_words_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are compared by gains from 500 words on."""
    monkeypatch.setattr(paths, "MOST_FROM_PRIOR", 500)


def corpus(n_topics: int = PLANTED, n_documents: int = 40) -> lv.Corpus:
    """Documents of 40 words from topics over 30 words, each document mostly about one."""
    rng = np.random.default_rng(3)
    topics = rng.dirichlet(np.full(30, 0.1), n_topics)
    proportions = rng.dirichlet(np.full(n_topics, 0.3), n_documents)
    return lv.Corpus.from_matrix(np.stack([rng.multinomial(40, each @ topics) for each in proportions]))


def test_the_planted_number_is_found_and_fits_begin_with_more_topics(gains_from_500_words_on: None):
    result = lv.search(lv.models.LDA(1.0, 0.1), corpus(), max_size=4, progress=False)
    found = result.estimated
    assert found.best == (PLANTED,)
    assert found.probability[PLANTED - 1] > 0.9
    first = result.visits[1]  # the first size whose gain is measured
    assert first.size == (4,)
    assert first.trials[0].start == "merged from 6"
    assert "topic 3: +" in str(result)
    assert all(visit.gain is not None for visit in result.visits if visit.size > (1,))

    # pictures show sizes between those measured too, without a dot
    fewer = tuple(visit for visit in result.visits if visit.size != (2,))
    between = replace(result, state=replace(result.state, visits=fewer))
    assert (2,) in between.estimated.sizes
    axes = between.plot_bounds()
    line, dots, best = (lines.get_xdata().tolist() for lines in axes.lines[:3])
    assert line == [1.0, 2.0, 3.0, 4.0]
    assert 2.0 not in dots
    assert best == [float(*between.best_size)]
    axes.figure.canvas.draw()

    # stopped after its first gain, which was a loss, a search names no size: it gave one topic more than 99 %
    cut = replace(result, state=replace(result.state, visits=result.visits[:2], stopped="interrupted"))
    told = " ".join(cut.summary().split())
    start = (
        "Unfinished (interrupted): no single number yet: fewer than 4 topics, and smaller numbers were not measured."
    )
    assert told.startswith(start)
    assert "none yet: the evidence already falls at 4 topics" in told
    assert "99 %" not in told
    assert "99 %" not in cut._repr_html_()
    assert cut.plot_posterior().get_title(loc="left") == "Unfinished: no single number yet"


@pytest.mark.slow
def test_where_the_first_size_loses_the_size_at_a_bend_below_it_comes_next(
    gains_from_500_words_on: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(paths, "FIRST_GAIN", 10)
    result = lv.search(lv.models.LDA(1.0, 0.1), corpus(6, 200), starts=1, progress=False)
    assert [visit.size for visit in result.visits] == [(1,), (10,), (6,), (7,)]
    first = result.visits[1]
    assert first.gain is not None
    assert first.gain.estimate < 0
    assert first.bends == (6,)
    assert [visit.trials[0].start for visit in result.visits[1:]] == ["merged from 15"] + 2 * ["merged from 10"]
    assert result.best_size == (6,)


@pytest.mark.slow
def test_threads_of_a_search_find_what_one_fit_after_the_other_finds(
    gains_from_500_words_on: None, monkeypatch: pytest.MonkeyPatch
):
    """A search with many processors uses threads without being asked."""
    begun, results = [], []

    class Counted(ThreadPoolExecutor):
        def __init__(self, n_threads: int, **named: Any):
            begun.append(n_threads)
            super().__init__(n_threads, **named)

    monkeypatch.setattr(remote_fits, "ThreadPoolExecutor", Counted)
    for processors in (1, 16):
        monkeypatch.setattr(remote_fits, "n_processors", lambda number=processors: number)
        results.append(lv.search(lv.models.LDA(1.0, 0.1), corpus(), max_size=6, progress=False))
    assert begun == [4]
    one, many = results
    assert [visit.size for visit in one.visits] == [visit.size for visit in many.visits]
    for ours, theirs in zip(one.visits, many.visits, strict=True):
        assert ours.evidence == theirs.evidence
        assert [trial.gains for trial in ours.trials] == [trial.gains for trial in theirs.trials]
    assert one.posterior().equals(many.posterior())


def test_a_band_can_be_drawn_for_a_size_that_is_not_on_the_axis():
    wide = SizeAxis.from_sizes([(1,), (8,), (32,), (64,)])
    assert wide.logarithmic
    low, high = wide.edges((16,))
    assert (low, high) == pytest.approx((math.sqrt(8 * 16), math.sqrt(16 * 32)))
    assert wide.edges((8,)) == pytest.approx((math.sqrt(8), 16.0))


@pytest.mark.thorough
def test_a_gain_says_over_which_sizes_it_is_a_mean():
    assert gain_in_words(21, PooledGain(-200.0, 12.4)) == "21: −200 ± 12 nats"
    assert gain_in_words(128, PooledGain(52.2, 9.0, 5.0)) == "124–128: +52 ± 9 nats each"
