"""The class `ModelEvaluator`, which fits a model to data at one size at a time and measures the evidence.

Annealed estimates of the evidence become `Bracket` objects here (`brackets_of`), and `annealing_failure` says why an
annealing failed. Where a fit is not a number, the message names columns of the table that can make it fail
(`degenerate_columns`).
"""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from lvsearch.inference.chains import Chain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import RowMatrix
from lvsearch.inference.engine.estimate import Estimate, data_ceiling
from lvsearch.inference.engine.estimator import (
    Chunks,
    Estimator,
    MemoryPlan,
    Part,
    estimator,
    in_words,
    machine_chunks,
    out_of_memory,
)
from lvsearch.inference.evidence import (
    Effort,
    Profile,
    TwoSided,
    anneal,
    bytes_while_annealed,
    draws_in_one_direction,
    effort,
    evidence_chain,
    first_gain,
    gain_of_last_part,
    path_needs_fit,
    temperature_profile,
)
from lvsearch.inference.generators import fold_in, key_of
from lvsearch.inference.kits import chain_kit
from lvsearch.inference.several_processes import (
    broadcast_from_first,
    check_same,
    reporting_lost_processes,
    spans_processes,
)
from lvsearch.inference.sharding import on_mesh
from lvsearch.interrupts import raise_if_cancelled
from lvsearch.models.contract import Model
from lvsearch.sizing.evidence import Bracket, Evidence, evidence_below
from lvsearch.sizing.fit import Fit, FitInfo
from lvsearch.sizing.gains import SizeGain
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import size_text

T = TypeVar("T")


def brackets_of(found: Sequence[TwoSided], work: Effort, hysteresis_share: float | None = None) -> tuple[Bracket, ...]:
    """Return one bracket per annealing: its forward and backward estimates of log p(data | size), nats.

    found: the estimates of each annealing. work: the number of temperatures and of particles of the paths.
    hysteresis_share: that of the paths' kind, see `AnnealingKit`.
    """
    return tuple(
        Bracket(
            tuple(ends.forward.tolist()),
            tuple(ends.backward.tolist()),
            work.steps,
            work.islands * work.particles,
            ends.anchor_error,
            hysteresis_share,
        )
        for ends in found
    )


def annealing_failure(size: Size, found: Sequence[TwoSided], brackets: Sequence[Bracket]) -> str | None:
    """Return the reason why the annealed evidence of a size is useless, in words; None if it is good.

    It is useless if an estimate is not finite, or if a chain never moved.

    found: the estimates of each annealing. brackets: the same estimates as `brackets_of` returns them.
    """
    if not all(bracket.is_finite for bracket in brackets):
        return f"the annealed evidence of size {size} is not a number; the size is reported, not ranked"
    if not all(ends.moved for ends in found):
        return (
            f"the chain of size {size} never moved, so its two ends may agree far below the evidence; the size is "
            "reported, not ranked"
        )
    return None


FIRST_FIT_FACTOR = 1.5
"""The size of the first fit over that of the fit that is merged from it, where gains are measured.

A fit that is given no other fit to begin from makes a first fit of its own. A fit that starts from nothing has some
components twice, and such a component gains nothing. What five topics gained on average on Cora at 128 topics, in nats,
and how much higher the bound on the evidence was than that of the fit from nothing, with two seeds:

| the fit begins with | gain | bound |
|---|---|---|
| nothing | −11, −30 | |
| 192 topics | 52, 77 | 1,117, −787 |
| 256 topics | 85, 17 | 971, −27 |

Beginning with 256 topics takes half as long again as with 192.
"""
CHEAP_DRAWS = 10_000_000
"""The most latent variables that an annealing beyond the usual number of them may draw."""
ANNEALING, PILOT = 0x5EED, 0xF10D
"""Numbers folded into random keys, so that an annealing and its pilot run have other keys than the fit before them."""


class ModelEvaluator:
    """The evaluator of a model with data, which fits the model at any size and measures the evidence of the size.

    The evidence is p(data | size, fitted parameters) ("plug-in"), or p(data | size) itself, annealed ("marginal") or by
    its mean-field bound ("bound"). On many words, LDA's "marginal" evidence is known by what further topics gain.
    For annealed evidence, the first trial of a size is a fit and a short annealing. Every further trial is a longer
    annealing, after a new fit where paths begin with one. The proved interval of the fit (from its bound to the
    model's ceiling) is recorded beside the annealed estimate.

    Random keys are made from the seed, the size and the trial, so a fit does not depend on the order of the search. The
    exception is a lack of memory: then every later fit is made in smaller chunks, and `chunks` says which.

    model, data: the model, and the data that it is fitted to.
    evidence: "marginal", "bound" or "plug-in".
    seed: decides every random number.
    scale: the divisor of the log evidence before it is weighed against the prior.
    chunks: the limits on memory that decide into what chunks data are cut; None chooses them.
    mesh: devices over which units are split, of this process or of several. With several, every fit is the one of
        process 0.
    """

    def __init__(
        self,
        model: Model,
        data: Dataset,
        *,
        evidence: str,
        seed: int,
        scale: float = 1.0,
        chunks: Chunks | None = None,
        mesh: Mesh | None = None,
    ):
        check_same(mesh, "model and data", lambda: _digest(model, data))
        self.mesh = mesh
        self.size_names, self.smallest_size = model.size_names, model.smallest_size
        self.plug_in = evidence == "plug-in"
        self.nested = self.plug_in and model.nested
        self.repeatable = True
        self.anneals = evidence == "marginal"
        self._evidence, self._seed = evidence, seed
        self.scale = scale
        self.base_model = model
        self.model = model.plug_in() if self.plug_in else model
        self.ceiling = data_ceiling(self.model, data)
        self.first_gain = first_gain(self.model, data) if self.anneals else None
        self._key = key_of(seed)
        self.data = data
        with on_mesh(mesh):
            self._estimator: Estimator = estimator(self.model, data)
        if spans_processes(mesh):  # machines may differ in their memory
            chunks = broadcast_from_first(self._estimator.chunks if chunks is None else chunks)
        if chunks is not None:
            self._estimator = self._estimator.with_chunks(chunks)
        self.shrinks = self._estimator.shrinks
        self._paces: dict[Size, Profile] = {}

    def split_over(self, mesh: Mesh) -> "ModelEvaluator":
        """Return a copy of the evaluator that splits units (documents, rows) over the devices of a JAX mesh."""
        return ModelEvaluator(
            self.base_model,
            self.data,
            evidence=self._evidence,
            seed=self._seed,
            scale=self.scale,
            chunks=self.chunks,
            mesh=mesh,
        )

    def without_mesh(self) -> "ModelEvaluator":
        """Return a copy of the evaluator that works in this process alone.

        After a search in several processes, a fit then need not be asked for in all of them.
        """
        other = copy(self)
        other.mesh = None
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the model, data and settings as which the evaluator is pickled; the rest is rebuilt from them."""
        said = {"evidence": self._evidence, "seed": self._seed, "scale": self.scale, "chunks": self.chunks}
        return partial(ModelEvaluator, self.base_model, Dataset(self.data.original), **said), ()

    def __copy__(self) -> "ModelEvaluator":
        """Return a shallow copy that shares the data and everything built from them, unlike `__reduce__`."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._estimator = copy(self._estimator)  # it lays out its data anew for other sizes, and threads would meet
        return other

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Fit one size, measure its evidence, and return the fit.

        A fit that is not a number gets an interval of evidence from −∞ to the ceiling (nothing is known), and its
        `info` states the failure.

        size: one number per size variable.
        start: the fit of another size to begin from, or None.
        trial: the number of the attempt at this size, from 0.
        """
        with reporting_lost_processes(self.mesh), on_mesh(self.mesh):
            fit = self._evaluate_here(size, start, trial)
            return broadcast_from_first(fit) if spans_processes(self.mesh) else fit

    def _evaluate_here(self, size: Size, start: Fit | None, trial: int) -> Fit:
        """Fit one size on the current mesh of devices, measure its evidence, and return the fit.

        size: one number per size variable. start: the fit to begin from, or None for scratch.
        trial: the number of the attempt at this size, from 0. Later trials of annealed evidence make a new fit only
            where paths begin with one.
        """
        if self.anneals and trial and not path_needs_fit(self.model, self.data):
            return self._anneal_again(size, trial)
        began = time.perf_counter()
        key = self._key_of(size, trial)
        larger = self._size_to_merge(size) if start is None else None
        initial = None if start is None else start.state
        if larger is not None:
            key_larger = self._key_of(larger, trial)
            initial = self._with_smaller_chunks(larger, lambda estimator: estimator.fit_to_merge(larger, key_larger))
        raise_if_cancelled()
        estimate = self._with_smaller_chunks(size, lambda estimator: estimator.fit(size, key, initial))
        seconds = time.perf_counter() - began
        origin = _origin(size, start.size if start is not None else larger)
        if math.isnan(estimate.log_lower) or math.isnan(estimate.log_upper):
            said = f"the fit of size {size} from {origin} is not a number{_why_no_number(self.data)}"
            failure = f"{said}; it is reported, not ranked"
            unknown = Evidence(-math.inf, self.ceiling)
            return Fit(size, unknown, 0.0, None, FitInfo(origin, seconds, estimate.passes, failure))
        evidence = evidence_below(self.ceiling, estimate.log_lower, estimate.log_upper)
        estimate = estimate.in_file_order()
        info = FitInfo(origin, seconds, estimate.passes)
        fit = Fit(size, evidence, self._log_symmetry(estimate), estimate, info, bend=estimate.bend)
        if not self.anneals:
            return fit
        if self.first_gain is not None:  # the smallest has no gain: its bound suffices, only differences are compared
            return self._with_bend_below(self._with_gain(fit, trial), trial) if size > self.smallest_size else fit
        return self._anneal(fit, trial)

    def _size_to_merge(self, size: Size) -> Size | None:
        """Return the size of the first fit from which a fit that is given none is merged; None if there is no such fit.

        Only fits whose gains are measured begin so, see `FIRST_FIT_FACTOR`.
        """
        if self.first_gain is None or not self.shrinks or size == self.smallest_size:
            return None
        return tuple(math.ceil(FIRST_FIT_FACTOR * number) for number in size)

    def usual_trials(self, least: int) -> int:
        """Return how many annealings of a size a search may make where nothing is said: `least`, or more for few data.

        Each further annealing of a size is three times as long. As long as the longest draws at most `CHEAP_DRAWS`
        latent variables, which takes seconds, errors of the evidence need not decide the answer.
        """
        if not self.anneals or self.first_gain is not None:
            return least
        chain, trials = evidence_chain(self.model, self.data, self.smallest_size, None), least
        while draws_in_one_direction(chain, trials) <= CHEAP_DRAWS:
            trials += 1
        return trials

    def refit(self, size: Size) -> Fit:
        """Return the fit of a size that its first trial makes if it is given no other fit, without annealing anything.

        It is for a size whose fitted model was not kept.
        """
        return self.without_annealing().evaluate(size, None, 0)

    def without_annealing(self) -> "ModelEvaluator":
        """Return a copy of the evaluator that makes fits and bounds alone, without annealing any evidence."""
        fitting = copy(self)
        fitting.anneals = False
        return fitting

    def _with_gain(self, fit: Fit, trial: int) -> Fit:
        """Return the fit with a measured gain: log evidence of its size minus that of a smaller size, nats.

        A gain that is not a number makes the fit a failure.

        trial: the number of the attempt at this size, from 0, which decides the length of the paths.
        """
        raise_if_cancelled()
        began = time.perf_counter()
        key = fold_in(self._key_of(fit.size, trial), ANNEALING)
        found = gain_of_last_part(self.model, self.data, fit.size, fit.state, key, trial)
        gain = SizeGain(tuple(found.forward.tolist()), tuple(found.backward.tolist()), found.temperatures, found.sizes)
        info = replace(fit.info, seconds=fit.info.seconds + time.perf_counter() - began)
        if not gain.is_finite:
            failure = f"what size {fit.size} gains over a smaller one is not a number; it is reported, not ranked"
            return replace(fit, info=replace(info, failure=failure))
        return replace(fit, info=info, gains=(gain,))

    def _with_bend_below(self, fit: Fit, trial: int) -> Fit:
        """Return the first fit of the first size whose gain is measured with the smaller size at which the log
        likelihood bends, if its gain is a loss; any other fit as it is.

        Gains then end at a smaller size, and probably at a bend. Halving sizes instead would need fits and gains of
        sizes far below.

        trial: the number of the attempt at this size, from 0.
        """
        is_first = fit.size == (self.first_gain,) and trial == 0
        loses = bool(fit.gains) and all(max(*gain.forward, *gain.backward) < 0 for gain in fit.gains)
        if not (is_first and loses) or fit.bend is not None:
            return fit
        raise_if_cancelled()
        began = time.perf_counter()
        bend = self._with_smaller_chunks(fit.size, lambda estimator: estimator.bend_below(fit.state))
        info = replace(fit.info, seconds=fit.info.seconds + time.perf_counter() - began)
        return replace(fit, bend=bend, info=info)

    def _anneal_again(self, size: Size, trial: int) -> Fit:
        """Anneal the evidence of a size again, with longer paths, and return the result without a fitted model.

        There is no new fit, so the proved interval of the evidence is from −∞ to the ceiling.

        trial: the number of the attempt at this size, from 1.
        """
        info = FitInfo("prior", 0.0)
        return self._anneal(Fit(size, Evidence(-math.inf, self.ceiling), 0.0, None, info), trial)

    def _anneal(self, fit: Fit, trial: int) -> Fit:
        """Return the fit with annealed estimates of its log evidence, as brackets.

        An evidence that is not a number makes the fit a failure.

        trial: the number of the attempt at this size, from 0, which decides the length of the paths.

        Raises MemoryError where annealing ran out of memory.
        """
        began = time.perf_counter()
        try:
            chain = evidence_chain(self.model, self.data, fit.size, fit.state)
            work = effort(chain, trial)
            key = fold_in(self._key_of(fit.size, trial), ANNEALING)
            found = anneal(chain, key, work, self._pace(chain, fit.size, trial, work))
        except (MemoryError, JaxRuntimeError) as error:
            if not out_of_memory(error) or not self._annealed_bytes:
                raise
            raise MemoryError(self._no_room("more than there was")) from error
        brackets = brackets_of(found, work, chain_kit(chain).annealing.hysteresis_share)
        seconds = fit.info.seconds + time.perf_counter() - began
        failure = annealing_failure(fit.size, found, brackets)
        if failure is not None:
            return replace(fit, info=replace(fit.info, seconds=seconds, failure=failure))
        return replace(fit, info=replace(fit.info, seconds=seconds), brackets=brackets, log_symmetry=0.0)

    def _pace(self, chain: Chain, size: Size, trial: int, work: Effort) -> Profile:
        """Return the profile of a short pilot run, by which an annealing spaces its temperatures.

        A profile is the mean and spread of the log density ratio at each temperature.

        One pilot run serves all trials of a size, unless their paths begin with different fits.

        chain: the sampler that is annealed. trial: the number of the attempt at the size, from 0.
        work: the numbers of temperatures and particles of the paths.
        """
        if path_needs_fit(self.model, self.data):
            return temperature_profile(chain, fold_in(self._key_of(size, trial), PILOT), work)
        if size not in self._paces:
            self._paces[size] = temperature_profile(chain, fold_in(self._key_of(size, 0), PILOT), work)
        return self._paces[size]

    def _key_of(self, size: Size, trial: int) -> Array:
        """Return the random key of one trial (attempt) at a size, made from the seed, the size and the trial number."""
        return fold_in(self._key, *size, trial)

    @property
    def chunks(self) -> Chunks:
        """The limits on memory that decide into what chunks data are cut; they are stored with a search.

        Sums over other chunks round differently, so fits have the same bits only with the same chunks.
        """
        return self._estimator.chunks

    def work_in(self, chunks: Chunks) -> None:
        """Make all further fits with data cut into chunks by these limits on memory."""
        if chunks != self.chunks:
            self._estimator = self._estimator.with_chunks(chunks)

    def memory_plan(self, size: Size) -> MemoryPlan:
        """Return the largest amount of memory that a fit of this size, or the annealing of its evidence, needs."""
        plan = self._estimator.memory_plan(self._size_to_merge(size) or size)
        if self._annealed_bytes <= plan.peak_bytes:
            return plan
        return replace(plan, parts=(Part("tokens that are annealed", self._annealed_bytes),))

    @cached_property
    def _annealed_bytes(self) -> int:
        """The number of bytes that annealing needs; 0 where nothing is annealed."""
        return bytes_while_annealed(self.model, self.data) if self.anneals else 0

    def check_room(self) -> None:
        """Raise MemoryError before anything is fitted if there is no room for annealing.

        The message says how much memory it would take, and what to do.
        """
        room = machine_chunks().budget_bytes
        if self._annealed_bytes > room:
            raise MemoryError(self._no_room(f"and there is room for {in_words(room)}"))

    def _no_room(self, why: str) -> str:
        """Return the error message for annealing that does not fit into memory.

        why: a phrase about the memory there is, which completes "they take about …, ".
        """
        return (
            f"out of memory: annealing moves every token by itself, and they take about "
            f"{in_words(self._annealed_bytes)}, {why}. Where counts are large because their unit is small, divide them "
            '(by 100, say); search a part of the documents; or take evidence="bound", whose cost is that of the cells '
            "and not of the counts, and which is no estimate of the evidence"
        )

    def _with_smaller_chunks(self, size: Size, compute: Callable[[Estimator], T]) -> T:
        """Return what an estimator computes for one size, with smaller and smaller chunks of data until it has room in
        memory.

        compute: takes the estimator, such as to fit. It is called again with smaller chunks if memory did not suffice.

        Raises MemoryError if there is no room even with the smallest chunks.
        """
        while True:
            try:
                return compute(self._estimator)
            except (MemoryError, JaxRuntimeError) as error:
                if not out_of_memory(error) or spans_processes(self.mesh):  # other processes would keep their chunks
                    raise
                plan, smaller = self._estimator.memory_plan(size), self._estimator.with_chunks(self.chunks.halved())
                if smaller.memory_plan(size) == plan:
                    raise MemoryError(
                        f"out of memory at size {size_text(size)}, in the smallest chunks there are: the fit "
                        f"needs {plan.describe('this size')}. Search smaller sizes (max_size=), fewer units at once, "
                        "or on a machine with more memory; a search with out= can be resumed there"
                    ) from error
            # Outside the handler, because the handled error keeps the arrays of the failed fit alive.
            self._estimator = smaller

    def _log_symmetry(self, estimate: Estimate) -> float:
        """Return the log of the number of equivalent relabellings of components that the evidence of a fit leaves out.

        It is 0 for plug-in evidence.
        """
        return 0.0 if self.plug_in else estimate.model.log_symmetry(estimate.size, estimate.natural)


def _digest(model: Model, data: Dataset) -> str:
    """Return a SHA-256 hash, in hexadecimal digits, of the model and of all data that its fits see."""
    hashed = hashlib.sha256(repr(model).encode())
    for part in data.iter_parts():
        for leaf in map(np.asarray, jax.tree.leaves([batch.units for batch in part.batches])):
            hashed.update(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes())
    return hashed.hexdigest()


def _why_no_number(data: Dataset) -> str:
    """Return in words, in brackets, what may have made a fit of the data no number, and what to do; "" if unknown."""
    faults = degenerate_columns(data)
    if faults:
        return f" ({faults}: a component can shrink there; give its prior a least width, such as least_rate=1e-8)"
    far = columns_far_from_0(data)
    if far:
        return (
            f" ({far}: components centred far from there lose the digits that tell its cells apart; make them by "
            "scaled_to(values) or weak(values), or give location= and scale=)"
        )
    return ""


def _origin(size: Size, start: Size | None) -> str:
    """Return in words how the fit of a size began: "scratch", "grown from 3", "merged from 5", or
    "an earlier fit of this size".

    start: the size of the fit that it began from; None for scratch.
    """
    if start is None:
        return "scratch"
    if start == size:
        return "an earlier fit of this size"
    verb = "merged" if sum(start) > sum(size) else "grown"
    return f"{verb} from {size_text(start)}"


# ── columns that make a fit fail ──────────────────────────────────────────────────────────────────────────────────────


REPEATED_SHARE, FEWEST_REPEATED = 0.25, 3
"""The share and the number of equal cells in a column from which on a component can be left without width."""
FAR = 1e6
"""The factor by which a cell may be farther from the median than half of the cells are; farther cells are faults."""
FAR_FROM_0 = 1e6
"""The factor by which a column's mean may be larger than its standard deviation before the column counts as far from
0."""
PROPORTIONAL = 1e-10
"""The largest distance from 1 of the absolute correlation of two columns that count as proportional."""
MOST_COMPARED = 500
"""The largest number of columns that are compared with each other."""


def degenerate_columns(data: Dataset) -> str:
    """Return in words which columns of a table can leave a component without width, and why; "" if none does.

    A component that holds only rows equal in one column, or rows whose columns are proportional, has no width in that
    direction. Where the prior lets widths shrink to 0, its density grows without bound and the fit is not a number.
    """
    if not isinstance(data.original, RowMatrix):
        return ""
    values, observed = data.original.values, data.original.observed
    found = [_fault_of_column(column, values[:, column], observed[:, column]) for column in range(values.shape[1])]
    return "; ".join(fault for fault in [*found, _find_proportional(values, observed)] if fault)


def columns_far_from_0(data: Dataset) -> str:
    """Return in words the first column of a table whose cells vary little beside their distance from 0; "" for none.

    Components that are centred on 0 lose the digits in which such cells differ: covariances are differences of squares.
    """
    if not isinstance(data.original, RowMatrix):
        return ""
    values, observed = data.original.values, data.original.observed
    for column in range(values.shape[1]):
        known = values[observed[:, column], column]
        if known.size and abs(known.mean()) > FAR_FROM_0 * known.std():
            return f"column {column} is about {known.mean():.3g} and varies by {known.std():.2g}"
    return ""


def _fault_of_column(number: int, cells: Float[np.ndarray, " row"], observed: Bool[np.ndarray, " row"]) -> str:
    """Return in words why one column by itself can leave a component without width; "" if it cannot.

    number: the number of the column, for the message. cells: its values. observed: False for missing cells.
    """
    known = cells[observed]
    if not known.size:
        return ""
    distinct, counts = np.unique(known, return_counts=True)
    most = int(counts.max())
    if most >= max(FEWEST_REPEATED, REPEATED_SHARE * known.size):
        return f"column {number} is {distinct[counts.argmax()]:g} in {most} of {known.size} rows"
    away = np.abs(known - np.median(known))
    if away.max() > FAR * np.median(away):
        return f"column {number} has a cell of {known[away.argmax()]:g}, beside which all others look equal"
    return ""


def _find_proportional(values: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"]) -> str:
    """Return in words the first two columns whose correlation is ±1 up to rounding; "" for none.

    Only rows without missing cells are compared. observed: False for missing cells.
    """
    whole = values[observed.all(1), :MOST_COMPARED]
    spread = whole.std(0) if len(whole) > 2 else np.zeros(0)
    varying = np.flatnonzero(spread > 0)
    if len(varying) < 2:
        return ""
    centred = (whole[:, varying] - whole[:, varying].mean(0)) / spread[varying]
    alike = np.triu(np.abs(centred.T @ centred) / len(whole) > 1 - PROPORTIONAL, 1)
    if not alike.any():
        return ""
    first, second = varying[np.argwhere(alike)[0]]
    return f"columns {first} and {second} are proportional"
