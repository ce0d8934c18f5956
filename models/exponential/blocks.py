"""Several simplices side by side on one axis, each with its own number of entries."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.models.exponential.family import Event, EventMask, Family, NumpyroDistribution, RandomKey
from lvsearch.models.exponential.simplex import Dirichlet, PointSimplex


class SimplexBlocks(Family[Event]):
    """Independent vectors on simplices of `widths` entries, one after the other on the event axis, of one family.

    Entries are gathered into rows of one length, the missing ones masked, so that the base does the work.
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
        """Where all blocks have one width: a distribution over (…, block, entry). ValueError otherwise."""
        if len(set(self.widths)) > 1:
            raise ValueError(
                f"got blocks of {min(self.widths)} to {max(self.widths)} entries, expected one width: NumPyro has no "
                "distribution of several simplices of different lengths; use the samplers of lvsearch"
            )
        return self.base.to_numpyro(self._rows(natural, None)[0]).to_event(1)

    def _rows(self, leaf: Any, event_mask: Any) -> tuple[Array, Any]:
        """(…, event) as (…, block, entry), and which entries there are."""
        index, exists = _layout(self.widths)
        mask = exists if event_mask is None else exists & jnp.asarray(event_mask)[..., index]
        return jnp.where(exists, jnp.asarray(leaf)[..., index], 0), mask

    def _flat(self, rows: Array) -> Array:
        """The inverse of `_rows`."""
        block = np.repeat(np.arange(len(self.widths)), self.widths)
        entry = np.concatenate([np.arange(width) for width in self.widths])
        return rows[..., block, entry]


def _layout(widths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(block, entry): the place of each entry on the event axis (0 where there is none), and which there are."""
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    exists = np.arange(max(widths)) < np.array(widths)[:, None]
    return np.where(exists, starts[:, None] + np.arange(max(widths)), 0), exists
