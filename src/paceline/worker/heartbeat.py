"""The thread that keeps a worker's control connection: says that it lives, hears that it must stop.

It beats whatever the main thread computes, so that a long step is not taken for a death. If the
main thread does not come to hear of a Stop, or the launcher is gone, it ends the process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import psutil

from paceline.transport.channel import Channel, ChannelClosedError
from paceline.transport.frame_channel import FrameChannel
from paceline.transport.framing import FrameError
from paceline.transport.messages import Abort, AbortKind, Beat, Stop
from paceline.worker.halt import Halt

BEAT_S = 1.0
GRACE_S = 5.0
EXIT_STOPPED = 3
"""Exit status of a worker that had to stop for a reason outside it."""


class Heartbeat:
    """Owner of the control connection. ``on_beat`` is called every second from its thread, and once
    more before it ends the process: the place to flush a trace.

    ``phase()``: what the main thread does, and for how many seconds; asked with every beat.
    """

    def __init__(
        self,
        channel: Channel | FrameChannel,
        *,
        launcher_pid: int | None,
        clock_s: Callable[[], float],
        on_beat: Callable[[], None],
    ) -> None:
        self._channel = channel
        self.halt = Halt()
        self._launcher = _process(launcher_pid)
        self._clock_s = clock_s
        self._on_beat = on_beat
        began_s = clock_s()
        self.phase: Callable[[], tuple[str, float]] = lambda: ("start", clock_s() - began_s)
        self._sending = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        self._deadline_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="paceline-heartbeat", daemon=True)
        self._thread.start()

    def abort(self, text: str, kind: AbortKind = "peer-failed") -> None:
        """Tell the server that this worker failed. A server that is gone needs no telling."""
        with contextlib.suppress(ChannelClosedError):
            self._send(Abort(text=text, kind=kind))

    def close(self) -> None:
        """End the thread and the connection."""
        os.write(self._wake_write, b"x")
        self._thread.join()
        self._channel.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def forget(self) -> None:
        """In a forked child, where the thread does not run: drop the copied descriptors."""
        self._channel.forget()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        next_beat_s = self._clock_s()
        while True:
            heard: list[Any] = [self._wake_read]
            if self.halt.text is None:
                heard.append(self._channel)
            ready: list[Any] = wait(heard, timeout=max(0.0, next_beat_s - self._clock_s()))
            if self._wake_read in ready:
                return
            if self._channel in ready:
                self._hear()
            if self._clock_s() >= next_beat_s:
                next_beat_s = self._clock_s() + BEAT_S
                self._beat()

    def _hear(self) -> None:
        try:
            message = self._channel.receive()
        except (ChannelClosedError, FrameError) as error:
            self.halt.server_lost(str(error))
            return
        assert isinstance(message, Stop), f"unexpected on a control connection: {message}"
        self.halt.stop(message)

    def _beat(self) -> None:
        self._on_beat()
        if self._launcher is not None and _has_ended(self._launcher):
            self._end("the launcher of this run is gone")
        if self.halt.text is not None:
            self._watch_halt(self.halt.text)
            return
        name, age_s = self.phase()
        try:
            self._send(Beat(phase=name, phase_age_s=age_s))
        except ChannelClosedError as error:
            self.halt.server_lost(str(error))

    def _watch_halt(self, text: str) -> None:
        """The main thread has GRACE_S to raise the reason itself; then the process ends."""
        if self._deadline_s is None:
            self._deadline_s = self._clock_s() + GRACE_S
        elif not self.halt.raised and self._clock_s() >= self._deadline_s:
            self._end(text)

    def _send(self, message: Abort | Beat) -> None:
        with self._sending:
            self._channel.send(message)

    def _end(self, text: str) -> None:
        self._on_beat()
        print(f"paceline: {text}", file=sys.stderr, flush=True)
        os._exit(EXIT_STOPPED)


def _process(pid: int | None) -> psutil.Process | None:
    try:
        return None if pid is None else psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
