"""Lets observers know how far training is: a few times a second, while something happens."""

from __future__ import annotations

from paceline.policy import Coordinator
from paceline.server.loop import Loop
from paceline.server.members import PROGRESS_EVERY_S, Group
from paceline.transport.messages import Progress


class Progressing:
    """``samples``: those of all updates so far."""

    def __init__(self, coordinator: Coordinator, group: Group, loop: Loop) -> None:
        self.samples = 0.0
        self._coordinator = coordinator
        self._group = group
        self._loop = loop
        self._shown_s = 0.0
        self._due = False

    def later(self) -> None:
        """Something was decided: show it soon, if anybody looks."""
        if self._group.observers and not self._due:
            self._due = True
            self._loop.call_at(self._shown_s + PROGRESS_EVERY_S, self._show)

    def _show(self) -> None:
        self._due = False
        self._shown_s = self._loop.clock_s()
        self._group.show(
            Progress(
                version=self._coordinator.version, progress=self._coordinator.progress,
                live=len(list(self._group.live())), samples=self.samples,
            )
        )  # fmt: skip
