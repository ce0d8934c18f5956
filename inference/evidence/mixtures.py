"""Mixtures of one size, annealed from the prior of their labels: weights and parameters integrated out.

    π_t(z) ∝ p(z) p(rows | z)^t,      p(z) = Γ(Ka) / Γ(Ka + N) Π_k Γ(n_k + a) / Γ(a)        (Dirichlet–multinomial)
    log p(rows | z) = Σ_k [A(λ + Σ_{z_n = k} s(x_n)) − A(λ)] + Σ_n log h(x_n)                (Blei 2004, Eq. 5.13)

A sweep draws one row after another from the tempered conditional, in which both factors of the joint are ratios:

    π_t(z_n = k | the others) ∝ (n_k + a) · exp(t [A(λ + S_k + s(x_n)) − A(λ + S_k)]),

n_k and S_k without row n; h(x_n) is the same for every k. The path does not change when components are renamed.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimator import Estimate, capacity_of
from lvsearch.inference.evidence.dispatch import evidence_chain
from lvsearch.inference.evidence.rows import check_size, padded_rows
from lvsearch.models.components import Component, log_normalisers
from lvsearch.models.contract import HyperparameterArray, first
from lvsearch.models.finite_mixture import FiniteMixture


class CollapsedState(NamedTuple):
    """Labels of the rows, particles side by side, and what they make of the components.

    | field | meaning |
    |---|---|
    | `labels` | (row, particle) |
    | `counts` | (component, particle) rows of each component, n_k |
    | `natural` | λ + S_k: the natural parameters of p(θ_k | its rows), (component, particle, …) a leaf |
    """

    labels: Int[Array, "row particle"]
    counts: Float[Array, "component particle"]
    natural: Any


class CollapsedMixtureChain(eqx.Module):
    """A `Chain` over the labels of a `FiniteMixture`. `of` makes one; the first `size` of `capacity` components exist.

    | field | letter | shape |
    |---|---|---|
    | `component` | the kind of component | |
    | `concentration` | a | () |
    | `size` | K | (), traced |
    | `increments` | s(x_n) | (row, …) a leaf |
    | `carriers` | log h(x_n), nats | (row,) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `prior` | λ | (…) a leaf |
    """

    component: Component
    concentration: HyperparameterArray
    size: Int[Array | np.ndarray, ""]
    increments: Any
    carriers: Float[Array | np.ndarray, " row"]
    weight: Float[Array | np.ndarray, " row"]
    prior: Any
    capacity: int = eqx.field(static=True)

    @classmethod
    def of(cls, model: FiniteMixture, data: Dataset, size: int, capacity: int) -> "CollapsedMixtureChain":
        """Rows are in the order of the batches, their padding included, so that data sets of one padded length share
        their programs.

        Raises ValueError for estimated components, rows without a density, rows weighted otherwise than 0 or 1, and a
        size that does not fit in the capacity.
        """
        component, a = model.components, model.concentration
        if a is None:
            raise ValueError(
                f"got {model.describe()}, expected a mixture whose parameters have a prior: with estimated parameters "
                "nothing is integrated out"
            )
        check_size(size, capacity)
        units, weight = padded_rows(data)
        component.check(units)
        with jax.enable_x64(True):
            coordinates = jax.vmap(component.coordinates)(units)
            increments = jax.vmap(component.increment)(coordinates, jnp.asarray(units.observed))
            carriers = jax.vmap(component.log_carrier)(coordinates, jnp.asarray(units.observed))
            prior = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), component.prior(units.value.shape[1]))
            return cls(
                component,
                a,
                np.asarray(size),
                jax.tree.map(np.asarray, increments),
                np.asarray(carriers),
                weight,
                prior,
                capacity,
            )

    @property
    def elements(self) -> int:
        return len(self.weight)

    @property
    def lanes(self) -> int:
        return 32

    @property
    def directed(self) -> bool:
        return True

    def init(self, key: Key[Array, ""], particles: int) -> CollapsedState:
        """Labels from their prior: weights are drawn, then labels given the weights."""
        key_weights, key_labels = jax.random.split(key)
        exists, a = self._exists(), self._concentration()
        log_gamma = jax.random.loggamma(key_weights, a, (self.capacity, particles), dtype=a.dtype)
        log_weights = jnp.where(exists, log_gamma, -jnp.inf)
        labels = jax.random.categorical(key_labels, log_weights, axis=0, shape=(len(self.weight), particles))
        return self.of_labels(labels)

    def step(
        self, key: Key[Array, ""], state: CollapsedState, temperature: Float[Array, ""], *, backward: bool
    ) -> CollapsedState:
        """Every row in turn, the last one first where `backward`."""
        n_rows, particles = state.labels.shape
        places = jnp.arange(self.capacity)[:, None]
        exists, a, weight = self._exists(), self._concentration(), self._rows(self.weight)
        prior = jax.tree.map(self._rows, self.prior)
        uniforms = jax.random.uniform(key, (n_rows, particles), a.dtype)
        state = self.of_labels(state.labels)  # summed anew, so that rounding does not add up over sweeps

        def one(carry: tuple[Array, Any, Array], row: Any) -> tuple[tuple[Array, Any, Array], Array]:
            counts, natural, normaliser = carry
            old, increment, here, uniform = row
            leaves = places == old
            counts = counts - here * leaves
            emptied = jnp.take_along_axis(counts, old[None], axis=0)[0] < 0.5

            def without(sums: Array, s: Array, empty: Array) -> Array:
                left = sums[old, jnp.arange(particles)] - s
                return jnp.where(_aligned(emptied, left), empty, left)

            left = jax.tree.map(without, natural, increment, prior)
            natural = jax.tree.map(lambda sums, new: jnp.where(_aligned(leaves, sums), new[None], sums), natural, left)
            normaliser = jnp.where(leaves, log_normalisers(self.component, left), normaliser)
            joined = jax.tree.map(jnp.add, natural, increment)
            after = self._normalisers(joined)
            score = jnp.where(exists, jnp.log(counts + a) + temperature * (after - normaliser), -jnp.inf)
            cumulative = jnp.cumsum(jnp.exp(score - score.max(0)), axis=0)
            new = (cumulative < uniform * cumulative[-1]).sum(0).astype(old.dtype)
            new = jnp.minimum(new, jnp.asarray(self.size, old.dtype) - 1)
            joins = places == new
            natural = jax.tree.map(lambda sums, more: jnp.where(_aligned(joins, sums), more, sums), natural, joined)
            return (counts + here * joins, natural, jnp.where(joins, after, normaliser)), new

        begin = state.counts, state.natural, self._normalisers(state.natural)
        increments = jax.tree.map(self._rows, self.increments)
        (counts, natural, _), labels = jax.lax.scan(
            one, begin, (state.labels, increments, weight, uniforms), reverse=backward
        )
        return CollapsedState(labels, counts, natural)

    def log_ratio(self, state: CollapsedState) -> Float[Array, " particle"]:
        """log p(rows | labels)."""
        empty = log_normalisers(self.component, jax.tree.map(lambda leaf: self._rows(leaf)[None], self.prior))[0]
        gains = jnp.where(self._exists(), self._normalisers(state.natural) - empty, 0.0)
        return gains.sum(0) + self._rows(self.carriers).sum()

    def log_density(self, state: CollapsedState) -> Float[Array, " particle"]:
        """log p(rows, labels)."""
        a = self._concentration()
        total = self.size * a
        each = jnp.where(self._exists(), gammaln(state.counts + a) - gammaln(a), 0.0).sum(0)
        return self.log_ratio(state) + each + gammaln(total) - gammaln(total + self._rows(self.weight).sum())

    def label_scores(self, state: CollapsedState) -> None:
        """None: the prior does not change under relabelling."""
        return

    def relabel(self, state: CollapsedState, order: Int[Array, "particle component"]) -> CollapsedState:
        """The state itself: no labelling is better than another."""
        return state

    def take(self, state: CollapsedState, particles: Int[Array, " chosen"]) -> CollapsedState:
        """The named particles, in that order."""
        return jax.tree.map(lambda leaf: leaf[:, particles], state)

    def of_labels(self, labels: Int[Array, "row particle"]) -> CollapsedState:
        """The state of these labels, its sums taken anew."""
        chosen = labels[:, None, :] == jnp.arange(self.capacity)[:, None]

        def sums(leaf: Any) -> Array:
            return jnp.einsum("nkp,n...->kp...", chosen.astype(leaf.dtype), leaf)

        natural = jax.tree.map(lambda s, prior: prior + sums(self._rows(s)), self.increments, self.prior)
        return CollapsedState(labels, sums(self._rows(self.weight)), natural)

    def _normalisers(self, natural: Any) -> Float[Array, "component particle"]:
        """A of each component of each particle."""
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), natural)
        return log_normalisers(self.component, flat).reshape(self.capacity, -1)

    def _exists(self) -> Array:
        return first(jnp.asarray(self.size), self.capacity)[:, None]

    def _concentration(self) -> Array:
        return jnp.asarray(self.concentration, jnp.result_type(float))

    def _rows(self, leaf: Any) -> Array:
        """A leaf in the floating type of the session."""
        return jnp.asarray(leaf, jnp.result_type(float))


@evidence_chain.register
def _(model: FiniteMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedMixtureChain:
    return CollapsedMixtureChain.of(model, data, size[0], capacity_of(size)[0])


def _aligned(mask: Array, leaf: Array) -> Array:
    """The mask with the trailing axes of the leaf."""
    return mask.reshape(*mask.shape, *[1] * (leaf.ndim - mask.ndim))
