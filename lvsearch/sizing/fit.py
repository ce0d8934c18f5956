"""The interface between the search and a model: the fit of one size (`Fit`) and the object that makes fits
(`Evaluator`).
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lvsearch.sizing.bracket import Bracket, Repeats, pooled
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.gains import SizeGain
from lvsearch.sizing.sizes import Size


@dataclass(frozen=True)
class FitInfo:
    """Information about a fit for people: how it started, its time in seconds, its number of passes, and why it
    failed.
    """

    start: str
    seconds: float
    passes: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class TopicQuality:
    """How readable the topics of a fit are, and how many of them a second fit from another start finds too.

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
    | `part` | number of the part of the units that was left out |
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


@dataclass(frozen=True)
class Fit:
    """A model fitted at one size.

    | field | meaning |
    |---|---|
    | `size` | one number per size variable |
    | `evidence` | proved interval on log p(data | size), or log p(data | size, θ_size), nats, at `state` |
    | `log_symmetry` | log of the number of equivalent relabellings the evidence leaves out (0 under plug-in evidence) |
    | `state` | whatever the evaluator needs to go on from here; opaque to the search |
    | `info` | start, time and failure, for people |
    | `brackets` | estimates with errors, where these compare sizes: annealed paths, or a noisy function's calls |
    | `gains` | measured gains of this size over the next smaller one, where gains compare sizes |
    | `scores` | scores of held-out units, where these compare sizes; else None |
    """

    size: Size
    evidence: Evidence
    log_symmetry: float
    state: Any
    info: FitInfo
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...] = ()
    gains: tuple[SizeGain, ...] = ()
    scores: HeldOutScores | None = None

    @property
    def estimate(self) -> float:
        """The number that compares sizes, nats: the annealed evidence, or the lower bound plus the missing
        relabellings.
        """
        return pooled(self.brackets).estimate if self.brackets else self.evidence.lower + self.log_symmetry


@runtime_checkable
class Evaluator(Protocol):
    """The interface that a search needs to a model and its data.

    | attribute | meaning |
    |---|---|
    | `size_names` | one name per size variable |
    | `ceiling` | ≥ log p(data | any size, any parameters), nats; `inf` where none is proved |
    | `nested` | whether Proposition 1 holds for the evidence that `evaluate` returns |
    | `repeatable` | whether another trial of the same size can come out better |
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
    """An evaluator that may compare sizes by what each gains over the next smaller one (`Fit.gains`)."""

    measures_gains: bool
    """Whether the evaluator measures gains on its data. Each trial then measures a gain and not the evidence."""


def is_by_gains(evaluator: Evaluator) -> bool:
    """Return whether the evaluator compares sizes by their gains over the next smaller ones."""
    return isinstance(evaluator, GainEvaluator) and evaluator.measures_gains


@runtime_checkable
class SelfDescribed(Protocol):
    """An evaluator that can describe itself."""

    def describe(self) -> str:
        """Return a description of the evaluator for people, in one line."""
        ...
