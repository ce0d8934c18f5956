"""The scale that a factor and its intensities share, which no cell's mean depends on: moved by itself."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def scale_step(
    key: Key[Array, ""], slope: Float[Array, "..."], up: Float[Array, "*factor"], down: Float[Array, "*factor"]
) -> Float[Array, "*factor"]:
    """y of each factor, by which θ_·k e^y and β_k e^−y are to move: a Metropolis step from y = 0.

    `slope` may be one for all. The density of y is slope · y − up e^y − down e^−y, nats, up to a constant; proposed is,
    independently of where one is, the Gaussian at its mode. NaN of a factor that does not exist accepts nothing.
    """
    key_propose, key_accept = jax.random.split(key)
    curvature = jnp.sqrt(slope**2 + 4 * up * down)
    # of the two roots of one quadratic, the way without cancellation
    mode = jnp.log(jnp.where(slope > 0, (slope + curvature) / (2 * up), 2 * down / (curvature - slope)))

    def log_density(y: Array) -> Array:
        return slope * y - up * jnp.exp(y) - down * jnp.exp(-y) + 0.5 * curvature * (y - mode) ** 2

    proposed = mode + jax.random.normal(key_propose, mode.shape, mode.dtype) / jnp.sqrt(curvature)
    gain = log_density(proposed) - log_density(jnp.zeros_like(mode))
    accepted = jnp.log(jax.random.uniform(key_accept, gain.shape, gain.dtype)) < gain
    return jnp.where(accepted, proposed, 0.0)
