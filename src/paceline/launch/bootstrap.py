"""A worker process's entry: become who the launcher says, then run the user's script.

    python -m paceline.launch.bootstrap --launch '<json>' script.py args...

The script sees what ``python script.py args...`` would show it: ``__main__``, ``sys.argv``,
``sys.path[0]``, tracebacks without our frames. Besides, its randomness is seeded, its threads are
limited, and it ends when its launcher does.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from paceline.errors import StoppedError
from paceline.launch.context import Launch, install
from paceline.launch.script import compiled, main_module, present, script_frames
from paceline.launch.seeding import seed_everything

EXIT_RAISED = 1
EXIT_STOPPED = 3
EXIT_TERMINATED = 128 + signal.SIGTERM
_PR_SET_PDEATHSIG = 1


def encode_launch(launch: Launch) -> str:
    """The launch as text for a command line."""
    return json.dumps(asdict(launch), default=str)


def decode_launch(text: str) -> Launch:
    """The launch that :func:`encode_launch` wrote."""
    fields: dict[str, Any] = json.loads(text)
    for name in ("out", "emulate", "resume", "replay", "key"):
        fields[name] = None if fields[name] is None else Path(fields[name])
    return Launch(**fields)


def main(argv: list[str]) -> NoReturn:
    """Run ``--launch JSON THREADS script args...`` and exit as the script does."""
    flag, text, threads, script, *args = argv
    assert flag == "--launch", argv
    launch = decode_launch(text)
    end_with(launch.launcher_pid)
    if launch.server is None:
        _unwind_on_sigterm()
    line_buffered()
    _limit_threads(int(threads))
    if launch.seed is not None:
        seed_everything(launch.seed)
    install(launch)
    sys.exit(_run(script, args, told=launch.replay is None))


def _run(script: str, args: list[str], *, told: bool) -> int | str | None:
    """Run the script as ``__main__``; the value to hand to ``sys.exit``.

    ``told``: each worker says why it was stopped. In a replay all have one reason, the verdict's.
    """
    path = os.path.abspath(script)
    module = main_module(path)
    sys.modules["__main__"] = module
    present(script, args)
    try:
        exec(compiled(path), module.__dict__)
    except StoppedError as error:
        if told:
            print(f"stopped: {error}", file=sys.stderr)
        _leave(EXIT_STOPPED)
    except Exception as error:
        shown = error.with_traceback(script_frames(error.__traceback__, path))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return EXIT_RAISED
    return None


def _leave(code: int) -> NoReturn:
    """Exit after the exit functions, but without torch's own end.

    Its threads may wait for a peer that is gone, and the process would abort instead of ending.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end_with(launcher_pid: int | None) -> None:
    """Have the kernel send SIGTERM when the launcher ends, however it ends (Linux)."""
    if launcher_pid is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != launcher_pid:
        sys.exit(EXIT_TERMINATED)


def _unwind_on_sigterm() -> None:
    """SIGTERM ends this process like ``sys.exit``; its forked children keep the default.

    For a worker that is alone. One that has a server is asked to stop by the server, which meets it
    between two messages; an exception from a signal would break off in the middle of one.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, end)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def line_buffered() -> None:
    """Whole lines leave at once although the launcher reads through a pipe."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


if __name__ == "__main__":
    # The imported module, not this __main__, which the script's is about to replace.
    from paceline.launch import bootstrap

    bootstrap.main(sys.argv[1:])
