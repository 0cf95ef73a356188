"""A worker reduced to its protocol: what the server's tests talk to the server with.

Several stand-ins can live in one process (a thread each); they then share its process id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.gradients.layout import FlatLayout, dense_stride, layout_of
from paceline.transport import messages
from paceline.transport.channel import connect
from paceline.transport.shared_memory import Region


class StandIn:
    """Rank ``rank`` of ``world_size``, connected. ``parameters``, ``gradients``: once opened."""

    def __init__(
        self,
        address: str,
        rank: int,
        world_size: int,
        *,
        evict_after_s: float = 10.0,
        pid: int | None = None,
        connect: Callable[[str], Any] = connect,
    ) -> None:
        self.rank = rank
        self.hello: dict[str, Any] = {
            "protocol": messages.PROTOCOL_VERSION, "rank": rank, "world_size": world_size,
            "pid": pid or os.getpid(), "host": "here", "evict_after_s": evict_after_s,
        }  # fmt: skip
        self.control = connect(address)
        self.data = connect(address)
        self.welcome = self._greet(self.control, "control")
        self._greet(self.data, "data")
        self.region: Region | None = None
        self.parameters: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []
        self.leased: list[int] = []
        self._server_pid = 0
        self._next: messages.Started | None = None
        self._buffers: dict[int, list[torch.Tensor]] = {}

    def ask(self, message: messages.Message, timeout_s: float = 20.0) -> Any:
        """Send a request and wait for the reply (a window may have been started already)."""
        if isinstance(message, messages.Ready) and self._next is not None:
            started, self._next = self._next, None
            return started
        self.data.send(message)
        return self.hear(timeout_s)

    def hear(self, timeout_s: float = 20.0) -> Any:
        """The next reply; ``parameters`` are then those it speaks of."""
        reply = self.data.receive(timeout_s)
        if isinstance(reply, messages.Opened):
            self._server_pid = reply.server_pid
        if isinstance(reply, messages.Decided):
            self._next = reply.next
        if hasattr(reply, "parameters_fd"):
            self.parameters = self._views(reply.parameters_fd)
        return reply

    def beat(self, phase: str = "forward", age_s: float = 0.0) -> None:
        self.control.send(messages.Beat(phase=phase, phase_age_s=age_s))

    def opening(
        self, values: Sequence[torch.Tensor], strategy: str, **options: Any
    ) -> messages.Open:
        """The Open request for a model of these parameters, which go into a new region."""
        layout = _layout(values)
        total_bytes = layout.total_bytes
        self.layout = layout
        self.region = self.region or Region.create(total_bytes)
        self.gradients = layout.views(self.region.memory)
        for initial, value in zip(self.gradients, values, strict=True):
            initial.copy_(value)
        optimizer = options.pop("optimizer", ("SGD", {"lr": 0.1}))
        name, hyper = optimizer
        groups = hyper if isinstance(hyper, list) else [hyper]
        options = {"clip_norm": None, "state": None, "bucket_bytes": 64, **options}
        of_group = options.pop("of_group", [0] * len(values))
        return messages.Open(
            strategy=strategy,
            manifest=[
                messages.Tensor(
                    name=slot.name, shape=slot.shape, stride=slot.stride,
                    dtype=str(slot.dtype).removeprefix("torch."), group=group,
                )
                for slot, group in zip(layout.slots, of_group, strict=True)
            ],
            optimizer=messages.OptimizerSpec(name=name, groups=groups),
            region_fd=self.region.fd,
            region_bytes=total_bytes,
            **options,
        )  # fmt: skip

    def open_pass(self, total: int | None, *, pass_id: int = 0, window: int = 1) -> list[int]:
        reply = self.ask(
            messages.OpenPass(
                pass_id=pass_id, total=total, window=window, depth=window, weight=float(window),
                split=True,
            )
        )  # fmt: skip
        assert isinstance(reply, messages.Leased), reply
        return reply.batches

    def push(
        self, gradients: Sequence[torch.Tensor | None], weight: float = 1.0, **more: Any
    ) -> Any:
        """Put these gradients into the region and push them; the reply."""
        self.fill(gradients)
        return self.ask(self.pushing(gradients, weight, **more))

    def fill(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for view, gradient in zip(self.gradients, gradients, strict=True):
            view.zero_() if gradient is None else view.copy_(gradient)

    def pushing(
        self, gradients: Sequence[torch.Tensor | None], weight: float = 1.0, **more: Any
    ) -> messages.Push:
        used = bytes(gradient is not None for gradient in gradients)
        norm = sum(float(g.square().sum()) for g in gradients if g is not None) ** 0.5
        given = {"unit": 1.0, "bad": "", "norm": norm, "stop": False, "total": None, **more}
        given.setdefault("groups", None)
        return messages.Push(weight=weight, used=used, **given)

    def leave(self, reason: str = "finished") -> None:
        """Say Bye and close. A Stop may still be under way when a run was halted."""
        reply = self.ask(messages.Bye(reason=reason))  # type: ignore[arg-type]
        while isinstance(reply, messages.Stop):
            reply = self.data.receive(20.0)
        assert reply == messages.Gone(), reply
        self.close()

    def close(self) -> None:
        for channel in (self.control, self.data):
            channel.close()
        if self.region is not None:
            self.region.close()

    def _views(self, fd: int) -> list[torch.Tensor]:
        """The parameters in the server's buffer ``fd``."""
        if fd not in self._buffers:
            region = Region.open(self._server_pid, fd, self.layout.total_bytes)
            self._buffers[fd] = self.layout.views(region.memory)
            region.close()
        return self._buffers[fd]

    def _greet(self, channel: Any, role: str) -> Any:
        channel.send(messages.Hello(role=role, **self.hello))  # type: ignore[arg-type]
        return channel.receive(20.0)


def observe(address: str, world_size: int) -> Any:
    """An observer's channel."""
    channel = connect(address)
    channel.send(
        messages.Hello(
            role="observer", protocol=messages.PROTOCOL_VERSION, rank=-1, world_size=world_size,
            pid=os.getpid(), host="here", evict_after_s=10.0,
        )
    )  # fmt: skip
    assert isinstance(channel.receive(20.0), messages.Welcome)
    return channel


def _layout(values: Sequence[torch.Tensor]) -> FlatLayout:
    return layout_of(
        [(f"p{i}", tuple(v.shape), dense_stride(v), v.dtype) for i, v in enumerate(values)]
    )
