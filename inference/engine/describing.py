"""What a fitted model says about units: the representation and bounds of each, by the generic engine or a kernel."""

from functools import singledispatch
from typing import Any, NamedTuple

import jax
import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of, padded_natural, point_of
from lvsearch.inference.engine.meanfield import batch_bound, cast, fit_locals
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.engine.representation import differs_in_length, existing, gathered, representing_value
from lvsearch.models.contract import Model

UNIT_SWEEPS, UNIT_TOLERANCE = 100, 1e-4


class Described(NamedTuple):
    """Per unit of a data set, in its order: the expected value of the representing site, and the bound in nats.

    `representation`: (units, …), or, where units differ in how many elements they have, one array for each.
    """

    representation: Any
    log_lower: np.ndarray


@singledispatch
def unit_ceilings(model: Model, data: Dataset) -> np.ndarray:
    """A number ≥ log p(unit | any size, any parameters) for each unit, nats; `inf` where there is none."""
    one_by_one = [
        np.array(
            [model.ceiling(jax.tree.map(lambda leaf, r=row: leaf[r : r + 1], batch.units)) for row in range(len(ids))]
        )
        for batch, ids in zip(data.batches, data.unit_ids, strict=True)
    ]
    return data.gather(one_by_one)


@singledispatch
def bound_units(model: Model, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) ends of log p(unit | parameters at their posterior means), nats, one of each per unit.

    Where nothing better is known the upper end is the model's ceiling of that unit.
    """
    lower = describe_units(model, estimate, data).log_lower
    return lower, np.maximum(lower, unit_ceilings(model, data))


@singledispatch
def describe_units(model: Model, estimate: Estimate, data: Dataset) -> Described:
    """Fit the locals of new units with the parameters at their posterior means; model: `estimate.model`.

    All in float64: rows far from 0, such as times in seconds since 1970, lose the digits that tell components apart
    when they are rounded to float32 before a model has centred them. The bound is a lower bound on log p(unit | θ̂) at
    the point estimate θ̂, in nats.
    """
    size = estimate.size
    capacity = capacity_of(size)
    representation, lower = [], []
    with jax.enable_x64(True):
        on = model.active(size, capacity)
        natural = padded_natural(model, estimate.natural, size, capacity, np.float64)
        g = point_of(model, natural, size, capacity=capacity)
        for batch in cast(data, np.float64).batches:
            start = blank_locals(model, batch, size, capacity=capacity)
            settled = fit_locals(
                model, g, batch, start, size, capacity=capacity, sweeps=UNIT_SWEEPS, tolerance=UNIT_TOLERANCE
            )
            lower.append(np.asarray(batch_bound(model, g, batch, settled, size, capacity=capacity)))
            representation.append(existing(model, batch, np.asarray(representing_value(model, settled, on)), on))
    described_units = gathered(data, representation)
    ragged = differs_in_length(model, data.batches[0].units)
    return Described(described_units if ragged else np.stack(described_units), data.gather(lower))
