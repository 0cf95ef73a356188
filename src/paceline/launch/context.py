"""Who this process is in its run: the one place that reads a launcher's environment.

``paceline run`` starts workers through :mod:`paceline.launch.bootstrap`, which installs a
:class:`Launch` here before the user's script starts. Otherwise the launcher's own variables are
read (torchrun, SLURM, MPI-like). Nothing else in paceline is configured by environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One worker's identity and what its launcher wants of it.

    ``server``: address (a unix socket's path) of the run's server; None if this worker is alone or
    has to find it through ``MASTER_ADDR``. ``out``: directory for the trace. ``overrides``: Worker
    keywords that the launcher's command line sets. ``lr_factor`` multiplies every learning rate at
    each update. ``emulate``: a cluster file whose timing to reproduce by sleeping. ``launcher_pid``:
    the process whose end must end this one. ``resume``: the checkpoint from which to go on.
    ``virtual``: all workers live in one process, by a simulated clock. ``replay``: the directory of
    the run that is run again here, ``until`` its version up to which. ``key``: the file of the key that
    its hosts share. ``local_world_size``: workers of this host, ``master_addr``: where rank 0's host is
    reached from others; None if the launcher does not say. ``shards``: into how many the parameters are
    divided.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    server: str | None = None
    out: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    lr_factor: float = 1.0
    emulate: Path | None = None
    seed: int | None = None
    launcher_pid: int | None = None
    resume: Path | None = None
    virtual: bool = False
    replay: Path | None = None
    until: int | None = None
    key: Path | None = None
    local_world_size: int | None = None
    master_addr: str | None = None
    shards: int = 1

    @property
    def several_hosts(self) -> bool:
        """Whether the launcher says that workers are on other hosts, too."""
        return self.local_world_size is not None and self.local_world_size < self.world_size


_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
)

_installed: Launch | None = None


def install(launch: Launch) -> None:
    """Make ``launch`` this process's identity (the bootstrap's call, before the script runs)."""
    global _installed
    _installed = launch


def installed() -> Launch | None:
    """What was installed last, None if nothing was."""
    return _installed


def forget_resume() -> None:
    """The checkpoint was taken up: further Workers of this process begin anew."""
    if _installed is not None and _installed.resume is not None:
        install(replace(_installed, resume=None))


def current_launch() -> Launch:
    """The installed launch, else what the environment says, else a worker on its own."""
    return _installed if _installed is not None else launch_from(os.environ)


def launch_from(environ: Mapping[str, str]) -> Launch:
    """The launch that a launcher's environment variables describe."""
    for rank_name, size_name, local_name, local_size_name in _VARIABLES:
        if rank_name in environ and size_name in environ:
            rank = _whole(environ, rank_name)
            return Launch(
                rank=rank,
                world_size=_whole(environ, size_name),
                local_rank=_whole(environ, local_name) if local_name in environ else rank,
                local_world_size=_of_this_host(environ, local_size_name),
                master_addr=environ.get("MASTER_ADDR"),
            )
    return Launch()


def _of_this_host(environ: Mapping[str, str], name: str) -> int | None:
    """How many workers this host has, if the launcher says (SLURM: how many on average)."""
    if name in environ:
        return _whole(environ, name)
    if "SLURM_NTASKS" in environ and "SLURM_NNODES" in environ:
        return max(1, _whole(environ, "SLURM_NTASKS") // _whole(environ, "SLURM_NNODES"))
    return None


def _whole(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise UsageError(f"{name}={environ[name]!r}: expected a whole number.") from None
