"""Resampling of groups of particles: a single particle has nothing to choose, and keeps its weight or hands it on."""

import jax
import numpy as np
import pytest

from lvsearch.inference.annealing.particles import Population, resampled

WEIGHTS = np.array([2.0, -3.0, -np.inf])


class Whole:
    """A chain whose states are arrays with particles on the last axis; only choosing among them is needed here."""

    def take(self, state, particles):
        return state[..., particles]


@pytest.mark.parametrize(("least", "weight", "total"), [(0.5, WEIGHTS, np.ones(3)), (np.inf, np.zeros(3), 1 + WEIGHTS)])
def test_groups_of_one_particle_hand_their_weight_on_only_if_all_are_resampled(least, weight, total, float64):
    """A weight of −∞ stays −∞ and makes no NaN."""
    found = resampled(Whole(), jax.random.key(0), Population(np.arange(3.0), WEIGHTS, np.ones(3)), 3, least)
    np.testing.assert_array_equal(found.state, np.arange(3.0))
    np.testing.assert_array_equal(found.log_weight, weight)
    np.testing.assert_array_equal(found.log_total, total)
