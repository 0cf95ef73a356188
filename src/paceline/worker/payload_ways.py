"""How gradients get to the server and parameters to the worker; chosen once, when a worker joins.

On the server's host both lie in memory that both see, and nothing is sent (:class:`InSharedMemory`).
From another host gradients are sent bucket by bucket, while backward still runs where nobody changes
them after it, and parameters come as one whole version before the reply that names it
(:class:`AsFrames`). Who may do what when is the same. Knows no windows and no strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import msgspec
import torch

from paceline.compression import Compression
from paceline.gradients.codecs.codec import ParcelError
from paceline.gradients.codecs.differences import Differences
from paceline.gradients.layout import FlatLayout
from paceline.payloads import HEADER_BYTES
from paceline.transport.frame_channel import FrameChannel
from paceline.transport.framing import FrameError
from paceline.transport.messages import (
    DIFFERENCE,
    GLANCE,
    WINDOW,
    Decided,
    Filled,
    Message,
    Open,
    Opened,
    Push,
)
from paceline.worker.session import Session
from paceline.worker.shared_gradients import Gradients
from paceline.worker.shared_parameters import SharedParameters

Carried = Callable[[int, float], None]
MakeReceived = Callable[[Sequence[torch.nn.Parameter], FlatLayout], "ReceivedParameters"]


class Parameters(Protocol):
    """The model's parameters, as replies name them."""

    def show(self, fd: int) -> None:
        """Let the parameters be those that the reply called ``fd``."""

    def showing(self, fd: int) -> AbstractContextManager[None]:
        """Show for a while what the reply lent as ``fd``, then again what was shown."""

    def spread(self, broadcast: Callable[[torch.Tensor], None], fd: int) -> None:
        """Show the members of a group, all of whom ask, what its leader shows as ``fd``.
        ``broadcast(tensor)`` overwrites it with the leader's."""

    def release(self) -> None:
        """Move the parameters to memory of their own, so that the model outlives the run."""


class Way(Protocol):
    """The choice: see the module."""

    def filled(self, buckets: int) -> None:
        """In the window's last backward the first so many buckets are full."""

    def push(self, push: Push) -> Decided:
        """Push the window's gradients; what was decided."""

    def ask(self, request: Message) -> Any:
        """The server's reply to what is answered with parameters."""


class FirstWay(Way, Protocol):
    """As long as it is not known that there are several shards."""

    def open(self, opening: Open) -> tuple[Opened, Parameters]:
        """Ask the server to open the plane; its reply, and the parameters it speaks of."""


def way_of(
    session: Session,
    gradients: Gradients,
    parameters: Sequence[torch.nn.Parameter],
    layout: FlatLayout,
    *,
    ahead: bool,
    early: bool,
    received: MakeReceived,
) -> FirstWay:
    """The way of this worker. ``ahead``: the server may sum buckets before they are pushed; ``early``:
    nobody changes them once they are full; ``received``: where parameters from another host arrive."""
    if session.frames is None:
        return InSharedMemory(session, gradients, parameters, layout)
    shown = received(parameters, layout)
    return AsFrames(session, session.frames, gradients, shown, ahead=ahead, early=early)


class InSharedMemory:
    """The server has the worker's region mapped, and the worker the server's buffers."""

    def __init__(
        self,
        session: Session,
        gradients: Gradients,
        parameters: Sequence[torch.nn.Parameter],
        layout: FlatLayout,
    ) -> None:
        self._session = session
        self._region_fd = gradients.region.fd
        self._parameters = parameters
        self._layout = layout

    def open(self, opening: Open) -> tuple[Opened, Parameters]:
        opened: Opened = self._session.request(
            msgspec.structs.replace(opening, region_fd=self._region_fd)
        )
        shown = SharedParameters(self._parameters, self._layout, opened.server_pid)
        return opened, shown

    def filled(self, buckets: int) -> None:
        self._session.tell(Filled(buckets=buckets))

    def push(self, push: Push) -> Decided:
        decided: Decided = self._session.request(push)
        return decided

    def ask(self, request: Message) -> Any:
        return self._session.request(request)


class AsFrames:
    """Gradients leave, and parameters arrive, on ``channel``."""

    def __init__(
        self,
        session: Session,
        channel: FrameChannel,
        gradients: Gradients,
        shown: ReceivedParameters,
        *,
        ahead: bool,
        early: bool,
    ) -> None:
        self._session = session
        self._channel = channel
        self._memory = gradients.region.memory
        self._buckets = [bytes_of(vector) for vector in gradients.vectors]
        self._shown = shown
        self._ahead = ahead
        self._early = early
        self._posted = 0

    def open(self, opening: Open) -> tuple[Opened, Parameters]:
        self._channel.receive_into(self._shown.room)
        if self._session.rank == 0:
            opening = msgspec.structs.replace(opening, initial=bytes_of(self._memory).tobytes())
        opened: Opened = self._session.request(opening)
        return opened, self._shown

    def filled(self, buckets: int) -> None:
        if self._early:
            self._post(buckets)
            if self._ahead:
                self._channel.post_message(Filled(buckets=buckets))

    def push(self, push: Push) -> Decided:
        if push.weight != 0 and push.parcel is None:
            self._post(len(self._buckets))
        self._posted = 0
        decided: Decided = self._session.request(push)
        return decided

    def ask(self, request: Message) -> Any:
        return self._session.request(request)

    def _post(self, stop: int) -> None:
        for number in range(self._posted, stop):
            self._channel.post(number, self._buckets[number])
        self._posted = stop


class ReceivedParameters:
    """``parameters`` (in the layout's order) in two pieces of this process's memory: the window's, and
    one to look at beside it, made when it is first needed. Replies' names of buffers mean nothing here.
    ``pull``: how differences to the window's are encoded; None: there are none.
    ``carried(size_bytes, took_s)``: they came whole."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        layout: FlatLayout,
        pull: Compression | None = None,
        *,
        clock_s: Callable[[], float],
        carried: Carried,
    ) -> None:
        self._parameters = parameters
        self._layout = layout
        self._memory: dict[int, torch.Tensor] = {}
        self._shown = -1
        self._differences = None if pull is None else Differences(pull, layout.slots)
        self._parcel: torch.Tensor | None = None
        self._clock_s = clock_s
        self._carried = carried
        self._began_s: float | None = None

    def room(self, place: int, length: int) -> memoryview:
        """Where the server's parameters for ``place`` go. Raises FrameError for what is none."""
        if place == DIFFERENCE and self._differences is not None and WINDOW in self._memory:
            return self._room_for_difference(length)
        if place not in (WINDOW, GLANCE) or length != self._layout.total_bytes:
            raise FrameError(
                f"{length} bytes for place {place}; the model has {self._layout.total_bytes}"
            )
        self._began_s = self._clock_s()
        return self.memory(place)

    def memory(self, place: int) -> memoryview:
        """All bytes of ``place``, made when first asked for; those that nobody writes to cost nothing."""
        if place not in self._memory:
            self._memory[place] = torch.empty(self._layout.total_bytes, dtype=torch.uint8)
        return bytes_of(self._memory[place])

    def show(self, fd: int) -> None:
        self._add_difference()
        self._show(WINDOW)

    @contextmanager
    def showing(self, fd: int) -> Iterator[None]:
        shown = self._shown
        self._show(GLANCE)
        try:
            yield
        finally:
            self._show(shown)

    def spread(self, broadcast: Callable[[torch.Tensor], None], fd: int) -> None:
        self._add_difference()
        broadcast(self._memory[WINDOW])
        self._show(WINDOW)

    def release(self) -> None:
        for parameter in self._parameters:
            parameter.data = parameter.data.clone(memory_format=torch.preserve_format)
        self._memory.clear()

    def _room_for_difference(self, length: int) -> memoryview:
        if not 0 < length <= self._layout.total_bytes + HEADER_BYTES:
            raise FrameError(f"a difference of {length} bytes to {self._layout.total_bytes}")
        self._parcel = torch.empty(length, dtype=torch.uint8)
        return bytes_of(self._parcel)

    def _add_difference(self) -> None:
        """Bring the window's parameters to where the server has them for this worker."""
        parcel, self._parcel = self._parcel, None
        if parcel is None or self._differences is None:
            return
        try:
            self._differences.add(parcel, self._layout.views(self._memory[WINDOW]))
        except ParcelError as error:
            raise FrameError(f"a difference that cannot be read: {error}") from error

    def _show(self, place: int) -> None:
        began_s, self._began_s = self._began_s, None
        if began_s is not None:
            self._carried(self._layout.total_bytes, self._clock_s() - began_s)
        if place == self._shown:
            return
        for parameter, view in zip(self._parameters, self._views(place), strict=True):
            parameter.data = view
        self._shown = place

    def _views(self, place: int) -> Iterator[torch.Tensor]:
        """Each parameter with a storage no larger than itself: ``torch.save`` writes whole storages."""
        memory = self._memory[place].numpy()
        for slot in self._layout.slots:
            stop = slot.offset_bytes + slot.span_bytes
            flat = torch.from_numpy(memory[slot.offset_bytes : stop]).view(slot.dtype)
            yield flat.as_strided(slot.shape, slot.stride)


def bytes_of(memory: torch.Tensor) -> memoryview:
    """All of it, as bytes."""
    array: Any = memory.view(torch.uint8).numpy()
    return memoryview(array)
