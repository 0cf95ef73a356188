"""What workers of one process print, line by line with the rank before it; and how far the run is.

Knows no clock and no worker: who prints is asked for at each write.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from paceline.launch.observer import Report
from paceline.launch.output import Console, LineSplitter, StreamName
from paceline.launch.supervisor import QUIET_KINDS
from paceline.launch.virtual import STATUS_MARK
from paceline.transport.messages import Message, Notice, Progress

STATUS_EVERY_S = 0.2


class _Lines(io.RawIOBase):
    """Cuts what is written into lines, of each rank apart."""

    def __init__(self, console: Console, stream: StreamName, who: Callable[[], int | None]) -> None:
        self.name = f"<{stream}>"
        self._console = console
        self._stream = stream
        self._who = who
        self._splitters: dict[int | None, LineSplitter] = {}

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """For programs that the script starts: what they print carries no rank."""
        return {"stdout": 1, "stderr": 2}[self._stream]

    def write(self, data: Any) -> int:
        """Pass on the lines that ``data`` completes."""
        rank = self._who()
        splitter = self._splitters.setdefault(rank, LineSplitter())
        self._pass_on(rank, splitter.feed(bytes(data)))
        return len(data)

    def finish(self) -> None:
        """Pass on what did not end with a line's end."""
        for rank, splitter in self._splitters.items():
            self._pass_on(rank, splitter.finish())

    def _pass_on(self, rank: int | None, lines: list[str]) -> None:
        for line in lines:
            if rank is None:
                self._console.line(self._stream, line)
            else:
                self._console.worker_line(self._stream, rank, line)


class Prefixed(io.TextIOWrapper):
    """Stands for ``sys.stdout`` or ``sys.stderr``. ``who()``: the rank that prints, None for none."""

    def __init__(self, console: Console, stream: StreamName, who: Callable[[], int | None]) -> None:
        self._lines = _Lines(console, stream, who)
        super().__init__(self._lines, "utf-8", "replace", write_through=True)

    def finish(self) -> None:
        """Pass on what did not end with a line's end."""
        self._lines.finish()


class Watcher:
    """The server's observer: notices are printed and kept, progress becomes a status line.

    ``time_s()``: simulated, for people; ``clock_s()``: real, so that the status is not shown too often.
    """

    def __init__(
        self, console: Console, *, time_s: Callable[[], float], clock_s: Callable[[], float]
    ) -> None:
        self.open = True
        self.trusted = True
        self.remote = False
        self.notices: list[tuple[float, Notice]] = []
        self._console = console
        self._time_s = time_s
        self._clock_s = clock_s
        self._began_s = self._shown_s = clock_s()

    def send(self, message: Message) -> None:
        """Heed a report of the server's."""
        if isinstance(message, Notice):
            self.notices.append((self._time_s(), message))
            if message.kind not in QUIET_KINDS:
                self._console.say(message.text)
        elif isinstance(message, Progress):
            self._show(message)

    def trust(self, peer: str, *, urgent: bool) -> None:
        """It is."""

    def carry(self, intake: object, outgo: object) -> None:
        """No tensors come this way."""

    def read(self) -> int:
        """It says nothing."""
        return 0

    def close(self) -> None:
        """Hear no more."""
        self.open = False

    def _show(self, progress: Report) -> None:
        assert isinstance(progress, Progress)
        now_s = self._clock_s()
        if now_s - self._shown_s < STATUS_EVERY_S:
            return
        self._shown_s = now_s
        self._console.line(
            "stderr",
            f"{STATUS_MARK}{now_s - self._began_s:5.0f} s   virtual {self._time_s():,.1f} s   "
            f"version {progress.version:,}   {progress.samples:,.0f} samples",
        )
