"""The main functions for users: `lv.search`, `lv.fit`, `lv.load` and `lv.resume`."""

import sys
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, cast

from jax.sharding import Mesh

from lvsearch.bridges.from_function import FunctionEvaluator
from lvsearch.bridges.guards import GuardedEvaluator, check_own
from lvsearch.bridges.numpyro_models import NumpyroModel
from lvsearch.data.base import Data
from lvsearch.data.kinds import data_for, require_model
from lvsearch.files.storage import known_folder, new_folder, refuse_existing
from lvsearch.fitted.kinds import as_fitted_model
from lvsearch.fitted.model import FittedModel
from lvsearch.inference import several_processes
from lvsearch.inference.allocation_chains import has_allocation_chain
from lvsearch.inference.compiles import compiles, compiles_since, prepare_programs
from lvsearch.interrupts import postpone_interrupts, remember_interrupts
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import as_path, check_flags, checked_seed, one_of, shortened_repr, whole_number
from lvsearch.recommending.evaluator import PARTS, PREDICTIVE, checked_prior, model_evaluator
from lvsearch.reports.page import write_page
from lvsearch.results.card import has_answer
from lvsearch.results.checkpoint import encode_search, save_search
from lvsearch.results.fewer_units import check_robust
from lvsearch.results.heldout import comparable, require_comparable
from lvsearch.results.result import SearchResult
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED
from lvsearch.searching.allocation_evaluator import PARTITIONS
from lvsearch.searching.controller import Budget, SearchSettings, SearchState, run
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.fit import Evaluator, smallest_size_of
from lvsearch.sizing.sizes import Size, SizePrior, as_size, without_smaller
from lvsearch.sizing.witness import per_variable
from lvsearch.workers.remote_fits import Executor, Workers, check_executor, own_threads

REPORT = "report"
"""The name of the report's folder inside the folder of the search."""
FITTED = ("marginal", "bound", "plug-in")
ANNEALED = "annealed"
EVIDENCE = (*FITTED, PREDICTIVE, PARTITIONS, ANNEALED)
STARTS = 3
"""The default number of starts of a search (fits or annealings of one size).

For plug-in evidence it was measured on three small corpora of three clearly separate kinds of documents, with 20 seeds
each. The first fit of size 3, grown from that of size 2, kept two kinds in one topic in 3 of 20 runs. The best of two
fits never did (`plug_in_starts.py`).
"""
CHECKED_SIZE, USUAL_SIZE = 3, 64
"""The size at which a user's own model is checked, and the size for which memory is planned if there is no largest
size.
"""
LARGEST_SIZE = 2**31 - 1


def search(
    model: Model | NumpyroModel | Evaluator,
    data: Any = None,
    *,
    prior: SizePrior | None = None,
    evidence: str = "marginal",
    max_size: int | Size | None = None,
    seconds: float | int | None = None,
    width: float | int | None = None,
    seed: int = 0,
    starts: int | None = None,
    grow: bool = True,
    exhaustive: bool = False,
    keep: int = 8,
    per_token: bool = False,
    held_out: Any = None,
    robustness: bool = False,
    out: str | Path | None = None,
    report: bool = True,
    progress: bool = True,
    executor: Executor | None = None,
    mesh: Mesh | None = None,
) -> SearchResult:
    """Search for the number of topics, clusters or other components, and return a posterior over it.

    ```python
    result = lv.search(lv.models.LDA(), corpus, seed=0)
    result.best_size  # the most probable number of topics
    result.posterior()  # a table of all sizes, with standard errors
    ```

    Without `max_size`, `seconds` or `width`, a marginal search stops when the sizes that may be the best are known well
    enough. Ctrl-C stops any search and keeps all that was done.

    Args:
        model: a model of `lv.models`, your own `lv.models.Model`, `lv.from_numpyro(f)`, `lv.from_function(f)`, or any
            `Evaluator`. Your own model is checked by `lv.models.check` first. A process (`lv.models.DPMixture`, `HDP`,
            `HDPMixture`, `HLDA`) has no size: use `lv.occupied`.
        data: for models of documents a `Corpus`, texts, or counts (documents, words). For models of rows `Points`, or a
            matrix or data frame of numbers without NaN. For images with captions a `PairedCorpus` or a pair (regions,
            captions). For models of groups `Groups`, or a list of matrices. A NumPyro model gets whatever it takes.
            None for a function.
        prior: the prior over sizes, from `lv.sizes`. By default a weak one, in which each further component is 5 % less
            probable (`sizes.weak`).
        evidence: how sizes are compared: "marginal", "partitions", "annealed", "predictive", "bound" or "plug-in", as
            explained below. A function has its own evidence, and is searched as its `nested` says.
        max_size: the largest size to try.
        seconds: the time after which this call stops.
        width: the width of the proved bounds, in nats, at which the search stops.
        seed: seed of all random numbers; the same seed gives the same result.
        starts: the most work for each size. Where evidence is annealed, it is the largest number of annealings of a
            size, each three times as long as the last; by default 3, and more where data are few and errors of the
            evidence would decide the answer. Where gains between sizes are measured (LDA on many words), it is the
            largest number of measurements of one gain. With "bound" it is the number of fits of each size near the
            best, and with "plug-in" that of fits of every size, of which the best counts; 3 by default. With
            "predictive" it is the number of parts of the data, of which one at a time is left out; 10 by default.
            Chains, the default of mixtures of rows, block models and `IBP`, ignore it: they go on until they agree.
        grow: begin the first fit of a size from the fit of a smaller one.
        exhaustive: evaluate every size up to `max_size`.
        keep: the number of fitted models to keep.
        per_token: weigh the evidence per token (per observed cell of a matrix) against the prior, to reproduce
            published figures. The result is not a probability of the data.
        held_out: data on the axes of `data` that no fit sees. They are kept as `result.held_out`, to compare sizes on.
            "predictive" scores sizes on them, and then leaves out nothing else.
        robustness: also compute `SearchResult.robustness` when the search has finished.
        out: a new folder that is written after every step. `lv.resume(out)` continues from it.
        report: with `out`, write the page `report/index.html` at the end.
        progress: show a progress bar.
        executor: makes many fits at once: `lv.WorkerPool`, or an executor as in `concurrent.futures`. None: searches by
            prediction make up to 4 fits at once, in threads, one for every two processors, and searches of LDA on many
            words one for every four; other searches make one after the other. The answer is the same.
        mesh: devices that share the units (observations) of each fit. They may belong to several processes that
            `lv.distributed.initialize` joined. Then each process makes this call; process 0 writes, and its clock and
            its Ctrl-C count.

    The kinds of evidence:

    - "marginal" is the evidence p(data | size), with parameters integrated out. It answers "how many". Mixtures of rows
      (`FiniteMixture`, `TiedMixture`, `IndependentNormalMixture`) get it for all sizes at once, from chains over
      partitions of the rows; `LatentBlockModel` from chains over partitions of the rows and of the columns, up to 64
      clusters of each; and `IBP` from chains over the features of the rows. Other models get it size by size, by
      annealing from both sides.
    - "partitions" and "annealed" ask for one of these two ways; the second checks the first. With `exhaustive`,
      `per_token`, `width` or `mesh`, "marginal" is annealed.
    - "predictive" fits a grid of sizes without a part of the data and scores them on it. It takes two to three
      minutes on 100,000 words. `result.recommended` is the smallest size that predicts as well as any.
    - "bound" uses a mean-field lower bound plus log K! for the labellings. It is quick, but no answer: its unknown
      distance from the evidence grows with the size.
    - "plug-in" is p(data | size, θ_size) at estimated parameters (Chiang & Poole), which grows with the size. Its
      bounds need no assumption, but hold for the parameters that were fitted only. The best parameters of a size may be
      better by any number of nats.

    Returns:
        A `SearchResult`.

    Raises:
        ValueError: bad arguments or data.
        FileExistsError: `out` holds something already.
        OSError: another process uses `out`.
    """
    one_of("evidence", evidence, EVIDENCE)
    _check_executor_and_mesh(executor, mesh)
    budget, seed, keep = _budget(seconds, width), checked_seed(seed), whole_number("keep", keep, least=1)
    usual = PARTS if evidence == PREDICTIVE else STARTS
    most_trials = usual if starts is None else whole_number("starts", starts, least=1)
    check_flags(grow=grow, exhaustive=exhaustive, per_token=per_token, robustness=robustness, report=report)
    out = None if out is None else as_path("out", out)
    if out is not None:
        several_processes.check_in_first_process(mesh, partial(refuse_existing, out))  # before slow reading
    by_partitions = has_allocation_chain(model) and not (per_token or exhaustive) and mesh is None and width is None
    if evidence == "marginal" and by_partitions:
        evidence = PARTITIONS
    if evidence == PARTITIONS and not by_partitions:
        raise ValueError(
            f"got evidence={evidence!r} with {shortened_repr(model)}, per_token={per_token}, exhaustive={exhaustive}, "
            f"width={width}, mesh={shortened_repr(mesh)}; expected a mixture of rows whose parameters have a prior, "
            "LatentBlockModel or IBP, and none of these: such chains compare all sizes of the data as they are. "
            'Take evidence="annealed"'
        )
    evidence = "marginal" if evidence == ANNEALED else evidence
    settings = SearchSettings(evidence, per_token, None, seed, most_trials, grow, exhaustive, keep)
    evaluator, training, kept_back = _evaluator(model, data, held_out, settings, mesh)
    prior = without_smaller(checked_prior(evidence, prior, len(evaluator.size_names)), smallest_size_of(evaluator))
    settings = replace(settings, max_size=_limit(evaluator, prior, budget, max_size, exhaustive))
    if isinstance(evaluator, ModelEvaluator):
        largest = (CHECKED_SIZE,) * prior.dimension if settings.max_size is None else settings.max_size
        check_own(evaluator.model, evaluator.data, tuple(min(CHECKED_SIZE, number) for number in largest))
        if starts is None:
            settings = replace(settings, starts=evaluator.usual_trials(settings.starts))
    result = SearchResult(evaluator, prior, settings, SearchState(), training, 0.0, held_out=kept_back)
    if robustness:
        check_robust(result)
    if out is None:
        return _run(result, budget, out, robustness, progress, executor, mesh)
    encode_search(result)  # raises for parts that cannot be stored, before the folder is made
    with ExitStack() as holding:
        several_processes.check_in_first_process(mesh, lambda: holding.enter_context(new_folder(out)))
        if several_processes.is_writing_process(mesh):
            save_search(result, out)  # from here on there is something to resume
        ended = _run(result, budget, out, robustness, progress, executor, mesh)
        return _finish_report(ended, out, report, progress, mesh)


def _limit(evaluator: Evaluator, prior: SizePrior, budget: Budget, max_size: Any, exhaustive: bool) -> Size | None:
    """Return the largest size to try as a tuple, or None if there is none.

    evaluator: the evaluator that makes the fits of a search. prior: the prior over sizes.
    budget: the limits of time and width. max_size, exhaustive: arguments of `search`.

    Raises ValueError if the search would not know where to end.
    """
    if len(evaluator.size_names) != prior.dimension:
        raise ValueError(
            f"got a prior over {prior.dimension} size variable(s), expected {len(evaluator.size_names)} "
            f"({', '.join(evaluator.size_names)}): combine priors with lv.sizes.Product, or name the variables of a "
            "function with lv.from_function(…, size_names=…)"
        )
    if evaluator.nested and max_size is None and budget == Budget():
        raise ValueError(
            "plug-in evidence grows with size almost without end: say when to stop with max_size=, seconds= or width="
        )
    if exhaustive and max_size is None:
        raise ValueError("got exhaustive=True without max_size: say up to which size every one is to be visited")
    if max_size is None:
        return None
    largest = _size(per_variable(max_size, prior.dimension), prior.dimension, "max_size")
    return _require_allowed(largest, smallest_size_of(evaluator), "max_size")


def _require_allowed(size: Size, smallest: Size, name: str = "size") -> Size:
    """Return the size. Raises ValueError if it is below the smallest one of the model in some variable.

    name: the name of the argument, for the error.
    """
    if any(map(int.__lt__, size, smallest)):
        raise ValueError(f"got {name}={size[0]}, expected at least {smallest[0]}: so many are given, by seeds")
    return size


def _size(size: Any, dimension: int, name: str = "size") -> Size:
    """Return a size as a tuple with one number for each of `dimension` size variables.

    name: the name of the argument, for the error.

    Raises ValueError for other sizes, and above 2³¹ − 1, since arrays count their entries in 32 bits.
    """
    if max(sizes := as_size(size, dimension, name)) > LARGEST_SIZE:
        raise ValueError(f"got size {shortened_repr(size)}, expected at most {LARGEST_SIZE:,} of each")
    return sizes


def resume(
    folder: str | Path,
    *,
    seconds: float | int | None = None,
    width: float | int | None = None,
    robustness: bool = False,
    report: bool = True,
    progress: bool = True,
    executor: Executor | None = None,
    mesh: Mesh | None = None,
) -> SearchResult:
    """Continue the search saved in `folder`, to the same result as if it had never stopped.

    folder: the `out` of an earlier search.
    seconds: the time after which this call stops.
    width: the width of the proved bounds, in nats, at which the search stops.
    robustness, report, progress, executor, mesh: as for `search`.

    Returns the `SearchResult`.
    Raises FileNotFoundError for a missing folder, ValueError for one that is damaged or was not written by lvsearch,
    and OSError if another process writes to it. `robustness` raises ValueError for a search that it does not fit.
    """
    budget = _budget(seconds, width)
    check_flags(robustness=robustness, report=report)
    _check_executor_and_mesh(executor, mesh)
    with ExitStack() as holding:
        folder = as_path("folder", folder)
        several_processes.check_in_first_process(mesh, lambda: holding.enter_context(known_folder(folder)))
        result = SearchResult.load(folder)
        if robustness:
            check_robust(result)
        if mesh is not None and isinstance(result.evaluator, ModelEvaluator):
            result = replace(result, evaluator=result.evaluator.split_over(mesh))
        ended = _run(result, budget, folder, robustness, progress, executor, mesh)
        return _finish_report(ended, folder, report, progress, mesh)


def load(folder: str | Path) -> SearchResult:
    """Return the search result saved in `folder`, without fitting anything.

    Raises FileNotFoundError for a missing folder, and ValueError for one that is damaged or was not written by
    lvsearch.
    """
    return SearchResult.load(folder)


def fit(
    model: Model,
    data: Any,
    *,
    size: int | Size,
    evidence: str = "marginal",
    seed: int = 0,
    starts: int = 1,
    mesh: Mesh | None = None,
) -> FittedModel:
    """Fit one model at one size, without a search, and return the best of several fits from scratch.

    model: a model of `lv.models`, or your own.
    data: the data, or raw input for it, as `search` takes it.
    size: a number, or a tuple for several size variables.
    evidence: "marginal" or "bound" for the mean-field fit, "plug-in" for estimated parameters.
    seed: seed of the starts; the fits are those that a search with this seed makes from scratch. (A search of LDA on
        more than 20,000 words begins with fits of more topics.)
    starts: the number of fits.
    mesh: devices that share the units (observations), as for `search`.

    Returns a `FittedModel`.
    Raises ValueError for bad arguments and data, and if every fit failed.
    """
    one_of("evidence", evidence, FITTED)
    require_model(model)
    size, seed = _require_allowed(_size(size, len(model.size_names)), model.smallest_size), checked_seed(seed)
    starts = whole_number("starts", starts, least=1)
    _check_executor_and_mesh(None, mesh)
    if model.only_size not in (None, size):
        raise ValueError(f"got size={size}, expected {model.only_size}, the only size that {type(model).__name__} has")
    training = data_for(model, data)
    packed = training.dataset()
    prepare_programs()
    check_own(model, packed, size)
    fitting = "bound" if evidence == "marginal" else evidence  # a fit of one size needs no comparison with others
    evaluator = ModelEvaluator(model, packed, evidence=fitting, seed=seed, mesh=mesh)
    best = max((evaluator.evaluate(size, None, trial) for trial in range(starts)), key=lambda fit: fit.estimate)
    return as_fitted_model(best, training)


def _check_executor_and_mesh(executor: Any, mesh: Any) -> None:
    """Raise ValueError for an executor or a mesh of the wrong type, or for both together."""
    check_executor(executor)
    if not isinstance(mesh, Mesh | None):
        raise ValueError(
            f"got mesh={shortened_repr(mesh)}, expected a jax.sharding.Mesh, such as jax.make_mesh gives, or None"
        )
    if executor is not None and mesh is not None:
        raise ValueError("got an executor and a mesh, expected one of them: workers make fits, a mesh shares each")


def _budget(seconds: float | int | None, width: float | int | None) -> Budget:
    """Return the limits of a search: seconds of time, and width of the proved bounds in nats; None for no limit.

    Raises ValueError for negative numbers and NaN.
    """
    for name, value in (("seconds", seconds), ("width", width)):
        if value is not None and not (isinstance(value, Real) and value >= 0):  # also for NaN
            raise ValueError(
                f"got {name}={shortened_repr(value)}, expected a number of at least 0, or None for no limit"
            )
    return Budget(None if seconds is None else float(seconds), None if width is None else float(width))


def _evaluator(
    model: Model | NumpyroModel | Evaluator,
    data: Any,
    held_out: Any,
    settings: SearchSettings,
    mesh: Mesh | None,
) -> tuple[Evaluator, Data | None, Data | None]:
    """Return (evaluator that makes the fits, training data, held-out data) of a search; data are None for a function.

    model, data, held_out, mesh: arguments of `search`. settings: the settings of the search.

    Raises ValueError for models that have no size to search.
    """
    if isinstance(model, Model):
        if model.process:
            raise ValueError(
                f"got {type(model).__name__}, expected a model with a size: its truncations all bound one and the same "
                "evidence, so that none is more probable than another. lv.occupied(model, data) says how many of its "
                "parts the data occupy; of a tree of topics, lv.fit_tree(model, data) does too"
            )
        if model.only_size is not None:
            raise ValueError(
                f"got {type(model).__name__}, whose only size is {model.only_size}: there is nothing to search. "
                f"lv.fit(model, data, size={model.only_size[0]}) fits it; lv.models.MixtureOfUnigrams and LDA are the "
                "same at size 1 and have larger ones"
            )
        training = data_for(model, data)
        kept_back = None if held_out is None else require_comparable(training.like_this(held_out))
        evaluator = model_evaluator(model, training, kept_back, settings, mesh=mesh)
        several_processes.check_in_first_process(mesh, evaluator.check_room)
        return evaluator, training, kept_back
    if held_out is not None:
        raise ValueError("a search over a function has no data: nothing can be held out of it")
    return _foreign_evaluator(model, data, settings, mesh), None, None


def _foreign_evaluator(
    model: NumpyroModel | Evaluator, data: Any, settings: SearchSettings, mesh: Mesh | None
) -> Evaluator:
    """Return the evaluator of a NumPyro model, of a function, or of a user's own evaluator.

    model, data, mesh: arguments of `search`. settings: the settings of the search.

    Raises ValueError for options that such an evaluator does not have.
    """
    if mesh is not None:
        raise ValueError(f"got a mesh for {model!r}, expected a model of lv.models or one like it: units are split")
    if isinstance(model, NumpyroModel):
        if settings.evidence != "marginal" or settings.per_token:
            raise ValueError(
                f"got evidence={settings.evidence!r}, per_token={settings.per_token} for a NumPyro model, expected "
                'evidence="marginal": its evidence is annealed, of all the data'
            )
        return cast(Evaluator, model.evaluator(data, settings.seed))  # frozen: nobody writes to its attributes
    if not isinstance(model, Evaluator):
        raise ValueError(
            f"got {model!r}, expected a model such as lv.models.LDA() (with its parentheses), lv.from_numpyro(f) or "
            "lv.from_function(f)"
        )
    if settings.evidence == PREDICTIVE:
        raise ValueError('a search over a function has its own evidence: got evidence="predictive"')
    if data is not None or settings.per_token:
        raise ValueError("a search over a function takes no data and no per_token: the function has them already")
    own = model.with_seed(settings.seed) if isinstance(model, FunctionEvaluator) else GuardedEvaluator.around(model)
    return cast(Evaluator, own)


def _run(
    result: SearchResult,
    budget: Budget,
    out: str | Path | None,
    robustness: bool,
    progress: bool,
    executor: Executor | None,
    mesh: Mesh | None,
) -> SearchResult:
    """Run or continue a search, save it after every step, and return the result, with its robustness if asked to.

    result: the search so far. budget: the limits of time and width. out: the folder to save to, or None.
    robustness, progress, executor, mesh: arguments of `search`.

    The robustness is computed only if the search finished and has an answer.
    """
    prepare_programs()
    began, compiled = time.monotonic(), compiles()
    together = several_processes.spans_processes(mesh)
    out, progress = (out, progress) if several_processes.is_writing_process(mesh) else (None, False)
    if progress and isinstance(result.evaluator, ModelEvaluator):
        print(f"memory: {_memory_in_words(result.evaluator, result.settings)}", file=sys.stderr)

    def result_with_state(state: SearchState) -> SearchResult:
        """Return the result with a new state of the search. Checks of the old result are dropped if the fits
        changed.
        """
        return replace(
            result,
            state=state,
            seconds=result.seconds + time.monotonic() - began,
            compiles=dict(Counter(result.compiles) + Counter(compiles_since(compiled))),
            scrutiny=result.scrutiny if _knows_the_same(state, result.state) else NOTHING_ASKED,  # of these very fits
        )

    def save(state: SearchState) -> None:
        """Write the present state of the search to its folder, if it has one."""
        if out is not None:
            save_search(result_with_state(state), Path(out))

    going_on = partial(
        run, result.evaluator, result.prior, result.settings, result.state, budget=budget, save=save, progress=progress
    )
    with remember_interrupts():
        with own_threads(result.evaluator) if executor is None and mesh is None else nullcontext(executor) as chosen:
            if chosen is None:
                with postpone_interrupts() if together else nullcontext():
                    state = going_on(agreed=several_processes.broadcast_from_first if together else bool)
            else:
                with Workers(result.evaluator, result.prior, result.settings, chosen) as workers:
                    state = going_on(make=workers.make, seconds_so_far=workers.seconds_so_far)
        ended = result_with_state(state)
        if together and isinstance(result.evaluator, ModelEvaluator):
            ended = replace(ended, evaluator=result.evaluator.without_mesh())
        if robustness and state.is_finished and has_answer(ended):
            ended = _add_robustness(ended, progress)
            if out is not None:
                save_search(ended, Path(out))
    return ended


def _knows_the_same(state: SearchState, other: SearchState) -> bool:
    """Return True if two states of a search have the same fits and equally long chains."""
    blocks = [None if each.partitions is None else each.partitions.run.spent for each in (state, other)]
    return state.visits == other.visits and blocks[0] == blocks[1]


def _add_robustness(result: SearchResult, progress: bool) -> SearchResult:
    """Return the result with its robustness, or unchanged, with a line on stderr, if Ctrl-C interrupts the
    computation.
    """
    try:
        return result.with_robustness(result.robustness(progress=progress))
    except KeyboardInterrupt:
        print("lvsearch: interrupted: the search is kept, without what fewer units say", file=sys.stderr)
        return result


def _finish_report(result: SearchResult, folder: Path, wanted: bool, progress: bool, mesh: Mesh | None) -> SearchResult:
    """Write the report of a result if it is wanted and there is an answer, and return the result.

    folder: the folder of the search. wanted: whether to write. progress: print the address of the report.
    mesh: devices of the search. With several processes only the first one writes, and all others wait for it.
    """
    if wanted and has_answer(result) and several_processes.is_writing_process(mesh):
        _write_page(result, folder, progress)
    several_processes.wait_for_all(mesh)  # no process leaves while the first one still writes the page
    return result


def _write_page(result: SearchResult, folder: Path, progress: bool) -> None:
    """Write the report of a search into its folder, with a comparison on held-out data if there are any.

    progress: print the address of the report.
    """
    interrupted = result.state.stopped == "interrupted"  # whoever stops it does not wait for a comparison
    compared = result.held_out is not None and comparable(result.held_out) and not interrupted
    path = write_page(result, folder / REPORT, held_out=result.compare_held_out() if compared else None)
    if progress:
        print(f"report: {path.resolve().as_uri()}", file=sys.stderr)


def _memory_in_words(evaluator: ModelEvaluator, settings: SearchSettings) -> str:
    """Return in words how much memory the largest fit takes. Without a largest size, a fit of size 64 is described."""
    size = settings.max_size or (USUAL_SIZE,) * len(evaluator.size_names)
    names = zip(size, evaluator.size_names, strict=True)
    return evaluator.memory_plan(size).describe(" × ".join(f"{number} {name}" for number, name in names))
