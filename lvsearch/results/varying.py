"""Search again with one hyper-parameter changed at a time, for `SearchResult.sensitivity`."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from lvsearch.inference.compiles import prepare_programs
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import real_number
from lvsearch.progress import progress_bar
from lvsearch.results.auditing import audited_search
from lvsearch.results.card import has_answer
from lvsearch.results.findings import Findings
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED
from lvsearch.scrutiny.sensitivity import Sensitivity, Variant
from lvsearch.searching.controller import SearchState, run
from lvsearch.searching.evaluators import ModelEvaluator


def hyperparameters(model: Model) -> dict[str, float]:
    """Return the positive hyper-parameters of a model as {name: value}, such as {"components.rate": 0.5}.

    A name is the path of fields to the number. Hyper-parameters with one value per column are in units of the data;
    they are left out.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    named = {_name(path): leaf for path, leaf in leaves}
    return {name: float(leaf) for name, leaf in named.items() if np.ndim(leaf) == 0 and leaf > 0}


def with_hyperparameter(model: Model, name: str, value: float | int) -> Model:
    """Return a copy of the model with the hyper-parameter `name`, such as "components.rate", set to `value`."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.asarray(value, np.asarray(leaf).dtype) if _name(path) == name else leaf, model
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
    evaluator, _ = audited_search(result)
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
    bar = progress_bar(len(changes), "sensitivity", "search", wanted=progress)
    variants = [_variant(result, "", 1.0, None)]
    for name, value, f in changes:
        model = with_hyperparameter(evaluator.base_model, name, value * f)
        variants.append(_variant(_search_again(result, evaluator, model), name, f, value * f))
        bar.update()
    bar.close()
    return Sensitivity(tuple(variants), evaluator.size_names, result.why_unfinished)


def _search_again(result: Findings, evaluator: ModelEvaluator, model: Model) -> Findings:
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


def _name(path: tuple) -> str:
    """Return the name of a number in a model, such as "components.rate". path: JAX' key path to the number."""
    return jax.tree_util.keystr(path, simple=True, separator=".")
