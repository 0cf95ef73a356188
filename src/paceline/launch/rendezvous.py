"""How a worker finds the run's server, and what gloo or NCCL find each other by.

Under ``paceline run`` the launcher says where the server is. Under another launcher (torchrun,
SLURM, MPI) rank 0 starts one in a private directory and publishes its address through the store
that ``MASTER_ADDR`` and ``MASTER_PORT`` lead to. All workers have to be on one host.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.launch.context import Launch
from paceline.server.process import ServerProcess, start_server

Store = Any  # torch.distributed.Store: this module loads torch only where it is needed

_PREFIX = "paceline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendezvous:
    """Where the run meets. ``server``: what this process started itself, in ``directory``."""

    address: str
    server: ServerProcess | None = None
    directory: Path | None = None
    store: Store = None

    def close(self) -> None:
        """Remove what this process made (the server ends by itself, after the last worker)."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def find_server(launch: Launch) -> Rendezvous:
    """The run's server: the launcher's, or one that rank 0 starts and the others read of.

    Raises UsageError if the launcher's environment leads nowhere, or to another host.
    """
    if launch.server is not None:
        return Rendezvous(address=launch.server)
    store = _launcher_store(launch)
    if launch.rank == 0:
        return _start(launch, store)
    return _read(launch, store)


def unique_name() -> str:
    """A name that no other process group of this run has; rank 0's is the one to use."""
    return f"group-{uuid.uuid4().hex}"


def process_group_store(rendezvous: Rendezvous, name: str) -> Store:
    """The store by which a process group called ``name`` (equal on all ranks) finds its members."""
    from torch._C import _distributed_c10d as stores

    if rendezvous.store is not None:
        return stores.PrefixStore(f"{_PREFIX}/{name}", rendezvous.store)
    return stores.FileStore(str(Path(rendezvous.address).parent / name))


def _start(launch: Launch, store: Store) -> Rendezvous:
    directory = Path(tempfile.mkdtemp(prefix="paceline-"))
    server = start_server(directory=directory, out=launch.out, parent_pid=None, owns_directory=True)
    for rank in range(1, launch.world_size):
        store.set(_key(rank), f"{socket.gethostname()}\n{server.address}")
    return Rendezvous(address=server.address, server=server, directory=directory, store=store)


def _read(launch: Launch, store: Store) -> Rendezvous:
    # Deleted once read, so that a second Worker of the same script finds its own server.
    host, address = store.get(_key(launch.rank)).decode().split("\n")
    store.delete_key(_key(launch.rank))
    if host != socket.gethostname():
        raise UsageError(
            f"Rank 0 runs on {host} and rank {launch.rank} on {socket.gethostname()}: workers on one "
            f"host are built, several hosts are planned. Start all workers on one host."
        )
    return Rendezvous(address=address, store=store)


def _key(rank: int) -> str:
    return f"{_PREFIX}/server-for-{rank}"


def _launcher_store(launch: Launch) -> Store:
    """The store of the user's process group if there is one, else the launcher's."""
    import torch.distributed.distributed_c10d as c10d
    from torch.distributed.rendezvous import rendezvous

    if c10d.is_initialized():
        return c10d._get_default_store()
    try:
        store, _, _ = next(rendezvous("env://", launch.rank, launch.world_size))
    except ValueError as error:
        raise UsageError(
            f"Rank {launch.rank} of {launch.world_size} cannot find the others: {error} "
            f"Start the script with `paceline run` or torchrun, or set MASTER_ADDR and MASTER_PORT."
        ) from error
    return store
