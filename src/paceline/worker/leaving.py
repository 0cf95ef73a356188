"""How a worker's parts are put away: model and optimizer are plain ones again, and the trace is whole."""

from __future__ import annotations

import resource
from typing import Literal

from paceline.worker.buffers import parameter_digest
from paceline.worker.compression_words import savings
from paceline.worker.parts import Parts


def leave(parts: Parts, reason: Literal["finished", "departed"]) -> None:
    """Leave the group. ``"departed"``: before the run's end, without waiting for anybody."""
    version = parts.plane.position().version
    parts.guards.remove()
    parts.outside.remove()
    parts.norms.remove()
    account = parts.plane.account
    if account and (saved := savings(parts.options.compress, account)):
        parts.journal.quote(account.rank, "compression", saved)
    try:
        parts.plane.close(reason)
    finally:
        parts.journal.close(
            reason=reason,
            version=version,
            peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            digest=parameter_digest(parts.model),
        )
