"""Factor analysers: Gaussian components whose covariance is a matrix of low rank plus independent noise per column."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.components.arguments import (
    LEAST,
    least_parameter,
    location_and_scale,
    location_parameter,
    positive_or_prior,
    positive_parameter,
)
from lvsearch.models.components.component import Component
from lvsearch.models.components.covariances import DependentColumns
from lvsearch.models.contract import ExpectedCells, HyperparameterArray
from lvsearch.models.exponential.matrices import cholesky, log_determinant, solve_lower
from lvsearch.models.exponential.regression import (
    NormalGammaRegression,
    RegressionStatistics,
    VectorGaussian,
    VectorGaussianStatistics,
)
from lvsearch.models.families import Family
from lvsearch.models.hyperpriors import GammaPrior, as_text, described_rate, prior_mean
from lvsearch.models.units import Row

MOST_FACTORS = 3
"""The largest number of factors. Sums over factors are written out, and quadratures have one axis for each factor."""
NODES = 9
"""The number of nodes of a quadrature along each factor."""


class FactorAnalyzerComponents(DependentColumns):
    """Factor analysers: x = location + scale · y, y_d = μ_d + λ_dᵀf + ε_d, f ~ Normal(0, I), ε_d ~ Normal(0, 1/τ_d).

    f are the scores of a row on its factors, λ_d the loadings of column d, and τ_d the precision of its noise. So y has
    the covariance ΛΛᵀ + diag(1/τ), where Λ holds the `n_factors` loadings of every column. The prior of each
    column is τ_d ~ Gamma(a, b_d + b₀), μ_d | τ_d ~ Normal(0, 1/(κτ_d)) and, for each loading, λ_dj | τ_d ~ Normal(0,
    1/(ℓτ_d)). Without its loadings a column is one of `DiagonalComponents`. The share of a column's variance that
    factors explain, relative to its noise, is λ²τ; its prior does not depend on the column's unit. Factors cannot be
    told from their rotations, and no number here depends on the rotation.

    n_factors: from 1 to 3.
    location, scale: a number, or one per column; the unit in which the other hyper-parameters are expressed.
    pseudo_count: κ, the number of rows that the prior of a mean is worth. A number or a `GammaPrior`.
    loading_count: ℓ; a small value lets factors explain much. A number or a `GammaPrior`.
    shape: a.
    rate: b. A number, one per column, or a `GammaPrior`, from which each column has a rate of its own, shared by all
        components.
    least_rate: b₀, 0 or more, added to every rate, as in `DiagonalComponents`.

    No cell of a row may be missing. Only `FactorAnalyzerMixture` takes this kind.

    Source: Ghahramani & Hinton (1996). The priors are those of Ghahramani & Beal (2000), except for the loadings, whose
    prior here is conjugate to loadings and noise together.
    """

    n_factors: int = eqx.field(static=True)
    location: HyperparameterArray
    scale: HyperparameterArray
    pseudo_count: HyperparameterArray | GammaPrior
    loading_count: HyperparameterArray | GammaPrior
    shape: HyperparameterArray
    rate: HyperparameterArray | GammaPrior
    least_rate: float = eqx.field(static=True)

    estimated: ClassVar[bool] = False
    scored: ClassVar[bool] = True
    axes: ClassVar[tuple[str, ...]] = ("dim", "coefficient", "coefficient")
    hyper_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {"pseudo_count": (), "loading_count": (), "rate": ("dim",)}

    def __init__(
        self,
        n_factors: int = 1,
        location: Any = 0.0,
        scale: Any = 1.0,
        pseudo_count: Any = 0.1,
        loading_count: Any = 1.0,
        shape: Any = 2.0,
        rate: Any = 0.5,
        least_rate: float = 0.0,
    ):
        if not 1 <= n_factors <= MOST_FACTORS:
            raise ValueError(
                f"got n_factors={n_factors!r}, expected 1 to {MOST_FACTORS}; without factors it is DiagonalComponents, "
                "with many FullCovarianceComponents"
            )
        self.n_factors = int(n_factors)
        self.location, self.scale = location_parameter(location), positive_parameter("scale", scale, ndim=1)
        self.pseudo_count = positive_or_prior("pseudo_count", pseudo_count)
        self.loading_count = positive_or_prior("loading_count", loading_count)
        self.shape = positive_parameter("shape", shape)
        self.rate = positive_or_prior("rate", rate, ndim=1)
        self.least_rate = least_parameter("least_rate", least_rate)

    def expected_cells(self, n_dims: int) -> ExpectedCells:
        between = 1 + 1 / prior_mean(self.pseudo_count) + self.n_factors / prior_mean(self.loading_count)
        variance = prior_mean(self.rate) / self.shape * between
        return ExpectedCells.from_numbers(self.location, self.scale * np.sqrt(variance), n_dims)

    @classmethod
    def scaled_to(
        cls,
        values: Any,
        n_factors: int = 1,
        pseudo_count: Any = 0.1,
        loading_count: Any = 1.0,
        shape: Any = 2.0,
        rate: Any = 0.5,
    ) -> "FactorAnalyzerComponents":
        """Make the components with the columns' means and standard deviations as location and scale.

        values: (rows, columns). n_factors, pseudo_count, loading_count, shape, rate: hyper-parameters of the class.

        Raises ValueError for a column that does not vary.
        """
        return cls(n_factors, *location_and_scale(values), pseudo_count, loading_count, shape, rate)

    @classmethod
    def weak(cls, values: Any, n_factors: int = 1) -> "FactorAnalyzerComponents":
        """Make the components like `scaled_to`, with weakly informative priors on widths, distances and loadings.

        values: (rows, columns). n_factors: from 1 to 3.

        pseudo_count and the rate of each column ~ Gamma(1, rate 1), and shape is 2, as in `DiagonalComponents.weak`.
        loading_count ~ Gamma(1, rate 1): a factor is expected to move a column as much as its noise does; the data may
        make it much more. least_rate is 1e-8, as there.

        Raises ValueError for a column that does not vary.
        """
        one = GammaPrior(1.0, 1.0)
        return cls(n_factors, *location_and_scale(values), one, one, 2.0, one, LEAST)

    @property
    def prior_family(self) -> Family:
        return NormalGammaRegression()

    @property
    def own_extents(self) -> dict[str, int]:
        return {"coefficient": self.n_factors + 1}

    def describe(self) -> str:
        rate = described_rate(self.rate, self.least_rate)
        factors = "1 factor" if self.n_factors == 1 else f"{self.n_factors} factors"
        return (
            f"factor analysers with {factors} (location {as_text(self.location)}, scale {as_text(self.scale)}, "
            f"pseudo_count {as_text(self.pseudo_count)}, loading_count {as_text(self.loading_count)}, noise's "
            f"precision ~ Gamma({as_text(self.shape)}, rate {rate})"
        )

    def prior(self, n_dims: int) -> RegressionStatistics:
        zero, n = jnp.zeros(n_dims), self.n_factors + 1
        eye, first = jnp.eye(n), jnp.arange(n) == 0
        counts = jnp.where(first, self.number("pseudo_count"), self.number("loading_count"))
        return RegressionStatistics(
            zero + (self.shape - 1 + 0.5 * n),
            zero + (self.number("rate") + self.least_rate),
            jnp.zeros((n_dims, n)),
            jnp.broadcast_to(counts * eye, (n_dims, n, n)),
        )

    def increment(self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"]) -> RegressionStatistics:
        """Return what a row whose factor scores are 0 adds to the natural parameters; starts of a fit use it.

        coordinates: the row minus location, divided by scale, shape (dim,). observed: False for missing cells, (dim,).
        """
        return self.increment_at(coordinates, observed, jnp.zeros(self.n_factors, coordinates.dtype))

    def increment_at(
        self, coordinates: Float[Array, " dim"], observed: Bool[Array, " dim"], scores: Float[Array, " factor"]
    ) -> RegressionStatistics:
        """Return what a row with the factor scores `scores` adds to the natural parameters of its component.

        coordinates: the row minus location, divided by scale: y, shape (dim,). observed: False for missing cells,
            (dim,).
        scores: f, shape (factor,).

        For every column it is (½, ½y², yg, ggᵀ), where g is 1 followed by the scores; 0 unless all cells are observed.
        """
        seen = jnp.broadcast_to(observed.all(), coordinates.shape).astype(coordinates.dtype)
        y, g = seen * coordinates, jnp.concatenate([jnp.ones(1, scores.dtype), scores])
        outer = seen[:, None, None] * (g[:, None] * g)
        return RegressionStatistics(0.5 * seen, 0.5 * y**2, y[:, None] * g, outer)

    def plug_in(self) -> Component:
        raise ValueError(
            "FactorAnalyzerComponents have no plug-in form: the likelihood grows without bound as the noise of a "
            'component shrinks on few rows. Use evidence="marginal"'
        )

    def log_densities(self, statistics: RegressionStatistics, unit: Row) -> Float[Array, " component"]:
        """Return log p(x | θ_k) of one row under each component k, with its scores integrated out, in nats,
        (component,).

        It is log Normal(y | μ, ΛΛᵀ + diag(1/τ)), computed by the q × q matrix I + Λᵀ diag(τ) Λ, for q factors.

        statistics: the statistics of the components' parameters, components leading. unit: the row.
        """
        y, observed = self.coordinates(unit), jnp.asarray(unit.observed)
        weight, precision = NormalGammaRegression().value(statistics)
        loadings, away = weight[..., 1:], y - weight[..., 0]
        # Woodbury: (ΛΛᵀ + diag(1/τ))⁻¹ = diag(τ) − diag(τ) Λ (I + Λᵀ diag(τ) Λ)⁻¹ Λᵀ diag(τ)
        factor = cholesky(jnp.eye(self.n_factors) + jnp.einsum("kdi,kd,kdj->kij", loadings, precision, loadings))
        along = solve_lower(factor, jnp.einsum("kdi,kd,kd->ki", loadings, precision, away)[..., None])[..., 0]
        quadratic = (precision * away**2).sum(-1) - (along**2).sum(-1)
        each = 0.5 * (jnp.log(precision).sum(-1) - log_determinant(factor) - quadratic)
        return jnp.where(observed.all(), each, 0.0) + self.log_carrier(y, observed)

    def log_predictives(self, natural: RegressionStatistics, unit: Row) -> Float[Array, " component"]:
        """Return log p(x | natural_k) of one row with parameters and scores integrated out, in nats, shape
        (component,).

        natural: the natural parameters of the components, components leading. unit: the row.

        Parameters are integrated out exactly given the scores. Scores are integrated out by Gauss–Hermite quadrature,
        centred where the scores would be if the parameters were known.
        """
        y, observed = self.coordinates(unit), jnp.asarray(unit.observed)
        weight, precision = NormalGammaRegression().value(NormalGammaRegression().point(natural))
        loadings, q = weight[..., 1:], self.n_factors
        # q(f) at the parameters' posterior point: precision I + Λᵀ diag(τ) Λ, the centre and scale of the quadrature
        around = jnp.eye(q) + jnp.einsum("kdi,kd,kdj->kij", loadings, precision, loadings)
        centre = jnp.einsum("kdi,kd,kd->ki", loadings, precision, jnp.where(observed, y - weight[..., 0], 0.0))
        scores = VectorGaussianStatistics(centre, around)
        middle, factor = VectorGaussian().point(scores).value, cholesky(around)
        nodes, log_weights = _nodes(q)
        before = NormalGammaRegression().log_normaliser(natural).sum(-1)

        def at_node(node: Array) -> Float[Array, " component"]:
            steps = jnp.broadcast_to(node[:, None], (*middle.shape, 1))
            offset = solve_lower(factor, steps, transposed=True)[..., 0]
            f = middle + offset
            # log p(y, f) − log of the Gaussian that the node stands for
            # the scores given, one row changes the density by A(τ + s(y, f)) − A(τ), as in Eq. 5.13
            increments = jax.vmap(lambda each: self.increment_at(y, observed, each))(f)
            after = NormalGammaRegression().log_normaliser(jax.tree.map(jnp.add, natural, increments)).sum(-1)
            return after - before - 0.5 * (f**2).sum(-1) + 0.5 * (node**2).sum() - 0.5 * log_determinant(factor)

        each = jax.vmap(at_node)(jnp.asarray(nodes, y.dtype)) + jnp.asarray(log_weights, y.dtype)[:, None]
        return jax.nn.logsumexp(each, axis=0) + self.log_carrier(y, observed)

    def moments(self, statistics: RegressionStatistics) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
        weight, precision = NormalGammaRegression().value(statistics)
        loadings = weight[..., 1:]
        covariance = loadings @ loadings.T + jnp.diag(1 / precision)
        scale = jnp.broadcast_to(jnp.asarray(self.scale), precision.shape)
        return jnp.asarray(self.location) + scale * weight[..., 0], scale[:, None] * covariance * scale

    def draw(self, key: Array, statistics: RegressionStatistics, unit: Row) -> Float[Array, " dim"]:
        key_scores, key_noise = jax.random.split(key)
        scores = jax.random.normal(key_scores, (self.n_factors,), statistics.negative_precision.dtype)
        return self.draw_at(key_noise, statistics, scores)

    def draw_at(
        self, key: Array, statistics: RegressionStatistics, scores: Float[Array, " factor"]
    ) -> Float[Array, " dim"]:
        """Draw the cells of one row with given factor scores, shape (dim,).

        statistics: the statistics of its component's parameters. scores: f, shape (factor,).
        """
        weight, precision = NormalGammaRegression().value(statistics)
        noise = jax.random.normal(key, precision.shape, precision.dtype) / jnp.sqrt(precision)
        scale = jnp.asarray(self.scale)
        return jnp.asarray(self.location) + scale * (weight[:, 0] + weight[:, 1:] @ scores + noise)


def _nodes(n_factors: int) -> tuple[Float[np.ndarray, "node factor"], Float[np.ndarray, " node"]]:
    """Return (nodes, log-weights) of Gauss–Hermite quadrature for a standard Gaussian in `n_factors` dimensions.

    Shapes (node, factor) and (node,), with 9 nodes for each factor. The weights sum to 1.
    """
    one, weight = np.polynomial.hermite_e.hermegauss(NODES)
    nodes = np.stack(np.meshgrid(*[one] * n_factors, indexing="ij"), -1).reshape(-1, n_factors)
    weights = np.stack(np.meshgrid(*[weight / weight.sum()] * n_factors, indexing="ij"), -1).prod(-1)
    return nodes, np.log(weights.reshape(-1))
