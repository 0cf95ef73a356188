"""Looks, every so many windows, whether this worker still agrees with the others in what must be equal.

Inside a pass nobody waits: a worker says how things stand with it when a window is computed, and the
server holds that against what others said of the same window of theirs. After a pass, where all meet
anyway, everything is compared with everyone. Knows facts; how they are come by is the statement's.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec
from torch import nn

from paceline.errors import ConsistencyError, bad_value
from paceline.strategies import Backup, drifts, is_joint
from paceline.transport.facts import compare, describe
from paceline.transport.witness_messages import Fact, Vouch, Witness
from paceline.worker.hand_changes import HandChanges
from paceline.worker.moving_buffers import MovingBuffers
from paceline.worker.parts import Parts
from paceline.worker.plane import Contribution
from paceline.worker.session import Session
from paceline.worker.statement import Scope, facts_of, plain, settings, tensors

_CALL = "worker.verify"
_WHY = "Something changed it on some ranks only; every rank must do the same."


def verify_now(parts: Parts, moving: Container[str] = frozenset()) -> None:
    """Compare everything with all live ranks, which must all call it; nobody may be inside a pass.

    ``moving``: names of buffers that differ by right. Raises ConsistencyError, on all ranks.
    """
    model, optimizer = parts.model, parts.optimizer
    settled = parts.plane.settled
    moving = moving if settled else {name for name, _ in model.named_buffers()}
    scope = Scope(parameters=settled, state=parts.plane.name == "allreduce", moving=moving)
    facts = settings(model, optimizer) | tensors(model, optimizer, trained_by_name(parts), scope)
    replies = parts.agreement.gather(_CALL, facts=msgspec.to_builtins(facts))
    everyone = {one["rank"]: msgspec.convert(one["facts"], dict[str, Fact]) for one in replies}
    found = compare(everyone)
    if found is not None:
        raise ConsistencyError(f"{describe(found)}. {_WHY}")


def trained_by_name(parts: Parts) -> dict[str, nn.Parameter]:
    """The trained parameters, in the optimizer's order."""
    names = {id(parameter): name for name, parameter in parts.model.named_parameters()}
    return {names[id(parameter)]: parameter for parameter in parts.trained}


class Verifying:
    """What ``worker.verify`` does. ``session``: None if the worker is alone, and agrees with itself."""

    def __init__(self, parts: Parts, session: Session | None) -> None:
        self._parts = parts
        self._session = session
        self._verifier: Verifier | None = None

    def __call__(self, every: int | None) -> None:
        if every is not None and (not isinstance(every, int) or every < 1):
            raise bad_value("every", every, "a whole number of windows >= 1", "None: once, now.")
        if self._session is None:
            return
        if every is None:
            verify_now(self._parts)
        elif self._verifier is None:
            self._verifier = Verifier(self._parts, self._session, every)
        else:
            self._verifier.every = every

    def remove(self) -> None:
        """Leave the model as it was found."""
        if self._verifier is not None:
            self._verifier.remove()


class Verifier:
    """Checks every ``every``-th window of a pass, and everything when a pass has ended.

    Must be made by all ranks at the same point.
    """

    def __init__(self, parts: Parts, session: Session, every: int) -> None:
        self.every = every
        self._parts = parts
        self._session = session
        self._trained = trained_by_name(parts)
        self._pass_id = self._index = 0
        self._vouched: list[Fact] = []
        self._in_step = _in_step(parts)
        self._hand = HandChanges(parts.optimizer)
        self._moving = MovingBuffers(parts.model, statistics=parts.norms.mode != "freeze")
        self._listen()

    def _listen(self) -> None:
        moments, schedules = self._parts.moments, self._parts.schedules
        schedules.stepping.listen(self._hand.look)
        schedules.stepped.listen(self._hand.scheduled)
        moments.opened.listen(self._opened)
        moments.started.listen(self._vouch)
        moments.computed.listen(self._computed)
        moments.decided.listen(self._vouch)
        moments.ended.listen(lambda: verify_now(self._parts, self._moving))

    def remove(self) -> None:
        """Leave the model as it was found."""
        self._moving.remove()

    @property
    def _due(self) -> bool:
        return (self._index + 1) % self.every == 0

    def _opened(self, pass_id: int) -> None:
        self._pass_id, self._index = pass_id, 0
        self._hand.look()

    def _vouch(self, _: object) -> None:
        """New parameters are here. Ask at once, before the script can touch what it must not."""
        if self._due and self._parts.plane.name == "server":
            self._vouched = self._session.request(Vouch()).facts

    def _computed(self, _: Contribution) -> None:
        self._hand.look()
        if self._due:
            self._compare_with_version()
            self._compare_with_others()
        self._index += 1

    def _compare_with_version(self) -> None:
        """The parameters are those of the version that this worker was given."""
        if not self._vouched:
            return
        given, self._vouched = self._vouched, []
        held = facts_of(self._trained)
        for (name, mine), expected in zip(held.items(), given, strict=True):
            if mine.value != expected.value:
                self._refuse(
                    f"parameter {name} is {mine.shown} on rank {self._parts.launch.rank}, and "
                    f"{expected.shown} in the version that the server gave it"
                )

    def _compare_with_others(self) -> None:
        unused = [name for name, one in self._trained.items() if one.grad is None]
        witness = Witness(
            pass_id=self._pass_id, index=self._index, facts=self._facts(), unused=unused
        )
        reply = self._session.request(witness)
        if reply.difference is not None:
            self._refuse(describe(reply.difference))

    def _facts(self) -> dict[str, Fact]:
        model, optimizer = self._parts.model, self._parts.optimizer
        own = self._parts.plane.name == "allreduce"
        facts = settings(model, optimizer, frozenset() if self._in_step else self._hand.moved)
        for number in range(len(optimizer.param_groups)):
            about = f"changes by hand of optimizer group {number}"
            facts[about] = plain(self._hand.in_group(number))
        if self._in_step and not drifts(self._parts.options.strategy):
            facts["the loss scale"] = plain(self._parts.plane.loss_scale())
        scope = Scope(parameters=own, state=own, moving=self._moving)
        return facts | tensors(model, optimizer, self._trained, scope)

    def _refuse(self, difference: str) -> None:
        """Every rank raises this."""
        where = f"in window {self._index} of pass {self._pass_id}"
        text = f"verify, {where}: {difference}. {_WHY}"
        self._session.abort(text, "inconsistent")
        raise ConsistencyError(text)


def _in_step(parts: Parts) -> bool:
    """Whether workers are at the same point of every schedule in the same window of theirs."""
    strategy = parts.options.strategy
    return is_joint(strategy) and not isinstance(strategy, Backup)
