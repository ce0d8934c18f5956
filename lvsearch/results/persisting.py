"""Look for the components of one fit in other fits: at other sizes, from other starts, and of resampled units.

`SearchResult.persistence` calls `persistence_of`. The result is a `lvsearch.scrutiny.persistence.Persistence`, whose
docstring says how to read it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from lvsearch.comparison.similarity import ComponentMembers, member_similarity, partners
from lvsearch.data import Data
from lvsearch.fitted.kinds import as_fitted_model
from lvsearch.fitted.model import FittedModel
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.data.dataset import Dataset
from lvsearch.models.plain_arguments import LARGEST_SEED, checked_seed, real_number, whole_number
from lvsearch.progress import progress_bar
from lvsearch.results.findings import Findings
from lvsearch.results.repeated_searches import search_of_model
from lvsearch.scrutiny.persistence import Persistence, Recurrence, Source
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.sizes import Size, as_size

LEAST_PROBABLE = 0.01
"""The smallest posterior probability of a size whose fit is compared."""
MOST_OBSERVATIONS = 500_000
"""About the number of observations (tokens, rows) on which components are compared.

Of larger data, units are drawn at random.
"""


class _Reference:
    """The fit whose components are looked for in other fits.

    fit: the fit.
    described: the data on which components are compared, by the observations that they hold.
    """

    def __init__(self, fit: FittedModel, described: Data):
        self.described = described
        self.fit = replace(fit, training=described)
        self.members: ComponentMembers = self.fit.members()
        own = self.fit.affinity(self.fit)
        others = ~np.eye(len(self.members.occupied), dtype=bool) & self.members.occupied
        self.nearest = None if own is None else np.max(np.where(others, own, 0.0), axis=1)

    def recurrence(self, other: FittedModel, source: Source, weight: float) -> Recurrence:
        """Return how similar each component of this fit is to its partner in another fit, from 0 (chance) to 1 (equal).

        Partners are matched one to one, once by the observations in both components (`members`) and once by their
        parameters.

        other: the other fit; its data may be different, but must have the same words or columns.
        source: where the other fit comes from: "sizes", "starts" or "samples".
        weight: the weight of the other fit among those of the same source.
        """
        other = replace(other, training=self.described)
        others, affinity = other.members(), self.fit.affinity(other)
        by_parameters = np.zeros(0)
        if affinity is not None and self.nearest is not None:
            both = self.members.occupied[:, None] & others.occupied  # empty components have the parameters of the prior
            by_parameters = partners(np.where(both, _relative_affinity(affinity, self.nearest), 0.0))
        by_members = partners(member_similarity(self.members, others))
        members, parameters = tuple(by_members.tolist()), tuple(by_parameters.tolist())
        return Recurrence(source, other.size, weight, members, parameters)


def _relative_affinity(
    affinity: Float[np.ndarray, "component other"], nearest: Float[np.ndarray, " component"]
) -> Float[np.ndarray, "component other"]:
    """Rescale affinities so that 0 means "like the nearest other component of the same fit" and 1 means "the same".

    An affinity is the Bhattacharyya coefficient of the distributions of two components, from 0 to 1.

    affinity: between components of the reference fit and of another fit, (component, other).
    nearest: affinity of each reference component to the nearest other one of its own fit, (component,).

    Returns (component, other), from 0 to 1.
    """
    return np.clip((affinity - nearest[:, None]) / np.maximum(1 - nearest[:, None], 1e-12), 0.0, 1.0)


def persistence_of(
    result: Findings,
    size: Size | int | None,
    *,
    bootstraps: int,
    starts: int,
    threshold: float | int,
    seed: int,
    progress: bool,
) -> Persistence:
    """Return how often each component of one fit is found again in other fits. `SearchResult.persistence` calls it.

    The other fits are at other probable sizes, from other starts, and of bootstrap samples of the units.

    result: the search over a model with one size variable.
    size: the size of the fit whose components are looked for; None for the best size.
    bootstraps: the number of bootstrap samples, each fitted at a size drawn from the posterior, at least 1.
    starts: the number of fits of the same data at the same size from other starts.
    threshold: the similarity, between 0 and 1, above which a component counts as found again.
    seed: decides samples and starts.
    progress: show a progress bar with a step for each fit.

    Raises ValueError for searches over a plain function, several size variables, a single unit, and counts that are too
    small.
    """
    evaluator, training = _require_components(result)
    seed = checked_seed(seed)
    bootstraps, starts = whole_number("bootstraps", bootstraps, least=1), whole_number("starts", starts, least=0)
    threshold = real_number("threshold", threshold, above=0, below=1)
    if training.n_units < 2:
        raise ValueError(
            f"got 1 {training.nouns.unit}, of which there are no other samples; expected several: cut it into pieces "
            f"that are {training.nouns.units} of their own"
        )
    best = result.best_size if size is None else as_size(size, result.prior.dimension)
    sizes, weights = _probable_sizes(result)
    rng = np.random.default_rng(seed)
    reference = _Reference(result.fit(best), _units_to_describe(training, rng))
    at = _drawn_sizes(sizes, weights, bootstraps, rng)
    # fits at other sizes are weighted by the posterior; fits from scratch (starts and samples) count alike
    recurrences, failed = [], 0
    with progress_bar(len(sizes) + starts + bootstraps, "persistence", "fit", wanted=progress) as bar:
        for tried, weight in zip(sizes, weights, strict=True):
            recurrences.append(reference.recurrence(result.fit(tried), "sizes", float(weight)))
            bar.update()
        for source, tried, data in _other_fits(evaluator, training, best, starts, at, rng):
            fit = fitted_from_scratch(evaluator, data, tried, int(rng.integers(LARGEST_SEED)), reference.described)
            if fit is None:
                failed += 1
            else:
                recurrences.append(reference.recurrence(fit, source, 1.0))
            bar.update()
    return Persistence(
        best,
        evaluator.size_names,
        reference.fit.component_names(),
        tuple(reference.members.amount.tolist()),
        reference.members.noun,
        tuple(recurrences),
        failed,
        threshold,
        seed,
        result.why_unfinished,
    )


def _other_fits(
    evaluator: ModelEvaluator, training: Data, best: Size, starts: int, sizes: list[Size], rng: np.random.Generator
) -> Iterator[tuple[Source, Size, Dataset]]:
    """Yield (source, size, data) of each fit from scratch: first the same data, then bootstrap samples of the units.

    evaluator: the evaluator of the search, with its data.
    training: the data that are resampled.
    best: the size of the fits of the same data.
    starts: the number of fits of the same data.
    sizes: the size of each bootstrap fit, one per sample.
    """
    for _ in range(starts):
        yield "starts", best, evaluator.data
    for number, size in enumerate(sizes):
        chosen = rng.integers(training.n_units, size=training.n_units)
        yield "samples", size, training.part(chosen, f"bootstrap sample {number}").dataset()


def fitted_from_scratch(
    evaluator: ModelEvaluator, data: Dataset, size: Size, seed: int, described: Data
) -> FittedModel | None:
    """Fit the evaluator's model to `data` from a random start, without annealing, and return the fitted model.

    evaluator: the evaluator whose model, kind of evidence and chunk sizes are used.
    data: the data that are fitted.
    size: the size of the fit.
    seed: the seed of its random start.
    described: the data that become the returned fit's `training` data, with the words or columns of `data`.

    Returns None if the fit failed.
    """
    prepare_programs()
    evidence = "plug-in" if evaluator.plug_in else "bound"
    other = ModelEvaluator(evaluator.base_model, data, evidence=evidence, seed=seed, chunks=evaluator.chunks)
    fit = other.evaluate(size, None, 0)
    return None if fit.info.failure is not None else as_fitted_model(fit, described)


def _probable_sizes(result: Findings) -> tuple[list[Size], Float[np.ndarray, " size"]]:
    """Return the sizes that hold at least a hundredth of the posterior, and their probabilities scaled to sum to 1.

    Plug-in evidence and searches by prediction give no probabilities: then the best size alone is returned.
    """
    if result.evaluator.nested or result.by_prediction:
        return [result.best_size], np.ones(1)
    found = result.estimated
    probability = np.asarray(found.probability, np.float64)
    chosen = np.flatnonzero(probability >= min(LEAST_PROBABLE, probability.max())).tolist()
    weights = probability[chosen]
    return [found.sizes[row] for row in chosen], weights / weights.sum()


def _drawn_sizes(
    sizes: list[Size], weights: Float[np.ndarray, " size"], n: int, rng: np.random.Generator
) -> list[Size]:
    """Draw `n` sizes from the posterior by systematic sampling, in random order.

    Each size comes as often as its weight times n, rounded up or down.

    sizes: the sizes to draw from. weights: their probabilities, summing to 1.
    """
    at = np.searchsorted(np.cumsum(weights), (np.arange(n) + rng.uniform()) / n, side="right")
    return [sizes[min(place, len(sizes) - 1)] for place in rng.permutation(at)]


def _units_to_describe(training: Data, rng: np.random.Generator) -> Data:
    """Return the data on which components are compared: all units, or a random sample of about 500,000 observations."""
    share = MOST_OBSERVATIONS / max(training.n_observations, 1)
    if share >= 1:
        return training
    chosen = np.sort(rng.permutation(training.n_units)[: max(2, int(share * training.n_units))])
    return training.part(chosen, "compared by their members")


def _require_components(result: Findings) -> tuple[ModelEvaluator, Data]:
    """Return the evaluator and the training data of a search whose components can be looked for.

    Raises ValueError, with the reason, for searches over a plain function and models with several size variables.
    """
    evaluator, training = search_of_model(result)
    if len(evaluator.size_names) != 1:
        raise ValueError(
            f"got a model of {' and '.join(evaluator.size_names)}, expected one with components of one kind: compare "
            "fits of several by their labels, result.fit(size).row_labels()"
        )
    return evaluator, training
