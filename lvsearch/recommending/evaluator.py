"""Fit a model without some of the units and score these units, for a search by prediction (evidence="predictive").

A unit is a document or a row. A trial is one fit of one size and its score. An evaluator makes the trials of a search.

Of topics it also measures how readable they are, and how many of them a fit from another start finds too.

`recommend_size` does the same after a search that was made with another kind of evidence: it fits and scores a grid of
sizes.
"""

import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jax.sharding import Mesh

from lvsearch.comparison.similarity import HALF, member_similarity, partners
from lvsearch.data.base import Data
from lvsearch.fitted.kinds import as_fitted_model
from lvsearch.fitted.topics import FittedTopics
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.engine.describing import score_units
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.estimator import Chunks
from lvsearch.inference.generators import fold_in, key_of
from lvsearch.models.contract import Model
from lvsearch.recommending.recommendation import Recommendation, compare_trials, recommendation
from lvsearch.recommending.rule import PartLimits, next_part
from lvsearch.searching.allocation_evaluator import PARTITIONS, AllocationEvaluator
from lvsearch.searching.controller import SearchSettings, run
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Evaluator, Fit, HeldOutScores, TopicQuality
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior, weak
from lvsearch.sizing.univariate import require_prior

PREDICTIVE = "predictive"
"""The value of `SearchSettings.evidence` for a search by prediction."""
PARTS = 10
"""The default number of parts into which the units are divided; each fit then sees nine tenths of the units."""
SCORED_CAPACITIES = (32, 128, 256)
"""The numbers of array slots that components are padded to where units are scored; above the last, those of fits.

They are fewer than those of fits, since a program of scores takes longer to compile than to run.
"""
SAMPLES = 50
"""The number of importance samples per held-out document; their noise is far below the spread over documents."""
ENOUGH_OBSERVATIONS, ENOUGH_UNITS = 20_000, 200
"""The numbers of held-out tokens (cells) and documents (rows) that are enough to compare sizes."""
LEAST_PARTS = 2
"""The smallest number of parts on which the deciding sizes are scored. With two, one unlucky fit does not decide
alone.
"""
SCORING = 0x5C02E
"""The number that sets the random keys of scores apart from the keys of fits."""

FitOne = Callable[[Size, Fit | None, int], Fit]
"""A function that fits a size from a start (None: from scratch); the last argument is the number of the trial."""


class PredictiveEvaluator(ModelEvaluator):
    """Fits a size without one part of the units, and scores this part: log p(unit | parameters fitted without it).

    Trial n of a size leaves out part n of the units. Each trial makes two fits from different seeds and keeps the one
    with the greater evidence lower bound. The trial after the last part fits all units and is scored on none. Its fit
    is the model that people get.

    Why K-fold refits, and not leave-one-out by importance sampling from one posterior? A unit that has a component
    almost to itself decides between two sizes. For exactly such a unit the weights 1 / p(unit | parameters) have a
    variance that no number of draws reduces. Besides, draws from the mean-field q are too narrow, and one chain knows
    one mode. Refits have none of these faults and take seconds.

    model: the model, with one size variable
    training: the data
    held_out: units on which all sizes are judged. Then nothing else is left out: every trial is another fit of all of
        `training`, scored on these units
    parts: the number of parts of the units, or half as many as there are units if that many parts would have a single
        unit; with `held_out`, the largest number of fits of a size
    seed: gives the parts and the fits
    chunks: how many units are processed at once, for a search that is resumed; None for the default
    mesh: devices over which the units are split

    Raises ValueError for a model with several size variables, and for fewer than two parts.
    """

    def __init__(
        self,
        model: Model,
        training: Data,
        *,
        held_out: Data | None,
        parts: int,
        seed: int,
        chunks: Chunks | None = None,
        mesh: Mesh | None = None,
    ):
        if len(model.size_names) != 1:
            raise ValueError(
                f"got a model of {' and '.join(model.size_names).replace('_', ' ')}, expected one size variable: a "
                'recommended size (`recommend`, evidence="predictive") is one number. Take evidence="marginal", whose '
                "answer is a pair"
            )
        if held_out is None and parts < 2:
            raise ValueError(
                f"got starts={parts} (--starts on the command line), expected 2 or more: it is the number of parts of "
                f"the {training.nouns.units}, of which one is left out while the others are fitted. Or keep "
                f"{training.nouns.units} apart: held_out="
            )
        if held_out is None and parts >= training.n_units:
            parts = training.n_units // 2  # the score of a single unit would have no error
        if held_out is None and parts < 2:
            raise ValueError(
                f"got {training.n_units} {training.nouns.units}, expected at least two parts, of two "
                f"{training.nouns.units} or more each: one is left out while the others are fitted"
            )
        super().__init__(model, training.dataset(), evidence="predictive", seed=seed, chunks=chunks, mesh=mesh)
        self.training, self.held_out, self.parts = training, held_out, parts
        self._fold_seed = seed
        self._folds: dict[int, tuple[ModelEvaluator, Data, Data]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Return (function, arguments) by which pickle rebuilds the evaluator in another process.

        The fits so far stay behind; the same parts of the data are made again from the seed.
        """
        said = {"held_out": self.held_out, "parts": self.parts, "seed": self._fold_seed, "chunks": self.chunks}
        return partial(PredictiveEvaluator, self.base_model, self.training, **said), ()

    def split_over(self, mesh: Mesh) -> "PredictiveEvaluator":
        """Return a copy of this evaluator whose units are split over the devices of a mesh."""
        make_anew, _ = self.__reduce__()
        return make_anew(mesh=mesh)

    # ── what the search asks ────────────────────────────────────────────────────────────────────────────────────────

    def next_trial(self, visits: Sequence[Visit], max_size: Size | None) -> tuple[Size, int] | None:
        """Return (size to fit next, part of the units to leave out), or None when the search is done.

        `rule.next_part` decides the order. Last of all, the recommended size is fitted to all units; its "part" is
        then the number of parts.

        visits: a record of each size tried so far, with its trials
        max_size: the largest size allowed; None for no limit
        """
        asked = {visit.size[0]: len(visit.trials) for visit in visits}
        found = compare_trials(visits, same_units=self.held_out is not None)
        (smallest,) = self.smallest_size
        largest = self.training.n_units if max_size is None else min(max_size[0], self.training.n_units)
        wanted = next_part(asked, found, PartLimits(self._wanted_parts(), max(largest, smallest), smallest))
        if wanted is not None:
            size, part = wanted
            return (size,), part
        if found is None or self.held_out is not None:
            return None
        chosen = next(visit for visit in visits if visit.size == found.recommended)
        # A trial without scores is the fit of all units, or a failure, after which there is no use in another.
        return None if chosen.trials[-1].scores is None else (found.recommended, self.parts)

    def recommendation(self, visits: Sequence[Visit], max_size: Size | None) -> Recommendation:
        """Return the size that the trials so far recommend, with the table behind it.

        visits: a record of each size tried so far, with its trials
        max_size: the largest size allowed; None for no limit

        Raises ValueError if no size was scored.
        """
        given = self.held_out is not None
        return recommendation(visits, None if given else self.parts, self.training.nouns, self.size_names, max_size)

    def _wanted_parts(self) -> int:
        """Return on how many parts of the units the sizes that decide the answer are scored.

        Together these parts hold enough units and observations to compare two sizes; they are at least `LEAST_PARTS`,
        if there are so many. With `held_out` it is the number of fits of each of these sizes, `LEAST_PARTS` at most.
        """
        if self.held_out is not None:
            return min(LEAST_PARTS, self.parts)
        units, observations = self.training.n_units, max(self.training.n_observations, 1)
        enough = max(ENOUGH_UNITS / units, ENOUGH_OBSERVATIONS / observations)
        return min(self.parts, max(LEAST_PARTS, math.ceil(enough * self.parts)))

    # ── one trial ───────────────────────────────────────────────────────────────────────────────────────────────────

    def refit(self, size: Size) -> Fit:
        """Return a fit of all units at this size from scratch, which is the model that people get."""
        return self._better_of_two(super()._evaluate_here, size, 0 if self.held_out is not None else self.parts)[0]

    def _evaluate_here(self, size: Size, start: Fit | None, trial: int) -> Fit:
        """Return the fit of a size for one trial, with its scores on the part left out, or on `held_out`.

        The trial after the last part fits all units and is not scored.

        size: the size
        start: ignored; fits of a search by prediction begin from scratch
        trial: the number of the trial of this size, from 0; also the number of the part to leave out
        """
        if self.held_out is None and trial >= self.parts:
            return self.refit(size)
        if self.held_out is not None:
            better, other = self._better_of_two(super()._evaluate_here, size, trial)
            return self._add_scores(better, other, self.training, self.held_out, trial)
        fitting, train, left_out = self._leave_part_out(trial)
        fitting.work_in(self.chunks)
        better, other = self._better_of_two(fitting._evaluate_here, size, trial)
        self.work_in(fitting.chunks)
        scored = self._add_scores(better, other, train, left_out, trial)
        # A bound for some of the units is no bound for all, and a model of some units is not kept: drop both.
        return replace(scored, evidence=Evidence(-math.inf, self.ceiling), log_symmetry=0.0, state=None)

    def _better_of_two(self, fit: FitOne, size: Size, trial: int) -> tuple[Fit, Fit]:
        """Make two fits of the same units from different seeds; return (the better one, the other).

        The better one has the greater evidence lower bound. The choice uses only the units that were fitted, so that
        scores of other units stay unbiased.

        fit: a function that makes one fit
        size: the size
        trial: the number of the trial of this size, from 0
        """
        both = fit(size, None, trial), fit(size, None, self.parts + 1 + trial)
        better = int(both[1].estimate > both[0].estimate)
        seconds = both[0].info.seconds + both[1].info.seconds
        return replace(both[better], info=replace(both[better].info, seconds=seconds)), both[1 - better]

    def _add_scores(self, fit: Fit, other: Fit, train: Data, left_out: Data, part: int) -> Fit:
        """Return the fit together with its scores of the units left out.

        A fit under which one of these units is impossible is returned as a failure.

        fit: the fit that is scored
        other: a second fit of the same units, to see which topics it finds again
        train: the units that were fitted
        left_out: the units that are scored
        part: the number of the part; topic quality is measured for part 0 only
        """
        estimate: Estimate | None = fit.state
        if estimate is None:
            return fit
        began = time.perf_counter()
        key = fold_in(key_of(SCORING), part)  # one for all sizes: differences between them share its noise
        capacity = tuple(next((c for c in SCORED_CAPACITIES if c >= most), most) for most in capacity_of(fit.size))
        found = score_units(estimate.model, estimate, left_out.dataset(), capacity=capacity, samples=SAMPLES, key=key)
        per_unit = np.asarray(found.per_unit, np.float64)
        quality = self._topic_quality(fit, other, train, left_out) if part == 0 else None
        info = replace(fit.info, seconds=fit.info.seconds + time.perf_counter() - began)
        if not np.isfinite(per_unit).all():
            failure = f"the fit of size {fit.size} gives a held-out unit no probability; it is reported, not ranked"
            return replace(fit, info=replace(info, failure=failure), state=None)
        scores = HeldOutScores(part, tuple(per_unit.tolist()), left_out.n_observations, found.method, quality)
        return replace(fit, info=info, scores=scores)

    def _topic_quality(self, fit: Fit, other: Fit, train: Data, left_out: Data) -> TopicQuality | None:
        """Return the quality of the topics of a fit; None for models without topics, or if the other fit failed.

        fit: the fit that is measured
        other: a second fit of the same units, to see which topics it finds again
        train: the units of both fits
        left_out: units that neither fit has seen
        """
        if other.state is None:
            return None
        first, second = as_fitted_model(fit, train), as_fitted_model(other, train)
        if not isinstance(first, FittedTopics) or not isinstance(second, FittedTopics):
            return None
        return topic_quality(first, second, left_out)

    def _leave_part_out(self, part: int) -> tuple[ModelEvaluator, Data, Data]:
        """Return (evaluator of all units but one part, these units, the units of the part). part: its number from 0.

        The evaluator is a copy, since threads make fits of one part at the same time.
        """
        if part not in self._folds:
            train, left_out = self.training.fold(part, self.parts, self._fold_seed)
            fitting = ModelEvaluator(
                self.base_model,
                train.dataset(),
                evidence="bound",
                seed=self._fold_seed,
                chunks=self.chunks,
                mesh=self.mesh,
            )
            self._folds[part] = fitting, train, left_out
        fitting, train, left_out = self._folds[part]
        return copy(fitting), train, left_out


def model_evaluator(
    model: Model,
    training: Data,
    held_out: Data | None,
    settings: SearchSettings,
    *,
    chunks: Chunks | None = None,
    mesh: Mesh | None = None,
) -> ModelEvaluator:
    """Return the evaluator that fits a model to data in a search with these settings.

    model: the model
    training: the data
    held_out: units that no fit sees; a search by prediction compares sizes on them. None if there are none
    settings: the settings of the search, which say by what kind of evidence sizes are judged
    chunks: how many units are processed at once, for a search that is resumed; None for the default
    mesh: devices over which the units are split

    Raises ValueError for settings that a search by prediction has no use for.
    """
    evidence, seed = settings.evidence, settings.seed
    if evidence == PARTITIONS:
        return AllocationEvaluator(model, training.dataset(), seed=seed, chunks=chunks, mesh=mesh)
    if evidence != PREDICTIVE:
        scale = float(training.n_observations) if settings.per_token else 1.0
        data = training.dataset()
        return ModelEvaluator(model, data, evidence=evidence, seed=seed, scale=scale, chunks=chunks, mesh=mesh)
    if settings.per_token or settings.exhaustive:
        raise ValueError(
            f'got per_token={settings.per_token}, exhaustive={settings.exhaustive} with evidence="predictive", '
            "expected neither: it weighs nothing against a prior, and tries the sizes that decide what predicts best"
        )
    return PredictiveEvaluator(
        model, training, held_out=held_out, parts=settings.starts, seed=seed, chunks=chunks, mesh=mesh
    )


def checked_prior(evidence: str, prior: SizePrior | None, dimension: int) -> SizePrior:
    """Return the prior over sizes of a search, after checking that it is one.

    evidence: by what sizes are judged, such as "marginal" or "predictive"
    prior: the prior that a person gave; None for a weak one
    dimension: the number of size variables of the model

    Raises ValueError for an object that is no prior, and for a prior given to a search by prediction, which uses none.
    """
    if prior is None:
        return weak(dimension)
    if evidence == PREDICTIVE:
        raise ValueError(
            'got a prior with evidence="predictive", expected none: sizes are compared by what they predict. '
            "max_size= says which sizes to try"
        )
    require_prior(prior)
    return prior


# ── quality of topics ─────────────────────────────────────────────────────────────────────────────────────────────────


def topic_quality(first: FittedTopics, second: FittedTopics, new: Data) -> TopicQuality:
    """Measure the coherence of the topics of a fit, and count the topics that a second fit finds again.

    A topic is found again if a topic of the second fit holds the same tokens: the Jaccard coefficient of the two,
    corrected for chance, is above ½.

    Args:
        first: the fit that is measured. Coherence is computed in its training documents.
        second: a fit of the same documents at the same size from another seed.
        new: documents that neither fit has seen; topics are matched by their tokens in these documents.
    """
    coherence = first.coherence().to_numpy()
    members, others = (replace(fit, training=new).members() for fit in (first, second))
    return TopicQuality(
        coherence=float(coherence.mean()),
        coherence_error=float(coherence.std(ddof=1) / np.sqrt(len(coherence))) if len(coherence) > 1 else 0.0,
        found_again=int((partners(member_similarity(members, others)) > HALF).sum()),
    )


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
