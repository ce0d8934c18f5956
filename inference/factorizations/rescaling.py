"""A Metropolis move of the scale that a factor and its intensities share, on which no cell's mean depends.

If factor k's intensities are multiplied by e^y and its entries β_k are divided by e^y, all products stay the same.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def scale_step(
    key: Key[Array, ""], slope: Float[Array, "..."], up: Float[Array, "*factor"], down: Float[Array, "*factor"]
) -> Float[Array, "*factor"]:
    """Draw y for each factor by one Metropolis step from y = 0. The caller multiplies intensities by e^y, factors by
    e^−y.

    The density of y is slope · y − up e^y − down e^−y, nats, up to a constant. The proposal is the Gaussian at its
    mode, independent of the current y. For a factor that does not exist the gain is NaN, and y is 0.

    slope: the linear coefficient, one number for all factors or one per factor.
    up, down: the coefficients of e^y and e^−y, one positive number per factor.
    """
    key_propose, key_accept = jax.random.split(key)
    curvature = jnp.sqrt(slope**2 + 4 * up * down)
    # of the two roots of one quadratic, the way without cancellation
    mode = jnp.log(jnp.where(slope > 0, (slope + curvature) / (2 * up), 2 * down / (curvature - slope)))

    def log_density(y: Array) -> Array:
        """Return log density of y minus log density of the proposal, nats, up to a constant."""
        return slope * y - up * jnp.exp(y) - down * jnp.exp(-y) + 0.5 * curvature * (y - mode) ** 2

    proposed = mode + jax.random.normal(key_propose, mode.shape, mode.dtype) / jnp.sqrt(curvature)
    gain = log_density(proposed) - log_density(jnp.zeros_like(mode))
    accepted = jnp.log(jax.random.uniform(key_accept, gain.shape, gain.dtype)) < gain
    return jnp.where(accepted, proposed, 0.0)
