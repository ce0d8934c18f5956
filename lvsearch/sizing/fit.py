"""What the search sees of a fit, and of whatever makes fits."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lvsearch.sizing.bracket import Bracket, Repeats, pooled
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.gains import SizeGain
from lvsearch.sizing.sizes import Size


@dataclass(frozen=True)
class FitInfo:
    """For people: where a fit started, how long it took (seconds), how many passes it made, and what went wrong."""

    start: str
    seconds: float
    passes: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class TopicQuality:
    """How readable the topics of a fit are, and how many of them another start finds too.

    | field | meaning |
    |---|---|
    | `coherence` | NPMI of the most probable words of each topic, from −1 to 1: mean over topics |
    | `coherence_error` | standard error of that mean over topics |
    | `found_again` | topics that a fit of the same documents from another seed has too |
    """

    coherence: float
    coherence_error: float
    found_again: int


@dataclass(frozen=True)
class HeldOutScores:
    """What a fit makes of units that it was not fitted to.

    | field | meaning |
    |---|---|
    | `part` | number of the part of the units that was left out |
    | `per_unit` | log p(unit | what was fitted), nats, in the order of the part |
    | `n_observations` | tokens or cells of the part: what a score per observation divides by |
    | `method` | how the scores were computed, for people |
    | `topics` | of a fit of topics, how good these are; None of other models, and where it was not asked |
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
    | `evidence` | proved interval on log p(data | size), or log p(data | size, θ_size), nats, at the state carried |
    | `log_symmetry` | log of the number of equivalent relabellings the evidence leaves out (0 under plug-in evidence) |
    | `state` | whatever the evaluator needs to go on from here; opaque to the search |
    | `info` | for people |
    | `brackets` | estimates with errors, where sizes are compared by these: annealed paths, a noisy function's calls |
    | `gains` | what this size has over the next smaller one, where sizes are compared by that |
    | `scores` | of units left out, where sizes are compared by these; None elsewhere |
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
        """What sizes are compared by, nats: the annealed evidence, or the lower bound plus the missing relabellings."""
        return pooled(self.brackets).estimate if self.brackets else self.evidence.lower + self.log_symmetry


@runtime_checkable
class Evaluator(Protocol):
    """All that a search needs to know of a model and its data.

    | attribute | meaning |
    |---|---|
    | `size_names` | one name per size variable |
    | `ceiling` | ≥ log p(data | any size, any parameters), nats; `inf` where none is proved |
    | `nested` | Proposition 1 holds for the evidence that `evaluate` returns |
    | `repeatable` | another trial of the same size can come out better |
    | `anneals` | every trial estimates the evidence anew, with an error of its own, for longer than the one before |
    | `shrinks` | a fit is begun from a slightly larger one's rather than from a smaller one's |
    | `scale` | divide evidence by this before weighing it against the prior: 1, or the number of tokens |
    """

    size_names: tuple[str, ...]
    ceiling: float
    nested: bool
    repeatable: bool
    anneals: bool
    shrinks: bool
    scale: float

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Fit one size, from `start` (the fit of another size: smaller, or larger if it `shrinks`) or from scratch.

        trial: numbers the attempts at this size.
        """
        ...


@runtime_checkable
class GainEvaluator(Evaluator, Protocol):
    """An evaluator that may compare sizes by what each gains over the next smaller one (`Fit.gains`)."""

    measures_gains: bool
    """Whether it does, on its data: a trial then measures a gain, and not the evidence."""


def is_by_gains(evaluator: Evaluator) -> bool:
    """Return whether sizes are compared by their gains over the next smaller ones."""
    return isinstance(evaluator, GainEvaluator) and evaluator.measures_gains


@runtime_checkable
class SelfDescribed(Protocol):
    """An evaluator that says what it is."""

    def describe(self) -> str:
        """For people, in one line."""
        ...
