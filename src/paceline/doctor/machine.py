"""Cores, load and memory of this machine, from files below a root that is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """``cores``: that this process may use; ``quota_cores``: what its cgroup grants, inf without a quota;
    ``load``: processes that ran or wanted to, mean of the last minute. Memory and /dev/shm in bytes."""

    cores: int
    quota_cores: float
    load: float
    memory_bytes: int
    available_bytes: int
    shm_bytes: int

    @property
    def usable_cores(self) -> float:
        """Of cores and quota the smaller."""
        return min(float(self.cores), self.quota_cores)


def machine(*, cores: int, shm_bytes: int, proc: Path, sys_root: Path) -> Machine:
    """This machine; ``cores`` and ``shm_bytes`` (the size of /dev/shm, 0 if there is none) are given."""
    memory = _meminfo(_text(proc / "meminfo"))
    load = _text(proc / "loadavg").split()
    return Machine(
        cores=cores,
        quota_cores=quota_cores(proc, sys_root),
        load=float(load[0]) if load else 0.0,
        memory_bytes=memory.get("MemTotal", 0),
        available_bytes=memory.get("MemAvailable", 0),
        shm_bytes=shm_bytes,
    )


def quota_cores(proc: Path, sys_root: Path) -> float:
    """Cores that the process's cgroup may keep busy (version 2, then 1); inf where there is no limit.

    A limit holds for every group below the one that has it, so the least on the way up counts.
    """
    base = sys_root / "fs" / "cgroup"
    found = [inf, _quota_v1(base / "cpu")]
    for line in _text(proc / "self" / "cgroup").splitlines():
        if line.startswith("0::"):
            place = base / line[3:].strip("/")
            found += [
                _quota_v2(group) for group in (place, *place.parents) if group.is_relative_to(base)
            ]
    return min([*found, _quota_v2(base)])


def _quota_v2(group: Path) -> float:
    parts = _text(group / "cpu.max").split()
    return float(parts[0]) / float(parts[1]) if len(parts) == 2 and parts[0] != "max" else inf


def _quota_v1(group: Path) -> float:
    quota, period = (_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return float(quota) / float(period) if quota.isdigit() and period.isdigit() else inf


def _meminfo(text: str) -> dict[str, int]:
    """Bytes by name."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
