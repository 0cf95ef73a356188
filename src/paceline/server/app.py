"""One run's server, put together: loop, membership, recorder, and the server plane when needed.

Runs in whatever thread calls ``serve``; signals and the command line are :mod:`.__main__`'s.
"""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from pathlib import Path

from paceline.recorder import Recorder
from paceline.server.connection import Line
from paceline.server.far_shards import FarShards
from paceline.server.hub import Hub
from paceline.server.loop import Loop
from paceline.server.members import Group
from paceline.server.plane_protocol import Plane
from paceline.server.remote import Gate
from paceline.server.turns import AsTheyCome, Turns
from paceline.transport.channel import listen
from paceline.transport.messages import Hello

LOOK_AROUND_EVERY_S = 0.25


class Server:
    """Listens at ``address`` from construction on. ``out``: directory for ``server.jsonl``.

    ``linger_s``: how long it waits for workers before it ends. ``turns``: in which order it serves them.
    ``abroad``: a listening socket for workers on other hosts, and the key that they must have. ``far``:
    the shards that are to come from there.
    """

    def __init__(
        self,
        *,
        address: str,
        out: Path | None,
        linger_s: float,
        clock_s: Callable[[], float],
        turns: Callable[[Recorder], Turns] = AsTheyCome,
        abroad: tuple[socket.socket, bytes] | None = None,
        far: FarShards | None = None,
    ) -> None:
        path = None if out is None else out / "server.jsonl"
        self._address = Path(address)
        self._listener = listen(address)
        self._recorder = Recorder(path, clock_s, role="server")
        self._group = Group(recorder=self._recorder, clock_s=clock_s)
        self.loop = Loop(clock_s)
        self._turns = turns(self._recorder)
        self.hub = Hub(
            loop=self.loop,
            group=self._group,
            make_plane=self._make_plane,
            linger_s=linger_s,
            turns=self._turns,
        )
        self.loop.add(self._listener.fileno(), self._accept, urgent=True)
        self._far = far
        if far is not None:
            far.halt, far.on_lost_worker = self._group.halt, self.hub.lose_touch
        self._gate = None if abroad is None else self._open_gate(*abroad)

    def serve(self) -> int:
        """Serve until the run is over; 1 if the server itself failed, which workers are told."""
        try:
            self._look_around()
            self.loop.run()
        except Exception as error:
            traceback.print_exc()
            self.hub.shut_down(f"the server failed: {type(error).__name__}: {error}")
            return 1
        finally:
            self._close()
        return 0

    def _open_gate(self, listener: socket.socket, key: bytes) -> Gate:
        return Gate(
            listener, self.loop,
            key=key, on_message=self._hear, on_end=self._hung_up, admit=self.hub.admit,
        )  # fmt: skip

    def _hear(self, line: Line, message: object) -> None:
        if self._far is None or not self._far.takes(line, message):
            self.hub.receive(line, message)

    def _hung_up(self, line: Line) -> None:
        if self._far is None or not self._far.ended(line):
            self.hub.hung_up(line)

    def _close(self) -> None:
        self.hub.close()
        if self._far is not None:
            self._far.close()
        self._recorder.close()
        self._listener.close()
        if self._gate is not None:
            self._gate.close()
        self._address.unlink(missing_ok=True)
        self.loop.close()

    def _accept(self, _events: int) -> None:
        self.hub.accept(self._listener)

    def _look_around(self) -> None:
        self.hub.look_around()
        if self._far is not None:
            self._far.look_around()
        self._recorder.flush_if_due()
        self.loop.call_at(self.loop.clock_s() + LOOK_AROUND_EVERY_S, self._look_around)

    def _make_plane(self, hello: Hello) -> Plane:
        from paceline.server.plane import ServerPlane  # imports torch, which takes a second

        return ServerPlane(
            hello=hello,
            group=self._group,
            loop=self.loop,
            recorder=self._recorder,
            turns=self._turns,
            far=self._far,
        )
