"""The estimator of mixtures of factor analysers: an ascent from each of several starts, of which the best is kept.

A start is a label for every row. The scores of a row are those on the principal components of the rows with its label.
Labels come from three sources:

- From the fit of a smaller size, with its largest component cut in two where it spreads most.
- From rows drawn in turn as if there were no factors.
- From the end of a path that draws labels and scores along the rows (`row_by_row`).

The ascent is mean field with all rows in one compiled loop (`ascend_scored`). Row n has a component z_n and scores f_n.
Component k has means μ, loadings λ on the factors and noise precisions τ for each column d; π are the weights of
components and h the hyper-parameters. The factorisation is q(z_n) q(f_n | z_n) q(π) q(μ, λ, τ) q(h), as in Ghahramani &
Beal (2000), except that a column's mean, loadings and noise form one factor.

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
from jaxtyping import Array, Float, Int

from lvsearch.inference.annealing.dispatch import effort, evidence_chain
from lvsearch.inference.annealing.particles import log_densities
from lvsearch.inference.annealing.prefixes import grow, sequential
from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows, rows_of
from lvsearch.inference.engine.ascent import AscentTrace, sweep_until_settled
from lvsearch.inference.engine.estimate import Estimate, beliefs_at, capacity_of, record_in_single_unless_it_costs
from lvsearch.inference.engine.estimator import MIB, BaseEstimator, MemoryPlan, Part
from lvsearch.inference.engine.meanfield import Beliefs, globals_bound
from lvsearch.inference.generators import fold_in, permutation, split_key
from lvsearch.inference.mixtures.kernel import START_ROUNDS, blank_beliefs, update_components_from_sums, update_weights
from lvsearch.inference.mixtures.rows import coordinates_and_carriers
from lvsearch.inference.mixtures.starts import sequential_pass, split_along_spread
from lvsearch.inference.sharding import one_after_another
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


PATH_SWEEPS = 2
"""The number of sweeps over labels and scores of all rows in one path along the rows."""
PASSES = 2
"""The number of starts whose labels are drawn row by row, as if there were no factors."""


class ScoredSettings(NamedTuple):
    """Settings of the estimator: effort and stopping rules. Tolerances are in nats per row and sweep.

    | field | meaning |
    |---|---|
    | `sweeps`, `tolerance` | the most sweeps of the ascent; a sweep that gains less is the last one |
    | `start_rows` | the most rows that starts go over, drawn at random; other rows begin in no component |
    | `double_below` | rows × components × columns up to which everything is in float64 |
    """

    sweeps: int = 1000
    tolerance: float = 1e-6
    start_rows: int = 1000
    double_below: float = 1e6


DEFAULTS = ScoredSettings()


class FactorAnalyzerEstimator(BaseEstimator):
    """Fits a `FactorAnalyzerMixture` to rows by mean field, from several starts."""

    def __init__(self, model: FactorAnalyzerMixture, data: Dataset, settings: ScoredSettings = DEFAULTS):
        super().__init__(model)
        self.scored, self.data, self.settings = model, data, settings
        units, weight = rows_of(data)
        model.components.check(units)
        with jax.enable_x64(True):
            coordinates, carriers = map(np.asarray, coordinates_and_carriers(model.components, units))
        self.log_carrier, self.n_rows = float(weight @ carriers), len(weight)
        known = np.asarray(units.observed).all(1).astype(np.float64)
        pad = -len(weight) % 8  # data sets of about as many rows share their programs
        self.rows = KnownRows(
            np.pad(coordinates, [(0, pad), (0, 0)]), np.pad(known, (0, pad)), np.pad(weight, (0, pad))
        )

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return the memory a fit needs: rows, responsibilities and scores, beliefs about parameters, and programs."""
        (capacity,), (n_rows, n_dims) = capacity_of(size), self.rows.coordinates.shape
        p = self.scored.analyzers.n_factors + 1
        return MemoryPlan(
            (
                Part("rows", 8 * 3 * n_rows * n_dims),
                Part("responsibilities and scores", 8 * 4 * n_rows * capacity * (p + 1)),
                Part("beliefs about parameters", 8 * 12 * capacity * n_dims * (p + 1) ** 2),
                Part("compiled programs", 100 * MIB),
            )
        )

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return the best of the ascents from all starts, with its evidence lower bound in float64.

        size: (number of components,).
        key: the random key of the starts.
        start: the fit of a smaller size, from which one more start is made; None for none.
        """
        return self._fit_in_best_precision(size, key, start, alone=False)

    def continue_fit(self, size: tuple[int, ...], key: Array, start: Estimate) -> Estimate:
        """Return an ascent from the labels that a fit of the same size to other data gives the rows.

        size: (number of components,). key: not used. start: the fit of this size.
        """
        return self._fit_in_best_precision(size, key, start, alone=True)

    def _fit_in_best_precision(
        self, size: tuple[int, ...], key: Array, start: Estimate | None, *, alone: bool
    ) -> Estimate:
        """Return the fit in float32 or float64, as many rows or few ask for; the other arguments are those of `fit`.

        alone: True to begin at `start` alone.
        """
        double = self.n_rows * size[0] * self.rows.coordinates.shape[1] <= self.settings.double_below
        estimate = self._fit_in_precision(size, key, start, alone=alone, double=double)
        if double or not np.isnan(estimate.log_lower):
            return estimate
        # float32 may lose the width of a component
        return self._fit_in_precision(size, key, start, alone=alone, double=True)

    def _fit_in_precision(
        self, size: tuple[int, ...], key: Array, start: Estimate | None, *, alone: bool, double: bool
    ) -> Estimate:
        """Return the best of the ascents from all starts in float64 or in float32; the arguments are those of `fit`.

        alone: True to begin at `start` alone.
        """
        capacity, key_turn, key_path = capacity_of(size), *split_key(key)
        dtype = np.float64 if double else np.float32
        starts = [] if alone else [self._labels_along_rows(key_path, size)]
        with jax.enable_x64(double):
            known_rows = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), self.rows)
            if not alone:
                starts += [self._labels_in_turn(fold_in(key_turn, n), known_rows, size) for n in range(PASSES)]
            if start is not None:
                starts.append(self._labels_from_fit(start, known_rows, size))
            climbed = [self._climb(labels, known_rows, size) for labels in starts]
            ends = [trace.bound_history()[-1] if int(trace.sweeps) else -np.inf for trace in climbed]
            best = climbed[int(np.argmax(np.nan_to_num(ends, nan=-np.inf)))].beliefs
        natural, lower = record_in_single_unless_it_costs(
            self.model, best, size, capacity, lambda n: self._bound(n, size), double=double
        )
        return Estimate(self.model, size, natural, lower, np.inf, sum(int(trace.sweeps) for trace in climbed))

    def _bound(self, natural: Any, size: tuple[int, ...]) -> float:
        """Return the evidence lower bound in float64 at exactly the given natural parameters, nats.

        q of the rows is at its optimum given the parameters.

        natural: natural parameters of the variables that all rows share, as an `Estimate` records them.
        """
        capacity = capacity_of(size)
        with jax.enable_x64(True):
            beliefs = beliefs_at(self.model, natural, size, capacity, np.float64)
            trace = ascend_scored(self.scored, beliefs, self.rows, size, np.inf, 1, capacity=capacity)
            return float(trace.bounds[0]) + self.log_carrier

    def _climb(self, labels: Int[np.ndarray, " row"], known_rows: KnownRows, size: tuple[int, ...]) -> AscentTrace:
        """Run the ascent from one label for every row, and return its trace. Label −1 means no component at first."""
        capacity, dtype = capacity_of(size), known_rows.weight.dtype
        shares = (labels[:, None] == np.arange(capacity[0])).astype(dtype)
        scores = principal_scores(np.asarray(known_rows.coordinates), labels, self.scored.analyzers.n_factors)
        beliefs = beliefs_at_labels(self.scored, shares, scores.astype(dtype), known_rows, size, capacity=capacity)
        tolerance, sweeps = self.settings.tolerance * self.n_rows, self.settings.sweeps
        return ascend_scored(self.scored, beliefs, known_rows, size, tolerance, sweeps, capacity=capacity)

    # ── starts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _labels_in_turn(self, key: Array, known_rows: KnownRows, size: tuple[int, ...]) -> Int[np.ndarray, " row"]:
        """Draw labels one row after another, as if components had no factors.

        Returns one label for every row, padding included: −1 for padding, and for rows beyond the first `start_rows`
        drawn.
        """
        key_order, key_pass = split_key(key)
        order = permutation(key_order, self.n_rows)[: self.settings.start_rows]
        order = np.concatenate([order, np.arange(self.n_rows, len(known_rows.weight))])  # padding last
        observed = np.broadcast_to(known_rows.known[order, None] > 0, known_rows.coordinates[order].shape)
        part = known_rows.coordinates[order], observed, known_rows.weight[order]
        with one_after_another():
            drawn = sequential_pass(self.scored, key_pass, *part, size, capacity=capacity_of(size))
        labels = np.full(len(known_rows.weight), -1)
        labels[order] = np.asarray(drawn)
        return np.where(known_rows.weight > 0, labels, -1)

    def _labels_from_fit(
        self, start: Estimate, known_rows: KnownRows, size: tuple[int, ...]
    ) -> Int[np.ndarray, " row"]:
        """Return labels for every row from a smaller fit, with its largest components cut in two; −1 for padding."""
        old = capacity_of(start.size)
        beliefs = beliefs_at(self.model, start.natural, start.size, old, known_rows.weight.dtype)
        found = np.asarray(responsibilities_at(self.scored, beliefs, known_rows, start.size, capacity=old)).argmax(1)
        shares = (found[:, None] == np.arange(size[0])) * (known_rows.weight > 0)[:, None]
        shares = shares.astype(np.float64)
        for child in range(start.size[0], size[0]):
            parent = int(np.argmax(shares.sum(0)))
            shares = split_along_spread(shares, np.asarray(known_rows.coordinates, np.float64), parent, child)
        return np.where(shares.any(1), shares.argmax(1), -1)

    def _labels_along_rows(self, key: Array, size: tuple[int, ...]) -> Int[np.ndarray, " row"]:
        """Return the labels of the best particle of an annealed path along the rows.

        Rows beyond the first `start_rows` drawn have label −1, and padding has −1.
        """
        key_order, key_data, key_path = split_key(key, 3)
        order = permutation(key_order, self.n_rows)[: self.settings.start_rows]
        units, _ = rows_of(self.data)
        part = rows(np.asarray(units.value)[order], np.asarray(units.observed)[order])
        chain = evidence_chain(self.model, part, size, None)
        work, sampler = effort(chain, 0), sequential(chain, key_data)
        assert sampler is not None  # paths of these chains from the prior lead along the rows
        with one_after_another(), jax.enable_x64(True):
            ended = grow(sampler, key_path, PATH_SWEEPS, islands=work.islands, particles=work.particles).state
            best = int(np.argmax(np.asarray(log_densities(chain, ended))))
            drawn = np.asarray(ended.labels)[:, best]
        labels = np.full(len(self.rows.weight), -1)
        labels[order] = drawn[: len(order)]
        return labels


def principal_scores(
    coordinates: Float[np.ndarray, "row dim"], labels: Int[np.ndarray, " row"], n_factors: int
) -> Float[np.ndarray, "row factor"]:
    """Return each row's coordinates on the first principal components of the rows with its label, each of variance 1.

    They are 0 for rows without a label (−1), and on components beyond the rank of the rows with that label.
    """
    scores = np.zeros((len(labels), n_factors))
    for label in np.unique(labels[labels >= 0]):
        members = np.flatnonzero(labels == label)
        centred = coordinates[members] - coordinates[members].mean(0)
        left, size, _ = np.linalg.svd(centred, full_matrices=False)
        kept = min(n_factors, int((size > 1e-8 * max(size.max(initial=0.0), 1e-8)).sum()))
        scores[members, :kept] = left[:, :kept] * np.sqrt(len(members))
    return scores
