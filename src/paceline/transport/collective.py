"""Collectives of torch.distributed whose waits can end early, and which never block an exit.

gloo notices a killed peer (and names it by address only) but never a stopped one, so every wait
here is made of slices, between which whoever knows better (the session, whose heartbeats name the
rank) can end it, and Python can see a Ctrl-C.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed.distributed_c10d as c10d

TIMEOUT = timedelta(days=7)
"""Deaths and silence are noticed by heartbeats; a rank that evaluates for an hour is neither."""

SLICE = timedelta(seconds=0.1)
"""A wait's length between two looks at whether the run goes on."""

POLL_S = 0.0005

GATHERED_BYTES = 2**20
"""Up to this size of all ranks' tensors together, three ranks or more gather them and add them up
themselves: half the turns of gloo's ring, and turns are what a small sum takes (4 ranks on 2 cores,
133 KB: 4.2 ms instead of 6.8; two ranks, or 1 MB each: slower)."""


class Interruptible(Protocol):
    """How to wait for collectives: what :class:`paceline.worker.session.Session` offers."""

    def check(self) -> None:
        """Raise if the run stops."""

    def explain(self, error: Exception) -> Exception:
        """What to raise for a broken connection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """A collective under way. ``parts``: what every rank brings, to be added up in ``total``, and
    ``on_done`` called then."""

    work: Any
    parts: tuple[torch.Tensor, ...] = ()
    total: torch.Tensor | None = None
    on_done: Callable[[], None] | None = None


class Group:
    """All workers' process group: gloo for CPU tensors, NCCL for CUDA ones.

    Uses the process's default group, or, where the script has made that one itself, a new group of
    the same ranks; ``private``: one beside both, of gloo, of which torch.distributed does not know
    (for some of the workers). Every rank has to call every method but ``close`` in the same order.
    """

    def __init__(
        self, store: Any, *, rank: int, world_size: int, device: torch.device, waiter: Interruptible,
        private: bool = False,
    ) -> None:  # fmt: skip
        self.device = device
        self._world_size = world_size
        self._waiter = waiter
        self._private = private
        backend = "nccl" if device.type == "cuda" else "gloo"
        if private:
            self._group: Any = c10d.ProcessGroupGloo(store, rank, world_size, TIMEOUT)
        elif c10d.is_initialized():
            self._group = c10d.new_group(backend=backend, timeout=TIMEOUT)
        else:
            c10d.init_process_group(
                backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT
            )
            self._group = c10d.group.WORLD
        _keep(self._group)

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None = None) -> Pending:
        """Begin to replace ``tensor`` (flat) by its sum over all ranks, to be waited for in
        :meth:`finish`.

        ``on_done`` is called when the sum is there, from gloo's thread (NCCL: once the work is queued)
        or within :meth:`finish`.
        """
        if tensor.is_complex():  # gloo has no sum of them
            tensor = torch.view_as_real(tensor).view(-1)
        if self._is_small(tensor):
            return self._gather(tensor, on_done)
        pending = self._reduce(tensor)
        if on_done is not None:
            pending.work.get_future().add_done_callback(lambda _: on_done())
        return pending

    def start_gather(self, tensor: torch.Tensor) -> Pending:
        """Begin to gather ``tensor`` (flat) of every rank: ``parts``, once :meth:`finish` has waited."""
        parts = tensor.new_empty((self._world_size, tensor.numel())).unbind()
        work = self._explained(lambda: self._group.allgather([list(parts)], [tensor]))
        return Pending(work=work, parts=parts)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` by rank 0's."""
        options = c10d.BroadcastOptions()
        options.rootRank = 0
        work = self._explained(lambda: self._group.broadcast([tensor], options))
        self.finish(Pending(work=work))

    def finish(self, pending: Pending) -> None:
        """Block until the collective has ended on this rank.

        Raises what the waiter says if the run stops, or if the connection to a rank broke.
        """
        if self.device.type == "cuda":
            self._poll(pending.work)
        while not self._ended(pending.work):
            self._waiter.check()
        if pending.total is not None:
            _add_up(pending.parts, pending.total)
            if pending.on_done is not None:
                pending.on_done()

    def close(self, *, abandon: bool) -> None:
        """Destroy the group; with ``abandon``, where a peer may not answer, leave it as it is.

        Destroyed here and now: gloo's destructor joins its threads, which a process forked later (a
        DataLoader's), whose garbage collector might find the group, does not have.
        """
        group, self._group = self._group, None
        if not abandon:
            _release(group)
            if not self._private:
                c10d.destroy_process_group(group)

    def _is_small(self, tensor: torch.Tensor) -> bool:
        total_bytes = self._world_size * tensor.numel() * tensor.itemsize
        return self.device.type == "cpu" and self._world_size > 2 and total_bytes <= GATHERED_BYTES

    # The group itself is asked: torch.distributed's wrappers add to the time of a small sum.

    def _reduce(self, tensor: torch.Tensor) -> Pending:
        return Pending(work=self._explained(lambda: self._group.allreduce([tensor])))

    def _gather(self, tensor: torch.Tensor, on_done: Callable[[], None] | None) -> Pending:
        return replace(self.start_gather(tensor), total=tensor, on_done=on_done)

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


def _add_up(parts: Sequence[torch.Tensor], total: torch.Tensor) -> None:
    """In rank order, whatever the memory: every rank gets the same bits."""
    total.copy_(parts[0])
    for part in parts[1:]:
        total.add_(part)


def _keep(group: Any) -> None:
    """Keep ``group`` from ever being destroyed, at the process's exit too.

    gloo's destructor joins threads that wait for a peer: for ever, if that one is stopped. Python
    drops all that it knows of at exit, so this takes a reference that it does not know of.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _release(group: Any) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
