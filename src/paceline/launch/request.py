"""What a user asks of ``paceline run``, checked before anything starts.

Knows which values make sense together; does not know how a run is carried out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

from paceline.compression import parse_compression
from paceline.errors import UsageError, bad_value
from paceline.launch.hosts import Hosts, checked_hosts
from paceline.policy.pairings import Pairing, refuse_pairing
from paceline.recipes import parse_recipe
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.left_out import left_out
from paceline.simulate.network import Network, over_network
from paceline.strategies import parse_strategy

MAX_WORKERS = 1024
MAX_SEED = 2**32 - 1
"""The largest seed that numpy's global generator takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """One run of ``script`` on ``workers`` processes of this host.

    ``args``: the script's own, ``{seed}`` in them is replaced. ``strategy`` and ``overrides`` are
    Worker keywords (``accumulate``, ``clip_norm``, ``evict_after_s``, ...) that beat the script's.
    ``lr_factor`` multiplies every learning rate at each update. ``emulate``: a ``cluster.toml``
    whose timing to reproduce. ``out``: a new or empty directory for what is recorded; None: a new
    one under ``runs/``. ``threads``: per worker, None: cores // workers. ``quiet``: say only what
    went wrong. ``resume``: the checkpoint to go on from. ``virtual``: a ``cluster.toml`` whose workers
    all live in one process, by a simulated clock. ``replay``: the directory of the run that this one is
    to repeat, ``until`` its version up to which. ``hosts``: of several, ``workers`` on each; None: this one.
    """

    script: Path
    args: tuple[str, ...] = ()
    workers: int = 1
    strategy: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    lr_factor: float = 1.0
    emulate: Path | None = None
    out: Path | None = None
    seed: int = 0
    threads: int | None = None
    quiet: bool = False
    resume: Path | None = None
    virtual: Path | None = None
    replay: Path | None = None
    until: int | None = None
    hosts: Hosts | None = None

    @property
    def world_size(self) -> int:
        """All workers, on all hosts."""
        return self.workers * (1 if self.hosts is None else self.hosts.count)

    @property
    def ranks(self) -> range:
        """Those of this host's workers."""
        first = 0 if self.hosts is None else self.hosts.number * self.workers
        return range(first, first + self.workers)

    def script_args(self) -> list[str]:
        """The script's arguments with ``{seed}`` filled in."""
        return [arg.replace("{seed}", str(self.seed)) for arg in self.args]

    def worker_overrides(self) -> dict[str, Any]:
        """The Worker keywords that this request sets."""
        strategy = {} if self.strategy is None else {"strategy": self.strategy}
        return {**self.overrides, **strategy}

    def threads_each(self) -> int:
        """Threads of each worker: as asked, else an equal share of the cores, at least one."""
        return self.threads or max(1, core_count() // self.workers)


def checked(request: RunRequest) -> RunRequest:
    """The request with its strategy in canonical form. Raises :class:`UsageError`, starts nothing."""
    _check_script(request.script)
    _check_whole("workers", request.workers, low=1, high=MAX_WORKERS)
    _check_whole("seed", request.seed, low=0, high=MAX_SEED)
    if request.threads is not None:
        _check_whole("threads", request.threads, low=1, high=1024)
    if not (isfinite(request.lr_factor) and request.lr_factor > 0):
        raise bad_value("lr_factor", request.lr_factor, "a number > 0", "1 leaves the rates alone.")
    if request.emulate is not None and request.virtual is not None:
        raise UsageError(
            "--emulate and --virtual cannot work together: the one takes a cluster's time, the other "
            "only counts it. Choose one."
        )
    _check_emulation(request.emulate or request.virtual, request.world_size)
    _check_hosts(request)
    parse_recipe(request.overrides.get("recipe", "plain"))
    parse_compression(request.overrides.get("compress"))
    if request.strategy is None:
        return request
    refuse_pairing(_pairing(request))
    return replace(request, strategy=str(parse_strategy(request.strategy)))


def left_out_of(request: RunRequest) -> str:
    """What of the request's cluster takes no part in it, in a sentence; "" if nothing."""
    cluster = request.emulate or request.virtual
    if cluster is None:
        return ""
    return left_out(ClusterModel.load(cluster), request.world_size, str(cluster))


def core_count() -> int:
    """Cores that this process may use (a container or taskset may allow fewer than there are)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_out(request: RunRequest, *, stamp: str) -> Path:
    """Create and return the run's directory; never one that already holds something.

    ``stamp``: the start's date and time, for the names under ``runs/``.
    """
    if request.out is not None:
        return _create_asked(request.out)
    parts = [stamp, request.script.stem, (request.strategy or "").replace(":", "-")]
    name = "-".join(part for part in parts if part)
    attempt = 1
    while True:
        path = Path("runs") / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            attempt += 1
        else:
            return path.resolve()


def _create_asked(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"out={str(path)!r}: cannot be created: {error}.") from error
    if any(path.iterdir()):
        raise bad_value("out", str(path), "a new or empty directory", "A run is never overwritten.")
    return path.resolve()


def _pairing(request: RunRequest) -> Pairing:
    """What the command line says together. Whatever it leaves to the script is not there."""
    said = request.overrides
    network = _network(request)
    strategy = parse_strategy(request.strategy or "sync")
    apart = network is not None or request.world_size > request.workers
    return Pairing(
        strategy=over_network(strategy) if apart else strategy,
        workers=request.world_size,
        compress=parse_compression(said.get("compress")),
        reduce_dtype=said.get("reduce_dtype"),
        group_size=said.get("group_size"),
        global_batch=said.get("global_batch"),
        batch_norm=said.get("batch_norm"),
        hosts=_host_names(request, network),
        collectives=request.virtual is None,
    )


def _network(request: RunRequest) -> Network | None:
    """Of the cluster whose timing the run is to have."""
    cluster = request.emulate or request.virtual
    return None if cluster is None else ClusterModel.load(cluster).network


def _host_names(request: RunRequest, network: Network | None) -> list[str]:
    """Which rank is where: a node of a ``network`` is a host, unless groups are so many workers each.
    Without a key the launchers of several hosts are all of this machine."""
    each = request.world_size
    if request.hosts is not None and request.hosts.key is not None:
        each = request.workers
    elif network is not None and request.overrides.get("group_size") is None:
        each = network.links.per_node
    return [f"host {rank // each}" for rank in range(request.world_size)]


def _check_hosts(request: RunRequest) -> None:
    if request.hosts is None:
        return
    checked_hosts(request.hosts)
    if request.virtual is not None or request.replay is not None:
        raise UsageError(
            "--nnodes and virtual time (or a replay) cannot work together: there all workers are on one "
            "host. Leave --nnodes out."
        )
    if request.hosts.shards > 1 and request.emulate is not None:
        raise UsageError(
            "--shards and --emulate cannot work together: an emulated server is one. Leave one of them out."
        )


def _check_script(script: Path) -> None:
    if not script.is_file():
        raise bad_value("script", str(script), "an existing Python file")


def _check_whole(field_name: str, value: int, *, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad_value(field_name, value, f"a whole number from {low} to {high}")


def _check_emulation(path: Path | None, workers: int) -> None:
    if path is None:
        return
    count = ClusterModel.load(path).count
    if workers > count:
        raise bad_value(
            "workers", workers, f"at most {count}", f"{path} describes {count} workers: add some."
        )
