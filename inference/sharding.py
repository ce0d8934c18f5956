"""Chooses the devices on which computations run: units of data split over several devices, loops of small steps on the
CPU.

Splitting units is data parallelism, for kernels that add up statistics over units. Inside `on_mesh` the units of a fit
are split over the devices of a mesh, and everything else is on all of them. Two kinds of kernels take part, and their
callers need not know:

- Units are an axis of arrays. The arrays are placed on the devices (`split`, `units_of`) and computation follows the
  data: XLA compiles the kernel for the mesh and adds the sums over devices that it needs.
- Units come one tile after another, and statistics change in between. The kernel is written for one device's tiles,
  calls `total_over` where it sums over all units, and is wrapped by `over_devices` (`shard_map`).

Sums over units are then made in another order, so results agree within rounding. An array whose axis cannot be divided
by the number of devices stays whole, on every device.

The mesh may have devices of several processes (`several_processes`), which then run alike. Each process places its own
share of the units. All other arrays are the same in all processes. The host reads arrays through `on_host`.

Loops over many small steps, each of which depends on the last, run on the CPU whatever devices there are
(`one_after_another`). An accelerator needs some microseconds to start each step, and such a step is only a few hundred
additions. A sampler that goes token by token, or row by row, is therefore slower on an accelerator than on one CPU
core. The results of such loops lie in the host's memory.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lvsearch.inference.several_processes import broadcast_from, check_all_take_part, spans_processes


def device_of_loops() -> Any:
    """Return the CPU device for programs of many small steps, if JAX would use another device by default.

    Returns None if programs go to the CPU anyway, or if JAX was set up without a CPU.
    """
    if jax.default_backend() == "cpu":
        return None
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def one_after_another() -> AbstractContextManager[object]:
    """Return a context in which compiled programs run on the CPU (`device_of_loops`), wherever their arguments lie.

    Arguments that were explicitly committed to a device stay on it.
    """
    device = device_of_loops()
    return nullcontext() if device is None else jax.default_device(device)


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

UNITS = "units"
"""The name of the one axis of the meshes that kernels see."""
EVERYWHERE = PartitionSpec()
"""The specification of an array that is whole on every device."""

_current_mesh: ContextVar[Mesh | None] = ContextVar("mesh", default=None)


@contextmanager
def on_mesh(mesh: Mesh | None) -> Iterator[None]:
    """Return a context in which units are split over all devices of the mesh, whatever its axes. None: do not split.

    Raises ValueError for a mesh of other processes, or of some of them only.
    """
    if mesh is not None:
        check_all_take_part(mesh)
        devices = mesh.devices.ravel()
        mesh = Mesh(devices, (UNITS,)) if len(devices) > 1 else None
    token = _current_mesh.set(mesh)
    try:
        yield
    finally:
        _current_mesh.reset(token)


def mesh_for(length: int) -> Mesh | None:
    """Return the mesh that units are split over now if its number of devices divides `length`, else None.

    length: the number of units, or of tiles of units, that would be split.
    """
    mesh = _current_mesh.get()
    return mesh if mesh is not None and length % mesh.size == 0 else None


def n_shares() -> int:
    """Return the number of devices that units are split over now; 1 if they are not split."""
    mesh = _current_mesh.get()
    return 1 if mesh is None else mesh.size


def devices_at_work() -> tuple[Any, ...]:
    """Return the devices of this process that units are split over now; empty if JAX's default device does all the
    work.
    """
    mesh = _current_mesh.get()
    return () if mesh is None else tuple(mesh.local_devices)


def n_processors() -> int:
    """Return the number of processors that this process may use, which a cluster's scheduler may have limited."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(piece: Callable[[int], T], n_pieces: int) -> list[T]:
    """Return [piece(0), piece(1), …], computed side by side in threads and, if there are several, by the processes of
    the mesh.

    piece: a function of the number of a piece. Pieces are independent. With several processes a piece must return
        values that lie on the host.
    n_pieces: how many pieces there are.
    """
    n_processes = jax.process_count() if spans_processes(_current_mesh.get()) else 1
    ours = range(jax.process_index() if n_processes > 1 else 0, n_pieces, n_processes)
    with ThreadPoolExecutor(n_pieces) as pool:
        made = dict(zip(ours, pool.map(piece, ours), strict=True))
    if n_processes == 1:
        return [made[number] for number in ours]
    return [broadcast_from(number % n_processes, made.get(number)) for number in range(n_pieces)]  # pyright: ignore


def along(axis: int) -> PartitionSpec:
    """Return the specification of arrays whose axis number `axis` is split over devices."""
    return PartitionSpec(*[None] * axis, UNITS)


# ── computation follows data ────────────────────────────────────────────────────────────────────────────────────────


def split(tree: Any, axis: int) -> Any:
    """Return the arrays of a tree placed on the devices that units are split over, each array split along `axis`.

    An array whose axis cannot be divided by the number of devices, and every array if there is one device, stays as it
    is.
    """
    if _current_mesh.get() is None:
        return tree

    def place_leaf(leaf: Any) -> Any:
        """Return one array split over the devices, if their number divides its axis."""
        mesh = mesh_for(np.shape(leaf)[axis])
        return leaf if mesh is None else _place_on_mesh(leaf, NamedSharding(mesh, along(axis)))

    return jax.tree.map(place_leaf, tree)


def _place_on_mesh(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """Return the array placed on the devices of a mesh. Each process places only the shares of its own devices.

    sharding: the mesh, and which axis is split over its devices.
    """
    elsewhere = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
    if elsewhere or not spans_processes(sharding.mesh):
        return jax.device_put(leaf, sharding)
    values = np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def on_devices(tree: Any, axis: int) -> Any:
    """Return the arrays of a tree placed on devices as JAX arrays, split along `axis` over the devices of the mesh.

    Arrays that are not split go to JAX's default device.
    """
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf), split(tree, axis))


def on_host(tree: Any) -> Any:
    """Return the arrays of a tree as whole NumPy arrays, wherever their parts lie.

    Every process of the mesh must call this at the same time.
    """

    def fetch_leaf(leaf: Any) -> np.ndarray:
        """Return one array as a whole NumPy array, gathered from all processes if this one holds only a part."""
        here = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated
        return np.asarray(leaf if here else process_allgather(leaf, tiled=True))

    return jax.tree.map(fetch_leaf, tree)


def units_of(*names: str, axis: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for a compiled kernel some of whose arguments are arrays of units.

    The decorated kernel splits these arguments over the devices at work, and is called like the kernel itself.

    names: the names of the arguments that are arrays of units.
    axis: the axis of the units in these arrays.
    """

    def decorated(kernel: Callable[P, R]) -> Callable[P, R]:
        parameters = signature(kernel)

        @wraps(kernel)
        def call_with_split_units(*args: P.args, **kwargs: P.kwargs) -> R:
            if _current_mesh.get() is None:
                return kernel(*args, **kwargs)
            given = parameters.bind(*args, **kwargs)
            for name in names:
                given.arguments[name] = split(given.arguments[name], axis)
            return kernel(*given.args, **given.kwargs)

        return call_with_split_units

    return decorated


# ── one device's share, and sums over all ───────────────────────────────────────────────────────────────────────────


def total_over(tree: Any, mesh: Mesh | None) -> Any:
    """Return the sum of each array of a tree over all devices; the tree itself if `mesh` is None. Call it inside
    `over_devices`.
    """
    return tree if mesh is None else jax.lax.psum(tree, UNITS)


def over_devices(body: Callable[..., Any], mesh: Mesh | None, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Return a function that applies `body` to each device's share of its arguments; `body` itself if there is one
    device.

    body: a function of arrays, written for one device's share.
    mesh: the devices; None for a single one.
    in_specs, out_specs: for each argument and each result, how it is split over the devices (`along`, `EVERYWHERE`).
    """
    if mesh is None:
        return body
    return jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def tiles_over_devices(kernel: Callable[P, R]) -> Callable[P, R]:
    """Return a kernel over tiles of units that runs on the mesh at work, if the number of devices divides the number of
    tiles.

    kernel: a compiled function with a static argument `mesh`. The leaves of its first argument are (batch, tile, …),
        and are split along the tiles.
    """

    @wraps(kernel)
    def call_on_mesh(*args: P.args, **kwargs: P.kwargs) -> R:
        mesh = mesh_for(jax.tree.leaves(args[0])[0].shape[1])
        if mesh is None:
            return kernel(*args, **kwargs)
        return kernel(split(args[0], 1), *args[1:], **{**kwargs, "mesh": mesh})  # pyright: ignore

    return call_on_mesh
