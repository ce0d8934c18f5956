"""The most probable path of hidden states of every sequence, at a fit's parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of, padded_natural, point_of
from lvsearch.inference.engine.meanfield import cast, unit_masks
from lvsearch.inference.engine.representation import in_data_order
from lvsearch.models.contract import Statistics
from lvsearch.models.families import MarkovChain
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.kernels import kernel
from lvsearch.models.units import GroupOfRows


def most_probable_paths(estimate: Estimate, data: Dataset) -> list[Int[np.ndarray, " row"]]:
    """Return the most probable path of each sequence (Viterbi), at the posterior means of all parameters.

    A path is the hidden state of every row of the sequence, (row,). It is computed in float64.

    Raises ValueError for fits of other models than `HiddenMarkov`.
    """
    model, size = estimate.model, estimate.size
    if not isinstance(model, HiddenMarkov):
        raise ValueError(
            f"got a fit of {type(model).__name__}, expected one of HiddenMarkov: only its units have paths"
        )
    capacity, per_batch = capacity_of(size), []
    with jax.enable_x64(True):
        wide = padded_natural(model, estimate.natural, size, capacity, np.float64)
        g = point_of(model, wide, size, capacity=capacity)
        for batch in cast(data, np.float64).batches:
            states = np.asarray(_viterbi_states(model, g, batch.units, size, capacity=capacity))
            per_batch.append([row[here] for row, here in zip(states, np.asarray(batch.units.present), strict=True)])
    return in_data_order(data, per_batch)


@kernel(static_argnames=("capacity",), brief=True)
@counted
def _viterbi_states(
    model: HiddenMarkov,
    g: dict[str, Statistics],
    units: GroupOfRows,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Int[Array, "_ _"]:
    """Return the most probable state of each row, (sequence, row), padding included.

    g: parameter values in the form of sufficient statistics, by variable.
    units: the sequences of one batch.
    size, capacity: the number of states, and the number that arrays have room for.
    """
    on, site, family = model.active(size, capacity), model.locals()["path"], MarkovChain()

    def one(unit: Any) -> Array:
        exists = unit_masks(model, unit, on)
        blank = family.zeros((len(unit.present), *capacity, *capacity), jnp.result_type(float))
        natural = jax.grad(lambda path: model.log_unit(g, {"path": path}, unit, exists))(blank)
        return family.value(family.mode(natural, site.event_mask(exists)))

    return jax.vmap(one)(units)
