"""The loop of the search over sizes: which fit to make next, what to keep, when to stop. It knows no model.

The order of a search depends only on its settings and on what it found. So a search that was interrupted goes on as if
it had not been.

- Nested evidence (plug-in): the witness algorithm of Chiang & Poole; a size starts from its best witness.
- Annealed evidence, and functions: see `racing`.
- Gains from size to size: see `gains`.
- The mean-field bound: first a doubling ladder. Then, around the sizes that cannot be told from the best, repeated fits
    (`starts` each) and unvisited neighbours. Then a second fit of the sizes just outside. With `exhaustive`, all other
    sizes up to `max_size` follow, nearest to the best first. Where fits shrink, they come before the repeated fits,
    each from the fit of the next larger size.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from tqdm import tqdm

from lvsearch.interrupts import was_interrupted
from lvsearch.progress import progress_bar
from lvsearch.searching.guided import AllocationProgress, ComparesAllSizes, SelfGuided
from lvsearch.sizing.fit import Evaluator, Fit, first_gain_of, is_by_gains
from lvsearch.sizing.gains import next_measured
from lvsearch.sizing.ledger import (
    Trial,
    Visit,
    largest_unvisited,
    near_mode,
    record_of,
    scale_evidence,
    unvisited_neighbour,
    visits_beside,
    visits_between,
    with_evidence_from_gains,
)
from lvsearch.sizing.racing import next_size
from lvsearch.sizing.sizes import Size, SizePrior
from lvsearch.sizing.witness import WitnessSearch
from lvsearch.sizing.words import size_text


@dataclass(frozen=True)
class SearchSettings:
    """The settings that, with the prior, the model and the data, decide the course of a search.

    | field | meaning |
    |---|---|
    | `evidence` | "partitions" (chains), "marginal" (annealed), "bound" (mean field), "plug-in" or "predictive" |
    | `per_token` | weigh evidence per token against the prior (for reproducing the paper's figures) |
    | `max_size` | largest size to try, one per size variable; None for no limit |
    | `seed` | decides every random number |
    | `starts` | largest number of trials of a size, see below |
    | `grow` | start the fit of a size from the fit of another size; otherwise always from scratch |
    | `exhaustive` | not plug-in: visit every size up to `max_size`, not only those near the mode |
    | `keep` | fitted models to keep beside the witnesses: the most probable ones |

    `starts` counts annealings of a size (marginal), fits near the mode (bound), fits of every size (plug-in) or parts
    of the data (predictive).
    """

    evidence: str
    per_token: bool
    max_size: Size | None
    seed: int
    starts: int
    grow: bool
    exhaustive: bool
    keep: int

    @property
    def largest(self) -> int | None:
        """The largest number of the first size variable; None for no limit."""
        return None if self.max_size is None else self.max_size[0]


FINISHED = "finished"
"""The value of `SearchState.stopped` for a search that came to its own end."""

KILLED = "killed, or still running elsewhere"
"""The value of `SearchState.why_unfinished` where no end was recorded.

A process records an end however it stops, unless it is killed.
"""


@dataclass(frozen=True)
class SearchState:
    """Everything that a search has found so far. It is a plain value, from which a search can go on.

    | field | meaning |
    |---|---|
    | `visits` | the records of the sizes tried, in order, each with all its fits |
    | `kept` | the fitted models that are kept, {size: fit} |
    | `stopped` | "finished", or in words what ended it early; None while it runs, and for ever once it is killed |
    | `partitions` | chains that compare all sizes, as far as they have come; None where there are none |
    """

    visits: tuple[Visit, ...] = ()
    kept: Mapping[Size, Fit] = field(default_factory=dict)
    stopped: str | None = None
    partitions: AllocationProgress | None = None

    @property
    def is_finished(self) -> bool:
        """True if the search came to its own end, so that its answer cannot change any more."""
        return self.stopped == FINISHED

    @property
    def why_unfinished(self) -> str | None:
        """The reason why the search did not finish, such as "stopped after 60 seconds"; None if it finished."""
        if self.is_finished:
            return None
        return self.stopped or KILLED


@dataclass(frozen=True)
class Budget:
    """The limits at which a search stops early; None for no limit.

    seconds: the time of the search.
    width: the width in nats of the proved bounds on log p(data) that is narrow enough.
    """

    seconds: float | None = None
    width: float | None = None


LATEST = 1.05
"""A search begins no task that is expected to end later than this factor times the time limit."""
LONGER_TRIAL = 2.0
"""A trial with longer paths is expected to take so many times as long as the last one of the same size.

Further annealings of a size are three times as long, and further gains twice, but their fits are not.
"""
SECOND_LOOK = 2
"""The number of fits that a size just outside the sizes near the mode gets before the search may end there."""

NEAR = 20
"""A fit may begin from a larger fit, merging components, if that is larger by at most one in `NEAR`, or by one."""


@dataclass(frozen=True)
class Task:
    """The next work of a search: one or several trials (fits) of one size.

    size: the size to fit.
    trial: the number of the first trial, from 0.
    trials: the number of trials.
    warm: whether trial 0 begins from another size's fit, if there is one. Where fits shrink (begin from larger fits),
        only sizes that fill in a range do so. A chain of such fits is cheap, but each resembles the one before it.
    begins_from: the size from whose fit trial 0 begins if that is kept; None leaves it to `warm`.
    """

    size: Size
    trial: int
    trials: int
    warm: bool = True
    begins_from: Size | None = None


class Call(NamedTuple):
    """The arguments of `Evaluator.evaluate` for one fit.

    size: the size to fit.
    start: the fit of another size to begin from; None begins from scratch.
    trial: the number of the fit among those of the size, from 0.
    """

    size: Size
    start: Fit | None
    trial: int


Make = Callable[[SearchState, Task, Sequence[Call], Callable[[str], None]], Sequence[Fit]]
"""A function that makes the fits of a task, here or elsewhere, and may report its progress in a few words."""


@dataclass(frozen=True)
class SearchRules:
    """The rules of a search: given what was found, they say which fits to make next, and what to keep.

    | field | meaning |
    |---|---|
    | `evaluator` | makes the fits; its properties decide the order of sizes |
    | `prior` | the prior over sizes |
    | `settings` | the settings of the search |
    """

    evaluator: Evaluator
    prior: SizePrior
    settings: SearchSettings

    def witness_search(self, state: SearchState) -> WitnessSearch:
        """Return the sizes tried so far with their evidence, as a `WitnessSearch`, which chooses sizes and computes
        bounds.

        state: what the search has found so far.
        """
        evaluator = self.evaluator
        return WitnessSearch.from_records(
            self.prior,
            evaluator.ceiling / evaluator.scale,
            evaluator.nested,
            self.settings.max_size,
            [record_of(visit, evaluator.scale) for visit in state.visits],
        )

    def next_task(self, state: SearchState, search: WitnessSearch) -> Task | None:
        """Return the next fits to make, as a task of one size; None when the search is finished.

        state: what the search has found so far.
        search: the sizes tried with their bounds, as `witness_search` returns them.
        """
        evaluator, prior, settings = self.evaluator, self.prior, self.settings
        if isinstance(evaluator, SelfGuided):
            wanted = evaluator.next_trial(state.visits, settings.max_size)
            return None if wanted is None else Task(*wanted, trials=1, warm=False)
        if isinstance(evaluator, ComparesAllSizes):
            size = evaluator.next_fit(state.partitions, state.visits, prior, settings.max_size, settings.keep)
            return None if size is None else Task(size, 0, trials=1, warm=False)
        starts = settings.starts if evaluator.repeatable else 1
        if evaluator.nested:
            size = search.next_size()
            return None if size is None else Task(size, 0, starts)
        first = first_gain_of(evaluator)
        if first is not None and state.visits:
            tried = {visit.size[0]: len(visit.trials) for visit in state.visits}
            found = next_measured(state.visits, tried, prior, starts, settings.largest, first=first)
            if found is None:
                return None
            begins_from = None if found.begins_from is None else (found.begins_from,)
            return Task((found.size,), tried.get(found.size, 0), 1, warm=False, begins_from=begins_from)
        if evaluator.anneals or not evaluator.repeatable:  # annealed evidence and functions
            size = next_size(state.visits, prior, starts, settings.max_size, evaluator.scale, settings.exhaustive)
            return None if size is None else Task(size, _n_trials(state, size), 1, warm=not evaluator.shrinks)
        if search.on_ladder:
            size = search.next_size()
            return None if size is None else Task(size, 0, 1, warm=not evaluator.shrinks)
        if settings.exhaustive and evaluator.shrinks and settings.max_size is not None:
            size = largest_unvisited(settings.max_size, state.visits, prior.first)
            if size is not None:
                return Task(size, 0, 1)
        # The bound after its ladder: more fits of the best size, then its neighbours, then all sizes near the mode.
        near = near_mode(state.visits, prior, starts, evaluator.scale, evaluator.repeatable)
        if near and len(near[0].trials) < starts:
            return Task(near[0].size, len(near[0].trials), 1)
        neighbour = unvisited_neighbour(near, state.visits, prior, search.max_size)
        if neighbour is not None:
            return Task(neighbour, 0, 1, warm=not evaluator.shrinks)
        for visit in (*near, *visits_between(near, state.visits)):
            if len(visit.trials) < starts:
                return Task(visit.size, len(visit.trials), 1)
        # Sizes just outside get a second fit, because one unlucky fit may have ended the search there.
        for visit in visits_beside(near, state.visits):
            if len(visit.trials) < min(SECOND_LOOK, starts):
                return Task(visit.size, len(visit.trials), 1)
        if not settings.exhaustive or settings.max_size is None:
            return None
        size = search.next_size()
        return None if size is None else Task(size, 0, 1)

    def step(
        self,
        state: SearchState,
        search: WitnessSearch,
        task: Task,
        make: Make | None = None,
        tell: Callable[[str], None] = lambda words: None,
    ) -> tuple[SearchState, WitnessSearch]:
        """Make the fits of one task, enter the best of them into the search, and return the new state and search.

        state: what the search has found so far. search: the sizes tried with their bounds; it may be changed.
        task: the fits to make.
        make: function that makes the fits elsewhere; None uses the evaluator for one fit after the other.
        tell: function that shows a few words about the progress.
        """
        calls = self.calls_of(state, search, task)
        fits = [self.evaluator.evaluate(*call) for call in calls] if make is None else make(state, task, calls, tell)
        return self.enter_fits(state, search, task, fits)

    def calls_of(self, state: SearchState, search: WitnessSearch, task: Task) -> tuple[Call, ...]:
        """Return the arguments of each fit that a task asks for; no fit depends on another, so they may run in
        parallel.

        The first fit of a size may begin from the fit of another size, if the settings and the task allow it.
        """
        first = None
        if isinstance(self.evaluator, ComparesAllSizes):
            first = self.evaluator.start_of(state.partitions, task.size)
        elif self.settings.grow and task.trial == 0 and task.begins_from is not None:
            kept = state.kept.get(task.begins_from)
            first = None if kept is None or kept.state is None else kept
        elif self.settings.grow and task.trial == 0 and task.warm:
            first = self._start(task.size, state, search)
        trials = range(task.trial, task.trial + task.trials)
        return tuple(Call(task.size, first if trial == 0 else None, trial) for trial in trials)

    def enter_fits(
        self, state: SearchState, search: WitnessSearch, task: Task, fits: Sequence[Fit]
    ) -> tuple[SearchState, WitnessSearch]:
        """Enter the finished fits of one task into the search, and return the new state and the witness search.

        state: what the search had found before. task: the size and numbers of the fits.
        search: the sizes tried with their bounds. It is changed in place; where a size tried before has a better bound
            now, a new one is returned.
        fits: the fits of the task, at least one.
        """
        evaluator = self.evaluator
        best = max(fits, key=lambda fit: fit.estimate)
        trials = tuple(_trial(fit) for fit in fits)
        # A new size enters the witness search. One seen before gets more trials; a better bound rebuilds the search.
        known = next((visit for visit in state.visits if visit.size == task.size), None)
        kept: dict[Size, Fit | None] = dict(state.kept)
        if known is None:
            # its evidence is that of the best fit, or of a smaller size (its witness) if that is better
            witness = search.record(task.size, scale_evidence(best.evidence, evaluator.scale)).replaced_by
            better = next((visit for visit in state.visits if visit.size == witness), best)
            proved = search.bounds()
            own = better.evidence, better.log_symmetry, witness, proved.log_lower, proved.log_upper
            visits = (*state.visits, Visit(task.size, trials, *own))
            kept[task.size] = best if witness is None else _fit_from_witness(best, kept.get(witness))
        else:
            visit = known
            for trial in trials:
                visit = visit.with_trial(trial)
            visits = tuple(visit if old.size == task.size else old for old in state.visits)
            if visit.evidence.lower + visit.log_symmetry > known.evidence.lower + known.log_symmetry:
                kept[task.size] = best
                search = self.witness_search(SearchState(visits))
        if is_by_gains(evaluator):
            visits = with_evidence_from_gains(visits, self.prior, self.settings.largest, evaluator.scale)
        wanted = self._sizes_to_keep(visits, search)
        held = {size: fit for size, fit in kept.items() if size in wanted and fit is not None}
        return SearchState(visits, held, partitions=state.partitions), search

    def _start(self, size: Size, state: SearchState, search: WitnessSearch) -> Fit | None:
        """Return the kept fit from which the fit of a size starts, or None to start from scratch.

        It is the fit of the best witness (a visited smaller size) where models are nested, else the nearest kept fit.

        The nearest fit is a larger one where the evaluator shrinks, and else a smaller one. A larger one has to be
        near, because each merger loses a little and a fit from scratch loses nothing.
        """
        kept = [s for s, fit in state.kept.items() if fit.state is not None]
        if self.evaluator.shrinks:
            most = tuple(n + max(1, n // NEAR) for n in size)
            near = [s for s in kept if s != size and all(map(int.__le__, size, s)) and all(map(int.__le__, s, most))]
            return state.kept[min(near, key=lambda s: (sum(s), s))] if near else None
        smaller = [s for s in kept if all(map(int.__le__, s, size))]
        witness = search.best_witness(size)
        if witness is not None and witness.size in smaller:
            return state.kept[witness.size]
        return state.kept[max(smaller, key=lambda s: (sum(s), s))] if smaller else None

    def _sizes_to_keep(self, visits: tuple[Visit, ...], search: WitnessSearch) -> set[Size]:
        """Return the sizes whose fitted models are kept: the most probable ones, the witnesses, and the latest one.

        Witnesses are the visited sizes that bound the evidence of larger sizes.
        """
        weighted = sorted(
            (visit for visit in visits if not visit.failed),
            key=lambda visit: (-(self.prior.log_pmf(visit.size) + visit.estimate / self.evaluator.scale), visit.size),
        )
        return {visit.size for visit in weighted[: self.settings.keep]} | set(search.witnesses) | {visits[-1].size}

    def expected_fits(self) -> int | None:
        """Return the number of fits of the whole search, for the progress bar, if it is known beforehand; else None.

        It is known for nested evidence with a `max_size`: every size up to it is fitted equally often.
        """
        if self.settings.max_size is None or not self.evaluator.nested:
            return None
        return math.prod(self.settings.max_size) * (self.settings.starts if self.evaluator.repeatable else 1)

    def status(self, state: SearchState, search: WitnessSearch) -> str:
        """Return the status of the search in a few words for the progress bar, such as "best 12, 3 sizes near it".

        Sizes near the best are those that cannot be told from it.
        """
        evaluator = self.evaluator
        differ = evaluator.repeatable and not evaluator.anneals
        near = near_mode(state.visits, self.prior, self.settings.starts, evaluator.scale, differ)
        best = size_text(near[0].size) if near else "none yet"
        gap = (
            f", bounds {search.bounds().width:,.3g} nats apart" if evaluator.nested else f", {len(near)} sizes near it"
        )
        return f"best {best}{gap}"


def run(
    evaluator: Evaluator,
    prior: SizePrior,
    settings: SearchSettings,
    state: SearchState = SearchState(),
    *,
    budget: Budget = Budget(),
    save: Callable[[SearchState], None] = lambda state: None,
    progress: bool = True,
    make: Make | None = None,
    seconds_so_far: Callable[[Sequence[Call]], float] = lambda calls: 0.0,
    agreed: Callable[[bool], bool] = bool,
    first: Sequence[Size] = (),
) -> SearchState:
    """Run a search until it is finished, out of budget or interrupted, and return its last state.

    Ctrl-C keeps everything done so far.

    However short the time, one step is made, so that repeated calls with little time make progress.

    evaluator: makes the fits.
    prior: the prior over sizes.
    settings: the settings of the search.
    state: the state to continue from.
    budget: when to stop early.
    save: called with the state after every step, before the next one begins.
    progress: whether to show a progress bar.
    make: makes the fits of a task; None uses `evaluator` for one fit after the other.
    seconds_so_far: returns for how many seconds workers have had the fits of a task already; `inf` if these are done.
    agreed: function that turns this process' own decision to stop into the decision of all processes, which must act
        alike.
    first: sizes to try before those that the search chooses, in this order; only for evaluators that neither choose
        sizes themselves nor compare all of them at once. The first of them must be the smallest size.
    """
    began, made = time.monotonic(), 0
    rules = SearchRules(evaluator, prior, settings)
    search = rules.witness_search(state)
    state = replace(state, stopped=None)
    bar = progress_bar(rules.expected_fits(), "lvsearch", "fit", wanted=progress)
    bar.update(sum(len(visit.trials) for visit in state.visits))
    status = "begun"
    try:
        # First stage, only for chains over partitions: run them until they agree. They compare all sizes at once.
        while isinstance(evaluator, ComparesAllSizes) and not evaluator.is_long_enough(state.partitions):
            spent = time.monotonic() - began
            if budget.seconds is not None and made and agreed(spent > budget.seconds):
                if not state.visits:  # an answer has one fit at least, however short the time
                    task = rules.next_task(state, search)
                    assert task is not None
                    state, search = rules.step(state, search, task, make)
                return _save_as_stopped(state, _stopped_after(budget.seconds), save)
            state = replace(state, partitions=evaluator.lengthen(state.partitions, prior, settings.max_size))
            made += 1
            save(state)
            if agreed(was_interrupted()):
                raise KeyboardInterrupt
            bar.set_postfix_str(f"chains over all sizes, block {made}")
        # The search proper: one task (fits of one size) after the other, saving the state after each.
        while (task := _first_task(first, state) or rules.next_task(state, search)) is not None:
            already = seconds_so_far(rules.calls_of(state, search, task))
            spent = time.monotonic() - began + max(0.0, _expected_seconds(state, task, evaluator.anneals) - already)
            if budget.seconds is not None and made and agreed(spent > LATEST * budget.seconds):
                return _save_as_stopped(state, _stopped_after(budget.seconds), save)
            if budget.width is not None and state.visits and search.bounds().width <= budget.width:
                return _save_as_stopped(state, f"proved bounds within {budget.width:g} nats", save)
            tell = partial(_tell, bar, status)
            state, search = rules.step(state, search, task, make, tell)
            made += 1
            save(state)
            if agreed(was_interrupted()):
                raise KeyboardInterrupt
            bar.update(task.trials)
            status = rules.status(state, search)
            bar.set_postfix_str(status)
        return _save_as_stopped(state, FINISHED, save)
    except KeyboardInterrupt:
        was_interrupted()  # clears the recorded Ctrl-C
        return _save_as_stopped(state, "interrupted", save)
    finally:
        bar.close()


def _first_task(first: Sequence[Size], state: SearchState) -> Task | None:
    """Return the first fit of the first of these sizes that was not tried yet; None if all were."""
    tried = {visit.size for visit in state.visits}
    return next((Task(size, 0, 1) for size in first if size not in tried), None)


def _fit_from_witness(fit: Fit, witness: Fit | None) -> Fit | None:
    """Return the fit of a smaller size (a witness) as a fit of a larger size, with empty additional components.

    fit: the worse fit of the larger size, which it replaces.
    witness: the fit of the smaller size; None if it was not kept, and then the result is None.
    """
    if witness is None:
        return None
    info = replace(fit.info, start=f"the fit of witness {witness.size}, extra components empty")
    return Fit(fit.size, witness.evidence, witness.log_symmetry, witness.state, info)


def _trial(fit: Fit) -> Trial:
    """Return the record of a fit, which leaves out the fitted model."""
    info = fit.info
    return Trial(
        info.start,
        fit.evidence,
        fit.log_symmetry,
        info.seconds,
        info.failure,
        fit.brackets,
        fit.gains,
        fit.scores,
        fit.bend,
    )


def _expected_seconds(state: SearchState, task: Task, measures_longer: bool) -> float:
    """Return the expected time of a task in seconds, from the trial with the same number of the nearest size that has
    one; 0 before the first fit.

    Where no size has so many trials it is the last trial of the nearest size, times `LONGER_TRIAL` if later trials are
    longer. The time of a fit is taken to grow in proportion to the size.

    measures_longer: whether later trials of a size measure its evidence along longer paths.
    """
    if not state.visits:
        return 0.0
    known = [visit for visit in state.visits if len(visit.trials) > task.trial] or state.visits
    near = min(known, key=lambda visit: (abs(math.prod(visit.size) - math.prod(task.size)), visit.size))
    is_longer = measures_longer and len(near.trials) <= task.trial
    last = near.trials[min(task.trial, len(near.trials) - 1)].seconds * (LONGER_TRIAL if is_longer else 1.0)
    return task.trials * last * max(1.0, math.prod(task.size) / math.prod(near.size))


def _n_trials(state: SearchState, size: Size) -> int:
    """Return the number of fits (trials) of a size so far."""
    return next((len(visit.trials) for visit in state.visits if visit.size == size), 0)


def _tell(bar: tqdm, status: str, words: str) -> None:
    """Show the status of the search and a few more words beside the progress bar, joined by "; "."""
    bar.set_postfix_str(f"{status}; {words}")


def _stopped_after(seconds: float) -> str:
    """Return why a search ended when its time was up, such as "stopped after 60 seconds"."""
    return f"stopped after {seconds:g} second{'' if seconds == 1 else 's'}"


def _save_as_stopped(state: SearchState, why: str, save: Callable[[SearchState], None]) -> SearchState:
    """Return the state with the reason why the search stopped, after saving it."""
    state = replace(state, stopped=why)
    save(state)
    return state
