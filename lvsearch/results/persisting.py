"""Looking for the components of one fit in others: at other sizes, from other starts, of other samples of the units.

What is found is an `lvsearch.scrutiny.persistence.Persistence`, which says what it means.
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
"""Sizes with less of the posterior are not looked at."""
MOST_OBSERVATIONS = 500_000
"""Of larger data, units drawn at random that hold about so many are compared by their members."""


class _Reference:
    """The fit whose components are looked for. `described`: the units that members are compared on."""

    def __init__(self, fit: FittedModel, described: Data):
        self.described = described
        self.fit = replace(fit, training=described)
        self.members: ComponentMembers = self.fit.members()
        own = self.fit.affinity(self.fit)
        others = ~np.eye(len(self.members.occupied), dtype=bool) & self.members.occupied
        self.nearest = None if own is None else np.max(np.where(others, own, 0.0), axis=1)

    def recurrence(self, other: FittedModel, source: Source, weight: float) -> Recurrence:
        """How much of each component is in another fit, which may be of other data on the same axes."""
        other = replace(other, training=self.described)
        others, affinity = other.members(), self.fit.affinity(other)
        by_parameters = np.zeros(0)
        if affinity is not None and self.nearest is not None:
            both = self.members.occupied[:, None] & others.occupied  # what is empty has parameters of its prior
            by_parameters = partners(np.where(both, _beyond(affinity, self.nearest), 0.0))
        by_members = partners(member_similarity(self.members, others))
        members, parameters = tuple(by_members.tolist()), tuple(by_parameters.tolist())
        return Recurrence(source, other.size, weight, members, parameters)


def _beyond(
    affinity: Float[np.ndarray, "component other"], nearest: Float[np.ndarray, " component"]
) -> Float[np.ndarray, "component other"]:
    """How far from the nearest other component of the same fit, 0, to the same one, 1."""
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
    """`SearchResult.persistence`, which says what it takes and raises."""
    evaluator, training = _searched(result)
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
    reference = _Reference(result.fit(best), _described(training, rng))
    at = _drawn_sizes(sizes, weights, bootstraps, rng)
    recurrences, failed = [], 0
    with progress_bar(len(sizes) + starts + bootstraps, "persistence", "fit", wanted=progress) as bar:
        for tried, weight in zip(sizes, weights, strict=True):
            recurrences.append(reference.recurrence(result.fit(tried), "sizes", float(weight)))
            bar.update()
        for source, tried, data in _others(evaluator, training, best, starts, at, rng):
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


def _others(
    evaluator: ModelEvaluator, training: Data, best: Size, starts: int, sizes: list[Size], rng: np.random.Generator
) -> Iterator[tuple[Source, Size, Dataset]]:
    """What is fitted from scratch: the same data, then samples of as many units, drawn with replacement."""
    for _ in range(starts):
        yield "starts", best, evaluator.data
    for number, size in enumerate(sizes):
        chosen = rng.integers(training.n_units, size=training.n_units)
        yield "samples", size, training.part(chosen, f"bootstrap sample {number}").dataset()


def fitted_from_scratch(
    evaluator: ModelEvaluator, data: Dataset, size: Size, seed: int, described: Data
) -> FittedModel | None:
    """A fit of `data` by the evaluator's model, its evidence not annealed, as one of `described`, which may be other
    data on the same axes; None where it is not a number."""
    prepare_programs()
    evidence = "plug-in" if evaluator.plug_in else "bound"
    other = ModelEvaluator(evaluator.base_model, data, evidence=evidence, seed=seed, chunks=evaluator.chunks)
    fit = other.evaluate(size, None, 0)
    return None if fit.info.failure is not None else fitted(fit, described)


def _probable_sizes(result: Findings) -> tuple[list[Size], Float[np.ndarray, " size"]]:
    """The sizes tried that hold more than a hundredth of the posterior, and their shares; of plug-in evidence, which
    gives bounds alone, and of a search by prediction, which has no posterior, the best one."""
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
    """`n` sizes from the posterior, each as often as its share of n says, to the nearest whole numbers."""
    at = np.searchsorted(np.cumsum(weights), (np.arange(n) + rng.uniform()) / n, side="right")
    return [sizes[min(place, len(sizes) - 1)] for place in rng.permutation(at)]


def _described(training: Data, rng: np.random.Generator) -> Data:
    """All units, or of large data so many at random as hold half a million observations."""
    share = MOST_OBSERVATIONS / max(training.n_observations, 1)
    if share >= 1:
        return training
    chosen = np.sort(rng.permutation(training.n_units)[: max(2, int(share * training.n_units))])
    return training.part(chosen, "compared by their members")


def _searched(result: Findings) -> tuple[ModelEvaluator, Data]:
    """The evaluator and the data of a search whose components can be looked for. ValueError, saying why, for others."""
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
