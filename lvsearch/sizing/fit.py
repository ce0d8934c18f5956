"""The interface between the search and a model: the fit of one size (`Fit`) and the object that makes fits
(`Evaluator`).
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lvsearch.sizing.evidence import Bracket, Evidence, Repeats, pooled
from lvsearch.sizing.gains import SizeGain
from lvsearch.sizing.sizes import Size


@dataclass(frozen=True)
class FitInfo:
    """Information about a fit for people.

    start: how the fit began, such as "scratch" or "grown from 3".
    seconds: the time of the fit.
    passes: the number of passes over the data.
    failure: the reason why the fit failed; None if it succeeded.
    """

    start: str
    seconds: float
    passes: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class TopicQuality:
    """The quality of the topics of a fit: how readable they are, and how many of them a second fit finds again.

    | field | meaning |
    |---|---|
    | `coherence` | NPMI of the most probable words of each topic, from −1 to 1: mean over topics |
    | `coherence_error` | standard error of the mean over topics |
    | `found_again` | number of topics that a fit of the same documents from another seed has too |
    """

    coherence: float
    coherence_error: float
    found_again: int


@dataclass(frozen=True)
class HeldOutScores:
    """Log-predictive scores of a fit on units that it was not fitted to.

    | field | meaning |
    |---|---|
    | `part` | number of the part of the units (documents, rows) that was left out and scored |
    | `per_unit` | log p(unit | the fit), nats, one per unit of the part, in its order |
    | `n_observations` | tokens or cells of the part: the divisor of a score per observation |
    | `method` | how the scores were computed, for people |
    | `topics` | quality of the topics; None for other models, and where it was not asked for |
    """

    part: int
    per_unit: tuple[float, ...]
    n_observations: int
    method: str
    topics: TopicQuality | None = None


class Estimated:
    """The evidence of one fit, which a `Fit` holds, and a search's record of it (`Trial`)."""

    evidence: Evidence
    log_symmetry: float
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...]

    @property
    def estimate(self) -> float:
        """The estimated log evidence, by which sizes are compared, nats.

        It is the annealed estimate; without annealing, the lower bound plus the log number of missing relabellings.
        """
        return pooled(self.brackets).estimate if self.brackets else self.evidence.lower + self.log_symmetry


@dataclass(frozen=True)
class Fit(Estimated):
    """A model fitted at one size.

    | field | meaning |
    |---|---|
    | `size` | one number per size variable |
    | `evidence` | proved interval on log p(data | size), or on log p(data | size, parameters of this fit), nats |
    | `log_symmetry` | log of the number of equivalent relabellings the evidence leaves out (0 under plug-in evidence) |
    | `state` | the fitted model, from which the evaluator can start other fits; opaque to the search |
    | `info` | start, time and failure, for people |
    | `brackets` | estimates of log evidence with errors, from annealing or a noisy function's calls; else empty |
    | `gains` | measured log evidence over that of the next smaller size, where gains compare sizes; else empty |
    | `scores` | scores of held-out units, where these compare sizes; else None |
    | `bend` | the size at which the log likelihood bent while components were removed; None if at none |
    """

    size: Size
    evidence: Evidence
    log_symmetry: float
    state: Any
    info: FitInfo
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...] = ()
    gains: tuple[SizeGain, ...] = ()
    scores: HeldOutScores | None = None
    bend: int | None = None


@runtime_checkable
class Evaluator(Protocol):
    """The interface through which a search fits a model to its data at one size at a time.

    | attribute | meaning |
    |---|---|
    | `size_names` | one name per size variable |
    | `ceiling` | ≥ log p(data | any size, any parameters), nats; `inf` where none is proved |
    | `nested` | whether the evidence of a larger size is at least that of a smaller one (Proposition 1) |
    | `repeatable` | whether another trial (fit) of the same size can come out better |
    | `anneals` | whether each trial estimates the evidence anew, with its own error, on longer paths than before |
    | `shrinks` | whether a fit begins from the fit of a slightly larger size rather than of a smaller one |
    | `scale` | divisor of the evidence before it is weighed against the prior: 1, or the number of tokens |
    """

    size_names: tuple[str, ...]
    ceiling: float
    nested: bool
    repeatable: bool
    anneals: bool
    shrinks: bool
    scale: float

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Fit one size and return the fit.

        size: one number per size variable.
        start: the fit of another size to begin from (a smaller one, or a larger one if the evaluator `shrinks`); None
            begins from scratch.
        trial: the number of the attempt at this size, from 0.
        """
        ...


@runtime_checkable
class GainEvaluator(Evaluator, Protocol):
    """An evaluator that may compare sizes by gains: the log evidence of a size minus that of the next smaller size."""

    first_gain: int | None
    """The first size whose gain is measured. Each fit then measures a gain and not the evidence itself. None if sizes
    are not compared by gains on these data.
    """


def first_gain_of(evaluator: Evaluator) -> int | None:
    """Return the first size whose gain is measured, or None if the evaluator does not compare sizes by gains.

    A gain is the log evidence of a size minus that of the next smaller size.
    """
    return evaluator.first_gain if isinstance(evaluator, GainEvaluator) else None


def is_by_gains(evaluator: Evaluator) -> bool:
    """Return True if the evaluator compares sizes by gains, log evidence minus that of the next smaller size."""
    return first_gain_of(evaluator) is not None


@runtime_checkable
class BeginsLater(Protocol):
    """The interface of an evaluator whose model has components that are given, so that it has no smaller sizes."""

    smallest_size: Size
    """The smallest size of the model, one number per size variable."""


def smallest_size_of(evaluator: Evaluator) -> Size:
    """Return the smallest size that an evaluator can fit: 1 in every variable, unless its model says another."""
    if isinstance(evaluator, BeginsLater):
        return evaluator.smallest_size
    return (1,) * len(evaluator.size_names)


@runtime_checkable
class SelfDescribed(Protocol):
    """The interface of an evaluator that can describe itself in words."""

    def describe(self) -> str:
        """Return a description of the evaluator for people, in one line."""
        ...
