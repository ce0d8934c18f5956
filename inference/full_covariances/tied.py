"""Mixtures of Gaussians that share one covariance matrix: the annealed chain over their labels, and their estimator.

*The chain* (`TiedMixtureChain`). The path leads from the prior of the labels to their posterior, with parameters
integrated out, as in `evidence.mixtures`. The difference is in the log-normaliser A of the conjugate prior: here it is
one number of all components together (`models.tied_mixture`).

Take a row out of its component. Let B be the pooled scatter matrix, ν its degrees of freedom, D the number of columns,
and m_k and κ_k the mean and count of each component k. A row y that joins component k changes them to

    B + c_k (y − m_k)(y − m_k)ᵀ,    ν + 1,    κ_k + 1,        c_k = κ_k / (κ_k + 1),

so one factor of B serves all components. For each k, A gains

    ½D log 2 + log Γ((ν + 1)/2) − log Γ((ν + 1 − D)/2) − ½ log|B| − ½(ν + 1) log(1 + c_k q_k) + ½D log c_k,

with q_k = (y − m_k)ᵀ B⁻¹ (y − m_k). The row's predictive density is Student's t with ν + 1 − D degrees of freedom
(Bishop 2006, §2.3.7).

*The estimator* (`TiedEstimator`) is that of mixtures with one more start, from labels that are drawn row after row. The
reason: the shared covariance depends on the number of means. If a smaller fit holds two clusters in one component, it
has widened the covariance of all components, and the ascent joins the two again after a split. Starts from rows with a
covariance per component find other clusters. On six clusters of 300 rows in 3 columns, fits from such starts ended 10,
136 and 158 nats below the best. Fits from labels drawn row after row (`evidence.row_by_row`) ended at the best.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.dispatch import effort, evidence_chain
from lvsearch.inference.annealing.particles import log_densities
from lvsearch.inference.annealing.prefixes import grow, sequential
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows, rows_of
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.meanfield import Beliefs
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, JointNormaliserChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining, RowScores
from lvsearch.inference.full_covariances.partial_rows import without_missing_cells
from lvsearch.inference.generators import permutation, split_key
from lvsearch.inference.mixtures.estimator import MixtureEstimator, MixtureRun
from lvsearch.inference.mixtures.improving import RowsStart
from lvsearch.inference.sharding import one_after_another
from lvsearch.models.components import Component
from lvsearch.models.exponential.matrices import log_determinant, solve_lower
from lvsearch.models.exponential.normal_wishart import LOG_2, TiedNormalWishart, tied_parameters, tied_share
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.tied_mixture import TiedMixture


class TiedMixtureChain(JointNormaliserChain):
    """A `Chain` over the labels of a `TiedMixture`, a mixture whose components share one covariance matrix.

    It differs from the chain of a `FiniteMixture` in two ways. `natural` holds natural parameters of
    `TiedNormalWishart`. Where that chain has one log-normaliser A for each component, this one has A of all components
    together, (1, particle).

    If missing cells are latent variables (`with_rows`), `increments` has an axis of particles too, (row, 1, statistic,
    particle).
    """

    @classmethod
    def from_data(
        cls, model: FiniteMixture | TiedMixture, data: Dataset, size: int, capacity: int
    ) -> "TiedMixtureChain":
        """Return the chain of a tied mixture with `size` components.

        model: the `TiedMixture`, or its `independent` mixture.
        data: the rows.
        size: the number of components.
        capacity: the length of the arrays over components, at least `size`.

        Raises ValueError for rows without a density, and for a size below 1 or above the capacity.
        """
        independent = model.independent if isinstance(model, TiedMixture) else model
        chain = CollapsedMixtureChain.from_data(independent, data, size, capacity)
        own = chain.component, chain.concentration, chain.size, chain.increments, chain.carriers, chain.tilts
        prior = np.asarray(chain.layout.pack(tied_share(chain.layout.unpack(chain.prior), size)))
        return cls(*own, chain.weight, prior, chain.anchor, capacity, chain.layout)

    @property
    def components_share(self) -> bool:
        """Whether components have parameters in common, so that a row's move changes the scores of all: True."""
        return True

    def score_row(
        self, state: CollapsedState, row: Int[Array, ""], normaliser: Float[Array, "one particle"]
    ) -> Joining:
        """Return the scores of a row that is in no component, for each label that it might get.

        state: the labels and sums without the row.
        row: the number of the row.
        normaliser: A, the log-normaliser of all components, (1, particle), nats. Only `normaliser` of the result
            depends on it.
        """
        s = self._statistics_of(row)[0]
        degrees, factor, centre, count = tied_parameters(self._particles_first(state.natural), self._mask())
        n_dims, share = centre.shape[-1], count / (count + 1)
        y = self.layout.unpack(s.T).precision_mean[:, None]
        away = solve_lower(factor, jnp.swapaxes(y - centre, -1, -2))
        quadratic = share * (away**2).sum(-2)
        alike = gammaln(0.5 * (degrees + 1)) - gammaln(0.5 * (degrees + 1 - n_dims)) - 0.5 * log_determinant(factor)
        each = 0.5 * n_dims * (LOG_2 + jnp.log(share)) - 0.5 * (degrees + 1)[:, None] * jnp.log1p(quadratic)
        of_row = (alike[:, None] + each).T
        of_label = jnp.log(state.counts + self._concentration())
        return Joining(RowScores(of_label, of_row), state.natural + s[:, None], normaliser + of_row)

    def with_rows(
        self, coordinates: Float[Array, "row dim particle"], has_cells: Float[Array, " row"]
    ) -> "TiedMixtureChain":
        def packed(y: Array, whole: Array) -> Float[Array, "statistic particle"]:
            seen = jnp.broadcast_to(whole > 0, y.shape[:1])
            return jax.vmap(lambda cells: self.layout.pack(self.component.increment(cells, seen)), -1, -1)(y)

        return eqx.tree_at(lambda c: c.increments, self, jax.vmap(packed)(coordinates, has_cells)[:, None])

    def draw_components(self, key: Key[Array, ""], state: CollapsedState) -> Any:
        return TiedNormalWishart().sample(key, self._particles_first(state.natural), self._mask())

    def gains(self, natural: Any, prior: Any) -> Float[Array, "cell particle"]:
        """Return A(λ + S) − A(λ) of each particle, the log evidence of its rows given the labels without carriers,
        nats.

        natural: λ + S, natural parameters of the components given their rows.
        prior: λ, the share of the prior that each component has, (statistic,) or (particle, statistic).

        Returns: (1, particle): the columns of the rows are not independent and count as one cell.
        """
        one = self.beside_components(prior)
        everywhere = jnp.broadcast_to(one, (len(one), self.capacity, one.shape[-1]))
        return self.normalisers(natural) - self.normalisers(everywhere)

    def prior_natural(self, component: Component, n_dims: int) -> Any:
        """Return the natural parameters of the share of the prior that each component has, (statistic,).

        component: the kind of component, with all its hyper-parameters given as numbers.
        n_dims: the number of columns.
        """
        return self.layout.pack(tied_share(component.prior(n_dims), self._as_float(self.size)))

    def normalisers(self, natural: Float[Array, "statistic component particle"]) -> Float[Array, "one particle"]:
        """Return the log-normaliser of all components of each particle together, (1, particle), nats.

        natural: natural parameters of the components, (statistic, component, particle).
        """
        return TiedNormalWishart().log_normaliser(self._particles_first(natural), self._mask())[None]

    def _mask(self) -> Array:
        """Return which components exist, (component, 1, 1), bool, to mask arrays (component, dim, dim)."""
        return self.exists()[..., None]

    def _particles_first(self, natural: Float[Array, "statistic component particle"]) -> Any:
        """Return natural parameters as a pytree whose leaves are (particle, component, …)."""
        return self.layout.unpack(jnp.transpose(natural))


def evidence_chain_of_tied_mixture(
    model: TiedMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> TiedMixtureChain | HyperMixture:
    """Return the annealed chain of a tied mixture from the prior of its labels.

    Hyper-parameters that have priors are annealed with the labels. estimate: not used.
    """
    chain = TiedMixtureChain.from_data(model, data, size[0], capacity_of(size)[0])
    return HyperMixture.around(chain, model.components, data) if model.components.inferred else chain


SWEEPS = 2
"""The number of sweeps over the labels of all rows in one path that adds row after row."""


class TiedEstimator(MixtureEstimator):
    """The estimator of a `TiedMixture` on rows: a mixture whose components share one covariance matrix."""

    def __init__(self, model: TiedMixture, data: Dataset):
        """Check the rows and cut them into tiles; nothing is fitted."""
        super().__init__(model, data)
        self.data = data

    def run(self, size: tuple[int, ...], dtype: Any) -> "TiedRun":
        """Return an unfinished fit at this size. Its `fit` does the work.

        size: (number of components,).
        dtype: the floating-point type in which it computes.
        """
        return TiedRun(self, size, dtype)


class TiedRun(MixtureRun):
    """One fit of a tied mixture at one size in one floating-point type."""

    owner: TiedEstimator

    def starts(self, begin: RowsStart) -> list[Beliefs]:
        """Return q(weights, components) of all starts of the first ascents.

        They are: from a smaller fit, if there is one; from nothing; and from labels drawn row after row.

        begin: the random key, and the fit of another size or None.
        """
        grown = [] if begin.start is None else self.starts_from_smaller(begin.start)
        if begin.alone:
            return grown
        return [*grown, self.start_from_nothing(begin.key), self._along_rows(begin.key)]

    def _along_rows(self, key: Array) -> Beliefs:
        """Return q(weights, components) from labels that several particles draw row after row; the best particle's
        labels are used.

        If there are many rows, only `start_rows` of them are labelled.
        """
        key_order, key_data, key_path = split_key(key, 3)
        order = permutation(key_order, self.owner.n_rows)[: self.settings.start_rows]
        units, _ = rows_of(self.owner.data)
        part = rows(np.asarray(units.value)[order], np.asarray(units.observed)[order])
        model, part = without_missing_cells(self.model, part)
        chain = evidence_chain(model, part, self.size, None)
        work, sampler = effort(chain, 0), sequential(chain, key_data)
        assert sampler is not None  # paths of these chains from the prior lead along the rows
        with one_after_another(), jax.enable_x64(True):
            ended = grow(sampler, key_path, SWEEPS, islands=work.islands, particles=work.particles).state
            best = int(np.argmax(np.asarray(log_densities(chain, ended))))
            labels = np.asarray(ended.labels)[:, best]
        # The labels, padded to one length, give the beliefs that the ascent starts from.
        in_turn = self.rows_in_order(order)
        wide = np.zeros(len(in_turn.weight), np.int32)
        wide[: len(order)] = labels[: len(order)]
        return self.beliefs_from_labels(in_turn, wide)
