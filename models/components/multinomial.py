"""Components of rows of counts: how the total of a row is distributed over the columns."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float
from scipy.special import gammaln as scipy_gammaln
from scipy.special import xlogy

from lvsearch.models.components.component import Component
from lvsearch.models.components.requirements import refuse_partial_rows, require_counts
from lvsearch.models.components.standard import positive_parameter
from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.families import Dirichlet, Family, PointSimplex
from lvsearch.models.hyperpriors import as_text
from lvsearch.models.units import Row


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

    def plug_in(self) -> "MultinomialComponents":
        return MultinomialComponents(self.concentration, estimated=True)

    def moments(self, statistics: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        """Return (mean, covariance) of a row with a single count, shapes (dim,) and (dim, dim).

        statistics: log-probabilities of the columns in one component, shape (dim,).
        """
        share = jnp.exp(statistics)
        return share, jnp.diag(share) - share[:, None] * share

    def draw(self, key: Array, statistics: Float[Array, " dim"], unit: Row) -> Float[Array, " dim"]:
        """Draw a row of counts with the total of `unit`, shape (dim,).

        statistics: log-probabilities of the columns in one component, shape (dim,).
        """
        total = jnp.asarray(unit.value).sum()
        return jax.random.multinomial(key, total, jnp.exp(statistics), dtype=statistics.dtype)
