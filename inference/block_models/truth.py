"""Simulated data: the path of a block model may begin at the labels that they were drawn with."""

import jax
import jax.numpy as jnp
import numpy as np

from lvsearch.inference.block_models.chain import BlockChain, BlockState
from lvsearch.inference.evidence.simulation import Simulated
from lvsearch.inference.evidence.truth import true_state
from lvsearch.models.block_model import COLUMN, ROW

_of_labels = jax.jit(lambda chain, key, rows, columns: chain.of_labels(key, rows, columns))


@true_state.register
def _(chain: BlockChain, simulated: Simulated, particles: int) -> BlockState:
    """The clusters of rows and columns; weights and blocks are drawn given them, as the posterior has them."""
    labels = (np.argmax(each, axis=-1) for each in (simulated.locals[ROW], simulated.globals[COLUMN]))
    rows, columns = (jnp.asarray(np.repeat(each[:, None], particles, axis=1), jnp.int32) for each in labels)
    return _of_labels(chain, jax.random.key(particles), rows, columns)
