"""Units over several devices: data parallelism, for kernels that fold units into statistics.

A fit at work `on_mesh` has its units split over the devices of a mesh, everything else is on all of them. Two kinds of
kernels take part, and their callers do not know:

- Where units stand side by side on an axis of arrays, the arrays are placed (`split`, `units_of`) and computation
  follows data: XLA compiles the kernel for the mesh and adds the sums over devices that it needs.
- Where units come one tile after another, and statistics move in between, a kernel is written for one device's tiles
  with `total_over` where it sums over all units, and wrapped by `over_devices` (`shard_map`).

Sums over units are then in another order: results agree within rounding. Arrays whose axis the number of devices does
not divide stay whole, on every device.

The mesh may have devices of several processes (`together`), which then run alike. Each places its own share; whatever
is no array of units is the same in all, on every device or on one of each process; the host reads through `on_host`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lvsearch.inference.together import check_all_take_part, said_by, spans_processes

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

UNITS = "units"
"""The one axis of the meshes that kernels see."""
EVERYWHERE = PartitionSpec()

_at_work: ContextVar[Mesh | None] = ContextVar("mesh", default=None)


@contextmanager
def on_mesh(mesh: Mesh | None) -> Iterator[None]:
    """Inside: units are split over all devices of the mesh, whatever its axes are; None for no splitting.

    Raises ValueError for a mesh of other processes, or of some of them only.
    """
    if mesh is not None:
        check_all_take_part(mesh)
        devices = mesh.devices.ravel()
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
    """Those of the mesh that are this process's, or none where work is left to JAX's default device."""
    mesh = _at_work.get()
    return () if mesh is None else tuple(mesh.local_devices)


def in_processes(piece: Callable[[int], T], n_pieces: int) -> list[T]:
    """piece(0), piece(1), …, independent of each other: side by side in threads, dealt to the processes at work.

    What a piece returns is to lie on the host where there are several processes.
    """
    n_processes = jax.process_count() if spans_processes(_at_work.get()) else 1
    ours = range(jax.process_index() if n_processes > 1 else 0, n_pieces, n_processes)
    with ThreadPoolExecutor(n_pieces) as pool:
        made = dict(zip(ours, pool.map(piece, ours), strict=True))
    if n_processes == 1:
        return [made[number] for number in ours]
    return [said_by(number % n_processes, made.get(number)) for number in range(n_pieces)]  # pyright: ignore


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
        return leaf if mesh is None else _placed(leaf, NamedSharding(mesh, along(axis)))

    return jax.tree.map(placed, tree)


def _placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """The array on the devices of a mesh. A process places what lies on its own ones, and no more."""
    elsewhere = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
    if elsewhere or not spans_processes(sharding.mesh):
        return jax.device_put(leaf, sharding)
    values = np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def on_devices(tree: Any, axis: int) -> Any:
    """As `split`, and what is not split on JAX's default device."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf), split(tree, axis))


def on_host(tree: Any) -> Any:
    """The arrays as NumPy's, whole, wherever their parts lie. Every process of the mesh must ask for them."""

    def whole(leaf: Any) -> np.ndarray:
        here = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated
        return np.asarray(leaf if here else process_allgather(leaf, tiled=True))

    return jax.tree.map(whole, tree)


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
    where it divides the tiles, which are then placed."""

    @wraps(kernel)
    def over(*args: P.args, **kwargs: P.kwargs) -> R:
        mesh = mesh_for(jax.tree.leaves(args[0])[0].shape[1])
        if mesh is None:
            return kernel(*args, **kwargs)
        return kernel(split(args[0], 1), *args[1:], **{**kwargs, "mesh": mesh})  # pyright: ignore

    return over
