"""The launcher's ear at the server: what it reports about the workers, as it comes."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from paceline.transport.channel import Channel, ChannelClosedError
from paceline.transport.frame_channel import FrameChannel, reach
from paceline.transport.messages import PROTOCOL_VERSION, Abort, Hello, Notice, Progress

Report = Notice | Progress


class Observer:
    """A connection that listens, and can stop the run. ``fileno`` is readable when there may be reports."""

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

    def abort(self, text: str) -> None:
        """Have the server stop every worker with ``text``."""
        with suppress(ChannelClosedError):
            self._channel.send(Abort(text=text))

    def close(self) -> None:
        self.open = False
        self._channel.close()


def observe(address: str, *, workers: int, key: Path | None = None) -> Observer:
    """Connect to the server at ``address``, on another host by the key in the file ``key``. Raises
    ChannelClosedError if it is not there."""
    channel = reach(address, key)
    channel.send(
        Hello(
            protocol=PROTOCOL_VERSION,
            role="observer",
            rank=-1,
            world_size=workers,
            pid=os.getpid(),
            host=socket.gethostname(),
            evict_after_s=0.0,
        )
    )
    return Observer(channel)
