"""Join several processes, on one machine or many, so that they search together: `lv.distributed.initialize`.

Each process runs the same script on the same data, and the devices of all of them make one mesh:

    lv.distributed.initialize()
    mesh = jax.make_mesh((len(jax.devices()),), ("documents",))
    result = lv.search(model, corpus, out="run", mesh=mesh)
"""

import os

import jax

from lvsearch.models.plain_arguments import shortened_repr, whole_number

__all__ = ["initialize"]

TIMEOUT = 100
"""The default time after which a silent process is given up, in seconds; JAX has the same default."""
MPI = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""The environment variables in which Open MPI and MPICH give the rank and the number of processes."""


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: int = TIMEOUT,
    start_timeout: int = 300,
    bind: str | None = None,
) -> None:
    """Make this process one of several that compute together. Call it in each process, before any other use of JAX.

    coordinator: "host:port" of process 0, where the others find it; a free port.
    num_processes, process_id: the number of processes, and the number of this one, from 0. If left out, they are read
        from the variables of Slurm, Open MPI, Kubernetes or TPU clouds by `jax.distributed.initialize`. Under any
        `mpiexec` the coordinator alone is enough.
    timeout: seconds after which a silent process is given up; the others then end with a message. A script that is done
        waits equally long for the others.
    start_timeout: seconds to wait for all processes at the start.
    bind: "host:port" of this machine on which process 0 listens; by default `coordinator` only. It is needed if the
        others reach process 0 by an address that its machine does not have. Whoever reaches this port can take part, so
        let only trusted machines and people reach it (`docs/how-to/many-machines.md`).

    Raises ValueError for invalid numbers, or if they are not given and cannot be found. Raises RuntimeError if JAX is
    in use already, or if the others do not come.
    """
    timeout = whole_number("timeout", timeout, least=1)
    start_timeout = whole_number("start_timeout", start_timeout, least=1)
    for name, address in (("coordinator", coordinator), ("bind", bind)):
        if address is not None and not (isinstance(address, str) and _is_address(address)):
            raise ValueError(f'got {name}={shortened_repr(address)}, expected "host:port", such as "10.0.0.1:1234"')
    if num_processes is not None:
        num_processes = whole_number("num_processes", num_processes, least=1)
    if process_id is not None:
        most = None if num_processes is None else num_processes - 1
        process_id = whole_number("process_id", process_id, least=0, most=most)
    if coordinator is not None and num_processes is process_id is None:
        num_processes, process_id = _mpi_size_and_rank()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # sums over CPUs of several processes
    # programs that sum over CPUs must not overlap: two at once wait for each other's threads for ever
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update(
        "jax_enable_preemption_service", False
    )  # JAX would catch SIGTERM, by which batch systems end a process
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=start_timeout,
            heartbeat_timeout_seconds=timeout,
            shutdown_timeout_seconds=timeout,
            coordinator_bind_address=coordinator if bind is None else bind,  # JAX's own default is every address
        )
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"got coordinator={coordinator!r}, num_processes={num_processes}, process_id={process_id}, expected all "
            f"three where no launcher that JAX knows says them ({error})"
        ) from error


def _is_address(text: str) -> bool:
    """Return True for text of the form "host:port"."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal()


def _mpi_size_and_rank() -> tuple[int | None, int | None]:
    """Return (number of processes, number of this process from 0) from the variables of `mpiexec`, or (None, None)."""
    for rank, size in MPI:
        if rank in os.environ and size in os.environ:
            return int(os.environ[size]), int(os.environ[rank])
    return None, None
