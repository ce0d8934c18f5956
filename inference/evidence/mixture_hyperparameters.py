"""Mixtures whose components' hyper-parameters have Gamma priors: the collapsed chain with an h of each particle.

With h the hyper-parameters that have a prior, λ(h) the components' natural parameters without rows, a path is

    π_t(h, z) ∝ [q(h) q(z)]^(1−t) [p(h) p(z) p(rows | z, h)]^t
    log p(rows | z, h) = Σ_k [A(λ(h) + S_k) − A(λ(h))] + Σ_n log h(x_n)                     (Blei 2004, Eq. 5.13)

q is the prior of both, or knows one labelling (`mixtures`), with a Gamma about the h that went with it. Rows move as
they do where h is given. Then each h moves, given the labels and the others, by slices in log h of

    a_t log h − b_t h + t Σ_k [A(λ(h) + S_k) − A(λ(h))],        a_t, b_t: (1 − t) of q's shape and rate, t of p's

before the rows where the sweep goes backward, in the reverse order. Of an h with a value for each column all move at
once where columns are independent given h, else one after another.
"""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.dispatch import Anchor, anchored_chain, evidence_chain, patience
from lvsearch.inference.annealing.draws import log_gamma_draws
from lvsearch.inference.annealing.hyperparameters import Course, gamma_about, slice_moved
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.evidence.mixture_anchors import settled
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState
from lvsearch.inference.evidence.variant_labels import VariantLabels
from lvsearch.models.components import Component
from lvsearch.models.finite_mixture import FiniteMixture

Hyper = TypeVar("Hyper", bound="HyperMixture")
LogHyper = dict[str, Float[Array, "column particle"]]
"""log h by name; one column where all of them share a value."""


class HyperMixtureState(NamedTuple):
    """Labels with what they make of the components, and hyper-parameters, each particle's own.

    | field | meaning |
    |---|---|
    | `mixture` | labels and sums, under λ(h) |
    | `log_hyper` | log h by name, (column, particle), (1, particle) where columns share a value |
    """

    mixture: CollapsedState
    log_hyper: LogHyper

    @property
    def labels(self) -> Int[Array, "row particle"]:
        return self.mixture.labels


class HyperMixture(eqx.Module):
    """A `Chain` of a `FiniteMixture` at one size, hyper-parameters of its components annealed with the labels.

    | field | meaning |
    |---|---|
    | `mixture` | the chain at given numbers: rows, labels, and the anchor of the second path |
    | `component` | with the priors |
    | `courses` | from where to where each h goes, by name; leaves () or (column, 1) |
    | `n_dims` | columns |
    """

    mixture: CollapsedMixtureChain
    component: Component
    courses: dict[str, Course]
    n_dims: int = eqx.field(static=True)

    @classmethod
    def of(cls, model: FiniteMixture, data: Dataset, size: int, capacity: int) -> "HyperMixture":
        """On the path from the prior. Raises ValueError as `CollapsedMixtureChain.of`."""
        return cls.around(CollapsedMixtureChain.of(model, data, size, capacity), model.components, data)

    @classmethod
    def around(cls: type[Hyper], chain: CollapsedMixtureChain, component: Component, data: Dataset) -> Hyper:
        """On the path from the prior. chain: at given numbers; component: with the priors."""
        courses = {name: Course(prior, prior) for name, prior in component.inferred.items()}
        return cls(chain, component, courses, data.extents["dim"])

    @property
    def elements(self) -> int:
        return self.mixture.elements

    @property
    def lanes(self) -> int:
        return self.mixture.lanes

    @property
    def directed(self) -> bool:
        return True

    @property
    def capacity(self) -> int:
        """Places for components, of which the first `size` exist."""
        return self.mixture.capacity

    @property
    def size(self) -> Any:
        return self.mixture.size

    @property
    def names(self) -> VariantLabels:
        """What labels say."""
        return self.mixture.names

    def init(self, key: Key[Array, ""], particles: int) -> HyperMixtureState:
        """Hyper-parameters and labels from q."""
        key_labels, key_hyper = jax.random.split(key)
        return self.of_labels(self.mixture.drawn(key_labels, particles), self.drawn_hyper(key_hyper, particles))

    def drawn_hyper(self, key: Key[Array, ""], particles: int) -> LogHyper:
        """log h from q."""
        log_hyper = {}
        for number, (name, course) in enumerate(self.courses.items()):
            shape, rate = (jnp.asarray(each, jnp.result_type(float)) for each in course.start)
            columns = (self.n_dims if self.component.hyper_axes[name] else 1, particles)
            log_gamma = log_gamma_draws(jax.random.fold_in(key, number), jnp.broadcast_to(shape, columns))
            log_hyper[name] = log_gamma - jnp.log(rate)
        return log_hyper

    def step(
        self, key: Key[Array, ""], state: HyperMixtureState, temperature: Float[Array, ""], *, backward: bool
    ) -> HyperMixtureState:
        """Every row in turn, then the hyper-parameters; in the reverse order where `backward`."""
        key_rows, key_hyper = jax.random.split(key)
        mixture, log_hyper = state
        if backward:
            log_hyper = self._moved(key_hyper, state, temperature, backward)
        prior = self.prior(log_hyper)
        mixture = self.mixture.swept(key_rows, mixture, temperature, backward, prior)
        if not backward:
            log_hyper = self._moved(key_hyper, HyperMixtureState(mixture, log_hyper), temperature, backward)
        return self.of_labels(mixture.labels, log_hyper)

    def log_ratio(self, state: HyperMixtureState) -> Float[Array, " particle"]:
        of_hyper = [course.log_ratio(state.log_hyper[name]).sum(0) for name, course in self.courses.items()]
        return self._log_rows(state) + self.mixture.log_labels_ratio(state.mixture) + sum(of_hyper)

    def log_density(self, state: HyperMixtureState) -> Float[Array, " particle"]:
        """log p(rows, labels, h), nats, a density of h."""
        of_hyper = [course.log_prior(state.log_hyper[name]).sum(0) for name, course in self.courses.items()]
        return self._log_rows(state) + self.mixture.log_labels(state.mixture) + sum(of_hyper)

    def label_scores(self, state: HyperMixtureState) -> Float[Array, "particle component component"] | None:
        """Those of the labels, nats: hyper-parameters do not change under relabelling."""
        return self.mixture.label_scores(state.mixture)

    def relabel(self, state: HyperMixtureState, order: Int[Array, "particle component"]) -> HyperMixtureState:
        """Each state with its component l called order[l]."""
        labels = self.mixture.relabelled(state.labels, order)
        return state if labels is None else self.of_labels(labels, state.log_hyper)

    def take(self, state: HyperMixtureState, particles: Int[Array, " chosen"]) -> HyperMixtureState:
        """The named particles, in that order."""
        mixture = self.mixture.take(state.mixture, particles)
        return HyperMixtureState(mixture, {name: each[:, particles] for name, each in state.log_hyper.items()})

    def beside(self, states: Sequence[HyperMixtureState]) -> HyperMixtureState:
        """The particles of several states, one after another."""
        mixture = self.mixture.beside([state.mixture for state in states])
        log_hyper = [state.log_hyper for state in states]
        return HyperMixtureState(mixture, jax.tree.map(lambda *each: jnp.concatenate(each, axis=1), *log_hyper))

    def of_labels(self, labels: Int[Array, "row particle"], log_hyper: LogHyper) -> HyperMixtureState:
        """The state of these labels and hyper-parameters."""
        return HyperMixtureState(self.mixture.of_labels(labels, self.prior(log_hyper)), log_hyper)

    def prior(self, log_hyper: LogHyper) -> Any:
        """λ(h), (particle, …) a leaf."""

        def one(values: dict[str, Array]) -> Any:
            columns = {name: each if self.component.hyper_axes[name] else each[0] for name, each in values.items()}
            return self.mixture.prior_natural(self.component.with_numbers(columns), self.n_dims)

        return jax.vmap(one, in_axes=-1)({name: jnp.exp(each) for name, each in log_hyper.items()})

    def with_hyper_moved(
        self, key: Key[Array, ""], state: HyperMixtureState, temperature: Float[Array, ""], backward: bool
    ) -> HyperMixtureState:
        """Hyper-parameters given the labels, each in turn, in the reverse order where `backward`."""
        return self.of_labels(state.labels, self._moved(key, state, temperature, backward))

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _moved(self, key: Array, state: HyperMixtureState, temperature: Array, backward: bool) -> LogHyper:
        """Each hyper-parameter given the labels and the others."""
        log_hyper = dict(state.log_hyper)
        sums = jax.tree.map(jnp.subtract, state.mixture.natural, self.prior(log_hyper))
        names = list(enumerate(self.courses))
        for number, name in reversed(names) if backward else names:
            key_name = jax.random.fold_in(key, number)
            shape, rate = self.courses[name].at(temperature)

            def density(log_value: Array, name: str = name, shape: Array = shape, rate: Array = rate) -> Array:
                """(column, particle), or (1, particle) where these hang together."""
                of_rows = self._gain({**log_hyper, name: log_value}, sums)
                of_h = shape * log_value - rate * jnp.exp(log_value)
                if len(of_rows) == len(of_h):
                    return of_h + temperature * of_rows
                return of_h.sum(0, keepdims=True) + temperature * of_rows.sum(0, keepdims=True)

            log_hyper[name] = self._sliced(key_name, log_hyper[name], density, backward)
        return log_hyper

    def _sliced(self, key: Array, start: Array, density: Callable[[Array], Array], backward: bool) -> Array:
        """All columns at once where `density` has one for each, else one after another."""
        n_columns = len(start)
        if jax.eval_shape(density, start).shape == start.shape:
            return slice_moved(key, start, density)

        def one(index: Array, value: Array) -> Array:
            column = n_columns - 1 - index if backward else index
            moved = slice_moved(
                jax.random.fold_in(key, column), value[column][None], lambda x: density(value.at[column].set(x[0]))
            )
            return value.at[column].set(moved[0])

        return jax.lax.fori_loop(0, n_columns, one, start)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_rows(self, state: HyperMixtureState) -> Float[Array, " particle"]:
        """log p(rows | labels, h)."""
        gains = self.mixture.gains(state.mixture.natural, self.prior(state.log_hyper))
        return gains.sum(0) + self.mixture.log_carried(state.labels)

    def _gain(self, log_hyper: LogHyper, sums: Any) -> Float[Array, "cell particle"]:
        """Σ_k [A(λ(h) + S_k) − A(λ(h))], cell by cell where these are independent given h, else in one."""
        prior = self.prior(log_hyper)
        return self.mixture.gains(jax.tree.map(jnp.add, sums, prior), prior)


@singledispatch
def labels_chain(
    component: Component, model: FiniteMixture, data: Dataset, size: int
) -> CollapsedMixtureChain | HyperMixture:
    """The path from the prior of the model's labels, for this kind of component. Raises ValueError as
    `CollapsedMixtureChain.of`."""
    kind = HyperMixture if model.components.inferred else CollapsedMixtureChain
    return kind.of(model, data, size, capacity_of((size,))[0])


@evidence_chain.register
def _(
    model: FiniteMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> CollapsedMixtureChain | HyperMixture:
    return labels_chain(model.components, model, data, size[0])


@patience.register
def _(chain: HyperMixture) -> float:
    """As without hyper-parameters: q is normalised and as cheap to draw from as the prior."""
    return 0.0


@anchored_chain.register
def _(chain: HyperMixture, key: Key[Array, ""], states: Sequence[HyperMixtureState]) -> Anchor:
    """About the labels of the best particle, and Gammas about the hyper-parameters that it ended with."""
    anchor, state = settled(chain, key, states)
    starts = {name: gamma_about(jnp.exp(each)) for name, each in state.log_hyper.items()}
    courses = {name: course._replace(start=starts[name]) for name, course in chain.courses.items()}
    about = (chain.mixture.about(anchor), courses)
    return Anchor(eqx.tree_at(lambda c: (c.mixture, c.courses), chain, about), 0.0)
