"""Collectives of torch.distributed whose waits can end early, and which never block an exit.

gloo notices a killed peer (and names it by address only) but never a stopped one, so every wait
here is made of slices, between which whoever knows better (the session, whose heartbeats name the
rank) can end it, and Python can see a Ctrl-C.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed.distributed_c10d as c10d

TIMEOUT = timedelta(days=7)
"""Deaths and silence are noticed by heartbeats; a rank that evaluates for an hour is neither."""

SLICE = timedelta(seconds=0.1)
"""A wait's length between two looks at whether the run goes on."""

POLL_S = 0.0005


class Interruptible(Protocol):
    """How to wait for collectives: what :class:`paceline.worker.session.Session` offers."""

    def check(self) -> None:
        """Raise if the run stops."""

    def explain(self, error: Exception) -> Exception:
        """What to raise for a broken connection."""


class Group:
    """All workers' process group: gloo for CPU tensors, NCCL for CUDA ones.

    Uses the process's default group, or, where the script has made that one itself, a new group of
    the same ranks. Every rank has to call every method but ``close`` in the same order.
    """

    def __init__(
        self, store: Any, *, rank: int, world_size: int, device: torch.device, waiter: Interruptible
    ) -> None:
        self.device = device
        self._waiter = waiter
        backend = "nccl" if device.type == "cuda" else "gloo"
        if c10d.is_initialized():
            self._group = c10d.new_group(backend=backend, timeout=TIMEOUT)
        else:
            c10d.init_process_group(
                backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT
            )
            self._group = c10d.group.WORLD
        _keep(self._group)

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None = None) -> Any:
        """Begin to replace ``tensor`` by its sum over all ranks; the work is for :meth:`finish`.

        ``on_done`` is called from gloo's thread at the end (NCCL: once the work is queued).
        """
        # The group itself is asked: torch.distributed's wrapper adds to a small reduction's time.
        work = self._explained(lambda: self._group.allreduce([tensor]))
        if on_done is not None:
            work.get_future().add_done_callback(lambda _: on_done())
        return work

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` by rank 0's."""
        source = c10d.get_global_rank(self._group, 0)
        start = lambda: c10d.broadcast(tensor, source, group=self._group, async_op=True)  # noqa: E731
        self.finish(self._explained(start))

    def finish(self, work: Any) -> None:
        """Block until the collective has ended on this rank.

        Raises what the waiter says if the run stops, or if the connection to a rank broke.
        """
        if self.device.type == "cuda":
            self._poll(work)
        while not self._ended(work):
            self._waiter.check()

    def close(self, *, abandon: bool) -> None:
        """Destroy the group; with ``abandon``, where a peer may not answer, leave it as it is."""
        if not abandon:
            _release(self._group)
            c10d.destroy_process_group(self._group)

    def _explained(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RuntimeError as error:
            raise self._waiter.explain(error) from error

    def _ended(self, work: Any) -> bool:
        """Whether it ended within a slice of time, spent without Python's lock."""
        try:
            work.wait(SLICE)
        except RuntimeError:  # it failed, or the slice is over: that does no harm
            if not work.is_completed():
                return False
            self._explained(work.wait)
        return True

    def _poll(self, work: Any) -> None:
        """A wait with a limit would abort NCCL's communicator; so look."""
        pause = threading.Event()
        while not work.is_completed():
            self._waiter.check()
            pause.wait(POLL_S)


def _keep(group: Any) -> None:
    """Keep ``group`` from ever being destroyed, at the process's exit too.

    gloo's destructor joins threads that wait for a peer: for ever, if that one is stopped. Python
    drops all that it knows of at exit, so this takes a reference that it does not know of.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _release(group: Any) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
