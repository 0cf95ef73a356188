"""The server's one thread of control: sockets, process deaths and timers, served in a fixed order.

In each turn everything *urgent* that is ready is served first (heartbeats, deaths, newcomers), then
timers that are due, then *one* other source, then, if there was none, what was put off until it is
quiet. So a deadline is never judged before the heartbeats
that came in time were read, however long the update before took. Nothing here knows what is served.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
from collections.abc import Callable
from dataclasses import dataclass

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


@dataclass(kw_only=True, slots=True)
class Source:
    """Something to wait on. ``served``: the turn in which it was last served."""

    fd: int
    on_ready: Callable[[int], None]
    urgent: bool
    served: int = 0
    active: bool = True


class Loop:
    """Waits on sources and timers until stopped. ``clock_s`` is monotonic."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.clock_s = clock_s
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count(1)
        self._running = True
        self._when_quiet: Callable[[], None] | None = None

    def add(self, fd: int, on_ready: Callable[[int], None], *, urgent: bool) -> Source:
        """Call ``on_ready(events)`` whenever ``fd`` can be read."""
        source = Source(fd=fd, on_ready=on_ready, urgent=urgent)
        self._selector.register(fd, READ, source)
        return source

    def expect(self, source: Source, events: int) -> None:
        """Wait for these events (READ, WRITE) of the source from now on."""
        if source.active:
            self._selector.modify(source.fd, events, source)

    def remove(self, source: Source) -> None:
        """Serve the source no more. Twice is once."""
        if source.active:
            source.active = False
            self._selector.unregister(source.fd)

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` once, at ``time_s`` or as soon after it as possible."""
        heapq.heappush(self._timers, (time_s, next(self._serial), action))

    def when_quiet(self, action: Callable[[], None]) -> None:
        """Call ``action`` once, as soon as no other source is ready."""
        self._when_quiet = action

    def settle(self) -> None:
        """Do what is due now and what was put off until it is quiet, without waiting for anything."""
        self._run_due_timers()
        self._run_when_quiet()

    def stop(self) -> None:
        """End ``run`` after the current turn."""
        self._running = False

    def run(self) -> None:
        """Serve until stopped."""
        while self._running:
            self.turn()

    def turn(self) -> None:
        """Wait for something to do and do one turn of it."""
        ready = self._selector.select(self._patience_s())
        patient: list[tuple[Source, int]] = []
        for key, events in ready:
            source: Source = key.data
            if not source.urgent:
                patient.append((source, events))
            elif source.active:
                source.on_ready(events)
        self._run_due_timers()
        if patient:
            self._serve_one(patient)
        else:
            self._run_when_quiet()

    def close(self) -> None:
        """Release the selector (not the sources)."""
        self._selector.close()

    def _patience_s(self) -> float | None:
        if self._when_quiet is not None:
            return 0.0
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - self.clock_s())

    def _run_due_timers(self) -> None:
        now_s = self.clock_s()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2]()

    def _run_when_quiet(self) -> None:
        if self._when_quiet is not None:
            action, self._when_quiet = self._when_quiet, None
            action()

    def _serve_one(self, patient: list[tuple[Source, int]]) -> None:
        waiting = [pair for pair in patient if pair[0].active]
        if waiting:
            source, events = min(waiting, key=lambda pair: pair[0].served)
            source.served = next(self._serial)
            source.on_ready(events)
