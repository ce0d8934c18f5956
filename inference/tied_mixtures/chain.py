"""The annealed chain over the labels of a mixture with one shared covariance matrix, with parameters integrated out.

The path leads from the prior of the labels to their posterior, as in `evidence.mixtures`. The difference is in the
log-normaliser A of the conjugate prior: here it is one number of all components together (`models.tied_mixture`).

Take a row out of its component. Let B be the pooled scatter matrix, ν its degrees of freedom, D the number of columns,
and m_k and κ_k the mean and count of each component k. A row y that joins component k changes them to

    B + c_k (y − m_k)(y − m_k)ᵀ,    ν + 1,    κ_k + 1,        c_k = κ_k / (κ_k + 1),

so one factor of B serves all components. For each k, A gains

    ½D log 2 + log Γ((ν + 1)/2) − log Γ((ν + 1 − D)/2) − ½ log|B| − ½(ν + 1) log(1 + c_k q_k) + ½D log c_k,

with q_k = (y − m_k)ᵀ B⁻¹ (y − m_k). The row's predictive density is Student's t with ν + 1 − D degrees of freedom
(Bishop 2006, §2.3.7).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.evidence.mixtures import Choose, CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining
from lvsearch.models.components import Component
from lvsearch.models.exponential.matrices import log_determinant, solve_lower
from lvsearch.models.exponential.normal_wishart import LOG_2
from lvsearch.models.exponential.tied_normal_wishart import TiedNormalWishart, tied_parameters, tied_share
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.tied_mixture import TiedMixture


class TiedMixtureChain(CollapsedMixtureChain):
    """A `Chain` over the labels of a `TiedMixture`, a mixture whose components share one covariance matrix.

    It differs from the chain of a `FiniteMixture` in two ways. `natural` holds natural parameters of
    `TiedNormalWishart`. Where that chain has one log-normaliser A for each component, this one has A of all components
    together, (1, particle).
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
        prior = jax.tree.map(np.asarray, tied_share(chain.prior, size))
        return cls(*own, chain.weight, prior, chain.anchor, capacity)

    def redraw_row(
        self,
        state: CollapsedState,
        normaliser: Float[Array, "one particle"],
        row: Int[Array, ""],
        choose: Choose,
        prior: Any,
    ) -> tuple[CollapsedState, Float[Array, "one particle"]]:
        """Take one row out of its component, let `choose` choose its label, and put it there.

        state: the labels and sums of all particles.
        normaliser: A, the log-normaliser of all components with the row at its old label, (1, particle), nats.
        row: the number of the row.
        choose: (the state without the row, the row's scores) -> the row's new labels, (particle,).
        prior: natural parameters of the share of the prior that each component has, each leaf (…) or (particle, …).

        Returns: (the new state, A with the row at its new label).
        """
        left = self.remove_row(state, row, prior)
        joining = self.score_row(left, row, normaliser)
        label = choose(left, joining)
        before, after = (jnp.take_along_axis(joining.of_row, each[None], axis=0) for each in (state.labels[row], label))
        return self.add_row(left, row, label, joining.natural), normaliser + after - before

    def score_row(
        self, state: CollapsedState, row: Int[Array, ""], normaliser: Float[Array, "one particle"]
    ) -> Joining:
        """Return the scores of a row that is in no component, for each label that it might get.

        state: the labels and sums without the row.
        row: the number of the row.
        normaliser: A, the log-normaliser of all components, (1, particle), nats. Only `normaliser` of the result
            depends on it.
        """
        s = jax.tree.map(lambda leaf: self._as_float(leaf)[row][0], self.increments)
        joined = jax.tree.map(lambda sums, one: sums + one, state.natural, s)
        degrees, factor, centre, count = tied_parameters(_particles_first(state.natural), self._mask())
        n_dims, share = centre.shape[-1], count / (count + 1)
        away = solve_lower(factor, jnp.swapaxes(s.precision_mean - centre, -1, -2))
        quadratic = share * (away**2).sum(-2)
        alike = gammaln(0.5 * (degrees + 1)) - gammaln(0.5 * (degrees + 1 - n_dims)) - 0.5 * log_determinant(factor)
        each = 0.5 * n_dims * (LOG_2 + jnp.log(share)) - 0.5 * (degrees + 1)[:, None] * jnp.log1p(quadratic)
        of_row = (alike[:, None] + each).T
        of_label = jnp.log(state.counts + self._concentration())
        return Joining(of_label, of_row, joined, normaliser + of_row)

    def log_rows(self, state: CollapsedState) -> Float[Array, " particle"]:
        """Return log p(rows | labels) of each particle, (particle,), in nats, with component parameters integrated
        out.
        """
        prior = jax.tree.map(lambda leaf: self._as_float(leaf)[None], self.prior)
        return self.gains(state.natural, prior)[0] + self.log_carried(state.labels)

    def gains(self, natural: Any, prior: Any) -> Float[Array, "cell particle"]:
        """Return A(λ + S) − A(λ) of each particle, the log evidence of its rows given the labels without carriers,
        nats.

        natural: λ + S, natural parameters of the components given their rows.
        prior: λ, the share of the prior that each component has, each leaf (particle, …).

        Returns: (1, particle): the columns of the rows are not independent and count as one cell.
        """
        everywhere = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.capacity, *leaf.shape)), prior)
        return (self.normalisers(natural) - self.normalisers(everywhere))[..., 0]

    def prior_natural(self, component: Component, n_dims: int) -> Any:
        """Return the natural parameters of the share of the prior that each component has.

        component: the kind of component, with all its hyper-parameters given as numbers.
        n_dims: the number of columns.
        """
        return tied_share(component.prior(n_dims), self._as_float(self.size))

    def normalisers(self, natural: Any) -> Float[Array, "one particle cell"]:
        """Return the log-normaliser of all components of each particle together, (1, particle, 1), nats.

        natural: natural parameters of the components, each leaf (component, particle, …).
        """
        return TiedNormalWishart().log_normaliser(_particles_first(natural), self._mask())[None, :, None]

    def _mask(self) -> Array:
        """Return which components exist, (component, 1, 1), bool, to mask arrays (component, dim, dim)."""
        return self.exists()[..., None]


def _particles_first(natural: Any) -> Any:
    """Return the arrays of a pytree with axes (particle, component, …) instead of (component, particle, …)."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), natural)


@evidence_chain.register
def _evidence_chain_of_tied_mixture(
    model: TiedMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> TiedMixtureChain | HyperMixture:
    """Return the annealed chain of a tied mixture from the prior of its labels: the overload of `evidence_chain`.

    Hyper-parameters that have priors are annealed with the labels. estimate: not used.
    """
    chain = TiedMixtureChain.from_data(model, data, size[0], capacity_of(size)[0])
    return HyperMixture.around(chain, model.components, data) if model.components.inferred else chain
