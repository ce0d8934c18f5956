"""Mean field for mixtures of factor analysers, with all rows in one compiled loop.

Row n has a component z_n and scores f_n. Component k has means μ, loadings λ on the factors and noise precisions τ for
each column d; π are the weights of components and h the hyper-parameters. The factorisation is q(z_n) q(f_n | z_n) q(π)
q(μ, λ, τ) q(h), as in Ghahramani & Beal (2000), except that a column's mean, loadings and noise form one factor.

Let ⟨·⟩ be expectations over q of the parameters. A row's scores in component k have precision A_k and mean A_k⁻¹ b_nk,
where

    A_k = I + Σ_d ⟨τ λ λᵀ⟩_kd,      b_nk = Σ_d (y_nd ⟨τλ⟩_kd − ⟨τ μ λ⟩_kd).

With the scores and the labels at their optimum, the bound is Σ_n log Σ_k exp(ρ_nk) + log_prior + H[globals], where
H[globals] is the entropy of q of all parameters and

    ρ_nk = ⟨log π_k⟩ + Σ_d ½⟨log τ − τ (y_nd − μ)²⟩_kd + ½ b_nkᵀ A_k⁻¹ b_nk − ½ log |A_k|,             nats.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.engine.ascent import AscentTrace, sweep_until_settled
from lvsearch.inference.engine.meanfield import Beliefs, globals_bound
from lvsearch.inference.mixtures.kernel import START_ROUNDS, blank_beliefs, update_components_from_sums, update_weights
from lvsearch.models.contract import Masks, Statistics
from lvsearch.models.exponential.matrices import cholesky, inverse_from, log_determinant
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture
from lvsearch.models.families import RegressionStatistics
from lvsearch.models.kernels import kernel


class KnownRows(NamedTuple):
    """Rows in the components' coordinates, 1 for those with cells (else 0), and their weight (0 for padding)."""

    coordinates: Float[Array | np.ndarray, "row dim"]
    known: Float[Array | np.ndarray, " row"]
    weight: Float[Array | np.ndarray, " row"]


class RowBeliefs(NamedTuple):
    """q of the label and the scores of every row.

    log_odds: unnormalised log probabilities of the labels (ρ of the module), nats; −∞ for components that do not exist.
    scores: the means of the row's scores in each component.
    covariance: the scores' covariance in each component, the same for every row.
    """

    log_odds: Float[Array, "row component"]
    scores: Float[Array, "row component factor"]
    covariance: Float[Array, "component factor factor"]


def update_rows(model: FactorAnalyzerMixture, g: dict[str, Statistics], rows: KnownRows, on: Masks) -> RowBeliefs:
    """Compute q of the label and the scores of every row, given q of the parameters.

    g: expected statistics of the variables that all rows share, by name.
    on: masks of the components that exist.
    """
    y, known, t = rows.coordinates, rows.known[:, None], g["components"]
    outer = -2 * t.negative_half_outer.sum(1)
    factor = cholesky(outer[:, 1:, 1:] + jnp.eye(outer.shape[-1] - 1, dtype=outer.dtype))
    covariance = inverse_from(factor)
    linear = jnp.einsum("nd,kdi->nki", y, t.precision_weight[..., 1:]) - outer[:, 0, 1:]
    scores = jnp.einsum("kij,nkj->nki", covariance, linear)
    square = 0.5 * (y**2) @ t.negative_precision.T + y @ t.precision_weight[..., 0].T
    of_row = square + 0.5 * (t.log_precision.sum(1) - outer[:, 0, 0] - log_determinant(factor))
    log_odds = model.log_weights(g, on) + known * (of_row + 0.5 * (linear * scores).sum(-1))
    return RowBeliefs(jnp.where(on["component"], log_odds, -jnp.inf), scores, covariance)


def row_statistics(
    shares: Float[Array, "row component"],
    scores: Float[Array, "row component factor"],
    covariance: Float[Array, "component factor factor"],
    rows: KnownRows,
) -> RegressionStatistics:
    """Return what the rows add to the natural parameters of the components, (component, dim, …) a leaf.

    shares: the probability of each component for each row.
    scores: the means of each row's scores.
    covariance: the scores' covariance in each component.
    """
    y, own = rows.coordinates, shares * (rows.known * rows.weight)[:, None]
    g = jnp.concatenate([jnp.ones_like(scores[..., :1]), scores], axis=-1)
    more = own.sum(0)[:, None, None] * jnp.pad(covariance, [(0, 0), (1, 0), (1, 0)])
    gram = jnp.einsum("nk,nki,nkj->kij", own, g, g) + more
    counts = jnp.broadcast_to(0.5 * own.sum(0)[:, None], (own.shape[1], y.shape[1]))
    cross = jnp.einsum("nk,nd,nki->kdi", own, y, g)
    outer = jnp.broadcast_to(gram[:, None], (*counts.shape, *gram.shape[1:]))
    return RegressionStatistics(counts, 0.5 * own.T @ y**2, cross, outer)


@kernel(static_argnames=("capacity",), brief=True)
@counted
def ascend_scored(
    model: FactorAnalyzerMixture,
    beliefs: Beliefs,
    rows: KnownRows,
    size: tuple[Array | int, ...],
    tolerance: float | Array,
    sweeps: int | Array,
    *,
    capacity: tuple[int, ...],
) -> AscentTrace:
    """Run coordinate ascent until a sweep gains less than `tolerance` nats, and return its trace.

    It makes at most `sweeps` (and `TRACE_LENGTH`) sweeps. The bound recorded for a sweep belongs to the parameters
    before it, with q of the rows at its optimum. It leaves out the rows' base measure (log h of the row, an exponential
    family's carrier).

    beliefs: q of the variables that all rows share, to begin with.
    size, capacity: the number of components, and the number that arrays have room for.
    """
    on = model.active(size, capacity)

    def sweep(b: Beliefs, l: None) -> tuple[Beliefs, None, Array]:
        """Update q of rows and parameters once. The second entry is a state that is not used; the third is the bound,
        nats.
        """
        found = update_rows(model, b.mean, rows, on)
        bound = rows.weight @ jax.nn.logsumexp(found.log_odds, axis=1) + globals_bound(
            model, b, size, capacity=capacity
        )
        shares = jax.nn.softmax(found.log_odds, axis=1)
        sums, counts = row_statistics(shares, found.scores, found.covariance, rows), jnp.asarray(rows.weight) @ shares
        return update_components_from_sums(model, update_weights(model, b, counts, on), sums, on), l, bound

    return sweep_until_settled(sweep, beliefs, None, tolerance, sweeps, rows.weight.dtype)


@kernel(static_argnames=("capacity",), brief=True)
@counted
def beliefs_at_labels(
    model: FactorAnalyzerMixture,
    shares: Float[Array, "row component"],
    scores: Float[Array, "row factor"],
    rows: KnownRows,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Beliefs:
    """Return q of the variables that all rows share if rows have the given labels and scores.

    Every ascent starts from such beliefs.

    shares: 1 at the component of each row, else 0; all 0 for a row in no component.
    scores: the coordinates of each row on its component's factors.
    size, capacity: the number of components, and the number that arrays have room for.
    """
    on = model.active(size, capacity)
    everywhere = jnp.broadcast_to(scores[:, None], (*shares.shape, scores.shape[1]))
    none = jnp.zeros((shares.shape[1], scores.shape[1], scores.shape[1]), scores.dtype)
    blank = blank_beliefs(model, rows.coordinates.shape[1], capacity, scores.dtype)
    at_weights = update_weights(model, blank, jnp.asarray(rows.weight) @ shares, on, START_ROUNDS)
    return update_components_from_sums(
        model, at_weights, row_statistics(shares, everywhere, none, rows), on, START_ROUNDS
    )


@kernel(static_argnames=("capacity",), brief=True)
@counted
def responsibilities_at(
    model: FactorAnalyzerMixture,
    beliefs: Beliefs,
    rows: KnownRows,
    size: tuple[Any, ...],
    *,
    capacity: tuple[int, ...],
) -> Float[Array, "row component"]:
    """Return the probability q(z_n = k) that row n is in component k, given q of the parameters.

    size, capacity: the number of components, and the number that arrays have room for.
    """
    return jax.nn.softmax(update_rows(model, beliefs.mean, rows, model.active(size, capacity)).log_odds, axis=1)
