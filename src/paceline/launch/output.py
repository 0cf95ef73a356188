"""What the user sees while workers run: their lines, prefixed; the launcher's own; one status line.

Workers' stdout goes to our stdout and their stderr to ours; what the launcher says goes to stderr.
Knows nothing of processes.
"""

from __future__ import annotations

from typing import Literal, TextIO

HARMLESS = "[c10d] The hostname of the client socket cannot be retrieved"
"""torch's warning that an address has no name, on every host of most networks: nothing depends on it."""
MAX_PARTIAL_BYTES = 64 * 2**10
StreamName = Literal["stdout", "stderr"]


class LineSplitter:
    """Cuts a stream of bytes into lines of text.

    Of a line that is written over with carriage returns (a progress bar), the last state counts.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes, without their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_PARTIAL_BYTES:
            lines.append(self._rest)
            self._rest = b""
        return [_shown(line) for line in lines]

    def finish(self) -> list[str]:
        """The last line, if the stream did not end with a line's end."""
        rest, self._rest = self._rest, b""
        return [_shown(rest)] if rest else []


class Console:
    """Writes to the user's two streams; a status line, if shown, stays below everything else."""

    def __init__(self, *, stdout: TextIO, stderr: TextIO, status: bool) -> None:
        self._streams = {"stdout": stdout, "stderr": stderr}
        self._with_status = status
        self._status = ""

    def worker_line(self, stream: StreamName, rank: int, text: str) -> None:
        """One line of a worker's output."""
        if HARMLESS in text:
            return
        self._write(stream, f"[{rank}] {text}\n")

    def line(self, stream: StreamName, text: str) -> None:
        """One line as it is."""
        self._write(stream, f"{text}\n")

    def say(self, text: str) -> None:
        """One line of the launcher's own."""
        self._write("stderr", f"paceline: {text}\n")

    def status(self, text: str) -> None:
        """Replace the status line (nothing, where it is not shown; "" removes it)."""
        if self._with_status:
            self._put("stderr", f"\r\x1b[K{text}")
            self._status = text

    def _write(self, stream: StreamName, text: str) -> None:
        status = self._status
        if status:
            self.status("")
        self._put(stream, text)
        if status:
            self.status(status)

    def _put(self, stream: StreamName, text: str) -> None:
        """Write and flush. A reader that went away (``| head``) must not end a training."""
        target = self._streams.get(stream)
        if target is None:
            return
        try:
            target.write(text)
            target.flush()
        except BrokenPipeError:
            del self._streams[stream]
            self.say(f"nobody reads {stream} any more; the run goes on without it")


def _shown(line: bytes) -> str:
    return line.rstrip(b"\r").rsplit(b"\r", 1)[-1].decode("utf-8", "replace")
