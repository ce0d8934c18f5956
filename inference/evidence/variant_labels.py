"""Labels that say which component a row is in and in which of V variants it arose there, the states made of
them, and what all chains over such labels share.

The label of component k and variant v is k V + v. It is −1 for a row that is in no component.
"""

from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int, Key

from lvsearch.inference.annealing.particle_arrays import ParticleArrays
from lvsearch.models.components import Component
from lvsearch.models.contract import HyperparameterArray, first

Labelled = TypeVar("Labelled", bound="RowLabelsChain")


class VariantLabels(NamedTuple):
    """The numbering of labels, where a label is a component of a mixture together with one of its variants.

    The label of component k and variant v is k V + v, with V = `n_variants`. With one variant a label is the component
    itself. `capacity` is the number of array slots for components.
    """

    capacity: int
    n_variants: int

    @property
    def number(self) -> int:
        """The number of labels: array slots for components × variants."""
        return self.capacity * self.n_variants

    def exist(self, size: Any) -> Bool[Array, "label one"]:
        """Return True for the labels of the first `size` components, which exist, as (label, 1)."""
        return first(jnp.asarray(size) * self.n_variants, self.number)[:, None]

    def components(self, labels: Int[Array, "*rows"]) -> Int[Array, "*rows"]:
        """Return the component of each label, shaped like `labels`."""
        return labels // self.n_variants

    def variants(self, labels: Int[Array, "*rows"]) -> Int[Array, "*rows"]:
        """Return the variant v of each label k V + v, 0 … n_variants − 1, shaped like `labels`.

        A variant is one of the V ways in which a row may arise in its component, such as one of several precisions. The
        result has no meaning for label −1, a row that is in no component.
        """
        return labels % self.n_variants

    def combine(self, components: Int[Array, "*#rows"], variants: Int[Array, "*#rows"]) -> Int[Array, "*#rows"]:
        """Return the labels of given components in given variants; the two arrays are broadcast against each other."""
        return components * self.n_variants + variants

    def in_all_variants(self, leaf: Float[Array, "component particle"]) -> Float[Array, "label particle"]:
        """Return the numbers of components repeated for each of their variants: (component, particle) -> (label,
        particle).
        """
        return jnp.repeat(leaf, self.n_variants, axis=0)

    def in_variant_of(
        self, labels: Int[Array, " particle"], leaf: Float[Array, "*axes label particle"]
    ) -> Float[Array, "*axes component particle"]:
        """Return, for each particle, the entries of one variant: (…, label, particle) -> (…, component, particle).

        labels: one label of each particle, (particle,); its variant is the one whose entries are returned.
        leaf: numbers of each label, (…, label, particle).
        """
        if self.n_variants == 1:
            return leaf  # no gather
        by_variant = leaf.reshape(*leaf.shape[:-2], self.capacity, self.n_variants, len(labels))
        return by_variant[..., self.variants(labels), jnp.arange(len(labels))]


class CollapsedState(NamedTuple):
    """Labels of the rows, and the sums over the rows of each component that follow from them, for particles side by
    side.

    | field | meaning |
    |---|---|
    | `labels` | (row, particle): component and variant (`VariantLabels`), −1 for a row in no component |
    | `counts` | (component, particle): n_k, the number of rows in each component |
    | `natural` | λ + S_k: natural parameters of p(θ_k | its rows), (statistic, component, particle) |

    λ are the natural parameters of a component without rows, S_k the sum of its rows' statistics, θ_k its parameters.
    A chain may keep something else in `natural` from which it scores rows, such as inverse matrices.
    """

    labels: Int[Array, "row particle"]
    counts: Float[Array, "component particle"]
    natural: Any


class RowScores(NamedTuple):
    """Scores of one row, which is in no component, for each label that it might get.

    | field | meaning |
    |---|---|
    | `of_label` | log (n_k + a) + log p(v), (label, particle), nats |
    | `of_row` | A(λ + S_k + s_v(row)) − A(λ + S_k) + log h_v(row) − log h(row), (label, particle), nats |

    Component k has n_k rows, whose statistics sum to S_k. a is the concentration of the weights, λ are the natural
    parameters of a component without rows, A is the log-normaliser. In variant v the row has the statistics s_v and
    carrier h_v.
    """

    of_label: Float[Array, "label particle"]
    of_row: Float[Array, "label particle"]

    @property
    def score(self) -> Float[Array, "label particle"]:
        """The log-probability of the row under each label given the other rows, up to a constant, (label, particle), in
        nats.

        The constant contains the row's carrier h and the normaliser of the weights.
        """
        return self.of_label + self.of_row


class Joining(NamedTuple):
    """The scores of one row, and the components with the row under each label that it might get.

    | field | meaning |
    |---|---|
    | `scores` | the scores of the row, whose letters are those below |
    | `natural` | λ + S_k + s_v(row), (statistic, label, particle) |
    | `normaliser` | A(λ + S_k + s_v(row)), (label, particle), nats |
    """

    scores: RowScores
    natural: Any
    normaliser: Float[Array, "label particle"]


class RowLabelFields:
    """The fields of every chain over the labels of rows, which each declares in its own order (`RowLabelsChain`)."""

    component: Component
    concentration: HyperparameterArray
    size: Int[Array | np.ndarray, ""]
    weight: Float[Array | np.ndarray, " row"]
    anchor: Float[Array | np.ndarray, "row label"] | None
    capacity: int


class RowLabelsChain(RowLabelFields, ParticleArrays):
    """Base class of annealing chains over the labels of a mixture's rows: their first draws, their prior, and renaming.

    Arrays have room for `capacity` components, of which the first `size` exist. The path begins at q, which is the
    prior, or draws each row's label from the probabilities of its row in `anchor`.

    | field | meaning | shape |
    |---|---|---|
    | `component` | the kind of component | |
    | `concentration` | a, the Dirichlet parameter of each weight | () |
    | `size` | K, the number of components | (), traced |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `anchor` | log r, log q of each row's label, nats; None for the path from the prior | (row, label) |
    """

    @property
    def elements(self) -> int:
        """The number of rows, padding included: each has its label drawn in a sweep."""
        return len(self.weight)

    @property
    def names(self) -> VariantLabels:
        """The numbering of labels by component and variant."""
        return VariantLabels(self.capacity, self.component.n_variants)

    def exists(self) -> Array:
        """Return True for the components that exist, (component, 1)."""
        return first(jnp.asarray(self.size), self.capacity)[:, None]

    def _concentration(self) -> Array:
        """Return the concentration of the weights in the floating type of the session, ()."""
        return jnp.asarray(self.concentration, jnp.result_type(float))

    def total_concentration(self) -> Float[Array, ""]:
        """Return K a, the number of components times their concentration: the total of the Dirichlet's parameters,
        ().
        """
        return jnp.asarray(self.size) * self._concentration()

    def draw_labels(self, key: Key[Array, ""], particles: int) -> Int[Array, "row particle"]:
        """Draw labels from q, (row, particle): from the prior, or around a labelling on the second path.

        From the prior, weights are drawn first, then labels given the weights.

        particles: the number of particles.
        """
        if self.anchor is not None:
            log_q = self._as_float(self.anchor)[:, None]
            return jax.random.categorical(key, log_q, shape=(len(self.weight), particles)).astype(jnp.int32)
        key_weights, key_labels = jax.random.split(key)
        exists, a = self.exists(), self._concentration()
        log_gamma = jax.random.loggamma(key_weights, a, (self.capacity, particles), dtype=a.dtype)
        log_weights = jnp.where(exists, log_gamma, -jnp.inf)
        shape = len(self.weight), particles
        labels = jax.random.categorical(key_labels, log_weights, axis=0, shape=shape).astype(jnp.int32)
        log_variants = self._as_float(self.component.log_variants)
        drawn = jax.random.categorical(jax.random.fold_in(key_labels, 0), log_variants, shape=shape)
        return self.names.combine(labels, drawn.astype(jnp.int32))

    def log_components(
        self, counts: Float[Array, "component particle"], power: Float[Array, ""] | float = 1.0
    ) -> Float[Array, " particle"]:
        """Return log ∫ p(π) Π_n π_{z_n}^power dπ, (particle,), in nats: log p(components of the rows), tempered, with
        the weights π integrated out.

        counts: the number of rows in each component, (component, particle).
        """
        a, total = self._concentration(), self.total_concentration()
        each = jnp.where(self.exists(), gammaln(power * counts + a) - gammaln(a), 0.0).sum(0)
        return each + gammaln(total) - gammaln(total + power * self._as_float(self.weight).sum())

    def log_anchor(self) -> Float[Array, "row label"]:
        """Return log r, log q of each row's label on the second path, (row, label), nats; 0 for labels that do not
        exist.
        """
        return jnp.where(self.names.exist(self.size)[:, 0], self._as_float(self.anchor), 0.0)

    def label_scores(self, state: Any) -> Float[Array, "particle component component"] | None:
        """Return scores S in nats, (particle, component, component), from which relabellings of the components are
        drawn.

        S[k, l] = Σ log r_n[k] over the rows n of component l, so that the weight f of a relabelling is q itself. The
        result is None on the path from the prior, since the prior does not change under relabelling.
        """
        if self.anchor is None:
            return None
        members = (state.labels[:, :, None] == jnp.arange(self.names.number)) * self._as_float(self.weight)[
            :, None, None
        ]
        exists, n_variants = self.exists()[:, 0], self.names.n_variants
        log_r, members = (each.reshape(*each.shape[:-1], -1, n_variants) for each in (self.log_anchor(), members))
        scores = jnp.einsum("nkv,nplv->pkl", log_r, members)
        both = exists[:, None] & exists
        return jnp.where(both, scores, jnp.where(jnp.eye(self.capacity, dtype=bool), 0.0, -jnp.inf))

    def relabelled(
        self, labels: Int[Array, "row particle"], order: Int[Array, "particle component"]
    ) -> Int[Array, "row particle"] | None:
        """Return the labels after components are renamed, (row, particle), or None on the path from the prior.

        order: the new number of each component, (particle, component).
        """
        if self.anchor is None:
            return None
        named = jnp.take_along_axis(order.T, self.names.components(labels), axis=0)
        return self.names.combine(named, self.names.variants(labels))

    def around_labelling(self: Labelled, anchor: Float[np.ndarray, "row component"]) -> Labelled:
        """Return the chain on the second path, from a q around one labelling.

        anchor: log q of each row's label, (row, label), nats.
        """
        return eqx.tree_at(lambda c: c.anchor, self, anchor, is_leaf=lambda leaf: leaf is None)
