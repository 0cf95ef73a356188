"""Gathers what ``paceline doctor`` judges: this machine's files, names, cards, and a little group's speeds."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from paceline.doctor.cards import Card, cards
from paceline.doctor.facts import Facts
from paceline.doctor.interfaces import interfaces
from paceline.doctor.machine import machine
from paceline.doctor.speed import Speeds
from paceline.errors import PacelineError
from paceline.launch.local_group import said_by_group
from paceline.launch.request import core_count

MOST_PROCESSES = 8
"""Each imports torch: more would not fit into 20 seconds."""
CHOOSERS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def examine(
    *, hosts: int, measured: bool, sys_root: Path = Path("/sys"), proc: Path = Path("/proc")
) -> Facts:
    """This machine. ``hosts``: on how many the user wants to train. Speeds take about ten seconds."""
    seen = machine(cores=core_count(), shm_bytes=_shm_bytes(), proc=proc, sys_root=sys_root)
    host = socket.gethostname()
    address = _address(host)
    chosen_by, chosen = _chosen(os.environ)
    found, known = _cards()
    speeds, why = _speeds() if measured else (None, "--quick")
    return Facts(
        machine=seen, threads=_threads(os.environ, seen.cores),
        interfaces=tuple(interfaces(sys_root)), host=host, address=address, chosen=chosen,
        chosen_by=chosen_by, address_interface=_interface_of(address), hosts=hosts, cards=found,
        cards_known=known, speeds=speeds, unmeasured=why,
    )  # fmt: skip


def _speeds() -> tuple[Speeds | None, str]:
    """Of two processes at least; or why there are none."""
    workers = max(2, min(core_count(), MOST_PROCESSES))
    try:
        said = list(said_by_group("paceline.launch.doctor_member", workers, {}))
    except PacelineError as error:
        return None, str(error).splitlines()[-1]
    return Speeds(**said[0]), ""


def _threads(environment: Mapping[str, str], cores: int) -> int:
    """torch asks OpenMP, which has the variable, or else counts the cores of the affinity."""
    said = environment.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdigit() and int(said) else cores


def _chosen(environment: Mapping[str, str]) -> tuple[str, str]:
    """(variable, interface), of the first that is set. NCCL also takes prefixes and lists: the first counts."""
    for name in CHOOSERS:
        if environment.get(name):
            return name, environment[name].lstrip("=").split(",")[0]
    return "", ""


def _address(host: str) -> str:
    with suppress(OSError):
        return socket.gethostbyname(host)
    return ""


def _interface_of(address: str) -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses):
            return str(name)
    return "lo" if address.startswith("127.") else ""


def _shm_bytes() -> int:
    with suppress(OSError):
        return shutil.disk_usage("/dev/shm").total
    return 0


def _cards() -> tuple[tuple[Card, ...], bool]:
    """The cards, and whether anybody could be asked."""
    try:
        import pynvml
    except ImportError:
        return (), False
    nvml: Any = pynvml
    return tuple(cards(nvml)), True
