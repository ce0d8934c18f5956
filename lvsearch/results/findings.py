"""What a search found, as numbers: tables, the best model, predictions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from lvsearch.comparison.alignment import ComponentMap, component_map
from lvsearch.data.base import Data
from lvsearch.fitted.kinds import fitted
from lvsearch.fitted.model import FittedModel
from lvsearch.inference.engine.describing import unit_ceilings
from lvsearch.partitions.mixture_posterior import MixturePosterior, estimate_from_partitions
from lvsearch.recommending.evaluator import PredictiveEvaluator
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED, Scrutiny
from lvsearch.searching.controller import SearchSettings, SearchState, witness_search
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.partition_evaluator import PartitionEvaluator
from lvsearch.sizing import bounds as bounds_of
from lvsearch.sizing.bracket import pooled
from lvsearch.sizing.evidence import Evidence, Record
from lvsearch.sizing.fit import Evaluator, is_by_gains
from lvsearch.sizing.gains import EvidenceCurve, PooledGain, evidence_curve
from lvsearch.sizing.ledger import (
    Visit,
    near_mode,
    pooled_spread,
    record_of,
    scaled,
    standard_error,
    with_evidence_from_gains,
)
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.posterior import EstimatedPosterior, PriorInfluence, estimate_posterior, posterior, prior_influence
from lvsearch.sizing.prediction import Prediction, estimate_prediction, predict_per_unit, predict_whole_set
from lvsearch.sizing.racing import unvisited_share
from lvsearch.sizing.sizes import Size, SizePrior, as_size
from lvsearch.sizing.witness import WitnessSearch

FindingsType = TypeVar("FindingsType", bound="Findings")
KINDS = ("estimate", "certified", "diminishing")


@dataclass(frozen=True)
class Findings:
    """What a search found, as numbers; `SearchResult` is the same with words, pictures and a folder.

    Everything is computed from `state`; nothing is fitted unless asked for by `fit`.

    | field | meaning |
    |---|---|
    | `evaluator`, `prior`, `settings` | what was searched, with which prior, how |
    | `state` | the visits in order, the kept fits, why it stopped |
    | `training` | the data, None where a plain function was searched |
    | `seconds` | time spent, all sessions together |
    | `compiles` | kernel -> how often the search compiled it, all sessions together |
    | `scrutiny` | what was asked of the search once it had ended |
    | `held_out` | data that the search did not see, kept beside it to compare sizes on; None where there are none |
    """

    evaluator: Evaluator
    prior: SizePrior
    settings: SearchSettings
    state: SearchState
    training: Data | None
    seconds: float
    compiles: Mapping[str, int] = field(default_factory=dict)
    scrutiny: Scrutiny = NOTHING_ASKED
    held_out: Data | None = None

    # ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def visits(self) -> tuple[Visit, ...]:
        """The sizes visited, in order; where chains compare all sizes, each with the evidence that they give it."""
        if self.partitions is None:
            return self.state.visits
        known = self.partitions.log_evidence
        fitted = [visit for visit in self.state.visits if visit.size[0] <= len(known)]
        heights = [visit.log_bound - known[visit.size[0] - 1] for visit in fitted if known[visit.size[0] - 1] > -np.inf]
        # chains know differences alone: all are raised until no bound of a fit lies above
        height = max((each for each in heights if np.isfinite(each)), default=0.0)
        errors = self.partitions.log_evidence_error
        return tuple(
            replace(visit, from_gains=PooledGain(float(height + known[place]), float(errors[place])))
            if (place := visit.size[0] - 1) < len(known) and known[place] > -np.inf
            else visit
            for visit in self.state.visits
        )

    @cached_property
    def partitions(self) -> MixturePosterior | None:
        """What chains over partitions say of all sizes under the prior of this result; None where none were run."""
        if not isinstance(self.evaluator, PartitionEvaluator) or self.state.partitions is None:
            return None
        return self.evaluator.posterior(self.state.partitions, self.prior)

    @property
    def is_finished(self) -> bool:
        """Whether the search came to its own end: what it says of sizes cannot change any more."""
        return self.state.is_finished

    @property
    def why_unfinished(self) -> str | None:
        """In words what kept the search from its end; None where it finished.

        Such as "stopped after 60 seconds", "interrupted", or "killed, or still running elsewhere" of a loaded search
        that recorded no end.
        """
        return self.state.why_unfinished

    @property
    def default_kind(self) -> str:
        """What `posterior()` shows: an estimate under marginal evidence, diminishing gains under plug-in evidence."""
        if not self.evaluator.nested:
            return "estimate"
        return "diminishing" if self.prior.dimension == 1 else "certified"

    @cached_property
    def search(self) -> WitnessSearch:
        """Generated set, witnesses and bounds, on the scale of the search."""
        return witness_search(self.evaluator, self.prior, self.settings, self.state)

    @cached_property
    def standard_errors(self) -> Mapping[Size, float]:
        """How far each size's estimate may be off, on the scale of the search: of annealed evidence its own standard
        error, of bounds the spread of repeated fits, of evidence from gains that of the difference to the most probable
        size."""
        repeatable, scale = self.evaluator.repeatable and not self.evaluator.anneals, self.evaluator.scale
        spread = pooled_spread(self._good) if repeatable else 0.0
        starts = self.settings.starts if repeatable else 1
        return {visit.size: standard_error(visit, spread, starts) / scale for visit in self._good}

    @cached_property
    def curve(self) -> EvidenceCurve | None:
        """The evidence of all sizes relative to each other, where gains from size to size were measured; else None."""
        most = None if self.settings.max_size is None else self.settings.max_size[0]
        return evidence_curve(self._good, most) if is_by_gains(self.evaluator) else None

    @cached_property
    def estimated(self) -> EstimatedPosterior:
        """The posterior over the sizes tried, under standard errors; where gains were measured, over those between
        too."""
        if self.partitions is not None:
            return estimate_from_partitions(self.partitions)
        self._require_good()
        if self.curve is not None:
            return self.curve.posterior(self.prior, self.evaluator.scale)
        return estimate_posterior(*self.estimates())

    @cached_property
    def influence(self) -> PriorInfluence:
        """Whether the prior still matters."""
        return prior_influence(*self.estimates())

    def certified(self) -> bounds_of.Certified:
        """Bounds on log p(data) that rest on no assumption; plug-in evidence: of these fits, not of the best parameters
        of a size."""
        return self.search.bounds()

    def diminishing(self) -> bounds_of.Diminishing:
        """Bounds on log p(data) assuming diminishing gains; under marginal evidence, gains of the estimates."""
        return self.search.diminishing() if self.evaluator.nested else self._estimate_search.diminishing()

    def posterior(self, kind: str | None = None) -> pd.DataFrame:
        """The posterior over sizes: a row per size, and under a kind with bounds a last row for the unvisited ones.

        kind: "estimate", "certified" or "diminishing"; by default what suits the evidence. Columns: one per size
        variable, log_prior, log_evidence_lower, log_evidence_upper, standard_error, probability (estimate only),
        probability_lower, probability_upper. Under "estimate" the two evidence columns are the stochastic ends of
        annealing (of bounds, and where an end came out on the wrong side of the estimate: the estimate ± one standard
        error; an upper end is NaN where a proved bound lies above it), log_evidence stands between them, and the
        probabilities are its 5 % and 95 % points. Under "certified" (no assumption) and "diminishing" (a printed one)
        all ends of plug-in evidence are proved of these fits, not of the best parameters of a size. Nats; on the scale
        of the search.

        Raises ValueError for an unknown kind, and for "certified" under marginal evidence, where it would say nothing.
        """
        kind = self.default_kind if kind is None else kind
        if kind not in KINDS:
            raise ValueError(f"got kind={kind!r}, expected one of {', '.join(map(repr, KINDS))}")
        if kind == "estimate":
            return self._estimate_table()
        if kind == "certified" and not self.evaluator.nested:
            raise ValueError(
                "a certified posterior under marginal evidence is [0, 1] everywhere: the only proved upper end is the "
                'ceiling. Use posterior() (an estimate with standard errors), or search with evidence="plug-in"'
            )
        table = posterior(self.certified() if kind == "certified" else self.diminishing())
        rows = []
        for row in table.rows:
            error = self.standard_errors.get(row.size, np.nan) if row.size is not None else np.nan
            rows.append(
                {
                    **self._size_columns(row.size),
                    "log_prior": row.log_prior,
                    "log_evidence_lower": row.log_evidence_lower,
                    "log_evidence_upper": row.log_evidence_upper,
                    "standard_error": error,
                    "probability_lower": row.probability_lower,
                    "probability_upper": row.probability_upper,
                }
            )
        return pd.DataFrame(rows)

    def bounds(self) -> pd.DataFrame:
        """A row per expansion: size, the proved log_lower and log_upper on log p(data) just after it (plug-in evidence:
        of these fits), seconds."""
        rows = [
            {
                **self._size_columns(visit.size),
                "log_lower": visit.log_lower,
                "log_upper": visit.log_upper,
                "seconds": visit.seconds,
            }
            for visit in self.visits
        ]
        return pd.DataFrame(rows)

    def starts(self) -> pd.DataFrame:
        """A row per trial: size, where it started, the ends and the estimate of the evidence (of bounds: with
        relabellings), its standard error, temperatures, and seconds."""
        rows = [
            {
                **self._size_columns(visit.size),
                "start": trial.start,
                "log_evidence_lower": pooled(trial.brackets).lower if trial.brackets else trial.evidence.lower,
                "log_evidence": trial.estimate,
                "log_evidence_upper": pooled(trial.brackets).upper if trial.brackets else np.nan,
                "standard_error": pooled(trial.brackets).standard_error if trial.brackets else np.nan,
                "steps": max((bracket.steps for bracket in trial.brackets), default=0),
                "seconds": trial.seconds,
                "failure": trial.failure or "",
            }
            for visit in self.visits
            for trial in visit.trials
        ]
        return pd.DataFrame(rows)

    # ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def by_prediction(self) -> bool:
        """Whether sizes were compared by what they predict: then none has a probability."""
        return isinstance(self.evaluator, PredictiveEvaluator)

    @cached_property
    def recommended(self) -> Recommendation | None:
        """The smallest size that predicts new units as well as any: the number to act on. Of a search by prediction
        what it found, of another what `with_recommended` put here; None where nothing was scored on units held out."""
        if isinstance(self.evaluator, PredictiveEvaluator):
            scored = any(trial.scores is not None for visit in self.visits for trial in visit.trials)
            return self.evaluator.recommendation(self.visits, self.settings.max_size) if scored else None
        return self.scrutiny.recommended

    @property
    def best_size(self) -> Size:
        """The most probable size: largest prior times evidence, averaged over errors where evidence is estimated; of a
        search by prediction the recommended one."""
        if isinstance(self.evaluator, PredictiveEvaluator):
            return self.evaluator.recommendation(self.visits, self.settings.max_size).size
        if self.partitions is None:
            self._require_good()
        if not self.evaluator.nested:
            return self.estimated.best
        settings, evaluator = self.settings, self.evaluator
        near = near_mode(self.visits, self.prior, settings.starts, evaluator.scale, evaluator.repeatable)
        return near[0].size

    @cached_property
    def unvisited(self) -> tuple[float, float]:
        """What sizes up to the largest allowed that were not tried hold: of the prior, and about how much of the
        posterior if the evidence runs between and beyond those tried as `racing` supposes, without slack. Where gains
        were measured, sizes in between have their probability, so that only those beyond are meant here."""
        evaluator, most = self.evaluator, self.settings.max_size
        if self.partitions is not None:
            shown = [size for (size,) in self.estimated.sizes]
            of_prior = float(np.exp(self.partitions.log_prior[shown[0] - 1 : shown[-1]]).sum())
            return max(0.0, 1.0 - of_prior), max(0.0, 1.0 - float(self.estimated.probability.sum()))
        if self.curve is not None:
            end = self.curve.end
            beyond = -math.inf if most == (end,) else self.prior.log_mass((end + 1,))
            return math.exp(beyond), float(self.estimated.probability[-1])
        tried = log_sum([self.prior.log_pmf(visit.size) for visit in self.visits])
        share = unvisited_share(self.visits, self.prior, most, evaluator.scale)
        return max(0.0, -math.expm1(min(0.0, tried))), share

    @property
    def not_compared(self) -> dict[Size, str]:
        """The sizes whose every fit failed, with the reason of the last failure: size -> reason.

        Such a size has no evidence and no probability. It is not ruled out: nothing was compared.
        """
        return {visit.size: visit.trials[-1].failure or "" for visit in self.visits if visit.failed}

    @property
    def best(self) -> FittedModel:
        """The fitted model of the most probable size."""
        return self.fit(self.best_size)

    def fit(self, size: Size | int) -> FittedModel:
        """The fitted model of a size: the kept one, or a new fit from scratch where none was kept."""
        size, training = as_size(size, self.prior.dimension), self._training()
        kept = self.state.kept.get(size)
        if kept is None or kept.state is None:
            kept = cast(ModelEvaluator, self.evaluator).refit(size)
        return fitted(kept, training)

    def with_prior(self: FindingsType, prior: SizePrior) -> FindingsType:
        """The same fits under another prior: nothing is fitted again.

        A row of its `bounds()` is what a search under that prior would show had it found every size at its final
        evidence at once. A most probable size that was not kept is refitted when `best` asks for it. Raises ValueError
        for a prior over another number of size variables.
        """
        if prior.dimension != self.prior.dimension:
            raise ValueError(f"got a prior over {prior.dimension} size variable(s), expected {self.prior.dimension}")
        visits = tuple(_rebound(self.evaluator, prior, self.settings, self.visits))
        if is_by_gains(self.evaluator):
            most = None if self.settings.max_size is None else self.settings.max_size[0]
            visits = with_evidence_from_gains(visits, prior, most, self.evaluator.scale)
        state = replace(self.state, visits=visits)
        return replace(self, prior=prior, state=state, scrutiny=self.scrutiny.with_prior(prior))

    def predict(self, test: Any) -> Prediction:
        """log p(test | train), averaging over sizes (nats).

        Plug-in evidence: intervals, of these fits. A size whose fit was not kept (`keep`) predicts anything between 0
        and the ceiling.
        Marginal evidence: an estimate over the kept sizes. Raises ValueError where none was kept, and for other data.
        """
        training = self._training()
        data = training.like_this(test)
        known = {size: fitted(fit, training) for size, fit in self.state.kept.items() if fit.state is not None}
        if not self.evaluator.nested:
            sizes = [size for size in self.estimated.sizes if size in known]
            weights = np.array([self.estimated.probability[self.estimated.sizes.index(size)] for size in sizes])
            if not weights.sum() > 0:
                raise ValueError(
                    "no kept fit has any probability under this prior: fit the best size with result.fit(size) and "
                    "score it, or search under this prior"
                )
            scores = np.array([known[size].score_units(data) for size in sizes])
            return Prediction(None, None, estimate_prediction(weights / weights.sum(), scores, training.nouns.unit))
        bounds = self.certified()
        ceilings = unit_ceilings(cast(ModelEvaluator, self.evaluator).model, data.dataset())
        lower = np.full((len(bounds.sizes), data.n_units), -np.inf)
        upper = np.broadcast_to(ceilings, lower.shape).copy()
        for row, size in enumerate(bounds.sizes):
            if size in known:
                lower[row], upper[row] = known[size].interval_units(data)
        return Prediction(
            predict_whole_set(bounds, lower.sum(axis=1), upper.sum(axis=1), float(ceilings.sum())),
            predict_per_unit(bounds, lower, upper, ceilings, training.nouns.unit),
            None,
        )

    def component_map(self, size: Size | int, larger: Size | int | None = None) -> ComponentMap:
        """Which components of one size's fit are which of a larger one's: what split, what merged, what stayed.

        larger: by default the next size that was visited. By the training units they share (`alignment.component_map`);
        sizes whose fit was not kept are fitted again. ValueError where no larger size was visited.
        """
        size = as_size(size, self.prior.dimension)
        if larger is None:
            beyond = sorted(visit.size for visit in self.visits if visit.size > size and not visit.failed)
            if not beyond:
                raise ValueError(f"got size {size}, expected one below the largest visited: say larger= yourself")
            larger = beyond[0]
        training = self._training()
        return component_map(self.fit(size).transform(training), self.fit(larger).transform(training))

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _good(self) -> tuple[Visit, ...]:
        """The visits that an estimate can rank: no failed ones, and none whose evidence is zero."""
        return tuple(visit for visit in self.visits if not visit.failed and visit.estimate > -np.inf)

    def _require_good(self) -> None:
        if not self.visits:
            raise ValueError("no size was visited: the search was stopped before its first fit; search again")
        if not self._good:
            reasons = {trial.failure for visit in self.visits for trial in visit.trials if trial.failure}
            why = f" ({sorted(reasons)[0]})" if reasons else ""
            raise ValueError(f"no fit succeeded: every visit failed or has no evidence{why}; see result.starts()")
        if all(self.prior.log_pmf(visit.size) == -np.inf for visit in self._good):
            tried = ", ".join("×".join(map(str, visit.size)) for visit in self._good)
            raise ValueError(
                f"the prior gives no mass to any size fitted ({tried}): change the prior, or search further"
            )

    @cached_property
    def _estimate_search(self) -> WitnessSearch:
        scale = self.evaluator.scale
        self._require_good()
        records = [
            Record(v.size, Evidence(v.estimate / scale, v.estimate / scale, self.standard_errors[v.size]))
            for v in self._good
        ]
        if self.partitions is not None:
            records = [Record(n, Evidence(v, v, e)) for n, _, v, e in zip(*self.estimates(), strict=True)]
        elif self.visits[0] not in self._good:  # the first size must be there; nothing is known of it
            records.insert(0, record_of(self.visits[0], scale))
        return WitnessSearch.from_records(self.prior, np.inf, False, self.settings.max_size, records)

    def estimates(self) -> tuple[list[Size], np.ndarray, np.ndarray, np.ndarray]:
        """(sizes, log prior, estimated log evidence, its standard error) of sizes that have any, (sizes,), nats.

        Where gains were measured: of every size up to the end of the curve, with the standard errors of the differences
        to the most probable one. Raises ValueError for a search by prediction, which has no evidence, and where no fit
        succeeded.
        """
        if self.by_prediction:
            raise ValueError(
                'got a search with evidence="predictive", which gives sizes no probability; expected "marginal". What '
                "it found is result.recommended"
            )
        if self.partitions is not None:
            known = [visit for visit in self.visits if visit.from_gains is not None]
            sizes = list(self.estimated.sizes)
            rows = np.array([size - 1 for (size,) in sizes])
            log_evidence = self.partitions.log_evidence
            height = known[0].estimate - log_evidence[known[0].size[0] - 1] if known else 0.0
            log_prior, errors = self.partitions.log_prior[rows], self.partitions.log_evidence_error[rows]
            return sizes, log_prior, height + log_evidence[rows], errors
        self._require_good()
        if self.curve is not None:
            relative, errors = self.curve.relative_to(self.estimated.best[0])
            height = self._good[0].estimate - relative[self._good[0].size[0] - 1]
            sizes = list(self.estimated.sizes)
            log_prior = np.array([self.prior.log_pmf(size) for size in sizes])
            return sizes, log_prior, (height + relative) / self.evaluator.scale, errors / self.evaluator.scale
        sizes = [visit.size for visit in self._good]
        log_prior = np.array([self.prior.log_pmf(size) for size in sizes])
        estimate = np.array([visit.estimate for visit in self._good]) / self.evaluator.scale
        return sizes, log_prior, estimate, np.array([self.standard_errors[size] for size in sizes])

    def _estimate_table(self) -> pd.DataFrame:
        found, by_size, scale = self.estimated, {visit.size: visit for visit in self._good}, self.evaluator.scale
        known = {size: (float(value), float(error)) for size, _, value, error in zip(*self.estimates(), strict=True)}
        rows = []
        for row, size in enumerate(found.sizes):
            visit = by_size.get(size)
            estimate, error = known[size]
            low, high = estimate - error, estimate + error
            if self.curve is not None or self.partitions is not None:
                # gains and chains say nothing of the height: only the fits' own bounds are proved
                low, high = np.nan if visit is None else visit.log_bound / scale, np.nan
            elif visit is not None and visit.annealed is not None:
                # an end on the wrong side of the estimate says no more than the error
                annealed_low, annealed_high = visit.annealed.lower / scale, visit.annealed.upper / scale
                low = annealed_low if annealed_low <= estimate else low
                high = high if annealed_high < estimate else annealed_high
            rows.append(
                {
                    **self._size_columns(size),
                    "log_prior": self.prior.log_pmf(size),
                    "log_evidence_lower": low,
                    "log_evidence_upper": high,
                    "log_evidence": estimate,
                    "standard_error": error,
                    "probability": found.probability[row],
                    "probability_lower": found.probability_lower[row],
                    "probability_upper": found.probability_upper[row],
                }
            )
        return pd.DataFrame(rows)

    def _size_columns(self, size: Size | None) -> dict[str, Any]:
        names = ("size",) if self.prior.dimension == 1 else self.evaluator.size_names
        return dict(zip(names, size if size is not None else ["unvisited"] * len(names), strict=True))

    def _training(self) -> Data:
        if self.training is None:
            raise ValueError("a search over a plain function has no data and no models; bring your own fits")
        return self.training


def _rebound(evaluator: Evaluator, prior: SizePrior, settings: SearchSettings, visits: tuple[Visit, ...]) -> Any:
    """The visits with the bounds that each would have shown under this prior."""
    empty = SearchState()
    search = witness_search(evaluator, prior, settings, empty)
    for visit in visits:
        search.record(visit.size, scaled(visit.evidence, evaluator.scale))
        bounds = search.bounds()
        yield replace(visit, log_lower=bounds.log_lower, log_upper=bounds.log_upper)
