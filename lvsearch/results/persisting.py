"""Look for the components of one fit in other fits: at other sizes, from other starts, and of other samples of the
units.

`SearchResult.persistence` calls `persistence_of`. The result is a `lvsearch.scrutiny.persistence.Persistence`, whose
docstring says how to read it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from lvsearch.comparison.similarity import ComponentMembers, member_similarity, partners
from lvsearch.data import Data
from lvsearch.fitted.kinds import fitted
from lvsearch.fitted.model import FittedModel
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.data.dataset import Dataset
from lvsearch.models.plain_arguments import real_number, whole_number
from lvsearch.progress import progress_bar
from lvsearch.results.findings import Findings
from lvsearch.scrutiny.persistence import Persistence, Recurrence, Source
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.seeds import LARGEST_SEED, checked_seed
from lvsearch.sizing.sizes import Size, as_size

LEAST_PROBABLE = 0.01
"""The smallest posterior probability of a size whose fit is compared."""
MOST_OBSERVATIONS = 500_000
"""About how many observations are used to compare components by their members; of larger data, units are drawn at
random.
"""


class _Reference:
    """The fit whose components are looked for, described on the units `described`, on which members are compared."""

    def __init__(self, fit: FittedModel, described: Data):
        self.described = described
        self.fit = replace(fit, training=described)
        self.members: ComponentMembers = self.fit.members()
        own = self.fit.affinity(self.fit)
        others = ~np.eye(len(self.members.occupied), dtype=bool) & self.members.occupied
        self.nearest = None if own is None else np.max(np.where(others, own, 0.0), axis=1)

    def recurrence(self, other: FittedModel, source: Source, weight: float) -> Recurrence:
        """Measure how far each component of the reference is found in another fit, by its members and by its
        parameters.

        other: the other fit; its data may be different, but must have the same axes
        source: where the other fit comes from: "sizes", "starts" or "samples"
        weight: the weight of the other fit among those of the same source
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

    affinity: between components of the reference and of another fit, (component, other)
    nearest: affinity of each reference component to the nearest other one of its own fit, (component,)
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
    """Compute which components are found again in other fits; the implementation of `SearchResult.persistence`.

    Arguments and errors are documented there. Returns a `Persistence`.
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

    starts: how many fits of the same data at size `best`
    sizes: the size of each bootstrap fit, one per sample
    """
    for _ in range(starts):
        yield "starts", best, evaluator.data
    for number, size in enumerate(sizes):
        chosen = rng.integers(training.n_units, size=training.n_units)
        yield "samples", size, training.part(chosen, f"bootstrap sample {number}").dataset()


def fitted_from_scratch(
    evaluator: ModelEvaluator, data: Dataset, size: Size, seed: int, described: Data
) -> FittedModel | None:
    """Fit the evaluator's model to `data` without annealing its evidence, and return the fit described on other data.

    evaluator: says which model, which kind of evidence and which chunk sizes
    data: the data that are fitted
    size: the size of the fit
    seed: of its random start
    described: the data that the returned fit speaks of; on the same axes as `data`

    Returns None if the fit failed.
    """
    prepare_programs()
    evidence = "plug-in" if evaluator.plug_in else "bound"
    other = ModelEvaluator(evaluator.base_model, data, evidence=evidence, seed=seed, chunks=evaluator.chunks)
    fit = other.evaluate(size, None, 0)
    return None if fit.info.failure is not None else fitted(fit, described)


def _probable_sizes(result: Findings) -> tuple[list[Size], Float[np.ndarray, " size"]]:
    """Return the sizes that hold at least a hundredth of the posterior, and their probabilities scaled to sum to 1.

    Plug-in evidence and searches by prediction have no such probabilities: then the best size alone is returned.
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

    Each size comes as often as its weight times n, to the nearest whole numbers.
    """
    at = np.searchsorted(np.cumsum(weights), (np.arange(n) + rng.uniform()) / n, side="right")
    return [sizes[min(place, len(sizes) - 1)] for place in rng.permutation(at)]


def _units_to_describe(training: Data, rng: np.random.Generator) -> Data:
    """Return all units, or of large data a random sample of units with about half a million observations."""
    share = MOST_OBSERVATIONS / max(training.n_observations, 1)
    if share >= 1:
        return training
    chosen = np.sort(rng.permutation(training.n_units)[: max(2, int(share * training.n_units))])
    return training.part(chosen, "compared by their members")


def _require_components(result: Findings) -> tuple[ModelEvaluator, Data]:
    """Return the evaluator and the training data of a search whose components can be looked for.

    Raises ValueError, with the reason, for searches over a plain function and models with several size variables.
    """
    evaluator, training = result.evaluator, result.training
    if not isinstance(evaluator, ModelEvaluator) or training is None:
        raise ValueError(
            "got a search without a model or without data, over a plain function say: it has no components. Search a "
            "model of lvsearch.models"
        )
    if len(evaluator.size_names) != 1:
        raise ValueError(
            f"got a model of {' and '.join(evaluator.size_names)}, expected one with components of one kind: compare "
            "fits of several by their labels, result.fit(size).row_labels()"
        )
    return evaluator, training
