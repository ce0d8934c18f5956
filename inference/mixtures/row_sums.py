"""Sums of the statistics of rows by component, for samplers that move one row after another between components.

Component parameters are integrated out. A row is taken out of its component, scored under every component, and put
back. Which prior the labels have does not matter here: samplers of the Dirichlet process and of the hierarchical one
share this.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.models.components import Component, log_normalisers


def sum_rows(increments: Any, prior: Any, labels: Array, places: int) -> Any:
    """Return the natural parameters of every component's posterior given its rows: λ + Σ s(x_n), places leading.

    increments: s(x_n), the sufficient statistics of each row, rows on the leading axis.
    prior: λ, the natural parameters of one component's prior.
    labels: the place (array slot) of each row's component, (row,). places: the number of places.
    """
    return jax.tree.map(lambda s, p: p + jax.ops.segment_sum(s, labels, places), increments, prior)


class RowSums(NamedTuple):
    """Posteriors of the components at all places (array slots): natural parameters (place, …) and log normalisers,
    nats.
    """

    natural: Any
    normaliser: Float[Array, " place"]


class RowEmission(NamedTuple):
    """The likelihood of rows given components, with the components' parameters integrated out.

    component: the kind of component.
    increments: sufficient statistics of each row, rows on the leading axis.
    prior: natural parameters of one component's prior.
    """

    component: Component
    increments: Any
    prior: Any

    def empty(self, places: int) -> RowSums:
        """Return the posteriors of components without rows, at `places` array slots."""
        natural = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (places, *jnp.shape(leaf))), self.prior)
        return RowSums(natural, jnp.broadcast_to(self._normaliser(self.prior), (places,)))

    def gather(self, labels: Array, places: int) -> RowSums:
        """Return the posteriors of components given all rows, each at the place (array slot) of its component.

        labels: the place of each row's component, (row,).
        places: the number of places.
        """
        natural = sum_rows(self.increments, self.prior, labels, places)
        return RowSums(natural, log_normalisers(self.component, natural))

    def normalisers_with(self, emitted: RowSums, member: Array) -> Float[Array, " place"]:
        """Return the log normalisers of all components, each with one more row, the `member`-th, nats, (place,)."""
        return log_normalisers(self.component, jax.tree.map(jnp.add, emitted.natural, self._increment(member)))

    def densities(self, emitted: RowSums, member: Array, total: Array) -> Array:
        """Return p(row | rows of the component at each place (array slot)), (place,), up to one common factor.

        emitted: the components' posteriors without the row.
        member: the index of the row.
        total: not used.
        """
        score = self.normalisers_with(emitted, member) - emitted.normaliser
        return jnp.exp(score - score.max())

    def remove(self, emitted: RowSums, member: Array, place: Array, last: Array) -> RowSums:
        """Return the posteriors with one row removed from the component at a place (array slot).

        If it was the last row there, the component gets exactly its prior again, so that no rounding is handed on.

        member: the index of the row.
        last: whether it is the only row at the place.
        """
        increment = self._increment(member)
        left = jax.tree.map(lambda t, s, p: jnp.where(last, p, t[place] - s), emitted.natural, increment, self.prior)
        return self._set_place(emitted, place, left)

    def add(self, emitted: RowSums, member: Array, place: Array, normaliser: Array | None = None) -> RowSums:
        """Return the posteriors with one more row, the `member`-th, in the component at a place (array slot).

        normaliser: the component's log normaliser with the row, nats, where it is known.
        """
        more = jax.tree.map(lambda t, s: t[place] + s, emitted.natural, self._increment(member))
        return self._set_place(emitted, place, more, normaliser)

    def log_density(self, emitted: RowSums, total: Array) -> Array:
        """Return log p(all rows | their components) without the rows' base measure, nats.

        total: the number of rows at each place (array slot).
        """
        return jnp.where(total > 0, emitted.normaliser - self._normaliser(self.prior), 0.0).sum()

    def _set_place(self, emitted: RowSums, place: Array, one: Any, normaliser: Array | None = None) -> RowSums:
        """Return the posteriors with the component at one place (array slot) replaced by `one`, its natural
        parameters. `normaliser`: its log normaliser in nats, where it is known.
        """
        normaliser = self._normaliser(one) if normaliser is None else normaliser
        natural = jax.tree.map(lambda t, new: t.at[place].set(new), emitted.natural, one)
        return RowSums(natural, emitted.normaliser.at[place].set(normaliser))

    def _increment(self, member: Array) -> Any:
        """Return the sufficient statistics of one row, the `member`-th."""
        return jax.tree.map(lambda leaf: leaf[member], self.increments)

    def _normaliser(self, one: Any) -> Array:
        """Return the log normaliser at the natural parameters of one component, nats."""
        return log_normalisers(self.component, jax.tree.map(lambda leaf: leaf[None], one))[0]
