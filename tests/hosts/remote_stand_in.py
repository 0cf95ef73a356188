"""A worker on another host, reduced to its protocol: tensors as frames, over the loopback here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paceline.gradients.buckets import buckets_of
from paceline.transport import messages
from paceline.transport.frame_channel import FrameChannel, reach
from server.stand_in import StandIn


def bytes_of(memory: torch.Tensor) -> memoryview:
    return memoryview(memory.view(torch.uint8).numpy())


class RemoteStandIn(StandIn):
    """As a StandIn; ``address`` is ``tcp://HOST:PORT``, ``key`` the key's file."""

    control: FrameChannel
    data: FrameChannel

    def __init__(self, address: str, rank: int, world_size: int, *, key: Path | None, **more: Any):
        super().__init__(address, rank, world_size, connect=partial(reach, key_file=key), **more)
        self.received: dict[int, torch.Tensor] = {}
        self.data.receive_into(self._room)

    def opening(
        self, values: Sequence[torch.Tensor], strategy: str, **options: Any
    ) -> messages.Open:
        if self.rank == 0:
            super().opening(values, strategy, **dict(options))
            assert self.region is not None
            options["initial"] = bytes_of(self.region.memory).tobytes()
        return super().opening(values, strategy, **options)

    def buckets(self, bucket_bytes: int = 64) -> list[memoryview]:
        assert self.region is not None
        memory = bytes_of(self.region.memory)
        cut = buckets_of(self.layout, bucket_bytes)
        return [memory[bucket.start_bytes : bucket.stop_bytes] for bucket in cut]

    def push(
        self, gradients: Sequence[torch.Tensor | None], weight: float = 1.0, **more: Any
    ) -> Any:
        self.fill(gradients)
        for number, bucket in enumerate(self.buckets()):
            self.data.post(number, bucket)
        return self.ask(self.pushing(gradients, weight, **more))

    def _room(self, place: int, length: int) -> memoryview:
        self.received.setdefault(place, torch.zeros(length, dtype=torch.uint8))
        return bytes_of(self.received[place])

    def _views(self, fd: int) -> list[torch.Tensor]:
        return self.layout.views(self.received[messages.WINDOW])
