"""The launchers of a run's hosts: whether they mean the same run, and which of their workers are no more.

A worker that ends before its paceline.Worker is known to its own launcher alone, which says so here. Knows
no members: who is still missing it is told.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.server.connection import Line
from paceline.transport.framing import FrameError
from paceline.transport.messages import Launcher, ProcessEnded


class Launchers:
    """Those of one run; none where another launcher (torchrun) started the workers."""

    def __init__(self) -> None:
        self._hosts: dict[int, tuple[Line, Launcher]] = {}
        self._ended: dict[int, str] = {}

    def objection(self, launcher: Launcher | None) -> str:
        """Why ``launcher`` is refused, "" if it is not. Raises FrameError if it is too early to say."""
        if launcher is None:
            return ""
        number = launcher.number
        if number in self._hosts and self._hosts[number][0].open:
            return f"node_rank={number}: the run at this address has a host {number} already."
        if number == 0:
            return ""
        if 0 not in self._hosts:
            raise FrameError("host 0's own launcher is not here yet")
        return _difference(self._hosts[0][1].said, launcher.said)

    def came(self, line: Line, launcher: Launcher | None) -> None:
        """``launcher`` was let in."""
        if launcher is not None:
            self._hosts[launcher.number] = (line, launcher)

    def ended(self, line: Line, ended: ProcessEnded) -> None:
        """A worker's process is no more. Raises FrameError if ``line`` is not its launcher's."""
        if not any(one is line and ended.rank in it.ranks for one, it in self._hosts.values()):
            raise FrameError(f"rank {ended.rank} is not its worker")
        self._ended[ended.rank] = ended.text

    def hung_up(self, line: Line) -> None:
        """A connection from another host ended: if it was a launcher's, its workers end too."""
        for one, launcher in self._hosts.values():
            if one is line:
                text = f"is lost (the launcher of host {launcher.number} is gone)"
                for rank in launcher.ranks:
                    self._ended.setdefault(rank, f"rank {rank} {text}")

    def cause(self, absent: Iterable[int]) -> str:
        """Why some of the ranks that are waited for will never come; "" if all may."""
        ended = [self._ended[rank] for rank in absent if rank in self._ended]
        return f"{'; '.join(ended)}, before it made its paceline.Worker" if ended else ""


def _difference(first: dict[str, str], other: dict[str, str]) -> str:
    for name in [*first, *(name for name in other if name not in first)]:
        here, there = first.get(name, "nothing"), other.get(name, "nothing")
        if here != there:
            return f"{name}={there!r}: host 0 of this run has {here!r}. Give every host the same."
    return ""
