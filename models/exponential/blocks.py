"""Several simplices side by side on one axis, each with its own number of entries."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.models.exponential.family import Event, EventMask, Family, NumpyroDistribution, RandomKey
from lvsearch.models.exponential.simplex import Dirichlet, PointSimplex


class SimplexBlocks(Family[Event]):
    """Several independent vectors, each on a simplex of its own, one after another on the event axis, all of one
    family.

    base: the family of every vector.
    widths: the number of entries of each vector.

    An example is the allele frequencies of all loci. To compute, entries are gathered into rows of one length, and
    missing entries are masked.
    """

    base: Dirichlet | PointSimplex
    widths: tuple[int, ...] = eqx.field(static=True)

    event_ndim: ClassVar[int] = 1

    def log_normaliser(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        rows, mask = self._rows(natural, event_mask)
        return self.base.log_normaliser(rows, mask).sum(-1)

    def mean(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(natural, event_mask)
        return self._flat(self.base.mean(rows, mask))

    def natural(self, mean: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(mean, event_mask)
        return self._flat(self.base.natural(rows, mask))

    def entropy(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        rows, mask = self._rows(natural, event_mask)
        return self.base.entropy(rows, mask).sum(-1)

    def sample(self, key: RandomKey, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(natural, event_mask)
        return self._flat(self.base.sample(key, rows, mask))

    def point(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(natural, event_mask)
        return self._flat(self.base.point(rows, mask))

    def value(self, statistics: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(statistics, event_mask)
        return self._flat(self.base.value(rows, mask))

    def to_numpyro(self, natural: Event) -> NumpyroDistribution:
        """Return a distribution over (…, block, entry). Raises ValueError unless all blocks have one width."""
        if len(set(self.widths)) > 1:
            raise ValueError(
                f"got blocks of {min(self.widths)} to {max(self.widths)} entries, expected one width: NumPyro has no "
                "distribution of several simplices of different lengths; use the samplers of lvsearch"
            )
        return self.base.to_numpyro(self._rows(natural, None)[0]).to_event(1)

    def _rows(self, leaf: Any, event_mask: Any) -> tuple[Array, Any]:
        """Return an array (…, event) rearranged as (…, block, entry), and a mask of the same shape of the entries that
        exist.

        leaf: the array; each block is one simplex. event_mask: mask (…, event) of the entries that exist, or None.
        """
        index, exists = _layout(self.widths)
        mask = exists if event_mask is None else exists & jnp.asarray(event_mask)[..., index]
        return jnp.where(exists, jnp.asarray(leaf)[..., index], 0), mask

    def _flat(self, rows: Array) -> Array:
        """Return an array (…, block, entry) rearranged as (…, event), the inverse of `_rows`."""
        block = np.repeat(np.arange(len(self.widths)), self.widths)
        entry = np.concatenate([np.arange(width) for width in self.widths])
        return rows[..., block, entry]


def _layout(widths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return (position of each entry on the event axis, mask of the entries that exist), both of shape (block, entry).

    widths: the number of entries of each block. The position is 0 where an entry does not exist.
    """
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    exists = np.arange(max(widths)) < np.array(widths)[:, None]
    return np.where(exists, starts[:, None] + np.arange(max(widths)), 0), exists
