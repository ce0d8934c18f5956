"""Describes each unit of data by a fitted model: its representation, bounds on its log probability, and its score.

Each works for any model. A type of model with a faster or better way has it in its kit (`model_kits`).

The representation is the expected value of one local latent variable, which the model names (`Model.representation`),
such as a document's topic proportions. It is returned without padding: only entries and elements that exist. A score is
log p(unit | parameters at their posterior means), exact or bounded, with its Monte Carlo error. `site_value` returns
the fitted parameters themselves as values.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of, padded_natural, point_of
from lvsearch.inference.engine.meanfield import Beliefs, batch_bound, cast, fit_locals, unit_masks
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.kits import model_kit
from lvsearch.models.contract import Masks, Model, Statistics, Unit
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import kernel


def differs_in_length(model: Model, units: Unit) -> bool:
    """Return True if units may differ in how many elements their representation has once padding is removed.

    The representation of a unit is the expected value of its local variable `model.representation`, such as the topic
    proportions of a document. Units may differ if the model gives each element of that variable a number of copies (an
    element with 0 copies is padding), or if a unit's own masks decide the length of one of its axes.

    units: a batch of units.
    """
    site = model.locals()[model.representation]
    own = model.extents(jax.tree.map(lambda leaf: leaf[0], units))
    return site.copies is not None or any(not isinstance(own.get(axis, 0), int) for axis in site.axes)


def existing_values(model: Model, batch: Batch, values: np.ndarray, on: Masks) -> list[np.ndarray]:
    """Return the representation of each unit of a batch without padding, as one array for each unit.

    The existing components and the unit's own elements stay. Elements that are padding, or have no copies, are removed.

    values: the representations with padding, (units, …).
    on: {axis: mask of the components that exist}.
    """
    site = model.locals()[model.representation]

    def masks(unit: Unit) -> list[jax.Array]:
        """Return, for each axis of one unit's representation, the mask of the entries that stay."""
        exists = unit_masks(model, unit, on)
        each = [exists.get(axis, jnp.ones(n, bool)) for axis, n in zip(site.axes, values.shape[1:], strict=False)]
        if site.copies is not None:
            counted = site.copies(unit) > 0
            for axis, mask in enumerate(each[: counted.ndim]):
                others = tuple(a for a in range(counted.ndim) if a != axis)
                each[axis] = mask & counted.any(others)
        return each

    per_axis = [np.asarray(mask) for mask in jax.vmap(masks)(batch.units)]
    return [value[np.ix_(*(mask[row] for mask in per_axis))] for row, value in enumerate(values)]


@kernel(brief=True)
def representing_value(model: Model, local: Beliefs, on: Masks) -> Array:
    """Return the representation of each unit: its expected value under q, (units, …), padding included.

    Locals are the latent variables of one unit.

    local: q of the units' local variables.
    on: {axis: mask of the entries that exist}.
    """
    site = model.locals()[model.representation]
    described = site.family.point(local.natural[model.representation], site.event_mask(on))
    if isinstance(site.family, IndicatorFamily):  # its expected value is a probability, not a choice
        return site.family.probability(described)
    return site.family.value(described, site.event_mask(on))


def in_data_order(data: Dataset, per_batch: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """Return one array for each unit, in the order of the data set.

    per_batch: for each batch, one array for each of its units, in the order of the batch.
    """
    by_unit = {
        int(unit): value
        for ids, values in zip(data.unit_ids, per_batch, strict=True)
        for unit, value in zip(ids, values, strict=True)
        if unit >= 0
    }
    return [by_unit[unit] for unit in range(data.n_units)]


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


def unit_ceilings(model: Model, data: Dataset) -> np.ndarray:
    """Return a number ≥ log p(unit | any size, any parameters) for each unit, (units,), in nats.

    The number is `inf` for models without such a ceiling.

    data: the units, in whose order the numbers are.
    """
    return model_kit(model).unit_ceilings(model, data)


def ceilings_one_by_one(model: Model, data: Dataset) -> np.ndarray:
    """Return the model's own ceiling of each unit (`Model.ceiling`), (units,), in nats: `unit_ceilings` of any
    log-joint.
    """
    one_by_one = [
        np.array(
            [model.ceiling(jax.tree.map(lambda leaf, r=row: leaf[r : r + 1], batch.units)) for row in range(len(ids))]
        )
        for batch, ids in zip(data.batches, data.unit_ids, strict=True)
    ]
    return data.gather(one_by_one)


def bound_units(model: Model, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds on log p(unit | parameters at their posterior means).

    model: the fitted model, `estimate.model`.
    estimate: the fit whose parameters are used.
    data: the units; they may be other units than those that were fitted.

    Returns: (lower, upper), each (units,), in nats.
    """
    return model_kit(model).bound_units(model, estimate, data)


def bounds_up_to_ceilings(model: Model, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of `describe_units` and the ceilings of the units (`unit_ceilings`), each (units,), in nats:
    `bound_units` of any log-joint.
    """
    lower = describe_units(model, estimate, data).log_lower
    return lower, np.maximum(lower, unit_ceilings(model, data))


def describe_units(model: Model, estimate: Estimate, data: Dataset) -> Described:
    """Fit the local latent variables of units, with the parameters fixed at their posterior means, and describe the
    units.

    model: the fitted model, `estimate.model`.
    estimate: the fit whose parameters are used.
    data: the units to describe; they may be other units than those that were fitted.

    Returns: representations and lower bounds on log p(unit | θ̂), with θ̂ the posterior means (`Described`).

    Raises ValueError for units that have no density under the model.
    """
    return model_kit(model).describe_units(model, estimate, data)


def describe_by_log_joint(model: Model, estimate: Estimate, data: Dataset) -> Described:
    """Describe units by mean field over their local latent variables: `describe_units` of any log-joint.

    All of it runs in float64. Rows far from 0, such as times in seconds since 1970, would lose the digits that tell
    components apart if they were rounded to float32 before the model centres them.
    """
    model.check(data.units_in_order())
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


LOWER_BOUND = "variational lower bound"
"""The `UnitScores.method` of scores that are lower bounds."""
EXACT_AT_MEANS = "exact, parameters at their posterior means"
"""The `UnitScores.method` of scores that are exact at the posterior means."""


class UnitScores(NamedTuple):
    """log p(unit | parameters at their posterior means) for each unit, exact or bounded.

    | field | meaning |
    |---|---|
    | `per_unit` | the scores in the order of the data set, (units,), nats |
    | `monte_carlo_error` | the standard error of their sum from sampling alone, nats; 0 if nothing is sampled |
    | `method` | how they were computed, in words for people |
    """

    per_unit: Float[np.ndarray, " units"]
    monte_carlo_error: float
    method: str


def score_units(
    model: Model, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Return log p(unit | parameters at their posterior means) for each unit, by the best method for this type of
    model, which `UnitScores.method` names.

    model: the fitted model, `estimate.model`.
    estimate: the fit whose parameters are used.
    data: the units to score, often ones that the fit has not seen.
    capacity: the number of array slots that all sizes in a comparison are padded to, so that one program is compiled
        for all.
    samples: how many samples methods that sample may draw.
    key: the random key of such methods. With one key for all sizes, differences between sizes share their noise.
    """
    return model_kit(model).score_units(model, estimate, data, capacity=capacity, samples=samples, key=key)


def score_by_description(
    model: Model, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Return the scores of `described_scores`: `score_units` of any log-joint. Nothing is sampled or padded."""
    del capacity, samples, key
    return described_scores(model, estimate, data)


def described_scores(model: Model, estimate: Estimate, data: Dataset) -> UnitScores:
    """Return the lower bounds of `describe_units` as scores, with `method` saying whether they are exact.

    They are exact if a unit has one latent variable whose elements do not interact. The log-joint is linear in the
    statistics of that variable, so its q is the exact conditional distribution given the parameters.
    """
    lower = describe_units(model, estimate, data).log_lower
    sites = tuple(model.locals().values())
    exact = len(sites) == 1 and sites[0].slices is None and sites[0].gate is None
    return UnitScores(lower, 0.0, EXACT_AT_MEANS if exact else LOWER_BOUND)


def site_value(estimate: Estimate, name: str) -> Statistics:
    """Return the value of a global latent variable at its posterior mean, without padding.

    name: the name of the variable, such as "topics".

    Returns: an array on `Site.axes`, or a tuple of arrays if the family's value has several parts.
    """
    family = estimate.model.globals()[name].family
    natural = jax.tree.map(jnp.asarray, estimate.natural[name])
    return jax.tree.map(np.asarray, family.value(family.point(natural)))
