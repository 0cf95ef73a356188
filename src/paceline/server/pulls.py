"""What workers are sent of the parameters: a whole version, or how it differs from what they have.

For each worker that is sent differences there is a copy of what it has, bit for bit; nobody else changes
either. An answer that starts a window brings the copy, and with it the worker, nearer to the version that
the answer names. Answers to those who ask for a version itself (at the beginning and the end of a pass,
to evaluate, to save) name the version. Knows no sockets; how differences are encoded is the codecs'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec
import torch

from paceline.compression import Compression, WarmUpShare
from paceline.gradients.codecs.differences import Differences
from paceline.gradients.codecs.packing import Moment
from paceline.gradients.layout import FlatLayout
from paceline.server.opening import bytes_of
from paceline.server.parcels import Stored
from paceline.server.versions import Buffer
from paceline.transport.messages import DIFFERENCE, Decided, Started

Name = tuple[int, int]
"""Of a version: equal if and only if the bytes are."""


@dataclass(kw_only=True, slots=True)
class Copy:
    """``buffer``: what the worker has; ``reached``: the version that it was last brought nearer to;
    ``parcel``: the bytes that did so, "" if the worker has them."""

    buffer: Buffer
    views: list[torch.Tensor]
    reached: Name
    parcel: memoryview


class Lending(Protocol):
    """Versions, wherever they are: see :class:`paceline.server.versions.Versions`."""

    def give(self, rank: int) -> int: ...

    def named(self, fd: int) -> Buffer: ...

    def show(self, rank: int, copy: Buffer) -> None: ...

    def take_back(self, rank: int) -> None: ...


class Pulls:
    """``far``: the workers that are sent differences, by ``compression``, of ``layout``; ``workers``: that
    push. Whoever is not among the former is given whole ``versions``."""

    def __init__(
        self,
        versions: Lending,
        *,
        compression: Compression | None,
        layout: FlatLayout,
        far: Iterable[int],
        workers: int,
        clock_s: Callable[[], float],
    ) -> None:
        self._versions = versions
        self._layout = layout
        self._clock_s = clock_s
        self._copies: dict[int, Copy] = {}
        self._far: frozenset[int] = frozenset()
        if compression is not None:
            self._far = frozenset(far)
            self._differences = Differences(compression, layout.slots)
            self._share = WarmUpShare(updates=compression.warmup, workers=workers)

    def exact(self, rank: int) -> int:
        """``rank`` reads the latest version itself from now on; returns its buffer's fd."""
        fd = self._versions.give(rank)
        if rank in self._far:
            copy = self._copies.get(rank) or self._new(rank)
            self._is_now(copy, self._versions.named(fd))
        return fd

    def started(self, rank: int, started: Started, window: int) -> Started:
        """What ``rank`` is told of its next window, of ``window`` loader batches."""
        copy = self._copies.get(rank)
        if copy is None:
            return started
        version = self._versions.named(started.parameters_fd)
        began_s, size = self._clock_s(), 0
        if copy.reached != _name(version):
            share = self._share.at(started.progress, window)
            if not self._bring(copy, version, Moment(turn=started.version, share=share, unit=1.0)):
                return started
            size = copy.parcel.nbytes
        self._versions.show(rank, copy.buffer)
        return msgspec.structs.replace(
            started, parameters_fd=copy.buffer.fd, difference_bytes=size,
            coding_s=self._clock_s() - began_s,
        )  # fmt: skip

    def decided(self, rank: int, decided: Decided) -> Decided:
        """What ``rank`` is told of its push, if it cannot go on yet: it has what it had."""
        copy = self._copies.get(rank)
        if copy is None:
            return decided
        self._versions.show(rank, copy.buffer)
        return msgspec.structs.replace(decided, parameters_fd=copy.buffer.fd)

    def stored(self, fd: int) -> Stored:
        """What has to be sent of what answers call ``fd``."""
        for copy in self._copies.values():
            if copy.buffer.fd == fd:
                return Stored(name=_name(copy.buffer), memory=copy.parcel, place=DIFFERENCE)
        buffer = self._versions.named(fd)
        return Stored(name=_name(buffer), memory=bytes_of(buffer.pieces.memory))

    def forget(self, rank: int) -> None:
        """``rank`` reads nothing any more."""
        self._versions.take_back(rank)
        if (copy := self._copies.pop(rank, None)) is not None:
            copy.views.clear()
            copy.buffer.close()

    def close(self) -> None:
        """Let go of the copies."""
        for rank in list(self._copies):
            self.forget(rank)

    def _new(self, rank: int) -> Copy:
        buffer = Buffer(self._layout.total_bytes)
        views = self._layout.views(buffer.pieces.memory)
        copy = Copy(buffer=buffer, views=views, reached=(-1, -1), parcel=_NOTHING)
        self._copies[rank] = copy
        return copy

    def _is_now(self, copy: Copy, version: Buffer) -> None:
        """The worker is sent the whole ``version``."""
        copy.buffer.pieces.memory.copy_(version.pieces.memory)
        copy.buffer.written += 1
        copy.reached, copy.parcel = _name(version), _NOTHING

    def _bring(self, copy: Copy, version: Buffer, moment: Moment) -> bool:
        """Bring ``copy`` nearer to ``version``; False if it is that itself, to be sent whole: something
        in it is not finite."""
        current = self._layout.views(version.pieces.memory)
        parcel = self._differences.encode(current, copy.views, moment)
        if parcel is None:
            self._is_now(copy, version)
            return False
        copy.buffer.written += 1
        copy.reached, copy.parcel = _name(version), bytes_of(parcel)
        return True


_NOTHING = memoryview(b"")


def _name(buffer: Buffer) -> Name:
    return buffer.fd, buffer.written
