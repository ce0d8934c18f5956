"""Labels that say both which component a row is in and in which of V variants it arose there: k V + v, −1 for none;
and what a chain over labels knows of the components.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from lvsearch.models.contract import first


class VariantLabels(NamedTuple):
    """The labels of `capacity` places for components. With one variant a label is the component itself."""

    capacity: int
    n_variants: int

    @property
    def number(self) -> int:
        """How many labels there are."""
        return self.capacity * self.n_variants

    def exist(self, size: Any) -> Bool[Array, "label one"]:
        """Those of the first `size` components."""
        return first(jnp.asarray(size) * self.n_variants, self.number)[:, None]

    def components(self, labels: Int[Array, "*rows"]) -> Int[Array, "*rows"]:
        """The component of each label."""
        return labels // self.n_variants

    def variants(self, labels: Int[Array, "*rows"]) -> Int[Array, "*rows"]:
        """The variant of each label."""
        return labels % self.n_variants

    def of(self, components: Int[Array, "*#rows"], variants: Int[Array, "*#rows"]) -> Int[Array, "*#rows"]:
        """The labels of these components in these variants: of one component or variant for many, as arrays do."""
        return components * self.n_variants + variants

    def in_all_variants(self, leaf: Float[Array, "component particle"]) -> Float[Array, "label particle"]:
        """The same of a component in each variant."""
        return jnp.repeat(leaf, self.n_variants, axis=0)

    def in_variant_of(self, labels: Int[Array, " particle"], leaf: Array) -> Array:
        """(label, particle, …) -> (component, particle, …): of each particle in the variant of its label."""
        if self.n_variants == 1:
            return leaf  # no gather
        by_variant = leaf.reshape(self.capacity, self.n_variants, *leaf.shape[1:])
        return by_variant[:, self.variants(labels), jnp.arange(len(labels))]


class CollapsedState(NamedTuple):
    """Labels of the rows, particles side by side, and what they make of the components.

    | field | meaning |
    |---|---|
    | `labels` | (row, particle): component and variant (`VariantLabels`), −1 for a row in none |
    | `counts` | (component, particle) rows of each component, n_k |
    | `natural` | λ + S_k: the natural parameters of p(θ_k | its rows), (component, particle, …) a leaf |
    """

    labels: Int[Array, "row particle"]
    counts: Float[Array, "component particle"]
    natural: Any


class Joining(NamedTuple):
    """One row and all labels, each of which it might have.

    | field | meaning |
    |---|---|
    | `of_label` | log (n_k + a) + log p(v), (label, particle), nats |
    | `of_row` | A(λ + S_k + s_v(row)) − A(λ + S_k) + log h_v(row) − log h(row), nats |
    | `natural` | λ + S_k + s_v(row), (label, particle, …) a leaf |
    | `normaliser` | A of these |
    """

    of_label: Float[Array, "label particle"]
    of_row: Float[Array, "label particle"]
    natural: Any
    normaliser: Float[Array, "label particle"]

    @property
    def score(self) -> Float[Array, "label particle"]:
        """log of the joint with the row in each component, but for its h, nats."""
        return self.of_label + self.of_row
