"""Mean field as pure functions: a fixed number of coordinate-ascent steps of any model, and functions of a fit.

`mean_field` fits a model. `FittedFunctions` is a fit as a pytree of arrays, with pure functions of new units
(observations).

Source: Blei (2004), §2.2.2, Eq. 2.18. `lvsearch.inference.engine.meanfield` says what is computed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lvsearch.functional.batches import Places, checked_places, require_extents
from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.describing import representing_value
from lvsearch.inference.engine.estimate import point_of
from lvsearch.inference.engine.meanfield import Beliefs, globals_bound, resident_sweep, sweep_units, unit_bounds
from lvsearch.inference.engine.meanfield_starts import (
    START_ROUNDS,
    blank_globals,
    blank_locals,
    leanings_to_nearest,
    scattered_locals,
)
from lvsearch.inference.engine.summed_out import log_unit_summed
from lvsearch.models.contract import Model, Statistics, Unit
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import copies_arrays, full_precision
from lvsearch.models.plain_arguments import whole_number


class MeanFieldState(NamedTuple):
    """The variational distribution q, as natural parameters and expected sufficient statistics.

    | field | meaning |
    |---|---|
    | `globals` | q of the latent variables that all units (observations) share |
    | `locals` | q of every unit's own latent variables, units on the leading axis |
    """

    globals: Beliefs
    locals: Beliefs


@dataclass(frozen=True)
class MeanFieldFunctions:
    """Pure functions of mean field at one size. `model` and `batch` are arguments, so both may be traced.

    | field | meaning |
    |---|---|
    | `places` | size (may be traced), capacity (array slots for components), lengths of the axes that the data decide |
    | `local_sweeps` | coordinate sweeps over a unit's own latent variables in one `update` |
    """

    places: Places
    local_sweeps: int

    @copies_arrays
    @full_precision
    def init(self, model: Model, key: Key[Array, ""], batch: Batch) -> MeanFieldState:
        """Return a start in which components differ: first q of the locals, and q of the globals that follows from it.

        Rows begin with the nearest of some rows that are drawn far apart, other units at random.

        model: the model. key: the random key. batch: the data.

        Raises ValueError for axes without a length.
        """
        require_extents(model, self.places)
        size, capacity = self.places.size, self.places.capacity
        weight = jnp.asarray(batch.weight)
        blank = blank_globals(model, self.places.extents, size, capacity, weight.dtype)
        (leaning,) = leanings_to_nearest(key, [batch], size, capacity) or (None,)
        numbers, beliefs = jnp.arange(len(weight)), blank
        start = scattered_locals(model, key, blank.mean, batch, numbers, size, leaning, capacity=capacity)
        for _ in range(START_ROUNDS):
            beliefs = self._globals(model, beliefs, batch, start)
        return MeanFieldState(beliefs, start)

    @copies_arrays
    @full_precision
    def update(self, model: Model, state: MeanFieldState, batch: Batch) -> MeanFieldState:
        """Return q after coordinate steps of every unit's local latent variables, then of the shared ones.

        model: the model. state: the present q. batch: the data. The evidence lower bound (`elbo`) does not fall.
        """
        on = model.active(self.places.size, self.places.capacity)
        local = state.locals
        for _ in range(self.local_sweeps):
            local = _like(sweep_units(model, state.globals.mean, batch, local, on), local)
        return MeanFieldState(self._globals(model, state.globals, batch, local), local)

    @copies_arrays
    def run(self, model: Model, state: MeanFieldState, batch: Batch, steps: int) -> MeanFieldState:
        """Return q after `steps` updates from `state`. Derivatives go through each update.

        model: the model. batch: the data.
        """

        def step(s: MeanFieldState, _: None) -> tuple[MeanFieldState, None]:
            return self.update(model, s, batch), None

        return jax.lax.scan(step, state, None, length=steps)[0]

    @copies_arrays
    def settle(
        self, model: Model, state: MeanFieldState, batch: Batch, steps: int, adjoint_steps: int | None = None
    ) -> MeanFieldState:
        """Return q after `steps` updates, like `run`, with derivatives of the fixed point by the implicit function
        theorem.

        model: the model. state: the q to start from. batch: the data. steps: the number of updates.
        adjoint_steps: terms of the Neumann series that solves the linear system of the theorem; by default `steps`.

        Use it for a state that has converged: before that, the derivatives are those of another point. Memory does not
        grow with `steps`. Derivatives are with respect to `model` and `batch`; those with respect to `state` are 0. It
        does not work with a traced size; use `run`.
        """
        both = jax.tree.map(jnp.asarray, (model, batch))
        return _run_to_fixed_point(both, self, state, steps, steps if adjoint_steps is None else adjoint_steps)

    @copies_arrays
    @full_precision
    def elbo(self, model: Model, state: MeanFieldState, batch: Batch) -> Float[Array, ""]:
        """Return the evidence lower bound of exactly the q in `state`, in nats. Units (observations) count by their
        weight.

        model: the model. batch: the data.
        """
        size, capacity = self.places.size, self.places.capacity
        on = model.active(size, capacity)
        of_units = unit_bounds(model, state.globals.mean, batch, state.locals, on)
        return globals_bound(model, state.globals, size, capacity=capacity) + (batch.weight * of_units).sum()

    @copies_arrays
    @full_precision
    def transform(
        self, model: Model, state: MeanFieldState, batch: Batch, sweeps: int = 30
    ) -> Float[Array, "units ..."]:
        """Return the expected description of each unit under q of the globals, such as topic proportions or shares of
        components, units leading.

        model: the model. state: the fitted q. sweeps: the number of coordinate sweeps over each unit's latent
            variables.
        batch: the units; they may be others than those that the state was fitted to. Padding units are included.
        """
        on = model.active(self.places.size, self.places.capacity)
        blank = blank_locals(model, batch, self.places.size, capacity=self.places.capacity)

        def sweep(local: Beliefs, _: None) -> tuple[Beliefs, None]:
            return _like(sweep_units(model, state.globals.mean, batch, local, on), local), None

        local = jax.lax.scan(sweep, blank, None, length=sweeps)[0]
        return representing_value(model, local, on)

    def _globals(self, model: Model, old: Beliefs, batch: Batch, local: Beliefs) -> Beliefs:
        """Return q of the shared latent variables after one coordinate step each, given q of every unit's own.

        old: the present q of the shared ones. local: q of the units' own latent variables, units leading.
        """
        new = resident_sweep(model, old, (batch,), (local.mean,), self.places.size, capacity=self.places.capacity)
        return _like(new, old)


def mean_field(
    size: Any, extents: Mapping[str, int] | None = None, *, capacity: Any = None, local_sweeps: int = 1
) -> MeanFieldFunctions:
    """Return pure functions for mean field of any model at one size.

    size: a number, or one for each size variable. It may be traced if `capacity` is given; one compiled program then
        serves all sizes up to the capacity.
    extents: {axis: length} of the axes that the data decide, such as {"word": V} with V words; `batch_of` returns them.
    capacity: the largest size, a number or one for each size variable; by default `size`.
    local_sweeps: sweeps over a unit's latent variables in one update. More than 1 helps models whose units have several
        latent variables, such as documents.

    Raises ValueError for sizes and numbers of sweeps that are not positive.
    """
    sweeps = whole_number("local_sweeps", local_sweeps, least=1)
    return MeanFieldFunctions(checked_places(size, extents, capacity), sweeps)


def _like(new: Any, old: Any) -> Any:
    """Return the pytree `new` in the dtypes of `old`, so that hyper-parameters of another precision do not change the
    precision of a state.
    """
    return jax.tree.map(lambda a, b: a.astype(b.dtype), new, old)


@eqx.filter_custom_vjp
def _run_to_fixed_point(
    model_and_batch: tuple[Model, Batch],
    functions: MeanFieldFunctions,
    start: MeanFieldState,
    steps: int,
    adjoint_steps: int,
) -> MeanFieldState:
    """Return q after `steps` updates; its derivative is defined by `_fixed_point_backward`.

    start: the q to start from. adjoint_steps: terms of the series in the derivative.
    """
    model, batch = model_and_batch
    return functions.run(model, start, batch, steps)


@_run_to_fixed_point.def_fwd
def _fixed_point_forward(
    perturbed: Any,
    model_and_batch: tuple[Model, Batch],
    functions: MeanFieldFunctions,
    start: MeanFieldState,
    steps: int,
    adjoint_steps: int,
) -> tuple[MeanFieldState, MeanFieldState]:
    """Return the end of the run, twice: as the result, and as the value that the backward pass needs.

    The arguments after `perturbed` are those of `_run_to_fixed_point`.
    """
    del perturbed
    model, batch = model_and_batch
    end = functions.run(model, start, batch, steps)
    return end, end


@_run_to_fixed_point.def_bwd
def _fixed_point_backward(
    end: MeanFieldState,
    cotangent: MeanFieldState,
    perturbed: Any,
    model_and_batch: tuple[Model, Batch],
    functions: MeanFieldFunctions,
    start: MeanFieldState,
    steps: int,
    adjoint_steps: int,
) -> Any:
    """Return the cotangent of the model and the batch, from the cotangent of the end of the run.

    With end = T(end, model) for one update T, it is the cotangent times (1 − ∂T/∂end)⁻¹ ∂T/∂model. The inverse is the
    Neumann series Σ_n (∂T/∂end)ⁿ, of which `adjoint_steps` terms are added.
    """
    del perturbed, start, steps
    model, batch = model_and_batch = jax.tree.map(jnp.asarray, model_and_batch)  # they may be NumPy arrays
    # None stands for a cotangent of zeros
    filled = partial(jax.tree.map, is_leaf=lambda leaf: leaf is None)
    cotangents = filled(lambda c, e: jnp.zeros_like(e) if c is None else c, cotangent, end)
    _, pull_state = jax.vjp(partial(functions.update, model, batch=batch), end)

    def add_term(total: MeanFieldState, _: None) -> tuple[MeanFieldState, None]:
        return jax.tree.map(jnp.add, cotangents, pull_state(total)[0]), None

    total = jax.lax.scan(add_term, cotangents, None, length=adjoint_steps)[0]
    _, pull = eqx.filter_vjp(lambda both: functions.update(both[0], end, both[1]), model_and_batch)
    return pull(total)[0]


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
