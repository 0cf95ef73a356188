"""Who may come in: judges each Hello, and keeps early ones waiting.

A script may make one Worker after another. All Workers of one turn are a generation; a Hello for the
next one is early as long as a member of this one has not left. Knows no planes and sends nothing.
"""

from __future__ import annotations

from paceline.server.connection import Line
from paceline.server.members import Group, Member
from paceline.transport.messages import PROTOCOL_VERSION, Hello


class Door:
    """The door of one run. ``greeting``: the generation's first Hello, with which others must agree."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._early: list[tuple[Line, Hello]] = []
        self.greeting: Hello | None = None

    @property
    def all_came(self) -> bool:
        """Whether every rank of this generation has been here."""
        first = self.greeting
        return first is not None and len(self._group.members) == first.world_size

    def absent(self) -> list[int]:
        """The ranks that have not been here yet."""
        size = 0 if self.greeting is None else self.greeting.world_size
        return [rank for rank in range(size) if rank not in self._group.members]

    @property
    def has_early(self) -> bool:
        """Whether somebody waits for the next generation."""
        return bool(self._early)

    def objection(self, hello: Hello) -> str:
        """Why ``hello`` is refused, "" if it is not."""
        if hello.protocol != PROTOCOL_VERSION:
            return f"protocol {hello.protocol}: the server speaks {PROTOCOL_VERSION}"
        if hello.role == "observer":
            return ""
        if hello.role in ("shard", "hub"):
            return "no shard is expected here. Say the same --shards on all hosts."
        first = self.greeting or hello
        if hello.world_size != first.world_size:
            return f"world_size={hello.world_size}: rank {first.rank} said {first.world_size}"
        if not 0 <= hello.rank < hello.world_size:
            return f"rank={hello.rank}: expected 0 to {hello.world_size - 1}"
        member = self._group.members.get(hello.rank)
        if member is not None and member.pid == hello.pid and member.state == "live":
            taken = member.control if hello.role == "control" else member.data
            return "" if taken is None else f"{member} has a Worker already: close it first"
        if member is None or (member.pid == hello.pid and member.state == "left"):
            return ""
        return f"rank {hello.rank} is taken: {member} is or was a member of this run"

    def open(self, hello: Hello) -> None:
        """The generation begins, if it has not, with what ``hello`` says of it."""
        self.greeting = self.greeting or hello

    def is_early(self, hello: Hello) -> bool:
        """Whether ``hello`` comes from a worker that has left this generation."""
        member = self._group.members.get(hello.rank)
        return member is not None and member.state == "left"

    def keep(self, connection: Line, hello: Hello) -> None:
        """Let ``connection`` wait for the next generation."""
        self._early.append((connection, hello))

    def let_in(self) -> list[tuple[Line, Hello]]:
        """Whoever waited, once nobody of this generation is live any more."""
        if any(True for _ in self._group.live()):
            return []
        early, self._early = self._early, []
        return early

    def missing(self) -> Member | None:
        """A member of this generation that cannot be one of the next."""
        gone = (member for member in self._group.members.values() if member.state != "left")
        return next(gone, None)

    def forget(self) -> None:
        """The generation is over."""
        self.greeting = None
