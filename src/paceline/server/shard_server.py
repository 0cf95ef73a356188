"""A shard's process: it calls on the run's server, listens to workers, and ends with the server.

    python -m paceline.server.shard_server --number 1 --hub tcp://host0:29500 --key run.key --socket PATH

Who may say what is decided here; what is done with it in :mod:`paceline.server.shard_work`.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import PacelineError, UsageError
from paceline.launch.hosts import identity
from paceline.server.connection import Connection, Line, log
from paceline.server.deaths import Deaths
from paceline.server.lean_torch import leave_out_the_compiler
from paceline.server.loop import Loop
from paceline.server.remote import Gate
from paceline.transport.addresses import Remote, remote_from
from paceline.transport.channel import ChannelClosedError, listen
from paceline.transport.frame_channel import call
from paceline.transport.framing import FrameError
from paceline.transport.keys import addresses_of, key_for
from paceline.transport.messages import PROTOCOL_VERSION, Beat, Hello, Message, Stop, Welcome
from paceline.transport.shard_messages import Standing
from paceline.transport.sockets import listen_on

if TYPE_CHECKING:
    from paceline.server.shard_work import ShardWork

EXIT_USAGE = 2
BEAT_EVERY_S = 1.0
CALL_AGAIN_AFTER_S = 0.2
CALL_FOR_S = 30.0


class ShardServer:
    """Shard ``number`` of the run whose server is at ``hub``, from construction on. ``key``: the file of
    the run's key; ``path``: of the socket for this host's workers.

    Raises UsageError if it is refused, ChannelClosedError if nobody is there.
    """

    def __init__(
        self,
        *,
        number: int,
        hub: Remote,
        key: Path | None,
        path: str,
        clock_s: Callable[[], float],
    ) -> None:
        self.loop = Loop(clock_s)
        self._number = number
        self._path = path
        self._work: ShardWork
        self._deaths = Deaths(self.loop)
        self._server: Line | None = None
        self._workers: dict[Line, Hello] = {}
        self._lines: set[Line] = set()
        self._hub = call(hub, key)
        try:
            self._introduce()
            self._near = listen(path)
            self._open_gates(hub, key)
        except BaseException:
            self._hub.close()
            raise

    def watch_parent(self, pid: int) -> None:
        """End when process ``pid`` ends."""
        self._deaths.watch(pid, self.loop.stop)

    def serve(self) -> None:
        """Until the server hangs up."""
        from paceline.server.shard_work import (
            ShardWork,
        )  # imports torch: whoever starts us need not wait

        self._work = ShardWork(self._report)
        try:
            self._report(self._standing)
            self._beat()
            self.loop.run()
        finally:
            self.close()

    def close(self) -> None:
        """Hang up on everyone, let go of everything."""
        self._work.close()
        for line in self._lines:
            line.close()
        self._hub.close()
        self._gate.close()
        self._near.close()
        self._deaths.close()
        self.loop.close()
        Path(self._path).unlink(missing_ok=True)

    def _introduce(self) -> None:
        self._hub.send(
            Hello(
                protocol=PROTOCOL_VERSION, role="shard", rank=self._number, world_size=0,
                pid=os.getpid(), host=socket.gethostname(), evict_after_s=0.0,
            )
        )  # fmt: skip
        reply = self._hub.receive(CALL_FOR_S)
        if isinstance(reply, Stop):
            raise UsageError(f"shard {self._number} is refused: {reply.text}")

    def _open_gates(self, hub: Remote, key: Path | None) -> None:
        own = Remote(host=self._hub.own_host(), port=0)
        listener = listen_on(own)
        self._gate = Gate(
            listener, self.loop,
            key=key_for(own.host, key, addresses_of), on_message=self._hear, on_end=self._ended,
            admit=self._lines.add,
        )  # fmt: skip
        self.loop.add(self._near.fileno(), self._accept, urgent=True)
        self.loop.add(self._hub.fileno(), lambda _events: self.loop.stop(), urgent=True)
        here = Remote(host=own.host, port=listener.getsockname()[1])
        self._standing = Standing(address=str(here), socket=self._path, host=identity())

    def _accept(self, _events: int) -> None:
        with suppress(OSError):
            raw, _ = self._near.accept()
            self._lines.add(Connection(raw, self.loop, self._hear))

    def _report(self, message: Message) -> None:
        try:
            self._hub.send(message)
        except ChannelClosedError:
            self.loop.stop()

    def _beat(self) -> None:
        self._report(Beat(phase="shard", phase_age_s=0.0))
        self._lines = {line for line in self._lines if line.open}
        self._workers = {line: hello for line, hello in self._workers.items() if line.open}
        self.loop.call_at(self.loop.clock_s() + BEAT_EVERY_S, self._beat)

    # -------------------------------------------------------------------------------- messages

    def _hear(self, line: Line, message: object) -> None:
        if line is self._server:
            if (reply := self._work.obey(message)) is not None:
                line.send(reply)
        elif (worker := self._workers.get(line)) is not None:
            self._work.hear(line, worker.rank, worker.pid, message)
        elif isinstance(message, Hello):
            self._greet(line, message)
        else:
            raise FrameError(f"{type(message).__name__} before Hello")

    def _greet(self, line: Line, hello: Hello) -> None:
        if hello.role == "hub" and self._server is None and line.remote:
            self._server = line
            line.trust("the server", urgent=True)
        elif problem := self._objection(hello):
            log(f"shard {self._number}: rank {hello.rank} (pid {hello.pid}) refused: {problem}")
            line.send(Stop(kind="refused", rank=hello.rank, text=problem))
            return
        else:
            self._workers[line] = hello
            line.trust(f"rank {hello.rank} (pid {hello.pid} on {hello.host})", urgent=False)
        line.send(Welcome(incarnation=0))

    def _objection(self, hello: Hello) -> str:
        if hello.protocol != PROTOCOL_VERSION:
            return f"protocol {hello.protocol}: the shard speaks {PROTOCOL_VERSION}"
        if hello.role != "data":
            return f"a connection of role {hello.role} has no business with a shard"
        return self._work.objection(hello.rank)

    def _ended(self, line: Line) -> None:
        worker = self._workers.pop(line, None)
        if line is self._server:
            self.loop.stop()
        elif worker is not None:
            self._work.lost(line, worker.rank)


def main() -> int:
    """Be a shard; the exit status is 2 if it is refused."""
    options = _parse()
    leave_out_the_compiler()
    hub = remote_from(options.hub)
    assert hub is not None, options.hub
    try:
        server = _started(options, hub)
    except PacelineError as error:
        print(f"paceline: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ChannelClosedError as error:
        print(f"paceline: shard {options.number}: {error}", file=sys.stderr)
        return 1
    if options.parent is not None:
        server.watch_parent(options.parent)
    print("ready", flush=True)
    server.serve()
    return 0


def _started(options: argparse.Namespace, hub: Remote) -> ShardServer:
    """The shard, once the server is there."""
    until_s = time.monotonic() + CALL_FOR_S
    while True:
        try:
            return ShardServer(
                number=options.number, hub=hub, key=options.key, path=options.socket,
                clock_s=time.monotonic,
            )  # fmt: skip
        except ChannelClosedError:
            if time.monotonic() > until_s:
                raise
        time.sleep(CALL_AGAIN_AFTER_S)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paceline.server.shard_server")
    parser.add_argument("--number", type=int, required=True, help="which shard this is, from 1")
    parser.add_argument("--hub", required=True, help="tcp://HOST:PORT of the run's server")
    parser.add_argument("--key", type=Path, help="the file of the run's key")
    parser.add_argument(
        "--socket", required=True, help="path of the socket for this host's workers"
    )
    parser.add_argument("--parent", type=int, help="end when the process with this id ends")
    return parser.parse_args()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # torch's own exit takes up to a second, and nothing is left to do
