"""Numbers for people from a fitted model: its parameters as values, and log p of new units with a Monte Carlo error."""

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


@singledispatch
def score_units(
    model: Model, estimate: Estimate, data: Dataset, *, capacity: tuple[int, ...], samples: int, key: Array
) -> UnitScores:
    """Return log p(unit | parameters at their posterior means) for each unit, by the best method for this type of
    model.

    By default the score is the bound of `describe_units`. It is exact for some models and a variational lower bound for
    others. `UnitScores.method` says which.

    model: the fitted model, `estimate.model`.
    estimate: the fit whose parameters are used.
    data: the units to score, often ones that the fit has not seen.
    capacity: the number of array slots that all sizes in a comparison are padded to, so that one program is compiled
        for all.
    samples: how many samples methods that sample may draw.
    key: the random key of such methods. With one key for all sizes, differences between sizes share their noise.
    """
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
