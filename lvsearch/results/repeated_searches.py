"""Search again: with data drawn from the model or a changed hyper-parameter, to check a result; or with more data.

`SearchResult.audit` calls `audit_search`. It draws data from the model, searches them with the same effort, and bounds
their evidence from both sides. The result is a `lvsearch.scrutiny.audit.Audit`, whose docstring says how to read it.

`SearchResult.sensitivity` calls `vary`, which searches the same data with other hyper-parameters.

`SearchResult.update` calls `search_with_more`, which searches the data joined with new ones, from the fits that there
are.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Key

from lvsearch.data import Data
from lvsearch.fitted.kinds import as_fitted_model, numbered_like, start_on
from lvsearch.fitted.stored_fits import path_name
from lvsearch.inference.compiles import compiles, compiles_since, prepare_programs
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.evidence import effort, evidence_chain
from lvsearch.inference.evidence.simulation import Simulated, anneal_simulated, pack_simulated, simulated_like
from lvsearch.inference.generators import fold_in, generator
from lvsearch.inference.kits import chain_kit
from lvsearch.interrupts import remember_interrupts
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import checked_seed, real_number
from lvsearch.progress import progress_bar
from lvsearch.recommending.evaluator import checked_prior, model_evaluator
from lvsearch.results.card import has_answer
from lvsearch.results.findings import Findings
from lvsearch.results.wording import name_of_chains
from lvsearch.scrutiny.audit import Audit, AuditRow
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED
from lvsearch.scrutiny.sensitivity import Sensitivity, Variant
from lvsearch.searching.allocation_evaluator import AllocationEvaluator
from lvsearch.searching.controller import Budget, Call, SearchRules, SearchState, Task, run
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.guided import ComparesAllSizes, SelfGuided
from lvsearch.sizing.evidence import Bracket
from lvsearch.sizing.fit import Fit, is_by_gains
from lvsearch.sizing.sizes import Size, SizePrior, Table, without_smaller
from lvsearch.sizing.univariate import as_sizes
from lvsearch.sizing.witness import per_variable

Searched = TypeVar("Searched", bound=Findings)
MOST_SIZES = 3
"""The number of sizes that are audited when the caller names none."""


def audit_search(result: Findings, sizes: Iterable[Size | int] | None, *, seed: int, progress: bool = False) -> Audit:
    """Check the evidence of a finished search on simulated data whose evidence is known within bounds.

    For each size, one data set is drawn from the model. It is searched with as many fits per size as the best size had
    in the audited search. Its log evidence is bracketed by annealing from the latent variables that it was drawn with.
    `SearchResult.audit` calls this function.

    result: the search that is audited.
    sizes: the sizes to draw data at; None for up to three most probable ones.
    seed: decides the simulated data and all random numbers.
    progress: show a progress bar with a step for each size.

    Returns an `Audit` with one row per size.
    Raises ValueError if the search has no model, no data or no annealed evidence, and for an empty list of sizes.
    """
    evaluator, training = annealed_search(result, "audit")
    chosen = _default_sizes(result) if sizes is None else as_sizes(sizes, result.prior.dimension)
    data = training.dataset()
    trials = len(next(visit for visit in result.visits if visit.size == result.best_size).trials)
    rows = []
    with progress_bar(len(chosen), "audit", "data set", wanted=progress) as bar:
        for size in chosen:
            key_data, key_search, key_bracket = jax.random.split(fold_in(jax.random.key(seed), *size), 3)
            simulated = simulated_like(data, evaluator.model, size, key_data)
            found = _search_simulated(result, evaluator, pack_simulated(simulated.data), chosen, trials, key_search)
            kept = found.state.kept.get(size)
            estimate = None if kept is None else kept.state
            bracket = _bracket_truth(evaluator, simulated, estimate, trials, key_bracket)
            rows.append(_audit_row(found, size, bracket))
            bar.update()
    return Audit(tuple(rows), evaluator.size_names, seed, result.why_unfinished)


def _search_simulated(
    result: Findings,
    evaluator: ModelEvaluator,
    data: Dataset,
    sizes: Sequence[Size],
    trials: int,
    key: Key[Array, ""],
) -> Findings:
    """Search simulated data with the effort of the original search, and return the findings.

    Every size in `sizes` gets the same number of fits and the same prior probability. Size 1 is always fitted first,
    because fits of larger sizes may start from it.

    result: the search that is audited; its settings are reused.
    evaluator: the evaluator of that search.
    data: the simulated data.
    sizes: the sizes to fit.
    trials: the number of trials (fits with their annealings) that each size gets.
    key: the random key; it decides the seed of the new search.
    """
    seed = int(generator(key).integers(2**31))
    other = ModelEvaluator(evaluator.base_model, data, evidence="marginal", seed=seed, chunks=evaluator.chunks)
    first = evaluator.smallest_size  # where every search begins: fits of larger sizes may grow from it
    shape = tuple(max(numbers) for numbers in zip(*sizes, strict=True))
    flat = np.zeros(shape)
    flat[tuple(np.array(sizes).T - 1)] = 1 / len(sizes)
    prior = without_smaller(Table(flat), first)
    settings = replace(result.settings, per_token=False, max_size=None, seed=seed, keep=len(sizes) + 1)
    rules, state = SearchRules(other, prior, settings), SearchState()
    search = rules.witness_search(state)
    for size in dict.fromkeys((first, *sizes)):
        task = Task(size, 0, trials if size in sizes else 1, warm=not other.shrinks)
        state, search = rules.step(state, search, task)
    return replace(
        result, evaluator=other, prior=prior, settings=settings, state=state, training=None, scrutiny=NOTHING_ASKED
    )


def _bracket_truth(
    evaluator: ModelEvaluator, simulated: Simulated, estimate: Estimate | None, trials: int, key: Key[Array, ""]
) -> Bracket:
    """Return stochastic bounds on the log evidence of simulated data, by annealing from their true latent variables.

    The paths have twice as many temperatures as the longest trial of the search.

    evaluator: the evaluator of the audited search, with its model.
    simulated: the data, with the latent variables that they were drawn with.
    estimate: the fit of the data at their true size, from which paths may begin; None if there is none.
    trials: the number of trials of each size in the search.
    key: the random key of the paths.
    """
    chain = evidence_chain(evaluator.model, simulated.data, simulated.size, estimate)
    longest = effort(chain, trials - 1)
    work = longest._replace(steps=2 * longest.steps)
    ends = anneal_simulated(chain, key, simulated, work)
    forward, backward = tuple(ends.forward.tolist()), tuple(ends.backward.tolist())
    n_particles, share = work.islands * work.particles, chain_kit(chain).annealing.hysteresis_share
    return Bracket(forward, backward, work.steps, n_particles, ends.anchor_error, share)


def _audit_row(found: Findings, size: Size, bracket: Bracket) -> AuditRow:
    """Return one row of the audit: the estimated log evidence of `size` beside the bounds on the true one, in nats.

    found: the search of the data that were simulated at `size`.
    bracket: the bounds that annealing from the true latent variables gave; the estimate is NaN if its fit failed.
    """
    estimate, error, together = float("nan"), float("nan"), ()
    if size in found.standard_errors:
        visit = next(visit for visit in found.visits if visit.size == size)
        estimate, error = visit.estimate, found.standard_errors[size]
    if any(found.prior.log_pmf(tried) > -np.inf for tried in found.standard_errors):  # not all of them failed
        together = found.estimated.indistinguishable
    return AuditRow(size, estimate, error, bracket.lower, bracket.upper, bracket.standard_error, together)


def annealed_search(result: Findings, method: str) -> tuple[ModelEvaluator, Data]:
    """Return the evaluator and the training data of a search over a model whose evidence was annealed.

    method: the method of the result that needs them, such as "audit", for the error.

    Raises ValueError, with the reason, if the search is over a plain function or its evidence is not annealed.
    """
    evaluator, training = search_of_model(result)
    if not evaluator.anneals:
        by_chains = f"by {name_of_chains(result)}, the default for this model"
        how = by_chains if isinstance(evaluator, AllocationEvaluator) else f"with evidence={result.settings.evidence!r}"
        raise ValueError(
            f"got a search {how}, expected annealed evidence: `{method}` needs an estimate of the log evidence of "
            'every size. Search again with evidence="annealed"'
        )
    return evaluator, training


def search_of_model(result: Findings) -> tuple[ModelEvaluator, Data]:
    """Return the evaluator and the training data of a search over a model, checked to be there.

    Raises ValueError, with the reason, if the search is over a plain function.
    """
    evaluator, training = result.evaluator, result.training
    if not isinstance(evaluator, ModelEvaluator) or training is None:
        raise ValueError(
            "got a search without a model or without data, over a plain function say: it has no components, and "
            "nothing that data could be drawn from. Search a model of lvsearch.models"
        )
    return evaluator, training


def _default_sizes(result: Findings) -> tuple[Size, ...]:
    """Return up to three sizes to audit: those with the largest posterior probability, in increasing order."""
    found = result.estimated
    possible = [row for row in np.argsort(-found.probability, kind="stable") if found.probability[row] > 0]
    return tuple(sorted(found.sizes[row] for row in possible[:MOST_SIZES]))


def hyperparameters(model: Model) -> dict[str, float]:
    """Return the positive hyper-parameters of a model as {name: value}, such as {"components.rate": 0.5}.

    A name is the path of fields to the number. Hyper-parameters with one value per column are in units of the data;
    they are left out.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    named = {path_name(path): leaf for path, leaf in leaves}
    return {name: float(leaf) for name, leaf in named.items() if np.ndim(leaf) == 0 and leaf > 0}


def with_hyperparameter(model: Model, name: str, value: float | int) -> Model:
    """Return a copy of the model with the hyper-parameter `name`, such as "components.rate", set to `value`."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.asarray(value, np.asarray(leaf).dtype) if path_name(path) == name else leaf, model
    )


def vary(result: Findings, names: Sequence[str] | str | None, factor: float | int, *, progress: bool) -> Sensitivity:
    """Repeat a search with each hyper-parameter smaller and larger, and return the answers as a `Sensitivity`.

    `SearchResult.sensitivity` calls this function.

    result: the original search, with annealed evidence.
    names: the hyper-parameters to change, such as "concentration"; None for all positive numbers in the model's priors.
    factor: the number, above 1, by which each hyper-parameter is divided and multiplied.
    progress: show a progress bar with a step for each search.

    Raises ValueError for evidence that is not annealed, searches over a plain function, a factor of at most 1, and
    unknown names.
    """
    evaluator, _ = annealed_search(result, "sensitivity")
    result.estimates()  # raises if the search has no answer whose sensitivity could be asked
    factor = real_number("factor", factor, above=1)  # hyper-parameters are both divided and multiplied by it
    names = [names] if isinstance(names, str) else names
    known = hyperparameters(evaluator.base_model)
    for name in names or ():
        if name not in known:
            raise ValueError(f"got the hyper-parameter {name!r}, expected one of {', '.join(map(repr, known))}")
    chosen = known if names is None else {name: known[name] for name in names}
    if not chosen:
        raise ValueError(f"got {evaluator.base_model.describe()}, in whose priors there is no number to change")
    changes = [(name, value, f) for name, value in chosen.items() for f in (1 / factor, factor)]
    prepare_programs()
    variants = [_variant(result, "", 1.0, None)]
    with progress_bar(len(changes), "sensitivity", "search", wanted=progress) as bar:
        for name, value, f in changes:
            model = with_hyperparameter(evaluator.base_model, name, value * f)
            variants.append(_variant(_search_with_model(result, evaluator, model), name, f, value * f))
            bar.update()
    return Sensitivity(tuple(variants), evaluator.size_names, result.why_unfinished)


def _search_with_model(result: Findings, evaluator: ModelEvaluator, model: Model) -> Findings:
    """Search again with another model, the same data and the same random keys, and return the findings.

    Equal keys make the random errors of annealing nearly the same, so that they cancel in differences.

    result: the original search, with its prior and settings.
    evaluator: its evaluator, with the data.
    model: the model with a changed hyper-parameter.

    Raises KeyboardInterrupt if the search did not finish.
    """
    seed, scale = result.settings.seed, evaluator.scale
    other = ModelEvaluator(model, evaluator.data, evidence="marginal", seed=seed, scale=scale, chunks=evaluator.chunks)
    state = run(other, result.prior, result.settings, SearchState(), progress=False)
    if not state.is_finished:
        raise KeyboardInterrupt
    return replace(result, evaluator=other, state=state, scrutiny=NOTHING_ASKED)


def _variant(found: Findings, name: str, factor: float, value: float | None) -> Variant:
    """Return the answer of one search as a row of `Sensitivity`.

    found: the findings of the search.
    name: the hyper-parameter that was changed; empty for the original search.
    factor: the number that it was multiplied by.
    value: its new value; None for the original search.
    """
    if not has_answer(found):
        return Variant(name, factor, value, (), (), (), ())
    sizes, *numbers = found.estimates()
    return Variant(name, factor, value, tuple(sizes), *(tuple(one.tolist()) for one in numbers))


# ── more data ────────────────────────────────────────────────────────────────────────────────────────────────────


def search_with_more(
    result: Searched,
    new: Any,
    *,
    prior: SizePrior | None,
    max_size: Size | int | None,
    seed: int | None,
    seconds: float | int | None,
    progress: bool,
) -> Searched:
    """Search the data of a result joined with new data, from the fits that the result kept, and return the new result.

    `SearchResult.update` calls this function, and documents the order of sizes and where fits begin.

    result: the search of the data so far.
    new: further units, as `Data.joined` takes them.
    prior, max_size, seed: as for `lv.search`; None for those of the old search.
    seconds: the time after which the search stops; None for no limit. progress: show a progress bar.

    Raises ValueError for a search over a plain function, for data that cannot be joined, and for bad arguments.
    """
    evaluator, training = search_of_model(result)
    old, best, joined = result.settings, result.best_size, training.joined(new)
    limit, dimension = old.max_size, result.prior.dimension
    if max_size is not None:
        limit = per_variable(max_size, dimension)
    if limit is None and seconds is None and evaluator.nested:
        raise ValueError(
            "plug-in evidence grows with size almost without end: say when to stop with max_size= or seconds="
        )
    settings = replace(old, max_size=limit, seed=old.seed if seed is None else checked_seed(seed))
    prior = result.prior if prior is None else checked_prior(old.evidence, prior, dimension)
    budget = Budget(None if seconds is None else real_number("seconds", seconds, least=0))
    added = joined.part(np.arange(len(training), len(joined)), "the new ones")
    held_out = None if result.held_out is None else _on_longer_axes(result.held_out, added)
    if held_out is not None and isinstance(evaluator, SelfGuided) and len(added) > 1:
        # sizes are compared by held-out units: of old ones alone no size would gain by what is new
        rest, more = added.split(len(held_out) / (len(held_out) + len(training)), settings.seed)
        joined = joined.part(np.arange(len(training)), "the old ones").joined(rest)
        held_out = held_out.joined(more)
    model = evaluator.base_model.on_longer_axes(joined.dataset().extents)
    fresh = model_evaluator(model, joined, held_out, settings)
    known = _known_starts(result, joined)
    prepare_programs()
    began, compiled = time.monotonic(), compiles()
    chooses = isinstance(fresh, SelfGuided | ComparesAllSizes)
    first = () if chooses else _sizes_near(model.smallest_size, best, prior, limit)

    def make(state: SearchState, task: Task, calls: Sequence[Call], tell: Callable[[str], None]) -> list[Fit]:
        return _fits_from_known(fresh, known, best, joined, calls)

    with remember_interrupts():
        state = run(fresh, prior, settings, budget=budget, progress=progress, make=make, first=first)
    return replace(
        result,
        evaluator=fresh,
        prior=prior,
        settings=settings,
        state=state,
        training=joined,
        seconds=time.monotonic() - began,
        compiles=compiles_since(compiled),
        scrutiny=NOTHING_ASKED,
        held_out=held_out,
    )


def _on_longer_axes(held_out: Data, added: Data) -> Data:
    """Return held-out units on the axes of data that were joined with new ones: documents over their vocabulary.

    added: the new units on the axes of all data. Their words after the old ones come in the same order here.
    """
    return held_out.joined(added).part(np.arange(len(held_out)), f"held out, before {len(added):,} more came")


def _known_starts(result: Findings, joined: Data) -> dict[Size, Fit]:
    """Return the fits that a search kept, as starts of fits of its data joined with new ones, {size: fit}.

    Fits of a smaller size that stand in for one, fits that failed, and kinds of models whose fits cannot begin at a fit
    of other data are left out.
    """
    known, training = {}, result.training
    assert training is not None  # checked by `search_of_model`
    for size, fit in result.state.kept.items():
        if fit.state is None or fit.info.failure is not None or fit.state.size != size:
            continue
        start = start_on(as_fitted_model(fit, training), joined)
        if start is not None:
            known[size] = replace(fit, state=start)
    return known


def _sizes_near(smallest: Size, best: Size, prior: SizePrior, limit: Size | None) -> tuple[Size, ...]:
    """Return the sizes to try first: the smallest, the best of the old search, and its neighbours in each variable.

    Sizes above `limit` (None for no limit), and neighbours to which the prior gives no probability, are left out.
    """
    steps = [(axis, by) for axis in range(len(best)) for by in (1, -1)]
    beside = [tuple(n + by * (place == axis) for place, n in enumerate(best)) for axis, by in steps]
    likely = [size for size in beside if all(map(int.__ge__, size, smallest)) and prior.log_pmf(size) > -np.inf]
    allowed = (size for size in (best, *likely) if limit is None or all(map(int.__le__, size, limit)))
    return tuple(dict.fromkeys((smallest, *allowed)))


def _fits_from_known(
    evaluator: ModelEvaluator, known: Mapping[Size, Fit], best: Size, joined: Data, calls: Sequence[Call]
) -> list[Fit]:
    """Return the fits that a search calls for, the first one of each size begun at a fit of an earlier search.

    Components of all fits have the numbers of the components of the earlier best fit that they are most similar to.

    evaluator: the evaluator of all data. known: the fits of the earlier search, {size: fit}, on the axes of all data.
    best: its best size. joined: all data. calls: the arguments of each fit.
    """
    found = [_fit_from_known(evaluator, known, best, *call) for call in calls]
    if best not in known or len(best) > 1:
        return found
    pattern = as_fitted_model(known[best], joined)
    failed = [fit.state is None or fit.info.failure is not None for fit in found]
    return [
        fit if bad else replace(fit, state=numbered_like(as_fitted_model(fit, joined), pattern))
        for fit, bad in zip(found, failed, strict=True)
    ]


def _fit_from_known(
    evaluator: ModelEvaluator, known: Mapping[Size, Fit], best: Size, size: Size, start: Fit | None, trial: int
) -> Fit:
    """Return one fit, which may begin at a fit of an earlier search.

    The first fit of the earlier best size begins at the fit of this size. The first fit of another size is the best, by
    the lower bound on the evidence, of these: one that begins at the earlier fit of this size, if it was kept; one
    grown from the earlier best fit, if the size is one step larger; and one that begins as in any search. Larger sizes
    are not grown from that fit, since most of their components would be empty and nearly alike, and `log_symmetry`
    would count them as different.

    Where sizes are compared by gains, all fits but that of the best size are made as in any search, since the scatter
    of their gains shows how much fits differ. A search by prediction makes all fits so, since each leaves out a part of
    the data.

    size, start, trial: the arguments of `evaluator.evaluate` in any search.
    """
    if trial or isinstance(evaluator, SelfGuided) or (is_by_gains(evaluator) and size != best):
        return evaluator.evaluate(size, start, trial)
    if size == best and size in known:
        return evaluator.evaluate(size, known[size], trial)
    is_one_step_above = all(map(int.__le__, best, size)) and sum(size) == sum(best) + 1
    earlier = [known[each] for each in (size, best) if each in known and (each == size or is_one_step_above)]
    if not earlier:
        return evaluator.evaluate(size, start, trial)
    fitting = evaluator.without_annealing()
    fits = [fitting.evaluate(size, each, trial) for each in (*earlier, start)]
    better = max(fits, key=lambda fit: fit.estimate)
    found = evaluator.evaluate(size, better, trial) if evaluator.anneals and better.state is not None else better
    seconds = sum(fit.info.seconds for fit in (*fits, *(() if found is better else (found,))))
    return replace(found, info=replace(found.info, start=better.info.start, seconds=seconds))
