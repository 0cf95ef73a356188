"""Tensors to and from one remote worker: what may come when, and what goes before which answer.

Gradients come bucket by bucket, each once between two pushes, in order, while the worker has the
memory; parameters go before the answer that names them, unless the worker has that version already.
Knows no sockets; where versions lie is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.transport.framing import FrameError
from paceline.transport.messages import (
    GLANCE,
    WINDOW,
    CutTaken,
    Decided,
    Ended,
    Filled,
    Latest,
    Opened,
    Push,
    Started,
)

_PLACES: dict[type, int] = {
    Opened: WINDOW, Started: WINDOW, Ended: WINDOW, Decided: WINDOW, Latest: GLANCE, CutTaken: GLANCE,
}  # fmt: skip


class Intake:
    """The gradients that a worker sends into the ``buckets``: each one's bytes, in launch order."""

    def __init__(self, buckets: Sequence[memoryview]) -> None:
        self._buckets = buckets
        self._came = 0
        self._open = True

    def room(self, number: int, length: int) -> memoryview:
        """Where bucket ``number`` goes. Raises FrameError if it is not its turn, or not its size."""
        if not self._open:
            raise FrameError(f"bucket {number} came before the last push was answered")
        if number != self._came or number == len(self._buckets):
            raise FrameError(
                f"bucket {number} of {len(self._buckets)} came; {self._came} have come before"
            )
        bucket = self._buckets[number]
        if length != bucket.nbytes:
            raise FrameError(f"bucket {number} has {length} bytes; the model's has {bucket.nbytes}")
        return bucket

    def took(self) -> None:
        """The bucket that was asked for is there."""
        self._came += 1

    def check(self, message: object) -> None:
        """Raises FrameError if ``message`` speaks of buckets that have not come."""
        if isinstance(message, Filled) and not 0 <= message.buckets <= self._came:
            raise FrameError(f"{message.buckets} buckets filled, and {self._came} have come")
        if isinstance(message, Push):
            whole = message.weight != 0 and message.parcel is None
            if whole and self._came < len(self._buckets):
                raise FrameError(f"a push of {self._came} of {len(self._buckets)} buckets")
            self._open = False

    def answered(self) -> None:
        """The push is decided: the memory is the worker's again."""
        self._came, self._open = 0, True


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A version of the parameters. ``name``: equal if and only if the bytes are. ``memory``: what is to be
    sent of it; ``place``: where to, if not to the place of what it was asked for."""

    name: tuple[int, int]
    memory: memoryview
    place: int | None = None


class Outgo:
    """Which parameters a worker is to be sent. ``stored(fd)``: the version that answers call so."""

    def __init__(self, stored: Callable[[int], Stored]) -> None:
        self._stored = stored
        self._has: dict[int, tuple[int, int]] = {}

    def before(self, answer: Any) -> tuple[int, memoryview] | None:
        """The worker's place, and the bytes that it lacks there for ``answer``; None: it lacks none."""
        place = _PLACES.get(type(answer))
        if place is None:
            return None
        told = answer.next if isinstance(answer, Decided) and answer.next else answer
        stored = self._stored(told.parameters_fd)
        if self._has.get(place) == stored.name:
            return None
        self._has[place] = stored.name
        if not stored.memory.nbytes:
            return None
        return (place if stored.place is None else stored.place), stored.memory
