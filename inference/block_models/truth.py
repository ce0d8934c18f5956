"""The latents of simulated data as states, from which the path of a block model may begin."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.block_models.chain import BlockChain
from lvsearch.inference.block_models.packing import layout_of
from lvsearch.inference.block_models.state import BlockState
from lvsearch.inference.evidence.simulation import Simulated
from lvsearch.inference.evidence.truth import true_state
from lvsearch.models.block_model import COLUMN, ROW
from lvsearch.models.kernels import kernel

_completed = kernel(brief=True)(lambda chain, *latents: chain.completed(*latents))


@true_state.register
def _true_state_of_blocks(chain: BlockChain, simulated: Simulated, particles: int) -> BlockState:
    """Return states that hold the true clusters of rows and columns, their weights and the blocks, one for each
    particle.

    simulated: data with the latent variables that they were drawn with.
    """
    g, (more_rows, more_columns) = simulated.globals, np.subtract(chain.capacity, simulated.size).tolist()

    def copies(leaf: Any, *more: int, padding: float = 0.0) -> Array:
        """Return an array repeated for every particle on a new last axis.

        more: how many empty array slots, of value `padding`, are added at the end of each of the first axes.
        """
        array = np.asarray(leaf)
        ends = [(0, n) for n in (*more, *[0] * (array.ndim - len(more)))]
        padded = np.pad(array, ends, constant_values=padding) if more else array
        return jnp.asarray(np.repeat(padded[..., None], particles, axis=-1))

    labels = (np.argmax(each, axis=-1).astype(np.int32) for each in (simulated.locals[ROW], g[COLUMN]))
    blocks = layout_of(chain.model.component).pack(g["blocks"])
    return _completed(
        chain,
        *map(copies, labels),
        copies(g["row_weights"], more_rows, padding=-np.inf),
        copies(g["column_weights"], more_columns, padding=-np.inf),
        copies(blocks, more_rows, more_columns),
    )
