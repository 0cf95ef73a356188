"""The process of a virtual run: ``python -m paceline.virtual --launch JSON THREADS script args...``

Started by :mod:`paceline.launch.virtual`, which reads what it leaves behind in ``virtual.json``.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from paceline.errors import UsageError
from paceline.launch.bootstrap import EXIT_RAISED, decode_launch, end_with
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
    streams = [Prefixed(console, name, lambda: stage.rank()) for name in ("stdout", "stderr")]
    sys.stdout, sys.stderr = streams
    stage = Stage(world, launch, path=path, threads=threads)
    try:
        codes = stage.run()
    except KeyboardInterrupt:
        stage.flush()
        return 128 + signal.SIGINT
    except UsageError as error:
        stage.flush()
        console.say(str(error))
        return EXIT_RAISED
    finally:
        sys.stdout, sys.stderr = streams
        end_scripts()
        for stream in streams:
            stream.finish()
    world.close()
    write_outcome(launch.out, Outcome(time_s=world.now_s(), codes=codes, notices=watcher.notices))
    return max(codes)


def end_scripts() -> None:
    """What the interpreter does at its end: exit functions run, open files get what was written to them."""
    atexit._run_exitfuncs()
    flush_open_files()


def flush_open_files() -> None:
    """Write out what any file of the process that was never closed still holds back."""
    for one in gc.get_objects():
        # isinstance would ask the object itself: some (torch's deprecated names) answer with a warning
        if issubclass(type(one), io.TextIOWrapper | io.BufferedWriter) and not one.closed:
            with suppress(OSError, ValueError):
                one.flush()


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
