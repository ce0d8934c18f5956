"""The posterior as a density on unconstrained reals, with indicators summed out: for NUTS of NumPyro, blackjax or
others.

`lvsearch.inference.engine.reference` says how values become statistics.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.functional.sizes import checked_places, require_extents
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.models.contract import Model

Position = dict[str, Array]
"""{name of a latent variable: its value on unconstrained reals}. Local variables are called "name/0"."""


class Density(NamedTuple):
    r"""The log-density of a posterior on unconstrained reals, and functions to make and to read positions.

    | field | meaning |
    |---|---|
    | `log_density` | position -> log p(data, θ \| size) with the Jacobian of the coordinates, nats, () |
    | `init` | key -> a position, uniform on (−2, 2) in each coordinate |
    | `constrain` | position -> values on their natural scale: probabilities, means, precisions |
    """

    log_density: Callable[[Position], Float[Array, ""]]
    init: Callable[[Key[Array, ""]], Position]
    constrain: Callable[[Position], dict[str, Array]]


def log_density(model: Model, size: Any, batch: Batch, extents: Mapping[str, int] | None = None) -> Density:
    """Return the density of the posterior of the model's continuous latent variables at one size, in nats.

    model: the model.
    size: a number, or one for each size variable.
    batch: the data; units (observations) count by their weight.
    extents: {axis: length} of the axes that the data decide; `batch_of` returns them.

    Raises ValueError for point estimates, which have no posterior, for indicators that cannot be summed out, and for
    axes without a length.
    """
    # NumPyro takes most of a second to import, and nothing else here needs it
    from numpyro import handlers
    from numpyro.distributions import biject_to
    from numpyro.infer import init_to_uniform
    from numpyro.infer.util import constrain_fn, potential_energy

    from lvsearch.inference.engine.reference import reference_model

    places = checked_places(size, extents, None)
    require_extents(model, places)
    n_units = len(batch.weight)
    numpyro_model = reference_model(
        model, Dataset.of_batches((batch,), (np.arange(n_units),), places.extents, n_units), places.size
    )

    def log_density_at(position: Position) -> Float[Array, ""]:
        return -jnp.asarray(potential_energy(numpyro_model, (), {}, position))

    def init(key: Key[Array, ""]) -> Position:
        seeded = handlers.substitute(handlers.seed(numpyro_model, key), substitute_fn=init_to_uniform)
        drawn = handlers.trace(seeded).get_trace()
        sites = {name: site for name, site in drawn.items() if site["type"] == "sample" and not site["is_observed"]}
        return {name: biject_to(site["fn"].support).inv(site["value"]) for name, site in sites.items()}

    def constrain(position: Position) -> dict[str, Array]:
        return constrain_fn(numpyro_model, (), {}, position)

    return Density(log_density_at, init, constrain)
