"""What a launcher may say on its own while a run goes on, or at its end: that starting takes long, and
what is wrong.

An aside is asked a few times a second and answers with a sentence when it has one, and that once.
The verdict's thread works at the lowest priority and spends less than a hundredth of a core. Knows
the run's directory only; the judging is :mod:`paceline.diagnose`'s.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from paceline.errors import UsageError
from paceline.runs import rank_files

if TYPE_CHECKING:
    from paceline.diagnose.findings import Diagnosis, Finding

Aside = Callable[[], str]
LONG_START_S = 3.0
STOPPED_POLL_S = 1.0
STOPPED_FOR_S = 3.0
LOOK_EVERY_S = 10.0
FIRST_MINUTES_S = 180.0
GROWTH = 1.5
"""After the first minutes the pause grows: a verdict on an hour is not revised every minute."""
MAX_SHARE = 0.008
"""Of a core, to be spent on looking."""
BEGUN_POLL_S = 1.0
LEFT_ALONE_AFTER_S = 0.1
"""At the end: Ctrl-C has to end a run within two seconds, and a look has the lowest priority."""
LOWEST_PRIORITY = 19
LEAST_AT_END, MOST_AT_END_BYTES = 20, 20e6
"""Windows of a worker below which nothing can be said; and what takes longer to judge than a user waits."""


def slow_start(directory: Path, clock_s: Callable[[], float]) -> Aside:
    """Says so if no worker has come to its paceline.Worker in time; ``directory``: the run's."""
    by_s = clock_s() + LONG_START_S
    done = False

    def aside() -> str:
        nonlocal done
        if done or clock_s() < by_s:
            return ""
        done = True
        return "" if rank_files(directory) else (
            "the workers are still starting (importing torch, running the script up to its "
            "paceline.Worker)"
        )  # fmt: skip

    return aside


def stopped_server(is_stopped: Callable[[], bool], clock_s: Callable[[], float]) -> Aside:
    """Says so each time that the server's process was stopped and stays so: to those who wait for it, it
    looks slow."""
    due_s, since_s, said = 0.0, inf, False

    def aside() -> str:
        nonlocal due_s, since_s, said
        now_s = clock_s()
        if now_s < due_s:
            return ""
        due_s = now_s + STOPPED_POLL_S
        if not is_stopped():
            since_s, said = inf, False
            return ""
        since_s = min(since_s, now_s)
        if said or now_s - since_s < STOPPED_FOR_S:
            return ""
        said = True
        return (
            "the server's process is stopped (SIGSTOP, a debugger), and all workers wait for it: "
            "continue it with kill -CONT, or end the run with Ctrl-C"
        )

    return aside


class Certainty:
    """Fed one diagnosis after another: tells, once, what two of them in a row have found."""

    def __init__(self) -> None:
        self._before: tuple[str, tuple[int, ...]] | None = None

    def feed(self, diagnosis: Diagnosis) -> str:
        """The sentence, as soon as it is certain; else ""."""
        first = _first(diagnosis)
        found = None if first is None else (first.cause, first.ranks)
        certain = first is not None and found == self._before
        self._before = found
        return first.sentence if certain and first is not None else ""


def _first(diagnosis: Diagnosis) -> Finding | None:
    """The costliest finding that is worth interrupting for."""
    return next((one for one in diagnosis.findings if one.severity != "info"), None)


def _worth_saying(diagnosis: Diagnosis) -> str:
    first = _first(diagnosis)
    return "" if first is None else first.sentence


def _worth_a_look(directory: Path) -> bool:
    """Whether there may be enough to judge, and not too much for the end of a run."""
    size_bytes = sum(path.stat().st_size for _, path in rank_files(directory))
    return size_bytes <= MOST_AT_END_BYTES and _windows(directory) >= LEAST_AT_END


def _windows(directory: Path) -> int:
    """Windows that the worker with the most has recorded."""
    files = [path for _, path in rank_files(directory)]
    return max((path.read_bytes().count(b'["step"') for path in files), default=0)


def next_pause_s(pause_s: float, *, spent_s: float, since_s: float) -> float:
    """How long to wait after a look that has cost ``spent_s`` of a processor, ``since_s`` after the first
    windows."""
    usual_s = pause_s if since_s < FIRST_MINUTES_S else pause_s * GROWTH
    return max(usual_s, spent_s / MAX_SHARE)


class LiveVerdict:
    """An aside: diagnoses the run in ``directory`` now and then, in a thread. Close it at the end, when
    :meth:`last` may have something to say that a short run was over too soon for.

    ``shown``: the directory as people are to type it. ``every_s``: from the first recorded windows on, for
    however slowly workers start, nothing can be seen before.
    """

    def __init__(self, directory: Path, *, shown: str, every_s: float = LOOK_EVERY_S) -> None:
        self._directory = directory
        self._shown = shown
        self._every_s = every_s
        self._said: SimpleQueue[str] = SimpleQueue()
        self._has_spoken = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-verdict", daemon=True)
        self._thread.start()

    def __call__(self) -> str:
        """What there is to say now."""
        try:
            return self._worded(self._said.get_nowait())
        except Empty:
            return ""

    def last(self) -> str:
        """What there is to say now that the run has ended: there is no more to come, so one look is certain."""
        if (late := self()) or self._has_spoken or not _worth_a_look(self._directory):
            return late
        found = _look(self._directory)
        sentence = "" if found is None else _worth_saying(found)
        return self._worded(sentence) if sentence else ""

    def _worded(self, sentence: str) -> str:
        self._has_spoken = True
        return f"{sentence} ('paceline diagnose {self._shown}' says more)"

    def close(self) -> None:
        """No more looks. One that is under way is left to itself: it only reads."""
        self._stop.set()
        self._thread.join(timeout=LEFT_ALONE_AFTER_S)

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # on Linux this is the thread's alone
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        _look(self._directory)  # imports what looking takes, once, while workers start
        while not _windows(self._directory):
            if self._stop.wait(min(BEGUN_POLL_S, self._every_s)):
                return
        if sentence := self._looked_until_certain():
            self._said.put(sentence)

    def _looked_until_certain(self) -> str:
        """The sentence; "" if the run has ended before."""
        certainty, pause_s, sentence = Certainty(), self._every_s, ""
        begun_s = time.monotonic()
        while not sentence and not self._stop.wait(pause_s):
            spent_s = -time.thread_time()
            sentence = certainty.feed(found) if (found := _look(self._directory)) else ""
            spent_s += time.thread_time()
            pause_s = next_pause_s(pause_s, spent_s=spent_s, since_s=time.monotonic() - begun_s)
        return sentence


def _look(directory: Path) -> Diagnosis | None:
    """The diagnosis as far as the run has come; None if there is nothing to read yet."""
    from paceline.diagnose.verdict import diagnose
    from paceline.runs import read_workers

    try:
        return diagnose(read_workers(directory))
    except UsageError:
        return None
