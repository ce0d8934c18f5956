"""Annealing between two sizes of one model: by how many nats the larger size raises the evidence.

A chain between sizes leads from a distribution π_0 to the posterior of the larger size. The normaliser of π_0 is p(data
| smaller size), and draws of π_0 are made from draws of the smaller size's posterior. Forward paths estimate

    log p(data | larger) − log p(data | smaller)

from below on average, and backward paths from above, exactly as on a path from a known distribution (`particles`). The
difference is that π_0 is known by draws only. They come from a chain of the smaller size that has converged, as far as
one can tell.

Relabellings are corrected for at both ends. The posteriors of both sizes are mixtures over all labellings, of which a
chain may have seen one, some or all.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Float64, Key

from lvsearch.inference.annealing.particles import (
    Compilation,
    end_paths,
    label_scores,
    move_along,
    relabel_all,
    start_population,
)
from lvsearch.inference.annealing.relabelling import draw_orders, log_labelling
from lvsearch.inference.chains import Chain, State
from lvsearch.inference.generators import generator, split_key
from lvsearch.models.kernels import kernel


@runtime_checkable
class ChainBetweenSizes(Chain, Protocol):
    """A `Chain` whose path leads from π_0, at the smaller of two sizes of a model, to the posterior of the larger size.

    The normaliser of π_0 is p(data | smaller size).
    """

    def split(self, key: Key[Array, ""], state: State) -> State:
        """Return draws of π_0, the start of the path, made from draws of the smaller size's posterior.

        state: draws of the smaller size's posterior, one for each particle.
        """
        ...

    def log_switch(self, state: State) -> Float[Array, " particle"]:
        """Return the log weight of the jump at the start of the path, (particle,), in nats.

        It is the log of the first density on the path minus log π_0, at each particle.
        """
        ...

    def smaller_label_scores(self, state: State) -> Float[Array, "particle component component"]:
        """Return label scores of the state, read as a state of the smaller size, (particle, component, component), in
        nats.

        Label scores say how probable each relabelling of the components is (`Chain.label_scores`).
        """
        ...


class Gain(NamedTuple):
    """log p(data | larger size) − log p(data | smaller size), nats: one estimate per path in each direction.

    | field | meaning |
    |---|---|
    | `forward` | estimates of paths from the smaller size, (path,): low on average |
    | `backward` | estimates of paths from the larger size, (path,): high on average |
    | `temperatures` | number of temperatures of each path |
    | `sizes` | larger size − smaller size |
    """

    forward: Float64[np.ndarray, " path"]
    backward: Float64[np.ndarray, " path"]
    temperatures: int
    sizes: int = 1


def gain_upwards(
    chain: ChainBetweenSizes, key: Key[Array, ""], smaller: State, temperatures: Float64[np.ndarray, " step"]
) -> Float64[np.ndarray, " path"]:
    """Estimate log p(data | larger size) − log p(data | smaller size) along paths to the larger size, low on average.

    chain: the chain between the two sizes.
    smaller: draws of the smaller size's posterior, one per path.
    temperatures: 0 < t_1 < … ≤ 1, the last one 1.

    Returns: one estimate per path, (path,), in nats.
    """
    key_labels, key_split, key_path, key_end = split_key(key, 4)
    with jax.enable_x64(True):
        state, log_start = _draw_labelling(chain, key_labels, smaller, _smaller_scores)
        state = _split(chain, key_split, state)
        population = start_population(state, len(log_start), 1)
        # weights begin with the jump from π_0, and without the weight of the labelling drawn at the smaller size
        population = population._replace(log_weight=np.asarray(_switch(chain, state)) - log_start)
        before = np.concatenate([[0.0], temperatures])
        population, *_ = move_along(
            chain,
            key_path,
            population,
            before,
            np.append(np.diff(before), 0.0),
            islands=len(log_start),
            backward=False,
            compilation=Compilation.IN_ONE_THREAD,
        )
        # and end with the weight of the labelling at the larger size
        log_end = log_labelling(np.asarray(label_scores(chain, population.state)))
        population = population._replace(log_weight=np.asarray(population.log_weight) + log_end)
        return end_paths(chain, key_end, population, islands=len(log_start), sign=1.0)[0]


def gain_downwards(
    chain: ChainBetweenSizes, key: Key[Array, ""], larger: State, temperatures: Float64[np.ndarray, " step"]
) -> Float64[np.ndarray, " path"]:
    """Estimate log p(data | larger size) − log p(data | smaller size) along paths to the smaller size, high on average.

    chain: the chain between the two sizes.
    larger: draws of the larger size's posterior, one per path.
    temperatures: 0 < t_1 < … ≤ 1, the last one 1. They are passed from 1 downwards.

    Returns: one estimate per path, (path,), in nats.
    """
    key_labels, key_path, key_end = split_key(key, 3)
    with jax.enable_x64(True):
        state, log_start = _draw_labelling(chain, key_labels, larger, label_scores)
        population = start_population(state, len(log_start), 1)
        population = population._replace(log_weight=population.log_weight - log_start)
        before = np.concatenate([[0.0], temperatures])
        population, *_ = move_along(
            chain,
            key_path,
            population,
            temperatures[::-1],
            np.diff(before[::-1]),
            islands=len(log_start),
            backward=True,
            compilation=Compilation.IN_ONE_THREAD,
        )
        # the same two ends as upwards, passed in the other direction
        log_end = log_labelling(np.asarray(_smaller_scores(chain, population.state)))
        log_end = log_end - np.asarray(_switch(chain, population.state))
        population = population._replace(log_weight=np.asarray(population.log_weight) + log_end)
        return end_paths(chain, key_end, population, islands=len(log_start), sign=-1.0)[0]


def _draw_labelling(
    chain: ChainBetweenSizes, key: Array, state: State, scores: Callable[[ChainBetweenSizes, State], Array]
) -> tuple[State, np.ndarray]:
    """Draw a labelling of the components of each state in proportion to its label scores.

    scores: (chain, state) -> label scores, (particle, component, component), in nats.

    Returns: (the relabelled states, the log weight of each labelling, log(K! f / Σ_σ f) of `log_labelling`, in nats).
    """
    order = draw_orders(np.asarray(scores(chain, state)), generator(key))
    state = relabel_all(chain, state, order)
    return state, log_labelling(np.asarray(scores(chain, state)))


_split = kernel(once=True)(lambda chain, key, state: chain.split(key, state))
_switch = kernel(once=True)(lambda chain, state: chain.log_switch(state))
_smaller_scores = kernel(once=True)(lambda chain, state: chain.smaller_label_scores(state))
