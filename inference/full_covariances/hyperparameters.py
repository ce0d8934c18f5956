"""Hyper-parameters of Gaussians with a full covariance per component, annealed together with the labels.

A component's posterior is a matrix N over D + 1 sides, ν degrees of freedom and κ rows, prior included (`inverses`).
The diagonal of N of an empty component is (spread + s₀ of each column, κ), with s₀ the constant `least_spread`. So a
hyper-parameter that changes from h to h' adds (h' − h) e eᵀ to every N, where e is one of the D + 1 unit vectors. With
the log normaliser A, the prior's natural parameters λ(h), the sum S_k of a component's statistics, and n the entry of
N⁻¹ at e,

    A(λ(h') + S_k) − A(λ(h) + S_k) = −½ν log(1 + (h' − h) n) [+ ½(ν − D) log(κ'/κ) where h is κ of the prior],

so a slice weighs its draws by one number of each component.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from lvsearch.inference.annealing.hyperparameters import slice_sample
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import capacity_of
from lvsearch.inference.evidence.mixture_hyperparameters import (
    HyperMixture,
    HyperMixtureState,
    LogHyper,
    labels_chain,
)
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.full_covariances.chain import FullCovarianceChain
from lvsearch.inference.full_covariances.inverses import Direction, Inverses, add_square
from lvsearch.models.components import FullCovarianceComponents, StudentComponents
from lvsearch.models.finite_mixture import FiniteMixture


class HyperFullCovariances(HyperMixture):
    """The annealing chain over labels and hyper-parameters of Gaussians with a full covariance per component."""

    @property
    def _gaussians(self) -> FullCovarianceComponents:
        """The Gaussians of the mixture: the kind of component itself, or those that Student components are made of."""
        kind = self.component.gaussians if isinstance(self.component, StudentComponents) else self.component
        assert isinstance(kind, FullCovarianceComponents)  # as registered below
        return kind

    def _move_hyper(self, key: Array, state: HyperMixtureState, temperature: Array, backward: bool) -> LogHyper:
        """Return log of every hyper-parameter after a slice move of each given labels and the others; reversed if
        `backward`.
        """
        log_hyper, own = dict(state.log_hyper), state.mixture.natural
        names = list(enumerate(self.courses))
        for number, name in reversed(names) if backward else names:
            key_name = jax.random.fold_in(key, number)
            log_hyper[name], own = self._move_entries(key_name, log_hyper[name], own, name, temperature, backward)
        return log_hyper

    def _move_entries(
        self, key: Array, start: Array, own: Inverses, name: str, temperature: Array, backward: bool
    ) -> tuple[Array, Inverses]:
        """Move the entries of one hyper-parameter, one column after another, by slice sampling.

        start: log of the hyper-parameter, (column, particle).
        own: the components' inverses under `start`.
        name: the name of the hyper-parameter.
        backward: True to take the columns in reverse order.

        Returns the new logs, and the inverses under them.
        """
        chain, n_columns = self.mixture, len(start)
        of_columns = self.component.hyper_axes[name]
        course = [jnp.broadcast_to(jnp.ravel(each), n_columns) for each in self.courses[name].gamma_at(temperature)]
        prior_degrees = jnp.asarray(chain.prior.half_log_determinant) + self.n_dims
        exists, constant = chain.exists(), self._gaussians.least_spread if of_columns else 0.0

        def one(index: Array, carry: tuple[Array, Inverses]) -> tuple[Array, Inverses]:
            """Move the entry of one column, and update the inverses."""
            value, own = carry
            column = n_columns - 1 - index if backward else index
            shape, rate = (each[column] for each in course)
            side = column if of_columns else self.n_dims
            now, entry, counted = value[column], own.inverse[side, side], 0.0 if of_columns else 1.0

            def density(log_value: Array) -> Array:
                """Return log π_t of this column's entry up to a constant, (1, particle), nats."""
                more = jnp.exp(log_value) - jnp.exp(now)
                # A(λ(h') + S_k) − A(λ(h) + S_k), minus the same for an empty component
                of_empty = jnp.log(jnp.exp(log_value) + constant) - jnp.log(jnp.exp(now) + constant)
                of_matrix = own.degrees * jnp.log1p(more * entry) - prior_degrees * of_empty
                of_count = (own.degrees - self.n_dims) * jnp.log1p(counted * more / own.count)
                of_count = of_count - counted * (prior_degrees - self.n_dims) * (log_value - now)
                gain = jnp.where(exists, 0.5 * (of_count - of_matrix), 0.0).sum(0)
                return shape * log_value - rate * jnp.exp(log_value) + temperature * gain

            key_column = jax.random.fold_in(key, column) if n_columns > 1 else key
            moved = slice_sample(key_column, now[None], density)[0]
            # the move adds (h' − h) e eᵀ to every matrix N
            more = jnp.broadcast_to(jnp.exp(moved) - jnp.exp(now), entry.shape)
            direction = Direction(own.inverse[side], entry)
            own = add_square(own, direction, more, jnp.zeros_like(more), counted * more)
            return value.at[column].set(moved), own

        return jax.lax.fori_loop(0, n_columns, one, (start, own))


@labels_chain.register
def _labels_chain_of_full_covariances(
    component: FullCovarianceComponents, model: FiniteMixture, data: Dataset, size: int
) -> CollapsedMixtureChain | HyperMixture:
    """Return the annealing chain of full-covariance components, with hyper-parameters that have priors annealed too."""
    chain = FullCovarianceChain.from_data(model, data, size, capacity_of((size,))[0])
    return HyperFullCovariances.around(chain, model.components, data) if component.inferred else chain


@labels_chain.register
def _labels_chain_of_students(
    component: StudentComponents, model: FiniteMixture, data: Dataset, size: int
) -> CollapsedMixtureChain | HyperMixture:
    """Return the annealing chain of the Gaussians from which Student components are made."""
    return labels_chain(component.gaussians, model, data, size)
