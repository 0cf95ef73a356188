"""A worker reduced to its protocol, among several shards: the worker's own way there, without a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from hosts.remote_stand_in import RemoteStandIn
from paceline.gradients.buckets import buckets_of
from paceline.transport import messages
from paceline.transport.frame_channel import reach
from paceline.worker.payload_ways import ReceivedParameters
from paceline.worker.shard_ways import enter
from server.stand_in import StandIn

BUCKET_BYTES = 64


def divided(kind: type[StandIn]) -> type[StandIn]:
    """Stand-ins of this kind (near or far) that enter at all shards once they have opened."""

    class Divided(kind):  # type: ignore[valid-type,misc]
        def __init__(self, *args: Any, key: Any, **options: Any) -> None:
            self.keyfile = key
            self.reached: list[Any] = []
            super().__init__(*args, **({"key": key} if kind is RemoteStandIn else {}), **options)

        def hear(self, timeout_s: float = 20.0) -> Any:
            return self._understood(self.data.receive(timeout_s))

        def _understood(self, reply: Any) -> Any:
            if isinstance(reply, messages.Opened):
                self._enter(reply)
            if isinstance(reply, messages.Decided):
                self._next = reply.next
            return reply

        def ask(self, message: messages.Message, timeout_s: float = 20.0) -> Any:
            named = isinstance(message, messages.Ready | messages.Read | messages.TakeCut)
            if isinstance(message, messages.Ready) and self._next is not None:
                started, self._next = self._next, None
                return started
            if not named:
                return super().ask(message, timeout_s)
            reply = self.way.ask(message)
            if not isinstance(message, messages.Ready):
                return reply
            return self._shown(reply)

        def push(
            self, gradients: Sequence[torch.Tensor | None], weight: float = 1.0, **more: Any
        ) -> Any:
            self.fill(gradients)
            return self._shown(self.way.push(self.pushing(gradients, weight, **more)))

        def close(self) -> None:
            for channel in self.reached:
                channel.close()
            super().close()

        # ------------------------------------------------ what the way needs of a session

        @property
        def frames(self) -> Any:
            return self.data if kind is RemoteStandIn else None

        def reach(self, place: messages.ShardPlace) -> Any:
            far = kind is RemoteStandIn
            channel = reach(place.address if far else place.socket, self.keyfile)
            self._greet(channel, "data")
            self.reached.append(channel)
            return channel

        def request(self, message: messages.Message) -> Any:
            return self.exchange(message, lambda channel: channel.receive(20.0))

        def exchange(self, message: messages.Message, receive: Callable[[Any], Any]) -> Any:
            self.data.send(message)
            return self._understood(receive(self.data))

        def check(self) -> None:
            return

        def explain(self, error: Exception) -> Exception:
            return error

        def _enter(self, opened: messages.Opened) -> None:
            self.owners = opened.owners
            self.vectors = buckets_of(self.layout, BUCKET_BYTES)
            self.shown = [
                torch.nn.Parameter(view.clone()) for view in self.layout.views(self.region.memory)
            ]
            self.way, self.divided = enter(
                self, opened, self, self.shown, self.layout,  # type: ignore[arg-type]
                bucket_bytes=BUCKET_BYTES, early=False,
                received=partial(
                    ReceivedParameters, clock_s=time.monotonic, carried=lambda *_: None
                ),
            )  # fmt: skip
            self._shown(opened)

        def _shown(self, reply: Any) -> Any:
            if hasattr(reply, "parameters_fd"):
                self.divided.show(reply.parameters_fd)
                self.parameters = [one.data for one in self.shown]
            return reply

    return Divided


NEAR, FAR = divided(StandIn), divided(RemoteStandIn)


def crew(
    run: Any, far: Sequence[bool], values: Sequence[torch.Tensor], strategy: str,
    together: Callable[..., Any], **options: Any,
) -> list[StandIn]:  # fmt: skip
    """Opened workers; those that are ``far`` share memory with nobody."""
    workers = [
        FAR(run.far, rank, len(far), key=run.key)
        if one
        else NEAR(run.near, rank, len(far), key=run.key)
        for rank, one in enumerate(far)
    ]
    together([lambda w=w: w.ask(w.opening(values, strategy, **options)) for w in workers])
    return workers
