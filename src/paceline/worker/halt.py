"""Whether this worker has to stop, and why: set by one thread, seen by the one that waits.

Knows no connection and no clock.
"""

from __future__ import annotations

import threading

from paceline.errors import (
    ConsistencyError,
    EvictedError,
    PacelineError,
    PeerFailedError,
    PeerLostError,
    ServerLostError,
    StoppedError,
    UsageError,
)
from paceline.transport.messages import Stop

_ERRORS: dict[str, type[PacelineError]] = {
    "peer-lost": PeerLostError,
    "peer-failed": PeerFailedError,
    "evicted": EvictedError,
    "refused": UsageError,
    "shutdown": StoppedError,
    "inconsistent": ConsistencyError,
}


def stop_error(order: Stop) -> PacelineError:
    """What a worker raises on this order of the server's."""
    return _ERRORS[order.kind](order.text)


class Halt:
    """One reason to stop, kept for good; ``raised`` once the main thread has been told."""

    def __init__(self) -> None:
        self.raised = False
        self._reason: tuple[type[PacelineError], str] | None = None
        self._happened = threading.Event()
        self._lock = threading.Lock()

    @property
    def text(self) -> str | None:
        """Why to stop, or None as long as there is no reason."""
        return self._reason[1] if self._reason else None

    def stop(self, order: Stop) -> None:
        """The server says so."""
        self._set(_ERRORS[order.kind], order.text)

    def server_lost(self, detail: str) -> None:
        """The connection to the server broke."""
        text = f"The server of this run is gone ({detail}); its workers cannot go on."
        self._set(ServerLostError, text)

    def check(self) -> None:
        """Raises the matching PacelineError if there is a reason to stop."""
        if self._reason is not None:
            self.raised = True
            kind, text = self._reason
            raise kind(text)

    def settle(self, timeout_s: float) -> None:
        """Something broke: give a reason that is under way ``timeout_s`` to come, then check."""
        self._happened.wait(timeout_s)
        self.check()

    def _set(self, kind: type[PacelineError], text: str) -> None:
        with self._lock:
            if self._reason is None:
                self._reason = (kind, text)
        self._happened.set()
