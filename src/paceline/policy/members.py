"""What the policy knows of one worker. Only :mod:`paceline.policy` sees it; it decides nothing.

=============  =====================================================================
phase          meaning
=============  =====================================================================
``idle``       between windows: it has not asked to start the next one
``waiting``    it has pulled and is owed a Start or the end of the pass
``running``    it computes a window
``pushed``     its window is complete and undecided
``gone``       no member any more (a complete push of it may still be undecided)
=============  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from paceline.events import Push, Request

Phase = Literal["idle", "waiting", "running", "pushed", "gone"]


@dataclass(kw_only=True, slots=True, eq=False)
class Member:
    """One life of one rank, from its Join to its Release.

    ``clock``: of its next window, or of the one it is in. ``active``: it counts for the floor and
    for the quorum; an inactive member is *done* with the open pass. ``sits_out``: it wants, or
    may have, no batches of the open pass. ``pass_id``: of its last Request that was let in;
    ``window``, ``depth``: as that said, 0 once it sits out or the pass has ended.
    ``leases``: batches leased and not started; ``running``: those of its window, until decided.
    ``version``: what its window started from; ``push``: what came of it.
    """

    rank: int
    clock: int
    phase: Phase = "idle"
    active: bool = False
    sits_out: bool = False
    pass_id: int = -1
    window: int = 0
    depth: int = 0
    leases: list[int] = field(default_factory=list)
    running: tuple[int, ...] = ()
    version: int = 0
    push: Push | None = None

    @property
    def undecided(self) -> int:
        """How many batches it holds, those of its window included."""
        return len(self.leases) + len(self.running)

    def enter(self, request: Request) -> None:
        """Take part in the open pass on the terms of ``request``."""
        self.pass_id = request.pass_id
        self.window = request.window
        self.sits_out = self.sits_out or request.depth == 0
        self.depth = 0 if self.sits_out else request.depth

    def begin(self, version: int) -> None:
        """Move the next window's batches from the leases into the window."""
        self.running = tuple(self.leases[: self.window])
        del self.leases[: self.window]
        self.version = version
        self.phase = "running"

    def finish_window(self) -> None:
        """The push is decided."""
        self.running = ()
        self.push = None
        self.phase = "idle"

    def forget_from(self, total: int) -> None:
        """Batches ``total`` and later do not exist."""
        self.leases = [batch for batch in self.leases if batch < total]
        self.running = tuple(batch for batch in self.running if batch < total)

    def surrender(self) -> tuple[int, ...]:
        """Give up the leases, and a window that will never be pushed if it is gone."""
        batches = list(self.leases)
        self.leases.clear()
        if self.phase == "gone" and self.push is None:
            batches += self.running
            self.running = ()
        return tuple(sorted(batches))
