"""Descriptions of each unit of data by a fitted model: its representation and its bounds.

The functions here work for any model. Kernels register faster versions for their model types.
"""

from functools import singledispatch
from typing import Any, NamedTuple

import jax
import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of, padded_natural, point_of
from lvsearch.inference.engine.meanfield import batch_bound, cast, fit_locals
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.engine.representation import (
    differs_in_length,
    existing_values,
    in_data_order,
    representing_value,
)
from lvsearch.models.contract import Model

UNIT_SWEEPS, UNIT_TOLERANCE = 100, 1e-4


class Described(NamedTuple):
    """The description of every unit of a data set by a fitted model, in the order of the data set.

    | field | meaning |
    |---|---|
    | `representation` | the expected value of one local latent variable of each unit, `Model.representation` |
    | `log_lower` | a lower bound on log p(unit), the parameters at their posterior means, (units,), nats |

    `representation` is an array (units, …), such as the topic proportions of documents. If units differ in how many
    elements they have, it is a list with one array for each unit.
    """

    representation: Any
    log_lower: np.ndarray


@singledispatch
def unit_ceilings(model: Model, data: Dataset) -> np.ndarray:
    """Return a number ≥ log p(unit | any size, any parameters) for each unit, (units,), in nats.

    The number is `inf` for models without such a ceiling.

    data: the units, in whose order the numbers are.
    """
    one_by_one = [
        np.array(
            [model.ceiling(jax.tree.map(lambda leaf, r=row: leaf[r : r + 1], batch.units)) for row in range(len(ids))]
        )
        for batch, ids in zip(data.batches, data.unit_ids, strict=True)
    ]
    return data.gather(one_by_one)


@singledispatch
def bound_units(model: Model, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds on log p(unit | parameters at their posterior means).

    model: the fitted model, `estimate.model`.
    estimate: the fit whose parameters are used.
    data: the units; they may be other units than those that were fitted.

    Returns: (lower, upper), each (units,), in nats. The upper bound is the model's ceiling for the unit
        (`unit_ceilings`), unless the model's type has a better one registered.
    """
    lower = describe_units(model, estimate, data).log_lower
    return lower, np.maximum(lower, unit_ceilings(model, data))


@singledispatch
def describe_units(model: Model, estimate: Estimate, data: Dataset) -> Described:
    """Fit the local latent variables of units, with the parameters fixed at their posterior means, and describe the
    units.

    model: the fitted model, `estimate.model`.
    estimate: the fit whose parameters are used.
    data: the units to describe; they may be other units than those that were fitted.

    All of it runs in float64. Rows far from 0, such as times in seconds since 1970, would lose the digits that tell
    components apart if they were rounded to float32 before the model centres them.

    Returns: representations and lower bounds on log p(unit | θ̂), with θ̂ the posterior means (`Described`).
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
            representation.append(existing_values(model, batch, np.asarray(representing_value(model, settled, on)), on))
    described_units = in_data_order(data, representation)
    ragged = differs_in_length(model, data.batches[0].units)
    return Described(described_units if ragged else np.stack(described_units), data.gather(lower))
