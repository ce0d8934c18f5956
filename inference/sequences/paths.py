"""The most probable path of every sequence at a fit's parameters."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimator import Estimate, capacity_of, pad_axes, point_of
from lvsearch.inference.engine.meanfield import within
from lvsearch.inference.engine.representation import gathered
from lvsearch.models.families import MarkovChain, MarkovChainStatistics
from lvsearch.models.hidden_markov import HiddenMarkov


def most_probable_paths(estimate: Estimate, data: Dataset) -> list[Int[np.ndarray, " row"]]:
    """Viterbi's path of each sequence at the posterior means of all parameters: the state of every row, in float64.

    Raises ValueError for fits of other models.
    """
    model = estimate.model
    if not isinstance(model, HiddenMarkov):
        raise ValueError(
            f"got a fit of {type(model).__name__}, expected one of HiddenMarkov: only its units have paths"
        )
    capacity, family = capacity_of(estimate.size), MarkovChain()
    with jax.enable_x64(True):
        wide = pad_axes(model, estimate.natural, estimate.size, capacity)
        g = point_of(model, jax.tree.map(lambda x: np.asarray(x, np.float64), wide), estimate.size, capacity=capacity)
        on = model.active(estimate.size, capacity)
        site, per_batch = model.locals()["path"], []
        for batch in data.batches:

            def one(unit):
                exists = within(model, unit, on)
                zero = MarkovChainStatistics(
                    jnp.zeros((len(unit.present), *capacity)), jnp.zeros((len(unit.present), *capacity, *capacity))
                )
                natural = jax.grad(lambda path: model.log_unit(g, {"path": path}, unit, exists))(zero)
                return family.value(family.mode(natural, site.event_mask(exists)))

            units = jax.tree.map(
                lambda x: x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x, batch.units
            )
            states = np.asarray(jax.jit(jax.vmap(one))(units))
            per_batch.append([row[here] for row, here in zip(states, np.asarray(batch.units.present), strict=True)])
    return gathered(data, per_batch)
