"""Compute the evidence of the first m units (documents, rows), for every m and in several orders of the units.

`SearchResult.robustness` uses it to show how the answer depends on the amount of data.
"""

import jax
import numpy as np
from jaxtyping import Int

from lvsearch.data.base import Data
from lvsearch.inference.chains import Chain, Sequential
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.evidence import evidence_chain, grow, sequential
from lvsearch.inference.generators import generator
from lvsearch.interrupts import was_interrupted
from lvsearch.models.contract import Model
from lvsearch.models.plain_arguments import checked_seed, whole_number
from lvsearch.progress import progress_bar
from lvsearch.results.findings import Findings
from lvsearch.results.repeated_searches import annealed_search, search_of_model
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.searching.allocation_evaluator import AllocationEvaluator
from lvsearch.searching.evaluators import ModelEvaluator

SWEEPS, PARTICLES = 12, 64
BEYOND = 2
"""The number of sizes that are included beyond the largest size that may be the best."""
MARK = 1.05
"""The ratio between neighbouring numbers of units at which the evidence is recorded."""


def robust_search(
    result: Findings, orders: int, most: int, max_size: int | None, *, seed: int, progress: bool
) -> Robustness:
    """Compute the log evidence of each size for growing numbers of units (documents, rows), in several random orders.

    For each order and size, units are added one by one by a particle filter. The log evidence of the units so far is
    read off after each. `SearchResult.robustness` calls this function.

    result: the search whose answer is examined.
    orders: the number of random orders of the units, at least 2.
    most: the largest number of units, at least 2; of more units, a new part is drawn for each order.
    max_size: the largest size; None for two beyond the sizes that may be the best.
    seed: decides orders and paths.
    progress: show a progress bar with a step for each order and size.

    Returns a `Robustness` with log evidence (orders, numbers of units, sizes) in nats.
    Raises ValueError for searches over a function or several size variables, evidence that is not annealed, and models
    whose units cannot be added one by one.
    """
    evaluator, training = _require_one_size_variable(result)
    orders, most = whole_number("orders", orders, least=2), whole_number("most", most, least=2)
    max_size = None if max_size is None else whole_number("max_size", max_size, least=2)
    largest = _largest_size(result) if max_size is None else max_size
    sizes = range(1, largest + 1)
    log_prior = np.array([result.prior.log_pmf((size,)) for size in sizes])
    seed, found = checked_seed(seed), []
    with progress_bar(orders * largest, "fewer units", "pass", wanted=progress) as bar:
        for order in range(orders):
            key_part, key_order, key_paths = jax.random.split(jax.random.fold_in(jax.random.key(seed), order), 3)
            part = _random_units(training, most, key_part)
            columns = []
            for size in sizes:
                if was_interrupted():
                    raise KeyboardInterrupt
                chain = evidence_chain(evaluator.model, part, (size,), None)
                sampler = _sampler(evaluator.model, chain, key_order)
                key = jax.random.fold_in(key_paths, size)
                grown = grow(sampler, key, SWEEPS, islands=1, particles=max(PARTICLES, chain.efficient_particles))
                columns.append(grown.log_evidence[: int(sampler.n_units), 0])
                bar.update()
            found.append(np.stack(columns, -1))
    units = min(len(one) for one in found)  # units without observations are left out, which differ between parts
    marks = _unit_marks(units)
    log_evidence = np.stack([one[marks - 1] for one in found])
    names = (training.nouns.units, evaluator.size_names[0])
    return Robustness(marks, log_evidence, log_prior, len(training), *names, result.why_unfinished)


def check_robust(result: Findings) -> None:
    """Raise ValueError if the answer of this search cannot be computed for fewer units. Nothing is fitted."""
    evaluator, _ = _require_one_size_variable(result)
    _sampler(evaluator.model, evidence_chain(evaluator.model, evaluator.data, (1,), None), jax.random.key(0))


def _require_one_size_variable(result: Findings) -> tuple[ModelEvaluator, Data]:
    """Return the evaluator and the training data of a search over one size variable.

    Raises ValueError for several size variables, a search over a plain function, and evidence that is not annealed.
    """
    by_partitions = isinstance(result.evaluator, AllocationEvaluator)
    evaluator, training = search_of_model(result) if by_partitions else annealed_search(result, "robustness")
    if len(evaluator.size_names) != 1:
        raise ValueError(f"got {len(evaluator.size_names)} size variables, expected one: what grows is one number")
    if evaluator.smallest_size != (1,):
        raise ValueError(
            f"got {evaluator.size_names[0]} that are given, such as by seeds, expected none: fewer units are compared "
            "at every size from 1 on"
        )
    return evaluator, training


def _largest_size(result: Findings) -> int:
    """Return the largest size to include: two beyond the largest that may be the best, within the sizes allowed."""
    beyond = max(size for (size,) in result.estimated.indistinguishable) + BEYOND
    return beyond if result.settings.max_size is None else max(2, min(beyond, result.settings.max_size[0]))


def _random_units(training: Data, most: int, key: jax.Array) -> Dataset:
    """Return `most` units of the training data, drawn without replacement in their order, or all if there are fewer."""
    if len(training) <= most:
        return training.dataset()
    rows = generator(key).choice(len(training), most, replace=False)
    return training.part(np.sort(rows), f"{most} of them").dataset()


def _sampler(model: Model, chain: Chain, key: jax.Array) -> Sequential:
    """Return a sampler that adds units (documents, rows) one by one, in an order drawn from `key`.

    One key gives the same order for chains of different sizes, so that their evidences can be compared.

    model: the model, for the message. chain: the sampler of all units at one size.

    Raises ValueError for models whose units cannot be added one by one.
    """
    found = sequential(chain, key)
    if found is None:
        raise ValueError(
            f"got {type(model).__name__}, expected a model whose units can come one after another: FiniteMixture, "
            "TiedMixture, FactorAnalyzerMixture, IndependentNormalMixture, MixtureOfUnigrams, or LDA with numbers as "
            "its concentrations"
        )
    return found


def _unit_marks(units: int) -> Int[np.ndarray, " mark"]:
    """Return the numbers of units at which the evidence is recorded, increasing from 1 to `units`.

    The first are 1, 2, 3, …; later ones grow by a factor of 1.05 (`MARK`).
    """
    ladder = np.round(np.exp(np.arange(0.0, np.log(units), np.log(MARK)))).astype(int)
    return np.unique(np.append(ladder, units))
