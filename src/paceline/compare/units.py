"""Numbers as people read them. The only place where SI units are left."""

from __future__ import annotations

from math import isfinite


def duration(seconds: float) -> str:
    """``1.25 s``, ``48.1 s``, ``3 min 05 s``, ``2 h 04 min``, ``4.20 ms``."""
    if not isfinite(seconds):
        return "–"
    if seconds < 1:
        return f"{_three(seconds * 1e3)} ms"
    if seconds < 120:
        return f"{_three(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(byte_count: float) -> str:
    """``812 B``, ``4.10 kB``, ``1.52 GB`` (powers of 1000)."""
    if byte_count < 999.5:
        return f"{round(byte_count)} B"
    value = byte_count / 1000
    for unit in ("kB", "MB", "GB"):
        if value < 999.5:
            return f"{_three(value)} {unit}"
        value /= 1000
    return f"{_three(value)} TB"


def count(value: float) -> str:
    """Whole from ten on: ``12,480``, ``62``, ``3.25``."""
    whole = abs(value) >= 10 or value == int(value)
    return f"{round(value):,}" if whole else _three(value)


def share(value: float) -> str:
    """``37 %``."""
    return f"{100 * value:.0f} %"


def ratio(value: float) -> str:
    """``3.21x``."""
    return f"{value:.2f}x"


def _three(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
