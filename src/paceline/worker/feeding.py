"""From a loader to batches by number: the policy speaks of batch 7, this knows which samples it is.

Two ways: :class:`MapFeed` loads exactly the batches it was leased from a map-style data set;
:class:`StreamFeed` reads any iterable from its beginning and passes on the wanted ones. Neither
knows a strategy or a plane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import torch
from torch.utils.data import DataLoader

from paceline.errors import UsageError
from paceline.events import Left
from paceline.worker.batch import Fingerprint, samples_in
from paceline.worker.order import Order


class _End:
    """The type of :data:`END`."""


END: Final = _End()
"""What ``get`` returns for a batch behind the end of a stream."""


class Feed(Protocol):
    """Batches by number."""

    def prefetch(self, numbers: Iterable[int]) -> None:
        """These batches will be wanted, in this order."""

    def get(self, number: int) -> Any:
        """Batch ``number`` as the loader made it, or END if the stream ended before it."""

    def close(self) -> None:
        """No more batches are wanted."""


class MapFeed:
    """Loads the leased batches of ``order``, and no others, as the user's loader would.

    Its DataLoader has the user's data set, collate function, workers and so on, a sampler that
    yields leases as they come, and a random generator of its own (``seed``).
    """

    def __init__(self, loader: DataLoader[Any], order: Order, *, seed: int) -> None:
        self._leases = _LeaseSampler(order)
        self._loader = _loader_like(loader, self._leases, seed)
        self._iterator: Iterator[Any] | None = None
        self._ready: dict[int, Any] = {}

    def prefetch(self, numbers: Iterable[int]) -> None:
        self._leases.add(numbers)
        if self._iterator is None and self._leases.waiting:
            self._iterator = iter(self._loader)

    def get(self, number: int) -> Any:
        if number not in self._ready and number not in self._leases:
            self.prefetch([number])
        while number not in self._ready:
            batch = self._next()
            self._ready[self._leases.arrived()] = batch
        return self._ready.pop(number)

    def close(self) -> None:
        self._iterator = None
        self._ready.clear()

    def _next(self) -> Any:
        if self._iterator is not None:
            try:
                return next(self._iterator)
            except StopIteration:  # it ran dry before these leases came; its processes live on
                pass
        self._iterator = iter(self._loader)
        return next(self._iterator)


class StreamFeed:
    """Reads ``source`` from its beginning, once or again and again, and keeps what is asked for.

    ``cycle``: begin again at the end (batch numbers go on). ``watch``: keep a running fingerprint
    of all batches read, so that ranks can check that they read the same.
    """

    def __init__(self, source: Iterable[Any], *, cycle: bool, watch: bool) -> None:
        self._source = source
        self._cycle = cycle
        self._fingerprint = Fingerprint() if watch else None
        self._marks = bytearray()
        self._iterator = iter(source)
        self.position = 0
        self._held: dict[int, Any] = {}
        self._left: Left | None = None

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Nothing: what a stream prefetches is its own business."""

    def go_on(self, left: Left, position: int) -> None:
        """Read what was read of an interrupted pass, up to ``position`` at most, and throw it away.

        Batch numbers are those of what is ``left``, from now on.
        """
        self._left = left
        if left.count != 0:
            position = min(position, left.number(0))
        while self.position < position and self._read() is not END:
            pass

    @property
    def length(self) -> int:
        """How many of the batches asked for have been met so far: all, at the stream's end."""
        return self.position if self._left is None else self._left.before(self.position)

    def peek(self) -> Any:
        """The first batch, or END. It stays to be got."""
        if 0 not in self._held and self.position == 0:
            self._held[0] = self._read()
        return self._held.get(0, END)

    def get(self, number: int) -> Any:
        if self._left is not None:
            number = self._left.number(number)
        if number in self._held:
            return self._held.pop(number)
        self._held.clear()
        if number < self.position:
            self._restart()
        while True:
            batch = self._read()
            if batch is END or self.position > number:
                return batch

    def mark(self, position: int) -> bytes:
        """Fingerprint of the first ``position`` batches (at most those read)."""
        stop = position * Fingerprint.SIZE_BYTES
        return bytes(self._marks[max(0, stop - Fingerprint.SIZE_BYTES) : stop])

    @property
    def marked(self) -> int:
        """How many batches from the beginning have a fingerprint."""
        return len(self._marks) // Fingerprint.SIZE_BYTES

    def close(self) -> None:
        self._held.clear()
        self._iterator = iter(())

    def _read(self) -> Any:
        batch = next(self._iterator, END)
        if batch is END and self._cycle and self.position > 0:
            self._iterator = iter(self._source)
            batch = next(self._iterator, END)
        if batch is not END:
            self.position += 1
            self._note(batch)
        return batch

    def _note(self, batch: Any) -> None:
        if self._fingerprint is not None and self.position > self.marked:
            self._marks += self._fingerprint.add(batch)

    def _restart(self) -> None:
        again = iter(self._source)
        if again is self._source:
            raise UsageError(
                "A batch of a lost worker has to be computed again, but the data is a generator, "
                "which can be read only once. Pass a list, a DataLoader, or an object whose "
                "__iter__ begins anew."
            )
        self._iterator = again
        self.position = 0


def first_samples(feed: StreamFeed) -> float:
    """Samples in the stream's first batch; 1.0 if it is empty."""
    batch = feed.peek()
    return 1.0 if batch is END else max(1.0, samples_in(batch))


class _LeaseSampler:
    """A sampler and its own iterator: ends when it runs out of leases, and goes on when more come."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.waiting: deque[int] = deque()
        self._handed: deque[int] = deque()

    def add(self, numbers: Iterable[int]) -> None:
        self.waiting.extend(numbers)

    def arrived(self) -> int:
        """The number of the batch that the loader has just returned (they return in order)."""
        return self._handed.popleft()

    def __contains__(self, number: int) -> bool:
        return number in self.waiting or number in self._handed

    def __iter__(self) -> _LeaseSampler:
        return self

    def __next__(self) -> Any:
        if not self.waiting:
            raise StopIteration
        number = self.waiting.popleft()
        self._handed.append(number)
        return self._order[number]


def _loader_like(loader: DataLoader[Any], sampler: Any, seed: int) -> DataLoader[Any]:
    """A DataLoader that differs from ``loader`` only in which batches it loads."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    batching: dict[str, Any] = (
        {"batch_size": None, "sampler": sampler}
        if loader.batch_sampler is None
        else {"batch_sampler": sampler}
    )
    return DataLoader(
        loader.dataset,
        **batching,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.num_workers > 0,  # so that running dry does not end them
    )
