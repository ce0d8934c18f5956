"""Tiny mixtures with their exact marginal likelihoods, a row for each kind of component: what tests of mixtures share.

A row of `CASES` buys what is asked of a kind: log-joints (`tests/models/test_models.py`), densities, fits, bounds and
folders (`inference/mixtures`), annealed evidence and its sweeps (`inference/evidence`, `inference/annealing`), chains
over partitions (`inference/allocation_chains`, `inference/mixture_samplers`), ranks (`inference/test_exact_ranks.py`),
predictions (`fitted/test_mixture_draws.py`), and the other models of rows: processes, sequences, images. Where a test
asks a few kinds in the fast tier, it names these, and all others are asked in a longer one.
"""

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
    VonMisesFisherComponents,
)

LOCATION, SCALE = np.array([0.4, -0.3]), np.array([1.3, 0.8])
COVARIANCE = np.array([[0.9, 0.35], [0.35, 0.5]])


class Kind(NamedTuple):
    """A kind of component with seven rows, and what is exactly true of it.

    | field | meaning |
    |---|---|
    | `component` | the kind, with unequal hyper-parameters |
    | `rows` | seven rows that it can have made, (row, dim); NaN for a missing cell |
    | `log_marginal` | log p(rows of one group, parameters integrated out), by an oracle that shares no code with it |
    | `n_parameters` | how many free numbers the parameters of one component are |
    | `certified` | True if a row's density has a greatest value over all parameters |
    """

    name: str
    component: Component
    rows: np.ndarray
    log_marginal: exact.LogMarginal
    n_parameters: int
    certified: bool = True


VALUES = np.array([[1.3, -0.2], [0.4, 2.1], [1.6, -0.4], [-1.9, -1.7], [0.9, 1.8], [-2.4, -1.1], [0.7, 0.3]])
HOLED = np.where(np.arange(14).reshape(7, 2) % 5 == 3, np.nan, VALUES)
BITS = np.array([[1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 1, 0], [1, 0, 1], [0, 1, 0], [1, np.nan, 0]])
ANGLES = np.array([[3, 1, 0], [1, 3, -1], [2, 1, 1], [-2, 0, 1], [0, 2, -1], [-3, 1, 2], [2, 2, 1.0]])
COUNTS = np.array([[3, 0, 1], [2, 1, 0], [0, 4, 1], [0, 2, 0], [5, 1, 1], [0, 0, 0], [1, 2, 2.0]])

DIAGONAL = Kind(
    "diagonal",
    DiagonalComponents(LOCATION, SCALE, 0.3, 2.5, 0.7),
    HOLED,
    exact.diagonal_marginal(LOCATION, SCALE, 0.3, 2.5, 0.7),
    n_parameters=4,
    certified=False,
)
FULL = Kind(
    "full covariance",
    FullCovarianceComponents(LOCATION, SCALE, 0.3, 2.5, 0.7),
    VALUES,
    exact.full_marginal(LOCATION, SCALE, 0.3, 2.5, 0.7),
    n_parameters=5,
    certified=False,
)
KNOWN = Kind(
    "known covariance",
    KnownCovarianceComponents(COVARIANCE, LOCATION, 0.4),
    VALUES,
    exact.known_marginal(COVARIANCE, LOCATION, 0.4),
    n_parameters=2,
)
BERNOULLI = Kind("Bernoulli", BernoulliComponents(0.6, 0.9), BITS, exact.bernoulli_marginal(0.6, 0.9), n_parameters=3)
MULTINOMIAL = Kind("multinomial", MultinomialComponents(0.7), COUNTS, exact.multinomial_marginal(0.7), n_parameters=2)
DIRECTIONS = Kind(
    "directions",
    VonMisesFisherComponents((0.8, 3.0, 11.0)),
    ANGLES / np.linalg.norm(ANGLES, axis=1, keepdims=True),
    exact.direction_marginal((0.8, 3.0, 11.0)),
    n_parameters=3,
)
CASES = (DIAGONAL, FULL, KNOWN, BERNOULLI, MULTINOMIAL, DIRECTIONS)
TWO_KINDS = in_tiers(CASES, lambda kind: kind in (FULL, BERNOULLI), lambda kind: kind.name)
"""In the fast tier: cells that hang together, and cells by themselves. What the others have of their own is tested
alone: packing, marginals, densities."""


def points(kind: Kind) -> lv.Points:
    """The rows of a kind as people give them."""
    return lv.Points.from_array(kind.rows, missing="nan")


def dataset(rows: Any) -> Dataset:
    """Rows as engines take them, NaN for a missing cell."""
    return lv.Points.from_array(rows, missing="nan").dataset()


@cache
def clusters() -> np.ndarray:
    """Three well separated groups of unequal size, 41 rows."""
    rng = np.random.default_rng(3)
    centres = np.array([[0, 0], [4, 1], [-3, 3.0]])
    return centres[np.repeat([0, 1, 2], [20, 14, 7])] + 0.4 * rng.standard_normal((41, 2))
