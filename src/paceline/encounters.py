"""What a server serves beside the policy's facts, where the order matters; and how a replay differed.

The policy does not hear of these. They are recorded among its facts, in the server's serial order, so
that a replay can keep that order too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """A worker was shown, outside its windows, ``what`` of ``version``: the latest one then."""

    time_s: float
    rank: int
    version: int
    what: Literal["parameters", "optimizer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """A worker handed in its part of checkpoint ``number`` of a pass: who comes first or last writes it."""

    time_s: float
    rank: int
    pass_id: int
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """All ``ranks`` that were live exchanged small payloads under this ``tag``."""

    time_s: float
    tag: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A worker raised (``text``), and everybody was stopped."""

    time_s: float
    rank: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Differs:
    """Where a replay first left its record: line ``line`` of the recorded ``file``.

    ``rank``, at ``clock`` (-1: none), had ``recorded`` in ``field`` and has ``now``, as people read them.
    """

    time_s: float
    file: str
    line: int
    rank: int
    clock: int
    field: str
    recorded: str
    now: str

    def __str__(self) -> str:
        at = "" if self.clock < 0 else f" at clock {self.clock}"
        who = "the group" if self.rank < 0 else f"rank {self.rank}{at}"
        return (
            f"{self.file}, line {self.line}: {who}: {self.field} was {self.recorded}, "
            f"now it is {self.now}"
        )


Encounter = Look | Handover | Meeting | Failure
