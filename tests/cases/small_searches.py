"""Small searches that several test files share. The models' are made once per session: compiling them takes seconds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import lvsearch as lv
from lvsearch.data.base import Data
from lvsearch.data.kinds import encode_data
from lvsearch.files.storage import read_folder, write_folder
from lvsearch.results.heldout import CONTENT
from lvsearch.results.result import SearchResult
from lvsearch.searching.controller import Budget, SearchSettings, SearchState, run
from lvsearch.sizing.evidence import Bracket
from lvsearch.sizing.fit import Evaluator, Fit, FitInfo
from lvsearch.sizing.ledger import Trial, Visit
from lvsearch.sizing.sizes import Size, SizePrior

N_DOCUMENTS, N_TERMS, MAX_SIZE = 31, 23, 5
KINDS = ("bound", "plug-in")
PRIOR = lv.sizes.Poisson(3)
NO_BUDGET, NOTHING = Budget(), SearchState()


@cache
def corpus() -> lv.Corpus:
    """Three planted topics; one empty document, one unused term; names and labels outside ASCII."""
    random = np.random.default_rng(5)
    topics = random.dirichlet(np.full(N_TERMS - 1, 0.15), 3)
    rows = [
        random.multinomial(random.integers(12, 30), random.dirichlet(np.full(3, 0.3)) @ topics)
        for _ in range(N_DOCUMENTS)
    ]
    counts = np.hstack([np.stack(rows), np.zeros((N_DOCUMENTS, 1), np.int64)])
    counts[7] = 0
    return lv.Corpus.from_matrix(
        counts,
        vocabulary=[f"wört{i}" for i in range(N_TERMS)],
        document_names=[f"paper {i} – α" for i in range(N_DOCUMENTS)],
        document_labels=["odd" if i % 2 else "even" for i in range(N_DOCUMENTS)],
    )


@cache
def searched(evidence: str) -> SearchResult:
    """LDA on `corpus()`. Marginal: sizes near the mode three times. Plug-in: every size once."""
    return lv.search(
        lv.models.LDA(), corpus(), prior=PRIOR, evidence=evidence, max_size=MAX_SIZE, seed=2, progress=False
    )


@dataclass
class Fake:
    """An evaluator without a model: `function(size, trial)` gives nats, an Evidence, or NaN for a fit that failed.

    `calls` lists (size, size of the start, trial) of every call.
    """

    function: Callable[[Size, int], float | lv.Evidence]
    size_names: tuple[str, ...] = ("size",)
    ceiling: float = 0.0
    nested: bool = True
    repeatable: bool = True
    anneals: bool = False
    shrinks: bool = False
    scale: float = 1.0
    log_symmetry: Callable[[Size], float] = lambda size: 0.0
    calls: list[tuple[Size, Size | None, int]] = field(default_factory=list)

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        self.calls.append((size, None if start is None else start.size, trial))
        value = self.function(size, trial)
        origin = "scratch" if start is None else f"grown from {start.size}"
        if not isinstance(value, lv.Evidence) and math.isnan(value):
            unknown = lv.Evidence(-math.inf, self.ceiling)
            return Fit(size, unknown, 0.0, None, FitInfo(origin, 0.5, 1, f"size {size} is not a number"))
        evidence = value if isinstance(value, lv.Evidence) else lv.Evidence(value)
        state = (size, trial)
        return Fit(size, evidence, self.log_symmetry(size), state, FitInfo(origin, 0.5, 1))


def annealed_visit(size: int, *estimates: tuple[float, float]) -> Visit:
    """A size with one annealed trial per (estimate, hysteresis)."""
    trials = tuple(
        Trial(
            "scratch",
            lv.Evidence(-1e9, 0.0),
            0.0,
            1.0,
            None,
            (Bracket((centre - gap / 2,) * 4, (centre + gap / 2,) * 4, 24 << number, 16),),
        )
        for number, (centre, gap) in enumerate(estimates)
    )
    return Visit((size,), trials, lv.Evidence(-1e9, 0.0), 0.0, None, -1e9, 0.0)


def settings(
    max_size: Size | None = None,
    *,
    starts: int = 1,
    grow: bool = True,
    exhaustive: bool = False,
    keep: int = 8,
) -> SearchSettings:
    return SearchSettings("plug-in", False, max_size, 0, starts, grow, exhaustive, keep)


def fake_search(
    evaluator: Evaluator,
    prior: SizePrior,
    chosen: SearchSettings,
    budget: Budget = NO_BUDGET,
    state: SearchState = NOTHING,
) -> tuple[SearchResult, list[SearchState]]:
    """The result, and the state after every step (the last twice: it is saved again when the search stops)."""
    history: list[SearchState] = []
    end = run(evaluator, prior, chosen, state, budget=budget, save=history.append, progress=False)
    return SearchResult(evaluator, prior, chosen, end, None, 0.0), history


def assert_same_search(ours: SearchResult, theirs: SearchResult) -> None:
    """Bit for bit, but for the seconds."""
    assert ours.state.stopped == theirs.state.stopped
    assert ours.settings == theirs.settings
    assert ours.prior == theirs.prior
    assert ours.by_prediction == theirs.by_prediction
    assert ours.recommended == theirs.recommended
    assert ours.by_prediction or ours.posterior().equals(theirs.posterior())
    for name in ("starts", "bounds"):
        mine, other = (getattr(result, name)().drop(columns="seconds") for result in (ours, theirs))
        assert mine.equals(other), f"{name}:\n{mine}\n{other}"
    assert [visit.replaced_by for visit in ours.visits] == [visit.replaced_by for visit in theirs.visits]
    assert set(ours.state.kept) == set(theirs.state.kept)
    for size, fit in ours.state.kept.items():
        other = theirs.state.kept[size]
        assert (fit.evidence, fit.log_symmetry) == (other.evidence, other.log_symmetry)
        assert fit.info.start == other.info.start
        assert (fit.state is None) == (other.state is None)
        if fit.state is not None:
            assert fit.state[1:2] + fit.state[3:] == other.state[1:2] + other.state[3:]
            assert_same_model(fit.state.model, other.state.model)
            assert set(fit.state.natural) == set(other.state.natural)
            for name, statistics in fit.state.natural.items():
                assert type(statistics) is type(other.state.natural[name])
                leaves = jax.tree.leaves(statistics), jax.tree.leaves(other.state.natural[name])
                for array, same in zip(*leaves, strict=True):
                    assert (array.dtype, array.shape) == (same.dtype, same.shape)
                    assert array.tobytes() == same.tobytes()


def assert_same_model(ours: eqx.Module, theirs: eqx.Module) -> None:
    """Class and every field, bit for bit."""
    assert type(ours) is type(theirs)
    for entry in fields(ours):
        mine, other = getattr(ours, entry.name), getattr(theirs, entry.name)
        if isinstance(mine, eqx.Module):
            assert_same_model(mine, other)
        elif isinstance(mine, np.ndarray):
            assert (mine.dtype, mine.shape, mine.tobytes()) == (other.dtype, other.shape, other.tobytes())
        else:
            assert (type(mine), mine) == (type(other), other)


def earlier_held_out(test: Data, folder: Path) -> None:
    """Held-out data in a folder of their own, as earlier versions kept them beside a search."""
    entry, arrays = encode_data(test)
    write_folder(folder, {"content": CONTENT, "data": entry}, {"held-out": arrays})


def rewritten(folder: Path, target: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A copy of a folder, with sound checksums, whose content was changed."""
    body, arrays = read_folder(folder)
    change(body, arrays)
    write_folder(target, body, arrays)
    return target
