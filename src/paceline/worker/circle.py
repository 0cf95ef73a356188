"""The group that this worker is a member of: who is in it, and how they talk among themselves.

Members are processes of one host, joined by gloo over the loopback. The first of them leads: it alone
speaks to the server for all. Knows no gradients and no strategies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from paceline.launch.hosts import identity
from paceline.policy.grouping import Groups, groups_by
from paceline.transport.collective import Group
from paceline.worker.averaging import Sums
from paceline.worker.gathering import Gathering
from paceline.worker.joining import Broadcasts
from paceline.worker.session import Session

_CPU = torch.device("cpu")
_LOOPBACK = "127.0.0.1"
_FIRST_BYTES = 4096
"""What is said usually fits; the rest, if there is one, follows."""
_LENGTH_BYTES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Circle:
    """``groups``: of the whole run. ``ranks``: of this worker's; ``place``: where in it this one is.
    ``store``: torch.distributed's, by which its members find each other; None where they share a
    process and torch joins nobody."""

    groups: Groups
    ranks: tuple[int, ...]
    place: int
    store: Any

    @property
    def size(self) -> int:
        """How many members the group has."""
        return len(self.ranks)

    @property
    def leads(self) -> bool:
        """Whether this worker speaks for its group."""
        return self.place == 0


class Joined(Sums, Broadcasts, Protocol):
    """Where members meet: :class:`paceline.transport.collective.Group`."""

    def close(self, *, abandon: bool) -> None:
        """Leave it; with ``abandon``, where a peer may not answer."""


def circle_of(
    session: Session, size: int | None, *, node: int = 0, collectives: bool = True
) -> Circle:
    """This worker's group, as all ranks (each of which has to ask) agree. ``node``: which one of an
    emulated cluster this host is to be; ``collectives``: whether torch can join the members (they have
    processes of their own).

    Raises UsageError.
    """
    reached = (
        "by frames" if session.frames is not None else "in memory"
    )  # a group shares one of them
    said = session.gather("groups", f"{identity()} {node} {reached}".encode())
    hosts = [one.decode() for one in said]
    groups = groups_by(hosts, size)
    ranks = next(group for group in groups if session.rank in group)
    circle = Circle(groups=groups, ranks=ranks, place=ranks.index(session.rank), store=None)
    return replace(circle, store=_store(session, circle)) if collectives else circle


def join(circle: Circle, session: Session) -> Joined:
    """The members' own process group, or what stands for one; each of them has to join."""
    if circle.store is None:
        return Gathering(session, circle.ranks)
    return Group(
        circle.store, rank=circle.place, world_size=circle.size, device=_CPU, waiter=session,
        private=True,
    )  # fmt: skip


def _store(session: Session, circle: Circle) -> Any:
    """By what the members' process group finds them: a store at its leader, for this host alone."""
    from torch._C import _distributed_c10d as stores

    offered = None
    if circle.leads:
        offered = stores.TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)
    port = 0 if offered is None else offered.port
    said = session.gather("group-stores", str(port).encode())
    return offered or stores.TCPStore(_LOOPBACK, int(said[circle.ranks[0]]), is_master=False)


class Voice:
    """What the leader tells the members; each message is heard by all of them, in order."""

    def __init__(self, group: Joined) -> None:
        self._group = group

    def tell(self, message: bytes) -> None:
        """The leader's."""
        first = torch.zeros(_FIRST_BYTES, dtype=torch.uint8)
        whole = len(message).to_bytes(_LENGTH_BYTES, "little") + message
        head, rest = whole[:_FIRST_BYTES], whole[_FIRST_BYTES:]
        first[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        self._group.broadcast(first)
        if rest:
            self._group.broadcast(torch.frombuffer(bytearray(rest), dtype=torch.uint8))

    def hear(self) -> bytes:
        """The members'."""
        first = torch.zeros(_FIRST_BYTES, dtype=torch.uint8)
        self._group.broadcast(first)
        head = first.numpy().tobytes()
        length = int.from_bytes(head[:_LENGTH_BYTES], "little")
        message = head[_LENGTH_BYTES : _LENGTH_BYTES + length]
        if len(message) < length:
            rest = torch.zeros(length - len(message), dtype=torch.uint8)
            self._group.broadcast(rest)
            message += rest.numpy().tobytes()
        return message

    def count(self, flag: bool) -> int:
        """How many members' ``flag`` is set. Nobody goes on before all have come."""
        votes = torch.tensor([float(flag)])
        self._group.finish(self._group.start_sum(votes))
        return round(float(votes))
