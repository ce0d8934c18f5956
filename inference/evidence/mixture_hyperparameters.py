"""Mixtures whose components' hyper-parameters have Gamma priors: the annealing chain, with hyper-parameters per
particle.

With h the hyper-parameters that have a prior, and λ(h) the components' natural parameters without rows, a path is

    π_t(h, z) ∝ [q(h) q(z)]^(1−t) [p(h) p(z) p(rows | z, h)]^t
    log p(rows | z, h) = Σ_k [A(λ(h) + S_k) − A(λ(h))] + Σ_n log h(x_n)                     (Blei 2004, Eq. 5.13)

Here z are the labels of the rows x_n, S_k the sum of the statistics of the rows of component k, and A the
log-normaliser. q is the prior of both h and z. On the second path q(z) knows one labelling (`mixtures`), and q(h) is a
Gamma around the h that went with it. Rows move as they do if h is given. Then each h moves, given the labels and the
other h, by slice sampling in log h from

    a_t log h − b_t h + t Σ_k [A(λ(h) + S_k) − A(λ(h))],        a_t, b_t: (1 − t) of q's shape and rate, t of p's

In a backward sweep the h move before the rows, in the reverse order. If an h has a value for each column, all values
move at once if columns are independent given h, else one after another.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.hyperparameters import (
    Course,
    LogHyper,
    count_values,
    courses_around,
    courses_from_priors,
    draw_log_hyper,
    draw_log_hyper_on_host,
    log_prior_of_hyper,
    log_ratio_of_hyper,
    move_log_hyper,
)
from lvsearch.inference.annealing.particle_arrays import ParticleArrays
from lvsearch.inference.chains import Anchor
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState, anchor_labels
from lvsearch.inference.evidence.variant_labels import VariantLabels
from lvsearch.inference.kits import labels_chain_of
from lvsearch.models.components import Component
from lvsearch.models.finite_mixture import FiniteMixture

Hyper = TypeVar("Hyper", bound="HyperMixture")


class HyperMixtureState(NamedTuple):
    """The labels of all rows with the sums of their components, and the hyper-parameters, for each particle.

    | field | meaning |
    |---|---|
    | `mixture` | labels and sums, with the components' prior at these hyper-parameters |
    | `log_hyper` | log of each hyper-parameter by name, (column, particle), or (1, particle) if columns share a value |
    """

    mixture: CollapsedState
    log_hyper: LogHyper

    @property
    def labels(self) -> Int[Array, "row particle"]:
        """The label (component and variant) of each row, (row, particle)."""
        return self.mixture.labels


class HyperMixture(ParticleArrays):
    """The annealing chain of a `FiniteMixture` at one size, over labels and the components' hyper-parameters.

    | field | meaning |
    |---|---|
    | `mixture` | the chain at given hyper-parameters: rows, labels, and the anchor of the second path |
    | `component` | the kind of component, with the priors of its hyper-parameters |
    | `courses` | by name, the Gamma that each hyper-parameter starts from and its prior; leaves () or (column, 1) |
    | `n_dims` | the number of columns |
    """

    mixture: CollapsedMixtureChain
    component: Component
    courses: dict[str, Course]
    n_dims: int = eqx.field(static=True)

    @classmethod
    def from_data(cls, model: FiniteMixture, data: Dataset, size: int, capacity: int) -> "HyperMixture":
        """Return the annealing chain of a mixture with `size` components on the path from the prior.

        capacity: how many array slots there are for components.

        Raises ValueError in the same cases as `CollapsedMixtureChain.from_data`.
        """
        return cls.around(CollapsedMixtureChain.from_data(model, data, size, capacity), model.components, data)

    @classmethod
    def around(cls: type[Hyper], chain: CollapsedMixtureChain, component: Component, data: Dataset) -> Hyper:
        """Return the annealing chain on the path from the prior, built on a chain at given hyper-parameters.

        chain: the chain over labels.
        component: the kind of component, with the priors of its hyper-parameters.
        data: the rows, whose number of columns is read.
        """
        return cls(chain, component, courses_from_priors(component.inferred), data.extents["dim"])

    @property
    def elements(self) -> int:
        """The number of rows, padding included: each has its label drawn in a sweep."""
        return self.mixture.elements

    @property
    def capacity(self) -> int:
        """The number of array slots for components, of which the first `size` exist."""
        return self.mixture.capacity

    @property
    def size(self) -> Any:
        """The number of components, as a number that JAX traces."""
        return self.mixture.size

    @property
    def names(self) -> VariantLabels:
        """The numbering of labels by component and variant."""
        return self.mixture.names

    def init(self, key: Key[Array, ""], particles: int) -> HyperMixtureState:
        """Draw the first state: `particles` independent draws of hyper-parameters and labels from q."""
        key_labels, key_hyper = jax.random.split(key)
        return self.state_from_labels(
            self.mixture.draw_labels(key_labels, particles), self.drawn_hyper(key_hyper, particles)
        )

    def drawn_hyper(self, key: Key[Array, ""], particles: int) -> LogHyper:
        """Draw the logarithms of the hyper-parameters from q, as {name: (column, particle)}."""
        return draw_log_hyper(key, self.courses, count_values(self.component.hyper_axes, self.n_dims), particles)

    def first_hyper(
        self, random: np.random.Generator, particles: int
    ) -> dict[str, Float[np.ndarray, "column particle"]]:
        """Draw the logarithms of the hyper-parameters from q on the host, for which no program is compiled, as {name:
        (column, particle)}.

        random: the source of random numbers, which changes.
        """
        n_values = count_values(self.component.hyper_axes, self.n_dims)
        return draw_log_hyper_on_host(random, self.courses, n_values, particles)

    def step(
        self, key: Key[Array, ""], state: HyperMixtureState, temperature: Float[Array, ""], *, backward: bool
    ) -> HyperMixtureState:
        """Return the state after one sweep: every row's label is drawn in turn, then the hyper-parameters.

        temperature: t, from 0 (q) to 1 (the posterior).
        backward: draw in the reverse order.
        """
        key_rows, key_hyper = jax.random.split(key)
        mixture, log_hyper = state
        if backward:
            log_hyper = self._move_hyper(key_hyper, state, temperature, backward, temperature)
        prior = self.prior(log_hyper)
        mixture = self.mixture.sweep_rows(key_rows, mixture, temperature, backward, prior)
        if not backward:
            between = HyperMixtureState(mixture, log_hyper)
            log_hyper = self._move_hyper(key_hyper, between, temperature, backward, temperature)
        return self.state_from_labels(mixture.labels, log_hyper)

    def log_ratio(self, state: HyperMixtureState) -> Float[Array, " particle"]:
        """Return log p(rows, labels, hyper-parameters) − log q(labels, hyper-parameters) of each particle, (particle,),
        in nats.
        """
        of_labels = self.mixture.log_labels_ratio(state.mixture)
        return self._log_rows(state) + of_labels + self.log_hyper_ratio(state.log_hyper)

    def log_density(self, state: HyperMixtureState) -> Float[Array, " particle"]:
        """Return log p(rows, labels, hyper-parameters) of each particle, (particle,), in nats.

        It is a density in the hyper-parameters themselves, not in their logarithms.
        """
        of_hyper = log_prior_of_hyper(self.courses, state.log_hyper)
        return self._log_rows(state) + self.mixture.log_labels(state.mixture) + of_hyper

    def label_scores(self, state: HyperMixtureState) -> Float[Array, "particle component component"] | None:
        """Return the scores from which relabellings are drawn, (particle, component, component), in nats, or None.

        They are those of the labels alone, since hyper-parameters do not change when components are renamed. None: q is
        the prior.
        """
        return self.mixture.label_scores(state.mixture)

    def relabel(self, state: HyperMixtureState, order: Int[Array, "particle component"]) -> HyperMixtureState:
        """Return each state with its component l called order[l].

        order: the new number of each component, (particle, component).
        """
        labels = self.mixture.relabelled(state.labels, order)
        return state if labels is None else self.state_from_labels(labels, state.log_hyper)

    def state_from_labels(self, labels: Int[Array, "row particle"], log_hyper: LogHyper) -> HyperMixtureState:
        """Return the state with these labels and hyper-parameters, its sums computed from the rows.

        labels: of each row, (row, particle). log_hyper: log of each hyper-parameter by name.
        """
        return HyperMixtureState(self.mixture.state_from_labels(labels, self.prior(log_hyper)), log_hyper)

    def prior(self, log_hyper: LogHyper) -> Any:
        """Return the natural parameters of a component without rows at the hyper-parameters of each particle, each leaf
        (particle, …).

        log_hyper: log of each hyper-parameter by name, (column, particle).
        """

        def one(values: dict[str, Array]) -> Any:
            columns = {name: each if self.component.hyper_axes[name] else each[0] for name, each in values.items()}
            return self.mixture.prior_natural(self.component.with_numbers(columns), self.n_dims)

        return jax.vmap(one, in_axes=-1)({name: jnp.exp(each) for name, each in log_hyper.items()})

    def with_hyper_moved(
        self,
        key: Key[Array, ""],
        state: HyperMixtureState,
        temperature: Float[Array, ""],
        backward: bool,
        hyper_temperature: Float[Array, ""],
    ) -> HyperMixtureState:
        """Return the state with each hyper-parameter drawn in turn given the labels.

        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).
        backward: draw in the reverse order.
        hyper_temperature: t of the hyper-parameters' own distribution, from 0 (q) to 1 (their prior).
        """
        moved = self._move_hyper(key, state, temperature, backward, hyper_temperature)
        return self.state_from_labels(state.labels, moved)

    def log_hyper_ratio(self, log_hyper: LogHyper) -> Float[Array, " particle"]:
        """Return log p(hyper-parameters) − log q(hyper-parameters) of each particle, (particle,), in nats.

        log_hyper: log of each hyper-parameter by name, (column, particle).
        """
        return log_ratio_of_hyper(self.courses, log_hyper)

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _move_hyper(
        self, key: Array, state: HyperMixtureState, temperature: Array, backward: bool, hyper_temperature: Array
    ) -> LogHyper:
        """Return the logarithms of the hyper-parameters after a slice-sampling move of each, given the labels and the
        others.

        temperature: t of the rows, from 0 (the start of the annealing path) to 1 (the posterior).
        backward: move in the reverse order.
        hyper_temperature: t of the hyper-parameters' own distribution, from 0 (q) to 1 (their prior).
        """
        sums = state.mixture.natural - self.mixture.beside_components(self.prior(state.log_hyper))

        def log_rows(log_hyper: LogHyper) -> Array:
            """Return t times the log-probability of the rows given labels and hyper-parameters, (cell, particle)."""
            return temperature * self._gain(log_hyper, sums)

        return move_log_hyper(key, self.courses, state.log_hyper, log_rows, hyper_temperature, backward=backward)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_rows(self, state: HyperMixtureState) -> Float[Array, " particle"]:
        """Return log p(rows | labels, hyper-parameters) of each particle, (particle,), in nats."""
        gains = self.mixture.gains(state.mixture.natural, self.prior(state.log_hyper))
        return gains.sum(0) + self.mixture.log_carried(state.labels)

    def _gain(self, log_hyper: LogHyper, sums: Any) -> Float[Array, "cell particle"]:
        """Return Σ_k [A(λ + S_k) − A(λ)] over components k, (cell, particle), in nats.

        It is the log-probability of the rows given labels and hyper-parameters, up to a constant. There is one cell,
        unless the cells of a row are independent given its component.

        log_hyper: log of each hyper-parameter by name, which gives λ.
        sums: S_k, the sums of the rows' statistics of each component.
        """
        prior = self.prior(log_hyper)
        return self.mixture.gains(sums + self.mixture.beside_components(prior), prior)


def labels_chain(
    component: Component, model: FiniteMixture, data: Dataset, size: int
) -> CollapsedMixtureChain | HyperMixture:
    """Return the annealing chain over a mixture's labels on the path from the prior, for this kind of component
    (`chain_kits.CHAINS_OF_COMPONENTS`).

    model: the mixture.
    size: the number of components.

    Raises ValueError in the same cases as `CollapsedMixtureChain.from_data`.
    """
    return labels_chain_of(component)(component, model, data, size)


def labels_chain_of_any_component(
    component: Component, model: FiniteMixture, data: Dataset, size: int
) -> CollapsedMixtureChain | HyperMixture:
    """Return the annealing chain over the labels of a mixture of conjugate components of any kind."""
    kind = HyperMixture if model.components.inferred else CollapsedMixtureChain
    return kind.from_data(model, data, size, capacity_of((size,))[0])


def evidence_chain_of_mixture(
    model: FiniteMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> CollapsedMixtureChain | HyperMixture:
    """Return the annealing chain of a mixture, over its labels, from the prior. The estimate is not used.

    size: the number of components, as a tuple of one number.
    """
    return labels_chain(model.components, model, data, size[0])


def anchor_of_hyper_mixture(chain: HyperMixture, key: Key[Array, ""], states: Sequence[HyperMixtureState]) -> Anchor:
    """Return the second path: from a q around the labels of the best particle, with Gammas around its hyper-parameters.

    states: final states of the first path, one per half of the annealing.
    """
    anchor, state = anchor_labels(chain, key, states)
    courses = courses_around(chain.courses, state.log_hyper)
    about = (chain.mixture.around_labelling(anchor), courses)
    return Anchor(eqx.tree_at(lambda c: (c.mixture, c.courses), chain, about), 0.0)
