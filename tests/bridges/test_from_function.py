"""Functions of the size that are noisy, fail or take too long: what the search says of them."""

import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from small_searches import Fake

import lvsearch as lv
from lvsearch.bridges.from_function import NOISY_CALLS
from lvsearch.sizing.evidence import Repeats, pooled
from lvsearch.sizing.racing import TOLERANCE, UNSETTLED

QUIET = {"progress": False}


def curve(size: int) -> float:
    return -0.5 * (size - 4) ** 2 - 20.0


def noisy(size: tuple[int, ...], seed: int) -> float:
    return curve(size[0]) + 0.5 * float(np.random.default_rng(seed).standard_normal())


# ── noise ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_noisy_function_states_its_error_unasked():
    draws = np.random.default_rng(0)
    result = lv.search(
        lv.from_function(lambda size: curve(size[0]) + 0.5 * draws.standard_normal()), max_size=8, **QUIET
    )
    table = result.posterior().set_index("size")
    assert (np.abs(table["log_evidence"] - [curve(size) for size in table.index]) < 4 * table["standard_error"]).all()
    assert table["standard_error"].between(0.05, 0.8).all()
    assert (result.starts()["steps"] >= NOISY_CALLS).all()
    assert "the function is noisy: means of " in str(result)
    assert "spread of repeated fits" not in str(result)


def test_a_function_with_a_seed_is_called_with_others_and_repeatably():
    seen = []

    def told(size, seed):
        seen.append((size, seed))
        return noisy(size, seed)

    first = lv.search(lv.from_function(told), max_size=6, **QUIET)
    assert len(set(seen)) == len(seen)
    again, other = (lv.search(lv.from_function(noisy), max_size=6, seed=seed, **QUIET) for seed in (0, 1))
    assert first.posterior().equals(again.posterior())
    assert not first.posterior().equals(other.posterior())


@pytest.mark.smoke
def test_calls_that_agree_are_exact():
    calls = []
    result = lv.search(lv.from_function(lambda size: calls.append(size) or curve(size[0])), max_size=6, **QUIET)
    assert len(calls) == 2 * len(result.visits)
    assert (result.posterior()["standard_error"] == 0).all()
    assert "taken as exact: every size's two calls agreed" in str(result)
    calls.clear()
    believed = lv.search(
        lv.from_function(lambda size: calls.append(size) or curve(size[0]), calls=1), max_size=6, **QUIET
    )
    assert len(calls) == len(believed.visits)
    assert believed.posterior().equals(result.posterior())
    assert "not checked by a second call" in str(believed)


def test_sizes_whose_noise_decides_are_called_more_often():
    def noisier(size, seed):
        return 4 * noisy(size, seed) - 3 * curve(size[0])

    result = lv.search(lv.from_function(noisier), max_size=8, **QUIET)
    calls = result.starts().groupby("size")["steps"].sum()
    assert calls[4] > calls[8] == NOISY_CALLS
    fewer = lv.search(lv.from_function(noisier), max_size=8, starts=1, **QUIET)
    assert (fewer.starts().groupby("size")["steps"].sum() == NOISY_CALLS).all()


def test_the_headline_says_where_noise_still_decides():
    """Four sizes alike under noise of two nats, called as seldom as can be; and a curve that decides in spite of it."""
    alike = lv.search(
        lv.from_function(lambda size, seed: 2.0 * float(np.random.default_rng(seed).standard_normal())),
        max_size=4,
        starts=1,
        **QUIET,
    )
    assert alike.estimated.moved_by_errors > UNSETTLED
    assert "not settled: an exact computation may give " in str(alike).splitlines()[0]
    decided = lv.search(lv.from_function(lambda size, seed: 40 * curve(size[0]) + noisy(size, seed)), **QUIET)
    assert decided.estimated.moved_by_errors < TOLERANCE
    assert "not settled" not in str(decided)


def test_an_error_that_a_function_states_is_believed():
    calls = []

    def stated(size):
        calls.append(size)
        return lv.Evidence(curve(size[0]), standard_error=0.3)

    result = lv.search(lv.from_function(stated), max_size=6, **QUIET)
    assert len(calls) == len(result.visits) == 6  # once each, and not again
    assert (result.posterior()["standard_error"] == 0.3).all()
    assert "as the function states it, standard error of the best size 0.3 nats" in str(result)


def test_repeats_by_hand():
    """The t-interval of four values: mean ± 3.182 s/√4, as a standard error that 1.96 multiplies to it."""
    repeats = Repeats((1.0, 2.0, 3.0, 6.0))
    assert repeats.estimate == 3.0
    assert 1.96 * repeats.standard_error == pytest.approx(3.1824 * math.sqrt(14 / 3) / 2, rel=1e-4)
    assert Repeats((1.0,)).standard_error == math.inf
    together = pooled((Repeats((1.0, 2.0)), Repeats((3.0, 6.0))))
    assert (together.estimate, together.standard_error) == (3.0, repeats.standard_error)


def test_a_nested_function_may_not_be_noisy():
    draws = iter(np.linspace(-3.0, -2.0, 100))
    with pytest.raises(ValueError, match="of a function with nested=True, expected the same at every call"):
        lv.search(lv.from_function(lambda size: next(draws), nested=True, ceiling=0.0), max_size=3, **QUIET)


LEVELS = np.array([0.674, 1.645])
"""Of a normal distribution: one in two, nine in ten."""


def coverage(n_searches: int, sd: float) -> np.ndarray:
    """How often sets of these levels hold the truth about the differences to size 4, over searches of their own noise,
    which grows with size."""
    held = []
    for seed in range(n_searches):

        def value(size, seed):
            return curve(size[0]) + sd * (1 + 0.2 * size[0]) * float(np.random.default_rng(seed).standard_normal())

        table = lv.search(lv.from_function(value), max_size=7, seed=seed, **QUIET).posterior().set_index("size")
        error = np.hypot(table["standard_error"], table["standard_error"][4])
        apart = table["log_evidence"] - table["log_evidence"][4] - [curve(size) - curve(4) for size in table.index]
        held.append(np.abs(apart / error).drop(4).to_numpy()[:, None] <= LEVELS)
    return np.concatenate(held).mean(0)


@pytest.mark.thorough
def test_errors_of_noisy_functions_hold_the_truth():
    half, most = coverage(8, 0.5)
    assert 0.3 < half < 0.8
    assert most > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.1, 0.5, 2.0])
def test_errors_of_noisy_functions_are_calibrated(sd):
    """150 searches of noise between hardly and entirely deciding. Widened for few calls, errors hold rather more."""
    half, most = coverage(150, sd)
    assert 0.45 < half < 0.65
    assert 0.88 < most < 0.98


# ── failures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_search_goes_on_past_what_raises_returns_nan_or_takes_too_long():
    def trouble(size):
        if size == (3,):
            raise RuntimeError("no\nluck")
        if size == (5,):
            return math.nan
        while size == (6,):
            time.sleep(0.005)
        return curve(size[0])

    # a second: the other sizes answer at once, but a busy machine may let them wait for a while
    result = lv.search(lv.from_function(trouble, seconds_per_call=1.0), max_size=7, **QUIET)
    told = result.starts().set_index("size")["failure"]
    assert told[3] == "size 3 raised RuntimeError: no luck; it is reported, not ranked"
    assert told[5] == "size 5 is not a number; it is reported, not ranked"
    assert told[6] == "size 6 took longer than 1 seconds; it is reported, not ranked"
    assert list(result.posterior()["size"]) == [1, 2, 4, 7]
    assert result.best_size == (4,)
    assert "3 fit(s) failed" in str(result)
    assert result.state.stopped == "finished"


def test_noise_with_a_nan_among_it():
    values = iter([-3.0, -2.0, math.nan, -1.0])
    fit = lv.from_function(lambda size: next(values)).evaluate((2,), None)
    assert fit.info.failure == "size 2 is not a number in call 3; it is reported, not ranked"


def test_where_everything_fails_the_search_ends():
    def never(size):
        raise OSError("disk")

    result = lv.search(lv.from_function(never), **QUIET)
    assert len(result.visits) == 8
    assert result.summary().startswith("No fit succeeded")
    assert "OSError: disk" in str(result)


def test_a_thread_cannot_be_interrupted_and_is_timed_afterwards():
    evaluator = lv.from_function(lambda size: time.sleep(0.05) or -1.0, seconds_per_call=0.01)
    fits = []
    thread = threading.Thread(target=lambda: fits.append(evaluator.evaluate((1,), None)))
    thread.start()
    thread.join()
    assert "took longer than 0.01 seconds" in fits[0].info.failure


def test_ctrl_c_is_no_failure():
    def pressed(size):
        if size == (4,):
            raise KeyboardInterrupt
        return curve(size[0])

    result = lv.search(lv.from_function(pressed), max_size=8, **QUIET)
    assert result.state.stopped == "interrupted"
    assert [visit.size for visit in result.visits] == [(1,), (2,)]


def test_evaluators_of_ones_own_may_fail_too():
    class Fragile(Fake):
        def evaluate(self, size, start, trial=0):
            if size == (2,):
                raise ZeroDivisionError
            fit = super().evaluate(size, start, trial)
            return replace(fit, log_symmetry=math.nan) if size == (3,) else fit

    result = lv.search(Fragile(lambda size, trial: curve(size[0]), nested=False), max_size=4, starts=1, **QUIET)
    told = result.starts().set_index("size")["failure"]
    assert told[2] == "size 2 raised ZeroDivisionError; it is reported, not ranked"
    assert told[3] == "size 3 is not a number; it is reported, not ranked"
    assert not told[4]
    assert "Fragile, an evaluator of one's own" in str(result)


@pytest.mark.parametrize("settings", [{"calls": 0}, {"seconds_per_call": 0.0}, {"seconds_per_call": -1.0}])
def test_settings_that_mean_nothing(settings):
    with pytest.raises(ValueError, match=r"got (calls|seconds_per_call)="):
        lv.from_function(curve, **settings)
