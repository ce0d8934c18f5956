"""The base class of Gaussian components whose columns depend on each other: full covariances and factor analysers."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import refuse_partial_rows, standardised
from lvsearch.models.components.component import Component
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.exponential.scalars import LOG_2PI
from lvsearch.models.units import Row


class DependentColumns(Component):
    """Gaussians of free covariance between columns: a row counts whole or not at all.

    `location`, `scale`: of each column, or one number for all. Rows are shifted and scaled by them.
    """

    location: eqx.AbstractVar[HyperparameterArray]
    scale: eqx.AbstractVar[HyperparameterArray]

    def check(self, units: Row) -> None:
        refuse_partial_rows(units, "columns depend on each other")

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        return standardised(unit, self.location, self.scale)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        total = jnp.broadcast_to(-0.5 * LOG_2PI - jnp.log(self.scale), coordinates.shape).sum()
        return jnp.where(observed.all(), total, 0.0).astype(coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return inf for every row with observed cells, else 0, in nats, shape (rows,).

        A component on few rows has a density without bound.
        """
        return np.where(np.asarray(units.observed).any(-1), np.inf, 0.0)
