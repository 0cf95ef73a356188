"""How a worker finds the run's server, and what gloo or NCCL find each other by.

Under ``paceline run`` the launcher says where the server is. Under another launcher (torchrun,
SLURM, MPI) rank 0 starts one in a private directory and publishes its address through the store
that ``MASTER_ADDR`` and ``MASTER_PORT`` lead to; where that launcher says that workers are on other
hosts, too, the server listens to them at ``MASTER_ADDR``. Worker and server are on one host if they
share memory and process ids: see :func:`paceline.launch.hosts.identity`.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.launch.context import Launch
from paceline.launch.hosts import identity
from paceline.server.process import ServerProcess, start_server
from paceline.transport.addresses import Remote
from paceline.transport.keys import addresses_of, key_for

Store = Any  # torch.distributed.Store: this module loads torch only where it is needed

_PREFIX = "paceline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendezvous:
    """Where the run meets. ``server``: what this process started itself, in ``directory``.
    ``host``: rank 0's, if workers are on several."""

    address: str
    server: ServerProcess | None = None
    directory: Path | None = None
    store: Store = None
    host: str | None = None

    def close(self) -> None:
        """Remove what this process made (the server ends by itself, after the last worker)."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def find_server(launch: Launch) -> Rendezvous:
    """The run's server: the launcher's, or one that rank 0 starts and the others read of.

    Raises UsageError if the launcher's environment leads nowhere, or to another host.
    """
    if launch.server is not None:
        host = launch.master_addr if launch.several_hosts else None
        return Rendezvous(address=launch.server, host=host)
    listen = _listening(launch)  # without a key nobody need wait for the others
    store = _launcher_store(launch)
    if launch.rank == 0:
        return _start(launch, store, listen)
    return _read(launch, store)


def process_group_store(
    rendezvous: Rendezvous, rank: int, gather: Callable[[bytes], list[bytes]]
) -> Store:
    """The store by which a process group finds its members. ``gather``: what all ranks say."""
    from torch._C import _distributed_c10d as stores

    name = f"group-{uuid.uuid4().hex}"  # rank 0's is the one that counts
    if rendezvous.store is not None:
        name = gather(name.encode())[0].decode()
        return stores.PrefixStore(f"{_PREFIX}/{name}", rendezvous.store)
    if rendezvous.host is None:
        name = gather(name.encode())[0].decode()
        return stores.FileStore(str(Path(rendezvous.address).parent / name))
    return _store_at(rendezvous.host, rank, gather)


def _store_at(host: str, rank: int, gather: Callable[[bytes], list[bytes]]) -> Store:
    """A store that rank 0 offers at ``host``, at a port that was free: torch's own, without a key."""
    from torch._C import _distributed_c10d as stores

    if rank != 0:
        return stores.TCPStore(host, int(gather(b"")[0]), is_master=False)
    offered = stores.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    gather(str(offered.port).encode())
    return offered


def _start(launch: Launch, store: Store, listen: Remote | None) -> Rendezvous:
    directory = Path(tempfile.mkdtemp(prefix="paceline-"))
    server = start_server(
        directory=directory, out=launch.out, parent_pid=None, owns_directory=True,
        listen=listen, key=launch.key,
    )  # fmt: skip
    abroad = "" if listen is None else str(replace(listen, port=server.port or 0))
    for rank in range(1, launch.world_size):
        store.set(_key(rank), f"{identity()}\n{server.address}\n{abroad}")
    return Rendezvous(address=server.address, server=server, directory=directory, store=store)


def _read(launch: Launch, store: Store) -> Rendezvous:
    # Deleted once read, so that a second Worker of the same script finds its own server.
    host, address, abroad = store.get(_key(launch.rank)).decode().split("\n")
    store.delete_key(_key(launch.rank))
    here = identity()
    if host != here and not abroad:
        raise UsageError(
            f"Rank 0 runs on {host.split()[0]} and rank {launch.rank} on {here.split()[0]} (or in another "
            "container), and the launcher did not say that there are several hosts (LOCAL_WORLD_SIZE, "
            "SLURM_NNODES). Start with torchrun --nnodes or paceline run --nnodes, or all on one host."
        )
    return Rendezvous(address=address if host == here else abroad, store=store)


def _listening(launch: Launch) -> Remote | None:
    """Where the server listens to workers on other hosts. Raises UsageError if they cannot reach it."""
    if not launch.several_hosts:
        return None
    host = launch.master_addr or socket.gethostname()
    key_for(host, launch.key, addresses_of)
    return Remote(host=host, port=0)


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
