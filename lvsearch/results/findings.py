"""The class `Findings`: the numbers that a search found, as tables, fitted models and predictions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import jax
import numpy as np
import pandas as pd

from lvsearch.comparison.alignment import ComponentMap, component_map
from lvsearch.data.base import Data
from lvsearch.fitted.kinds import as_fitted_model
from lvsearch.fitted.mixture_posterior import MixturePosterior, estimate_from_chains
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.topics import ArrangedTopics, FittedTopics
from lvsearch.inference.engine.describing import UnitScores, score_units, unit_ceilings
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.models.plain_arguments import one_of
from lvsearch.recommending.evaluator import PredictiveEvaluator
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED, Scrutiny
from lvsearch.searching.allocation_evaluator import AllocationEvaluator
from lvsearch.searching.controller import SearchRules, SearchSettings, SearchState
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.guided import ComparesAllSizes
from lvsearch.sizing import bounds as bounds_of
from lvsearch.sizing.evidence import Evidence, Record, pooled
from lvsearch.sizing.fit import Evaluator, Fit, is_by_gains, smallest_size_of
from lvsearch.sizing.gains import EvidenceCurve, PooledGain, evidence_curve
from lvsearch.sizing.ledger import (
    Visit,
    near_mode,
    pooled_spread,
    record_of,
    scale_evidence,
    standard_error,
    with_evidence_from_gains,
)
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.posterior import EstimatedPosterior, PriorInfluence, estimate_posterior, posterior, prior_influence
from lvsearch.sizing.prediction import Prediction, estimate_prediction, predict_per_unit, predict_whole_set
from lvsearch.sizing.racing import unvisited_share
from lvsearch.sizing.sizes import Size, SizePrior, as_size, without_smaller
from lvsearch.sizing.univariate import require_prior
from lvsearch.sizing.witness import WitnessSearch
from lvsearch.sizing.words import size_text
from lvsearch.topics.readable_topics import Arrangement

FindingsType = TypeVar("FindingsType", bound="Findings")
KINDS = ("estimate", "certified", "diminishing")
SAMPLES = 200
"""The number of importance samples for each unit whose likelihood needs sampling."""
FEWEST_PREDICTING, MOST_PREDICTING, SCORED_ROWS = 500, 4000, 4_000_000
"""The numbers of draws that predict new rows: so many that they score about four million rows together."""
ROUNDING = 1e-12
"""The largest share of the prior that counts as 0, because it may be a rounding error of sums of probabilities."""


@dataclass(frozen=True)
class Findings:
    """Everything that a search found, as numbers; `SearchResult` adds words, pictures and a folder.

    All answers are computed from `state`. Nothing is fitted, except by `fit` for a size whose fit was not kept.

    | field | meaning |
    |---|---|
    | `evaluator`, `prior`, `settings` | the model with its data, the prior over sizes, how it was searched |
    | `state` | the sizes tried with their fits (visits), the fitted models that were kept, why the search stopped |
    | `training` | the data; None if a plain function was searched |
    | `seconds` | time spent, all sessions together |
    | `compiles` | kernel -> how often the search compiled it, all sessions together |
    | `scrutiny` | checks that were run on the result afterwards, such as an audit |
    | `held_out` | data that the search did not see, kept with it to compare sizes on; None if there are none |
    | `arrangement` | how reports show the topics of the best size, if `with_topics` said so; else None |
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
    arrangement: Arrangement | None = None

    # ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def visits(self) -> tuple[Visit, ...]:
        """The records of the sizes that the search tried, in order, each with all its fits and its evidence.

        Where chains over partitions compare all sizes, the evidence of each size is the one that the chains give.
        """
        if self.partitions is None:
            return self.state.visits
        known, errors = self.partitions.log_evidence, self.partitions.log_evidence_error
        places = {visit.size: self.partitions.place_of(visit.size) for visit in self.state.visits}
        of_size = {size: (known[place], errors[place]) for size, place in places.items() if place is not None}
        of_size = {size: found for size, found in of_size.items() if found[0] > -np.inf}
        heights = [visit.log_bound - of_size[visit.size][0] for visit in self.state.visits if visit.size in of_size]
        # chains know differences alone: all are raised until no bound of a fit lies above
        height = max((each for each in heights if np.isfinite(each)), default=0.0)
        # a size without evidence may have that which it had under another prior: it goes
        gains = {size: PooledGain(float(height + value), float(error)) for size, (value, error) in of_size.items()}
        return tuple(replace(visit, from_gains=gains.get(visit.size)) for visit in self.state.visits)

    @cached_property
    def partitions(self) -> MixturePosterior | None:
        """The posterior of all sizes from chains over partitions, under this result's prior; None without chains."""
        if not isinstance(self.evaluator, AllocationEvaluator) or self.state.partitions is None:
            return None
        found = self.evaluator.posterior(self.state.partitions, self.prior)
        return None if found is None else replace(found, training=self.training)

    @property
    def is_finished(self) -> bool:
        """True if the search ended by its own rule, so that more time would not change its answer."""
        return self.state.is_finished

    @property
    def why_unfinished(self) -> str | None:
        """The reason why the search did not finish, in words; None if it finished.

        Examples are "stopped after 60 seconds" and "interrupted". A loaded search that recorded no end says "killed, or
        still running elsewhere".
        """
        return self.state.why_unfinished

    @property
    def default_kind(self) -> str:
        """The kind of table that `posterior()` shows by default.

        It is "estimate" (a posterior with standard errors) for marginal evidence. For plug-in evidence it is
        "diminishing" (bounds that assume each further component helps less), or "certified" (bounds without that
        assumption) if there are several size variables.
        """
        if not self.evaluator.nested:
            return "estimate"
        return "diminishing" if self.prior.dimension == 1 else "certified"

    @cached_property
    def search(self) -> WitnessSearch:
        """The sizes tried with their evidence, as a `WitnessSearch`, which computes bounds on log p(data).

        Evidence is in nats, or in nats per token if the search weighs evidence per token.
        """
        return SearchRules(self.evaluator, self.prior, self.settings).witness_search(self.state)

    @cached_property
    def standard_errors(self) -> Mapping[Size, float]:
        """The standard error of the log evidence of each size with an estimate, as {size: nats}.

        Annealed evidence has an error of its own. For bounds the error is the spread of repeated fits. Where gains
        between sizes were measured, the error is that of the difference to the most probable size. With the setting
        `per_token`, all errors are divided by the number of observations.
        """
        repeatable, scale = self.evaluator.repeatable and not self.evaluator.anneals, self.evaluator.scale
        spread = pooled_spread(self._rankable) if repeatable else 0.0
        starts = self.settings.starts if repeatable else 1
        return {visit.size: standard_error(visit, spread, starts) / scale for visit in self._rankable}

    @cached_property
    def curve(self) -> EvidenceCurve | None:
        """The log evidence of all sizes relative to each other, if gains between sizes were measured; else None.

        A gain is the log evidence of a size minus that of the next smaller size.
        """
        return evidence_curve(self._rankable, self.settings.largest) if is_by_gains(self.evaluator) else None

    @cached_property
    def estimated(self) -> EstimatedPosterior:
        """The posterior over the sizes tried, averaged over the standard errors of their evidence.

        If gains between sizes were measured, sizes in between have a probability too. Raises ValueError if no fit
        succeeded.
        """
        if self.partitions is not None:
            return estimate_from_chains(self.partitions)
        self._require_rankable()
        if self.curve is not None:
            return self.curve.posterior(self.prior, self.evaluator.scale)
        return estimate_posterior(*self.estimates())

    @cached_property
    def influence(self) -> PriorInfluence:
        """A comparison of the posterior with that under a flat prior, which shows whether the prior still matters."""
        return prior_influence(*self.estimates())

    def certified(self) -> bounds_of.Certified:
        """Return bounds on log p(data) that rest on no assumption.

        For plug-in evidence they are bounds at the parameters that were fitted, not at the best parameters of each
        size.
        """
        return self.search.bounds()

    def diminishing(self) -> bounds_of.Diminishing:
        """Return bounds on log p(data) that assume diminishing gains: each further component helps no more than the
        last.

        For marginal evidence the assumption is applied to the estimates.
        """
        return self.search.diminishing() if self.evaluator.nested else self._estimate_search.diminishing()

    def posterior(self, kind: str | None = None) -> pd.DataFrame:
        """Return the posterior over sizes as a table with a row per size.

        Tables of kind "certified" and "diminishing" end with a row for all unvisited sizes together.

        kind: "estimate" (with standard errors), "certified" (no assumption) or "diminishing" (assumes diminishing
            gains); by default `default_kind`.

        Columns, in nats on the scale of the search: one per size variable, `log_prior`, `log_evidence_lower`,
        `log_evidence_upper`, `standard_error`, `probability_lower`, `probability_upper`; for "estimate" also
        `log_evidence` and `probability`.

        For "estimate", the lower and upper evidence are the stochastic ends of annealing, and the probabilities are 5 %
        and 95 % points. Without annealing, or if an end lies on the wrong side of the estimate, the end is the estimate
        ± one standard error. An upper end is NaN if a proved lower bound lies above it, or if gains were measured.

        For plug-in evidence, all ends are proved for the parameters that were fitted, not for the best parameters of a
        size.

        Raises ValueError for an unknown kind, and for "certified" under marginal evidence, where it would say nothing.
        """
        kind = self.default_kind if kind is None else one_of("kind", kind, KINDS)
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
        """Return a table with a row per size tried, in order: the proved bounds on log p(data) after it, and its time.

        Columns: one per size variable, `log_lower`, `log_upper` (nats), `seconds`. For plug-in evidence the bounds hold
        for the parameters that were fitted.
        """
        rows = [
            {
                **self._size_columns(visit.size),
                "log_lower": visit.log_lower,
                "log_upper": visit.log_upper,
                "seconds": visit.seconds,
            }
            for visit in self.visits
        ]
        return pd.DataFrame(rows, columns=[*self._size_columns(None), "log_lower", "log_upper", "seconds"])

    def starts(self) -> pd.DataFrame:
        """Return a table with a row per trial, that is per fit of a size, successful or not.

        Columns: one per size variable, `start` (where the fit began), `log_evidence_lower`, `log_evidence`,
        `log_evidence_upper`, `standard_error` (nats), `steps` (temperatures), `seconds`, `failure` (empty if it
        succeeded). An estimate from a variational bound includes the log number of equivalent relabellings of the
        components.
        """
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
        ends = ["log_evidence_lower", "log_evidence", "log_evidence_upper", "standard_error"]
        return pd.DataFrame(rows, columns=[*self._size_columns(None), "start", *ends, "steps", "seconds", "failure"])

    # ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def by_prediction(self) -> bool:
        """True if sizes were compared by how well they predict held-out units; then no size has a probability."""
        return isinstance(self.evaluator, PredictiveEvaluator)

    @cached_property
    def recommended(self) -> Recommendation | None:
        """The smallest size that predicts new units as well as any, with the table behind it; None if there is none.

        For a search by prediction it is the answer. Any other search has the recommendation that `with_recommended`
        added.
        """
        if isinstance(self.evaluator, PredictiveEvaluator):
            scored = any(trial.scores is not None for visit in self.visits for trial in visit.trials)
            return self.evaluator.recommendation(self.visits, self.settings.max_size) if scored else None
        return self.scrutiny.recommended

    @property
    def best_size(self) -> Size:
        """The most probable size: the largest prior times evidence, averaged over the errors of estimated evidence.

        For a search by prediction it is the recommended size. Where the size is only a limit (`IBP`) it is the most
        probable number in use. Raises ValueError if no fit succeeded.
        """
        if isinstance(self.evaluator, PredictiveEvaluator):
            return self.evaluator.recommendation(self.visits, self.settings.max_size).size
        if self.partitions is None:
            self._require_rankable()
        elif self.partitions.size_is_limit:
            return (int(np.argmax(self.partitions.size_chances)) + 1,)
        if not self.evaluator.nested:
            return self.estimated.best
        settings, evaluator = self.settings, self.evaluator
        near = near_mode(self.visits, self.prior, settings.starts, evaluator.scale, evaluator.repeatable)
        return near[0].size

    @cached_property
    def unvisited(self) -> tuple[float, float]:
        """The share of the prior and about the share of the posterior that sizes not tried hold, as (prior, posterior).

        Only sizes up to the largest allowed count. The share of the posterior assumes that the evidence runs smoothly
        between and beyond the sizes tried (`lvsearch.sizing.racing`). Where gains were measured, sizes in between have
        a probability, so only those beyond the last measured one are counted.
        """
        evaluator, most = self.evaluator, self.settings.max_size
        if self.partitions is not None:
            tried = log_sum([self.prior.log_pmf(size) for size in self.estimated.sizes])
            return self._prior_left(tried), max(0.0, 1.0 - float(self.estimated.probability.sum()))
        if self.curve is not None:
            end = self.curve.end
            measured = self.prior.log_box((1,), (end + 1,))
            return self._prior_left(measured), float(self.estimated.probability[-1])
        sizes = [visit.size for visit in self.visits]
        if most is not None:  # a search that went on with a smaller limit has tried sizes above it
            sizes = [size for size in sizes if all(number <= end for number, end in zip(size, most, strict=True))]
        tried = log_sum([self.prior.log_pmf(size) for size in sizes])
        return self._prior_left(tried), unvisited_share(self.visits, self.prior, most, evaluator.scale)

    @property
    def prior_above_largest(self) -> float:
        """The share of the prior that sizes above the largest allowed hold; 0 if every size is allowed.

        For several size variables, a size is above if any of its numbers is.
        """
        above = -math.expm1(min(0.0, self._log_prior_allowed))
        return above if above > ROUNDING else 0.0

    @property
    def _log_prior_allowed(self) -> float:
        """The log of the share of the prior that the sizes up to the largest allowed hold, nats."""
        most = self.settings.max_size
        if most is None:
            return 0.0
        return self.prior.log_box((1,) * self.prior.dimension, tuple(number + 1 for number in most))

    def _prior_left(self, tried: float) -> float:
        """Return the share of the prior that sizes hold which are allowed and were not tried.

        tried: the log of the share of the prior of the sizes that were tried, nats.
        """
        left = math.exp(min(0.0, self._log_prior_allowed)) - math.exp(min(0.0, tried))
        return left if left > ROUNDING else 0.0

    @property
    def not_compared(self) -> dict[Size, str]:
        """The sizes whose every fit failed, as {size: reason of the last failure}.

        Such a size has no evidence and no probability. It is not ruled out, because nothing was compared. Chains over
        partitions compare sizes without fits, so that there is none after a search by them.
        """
        if self.partitions is not None:
            return {}
        return {visit.size: visit.trials[-1].failure or "" for visit in self.visits if visit.failed}

    @property
    def best(self) -> FittedModel:
        """The fitted model of the most probable size, `best_size`."""
        return self.fit(self.best_size)

    @property
    def best_shown(self) -> FittedModel | ArrangedTopics:
        """The fit of the most probable size as reports show it: its topics as `with_topics` arranged them.

        It is `best` where nobody arranged its topics, or where another prior made another size the most probable one.
        """
        best, arrangement = self.best, self.arrangement
        if arrangement is None or not isinstance(best, FittedTopics):
            return best
        return ArrangedTopics(best, arrangement) if arrangement.n_topics == best.estimate.size[0] else best

    def fit(self, size: Size | int) -> FittedModel:
        """Return the fitted model of a size: the one that was kept, or a new fit if none was kept.

        The last new fit is remembered: where gains between sizes were measured, the most probable size is often one
        that the search did not fit, and `best` is asked for again and again.

        size: a number, or a tuple for several size variables.
        Raises ValueError for a search over a plain function, which has no models.
        """
        size, training = as_size(size, self.prior.dimension), self._training()
        kept = self.state.kept.get(size)
        if kept is None or kept.state is None:
            if size not in self._last_refit:
                evaluator = cast(ModelEvaluator, self.evaluator)
                chains = evaluator if isinstance(evaluator, ComparesAllSizes) else None
                start = None if chains is None else chains.start_of(self.state.partitions, size)
                fit = evaluator.refit(size) if start is None else evaluator.evaluate(size, start, 0)
                self._last_refit.clear()  # fits are large
                self._last_refit[size] = fit
            kept = self._last_refit[size]
        return as_fitted_model(kept, training)

    @cached_property
    def _last_refit(self) -> dict[Size, Fit]:
        """The last fit that `fit` made because the search kept none of its size, as {size: fit}; empty before."""
        return {}

    def with_prior(self: FindingsType, prior: SizePrior) -> FindingsType:
        """Return the same fits under another prior over sizes; nothing is fitted again.

        A row of the new `bounds()` shows what a search under the new prior would have shown with the final evidence of
        every size. If the fit of the most probable size was not kept, `best` fits it again.

        prior: a prior over the same number of size variables.
        Raises ValueError for an object that is no prior, and for a prior over another number of size variables. After
        chains over partitions, raises ValueError for a prior with sizes that the prior of the search excluded, and for
        one without any size that the chains drew.
        """
        require_prior(prior)
        if prior.dimension != self.prior.dimension:
            raise ValueError(f"got a prior over {prior.dimension} size variable(s), expected {self.prior.dimension}")
        prior = without_smaller(prior, smallest_size_of(self.evaluator))
        if isinstance(self.evaluator, AllocationEvaluator) and self.state.partitions is not None:
            self.evaluator.require_known(self.state.partitions, prior, self.settings.max_size)
        visits = tuple(_visits_under_prior(self.evaluator, prior, self.settings, self.visits))
        if is_by_gains(self.evaluator):
            visits = with_evidence_from_gains(visits, prior, self.settings.largest, self.evaluator.scale)
        state = replace(self.state, visits=visits)
        return replace(self, prior=prior, state=state, scrutiny=self.scrutiny.with_prior(prior))

    def predict(self, test: Any) -> Prediction:
        """Return how probable new units are given the training data, averaged over sizes, in nats, as a `Prediction`.

        Chains over partitions give an estimate over draws of all sizes and parameters (`MixtureDraws.predict`). Other
        marginal evidence, and another prior than that of the chains, give an estimate over the sizes whose fit was
        kept. There each unit is scored by itself, as in `compare_held_out`: rows of a mixture with parameters
        integrated out under the fit, units of other models at parameters at their posterior means. `estimate.method`
        says which.

        Plug-in evidence gives intervals for the parameters that were fitted. Under it, a size whose fit was not kept
        (setting `keep`) may predict anything between probability 0 and the model's upper bound (the ceiling).

        test: units that the search did not see, on the axes of the training data.
        Raises ValueError if no kept size has any probability, and for data on other axes.
        """
        training = self._training()
        data = training.like_this(test)
        chains = self.partitions
        if chains is not None and chains.can_draw:
            draws = min(MOST_PREDICTING, max(FEWEST_PREDICTING, SCORED_ROWS // max(1, data.n_units)))
            return Prediction(None, None, chains.draws(draws).predict(data))
        known = {size: as_fitted_model(fit, training) for size, fit in self.state.kept.items() if fit.state is not None}
        if not self.evaluator.nested:
            sizes = [size for size in self.estimated.sizes if size in known]
            weights = np.array([self.estimated.probability[self.estimated.sizes.index(size)] for size in sizes])
            if not weights.sum() > 0:
                raise ValueError(
                    "no kept fit has any probability under this prior: fit the best size with result.fit(size) and "
                    "score it, or search under this prior"
                )
            by_size = self.score_units_by_size(data, sizes, SAMPLES, seed=0)
            scores, method = np.stack([by_size[size].per_unit for size in sizes]), by_size[sizes[-1]].method
            found = estimate_prediction(weights / weights.sum(), scores, training.nouns.unit, method)
            return Prediction(None, None, found)
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

    def score_units_by_size(self, data: Data, sizes: Sequence[Size], samples: int, seed: int) -> dict[Size, UnitScores]:
        """Return log p(unit | fit) of each unit under the fit of each size, {size: scores in nats}.

        All sizes share the padded size and the random key, so that their differences share the noise of sampling.

        data: units on the axes of the training data. sizes: sizes; those whose fit was not kept are fitted again.
        samples: the number of samples per unit, for models whose likelihood needs sampling. seed: the seed of these.
        """
        capacity = tuple(max(sizes_of_one) for sizes_of_one in zip(*map(capacity_of, sizes), strict=True))
        batches, key = data.dataset(), jax.random.key(seed)
        estimates = {size: self.fit(size).estimate for size in sizes}
        return {
            size: score_units(each.model, each, batches, capacity=capacity, samples=samples, key=key)
            for size, each in estimates.items()
        }

    def component_map(self, size: Size | int, larger: Size | int | None = None) -> ComponentMap:
        """Return which components split, which merged and which stayed between the fits of two sizes.

        Components are matched by the training units that they share, or by the elements of units that differ in length,
        such as the rows of sequences. Sizes whose fit was not kept are fitted again.

        size: the smaller size.
        larger: the larger size; by default the next larger size that was tried.
        Raises ValueError if no larger size was tried.
        """
        training = self._training()
        described = (self.fit(each).transform(training) for each in self.sizes_of_map(size, larger))
        # units that differ in length, such as sequences, are described element by element
        return component_map(*(np.concatenate(each) if isinstance(each, list) else each for each in described))

    def sizes_of_map(self, size: Size | int, larger: Size | int | None = None) -> tuple[Size, Size]:
        """Return the two sizes that `component_map` compares, as tuples.

        size: the smaller size.
        larger: the larger size; by default the next larger size that was tried.
        Raises ValueError if no larger size was tried.
        """
        size = as_size(size, self.prior.dimension)
        if larger is not None:
            return size, as_size(larger, self.prior.dimension)
        beyond = sorted(visit.size for visit in self.visits if visit.size > size and not visit.failed)
        if not beyond:
            raise ValueError(f"got size {size}, expected one below the largest visited: say larger= yourself")
        return size, beyond[0]

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _rankable(self) -> tuple[Visit, ...]:
        """The records of the sizes whose evidence can be ranked: not failed, and log evidence above −∞."""
        return tuple(visit for visit in self.visits if not visit.failed and visit.estimate > -np.inf)

    def _require_rankable(self) -> None:
        """Raise ValueError, with the reason, if no size that was tried has evidence and positive prior probability.

        A search by prediction has no evidence.
        """
        if self.by_prediction:
            raise ValueError(
                'got a search with evidence="predictive", which gives sizes no probability; expected "marginal". What '
                "it found is result.recommended"
            )
        if not self.visits:
            raise ValueError("no size was visited: the search was stopped before its first fit; search again")
        if not self._rankable:
            reasons = {trial.failure for visit in self.visits for trial in visit.trials if trial.failure}
            why = f" ({sorted(reasons)[0]})" if reasons else ""
            raise ValueError(f"no fit succeeded: every visit failed or has no evidence{why}; see result.starts()")
        if all(self.prior.log_pmf(visit.size) == -np.inf for visit in self._rankable):
            tried = ", ".join(size_text(visit.size) for visit in self._rankable)
            raise ValueError(
                f"the prior gives no mass to any size fitted ({tried}): change the prior, or search further"
            )

    @cached_property
    def _estimate_search(self) -> WitnessSearch:
        """The estimated log evidence of each size as a `WitnessSearch`, for bounds that assume diminishing gains."""
        scale = self.evaluator.scale
        self._require_rankable()
        records = {
            v.size: Record(v.size, Evidence(v.estimate / scale, v.estimate / scale, self.standard_errors[v.size]))
            for v in self._rankable
        }
        # the first size must be there, even if its fit failed and nothing is known of it
        first = records.get(self.visits[0].size, record_of(self.visits[0], scale))
        if self.partitions is not None:  # chains may know nothing of the first size: then its fit does
            records = {n: Record(n, Evidence(v, v, e)) for n, _, v, e in zip(*self.estimates(), strict=True)}
        records = {first.size: first, **records}
        return WitnessSearch.from_records(self.prior, np.inf, False, self.settings.max_size, list(records.values()))

    def estimates(self) -> tuple[list[Size], np.ndarray, np.ndarray, np.ndarray]:
        """Return (sizes, log prior, estimated log evidence, its standard error) of the sizes that have an estimate.

        The three arrays have shape (sizes,) and are in nats. Where gains between sizes were measured, every size up to
        the end of the curve is included. Standard errors are then those of the differences to the most probable size.

        Raises ValueError for a search by prediction, which has no evidence, and if no fit succeeded.
        """
        if self.partitions is not None:
            known = [visit for visit in self.visits if visit.from_gains is not None]
            log_evidence = self.partitions.log_evidence
            # nothing is known of a size between the others that the prior excludes
            shown = [tuple(number - 1 for number in size) for size in self.estimated.sizes]
            places = np.array([place for place in shown if log_evidence[place] > -np.inf])
            rows = tuple(places.T)
            height = known[0].estimate - log_evidence[self.partitions.place_of(known[0].size)] if known else 0.0
            log_prior, errors = self.partitions.log_prior[rows], self.partitions.log_evidence_error[rows]
            return [tuple(each) for each in (places + 1).tolist()], log_prior, height + log_evidence[rows], errors
        self._require_rankable()
        if self.curve is not None:
            relative, errors = self.curve.relative_to(self.estimated.best[0])
            height = self._rankable[0].estimate - relative[self._rankable[0].size[0] - 1]
            sizes = list(self.estimated.sizes)
            log_prior = np.array([self.prior.log_pmf(size) for size in sizes])
            return sizes, log_prior, (height + relative) / self.evaluator.scale, errors / self.evaluator.scale
        sizes = [visit.size for visit in self._rankable]
        log_prior = np.array([self.prior.log_pmf(size) for size in sizes])
        estimate = np.array([visit.estimate for visit in self._rankable]) / self.evaluator.scale
        return sizes, log_prior, estimate, np.array([self.standard_errors[size] for size in sizes])

    def _estimate_table(self) -> pd.DataFrame:
        """Return the estimated posterior as a table with a row per size; `posterior` documents its columns."""
        found, by_size, scale = self.estimated, {visit.size: visit for visit in self._rankable}, self.evaluator.scale
        known = {size: (float(value), float(error)) for size, _, value, error in zip(*self.estimates(), strict=True)}
        rows = []
        for row, size in enumerate(found.sizes):
            visit = by_size.get(size)
            estimate, error = known.get(size, (np.nan, np.nan))
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
        """Return {column: number} for the columns of a table that name a size; for None, {column: "unvisited"}."""
        names = ("size",) if self.prior.dimension == 1 else self.evaluator.size_names
        return dict(zip(names, size if size is not None else ["unvisited"] * len(names), strict=True))

    def _training(self) -> Data:
        """Return the training data. Raises ValueError for a search over a plain function, which has none."""
        if self.training is None:
            raise ValueError("a search over a plain function has no data and no models; bring your own fits")
        return self.training


def _visits_under_prior(
    evaluator: Evaluator, prior: SizePrior, settings: SearchSettings, visits: tuple[Visit, ...]
) -> Any:
    """Yield the record of each size tried, with the bounds on log p(data) that a search under `prior` would have shown.

    The bounds use the final evidence of each size.

    visits: the records of the sizes tried, in the order of the search.
    """
    search = SearchRules(evaluator, prior, settings).witness_search(SearchState())
    for visit in visits:
        search.record(visit.size, scale_evidence(visit.evidence, evaluator.scale))
        bounds = search.bounds()
        yield replace(visit, log_lower=bounds.log_lower, log_upper=bounds.log_upper)
