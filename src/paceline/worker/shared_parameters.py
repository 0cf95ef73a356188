"""The model's parameters where the server keeps them: views of the buffer that holds their version.

Nothing is copied: another version is shown by pointing the parameters at another buffer. Which
buffer may be read, and for how long, is said by messages; this module does not know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from paceline.gradients.layout import FlatLayout
from paceline.transport.shared_memory import Region


class SharedParameters:
    """``parameters`` in the layout's order. Buffers are descriptors of process ``server_pid``."""

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], layout: FlatLayout, server_pid: int
    ) -> None:
        self._parameters = parameters
        self._layout = layout
        self._server_pid = server_pid
        self._views: dict[int, list[torch.Tensor]] = {}
        self._shown = -1

    def show(self, fd: int) -> None:
        """Let the parameters be those in buffer ``fd``. Raises OSError if the server is gone."""
        if fd == self._shown:
            return
        if fd not in self._views:
            self._views[fd] = self._map(fd)
        # Through .data, which autograd does not count as a change: a forward may await its backward.
        for parameter, view in zip(self._parameters, self._views[fd], strict=True):
            parameter.data = view
        self._shown = fd

    @contextmanager
    def showing(self, fd: int) -> Iterator[None]:
        """Show buffer ``fd`` for a while, then again what was shown."""
        shown = self._shown
        self.show(fd)
        try:
            yield
        finally:
            self.show(shown)

    def spread(self, broadcast: Callable[[torch.Tensor], None], fd: int) -> None:
        """Show what the leader of this worker's group shows: members see the same memory."""
        self.show(fd)

    def release(self) -> None:
        """Move the parameters to ordinary memory, so that the model outlives the server."""
        for parameter in self._parameters:
            parameter.data = parameter.data.clone(memory_format=torch.preserve_format)
        self._views.clear()

    def _map(self, fd: int) -> list[torch.Tensor]:
        """Each parameter gets a storage no larger than itself: ``torch.save`` writes whole storages."""
        region = Region.open(self._server_pid, fd, self._layout.total_bytes)
        memory = region.memory.numpy()
        region.close()
        views = []
        for slot in self._layout.slots:
            stop = slot.offset_bytes + slot.span_bytes
            flat = torch.from_numpy(memory[slot.offset_bytes : stop]).view(slot.dtype)
            views.append(flat.as_strided(slot.shape, slot.stride))
        return views
