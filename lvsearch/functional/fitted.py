"""A fit as a pytree of arrays, with pure functions of new units (observations)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.estimate import point_of
from lvsearch.inference.engine.meanfield import Beliefs, sweep_units, unit_bounds
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.engine.representation import representing_value
from lvsearch.inference.engine.summed_out import log_unit_summed
from lvsearch.models.contract import Model, Statistics, Unit
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import full_precision

SWEEPS = 100
"""The number of coordinate sweeps over a new unit's latent variables, where they cannot be summed out exactly."""


class FittedFunctions(eqx.Module):
    """A fit at its posterior means: a pytree that can be an argument of `jit` and `shard_map`.

    `model`: the model. `natural`: {name: natural parameters of q} of the latent variables that all units share.
    `size`: the number of components of each size variable.

    Units (observations) come as a `Batch` (`batch_of(model, data)`). Each unit is treated by itself, so batches may be
    divided and sharded along their leading axis.
    """

    model: Model
    natural: dict[str, Statistics]
    size: tuple[int, ...] = eqx.field(static=True)

    @property
    def exact(self) -> bool:
        """True if `log_likelihood` is exact: all latent variables of a unit are indicators, which are summed out.

        Otherwise `log_likelihood` is the variational lower bound.
        """
        sites = self.model.locals().values()
        return all(isinstance(s.family, IndicatorFamily) and not s.slices and not s.gate for s in sites)

    @full_precision
    def transform(self, batch: Batch) -> Float[Array, "units ..."]:
        """Return the expected description of each unit, such as topic proportions or shares of components, units
        leading.

        batch: the units. Units that are padding are included.
        """
        on = self.model.active(self.size, self.size)
        return representing_value(self.model, self._locals(batch), on)

    @full_precision
    def log_likelihood(self, batch: Batch) -> Float[Array, " units"]:
        """Return log p(unit | parameters at their posterior means) of each unit in nats, shape (units,).

        It is exact, or a lower bound where `exact` is False. batch: the units.
        """
        on, point = self.model.active(self.size, self.size), self._point()
        if not self.exact:
            return unit_bounds(self.model, point, batch, self._locals(batch), on)
        names = tuple(self.model.locals())
        blank = self._blank(batch).mean

        def log_unit(unit: Unit, l: dict[str, Statistics]) -> Array:
            return log_unit_summed(self.model, point, l, unit, on, names)[0]

        return jnp.where(batch.weight > 0, jax.vmap(log_unit)(batch.units, blank), 0)

    def score(self, batch: Batch) -> Float[Array, ""]:
        """Return the sum of `log_likelihood` over the units of a batch, counted by their weight, in nats."""
        return (batch.weight * self.log_likelihood(batch)).sum()

    def _point(self) -> dict[str, Statistics]:
        """Return {name: sufficient statistics} of the shared latent variables at their posterior means."""
        return point_of(self.model, self.natural, self.size, capacity=self.size)

    def _blank(self, batch: Batch) -> Beliefs:
        """Return beliefs (q) of zeros about the latent variables of every unit, units leading.

        They are computed from the weights, so that under `shard_map` each device has its own. Constants would be
        shared, and derivatives with respect to them summed over devices.
        """
        zeros = blank_locals(self.model, batch, self.size, capacity=self.size)
        own = 0 * jnp.asarray(batch.weight)
        return jax.tree.map(lambda leaf: leaf + own.reshape(-1, *(1,) * (leaf.ndim - 1)), zeros)

    def _locals(self, batch: Batch) -> Beliefs:
        """Return q of every unit's latent variables, after 100 coordinate sweeps, or after one if one sweep is
        exact.
        """
        on, point = self.model.active(self.size, self.size), self._point()

        def sweep(local: Beliefs, _: None) -> tuple[Beliefs, None]:
            new: Any = sweep_units(self.model, point, batch, local, on)
            return jax.tree.map(lambda a, b: a.astype(b.dtype), new, local), None

        return jax.lax.scan(sweep, self._blank(batch), None, length=1 if self.exact else SWEEPS)[0]
