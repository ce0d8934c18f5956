"""The representation of each unit by a fitted model, without padding: only entries and elements that exist.

The representation is the expected value of one local latent variable, which the model names (`Model.representation`),
such as a document's topic proportions.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.meanfield import Beliefs, unit_masks
from lvsearch.models.contract import Masks, Model, Unit
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
