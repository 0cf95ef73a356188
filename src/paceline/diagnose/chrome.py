"""Reads ``torch.profiler``'s Chrome traces, one file a rank, of any data-parallel training (DDP).

Each ``ProfilerStep#k`` becomes a window. Clocks of different hosts are never compared:

    backward ends, and the wait for the others begins, where the last all-reduce is launched;
    d_ik is from there until the last all-reduce has ended

On a GPU the launch runs ahead of the work: there d_ik is what the collective kernels last (a card
that waits for others is inside such a kernel, at 100 % utilisation), and they end the backward.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.diagnose.cures import with_cures
from paceline.diagnose.exchange import every_micro_batch
from paceline.diagnose.findings import Diagnosis
from paceline.diagnose.measured import (
    BACKWARD,
    CODING,
    DATA,
    FORWARD,
    LINK,
    OPTIMIZER,
    SCRIPT,
    Measured,
)
from paceline.diagnose.verdict import compared, concluded, thin_evidence
from paceline.errors import UsageError
from paceline.strategies import Sync

WARM_UP_STEPS = 1
MICROSECOND_S = 1e-6
_STEP, _DATA, _OPTIMIZER = "ProfilerStep#", "enumerate(DataLoader)", "Optimizer.step#"
_AUTOGRAD, _LAUNCH, _GLOO = (
    "autograd::engine::evaluate_function",
    "c10d::allreduce_",
    "gloo:all_reduce",
)
_KERNELS = ("allreduce", "reducescatter")
Event = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One rank's steps by number; a step is its phases in seconds, ``collective`` d_ik among them.

    ``stepped``: whether the optimizer ran in it.
    """

    rank: int
    world_size: int
    steps: Mapping[int, Mapping[str, float]]
    stepped: Mapping[int, bool]


def profile_files(path: Path) -> list[Path]:
    """The Chrome traces at ``path`` (a file, or a directory of them), by their names' ending alone."""
    if path.is_file():
        return [path]
    return sorted([*path.glob("*.json"), *path.glob("*.json.gz")])


def diagnose_profiles(path: Path, questions: Sequence[str] = ()) -> Diagnosis:
    """The verdict on the ranks whose traces are at ``path``.

    Raises UsageError if these are no traces of steps (``profiler.step()``) that reduce gradients.
    """
    profiles = sorted((read_profile(file) for file in profile_files(path)), key=lambda p: p.rank)
    found = _side_by_side(profiles)
    most = max(len(profile.steps) for profile in profiles)
    world_size = max(profile.world_size for profile in profiles)
    thin = thin_evidence(found, world_size=world_size, most=most)
    findings = [] if thin else [*_in_vain(profiles, found), *with_cures(found, compared(found))]
    return concluded(str(path), found, findings, thin, questions)


def read_profile(path: Path) -> Profile:
    """One rank's trace. Raises UsageError that says what it lacks."""
    document = _document(path)
    info = document.get("distributedInfo", {})
    if "rank" not in info:
        raise UsageError(
            f"{path}: does not say of which rank it is. Export it from a process that has called "
            "torch.distributed.init_process_group, one file a rank."
        )
    events = [one for one in document["traceEvents"] if one.get("ph") == "X"]
    events.sort(key=lambda one: float(one["ts"]))
    read = _steps(events)
    if not read:
        raise UsageError(
            f"{path}: has no ProfilerStep with an all-reduce in it. Call profiler.step() after each "
            "step, and profile a run of several ranks."
        )
    return Profile(
        rank=int(info["rank"]), world_size=int(info.get("world_size", 1)),
        steps={number: phases for number, (phases, _) in read.items()},
        stepped={number: stepped for number, (_, stepped) in read.items()},
    )  # fmt: skip


def _document(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        document: dict[str, Any] = json.loads(text)
        assert isinstance(document["traceEvents"], list)
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise UsageError(
            f"{path}: neither a run's directory nor a Chrome trace of torch.profiler. Give the "
            "directory that 'paceline run' printed, or one of exported profiles, one a rank."
        ) from error
    return document


def _steps(events: Sequence[Event]) -> dict[int, tuple[dict[str, float], bool]]:
    starts = [float(one["ts"]) for one in events]
    found: dict[int, tuple[dict[str, float], bool]] = {}
    for one in events:
        name = str(one["name"])
        if not name.startswith(_STEP) or one.get("cat") == "gpu_user_annotation":
            continue
        began, ended = float(one["ts"]), float(one["ts"]) + float(one["dur"])
        low, high = np.searchsorted(starts, [began, ended])
        step = _step(events[low:high], began, ended)
        if step is not None:
            found[int(name.removeprefix(_STEP))] = step
    return found


def _step(
    events: Sequence[Event], began: float, ended: float
) -> tuple[dict[str, float], bool] | None:
    """The phases of one step, and whether the optimizer ran; None if it reduced nothing."""
    backward = [float(e["ts"]) for e in events if str(e["name"]).startswith(_AUTOGRAD)]
    span = _collective(events)
    if span is None or not backward:
        return None
    launched, done = span
    data = sum(float(e["dur"]) for e in events if str(e["name"]).startswith(_DATA))
    optimizer = [float(e["dur"]) for e in events if str(e["name"]).startswith(_OPTIMIZER)]
    phases = {
        DATA: data,
        FORWARD: max(0.0, backward[0] - began - data),
        BACKWARD: max(0.0, launched - backward[0]),
        OPTIMIZER: sum(optimizer),
        SCRIPT: max(0.0, ended - done - sum(optimizer)),
        "collective": max(0.0, done - launched),
    }
    return {name: value * MICROSECOND_S for name, value in phases.items()}, bool(optimizer)


def _collective(events: Sequence[Event]) -> tuple[float, float] | None:
    """(begin, end) of the wait for the others, in the trace's microseconds."""
    kernels = [e for e in events if e.get("cat") == "kernel" and _reduces(str(e["name"]))]
    if kernels:
        done = max(float(e["ts"]) + float(e["dur"]) for e in kernels)
        return done - sum(float(e["dur"]) for e in kernels), done
    launches = [float(e["ts"]) for e in events if e["name"] == _LAUNCH]
    ends = [float(e["ts"]) + float(e["dur"]) for e in events if e["name"] == _GLOO]
    return (max(launches), max(ends)) if launches and ends else None


def _reduces(kernel: str) -> bool:
    name = kernel.lower().replace("_", "")
    return "nccl" in name and any(word in name for word in _KERNELS)


def _side_by_side(profiles: Sequence[Profile]) -> Measured:
    shared = sorted(set.intersection(*[set(profile.steps) for profile in profiles]))
    rows = shared[WARM_UP_STEPS:]
    shape = (len(rows), len(profiles))

    def table(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([[p.steps[k][name] for p in profiles] for k in rows]).reshape(shape)

    phases = {name: table(name) for name in (DATA, FORWARD, BACKWARD, OPTIMIZER, SCRIPT)}
    lasted_s = table("collective")
    least_s = np.minimum.reduce(lasted_s, axis=1, keepdims=True) if rows else lasted_s
    for name in (OPTIMIZER, SCRIPT):  # what follows a step's collective delays the next one
        phases[name] = np.vstack([phases[name][:1], phases[name][:-1]])
    return Measured(
        ranks=tuple(profile.rank for profile in profiles), strategy=Sync(), topology="allreduce",
        together=True, phases={**phases, LINK: np.zeros(shape), CODING: np.zeros(shape)},
        queued_s=np.zeros(shape), wait_s=lasted_s - least_s,
        transfer_s=np.broadcast_to(least_s, shape).copy(), weight=np.ones(shape),
        lag=np.zeros(shape),
    )  # fmt: skip


def _in_vain(profiles: Sequence[Profile], found: Measured) -> list[Any]:
    """All-reduces in steps after which the optimizer did not run: accumulation without no_sync."""
    counts = [(len(p.stepped), sum(p.stepped.values())) for p in profiles]
    reduced, stepped = (sum(column) for column in zip(*counts, strict=True))
    if not stepped or reduced < 2 * stepped:
        return []
    times = reduced / stepped
    part = float((found.transfer_s + found.wait_s).mean()) / found.cycle_s
    return [every_micro_batch(exchanges=times, batches=times, part=part)]
