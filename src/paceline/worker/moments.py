"""The moments of a training pass at which other parts of a worker may look on.

Whoever drives the pass announces them; who listens (verification, gradient health, the count of
skipped windows) is not known here. A moment that nobody listens to costs a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, ParamSpec

from paceline.worker.plane import Contribution, Outcome, Window

P = ParamSpec("P")


class Moment(Generic[P]):
    """Call it to announce the moment; listeners are called in the order in which they came."""

    def __init__(self) -> None:
        self._listeners: list[Callable[P, None]] = []

    def listen(self, listener: Callable[P, None]) -> None:
        """Call ``listener`` whenever this moment comes."""
        self._listeners.append(listener)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """``opened``: a pass begins, by its number. ``started``: a window's parameters are in the model.
    ``computed``: its gradients are complete, nothing of them is exchanged, divided or clipped.
    ``unsent``: questions whether somebody wants to see the window whole at ``computed``; without one
    of them saying so, parts of it may have been sent, and summed with others', before.
    ``decided``: what became of it. ``ended``: the pass is over on all ranks; buffers are not agreed yet."""

    opened: Moment[[int]] = field(default_factory=Moment)
    started: Moment[[Window]] = field(default_factory=Moment)
    computed: Moment[[Contribution]] = field(default_factory=Moment)
    decided: Moment[[Outcome]] = field(default_factory=Moment)
    ended: Moment[[]] = field(default_factory=Moment)
    unsent: list[Callable[[], bool]] = field(default_factory=list)

    def keeps(self) -> bool:
        """Whether nothing of the window must be sent before ``computed``."""
        return any(ask() for ask in self.unsent)
