"""The parameters in shared memory: who reads which version, and where the next one is written.

Nobody copies parameters. A worker reads a version where it lies, in a buffer that is not written to
as long as anybody holds it; an update is written over the current version if nobody reads that one,
else into a buffer that nobody holds. So every worker always sees one whole version, and there are at
most as many buffers as workers (one more for each that evaluates inside its loop). Knows no gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline.server.masters import Masters
from paceline.server.tiles import Pieces
from paceline.transport.shared_memory import Region


class Buffer:
    """Room for one version. ``fd``: how workers find it, and its name. ``written``: how often it was."""

    def __init__(self, size_bytes: int) -> None:
        self._region = Region.create(size_bytes)
        self.fd = self._region.fd
        self.written = 0
        self.pieces = Pieces(self._region.memory)

    def close(self) -> None:
        """Let go of it."""
        self._region.close()
        self.pieces = Pieces(self._region.memory)


@dataclass(kw_only=True, slots=True)
class _Holds:
    """What one worker reads: for its window, and, while it evaluates inside one, for that."""

    window: Buffer | None = None
    glance: Buffer | None = None


class Versions:
    """``initial``: the first version's bytes (uint8, laid out), or the masters that versions are
    copies of."""

    def __init__(self, initial: torch.Tensor | Masters) -> None:
        self._masters = initial if isinstance(initial, Masters) else None
        if isinstance(initial, Masters):
            self._size_bytes = initial.size_bytes
            self._current = Buffer(self._size_bytes)
            initial.copy_to(self._current.pieces.memory)
        else:
            self._size_bytes = initial.numel()
            self._current = Buffer(self._size_bytes)
            self._current.pieces.memory.copy_(initial)
        self._buffers = [self._current]
        self._holds: dict[int, _Holds] = {}

    @property
    def current(self) -> Buffer:
        """The latest version, whole."""
        return self._current

    def named(self, fd: int) -> Buffer:
        """The buffer that answers call ``fd``."""
        return next(buffer for buffer in self._buffers if buffer.fd == fd)

    @property
    def source(self) -> Pieces:
        """What an update starts from."""
        return self._current.pieces if self._masters is None else self._masters.pieces

    def target(self, room: Buffer) -> Pieces:
        """Where an update that shall be in ``room`` is written."""
        return room.pieces if self._masters is None else self._masters.pieces

    def give(self, rank: int) -> int:
        """``rank`` reads the latest version from now on, and no other; returns the buffer's fd."""
        self._holds[rank] = _Holds(window=self._current)
        return self._current.fd

    def lend(self, rank: int) -> int:
        """``rank`` looks at the latest version beside the one it has, until it asks again."""
        self._holds.setdefault(rank, _Holds()).glance = self._current
        return self._current.fd

    def show(self, rank: int, copy: Buffer) -> None:
        """``rank`` reads ``copy`` for its window, which is its own, and no version."""
        self._holds[rank] = _Holds(window=copy)

    def take_back(self, rank: int) -> None:
        """``rank`` reads nothing: it waits for an answer, or is gone."""
        self._holds.pop(rank, None)

    def held(self, rank: int) -> Buffer:
        """What ``rank`` reads for its window; the latest version if it has none."""
        holds = self._holds.get(rank)
        return self._current if holds is None or holds.window is None else holds.window

    def lent(self, rank: int) -> Buffer:
        """What ``rank`` looks at beside its window's; the latest version if nothing."""
        holds = self._holds.get(rank)
        return self._current if holds is None or holds.glance is None else holds.glance

    def room(self) -> Buffer:
        """Where the next version can be written: over the current one if nobody reads it."""
        held = [b for holds in self._holds.values() for b in (holds.window, holds.glance)]
        if self._current not in held:
            return self._current
        free = [buffer for buffer in self._buffers if buffer not in held]
        return free[0] if free else self._enlarge()

    def publish(self, buffer: Buffer) -> None:
        """An update is written: ``buffer`` holds the latest version now."""
        if self._masters is not None:
            self._masters.copy_to(buffer.pieces.memory)
        buffer.written += 1
        self._current = buffer

    def close(self) -> None:
        """Let go of all buffers; what workers have mapped stays valid for them."""
        for buffer in self._buffers:
            buffer.close()

    def _enlarge(self) -> Buffer:
        self._buffers.append(Buffer(self._size_bytes))
        return self._buffers[-1]
