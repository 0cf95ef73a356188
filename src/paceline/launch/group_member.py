"""What each rank of ``paceline measure`` does; rank 0 emits what is found, part by part.

``python -m paceline.launch.group_member RANK WORLD_SIZE STORE PLAN`` is a member of a group on this host; its
rank 0 prints a line of JSON for each part.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.doctor.interfaces import Interface, interfaces, used
from paceline.errors import PacelineError, UsageError
from paceline.launch.hosts import gloo_interface
from paceline.launch.request import core_count
from paceline.measure.all_reduce import ALGORITHMS, AllReduce, hierarchical
from paceline.measure.links import Effort, Timed, time_links
from paceline.measure.result import (
    Measurement,
    Place,
    links_record,
    part,
    places_record,
    timing_record,
)
from paceline.measure.sweep import sweep
from paceline.measure.wire import Array, Wire, gather
from paceline.transport.addresses import Remote

if TYPE_CHECKING:
    from paceline.transport.gloo_wire import GlooWire

BACKEND = "gloo"
CHOICES = (BACKEND, *ALGORITHMS, "hierarchical")
TEXT_BYTES = 4096
SYSTEM = Path("/sys")

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPlan:
    """``algorithms``: which all-reduces are swept, of :data:`CHOICES`; none: links only.
    ``per_node``: ranks of a node for the hierarchical one."""

    algorithms: tuple[str, ...] = CHOICES
    per_node: int = 1
    passes: int = Effort().passes


def measure_group(wire: GlooWire, plan: GroupPlan, emit: Emit) -> None:
    """Links, then the sweep. Every rank has to call it; ``emit`` is called on rank 0 only."""
    before, load = interfaces(SYSTEM), os.getloadavg()[0] / core_count()
    _emit_places(wire, None, load, emit)
    effort = replace(Effort(), passes=plan.passes)
    done: list[Timed] = []
    for _ in range(effort.passes):
        timed = time_links(wire, effort, time.perf_counter)
        if timed is not None:
            done.append(timed)
            emit(links_record(done))
    _emit_places(wire, used(before, interfaces(SYSTEM)), load, emit)
    for timing in sweep(wire, _all_reduces(wire, plan), time.perf_counter, _check):
        emit(timing_record(timing))
    if wire.rank == 0:
        emit({"complete": True})


def _all_reduces(wire: GlooWire, plan: GroupPlan) -> dict[str, AllReduce]:
    known: dict[str, AllReduce] = {
        BACKEND: lambda _, array: wire.all_reduce(array),
        **ALGORITHMS,
        "hierarchical": hierarchical(plan.per_node),
    }
    return {name: known[name] for name in plan.algorithms}


def _check(array: Array, ranks: int) -> None:
    if not np.all(array == ranks):
        raise RuntimeError(f"an all-reduce of ones gave {array[array != ranks][0]}, not {ranks}")


def _emit_places(wire: Wire, interface: Interface | None, load: float, emit: Emit) -> None:
    own: dict[str, Any] = {"host": socket.gethostname(), "load": load}
    if interface is not None:
        own |= {"interface": interface.name, "rate_bits_per_s": interface.rate_bits_per_s}
    encoded = json.dumps(own).encode()[:TEXT_BYTES].ljust(TEXT_BYTES)
    rows = gather(wire, np.frombuffer(encoded, dtype=np.uint8).copy())
    if wire.rank == 0:
        emit(places_record([Place(**json.loads(row.tobytes())) for row in rows]))


def join(rank: int, world_size: int, plan: GroupPlan, tell: Callable[[str], None]) -> Measurement:
    """Take part as ``rank`` of the group that the environment describes; what was measured, on rank 0.

    Raises UsageError if the environment leads nowhere, PacelineError if the others cannot be reached.
    """
    from torch.distributed.rendezvous import rendezvous

    os.environ.update(_interface())
    try:
        store, _, _ = next(rendezvous("env://", rank, world_size))
    except ValueError as error:
        raise UsageError(f"Rank {rank} of {world_size} cannot find the others: {error}") from error
    found = [Measurement()]

    def emit(record: dict[str, Any]) -> None:
        found[0] = part(found[0], record)
        tell(f"measured: {', '.join(record)}")

    try:
        _take_part(store, rank, world_size, plan, emit)
    except RuntimeError as error:  # of gloo
        raise PacelineError(broken_off(rank, error)) from error
    return found[0]


def _interface() -> dict[str, str]:
    """That by which runs on several hosts meet: the one that leads to MASTER_ADDR."""
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    return (
        gloo_interface(Remote(host=address, port=int(port))) if address and port.isdigit() else {}
    )


def broken_off(rank: int, error: Exception) -> str:
    """What to say of gloo's ``error``, and to do about it."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    used = os.environ.get("GLOO_SOCKET_IFNAME")
    through = f"the interface {used}" if used else "the interface of its host's name"
    return (
        f"Rank {rank} cannot reach the other ranks, or one of them has ended, through {through} ({said}). If "
        "that is not the network between the hosts, name it on each: GLOO_SOCKET_IFNAME=eth1 ('paceline "
        "doctor' lists interfaces)."
    )


def main() -> None:
    """A member on this host."""
    from torch._C import _distributed_c10d as stores

    rank, world_size, plan = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[4])
    store = stores.FileStore(sys.argv[3], world_size)
    say = lambda record: print(json.dumps(record), flush=True)  # noqa: E731
    _take_part(store, rank, world_size, GroupPlan(**plan), say)


def _take_part(store: Any, rank: int, world_size: int, plan: GroupPlan, emit: Emit) -> None:
    import torch

    from paceline.transport.gloo_wire import GlooWire

    torch.set_num_threads(1)
    wire = GlooWire(store, rank=rank, world_size=world_size)
    measure_group(wire, plan, emit)
    wire.close()


if __name__ == "__main__":
    main()
