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
from paceline.transport.shard_messages import Entered, Given, Laid, frame_number

_PLACES: dict[type, int] = {
    Opened: WINDOW, Entered: WINDOW, Started: WINDOW, Ended: WINDOW, Decided: WINDOW,
    Latest: GLANCE, CutTaken: GLANCE,
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
            self._end(whole=message.weight != 0 and message.parcel is None)
        if isinstance(message, Laid):
            self._end(whole=message.whole)

    def answered(self) -> None:
        """What was pushed is decided: the memory is the worker's again."""
        if not self._open:
            self._came, self._open = 0, True

    def _end(self, *, whole: bool) -> None:
        if whole and self._came < len(self._buckets):
            raise FrameError(f"a push of {self._came} of {len(self._buckets)} buckets")
        self._open = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A version of the parameters. ``name``: equal if and only if the bytes are. ``memory``: what is to be
    sent of it; ``place``: where to, if not to the place of what it was asked for."""

    name: tuple[int, int]
    memory: memoryview
    place: int | None = None


class Outgo:
    """Which parameters a worker is to be sent. ``stored(fd)``: the version that answers call so; ``runs``:
    from which byte of it to which other it travels, None for all."""

    def __init__(
        self, stored: Callable[[int], Stored], runs: Sequence[tuple[int, int]] | None = None
    ) -> None:
        self._stored = stored
        self._runs = runs
        self._has: dict[int, tuple[int, int]] = {}

    def before(self, answer: Any) -> list[tuple[int, memoryview]]:
        """The bytes that the worker lacks for ``answer``, each with the number of its frame."""
        place = _place_of(answer)
        if place is None:
            return []
        told = answer.next if isinstance(answer, Decided) and answer.next else answer
        stored = self._stored(told.parameters_fd)
        if self._has.get(place) == stored.name:
            return []
        self._has[place] = stored.name
        if stored.place is not None:
            return [(stored.place, stored.memory)] if stored.memory.nbytes else []
        runs = [(0, stored.memory.nbytes)] if self._runs is None else self._runs
        return [
            (frame_number(place, index), stored.memory[start:stop])
            for index, (start, stop) in enumerate(runs)
        ]


def _place_of(answer: object) -> int | None:
    if isinstance(answer, Given):
        return GLANCE if answer.glance else WINDOW
    return _PLACES.get(type(answer))
