"""What a version must be, said by the server, that wrote it: a fact about each parameter.

Computed when first asked for and kept until the buffer is written again, so that workers that read
the same version cost one look at it. Knows no worker's state.
"""

from __future__ import annotations

from paceline.gradients.checksum import checksums, shown
from paceline.gradients.layout import FlatLayout
from paceline.server.versions import Versions
from paceline.transport.witness_messages import Fact


class Vouching:
    """``layout``: of a version in its buffer."""

    def __init__(self, layout: FlatLayout, versions: Versions) -> None:
        self._layout = layout
        self._versions = versions
        self._known: dict[int, tuple[int, list[Fact]]] = {}

    def facts(self, rank: int) -> list[Fact]:
        """About the parameters of the version that ``rank`` reads for its window."""
        buffer = self._versions.held(rank)
        written, facts = self._known.get(buffer.fd, (-1, []))
        if written != buffer.written:
            views = self._layout.views(buffer.pieces.memory)
            facts = [
                Fact(value=value, shown=shown(view, value))
                for value, view in zip(checksums(views), views, strict=True)
            ]
            self._known[buffer.fd] = (buffer.written, facts)
        return facts
