"""Mean field as pure functions: the generic engine's coordinate steps, with a fixed number of them.

Source: Blei (2004), §2.2.2, Eq. 2.18; as in `lvsearch.inference.engine.meanfield`, which says what is computed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lvsearch.functional.sizes import Places, checked_places, require_extents
from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.meanfield import Beliefs, globals_bound, resident_sweep, sweep_units, unit_bounds
from lvsearch.inference.engine.meanfield_starts import blank_globals, blank_locals, scattered_locals
from lvsearch.inference.engine.representation import representing_value
from lvsearch.models.contract import Model
from lvsearch.models.kernels import full_precision


class MeanFieldState(NamedTuple):
    """q: of the globals, and of every unit's locals (units leading); natural parameters and expected statistics."""

    globals: Beliefs
    locals: Beliefs


@dataclass(frozen=True)
class MeanFieldFunctions:
    """Mean field at one size. Everything is pure; `model` and `batch` are arguments, so both may be traced.

    | field | meaning |
    |---|---|
    | `places` | size (may be traced), capacity, lengths of the axes that the data decide |
    | `local_sweeps` | sweeps over a unit's own sites in one `update` |
    """

    places: Places
    local_sweeps: int

    @full_precision
    def init(self, model: Model, key: Key[Array, ""], batch: Batch) -> MeanFieldState:
        """A start that tells components apart: scattered locals, and the globals that follow from them.

        Raises ValueError for axes without a length.
        """
        require_extents(model, self.places)
        size, capacity = self.places.size, self.places.capacity
        weight = jnp.asarray(batch.weight)
        blank = blank_globals(model, self.places.extents, size, capacity, weight.dtype)
        start = scattered_locals(model, key, blank.mean, batch, jnp.arange(len(weight)), size, capacity=capacity)
        return MeanFieldState(self._globals(model, blank, batch, start), start)

    @full_precision
    def update(self, model: Model, state: MeanFieldState, batch: Batch) -> MeanFieldState:
        """Coordinate steps of every unit's locals, then of the globals: `elbo` does not fall."""
        on = model.active(self.places.size, self.places.capacity)
        local = state.locals
        for _ in range(self.local_sweeps):
            local = _like(sweep_units(model, state.globals.mean, batch, local, on), local)
        return MeanFieldState(self._globals(model, state.globals, batch, local), local)

    def run(self, model: Model, state: MeanFieldState, batch: Batch, steps: int) -> MeanFieldState:
        """`steps` updates; derivatives go through each of them."""

        def step(s: MeanFieldState, _: None) -> tuple[MeanFieldState, None]:
            return self.update(model, s, batch), None

        return jax.lax.scan(step, state, None, length=steps)[0]

    def settle(
        self, model: Model, state: MeanFieldState, batch: Batch, steps: int, adjoint_steps: int | None = None
    ) -> MeanFieldState:
        """As `run`, with derivatives at the fixed point that it ends in, whatever the way there: the implicit function
        theorem, its linear system solved by `adjoint_steps` (by default `steps`) steps of Neumann's series.

        For a state that no longer moves; before, derivatives are those of another point. Memory does not grow with
        `steps`. With respect to `model` and `batch`; those with respect to `state` are 0. A traced size has `run` only.
        """
        given = jax.tree.map(jnp.asarray, (model, batch))
        return _settled(given, self, state, steps, steps if adjoint_steps is None else adjoint_steps)

    @full_precision
    def elbo(self, model: Model, state: MeanFieldState, batch: Batch) -> Float[Array, ""]:
        """The evidence lower bound of exactly this q, in nats; units count by their weight."""
        size, capacity = self.places.size, self.places.capacity
        on = model.active(size, capacity)
        of_units = unit_bounds(model, state.globals.mean, batch, state.locals, on)
        return globals_bound(model, state.globals, size, capacity=capacity) + (batch.weight * of_units).sum()

    @full_precision
    def transform(
        self, model: Model, state: MeanFieldState, batch: Batch, sweeps: int = 30
    ) -> Float[Array, "units ..."]:
        """The expected value of what describes each unit, under q of the globals: topic proportions, shares of
        components. Units may be others than the state has seen; padding included."""
        on = model.active(self.places.size, self.places.capacity)
        blank = blank_locals(model, batch, self.places.size, capacity=self.places.capacity)

        def sweep(local: Beliefs, _: None) -> tuple[Beliefs, None]:
            return _like(sweep_units(model, state.globals.mean, batch, local, on), local), None

        local = jax.lax.scan(sweep, blank, None, length=sweeps)[0]
        return representing_value(model, local, on)

    def _globals(self, model: Model, old: Beliefs, batch: Batch, local: Beliefs) -> Beliefs:
        new = resident_sweep(model, old, (batch,), (local.mean,), self.places.size, capacity=self.places.capacity)
        return _like(new, old)


def mean_field(
    size: Any, extents: Mapping[str, int] | None = None, *, capacity: Any = None, local_sweeps: int = 1
) -> MeanFieldFunctions:
    """Mean field of any model at one size.

    size: a number, or one for each size variable; traced where `capacity`, the largest, is given: then one program
    serves all sizes up to it. extents: lengths of the axes that the data decide, such as {"word": V}; `batch_of` gives
    them. local_sweeps: more for models whose units have several sites, such as documents. Raises ValueError for sizes
    and numbers of sweeps that are not positive.
    """
    if local_sweeps < 1:
        raise ValueError(f"got local_sweeps={local_sweeps}, expected at least 1")
    return MeanFieldFunctions(checked_places(size, extents, capacity), local_sweeps)


def _like(new: Any, old: Any) -> Any:
    """`new` in the types of `old`: hyper-parameters of another precision do not change a state's."""
    return jax.tree.map(lambda a, b: a.astype(b.dtype), new, old)


@eqx.filter_custom_vjp
def _settled(
    model_and_batch: tuple[Model, Batch],
    functions: MeanFieldFunctions,
    start: MeanFieldState,
    steps: int,
    adjoint_steps: int,
) -> MeanFieldState:
    model, batch = model_and_batch
    return functions.run(model, start, batch, steps)


@_settled.def_fwd
def _settled_forward(
    perturbed: Any,
    model_and_batch: tuple[Model, Batch],
    functions: MeanFieldFunctions,
    start: MeanFieldState,
    steps: int,
    adjoint_steps: int,
) -> tuple[MeanFieldState, MeanFieldState]:
    del perturbed
    model, batch = model_and_batch
    end = functions.run(model, start, batch, steps)
    return end, end


@_settled.def_bwd
def _settled_backward(
    end: MeanFieldState,
    cotangent: MeanFieldState,
    perturbed: Any,
    model_and_batch: tuple[Model, Batch],
    functions: MeanFieldFunctions,
    start: MeanFieldState,
    steps: int,
    adjoint_steps: int,
) -> Any:
    """With end = T(end, model): the cotangent times (1 − ∂T/∂end)⁻¹ ∂T/∂model, the inverse as Σ_n (∂T/∂end)ⁿ."""
    del perturbed, start, steps
    model, batch = model_and_batch = jax.tree.map(jnp.asarray, model_and_batch)  # primals may come as NumPy's
    given = jax.tree.map(lambda c, e: jnp.zeros_like(e) if c is None else c, cotangent, end, is_leaf=_is_none)
    _, pull_state = jax.vjp(partial(functions.update, model, batch=batch), end)

    def more(total: MeanFieldState, _: None) -> tuple[MeanFieldState, None]:
        return jax.tree.map(jnp.add, given, pull_state(total)[0]), None

    total = jax.lax.scan(more, given, None, length=adjoint_steps)[0]
    _, pull = eqx.filter_vjp(lambda both: functions.update(both[0], end, both[1]), model_and_batch)
    return pull(total)[0]


def _is_none(value: Any) -> bool:
    return value is None
