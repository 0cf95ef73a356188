"""Who stood where when a version was made: read off the policy's facts and orders. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline import events

_FACTS = events.Fact.__args__


@dataclass(kw_only=True, slots=True)
class Standing:
    """One worker: its ``clock``, the ``version`` its last window was started from (-1: none yet), the
    loader ``batches`` in its hands (leased and undecided), and what it is ``doing``."""

    rank: int
    clock: int = 0
    version: int = -1
    batches: list[int] = field(default_factory=list)
    doing: str = "between windows"
    running: tuple[int, ...] = ()
    """Those of the batches that its window covers."""

    def as_json(self) -> dict[str, Any]:
        """What of it is for others."""
        return {
            "rank": self.rank, "clock": self.clock, "version": self.version,
            "batches": self.batches, "doing": self.doing,
        }  # fmt: skip


def standings(decisions: Iterable[Any], until: int) -> list[Standing]:
    """All workers that ever joined, in rank order, right after the update that made version ``until``."""
    found: dict[int, Standing] = {}
    made = False
    for one in decisions:
        if made and isinstance(one, _FACTS):
            break
        _follow(found, one)
        made = made or (isinstance(one, events.Update) and one.version == until)
    return [found[rank] for rank in sorted(found)]


def _follow(found: dict[int, Standing], one: Any) -> None:
    if isinstance(one, events.Update):
        for rank, clock in zip(one.ranks, one.clocks, strict=True):
            _decided(found[rank], clock)
        return
    if getattr(one, "rank", None) is None:
        return
    standing = found.setdefault(one.rank, Standing(rank=one.rank))
    if isinstance(one, events.Join):
        found[one.rank] = Standing(rank=one.rank)
    elif isinstance(one, events.Drop):
        _decided(standing, one.clock)
    elif isinstance(one, events.Start):
        standing.clock, standing.version = one.clock, one.version
        standing.running, standing.doing = one.batches, "computing"
    elif isinstance(one, events.Lease):
        standing.batches += one.batches
        standing.doing = "between passes" if one.last else standing.doing
    elif isinstance(one, events.Release):
        standing.batches, standing.doing = [], f"gone: {one.reason}"
    elif isinstance(one, events.Pull):
        standing.doing = "waiting to start"
    elif isinstance(one, events.Push):
        standing.doing = "pushed, undecided"


def _decided(standing: Standing, clock: int) -> None:
    standing.batches = [one for one in standing.batches if one not in standing.running]
    standing.running = ()
    standing.clock = clock + 1
    if not standing.doing.startswith("gone"):
        standing.doing = "between windows"


def as_table(standing: Sequence[Standing]) -> str:
    """The standings as text for people."""
    rows = [("rank", "clock", "on version", "batches in hand", "doing")]
    rows += [
        (
            str(one.rank), str(one.clock), "-" if one.version < 0 else str(one.version),
            _shown(one.batches), one.doing,
        )
        for one in standing
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _shown(batches: Sequence[int]) -> str:
    more = ["..."] if len(batches) > 8 else []
    return ", ".join([*map(str, batches[:8]), *more]) or "none"
