"""The NumPyro distribution of Markov paths, in its own file so that the families do not import NumPyro."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample


class MarkovPath(dist.Distribution):
    """The NumPyro distribution of a path of `MarkovChain`: the index of the state of each row, on the last axis.

    family: the `MarkovChain`. natural: its natural parameters.
    """

    arg_constraints: ClassVar = {"state": constraints.real_matrix}
    pytree_aux_fields = ("family",)

    def __init__(self, family: Any, natural: Any, *, validate_args=None):
        self.family, self.natural, self.state = family, natural, natural.state
        super().__init__(jnp.shape(natural.state)[:-2], jnp.shape(natural.state)[-2:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)  # pyright: ignore[reportArgumentType]
    def support(self):
        return constraints.independent(constraints.integer_interval(0, self.state.shape[-1] - 1), 1)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()):
        natural = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*sample_shape, *leaf.shape)), self.natural)
        return self.family.value(self.family.sample(key, natural))

    @validate_sample
    def log_prob(self, value: Any, intermediates: Any = None):
        state = jax.nn.one_hot(value, self.state.shape[-1], dtype=self.state.dtype)
        steps = jnp.einsum(
            "...ti,...tij,...tj->...", state[..., :-1, :], self.natural.step[..., 1:, :, :], state[..., 1:, :]
        )
        return (state * self.state).sum((-2, -1)) + steps - self.family.log_normaliser(self.natural)
