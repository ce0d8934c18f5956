"""Labels that say which component a row is in and in which of V variants it arose there, and the states made of them.

The label of component k and variant v is k V + v. It is −1 for a row that is in no component.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from lvsearch.models.contract import first


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
