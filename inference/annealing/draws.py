"""Draws from Gamma and Dirichlet distributions, whole arrays at a time.

`jax.random.gamma` runs its rejection loop element by element on CPUs; in a sweep over many particles that is most of
the time. Here every round proposes for the whole array, and the rare rejected elements are proposed again.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def log_gamma_draws(key: Key[Array, ""], shape: Float[Array, "*element"]) -> Float[Array, "*element"]:
    """log x, x ~ Gamma(shape, 1), shape > 0, in its floating type.

    Source: Marsaglia & Tsang (2000): with d = a − 1/3, (1 + z / √(9d))³ d for normal z, at least 95 % accepted for
    a ≥ 1. A smaller a is raised by 1 and the draw multiplied by u^(1/a), on the log scale, where nothing underflows.
    """
    key_boost, key_rounds = jax.random.split(key)
    small = shape < 1
    d = jnp.where(small, shape + 1, shape) - 1 / 3
    c = 1 / jnp.sqrt(9 * d)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return ~state[1].all()

    def propose(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
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
