"""What a worker of a replay does besides: compare itself with its record, stop at a version.

The order in which things happen is the server's to keep (:mod:`paceline.replay.recorded_order`); this
sees only this worker's own trace, which has what the server never hears of: the loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from paceline import trace
from paceline.encounters import Differs
from paceline.errors import ConsistencyError, StoppedError
from paceline.launch.context import Launch
from paceline.launch.summary import FILE_NAME
from paceline.recorder import Recorder
from paceline.replay.differences import difference
from paceline.replay.record import records_of
from paceline.worker.plane import Outcome

_COMPARED: dict[type, tuple[str, ...]] = {
    trace.Setup: (),
    trace.Step: ("clock", "version", "batches", "weight", "loss", "norm", "applied", "lag"),
}
"""Which fields (none named: all). The loss, which is this worker's own, before what all workers share."""
_LINES = tuple(f'["{kind.__name__.lower()}",'.encode() for kind in _COMPARED)


class Comparison:
    """Holds setup and steps, as they are recorded in the file ``now``, against those of ``recorded``.

    To be made before ``now`` is opened for this Worker, the script's first or a later one.
    """

    def __init__(self, recorded: Path, now: Path, *, rank: int) -> None:
        earlier = sum(1 for _ in records_of(now, "header"))
        self._file = recorded.name
        self._rank = rank
        self._expected = _compared(recorded, generation=earlier + 1)
        self.recorder: Recorder

    def see(self, record: trace.Record) -> None:
        """``record`` was written. Raises ConsistencyError if it is not the recorded one."""
        if not isinstance(record, trace.Setup | trace.Step):
            return
        line, expected = next(self._expected, (0, None))
        if expected is None:  # the record is shorter: its process was killed
            return
        now = trace.decode(trace.encode(record))
        found = difference(expected, now, only=_COMPARED[type(now)])
        if found is not None:
            self._differ(
                Differs(
                    time_s=record.time_s, file=self._file, line=line, rank=self._rank,
                    clock=getattr(now, "clock", -1), field=found.field, recorded=found.recorded, now=found.now,
                )
            )  # fmt: skip

    def _differ(self, differs: Differs) -> NoReturn:
        self.recorder.write(differs)
        self.recorder.flush()
        raise ConsistencyError(f"The replay differs from the record: {differs}")


def compared_recorder(
    run: Path, path: Path, *, rank: int, clock_s: Callable[[], float]
) -> Recorder:
    """A recorder to ``path`` whose steps are compared with those of ``run``."""
    comparison = Comparison(run / path.name, path, rank=rank)
    comparison.recorder = Recorder(path, clock_s, rank=rank, watch=comparison.see)
    return comparison.recorder


def stop_at(version: int, save: Callable[[], None]) -> Callable[[Outcome], None]:
    """To be told of each decision: once ``version`` is made, ``save()`` and StoppedError."""

    def decided(outcome: Outcome) -> None:
        if outcome.version >= version:
            save()
            raise StoppedError(f"version {version} is made")

    return decided


def is_far(launch: Launch) -> bool:
    """Whether this worker is as on a host of its own: emulated, or emulated when it was recorded."""
    if launch.replay is None:
        return launch.emulate is not None
    asked = json.loads((launch.replay / FILE_NAME).read_bytes())["request"]
    return bool(asked.get("emulate") or asked.get("virtual"))


def _compared(path: Path, *, generation: int) -> Iterator[tuple[int, trace.Record]]:
    """The setup and the steps of the file's ``generation``-th Worker, with their lines."""
    seen = 0
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            seen += line.startswith(b'["header"')
            if seen > generation:
                return
            if seen == generation and line.startswith(_LINES) and line.endswith(b"\n"):
                yield number, trace.decode(line)
