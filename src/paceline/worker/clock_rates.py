"""How fast the hardware under a worker runs, sampled from its heartbeat: clocks, and why they are low.

CPU: Linux' ``cpufreq`` and ``thermal_throttle`` files. NVIDIA: NVML, if the optional package
nvidia-ml-py is installed and the model is on such a card. What is absent says nothing. Not for the
step: one sample takes a millisecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from paceline.nvml import reasons
from paceline.recorder import Recorder
from paceline.trace import Clocks

SAMPLE_EVERY_S = 5.0
MAX_CORES = 16
"""Of which the clock is read: those of many more are not different enough to pay for."""
CPUS = Path("/sys/devices/system/cpu")
KILOHERTZ, MEGAHERTZ = 1e3, 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """See :class:`paceline.trace.Clocks`."""

    device: str
    hz: float
    top_hz: float
    throttled: int = 0
    reasons: tuple[str, ...] = ()


Source = Callable[[], Rate]


class ClockSampler:
    """To be called with every beat: writes what its sources say every few seconds."""

    def __init__(
        self, sources: Sequence[Source], recorder: Recorder, clock_s: Callable[[], float]
    ) -> None:
        self._sources = list(sources)
        self._recorder = recorder
        self._clock_s = clock_s
        self._due_s = clock_s()

    def __call__(self) -> None:
        """Sample if it is time to, and flush the trace."""
        now_s = self._clock_s()
        if self._sources and now_s >= self._due_s:
            self._due_s = now_s + SAMPLE_EVERY_S
            for source in list(self._sources):
                self._sample(source, now_s)
        self._recorder.flush()

    def _sample(self, source: Source, now_s: float) -> None:
        try:
            rate = source()
        except Exception:  # NVML's errors have no common base; a sensor must never end a training
            self._sources.remove(source)
            return
        self._recorder.write(
            Clocks(
                time_s=now_s, device=rate.device, hz=rate.hz, top_hz=rate.top_hz,
                throttled=rate.throttled, reasons=rate.reasons,
            )
        )  # fmt: skip


def sources_for(device: torch.device) -> list[Source]:
    """What can be read of ``device`` and of the processor on this machine; perhaps nothing."""
    found = [cpu_source(CPUS, sorted(os.sched_getaffinity(0)) if _is_linux() else ())]
    if device.type == "cuda" and torch.version.cuda is not None:
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        found.append(nvidia_source(_nvml(), uuid, str(device)))
    return [source for source in found if source is not None]


def cpu_source(root: Path, cores: Sequence[int]) -> Source | None:
    """The mean clock of ``cores`` as the files below ``root`` have it; None if they are not there."""
    paths = [root / f"cpu{core}" for core in cores[:MAX_CORES]]
    paths = [path for path in paths if (path / "cpufreq/scaling_cur_freq").exists()]
    if not paths:
        return None

    def read() -> Rate:
        now = [_number(path / "cpufreq/scaling_cur_freq") for path in paths]
        top = [_number(path / "cpufreq/cpuinfo_max_freq") for path in paths]
        throttled = [_number(path / "thermal_throttle/core_throttle_count") for path in paths]
        return Rate(
            device="cpu", hz=KILOHERTZ * round(sum(now) / len(now)), top_hz=KILOHERTZ * max(top),
            throttled=sum(throttled),
        )  # fmt: skip

    return read


def nvidia_source(nvml: Any, uuid: str, device: str) -> Source | None:
    """The card ``uuid`` as ``nvml`` (the module pynvml) sees it; None if there is no such module."""
    if nvml is None:
        return None
    handle = _handle(nvml, uuid)
    if handle is None:
        return None

    def read() -> Rate:
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return Rate(
            device=device,
            hz=MEGAHERTZ * nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            top_hz=MEGAHERTZ * nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            reasons=reasons(bits),
        )

    return read


def _handle(nvml: Any, uuid: str) -> Any:
    try:
        nvml.nvmlInit()
        return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    except Exception:  # no driver, or a card that NVML does not know
        return None


def _nvml() -> Any:
    try:
        return import_module("pynvml")
    except ImportError:
        return None


def _is_linux() -> bool:
    return hasattr(os, "sched_getaffinity")


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
