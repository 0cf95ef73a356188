"""What of this machine slows training down: one small function a complaint. Pure.

Each finding has a sentence, its evidence and a remedy. Thresholds stand beside the check that uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.compare.units import duration, size
from paceline.doctor.cards import Card
from paceline.doctor.facts import Facts
from paceline.doctor.interfaces import Interface

BUSY = 0.3
"""Others that keep this share of the cores busy are felt."""
MEMORY_SHARE = 0.1
SHM_BYTES = 256e6
"""DataLoader workers hand batches over in /dev/shm; containers give it 64 MB."""
SLOW_BITS_PER_S = 1e9
PAYS = 1.3
"""Below this gain a second process is not worth its memory."""
CLOCK_SHARE = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """``cause``: a word for programs, as in ``docs/measure.md``."""

    cause: str
    sentence: str
    evidence: tuple[str, ...]
    action: str


def findings(facts: Facts) -> list[Finding]:
    """In the order in which one would repair them."""
    checks = (_busy, _threads, _quota, _memory, _shm, _loopback, _route, _rates, _cards, _scaling)
    return [finding for check in checks for finding in check(facts)]


def _busy(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine.load > BUSY * machine.usable_cores:
        yield Finding(
            cause="busy",
            sentence=f"Others use this machine: a load of {machine.load:.1f} on "
            f"{machine.usable_cores:g} cores.",
            evidence=("/proc/loadavg, mean of the last minute, before anything was started here",),
            action="End them, or measure and train when they have ended ('top' shows who they are).",
        )


def _threads(facts: Facts) -> Iterator[Finding]:
    cores = facts.machine.usable_cores
    if facts.threads is not None and facts.threads > cores:
        yield Finding(
            cause="too-many-threads",
            sentence=f"torch would start {facts.threads} threads a process, for {cores:g} cores.",
            evidence=(f"affinity {facts.machine.cores}, cgroup quota {facts.machine.quota_cores:g}",),
            action=f"Use 'paceline run' (it shares cores out), or set OMP_NUM_THREADS={max(int(cores), 1)} "
            "divided by the processes.",
        )  # fmt: skip


def _quota(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine.quota_cores < machine.cores:
        yield Finding(
            cause="cpu-quota",
            sentence=f"The container grants {machine.quota_cores:g} of its {machine.cores} cores.",
            evidence=("the cgroup's cpu.max (or cpu.cfs_quota_us)",),
            action="Raise the quota (docker --cpus), or give --threads: whoever counts cores counts too many.",
        )  # fmt: skip


def _memory(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if machine.memory_bytes and machine.available_bytes < MEMORY_SHARE * machine.memory_bytes:
        yield Finding(
            cause="memory",
            sentence=f"Only {size(machine.available_bytes)} of {size(machine.memory_bytes)} are available.",
            evidence=("MemAvailable in /proc/meminfo",),
            action="End what holds it; below this the machine begins to swap.",
        )  # fmt: skip


def _shm(facts: Facts) -> Iterator[Finding]:
    if facts.machine.shm_bytes < SHM_BYTES:
        yield Finding(
            cause="shm",
            sentence=f"/dev/shm holds {size(facts.machine.shm_bytes)}: a DataLoader's workers will fail in it.",
            evidence=(f"{size(SHM_BYTES)} are needed for a few batches",),
            action="Start the container with --shm-size=8g (or --ipc=host).",
        )  # fmt: skip


def _loopback(facts: Facts) -> Iterator[Finding]:
    if facts.chosen or facts.hosts < 2 or not _is_loopback(facts.address):
        return
    resolved = f"resolves to {facts.address}" if facts.address else "resolves to nothing"
    yield Finding(
        cause="loopback",
        sentence=f"The name of this host, {facts.host}, {resolved}: other hosts cannot reach it.",
        evidence=("gloo listens at what the host's name resolves to",),
        action="Set GLOO_SOCKET_IFNAME (NCCL_SOCKET_IFNAME) to the interface that leads to them, or repair "
        "/etc/hosts.",
    )  # fmt: skip


def _route(facts: Facts) -> Iterator[Finding]:
    names = [one.name for one in facts.interfaces]
    if facts.chosen and facts.chosen not in names:
        yield Finding(
            cause="no-such-interface",
            sentence=f"{facts.chosen_by}={facts.chosen}, but there is no such interface.",
            evidence=("there are " + ", ".join(names),),
            action=f"Set {facts.chosen_by} to one of them.",
        )


def _rates(facts: Facts) -> Iterator[Finding]:
    """The interface of the group: down, slower than another one here, or slow."""
    used = group_interface(facts)
    if used is None or used.is_loopback:
        return
    best = max((one for one in facts.interfaces if one.up), key=_rate, default=used)
    if not used.up:
        sentence = f"{used.name}, which a process group would use, is down."
    elif used.rate_bits_per_s and _rate(best) > used.rate_bits_per_s:
        others = f"not {best.name} ({_megabits(best)})"
        sentence = f"A process group would use {used.name} ({_megabits(used)}), {others}."
    elif used.rate_bits_per_s and used.rate_bits_per_s < SLOW_BITS_PER_S:
        sentence = f"{used.name} has negotiated {_megabits(used)} only."
    else:
        return
    yield Finding(
        cause="interface", sentence=sentence,
        evidence=(f"/sys/class/net/{used.name}: operstate, speed",),
        action="Look at cable and switch port, or choose with GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
    )  # fmt: skip


def group_interface(facts: Facts) -> Interface | None:
    """Over which gloo would go: the environment's choice, else the one with the host's own address."""
    wanted = facts.chosen or facts.address_interface
    return next((one for one in facts.interfaces if one.name == wanted), None)


def _cards(facts: Facts) -> Iterator[Finding]:
    for card in facts.cards:
        name = f"Card {card.index} ({card.name})"
        clocks = f"{megahertz(card)}, {card.busy:.0%} busy"
        if card.reasons:
            yield Finding(
                cause="throttled",
                sentence=f"{name} is throttled: {', '.join(card.reasons)}.",
                evidence=(clocks,),
                action="Look at cooling, power limit (nvidia-smi -q -d PERFORMANCE) and neighbours.",
            )
        elif card.busy > 0.5 and card.clock_hz < CLOCK_SHARE * card.max_clock_hz:
            yield Finding(
                cause="low-clock",
                sentence=f"{name} works at {card.clock_hz / card.max_clock_hz:.0%} of its clock.",
                evidence=(clocks,),
                action="Somebody may have set its clocks: nvidia-smi --reset-gpu-clocks.",
            )
        if card.width < card.max_width:
            yield Finding(
                cause="pcie",
                sentence=f"{name} has {card.width} of {card.max_width} PCIe lanes.",
                evidence=(f"generation {card.generation} of {card.max_generation}",),
                action="Seat it anew, or move it to another slot (an idle card lowers its generation, not its "
                "lanes).",
            )  # fmt: skip
        if card.busy > 0.5 and card.generation < card.max_generation:
            yield Finding(
                cause="pcie",
                sentence=f"{name} works at PCIe generation {card.generation} of {card.max_generation}.",
                evidence=(clocks,),
                action="Look at the slot and the BIOS's setting of it.",
            )


def _scaling(facts: Facts) -> Iterator[Finding]:
    speeds = facts.speeds
    if speeds is None or any(_busy(facts)):
        return  # beside others' work it would say nothing of the machine
    gain = speeds.compute_together / speeds.compute_alone
    if gain < PAYS:
        yield Finding(
            cause="no-gain",
            sentence=f"{speeds.processes} processes compute {gain:.2f} times as much as one: more do not pay.",
            evidence=(
                f"{speeds.compute_alone * 1e-9:.1f} Gflop/s, together {speeds.compute_together * 1e-9:.1f}; "
                f"copying {size(speeds.copy_alone)}/s and {size(speeds.copy_together)}/s",
                f"all-reduce of 4 MB over loopback {duration(speeds.all_reduce_s)}",
            ),
            action="Cores may be threads of the same core, taken, or capped; train with fewer workers here.",
        )  # fmt: skip


def _is_loopback(address: str) -> bool:
    return not address or address.startswith("127.") or address == "::1"


def _rate(one: Interface) -> float:
    return one.rate_bits_per_s or 0.0


def megahertz(card: Card) -> str:
    return f"{card.clock_hz * 1e-6:.0f} of {card.max_clock_hz * 1e-6:.0f} MHz"


def _megabits(one: Interface) -> str:
    return f"{_rate(one) * 1e-6:.0f} Mb/s"
