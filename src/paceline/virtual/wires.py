"""What stands for sockets where worker and server live in one process: messages, passed as they are.

A worker's :class:`Wire` and the server's :class:`End` of it. A message sent is delivered as an event
of the simulated clock; a worker that receives waits for it. Knows no message but Stop and Abort.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from paceline.transport.messages import Abort, AbortKind, Message, Stop
from paceline.worker.halt import Halt

Deliver = Callable[["End", Message], None]


class End:
    """The server's end: what it sends goes to ``hear``."""

    remote = False

    def __init__(self, hear: Callable[[Message], None]) -> None:
        self.open = True
        self.trusted = False
        self._hear = hear

    def trust(self, peer: str, *, urgent: bool) -> None:
        """A proper Hello came from ``peer``."""
        self.trusted = True

    def send(self, message: Message) -> None:
        """Let the worker have ``message``."""
        if self.open:
            self._hear(message)

    def carry(self, intake: object, outgo: object) -> None:
        """Nothing: both ends see the memory."""

    def read(self) -> int:
        """Nothing is ever under way unseen."""
        return 0

    def close(self) -> None:
        """Hang up."""
        self.open = False


class Wire:
    """A worker's connection. ``deliver(end, message)``: how the server gets what it sends.

    ``wait()``: called by the worker's thread while nothing has come. ``wake()``: called when
    something came that it waits for.
    """

    def __init__(
        self, *, deliver: Deliver, wait: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        self.end = End(self.hear)
        self._deliver = deliver
        self._wait = wait
        self._wake = wake
        self._came: deque[Message] = deque()
        self._waits = False
        self._listener: Callable[[Message], None] | None = None

    def listen(self, listener: Callable[[Message], None]) -> None:
        """Hand over what comes, and what came, instead of waiting to be asked for it."""
        self._listener = listener
        while self._came:
            listener(self._came.popleft())

    def hear(self, message: Message) -> None:
        """The server says ``message``."""
        if self._listener is not None:
            self._listener(message)
            return
        self._came.append(message)
        if self._waits:
            self._waits = False
            self._wake()

    def send(self, message: Message) -> None:
        """Send ``message``; the server gets it at this moment of the simulated time."""
        self._deliver(self.end, message)

    def receive(self) -> Any:
        """The next message."""
        while not self._came:
            self._waits = True
            self._wait()
        return self._came.popleft()

    def close(self) -> None:
        """Hang up."""
        self.end.close()

    def forget(self) -> None:
        """In a forked child there is nothing to let go of."""


class Beats:
    """The heartbeat of a worker that cannot fall silent: it only hears Stop, and says Abort."""

    def __init__(self, control: Wire) -> None:
        self.halt = Halt()
        self.phase: Callable[[], tuple[str, float]] = lambda: ("start", 0.0)
        self._control = control
        control.listen(self._hear)

    def abort(self, text: str, kind: AbortKind = "peer-failed") -> None:
        """Tell the server that this worker failed."""
        self._control.send(Abort(text=text, kind=kind))

    def close(self) -> None:
        """Hang up."""
        self._control.close()

    def forget(self) -> None:
        """In a forked child there is nothing to let go of."""

    def _hear(self, message: Message) -> None:
        if isinstance(message, Stop):
            self.halt.stop(message)
