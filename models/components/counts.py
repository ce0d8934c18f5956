"""Components of counts: independent columns, with a Poisson or a larger variance, or the shares of a row's total.

| kind | what is modelled |
|---|---|
| `PoissonComponents` | independent counts in each column |
| `NegativeBinomialComponents` | independent counts with a variance above their mean |
| `MultinomialComponents` | how the total of a row is distributed over the columns; the total itself is given |
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float
from scipy.special import gammaln as scipy_gammaln
from scipy.special import xlogy

from lvsearch.models.components.arguments import positive_parameter, refuse_partial_rows, require_counts
from lvsearch.models.components.component import Component
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.families import Beta, BetaStatistics, Dirichlet, Family, Gamma, GammaStatistics, PointSimplex
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row


class CountComponents(Component):
    """Base of the kinds whose columns are independent counts."""

    estimated: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = ("dim",)
    elliptical: ClassVar[bool] = False
    cellwise: ClassVar[bool] = True

    def free_parameters(self, n_dims: int) -> int:
        return n_dims

    def check(self, units: Row) -> None:
        require_counts(units, type(self).__name__)


class PoissonComponents(CountComponents):
    """Independent counts: x_d ~ Poisson(v_d), v_d ~ Gamma(shape, rate), in each column. Cells are whole numbers ≥ 0.

    shape, rate: positive; a column's mean is around shape/rate.

    Missing cells are left out.
    """

    shape: HyperparameterArray
    rate: HyperparameterArray

    def __init__(self, shape: Any = 1.0, rate: Any = 1.0):
        self.shape, self.rate = positive_parameter("shape", shape), positive_parameter("rate", rate)

    @property
    def prior_family(self) -> Family:
        return Gamma()

    def describe(self) -> str:
        return f"independent counts (means ~ Gamma({as_text(self.shape)}, rate {as_text(self.rate)}))"

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


class NegativeBinomialComponents(CountComponents):
    """Independent counts: x_d ~ NegativeBinomial(r_d, v_d), v_d ~ Beta(shape, rate · r_d). Cells are whole numbers ≥ 0.

        p(x | r, v) = Γ(x + r) / (Γ(r) x!) · v^x (1 − v)^r,      mean m = r v / (1 − v),      variance m + m² / r

    concentration: r, a number or one per column, positive. The smaller, the more counts vary beyond a Poisson
        distribution, and the fewer components they need. It is given, not inferred; the evidence of searches with
        different r can be compared.
    shape, rate: positive; a column's mean is around shape/rate. As r grows, the kind becomes
        `PoissonComponents(shape, rate)`.

    Missing cells are left out.
    """

    concentration: HyperparameterArray
    shape: HyperparameterArray
    rate: HyperparameterArray

    def __init__(self, concentration: Any, shape: Any = 1.0, rate: Any = 1.0):
        self.concentration = positive_parameter("concentration", concentration, ndim=1)
        self.shape, self.rate = positive_parameter("shape", shape), positive_parameter("rate", rate)

    @property
    def prior_family(self) -> Family:
        return Beta()

    def describe(self) -> str:
        return (
            f"independent counts with variance m + m²/{as_text(self.concentration)} about their means m "
            f"(shape {as_text(self.shape)}, rate {as_text(self.rate)})"
        )

    def check(self, units: Row) -> None:
        given, n_columns = np.shape(self.concentration), np.shape(units.value)[-1]
        if given and given[0] != n_columns:
            raise ValueError(f"got {given[0]} concentrations for {n_columns} columns, expected one for each")
        require_counts(units, "NegativeBinomialComponents")

    def prior(self, n_dims: int) -> BetaStatistics:
        zero = jnp.zeros(n_dims)
        return BetaStatistics(zero + (self.shape - 1), zero + (self.rate * self.concentration - 1))

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> BetaStatistics:
        seen = jnp.where(observed, self.concentration, 0.0).astype(coordinates.dtype)
        return BetaStatistics(coordinates, seen)

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        r = jnp.asarray(self.concentration, coordinates.dtype)
        each = gammaln(coordinates + r) - gammaln(r) - gammaln(coordinates + 1)
        return jnp.where(observed, each, 0.0).sum()

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return the greatest log-likelihood of each row at the given concentration r, in nats, shape (rows,).

        The mean of each cell then equals its count.
        """
        x = np.where(np.asarray(units.observed), np.asarray(units.value, np.float64), 0.0)
        r = np.asarray(self.concentration, np.float64)
        carrier = scipy_gammaln(x + r) - scipy_gammaln(r) - scipy_gammaln(x + 1)
        return (carrier + xlogy(x, x / (x + r)) - r * np.log1p(x / r)).sum(-1)

    def moments(self, statistics: BetaStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        mean = self._mean(statistics)
        return mean, jnp.diag(mean + mean**2 / self.concentration)

    def draw(self, key: Array, statistics: BetaStatistics, unit: Row) -> Float[Array, " dim"]:
        """Draw the counts of one row of one component, shape (dim,).

        Each count is Poisson, with a mean drawn from a Gamma of shape r about the component's mean of the column.

        statistics: the statistics of the component's parameters v, (log v, log(1 − v)), shape (dim,) each.
        """
        key_mean, key_count = jax.random.split(key)
        mean = self._mean(statistics)
        r = jnp.broadcast_to(jnp.asarray(self.concentration, mean.dtype), mean.shape)
        drawn = jax.random.gamma(key_mean, r) / r * mean
        return jax.random.poisson(key_count, drawn).astype(mean.dtype)

    def _mean(self, statistics: BetaStatistics) -> Float[Array, " dim"]:
        """Return the mean r v / (1 − v) of each column in one component, shape (dim,).

        statistics: the statistics of the component's parameters v, (log v, log(1 − v)), shape (dim,) each.
        """
        return jnp.asarray(self.concentration) * jnp.exp(statistics.log_value - statistics.log_complement)


class MultinomialComponents(Component):
    """Rows of counts: x ~ Multinomial(n, θ), θ ~ Dirichlet(concentration, …), where n = Σ_d x_d is given, not modelled.

    concentration: pseudo-counts of every column, positive.

    Cells are whole numbers ≥ 0, and no cell of a row may be missing.
    """

    concentration: HyperparameterArray
    estimated: bool = eqx.field(static=True)

    axes: ClassVar[tuple[str, ...]] = ("dim",)
    elliptical: ClassVar[bool] = False

    def __init__(self, concentration: Any = 0.5, estimated: bool = False):
        self.concentration = positive_parameter("concentration", concentration)
        self.estimated = estimated

    @property
    def family(self) -> Family:
        return PointSimplex() if self.estimated else self.prior_family

    @property
    def prior_family(self) -> Family:
        return Dirichlet()

    def describe(self) -> str:
        if self.estimated:
            return "multinomial counts (probabilities estimated)"
        return f"multinomial counts (probabilities ~ Dirichlet, {as_text(self.concentration)} per column)"

    def check(self, units: Row) -> None:
        refuse_partial_rows(units, "the counts of a row share its total")
        require_counts(units, "MultinomialComponents")

    def prior(self, n_dims: int) -> Float[Array, " dim"]:
        return jnp.zeros(n_dims) + (self.concentration - 1)

    def coordinates(self, unit: Row) -> Float[Array, " dim"]:
        return jnp.where(jnp.asarray(unit.observed).all(), jnp.asarray(unit.value), 0.0)

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, " dim"]:
        return coordinates

    def log_carrier(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> Float[Array, ""]:
        return gammaln(coordinates.sum() + 1) - gammaln(coordinates + 1).sum()

    def log_tokens(self, statistics: Float[Array, "component dim"], tokens: Any) -> Float[Array, "token component"]:
        """Return log p(token | θ_k), the log-likelihood of rows with a single count, in nats, shape (token, component).

        statistics: log-probabilities of the columns in each component, shape (component, dim).
        tokens: the column of each row's count, shape (token,).
        """
        return statistics.T[tokens]

    def log_ceiling(self, units: Row) -> Float[np.ndarray, " rows"]:
        """Return the log-likelihood of each row with its own frequencies θ_d = x_d / n, in nats, shape (rows,).

        n is the total of the row. By Gibbs' inequality no θ gives more.
        """
        x = np.where(np.asarray(units.observed).all(-1, keepdims=True), np.asarray(units.value, np.float64), 0.0)
        n = x.sum(-1, keepdims=True)
        coefficient = scipy_gammaln(n[:, 0] + 1) - scipy_gammaln(x + 1).sum(-1)
        return coefficient + xlogy(x, x / np.where(n > 0, n, 1)).sum(-1)

    def free_parameters(self, n_dims: int) -> int:
        return n_dims - 1

    def plug_in(self) -> "MultinomialComponents":
        return MultinomialComponents(self.concentration, estimated=True)

    def moments(self, statistics: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """Return (mean, covariance) of a row with a single count, shapes (dim,) and (dim, dim).

        statistics: log-probabilities of the columns in one component, shape (dim,).
        """
        share = jnp.exp(statistics)
        return share, jnp.diag(share) - share[:, None] * share

    @property
    def keeps_totals(self) -> bool:
        return True

    def draw(self, key: Array, statistics: Float[Array, " dim"], unit: Row) -> Float[Array, " dim"]:
        """Draw a row of counts with the total of `unit`, shape (dim,).

        statistics: log-probabilities of the columns in one component, shape (dim,).
        """
        total = jnp.asarray(unit.value).sum()
        return jax.random.multinomial(key, total, jnp.exp(statistics), dtype=statistics.dtype)
