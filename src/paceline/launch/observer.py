"""The launcher's ear at the server: what it reports about the workers, as it comes."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from paceline.errors import UsageError
from paceline.transport.channel import Channel, ChannelClosedError
from paceline.transport.frame_channel import ANSWERS_WITHIN_S, FrameChannel, reach
from paceline.transport.messages import (
    PROTOCOL_VERSION,
    Hello,
    Launcher,
    Notice,
    ProcessEnded,
    Progress,
    Stop,
)

Report = Notice | Progress


class Observer:
    """A connection that listens, and tells of workers that ended. ``fileno`` is readable when there may be
    reports."""

    def __init__(self, channel: Channel | FrameChannel) -> None:
        self._channel = channel
        self.open = True

    def fileno(self) -> int:
        return self._channel.fileno()

    def read(self) -> list[Report]:
        """All reports that have arrived, without waiting; ``open`` falls when the server is gone."""
        reports: list[Report] = []
        try:
            while True:
                message = self._channel.receive(timeout_s=0)
                if isinstance(message, Notice | Progress):
                    reports.append(message)
        except TimeoutError:
            pass
        except ChannelClosedError:
            self.open = False
        return reports

    def ended(self, rank: int, text: str) -> None:
        """The process of worker ``rank`` is no more: others may wait for it to join."""
        with suppress(ChannelClosedError):
            self._channel.send(ProcessEnded(rank=rank, text=text))

    def close(self) -> None:
        self.open = False
        self._channel.close()


def observe(
    address: str, launcher: Launcher, *, workers: int, key: Path | None = None,
    within_s: float = ANSWERS_WITHIN_S,
) -> Observer:  # fmt: skip
    """Connect to the server at ``address``, on another host by the key in the file ``key``, and be let in
    ``within_s`` of each question.

    Raises UsageError if the server refuses; ChannelClosedError, FrameError or TimeoutError if there is none.
    """
    channel = reach(address, key, timeout_s=within_s)
    try:
        channel.send(_hello(launcher, workers))
        answer = channel.receive(within_s)
        if isinstance(answer, Stop) and answer.kind == "refused":
            raise UsageError(answer.text)
    except BaseException:
        channel.close()
        raise
    return Observer(channel)


def _hello(launcher: Launcher, workers: int) -> Hello:
    return Hello(
        protocol=PROTOCOL_VERSION, role="observer", rank=-1, world_size=workers, pid=os.getpid(),
        host=socket.gethostname(), evict_after_s=0.0, launcher=launcher,
    )  # fmt: skip
