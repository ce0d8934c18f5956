"""`lv.search`, `lv.fit`, `lv.load`, `lv.resume`: what most people call."""

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
from lvsearch.bridges.from_numpyro import NumpyroModel
from lvsearch.bridges.guarded import GuardedEvaluator
from lvsearch.data.base import Data
from lvsearch.data.kinds import data_for, require_model
from lvsearch.files.storage import known_folder, new_folder, refuse_existing
from lvsearch.fitted.kinds import fitted
from lvsearch.fitted.model import FittedModel
from lvsearch.inference import several_processes
from lvsearch.inference.compiles import compiles, compiles_since, prepare_programs
from lvsearch.interrupts import put_off, watched
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import as_path, check_flags, one_of, shown, whole_number
from lvsearch.recommending.evaluator import PARTS, PREDICTIVE, checked_prior, model_evaluator
from lvsearch.reports.page import write_page
from lvsearch.results.card import has_answer
from lvsearch.results.checkpoint import encode_search, save_search
from lvsearch.results.fewer_units import check_robust
from lvsearch.results.heldout import comparable, require_comparable
from lvsearch.results.result import SearchResult
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED
from lvsearch.searching.controller import Budget, SearchSettings, SearchState, run
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.own_models import check_own
from lvsearch.searching.partition_evaluator import PARTITIONS, has_partition_chain
from lvsearch.seeds import checked_seed
from lvsearch.sizing.fit import Evaluator
from lvsearch.sizing.sizes import Size, SizePrior, as_size
from lvsearch.workers.remote_fits import Executor, Workers, check_executor

REPORT = "report"
"""The folder of a search's report, in that of the search."""
FITTED = ("marginal", "bound", "plug-in")
ANNEALED = "annealed"
EVIDENCE = (*FITTED, PREDICTIVE, PARTITIONS, ANNEALED)
STARTS = 3
"""Plug-in, of 20 seeds on each of three small corpora of three obvious kinds of documents: the first fit of size 3,
grown from that of size 2, kept two kinds in one topic in 3 of 20; two fits never both did (`plug_in_starts.py`)."""
CHECKED_SIZE, USUAL_SIZE = 3, 64
"""At which a model of one's own is looked at before a search; for which memory is planned without a largest size."""
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
    """How many? A posterior over the model's sizes, with bounds and honest uncertainty.

    model: a model of `lv.models`, or `lv.from_numpyro(f)`, `lv.from_function(f)`, or any `Evaluator`. data: for models
    of documents a `Corpus`, or counts (documents, words) as a sparse or dense matrix or a data frame; for models of
    rows `Points`, or a matrix or data frame of numbers (NaN is an error: say what is missing with `Points`); for models
    of images with captions a `PairedCorpus`, or a pair (regions, captions); for models of groups of rows `Groups`, or a
    list with a matrix for every group; for a NumPyro model whatever it takes; None for a function.
    model may be of one's own (`lv.models.Model`): it is looked at by `lv.models.check` before its first search or fit.
    A model of a process (`lv.models.DPMixture`, `HDP`, `HDPMixture`, `HLDA`) has no size: ask `lv.occupied`.
    prior: from `lv.sizes`; by default a weak one, by which every further component is 5 % less probable (`sizes.weak`).
    evidence: "marginal" is the evidence p(data | size) itself, parameters integrated out: it answers "how many".
    Mixtures of rows (`FiniteMixture`, `TiedMixture`, `IndependentNormalMixture`) have it of all sizes at once from
    chains over partitions of the rows, other models size by size by annealing from both sides. "partitions" and
    "annealed" ask for one of these ways: the second is the check of the first. With exhaustive=, per_token=, width= or
    a mesh "marginal" is annealed. "predictive" fits a grid of sizes without a part of the data and scores them on it,
    in a minute or two on 100,000 words: `result.recommended` is the smallest size that predicts as well as any. "bound"
    puts a mean-field lower bound plus log K! for the labellings in the evidence's place: quick, and no answer, since
    its distance from the evidence is unknown and grows with the size. "plug-in" is p(data | size, θ_size) at estimated
    parameters (Chiang & Poole), which grows with size. Its bounds need no assumption, but they are proved of these
    fits, not of the best parameters of a size, which a fit may miss by any number of nats. A function has its own: it
    is searched as its `nested` says.

    When it stops: max_size, the largest size to try; seconds, of this call; width, of the proved bounds in nats;
    Ctrl-C, which keeps everything done. Without any, a marginal search stops when the sizes near the mode are settled.

    starts: marginal: annealings of a size at most, each three times as long as the last. bound: fits of each size near
    the mode. plug-in: fits of every size, of which the best counts. Default 3. predictive: parts that the data are cut
    into, each left out in turn until the answer is settled; default 10. grow: begin the first fit of a size from a
    smaller one's. exhaustive: visit every size up to max_size. keep: fitted models to keep. per_token: weigh evidence
    per token (per observed cell of a matrix) against the prior, for reproducing published figures; it is not a
    probability of the data. held_out: data on the axes of `data` that no fit looks at; they stay with the result
    (`result.held_out`), to compare sizes on; "predictive" asks these, and leaves out nothing else. robustness: when the
    search has finished, ask fewer units too (`SearchResult.robustness`). out: a new folder, written after every step,
    from which `lv.resume(out)` goes on. report: with `out`, write the page `report/index.html` there at the end.
    executor: whose workers make fits, many at once: `lv.WorkerPool`, or one as in `concurrent.futures`. mesh: of
    devices that share the units of each fit, of this process, or of all that `lv.distributed.initialize` brought
    together: each calls this, process 0 writes, and its clock and its Ctrl-C count.

    Raises ValueError for bad arguments and data, FileExistsError where `out` holds something, OSError where it is used.
    """
    one_of("evidence", evidence, EVIDENCE)
    _check_elsewhere(executor, mesh)
    budget, seed, keep = _budget(seconds, width), checked_seed(seed), whole_number("keep", keep, least=1)
    usual = PARTS if evidence == PREDICTIVE else STARTS
    starts = usual if starts is None else whole_number("starts", starts, least=1)
    check_flags(grow=grow, exhaustive=exhaustive, per_token=per_token, robustness=robustness, report=report)
    if out is not None:
        several_processes.check_in_first_process(mesh, partial(refuse_existing, Path(out)))  # before slow reading
    by_partitions = has_partition_chain(model) and not (per_token or exhaustive) and mesh is None and width is None
    if evidence == "marginal" and by_partitions:
        evidence = PARTITIONS
    if evidence == PARTITIONS and not by_partitions:
        raise ValueError(
            f"got evidence={evidence!r} with {shown(model)}, per_token={per_token}, exhaustive={exhaustive}, "
            f"width={width}, mesh={shown(mesh)}; expected a mixture of rows whose parameters have a prior, and none of "
            'these: chains over partitions compare all sizes of the data as they are. Take evidence="annealed"'
        )
    evidence = "marginal" if evidence == ANNEALED else evidence
    settings = SearchSettings(evidence, per_token, None, seed, starts, grow, exhaustive, keep)
    evaluator, training, kept_back = _evaluator(model, data, held_out, settings, mesh)
    prior = checked_prior(evidence, prior, len(evaluator.size_names))
    settings = replace(settings, max_size=_limit(evaluator, prior, budget, max_size, exhaustive))
    if isinstance(evaluator, ModelEvaluator):
        largest = (CHECKED_SIZE,) * prior.dimension if settings.max_size is None else settings.max_size
        check_own(evaluator.model, evaluator.data, tuple(min(CHECKED_SIZE, number) for number in largest))
    result = SearchResult(evaluator, prior, settings, SearchState(), training, 0.0, held_out=kept_back)
    if robustness:
        check_robust(result)
    if out is None:
        return _run(result, budget, out, robustness, progress, executor, mesh)
    return _run_in_new_folder(result, budget, Path(out), robustness, report, progress, executor, mesh)


def _limit(
    evaluator: Evaluator, prior: SizePrior, budget: Budget, max_size: int | Size | None, exhaustive: bool
) -> Size | None:
    """The largest size to try, of the prior's dimension; ValueError where the search would not know where to end."""
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
    return _size(max_size if isinstance(max_size, tuple) else (max_size,) * prior.dimension, prior.dimension)


def _size(size: Any, dimension: int) -> Size:
    """`as_size`, of sizes that a fit may have: arrays count their entries in 32 bits."""
    if max(sizes := as_size(size, dimension)) > LARGEST_SIZE:
        raise ValueError(f"got size {shown(size)}, expected at most {LARGEST_SIZE:,} of each")
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
    """Go on with the search saved in `folder`, to the same result as if it had never stopped.

    seconds, width: when to stop early, as in `search`; robustness, report, executor, mesh: as there.

    Raises FileNotFoundError for a missing folder, ValueError for one that is damaged or was not written by lvsearch,
    and for robustness of a search that cannot be asked it, OSError for a folder that another process is writing to.
    """
    budget = _budget(seconds, width)
    check_flags(robustness=robustness, report=report)
    _check_elsewhere(executor, mesh)
    with ExitStack() as holding:
        folder = as_path("folder", folder)
        several_processes.check_in_first_process(mesh, lambda: holding.enter_context(known_folder(folder)))
        result = SearchResult.load(folder)
        if robustness:
            check_robust(result)
        if mesh is not None and isinstance(result.evaluator, ModelEvaluator):
            result = replace(result, evaluator=result.evaluator.on(mesh))
        ended = _run(result, budget, folder, robustness, progress, executor, mesh)
        return _reported(ended, folder, report, progress, mesh)


def load(folder: str | Path) -> SearchResult:
    """The result saved in `folder`; nothing is fitted. Errors as for `resume`."""
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
    """One model at one size, no search: the best of `starts` fits from scratch.

    data, evidence, mesh: as in `search`, whose fits from scratch are the same for the same seed.
    Raises ValueError for bad arguments and data, and where no fit is a number.
    """
    one_of("evidence", evidence, FITTED)
    require_model(model)
    size, seed = _size(size, len(model.size_names)), checked_seed(seed)
    starts = whole_number("starts", starts, least=1)
    _check_elsewhere(None, mesh)
    if model.only_size not in (None, size):
        raise ValueError(f"got size={size}, expected {model.only_size}, the only size that {type(model).__name__} has")
    training = data_for(model, data)
    packed = training.dataset()
    prepare_programs()
    check_own(model, packed, size)
    fitting = "bound" if evidence == "marginal" else evidence  # a fit of one size needs no comparison with others
    evaluator = ModelEvaluator(model, packed, evidence=fitting, seed=seed, mesh=mesh)
    best = max((evaluator.evaluate(size, None, trial) for trial in range(starts)), key=lambda fit: fit.estimate)
    return fitted(best, training)


def _check_elsewhere(executor: Any, mesh: Any) -> None:
    check_executor(executor)
    if not isinstance(mesh, Mesh | None):
        raise ValueError(f"got mesh={shown(mesh)}, expected a jax.sharding.Mesh, such as jax.make_mesh gives, or None")
    if executor is not None and mesh is not None:
        raise ValueError("got an executor and a mesh, expected one of them: workers make fits, a mesh shares each")


def _budget(seconds: float | int | None, width: float | int | None) -> Budget:
    for name, value in (("seconds", seconds), ("width", width)):
        if value is not None and not (isinstance(value, Real) and value >= 0):  # also for NaN
            raise ValueError(f"got {name}={shown(value)}, expected a number of at least 0, or None for no limit")
    return Budget(None if seconds is None else float(seconds), None if width is None else float(width))


def _evaluator(
    model: Model | NumpyroModel | Evaluator,
    data: Any,
    held_out: Any,
    settings: SearchSettings,
    mesh: Mesh | None,
) -> tuple[Evaluator, Data | None, Data | None]:
    """What makes the fits, the data that they are made of, and the data held out."""
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
    return _brought(model, data, settings, mesh), None, None


def _brought(model: NumpyroModel | Evaluator, data: Any, settings: SearchSettings, mesh: Mesh | None) -> Evaluator:
    """What makes the fits of somebody else's model or function."""
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
    """The search gone on with, and fewer units asked where that is wanted and it finished."""
    prepare_programs()
    began, compiled = time.monotonic(), compiles()
    together = several_processes.spans_processes(mesh)
    out, progress = (out, progress) if several_processes.is_writing_process(mesh) else (None, False)
    if progress and isinstance(result.evaluator, ModelEvaluator):
        print(f"memory: {_memory(result.evaluator, result.settings)}", file=sys.stderr)

    def with_state(state: SearchState) -> SearchResult:
        return replace(
            result,
            state=state,
            seconds=result.seconds + time.monotonic() - began,
            compiles=dict(Counter(result.compiles) + Counter(compiles_since(compiled))),
            scrutiny=result.scrutiny if _knows_the_same(state, result.state) else NOTHING_ASKED,  # of these very fits
        )

    def save(state: SearchState) -> None:
        if out is not None:
            save_search(with_state(state), Path(out))

    going_on = partial(
        run, result.evaluator, result.prior, result.settings, result.state, budget=budget, save=save, progress=progress
    )
    with watched():
        if executor is None:
            with put_off() if together else nullcontext():
                state = going_on(agreed=several_processes.broadcast_from_first if together else bool)
        else:
            with Workers(result.evaluator, result.prior, result.settings, executor) as workers:
                state = going_on(make=workers.make)
        ended = with_state(state)
        if together and isinstance(result.evaluator, ModelEvaluator):
            ended = replace(ended, evaluator=result.evaluator.alone())
        if robustness and state.is_finished and has_answer(ended):
            ended = _asked_of_fewer(ended, progress)
            if out is not None:
                save_search(ended, Path(out))
    return ended


def _knows_the_same(state: SearchState, other: SearchState) -> bool:
    """Whether two states of a search have the same fits and equally long chains."""
    blocks = [None if each.partitions is None else each.partitions.run.spent for each in (state, other)]
    return state.visits == other.visits and blocks[0] == blocks[1]


def _run_in_new_folder(
    result: SearchResult,
    budget: Budget,
    out: Path,
    robustness: bool,
    report: bool,
    progress: bool,
    executor: Executor | None,
    mesh: Mesh | None,
) -> SearchResult:
    encode_search(result)  # what cannot be stored is refused before there is a folder
    with ExitStack() as holding:
        several_processes.check_in_first_process(mesh, lambda: holding.enter_context(new_folder(out)))
        if several_processes.is_writing_process(mesh):
            save_search(result, out)  # from here on there is something to resume
        return _reported(_run(result, budget, out, robustness, progress, executor, mesh), out, report, progress, mesh)


def _asked_of_fewer(result: SearchResult, progress: bool) -> SearchResult:
    """With `robustness`; as it is, saying so, where that is interrupted."""
    try:
        return result.with_robustness(result.robustness(progress=progress))
    except KeyboardInterrupt:
        print("lvsearch: interrupted: the search is kept, without what fewer units say", file=sys.stderr)
        return result


def _reported(result: SearchResult, folder: Path, wanted: bool, progress: bool, mesh: Mesh | None) -> SearchResult:
    """The result as it is, its page written where there is an answer to write of."""
    if wanted and has_answer(result) and several_processes.is_writing_process(mesh):
        _write_page(result, folder, progress)
    several_processes.wait_for_all(mesh)  # who is done first does not leave while a page is still being written
    return result


def _write_page(result: SearchResult, folder: Path, progress: bool) -> None:
    interrupted = result.state.stopped == "interrupted"  # whoever stops it does not wait for a comparison
    compared = result.held_out is not None and comparable(result.held_out) and not interrupted
    path = write_page(result, folder / REPORT, held_out=result.compare_held_out() if compared else None)
    if progress:
        print(f"report: {path.resolve().as_uri()}", file=sys.stderr)


def _memory(evaluator: ModelEvaluator, settings: SearchSettings) -> str:
    """What the largest fit takes; where no largest size is set, that of `USUAL_SIZE`."""
    size = settings.max_size or (USUAL_SIZE,) * len(evaluator.size_names)
    names = zip(size, evaluator.size_names, strict=True)
    return evaluator.memory_plan(size).describe(" × ".join(f"{number} {name}" for number, name in names))
