"""Draws from Gamma distributions, whole arrays at a time, and choices of a label for each particle.

On CPUs `jax.random.gamma` runs its rejection loop element by element, which takes most of the time of a sweep over many
particles. Here every round proposes for the whole array, and the few rejected elements are proposed again.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key


def log_gamma_draws(key: Key[Array, ""], shape: Float[Array, "*element"]) -> Float[Array, "*element"]:
    """Draw log x for x ~ Gamma(shape, rate 1), elementwise, in the shape and floating type of `shape`.

    shape: the shape parameters, positive, of any array shape.

    The proposal is (1 + z / √(9d))³ d with d = a − 1/3, shape parameter a and normal z; at least 95 % are accepted for
    a ≥ 1. A smaller a is raised by 1 and the draw multiplied by u^(1/a), with u uniform. This happens on the log scale,
    where nothing underflows.

    Source: Marsaglia & Tsang (2000).
    """
    key_boost, key_rounds = jax.random.split(key)
    small = shape < 1  # these are raised by 1, and their draws multiplied by u^(1/shape): minus `boost` below
    d = jnp.where(small, shape + 1, shape) - 1 / 3
    c = 1 / jnp.sqrt(9 * d)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        """Return True while any element still lacks an accepted proposal.

        state: log of the accepted draws over d, which elements are accepted, and the number of the round.
        """
        return ~state[1].all()

    def propose(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Propose for every element again, and keep proposals where none was accepted before."""
        log_v, done, index = state
        key_z, key_u = jax.random.split(jax.random.fold_in(key_rounds, index))
        z = jax.random.normal(key_z, shape.shape, shape.dtype)
        exponential = jax.random.exponential(key_u, shape.shape, shape.dtype)
        root = 1 + c * z
        proposed = 3 * jnp.log(jnp.where(root > 0, root, 1))
        accepted = (root > 0) & (-exponential < 0.5 * z**2 + d * (1 - root**3 + proposed))
        return jnp.where(done, log_v, proposed), done | accepted, index + 1

    begin = jnp.zeros_like(shape), jnp.zeros(shape.shape, bool), jnp.asarray(0)
    log_v = jax.lax.while_loop(unfinished, propose, begin)[0]
    boost = jnp.where(small, jax.random.exponential(key_boost, shape.shape, shape.dtype) / shape, 0)
    return jnp.log(d) + log_v - boost


def choose_in_proportion(
    score: Float[Array, "label particle"], uniform: Float[Array, " particle"], n_labels: Int[Array | np.ndarray, ""]
) -> Int[Array, " particle"]:
    """Choose a label for each particle with probability in proportion to exp(score), (particle,), int32.

    score: log-probabilities up to a constant, (label, particle).
    uniform: one uniform random number for each particle, by which the distribution function is inverted.
    n_labels: the number of labels that exist, which come first. The scores of all others are −inf.
    """
    return choose_by_weight(jnp.exp(score - score.max(0)), uniform, n_labels)


def choose_by_weight(
    weight: Float[Array, "label particle"], uniform: Float[Array, " particle"], n_labels: Int[Array | np.ndarray, ""]
) -> Int[Array, " particle"]:
    """Choose a label for each particle with probability in proportion to its weight, (particle,), int32.

    weight: numbers of at least 0, (label, particle), not all 0.
    uniform: one uniform random number for each particle, by which the distribution function is inverted.
    n_labels: the number of labels that exist, which come first. The weights of all others are 0.
    """
    cumulative = jnp.cumsum(weight, axis=0)
    label = (cumulative < uniform * cumulative[-1]).sum(0, dtype=jnp.int32)
    return jnp.minimum(label, jnp.asarray(n_labels, jnp.int32) - 1)  # a sum that was rounded up may lie above the last
