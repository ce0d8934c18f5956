"""Units over several devices: data parallelism, for kernels that fold units into statistics.

A fit at work `on_mesh` has its units split over the devices of a mesh, everything else is on all of them. Two kinds of
kernels take part, and their callers do not know:

- Where units stand side by side on an axis of arrays, the arrays are placed (`split`, `units_of`) and computation
  follows data: XLA compiles the kernel for the mesh and adds the sums over devices that it needs.
- Where units come one tile after another, and statistics move in between, a kernel is written for one device's tiles
  with `total_over` where it sums over all units, and wrapped by `over_devices` (`shard_map`).

Sums over units are then in another order: results agree within rounding. Arrays whose axis the number of devices does
not divide stay whole, on every device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

P = ParamSpec("P")
R = TypeVar("R")

UNITS = "units"
"""The one axis of the meshes that kernels see."""
EVERYWHERE = PartitionSpec()

_at_work: ContextVar[Mesh | None] = ContextVar("mesh", default=None)


@contextmanager
def on_mesh(mesh: Mesh | None) -> Iterator[None]:
    """Inside: units are split over all devices of the mesh, whatever its axes are; None for no splitting.

    Raises ValueError for devices of other processes.
    """
    if mesh is not None:
        devices = mesh.devices.ravel()
        if any(device.process_index != jax.process_index() for device in devices):
            raise ValueError("got a mesh with devices of other processes, expected one of jax.local_devices()")
        mesh = Mesh(devices, (UNITS,)) if len(devices) > 1 else None
    token = _at_work.set(mesh)
    try:
        yield
    finally:
        _at_work.reset(token)


def mesh_for(length: int) -> Mesh | None:
    """The mesh at work, where its number of devices divides `length`."""
    mesh = _at_work.get()
    return mesh if mesh is not None and length % mesh.size == 0 else None


def n_shares() -> int:
    """Devices that units are split over now."""
    mesh = _at_work.get()
    return 1 if mesh is None else mesh.size


def devices_at_work() -> tuple[Any, ...]:
    """Those of the mesh, or none where work is left to JAX's default device."""
    mesh = _at_work.get()
    return () if mesh is None else tuple(mesh.devices.ravel())


def along(axis: int) -> PartitionSpec:
    """Arrays whose axis of this number goes over units."""
    return PartitionSpec(*[None] * axis, UNITS)


# ── computation follows data ────────────────────────────────────────────────────────────────────────────────────────


def split(tree: Any, axis: int) -> Any:
    """Arrays placed on the devices at work, split along an axis; as they are where there is one device."""
    if _at_work.get() is None:
        return tree

    def placed(leaf: Any) -> Any:
        mesh = mesh_for(np.shape(leaf)[axis])
        return leaf if mesh is None else jax.device_put(leaf, NamedSharding(mesh, along(axis)))

    return jax.tree.map(placed, tree)


def units_of(*names: str, axis: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Of a compiled kernel: its arguments of these names are arrays of units along an axis."""

    def decorated(kernel: Callable[P, R]) -> Callable[P, R]:
        parameters = signature(kernel)

        @wraps(kernel)
        def following(*args: P.args, **kwargs: P.kwargs) -> R:
            if _at_work.get() is None:
                return kernel(*args, **kwargs)
            given = parameters.bind(*args, **kwargs)
            for name in names:
                given.arguments[name] = split(given.arguments[name], axis)
            return kernel(*given.args, **given.kwargs)

        return following

    return decorated


# ── one device's share, and sums over all ───────────────────────────────────────────────────────────────────────────


def total_over(tree: Any, mesh: Mesh | None) -> Any:
    """The sum over devices, inside `over_devices`."""
    return tree if mesh is None else jax.lax.psum(tree, UNITS)


def over_devices(body: Callable[..., Any], mesh: Mesh | None, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """The body on each device's share of its arguments; itself where there is one device."""
    if mesh is None:
        return body
    return jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def tiles_over_devices(kernel: Callable[P, R]) -> Callable[P, R]:
    """Of a compiled kernel with a static `mesh`, whose first argument has leaves (batch, tile, …): the mesh at work,
    where it divides the tiles."""

    @wraps(kernel)
    def over(*args: P.args, **kwargs: P.kwargs) -> R:
        mesh = mesh_for(jax.tree.leaves(args[0])[0].shape[1])
        return kernel(*args, **kwargs) if mesh is None else kernel(*args, **{**kwargs, "mesh": mesh})  # pyright: ignore

    return over
