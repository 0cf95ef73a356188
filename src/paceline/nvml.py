"""Why an NVIDIA card's clock is held down, in words: the bits of NVML's nvmlClocksEventReasons.

The idle card's bit (0x1) is no reason for anything. Knows no library and no card.
"""

from __future__ import annotations

FAULTS = {
    0x004: "power limit", 0x008: "hardware slowdown", 0x020: "too hot (driver)",
    0x040: "too hot (hardware)", 0x080: "power brake",
}  # fmt: skip
"""What somebody should look at."""
SETTINGS = {
    0x002: "clocks set by an application", 0x010: "sync boost", 0x100: "clocks set for a display",
}  # fmt: skip
"""What somebody wanted."""


def faults(bits: int) -> tuple[str, ...]:
    """The faults among ``bits``."""
    return tuple(word for bit, word in FAULTS.items() if bits & bit)


def reasons(bits: int) -> tuple[str, ...]:
    """Faults and settings among ``bits``, by bit."""
    return tuple(word for bit, word in sorted((FAULTS | SETTINGS).items()) if bits & bit)
