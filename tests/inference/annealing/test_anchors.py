"""The centre of a second path: which particles are swept, over which sweeps they are averaged, which one is best."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.annealing.anchors import ANYWHERE, SettlingRun, mix_with_even, settle_best_particles
from lvsearch.inference.annealing.particle_arrays import ParticleArrays

RUN = SettlingRun(settling=2, averaged=3, particles=2)


class Place(NamedTuple):
    value: Float[Array, " particle"]


class Walk(ParticleArrays):
    """Every sweep adds 1 to each particle, and the density is highest at `top`."""

    top: Float[np.ndarray, ""]

    def step(self, key: Array, state: Place, temperature: Array, *, backward: bool) -> Place:
        return Place(state.value + 1)

    def log_density(self, state: Place) -> Float[Array, " particle"]:
        return -((state.value - self.top) ** 2)


def describe(chain: Walk, state: Place) -> Float[Array, "two particle"]:
    return jnp.stack([state.value, state.value**2])


def places(*values: float) -> Place:
    return Place(jnp.array(values))


def settle(top: float, *states: Place, further: tuple[Place, ...] = ()) -> tuple[np.ndarray, int, list[float]]:
    chain = Walk(np.array(top))
    found = settle_best_particles(chain, jax.random.key(0), states, describe, RUN, further=further)
    return found.averages, found.best, np.asarray(found.state.value).tolist()


def test_later_sweeps_of_the_best_particles_are_averaged():
    """Of 0, 7 and 9, those nearest to 10 are swept, 9 before 7; 7 is best on average while it passes 10, 11 and 12."""
    averages, best, ended = settle(10.0, places(0.0, 9.0), places(7.0))
    assert ended == [14.0, 12.0]
    assert best == 1
    np.testing.assert_allclose(averages, [11.0, (10**2 + 11**2 + 12**2) / 3])


def test_further_particles_are_all_swept():
    averages, best, ended = settle(10.0, places(0.0, 9.0), places(7.0), further=(places(5.5, 90.0),))
    assert ended == [14.0, 12.0, 10.5, 95.0]
    assert best == 2
    np.testing.assert_allclose(averages[0], 9.5)


def test_labels_that_exist_share_a_little():
    mixed = mix_with_even(np.array([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]]), np.array([True, True, False]))
    half = ANYWHERE / 2
    np.testing.assert_allclose(mixed, [[1 - half, half, 0], [0.25 + half / 2, 0.75 - half / 2, 0]])
