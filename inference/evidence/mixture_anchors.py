"""Where another path of a mixture ended: its labels, as the beginning of a second path (`mixtures`), about them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.inference.annealing.dispatch import Anchor, anchored_chain, patience
from lvsearch.inference.annealing.particles import log_densities
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState
from lvsearch.models.kernels import kernel

SETTLING, AVERAGED, SETTLED = 10, 20, 16
"""Sweeps before the averages, those averaged over, and the particles that settle."""
ANYWHERE = 0.02
"""Probability under q that a label is drawn evenly."""


@patience.register
def _(chain: CollapsedMixtureChain) -> float:
    """q of labels is normalised and as cheap to draw from as the prior."""
    return 0.0


@anchored_chain.register
def _(chain: CollapsedMixtureChain, key: Key[Array, ""], states: Sequence[CollapsedState]) -> Anchor:
    """About the labels of the best particle (`settled`)."""
    anchor, _ = settled(chain, key, states)
    return Anchor(chain.about(anchor), 0.0)


def settled(chain: Any, key: Key[Array, ""], states: Sequence[Any]) -> tuple[Float[np.ndarray, "row label"], Any]:
    """log q of each row's label, nats, and the state it is about: that of the particle which, of those with the highest
    joint, has it still after some sweeps. q: how often a row has a label over further sweeps, a little of it
    spread evenly. chain: of mixtures, its states with `labels`."""
    with jax.enable_x64(True):
        together = chain.beside(states)
        order = np.argsort(-np.asarray(log_densities(chain, together)), kind="stable")
        ended, shares, log_density = _averaged(chain, key, chain.take(together, jnp.asarray(order[:SETTLED])))
        best = int(np.argmax(np.asarray(log_density)))
        state = jax.tree.map(np.asarray, chain.take(ended, jnp.asarray([best])))
    exists = np.asarray(chain.names.exist(chain.size))[:, 0]
    mixed = (1 - ANYWHERE) * np.asarray(shares)[:, best] + ANYWHERE * exists / exists.sum()
    return np.log(np.where(exists, mixed, 1.0)) + np.where(exists, 0.0, -np.inf), state


@kernel()
def _averaged(chain: Any, key: Array, state: Any) -> tuple[Any, Array, Array]:
    """(Where the particles end, how often each row had each label (row, particle, label), the average joint
    in nats)."""
    places = jnp.arange(chain.names.number)

    def one(index: Array, carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state = chain.step(jax.random.fold_in(key, index), carry[0], jnp.ones(()), backward=False)
        share = jnp.where(index < SETTLING, 0.0, 1 / AVERAGED)
        labelled = state.labels[:, :, None] == places
        return state, carry[1] + share * labelled, carry[2] + share * chain.log_density(state)

    begin = state, jnp.zeros((*state.labels.shape, len(places))), jnp.zeros(state.labels.shape[1])
    return jax.lax.fori_loop(0, SETTLING + AVERAGED, one, begin)
