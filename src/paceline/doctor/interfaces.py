"""Network interfaces as ``/sys/class/net`` shows them: negotiated rate and bytes so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """``rate_bits_per_s``: negotiated; None where the driver knows none (loopback, bridges, Wi-Fi).
    ``moved_bytes``: sent and received since it came up."""

    name: str
    up: bool
    rate_bits_per_s: float | None
    moved_bytes: int

    @property
    def is_loopback(self) -> bool:
        """It leads nowhere but here."""
        return self.name == "lo"


def interfaces(sys_root: Path) -> list[Interface]:
    """Those of this machine (or network namespace), by name; none where there is no such directory."""
    directory = sys_root / "class" / "net"
    if not directory.is_dir():
        return []
    places = [place for place in sorted(directory.iterdir()) if (place / "statistics").is_dir()]
    return [_interface(place) for place in places]


def used(before: Sequence[Interface], after: Sequence[Interface]) -> Interface | None:
    """The interface over which most went between the two looks; None if nothing went over any."""
    had = {one.name: one.moved_bytes for one in before}
    moved = {one.name: one.moved_bytes - had.get(one.name, one.moved_bytes) for one in after}
    best = max(after, key=lambda one: moved[one.name], default=None)
    return best if best is not None and moved[best.name] > 0 else None


def _interface(place: Path) -> Interface:
    megabits = _number(place / "speed")
    return Interface(
        name=place.name,
        up=_text(place / "operstate") in ("up", "unknown"),
        rate_bits_per_s=megabits * 1e6 if megabits > 0 else None,
        moved_bytes=sum(_number(place / "statistics" / f"{way}_bytes") for way in ("rx", "tx")),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # the kernel refuses to tell the speed of an interface that is down
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else 0
