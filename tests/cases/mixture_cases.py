"""Tiny mixtures of every kind with their exact marginal likelihoods: what the tests of mixtures share."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import partition_oracles as exact
from tiers import in_tiers

import lvsearch as lv
from lvsearch.inference.data.dataset import Dataset
from lvsearch.models.components import (
    BernoulliComponents,
    Component,
    DiagonalComponents,
    FullCovarianceComponents,
    KnownCovarianceComponents,
    MultinomialComponents,
)

LOCATION, SCALE = np.array([0.4, -0.3]), np.array([1.3, 0.8])
COVARIANCE = np.array([[0.9, 0.35], [0.35, 0.5]])


class Kind(NamedTuple):
    """A kind of component, rows it can have made (NaN = missing), and the oracle of one group's rows."""

    name: str
    component: Component
    rows: np.ndarray
    log_marginal: exact.LogMarginal


VALUES = np.array([[1.3, -0.2], [0.4, 2.1], [1.6, -0.4], [-1.9, -1.7], [0.9, 1.8], [-2.4, -1.1], [0.7, 0.3]])
HOLED = np.where(np.arange(14).reshape(7, 2) % 5 == 3, np.nan, VALUES)
BITS = np.array([[1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 1, 0], [1, 0, 1], [0, 1, 0], [1, np.nan, 0]])
COUNTS = np.array([[3, 0, 1], [2, 1, 0], [0, 4, 1], [0, 2, 0], [5, 1, 1], [0, 0, 0], [1, 2, 2.0]])

DIAGONAL = Kind(
    "diagonal",
    DiagonalComponents(LOCATION, SCALE, 0.3, 2.5, 0.7),
    HOLED,
    exact.diagonal_marginal(LOCATION, SCALE, 0.3, 2.5, 0.7),
)
FULL = Kind(
    "full covariance",
    FullCovarianceComponents(LOCATION, SCALE, 0.3, 2.5, 0.7),
    VALUES,
    exact.full_marginal(LOCATION, SCALE, 0.3, 2.5, 0.7),
)
KNOWN = Kind(
    "known covariance",
    KnownCovarianceComponents(COVARIANCE, LOCATION, 0.4),
    VALUES,
    exact.known_marginal(COVARIANCE, LOCATION, 0.4),
)
BERNOULLI = Kind("Bernoulli", BernoulliComponents(0.6, 0.9), BITS, exact.bernoulli_marginal(0.6, 0.9))
MULTINOMIAL = Kind("multinomial", MultinomialComponents(0.7), COUNTS, exact.multinomial_marginal(0.7))
KINDS = (DIAGONAL, FULL, KNOWN, BERNOULLI, MULTINOMIAL)
TWO_KINDS = in_tiers(KINDS, lambda kind: kind in (FULL, BERNOULLI), lambda kind: kind.name)
"""In the fast tier: cells that hang together, and cells by themselves. What the others have of their own is tested
alone: packing, marginals, densities."""


def dataset(rows: Any) -> Dataset:
    """Rows as engines take them, NaN for a missing cell."""
    return lv.Points.from_array(rows, missing="nan").dataset()


@cache
def clusters() -> np.ndarray:
    """Three well separated groups of unequal size, 41 rows."""
    rng = np.random.default_rng(3)
    centres = np.array([[0, 0], [4, 1], [-3, 3.0]])
    return centres[np.repeat([0, 1, 2], [20, 14, 7])] + 0.4 * rng.standard_normal((41, 2))
