"""Asking a search that has an answer, of another kind of evidence, which size predicts as well as any."""

from dataclasses import replace

from lvsearch.data.base import Data
from lvsearch.inference.compiles import prepare_programs
from lvsearch.recommending.evaluator import PARTS, PREDICTIVE, PredictiveEvaluator
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.searching.controller import SearchSettings, run
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.fit import Evaluator
from lvsearch.sizing.sizes import weak


def recommend_size(
    evaluator: Evaluator, training: Data | None, held_out: Data | None, settings: SearchSettings, *, progress: bool
) -> Recommendation:
    """Fit a grid of sizes and recommend the smallest that predicts as well as any.

    Args:
        evaluator: what made the fits of the search.
        training: its data.
        held_out: units to judge sizes by; None: parts of the training data, left out one at a time.
        settings: of the search: its seed, and the largest size to try.
        progress: whether to show how far it is.

    Raises:
        ValueError: a search over a function, of several size variables, or at parameters estimated (plug-in), whose
            fits are not those that are compared here; and where no size could be scored.
    """
    if not isinstance(evaluator, ModelEvaluator) or training is None or evaluator.plug_in:
        raise ValueError(
            f"got a search with evidence={settings.evidence!r} {'over a function' if training is None else ''}, "
            "expected one of a model whose parameters are integrated out: prediction is asked of its fits"
        )
    asked = PredictiveEvaluator(
        evaluator.base_model, training, held_out=held_out, parts=PARTS, seed=settings.seed, chunks=evaluator.chunks
    )
    prepare_programs()
    own = replace(settings, evidence=PREDICTIVE, per_token=False, exhaustive=False, starts=PARTS)
    state = run(asked, weak(1), own, progress=progress)
    if state.stopped == "interrupted":
        raise KeyboardInterrupt
    return asked.recommendation(state.visits, settings.max_size)
