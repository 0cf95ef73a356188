"""Memory that a worker and the server both see: an anonymous file (memfd) that has no name.

Nothing lies in /dev/shm, so nothing can be left behind there, and containers' small /dev/shm does
not matter: the kernel frees the memory when the last process that maps it is gone. There are no
locks and no flags in a region; who owns it is said by messages.
"""

from __future__ import annotations

import fcntl
import mmap
import os

import torch

from paceline.errors import UsageError

_NAME = "paceline-region"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Region:
    """A page-aligned piece of shared memory. ``memory``: all of it, as a uint8 tensor.

    The mapping lasts as long as ``memory`` or a view of it does, also after ``close``.
    """

    def __init__(self, *, fd: int, size_bytes: int) -> None:
        self.fd = fd
        self.memory = torch.frombuffer(mmap.mmap(fd, size_bytes), dtype=torch.uint8)

    @classmethod
    def create(cls, size_bytes: int) -> Region:
        """A new region of zeros. Its size is sealed, so that no mapping of it can ever fault."""
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size_bytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            return cls(fd=fd, size_bytes=size_bytes)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def open(cls, pid: int, fd: int, size_bytes: int) -> Region:
        """The region that process ``pid`` holds as its descriptor ``fd``.

        Raises :class:`UsageError` if that is no region of exactly ``size_bytes``, and OSError if
        the process is gone.
        """
        path = f"/proc/{pid}/fd/{fd}"
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            raise UsageError(f"{path}: expected a paceline region.")
        own = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _check(own, path, size_bytes)
            return cls(fd=own, size_bytes=size_bytes)
        except BaseException:
            os.close(own)
            raise

    def close(self) -> None:
        """Let go of the region; views that others still hold stay valid. Twice is once."""
        self.memory = torch.empty(0, dtype=torch.uint8)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _check(fd: int, path: str, size_bytes: int) -> None:
    found_bytes = os.fstat(fd).st_size
    if found_bytes != size_bytes:
        raise UsageError(f"{path}: has {found_bytes} bytes; expected the layout's {size_bytes}.")
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise UsageError(f"{path}: its size is not sealed; expected a region of Region.create.")
