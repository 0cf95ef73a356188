"""Records, as a pass ends, how far this worker's replica was from the others' mean.

Only where each worker trains a replica of its own. Measures nothing: the plane has.
"""

from __future__ import annotations

from paceline.worker.parts import Parts
from paceline.worker.replica_plane import ReplicaPlane


def watch_drift(parts: Parts) -> None:
    """Listen, if there are replicas."""
    if isinstance(parts.plane, ReplicaPlane):
        DriftWatch(parts, parts.plane)


class DriftWatch:
    """Looks on at ``plane``'s passes."""

    def __init__(self, parts: Parts, plane: ReplicaPlane) -> None:
        self._parts = parts
        self._plane = plane
        self._pass_id = 0
        parts.moments.opened.listen(self._opened)
        parts.moments.ended.listen(self._ended)

    def _opened(self, pass_id: int) -> None:
        self._pass_id = pass_id

    def _ended(self) -> None:
        drift, version = self._plane.drift, self._plane.position().version
        if drift is not None:
            self._parts.journal.drifted(drift, pass_id=self._pass_id, version=version)
