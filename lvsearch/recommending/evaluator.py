"""Fits made without a part of the units and scored on it: what a search by prediction asks for."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax.sharding import Mesh

from lvsearch.data.base import Data
from lvsearch.fitted.kinds import fitted
from lvsearch.fitted.topics import FittedTopics
from lvsearch.inference.data.memory import Chunks
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.unit_scores import score_units
from lvsearch.inference.generators import folded, key_of
from lvsearch.models.contract import Model
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.recommending.schedule import PartLimits, next_part
from lvsearch.recommending.topic_quality import topic_quality
from lvsearch.recommending.trials import compared, recommendation
from lvsearch.searching.controller import SearchSettings
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.partition_evaluator import PARTITIONS, PartitionEvaluator
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Fit, HeldOutScores, TopicQuality
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior, weak

PREDICTIVE = "predictive"
"""What `SearchSettings.evidence` says of such a search."""
PARTS = 10
"""Into which the units are cut where nobody says: each fit sees nine tenths of them."""
SAMPLES = 50
"""Of a held-out document's proportions: their noise is far below the spread over documents."""
ENOUGH_OBSERVATIONS, ENOUGH_UNITS = 20_000, 200
"""Held-out tokens (cells) and documents (rows) after which no further part is asked, if there were two."""
LEAST_PARTS = 2
"""Parts that the sizes which decide are asked about: with two, one unlucky fit decides nothing by itself."""
SCORING = 0x5C02E
"""What sets the keys of scores apart from those of fits."""

FitOne = Callable[[Size, Fit | None, int], Fit]
"""Fits a size from a start (None: from scratch), the trial numbered."""


class PredictiveEvaluator(ModelEvaluator):
    """Fits a size without one part of the units and scores these: log p(unit | parameters fitted without it).

    Trial n of a size leaves out part n; of two fits from different seeds the one with the greater bound counts. The
    trial after the last part is a fit of all units, scored on none: what people get when they ask for the model.

    K-fold refits, and not leave-one-out by importance sampling from draws of one posterior. A unit that has a component
    almost to itself is what decides between two sizes, and of exactly such a unit the weights 1 / p(unit | parameters)
    have a variance that no number of draws settles. Draws of q are narrower than the posterior besides, and one chain
    knows one mode. Refits have neither fault, take seconds, and are scored by the same `score_units` as everything.

    held_out: units that the search is to be judged by. Then every trial is another fit of all of `training`, scored on
    these: nothing else is left out. parts: parts of the units, or with `held_out` fits of a size at most.
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
        if held_out is None:
            parts = min(parts, training.n_units)
        if len(model.size_names) != 1:
            raise ValueError(
                f'got evidence="predictive" for a model of {" and ".join(model.size_names)}, expected one size '
                'variable: search it with evidence="marginal"'
            )
        if held_out is None and parts < 2:
            raise ValueError(
                f"got {training.n_units} {training.nouns.units} in {parts} part(s), expected at least two parts: one "
                "is left out while the others are fitted"
            )
        super().__init__(model, training.dataset(), evidence="predictive", seed=seed, chunks=chunks, mesh=mesh)
        self.training, self.held_out, self.parts = training, held_out, parts
        self._fold_seed = seed
        self._folds: dict[int, tuple[ModelEvaluator, Data, Data]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: the data as they came, from which the parts are made again."""
        return _remade, (self.base_model, self.training, self.held_out, self.parts, self._fold_seed, self.chunks)

    def on(self, mesh: Mesh) -> "PredictiveEvaluator":
        """The same, units split over the devices of a mesh."""
        return PredictiveEvaluator(
            self.base_model,
            self.training,
            held_out=self.held_out,
            parts=self.parts,
            seed=self._fold_seed,
            chunks=self.chunks,
            mesh=mesh,
        )

    # ── what the search asks ────────────────────────────────────────────────────────────────────────────────────────

    def next_trial(self, visits: Sequence[Visit], max_size: Size | None) -> tuple[Size, int] | None:
        """The size and the part to ask about next, as `schedule` says; last of all the recommended size, fitted to
        all units."""
        asked = {visit.size[0]: len(visit.trials) for visit in visits}
        found = compared(visits, same_units=self.held_out is not None)
        largest = self.training.n_units if max_size is None else min(max_size[0], self.training.n_units)
        wanted = next_part(asked, found, PartLimits(self._wanted_parts(), largest))
        if wanted is not None:
            size, part = wanted
            return (size,), part
        if found is None or self.held_out is not None:
            return None
        chosen = next(visit for visit in visits if visit.size == found.recommended)
        # A trial without scores is the fit of all units, or a failure, after which there is no use in another.
        return None if chosen.trials[-1].scores is None else (found.recommended, self.parts)

    def recommendation(self, visits: Sequence[Visit], max_size: Size | None) -> Recommendation:
        """What the visits recommend so far. Raises ValueError where no size was scored."""
        given = self.held_out is not None
        return recommendation(visits, None if given else self.parts, self.training.nouns, self.size_names, max_size)

    def _wanted_parts(self) -> int:
        """Parts that hold enough units and observations between them."""
        if self.held_out is not None:
            return min(LEAST_PARTS, self.parts)
        units, observations = self.training.n_units, max(self.training.n_observations, 1)
        enough = max(ENOUGH_UNITS / units, ENOUGH_OBSERVATIONS / observations)
        return min(self.parts, max(LEAST_PARTS, math.ceil(enough * self.parts)))

    # ── one trial ───────────────────────────────────────────────────────────────────────────────────────────────────

    def refit(self, size: Size) -> Fit:
        """The fit of all units, from scratch."""
        return self._better_of_two(super()._evaluated, size, 0 if self.held_out is not None else self.parts)[0]

    def _evaluated(self, size: Size, start: Fit | None, trial: int) -> Fit:
        if self.held_out is None and trial >= self.parts:
            return self.refit(size)
        if self.held_out is not None:
            better, other = self._better_of_two(super()._evaluated, size, trial)
            return self._scored(better, other, self.training, self.held_out, trial)
        fitting, train, left_out = self._without(trial)
        fitting.work_in(self.chunks)
        better, other = self._better_of_two(fitting._evaluated, size, trial)
        self.work_in(fitting.chunks)
        scored = self._scored(better, other, train, left_out, trial)
        # What is proved of some of the units is not proved of all, and a model of some of them is nobody's answer.
        return replace(scored, evidence=Evidence(-math.inf, self.ceiling), log_symmetry=0.0, state=None)

    def _better_of_two(self, fit: FitOne, size: Size, trial: int) -> tuple[Fit, Fit]:
        """Two fits of the same units from different seeds, the one with the greater bound first. It is chosen by what
        it makes of the units it was fitted to, so that scores of others stay honest."""
        both = fit(size, None, trial), fit(size, None, self.parts + 1 + trial)
        better = int(both[1].estimate > both[0].estimate)
        seconds = both[0].info.seconds + both[1].info.seconds
        return replace(both[better], info=replace(both[better].info, seconds=seconds)), both[1 - better]

    def _scored(self, fit: Fit, other: Fit, train: Data, left_out: Data, part: int) -> Fit:
        """The fit with its scores of the units left out; one that cannot score them is a failure, and says so."""
        estimate: Estimate | None = fit.state
        if estimate is None:
            return fit
        began = time.perf_counter()
        key = folded(key_of(SCORING), part)  # one for all sizes: differences between them share its noise
        found = score_units(
            estimate.model, estimate, left_out.dataset(), capacity=capacity_of(fit.size), samples=SAMPLES, key=key
        )
        per_unit = np.asarray(found.per_unit, np.float64)
        quality = self._topics(fit, other, train, left_out) if part == 0 else None
        info = replace(fit.info, seconds=fit.info.seconds + time.perf_counter() - began)
        if not np.isfinite(per_unit).all():
            failure = f"the fit of size {fit.size} gives a held-out unit no probability; it is reported, not ranked"
            return replace(fit, info=replace(info, failure=failure), state=None)
        scores = HeldOutScores(part, tuple(per_unit.tolist()), left_out.n_observations, found.method, quality)
        return replace(fit, info=info, scores=scores)

    def _topics(self, fit: Fit, other: Fit, train: Data, left_out: Data) -> TopicQuality | None:
        """How good the topics of a fit are; None of other models, and where the other fit is not a number."""
        if other.state is None:
            return None
        first, second = fitted(fit, train), fitted(other, train)
        if not isinstance(first, FittedTopics) or not isinstance(second, FittedTopics):
            return None
        return topic_quality(first, second, left_out)

    def _without(self, part: int) -> tuple[ModelEvaluator, Data, Data]:
        """What fits all units but those of a part, these units, and the units of the part."""
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
        return self._folds[part]


def _remade(
    model: Model, training: Data, held_out: Data | None, parts: int, seed: int, chunks: Chunks
) -> PredictiveEvaluator:
    return PredictiveEvaluator(model, training, held_out=held_out, parts=parts, seed=seed, chunks=chunks)


def model_evaluator(
    model: Model,
    training: Data,
    held_out: Data | None,
    settings: SearchSettings,
    *,
    chunks: Chunks | None = None,
    mesh: Mesh | None = None,
) -> ModelEvaluator:
    """Return what fits a model to data in a search with these settings.

    held_out: units that no fit sees; a search by prediction compares sizes on them. chunks: as a search that goes on
    had them. Raises ValueError for settings that a search by prediction has no use for.
    """
    evidence, seed = settings.evidence, settings.seed
    if evidence == PARTITIONS:
        return PartitionEvaluator(model, training.dataset(), seed=seed, chunks=chunks, mesh=mesh)
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
    """The prior over sizes of a search: the one given, or a weak one over so many size variables.

    Raises ValueError for what is no prior, and for one given to a search by prediction, which uses none."""
    if prior is None:
        return weak(dimension)
    if evidence == PREDICTIVE:
        raise ValueError(
            'got a prior with evidence="predictive", expected none: sizes are compared by what they predict. '
            "max_size= says which sizes to try"
        )
    if not isinstance(prior, SizePrior):
        raise ValueError(f"got prior={prior!r}, expected one of lv.sizes, such as lv.sizes.Poisson(10)")
    return prior
