"""``python -m paceline.server``: one run's server process.

Prints ``ready`` once it listens. It ends when the last worker has left or died, when its parent is
gone, when nobody joins for ``--linger-s``, or on SIGTERM or SIGINT. What it records is flushed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from paceline.recorder import Recorder
from paceline.server.deaths import has_ended
from paceline.server.hub import Hub, Plane
from paceline.server.loop import Loop
from paceline.server.members import Group
from paceline.transport.channel import listen
from paceline.transport.messages import Hello

LOOK_AROUND_EVERY_S = 0.25


def main(arguments: list[str] | None = None) -> int:
    """Serve one run; the exit status is 1 if the server itself failed."""
    options = _parse(arguments)
    loop = Loop(time.monotonic)
    path = None if options.out is None else options.out / "server.jsonl"
    recorder = Recorder(path, time.monotonic, role="server")
    group = Group(recorder=recorder, clock_s=time.monotonic)

    def make_plane(hello: Hello) -> Plane:
        from paceline.server.plane import ServerPlane

        return ServerPlane(hello=hello, group=group, loop=loop, recorder=recorder)

    hub = Hub(loop=loop, group=group, make_plane=make_plane, linger_s=options.linger_s)
    listener = listen(options.socket)
    loop.add(listener.fileno(), lambda _events: hub.accept(listener), urgent=True)
    _shut_down_on_signals(loop, hub)
    if options.parent is not None:
        hub.watch_parent(options.parent)
    _look_around(loop, hub, recorder)
    print("ready", flush=True)
    try:
        return _serve(loop, hub)
    finally:
        hub.close()
        recorder.close()
        listener.close()
        Path(options.socket).unlink(missing_ok=True)
        loop.close()
        if options.parent is not None and has_ended(options.parent):
            # Whoever made the socket's private directory can no longer remove it.
            shutil.rmtree(Path(options.socket).parent, ignore_errors=True)


def _serve(loop: Loop, hub: Hub) -> int:
    try:
        loop.run()
    except Exception as error:
        traceback.print_exc()
        hub.shut_down(f"the server failed: {type(error).__name__}: {error}")
        return 1
    return 0


def _look_around(loop: Loop, hub: Hub, recorder: Recorder) -> None:
    hub.look_around()
    recorder.flush_if_due()
    again_s = loop.clock_s() + LOOK_AROUND_EVERY_S
    loop.call_at(again_s, lambda: _look_around(loop, hub, recorder))


def _shut_down_on_signals(loop: Loop, hub: Hub) -> None:
    """Signals arrive as bytes on a socket, so that they are served like everything else."""
    reading, writing = socket.socketpair()
    for end in (reading, writing):
        end.setblocking(False)
    loop.add(reading.detach(), lambda _events: hub.shut_down("the run was ended"), urgent=True)
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paceline.server", description=__doc__)
    parser.add_argument("--socket", required=True, help="path of the unix socket to listen on")
    parser.add_argument("--parent", type=int, help="end when the process with this id ends")
    parser.add_argument("--out", type=Path, help="directory for server.jsonl")
    parser.add_argument("--linger-s", type=float, default=30.0, help="wait so long for workers")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # torch's own exit takes up to a second, and nothing is left to do
