"""Labels that say both which component a row is in and in which of V variants it arose there: k V + v, −1 for none."""

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

    def of(self, components: Int[Array, "*rows"], variants: Int[Array, "*rows"]) -> Int[Array, "*rows"]:
        """The labels of these components in these variants."""
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
