"""The process of a virtual run: ``python -m paceline.virtual --launch JSON THREADS script args...``

Started by :mod:`paceline.launch.virtual`, which reads what it leaves behind in ``virtual.json``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from paceline.launch.bootstrap import decode_launch, end_with
from paceline.launch.context import Launch
from paceline.launch.output import Console
from paceline.launch.script import present
from paceline.launch.virtual import Outcome, write_outcome
from paceline.virtual.output import Prefixed, Watcher
from paceline.virtual.persona import limit_threads
from paceline.virtual.stage import Stage, many_descriptors
from paceline.virtual.world import World


def main(argv: list[str]) -> NoReturn:
    """Run the script as all workers of the launch, and exit as the worst of them does."""
    flag, text, threads, script, *args = argv
    assert flag == "--launch", argv
    launch = decode_launch(text)
    end_with(launch.launcher_pid)
    signal.signal(signal.SIGTERM, _interrupt)
    many_descriptors()
    limit_threads(int(threads))
    present(script, args)
    console = Console(stdout=sys.stdout, stderr=sys.stderr, status=False)
    _leave(_run(launch, os.path.abspath(script), int(threads), console))


def _run(launch: Launch, path: str, threads: int, console: Console) -> int:
    watcher = Watcher(console, time_s=lambda: world.now_s(), clock_s=time.monotonic)
    world = World(out=launch.out, workers=launch.world_size, observer=watcher)
    stage = Stage(world, launch, path=path, threads=threads)
    streams = [Prefixed(console, name, stage.rank) for name in ("stdout", "stderr")]
    sys.stdout, sys.stderr = streams
    try:
        codes = stage.run()
    except KeyboardInterrupt:
        stage.flush()
        return 128 + signal.SIGINT
    finally:
        for stream in streams:
            stream.finish()
    world.close()
    write_outcome(launch.out, Outcome(time_s=world.now_s(), codes=codes, notices=watcher.notices))
    return max(codes)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _leave(code: int) -> NoReturn:
    """Exit without torch's own end: threads that wait would only be in its way."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
