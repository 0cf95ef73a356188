"""NVIDIA cards: clocks, why they are throttled, and their PCIe link, as ``nvidia-ml-py`` tells it.

The library is passed in (``import pynvml`` where it is installed), so that a test can play it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.nvml import faults


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """Clocks in Hz. ``width``: PCIe lanes. ``busy``: 0 to 1; ``reasons``: why it is throttled now."""

    index: int
    name: str
    clock_hz: float
    max_clock_hz: float
    generation: int
    max_generation: int
    width: int
    max_width: int
    busy: float
    reasons: tuple[str, ...]


def cards(nvml: Any) -> list[Card]:
    """All cards; none where there is no driver. ``nvml`` has the functions of ``pynvml``."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        return [_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: str, *args: Any, otherwise: Any = 0) -> Any:
        try:
            return getattr(nvml, f"nvmlDeviceGet{function}")(handle, *args)
        except nvml.NVMLError:  # not every card knows everything
            return otherwise

    bits = int(ask("CurrentClocksThrottleReasons"))
    name = ask("Name", otherwise="NVIDIA card")
    utilisation = ask("UtilizationRates", otherwise=None)
    return Card(
        index=index,
        name=name.decode() if isinstance(name, bytes) else str(name),
        clock_hz=ask("ClockInfo", nvml.NVML_CLOCK_SM) * 1e6,
        max_clock_hz=ask("MaxClockInfo", nvml.NVML_CLOCK_SM) * 1e6,
        generation=ask("CurrPcieLinkGeneration"),
        max_generation=ask("MaxPcieLinkGeneration"),
        width=ask("CurrPcieLinkWidth"),
        max_width=ask("MaxPcieLinkWidth"),
        busy=0.0 if utilisation is None else utilisation.gpu / 100,
        reasons=faults(bits),
    )
