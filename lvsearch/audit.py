"""An audit of a search's evidence: how far it is off on data whose evidence can be bracketed exactly.

Data are drawn from the model at a few sizes, of the shape of those searched. What a search of them estimates, with as
many trials as the real one made, is laid beside a bracket of the truth: forward paths and, from the very latents that
the data were drawn with, backward ones (Grosse, Ghahramani & Adams 2015; Grosse, Ancha & Roy 2016). Each end of it is
on the wrong side of log p(data | size) by more than c nats with probability at most e^−c, and nothing is assumed.

On the real data the same estimator begins its backward paths where its forward ones ended. An audit says what that
assumption costs on data like these, if the model were true; it cannot say that the model is true.

Cost: as many fits and annealings as the search made of its best size, of each size and each data set, and for each data
set one annealing of twice the length. Data are drawn whole: units × their longest length × components numbers at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Key
from tqdm.auto import tqdm

from lvsearch.bracket import Bracket
from lvsearch.controller import SearchState, Task, step, witness_search
from lvsearch.data import Data
from lvsearch.evaluators import ModelEvaluator
from lvsearch.inference.data import Dataset
from lvsearch.inference.estimator import Estimate
from lvsearch.inference.evidence import effort, evidence_chain
from lvsearch.inference.evidence.simulation import Simulated, packed, simulated_like
from lvsearch.inference.evidence.truth import anneal_simulated
from lvsearch.inference.generators import generator
from lvsearch.sizes import Size, Table, as_size

if TYPE_CHECKING:
    from lvsearch.result import SearchResult

MOST_SIZES = 3
"""Sizes that are audited where nobody says which."""
WITHIN = 1.96
"""Standard errors that an estimate may be off."""


@dataclass(frozen=True)
class AuditRow:
    """Data drawn at one size: what was estimated of them and what is true. All in nats.

    | field | meaning |
    |---|---|
    | `size` | at which the data were drawn |
    | `estimate`, `standard_error` | of log p(data | size), by the search's own evaluator; NaN where its fit failed |
    | `lower`, `upper` | stochastic ends of log p(data | size), exact: each wrong by c nats at most once in e^c times |
    | `bracket_error` | standard error of these ends, from the spread of paths that all begin at one draw |
    | `together` | of the audited sizes those that the evaluator cannot tell from the best, all equally likely before |
    """

    size: Size
    estimate: float
    standard_error: float
    lower: float
    upper: float
    bracket_error: float
    together: tuple[Size, ...]

    @property
    def off_by(self) -> float:
        """How far the estimate lies outside of the ends: 0 between them, positive above, negative below."""
        low, high = sorted((self.lower, self.upper))  # ends that met may have passed each other by their errors
        return float(self.estimate - np.clip(self.estimate, low, high))

    @property
    def within_error(self) -> bool:
        """Whether its standard error, and that of the ends, explain how far the estimate is off (1.96 of both)."""
        return bool(abs(self.off_by) <= WITHIN * np.hypot(self.standard_error, self.bracket_error))

    @property
    def ranked(self) -> bool:
        """Whether the true size is the best one, or not told from it."""
        return self.size in self.together


@dataclass(frozen=True)
class Audit:
    """What `SearchResult.audit` found: a row for each size at which data were drawn, by increasing size.

    `size_names`: one name per size variable. `seed`: that of the data.
    """

    rows: tuple[AuditRow, ...]
    size_names: tuple[str, ...]
    seed: int

    @property
    def ranking_held(self) -> bool | None:
        """Whether every true size was the best of those audited or not told from it; None with a single size.

        Sizes that are not told apart hold 95 % of the probability at least, so that an evaluator without any error
        fails in up to 5 of 100 rows.
        """
        return all(row.ranked for row in self.rows) if len(self.rows) > 1 else None

    @property
    def within_error(self) -> bool:
        """Whether every estimate was off by no more than errors explain. By chance alone one in 20 rows is not."""
        return all(row.within_error for row in self.rows)

    def describe(self) -> str:
        """By how many nats, in which direction, and whether the ranking held: a sentence without a full stop."""
        off = [row for row in self.rows if not row.within_error]
        sizes = ", ".join(_name(row.size) for row in self.rows)
        on = f"on data drawn from the model at {sizes} {' × '.join(self.size_names)}"
        if not off:
            worst = max(self.rows, key=lambda row: abs(row.off_by))
            far = "inside" if worst.off_by == 0 else f"at most {_signed(worst.off_by)} nats outside"
            width = max(abs(row.upper - row.lower) for row in self.rows)  # what an audit can see is no finer
            found = f"{on}, estimates lay {far} exact brackets up to {width:,.2f} nats wide, within their errors"
        else:
            found = f"{on}, estimates were OFF: {'; '.join(map(_off, off))}"
        return f"{found}{self._ranking()}"

    def table(self) -> pd.DataFrame:
        """A row per size: the size variables, then estimate, standard_error, lower, upper, off_by (nats), within_error,
        and ranked (whether the true size was the best, or not told from it)."""
        names = ("size",) if len(self.size_names) == 1 else self.size_names
        return pd.DataFrame(
            [
                {
                    **dict(zip(names, row.size, strict=True)),
                    "estimate": row.estimate,
                    "standard_error": row.standard_error,
                    "lower": row.lower,
                    "upper": row.upper,
                    "off_by": row.off_by,
                    "within_error": row.within_error,
                    "ranked": row.ranked,
                }
                for row in self.rows
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """As settings for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Audit":
        """The inverse of `to_json`. Raises KeyError and TypeError for anything else."""
        rows = tuple(
            AuditRow(
                **{
                    **{field.name: row[field.name] for field in fields(AuditRow)},
                    "size": tuple(row["size"]),
                    "together": tuple(map(tuple, row["together"])),
                }
            )
            for row in stored["rows"]
        )
        return cls(rows, tuple(stored["size_names"]), stored["seed"])

    def __str__(self) -> str:
        return f"{self.describe()}.\n{self.table().to_string(index=False)}"

    def _ranking(self) -> str:
        if self.ranking_held is None:
            return "; a single size has no ranking"
        if self.ranking_held:
            return "; the ranking held: no true size was told apart from the best"
        lost = [row for row in self.rows if not row.ranked]
        return "; the ranking did NOT hold: " + ", ".join(
            f"of {_name(row.size)} it made {', '.join(map(_name, row.together)) or 'nothing'}" for row in lost
        )


def audit_search(
    result: "SearchResult", sizes: Iterable[Size | int] | None, *, seed: int, progress: bool = False
) -> Audit:
    """`SearchResult.audit`, which says what it takes and raises."""
    evaluator, training = _audited(result)
    chosen = _default_sizes(result) if sizes is None else _given_sizes(result, sizes)
    data = training.dataset()
    trials = len(next(visit for visit in result.visits if visit.size == result.best_size).trials)
    bar = tqdm(disable=not progress, desc="audit", unit="data set", total=len(chosen))
    rows = []
    for size in chosen:
        key_data, key_search, key_bracket = jax.random.split(_key_of(seed, size), 3)
        simulated = simulated_like(data, evaluator.model, size, key_data)
        found = _searched(result, evaluator, packed(simulated.data), chosen, trials, key_search)
        kept = found.state.kept.get(size)
        estimate = None if kept is None else kept.state
        bracket = _bracket(evaluator, simulated, estimate, trials, key_bracket)
        rows.append(_row(found, size, bracket))
        bar.update()
    bar.close()
    return Audit(tuple(rows), evaluator.size_names, seed)


def _searched(
    result: "SearchResult",
    evaluator: ModelEvaluator,
    data: Dataset,
    sizes: Sequence[Size],
    trials: int,
    key: Key[Array, ""],
) -> "SearchResult":
    """What the search would find on other data: the same trials of every size, which are equally likely before."""
    seed = int(generator(key).integers(2**31))
    other = ModelEvaluator(evaluator.base_model, data, evidence="marginal", seed=seed, chunks=evaluator.chunks)
    first = (1,) * len(sizes[0])  # where every search begins: fits of larger sizes may grow from it
    shape = tuple(max(numbers) for numbers in zip(*sizes, strict=True))
    flat = np.zeros(shape)
    flat[tuple(np.array(sizes).T - 1)] = 1 / len(sizes)
    prior = Table(flat)
    settings = replace(result.settings, per_token=False, max_size=None, seed=seed, keep=len(sizes) + 1)
    state = SearchState()
    search = witness_search(other, prior, settings, state)
    for size in dict.fromkeys((first, *sizes)):
        task = Task(size, 0, trials if size in sizes else 1, warm=not other.shrinks)
        state, search = step(other, prior, settings, state, search, task)
    return replace(result, evaluator=other, prior=prior, settings=settings, state=state, training=None, audited=None)


def _bracket(
    evaluator: ModelEvaluator, simulated: Simulated, estimate: Estimate | None, trials: int, key: Key[Array, ""]
) -> Bracket:
    """The truth, from both sides, with twice the temperatures of the longest trial."""
    chain = evidence_chain(evaluator.model, simulated.data, simulated.size, estimate)
    longest = effort(chain, trials - 1)
    work = longest._replace(steps=2 * longest.steps)
    ends = anneal_simulated(chain, key, simulated, work)
    forward, backward = tuple(ends.forward.tolist()), tuple(ends.backward.tolist())
    return Bracket(forward, backward, work.steps, work.islands * work.particles, ends.anchor_error)


def _row(found: "SearchResult", size: Size, bracket: Bracket) -> AuditRow:
    estimate, error, together = float("nan"), float("nan"), ()
    if size in found.standard_errors:
        visit = next(visit for visit in found.visits if visit.size == size)
        estimate, error = visit.estimate, found.standard_errors[size]
    if any(found.prior.log_pmf(tried) > -np.inf for tried in found.standard_errors):  # not all of them failed
        together = found.estimated.indistinguishable
    return AuditRow(size, estimate, error, bracket.lower, bracket.upper, bracket.standard_error, together)


def _audited(result: "SearchResult") -> tuple[ModelEvaluator, Data]:
    """The evaluator and the data of a search that can be audited. ValueError, saying why, for any other."""
    evaluator, training = result.evaluator, result.training
    if not isinstance(evaluator, ModelEvaluator) or training is None:
        raise ValueError(
            "got a search without a model or without data, over a plain function say: there is nothing to draw data "
            "from. Search a model of lvsearch.models"
        )
    if not evaluator.anneals:
        raise ValueError(
            f"got a search with evidence={result.settings.evidence!r}, expected annealed evidence: what is audited is "
            'the estimate of log p(data | size). Search with evidence="marginal"'
        )
    return evaluator, training


def _default_sizes(result: "SearchResult") -> tuple[Size, ...]:
    """The best size and up to two others, the most probable ones that were tried."""
    found = result.estimated
    possible = [row for row in np.argsort(-found.probability, kind="stable") if found.probability[row] > 0]
    return tuple(sorted(found.sizes[row] for row in possible[:MOST_SIZES]))


def _given_sizes(result: "SearchResult", sizes: Iterable[Size | int]) -> tuple[Size, ...]:
    chosen = tuple(sorted({as_size(size, result.prior.dimension) for size in sizes}))
    if not chosen:
        raise ValueError("got no sizes, expected at least one, or None for the most probable ones")
    return chosen


def _key_of(seed: int, size: Size) -> Key[Array, ""]:
    key = jax.random.key(seed)
    for number in size:
        key = jax.random.fold_in(key, number)
    return key


def _off(row: AuditRow) -> str:
    if not np.isfinite(row.off_by):
        return f"at {_name(row.size)} they are not a number"
    error = np.hypot(row.standard_error, row.bracket_error)
    return (
        f"at {_name(row.size)} too {'high' if row.off_by > 0 else 'low'} by {abs(row.off_by):,.2f} ± {error:.2g} nats"
    )


def _signed(nats: float) -> str:
    return f"{nats:+,.2f}".replace("-", "−")


def _name(size: Size) -> str:
    return "×".join(map(str, size))
