"""Meetings of all ranks in the midst of forward and backward, each of them one gather.

Ranks compute at their own pace and may skip a batch, break off or have none, but a gather needs all
of them. So each rank that wants to add something up says what it is about; of several subjects one
is taken, and who came for another asks again. Who has nothing to compute attends with nothing until
nobody has. Every rank sees the same messages, so all decide alike, and nobody is waited for twice.
Knows neither what is added up nor how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

IDLE, FORWARD, BACKWARD = 0, 1, 2
_HEAD = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What a meeting is about. ``kind`` FORWARD: of layer ``key``; BACKWARD: of the forward that was
    meeting number ``key``."""

    kind: int
    key: int


Gather = Callable[[torch.Tensor], Sequence[torch.Tensor]]
Witness = Callable[[Subject, Sequence[torch.Tensor]], None]


class Meetings:
    """This rank's part. ``gather``: all ranks' messages in rank order; every rank has to call it.

    ``witness``: told of every meeting, with its subject and the shares brought, also where this rank
    came for something else or for nothing.
    """

    def __init__(self, gather: Gather, witness: Witness) -> None:
        self._gather = gather
        self._witness = witness
        self._held = 0
        self.open = False
        """Whether this rank may ask for a meeting: the others are sure to come."""

    def begin(self) -> None:
        """A window starts: all ranks will come until :meth:`end`."""
        self.open = True

    def end(self) -> None:
        """This rank computes nothing more in its window: attend until no other does either."""
        self.open = False
        nothing = _message(Subject(kind=IDLE, key=0), torch.zeros(0, dtype=torch.float64))
        while self._hold(nothing)[0].kind != IDLE:
            pass

    def attend(self, subject: Subject, share: torch.Tensor) -> tuple[int, list[torch.Tensor]]:
        """The meeting's number, and the shares of all ranks that came for ``subject``, by rank.

        ``share``: float64, on the CPU. Blocks until the other ranks attend a meeting.
        """
        message = _message(subject, share)
        while True:
            held, shares = self._hold(message)
            if held == subject:
                return self._held, shares

    def _hold(self, message: torch.Tensor) -> tuple[Subject, list[torch.Tensor]]:
        messages = self._gather(message)
        subjects = [_subject_of(one) for one in messages]
        subject = chosen(subjects)
        pairs = zip(subjects, messages, strict=True)
        shares = [one[_HEAD:] for about, one in pairs if about == subject]
        self._held += 1
        self._witness(subject, shares)
        return subject, shares


def chosen(subjects: Sequence[Subject]) -> Subject:
    """Which of the ranks' subjects a meeting takes: a backward first, else the lowest rank's.

    So a rank that went through a forward and then left its batch meets the others again at their
    next forward. A subject of kind IDLE only if there is no other.
    """
    return min(subjects, key=lambda subject: (BACKWARD, FORWARD, IDLE).index(subject.kind))


def _message(subject: Subject, share: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.tensor([subject.kind, subject.key], dtype=torch.float64), share])


def _subject_of(message: torch.Tensor) -> Subject:
    kind, key = message[:_HEAD].tolist()
    return Subject(kind=int(kind), key=int(key))
