"""How the launchers of several hosts come together and part: one serves, the others listen to it.

Knows notices and no workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.launch.hosts import Hosts
from paceline.launch.observer import Observer, observe
from paceline.launch.summary import NoticeResult
from paceline.transport.channel import ChannelClosedError
from paceline.transport.framing import FrameError
from paceline.transport.messages import Launcher

if TYPE_CHECKING:
    from paceline.server.process import ServerProcess

AGAIN_AFTER_S = 0.5
ANSWERS_WITHIN_S = 0.7
"""Twice (to connect, to answer), and what follows, are less than the 2 s in which Ctrl-C ends a run."""
FIRST_WORD_AFTER_S = 3.0
NEXT_WORD_AFTER_S = 20.0
PARTING_S = 2.0
"""How long host 0 stays after the run was stopped, so that the others hear why."""

_GONE = ("left", "died", "evicted", "followed")


def meet(
    hosts: Hosts, launcher: Launcher, *, workers: int, given_up: Callable[[], bool],
    say: Callable[[str], None],
) -> Observer | None:  # fmt: skip
    """Wait until host 0's server answers, and listen to it; None once ``given_up``. Why it takes long is
    said now and then.

    Raises UsageError if it has another key, or was asked for another run.
    """
    due_s = time.monotonic() + FIRST_WORD_AFTER_S
    while not given_up():
        try:
            return observe(
                str(hosts.server),
                launcher,
                workers=workers,
                key=hosts.key,
                within_s=ANSWERS_WITHIN_S,
            )
        except (ChannelClosedError, FrameError, TimeoutError) as error:
            reason = str(error)
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + NEXT_WORD_AFTER_S
            say(f"host 0 is not there yet, and is tried again: {reason}")
        time.sleep(AGAIN_AFTER_S)
    return None


def own_shard(hosts: Hosts, directory: Path) -> ServerProcess:
    """The shard that this host holds, started. It ends with host 0's server."""
    from paceline.server.process import start_shard

    return start_shard(
        directory=directory, number=hosts.number, hub=hosts.server, key=hosts.key,
        parent_pid=os.getpid(),
    )  # fmt: skip


class Elsewhere:
    """Whether host 0 has to stay: ``own`` are its ranks, ``clock_s`` is notices' clock."""

    def __init__(self, own: Iterable[int], clock_s: Callable[[], float]) -> None:
        self._own = frozenset(own)
        self._clock_s = clock_s

    def over(self, notices: Iterable[NoticeResult]) -> bool:
        """All workers elsewhere that ever joined have gone, or the run was stopped a while ago."""
        there: set[int] = set()
        for notice in notices:
            if notice.kind == "halted":
                return self._clock_s() - notice.time_s > PARTING_S
            if notice.kind == "joined":
                there.add(notice.rank)
            elif notice.kind in _GONE:
                there.discard(notice.rank)
        return there <= self._own
