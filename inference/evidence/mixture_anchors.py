"""The second annealing path of a mixture, around the labels at which the first path ended (see `mixtures`)."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.inference.annealing.particle_arrays import average_over_sweeps, take_best_particles
from lvsearch.inference.chains import Anchor
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState
from lvsearch.models.kernels import kernel

SETTLING, AVERAGED, SETTLED = 10, 20, 16
"""Sweeps before the labels are averaged, sweeps averaged over, and the number of particles that are swept."""
ANYWHERE = 0.02
"""The probability under q that a row's label is drawn evenly over all labels."""


def anchor_of_mixture(chain: CollapsedMixtureChain, key: Key[Array, ""], states: Sequence[CollapsedState]) -> Anchor:
    """Return the second path of a mixture, from a q around the labels of the best particle of the first
    (`anchor_labels`).

    states: final states of the first path, one per half of the annealing.
    """
    anchor, _ = anchor_labels(chain, key, states)
    return Anchor(chain.around_labelling(anchor), 0.0)


def anchor_labels(chain: Any, key: Key[Array, ""], states: Sequence[Any]) -> tuple[Float[np.ndarray, "row label"], Any]:
    """Find the best labels that a path ended with, and return a distribution q of labels around them.

    The particles with the highest joint are swept on at temperature 1. The one whose joint is then highest on average
    is the best. q(row's label) is how often the row had the label in those sweeps, mixed with a little of the even
    distribution.

    chain: a chain of a mixture, whose states have `labels`.
    states: final states of the first path.

    Returns: (log q of each row's label in nats, (row, label), and −inf for labels that do not exist; the final state of
        the best particle).
    """
    with jax.enable_x64(True):
        ended, (shares, log_density) = _average_labels(chain, key, take_best_particles(chain, states, SETTLED))
        best = int(np.argmax(np.asarray(log_density)))
        state = jax.tree.map(np.asarray, chain.take(ended, jnp.asarray([best])))
    exists = np.asarray(chain.names.exist(chain.size))[:, 0]
    mixed = (1 - ANYWHERE) * np.asarray(shares)[:, best] + ANYWHERE * exists / exists.sum()
    return np.log(np.where(exists, mixed, 1.0)) + np.where(exists, 0.0, -np.inf), state


@kernel()
def _average_labels(chain: Any, key: Array, state: Any) -> tuple[Any, tuple[Array, Array]]:
    """Sweep all particles at temperature 1 and average over the later sweeps.

    Returns: (the final state, (the share of sweeps in which each row had each label (row, particle, label), the average
        of log p(rows, labels) in nats (particle,))).
    """
    places = jnp.arange(chain.names.number)

    def observe(state: Any) -> tuple[Array, Array]:
        """Return which label each row has, (row, particle, label), and the log density of each particle."""
        return (state.labels[:, :, None] == places).astype(float), chain.log_density(state)

    return average_over_sweeps(chain, key, state, observe, SETTLING, AVERAGED)
