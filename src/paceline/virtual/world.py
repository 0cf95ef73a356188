"""The simulated clock and the run's server, in one process with its workers.

The server is the real one (:mod:`paceline.server`), without sockets, processes or heartbeats: what
workers say reaches it as events of the clock, and what it takes to decide and apply takes no time.
Knows no script and no thread.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

from paceline.launch.context import Launch
from paceline.launch.rendezvous import Rendezvous
from paceline.recorder import Recorder
from paceline.server.connection import Line
from paceline.server.hub import Hub
from paceline.server.loop import Loop
from paceline.server.members import Group
from paceline.server.plane import ServerPlane
from paceline.server.plane_protocol import Plane
from paceline.server.turns import AsTheyCome
from paceline.simulate.engine import Engine
from paceline.transport.messages import Hello, Message
from paceline.virtual.persona import limit_threads
from paceline.virtual.wires import Beats, Wire
from paceline.worker.session import Session, hello, introduce


class World:
    """Time, and the server of ``workers`` workers. ``out``: directory of the trace."""

    def __init__(self, *, out: Path | None, workers: int, observer: Line) -> None:
        self.engine = Engine()
        path = None if out is None or workers == 1 else out / "server.jsonl"
        self._recorder = Recorder(path, self.now_s, role="server")
        self._group = Group(recorder=self._recorder, clock_s=self.now_s)
        self._group.observers.append(observer)
        self._loop = Loop(self.now_s)
        self._turns = AsTheyCome(self._recorder)
        self._hub = Hub(
            loop=self._loop, group=self._group, make_plane=self._make_plane, linger_s=inf,
            turns=self._turns,
        )  # fmt: skip

    def now_s(self) -> float:
        """Simulated seconds since the run's start."""
        return self.engine.now_s

    def deliver(self, line: Line, message: Message) -> None:
        """The server gets ``message`` when everything planned before is done."""
        self.engine.at(self.engine.now_s, lambda _: self._receive(line, message), -1)

    def join(
        self, launch: Launch, *, wait: Callable[[], None], wake: Callable[[], None]
    ) -> Session:
        """Membership for the worker of ``launch``: see :class:`paceline.virtual.wires.Wire`.

        Raises UsageError if the server refuses.
        """
        control = Wire(deliver=self.deliver, wait=wait, wake=wake)
        introduce(control, hello(launch, "control", inf))
        data = Wire(deliver=self.deliver, wait=wait, wake=wake)
        introduce(data, hello(launch, "data", inf))
        return Session(launch, Rendezvous(address="virtual"), data, Beats(control))

    def shut_down(self, text: str) -> None:
        """End the run: every worker is told so at its next call."""
        self._hub.shut_down(text)

    def flush(self) -> None:
        """Put on record what was decided so far."""
        self._recorder.flush()

    def close(self) -> None:
        """The run is over."""
        self._hub.close()
        self._recorder.close()
        self._loop.close()

    def _receive(self, line: Line, message: Message) -> None:
        self._serve(lambda: self._hub.receive(line, message))

    def _plan(self, time_s: float, act: Callable[[], None]) -> None:
        self.engine.at(time_s, lambda _: self._serve(act), -1)

    def _serve(self, act: Callable[[], None]) -> None:
        limit_threads(1)  # as in a server of its own: bits depend on it
        act()
        self._loop.settle()
        self._recorder.flush_if_due()

    def _make_plane(self, greeting: Hello) -> Plane:
        return ServerPlane(
            hello=greeting, group=self._group, loop=self._loop, recorder=self._recorder,
            turns=self._turns,
            call_at=self._plan,
        )  # fmt: skip
