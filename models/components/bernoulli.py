"""Components of independent yes-or-no cells."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.component import Component
from lvsearch.models.components.standard import positive_parameter
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.families import Beta, BetaStatistics, Family, PointProbability
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row


class BernoulliComponents(Component):
    """Independent cells of 0 or 1: x_d ~ Bernoulli(v_d), v_d ~ Beta(ones, zeros). Missing cells are left out.

    ones, zeros: pseudo-counts of cells with 1 and with 0, positive.
    estimated: True in the plug-in form, where probabilities are point estimates; leave it to `plug_in`.
    """

    ones: HyperparameterArray
    zeros: HyperparameterArray
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    elliptical: ClassVar[bool] = False
    cellwise: ClassVar[bool] = True

    def __init__(self, ones: Any = 0.5, zeros: Any = 0.5, estimated: bool = False):
        self.ones, self.zeros = positive_parameter("ones", ones), positive_parameter("zeros", zeros)
        self.estimated = estimated

    @property
    def family(self) -> Family:
        return PointProbability() if self.estimated else self.prior_family

    @property
    def prior_family(self) -> Family:
        return Beta()

    def describe(self) -> str:
        if self.estimated:
            return "independent yes-or-no cells (probabilities estimated)"
        return f"independent yes-or-no cells (probabilities ~ Beta({as_text(self.ones)}, {as_text(self.zeros)}))"

    def check(self, units: Row) -> None:
        values = np.asarray(units.value)[np.asarray(units.observed)]
        wrong = values[(values != 0) & (values != 1)]
        if wrong.size:
            raise ValueError(
                f"got a cell with {float(wrong[0])!r} for BernoulliComponents, expected 0 or 1 in every cell"
            )

    def prior(self, n_dims: int) -> BetaStatistics:
        zero = jnp.zeros(n_dims)
        return BetaStatistics(zero + (self.ones - 1), zero + (self.zeros - 1))

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        return jnp.where(unit.observed, jnp.asarray(unit.value), 0.0)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> BetaStatistics:
        return BetaStatistics(coordinates, jnp.where(observed, 1 - coordinates, 0))

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        return jnp.zeros((), coordinates.dtype)

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return an upper bound on each row's log-probability, 0 nats, shape (rows,): a probability is at most 1."""
        return np.zeros(len(units.value))

    def plug_in(self) -> "BernoulliComponents":
        return BernoulliComponents(self.ones, self.zeros, estimated=True)

    def moments(self, statistics: BetaStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        probability = jnp.exp(statistics.log_value)
        return probability, jnp.diag(probability * (1 - probability))

    def draw(self, key: Array, statistics: BetaStatistics, unit: Row) -> Float[Array, " dim"]:
        probability = jnp.exp(statistics.log_value)
        return (jax.random.uniform(key, probability.shape) < probability).astype(probability.dtype)
