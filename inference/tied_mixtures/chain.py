"""Mixtures with one shared covariance at one size, annealed from the prior of their labels, parameters integrated out.

As in `evidence.mixtures`, except that A is one number of all components together (`models.tied_mixture`). Take the row
out of its component. Let B be the pooled matrix, ν its degrees, and m_k and κ_k the mean and count of each component. A
row y that joins component k changes them to

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
    """A `Chain` over the labels of a `TiedMixture`.

    It differs from the chain of a `FiniteMixture` in two ways. `natural` holds parameters of `TiedNormalWishart`.
    Wherever that chain has A of each component, this one has A of all components together, (1, particle).
    """

    @classmethod
    def from_data(
        cls, model: FiniteMixture | TiedMixture, data: Dataset, size: int, capacity: int
    ) -> "TiedMixtureChain":
        """Return the chain of a tied mixture with `size` components.

        model: the `TiedMixture`, or its `independent` mixture.

        Raises ValueError as `CollapsedMixtureChain.from_data` does.
        """
        independent = model.independent if isinstance(model, TiedMixture) else model
        chain = CollapsedMixtureChain.from_data(independent, data, size, capacity)
        own = chain.component, chain.concentration, chain.size, chain.increments, chain.carriers, chain.tilts
        prior = jax.tree.map(np.asarray, tied_share(chain.prior, size))
        return cls(*own, chain.weight, prior, chain.anchor, capacity)

    def redrawn(
        self,
        state: CollapsedState,
        normaliser: Float[Array, "one particle"],
        row: Int[Array, ""],
        choose: Choose,
        prior: Any,
    ) -> tuple[CollapsedState, Float[Array, "one particle"]]:
        """Draw one row's label given all others.

        normaliser: A of all components with the row at its old label, (1, particle).

        Returns the state, and A with the row at its new label. The other arguments are those of
        `CollapsedMixtureChain.redrawn`.
        """
        left = self.remove_row(state, row, prior)
        joining = self.joining(left, row, normaliser)
        label = choose(left, joining)
        before, after = (jnp.take_along_axis(joining.of_row, each[None], axis=0) for each in (state.labels[row], label))
        return self.add_row(left, row, label, joining.natural), normaliser + after - before

    def joining(self, state: CollapsedState, row: Int[Array, ""], normaliser: Float[Array, "one particle"]) -> Joining:
        """Return the scores of a row that is in no component, for each label.

        normaliser: A of all components, (1, particle). Only the `normaliser` of the result depends on it.
        """
        s = jax.tree.map(lambda leaf: self._rows(leaf)[row][0], self.increments)
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
        """Return log p(rows | labels) of each particle, nats."""
        prior = jax.tree.map(lambda leaf: self._rows(leaf)[None], self.prior)
        return self.gains(state.natural, prior)[0] + self.log_carried(state.labels)

    def gains(self, natural: Any, prior: Any) -> Float[Array, "cell particle"]:
        """Return A(λ + S) − A(λ) of each particle as one cell, (1, particle), nats.

        prior: the share of the prior that each component has, each leaf (particle, …).
        """
        everywhere = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.capacity, *leaf.shape)), prior)
        return (self.normalisers(natural) - self.normalisers(everywhere))[..., 0]

    def prior_natural(self, component: Component, n_dims: int) -> Any:
        """Return the share of the prior that each component has."""
        return tied_share(component.prior(n_dims), self._rows(self.size))

    def normalisers(self, natural: Any) -> Float[Array, "one particle cell"]:
        """Return A of all components of each particle together, (1, particle, 1), nats."""
        return TiedNormalWishart().log_normaliser(_particles_first(natural), self._mask())[None, :, None]

    def _mask(self) -> Array:
        """Return which components exist, with an axis for particles and one for cells."""
        return self.exists()[..., None]


def _particles_first(natural: Any) -> Any:
    """Return the leaves with the particle axis before the component axis."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), natural)


@evidence_chain.register
def _(
    model: TiedMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> TiedMixtureChain | HyperMixture:
    """Return the chain from the prior, with hyper-parameters that have priors annealed."""
    chain = TiedMixtureChain.from_data(model, data, size[0], capacity_of(size)[0])
    return HyperMixture.around(chain, model.components, data) if model.components.inferred else chain
