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

LOWER_BOUND = "variational lower bound"
EXACT_AT_MEANS = "exact, parameters at their posterior means"


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
    the score is that of `describe_units`, which is exact for some models and a variational lower bound for others.
    """
    return described_scores(model, estimate, data)


def described_scores(model: Model, estimate: Estimate, data: Dataset) -> UnitScores:
    """Score units by the bound of `describe_units`; `method` says whether it is exact or a bound.

    It is exact where a unit has one latent site whose elements do not interact: the log-joint is linear in the
    statistics of that site, so its q is the exact conditional distribution given the parameters.
    """
    lower = describe_units(model, estimate, data).log_lower
    sites = tuple(model.locals().values())
    exact = len(sites) == 1 and sites[0].slices is None and sites[0].gate is None
    return UnitScores(lower, 0.0, EXACT_AT_MEANS if exact else LOWER_BOUND)


def site_value(estimate: Estimate, name: str) -> Statistics:
    """A global site at its posterior mean, existing components only: an array on `Site.axes`, or a tuple of them."""
    family = estimate.model.globals()[name].family
    natural = jax.tree.map(jnp.asarray, estimate.natural[name])
    return jax.tree.map(np.asarray, family.value(family.point(natural)))
