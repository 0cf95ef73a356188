"""Names whose gradient of what is not finite, and says at the end what was not applied."""

from __future__ import annotations

from collections import Counter

from paceline import trace
from paceline.recorder import Recorder
from paceline.server.members import Group
from paceline.server.seats import Refusals, Seat
from paceline.transport.messages import Notice

ORDINARY = " (ordinary while a dynamic loss scale finds its place)"


class Judge:
    """``dynamic``: the loss scale is, so that what is not finite is an ordinary event."""

    def __init__(self, group: Group, recorder: Recorder, *, dynamic: bool) -> None:
        self._group = group
        self._recorder = recorder
        self._dynamic = dynamic
        self._refusals = Refusals()

    def hear(self, seat: Seat, bad: str) -> None:
        """The push of ``seat`` is not finite in ``bad``, "" if it is: each time in the trace, once to the
        user."""
        rank = seat.member.rank
        seat.bad = bad
        if not bad:
            self._refusals.finite(rank)
            return
        text = f"{seat.member} pushed a gradient of {bad!r} that is not finite"
        note = trace.Note(time_s=seat.asked_s, kind="non-finite", rank=rank, text=text)
        self._recorder.write(note)
        if self._refusals.refused(rank, bad) and not self._dynamic:
            self._group.show(Notice(kind="info", rank=rank, text=text))

    def sum_up(self, late: Counter[int]) -> None:
        """Say at the end what was not applied. ``late``: each rank's pushes that came too late."""
        aside = ORDINARY if self._dynamic else ""
        for rank, sentence in self._refusals.sentences():
            self._group.note("info", rank, sentence + aside)
        if total := late.total():
            ranks = ", ".join(f"{late[rank]} of rank {rank}" for rank in sorted(+late))
            text = f"{total} pushes came too late and were dropped with their batches: {ranks}"
            self._group.note("info", -1, text)
