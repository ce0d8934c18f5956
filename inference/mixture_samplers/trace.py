"""Run one chain over partitions of rows from beginning to end, and record the partitions it visits."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixture_samplers.chain import Sweep, chain_rows, log_occupancy, natural_of_labels
from lvsearch.inference.mixture_samplers.sampler import FIRST_CAPACITY, PartitionRecorder, partition_sampler
from lvsearch.inference.mixtures.partitions import by_appearance
from lvsearch.inference.mixtures.predictive import weighted_predictive
from lvsearch.inference.sampling import run
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel

Weights = Callable[[Float[np.ndarray, " place"], float], tuple[np.ndarray, float]]
"""The type of a function (rows of each component, α) -> (expected weight of each component, weight of all new ones)."""


@dataclass(frozen=True)
class MixtureTrace:
    """The record of one chain over partitions of rows. Most arrays have one entry for each sweep.

    | field | meaning |
    |---|---|
    | `model`, `data` | the mixture and the rows that the chain ran on |
    | `weights` | the function (rows of each component, α) -> expected mixture weights, for predictive densities |
    | `occupied` | (sweep,) how many components have rows |
    | `largest` | (sweep,) rows in the largest component |
    | `alpha` | (sweep,) the concentration α |
    | `seconds` | (sweep,) seconds of each sweep, averaged over one compiled call; the first include compiling |
    | `kept` | (kept, row) the label of each row after every `keep`-th sweep |
    | `kept_alpha` | (kept,) the concentration after the same sweeps |
    """

    model: DPMixture
    data: Dataset
    weights: Weights
    occupied: Int[np.ndarray, " sweep"]
    largest: Int[np.ndarray, " sweep"]
    alpha: Float[np.ndarray, " sweep"]
    seconds: Float[np.ndarray, " sweep"]
    kept: Int[np.ndarray, "kept row"]
    kept_alpha: Float[np.ndarray, " kept"]

    def partitions(self) -> Int[np.ndarray, "kept row"]:
        """Return the kept labels, (kept, row), with the components of each partition numbered from 0 in order of
        appearance.
        """
        return np.stack([by_appearance(labels) for labels in self.kept])

    def predictive_log_density(self, data: Dataset) -> Float[np.ndarray, " rows"]:
        """Return the log predictive density of each row of `data`, averaged over the kept partitions, (row,), in nats.

        data: the rows to score, in or outside the data that the chain ran on. Eq. 5.10 and 5.16 of Blei (2004).

        Raises ValueError if no partition was kept.
        """
        if not len(self.kept):
            raise ValueError("got a chain that kept no partitions, expected some: run the chain with keep=1")
        units, _ = rows_of(data)
        component = self.model.components
        component.check(units)
        places = -(-(int(self.kept.max()) + 1) // FIRST_CAPACITY) * FIRST_CAPACITY  # few shapes to compile
        with jax.enable_x64(True):
            rows = chain_rows(self.model, self.data)
            each = []
            for labels, alpha in zip(self.kept, self.kept_alpha, strict=True):
                natural, counts = _natural_of_labels(jnp.asarray(labels), rows, capacity=places)
                weights, left = self.weights(np.asarray(counts), float(alpha))
                each.append(weighted_predictive(component, natural, weights, left, units))
        return np.logaddexp.reduce(each, axis=0) - np.log(len(each))


def run_chain(
    sweep: Sweep,
    weights: Weights,
    model: MixtureModel,
    data: Dataset,
    key: Array,
    sweeps: int,
    keep: int,
    start: Any,
    capacity: int | None,
    log_prior: Callable[[Array, Array], Array] = log_occupancy,
    *,
    one_by_one: bool = False,
) -> MixtureTrace:
    """Run one chain over partitions in float64, and return its record.

    sweep: the function that makes one sweep.
    weights: (rows of each component, α) -> expected mixture weights, kept in the record for predictive densities.
    model: a `DPMixture`.
    data: the rows.
    key: the random key of the run.
    sweeps: how many sweeps to make.
    keep: keep the labels after every keep-th sweep; 0 keeps none.
    start: labels (row,) to begin with; None puts all rows into one component.
    capacity: the fixed number of array slots for components; None lets it grow as needed.
    log_prior: (rows of each component, α) -> log p(labels | α), nats.
    one_by_one: True if a sweep is a loop over the rows, each drawn given all others.

    Raises ValueError for a model that is no `DPMixture`, and for counts or starts that do not fit. Raises
    KeyboardInterrupt if the run is interrupted, since a part of a chain is of no use to callers.
    """
    if not isinstance(model, DPMixture):
        raise ValueError(f"got a model of type {type(model).__name__}, expected a DPMixture")
    if sweeps < 1 or keep < 0:
        raise ValueError(f"got sweeps={sweeps}, keep={keep}; expected at least 1 sweep, and keep ≥ 0 (0 keeps nothing)")
    labels = by_appearance(np.zeros(data.n_units, int) if start is None else start)
    if len(labels) != data.n_units:
        raise ValueError(f"got start with {len(labels)} labels, expected one for each of {data.n_units} rows")
    if capacity is not None and labels.max() >= capacity:
        raise ValueError(f"got start with {labels.max() + 1} components, expected at most the truncation {capacity}")
    sampler = partition_sampler(sweep, log_prior, model, data, labels[None], capacity, one_by_one=one_by_one)
    # Every compiled call reports how many sweeps it made; its seconds are shared among them evenly.
    seconds, begun = [], perf_counter()

    def done(n: int) -> None:
        nonlocal begun
        now = perf_counter()
        seconds.extend([(now - begun) / n] * n)
        begun = now

    record = PartitionRecorder.for_model(model, data.n_units, units=keep > 0)
    trace = run(sampler, key, chains=1, draws=sweeps, warmup=0, recorder=record, done=done)
    if trace.draws < sweeps:
        raise KeyboardInterrupt  # callers need the whole chain, and cannot go on with a part of it
    chosen = slice(keep - 1, None, keep) if keep else slice(0, 0)
    prior = model.concentration
    alpha = trace["concentration"][0] if isinstance(prior, GammaPrior) else np.full(sweeps, float(prior))
    kept = trace["component"][0, chosen] if keep else np.zeros((0, data.n_units), labels.dtype)
    return MixtureTrace(
        model,
        data,
        weights,
        trace["occupied"][0],
        trace["largest"][0],
        alpha,
        np.array(seconds),
        kept,
        alpha[chosen],
    )


_natural_of_labels = kernel(static_argnames=("capacity",))(natural_of_labels)
