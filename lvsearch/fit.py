"""What the search sees of a fit, and of whatever makes fits."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lvsearch.evidence import Evidence
from lvsearch.sizes import Size


@dataclass(frozen=True)
class FitInfo:
    """For people: where a fit started, how long it took (seconds), how many passes it made, and what went wrong."""

    start: str
    seconds: float
    passes: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class Fit:
    """A model fitted at one size.

    | field | meaning |
    |---|---|
    | `size` | one number per size variable |
    | `evidence` | interval on log p(data | size), or log p(data | size, θ_size), nats, at exactly the state carried |
    | `log_symmetry` | log of the number of equivalent relabellings the evidence leaves out (0 under plug-in evidence) |
    | `state` | whatever the evaluator needs to go on from here; opaque to the search |
    | `info` | for people |
    """

    size: Size
    evidence: Evidence
    log_symmetry: float
    state: Any
    info: FitInfo

    @property
    def estimate(self) -> float:
        """The lower bound plus the missing relabellings, nats: what sizes are compared by under marginal evidence."""
        return self.evidence.lower + self.log_symmetry


@runtime_checkable
class Evaluator(Protocol):
    """All that a search needs to know of a model and its data.

    | attribute | meaning |
    |---|---|
    | `size_names` | one name per size variable |
    | `ceiling` | ≥ log p(data | any size, any parameters), nats; `inf` where none is proved |
    | `nested` | Proposition 1 holds for the evidence that `evaluate` returns |
    | `repeatable` | another trial of the same size can come out better |
    | `shrinks` | a fit is begun from a slightly larger one's rather than from a smaller one's |
    | `scale` | divide evidence by this before weighing it against the prior: 1, or the number of tokens |
    """

    size_names: tuple[str, ...]
    ceiling: float
    nested: bool
    repeatable: bool
    shrinks: bool
    scale: float

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Fit one size, from `start` (the fit of another size: smaller, or larger if it `shrinks`) or from scratch.

        trial: numbers the attempts at this size.
        """
        ...
