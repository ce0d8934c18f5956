"""What people read off a fitted model: its parameters as values, and log p of new units with a Monte Carlo error."""

from functools import singledispatch
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.models.contract import Model, Statistics


class UnitScores(NamedTuple):
    """log p(unit | parameters at their posterior means) for each unit, nats.

    | field | meaning |
    |---|---|
    | `per_unit` | in the order of the data set |
    | `monte_carlo_error` | standard error of their sum from the sampling alone; 0 where nothing is sampled |
    | `method` | how they were computed, for people |
    """

    per_unit: Float[np.ndarray, " units"]
    monte_carlo_error: float
    method: str


@singledispatch
def score_units(
    model: Model, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Score units as well as is known for this type of model; model: `estimate.model`.

    capacity: sizes that are compared are padded to one capacity, so that all compile once. samples and key: for methods
    that sample; one key for all sizes makes differences between them share their noise. Where nothing better is known
    the score is the variational lower bound.
    """
    return UnitScores(describe_units(model, estimate, data).log_lower, 0.0, "variational lower bound")


def site_value(estimate: Estimate, name: str) -> Statistics:
    """A global site at its posterior mean, existing components only: an array on `Site.axes`, or a tuple of them."""
    family = estimate.model.globals()[name].family
    natural = jax.tree.map(jnp.asarray, estimate.natural[name])
    return jax.tree.map(np.asarray, family.value(family.point(natural)))
