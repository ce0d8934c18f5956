"""Auditing a search: data drawn like those searched, searched with the same effort, their evidence bracketed exactly.

What is found is an `lvsearch.scrutiny.audit.Audit`, which says what it means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Array, Key

from lvsearch.data import Data
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.evidence import effort, evidence_chain
from lvsearch.inference.evidence.simulation import Simulated, packed, simulated_like
from lvsearch.inference.evidence.truth import anneal_simulated
from lvsearch.inference.generators import generator
from lvsearch.progress import progress_bar
from lvsearch.results.findings import Findings
from lvsearch.scrutiny.audit import Audit, AuditRow
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED
from lvsearch.searching.controller import SearchState, Task, step, witness_search
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.bracket import Bracket
from lvsearch.sizing.sizes import Size, Table, as_size

MOST_SIZES = 3
"""Sizes that are audited where nobody says which."""


def audit_search(result: Findings, sizes: Iterable[Size | int] | None, *, seed: int, progress: bool = False) -> Audit:
    """`SearchResult.audit`, which says what it takes and raises."""
    evaluator, training = audited_search(result)
    chosen = _default_sizes(result) if sizes is None else _given_sizes(result, sizes)
    data = training.dataset()
    trials = len(next(visit for visit in result.visits if visit.size == result.best_size).trials)
    bar = progress_bar(len(chosen), "audit", "data set", wanted=progress)
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
    return Audit(tuple(rows), evaluator.size_names, seed, result.why_unfinished)


def _searched(
    result: Findings,
    evaluator: ModelEvaluator,
    data: Dataset,
    sizes: Sequence[Size],
    trials: int,
    key: Key[Array, ""],
) -> Findings:
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
    return replace(
        result, evaluator=other, prior=prior, settings=settings, state=state, training=None, scrutiny=NOTHING_ASKED
    )


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


def _row(found: Findings, size: Size, bracket: Bracket) -> AuditRow:
    estimate, error, together = float("nan"), float("nan"), ()
    if size in found.standard_errors:
        visit = next(visit for visit in found.visits if visit.size == size)
        estimate, error = visit.estimate, found.standard_errors[size]
    if any(found.prior.log_pmf(tried) > -np.inf for tried in found.standard_errors):  # not all of them failed
        together = found.estimated.indistinguishable
    return AuditRow(size, estimate, error, bracket.lower, bracket.upper, bracket.standard_error, together)


def audited_search(result: Findings) -> tuple[ModelEvaluator, Data]:
    """The evaluator and the data of a search that can be audited. ValueError, saying why, for any other."""
    evaluator, training = search_of_model(result)
    if not evaluator.anneals:
        raise ValueError(
            f"got a search with evidence={result.settings.evidence!r}, expected annealed evidence: what is audited is "
            'the estimate of log p(data | size). Search with evidence="annealed"'
        )
    return evaluator, training


def search_of_model(result: Findings) -> tuple[ModelEvaluator, Data]:
    """The evaluator and the data of a search of a model. ValueError, saying why, for any other."""
    evaluator, training = result.evaluator, result.training
    if not isinstance(evaluator, ModelEvaluator) or training is None:
        raise ValueError(
            "got a search without a model or without data, over a plain function say: there is nothing to draw data "
            "from. Search a model of lvsearch.models"
        )
    return evaluator, training


def _default_sizes(result: Findings) -> tuple[Size, ...]:
    """The best size and up to two others, the most probable ones that were tried."""
    found = result.estimated
    possible = [row for row in np.argsort(-found.probability, kind="stable") if found.probability[row] > 0]
    return tuple(sorted(found.sizes[row] for row in possible[:MOST_SIZES]))


def _given_sizes(result: Findings, sizes: Iterable[Size | int]) -> tuple[Size, ...]:
    chosen = tuple(sorted({as_size(size, result.prior.dimension) for size in sizes}))
    if not chosen:
        raise ValueError("got no sizes, expected at least one, or None for the most probable ones")
    return chosen


def _key_of(seed: int, size: Size) -> Key[Array, ""]:
    key = jax.random.key(seed)
    for number in size:
        key = jax.random.fold_in(key, number)
    return key
