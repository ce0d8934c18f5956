"""Recommend a size for a search that was made with another kind of evidence, by fitting and scoring a grid of sizes."""

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
    """Fit several sizes, score them on held-out units, and recommend the smallest size that predicts as well as any.

    `SearchResult.recommend` calls it after a search by evidence. The fits of the search itself are not used, and no
    evidence is computed.

    Args:
        evaluator: the evaluator of the search; it says which model is fitted.
        training: the data of the search; None for a search over a plain function.
        held_out: documents or rows on which sizes are judged; None leaves out parts of the training data in turn.
        settings: the settings of the search; its seed and its largest size are used.
        progress: True to show a progress bar.

    Returns:
        The recommended size with the table behind it.

    Raises:
        ValueError: the search is over a function, over several size variables, or at estimated parameters (plug-in); or
            no size could be scored.
        KeyboardInterrupt: a person stopped it.
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
