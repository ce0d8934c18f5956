"""The search made again with one hyper-parameter changed: what `SearchResult.sensitivity` is made of."""

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
    """The positive numbers in a model's priors, by where they are, such as "components.rate". Those of one value per
    column are units of the data, and left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    named = {_name(path): leaf for path, leaf in leaves}
    return {name: float(leaf) for name, leaf in named.items() if np.ndim(leaf) == 0 and leaf > 0}


def with_hyperparameter(model: Model, name: str, value: float | int) -> Model:
    """The same model with this number there."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.asarray(value, np.asarray(leaf).dtype) if _name(path) == name else leaf, model
    )


def vary(result: Findings, names: Sequence[str] | str | None, factor: float | int, *, progress: bool) -> Sensitivity:
    """`SearchResult.sensitivity`, which says what it takes and raises."""
    evaluator, _ = audited_search(result)
    result.estimates()  # there has to be an answer that may hang on something
    factor = real_number("factor", factor, above=1)  # priors are changed by it both ways
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
        variants.append(_variant(_searched(result, evaluator, model), name, f, value * f))
        bar.update()
    bar.close()
    return Sensitivity(tuple(variants), evaluator.size_names, result.why_unfinished)


def _searched(result: Findings, evaluator: ModelEvaluator, model: Model) -> Findings:
    """The same search of another model, keys and all: what its paths have by chance they have in common."""
    seed, scale = result.settings.seed, evaluator.scale
    other = ModelEvaluator(model, evaluator.data, evidence="marginal", seed=seed, scale=scale, chunks=evaluator.chunks)
    state = run(other, result.prior, result.settings, SearchState(), progress=False)
    if not state.is_finished:
        raise KeyboardInterrupt
    return replace(result, evaluator=other, state=state, scrutiny=NOTHING_ASKED)


def _variant(found: Findings, name: str, factor: float, value: float | None) -> Variant:
    if not has_answer(found):
        return Variant(name, factor, value, (), (), (), ())
    sizes, *numbers = found.estimates()
    return Variant(name, factor, value, tuple(sizes), *(tuple(one.tolist()) for one in numbers))


def _name(path: tuple) -> str:
    """Such as "components.rate" of a place in a model."""
    return jax.tree_util.keystr(path, simple=True, separator=".")
