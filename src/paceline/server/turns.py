"""In which order the server serves what reaches it: here, as it comes.

Everything that may change what a run computes passes through here before it is served, so that a
replay can hold it back until it is its turn (:mod:`paceline.replay.recorded_order`). Knows no policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from paceline.encounters import Encounter
from paceline.events import Fact, Order
from paceline.recorder import Recorder
from paceline.server.members import Group, Member


class Host(Protocol):
    """The server, as whoever holds something back needs it to go on later."""

    group: Group

    @property
    def all_came(self) -> bool:
        """Whether every rank has been here."""

    def serve(self, member: Member, request: Any) -> None:
        """Serve a request that was not let in at first."""

    def bury(self, member: Member) -> None:
        """``member``, whose process has ended, is a member no longer."""

    def wake(self) -> None:
        """Let the policy look who is overdue."""

    def meet(self) -> None:
        """Answer the exchanges that are complete."""


class Turns(Protocol):
    """Who is served when."""

    def attend(self, host: Host) -> None:
        """``host`` serves; called once, before anything else."""

    def lets_in(self, member: Member, request: Any) -> bool:
        """Whether to serve ``request`` now; otherwise the host is told to when it is its turn."""

    def lets_go(self, member: Member) -> bool:
        """Whether ``member``'s death counts now; otherwise the host is told when it does."""

    def may_meet(self) -> bool:
        """Whether an exchange of all live workers may be answered now."""

    def note(self, encounter: Encounter) -> None:
        """This is being served."""

    def facts(self, fact: Fact) -> Iterable[Fact]:
        """What to feed the policy for ``fact``, one after another."""

    def ordered(self, orders: Sequence[Order]) -> None:
        """The policy answered the last of them with ``orders``, which are on record and not carried out."""

    def awaited(self, live: set[int]) -> set[int]:
        """Whose parts of a checkpoint make it whole, where it takes all ``live`` workers'."""

    def look_around(self) -> None:
        """A few times a second."""


class AsTheyCome:
    """Nothing is held back; what the policy does not hear of is recorded among its facts."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def attend(self, host: Host) -> None:
        pass

    def lets_in(self, member: Member, request: Any) -> bool:
        return True

    def lets_go(self, member: Member) -> bool:
        return True

    def may_meet(self) -> bool:
        return True

    def note(self, encounter: Encounter) -> None:
        self._recorder.write(encounter)

    def facts(self, fact: Fact) -> Iterable[Fact]:
        return (fact,)

    def ordered(self, orders: Sequence[Order]) -> None:
        pass

    def awaited(self, live: set[int]) -> set[int]:
        return live

    def look_around(self) -> None:
        pass
