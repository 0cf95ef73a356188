"""What has reached the server of a replay and is not served yet, and what it would be on record.

Knows messages and records; when something is served is :mod:`.recorded_order`'s to say.
"""

from __future__ import annotations

from typing import Any

from paceline.encounters import Handover, Look
from paceline.events import Leave, Pull, Push, Request, Save
from paceline.server.members import Group, Member
from paceline.transport import messages

_BRINGS_ABOUT: dict[type, tuple[str, tuple[type, ...]]] = {
    messages.OpenPass: ("request", (Request,)),
    messages.Ready: ("pull", (Pull,)),
    messages.Push: ("push", (Push,)),
    messages.TakeCut: ("save", (Save,)),
    messages.Bye: ("leave", (Leave,)),
    messages.Read: ("look", (Look,)),
    messages.Fetch: ("look", (Look,)),
    messages.HandIn: ("handover", (Handover,)),
}


class WaitingRoom:
    """The workers' requests, failures and deaths that are held back, by rank."""

    def __init__(self) -> None:
        self.lost: dict[int, Member] = {}
        self._requests: dict[int, tuple[Member, Any]] = {}
        self._failures: dict[int, tuple[Member, messages.Abort]] = {}

    def hold(self, member: Member, request: Any) -> None:
        """``member`` asks for something, or says that it failed."""
        failed = isinstance(request, messages.Abort)
        kept = self._failures if failed else self._requests
        kept[member.rank] = (member, request)

    def any_of(self, kinds: tuple[type, ...]) -> tuple[Member, Any] | None:
        """A request of one of these kinds, taken out."""
        for rank, (_, request) in self._requests.items():
            if isinstance(request, kinds):
                return self._requests.pop(rank)
        return None

    def for_entry(self, what: Any) -> tuple[Member, Any] | None:
        """What brings about ``what``, taken out; None if it has not come."""
        held = self._requests.get(what.rank)
        if held is not None and _fits(what, held[1]):
            return self._requests.pop(what.rank)
        return None

    def failure(self, rank: int) -> tuple[Member, messages.Abort] | None:
        """That ``rank`` failed, taken out."""
        return self._failures.pop(rank, None)

    def bury(self, rank: int) -> Member | None:
        """The dead ``rank``, taken out with whatever it still asked for; None if it lives."""
        if rank in self.lost:
            self._requests.pop(rank, None)
        return self.lost.pop(rank, None)

    def asks(self, rank: int) -> bool:
        """Whether a request of ``rank`` is held back."""
        return rank in self._requests

    def instead(self, rank: int) -> str:
        """What a worker did, or "" as long as it has done nothing."""
        if rank in self._failures:
            return f"it failed ({self._failures[rank][1].text.strip().splitlines()[-1]})"
        if rank in self.lost:
            return "its process ended"
        if rank in self._requests:
            return _BRINGS_ABOUT[type(self._requests[rank][1])][0]
        return ""

    def everybody_waits(self, group: Group) -> bool:
        """Whether nobody who is live will do anything before something is served."""
        live = list(group.live())
        idle = self.lost.keys() | self._failures.keys()
        return bool(live) and all(one.owed or one.rank in idle for one in live)


def _fits(what: Any, request: Any) -> bool:
    """Whether serving ``request`` brings about ``what`` (a Push may amend the pass first)."""
    if isinstance(what, Request) and isinstance(request, messages.Push):
        return request.total is not None
    return isinstance(what, _BRINGS_ABOUT[type(request)][1])
