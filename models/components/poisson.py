"""Components of independent counts."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float
from scipy.special import gammaln as scipy_gammaln
from scipy.special import xlogy

from lvsearch.models.components.component import Component
from lvsearch.models.components.requirements import require_counts
from lvsearch.models.components.standard import positive_parameter
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.families import Family, Gamma, GammaStatistics
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row


class PoissonComponents(Component):
    """Independent counts: x_d ~ Poisson(v_d), v_d ~ Gamma(shape, rate), in each column. Cells are whole numbers ≥ 0.

    shape, rate: positive; a column's mean is around shape/rate.

    Missing cells are left out.
    """

    shape: HyperparameterArray
    rate: HyperparameterArray

    estimated: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = ("dim",)
    elliptical: ClassVar[bool] = False
    cellwise: ClassVar[bool] = True

    def __init__(self, shape: Any = 1.0, rate: Any = 1.0):
        self.shape, self.rate = positive_parameter("shape", shape), positive_parameter("rate", rate)

    @property
    def family(self) -> Family:
        return self.prior_family

    @property
    def prior_family(self) -> Family:
        return Gamma()

    def describe(self) -> str:
        return f"independent counts (means ~ Gamma({as_text(self.shape)}, rate {as_text(self.rate)}))"

    def check(self, units: Row) -> None:
        require_counts(units, "PoissonComponents")

    def prior(self, n_dims: int) -> GammaStatistics:
        zero = jnp.zeros(n_dims)
        return GammaStatistics(zero + (self.shape - 1), zero + self.rate)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> GammaStatistics:
        return GammaStatistics(coordinates, observed.astype(coordinates.dtype))

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        return -gammaln(coordinates + 1).sum()

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return the greatest log-likelihood of each row, in nats, shape (rows,): each cell's mean equals its count."""
        x = np.where(np.asarray(units.observed), np.asarray(units.value, np.float64), 0.0)
        return (xlogy(x, x) - x - scipy_gammaln(x + 1)).sum(-1)

    def moments(self, statistics: GammaStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        mean = -statistics.negative_value
        return mean, jnp.diag(mean)

    def draw(self, key: Array, statistics: GammaStatistics, unit: Row) -> Float[Array, " dim"]:
        mean = -statistics.negative_value
        return jax.random.poisson(key, mean).astype(mean.dtype)
