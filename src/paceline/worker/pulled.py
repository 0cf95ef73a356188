"""What came of a worker's pulls: bytes for the trace, and for compression's account. Decides nothing.

Knows messages and what they took, no tensors and no clock.
"""

from __future__ import annotations

from paceline.errors import UsageError
from paceline.transport.messages import Ended, Started
from paceline.worker.compression_account import Account
from paceline.worker.session import Session
from paceline.worker.training import Training


class Pulled:
    """``whole_bytes``: of the parameters. ``account``: None if nothing is compressed."""

    def __init__(self, whole_bytes: int, account: Account | None) -> None:
        self._whole_bytes = whole_bytes
        self._account = account
        self._showing_s = 0.0

    def shown(self, took_s: float) -> None:
        """Parameters are where they belong, which ``took_s``."""
        self._showing_s += took_s

    def came(self, reply: Started | Ended) -> int:
        """How many bytes came for the window of ``reply``."""
        took_s, self._showing_s = self._showing_s, 0.0
        size = reply.difference_bytes if isinstance(reply, Started) else None
        if size is None:
            return self._whole_bytes
        if size and self._account is not None and isinstance(reply, Started):
            self._account.pulled(size, self._whole_bytes, reply.coding_s + took_s)
        return size

    def carried(self, size_bytes: int, took_s: float) -> None:
        """A whole version came over a wire, which ``took_s``."""
        if self._account is not None:
            self._account.carried(size_bytes, took_s)


def speaker_of(session: Session) -> int:
    """The rank whose account stands for all: the first one from which anything travels. All have to ask."""
    far = session.gather("compress", b"far" if session.frames is not None else b"")
    return far.index(b"far") if b"far" in far else 0


def refuse_pull(plane: str, training: Training) -> None:
    """Raises UsageError if parameters of these types were to come as differences, and cannot."""
    if training.compress is None or training.compress.pull is None:
        return
    narrow = [one.name for one in training.trainables if one.parameter.element_size() == 2]
    if narrow and plane != "local":
        raise UsageError(
            f"compress={str(training.compress)!r} and parameters in 16 bits ({narrow[0]}) cannot work "
            "together: small differences would be rounded away. Leave pull out, or keep parameters in float32."
        )
