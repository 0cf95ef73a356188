"""``python -m paceline.server``: one run's server process.

Prints ``ready`` once it listens, and the port for other hosts if there is one. It ends when the last
worker has left or died, when its parent is gone, when nobody joins for ``--linger-s``, or on SIGTERM or
SIGINT. What it records is flushed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from paceline.errors import UsageError
from paceline.recorder import Recorder
from paceline.server.app import Server
from paceline.server.deaths import has_ended
from paceline.server.far_shards import FarShards
from paceline.server.lean_torch import leave_out_the_compiler
from paceline.server.turns import AsTheyCome, Turns
from paceline.transport.addresses import remote_from
from paceline.transport.keys import addresses_of, key_for
from paceline.transport.messages import PROTOCOL_VERSION, Hello
from paceline.transport.sockets import listen_on

EXIT_USAGE = 2


def main() -> int:
    """Serve one run; the exit status is 1 if the server itself failed."""
    options = _parse()
    leave_out_the_compiler()
    try:
        abroad = _abroad(options)
    except UsageError as error:
        print(f"paceline: {error}", file=sys.stderr)
        return EXIT_USAGE
    server = Server(
        address=options.socket,
        out=options.out,
        linger_s=options.linger_s,
        clock_s=time.monotonic,
        turns=_turns(options),
        abroad=abroad,
        far=_far(options),
    )
    _shut_down_on_signals(server)
    if options.parent is not None:
        server.hub.watch_parent(options.parent)
    print("ready", "" if abroad is None else abroad[0].getsockname()[1], flush=True)
    status = server.serve()
    if options.owns_directory or (options.parent is not None and has_ended(options.parent)):
        # Whoever made the socket's private directory will not, or can no longer, remove it.
        shutil.rmtree(Path(options.socket).parent, ignore_errors=True)
    return status


def _shut_down_on_signals(server: Server) -> None:
    """Signals arrive as bytes on a socket, so that they are served like everything else."""
    reading, writing = socket.socketpair()
    for end in (reading, writing):
        end.setblocking(False)
    server.loop.add(
        reading.detach(), lambda _events: server.hub.shut_down("the run was ended"), urgent=True
    )
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)


def _abroad(options: argparse.Namespace) -> tuple[socket.socket, bytes] | None:
    """Where other hosts are listened to, and the key that they must have."""
    remote = None if options.listen is None else remote_from(options.listen)
    if remote is None:
        return None
    key = key_for(remote.host, options.key, addresses_of)
    return listen_on(remote), key


def _far(options: argparse.Namespace) -> FarShards | None:
    """The shards that are to come from other hosts."""
    if options.shards == 1:
        return None
    introduction = Hello(
        protocol=PROTOCOL_VERSION, role="hub", rank=0, world_size=0, pid=os.getpid(),
        host=socket.gethostname(), evict_after_s=0.0,
    )  # fmt: skip
    return FarShards(
        options.shards - 1, key=options.key, clock_s=time.monotonic, introduction=introduction
    )


def _turns(options: argparse.Namespace) -> Callable[[Recorder], Turns]:
    if options.replay is None:
        return AsTheyCome
    from paceline.replay.record import entries
    from paceline.replay.recorded_order import RecordedOrder

    return lambda recorder: RecordedOrder(
        entries(options.replay),
        until=options.until,
        recorder=recorder,
        end_process=lambda pid: os.kill(pid, signal.SIGKILL),
        clock_s=time.monotonic,
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paceline.server", description=__doc__)
    parser.add_argument("--socket", required=True, help="path of the unix socket to listen on")
    parser.add_argument(
        "--listen", help="tcp://HOST:PORT for other hosts; port 0: any that is free"
    )
    parser.add_argument("--key", type=Path, help="the file of the key that other hosts must have")
    parser.add_argument(
        "--shards", type=int, default=1, help="shards, this process's and those of other hosts"
    )
    parser.add_argument("--parent", type=int, help="end when the process with this id ends")
    parser.add_argument("--out", type=Path, help="directory for server.jsonl")
    parser.add_argument(
        "--owns-directory", action="store_true", help="remove the socket's directory"
    )
    parser.add_argument("--linger-s", type=float, default=30.0, help="wait so long for workers")
    parser.add_argument("--replay", type=Path, help="a server.jsonl whose order to keep")
    parser.add_argument("--until", type=int, help="stop the replay when this version is made")
    return parser.parse_args()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # torch's own exit takes up to a second, and nothing is left to do
