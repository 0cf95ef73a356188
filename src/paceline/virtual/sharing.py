"""Large arrays that all workers of one process hold alike are kept once: 128 data sets in the room of one.

When a worker joins, what its script holds is looked through for large tensors and arrays. Pages equal
to those that an earlier worker held are replaced by a private mapping of the same file, which the
kernel copies page by page if somebody writes to it. Addresses and values stay what they were.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

WORTHWHILE_BYTES = 2**20
_PAGE_BYTES = mmap.PAGESIZE
_MAP_FIXED = 0x10
_MOST_PARTS = 4096
_DEPTH = 6
_NUMBERS = "biufc"

Bytes = npt.NDArray[np.uint8]
MapOver = Callable[[int, int, int], None]


class Sharing:
    """What workers were found to hold so far. Does nothing where the system cannot (not Linux)."""

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[Bytes, int]]] = {}
        self._map_over = _mapper() if sys.platform == "linux" else None

    def look_through(self, frame: FrameType | None) -> None:
        """Share what functions of the script hold, from ``frame`` outwards, and their globals."""
        if self._map_over is None:
            return
        memories = list(_large_memories(_holders(frame)))
        private = _private_ranges() if memories else []
        for memory in memories:
            pages = _whole_pages(memory)
            if pages.nbytes and _within(pages, private):
                self._share(pages, self._map_over)

    def _share(self, pages: Bytes, map_over: MapOver) -> None:
        known = self._known.setdefault(pages.nbytes, [])
        fd = next((fd for shared, fd in known if np.array_equal(shared, pages)), None)
        if fd is None:
            fd = os.memfd_create("paceline-shared", os.MFD_CLOEXEC)
            with open(fd, "wb", closefd=False) as file:
                file.write(pages.data)
            view = mmap.mmap(fd, pages.nbytes, prot=mmap.PROT_READ)
            known.append((np.frombuffer(view, np.uint8), fd))
        map_over(pages.ctypes.data, pages.nbytes, fd)


# -------------------------------------------------------------------------- what scripts hold


def _holders(frame: FrameType | None) -> Iterator[Any]:
    """Variables of the functions that are under way, and of their modules; not our own."""
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("paceline."):
            yield frame.f_locals
            yield frame.f_globals
        frame = frame.f_back


def _large_memories(holders: Iterable[Any]) -> Iterator[Bytes]:
    """The memory of large tensors and arrays among ``holders`` and what they are made of, each once."""
    seen: set[int] = set()
    layer = list(holders)
    for _ in range(_DEPTH):
        fresh = {id(one): one for one in layer if id(one) not in seen}
        seen |= fresh.keys()
        for one in fresh.values():
            memory = _memory_of(one)
            if memory is not None and memory.nbytes >= WORTHWHILE_BYTES:
                if memory.ctypes.data not in seen:
                    yield memory
                seen.add(memory.ctypes.data)
        layer = [part for one in fresh.values() for part in _parts(one)]


def _memory_of(value: Any) -> Bytes | None:
    """All bytes behind a tensor or array that lies in this process's own memory."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.device.type != "cpu" or value.layout != torch.strided:
            return None
        whole: Bytes = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage()).numpy()
        return whole
    if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.kind in _NUMBERS:
        return np.frombuffer(value.data.cast("B"), np.uint8) if value.nbytes else None
    return None


def _parts(value: Any) -> Iterable[Any]:
    """What a container or an object of somebody's class is made of."""
    if isinstance(
        value, torch.Tensor | np.ndarray | ModuleType | FunctionType | type | str | bytes
    ):
        return ()
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= _MOST_PARTS else ()
    if isinstance(value, list | tuple):
        return value if len(value) <= _MOST_PARTS else ()
    return list(vars(value).values()) if hasattr(value, "__dict__") else ()


# -------------------------------------------------------------------------------------- pages


def _whole_pages(memory: Bytes) -> Bytes:
    """The pages that lie wholly in ``memory``."""
    start = -memory.ctypes.data % _PAGE_BYTES
    length = max(0, memory.nbytes - start) // _PAGE_BYTES * _PAGE_BYTES
    return memory[start : start + length]


def _private_ranges() -> list[tuple[int, int]]:
    """Addresses of memory that is this process's alone and of no file, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    with open("/proc/self/maps", encoding="utf-8") as lines:
        for line in lines:
            bounds, permissions, _, _, inode = line.split()[:5]
            if permissions != "rw-p" or inode != "0":
                continue
            start, stop = (int(bound, 16) for bound in bounds.split("-"))
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, stop))
    return ranges


def _within(pages: Bytes, ranges: list[tuple[int, int]]) -> bool:
    first = pages.ctypes.data
    return any(start <= first and first + pages.nbytes <= stop for start, stop in ranges)


def _mapper() -> MapOver:
    """``map_over(address, length, fd)``: a private, writable mapping of the file at that address."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]  # fmt: skip

    def map_over(address: int, length: int, fd: int) -> None:
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
        if libc.mmap(address, length, protection, flags, fd, 0) != address:
            raise OSError(ctypes.get_errno(), "mmap")

    return map_over
