"""The server plane as the hub, which knows no tensors, sees it."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from paceline.server.members import Member
from paceline.transport.messages import (
    Fetch,
    Filled,
    Open,
    OpenPass,
    Push,
    Read,
    Ready,
    TakeCut,
)
from paceline.transport.shard_messages import Enter
from paceline.transport.witness_messages import Vouch

PLANE_REQUESTS = (Open, OpenPass, Ready, Push, Read, Fetch, Vouch, TakeCut, Enter)


class Plane(Protocol):
    """The server plane, as the hub sees it."""

    started: bool
    """Whether the policy decides about members now."""

    def handle(self, member: Member, request: Any) -> None:
        """One of PLANE_REQUESTS came from ``member``, whose region is now the server's."""

    def filled(self, member: Member, filled: Filled) -> None:
        """Some of ``member``'s buckets are full."""

    def heard(self, member: Member) -> None:
        """A heartbeat came."""

    def leave(self, member: Member, reason: Literal["finished", "departed", "dead"]) -> None:
        """``member`` (its state already says so) takes part no longer."""

    def wake(self) -> None:
        """Somebody may be overdue."""

    def close(self) -> None:
        """The server ends."""
